"""Claim a job for an attempt, and end it where nothing else follows: one round trip each.

Both are functions of the database, which decide and write everything under the job's lock and commit by themselves:
`pointsman_claim_1` and `pointsman_end_1` in `ledger/migrations/versions/0101_ledger.sql`. Of any number of copies of a
message only one is claimed. Messages may be seconds old, so a pause takes effect here; and a tenant never gets more
attempts than its limit, however many of its messages are claimed at the same moment.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any
from uuid import UUID

from ledger.attempts import hash_token, new_token, policy_under
from ledger.dispatch_window import WRITING_QUEUES
from ledger.errors import FencedError, JobNotFoundError
from ledger.job_ends import event_of_end, is_run, is_step, task_key
from ledger.jobs import LIMIT_OF_END, end, lock_job, output_bytes
from ledger.store import Ledger, Statement, dump_json, storable
from ledger.tables import ClaimedAttempt, ClaimedJob, Release, Site
from routing.errors import PolicyError
from routing.failures import INFRASTRUCTURE, FailureEvent, dead_letter_signature
from routing.ids import new_id
from routing.jobs import USED_ENDS, WASTED_OUTCOMES, JobMessage, Reason, State, check_move
from routing.policy.platform import Policy
from routing.queues import QUEUES, QueueName
from routing.redaction import redact

_CLAIM = Statement("""
    SELECT pointsman_claim_1(%(job)s, %(fence)s, %(queue)s, %(worker)s, %(attempt)s, %(token_hash)s, %(overrides)s,
                             %(lease_seconds)s, %(hard_seconds)s, %(running)s, %(per_queue)s, %(per_tenant)s,
                             %(writes)s, %(may_be_lost)s)
""")
_END = Statement("""
    SELECT pointsman_end_1(%(job)s, %(attempt)s, %(state)s, %(reason)s, %(detail)s, %(facts)s, %(signature)s,
                           %(limit)s, %(output_bytes)s, %(wasted)s, %(task_key)s, %(prompt)s)
""")
_MAY_BE_LOST = frozenset(name for name, queue in QUEUES.items() if not queue.leaves_open and queue.box != "warm")
"""Queues whose claims do not wait for the disk: before anything is paid for or offered, a durable commit follows, and
with it they are on disk. One that a crash of the server takes leaves no trace but a message, and the job runs again.
"""
_IDS = ("site_id", "parent_id", "root_id", "base_release_id", "start_release_id")


@dataclass(frozen=True)
class Claim:
    """A job that a worker now holds."""

    job: ClaimedJob
    attempt: ClaimedAttempt
    token: str
    """Lets this attempt call models at the gateway. Only its hash is stored."""
    policy: Policy
    """With the tenant's overrides."""
    waited_seconds: float = 0.0
    """How long it waited for a worker."""
    booked_nanousd: int = 0
    """Spent and reserved on its bill before this attempt, over all rounds and tiers."""
    site: Site | None = None
    base: Release | None = None
    """The site's active release, unless the job has another base already."""
    begun: Release | None = None
    """What an earlier round of the session kept, from which the work continues."""


def claim(ledger: Ledger, message: JobMessage, *, queue: QueueName, worker: str, policy: Policy) -> Claim | None:
    """Claim a job for one attempt; a tenant with overrides costs a second round trip.

    Returns:
        None when there is nothing to do: the message is stale, the job cancelled, its site busy, its queue or tenant
        paused, or the tenant at its limit of attempts; or when the tenant's overrides do not fit or an action names no
        site, which ends the job.
    """
    token, attempt_id, effective, overrides = new_token(), new_id(), policy, "{}"
    values = {
        "job": message.job_id,
        "fence": message.fence,
        "queue": queue.value,
        "worker": worker,
        "attempt": attempt_id,
        "token_hash": hash_token(token),
        "running": policy.admission.running_per_tenant,
        "per_queue": policy.dispatch_window.per_queue,
        "per_tenant": policy.dispatch_window.per_tenant,
        "writes": queue in WRITING_QUEUES,
        "may_be_lost": queue in _MAY_BE_LOST,
    }
    while True:
        limits = {
            "overrides": overrides,
            "lease_seconds": effective.attempts.lease_seconds,
            "hard_seconds": effective.queues[queue].hard_seconds,
        }
        with ledger.look() as connection:
            found = _CLAIM.scalar(connection, values | limits)
        if found is None or "job" in found:
            break
        if "overrides" not in found:
            detail = "an action needs a site; it names none"
            _refuse(ledger, message, queue, reason=Reason.INVALID_REQUEST, detail=detail)
            return None
        overrides = found["overrides"]
        try:
            effective = policy_under(json.loads(overrides), found["tenant"], policy)
        except PolicyError as error:
            _refuse(ledger, message, queue, reason=Reason.INTERNAL_ERROR, detail=str(error))
            return None
    if found is None:
        return None
    if found["is_low"]:
        ledger.wake_dispatcher()
    job = _read_job(message.job_id, found["job"])
    began = datetime.fromisoformat(found["started_at"])
    attempt = ClaimedAttempt(
        attempt_id, job.id, found["number"], queue.value, job.tier, message.fence + 1, worker, began
    )
    return Claim(
        job,
        attempt,
        token,
        policy=effective,
        waited_seconds=found["waited_seconds"],
        booked_nanousd=found["booked_nanousd"] or 0,
        site=Site.model_validate(site) if (site := found["site"]) else None,
        base=Release.model_validate(base) if (base := found["base"]) else None,
        begun=Release.model_validate(begun) if (begun := found["begun"]) else None,
    )


def _read_job(job_id: UUID, row: dict[str, Any]) -> ClaimedJob:
    for name in _IDS:
        if row[name] is not None:
            row[name] = UUID(row[name])
    return ClaimedJob(id=job_id, **row)


def _refuse(ledger: Ledger, message: JobMessage, queue: QueueName, *, reason: Reason, detail: str) -> None:
    """End a job that cannot be claimed, if it still waits."""
    with ledger.begin() as session:
        try:
            job = lock_job(session, message.job_id)
        except JobNotFoundError:
            return
        if job.fence == message.fence and job.waiting_since is not None and job.queue == queue.value:
            end(session, job, State.FAILED, reason=reason, detail=detail)


def finish(
    ledger: Ledger,
    claimed: Claim,
    target: State,
    *,
    reason: Reason,
    detail: str = "",
    result: Mapping[str, Any] = MappingProxyType({}),
) -> bool:
    """End a job that an attempt holds, as `jobs.end` does, if nothing else follows from its end.

    Returns:
        False when more follows (a run, a count of failures, a cancellation, a release) and nothing was done.

    Raises:
        FencedError: nobody's fault: the job was taken away or has ended.
        RoutingError: our fault.
    """
    job, counts_as = claimed.job, None
    if reason not in INFRASTRUCTURE:
        counts_as = event_of_end(job, target)
    is_plain = job.state == State.RUNNING and job.supersede_key is None and not is_step(job) and not is_run(job)
    if not is_plain or counts_as not in (None, FailureEvent.SUCCEEDED):
        return False
    check_move(State.RUNNING, target)
    detail, prompt = redact(storable(detail)), redact(job.prompt)
    values = {
        "job": job.id,
        "attempt": claimed.attempt.id,
        "state": target.value,
        "reason": reason.value,
        "detail": detail or None,
        "facts": dump_json(dict(result)),
        "signature": dead_letter_signature(target, reason, detail),
        "limit": LIMIT_OF_END.get(target),
        "output_bytes": output_bytes(result),
        "wasted": None if target in USED_ENDS else sorted(WASTED_OUTCOMES),
        "task_key": task_key(job, first_prompt=job.first_prompt or job.prompt) if counts_as else None,
        "prompt": prompt if prompt != job.prompt else None,
    }
    with ledger.look() as connection:
        verdict = _END.scalar(connection, values)
    if verdict == "fenced":
        raise FencedError(job.id, claimed.attempt.fence)
    if verdict == "ended, others wait":
        ledger.wake_dispatcher()
    return bool(verdict != "more follows")

"""Turn an outcome into a ledger transition: first the slow part, then one transaction that counts or does not."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from sqlmodel import Session

from ledger.attempts import defer, escalate
from ledger.decisions import act_on_reply, add_debate, ask_owner
from ledger.events import EventKind, record
from ledger.job_control import approve_by_policy, await_approval
from ledger.jobs import end, route_job
from ledger.releases import NewRelease, add_release, ensure_site
from ledger.runs.steps import StepReport, settle_step
from ledger.start_attempt import Claim, finish
from ledger.store import Ledger, storable
from ledger.tables import Job, Tenant
from monitoring import traces
from routing.jobs import Reason, State
from routing.queues import QUEUES
from routing.redaction import redact
from sites.content_store import review_diff
from sites.errors import PathRefusedError, TreeRefusedError
from sites.files import is_built
from sites.releases import build_release, manifest_of
from sites.scan.hidden_text import hidden_text
from sites.scan.rules import Finding
from sites.spec.read_back import read_back
from workers.attempt import Attempt
from workers.compute import timed
from workers.inputs import Inputs
from workers.outcomes import Answered, Asked, Candidate, Deferred, Ended, Escalate, Outcome, Replied, Routed

ResultT = TypeVar("ResultT")
Settlement = Callable[[Session, Job], None]
"""The fast part: called with the locked job, in the transaction that also closes the attempt."""


def prepare(attempt: Attempt, outcome: Outcome) -> Settlement:
    """Check an outcome against the limits, do the slow work (store, scan), and return what is left to commit."""
    if isinstance(outcome, Answered):
        size = len(outcome.text.encode("utf-8", "surrogatepass"))
        done = Ended(State.ANSWERED, Reason.DONE, "", {"answer": outcome.text, **outcome.facts})
        return EndWith(done if size <= attempt.output_bytes else _too_large(attempt, size))
    if isinstance(outcome, Candidate):
        return _prepare_candidate(attempt, outcome)
    if isinstance(outcome, Escalate):
        return _prepare_escalation(attempt, outcome)
    if isinstance(outcome, Asked):
        return _ask(attempt, outcome)
    if isinstance(outcome, Routed):
        return _queue(outcome)
    if isinstance(outcome, Replied):
        return partial(
            act_on_reply, result=outcome.result, policy=attempt.policy, rules=outcome.rules, actor="pointsman"
        )
    if isinstance(outcome, StepReport):
        return partial(settle_step, report=outcome, known_keys=attempt.secrets)
    if isinstance(outcome, Deferred):
        return _prepare_deferred(attempt, outcome)
    if outcome.kept is not None:
        return _prepare_kept(attempt, outcome, outcome.kept)
    return EndWith(outcome)


@dataclass(frozen=True)
class EndWith:
    """The settlement that ends the job."""

    ended: Ended

    def __call__(self, session: Session, job: Job) -> None:
        """End it, whatever follows."""
        ended = self.ended
        if ended.debate is not None:
            add_debate(session, job, ended.debate)
        end(session, job, ended.state, reason=ended.reason, detail=ended.detail, result=ended.facts)

    def at_once(self, claimed: Claim, ledger: Ledger) -> bool:
        """End it in one round trip; False when more follows from its end, and nothing was done."""
        ended = self.ended
        return ended.debate is None and finish(
            ledger, claimed, ended.state, reason=ended.reason, detail=ended.detail, result=ended.facts
        )


def _too_large(attempt: Attempt, size: int) -> Ended:
    detail = f"the output has {size} bytes, the limit is {attempt.output_bytes}; nothing was kept"
    return Ended(State.OUTPUT_EXCEEDED, Reason.OUTPUT_CAP, detail, {"output_bytes": size})


def _queue(outcome: Routed) -> Settlement:
    """Queue the job on its route; its debate is recorded first (R-050)."""

    def settle(session: Session, job: Job) -> None:
        if outcome.debate is not None:
            add_debate(session, job, outcome.debate)
        name = job.request.get("new_site")
        if job.site_id is None and name and QUEUES[outcome.route.queue].tier is not None:
            job.site_id = ensure_site(session, job.tenant, name).id  # the rules took it for a question
        route_job(session, job, outcome.route)

    return settle


def _ask(attempt: Attempt, outcome: Asked) -> Settlement:
    def settle(session: Session, job: Job) -> None:
        if outcome.debate is not None:
            add_debate(session, job, outcome.debate)
        if outcome.route is not None:
            job.route = outcome.route.stored()
        ask_owner(session, job, redact(storable(outcome.question)), policy=attempt.policy)

    return settle


def _prepare_escalation(attempt: Attempt, outcome: Escalate) -> Settlement:
    if attempt.is_pinned:
        return EndWith(Ended(State.FAILED, outcome.reason, f"{outcome.detail}; the job is pinned to its tier"))

    return partial(escalate, to=outcome.to, reason=outcome.reason, detail=outcome.detail)


def _prepare_candidate(attempt: Attempt, outcome: Candidate) -> Settlement:
    assert attempt.site is not None
    size = sum(len(data) for data in outcome.files.values())
    if size > attempt.output_bytes:
        return EndWith(_too_large(attempt, size))
    attempt.begin_scan()
    try:
        new, facts = _scan(attempt, _release_and_hidden_text, outcome)
    except (TreeRefusedError, PathRefusedError) as error:
        return EndWith(Ended(State.FAILED, Reason.SCAN_REFUSED, str(error)))
    return _offer(replace(outcome, facts={**outcome.facts, **facts}), new, hours=attempt.policy.approval.hours)


def _scan(attempt: Attempt, work: Callable[..., ResultT], kept: Candidate, **named: str) -> ResultT:
    """Compute a release from files that no key may be in."""
    return attempt.compute(work, kept, known_keys=attempt.resources.known_keys, new_keys=attempt.session_keys, **named)


def _release_and_hidden_text(
    inputs: Inputs, outcome: Candidate, *, known_keys: tuple[str, ...], new_keys: tuple[str, ...]
) -> tuple[NewRelease, Mapping[str, Any]]:
    """Return the release, and text that a model may have read and no visitor sees (threat D7).

    With any of it a person decides, not policy.
    """
    new = _release_of(inputs, outcome, known_keys=known_keys, new_keys=new_keys)
    found = hidden_text({**inputs.base_files, **outcome.files})
    return new, {"hidden_text": [place._asdict() for place in found], "needs_person": True} if found else {}


def _release_of(
    inputs: Inputs,
    outcome: Candidate,
    *,
    step: str = "scan",
    known_keys: tuple[str, ...],
    new_keys: tuple[str, ...],
) -> NewRelease:
    """Store and scan a candidate, compared with the active release whatever the work continued from."""
    assert inputs.site is not None
    with timed(step):
        if inputs.begun is not None:
            outcome = from_base(inputs, outcome)
        return build_release(
            inputs.content_store,
            outcome.files,
            site=inputs.site,
            policy=inputs.policy,
            spec=outcome.spec if outcome.spec is not None else _kept_spec(inputs, outcome.files),
            diff=outcome.diff,
            reverse=outcome.reverse,
            base_release_id=inputs.base.id if inputs.base else None,
            job_id=inputs.job_id,
            build_seconds=outcome.build_seconds,
            known_keys=known_keys,
            new_keys=new_keys,
            base=manifest_of(inputs.base) if inputs.base else None,
        )


def from_base(inputs: Inputs, candidate: Candidate) -> Candidate:
    """Return a candidate with its patches against the base: what it was made from may be something else."""
    base = inputs.base_files
    return replace(
        candidate,
        diff=review_diff(base, candidate.files),
        reverse=review_diff(candidate.files, base) if candidate.reverse is not None else None,
    )


def _prepare_kept(attempt: Attempt, ended: Ended, kept: Candidate) -> Settlement:
    """Store the work of an ended job as a release that cannot be approved."""
    try:
        new = _scan(attempt, _release_of, kept, step="salvage")
    except (TreeRefusedError, PathRefusedError) as error:
        return EndWith(replace(ended, detail=f"{ended.detail}; but {error}", kept=None))

    def settle(session: Session, job: Job) -> None:
        job.release_id = add_release(session, new).id
        facts = {"summary": kept.summary, **kept.facts, "is_salvaged": True}
        end(session, job, ended.state, reason=ended.reason, detail=ended.detail, result=facts)

    return settle


def _prepare_deferred(attempt: Attempt, deferred: Deferred) -> Settlement:
    """Let the job wait with what it has done so far, or end once it has waited long enough."""
    new = None
    if deferred.kept is not None:
        try:
            new = _scan(attempt, _release_of, deferred.kept, step="salvage")
        except (TreeRefusedError, PathRefusedError):
            new = None  # start over from the base

    def settle(session: Session, job: Job) -> None:
        release = add_release(session, new) if new is not None else None
        pause = defer(
            session,
            job,
            asked=deferred.seconds,
            reason=deferred.reason,
            detail=deferred.detail,
            kept=release,
            replies=attempt.replies,
            facts=deferred.facts,
            begun=deferred.begun,
            circuits=attempt.policy.circuits,
        )
        if pause is not None:
            return
        facts = {**deferred.facts} | ({"begun": deferred.begun} if deferred.begun else {})
        if release is not None:
            job.release_id = release.id
            facts |= {"is_salvaged": True}
        detail = f"{deferred.detail}; it has waited as long as it may"
        end(session, job, State.FAILED, reason=deferred.reason, detail=detail, result=facts)

    return settle


def _kept_spec(inputs: Inputs, files: Mapping[str, bytes]) -> bytes | None:
    """Return the spec after an edit of files: what it can say of them, it says; other pages are detached from it."""
    digest = inputs.start.spec_sha256 if inputs.start else None
    if digest is None:
        return None
    site = inputs.spec
    changed = read_back(site, files) if site is not None and not is_built(files) else None
    return changed.canonical().encode() if changed is not None else inputs.content_store.get(digest)


def _offer(outcome: Candidate, new: NewRelease, *, hours: float) -> Settlement:
    def settle(session: Session, job: Job) -> None:
        release = add_release(session, new)
        job.release_id = release.id
        job.base_release_id = new.base_release_id
        job.result = {**job.result, "summary": outcome.summary, "output_bytes": new.total_bytes, **outcome.facts}
        if not new.scan_passed:
            end(session, job, State.FAILED, reason=Reason.SCAN_REFUSED, detail=_first_finding(new))
            return
        began = time.monotonic()
        with traces.span("preview"):
            await_approval(session, job, release, hours=hours)
        record(session, EventKind.STEP, job=job, step="preview", seconds=round(time.monotonic() - began, 3))
        if may_auto_approve(job, session.get_one(Tenant, job.tenant)):
            approve_by_policy(session, job)

    return settle


def _first_finding(new: NewRelease) -> str:
    findings = new.scan["findings"]
    first = Finding(**findings[0])
    return f"findings of the scan: {len(findings)}; the first: {first}; {first.fix}"


def may_auto_approve(job: Job, tenant: Tenant) -> bool:
    """Whether policy may approve in a person's place: opt-in, tier 1, not P0, no high stakes (ruling A24).

    A later round offers what earlier ones made, perhaps on another tier, and what a person has sent back: never that.
    """
    if not tenant.auto_approve or job.result.get("needs_person") or job.start_release_id is not None:
        return False
    return job.tier == 1 and job.priority != "P0" and job.route.get("stakes") != "high"

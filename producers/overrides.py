"""Do a job over on another tier (H-072): the same request with the tier that a person chose, in place of the old one.

The new job is submitted before the old one is cancelled, so that a refusal leaves everything as it is. The two
cannot meet: a site is written by one job at a time, and a job whose site has moved on is never published over it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal
from uuid import UUID

from sqlmodel import Session

from monitoring.errors import WrongStateError
from monitoring.ledger import audit
from monitoring.ledger.cancelling import request_cancel
from monitoring.ledger.jobs import Accepted, find_job, lock_job
from monitoring.ledger.step_ends import is_run, is_step
from monitoring.ledger.store import Ledger
from monitoring.ledger.tables import Job, Site
from producers.rounds import Asker
from producers.submit import Submitter
from routing.jobs import ENDS, Reason, State
from routing.router import Mode
from routing.tiers import Tier

TierName = Literal["spec", "patch", "agent"]

_OF_THEIR_TIME = ("idempotency_key", "supersede_key", "start_at", "site", "new_site", "tier")
_KEPT = frozenset({State.PUBLISHING, State.PUBLISHED, State.ANSWERED, State.CLARIFYING})
"""What is published is changed by a new job; a question is answered first."""


def tiers_instead(job: Job) -> Sequence[TierName]:
    """Return the tiers that a job can be done over on, instead of its own; none where that makes no sense."""
    is_edit = job.mode == Mode.ACTION.value and job.tier is not None and job.site_id is not None
    if job.start_release_id is not None or job.result.get("needs_person"):
        return ()  # anew, it would lose the work that it goes on from, or that a person has to judge it
    if job.request.get("new_site") and State(job.state) not in ENDS:
        return ()  # it holds the site that it makes until it is over
    if not is_edit or State(job.state) in _KEPT or job.reason == Reason.INVALID_REQUEST or is_run(job) or is_step(job):
        return ()
    names: dict[Tier, TierName] = {Tier.SPEC: "spec", Tier.PATCH: "patch", Tier.AGENT: "agent"}
    return [name for tier, name in names.items() if tier.value != job.tier]


class Overrides:
    """Lets people choose another tier than the rules did."""

    def __init__(self, ledger: Ledger, submitter: Submitter) -> None:
        self._ledger = ledger
        self._submitter = submitter

    def do_over(self, job_id: UUID, tier: TierName, *, asker: Asker) -> Accepted:
        """Submit a job's request once more with a tier, and cancel the job unless it is over.

        Raises:
            JobNotFoundError: the caller's fault.
            WrongStateError: the caller's fault: the job is not one that can be done over, or not on this tier.
            InvalidJobError: the caller's fault: the request would be refused today.
            AdmissionRefusedError: nobody's fault: there is no room now; the job goes on as it was.
        """
        with self._ledger.begin() as session:
            body = self._body(session, find_job(session, job_id, tenant=asker.tenant), tier)
        accepted = self._submitter.submit(body, tenant=asker.tenant, door=asker.door, actor=asker.actor)
        with self._ledger.begin() as session:
            job = lock_job(session, job_id, tenant=asker.tenant)
            if State(job.state) not in ENDS and job.state != State.PUBLISHING:
                request_cancel(session, job, actor=asker.actor)
            if accepted.is_new:
                audit.append(
                    session, "tier_overridden", actor=asker.actor, job=job, to=tier, continued_as=str(accepted.job.id)
                )
        return accepted

    def _body(self, session: Session, job: Job, tier: TierName) -> dict[str, Any]:
        if tier not in tiers_instead(job):
            raise WrongStateError(job.id, job.state, "an edit of a site that is not published, and another tier")
        site = session.get_one(Site, job.site_id)
        target = {"site": site.name} if site.active_release_id else {"new_site": site.name}
        kept = {name: value for name, value in job.request.items() if name not in _OF_THEIR_TIME}
        # Whoever clicks twice gets one job.
        return {**kept, **target, "prompt": job.prompt, "tier": tier, "idempotency_key": f"override-{job.id}-{tier}"}

"""Cancel, retry or approve many jobs at once: each by the use case of its own button, each with its own result."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, NamedTuple
from uuid import UUID

from fastapi import APIRouter, Depends, Form
from sqlalchemy import select
from sqlmodel import Session, col
from starlette.responses import Response

from ledger.errors import LedgerError
from ledger.job_control import Seen, request_cancel, undo_approval
from ledger.jobs import lock_job
from ledger.tables import Job, Release
from producers.api.requests import Resources, requester_of
from producers.console.jobs import UNDO_SECONDS, approve_shown
from producers.console.web import Approver, Viewer, acting
from producers.errors import ProducerError
from producers.use_cases.dead_letters import Verdict, Verdicts
from producers.use_cases.jobs import JobSummary, summarise
from producers.use_cases.tenants import Caller, Scope
from routing.errors import RoutingError
from routing.jobs import ENDS, State
from routing.policy.prices import nanousd_of
from routing.rounds import Verb, can_go_on
from sites.releases import manifest_of

MOST_AT_ONCE = 100
"""The most jobs of one order: each takes a transaction of its own."""

Action = Literal["cancel", "retry", "approve"]
Ids = Annotated[list[UUID] | None, Form(max_length=MOST_AT_ONCE)]
Actor = Annotated[Viewer, Depends(acting(Scope.READ))]
"""What else the key must allow depends on the action."""
SCOPES: Mapping[Action, Scope] = {"cancel": Scope.SUBMIT, "retry": Scope.SUBMIT, "approve": Scope.APPROVE}
DONE: Mapping[Action, str] = {"cancel": "cancelled", "retry": "tried again", "approve": "approved"}


class Chosen(NamedTuple):
    """A job of an order."""

    job: JobSummary
    fits: bool
    """Whether the action makes sense in its state."""
    release_id: UUID | None
    report_digest: str
    """What an approval is bound to: the release and report as this page shows them."""
    most_nanousd: int
    """The most that the action may cost."""
    did: str
    """What the worker says that it has done; empty where it says nothing."""
    changed: list[str]
    """The files that its release serves differently from its base."""


router = APIRouter(prefix="/jobs/selected")


@router.post("")
def show_order(viewer: Actor, action: Annotated[Action, Form()], ids: Ids = None) -> Response:
    """Ask whether the selected jobs are meant, with what the action costs in all."""
    viewer.caller.require(SCOPES[action])
    if not ids:
        return viewer.redirect("/jobs", notice="Select jobs first.", is_error=True)
    with viewer.resources.ledger.begin() as session:
        chosen = _chosen(session, viewer.caller.tenant, ids, action)
    shown: dict[str, Any] = {
        "action": action,
        "chosen": chosen,
        "fitting": sum(one.fits for one in chosen),
        "spent_nanousd": sum(nanousd_of(one.job.spent_usd) for one in chosen if one.fits),
        "most_nanousd": sum(one.most_nanousd for one in chosen if one.fits),
    }
    return viewer.render("bulk.html", **shown)


@router.post("/confirmed")
def carry_out(
    viewer: Actor,
    action: Annotated[Action, Form()],
    ids: Ids = None,
    seen: Annotated[list[str] | None, Form(max_length=MOST_AT_ONCE)] = None,
) -> Response:
    """Do it, job by job. `seen` has `job:release:report` for approvals, which can be undone together for a while."""
    caller = viewer.caller
    caller.require(SCOPES[action])
    looked_at = dict(_read_seen(one) for one in seen or ())
    began = time.monotonic()
    result = _each(ids or (), lambda job_id: _DO[action](viewer.resources, caller, job_id, looked_at))
    undo_left = max(0.0, UNDO_SECONDS - (time.monotonic() - began)) if action == "approve" and result.done else None
    shown: dict[str, Any] = {"undo_left": undo_left, "since": datetime.now(UTC)}
    return _outcome(viewer, result, DONE[action], shown)


@router.post("/undo")
def undo_approvals(viewer: Approver, ids: Ids = None) -> Response:
    """Undo what was approved together; what is being published already stays approved, and says so."""

    def undo(job_id: UUID) -> None:
        with viewer.resources.ledger.begin() as session:
            undo_approval(session, job_id, actor=viewer.caller.actor, tenant=viewer.caller.tenant)

    return _outcome(viewer, _each(ids or (), undo), "undone", {"undo_left": None})


def _each(ids: Iterable[UUID], do: Callable[[UUID], UUID | None]) -> Verdicts:
    """Do it job by job; one that is refused keeps no other from it."""
    verdicts = []
    for job_id in dict.fromkeys(ids):
        try:
            verdicts.append(Verdict(id=job_id, is_done=True, is_new=True, replayed_as=do(job_id)))
        except (LedgerError, ProducerError, RoutingError) as error:
            verdicts.append(Verdict(id=job_id, is_done=False, why_not=str(error)))
    return Verdicts(jobs=verdicts, done=sum(one.is_done for one in verdicts))


def _outcome(viewer: Viewer, result: Verdicts, done: str, facts: Mapping[str, Any]) -> Response:
    shown = {"title": f"Jobs {done}", "done": done, "back": ("/jobs", "all jobs"), "what": "Job", **facts}
    return viewer.render("verdicts.html", verdicts=result, **shown)


def _read_seen(text: str) -> tuple[str, Seen]:
    """Read what a page showed of a preview; what cannot be read fits no release, so that nothing is approved by it."""
    job, _, rest = text.partition(":")
    release, _, digest = rest.partition(":")
    try:
        return job, Seen(UUID(release), digest)
    except ValueError:
        return job, Seen(UUID(int=0), digest)


def _chosen(session: Session, tenant: str, ids: list[UUID], action: Action) -> list[Chosen]:
    mine = select(Job).where(col(Job.id).in_(ids), col(Job.tenant) == tenant).order_by(col(Job.created_at).desc())
    jobs = session.scalars(mine).all()
    made = select(Release).where(col(Release.id).in_([job.release_id for job in jobs if job.release_id]))
    releases = {release.id: release for release in session.scalars(made)}
    base_ids = [one.base_release_id for one in releases.values() if one.base_release_id]
    releases |= {base.id: base for base in session.scalars(select(Release).where(col(Release.id).in_(base_ids)))}
    found = []
    for job, view in zip(jobs, summarise(session, jobs), strict=True):
        release = releases.get(job.release_id) if job.release_id else None
        left = max(0, job.cap_nanousd - nanousd_of(view.spent_usd))
        found.append(
            Chosen(
                job=view,
                fits=_fits(job, action),
                release_id=release.id if release else None,
                report_digest=release.scan_digest if release else "",
                most_nanousd=left if action == "retry" else 0,
                did=str(job.result.get("summary") or ""),
                changed=_changed(releases, release) if release and action == "approve" else [],
            )
        )
    return found


def _changed(releases: Mapping[UUID, Release], after: Release) -> list[str]:
    base = releases.get(after.base_release_id) if after.base_release_id else None
    old = manifest_of(base).served if base else {}
    new = manifest_of(after).served
    return sorted(path for path in {*old, *new} if old.get(path) != new.get(path))


def _fits(job: Job, action: Action) -> bool:
    state = State(job.state)
    if action == "approve":
        return state == State.AWAITING_APPROVAL and job.release_id is not None
    if action == "retry":
        return can_go_on(Verb.REPLAY, state, job.reason)
    return state not in ENDS and state != State.PUBLISHING


def _cancel(resources: Resources, caller: Caller, job_id: UUID, seen: Mapping[str, Seen]) -> None:
    with resources.ledger.begin() as session:
        request_cancel(session, lock_job(session, job_id, tenant=caller.tenant), actor=caller.actor)


def _retry(resources: Resources, caller: Caller, job_id: UUID, seen: Mapping[str, Seen]) -> UUID:
    return resources.replays.replay(job_id, requester=requester_of(caller)).job.id


def _approve(resources: Resources, caller: Caller, job_id: UUID, seen: Mapping[str, Seen]) -> None:
    approve_shown(resources, caller, job_id, seen.get(str(job_id), Seen(UUID(int=0))))


_DO: Mapping[Action, Callable[[Resources, Caller, UUID, Mapping[str, Seen]], UUID | None]] = {
    "cancel": _cancel,
    "retry": _retry,
    "approve": _approve,
}

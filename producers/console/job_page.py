"""All that a job's page shows, read in one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import quote
from uuid import UUID

from sqlmodel import Session

from ledger.events import EventKind, newest_events, newest_of_kinds
from ledger.jobs import find_job
from ledger.record_tables import Approval
from ledger.spending import calls_of
from ledger.tables import Call, Job, Release, Site
from producers.api.requests import Resources
from producers.console.failures import failure_of
from producers.console.presentation import excerpt, name_of
from producers.console.waterfall import CUTS, MOST_CUTS, MOST_PROGRESS, waterfall_of
from producers.use_cases.changes import compare_releases, releases_of_job, scan_view
from producers.use_cases.job_search import JobFilter, find_job_ids
from producers.use_cases.jobs import CONSOLE_AUDIENCE, EventView, JobView, describe, describe_events
from producers.use_cases.replays import tiers_instead
from producers.use_cases.waits import Cause, cause_of
from routing.jobs import State
from routing.policy.prices import decimal_usd
from routing.rounds import Verb, can_go_on
from sites.page_changes import PageChange, changed_pages
from sites.releases import manifest_of

_MOST_WAITING = 200
_EVENTS_SHOWN = 50
"""Events per page; a job's own page shows the newest."""


@dataclass(frozen=True, kw_only=True)
class CallLine:
    """All calls of a job to one model."""

    model: str
    provider: str
    calls: int
    input_tokens: int
    output_tokens: int
    cost_nanousd: int
    failed: int
    """Calls that did not complete."""

    @property
    def cost_usd(self) -> str:
        """What it cost, as an exact decimal."""
        return decimal_usd(self.cost_nanousd)


@dataclass(frozen=True, kw_only=True)
class Review:
    """What a job changed, page by page, and one of these pages as it was and is."""

    pages: Sequence[PageChange]
    shown: PageChange | None
    """The page in the frames; None where no page differs: then they show the first page."""
    before: str | None
    """Link to it before the job, for a frame."""
    after: str | None

    @property
    def hidden(self) -> Sequence[PageChange]:
        """Pages that differ in what nobody sees, such as their title."""
        return [page for page in self.pages if not page.is_visible]


class Inbox(NamedTuple):
    """The previews that wait for a decision, around one job."""

    waiting: int
    newer: UUID | None
    older: UUID | None


class Wait(NamedTuple):
    """What a job waits for now."""

    text: str
    link: str = ""
    """Words that lead to it; empty where there is no page of it."""
    path: str = ""
    """Where they lead, below the console's prefix."""
    until: datetime | None = None
    then: str = "goes on"
    """What happens at that time."""


@dataclass(frozen=True)
class EventPage:
    """Some of a job's events, oldest first."""

    events: tuple[EventView, ...]
    has_older: bool

    @property
    def first(self) -> int:
        """Id of the oldest event, before which an older page ends; 0 without events."""
        return self.events[0].id if self.events else 0

    @property
    def last(self) -> int:
        """Id of the newest event, after which a stream continues."""
        return self.events[-1].id if self.events else 0


def facts_of(resources: Resources, job_id: UUID, *, tenant: str, path: str = "") -> dict[str, Any]:
    """Return the variables of the templates of a job's page, whose frames show the changed page at `path`.

    Raises:
        JobNotFoundError: the caller's fault: the tenant has no such job.
    """
    with resources.ledger.begin() as session:
        job = find_job(session, job_id, tenant=tenant)
        cause = cause_of(session, job, policy=resources.policy)
        view = describe(session, job, links=resources.links, cause=cause)
        page = _page_of_events(session, job_id)
        cuts = describe_events(session, newest_of_kinds(session, job_id, CUTS, limit=MOST_CUTS))
        said = describe_events(session, newest_of_kinds(session, job_id, (EventKind.PROGRESS,), limit=MOST_PROGRESS))
        calls = calls_of(session, job_id)
        before, after = releases_of_job(session, job)
        approval = session.get(Approval, job_id)
        instead = tiers_instead(job) if view.continued_as is None else ()
        inbox = _inbox(session, job)
        back_to = _back_to(session, before, after)
        waits = _waits_for(job, view, cause)
    now = datetime.now(UTC)
    until = view.ended_at or now
    is_there = after is not None and after.swept_at is None and (before is None or before.swept_at is None)
    return {
        "job": view,
        "page": page,
        "lines": bill_lines(calls),
        "review": _review(job, before, after, resources, path),
        "inbox": inbox,
        "back_to": back_to,
        "undo_left": max(0.0, (view.undo_until - now).total_seconds()) if view.undo_until is not None else None,
        "scan": scan_view(after) if after is not None else None,
        "approval": approval,
        "instead": instead,
        "until": until,
        "waterfall": waterfall_of(cuts, calls, said, until=until, held_for=view.held_for),
        "failure": failure_of(view),
        "waits": waits,
        "changes": compare_releases(resources.content_store, before, after) if after is not None and is_there else None,
        **_actions(view),
    }


def events_of(resources: Resources, job_id: UUID, *, tenant: str, before_id: int) -> EventPage:
    """Return the page of a job's events that ends before one of them.

    Raises:
        JobNotFoundError: the caller's fault: the tenant has no such job.
    """
    with resources.ledger.begin() as session:
        find_job(session, job_id, tenant=tenant)
        return _page_of_events(session, job_id, before_id=before_id)


def _page_of_events(session: Session, job_id: UUID, *, before_id: int | None = None) -> EventPage:
    found = newest_events(session, job_id, limit=_EVENTS_SHOWN + 1, before_id=before_id)
    shown = describe_events(session, found[-_EVENTS_SHOWN:])
    return EventPage(tuple(shown), has_older=len(found) > _EVENTS_SHOWN)


def bill_lines(calls: Iterable[Call]) -> tuple[CallLine, ...]:
    """Return the costs per model, the highest first."""
    by_model: dict[tuple[str, str], list[Call]] = {}
    for call in calls:
        by_model.setdefault((call.provider, call.model), []).append(call)
    lines = [_line(provider, model, found) for (provider, model), found in by_model.items()]
    return tuple(sorted(lines, key=lambda line: (-line.cost_nanousd, line.model)))


def _line(provider: str, model: str, calls: Sequence[Call]) -> CallLine:
    return CallLine(
        model=model,
        provider=provider,
        calls=len(calls),
        input_tokens=sum(call.input_tokens + call.cache_write_tokens + call.cache_read_tokens for call in calls),
        output_tokens=sum(call.output_tokens for call in calls),
        cost_nanousd=sum(call.cost_nanousd for call in calls),
        failed=sum(call.ended_at is not None and call.finish != "completed" for call in calls),
    )


def _actions(view: JobView) -> dict[str, bool]:
    """Return which actions the page may offer."""
    is_free = view.continued_as is None and view.project is None
    return {
        "can_revise": is_free and view.site is not None and can_go_on(Verb.REVISE, view.state, view.reason),
        "can_cancel": not view.is_final and view.state != State.PUBLISHING and not view.is_cancel_requested,
    }


def _waits_for(job: Job, view: JobView, cause: Cause | None) -> Wait | None:
    """Return what a job waits for, a person or its cause, with a link to it."""
    if view.undo_until is not None:
        return Wait("to be published; its approval can be undone")
    if job.state == State.CLARIFYING:
        return Wait(
            f"for an answer from {name_of(job.requested_by or 'its owner')}", until=job.expires_at, then="expires"
        )
    if job.waiting_since is None or job.ended_at is not None:
        return None
    if cause is None:
        return Wait("for its turn on", job.queue, "/")
    if cause.holder is not None:
        return Wait(f"for {cause.text}", excerpt(cause.holder.prompt, 70), f"/jobs/{cause.holder.id}")
    return Wait(f"for {cause.text}", until=cause.until)


def _inbox(session: Session, job: Job) -> Inbox:
    waiting = JobFilter(tenant=job.tenant, states=(State.AWAITING_APPROVAL,))
    ids = find_job_ids(session, waiting, limit=_MOST_WAITING)
    if job.id not in ids:
        return Inbox(len(ids), None, ids[0] if ids else None)
    place = ids.index(job.id)
    return Inbox(len(ids), ids[place - 1] if place else None, ids[place + 1] if place + 1 < len(ids) else None)


def _back_to(session: Session, before: Release | None, after: Release | None) -> UUID | None:
    """Return the release that this job's replaced, while the job's is live and the other one can be shown again."""
    if before is None or after is None or before.swept_at is not None or before.published_at is None:
        return None
    return before.id if session.get_one(Site, after.site_id).active_release_id == after.id else None


def _review(job: Job, before: Release | None, after: Release | None, resources: Resources, path: str) -> Review | None:
    """Return what to look at; None where nothing may be shown, or its files are gone."""
    is_offered = job.state in (State.AWAITING_APPROVAL, State.PUBLISHING)
    if after is None or after.swept_at is not None or not (is_offered or after.published_at is not None):
        return None
    old = before if before is not None and before.swept_at is None and before.published_at is not None else None
    was, now = ({} if one is None else _served(one) for one in (old, after))
    pages = changed_pages(was, now, resources.content_store.get)
    shown = next((page for page in pages if page.path == path), pages[0] if pages else None)
    at = shown.path if shown is not None else ""
    return Review(
        pages=pages,
        shown=shown,
        before=frame_of(resources, old, at) if old is not None and (not at or at in was) else None,
        after=frame_of(resources, after, at) if not at or at in now else None,
    )


def _served(release: Release) -> dict[str, str]:
    return {path: entry.sha256 for path, entry in manifest_of(release).served.items()}


def frame_of(resources: Resources, release: Release, path: str = "") -> str | None:
    """Return a preview link of a page for a frame; None if the files are gone."""
    if release.swept_at is not None:
        return None
    return resources.links.url_of(release, audience=CONSOLE_AUDIENCE) + quote(path)

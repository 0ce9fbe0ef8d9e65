"""Find a tenant's jobs, newest first, in pages that neither miss a job nor show one twice."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import ColumnElement, Select, String, cast, func, or_, select, tuple_, union_all
from sqlmodel import Session, col

from ledger.tables import Call, Job
from routing.jobs import ENDS, Source, State
from routing.queues import QueueName, Tier

MOST_SEARCHED = 20_000
"""Jobs in which one page looks for words and people; there is no index on either."""
MOST_PRICED = 5_000
"""The same for costs, whose calls are summed up job by job."""
_ID_DIGITS = 32
_ID_START = re.compile(r"[0-9a-f]{8}[0-9a-f-]{0,28}")


_NEWEST = (col(Job.created_at).desc(), col(Job.id).desc())


class ListMark(NamedTuple):
    """Where a page ended: jobs that were accepted together have one time."""

    created_at: datetime
    id: UUID


@dataclass(frozen=True, kw_only=True)
class JobFilter:
    """Which jobs to find. The steps of runs are none: a run lists its own."""

    tenant: str
    states: Sequence[State] = ()
    tiers: Sequence[Tier] = ()
    site_id: UUID | None = None
    text: str = ""
    """Words of the prompt as they stand there, or the start or end of an id; 8 characters of a start find it however
    old its job is."""
    source: Source | None = None
    requested_by: str = ""
    """Part of the actor's name who asked."""
    least_nanousd: int = 0
    """What it cost at least."""
    since: datetime | None = None
    """Accepted at this time or later."""
    until: datetime | None = None
    """Accepted before this time."""
    after: ListMark | None = None
    """Where the previous page ended."""


class FoundJobs(NamedTuple):
    """A page."""

    jobs: Sequence[Job]
    more: ListMark | None
    """Where the next page starts. A page of a search for words may be short and still have a next one."""


def find_jobs(session: Session, wanted: JobFilter, *, limit: int) -> FoundJobs:
    """Return a page of at most `limit` jobs."""
    has_other_words = bool(wanted.requested_by or wanted.least_nanousd)
    if not has_other_words and (named := _find_named(session, wanted, limit)):
        return FoundJobs(named, None)
    if wanted.text or has_other_words:
        return _find_words(session, wanted, limit)
    ids = _newest_ids(wanted, limit + 1)
    jobs = session.scalars(select(Job).where(col(Job.id).in_(ids)).order_by(*_NEWEST)).all()
    return FoundJobs(jobs[:limit], _mark(jobs[limit - 1]) if len(jobs) > limit else None)


def _find_named(session: Session, wanted: JobFilter, limit: int) -> Sequence[Job]:
    """Return the jobs whose ids start with the wanted text, however old they are."""
    span = id_span(wanted.text)
    if span is None:
        return ()
    named = select(Job).where(*_conditions(wanted), col(Job.id).between(*span))
    if wanted.states:
        named = named.where(col(Job.state).in_([state.value for state in wanted.states]))
    return session.scalars(named.order_by(*_NEWEST).limit(limit)).all()


def id_span(text: str) -> tuple[UUID, UUID] | None:
    """Return the lowest and the highest id that start with a text; None for one that is too short for an id."""
    text = text.lower()
    digits = text.replace("-", "")
    if not _ID_START.fullmatch(text) or len(digits) > _ID_DIGITS:
        return None
    low, high = (UUID(digits.ljust(_ID_DIGITS, fill)) for fill in "0f")
    return (low, high) if str(low).startswith(text) else None


def find_job_ids(session: Session, wanted: JobFilter, *, limit: int) -> Sequence[UUID]:
    """Return the ids of the newest jobs, whatever their words are."""
    return session.scalars(_newest_ids(wanted, limit)).all()


def _newest_ids(wanted: JobFilter, limit: int) -> Select[UUID]:
    return _newest(wanted, limit).with_only_columns(col(Job.id))


def _find_words(session: Session, wanted: JobFilter, limit: int) -> FoundJobs:
    most = MOST_PRICED if wanted.least_nanousd else MOST_SEARCHED
    recent = _newest(wanted, most).subquery()
    text = wanted.text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    id_text, part_of_id = cast(recent.c.id, String), text.lower()
    is_meant = or_(
        recent.c.prompt.ilike(f"%{text}%", escape="\\"),
        id_text.like(f"{part_of_id}%", escape="\\"),
        id_text.like(f"%{part_of_id}", escape="\\"),
    )
    newest = (recent.c.created_at.desc(), recent.c.id.desc())
    if wanted.least_nanousd:
        cost = select(func.sum(Call.cost_nanousd)).where(col(Call.job_id) == recent.c.id).scalar_subquery()
        is_meant &= cost >= wanted.least_nanousd
    if wanted.requested_by:
        is_meant &= recent.c.requested_by.icontains(wanted.requested_by, autoescape=True)
    ids = session.scalars(select(recent.c.id).where(is_meant).order_by(*newest).limit(limit + 1)).all()
    jobs = session.scalars(select(Job).where(col(Job.id).in_(ids)).order_by(*_NEWEST)).all()
    if len(jobs) > limit:
        return FoundJobs(jobs[:limit], _mark(jobs[limit - 1]))
    last = session.execute(select(recent.c.created_at, recent.c.id).order_by(*newest).offset(most - 1).limit(1)).first()
    return FoundJobs(jobs, ListMark(*last) if last is not None else None)


def _newest(wanted: JobFilter, limit: int) -> Select[UUID, datetime, str, str]:
    """Select the newest jobs that match everything but the words."""
    conditions = list(_conditions(wanted))
    if wanted.states:
        ids = (
            select(col(Job.id)).where(*conditions, in_states).order_by(*_NEWEST).limit(limit)
            for in_states in _in_states(wanted.states)
        )
        conditions = [col(Job.id).in_(union_all(*ids))]
    columns = select(col(Job.id), col(Job.created_at), col(Job.prompt), col(Job.requested_by))
    return columns.where(*conditions).order_by(*_NEWEST).limit(limit)


def _conditions(wanted: JobFilter) -> Iterator[ColumnElement[bool]]:
    created_at = col(Job.created_at)
    yield col(Job.queue) != QueueName.STEPS.value
    yield col(Job.tenant) == wanted.tenant
    if wanted.source is not None:
        yield col(Job.source) == wanted.source.value
    if wanted.tiers:
        yield col(Job.tier).in_([tier.value for tier in wanted.tiers])
    if wanted.site_id is not None:
        yield col(Job.site_id) == wanted.site_id
    if wanted.since is not None:
        yield created_at >= wanted.since
    if wanted.until is not None:
        yield created_at < wanted.until
    if wanted.after is not None:
        yield tuple_(created_at, col(Job.id)) < tuple_(*wanted.after)


def _in_states(states: Sequence[State]) -> Iterator[ColumnElement[bool]]:
    """Yield conditions that select jobs in these states, each matching an index that is ordered by age.

    Without them the few jobs in a rare state would be searched for among all jobs ever accepted.
    """
    ended_at = col(Job.ended_at)
    open_states = [state.value for state in states if state not in ENDS]
    if open_states:
        yield ended_at.is_(None) & col(Job.state).in_(open_states)
    for state in ENDS.intersection(states):
        yield ended_at.is_not(None) & (col(Job.state) == state.value)


def _mark(job: Job) -> ListMark:
    return ListMark(job.created_at, job.id)

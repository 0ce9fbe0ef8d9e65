"""A page of jobs: the newest first, by state, site and words of the prompt, each page at the same cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Select, String, cast, select
from sqlmodel import Session, col

from monitoring.ledger.tables import Job, Site
from producers.jobs import JobSummary, summarise
from routing.jobs import State
from routing.queues import QueueName

PAGE = 40
MAX_SEARCHED = 20_000
"""How far back a search for words goes: without an index on prompts it must end somewhere, and says where."""


@dataclass(frozen=True, kw_only=True)
class Filter:
    """Which jobs are wanted."""

    states: tuple[State, ...] = ()
    site: str = ""
    text: str = ""
    """Words of the prompt, or the beginning of a job's id."""
    before: datetime | None = None
    """Only jobs accepted earlier than this: where the page before ended."""


@dataclass(frozen=True)
class Page:
    """Some jobs, and where the next page begins."""

    jobs: tuple[JobSummary, ...]
    next_before: datetime | None
    is_cut: bool
    """A search that stopped at its bound may have missed older jobs."""


def page_of(session: Session, tenant: str, wanted: Filter) -> Page:
    """Return the page of a tenant's jobs that a filter asks for."""
    newest = select(Job).where(col(Job.tenant) == tenant, col(Job.queue) != QueueName.STEPS.value)
    if wanted.before is not None:
        newest = newest.where(col(Job.created_at) < wanted.before)
    if wanted.states:
        newest = newest.where(col(Job.state).in_([state.value for state in wanted.states]))
    if wanted.site:
        named = select(col(Site.id)).where(col(Site.tenant) == tenant, col(Site.name) == wanted.site)
        newest = newest.where(col(Job.site_id).in_(named))
    newest = newest.order_by(col(Job.created_at).desc())
    if not wanted.text:
        found = session.scalars(newest.limit(PAGE + 1)).all()
        return _page(session, found, is_cut=False)
    recent = newest.limit(MAX_SEARCHED).subquery()
    like = f"%{_escaped(wanted.text)}%"
    begins = f"{_escaped(wanted.text.lower())}%"
    matches = recent.c.prompt.ilike(like, escape="\\") | cast(recent.c.id, String).like(begins, escape="\\")
    ids = session.scalars(select(recent.c.id).where(matches).order_by(recent.c.created_at.desc()).limit(PAGE + 1)).all()
    found = session.scalars(select(Job).where(col(Job.id).in_(ids)).order_by(col(Job.created_at).desc())).all()
    is_cut = len(found) <= PAGE and _reaches(session, newest)
    return _page(session, found, is_cut=is_cut)


def _reaches(session: Session, newest: Select[Any]) -> bool:
    """Tell whether there are more jobs than a search looks at."""
    return session.scalars(newest.offset(MAX_SEARCHED).limit(1)).first() is not None


def _page(session: Session, found: Sequence[Job], *, is_cut: bool) -> Page:
    shown = found[:PAGE]
    following = shown[-1].created_at if len(found) > PAGE else None
    return Page(tuple(summarise(session, shown)), following, is_cut=is_cut)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")

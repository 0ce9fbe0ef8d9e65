"""Completion at the shell of what only the ledger knows: names of sites and ids of jobs.

A completion never says why it has nothing to offer: what cannot be read completes to nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import typer

from monitoring.errors import MonitoringError
from producers.commands.context import context_of
from routing.errors import RoutingError

if TYPE_CHECKING:
    from sqlmodel import Session

ItemT = TypeVar("ItemT")
_MOST = 50


def complete_sites(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the tenant's sites that begin so."""
    from sqlmodel import col, select

    from monitoring.ledger.tables import Site

    def read(session: Session) -> list[str]:
        query = select(Site.name).where(
            Site.tenant == _tenant(ctx), col(Site.name).startswith(incomplete, autoescape=True)
        )
        return list(session.exec(query.order_by(Site.name).limit(_MOST)))

    return _read(ctx, read)


def complete_jobs(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return the tenant's newest jobs whose ids begin so, each with its state and prompt."""
    from monitoring.ledger.jobs import list_jobs

    def read(session: Session) -> list[tuple[str, str]]:
        jobs = list_jobs(session, tenant=_tenant(ctx), limit=_MOST)
        shown = ((str(job.id), f"{job.state}: {' '.join(job.prompt.split())[:60]}") for job in jobs)
        return [item for item in shown if item[0].startswith(incomplete)]

    return _read(ctx, read)


def _tenant(ctx: typer.Context) -> str:
    return str(ctx.params.get("tenant") or "demo")


def _read(ctx: typer.Context, read: Callable[[Session], list[ItemT]]) -> list[ItemT]:
    from sqlalchemy.exc import SQLAlchemyError

    try:
        installation = context_of(ctx).installation()
        try:
            with installation.ledger.begin() as session:
                return read(session)
        finally:
            installation.close()
    except (MonitoringError, RoutingError, SQLAlchemyError):
        return []

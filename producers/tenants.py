"""What operators set about tenants and queues: pause, weight, limits, policy's approval. Each change is on record.

The switches are rows of the ledger, so they hold for every process and survive every restart; the runway, the claim and
the gateway read them there.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict
from sqlalchemy import func, select
from sqlalchemy import update as sql_update
from sqlmodel import Session, col

from monitoring.ledger import audit
from monitoring.ledger.dispatch_window import Depth, depths, paused_queues
from monitoring.ledger.dispatch_window import pause_queue as pause_in_ledger
from monitoring.ledger.sql import now
from monitoring.ledger.tables import Attempt, Job, Tenant
from producers.errors import UnknownTenantError
from routing.queues import QUEUES, QueueName


class TenantView(BaseModel):
    """A tenant as its operator sees it."""

    model_config = ConfigDict(frozen=True)

    name: str
    provider: str | None
    is_paused: bool
    paused_at: datetime | None
    weight: int
    """Turns it takes where a tenant of weight 1 takes one."""
    max_running: int | None
    """How many of its jobs may run at once; None leaves it to the policy."""
    auto_approve: bool
    waiting: int
    running: int
    overrides: dict[str, Any]
    created_at: datetime


class QueueState(BaseModel):
    """A queue as its operator sees it, over all tenants."""

    model_config = ConfigDict(frozen=True)

    queue: str
    waiting: int
    oldest_age_seconds: float
    running: int
    is_paused: bool
    paused_at: datetime | None


def list_tenants(session: Session) -> list[TenantView]:
    """Return every tenant, by name."""
    tenants = session.scalars(select(Tenant).order_by(col(Tenant.name))).all()
    waiting = _count(session, col(Job.waiting_since).is_not(None))
    running = _running_by_tenant(session)
    return [_view(tenant, waiting=waiting, running=running) for tenant in tenants]


def show_tenant(session: Session, name: str) -> TenantView:
    """Return a tenant.

    Raises:
        UnknownTenantError: the operator's fault.
    """
    tenant = session.get(Tenant, name)
    if tenant is None:
        raise UnknownTenantError(name)
    waiting = _count(session, col(Job.waiting_since).is_not(None), tenant=name)
    return _view(tenant, waiting=waiting, running=_running_by_tenant(session))


def pause_tenant(session: Session, name: str, *, is_paused: bool, actor: str) -> None:
    """Start none of a tenant's jobs any more, or again; what runs goes on, and what is submitted waits.

    Raises:
        UnknownTenantError: the operator's fault.
    """
    tenant = _locked(session, name)
    if (tenant.paused_at is not None) == is_paused:
        return
    session.execute(sql_update(Tenant).where(col(Tenant.name) == name).values(paused_at=now() if is_paused else None))
    audit.append(session, "tenant_paused" if is_paused else "tenant_resumed", actor=actor, tenant=name)


def pause_queue(session: Session, queue: QueueName, *, is_paused: bool, actor: str) -> None:
    """Start no more jobs of a queue, or again; what runs goes on."""
    if (queue.value in paused_queues(session)) == is_paused:
        return
    pause_in_ledger(session, queue, is_paused=is_paused)
    audit.append(session, "queue_paused" if is_paused else "queue_resumed", actor=actor, queue=queue.value)


def change_tenant(session: Session, name: str, *, actor: str, **values: Any) -> None:
    """Set a tenant's `weight`, `max_running` or `auto_approve`.

    Raises:
        UnknownTenantError: the operator's fault.
    """
    tenant = _locked(session, name)
    changed = {field: value for field, value in values.items() if getattr(tenant, field) != value}
    if not changed:
        return
    session.execute(sql_update(Tenant).where(col(Tenant.name) == name).values(**changed))
    audit.append(session, "tenant_changed", actor=actor, tenant=name, **changed)


def list_queues(session: Session) -> Sequence[QueueState]:
    """Return every queue, with what waits and runs on it over all tenants."""
    paused = paused_queues(session)
    deep = {depth.queue: depth for depth in depths(session)}
    live = col(Attempt.ended_at).is_(None)
    running = {
        queue: int(count)
        for queue, count in session.execute(
            select(col(Attempt.queue), func.count()).where(live).group_by(col(Attempt.queue))
        )
    }
    return [
        QueueState(
            **deep.get(name, Depth(name, 0, 0.0))._asdict(),
            running=running.get(name, 0),
            is_paused=name in paused,
            paused_at=paused.get(name),
        )
        for name in (queue.value for queue in QUEUES)
    ]


def _locked(session: Session, name: str) -> Tenant:
    query = select(Tenant).where(col(Tenant.name) == name).with_for_update()
    tenant = session.scalars(query, execution_options={"populate_existing": True}).one_or_none()
    if tenant is None:
        raise UnknownTenantError(name)
    return tenant


def _count(session: Session, condition: Any, *, tenant: str | None = None) -> dict[str, int]:
    query = select(col(Job.tenant), func.count()).where(condition).group_by(col(Job.tenant))
    if tenant is not None:
        query = query.where(col(Job.tenant) == tenant)
    return {name: int(count) for name, count in session.execute(query)}


def _running_by_tenant(session: Session) -> dict[str, int]:
    query = select(col(Job.tenant), func.count()).join(Attempt, col(Attempt.job_id) == col(Job.id))
    rows = session.execute(query.where(col(Attempt.ended_at).is_(None)).group_by(col(Job.tenant)))
    return {name: int(count) for name, count in rows}


def _view(tenant: Tenant, *, waiting: dict[str, int], running: dict[str, int]) -> TenantView:
    return TenantView(
        name=tenant.name, provider=tenant.provider, is_paused=tenant.paused_at is not None, paused_at=tenant.paused_at,
        weight=tenant.weight, max_running=tenant.max_running, auto_approve=tenant.auto_approve,
        waiting=waiting.get(tenant.name, 0), running=running.get(tenant.name, 0), overrides=tenant.overrides,
        created_at=tenant.created_at,
    )  # fmt: skip

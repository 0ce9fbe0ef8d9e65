"""Projects in the ledger: what a tenant's tickets are about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlmodel import Session, col

from monitoring.errors import MonitoringError
from monitoring.ledger import audit
from monitoring.ledger.clock import now
from monitoring.ledger.run_tables import Project


class ProjectNotFoundError(MonitoringError, LookupError):
    """No project of this name belongs to the tenant (the caller's fault)."""

    def __init__(self, name: str) -> None:
        super().__init__(name)

    def __str__(self) -> str:
        return f"no project {self.args[0]!r}"


def find_project(session: Session, tenant: str, name: str) -> Project:
    """Return a tenant's project.

    Raises:
        ProjectNotFoundError: the caller's fault.
    """
    own = (col(Project.tenant) == tenant) & (col(Project.name) == name)
    project = session.scalars(select(Project).where(own)).one_or_none()
    if project is None:
        raise ProjectNotFoundError(name)
    return project


def projects_of(session: Session, tenant: str) -> Sequence[Project]:
    """Return a tenant's projects by name."""
    return session.scalars(select(Project).where(col(Project.tenant) == tenant).order_by(col(Project.name))).all()


def put_project(session: Session, tenant: str, name: str, config: Mapping[str, Any], *, actor: str) -> Project:
    """Add a project, or give the one of this name another configuration: its next steps go by that."""
    stored = (
        insert(Project)
        .values(tenant=tenant, name=name, config=dict(config))
        .on_conflict_do_update(index_elements=["tenant", "name"], set_={"config": dict(config), "updated_at": now()})
        .returning(Project)
    )
    project = session.scalars(stored, execution_options={"populate_existing": True}).one()
    audit.append(session, "project_put", actor=actor, tenant=tenant, project=name, config=dict(config))
    return project

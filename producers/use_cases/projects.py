"""The use cases around code projects: added from their file, listed, and shown as what their tickets will meet."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict
from sqlmodel import Session

from ledger.attempts import effective_policy
from ledger.runs.run import projects_of, put_project
from ledger.runs.tables import Project
from ledger.store import Ledger
from ledger.tables import Tenant
from producers.errors import UnknownTenantError
from routing.errors import FieldError, InvalidJobError, ProjectConfigError
from routing.jobs import SITE_NAME_RULE, check_site_name
from routing.policy.platform import Policy
from routing.policy.project import ProjectConfig, accounts_for, for_project, read_project


class ProjectView(BaseModel):
    """A project as its owner sees it. It names keys; it holds none."""

    model_config = ConfigDict(frozen=True)

    id: UUID
    name: str
    config: dict[str, Any]
    updated_at: datetime


class Projects:
    """The code projects of an installation's tenants."""

    def __init__(self, ledger: Ledger, policy: Policy) -> None:
        self._ledger = ledger
        self._policy = policy

    def put(self, tenant: str, name: str, text: str, *, source: str, actor: str) -> ProjectView:
        """Add a project from its file, or change the one of this name.

        Args:
            tenant: whose it is.
            name: it stands in URLs, so the rule for site names holds.
            text: the file, YAML.
            source: what errors call it.
            actor: who asks, as the audit trail names actors.

        Raises:
            InvalidJobError: the caller's fault; names each place of the file that breaks a rule, with its line.
            UnknownTenantError: the caller's fault.
            PolicyError: the operator's fault: the tenant's overrides do not fit.
        """
        try:
            check_site_name(name)
        except ValueError:
            raise InvalidJobError((FieldError("name", f"must be {SITE_NAME_RULE}"),)) from None
        with self._ledger.begin() as session:
            if session.get(Tenant, tenant) is None:
                raise UnknownTenantError(tenant)
            policy = effective_policy(session, tenant, self._policy)
            try:
                config = read_project(text, source=source, policy=policy)
            except ProjectConfigError as error:
                raise InvalidJobError(
                    tuple(FieldError(f"{source}", str(problem)) for problem in error.problems)
                ) from None
            stored = config.model_dump(mode="json", exclude_defaults=True)
            return view_of(put_project(session, tenant, name, stored, actor=actor))

    def all(self, tenant: str) -> Sequence[ProjectView]:
        """Return a tenant's projects by name."""
        with self._ledger.begin() as session:
            return [view_of(project) for project in projects_of(session, tenant)]


def view_of(project: Project) -> ProjectView:
    """Return what a project's owner sees of it."""
    return ProjectView(id=project.id, name=project.name, config=project.config, updated_at=project.updated_at)


def policy_of_project(session: Session, project: Project, policy: Policy) -> Policy:
    """Return the policy as tenant and project leave it, once it is sure that somebody's key pays for its agents.

    Raises:
        PolicyError: the operator's fault: the stored configuration does not fit the platform's policy any more.
        MissingKeyError: the tenant's fault: no run of it could make a call (S-065, S-068).
    """
    config = ProjectConfig.model_validate(project.config)
    lowered = for_project(policy, config)
    tenant = session.get_one(Tenant, project.tenant)
    accounts_for(config, lowered, tenant_account=tenant.provider)
    return lowered

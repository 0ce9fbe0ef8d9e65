"""What a tenant's code projects need to be moved: accounts and an image there, nobody's shell, and their workspaces."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple
from uuid import UUID

from sqlmodel import Session

from ledger.errors import CellError
from ledger.runs.run import projects_of
from ledger.runs.shells import OPEN_SHELLS
from ledger.store import Ledger, Statement
from routing.policy.project import ProjectConfig
from routing.rounds import TRANSCRIPT


class RunFiles(NamedTuple):
    """A repository of runs."""

    workspace: UUID
    open_run: UUID | None
    """A run that goes on in it."""
    commit: str | None
    """Its head."""


_FILES = Statement("""
    SELECT coalesce(workspace_id, job_id) AS workspace,
           max(job_id::text) FILTER (WHERE ended_at IS NULL)::uuid AS open_run,
           max(coalesce(head_commit, base_commit)) FILTER (WHERE ended_at IS NULL) AS commit
      FROM run JOIN job ON job.id = run.job_id WHERE tenant = %(tenant)s GROUP BY 1 ORDER BY 1
""")
"""At most one round of a session is open."""
_SAID = Statement(f"""
    SELECT sha256 FROM job, LATERAL (VALUES (result -> 'begun' ->> '{TRANSCRIPT}'),
                                            (result -> 'agent' ->> '{TRANSCRIPT}')) AS said (sha256)
     WHERE tenant = %(tenant)s AND sha256 IS NOT NULL
""")
OPEN_SHELL = f"""
    SELECT shell ->> 'by' AS actor, run_id
      FROM gate JOIN job ON job.id = run_id, jsonb_array_elements(facts -> '{OPEN_SHELLS}') AS shell
     WHERE tenant = %(tenant)s AND CAST(shell ->> 'until' AS timestamptz) > clock_timestamp()
"""
_SHELL = Statement(f"{OPEN_SHELL} LIMIT 1")


def has_projects(ledger: Ledger, tenant: str) -> bool:
    """Whether a tenant has code projects."""
    with ledger.begin() as session:
        return bool(projects_of(session, tenant))


def files_of_runs(ledger: Ledger, tenant: str) -> list[RunFiles]:
    """Return the repositories of a tenant's runs, those that are not made yet or gone too."""
    with ledger.begin() as session:
        return [RunFiles(*row) for row in _FILES.all(session, {"tenant": tenant})]


def conversations(session: Session, tenant: str) -> set[str]:
    """Return the digests of what agents and models said in a tenant's jobs; a sweep takes them once they are old."""
    return set(_SAID.scalars(session, {"tenant": tenant}))


def check_projects(ledger: Ledger, tenant: str, *, target: str, accounts: Mapping[str, Collection[str]]) -> None:
    """Check that a tenant's projects can go on in another cell.

    Args:
        ledger: where they are.
        tenant: whose.
        target: the other cell.
        accounts: its accounts at forges and trackers, each with the tenants that may use it.

    Raises:
        CellError: the operator's fault: a project needs what is not there; or nobody's: somebody is at work by hand.
    """
    with ledger.begin() as session:
        for project in projects_of(session, tenant):
            if project.image is not None:
                raise CellError("image", tenant, project.name)
            for name in sorted(ProjectConfig.model_validate(project.config).accounts):
                if tenant not in accounts.get(name, ()):
                    raise CellError("account", tenant, project.name, name, target)
        if (shell := _SHELL.one(session, {"tenant": tenant})) is not None:
            raise CellError("shell", tenant, shell.actor, str(shell.run_id))

"""Take what finished executions left into the run's branch, before the ledger takes note of it.

The branch's head is a column of the ledger, so nothing here counts until a transaction stores it. Done again after a
crash it makes the same objects: times and messages come from the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from monitoring.ledger.run_tables import AgentExecution
from monitoring.ledger.runs import RunRows
from monitoring.ledger.steps import StepOutcome
from routing.jobs import Reason
from workers.build import build_commands
from workers.errors import WorkspaceMissingError, WriteConflictError
from workers.runs.workspace import Absorbed as Joined

_PACKAGE = "package.json"


class RunWorkspace(Protocol):
    """What the coordinator needs of a run's workspace (workers/runs/workspace.py)."""

    def absorb(self, head: str, commit: str, *, base: str, message: str, when: int) -> Joined:
        """Take a step's commit into the head."""

    def squash(self, base: str, head: str, *, message: str, when: int) -> str:
        """Return one commit on `base` with all that the run changed."""

    def changes(self, base: str, commit: str) -> dict[str, bytes | None]:
        """Return the files in which a commit differs from another."""

    def read_file(self, commit: str, path: str) -> bytes | None:
        """Return one file of a commit."""

    def point(self, ref: str, commit: str) -> None:
        """Let a ref name a commit."""


class Taken(NamedTuple):
    """What an advance takes note of."""

    absorbed: Sequence[StepOutcome]
    base_commit: str | None
    head_commit: str | None


def take_in(rows: RunRows, workspace: RunWorkspace) -> Taken:
    """Absorb the commits of executions that completed, oldest first; a conflict fails its step and nothing else.

    Args:
        rows: the run.
        workspace: its repository.
    """
    base, head = rows.run.base_commit, rows.run.head_commit
    absorbed: list[StepOutcome] = []
    for row in rows.settled():
        if row.status != "completed":
            absorbed.append(StepOutcome(row.job_id, "failed", row.reason, row.detail))
            continue
        if head is None:
            base = head = row.base_commit
        try:
            head = _join(row, head, workspace)
            absorbed.append(StepOutcome(row.job_id, "completed"))
        except WriteConflictError as error:
            absorbed.append(StepOutcome(row.job_id, "failed", Reason.OUTPUT_REFUSED.value, str(error)))
        except WorkspaceMissingError as error:
            absorbed.append(StepOutcome(row.job_id, "failed", Reason.INTERNAL_ERROR.value, str(error)))
    return Taken(absorbed, base, head)


def has_build(workspace: RunWorkspace, head: str | None) -> bool:
    """Tell whether the project has a build of its own, as the run's branch stands (workers/build.py)."""
    if head is None:
        return False
    package = workspace.read_file(head, _PACKAGE)
    return package is not None and bool(build_commands({_PACKAGE: package}))


def _join(row: AgentExecution, head: str | None, workspace: RunWorkspace) -> str | None:
    if row.commit is None or head is None or row.base_commit is None:
        return head
    assert row.settled_at is not None
    message = f"{row.step_key} ({row.agent or 'build'}, try {row.attempt})"
    when = int(row.settled_at.timestamp())
    return workspace.absorb(head, row.commit, base=row.base_commit, message=message, when=when).head

"""The work of a run, whatever its end: what it changed, and its branch to take along."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from sqlmodel import Session

from ledger.runs.run import RunRows, find_run, load_run
from ledger.store import Ledger
from producers.errors import InvalidInputError
from routing.redaction import redact
from sites.diff.canonical import unified
from sites.errors import HandoverError
from sites.repository.handover import bundle_of
from sites.repository.workspace import RESERVED, Workspace
from sites.scan.rules import Notes, TooManyFindingsError
from sites.scan.secrets import SecretBudget, find_secrets

MAX_FILE_BYTES = 256 * 1024
MAX_DIFF_CHARS = 1024 * 1024
"""Of all files together; further files are only named."""


@dataclass(frozen=True)
class ChangedFile:
    """A file that differs."""

    path: str
    diff: str
    """Unified; empty where it is not shown."""
    why_hidden: str = ""


def describe_file(
    path: str, old: bytes | None, new: bytes | None, *, left: int = MAX_DIFF_CHARS, known_keys: tuple[str, ...] = ()
) -> ChangedFile:
    """Return how a file differs; one with a secret on either side is named and not shown. `left` is in bytes."""
    if any(len(data or b"") > min(MAX_FILE_BYTES, left) for data in (old, new)):
        return ChangedFile(path, "", "too large to show")
    if any(has_secrets(path, data, known_keys=known_keys) for data in (old, new)):
        return ChangedFile(path, "", "it holds a secret and is not shown")
    try:
        text = unified({path: old}, {path: new}).decode()
    except UnicodeDecodeError:
        return ChangedFile(path, "", "not text")
    return ChangedFile(path, redact(text, known=known_keys))


def has_secrets(path: str, data: bytes | None, *, known_keys: tuple[str, ...] = ()) -> bool:
    """Return whether the scan finds a secret in a file."""
    notes = Notes()
    try:
        find_secrets(path, data or b"", notes=notes, budget=SecretBudget(), known_keys=known_keys)
    except TooManyFindingsError:
        return True
    return bool(notes.sorted_findings())


@dataclass(frozen=True)
class RunWork:
    """The work of runs, read from their workspaces."""

    ledger: Ledger
    root: Path
    """Of the workspaces."""
    known_keys: tuple[str, ...] = ()

    def diff(
        self, run_id: UUID, *, tenant: str, step: str | None = None, since_last: bool = False
    ) -> list[ChangedFile]:
        """Return what a run changed, or one of its steps, or all since a person last decided at a gate.

        Raises:
            JobNotFoundError: the caller's fault: there is no such run of this tenant.
            InvalidInputError: the caller's fault: there is no such step, or it left no commit.
            WorkspaceMissingError: our fault, or a lost disk.
        """
        with self.ledger.begin() as session:
            rows = self._rows(session, run_id, tenant)
            base, head = _step_range(rows, step) if step is not None else _range(rows, since_last=since_last)
        if base is None or head is None:
            return []
        workspace = Workspace.of_run(self.root, rows.run.workspace)
        left = MAX_DIFF_CHARS
        changed: list[ChangedFile] = []
        for path, (before, after) in sorted(workspace.differences(base, head).items()):
            if path.split("/")[0] in RESERVED:
                continue
            file = describe_file(path, before, after, left=left, known_keys=self.known_keys)
            left -= len(file.diff)
            changed.append(file)
        return changed

    def bundle(self, run_id: UUID, *, tenant: str) -> bytes:
        """Return a git bundle of one branch with one commit on the run's base.

        Raises:
            JobNotFoundError: the caller's fault: there is no such run of this tenant.
            HandoverError: nothing was changed, it is too large, or a changed file holds a secret (S-080).
            WorkspaceMissingError: our fault, or a lost disk.
        """
        with self.ledger.begin() as session:
            rows = self._rows(session, run_id, tenant)
            base, head = _range(rows, since_last=False)
            title = str(rows.run.ticket.get("title", ""))
            when = int(rows.job.created_at.timestamp())
        workspace = Workspace.of_run(self.root, rows.run.workspace)
        changes = workspace.changes(base, head) if base is not None and head is not None else {}
        if base is None or head is None or not changes:
            raise HandoverError(f"run {run_id} has changed nothing")
        for path, data in sorted(changes.items()):
            if has_secrets(path, data, known_keys=self.known_keys):
                raise HandoverError(f"{path!a} holds a secret: the work stays in the run's workspace")
        message = f"{title}\n\nRun {run_id}"
        with workspace.squashed(base, head, message=message, when=when) as (_, objects):
            return bundle_of(objects, branch=rows.branch)

    def _rows(self, session: Session, run_id: UUID, tenant: str) -> RunRows:
        job, _ = find_run(session, run_id, tenant=tenant)
        return load_run(session, job)


def _range(rows: RunRows, *, since_last: bool) -> tuple[str | None, str | None]:
    decided = [gate for gate in rows.gates if gate.decided_at is not None and gate.facts.get("head")]
    last = max(decided, key=lambda gate: gate.decided_at, default=None)  # type: ignore[arg-type,return-value]
    base = str(last.facts["head"]) if since_last and last is not None else rows.run.base_commit
    return base, rows.run.head_commit


def _step_range(rows: RunRows, key: str) -> tuple[str | None, str | None]:
    own = [row for row in rows.executions if row.step_key == key and row.commit is not None]
    if not own:
        raise InvalidInputError("step", f"names no step of the run that left a commit: {key!a}")
    last = max(own, key=lambda row: row.attempt)
    return last.base_commit or rows.run.base_commit, last.commit

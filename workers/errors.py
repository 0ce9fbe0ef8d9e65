"""Errors of the workers, by whose fault they are."""

from __future__ import annotations

from routing.jobs import Reason, State
from sites.errors import WorkspaceError


class WorkerError(Exception):
    """Base of all errors of this package."""


class SoftTimeLimit(BaseException):
    """The soft time limit has passed: save what there is and end."""


class HandBack(BaseException):
    """The worker is stopping and its grace is over: release everything, another worker does the job."""


class ComputeChildLost(BaseException):
    """The process that computed for an attempt died: its memory, or its code, but not its time (our fault)."""


class CancelledByOwnerError(WorkerError):
    """The owner cancelled the job; raised between two steps."""


class LeaseLostError(WorkerError):
    """The job was taken away from this attempt, whose effects no longer count (nobody's fault)."""


class BuildFailedError(WorkerError):
    """A site's build failed (the site's fault, or that of whoever edited it)."""

    def __init__(self, state: State, reason: Reason, detail: str) -> None:
        super().__init__(state, reason, detail)
        self.state = state
        self.reason = reason

    def __str__(self) -> str:
        return str(self.args[2])


class ResultInvalidError(WorkerError, ValueError):
    """A step's `.agent-result.json` is missing or breaks the schema (the agent's fault); names fields, never values."""


class ToolRefusedError(WorkerError):
    """A tool refuses a call (the agent's fault); the text is for the model."""


class RemoteError(WorkspaceError, ConnectionError):
    """A project's remote cannot be reached, or breaks off (its owner's fault, or transient)."""


class TooFewFilesError(OSError):
    """The process may not open as many files as its pool needs (the operator's fault)."""

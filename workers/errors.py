"""What can go wrong while a job is worked on, by whose fault it is."""

from __future__ import annotations

from routing.jobs import Reason, State


class WorkerError(Exception):
    """Base of all errors of this package."""


class SoftTimeLimit(BaseException):
    """The soft time limit has passed: save what there is and end (notes/fleet.md, 11)."""


class HandBack(BaseException):
    """The worker is stopping and its grace is over: let go of everything, another worker does the job."""


class CancelledByOwnerError(WorkerError):
    """The owner cancelled the job; seen between two steps."""


class LeaseLostError(WorkerError):
    """The job was taken away from this attempt; nothing it does counts any more (nobody's fault)."""


class BuildFailedError(WorkerError):
    """A site's build did not give a site (the site's fault, or that of whoever edited it)."""

    def __init__(self, state: State, reason: Reason, detail: str) -> None:
        super().__init__(state, reason, detail)
        self.state = state
        self.reason = reason

    def __str__(self) -> str:
        return str(self.args[2])


class ResultInvalidError(WorkerError, ValueError):
    """A step's `.agent-result.json` is missing or breaks the schema (the agent's fault); names fields, never values."""


class ToolRefusedError(WorkerError):
    """A tool cannot do what it was asked (the agent's fault); the text is for the model."""


class WorkspaceError(WorkerError):
    """Base of what is wrong with a run's workspace."""


class WorkspaceMissingError(WorkspaceError, LookupError):
    """The workspace, or a commit of it, is not there (our fault, or a lost disk)."""


class RepositoryRefusedError(WorkspaceError, ValueError):
    """A project's repository is not taken (its owner's fault). The reason is a short, stable code."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail

    def __str__(self) -> str:
        return f"the repository is refused: {self.reason}: {self.detail}"


class RemoteError(WorkspaceError, ConnectionError):
    """A project's remote cannot be reached, or breaks off (its owner's fault, or a passing one)."""


class WriteConflictError(WorkspaceError):
    """A step changed files that the run's head has changed meanwhile (the plan's fault): the step fails."""

    def __init__(self, paths: tuple[str, ...]) -> None:
        super().__init__(paths)
        self.paths = paths

    def __str__(self) -> str:
        shown = ", ".join(ascii(path) for path in self.paths[:5])
        return f"files were changed by another step meanwhile: {shown}"


class ObstructedError(WorkspaceError, ValueError):
    """A file cannot stand where something else stands: a directory, a link, a submodule (the agent's fault)."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return f"{self.path!a} cannot be written: something else stands in its place"

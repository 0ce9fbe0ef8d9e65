"""What can go wrong with a run's workspace, by whose fault it is."""

from __future__ import annotations

from workers.errors import WorkerError


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


class RemoteAuthError(WorkspaceError, PermissionError):
    """A project's remote does not accept the credentials (its owner's fault): trying again does not help."""


class BranchTakenError(WorkspaceError):
    """The remote has a branch of this name with other content (its owner's fault); it is never overwritten."""


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

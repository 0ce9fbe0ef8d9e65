"""The errors of boxes and of the package mirror, with whose fault each is."""


class SandboxError(Exception):
    """Base of all errors of this package."""


class SandboxUnavailableError(SandboxError, ConnectionError):
    """The engine or the image is missing (the operator's fault); `pointsman doctor` says more."""

    def __init__(self, reason: str, hint: str) -> None:
        super().__init__(reason, hint)
        self.reason = reason
        self.hint = hint

    def __str__(self) -> str:
        return f"no box can be made: {self.reason}: {self.hint}"


class SandboxStartupError(SandboxError):
    """A box could not be started with its required posture, so it was not started (the engine's fault, or ours)."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail

    def __str__(self) -> str:
        return f"the box was not started: {self.reason}: {self.detail}"


class ServiceFailedError(SandboxError):
    """A service beside a box did not become ready, or ended (its settings' fault: the project's or the operator's)."""

    def __init__(self, title: str, why: str, said: str) -> None:
        """Name the service, say why it failed, and give the end of its log, without keys."""
        super().__init__(title, why, said)
        self.title = title
        self.why = why
        self.said = said

    def __str__(self) -> str:
        return f"{self.title} {self.why}; its last words:\n{self.said or '(none)'}"


class BoxLostError(SandboxError, ConnectionError):
    """A box, or the engine that runs it, is gone (the operator's fault, or transient)."""


class BoxFrozenError(SandboxError):
    """A frozen box was used (our fault)."""


class UncontainedSessionError(SandboxError):
    """A program without permission checks would have run outside a container (our fault, or the operator's)."""


class RegistryConfigError(SandboxError, ValueError):
    """The package manager's configuration is unreadable or names no usable registry (the operator's fault)."""


class MirrorRefusedError(SandboxError):
    """The mirror refused a request (below 500 the caller's fault, else the registry's)."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(status, message)
        self.status = status
        self.message = message

    def __str__(self) -> str:
        return self.message

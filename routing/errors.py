"""What routing can refuse, and whose fault it is."""

from __future__ import annotations

from typing import Literal, NamedTuple
from uuid import UUID

CallFailure = Literal["timeout", "rate_limited", "transport_error", "cost_cap", "invalid"]


class FieldError(NamedTuple):
    """One field of a request that breaks one rule."""

    field: str
    """Dotted path of the field in the request body, `body` for the whole."""
    rule: str
    """The rule in plain words; it never repeats what the caller sent."""


class Problem(NamedTuple):
    """One thing that is wrong with a project's file. Values are never repeated: one of them may be a key."""

    line: int
    """0 where none can be named."""
    place: str
    rule: str

    def __str__(self) -> str:
        where = f"line {self.line}: " if self.line else ""
        return f"{where}{self.place}: {self.rule}" if self.place else f"{where}{self.rule}"


class RoutingError(Exception):
    """Base of all errors of this package."""


class InvalidJobError(RoutingError, ValueError):
    """The caller's request breaks a rule; nothing was enqueued (the caller's fault)."""

    def __init__(self, errors: tuple[FieldError, ...]) -> None:
        super().__init__(errors)
        self.errors = errors

    def __str__(self) -> str:
        return "; ".join(f"{error.field}: {error.rule}" for error in self.errors)


class PolicyError(RoutingError, ValueError):
    """A policy file breaks a rule (the operator's fault); the message names file, place and rule."""


class UnknownMessageError(RoutingError, ValueError):
    """A message is of a version that this process does not read (nobody's fault: a newer one sent it)."""

    def __init__(self, version: int, job_id: UUID, fence: int) -> None:
        super().__init__(version, job_id, fence)
        self.version = version
        self.job_id = job_id
        self.fence = fence

    def __str__(self) -> str:
        return f"the message for job {self.job_id} is of version {self.version}, which this process does not read"


class ProjectConfigError(RoutingError, ValueError):
    """A project's file breaks rules (its owner's fault); names each place with its line."""

    def __init__(self, source: str, problems: tuple[Problem, ...]) -> None:
        super().__init__(source, problems)
        self.source = source
        self.problems = problems

    def __str__(self) -> str:
        return "\n".join(f"{self.source}, {problem}" for problem in self.problems)


class MissingKeyError(RoutingError, LookupError):
    """A run needs a model and nobody's key pays for it (the tenant's fault); nothing was started."""

    def __init__(self, provider: str, agents: tuple[str, ...]) -> None:
        super().__init__(provider, agents)
        self.provider = provider
        self.agents = agents

    def __str__(self) -> str:
        return (
            f"no key for provider {self.provider}, which {', '.join(self.agents)} need: name an account of the gateway "
            f"under keys.{self.provider}; there is no shared key to fall back on"
        )


class CallFailedError(RoutingError):
    """A model call brought no usable reply (nobody's fault, or the provider's); the decision goes on without it."""

    def __init__(self, reason: CallFailure) -> None:
        super().__init__(reason)
        self.reason: CallFailure = reason

    def __str__(self) -> str:
        return f"the model call failed: {self.reason}"


class YamlRefusedError(RoutingError, ValueError):
    """A YAML text is not taken (its author's fault); line 0 where no line can be named."""

    def __init__(self, line: int, rule: str) -> None:
        super().__init__(line, rule)
        self.line = line
        self.rule = rule

    def __str__(self) -> str:
        return f"line {self.line}: {self.rule}" if self.line else self.rule

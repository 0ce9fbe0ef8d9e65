"""Errors of routing, each with the party at fault."""

from __future__ import annotations

from typing import Literal, NamedTuple
from uuid import UUID

CallFailure = Literal["timeout", "rate_limited", "transport_error", "cost_cap", "invalid"]


class FieldError(NamedTuple):
    """A field of a request that breaks a rule."""

    field: str
    """Dotted path in the request body; `body` for the whole."""
    rule: str
    """The rule in plain words, without the caller's value."""


class Problem(NamedTuple):
    """A problem in a project's file. It repeats no value, which may be a key."""

    line: int
    """0 if unknown."""
    place: str
    rule: str

    def __str__(self) -> str:
        where = f"line {self.line}: " if self.line else ""
        return f"{where}{self.place}: {self.rule}" if self.place else f"{where}{self.rule}"


class RoutingError(Exception):
    """Base of this package's errors."""


class InvalidJobError(RoutingError, ValueError):
    """A request breaks a rule, and nothing was enqueued (the caller's fault)."""

    def __init__(self, errors: tuple[FieldError, ...]) -> None:
        super().__init__(errors)
        self.errors = errors

    def __str__(self) -> str:
        return "; ".join(f"{error.field}: {error.rule}" for error in self.errors)


class PolicyError(RoutingError, ValueError):
    """A policy file breaks a rule (the operator's fault); names file, place and rule."""


class UnknownMessageError(RoutingError, ValueError):
    """A message has a version unknown to this process (nobody's fault: a newer one sent it)."""

    def __init__(self, version: int, job_id: UUID, fence: int) -> None:
        super().__init__(version, job_id, fence)
        self.version = version
        self.job_id = job_id
        self.fence = fence

    def __str__(self) -> str:
        return f"the message for job {self.job_id} has version {self.version}, which this process does not know"


class ProjectConfigError(RoutingError, ValueError):
    """A project's file breaks rules (its owner's fault); names each line."""

    def __init__(self, source: str, problems: tuple[Problem, ...]) -> None:
        super().__init__(source, problems)
        self.source = source
        self.problems = problems

    def __str__(self) -> str:
        return "\n".join(f"{self.source}, {problem}" for problem in self.problems)


class StackNotFoundError(RoutingError, LookupError):
    """A repository shows no language that projects may have (nobody's fault)."""

    def __init__(self, looked_for: tuple[str, ...]) -> None:
        super().__init__(looked_for)
        self.looked_for = looked_for

    def __str__(self) -> str:
        return (
            "the repository: shows no supported language: there is neither a source file in Python, TypeScript or "
            f"JavaScript nor one of {', '.join(self.looked_for)} that names one"
        )


class MissingKeyError(RoutingError, LookupError):
    """No key pays for a model that a run needs, and nothing was started (the tenant's fault)."""

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
    """A model call returned no usable reply (nobody's fault, or the provider's); the decision continues without it."""

    def __init__(self, reason: CallFailure) -> None:
        super().__init__(reason)
        self.reason: CallFailure = reason

    def __str__(self) -> str:
        return f"the model call failed: {self.reason}"


class YamlRefusedError(RoutingError, ValueError):
    """A YAML document was refused (its author's fault); line 0 if unknown."""

    def __init__(self, line: int, rule: str) -> None:
        super().__init__(line, rule)
        self.line = line
        self.rule = rule

    def __str__(self) -> str:
        return f"line {self.line}: {self.rule}" if self.line else self.rule

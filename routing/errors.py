"""What routing can refuse, and whose fault it is."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID


class FieldError(NamedTuple):
    """One field of a request that breaks one rule."""

    field: str
    """Dotted path of the field in the request body, `body` for the whole."""
    rule: str
    """The rule in plain words; it never repeats what the caller sent."""


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


class IllegalMoveError(RoutingError, ValueError):
    """A job was asked to make a move that the table of legal moves does not hold (our fault)."""

    def __init__(self, origin: str, target: str) -> None:
        super().__init__(origin, target)
        self.origin = origin
        self.target = target

    def __str__(self) -> str:
        return f"a job cannot move from {self.origin} to {self.target}"


class UnknownMessageError(RoutingError, ValueError):
    """A message is of a version that this process does not read (nobody's fault: a newer one sent it)."""

    def __init__(self, version: int, job_id: UUID, fence: int) -> None:
        super().__init__(version, job_id, fence)
        self.version = version
        self.job_id = job_id
        self.fence = fence

    def __str__(self) -> str:
        return f"the message for job {self.job_id} is of version {self.version}, which this process does not read"

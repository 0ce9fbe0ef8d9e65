"""What is debated, and the record of a debate: the values that callers build, store and act on.

Who argues and how two arguments become a verdict stands in `routing.debate`.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Generic, NamedTuple, TypeVar

from routing.calls import to_json
from routing.failures import FailureOutcome
from routing.planning import Stakes
from routing.router import Route
from routing.router import debate_key as decision_key
from routing.text import canonicalise


class DebateKind(StrEnum):
    """Before the work, or after it failed: two different decisions (A11)."""

    PLANNING = "planning"
    FAILURE = "failure"


class Verdict(StrEnum):
    """What a planning debate ends in, the least careful first."""

    PROCEED = "proceed"
    REVISE = "revise"
    STOP = "stop"


@dataclass(frozen=True)
class Subject:
    """What is debated."""

    session: str
    """The session's id; where there is none the job's own, so that no two jobs share a decision by accident."""
    prompt: str
    route: Route
    stakes: Stakes | None
    site_summary: str = ""


class Failure(NamedTuple):
    """One final failure of the task, the newest last."""

    reason: str
    detail: str


@dataclass(frozen=True)
class Argument:
    """What one side said, redacted and cut to what is kept."""

    recommendation: str
    case: str
    constraint: str


VerdictT = TypeVar("VerdictT", Verdict, FailureOutcome)


@dataclass(frozen=True)
class DebateRecord(Generic[VerdictT]):
    """A debate as it is stored; the work waits until it is (R-050)."""

    kind: DebateKind
    key: str
    stakes: Stakes | None
    advocate: Argument | None
    critic: Argument | None
    verdict: VerdictT
    note: str
    """One sentence for the owner: how it came to the verdict."""
    instruction: str = ""
    """What the work has to keep to (revise) or do differently (pivot); empty otherwise."""
    calls_failed: tuple[str, ...] = ()
    """Which call failed, and why: `critic: timeout`."""
    needs_person: bool = False
    """A person has to pass a gate before anything is published, whatever would have approved it otherwise."""

    def fields(self) -> dict[str, Any]:
        """Return the record as plain JSON."""
        return asdict(self)


HeldDebate = DebateRecord[Verdict] | DebateRecord[FailureOutcome]
"""A debate of either kind."""


def debate_key(session: str, prompt: str, kind: DebateKind) -> str:
    """Return the digest of what is one decision: the session, the canonical request, the kind of debate (A11).

    A request too long to be canonicalised whole is taken as it is, so that two that differ in the middle stay two.
    """
    text = canonicalise(prompt)
    canonical = decision_key(prompt if text.cut else text.shown)
    return hashlib.sha256(to_json([session, kind.value, canonical]).encode("utf-8", "replace")).hexdigest()


def constrained_prompt(prompt: str, record: HeldDebate) -> str:
    """Return the prompt that the work begins with: the owner's own words first, whole, then what the debate added."""
    if not record.instruction:
        return prompt
    return f"{prompt}\n\nA debate about this request added a constraint, which can only narrow it: {record.instruction}"

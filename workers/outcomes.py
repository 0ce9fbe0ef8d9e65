"""What a handler can say about a job: values, which the lifecycle turns into moves of the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ledger.runs.steps import StepReport
from routing.clarify.ladder import LadderResult
from routing.decision.debate import HeldDebate
from routing.decision.llm_router import RouteRules
from routing.decision.router import Route
from routing.jobs import Reason, State
from routing.queues import Tier


@dataclass(frozen=True)
class Answered:
    """The job is done and changes nothing: text for its owner."""

    text: str
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Candidate:
    """A whole new content of the site, to be scanned, previewed and approved."""

    files: Mapping[str, bytes]
    summary: str
    """One sentence for the reviewer: what was changed."""
    spec: bytes | None = None
    """The site's spec, when pages of this content are rendered from a new one; None keeps the base's."""
    diff: bytes | None = None
    """The change for review, when it was made by a patch."""
    reverse: bytes | None = None
    """The patch that undoes it, byte for byte (H-034)."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    build_seconds: float | None = None
    """How long its build took; None for a site that is not built."""


@dataclass(frozen=True)
class Escalate:
    """This tier cannot do it: the next one takes over on the same bill. Only content failures escalate."""

    to: Tier
    reason: Reason
    detail: str


@dataclass(frozen=True)
class Routed:
    """Intake is done: the job goes to the queue of its route."""

    route: Route
    debate: HeldDebate | None = None


@dataclass(frozen=True)
class Replied:
    """The ladder decided what a reply to the job's question means."""

    result: LadderResult
    rules: RouteRules
    """What its job's route is decided by, once it is bound to a site."""


@dataclass(frozen=True)
class Ended:
    """The job ends here."""

    state: State
    reason: Reason
    detail: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    debate: HeldDebate | None = None
    """The debate that ended it."""
    kept: Candidate | None = None
    """The work done until then, which is stored, scanned and never published: another job may go on from it."""


@dataclass(frozen=True)
class Parked:
    """Its model's lane is parked, or gateway or disk are away, for longer than an attempt can wait: the job waits."""

    reason: Reason
    detail: str
    seconds: float | None = None
    """When to try again, where that is known."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    kept: Candidate | None = None
    """The work done so far, which the next attempt goes on from; without it, it begins anew."""


Outcome = Answered | Candidate | Escalate | Routed | Replied | StepReport | Parked | Ended

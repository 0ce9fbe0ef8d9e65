"""What a handler can return; the lifecycle turns it into a ledger transition."""

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
    """The complete new content of the site, to be scanned, previewed and approved."""

    files: Mapping[str, bytes]
    summary: str
    """One sentence for the reviewer."""
    spec: bytes | None = None
    """The site's new spec, if pages of this content are rendered from one; None keeps the base's."""
    diff: bytes | None = None
    """The change for review, when a patch made it."""
    reverse: bytes | None = None
    """The patch that undoes it, byte for byte (H-034)."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    build_seconds: float | None = None
    """None for a site without a build."""


@dataclass(frozen=True)
class Escalate:
    """This tier cannot do it: the next one takes over on the same budget. Only content failures escalate."""

    to: Tier
    reason: Reason
    detail: str


@dataclass(frozen=True)
class Asked:
    """The job waits for its owner's answer, and then goes on where it was."""

    question: str
    route: Route | None = None
    """Its route, where intake asks; None keeps the ledger's."""
    debate: HeldDebate | None = None
    """The one in which the question came up."""


@dataclass(frozen=True)
class Routed:
    """Intake is done: the job goes to the queue of its route."""

    route: Route
    debate: HeldDebate | None = None


@dataclass(frozen=True)
class Replied:
    """The clarification ladder decided what a reply to the job's question means."""

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
    """The work done so far: stored and scanned, never published; another job may continue from it."""


@dataclass(frozen=True)
class Deferred:
    """The provider's circuit is open, or gateway or disk are unavailable, for longer than an attempt can wait."""

    reason: Reason
    detail: str
    seconds: float | None = None
    """When to retry, if known."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    kept: Candidate | None = None
    """The work done so far, from which the next attempt continues; without it, it starts over."""
    begun: Mapping[str, Any] | None = None
    """What of a step's work was kept in its run's workspace, from which its next attempt continues."""


Outcome = Answered | Asked | Candidate | Escalate | Routed | Replied | StepReport | Deferred | Ended

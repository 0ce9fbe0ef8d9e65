"""Advocate and critic: two model calls, put together by a rule into a verdict that is recorded (seed 002, ruling A11).

The models recommend; the rule decides. The critic sees the advocate's case, so an objection always stands against the
best that can be said for the work. At high stakes the more careful of the two prevails, because one overlooked harm
costs more than one needless stop. Below that, the strictest recommendation needs both: if only one gives it, it counts
as the step before (revise, pivot), because a preview and an approval still follow, and a single timid reply must not
keep the owner from what was ordered.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Generic, Literal, NamedTuple, Self, TypeVar

from pydantic import model_validator

from routing.decision.router import Route
from routing.decision.router import debate_key as decision_key
from routing.decision.triggers import Stakes
from routing.errors import CallFailedError
from routing.failures import FailureOutcome
from routing.model_call import (
    Caller,
    ConstrainedCall,
    Line,
    OptionalLine,
    Redact,
    Reply,
    ask,
    excerpt,
    forced_tool,
    load_prompt,
    shorten,
    to_json,
)
from routing.prompt.tokens import canonicalise

# What is debated, and the record of a debate: the values that callers build, store and act on.
#
# Who argues and how two arguments become a verdict stands in `routing.decision.debate`.


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


__all__ = [
    "Argument",
    "DebateKind",
    "DebateRecord",
    "Failure",
    "FailureReply",
    "PlanningReply",
    "Subject",
    "Verdict",
    "constrained_prompt",
    "debate_key",
    "hold_debate",
    "hold_failure_debate",
]

CASE_LIMIT = 600
"""Characters of a case that are kept and shown to the critic."""
CONSTRAINT_LIMIT = 300
REQUEST_LIMIT_BYTES = 2500
SITE_LIMIT_BYTES = 800
FAILURE_LIMIT_BYTES = 400
FAILURES_SHOWN = 3


class PlanningReply(Reply):
    """The tool's input in a planning debate."""

    recommendation: Literal["proceed", "revise", "stop"]
    case: Line
    constraint: OptionalLine = ""

    @model_validator(mode="after")
    def _name_limit(self) -> Self:
        if self.recommendation != "proceed" and not self.constraint:
            raise ValueError("constraint: must say what the work has to keep to")
        return self


class FailureReply(Reply):
    """The tool's input in a failure debate."""

    recommendation: Literal["RETRY", "PIVOT", "ESCALATE"]
    case: Line
    constraint: OptionalLine = ""

    @model_validator(mode="after")
    def _name_other_way(self) -> Self:
        if self.recommendation == "PIVOT" and not self.constraint:
            raise ValueError("constraint: must say what to do differently")
        return self


def hold_debate(subject: Subject, caller: Caller, *, redact: Redact) -> DebateRecord[Verdict]:
    """Hold a planning debate. Whatever the models do, it ends in a verdict.

    Args:
        subject: what is debated.
        caller: makes the two calls.
        redact: takes secrets out of what the models wrote.
    """
    heard = _hear(DebateKind.PLANNING, _case_file(subject), caller, shape=PlanningReply, redact=redact)
    verdict = Verdict.PROCEED if heard.failed else _combine(heard, tuple(Verdict), stakes=subject.stakes or Stakes.HIGH)
    needs_person = bool(heard.failed) and subject.stakes is not Stakes.MEDIUM
    then = "a person has to approve the result" if needs_person else "the work goes on, since its stakes are medium"
    return _record(
        DebateKind.PLANNING,
        subject,
        heard,
        verdict=verdict,
        then=then,
        instruction=_instruction(heard) if verdict is Verdict.REVISE else "",
        needs_person=needs_person,
    )


def hold_failure_debate(
    subject: Subject, caller: Caller, *, failures: Sequence[Failure], can_pivot: bool, redact: Redact
) -> DebateRecord[FailureOutcome]:
    """Hold a failure debate; without two voices it ends with a person, for nothing is tried again on no grounds.

    Args:
        subject: the task.
        caller: makes the two calls.
        failures: what went wrong, the newest last.
        can_pivot: whether there is another way: a tier above that the caller has not ruled out, or a plan to make anew.
        redact: takes secrets out of what the models wrote.
    """
    case_file = _case_file(subject) | {"can_pivot": can_pivot, "failures": _shown_failures(failures)}
    heard = _hear(DebateKind.FAILURE, case_file, caller, shape=FailureReply, redact=redact)
    outcome = FailureOutcome.ESCALATE
    if not heard.failed:
        outcome = _combine(heard, tuple(FailureOutcome), stakes=subject.stakes)
    if outcome is FailureOutcome.PIVOT and not can_pivot:
        outcome = FailureOutcome.ESCALATE
    return _record(
        DebateKind.FAILURE,
        subject,
        heard,
        verdict=outcome,
        then="a person has to decide",
        instruction=_instruction(heard) if outcome is FailureOutcome.PIVOT else "",
        needs_person=outcome is FailureOutcome.ESCALATE,
    )


class _Heard(NamedTuple):
    advocate: Argument | None
    critic: Argument | None
    failed: tuple[str, ...]


def _case_file(subject: Subject) -> dict[str, Any]:
    route = subject.route
    return {
        "request": excerpt(subject.prompt, limit_bytes=REQUEST_LIMIT_BYTES),
        "lane": route.lane.value,
        "tier": route.tier.value if route.tier is not None else None,
        "stakes": subject.stakes.value if subject.stakes is not None else None,
        "why_routed": route.reason,
        "site": excerpt(subject.site_summary, limit_bytes=SITE_LIMIT_BYTES),
    }


def _shown_failures(failures: Sequence[Failure]) -> list[dict[str, str]]:
    return [
        {"reason": failure.reason[:80], "detail": excerpt(failure.detail, limit_bytes=FAILURE_LIMIT_BYTES)}
        for failure in failures[-FAILURES_SHOWN:]
    ]


def _record(
    kind: DebateKind,
    subject: Subject,
    heard: _Heard,
    *,
    verdict: VerdictT,
    then: str,
    instruction: str,
    needs_person: bool,
) -> DebateRecord[VerdictT]:
    """Put a debate on record; `then` tells the owner what follows when it could not be held."""
    failed = f"It could not be debated ({', '.join(heard.failed)}); {then}."
    return DebateRecord(
        kind=kind,
        key=debate_key(subject.session, subject.prompt, kind),
        stakes=subject.stakes,
        advocate=heard.advocate,
        critic=heard.critic,
        verdict=verdict,
        note=failed if heard.failed else _note(heard, verdict),
        instruction=instruction,
        calls_failed=heard.failed,
        needs_person=needs_person,
    )


def _hear(
    kind: DebateKind,
    case_file: dict[str, Any],
    caller: Caller,
    *,
    shape: type[PlanningReply] | type[FailureReply],
    redact: Redact,
) -> _Heard:
    """Hear the advocate, then the critic, who is shown the advocate's case. Without the one the other is not called."""

    def argue(side: str, shown: dict[str, Any]) -> Argument:
        tool = forced_tool("argue", f"Record what the {side} says.", shape)
        call = ConstrainedCall(system=load_prompt(f"{kind.value}_{side}"), question=to_json(shown), tool=tool)
        return _argument(ask(caller, call, shape), redact)

    advocate: Argument | None = None
    try:
        advocate = argue("advocate", case_file)
        return _Heard(advocate, argue("critic", case_file | {"advocate": asdict(advocate)}), ())
    except CallFailedError as error:
        side = "advocate" if advocate is None else "critic"
        return _Heard(advocate, None, (f"{side}: {error.reason}",))


def _argument(reply: PlanningReply | FailureReply, redact: Redact) -> Argument:
    return Argument(
        reply.recommendation,
        shorten(reply.case, CASE_LIMIT, redact=redact),
        shorten(reply.constraint, CONSTRAINT_LIMIT, redact=redact),
    )


def _combine(heard: _Heard, scale: tuple[VerdictT, ...], *, stakes: Stakes | None) -> VerdictT:
    """Put two recommendations together; the module's docstring gives the rule and its reason.

    Args:
        heard: both sides.
        scale: the recommendations there are, the least careful first.
        stakes: of the work.
    """
    order = [step.value for step in scale]
    given = [order.index(side.recommendation) for side in (heard.advocate, heard.critic) if side is not None]
    careful = max(given)
    is_lone = careful == len(scale) - 1 and min(given) < careful
    if is_lone and stakes is not Stakes.HIGH:
        careful -= 1
    return scale[careful]


def _instruction(heard: _Heard) -> str:
    """Return what the sides want kept to, the critic's first; who recommends going on as it is has no say in it."""
    idle = (Verdict.PROCEED, FailureOutcome.RETRY)
    sides = (heard.critic, heard.advocate)
    wanted = [side.constraint for side in sides if side is not None and side.recommendation not in idle]
    return " ".join(dict.fromkeys(text for text in wanted if text))


def _note(heard: _Heard, verdict: Verdict | FailureOutcome) -> str:
    said = [side.recommendation for side in (heard.advocate, heard.critic) if side is not None]
    return f"The advocate said {said[0]} and the critic {said[-1]}: {verdict.value}."

"""Debates: two model calls, advocate and critic, that a rule combines into a recorded verdict (seed 002, ruling A11).

The models recommend; the rule decides. The critic sees the advocate's case. At high stakes the more careful of the two
prevails, because an overlooked harm costs more than a needless stop. Otherwise the strictest recommendation needs both:
from one alone it counts as the step before it (revise, pivot), because a preview and an approval still follow.
"""

from __future__ import annotations

import hashlib
import re
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


class DebateKind(StrEnum):
    """Before the work, or after it failed (A11)."""

    PLANNING = "planning"
    FAILURE = "failure"


class Verdict(StrEnum):
    """Result of a planning debate, the least careful first."""

    PROCEED = "proceed"
    REVISE = "revise"
    ASK = "ask"
    """Work waits until its owner has answered a question."""
    STOP = "stop"


@dataclass(frozen=True)
class Subject:
    """The request to debate."""

    session: str
    """The session's id, or else the job's, so that no two jobs share a decision by accident."""
    prompt: str
    route: Route
    stakes: Stakes | None
    today: str
    """The line that names the day, as `today_line` writes it; many limits are dates."""
    site_summary: str = ""
    earlier: tuple[str, ...] = ()
    """What a revision's files were made for, oldest first."""
    may_ask: bool = True


class Failure(NamedTuple):
    """A final failure of the task."""

    reason: str
    detail: str


@dataclass(frozen=True)
class Argument:
    """One side's argument, redacted and shortened."""

    recommendation: str
    case: str
    constraint: str


VerdictT = TypeVar("VerdictT", Verdict, FailureOutcome)


@dataclass(frozen=True)
class DebateRecord(Generic[VerdictT]):
    """The record of a debate, stored before the work continues (R-050)."""

    kind: DebateKind
    key: str
    stakes: Stakes | None
    advocate: Argument | None
    critic: Argument | None
    verdict: VerdictT
    note: str
    """For the owner: why it ends here, or else who advised what."""
    question: str = ""
    """What the owner is asked; empty unless the verdict is `ask`."""
    instruction: str = ""
    """What the work must observe (revise) or do differently (pivot); otherwise empty."""
    calls_failed: tuple[str, ...] = ()
    """Failed calls: `critic: timeout`."""
    needs_person: bool = False
    """Whether a person must approve before anything is published."""

    def fields(self) -> dict[str, Any]:
        """Return the record as plain JSON."""
        return asdict(self)


HeldDebate = DebateRecord[Verdict] | DebateRecord[FailureOutcome]
"""A debate of either kind."""


def debate_key(session: str, prompt: str, kind: DebateKind) -> str:
    """Return the digest that identifies a decision: session, canonical request, kind of debate (A11).

    A request too long to canonicalise counts as sent, so that two that differ in the middle stay different.
    """
    text = canonicalise(prompt)
    canonical = decision_key(prompt if text.cut else text.shown)
    return hashlib.sha256(to_json([session, kind.value, canonical]).encode("utf-8", "replace")).hexdigest()


CASE_LIMIT = 600
"""Characters of a case that are recorded and shown to the critic."""
CONSTRAINT_LIMIT = 300
REQUEST_LIMIT_BYTES = 2500
SITE_LIMIT_BYTES = 4_096
EARLIER_LIMIT_BYTES = 300
FAILURE_LIMIT_BYTES = 400
FAILURES_SHOWN = 3


class PlanningReply(Reply):
    """The tool's input in a planning debate."""

    recommendation: Literal["proceed", "revise", "ask", "stop"]
    case: Line
    constraint: OptionalLine = ""

    @model_validator(mode="after")
    def _name_limit(self) -> Self:
        if self.recommendation != "proceed" and not self.constraint:
            raise ValueError("constraint: must say what the work has to keep to, or what to ask")
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
    """Hold a planning debate, which always ends in a verdict; `redact` cleans what the models wrote."""
    heard = _hear(DebateKind.PLANNING, _case_file(subject), caller, shape=PlanningReply, redact=redact)
    verdict = Verdict.PROCEED if heard.failed else _plan(heard, subject)
    needs_person = bool(heard.failed) and subject.stakes is not Stakes.MEDIUM
    then = "a person has to approve the result" if needs_person else "the work goes on, since its stakes are medium"
    return _record(
        DebateKind.PLANNING,
        subject,
        heard,
        verdict=verdict,
        then=then,
        question=_question(heard) if verdict is Verdict.ASK else "",
        instruction=_instruction(heard) if verdict in (Verdict.REVISE, Verdict.ASK) else "",
        needs_person=needs_person,
    )


def hold_failure_debate(
    subject: Subject, caller: Caller, *, failures: Sequence[Failure], can_pivot: bool, redact: Redact
) -> DebateRecord[FailureOutcome]:
    """Hold a failure debate; if a call fails, a person decides.

    Args:
        subject: the task.
        caller: makes the two calls.
        failures: the failures, newest last.
        can_pivot: whether there is another way: a higher tier that the caller allows, or a new plan.
        redact: removes secrets from what the models wrote.
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
    earlier = [excerpt(request, limit_bytes=EARLIER_LIMIT_BYTES) for request in subject.earlier]
    return {
        "today": subject.today,
        **({"work_so_far_was_made_for": earlier} if earlier else {}),
        "request": excerpt(subject.prompt, limit_bytes=REQUEST_LIMIT_BYTES),
        "workflow": route.workflow.value,
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
    question: str = "",
) -> DebateRecord[VerdictT]:
    """Return the record of a debate; `then` tells the owner what follows a failed one."""
    failed = f"It could not be debated ({', '.join(heard.failed)}); {then}."
    return DebateRecord(
        kind=kind,
        key=debate_key(subject.session, subject.prompt, kind),
        stakes=subject.stakes,
        advocate=heard.advocate,
        critic=heard.critic,
        verdict=verdict,
        note=failed if heard.failed else _note(heard, verdict),
        question=question,
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
    """Call the advocate, then the critic with the advocate's case; a failed advocate spares the critic."""

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


def _plan(heard: _Heard, subject: Subject) -> Verdict:
    """Combine a planning debate. A question weighs as a limit does: without its answer, that limit would be a guess."""
    scale = (Verdict.PROCEED, Verdict.REVISE, Verdict.STOP)
    verdict = _combine(heard, scale, stakes=subject.stakes or Stakes.HIGH)
    return Verdict.ASK if verdict is Verdict.REVISE and subject.may_ask and _question(heard) else verdict


def _question(heard: _Heard) -> str:
    """Return the question that a side wants to have answered, the critic's first; empty if none."""
    sides = (side for side in (heard.critic, heard.advocate) if side is not None)
    return next((side.constraint for side in sides if side.recommendation == Verdict.ASK), "")


def _combine(heard: _Heard, scale: tuple[VerdictT, ...], *, stakes: Stakes | None) -> VerdictT:
    """Combine two recommendations of `scale`, least careful first; the module docstring gives the rule."""
    order = [step.value for step in scale]
    weight = {**{name: place for place, name in enumerate(order)}, Verdict.ASK.value: 1}
    given = [weight[side.recommendation] for side in (heard.advocate, heard.critic) if side is not None]
    careful = max(given)
    is_lone = careful == len(scale) - 1 and min(given) < careful
    if is_lone and stakes is not Stakes.HIGH:
        careful -= 1
    return scale[careful]


def _instruction(heard: _Heard) -> str:
    """Return the constraints of both sides, the critic's first; a side that wants no change, or asks, has none.

    One that says no more than the other is left out.
    """
    idle = (Verdict.PROCEED, Verdict.ASK, FailureOutcome.RETRY)
    sides = (heard.critic, heard.advocate)
    wanted = [side.constraint for side in sides if side is not None and side.recommendation not in idle]
    limits = [text for text in dict.fromkeys(wanted) if text]
    return " ".join(text for text in limits if not any(_says(text) < _says(other) for other in limits))


_SMALL_WORDS = frozenset({"a", "an", "and", "the", "or", "und", "oder", "et", "ou", "y", "o", "e", "en", "of"})


def _says(text: str) -> frozenset[str]:
    """Return the words of a limit; one whose words are all another's, with more, is repeated by it."""
    return frozenset(re.findall(r"\w+", text.lower())) - _SMALL_WORDS


def _note(heard: _Heard, verdict: Verdict | FailureOutcome) -> str:
    """Return why the work ends here in the words of a side that ends it, the critic's first; else who advised what."""
    if verdict in (Verdict.STOP, FailureOutcome.ESCALATE):
        for side in (heard.critic, heard.advocate):
            if side is not None and side.recommendation == verdict:
                return side.case
    advice = [side.recommendation for side in (heard.advocate, heard.critic) if side is not None]
    return f"The advocate said {advice[0]} and the critic {advice[-1]}: {verdict.value}."

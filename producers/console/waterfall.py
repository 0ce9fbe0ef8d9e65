"""Where a job's time and money went: its phases, and in each attempt its steps and model calls, laid out as bars."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple

from ledger.events import EventKind
from ledger.tables import Call
from producers.console.presentation import count, what_it_waits_for, words
from producers.use_cases.jobs import EventView
from routing.jobs import State
from routing.policy.prices import decimal_usd
from routing.scheduling import WaitReason

_PEOPLE = {State.CLARIFYING.value: "question", State.AWAITING_APPROVAL.value: "review"}
_WAITS = {State.RECEIVED.value: "intake", State.DEBATING.value: "debate", State.QUEUED.value: "queue"}
_SHARE_OF_PEOPLE = 0.12
"""Fixed width of a phase that waits for people: to scale, its hours would hide the seconds of work."""
_MOST_PHASES = 40
_MOST_PARTS = 30
"""Steps and calls that are shown of one attempt: the longest."""
CUTS = (
    EventKind.ACCEPTED,
    EventKind.WAITING,
    EventKind.STARTED,
    EventKind.ATTEMPT_ENDED,
    EventKind.STATE,
    EventKind.STEP,
    EventKind.ENDED,
)
"""The kinds of events that begin or end a phase, or time a step."""
MOST_CUTS = 20 * _MOST_PHASES
"""Enough of the newest events for the phases that are shown."""
_MOST_SAID = 30
"""Words and tool calls that are shown of one span: the newest."""
MOST_PROGRESS = 300
"""Of those that are looked at."""
_SKEW_SECONDS = 0.25
"""By which the clocks of a gateway and a worker may differ here."""
_MODEL = "model:"
"""The prefix of steps that are model calls, which are shown from the ledger's calls instead."""
_KINDS: Mapping[str, str] = {"lock": "wait", "scan": "check", "judge": "check", "preview": "check", "build": "check"}
_NAMES: Mapping[str, str] = {
    "lock": "Site lock",
    "snapshot": "Snapshot of the site",
    "provision": "Box",
    "inject": "Files into the box",
    "execute": "Agent session with its tools",
    "extract": "Files out of the box",
    "teardown": "Box closed",
}
"""Steps in words, where their own name is not."""


class Fact(NamedTuple):
    """One line of a span's details."""

    name: str
    value: str


@dataclass(frozen=True, kw_only=True)
class Span:
    """A bar: a phase of a job, or a step or call in one."""

    kind: str
    """`wait`, `work`, `person`, `model` or `check`: the class of its bar."""
    name: str
    note: str
    began: datetime
    ended: datetime | None
    left: float = 0.0
    """Start of its bar, in per cent of the width."""
    width: float = 0.0
    outcome: str = ""
    cost_nanousd: int = 0
    is_part: bool = False
    """Whether it lies within the phase above it."""
    key: str = ""
    """Names it within its job, for as long as the job is shown."""
    facts: tuple[Fact, ...] = ()
    """What else is known of it."""
    said: tuple[EventView, ...] = ()
    """What was said and done in it: an agent's words and tool calls, and waits for its provider."""

    def seconds(self, until: datetime) -> float:
        """Return how long it took, or has taken."""
        return max(0.0, ((self.ended or until) - self.began).total_seconds())


class Waterfall(NamedTuple):
    """The spans of a job: each phase, and after it its parts."""

    spans: tuple[Span, ...]
    is_cut: bool
    """Whether there were earlier phases."""
    hidden: int
    """Short parts that are not shown."""


def waterfall_of(
    events: Sequence[EventView],
    calls: Sequence[Call] = (),
    progress: Sequence[EventView] = (),
    *,
    until: datetime,
    held_for: str | None = None,
) -> Waterfall:
    """Return a job's last phases with their parts and the layout of their bars.

    Args:
        events: of the kinds in `CUTS`, oldest first, at most the newest `MOST_CUTS`.
        calls: the job's model calls.
        progress: what was said and done, oldest first.
        until: its end, or now.
        held_for: what it waits for now besides its turn: a job that waits for its site has no event of it.
    """
    builder = _PhaseBuilder()
    for event in events:
        builder.add(event)
    phases = builder.phases
    if held_for == WaitReason.SITE and phases and phases[-1].ended is None:
        phases[-1] = replace(phases[-1], note="for its site, which another job holds")
    parts = sorted((*_steps(events), *_call_spans(calls, events)), key=lambda span: span.began)
    laid = [_keyed(phase, number) for number, phase in enumerate(_lay_out(phases[-_MOST_PHASES:], until))]
    spans: list[Span] = []
    hidden = 0
    for phase in laid:
        own = [part for part in parts if phase.kind == "work" and _is_within(part, phase, until)]
        longest = sorted(own, key=lambda part: (-part.cost_nanousd, -part.seconds(until)))[:_MOST_PARTS]
        hidden += len(own) - len(longest)
        spans.append(_telling(replace(phase, cost_nanousd=sum(part.cost_nanousd for part in own)), progress, until))
        spans += [_telling(_placed(part, phase, until), progress, until) for part in own if part in longest]
    return Waterfall(tuple(spans), len(phases) > _MOST_PHASES, hidden)


def _keyed(phase: Span, number: int) -> Span:
    return replace(phase, key=f"phase-{number}-{phase.began.timestamp():.0f}")


def _telling(span: Span, progress: Sequence[EventView], until: datetime) -> Span:
    """Return a span with what was said and done in it; the newest, where that is much."""
    if span.kind in ("wait", "person"):
        return span
    said = [event for event in progress if span.began <= event.at <= (span.ended or until)]
    return replace(span, said=tuple(said[-_MOST_SAID:]))


def _is_within(part: Span, phase: Span, until: datetime) -> bool:
    """Whether a part's middle lies in a phase: its ends may lie a moment outside, as they were timed elsewhere."""
    middle = part.began + timedelta(seconds=part.seconds(until) / 2)
    return phase.began <= middle <= (phase.ended or until)


def _placed(part: Span, phase: Span, until: datetime) -> Span:
    laid = within(part, phase.began, phase.ended or until, now=until)
    left = min(phase.left + phase.width * laid.left / 100, 99.4)
    return replace(laid, left=round(left, 2), width=round(max(phase.width * laid.width / 100, 0.6), 2))


def within(part: Span, began: datetime, ended: datetime, *, now: datetime | None = None) -> Span:
    """Return a span laid out in a time that has the whole width; `now` ends it if it goes on, else the time's end."""
    whole = max(0.0, (ended - began).total_seconds()) or 1.0
    start = min(1.0, max(0.0, (part.began - began).total_seconds() / whole))
    share = min(1.0 - start, part.seconds(now or ended) / whole)
    return replace(part, left=round(min(100 * start, 99.4), 2), width=round(max(100 * share, 0.6), 2))


def _steps(events: Sequence[EventView]) -> Iterator[Span]:
    """Yield the steps, which are recorded when they end."""
    for event in events:
        name = str(event.data.get("step", ""))
        if event.kind != EventKind.STEP or name.startswith(_MODEL):
            continue
        seconds = float(event.data.get("seconds") or 0.0)
        yield Span(
            kind=_KINDS.get(name, "work"),
            name=_NAMES.get(name, words(name).capitalize()),
            note="",
            began=event.at - timedelta(seconds=seconds),
            ended=event.at,
            is_part=True,
            key=f"step-{event.id}",
        )


def _call_spans(calls: Sequence[Call], events: Sequence[EventView]) -> Iterator[Span]:
    """Yield the calls, each with the step that it was made in: its purpose, its prompt, and which try it was."""
    steps = [event for event in events if str(event.data.get("step", "")).startswith(_MODEL)]
    tries = Counter[int]()
    for call in sorted(calls, key=lambda call: call.started_at):
        step = next((event for event in steps if _is_made_in(call, event)), None)
        tries[step.id if step is not None else 0] += 1
        facts = [Fact("Retry", f"try {tries[step.id]} of this request")] if step and tries[step.id] > 1 else []
        if step is not None:
            facts.append(Fact("Purpose", words(str(step.data["step"]).removeprefix(_MODEL))))
            if prompt := step.data.get("prompt"):
                facts.append(Fact("Prompt version", str(prompt)))
        yield replace(_call_span(call), facts=(*facts, *_facts_of_call(call)))


def _is_made_in(call: Call, step: EventView) -> bool:
    began = step.at - timedelta(seconds=float(step.data.get("seconds") or 0.0) + _SKEW_SECONDS)
    return began <= call.started_at <= step.at


def _facts_of_call(call: Call) -> Iterator[Fact]:
    yield Fact("Provider", call.provider)
    for name, tokens in (
        ("Tokens in", call.input_tokens),
        ("From the cache", call.cache_read_tokens),
        ("Into the cache", call.cache_write_tokens),
        ("Tokens out", call.output_tokens),
    ):
        if tokens:
            yield Fact(name, f"{count(tokens)} of at most {count(call.max_tokens)}" if "out" in name else count(tokens))
    yield Fact("Reserved before", f"${decimal_usd(call.reserved_nanousd)}, its worst case")
    if call.finish is not None:
        yield Fact("Ended", words(call.finish) + (f", status {call.status}" if call.status else ""))
    yield Fact("Prices as of", call.prices_as_of)


def _call_span(call: Call) -> Span:
    read = call.input_tokens + call.cache_write_tokens + call.cache_read_tokens
    note = f"{count(read)} tokens in, {count(call.output_tokens)} out" if call.ended_at is not None else ""
    return Span(
        kind="model",
        name=call.model,
        note=note,
        began=call.started_at,
        ended=call.ended_at,
        outcome=call.finish if call.finish not in (None, "completed") else "",
        cost_nanousd=call.cost_nanousd,
        is_part=True,
        key=f"call-{call.id}",
    )


class _PhaseBuilder:
    """Builds phases from events in their order."""

    def __init__(self) -> None:
        self.phases: list[Span] = []

    def add(self, event: EventView) -> None:
        data, at = event.data, event.at
        match event.kind:
            case EventKind.ACCEPTED:
                self._enter(str(data.get("state", "")), at, str(data.get("queue", "")))
            case EventKind.WAITING:
                self._begin("wait", "Waits", what_it_waits_for(data), at)
            case EventKind.STARTED:
                self._begin("work", f"Attempt {data.get('attempt')}", f"on {data.get('queue')}", at)
                self._tell_of_retry()
            case EventKind.ATTEMPT_ENDED:
                self._end_attempt(at, str(data.get("outcome") or ""))
            case EventKind.STATE:
                self._enter(str(data.get("target", "")), at, "")
            case EventKind.ENDED:
                self._end(at)

    def _enter(self, state: str, at: datetime, queue: str) -> None:
        if state in _PEOPLE:
            self._begin("person", "Asks", f"a person's {_PEOPLE[state]}", at)
        elif state == State.PUBLISHING.value:
            self._begin("wait", "Approved", "waits to be published", at)
        elif state in _WAITS and not (self.phases and self.phases[-1].ended is None):
            self._begin("wait", "Waits", f"for {queue or _WAITS[state]}", at)

    def _begin(self, kind: str, name: str, note: str, at: datetime) -> None:
        self._end(at)
        if self.phases and kind == "wait" and self.phases[-1].kind == "wait" and self.phases[-1].began == at:
            self.phases.pop()
        self.phases.append(Span(kind=kind, name=name, note=note, began=at, ended=None))

    def _tell_of_retry(self) -> None:
        """Say what the attempt comes after, if there was one before."""
        before = [phase for phase in self.phases[:-1] if phase.kind == "work"]
        if before:
            how = (
                f"{before[-1].name}, which ended {words(before[-1].outcome)}" if before[-1].outcome else before[-1].name
            )
            self.phases[-1] = replace(self.phases[-1], facts=(Fact("After", how),))

    def _end(self, at: datetime) -> None:
        if self.phases and self.phases[-1].ended is None:
            self.phases[-1] = replace(self.phases[-1], ended=at)

    def _end_attempt(self, at: datetime, outcome: str) -> None:
        """Record the outcome of the last attempt, whose event may come after the next phase has begun."""
        for index in reversed(range(len(self.phases))):
            phase = self.phases[index]
            if phase.kind == "work":
                self.phases[index] = replace(phase, ended=phase.ended or at, outcome=phase.outcome or outcome)
                return


def _lay_out(phases: Sequence[Span], until: datetime) -> tuple[Span, ...]:
    people = [phase for phase in phases if phase.kind == "person"]
    own = sum(phase.seconds(until) for phase in phases if phase.kind != "person")
    left_for_work = 100.0 - 100.0 * _SHARE_OF_PEOPLE * min(len(people), 4) if own else 0.0
    for_people = (100.0 - left_for_work) / len(people) if people else 0.0
    placed, at = [], 0.0
    for phase in phases:
        width = for_people if phase.kind == "person" else left_for_work * phase.seconds(until) / own if own else 0.0
        placed.append(replace(phase, left=round(at, 2), width=round(max(width, 0.6), 2)))
        at = min(at + width, 99.4)
    return tuple(placed)

"""What a job did with its time, phase by phase, from its events: one walk, no clock of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple

from monitoring.ledger.events import EventKind
from producers.jobs import EventView
from routing.jobs import State

_PEOPLE = {State.CLARIFYING.value: "question", State.AWAITING_APPROVAL.value: "review"}
_WAITS = {State.RECEIVED.value: "intake", State.DEBATING.value: "debate", State.QUEUED.value: "queue"}
_SHARE_OF_PEOPLE = 0.12
"""How much of the width a phase takes in which people are waited for: hours of it would hide the seconds of work."""
_MOST_PHASES = 60
"""Phases that are shown: the last ones."""
CUTS = (
    EventKind.ACCEPTED, EventKind.WAITING, EventKind.STARTED, EventKind.ATTEMPT_ENDED, EventKind.STATE, EventKind.ENDED,
)  # fmt: skip
"""The kinds of events that begin or end a phase: all that this needs of a job's."""
MOST_CUTS = 8 * _MOST_PHASES
"""So many of the newest make the phases that are shown, and more."""


@dataclass(frozen=True, kw_only=True)
class Phase:
    """A part of a job's life."""

    kind: str
    """`wait`, `work`, `person`: how its bar looks."""
    name: str
    note: str
    began: datetime
    ended: datetime | None
    left: float = 0.0
    """Where its bar begins, in per cent of the width."""
    width: float = 0.0
    outcome: str = ""

    def seconds(self, until: datetime) -> float:
        """Return how long it took, or has taken."""
        return max(0.0, ((self.ended or until) - self.began).total_seconds())


class Timeline(NamedTuple):
    """A job's life, or the end of a long one."""

    phases: tuple[Phase, ...]
    is_cut: bool
    """There were earlier phases."""


def timeline_of(events: Sequence[EventView], *, until: datetime) -> Timeline:
    """Return a job's last phases with the places of their bars.

    Args:
        events: the job's own of the kinds that cut, oldest first; up to `MOST_CUTS`, or all there are.
        until: when it ended, or now.
    """
    walk = _Walk()
    for event in events:
        walk.take(event)
    is_cut = len(walk.found) > _MOST_PHASES
    return Timeline(_placed(walk.found[-_MOST_PHASES:], until), is_cut)


class _Walk:
    """Goes through events and cuts the time at those that begin or end a phase."""

    def __init__(self) -> None:
        self.found: list[Phase] = []

    def take(self, event: EventView) -> None:
        data, at = event.data, event.at
        match event.kind:
            case EventKind.ACCEPTED:
                self._enter(str(data.get("state", "")), at, str(data.get("queue", "")))
            case EventKind.WAITING:
                self._begin("wait", "Waits", f"for a worker of {data.get('queue')}", at)
            case EventKind.STARTED:
                self._begin("work", f"Attempt {data.get('attempt')}", f"on {data.get('queue')}", at)
            case EventKind.ATTEMPT_ENDED:
                self._let_go(at, str(data.get("outcome") or ""))
            case EventKind.STATE:
                self._enter(str(data.get("target", "")), at, "")
            case EventKind.ENDED:
                self._end(at)

    def _enter(self, state: str, at: datetime, queue: str) -> None:
        if state in _PEOPLE:
            self._begin("person", "Asks", f"a person's {_PEOPLE[state]}", at)
        elif state == State.PUBLISHING.value:
            self._begin("wait", "Approved", "waits to be published", at)
        elif state in _WAITS and not (self.found and self.found[-1].ended is None):
            self._begin("wait", "Waits", f"for {queue or _WAITS[state]}", at)

    def _begin(self, kind: str, name: str, note: str, at: datetime) -> None:
        self._end(at)
        if self.found and kind == "wait" and self.found[-1].kind == "wait" and self.found[-1].began == at:
            self.found.pop()
        self.found.append(Phase(kind=kind, name=name, note=note, began=at, ended=None))

    def _end(self, at: datetime) -> None:
        if self.found and self.found[-1].ended is None:
            self.found[-1] = replace(self.found[-1], ended=at)

    def _let_go(self, at: datetime, outcome: str) -> None:
        """Note how the last attempt ended: it may be told after what the job did next had begun."""
        for place in reversed(range(len(self.found))):
            phase = self.found[place]
            if phase.kind == "work":
                self.found[place] = replace(phase, ended=phase.ended or at, outcome=phase.outcome or outcome)
                return


def _placed(phases: Sequence[Phase], until: datetime) -> tuple[Phase, ...]:
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


def offset(began: datetime, at: datetime) -> str:
    """Return when something was, counted from a beginning: `+1.2 s`, `+3 min`."""
    passed = max(timedelta(0), at - began).total_seconds()
    if passed < 60:
        return f"+{passed:.1f} s"
    return f"+{passed / 60:.0f} min" if passed < 5400 else f"+{passed / 3600:.1f} h"

"""What happened to a job, as one line that a person reads: the kind of an event in words, and what matters of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from monitoring.ledger.events import EventKind
from producers.console.shown import cents, excerpt, words
from producers.jobs import EventView

_LONGEST = 240


class Line(NamedTuple):
    """One event in words."""

    title: str
    text: str


def event_line(event: EventView) -> Line:
    """Return what happened."""
    title, tell = _LINES.get(event.kind, (words(event.kind).capitalize(), _anything))
    return Line(title, excerpt(tell(event.data), _LONGEST))


def _join(*parts: object) -> str:
    return " · ".join(str(part) for part in parts if part not in (None, "", "None"))


def _cost(data: Mapping[str, Any]) -> str:
    cost = data.get("cost_nanousd")
    return cents(cost) if isinstance(cost, int) and cost else ""


def _seconds(data: Mapping[str, Any], name: str = "seconds") -> str:
    value = data.get(name)
    return f"{value:.1f} s" if isinstance(value, int | float) else ""


def _accepted(data: Mapping[str, Any]) -> str:
    return _join(f"by {data.get('door')}", words(data.get("mode")), f"queue {data.get('queue')}")


def _waiting(data: Mapping[str, Any]) -> str:
    return f"for a worker of {data.get('queue')}"


def _started(data: Mapping[str, Any]) -> str:
    waited = _seconds(data, "wait_seconds")
    return _join(f"attempt {data.get('attempt')} on {data.get('queue')}", waited and f"after {waited} in the queue")


def _attempt_ended(data: Mapping[str, Any]) -> str:
    reason = data.get("reason")
    why = "" if reason in ("done", data.get("outcome")) else words(reason or "")
    return _join(f"attempt {data.get('attempt')}: {words(data.get('outcome'))}", why, _seconds(data), _cost(data))


def _state(data: Mapping[str, Any]) -> str:
    return f"{words(data.get('origin'))} → {words(data.get('target'))}"


def _ended(data: Mapping[str, Any]) -> str:
    return _join(words(data.get("state")), data.get("detail"), _seconds(data), _cost(data))


def _call(data: Mapping[str, Any]) -> str:
    tokens = [f"{data[name]:,} {word}" for name, word in _TOKENS if isinstance(data.get(name), int) and data[name]]
    return _join(data.get("model"), ", ".join(tokens) and f"{', '.join(tokens)} tokens", _cost(data))


def _escalated(data: Mapping[str, Any]) -> str:
    return _join(f"{data.get('origin')} → {data.get('target')}", words(data.get("reason")), data.get("detail"))


def _text(data: Mapping[str, Any]) -> str:
    return str(data.get("text", ""))


def _step(data: Mapping[str, Any]) -> str:
    return _join(words(data.get("step", "")), _seconds(data))


def _run_step(data: Mapping[str, Any]) -> str:
    return _join(data.get("step"), words(data.get("status", "")), data.get("detail"))


def _gate(data: Mapping[str, Any]) -> str:
    return _join(words(data.get("state", "")), data.get("reason"))


def _plan(data: Mapping[str, Any]) -> str:
    steps = data.get("steps")
    names = [str(step.get("step")) for step in steps if isinstance(step, dict)] if isinstance(steps, list) else []
    return ", ".join(names)


def _anything(data: Mapping[str, Any]) -> str:
    return _join(
        *(f"{words(name)} {words(value)}" for name, value in data.items() if isinstance(value, str | int | float))
    )


_TOKENS = (("input_tokens", "in"), ("output_tokens", "out"))
_LINES: Mapping[str, tuple[str, Callable[[Mapping[str, Any]], str]]] = MappingProxyType(
    {
        EventKind.ACCEPTED: ("Accepted", _accepted),
        EventKind.WAITING: ("Waits", _waiting),
        EventKind.STARTED: ("Started", _started),
        EventKind.ATTEMPT_ENDED: ("Attempt over", _attempt_ended),
        EventKind.STATE: ("State", _state),
        EventKind.ENDED: ("Ended", _ended),
        EventKind.CALL: ("Model call", _call),
        EventKind.ESCALATED: ("Escalated", _escalated),
        EventKind.PROGRESS: ("Progress", _text),
        EventKind.STEP: ("Step", _step),
        EventKind.RUN_STEP: ("Run step", _run_step),
        EventKind.GATE: ("Gate", _gate),
        EventKind.PLAN: ("Plan", _plan),
    }
)

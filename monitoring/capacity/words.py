"""How people write rates, targets and pools: `5/s`, `spec=2/s`, `3000000/day`, `agent=60`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from monitoring.errors import CapacityError
from routing.queues import QUEUES, QueueName

DAY = "day"
_SECONDS = {"s": 1, "min": 60, "h": 3_600, DAY: 86_400}
_MOST_PER_SECOND = 1e6
_MOST_WORD = 100


class Rates(NamedTuple):
    """Rates as they were written."""

    total: float | None
    """New jobs per second over all queues; None where each queue has its own."""
    by_queue: Mapping[QueueName, float]
    is_by_day: bool
    """Whether a day was meant, so that the peak is above it."""


def read_rates(words: Iterable[str]) -> Rates:
    """Read `5/s`, or `spec=2/s` once for each queue.

    Raises:
        CapacityError: the caller's fault: it names the word and the rule.
    """
    total, by_queue, units = None, {}, set()
    for word in words:
        name, given, amount = word.rpartition("=") if "=" in word else ("", "", word)
        rate, unit = _rate(amount, whole=word)
        units.add(unit == DAY)
        if not given:
            total = rate if total is None else _refuse("--rate", word, "is the second rate for all queues together")
        else:
            by_queue[_queue("--rate", name, word)] = rate
    if total is not None and by_queue:
        raise CapacityError("--rate: give one rate for all queues, or one for each; not both")
    if len(units) > 1:
        raise CapacityError("--rate: give every rate by the day, or none")
    return Rates(total, by_queue, is_by_day=True in units)


def read_amounts(option: str, words: Iterable[str]) -> tuple[float | None, dict[str, float]]:
    """Read amounts by name, `NAME=VALUE`; the first value has no name and holds for all.

    Args:
        option: what they were given to, for errors.
        words: as they were written.

    Raises:
        CapacityError: the caller's fault: it names the word and the rule.
    """
    for_all, named = None, {}
    for word in words:
        name, given, amount = word.rpartition("=")
        value = _number(option, amount, whole=word)
        if value <= 0:
            _refuse(option, word, "must be above 0")
        if given:
            named[name] = value
        else:
            for_all = value
    return for_all, named


def by_queue(option: str, named: Mapping[str, float]) -> dict[QueueName, float]:
    """Return amounts by queue.

    Raises:
        CapacityError: the caller's fault: there is no such queue.
    """
    return {_queue(option, name, name): value for name, value in named.items()}


def _rate(word: str, *, whole: str) -> tuple[float, str]:
    amount, _, unit = word.partition("/")
    if unit not in _SECONDS:
        _refuse("--rate", whole, f"must end in /{', /'.join(_SECONDS)}")
    rate = _number("--rate", amount, whole=whole) / _SECONDS[unit]
    if not 0 < rate <= _MOST_PER_SECOND:
        _refuse("--rate", whole, "must be above 0, and at most a million a second")
    return rate, unit


def _number(option: str, word: str, *, whole: str) -> float:
    try:
        value = float(word.replace(",", ""))
    except ValueError:
        value = math.nan
    return value if math.isfinite(value) else _refuse(option, whole, "holds no number")


def _queue(option: str, name: str, word: str) -> QueueName:
    if name not in QUEUES:
        _refuse(option, word, f"names no queue; there are {', '.join(sorted(QUEUES))}")
    return QueueName(name)


def _refuse(option: str, word: str, rule: str) -> float:
    raise CapacityError(f"{option}: {word[:_MOST_WORD]!r} {rule}")

"""How a run went, a line for each question: what it took, what is met, missed, skipped, and what ended early."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.answer import Answer, shown_target


@dataclass(frozen=True)
class Outcome:
    """What became of one question."""

    name: str
    seconds: float
    told: str
    is_good: bool = True


def verdict(answer: Answer) -> str:
    """Return which of an answer's targets are met; missed ones by name, with what was reached and what was wanted."""
    wanted = [compared for compared in answer.comparisons if compared.target is not None]
    missed = [
        f"{compared.peer} ({compared.ratio.median:.3g}, wanted {shown_target(compared.target)})"
        for compared in wanted
        if not compared.is_met
    ]
    parts = [f"{len(wanted) - len(missed)} of {len(wanted)} met"] if wanted else ["no target"]
    parts += [f"missed: {', '.join(missed)}"] if missed else []
    parts += [f"skipped: {', '.join(peer for peer, _ in answer.skipped)}"] if answer.skipped else []
    return "; ".join(parts)


def summary(outcomes: Sequence[Outcome]) -> str:
    """Return the lines, and below them what all took together."""
    return "\n".join(_lines(outcomes))


def _lines(outcomes: Sequence[Outcome]) -> Iterator[str]:
    total = Outcome("together", sum(outcome.seconds for outcome in outcomes), "")
    width = max(len(outcome.name) for outcome in (*outcomes, total))
    for outcome in (*outcomes, total):
        yield f"{outcome.name:{width}}  {outcome.seconds:4.0f} s  {outcome.told}".rstrip()

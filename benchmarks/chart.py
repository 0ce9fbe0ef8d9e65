"""A question's answer as a picture: a row for every side, its time on a logarithmic axis, in light and dark."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from benchmarks.answer import Answer, Spread, shown_ratio, shown_seconds, spread_of

_LEFT, _RIGHT = 40.0, 620.0
_TOP, _ROW = 74, 48
OURS = "Pointsman"


def chart(answer: Answer) -> str:
    """Return the picture of an answer that compares."""
    sides = sides_of(answer)
    low = math.floor(math.log10(min(spread.low for spread in sides.values())))
    high = math.ceil(math.log10(max(spread.high for spread in sides.values())))

    def place(seconds: float) -> float:
        return round(_LEFT + (_RIGHT - _LEFT) * (math.log10(seconds) - low) / (high - low), 1)

    ticks = [{"x": place(10.0**power), "label": shown_seconds(10.0**power)} for power in range(low, high + 1)]
    rows = [_row(name, spread, number, place) for number, (name, spread) in enumerate(sides.items())]
    height = _TOP + _ROW * len(rows) + 20
    return _template().render(
        title=answer.question, description=described(answer), rows=rows, ticks=ticks, height=height
    )


def described(answer: Answer) -> str:
    """Return in words what the picture shows."""
    return "; ".join(
        f"{shown_ratio(compared.ratio)} times as fast as {compared.peer}" for compared in answer.comparisons
    )


def sides_of(answer: Answer) -> dict[str, Spread]:
    """Return the seconds of every side by its name, ours first: of all the pairs that it ran in."""
    ours = spread_of([seconds for compared in answer.comparisons for seconds in compared.ours])
    return {OURS: ours} | {compared.peer: spread_of(compared.theirs) for compared in answer.comparisons}


def _row(name: str, spread: Spread, number: int, place: Any) -> dict[str, Any]:
    return {
        "name": name,
        "kind": "ours" if name == OURS else "peer",
        "low": place(spread.low),
        "high": place(spread.high),
        "x": place(spread.median),
        "y": _TOP + _ROW * number,
        "label": shown_seconds(spread.median),
    }


@cache
def _template() -> Template:
    loader = FileSystemLoader(Path(__file__).parent)
    made = Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
    return made.get_template("chart.svg.jinja")

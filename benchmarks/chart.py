"""A question's answer as a picture: a row for every side, its time on a logarithmic axis, in light and dark."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from benchmarks.answer import Answer, Spread, shown_ratio, spread_of

_LEFT, _RIGHT = 40.0, 620.0
_TOP, _ROW = 74, 48


def chart(answer: Answer) -> str:
    """Return the picture of an answer that compares."""
    sides, unit = sides_of(answer), answer.unit
    low = math.floor(math.log10(min(spread.low for spread in sides.values()) / unit.size))
    high = math.ceil(math.log10(max(spread.high for spread in sides.values()) / unit.size))

    def place(amount: float) -> float:
        return round(_LEFT + (_RIGHT - _LEFT) * (math.log10(amount / unit.size) - low) / (high - low), 1)

    marks = [unit.size * 10.0**power for power in range(low, high + 1)]
    ticks = [{"x": place(mark), "label": unit.shown(mark)} for mark in marks]
    own = {compared.ours_is for compared in answer.comparisons}
    rows = [
        {
            "name": name,
            "kind": "ours" if name in own else "peer",
            "low": place(spread.low),
            "high": place(spread.high),
            "x": place(spread.median),
            "y": _TOP + _ROW * number,
            "label": unit.shown(spread.median),
        }
        for number, (name, spread) in enumerate(sides.items())
    ]
    height = _TOP + _ROW * len(rows) + 20
    return template("chart.svg.jinja").render(
        title=answer.question, description=described(answer), rows=rows, ticks=ticks, height=height, unit=unit
    )


def described(answer: Answer) -> str:
    """Return in words what the picture shows."""
    return "; ".join(
        f"{shown_ratio(compared.ratio)} times as {compared.unit.better} as {compared.peer}"
        for compared in answer.comparisons
    )


def sides_of(answer: Answer) -> dict[str, Spread]:
    """Return what every side costs by its name, each of ours before its peers: of all the pairs that it ran in."""
    sides: dict[str, list[float]] = {}
    for compared in answer.comparisons:
        sides.setdefault(compared.ours_is, []).extend(compared.ours)
        sides.setdefault(compared.peer, []).extend(compared.theirs)
    return {name: spread_of(amounts) for name, amounts in sides.items()}


@cache
def template(name: str) -> Template:
    """Return one of the templates beside this module."""
    loader = FileSystemLoader(Path(__file__).parent)
    made = Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
    return made.get_template(name)

"""A question's answer as small pictures: how the cost of each operation grows with the number of jobs."""

from __future__ import annotations

import math
from typing import Any

from benchmarks.answer import Answer, Curve
from benchmarks.chart import described, template

_COLUMNS = 3
_WIDTH, _HEIGHT = 232.0, 118.0
_LEFT, _TOP = 44.0, 92.0
_PLOT_WIDTH, _PLOT_HEIGHT = 168.0, 64.0


def curves(answer: Answer) -> str:
    """Return the picture of an answer that has curves."""
    sizes = [math.log10(size) for curve in answer.curves for size, _ in curve.points]
    tallest = max(1.5 * answer.curves[0].most, *(spread.high for curve in answer.curves for _, spread in curve.points))

    def across(size: float) -> float:
        return round(_PLOT_WIDTH * (math.log10(size) - min(sizes)) / (max(sizes) - min(sizes)), 1)

    def up(grown: float) -> float:
        return round(_PLOT_HEIGHT * (1 - grown / tallest), 1)

    def panel(number: int, curve: Curve) -> dict[str, Any]:
        row, column = divmod(number, _COLUMNS)
        points = [
            {
                "x": across(size),
                "y": up(grown.median),
                "low": up(grown.low),
                "high": up(grown.high),
                "size": _short(size),
            }
            for size, grown in curve.points
        ]
        return {
            "name": f"{curve.name}: {curve.points[-1][1].median:.2g}×",
            "x": _LEFT + _WIDTH * column,
            "y": _TOP + _HEIGHT * row,
            "points": points,
            "line": " ".join(f"{point['x']},{point['y']}" for point in points),
        }

    panels = [panel(number, curve) for number, curve in enumerate(answer.curves)]
    rows = math.ceil(len(panels) / _COLUMNS)
    return template("curves.svg.jinja").render(
        title=answer.question,
        description=described(answer),
        panels=panels,
        most=answer.curves[0].most,
        width=_PLOT_WIDTH,
        height=_TOP + _HEIGHT * rows,
        lines=[{"y": up(grown), "label": f"{grown:g}×"} for grown in (0, 1, answer.curves[0].most)],
    )


def _short(size: int) -> str:
    return f"{size // 1_000_000} M" if size >= 1_000_000 else f"{size // 1_000} k"

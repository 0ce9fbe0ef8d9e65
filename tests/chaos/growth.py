"""What was watched, as a table for a terminal and as a picture of small multiples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from tests.chaos.slopes import WARM_UP, Fit

_COLUMNS = 4
_WIDTH, _HEIGHT, _GAP, _LEFT, _TOP = 250, 90, 46, 20, 60
_OK, _BAD, _KEPT, _INK, _FAINT = "#2a7f62", "#b3261e", "#8a6d1f", "#222222", "#888888"


def table(fits: Sequence[Fit]) -> list[tuple[str, ...]]:
    """Return a row for each thing that was watched, below a heading; what grows comes first."""
    rows: list[tuple[str, ...]] = [("watched", "first", "last", "per 1000 jobs", "gained", "tolerated", "verdict")]
    for found in sorted(fits, key=lambda one: (one.is_flat, bool(one.why_grows), one.name)):
        numbers = (found.first, found.last, found.slope, found.gained, found.tolerated)
        rows.append((found.name, *(f"{number:,.2f}" for number in numbers), found.verdict))
    return rows


def picture(samples: Sequence[tuple[float, Mapping[str, float]]], fits: Sequence[Fit]) -> str:
    """Return an SVG: one small chart, over the jobs done, for each thing that was watched and ever changed."""
    drawn = [found for found in fits if len({sample.get(found.name) for _, sample in samples}) > 2]
    rows = -(-len(drawn) // _COLUMNS)
    width, height = _LEFT + _COLUMNS * (_WIDTH + _GAP), _TOP + rows * (_HEIGHT + _GAP)
    charts = []
    for index, found in enumerate(drawn):
        row, column = divmod(index, _COLUMNS)
        charts.append(_chart(samples, found, x=_LEFT + column * (_WIDTH + _GAP), y=_TOP + row * (_HEIGHT + _GAP)))
    title = (
        f"What the fleet holds, over {samples[-1][0]:,.0f} jobs: each chart from zero; grey: warm-up, not fitted; "
        f"{len(fits) - len(drawn)} that never changed are left out"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        f'font-size="11"><rect width="100%" height="100%" fill="white"/>'
        f'<text x="{_LEFT}" y="26" font-size="16" fill="{_INK}">{escape(title)}</text>{"".join(charts)}</svg>\n'
    )


def _chart(samples: Sequence[tuple[float, Mapping[str, float]]], found: Fit, *, x: int, y: int) -> str:
    points = [(jobs, sample[found.name]) for jobs, sample in samples if found.name in sample]
    most_jobs, most = max(points[-1][0], 1.0), max(max(value for _, value in points), 1e-9)
    at = [(x + jobs / most_jobs * _WIDTH, y + _HEIGHT - value / most * _HEIGHT) for jobs, value in points]
    warm = int(len(at) * WARM_UP)
    color = _OK if found.is_flat else _KEPT if found.why_grows else _BAD
    base = f'<line x1="{x}" y1="{y + _HEIGHT}" x2="{x + _WIDTH}" y2="{y + _HEIGHT}" stroke="{_FAINT}"/>'
    label = f"{found.name}: {found.last:,.1f} ({found.slope:+,.2f} per 1000 jobs)"
    words = f'<text x="{x}" y="{y - 5}" fill="{_INK}">{escape(label)}</text>'
    return base + words + _line(at[: warm + 1], _FAINT) + _line(at[warm:], color)


def _line(points: Sequence[tuple[float, float]], color: str) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline fill="none" stroke="{color}" stroke-width="1.5" points="{path}"/>'

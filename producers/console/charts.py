"""Charts as SVG, drawn here: no script, no style attribute, colours by class so that they follow light and dark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

WIDTH, HEIGHT = 720, 150
_BASE = 22
"""Room below for the times."""
_TOP = 18
"""Room above for the scale."""
_LABELS = 6


class Bar(NamedTuple):
    """One piece of time."""

    label: str
    parts: tuple[tuple[str, int], ...]
    """Class and amount, from the bottom up."""
    words: str
    """What it says, for who cannot see it or points at it."""


def bars(pieces: Sequence[Bar], *, title: str, top_label: str, top: int = 0) -> Markup:
    """Return stacked bars.

    Args:
        pieces: from left to right.
        title: what the whole says, in words.
        top_label: what stands at the upper line.
        top: the amount of the upper line, where that is more than the highest bar.
    """
    highest = max(top, *(sum(amount for _, amount in piece.parts) for piece in pieces), 1)
    width = WIDTH / max(1, len(pieces))
    drawn = [_bar(piece, position * width, width=width, top=highest) for position, piece in enumerate(pieces)]
    every = max(1, -(-len(pieces) // _LABELS))
    labels = [
        Markup('<text x="{:.1f}" y="{}" class="axis">{}</text>').format(at * width + 1, HEIGHT - 6, piece.label)
        for at, piece in enumerate(pieces)
        if at % every == 0
    ]
    lines = Markup(
        '<line class="rule" x1="0" x2="{0}" y1="{1}" y2="{1}"/><line class="rule" x1="0" x2="{0}" y1="{2}" y2="{2}"/>'
        '<text x="{0}" y="12" class="axis end">{3}</text>'
    ).format(WIDTH, _TOP, HEIGHT - _BASE, top_label)
    return Markup('<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">{}{}{}</svg>').format(
        WIDTH, HEIGHT, title, lines, Markup("").join(drawn), Markup("").join(labels)
    )


def _bar(piece: Bar, x: float, *, width: float, top: int) -> Markup:
    drawn, y = Markup(""), float(HEIGHT - _BASE)
    room, gap = HEIGHT - _BASE - _TOP, min(3.0, width / 4)
    for kind, amount in piece.parts:
        if amount:
            tall = max(1.5, room * amount / top)
            y -= tall
            drawn += Markup('<rect class="bar {}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>').format(
                kind, x + gap / 2, y, width - gap, tall
            )
    target = Markup('<rect class="target" x="{:.1f}" y="{}" width="{:.1f}" height="{}"/>').format(x, _TOP, width, room)
    return Markup("<g><title>{}: {}</title>{}{}</g>").format(piece.label, piece.words, target, drawn)


class Node(NamedTuple):
    """A step or a gate of a run, as its graph shows it."""

    key: str
    title: str
    note: str
    tone: str
    depends_on: tuple[str, ...]
    is_gate: bool = False


_BOX_WIDTH, _BOX_HEIGHT, _GAP_X, _GAP_Y = 150, 48, 34, 14
_MARGIN = 4


def graph(nodes: Sequence[Node], *, title: str) -> Markup:
    """Return steps in columns: each to the right of everything it depends on."""
    columns = _columns(nodes)
    tallest = max((len(members) for members in columns), default=1)
    places = {
        node.key: _place(column, row, members=len(members), tallest=tallest)
        for column, members in enumerate(columns)
        for row, node in enumerate(members)
    }
    tall = tallest * (_BOX_HEIGHT + _GAP_Y) - _GAP_Y + 2 * _MARGIN
    wide = max(1, len(columns)) * (_BOX_WIDTH + _GAP_X) - _GAP_X + 2 * _MARGIN
    lines = [_line(places[other], places[node.key]) for node in nodes for other in node.depends_on if other in places]
    boxes = [_box(node, places[node.key]) for node in nodes]
    shape = '<svg class="graph" width="{0}" height="{1}" viewBox="0 0 {0} {1}" role="img" aria-label="{2}">{3}{4}</svg>'
    return Markup(shape).format(wide, tall, title, Markup("").join(lines), Markup("").join(boxes))


def _place(column: int, row: int, *, members: int, tallest: int) -> tuple[int, int]:
    """Return a box's corner; a column that is shorter than others stands in the middle."""
    pitch = _BOX_HEIGHT + _GAP_Y
    return column * (_BOX_WIDTH + _GAP_X) + _MARGIN, row * pitch + (tallest - members) * pitch // 2 + _MARGIN


def _columns(nodes: Sequence[Node]) -> list[list[Node]]:
    depth: dict[str, int] = {}
    by_key = {node.key: node for node in nodes}
    for _ in nodes:  # each pass settles at least one more level; a circle ends with the last pass
        before = dict(depth)
        for node in nodes:
            depth[node.key] = max((depth.get(other, 0) + 1 for other in node.depends_on if other in by_key), default=0)
        if depth == before:
            break
    columns: list[list[Node]] = [[] for _ in range(min(len(nodes), max(depth.values(), default=0) + 1))]
    for node in nodes:
        columns[min(depth[node.key], len(columns) - 1)].append(node)
    return columns


def _line(start: tuple[int, int], end: tuple[int, int]) -> Markup:
    x1, y1 = start[0] + _BOX_WIDTH, start[1] + _BOX_HEIGHT // 2
    x2, y2 = end[0], end[1] + _BOX_HEIGHT // 2
    middle = x2 - _GAP_X // 2  # bends just before its goal, so that lines over several columns stay apart from boxes
    return Markup('<path class="edge" d="M{} {}C{} {} {} {} {} {}"/>').format(x1, y1, middle, y1, middle, y2, x2, y2)


def _box(node: Node, place: tuple[int, int]) -> Markup:
    x, y = place
    return Markup(
        '<g><title>{}: {}</title><rect class="node {}{}" x="{}" y="{}" width="{}" height="{}" rx="{}"/>'
        '<text class="node-title" x="{}" y="{}">{}</text><text class="node-note" x="{}" y="{}">{}</text></g>'
    ).format(
        node.title, node.note, node.tone, " gate" if node.is_gate else "", x, y, _BOX_WIDTH, _BOX_HEIGHT,
        _BOX_HEIGHT // 2 if node.is_gate else 7, x + 14, y + 20, _fitted(node.title, 18), x + 14, y + 37,
        _fitted(node.note, 22),
    )  # fmt: skip


def _fitted(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"

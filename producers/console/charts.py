"""Charts as SVG, drawn here: no script, no style attribute, colours by class so that they follow light and dark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

WIDTH, HEIGHT = 720, 140
_BASE = 20
"""Room below for the times."""


class Bar(NamedTuple):
    """One piece of time."""

    label: str
    parts: tuple[tuple[str, int], ...]
    """Class and count, from the bottom up."""


def bars(pieces: Sequence[Bar], *, title: str) -> Markup:
    """Return stacked bars with a title that says the same in words, for who cannot see them."""
    top = max((sum(count for _, count in piece.parts) for piece in pieces), default=0) or 1
    width = WIDTH / max(1, len(pieces))
    drawn = [_bar(piece, position * width, width=width, top=top) for position, piece in enumerate(pieces)]
    every = max(1, len(pieces) // 6)
    labels = [
        Markup('<text x="{:.1f}" y="{}" class="axis">{}</text>').format(at * width, HEIGHT - 4, piece.label)
        for at, piece in enumerate(pieces)
        if at % every == 0
    ]
    scale = Markup('<text x="{}" y="12" class="axis end">{}</text>').format(WIDTH, top)
    return Markup('<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">{}{}{}</svg>').format(
        WIDTH, HEIGHT, title, Markup("").join(drawn), Markup("").join(labels), scale
    )


def _bar(piece: Bar, x: float, *, width: float, top: int) -> Markup:
    drawn, y = Markup(""), float(HEIGHT - _BASE)
    room = HEIGHT - _BASE - 16
    for kind, count in piece.parts:
        if count:
            tall = max(1.5, room * count / top)
            y -= tall
            drawn += Markup(
                '<rect class="bar {}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" rx="1"/>'
            ).format(kind, x + 1, y, max(1.0, width - 2), tall)
    words = ", ".join(f"{count} {kind}" for kind, count in piece.parts if count) or "nothing"
    return Markup("<g><title>{}: {}</title>{}</g>").format(piece.label, words, drawn)


class Node(NamedTuple):
    """A step of a run, as its graph shows it."""

    key: str
    title: str
    note: str
    tone: str
    depends_on: tuple[str, ...]


_BOX_WIDTH, _BOX_HEIGHT, _GAP_X, _GAP_Y = 168, 46, 44, 14


def graph(nodes: Sequence[Node], *, title: str) -> Markup:
    """Return steps in columns: each to the right of everything it depends on."""
    columns = _columns(nodes)
    places = {
        node.key: (column * (_BOX_WIDTH + _GAP_X) + 2, row * (_BOX_HEIGHT + _GAP_Y) + 2)
        for column, members in enumerate(columns)
        for row, node in enumerate(members)
    }
    tall = max((len(members) for members in columns), default=1) * (_BOX_HEIGHT + _GAP_Y)
    wide = max(1, len(columns)) * (_BOX_WIDTH + _GAP_X)
    lines = [_line(places[other], places[node.key]) for node in nodes for other in node.depends_on if other in places]
    boxes = [_box(node, places[node.key]) for node in nodes]
    shape = '<svg class="graph" width="{}" height="{}" viewBox="0 0 {} {}" role="img" aria-label="{}">{}{}</svg>'
    return Markup(shape).format(
        wide, tall, wide, tall, title, Markup("").join(lines), Markup("").join(boxes)
    )  # fmt: skip


def _columns(nodes: Sequence[Node]) -> list[list[Node]]:
    depth: dict[str, int] = {}
    by_key = {node.key: node for node in nodes}
    for _ in nodes:  # each pass settles at least one more level; a circle ends with the last pass
        for node in nodes:
            depth[node.key] = max((depth.get(other, 0) + 1 for other in node.depends_on if other in by_key), default=0)
    columns: list[list[Node]] = [[] for _ in range(min(len(nodes), max(depth.values(), default=0) + 1))]
    for node in nodes:
        columns[min(depth[node.key], len(columns) - 1)].append(node)
    return columns


def _line(start: tuple[int, int], end: tuple[int, int]) -> Markup:
    x1, y1 = start[0] + _BOX_WIDTH, start[1] + _BOX_HEIGHT // 2
    x2, y2 = end[0], end[1] + _BOX_HEIGHT // 2
    middle = (x1 + x2) // 2
    return Markup('<path class="edge" d="M{} {}C{} {} {} {} {} {}"/>').format(x1, y1, middle, y1, middle, y2, x2, y2)


def _box(node: Node, place: tuple[int, int]) -> Markup:
    x, y = place
    return Markup(
        '<g><title>{}: {}</title><rect class="node {}" x="{}" y="{}" width="{}" height="{}" rx="6"/>'
        '<text class="node-title" x="{}" y="{}">{}</text><text class="node-note" x="{}" y="{}">{}</text></g>'
    ).format(
        node.title, node.note, node.tone, x, y, _BOX_WIDTH, _BOX_HEIGHT, x + 10, y + 19, _fitted(node.title, 22),
        x + 10, y + 36, _fitted(node.note, 26),
    )  # fmt: skip


def _fitted(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"

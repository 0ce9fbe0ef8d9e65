"""Charts as SVG without scripts or style attributes; classes give them their colours in light and dark mode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from producers.console.presentation import excerpt

WIDTH, HEIGHT = 720, 180
_BASE = 30
"""Space below for the times."""
_TOP = 26
"""Space above for the scale."""
_LABELS = 6


class Bar(NamedTuple):
    """A bar."""

    label: str
    parts: tuple[tuple[str, int], ...]
    """Class and amount, from the bottom up."""
    words: str
    """Its title, for screen readers and tooltips."""


def bars(pieces: Sequence[Bar], *, title: str, top_label: str) -> Markup:
    """Return stacked bars; the upper line is at the highest."""
    highest = max([1, *(sum(amount for _, amount in piece.parts) for piece in pieces)])
    width = WIDTH / max(1, len(pieces))
    drawn = [_bar(piece, position * width, width=width, top=highest) for position, piece in enumerate(pieces)]
    every = max(1, -(-len(pieces) // _LABELS))
    labels = [
        Markup('<text x="{:.1f}" y="{}" class="axis">{}</text>').format(at * width + 1, HEIGHT - 7, piece.label)
        for at, piece in enumerate(pieces)
        if at % every == 0
    ]
    lines = Markup(
        '<line class="rule" x1="0" x2="{0}" y1="{1}" y2="{1}"/><line class="rule" x1="0" x2="{0}" y1="{2}" y2="{2}"/>'
        '<text x="{0}" y="18" class="axis end">{3}</text>'
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


_TINY_WIDTH, _TINY_HEIGHT = 240, 30


def spark(amounts: Sequence[float | None], words: Sequence[str], *, title: str, kind: str) -> Markup:
    """Return small bars on one line of a table, whose cells have the numbers; `words` are their tooltips."""
    highest = max((amount for amount in amounts if amount is not None), default=0) or 1
    width = _TINY_WIDTH / max(1, len(amounts))
    drawn = Markup("")
    for at, (amount, said) in enumerate(zip(amounts, words, strict=True)):
        if amount:
            tall = max(1.5, (_TINY_HEIGHT - 1) * amount / highest)
            drawn += Markup(
                '<g><title>{}</title><rect class="bar {}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/></g>'
            ).format(said, kind, at * width, _TINY_HEIGHT - tall, width - min(1.5, width / 4), tall)
    return Markup(
        '<svg class="spark" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" aria-label="{}">'
        '<line class="rule" x1="0" x2="{}" y1="{}" y2="{}"/>{}</svg>'
    ).format(_TINY_WIDTH, _TINY_HEIGHT, title, _TINY_WIDTH, _TINY_HEIGHT - 0.5, _TINY_HEIGHT - 0.5, drawn)


class Node(NamedTuple):
    """A step or a gate in the graph of a run."""

    key: str
    title: str
    note: str
    tone: str
    depends_on: tuple[str, ...]
    is_gate: bool = False


class _Layout(NamedTuple):
    """The measures of a graph."""

    width: int
    """Of a box."""
    height: int
    along: int
    """Space between levels."""
    across: int
    """Space between boxes of a level."""
    is_tall: bool
    inset: int
    """Space before the text of a box."""
    letters: int
    """Longest title that fits into a box."""


_WIDE = _Layout(width=132, height=48, along=26, across=14, is_tall=False, inset=11, letters=16)
_TALL = _Layout(width=102, height=46, along=24, across=9, is_tall=True, inset=9, letters=12)
"""Three boxes fit beside each other on a phone."""
_MARGIN = 4


def graph(nodes: Sequence[Node], *, title: str, is_tall: bool = False) -> Markup:
    """Draw steps in levels, each after all it depends on, from left to right or, for phones, downwards."""
    layout = _TALL if is_tall else _WIDE
    levels = _levels(nodes)
    most = max((len(members) for members in levels), default=1)
    places = {
        node.key: _place(level, row, layout, offset=most - len(members))
        for level, members in enumerate(levels)
        for row, node in enumerate(members)
    }
    wide = max((x for x, _ in places.values()), default=0) + layout.width + _MARGIN
    tall = max((y for _, y in places.values()), default=0) + layout.height + _MARGIN
    lines = [
        _line(places[other], places[node.key], layout) for node in nodes for other in node.depends_on if other in places
    ]
    boxes = [_box(node, places[node.key], layout) for node in nodes]
    shape = '<svg class="graph" width="{0}" height="{1}" viewBox="0 0 {0} {1}" role="img" aria-label="{2}">{3}{4}</svg>'
    return Markup(shape).format(wide, tall, title, Markup("").join(lines), Markup("").join(boxes))


def _place(level: int, row: int, layout: _Layout, *, offset: int) -> tuple[int, int]:
    """Return a box's corner; shorter levels are centred."""
    if layout.is_tall:
        pitch = layout.width + layout.across
        return row * pitch + offset * pitch // 2 + _MARGIN, level * (layout.height + layout.along) + _MARGIN
    pitch = layout.height + layout.across
    return level * (layout.width + layout.along) + _MARGIN, row * pitch + offset * pitch // 2 + _MARGIN


def _levels(nodes: Sequence[Node]) -> list[list[Node]]:
    depth: dict[str, int] = {}
    by_key = {node.key: node for node in nodes}
    for _ in nodes:  # each pass settles at least one more level; a circle ends with the last pass
        before = dict(depth)
        for node in nodes:
            depth[node.key] = max((depth.get(other, 0) + 1 for other in node.depends_on if other in by_key), default=0)
        if depth == before:
            break
    levels: list[list[Node]] = [[] for _ in range(min(len(nodes), max(depth.values(), default=0) + 1))]
    for node in nodes:
        levels[min(depth[node.key], len(levels) - 1)].append(node)
    return levels


def _line(start: tuple[int, int], end: tuple[int, int], layout: _Layout) -> Markup:
    """Draw an edge that bends just before its end, so that a long one stays clear of boxes."""
    if layout.is_tall:
        x1, y1 = start[0] + layout.width // 2, start[1] + layout.height
        x2, y2 = end[0] + layout.width // 2, end[1]
        bends = (x1, y2 - layout.along // 2, x2, y2 - layout.along // 2)
    else:
        x1, y1 = start[0] + layout.width, start[1] + layout.height // 2
        x2, y2 = end[0], end[1] + layout.height // 2
        bends = (x2 - layout.along // 2, y1, x2 - layout.along // 2, y2)
    return Markup('<path class="edge" d="M{} {}C{} {} {} {} {} {}"/>').format(x1, y1, *bends, x2, y2)


def _box(node: Node, place: tuple[int, int], layout: _Layout) -> Markup:
    x, y = place
    gate = " gate" if node.is_gate else ""
    inset, less = (layout.width // 2, 2) if gate else (layout.inset, 0)  # round ends leave less room, in the middle
    return Markup(
        '<g><title>{}: {}</title><rect class="node {}{}" x="{}" y="{}" width="{}" height="{}" rx="{}"/>'
        '<text class="node-title{}" x="{}" y="{}">{}</text><text class="node-note{}" x="{}" y="{}">{}</text></g>'
    ).format(
        node.title,
        node.note,
        node.tone,
        gate,
        x,
        y,
        layout.width,
        layout.height,
        layout.height // 2 if gate else 7,
        gate,
        x + inset,
        y + 20,
        excerpt(node.title, layout.letters - less),
        gate,
        x + inset,
        y + 36,
        excerpt(node.note, layout.letters + 2 - less),
    )

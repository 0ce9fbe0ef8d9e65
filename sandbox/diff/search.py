"""Everything that a hunk may mean in a file: as a whole, in parts, without outer context, or done already."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from sandbox.diff.align import alignments
from sandbox.diff.lines import MIN_KEPT_CHARS, MIN_KEPT_LINES, FileText, key_of
from sandbox.diff.model import Hunk, Line
from sandbox.diff.options import Option, options_at
from sandbox.diff.result import Fuzz

MAX_STARTS = 200
"""Places of one hunk that are looked at; a hunk with more is ambiguous anyway."""
_MAX_DROPPED = 3


def readings(hunk: Hunk, file: FileText) -> list[tuple[tuple[Line, ...], Fuzz]]:
    """Return what the lines of a hunk may be: a line without a marker is context, or text behind the diff.

    An empty line between added ones may be context or added: models drop the plus of empty lines.
    """
    if "?" not in hunk.ops:
        return [(hunk.lines, Fuzz.EXACT)]
    lines = list(hunk.lines)
    while lines and lines[-1].op == "?" and (not lines[-1].text.strip() or key_of(lines[-1].text) not in file.places):
        lines.pop()
    context = tuple(Line(" ", text) if op == "?" else Line(op, text) for op, text in lines)
    added = tuple(
        Line("+" if _is_between_added(lines, place) else " " if op == "?" else op, text)
        for place, (op, text) in enumerate(lines)
    )
    is_blank_only = all(not line.text.strip() for line in lines if line.op == "?")
    found = [(context, Fuzz.EXACT if is_blank_only else Fuzz.MARKER)]
    return found if added == context else [*found, (added, Fuzz.MARKER)]


def _is_between_added(lines: Sequence[Line], place: int) -> bool:
    if lines[place].op != "?" or lines[place].text.strip():
        return lines[place].op == "+"
    above = next((line.op for line in reversed(lines[:place]) if line.op != "?" or line.text.strip()), None)
    below = next((line.op for line in lines[place:] if line.op != "?" or line.text.strip()), None)
    return above == below == "+"


class Placement(NamedTuple):
    """Lines of a hunk and the lines of the file that its context and removed lines are."""

    lines: Sequence[Line]
    places: Sequence[int]
    fuzz: Fuzz


def whole(file: FileText, lines: Sequence[Line], fuzz: Fuzz) -> list[Placement]:
    """Return where all context and removed lines of a hunk stand one below another."""
    keys = [key_of(line.text) for line in lines if line.op != "+"]
    starts = file.starts_of(keys)[:MAX_STARTS]
    return [Placement(lines, range(start, start + len(keys)), fuzz) for start in starts]


def in_parts(file: FileText, lines: Sequence[Line], fuzz: Fuzz) -> list[Placement]:
    """Return where a hunk may stand that leaves out unchanged lines of the file between its own."""
    while len(lines) > 1 and lines[0].op == lines[1].op == " " and not lines[0].text.strip():
        lines = lines[1:]
    return [Placement(lines, places, max(fuzz, Fuzz.SPLIT)) for places in alignments(file, lines)]


def trimmed(file: FileText, lines: Sequence[Line], fuzz: Fuzz) -> list[Placement]:
    """Return where a hunk may stand without outer context lines, at the fewest for which there is a place."""
    return next(filter(None, (whole(file, shorter, Fuzz.TRIMMED) for shorter in _shorter(lines))), [])


def options_of(file: FileText, placements: Sequence[Placement]) -> list[Option]:
    """Return what a hunk may mean at some places, each meaning once."""
    found: list[Option] = []
    for lines, places, fuzz in placements:
        for option in options_at(file, lines, places, at_least=fuzz):
            if not any(option.edits == other.edits and option.start == other.start for other in found):
                found.append(option)
    return found


def applied(file: FileText, lines: Sequence[Line]) -> list[Option]:
    """Return where the hunk's result stands already, but for white space at line ends."""
    after = [Line(" ", line.text) for line in lines if line.op != "-"]
    found = []
    runs = [{line.op for line in run} for _, run in groupby(lines, key=lambda line: line.op == " ")]
    for placement in whole(file, after, Fuzz.EXACT):
        start, end = placement.places[0], placement.places[-1] + 1
        is_open = (runs[0] == {"-"} and start > 0) or (runs[-1] == {"-"} and end < len(file.lines))
        option = options_at(file, after, placement.places, at_least=Fuzz.EXACT)[0]
        if option.fuzz <= Fuzz.WHITESPACE and not is_open:
            found.append(Option(start, (), option.fuzz, is_applied=True))
    return found


def _shorter(lines: Sequence[Line]) -> Iterator[Sequence[Line]]:
    head = next((place for place, line in enumerate(lines) if line.op != " "), len(lines))
    tail = next((place for place, line in enumerate(reversed(lines)) if line.op != " "), len(lines))
    if head == len(lines):
        return
    most_head = min(_MAX_DROPPED, head - 1 if lines[head].op == "+" else head)
    most_tail = min(_MAX_DROPPED, tail - 1 if lines[len(lines) - 1 - tail].op == "+" else tail)
    for dropped in range(1, most_head + most_tail + 1):
        for above in range(max(0, dropped - most_tail), min(dropped, most_head) + 1):
            shorter = lines[above : len(lines) - (dropped - above)]
            if _says_enough(shorter):
                yield shorter


def _says_enough(lines: Sequence[Line]) -> bool:
    said = [b"".join(line.text.split()) for line in lines if line.op != "+"]
    return sum(map(bool, said)) >= MIN_KEPT_LINES and sum(map(len, said)) >= MIN_KEPT_CHARS

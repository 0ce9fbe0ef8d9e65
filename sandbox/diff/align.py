"""Hunks that leave out unchanged lines: which lines of the file theirs are, when only one answer is possible.

Between two context lines anything may be left out. Beside an inserted line nothing may: it could stand on either side.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

from sandbox.diff.lines import MIN_KEPT_CHARS, MIN_KEPT_LINES, FileText, key_of
from sandbox.diff.model import Line

MAX_GAP = 8
"""Lines that may be left out in one place."""
_MAX_LINES = 400
_MAX_FOUND = 20
_MAX_STARTS = 100
_MAX_WAYS = 3
_ALIKE = 0.5
_MAX_COMPARED = 400

_Way = tuple[int, tuple[int, ...]]
"""How many lines are left out, and the lines of the file."""


def alignments(file: FileText, lines: Sequence[Line]) -> list[tuple[int, ...]]:
    """Return the lines of the file that a hunk's context and removed lines may be, at the fewest left out.

    Returns:
        Ways; each has a line of the file for each of those lines. Empty when there is none.
    """
    before = [line for line in lines if line.op != "+"]
    keys = [key_of(line.text) for line in before]
    said = [key for key in keys if key]
    if len(before) > _MAX_LINES or len(said) < MIN_KEPT_LINES or sum(map(len, said)) < MIN_KEPT_CHARS:
        return []
    if any(key not in file.places for key in keys) or len(file.places[keys[0]]) > _MAX_STARTS:
        return []
    gaps = _gaps(lines)
    found = [way for start in file.places[keys[0]] for way in _from(file, keys, gaps, start)]
    fewest = min((skipped for skipped, _ in found), default=0)
    return [places for skipped, places in found if skipped <= fewest + 1]


def _from(file: FileText, keys: Sequence[bytes], gaps: Sequence[int], start: int) -> list[_Way]:
    """Return the ways that begin at one line: those that leave out the fewest, step by step."""
    ways: dict[int, list[_Way]] = {start: [(0, (start,))]}
    for index, key in enumerate(keys[1:]):
        following: dict[int, list[_Way]] = {}
        for last, reached in ways.items():
            for place in range(last + 1, min(last + 2 + gaps[index], len(file.keys))):
                file.budget.spend(1)
                if file.keys[place] == key:
                    skipped = place - last - 1
                    more = [(total + skipped, (*places, place)) for total, places in reached]
                    following[place] = sorted(following.get(place, []) + more)[:_MAX_WAYS]
        file.budget.spend(len(following) * index // 2)
        ways = following
    return sorted(way for reached in ways.values() for way in reached)[:_MAX_FOUND]


def _gaps(lines: Sequence[Line]) -> list[int]:
    """Return for each pair of neighbours among context and removed lines how many lines may be left out between."""
    return list(_each_gap(lines))


def _each_gap(lines: Sequence[Line]) -> Iterator[int]:
    above: Line | None = None
    added: list[bytes] = []
    for line in lines:
        if line.op == "+":
            added.append(line.text)
            continue
        if above is not None:
            yield MAX_GAP if _may_leave_out(above, added, line) else 0
        above, added = line, []


def _may_leave_out(above: Line, added: Sequence[bytes], below: Line) -> bool:
    if above.op == below.op == "-":
        return False  # nothing says whether the line between is to stay
    if not added:
        return True
    if above.op == below.op:
        return False  # an insertion could stand on either side
    removed = above.text if above.op == "-" else below.text
    beside = added[0] if above.op == "-" else added[-1]
    return removed.strip() != beside.strip() and _is_alike(removed, beside)


def _is_alike(one: bytes, other: bytes) -> bool:
    """Return whether one line is the other, rewritten: then it stands in the other's place."""
    one, other = one.strip()[:_MAX_COMPARED], other.strip()[:_MAX_COMPARED]
    return SequenceMatcher(None, one, other, autojunk=False).ratio() >= _ALIKE

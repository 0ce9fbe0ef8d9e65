"""Hunks that leave out unchanged lines: which lines of the file theirs are, when only one answer is possible.

Between two context lines anything may be left out. Beside an inserted line nothing may: it could stand on either side.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import groupby, pairwise

from sandbox.diff.lines import MIN_KEPT_CHARS, MIN_KEPT_LINES, FileText, key_of
from sandbox.diff.model import Line

MAX_GAP = 8
"""Lines that may be left out in one place."""
_MAX_SKIPPED = 24
_MAX_LINES = 400
_MAX_FOUND = 20
_MAX_STARTS = 100
_MAX_WAYS = 6
_ALIKE = 0.6
_SHARED = 0.3
_MAX_COMPARED = 400

_Way = tuple[int, tuple[int, ...]]
"""How many lines are left out, and the lines of the file."""


class DoubtError(Exception):
    """Lines are left out where the new lines may be meant to stand above or below them."""


def alignments(file: FileText, lines: Sequence[Line]) -> list[tuple[int, ...]]:
    """Return the lines of the file that a hunk's context and removed lines may be, at the fewest left out.

    Returns:
        Ways; each has a line of the file for each of those lines. Empty when there is none.

    Raises:
        DoubtError: the fault of whoever wrote the hunk.
    """
    before = [line for line in lines if line.op != "+"]
    keys = [key_of(line.text) for line in before]
    said = [key for key in keys if key]
    if len(before) > _MAX_LINES or len(said) < MIN_KEPT_LINES or sum(map(len, said)) < MIN_KEPT_CHARS:
        return []
    if any(key not in file.places for key in keys):
        return []
    starts = _starts(file, keys)
    if len(starts) > _MAX_STARTS:
        return []
    found = [way for start in starts for way in _from(file, keys, start) if way[0] <= _MAX_SKIPPED]
    fewest = min((skipped for skipped, _ in found), default=0)
    best = [places for skipped, places in found if skipped <= fewest + 1]
    gaps = list(_gaps(lines))
    if any(not _is_told(places, gaps) for places in best):
        raise DoubtError
    return best


def _is_told(places: Sequence[int], gaps: Sequence[int]) -> bool:
    """Return whether lines are left out only where the hunk's new lines cannot be meant to stand among them."""
    return all(below - above - 1 <= gap for (above, below), gap in zip(pairwise(places), gaps, strict=True))


def _starts(file: FileText, keys: Sequence[bytes]) -> list[int]:
    """Return where the first line may stand: near enough to the line that stands in the fewest places."""
    rarest = min(range(len(keys)), key=lambda index: (not keys[index], len(file.places[keys[index]])))
    near = {
        place - rarest - skipped
        for place in file.places[keys[rarest]]
        for skipped in range(min(rarest, 1) * _MAX_SKIPPED + 1)
    }
    file.budget.spend(len(near))
    return [start for start in sorted(near) if start >= 0 and file.keys[start] == keys[0]]


def _from(file: FileText, keys: Sequence[bytes], start: int) -> list[_Way]:
    """Return the ways that begin at one line: those that leave out the fewest, step by step."""
    ways: dict[int, list[_Way]] = {start: [(0, (start,))]}
    for index, key in enumerate(keys[1:]):
        following: dict[int, list[_Way]] = {}
        for last, reached in ways.items():
            for place in range(last + 1, min(last + 2 + MAX_GAP, len(file.keys))):
                file.budget.spend(1)
                skipped = place - last - 1
                if file.keys[place] == key:
                    more = [(total + skipped, (*places, place)) for total, places in reached]
                    following[place] = sorted(following.get(place, []) + more)[:_MAX_WAYS]
        file.budget.spend(len(following) * index // 2)
        ways = following
    return sorted(way for reached in ways.values() for way in reached)[:_MAX_FOUND]


def _gaps(lines: Sequence[Line]) -> Iterator[int]:
    """Return for each pair of neighbours among context and removed lines how many lines may be left out between."""
    above: Line | None = None
    added: list[bytes] = []
    sizes = _run_sizes(lines)
    for place, line in enumerate(lines):
        if line.op == "+":
            added.append(line.text)
            continue
        if above is not None:
            yield _gap(above, added, line, is_one_for_one=len(set(sizes[place - 1])) == 1)
        above, added = line, []


def _run_sizes(lines: Sequence[Line]) -> list[tuple[int, int]]:
    """Return for each line how many lines its run of changes removes and adds."""
    sizes: list[tuple[int, int]] = []
    for is_context, run in groupby(lines, key=lambda line: line.op == " "):
        ops = [line.op for line in run]
        sizes += [(0, 0) if is_context else (ops.count("-"), ops.count("+"))] * len(ops)
    return sizes


def _gap(above: Line, added: Sequence[bytes], below: Line, *, is_one_for_one: bool) -> int:
    if above.op == below.op == "-":
        return 0  # nothing says whether the line between is to stay
    if not added:
        return MAX_GAP
    if above.op == below.op:
        return 0  # an insertion could stand on either side
    removed = above.text if above.op == "-" else below.text
    beside = added[0] if above.op == "-" else added[-1]
    if not (is_one_for_one and _is_alike(removed, beside)):
        return 0
    return MAX_GAP


def _is_alike(one: bytes, other: bytes) -> bool:
    """Return whether one line is the other, rewritten: then it stands in the other's place."""
    one, other = one.strip()[:_MAX_COMPARED], other.strip()[:_MAX_COMPARED]
    if one == other:
        return False  # the same line again was moved, past what is left out
    shared = _common(one, other) + _common(one[::-1], other[::-1])
    if shared >= _SHARED * max(len(one), len(other)):
        return True
    return SequenceMatcher(None, one, other, autojunk=False).ratio() >= _ALIKE


def _common(one: bytes, other: bytes) -> int:
    return next(
        (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )

"""What a hunk would do at one place: edits of the file's lines, and how far the place is from what was asked for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from sandbox.diff.indent import Pair, Run, file_unit, reindented
from sandbox.diff.lines import FileText, likeness
from sandbox.diff.model import Hunk, Line
from sandbox.diff.result import Fuzz

_CHANGES = re.compile("( *)([^ ]+)")


class Edit(NamedTuple):
    """Lines `start` to `end` (not included) become others."""

    start: int
    end: int
    lines: tuple[bytes, ...]


class Option(NamedTuple):
    """One thing that a hunk may mean."""

    start: int
    """First line of the file that the hunk covers."""
    edits: tuple[Edit, ...]
    fuzz: Fuzz
    keeps_end: bool = False
    """The file's last line ends as before, whatever the diff says of its line feed."""
    is_applied: bool = False


def exact_option(file: FileText, hunk: Hunk, start: int) -> Option:
    """Return what a hunk means that stands at a line of the file byte for byte."""
    file.budget.spend(len(hunk.ops))
    places = range(start, start + len(hunk.ops) - hunk.ops.count("+"))
    return Option(start, _edits(hunk.ops, hunk.added, places, start), Fuzz.EXACT)


def options_at(file: FileText, lines: Sequence[Line], places: Sequence[int], *, at_least: Fuzz) -> list[Option]:
    """Return what a hunk may mean when its context and removed lines are certain lines of the file.

    Args:
        file: the file.
        lines: the hunk, without lines of unknown kind.
        places: for each context or removed line, the line of the file.
        at_least: the level that was needed to find the place.
    """
    before = [line for line in lines if line.op != "+"]
    pairs = [Pair(line, file.lines[place]) for line, place in zip(before, places, strict=True)]
    file.budget.spend(len(lines))
    fuzz = max(
        (likeness(line.text, found, is_context=line.op == " ") for line, found in pairs), default=Fuzz.EXACT
    )  # fmt: skip
    unit = file_unit(file.lines) if fuzz is Fuzz.INDENT else 0
    ways = reindented(pairs, lines, unit, is_shifted=file.is_shifted) if fuzz >= Fuzz.MARKER else [_added_runs(lines)]
    ended = [_with_ends(way, pairs) for way in ways] if fuzz is not Fuzz.EXACT else ways
    start = places[0] if places else 0
    keeps_end = any(line.text.endswith(b"\n") != found.endswith(b"\n") for line, found in pairs)
    ops = "".join(line.op for line in lines)
    return [
        Option(start, _edits(ops, [*chain(*way)], places, start), max(fuzz, at_least), keeps_end=keeps_end)
        for way in ended
        if way is not None
    ]


def _added_runs(lines: Sequence[Line]) -> list[Run]:
    runs: list[list[bytes]] = []
    is_open = False
    for line in lines:
        if line.op == "+":
            if not is_open:
                runs.append([])
            runs[-1].append(line.text)
        is_open = line.op == "+"
    return [tuple(run) for run in runs]


def _with_ends(way: Sequence[Run], pairs: Sequence[Pair]) -> list[Run] | None:
    """Return added lines with the line ends of the lines around them; None where those differ among themselves."""
    ends = {(_end(line.text), _end(found)) for line, found in pairs if _end(line.text) and _end(found)}
    if all(wanted == found for wanted, found in ends):
        return list(way)
    found_ends = {found for _, found in ends}
    if len(found_ends) != 1:
        return list(way) if not any(way) else None
    end = found_ends.pop()
    return [tuple(text.removesuffix(_end(text)) + end if _end(text) else text for text in run) for run in way]


def _end(line: bytes) -> bytes:
    return b"\r\n" if line.endswith(b"\r\n") else b"\n" if line.endswith(b"\n") else b""


def _edits(ops: str, added: Sequence[bytes], places: Sequence[int], start: int) -> tuple[Edit, ...]:
    """Return the edits of a hunk: one for each run of lines that are not context."""
    edits: list[Edit] = []
    seen = made = 0
    for kept, changed in _CHANGES.findall(ops):
        seen += len(kept)
        new = made + changed.count("+")
        after = seen + len(changed) - (new - made)
        if after > seen:
            first, last = places[seen], places[after - 1] + 1
        else:
            first = last = places[seen - 1] + 1 if seen else start
        edits.append(Edit(first, last, tuple(added[made:new])))
        seen, made = after, new
    return tuple(edits)

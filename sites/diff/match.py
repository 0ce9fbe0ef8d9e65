"""Match all hunks of a file to the one result that they can mean, or refuse.

The line numbers of all hunks are tried first, as git does. If they do not fit exactly, each hunk is searched for by its
lines and must have one place in the file.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, islice, product
from typing import NamedTuple

from sites.diff.choose import Choice, coherent_places, expected_place, is_as_tools_write, narrow
from sites.diff.model import (
    MIN_KEPT_CHARS,
    MIN_KEPT_LINES,
    DiffRefusedError,
    FileOp,
    FileText,
    Fuzz,
    Hunk,
    HunkReceipt,
    Line,
    Reason,
    blob_id,
    indent_of,
    key_of,
)
from sites.diff.options import DoubtError, Edit, Option, alignments, exact_option, options_at

MAX_STARTS = 200
"""Places of one hunk that are considered; a hunk with more is ambiguous anyway."""
_MAX_DROPPED = 3


def variants(hunk: Hunk, file: FileText) -> list[tuple[tuple[Line, ...], Fuzz]]:
    """Return what the lines of a hunk may be: a line without a marker is context, or prose after the diff.

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
    ways = [(context, Fuzz.EXACT if is_blank_only else Fuzz.MARKER)]
    return ways if added == context else [*ways, (added, Fuzz.MARKER)]


def _is_between_added(lines: Sequence[Line], place: int) -> bool:
    if lines[place].op != "?" or lines[place].text.strip():
        return lines[place].op == "+"
    above = next((line.op for line in reversed(lines[:place]) if line.op != "?" or line.text.strip()), None)
    below = next((line.op for line in lines[place:] if line.op != "?" or line.text.strip()), None)
    return above == below == "+"


class Placement(NamedTuple):
    """Lines of a hunk, and where its context and removed lines are in the file."""

    lines: Sequence[Line]
    places: Sequence[int]
    fuzz: Fuzz


def whole(file: FileText, lines: Sequence[Line], fuzz: Fuzz) -> list[Placement]:
    """Return where all context and removed lines of a hunk are consecutive."""
    keys = [key_of(line.text) for line in lines if line.op != "+"]
    starts = file.starts_of(keys)[:MAX_STARTS]
    return [Placement(lines, range(start, start + len(keys)), fuzz) for start in starts]


def in_parts(file: FileText, lines: Sequence[Line], fuzz: Fuzz) -> list[Placement]:
    """Return where a hunk fits that leaves out unchanged lines of the file."""
    while len(lines) > 1 and lines[0].op == lines[1].op == " " and not lines[0].text.strip():
        lines = lines[1:]
    return [Placement(lines, places, max(fuzz, Fuzz.SPLIT)) for places in alignments(file, lines)]


def trimmed(file: FileText, lines: Sequence[Line], fuzz: Fuzz) -> list[Placement]:
    """Return where a hunk fits with the fewest outer context lines dropped."""
    return next(filter(None, (whole(file, shorter, Fuzz.TRIMMED) for shorter in _shorter(lines))), [])


def options_of(file: FileText, placements: Sequence[Placement]) -> list[Option]:
    """Return the distinct options of a hunk at some placements."""
    options: list[Option] = []
    for lines, places, fuzz in placements:
        for option in options_at(file, lines, places, at_least=fuzz):
            if not any(option.edits == other.edits and option.start == other.start for other in options):
                options.append(option)
    return options


def applied(file: FileText, lines: Sequence[Line]) -> list[Option]:
    """Return where the hunk's result already is, but for white space at line ends."""
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
            if _is_distinctive(shorter):
                yield shorter


def _is_distinctive(lines: Sequence[Line]) -> bool:
    texts = [b"".join(line.text.split()) for line in lines if line.op != "+"]
    return sum(map(bool, texts)) >= MIN_KEPT_LINES and sum(map(len, texts)) >= MIN_KEPT_CHARS


_MAX_SHOWN = 20
_MAX_CHARS = 200
_MAX_VOTES = 50
_AROUND = 2


def nearest_lines(hunk: Hunk, file: FileText) -> tuple[str, ...]:
    """Return the numbered lines around the place with most of a hunk's lines; for display, never to apply."""
    keys = [key_of(text) for text in hunk.before]
    votes: Counter[int] = Counter()
    for index, key in enumerate(keys[:1000]):
        places = file.places.get(key, ())
        if key and len(places) <= _MAX_VOTES:
            votes.update({place - index: 1 + len(key) // 20 for place in places})
    hinted = hunk.span.old_start - 1 if hunk.span else 0
    start = votes.most_common(1)[0][0] if votes else min(hinted, max(len(file.lines) - len(keys), 0))
    first = max(start - _AROUND, 0)
    last = min(start + len(keys) + _AROUND, first + _MAX_SHOWN, len(file.lines))
    return tuple(f"{place + 1:>5}| {_shown(file.lines[place])}" for place in range(first, last))


def _shown(line: bytes) -> str:
    text = line.rstrip(b"\r\n").decode(errors="replace")
    safe = "".join(character if character.isprintable() or character == "\t" else "\ufffd" for character in text)
    return safe if len(safe) <= _MAX_CHARS else safe[:_MAX_CHARS] + " ..."


def edits_of(op: FileOp, options: Sequence[Option]) -> list[Edit]:
    """Return the edits of all hunks in the file's order; a repeated hunk counts once.

    Raises:
        DiffRefusedError: `overlap` (the diff's fault).
    """
    numbered = sorted((edit, number) for number, option in enumerate(options, start=1) for edit in option.edits)
    edits: list[Edit] = []
    for edit, number in numbered:
        if edits and edit == edits[-1]:
            continue
        is_same_point = edits and edit.start == edit.end == edits[-1].start == edits[-1].end
        if edits and (edit.start < edits[-1].end or is_same_point):
            raise DiffRefusedError(Reason.OVERLAP, "two hunks change the same lines", op.path, number)
        edits.append(edit)
    return edits


def rebuilt(op: FileOp, file: FileText, options: Sequence[Option]) -> list[bytes]:
    """Return a file's new lines.

    Raises:
        DiffRefusedError: `overlap` (the diff's fault).
    """
    lines: list[bytes] = []
    at = 0
    edits = edits_of(op, options)
    for edit in edits:
        lines += file.lines[at : edit.start]
        lines += edit.lines
        at = edit.end
    lines += file.lines[at:]
    added = [line for edit in edits for line in edit.lines]
    is_open = not all([line[-1:] == b"\n" for line in [*added, *file.lines[-1:]]])
    keeps_end = any([option.keeps_end for option in options])
    return _with_ends(file, lines, keeps_end=keeps_end) if lines and (is_open or keeps_end) else lines


def _with_ends(file: FileText, lines: list[bytes], *, keeps_end: bool) -> list[bytes]:
    """Return lines with line feeds in between; a kept last line ends as the file's does."""
    end = b"\r\n" if file.lines and file.lines[0].endswith(b"\r\n") else b"\n"
    lines = [*(_with_end(line, end) for line in lines[:-1]), lines[-1]]
    if keeps_end:
        had_end = not file.data or file.data.endswith(b"\n")
        lines[-1] = _with_end(lines[-1], end) if had_end else lines[-1].removesuffix(b"\n").removesuffix(b"\r")
    return lines if lines[-1] else lines[:-1]


def _with_end(line: bytes, end: bytes) -> bytes:
    return line if line.endswith(b"\n") else line + end


_NEAR = 4
_MIN_INDENTED = 1
_MIN_BLOB_DIGITS = 7
_MAX_PROVEN = 256
"""Combinations of options that are tried if the diff names the result's blob id."""


def match_file(op: FileOp, file: FileText) -> tuple[list[Option], list[bytes]]:
    """Return the option that each hunk of a file means, and the file's new lines.

    Raises:
        DiffRefusedError: `not_found`, `ambiguous`, `no_context`, `overlap`, `too_complex` (the diff's fault).
    """
    proof = _proof(op, file)
    numbered = _by_numbers(op, file, is_base_known=proof is not None)
    if numbered is not None:
        if proof is None:
            _check_tabs(op, file, numbered)
        return numbered, rebuilt(op, file, numbered)
    file.is_shifted = len(op.hunks) > 1 and _is_shifted(op, file)
    choices = [Choice(hunk, _options(op, hunk, file, number)) for number, hunk in enumerate(op.hunks, start=1)]
    narrow(choices, file, is_ordered=op.is_ordered)
    if proof is not None:
        return _proven(op, file, choices, proof)
    for number, choice in enumerate(choices, start=1):
        if choice.only is None:
            raise _ambiguous(op, choice, number, file)
    options = [choice.options[0] for choice in choices]
    _check_tabs(op, file, options)
    return options, rebuilt(op, file, options)


def _is_shifted(op: FileOp, file: FileText) -> bool:
    """Whether all removed lines with one place are indented differently in the file."""
    same: list[bool] = []
    for hunk in op.hunks:
        before = [line for line in hunk.lines if line.op != "+"]
        placements = whole(file, before, Fuzz.EXACT) if "-" in hunk.ops else []
        if len(placements) == 1:
            pairs = zip(before, placements[0].places, strict=True)
            removed = [(line, file.lines[place]) for line, place in pairs if line.op == "-" and line.text.strip()]
            same += [indent_of(line.text) == indent_of(found) for line, found in removed]
    return bool(same) and not any(same)


def receipts_of(op: FileOp, options: Sequence[Option]) -> tuple[HunkReceipt, ...]:
    """Return the receipt of each hunk."""
    receipts = []
    for hunk, option in zip(op.hunks, options, strict=True):
        is_moved = option.fuzz is Fuzz.EXACT and hunk.span is not None and option.start != expected_place(hunk)
        receipts.append(HunkReceipt(option.start + 1, Fuzz.OFFSET if is_moved else option.fuzz, option.is_applied))
    return tuple(receipts)


def _by_numbers(op: FileOp, file: FileText, *, is_base_known: bool) -> list[Option] | None:
    """Return the options if all line numbers are right, as in a tool's diff of this very file."""
    places = coherent_places(op.hunks)
    if places is None:
        return None
    options: list[Option] = []
    for hunk, place in zip(op.hunks, places, strict=True):
        before = hunk.before
        if "?" in hunk.ops or not file.is_at(place, before):
            return None
        if not before and not (is_base_known or not file.lines):
            return None
        options.append(exact_option(file, hunk, place))
    is_certain = is_base_known or len(op.hunks) > 1 or all(is_as_tools_write(hunk, file) for hunk in op.hunks)
    return options if is_certain or all(_is_unique(hunk, file) for hunk in op.hunks) else None


def _is_unique(hunk: Hunk, file: FileText) -> bool:
    is_only = len(whole(file, hunk.lines, Fuzz.EXACT)) == 1
    return is_only and ("-" in hunk.ops or not applied(file, hunk.lines))


def _options(op: FileOp, hunk: Hunk, file: FileText, number: int) -> list[Option]:
    if not any(line.op != "+" and line.text.strip() for line in hunk.lines):
        return _without_context(op, hunk, file, number)
    ways = variants(hunk, file)
    for search in (whole, in_parts):
        try:
            placements = [placement for lines, fuzz in ways for placement in search(file, lines, fuzz)]
        except DoubtError:
            return []
        if placements:
            options = options_of(file, placements)
            if search is whole:
                options = _unless_done(options, _insertions_done(file, ways), hunk)
            return _unless_near_end(options, hunk, file) if op.is_ordered else options
    if done := [option for lines, _ in ways for option in applied(file, lines)]:
        return done
    if placements := [placement for lines, fuzz in ways for placement in trimmed(file, lines, fuzz)]:
        return options_of(file, placements)
    detail = "the lines that it changes are not in the file"
    raise DiffRefusedError(Reason.NOT_FOUND, detail, op.path, number, nearest_lines(hunk, file))


def _insertions_done(file: FileText, ways: Sequence[tuple[Sequence[Line], Fuzz]]) -> list[Option]:
    insertions = [lines for lines, _ in ways if all(line.op != "-" for line in lines)]
    return [option for lines in insertions for option in applied(file, lines)]


def _unless_done(options: list[Option], done: list[Option], hunk: Hunk) -> list[Option]:
    """Return an applied option instead if the inserted lines are already at the place."""
    size = len(hunk.ops) - hunk.ops.count("-")
    here = [found for found in done for option in options if found.start <= option.start < found.start + size]
    return here[:1] if here else options


def _unless_near_end(options: list[Option], hunk: Hunk, file: FileText) -> list[Option]:
    """Drop options a few lines from an end of the file, where the hunk's form puts it at the end itself.

    A hunk without context after its new lines belongs at the end of the file. A few lines before, the missing context
    may have been on either side. A SEARCH/REPLACE block says all that it means: it has no context of a fixed size.
    """
    is_open_below = re.search(r"[ ?][+]+$", hunk.ops) is not None
    is_open_above = re.match(r"[+]+[ ?]", hunk.ops) is not None
    remaining = []
    for option in options:
        points = [edit.start for edit in option.edits if edit.start == edit.end]
        is_near = (is_open_below and bool(points) and 0 < len(file.lines) - points[-1] < _NEAR) or (
            is_open_above and bool(points) and 0 < points[0] < _NEAR
        )
        if not is_near or option.is_applied:
            remaining.append(option)
    return remaining


def _without_context(op: FileOp, hunk: Hunk, file: FileText, number: int) -> list[Option]:
    if not hunk.before and (not file.data.strip() or hunk.is_at_end):
        return [exact_option(file, hunk, len(file.lines))]
    detail = "the hunk has no line that says where it belongs"
    raise DiffRefusedError(Reason.NO_CONTEXT, detail, op.path, number, nearest_lines(hunk, file))


def _ambiguous(op: FileOp, choice: Choice, number: int, file: FileText) -> DiffRefusedError:
    places = sorted({option.start + 1 for option in choice.options})
    if len(places) > 1:
        shown = ", ".join(map(str, places[:5])) + (" and more" if len(places) > 5 else "")
        detail = f"the hunk fits at lines {shown}"
    elif places:
        detail = "the hunk's place is known, but not where or how deep its new lines belong"
    else:
        detail = "the file's line ends or indentation cannot be told for the hunk's new lines"
    return DiffRefusedError(Reason.AMBIGUOUS, detail, op.path, number, nearest_lines(choice.hunk, file))


def _check_tabs(op: FileOp, file: FileText, options: Sequence[Option]) -> None:
    """Refuse new lines indented with tabs in a file indented only with spaces: a model's mistake.

    Not called for a diff that names the content it was made from.
    """
    tabbed = [
        number
        for number, option in enumerate(options, start=1)
        for edit in option.edits
        for line in edit.lines
        if line[:1] == b"\t" and line.strip()
    ]
    if not tabbed:
        return
    indents = [indent_of(line)[:1] for line in file.lines]
    if b"\t" not in indents and indents.count(b" ") >= _MIN_INDENTED:
        detail = "new lines are indented with tabs, and all of the file with spaces"
        raise DiffRefusedError(Reason.AMBIGUOUS, detail, op.path, tabbed[0])


def _proof(op: FileOp, file: FileText) -> Callable[[bytes], bool] | None:
    """Return a test for the intended result; None unless the diff names this very content as its base."""
    old, new = op.old_blob, op.new_blob
    if not old or not new or len(old) < _MIN_BLOB_DIGITS or len(new) < _MIN_BLOB_DIGITS or not new.strip("0"):
        return None
    if not blob_id(file.data).startswith(old):
        return None
    return lambda data: blob_id(data).startswith(new)


def _proven(
    op: FileOp, file: FileText, choices: Sequence[Choice], proof: Callable[[bytes], bool]
) -> tuple[list[Option], list[bytes]]:
    for options in islice(product(*(choice.options for choice in choices)), _MAX_PROVEN):
        file.budget.spend(len(file.lines) // 16)
        lines = rebuilt(op, file, options)
        if proof(b"".join(lines)):
            return list(options), lines
    number = next((number for number, choice in enumerate(choices, start=1) if choice.only is None), 1)
    detail = "no way to read the diff gives the content that its index line names"
    raise DiffRefusedError(Reason.AMBIGUOUS, detail, op.path, number, nearest_lines(op.hunks[number - 1], file))

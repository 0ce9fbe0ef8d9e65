"""Finds the one meaning of all hunks of a file, or says why there is none. All or nothing.

First the whole file's numbers are tried as git tries them. Only when something is off, each hunk is searched for by
what its lines say, and must then have one place in the whole file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import islice, product

from sandbox.diff.align import DoubtError
from sandbox.diff.blob import blob_id
from sandbox.diff.choose import Choice, narrow
from sandbox.diff.errors import DiffRefusedError, Reason
from sandbox.diff.lines import FileText, indent_of
from sandbox.diff.model import FileOp, Hunk, Line
from sandbox.diff.nearest import nearest_lines
from sandbox.diff.numbers import coherent_places, expected_place, is_as_tools_write
from sandbox.diff.options import Option, exact_option
from sandbox.diff.rebuild import rebuilt
from sandbox.diff.result import Fuzz, HunkReceipt
from sandbox.diff.search import applied, in_parts, options_of, readings, trimmed, whole

_NEAR = 4
_MIN_INDENTED = 1
_MIN_BLOB_DIGITS = 7
_MAX_PROVEN = 256
"""Combinations of options that are tried where the diff names the id of the result."""


def match_file(op: FileOp, file: FileText) -> tuple[list[Option], list[bytes]]:
    """Find what every hunk of a file means.

    Args:
        op: what the diff does to the file.
        file: the file.

    Returns:
        One option for each hunk, and the file's new lines.

    Raises:
        DiffRefusedError: `not_found`, `ambiguous`, `no_context`, `overlap`, `too_complex` (its writer's fault).
    """
    proof = _proof(op, file)
    found = _by_numbers(op, file, is_base_known=proof is not None)
    if found is not None:
        if proof is None:
            _check_tabs(op, file, found)
        return found, rebuilt(op, file, found)
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
    """Return whether all removed lines that have one place are indented otherwise than the file's."""
    same: list[bool] = []
    for hunk in op.hunks:
        before = [line for line in hunk.lines if line.op != "+"]
        placements = whole(file, before, Fuzz.EXACT) if "-" in hunk.ops else []
        if len(placements) == 1:
            pairs = zip(before, placements[0].places, strict=True)
            told = [(line, file.lines[place]) for line, place in pairs if line.op == "-" and line.text.strip()]
            same += [indent_of(line.text) == indent_of(found) for line, found in told]
    return bool(same) and not any(same)


def receipts_of(op: FileOp, options: Sequence[Option]) -> tuple[HunkReceipt, ...]:
    """Return where each hunk went."""
    made = []
    for hunk, option in zip(op.hunks, options, strict=True):
        is_moved = option.fuzz is Fuzz.EXACT and hunk.span is not None and option.start != expected_place(hunk)
        made.append(HunkReceipt(option.start + 1, Fuzz.OFFSET if is_moved else option.fuzz, option.is_applied))
    return tuple(made)


def _by_numbers(op: FileOp, file: FileText, *, is_base_known: bool) -> list[Option] | None:
    """Return the options at which all numbers are right, as in every diff of a tool for this very file."""
    places = coherent_places(op.hunks)
    if places is None:
        return None
    found: list[Option] = []
    for hunk, place in zip(op.hunks, places, strict=True):
        before = hunk.before
        if "?" in hunk.ops or not file.is_at(place, before):
            return None
        if not before and not (is_base_known or not file.lines):
            return None
        found.append(exact_option(file, hunk, place))
    is_certain = is_base_known or len(op.hunks) > 1 or all(is_as_tools_write(hunk, file) for hunk in op.hunks)
    return found if is_certain or all(_is_unique(hunk, file) for hunk in op.hunks) else None


def _is_unique(hunk: Hunk, file: FileText) -> bool:
    found = whole(file, hunk.lines, Fuzz.EXACT)
    return len(found) == 1 and not _is_also_applied(hunk, file)


def _is_also_applied(hunk: Hunk, file: FileText) -> bool:
    return "-" not in hunk.ops and bool(applied(file, hunk.lines))


def _options(op: FileOp, hunk: Hunk, file: FileText, number: int) -> list[Option]:
    if not any(line.op != "+" and line.text.strip() for line in hunk.lines):
        return _without_context(op, hunk, file, number)
    ways = readings(hunk, file)
    for search in (whole, in_parts):
        try:
            placements = [placement for lines, fuzz in ways for placement in search(file, lines, fuzz)]
        except DoubtError:
            return []
        if placements:
            options = options_of(file, placements)
            if search is whole:
                options = _unless_done(options, _insertions_done(file, ways), hunk)
            return _unless_near_end(options, hunk, file)
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
    """Return that an insertion is done already, where the inserted lines stand at the place itself."""
    size = len(hunk.ops) - hunk.ops.count("-")
    here = [found for found in done for option in options if found.start <= option.start < found.start + size]
    return here[:1] if here else options


def _unless_near_end(options: list[Option], hunk: Hunk, file: FileText) -> list[Option]:
    """Return options without those that insert beside the file's end, where the hunk says it is at the end itself.

    A hunk without context behind its new lines stands at the end of the file. A line or two before it, the context that
    is missing may have stood on either side.
    """
    is_open_below = re.search(r"[ ?][+]+$", hunk.ops) is not None
    is_open_above = re.match(r"[+]+[ ?]", hunk.ops) is not None
    kept = []
    for option in options:
        points = [edit.start for edit in option.edits if edit.start == edit.end]
        is_near = (is_open_below and bool(points) and 0 < len(file.lines) - points[-1] < _NEAR) or (
            is_open_above and bool(points) and 0 < points[0] < _NEAR
        )
        if not is_near or option.is_applied:
            kept.append(option)
    return kept


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
    """Refuse new lines behind tabs in a file that is indented with spaces only: a model wrote tabs for them.

    A diff that names the content it was made from is believed.
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
    """Return what tells the intended content from any other; None unless the diff was made from this very content."""
    old, new = op.old_blob, op.new_blob
    if not old or not new or len(old) < _MIN_BLOB_DIGITS or len(new) < _MIN_BLOB_DIGITS or not new.strip("0"):
        return None
    if not blob_id(file.data).startswith(old):
        return None
    return lambda data: blob_id(data).startswith(new)


def _proven(
    op: FileOp, file: FileText, choices: Sequence[Choice], proof: Callable[[bytes], bool]
) -> tuple[list[Option], list[bytes]]:  # fmt: skip
    for options in islice(product(*(choice.options for choice in choices)), _MAX_PROVEN):
        file.budget.spend(len(file.lines) // 16)
        lines = rebuilt(op, file, options)
        if proof(b"".join(lines)):
            return list(options), lines
    number = next((number for number, choice in enumerate(choices, start=1) if choice.only is None), 1)
    detail = "no way to read the diff gives the content that its index line names"
    raise DiffRefusedError(Reason.AMBIGUOUS, detail, op.path, number, nearest_lines(op.hunks[number - 1], file))

"""Finds the one meaning of all hunks of a file, or says why there is none. All or nothing.

First the whole file's numbers are tried as git tries them. Only when something is off, each hunk is searched for by what
its lines say, and must then have one place in the whole file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice, product

from sandbox.diff.blob import blob_id
from sandbox.diff.choose import Choice, expected_place, narrow
from sandbox.diff.errors import DiffRefusedError, Reason
from sandbox.diff.lines import FileText
from sandbox.diff.model import FileOp, Hunk, Line
from sandbox.diff.nearest import nearest_lines
from sandbox.diff.options import Edit, Option, options_at
from sandbox.diff.rebuild import rebuilt
from sandbox.diff.result import Fuzz, HunkReceipt
from sandbox.diff.search import applied, in_parts, readings, trimmed, whole

_MIN_BLOB_DIGITS = 7
_MAX_PROVEN = 256
"""Combinations of options that are tried where the diff names the id of the result."""


def match_file(op: FileOp, file: FileText) -> tuple[list[Option], bytes]:
    """Find what every hunk of a file means.

    Args:
        op: what the diff does to the file.
        file: the file.

    Returns:
        One option for each hunk, and the file's new content.

    Raises:
        DiffRefusedError: `not_found`, `ambiguous`, `no_context`, `overlap`, `too_complex` (the fault of whoever wrote it).
    """
    proof = _proof(op, file)
    found = _by_numbers(op, file, is_base_known=proof is not None)
    if found is not None:
        return found, rebuilt(op, file, found)
    choices = [Choice(hunk, _options(op, hunk, file, number)) for number, hunk in enumerate(op.hunks, start=1)]
    narrow(choices, file)
    if proof is not None:
        return _proven(op, file, choices, proof)
    for number, choice in enumerate(choices, start=1):
        if choice.only is None:
            raise _ambiguous(op, choice, number, file)
    options = [choice.options[0] for choice in choices]
    return options, rebuilt(op, file, options)


def receipts_of(op: FileOp, options: Sequence[Option]) -> tuple[HunkReceipt, ...]:
    """Return where each hunk went."""
    made = []
    for hunk, option in zip(op.hunks, options, strict=True):
        is_moved = option.fuzz is Fuzz.EXACT and hunk.span is not None and option.start != expected_place(hunk)
        made.append(HunkReceipt(option.start + 1, Fuzz.OFFSET if is_moved else option.fuzz, option.is_applied))
    return tuple(made)


def _by_numbers(op: FileOp, file: FileText, *, is_base_known: bool) -> list[Option] | None:
    """Return the options at which all numbers are right, as in every diff of a tool for this very file."""
    offset, end = 0, 0
    found: list[Option] = []
    for hunk in op.hunks:
        place = expected_place(hunk)
        if place is None or hunk.span is None or not hunk.is_counted or any(line.op == "?" for line in hunk.lines):
            return None
        new = hunk.span.new_start if hunk.span.new_count == 0 else hunk.span.new_start - 1
        if new - place != offset or place < end or not file.is_at(place, hunk.before):
            return None
        if not hunk.before and not (is_base_known or not file.lines):
            return None
        size = len(hunk.before)
        option = options_at(file, hunk.lines, range(place, place + size), at_least=Fuzz.EXACT)[0]
        found.append(option if size else replace(option, start=place, edits=_moved_to(option, place)))
        offset += len(hunk.after) - size
        end = place + size
    is_certain = is_base_known or len(op.hunks) > 1 or all(_is_as_tools_write(hunk, file) for hunk in op.hunks)
    return found if is_certain or all(_is_unique(hunk, file) for hunk in op.hunks) else None


def _moved_to(option: Option, place: int) -> tuple[Edit, ...]:
    return tuple(edit._replace(start=place, end=place) for edit in option.edits)


def _is_as_tools_write(hunk: Hunk, file: FileText) -> bool:
    """Return whether a lone hunk has as much context above as below, but at the file's ends: no line was lost."""
    ops = [line.op for line in hunk.lines]
    head = next((place for place, op in enumerate(ops) if op != " "), len(ops))
    tail = next((place for place, op in enumerate(reversed(ops)) if op != " "), len(ops))
    start = expected_place(hunk) or 0
    size = max(head, tail)
    is_head_whole = head == size or start == 0
    is_tail_whole = tail == size or start + len(hunk.before) == len(file.lines)
    return is_head_whole and is_tail_whole and (size > 0 or len(hunk.before) == len(file.lines))


def _is_unique(hunk: Hunk, file: FileText) -> bool:
    found = whole(file, hunk.lines, Fuzz.EXACT)
    return len(found) == 1 and not _is_also_applied(hunk, file)


def _is_also_applied(hunk: Hunk, file: FileText) -> bool:
    return all(line.op != "-" for line in hunk.lines) and bool(applied(file, hunk.lines))


def _options(op: FileOp, hunk: Hunk, file: FileText, number: int) -> list[Option]:
    if not any(line.op != "+" and line.text.strip() for line in hunk.lines):
        return _without_context(op, hunk, file, number)
    searches: tuple[Callable[[FileText, Sequence[Line], Fuzz], list[Option]], ...] = (
        whole,
        lambda file, lines, _: applied(file, lines),
        lambda file, lines, _: in_parts(file, lines),
        lambda file, lines, _: trimmed(file, lines),
    )
    ways = readings(hunk, file)
    for search in searches:
        found = [option for lines, fuzz in ways for option in search(file, lines, fuzz)]
        distinct = [option for place, option in enumerate(found) if not _is_among(option, found[:place])]
        if search is whole and distinct:
            done = [
                option for lines, _ in ways if all(line.op != "-" for line in lines) for option in applied(file, lines)
            ]
            return _unless_done(distinct, done, hunk)
        if distinct:
            return distinct
    detail = "the lines that it changes are not in the file"
    raise DiffRefusedError(Reason.NOT_FOUND, detail, op.path, number, nearest_lines(hunk, file))


def _unless_done(options: list[Option], done: list[Option], hunk: Hunk) -> list[Option]:
    """Return that an insertion is done already, where the inserted lines stand at the place itself."""
    size = len(hunk.after)
    here = [found for found in done for option in options if found.start <= option.start < found.start + size]
    return here[:1] if here else options


def _is_among(option: Option, others: Sequence[Option]) -> bool:
    return any(option.edits == other.edits and option.start == other.start for other in others)


def _without_context(op: FileOp, hunk: Hunk, file: FileText, number: int) -> list[Option]:
    size = len(hunk.before)
    if size == 0 and (not file.data.strip() or hunk.is_at_end):
        option = options_at(file, hunk.lines, (), at_least=Fuzz.EXACT)[0]
        place = len(file.lines)
        return [replace(option, start=place, edits=_moved_to(option, place))]
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
) -> tuple[list[Option], bytes]:  # fmt: skip
    for options in islice(product(*(choice.options for choice in choices)), _MAX_PROVEN):
        file.budget.spend(len(file.lines) // 16)
        data = rebuilt(op, file, options)
        if proof(data):
            return list(options), data
    number = next((number for number, choice in enumerate(choices, start=1) if choice.only is None), 1)
    detail = "no way to read the diff gives the content that its index line names"
    raise DiffRefusedError(Reason.AMBIGUOUS, detail, op.path, number, nearest_lines(op.hunks[number - 1], file))

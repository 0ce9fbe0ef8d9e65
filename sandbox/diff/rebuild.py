"""A file from its lines and the edits of all hunks."""

from __future__ import annotations

from collections.abc import Sequence

from sandbox.diff.errors import DiffRefusedError, Reason
from sandbox.diff.lines import FileText
from sandbox.diff.model import FileOp
from sandbox.diff.options import Edit, Option


def edits_of(op: FileOp, options: Sequence[Option]) -> list[Edit]:
    """Return the edits of all hunks in the file's order; a hunk that is there twice counts once.

    Raises:
        DiffRefusedError: `overlap` (the fault of whoever wrote the diff).
    """
    numbered = sorted(
        (edit, number) for number, option in enumerate(options, start=1) for edit in option.edits
    )  # fmt: skip
    kept: list[Edit] = []
    for edit, number in numbered:
        if kept and edit == kept[-1]:
            continue
        is_same_point = kept and edit.start == edit.end == kept[-1].start == kept[-1].end
        if kept and (edit.start < kept[-1].end or is_same_point):
            raise DiffRefusedError(Reason.OVERLAP, "two hunks change the same lines", op.path, number)
        kept.append(edit)
    return kept


def rebuilt(op: FileOp, file: FileText, options: Sequence[Option]) -> list[bytes]:
    """Return a file's new lines.

    Raises:
        DiffRefusedError: `overlap` (the fault of whoever wrote the diff).
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
    """Return lines with a feed where another line follows; the last one, where it is kept, ends as the file's."""
    end = b"\r\n" if file.lines and file.lines[0].endswith(b"\r\n") else b"\n"
    lines = [*(_with_end(line, end) for line in lines[:-1]), lines[-1]]
    if keeps_end:
        had_end = not file.data or file.data.endswith(b"\n")
        lines[-1] = _with_end(lines[-1], end) if had_end else lines[-1].removesuffix(b"\n").removesuffix(b"\r")
    return lines if lines[-1] else lines[:-1]


def _with_end(line: bytes, end: bytes) -> bytes:
    return line if line.endswith(b"\n") else line + end

"""When the numbers of a file's hunks are to be believed: when all of them agree with all that can be checked."""

from __future__ import annotations

from collections.abc import Sequence

from sandbox.diff.lines import FileText
from sandbox.diff.model import Hunk


def expected_place(hunk: Hunk) -> int | None:
    """Return the line of the file, from 0, where a hunk's numbers say that it begins; None without numbers."""
    if hunk.span is None:
        return None
    return hunk.span.old_start if hunk.span.old_count == 0 else max(hunk.span.old_start - 1, 0)


def coherent_places(hunks: Sequence[Hunk]) -> list[int] | None:
    """Return where all hunks of a file begin if their numbers fit their lines and each other."""
    places: list[int] = []
    offset, end = 0, 0
    for hunk in hunks:
        place = expected_place(hunk)
        if place is None or hunk.span is None or not hunk.is_counted:
            return None
        new = hunk.span.new_start if hunk.span.new_count == 0 else hunk.span.new_start - 1
        if new - place != offset or place < end:
            return None
        places.append(place)
        offset += hunk.span.new_count - hunk.span.old_count
        end = place + hunk.span.old_count
    return places


def is_as_tools_write(hunk: Hunk, file: FileText) -> bool:
    """Return whether a lone hunk has as much context above as below, but at the file's ends: no line was lost."""
    size = len(hunk.ops)
    head = size - len(hunk.ops.lstrip(" ?"))
    tail = size - len(hunk.ops.rstrip(" ?"))
    start = expected_place(hunk) or 0
    size = max(head, tail)
    is_head_whole = head == size or start == 0
    is_tail_whole = tail == size or start + len(hunk.before) == len(file.lines)
    return is_head_whole and is_tail_whole and (size > 0 or len(hunk.before) == len(file.lines))

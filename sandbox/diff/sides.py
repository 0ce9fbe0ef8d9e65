"""Two whole sides as one hunk: which lines stay, so that they keep the file's own bytes."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher

from sandbox.diff.model import Hunk

_MAX_PRODUCT = 250_000
"""Lines of one side times lines of the other, above which only what both begin and end with is found to stay."""


def hunk_of_sides(before: Sequence[bytes], after: Sequence[bytes]) -> Hunk:
    """Return the hunk that turns one run of lines into another."""
    ops = ""
    added: list[bytes] = []
    for is_kept, old, new in _blocks(before, after):
        ops += " " * len(old) if is_kept else "-" * len(old) + "+" * len(new)
        added += [] if is_kept else new
    return Hunk(ops, list(before), added)


def _blocks(before: Sequence[bytes], after: Sequence[bytes]) -> list[tuple[bool, Sequence[bytes], Sequence[bytes]]]:
    if len(before) * len(after) <= _MAX_PRODUCT:
        found = SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
        return [(tag == "equal", before[i:j], after[k:m]) for tag, i, j, k, m in found]
    head = _common(before, after)
    tail = _common(before[head:][::-1], after[head:][::-1])
    old, new = len(before) - tail, len(after) - tail
    return [
        (True, before[:head], after[:head]),
        (False, before[head:old], after[head:new]),
        (True, before[old:], after[new:]),
    ]


def _common(one: Sequence[bytes], other: Sequence[bytes]) -> int:
    return next(
        (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )

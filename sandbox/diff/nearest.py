"""Where a hunk that has no place fits best, for the eyes of whoever wrote it. Never used to apply."""

from __future__ import annotations

from collections import Counter

from sandbox.diff.lines import FileText, key_of
from sandbox.diff.model import Hunk

_MAX_SHOWN = 20
_MAX_CHARS = 200
_MAX_VOTES = 50
_AROUND = 2


def nearest_lines(hunk: Hunk, file: FileText) -> tuple[str, ...]:
    """Return the file's lines, numbered, around the place where most of a hunk's lines are."""
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

"""The one canonicalisation: every rule reads the same text, and knows where each word stood in what was sent.

NFKC, case folded, invisible characters stripped. NFKC is quadratic in long runs of combining marks, so those are cut
first, and a prompt longer than `READ_LIMIT` is read at its beginning and its end.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from routing.tokens import Token, tokenise

READ_LIMIT = 4800
"""Characters that are read of a prompt: of a longer one the beginning and the last quarter of this. What is not read as
a whole is never taken for a mere question."""
MAX_MARKS = 30
"""Combining marks that may follow one another."""

_SEAM = "\n\n"
_UNSEEN = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff"
    "\U000e0000-\U000e007f"
)
_SEGMENT = re.compile(
    rf"[\x00-\x7f]+(?=[\x00-\x7f{_UNSEEN}]|\Z)|(?P<unseen>[{_UNSEEN}]+)|[\x00-\x7f]?[^\x00-\x7f{_UNSEEN}]{{1,512}}"
)
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


class Text(NamedTuple):
    """A prompt as the rules read it."""

    shown: str
    """Normalised, in the caller's letters; the places of tokens refer to it."""
    tokens: tuple[Token, ...]
    cut: bool
    """Whether it was too long to be read whole."""
    breaks: tuple[tuple[int, int], ...] = ()
    """Starts of normalised segments and where they began in the original; empty when nothing was moved."""

    def original_offset(self, offset: int) -> int:
        """Return where in the prompt as sent the character at `offset` stands."""
        if not self.breaks:
            return offset
        shown_at, sent_at = self.breaks[max(bisect_right(self.breaks, (offset, 1 << 62)) - 1, 0)]
        return sent_at + offset - shown_at


def canonicalise(prompt: str) -> Text:
    """Normalise a prompt and cut it into tokens, quotations and code set apart."""
    sent, skipped = _shorten(prompt)
    shown, breaks = _normalise(sent)
    if skipped:
        seam = READ_LIMIT - READ_LIMIT // 4
        breaks = tuple((at, origin + skipped if origin >= seam else origin) for at, origin in breaks)
    is_cut = skipped > 0 or len(shown) > 2 * READ_LIMIT
    shown = shown[: 2 * READ_LIMIT]
    tokens, are_all = tokenise(_fold(shown))
    return Text(shown, tuple(tokens), is_cut or not are_all, breaks)


def _shorten(prompt: str) -> tuple[str, int]:
    """Return what is read of a prompt, and how many characters are skipped at its seam."""
    if len(prompt) <= READ_LIMIT:
        return prompt, 0
    tail = READ_LIMIT // 4
    return prompt[: READ_LIMIT - tail] + _SEAM + prompt[-tail:], len(prompt) - READ_LIMIT - len(_SEAM)


def _normalise(sent: str) -> tuple[str, tuple[tuple[int, int], ...]]:
    if sent.isascii() and len(sent) <= READ_LIMIT:
        return _CONTROL.sub(" ", sent), ()
    parts: list[str] = []
    breaks: list[tuple[int, int]] = []
    length = 0
    for start, part in _segments(sent):
        if length > 2 * READ_LIMIT:
            break
        breaks.append((length, start))
        parts.append(part)
        length += len(part)
    return _CONTROL.sub(" ", "".join(parts)), tuple(breaks)


def _segments(sent: str) -> Iterator[tuple[int, str]]:
    """Cut where no character can combine with the next, and at the seam; normalise each part."""
    seam = READ_LIMIT - READ_LIMIT // 4
    for half, begin in ((sent[:seam], 0), (sent[seam:], seam)):
        for segment in _SEGMENT.finditer(half):
            part = segment.group()
            if segment.lastgroup:
                continue
            if not part.isascii():
                part = unicodedata.normalize("NFKC", _cut_marks(part))
            yield begin + segment.start(), part


def _cut_marks(run: str) -> str:
    if len(run) <= MAX_MARKS:
        return run
    kept: list[str] = []
    marks = 0
    for character in run:
        marks = marks + 1 if unicodedata.category(character)[0] == "M" else 0
        if marks <= MAX_MARKS:
            kept.append(character)
    return "".join(kept)


def _fold(shown: str) -> str:
    """Fold case without moving any character."""
    folded = shown.lower() if shown.isascii() else shown.casefold()
    if len(folded) != len(shown):
        folded = "".join(low if len(low := character.casefold()) == 1 else character for character in shown)
    return folded

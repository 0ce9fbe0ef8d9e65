"""Slips of the keyboard in the words that decide: `chnage`, `delet` and `buton` are read as what they stand for.

Only two letters swapped, one left out, one doubled or one of a pair left out count as slips, and two of them in a long
word. A letter that stands for another never does: `remote` is no `remove`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from routing.tokens import Kind, Token

_SHORTEST_WITH_A_GAP = 6
"""Letters of a word from which it is still known when one is missing: `tile` is no `title`."""
_SHORTEST_WITH_TWO = 8
"""Letters of a word from which it is still known with two slips: `dissapears`."""


def respelled(
    tokens: tuple[Token, ...], words: frozenset[str], others: frozenset[str], *, twice: frozenset[str] = frozenset()
) -> tuple[Token, ...]:
    """Return the tokens with slips in any of these words put right; places in the text stay as they are.

    Args:
        tokens: of a text.
        words: whose slips are put right.
        others: all other words that are known to be right (`selling` is no `spelling`).
        twice: those of the words whose slips are put right two at a time though they are short.
    """
    meant = _slips(words, others, twice)
    if meant.keys().isdisjoint([token.word for token in tokens]):
        return tokens
    return tuple(
        token._replace(word=meant[token.word]) if token.kind is Kind.WORD and token.word in meant else token
        for token in tokens
    )


@lru_cache(maxsize=8)
def _slips(words: frozenset[str], others: frozenset[str], twice: frozenset[str]) -> dict[str, str]:
    """Return what each slip stands for. One that could stand for two words stands for none."""
    found: dict[str, str] = {}
    doubtful: set[str] = set()
    for word in sorted(words):
        slips = set(_slips_of(word))
        if len(word) >= _SHORTEST_WITH_TWO or word in twice:
            slips.update(*(_slips_of(slip) for slip in tuple(slips)))
        for slip in slips - words - others:
            if found.setdefault(slip, word) != word:
                doubtful.add(slip)
    return {slip: word for slip, word in found.items() if slip not in doubtful}


def _slips_of(word: str) -> Iterator[str]:
    """Yield the slips of one word; its first letter is always right."""
    for at in range(1, len(word)):
        if at + 1 < len(word):
            yield word[:at] + word[at + 1] + word[at] + word[at + 2 :]
            if len(word) > 4:
                yield word[: at + 1] + word[at] + word[at + 1 :]
        if len(word) >= _SHORTEST_WITH_A_GAP:
            yield word[:at] + word[at + 1 :]

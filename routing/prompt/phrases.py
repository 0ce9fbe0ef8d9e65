"""Phrases of the vocabulary, found in one pass over the tokens of a prompt.

A phrase is a row of words to choose from and gaps. All of them stand in one tree, in which each word leads to what may
follow it, so that from a token only those phrases are followed whose words are there. Phrases that go on alike share
their branches.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from routing.prompt.tokens import WORD, Kind, Token, singular

UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\u0e00-\u0e7f]")
"""Letters of scripts that put no blanks between words."""
_GAP_TOKENS = 6
_KIND_WORDS = {
    Kind.QUOTE: "<quote>",
    Kind.PATH: "<path>",
    Kind.URL: "<url>",
    Kind.DOMAIN: "<url>",
    Kind.NUMBER: "<num>",
    Kind.TAG: "<tag>",
    Kind.CODE: "<code>",
    Kind.FENCE: "<code>",
}
_END = ("\n",)
"""The key of what closes a sentence, and of the end of a prompt: no phrase reaches over it."""
_ENDS = frozenset({Kind.STOP, Kind.QUESTION})

Words = frozenset[str]


class Hit(NamedTuple):
    """A phrase of a group, found at the tokens `first` to `last` (both included)."""

    first: int
    last: int


class Phrase(NamedTuple):
    """What a group looks for."""

    group: str
    words: tuple[Words | None, ...]
    """The words that may stand at each place; None is a gap. It begins and ends with words."""


class _Begun(NamedTuple):
    """A phrase that has been read up to some word."""

    place: int
    """In the file: phrases that begin at one token are told in its order."""
    group: str
    left: tuple[Words | None, ...]
    """What of it is still to be read."""


_Found = tuple[int, str, int]
"""Place and group of a phrase that has been read to its end, and its last token."""


class _Node(NamedTuple):
    """What may follow after some words."""

    ended: tuple[_Begun, ...]
    gapped: tuple[_Begun, ...]
    """The phrases that go on with a gap."""
    behind: Words
    """What stands behind any of these gaps: without one of them in the prompt, none is there."""
    following: Mapping[str, _Node]
    """By the next word."""


@dataclass(frozen=True, slots=True)
class PhraseIndex:
    """All phrases of a vocabulary."""

    root: _Node
    unspaced: tuple[tuple[str, str], ...]
    """(text, group) of phrases in scripts that put no blanks between words."""

    def find(self, tokens: Sequence[Token], shown: str) -> dict[str, list[Hit]]:
        """Return every phrase found, by group, in the order of the text."""
        hits: dict[str, list[Hit]] = {}
        keys = [_names(token.word) if token.kind is WORD else _keys_of_mark(token) for token in tokens]
        keys.append(_END)
        present = set(chain.from_iterable(keys))
        openings = self.root.following
        for at, names in enumerate(keys):
            for name in names:
                if name in openings:
                    found: list[_Found] = []
                    _read_on(openings[name], keys, at, present=present, found=found)
                    if found:
                        _note(hits, at, found)
        if not shown.isascii() and UNSPACED.search(shown):
            self._find_unspaced(tokens, hits)
        return hits

    def _find_unspaced(self, tokens: Sequence[Token], hits: dict[str, list[Hit]]) -> None:
        for at, token in enumerate(tokens):
            if token.kind is Kind.WORD and UNSPACED.search(token.word):
                for text, group in self.unspaced:
                    if text in token.word:
                        hits.setdefault(group, []).append(Hit(at, at))


def build_index(phrases: Sequence[Phrase], unspaced: Sequence[tuple[str, str]]) -> PhraseIndex:
    """Make an index of phrases.

    Args:
        phrases: in the order in which they are told.
        unspaced: (text, group) of phrases in scripts that put no blanks between words.
    """
    begun = tuple(_Begun(place, group, words) for place, (group, words) in enumerate(phrases))
    return PhraseIndex(_node(begun, {}), tuple(unspaced))


def _node(phrases: tuple[_Begun, ...], made: dict[tuple[_Begun, ...], _Node]) -> _Node:
    """Return the node from which these phrases go on; `made` holds those that there are."""
    if phrases in made:
        return made[phrases]
    ended: list[_Begun] = []
    gapped: list[_Begun] = []
    following: dict[str, list[_Begun]] = {}
    for phrase in phrases:
        place, group, left = phrase
        if not left:
            ended.append(phrase)
        elif left[0] is None:
            gapped.append(phrase)
        else:
            begun = _Begun(place, group, left[1:])
            for word in left[0]:
                following.setdefault(word, []).append(begun)
    behind = frozenset().union(*map(_behind_gap, gapped))
    further = {word: _node(tuple(rest), made) for word, rest in following.items()}
    made[phrases] = _Node(tuple(ended), tuple(gapped), behind, further)
    return made[phrases]


def _behind_gap(phrase: _Begun) -> Words:
    """Return the words of which one must stand somewhere behind the gap that a phrase goes on with."""
    return next(wanted for wanted in phrase.left if wanted is not None)


def _read_on(node: _Node, keys: Sequence[tuple[str, ...]], at: int, *, present: set[str], found: list[_Found]) -> None:
    """Add the phrases that go on from a node after the token `at` and come to their end."""
    for place, group, _ in node.ended:
        found.append((place, group, at))
    if not node.behind.isdisjoint(present):
        for phrase in node.gapped:
            if not _behind_gap(phrase).isdisjoint(present):
                last = _match(keys, at, phrase.left)
                if last >= 0:
                    found.append((phrase.place, phrase.group, last))
    for name in keys[at + 1]:
        if name in node.following:
            _read_on(node.following[name], keys, at + 1, present=present, found=found)


def _note(hits: dict[str, list[Hit]], first: int, found: list[_Found]) -> None:
    """Add what begins at one token, in the order of the file; what was found in two ways is one hit."""
    for _, group, last in sorted(found):
        known = hits.setdefault(group, [])
        if not known or known[-1] != (first, last):
            known.append(Hit(first, last))


@lru_cache(maxsize=8192)
def _names(word: str) -> tuple[str, ...]:
    """Return what phrases call a word: by itself, and by its singular."""
    single = singular(word)
    return (word,) if single == word else (word, single)


def _keys_of_mark(token: Token) -> tuple[str, ...]:
    if token.kind in _ENDS:
        return _END
    if token.word == ":":
        return ("<colon>",)
    word = _KIND_WORDS.get(token.kind)
    return (word, token.word) if word else ()


def _match(keys: Sequence[tuple[str, ...]], at: int, left: Sequence[Words | None]) -> int:
    """Return the index of the last token of a match of what is left after `at`, or -1."""
    for number, wanted in enumerate(left):
        if wanted is None:
            return _match_after_gap(keys, at, left[number + 1 :])
        at += 1
        if wanted.isdisjoint(keys[at]):
            return -1
    return at


def _match_after_gap(keys: Sequence[tuple[str, ...]], at: int, left: Sequence[Words | None]) -> int:
    """Return the index of the last token of the nearest match behind a gap, or -1."""
    wanted = left[0]
    for start in range(at, at + _GAP_TOKENS + 1):
        if keys[start] is _END:
            return -1
        if wanted is not None and wanted.isdisjoint(keys[start + 1]):
            continue
        last = _match(keys, start, left)
        if last >= 0:
            return last
    return -1


def words_of(phrases: Sequence[Phrase]) -> Iterator[str]:
    """Yield every word that some phrase is made of."""
    for phrase in phrases:
        for wanted in phrase.words:
            yield from wanted or ()

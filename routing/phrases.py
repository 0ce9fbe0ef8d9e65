"""Phrases of the vocabulary, found in one pass over the tokens of a prompt.

A phrase is a row of words to choose from and gaps. Phrases are looked up by their first word, and those that begin with
the same word by what may stand second, so that most tokens of a prompt cost one look-up.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

from routing.tokens import WORD, Kind, Token, singular

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
"""The key of what closes a sentence: no phrase reaches over it."""
_STOP, _QUESTION = Kind.STOP, Kind.QUESTION

_PLACE = itemgetter(0)
_LONG = 2
"""Words after the first from which on a phrase is compared word by word; one of fewer is looked up whole."""

Words = frozenset[str]


class Hit(NamedTuple):
    """A phrase of a group, found at the tokens `first` to `last` (both included)."""

    first: int
    last: int


Hits = Mapping[str, Sequence[Hit]]


class Phrase(NamedTuple):
    """What a group looks for after the first word."""

    group: str
    rest: tuple[Words | None, ...]
    """The words after the first; None is a gap."""

    @property
    def after_gap(self) -> Words:
        """The words that must stand somewhere behind the gap that the phrase goes on with."""
        return next(wanted for wanted in self.rest if wanted is not None)


class _Opening(NamedTuple):
    """All phrases that begin with one word, by what may stand second; each with its place in the file."""

    whole: tuple[tuple[int, Phrase], ...]
    """Those that are this word alone."""
    gapped: tuple[tuple[Words, tuple[int, Phrase]], ...]
    """Those that go on with a gap, each under what stands behind it."""
    behind: Words
    """What stands behind any of these gaps."""
    by_second: Mapping[str, tuple[tuple[int, Phrase], ...]]


@dataclass(frozen=True, slots=True)
class PhraseIndex:
    """All phrases of a vocabulary."""

    openings: Mapping[str, _Opening]
    unspaced: tuple[tuple[str, str], ...]
    """(text, group) of phrases in scripts that put no blanks between words."""

    def find(self, tokens: Sequence[Token], shown: str) -> dict[str, list[Hit]]:
        """Return every phrase found, by group, in the order of the text."""
        hits: dict[str, list[Hit]] = {}
        keys = [_keys(token) for token in tokens]
        present = {key for names in keys for key in names}
        for at, names in enumerate(keys):
            for name in names:
                opening = self.openings.get(name)
                if opening is not None:
                    _find_at(hits, keys, at, opening=opening, present=present)
        if not shown.isascii() and UNSPACED.search(shown):
            self._find_unspaced(tokens, hits)
        return hits

    def _find_unspaced(self, tokens: Sequence[Token], hits: dict[str, list[Hit]]) -> None:
        for at, token in enumerate(tokens):
            if token.kind is Kind.WORD and UNSPACED.search(token.word):
                for text, group in self.unspaced:
                    if text in token.word:
                        hits.setdefault(group, []).append(Hit(at, at))


def build_index(phrases: Mapping[str, Sequence[Phrase]], unspaced: Sequence[tuple[str, str]]) -> PhraseIndex:
    """Make an index of phrases by their first word.

    Args:
        phrases: by first word, in the order in which they are tried.
        unspaced: (text, group) of phrases in scripts that put no blanks between words.
    """
    return PhraseIndex({word: _opening(begun) for word, begun in phrases.items()}, tuple(unspaced))


def _opening(phrases: Sequence[Phrase]) -> _Opening:
    by_second: dict[str, list[tuple[int, Phrase]]] = {}
    for place, phrase in enumerate(phrases):
        for word in (phrase.rest[0] or ()) if phrase.rest else ():
            by_second.setdefault(word, []).append((place, phrase))
    gapped = tuple(
        (phrase.after_gap, (place, phrase))
        for place, phrase in enumerate(phrases)
        if phrase.rest and phrase.rest[0] is None
    )
    return _Opening(
        tuple((place, phrase) for place, phrase in enumerate(phrases) if not phrase.rest),
        gapped,
        frozenset().union(*(wanted for wanted, _ in gapped)),
        {word: tuple(begun) for word, begun in by_second.items()},
    )


def _find_at(
    hits: dict[str, list[Hit]], keys: Sequence[tuple[str, ...]], at: int, *, opening: _Opening, present: set[str]
) -> None:
    """Add the phrases that begin at a token, in the order of the file."""
    following = keys[at + 1] if at + 1 < len(keys) else _END
    candidates = opening.whole
    for word in following:
        if word in opening.by_second:
            candidates += opening.by_second[word]
    if opening.gapped and not opening.behind.isdisjoint(present):
        candidates += tuple(begun for wanted, begun in opening.gapped if not wanted.isdisjoint(present))
    if len(candidates) > 1:
        candidates = tuple(sorted(candidates, key=_PLACE))
    for _, (group, rest) in candidates:
        last = at + len(rest) if len(rest) < _LONG else _match(keys, at, rest)
        if last >= 0:
            found = hits.setdefault(group, [])
            if not found or found[-1] != (at, last):
                found.append(Hit(at, last))


def _keys(token: Token) -> tuple[str, ...]:
    kind = token.kind
    if kind is WORD:
        single = singular(token.word)
        return (token.word,) if single == token.word else (token.word, single)
    if kind is _STOP or kind is _QUESTION:
        return _END
    if token.word == ":":
        return ("<colon>",)
    word = _KIND_WORDS.get(kind)
    return (word, token.word) if word else ()


def _match(keys: Sequence[tuple[str, ...]], at: int, rest: tuple[Words | None, ...]) -> int:
    """Return the index of the last token of a match that starts at `at`, or -1."""
    position = at
    for number, wanted in enumerate(rest):
        if wanted is None:
            return _match_after_gap(keys, position, rest[number + 1 :])
        position += 1
        if position >= len(keys) or wanted.isdisjoint(keys[position]):
            return -1
    return position


def _match_after_gap(keys: Sequence[tuple[str, ...]], position: int, rest: tuple[Words | None, ...]) -> int:
    wanted = rest[0]
    for skipped in range(_GAP_TOKENS + 1):
        start = position + skipped
        if start + 1 >= len(keys) or (skipped and keys[start] is _END):
            return -1
        if wanted is not None and wanted.isdisjoint(keys[start + 1]):
            continue
        last = _match(keys, start, rest)
        if last >= 0:
            return last
    return -1


def words_of(phrases: Mapping[str, Sequence[Phrase]]) -> Iterator[str]:
    """Yield every word that some phrase is made of."""
    for word, begun in phrases.items():
        yield word
        for phrase in begun:
            for wanted in phrase.rest:
                yield from wanted or ()

"""The ACTION triggers of seed 002, counted as its own worked examples count them (rulings A4, A7, A8).

Every token is consumed once by the first class that matches it: code block, URL, file or path, keyword. A keyword
counts once for all its forms; the order is that of the text.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from operator import itemgetter
from typing import Literal

from pydantic import BaseModel, ConfigDict

from routing.reading import Reading
from routing.tokens import WORD, Kind, Token, is_reference


class Confidence(StrEnum):
    """How surely a prompt is an ACTION: three triggers or more, one or two, none."""

    STRONG = "STRONG"
    WEAK = "WEAK"
    NONE = "NONE"


TriggerKind = Literal["code", "url", "path", "operation", "search", "execution", "memory", "web", "reference", "edit"]


class Trigger(BaseModel):
    """One thing in the prompt that asks for action, and where it stands in the prompt as sent."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: TriggerKind
    shown: str
    """How a log entry names it: the keyword as written, or `file path`, `code block`, `url`."""
    start: int
    end: int


_Named = tuple[TriggerKind, str, str, int]
"""Kind, name, canonical form and last token."""
_STRONG_FROM = 3
_SHOWN_LIMIT = 60
_LOOKING = ("look", "looking", "looks", "looked")
_CLASSES: tuple[TriggerKind, ...] = ("operation", "search", "execution", "memory", "web", "reference")
_words_of_classes = itemgetter(*_CLASSES)


def find_triggers(reading: Reading) -> tuple[Trigger, ...]:
    """Return the distinct triggers of a prompt in the order of the text."""
    found: dict[tuple[str, str], Trigger] = {}
    keywords = _keywords(_words_of_classes(reading.vocabulary.words))
    for at, token in enumerate(reading.tokens):
        if token.kind is WORD and token.word not in keywords and at not in reading.orders:
            continue
        named = _name(reading, at, keywords) if at not in reading.copied else None
        if named:
            kind, shown, base, last = named
            end = reading.tokens[last].end
            key = (kind if kind in ("code", "url", "path") else "word", base)
            found.setdefault(key, _trigger(reading, kind, shown, token.start, end))
    return tuple(found.values())


def confidence_of(count: int) -> Confidence:
    """Return the confidence that a number of triggers gives (R-089)."""
    if count >= _STRONG_FROM:
        return Confidence.STRONG
    return Confidence.WEAK if count else Confidence.NONE


def _trigger(reading: Reading, kind: TriggerKind, shown: str, start: int, end: int) -> Trigger:
    origin = reading.text.original_offset
    return Trigger(kind=kind, shown=shown, start=origin(start), end=max(origin(end - 1) + 1, origin(start)))


@lru_cache(maxsize=8)
def _keywords(classes: tuple[frozenset[str], ...]) -> dict[str, TriggerKind | None]:
    """Return the class of each keyword, the first that has it; None for the first word of a name of two."""
    found: dict[str, TriggerKind | None] = dict.fromkeys((*_LOOKING, "our"))
    for kind, words in reversed(list(zip(_CLASSES, classes, strict=True))):
        found.update(dict.fromkeys(words, kind))
    return found


def _name(reading: Reading, at: int, keywords: Mapping[str, TriggerKind | None]) -> _Named | None:
    """Return kind, name, canonical form and last token of the trigger that begins at a token."""
    token = reading.tokens[at]
    if token.kind is Kind.WORD:
        return _keyword(reading, at, keywords)
    reference = _reference(token)
    return (*reference, at) if reference else None


def _reference(token: Token) -> tuple[TriggerKind, str, str] | None:
    word = token.word
    if token.kind is Kind.FENCE:
        return "code", "code block", "code block"
    if token.kind is Kind.URL:
        return "url", "url", word
    if token.kind is Kind.DOMAIN:
        return "url", word[:_SHOWN_LIMIT], word
    if token.kind is Kind.EXTENSION:
        return "path", word, word
    if token.kind is Kind.PATH or (token.kind is Kind.CODE and is_reference(word)):
        is_directory = word.endswith("/") or word in ("~", "..", ".")
        return "path", word[:_SHOWN_LIMIT] if is_directory else "file path", word
    return None


def _keyword(reading: Reading, at: int, keywords: Mapping[str, TriggerKind | None]) -> _Named | None:
    token = reading.tokens[at]
    following = reading.tokens[at + 1].word if at + 1 < len(reading.tokens) else ""
    if token.joined:
        return None
    if token.word in _LOOKING and following == "for":
        return "search", f"{token.word} for", "look for", at + 1
    if token.word == "our" and following == "code":
        return "reference", "our code", "our code", at + 1
    kind = keywords.get(token.word)
    if kind is not None:
        return kind, token.word, reading.vocabulary.bases.get(token.word, token.word.rstrip("s")), at
    if at in reading.orders and token.word in reading.vocabulary.words["edit_operation"]:
        return "edit", token.word, token.word, at
    return None

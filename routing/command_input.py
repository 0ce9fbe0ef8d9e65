"""The canonical form of a reply to a clarification: computed once per message, read by every rule of the ladder.

It builds on the one canonicalisation of prompts and on the question detector of the router, so that seeds 002 and 004
agree on what a question is. Politeness is taken off and spelling is left alone: what is misspelt goes to the model.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from routing.options import Source
from routing.reading import Talk, mere_talk, read_as_spelled
from routing.text import Text, canonicalise
from routing.tokens import Kind, singular
from routing.triggers import Confidence, confidence_of, find_triggers
from routing.vocabulary import Vocabulary, shipped_vocabulary

Words = tuple[str, ...]


def _phrases(listed: str) -> tuple[Words, ...]:
    return tuple(sorted((tuple(phrase.split()) for phrase in listed.split(",")), key=len, reverse=True))


_LEADS = _phrases(
    "please, pls, plz, kindly, hey, hi, hello, ok, okay, yes, yeah, yep, um, uh, so, well, just, maybe, perhaps, lets, "
    "let's, let me, it's, that's, can you, could you, would you, will you, can u, could u, would u, can i, could i, "
    "may i, can we, could we, i want, i want to, i would like, i would like to, i'd, i'd like, i'd like to, id like, "
    "i'd rather, i'll, i will, i need, i meant, i mean, i think, i choose, i pick, i select, i take, we want, we need, "
    "we'd like"
)
_TAILS = _phrases("please, pls, plz, thanks, thank you, thx, ty, cheers, now, then, for me, instead")
_SELECTING = _phrases(
    "open, show, select, pick, choose, use, view, take, display, get, see, have, try, do, go to, go with, go for, "
    "take me to, pull up, bring up, open up, switch to, jump to, show me, give me"
)
"""Verbs that choose what follows them. Any other verb orders something, and leaves the reply to the model."""
_ARTICLES = _phrases("the, a, an, this, that, my, our")
_NOUNS = _phrases("one, option, item, choice, entry")
FUNCTION_WORDS = frozenset(
    {"an", "and", "at", "by", "for", "from", "in", "is", "it", "me", "my", "of", "on", "or", "our", "that", "the"}
    | {"this", "to", "us", "we", "with", "you"}
)
"""Words that name nothing by themselves."""
_EXITS = frozenset(
    _phrases(
        "none of these, none of those, none of them, none of the above, none, neither, cancel, cancel it, never mind, "
        "nevermind, forget it, forget about it, no thanks, nothing, stop, abort, quit, exit"
    )
)
_CUE_WORDS = frozenset({"from", "in"})
_CUE_SOURCES = {"chat": Source.CHAT, "widget": Source.WIDGET, "widgets": Source.WIDGET}
_CUE_NOUNS = frozenset({"list", "options", "option", "choices"})
_MARKS = (Kind.COMMA, Kind.STOP, Kind.QUESTION)


@dataclass(frozen=True, slots=True)
class CommandInput:
    """A message as the ladder reads it."""

    forms: tuple[Words, ...]
    """From all its words to what is chosen: without cue and politeness, verb, article, closing `one`."""
    scope: Source | None
    """The source that `from chat`, `in the widget` and the like name."""
    is_question: bool
    """002's question detector says that it asks and orders nothing."""
    is_strong: bool
    """002's confidence in an ACTION is STRONG: a request of its own."""

    @property
    def words(self) -> Words:
        """All words of the message."""
        return self.forms[0]

    @property
    def command(self) -> Words:
        """The words without scope cue and politeness: what a registered command is compared with."""
        return self.forms[1]

    @property
    def selection(self) -> Words:
        """The words that choose."""
        return self.forms[-1]

    @property
    def normalized(self) -> str:
        """The input of the loop guard's key."""
        return " ".join(self.command)

    @property
    def is_exit(self) -> bool:
        """Whether the message is one of the exits of every clarifier (`none of these`, `cancel`)."""
        return self.command in _EXITS or self.words in _EXITS


def canonicalize_command_input(message: str, vocabulary: Vocabulary | None = None) -> CommandInput:
    """Read a message once, for pre-gate, scope cue, option match, command match and loop guard alike."""
    reading = read_as_spelled(message, vocabulary or shipped_vocabulary())
    words = _words_of(reading.text)
    scope, rest = _take_cue(words)
    return CommandInput(
        forms=(words, *_strip(rest)),
        scope=scope,
        is_question=mere_talk(reading) is Talk.QUESTION,
        is_strong=confidence_of(len(find_triggers(reading))) is Confidence.STRONG,
    )


@lru_cache(maxsize=4096)
def canonicalize_label(label: str) -> Words:
    """Return the words of a label or command, by the same canonicalisation; nothing is taken off."""
    return _words_of(canonicalise(label))


def is_selecting(verb: str) -> bool:
    """Tell whether a verb chooses what follows it (`open`), rather than ordering something of its own (`close`)."""
    return (verb,) in _SELECTING


def fold_plural(words: Iterable[str]) -> Words:
    """Return the words without plural endings."""
    return tuple(singular(word) for word in words)


def _words_of(text: Text) -> Words:
    words: list[str] = []
    for token in text.tokens:
        if token.kind in (Kind.QUOTE, Kind.CODE) and token.word:
            words += (inner.word.lstrip("#") for inner in canonicalise(token.word).tokens if inner.kind not in _MARKS)
        elif token.kind not in _MARKS and token.word:
            words.append(token.word.lstrip("#"))
    return tuple(words)


def _take_cue(words: Words) -> tuple[Source | None, Words]:
    """Return the scope that the first cue names, and the words without that cue."""
    for at, word in enumerate(words):
        if word not in _CUE_WORDS:
            continue
        end = at + 1
        if words[end : end + 1] in _ARTICLES:
            end += 1
        source = _CUE_SOURCES.get(words[end]) if end < len(words) else None
        if source is not None:
            end += 2 if words[end + 1 : end + 2] and words[end + 1] in _CUE_NOUNS else 1
            return source, words[:at] + words[end:]
    return None, words


def _strip(words: Words) -> tuple[Words, ...]:
    command = _without_tails(_without_leads(words, _LEADS), _TAILS)
    verbless = _without_leads(command, _SELECTING, times=1)
    bare = _without_leads(verbless, _ARTICLES, times=1)
    return command, verbless, bare, _without_tails(bare, _NOUNS, times=1)


def _without_leads(words: Words, phrases: tuple[Words, ...], *, times: int = 8) -> Words:
    for _ in range(times):
        found = next((row for row in phrases if words[: len(row)] == row and len(words) > len(row)), None)
        if found is None:
            break
        words = words[len(found) :]
    return words


def _without_tails(words: Words, phrases: tuple[Words, ...], *, times: int = 8) -> Words:
    for _ in range(times):
        found = next((row for row in phrases if words[-len(row) :] == row and len(words) > len(row)), None)
        if found is None:
            break
        words = words[: -len(found)]
    return words

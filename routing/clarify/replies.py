"""Which option or command a reply to a clarification names, and how surely.

A reply is canonicalised once, like a prompt, and uses the router's question detector, so that seeds 002 and 004 agree
on what a question is. Politeness is removed, but spelling is not corrected: misspelt replies go to the model.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field, field_validator

from routing.decision.triggers import Confidence, confidence_of, find_triggers
from routing.jobs import Option
from routing.prompt.parsed_prompt import Talk, classify_talk, parse_as_spelled
from routing.prompt.tokens import Kind, Text, canonicalise, singular
from routing.prompt.vocabulary import Vocabulary, shipped_vocabulary


class Source(StrEnum):
    """Where options are offered."""

    CHAT = "chat"
    WIDGET = "widget"


class OptionSet(BaseModel):
    """Options in display order, so that `first` means the first that the reader sees."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    id: str = Field(min_length=1, max_length=200)
    source: Source
    options: tuple[Option, ...] = Field(default=(), max_length=50)
    fresh: bool = True
    """Whether they can still be chosen; options for an older state of the site cannot."""

    @field_validator("options")
    @classmethod
    def _ids_are_unique(cls, options: tuple[Option, ...]) -> tuple[Option, ...]:
        if len({option.id for option in options}) < len(options):
            raise ValueError("two options have the same id")
        return options

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids in display order."""
        return tuple(option.id for option in self.options)

    def get(self, option_id: str) -> Option | None:
        """Return the option with this id, or None."""
        return next((option for option in self.options if option.id == option_id), None)

    def of_source(self, source: Source) -> OptionSet:
        """Return the options of one source."""
        options = tuple(option for option in self.options if option.source == source)
        return self.model_copy(update={"options": options, "source": source})

    def without(self, part: OptionSet) -> OptionSet | None:
        """Return the set without the options of `part`, or None if nothing is left."""
        removed = set(part.ids)
        options = tuple(option for option in self.options if option.id not in removed)
        return self.model_copy(update={"options": options, "source": Source(options[0].source)}) if options else None

    def in_order(self, ids: tuple[str, ...]) -> OptionSet:
        """Return the options with `ids` first, in that order; unknown ids are ignored."""
        by_id = {option.id: option for option in self.options}
        first = {option_id: by_id[option_id] for option_id in ids if option_id in by_id}
        return self.model_copy(update={"options": tuple((first | by_id).values())})


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
"""Verbs that choose their object. Any other verb orders something, which the model has to judge."""
_ARTICLES = _phrases("the, a, an, this, that, my, our")
_NOUNS = _phrases("one, option, item, choice, entry")
FUNCTION_WORDS = frozenset(
    {"an", "and", "at", "by", "for", "from", "in", "is", "it", "me", "my", "of", "on", "or", "our", "that", "the"}
    | {"this", "to", "us", "we", "with", "you"}
)
"""Words that name nothing on their own."""
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
    """All words; then without scope cue and politeness, without verb, without article, without a final `one`."""
    scope: Source | None
    """The source named by `from chat`, `in the widget` and the like."""
    is_question: bool
    """Seed 002's detector: it asks and orders nothing."""
    is_strong: bool
    """Seed 002's confidence is STRONG: a new request."""

    @property
    def words(self) -> Words:
        """All words."""
        return self.forms[0]

    @property
    def command(self) -> Words:
        """The words without scope cue and politeness, to compare with commands."""
        return self.forms[1]

    @property
    def selection(self) -> Words:
        """The words that choose."""
        return self.forms[-1]

    @property
    def normalized(self) -> str:
        """The message in the loop guard's key."""
        return " ".join(self.command)

    @property
    def is_exit(self) -> bool:
        """Whether the message dismisses the clarification (`none of these`, `cancel`)."""
        return self.command in _EXITS or self.words in _EXITS


def canonicalize_command_input(message: str, vocabulary: Vocabulary | None = None) -> CommandInput:
    """Canonicalise a message once for all rules of the ladder."""
    parsed = parse_as_spelled(message, vocabulary or shipped_vocabulary())
    words = _words_of(parsed.text)
    scope, rest = _take_cue(words)
    return CommandInput(
        forms=(words, *_strip(rest)),
        scope=scope,
        is_question=classify_talk(parsed) is Talk.QUESTION,
        is_strong=confidence_of(len(find_triggers(parsed))) is Confidence.STRONG,
    )


@lru_cache(maxsize=4096)
def canonicalize_label(label: str) -> Words:
    """Return all words of a label or command in canonical form."""
    return _words_of(canonicalise(label))


def is_selecting(verb: str) -> bool:
    """Return whether a verb chooses its object (`open`) rather than ordering something (`close`)."""
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
    """Return the source that the first scope cue names, and the words without it."""
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


# A reply names an option by its exact label, by its place, or by words that only this label has. Spelling distance
# never selects an option; it only distinguishes a typo of one label from a typo of several.

_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
_CARDINALS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_PLACE = re.compile(r"(\d{1,4})(?:st|nd|rd|th)?")
_LONGEST_CHOICE = 60
"""Characters; a longer message says more."""
_ANY_COUNT = 10_000
_NAMES_A_PLACE = re.compile(rf"\b(?:last|\d{{1,4}}(?:st|nd|rd|th)?|{'|'.join(_ORDINALS)})\b", re.I)
"""Most prompts hold no such word, and need no closer look."""
_NUMBERING = frozenset({"number", "option", "no", "item", "choice"})
_MAX_TYPED_WORDS = 12
"""A longer reply is not a misspelt label."""
_MAX_WORD = 30
_SHORT_WORD = 4
"""In a shorter word only an extra letter is a typo (`olde`); with a letter changed it is another word."""


class AmbiguityReason(StrEnum):
    """Why the rules could not resolve a reply (L-135)."""

    NO_DETERMINISTIC_MATCH = "no_deterministic_match"
    COMMAND_SELECTION_COLLISION = "command_selection_collision"
    MULTI_MATCH_NO_EXACT_WINNER = "multi_match_no_exact_winner"
    CROSS_SOURCE_TIE = "cross_source_tie"
    TYPO_AMBIGUOUS = "typo_ambiguous"
    NO_CANDIDATE = "no_candidate"


class OptionMatch(NamedTuple):
    """Result of matching a reply with the options by rules."""

    ids: tuple[str, ...]
    """Options that the reply may name, in display order; a single one wins."""
    verbatim: bool = False
    """The reply is the label, apart from politeness."""
    shares_word: bool = False
    """Some label has a word of the reply."""
    off_the_list: bool = False
    """The reply names nothing, or a place beyond the list."""
    near_tie: bool = False
    """Nothing matches, and two options are equally close in spelling."""

    @property
    def winner(self) -> str | None:
        """The only match, or None."""
        return self.ids[0] if len(self.ids) == 1 else None


class CommandMatch(NamedTuple):
    """Result of matching a reply with the commands."""

    exact: str | None = None
    """The command that it is exactly."""
    begins: bool = False
    """It begins with all words of a command, or with its verb unless that verb chooses options (`close panel d`)."""


class Signal(StrEnum):
    """What the ladder may do."""

    OPTION = "option"
    """Certain: execute the option."""
    DOWNSTREAM = "downstream"
    """Certain: a command or a new request."""
    UNRESOLVED = "unresolved"
    """The only signal that reaches the model."""


class ArbitrationConfidence(NamedTuple):
    """Classification of a reply, on which every branch of the ladder depends."""

    signal: Signal
    winner: str | None = None
    command: str | None = None
    reason: AmbiguityReason | None = None
    match_count: int = 0


def match_options(text: CommandInput, options: OptionSet) -> OptionMatch:
    """Match a reply with the options by exact label, then by place, then by words of the label."""
    labels = {option.id: canonicalize_label(option.label) for option in options.options}
    shares = _shares_word(text, labels.values())
    for number, form in enumerate(text.forms):
        exact = tuple(key for key, label in labels.items() if label and label == form)
        if exact:
            return OptionMatch(exact, verbatim=number < 2, shares_word=True)
    place = _place(text, len(labels))
    by_label = _by_label(text.selection, labels)
    if place is not None and place < len(labels):
        placed = options.ids[place]
        contradicted = len(by_label) == 1 and by_label[0] != placed
        return OptionMatch((placed, *by_label) if contradicted else (placed,), shares_word=shares)
    if by_label:
        return OptionMatch(by_label, shares_word=True)
    names_nothing = place is not None or not text.selection
    return OptionMatch(
        (), shares_word=shares, off_the_list=names_nothing, near_tie=_is_near_tie(text.selection, labels)
    )


def classify_arbitration_confidence(
    text: CommandInput, match: OptionMatch, *, command: CommandMatch, known: AmbiguityReason | None = None
) -> ArbitrationConfidence:
    """Classify a reply; the only gate before the model (L-068).

    Args:
        text: the reply.
        match: its match among the options in scope.
        command: its match among the commands; ignored if the reply names a source.
        known: an ambiguity that the caller sees, such as the same label in a second list; a scope cue resolves it.
    """
    count = len(match.ids)
    if text.scope is not None:
        command, known = CommandMatch(), None
    if known is not None:
        return ArbitrationConfidence(Signal.UNRESOLVED, reason=known, match_count=count)
    if match.winner is not None and (match.verbatim or command.exact is None):
        return ArbitrationConfidence(Signal.OPTION, winner=match.winner, match_count=1)
    is_other = not match.shares_word and count == 0 and text.scope is None
    if is_other and (command.exact is not None or text.is_strong):
        return ArbitrationConfidence(Signal.DOWNSTREAM, command=command.exact)
    return ArbitrationConfidence(Signal.UNRESOLVED, reason=_reason(match, command), match_count=count)


def _reason(match: OptionMatch, command: CommandMatch) -> AmbiguityReason:
    if command.exact is not None:
        return AmbiguityReason.COMMAND_SELECTION_COLLISION
    if match.ids:
        return AmbiguityReason.MULTI_MATCH_NO_EXACT_WINNER
    if command.begins and match.shares_word:
        return AmbiguityReason.COMMAND_SELECTION_COLLISION
    if match.off_the_list:
        return AmbiguityReason.NO_CANDIDATE
    return AmbiguityReason.TYPO_AMBIGUOUS if match.near_tie else AmbiguityReason.NO_DETERMINISTIC_MATCH


def _shares_word(text: CommandInput, labels: Iterable[Words]) -> bool:
    content = set(fold_plural(text.selection)) - FUNCTION_WORDS
    return any(content.intersection(fold_plural(label)) for label in labels)


def _place(text: CommandInput, count: int) -> int | None:
    """Return the place that the reply names, from 0; `count` if it is beyond the list."""
    words = text.selection
    while len(words) > 1 and words[0] in _NUMBERING:
        words = words[1:]
    if len(words) != 1:
        return None
    word = words[0]
    if word == "last":
        return count - 1
    if word in _ORDINALS:
        return min(_ORDINALS.index(word), count)
    if word in _CARDINALS and "the" not in text.command:
        return min(_CARDINALS.index(word), count)
    number = _PLACE.fullmatch(word)
    if number is None:
        return None
    return int(number[1]) - 1 if 0 < int(number[1]) <= count else count


def is_bare_choice(message: str) -> bool:
    """Whether a message does nothing but name a place in a list: without a list it means nothing."""
    if len(message) > _LONGEST_CHOICE or not _NAMES_A_PLACE.search(message):
        return False
    text = canonicalize_command_input(message)
    return not text.is_question and _place(text, _ANY_COUNT) is not None


def _by_label(selection: Words, labels: dict[str, Words]) -> tuple[str, ...]:
    """Return the options whose labels have all words of the selection, if necessary with plurals folded."""
    if FUNCTION_WORDS.issuperset(selection):
        return ()
    wanted, folded = set(selection), fold_plural(selection)
    named = _where(labels, lambda label: wanted <= set(label) or fold_plural(label) == folded)
    return named or _where(labels, lambda label: set(folded) <= set(fold_plural(label)))


def _where(labels: dict[str, Words], holds: Callable[[Words], bool]) -> tuple[str, ...]:
    return tuple(key for key, label in labels.items() if holds(label))


# --- spelling --------------------------------------------------------------------------------------------------------


def _is_near_tie(selection: Words, labels: dict[str, Words]) -> bool:
    if not 0 < len(selection) <= _MAX_TYPED_WORDS:
        return False
    ranks = [_nearness(selection, label) for label in labels.values()]
    best = max(ranks, default=(0, False))
    return best[0] > 0 and ranks.count(best) > 1


def _nearness(selection: Words, label: Words) -> tuple[int, bool]:
    """Return how many words are in the label, typos allowed, and whether they are all of it."""
    found = sum(any(_is_near(word, other) for other in label) for word in selection)
    return found, found > 0 and all(any(_is_near(word, other) for word in selection) for other in label)


@lru_cache(maxsize=4096)
def _is_near(word: str, other: str) -> bool:
    if word == other or singular(word) == singular(other):
        return True
    shorter, longer = sorted((len(word), len(other)))
    if shorter < _SHORT_WORD or longer > _MAX_WORD:
        return shorter == _SHORT_WORD - 1 and longer == _SHORT_WORD and _distance(word, other) == 1
    allowed = 1 if shorter < 8 else 2
    return longer - shorter <= allowed and _distance(word, other) <= allowed


def _distance(word: str, other: str) -> int:
    """Return the number of letters inserted, deleted, substituted, or swapped with a neighbour."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(word, start=1):
        following = [i]
        for j, wanted in enumerate(other, start=1):
            cost = min(row[j] + 1, following[j - 1] + 1, row[j - 1] + (letter != wanted))
            if i > 1 and j > 1 and letter == other[j - 2] and word[i - 2] == wanted:
                cost = min(cost, before[j - 2] + 1)
            following.append(cost)
        before, row = row, following
    return row[-1]


class DownstreamTier(StrEnum):
    """Who handles a message that escaped the ladder."""

    COMMAND = "command"
    ROUTER = "router"


class Dispatch(NamedTuple):
    """Where an escaped message goes."""

    handled_by_tier: DownstreamTier
    command: str | None = None


def match_command(text: CommandInput, commands: Iterable[str]) -> CommandMatch:
    """Match a message with the commands; two commands with the same words match neither."""
    known = {command: words for command in commands if (words := canonicalize_label(command))}
    exact = [command for command, words in known.items() if words == text.command]
    begins = any(
        text.command[: len(words)] == words or (text.command[:1] == words[:1] and not is_selecting(words[0]))
        for words in known.values()
    )
    return CommandMatch(exact[0] if len(exact) == 1 else None, begins)


def dispatch(message: str, commands: Iterable[str]) -> Dispatch:
    """Resolve a message that escaped the ladder: a registered command, or a request for the router."""
    command = match_command(canonicalize_command_input(message), commands).exact
    return Dispatch(DownstreamTier.ROUTER) if command is None else Dispatch(DownstreamTier.COMMAND, command)

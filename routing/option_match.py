"""Which option a reply names beyond doubt, and why it is in doubt otherwise: the one confidence signal of the ladder.

A reply names an option by its exact label, by its place in the displayed order, or by words that no other label has.
Spelling distance never selects an option; it only tells a typo of one label from a typo of several.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from routing.command_input import FUNCTION_WORDS, CommandInput, Words, canonicalize_label, fold_plural
from routing.options import OptionSet
from routing.tokens import singular

_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
_CARDINALS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_PLACE = re.compile(r"(\d{1,4})(?:st|nd|rd|th)?")
_NUMBERING = frozenset({"number", "option", "no", "item", "choice"})
_MAX_TYPED_WORDS = 12
"""A longer reply is no misspelt label."""
_MAX_WORD = 30
_SHORT_WORD = 4
"""A word of fewer letters is only known with a letter too many (`olde`): with one changed it is another word."""


class AmbiguityReason(StrEnum):
    """Why a reply did not resolve deterministically (L-135)."""

    NO_DETERMINISTIC_MATCH = "no_deterministic_match"
    COMMAND_SELECTION_COLLISION = "command_selection_collision"
    MULTI_MATCH_NO_EXACT_WINNER = "multi_match_no_exact_winner"
    CROSS_SOURCE_TIE = "cross_source_tie"
    TYPO_AMBIGUOUS = "typo_ambiguous"
    NO_CANDIDATE = "no_candidate"


class OptionMatch(NamedTuple):
    """What deterministic matching found."""

    ids: tuple[str, ...]
    """Options that the reply may name, in displayed order. A single one is the winner."""
    verbatim: bool = False
    """The reply is the label itself, politeness apart."""
    shares_word: bool = False
    """Some option has a word of the reply in its label."""
    off_the_list: bool = False
    """The reply names nothing, or a place that the list does not have."""
    near_tie: bool = False
    """Nothing matches, and spelling is as close to one option as to another."""

    @property
    def winner(self) -> str | None:
        """The one option that the reply names, or None."""
        return self.ids[0] if len(self.ids) == 1 else None


class CommandMatch(NamedTuple):
    """What a reply is among the registered commands."""

    exact: str | None = None
    """The one command that it is exactly."""
    begins: bool = False
    """It begins like a command: with all its words, or with its verb where that chooses no option (`close panel d`)."""


class Signal(StrEnum):
    """What the ladder may do."""

    OPTION = "option"
    """Deterministic high confidence in an option: execute it."""
    DOWNSTREAM = "downstream"
    """Deterministic high confidence in something else than the options: a command, or a request of its own."""
    UNRESOLVED = "unresolved"
    """The one state that reaches the model."""


class ArbitrationConfidence(NamedTuple):
    """The shared classification of a reply: every branch of the ladder is taken on it."""

    signal: Signal
    winner: str | None = None
    command: str | None = None
    reason: AmbiguityReason | None = None
    match_count: int = 0


def match_options(text: CommandInput, options: OptionSet) -> OptionMatch:
    """Find the options that a reply names: exact label, then place, then words of the label."""
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
    """Say what a reply is certain of. The only gate before the model (L-068).

    Args:
        text: the reply.
        match: what it matches among the options in scope.
        command: what it is among the registered commands. Who names a source chooses from it and gives no command.
        known: an ambiguity that the caller knows of, such as the same label in a second list on the screen. A scope cue
            settles it.
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
    """Return the place that the reply names, counted from 0; `count` when the list does not have it."""
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


def _by_label(selection: Words, labels: dict[str, Words]) -> tuple[str, ...]:
    """Return the options whose labels have all words of the selection: as written, or else with plurals folded."""
    if FUNCTION_WORDS.issuperset(selection):
        return ()
    wanted, folded = set(selection), fold_plural(selection)
    named = _where(labels, lambda label: wanted <= set(label) or fold_plural(label) == folded)
    return named or _where(labels, lambda label: set(folded) <= set(fold_plural(label)))


def _where(labels: dict[str, Words], holds: Callable[[Words], bool]) -> tuple[str, ...]:
    return tuple(key for key, label in labels.items() if holds(label))


# --- spelling: tells a typo of one label from a typo of several ------------------------------------------------------


def _is_near_tie(selection: Words, labels: dict[str, Words]) -> bool:
    if not 0 < len(selection) <= _MAX_TYPED_WORDS:
        return False
    ranks = [_nearness(selection, label) for label in labels.values()]
    best = max(ranks, default=(0, False))
    return best[0] > 0 and ranks.count(best) > 1


def _nearness(selection: Words, label: Words) -> tuple[int, bool]:
    """Return how many words stand in the label but for a typo, and whether they are the whole label."""
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
    """Return how many letters are added, left out, changed, or swapped with their neighbour."""
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

"""Which requests are debated before they run: the planning triggers of seed 002 and what bypasses them (ruling A11)."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple

from routing.acts import Act
from routing.phrases import Hit
from routing.reading import Reading
from routing.tokens import Kind, singular
from routing.triggers import Confidence
from routing.vocabulary import union


class Debate(StrEnum):
    """Whether advocate and critic are heard before the work: no reason to, yes, or reason not to."""

    NONE = "none"
    PLANNING = "planning"
    BYPASS = "bypass"


class Stakes(StrEnum):
    """How much a wrong execution would hurt."""

    HIGH = "high"
    MEDIUM = "medium"


class Plan(NamedTuple):
    """The decision about a planning debate."""

    debate: Debate
    stakes: Stakes | None = None
    causes: tuple[str, ...] = ()
    """Names of the vocabulary groups that asked for it."""


_GREP_IGNORING_CASE = re.compile(
    r"\bgrep(?:\s+-{1,2}[\w=-]{1,20}){0,3}?\s+-(?:[a-z]{0,12}i[a-z]{0,12}|-ignore-case)(?!\w)"
)
_PAUSES = (Kind.STOP, Kind.QUESTION, Kind.COMMA)
_REACH = 7
"""Tokens after a verb in which its object is looked for."""
_SENSITIVE_FILES = frozenset(
    {"auth", "token", "tokens", "password", "passwords", "secret", "secrets", "credential", "credentials", ".env"}
)


def plan_debate(
    reading: Reading, *, confidence: Confidence, read_only: bool, debated: bool, is_new: bool = False
) -> Plan:
    """Decide about the debate of an ACTION.

    Args:
        reading: the prompt.
        confidence: of the ACTION; only a weak one can be ambiguous in scope.
        read_only: whether the request only looks.
        debated: whether this session has debated the same request.
        is_new: whether there is no site yet: nobody's account is at stake then.
    """
    only_looks = read_only and not _ignores_case(reading)
    if only_looks or debated or reading.found("insist"):
        return Plan(Debate.BYPASS)
    high = tuple(
        name
        for name, holds in (
            ("destructive", _destroys(reading)),
            ("deployment", _deploys(reading)),
            ("security", _is_sensitive(reading)),
            ("access", not is_new and reading.found("access")),
        )
        if holds
    )
    if high:
        return Plan(Debate.PLANNING, Stakes.HIGH, high)
    medium = tuple(
        name
        for name, holds in (
            ("bulk", is_bulk(reading)),
            ("vague", confidence is not Confidence.STRONG and _is_vague(reading)),
        )
        if holds
    )
    return Plan(Debate.PLANNING, Stakes.MEDIUM, medium) if medium else Plan(Debate.NONE)


def changes_much(reading: Reading) -> bool:
    """Tell whether the request destroys or deploys something: then it is not read-only whatever else it says."""
    return _destroys(reading) or _deploys(reading)


def _destroys(reading: Reading) -> bool:
    if any(_ends_clause(reading, hit) for hit in reading.hits.get("destructive_stated", ())):
        return True
    if not reading.found("destructive"):
        return False
    harmless = {at for hit in reading.hits.get("harmless_removal", ()) for at in range(hit.first, hit.last + 1)}
    return any(
        hit.first not in harmless and _is_ordered(reading, hit) and not _takes_only_dressing(reading, hit)
        for hit in reading.hits["destructive"]
    )


def _ignores_case(reading: Reading) -> bool:
    """Tell whether `grep -i` is ordered, which seed 002 leaves out of the read-only bypass (R-056, A11)."""
    if all(token.word != "grep" for token in reading.tokens):
        return False
    return _GREP_IGNORING_CASE.search(reading.text.shown.lower()) is not None


def _ends_clause(reading: Reading, hit: Hit) -> bool:
    """`The blog has to go.` takes away; `the photo should go on the left` does not."""
    if reading.tokens[hit.last].word != "go" or hit.last + 1 == len(reading.tokens):
        return True
    after = reading.tokens[hit.last + 1]
    return after.kind in _PAUSES or after.word in reading.vocabulary.words["politeness"]


def _is_ordered(reading: Reading, hit: Hit) -> bool:
    """A verb of another language counts at the start of its sentence or anywhere when it is an infinitive."""
    token = reading.tokens[hit.first]
    english = union(reading.vocabulary.words["order"], _SAID_ANYWHERE)
    if token.word in reading.vocabulary.words["order"]:
        return hit.first in reading.orders and not token.joined
    if token.word not in english and singular(token.word) in english:
        return False  # `the button clears the form` tells what a thing does
    return token.word in _SAID_ANYWHERE or not _is_english(token.word)


_SAID_ANYWHERE = frozenset({"get", "rip", "start", "empty", "reset", "dump", "bin", "axe"})
_ENGLISH_DESTRUCTION = frozenset({"obliterate", "destroy", "eliminate", "discard", "bin", "axe", "dump", "rip"})


def _is_english(word: str) -> bool:
    return word in _ENGLISH_DESTRUCTION


def _takes_only_dressing(reading: Reading, hit: Hit) -> bool:
    """`Remove the underline` and `drop shadow` take no content away."""
    words = reading.vocabulary.words
    follows = [reading.tokens[at] for at in range(hit.first + 1, min(hit.last + _REACH, len(reading.tokens)))]
    if follows and follows[0].word in ("down", "shadow", "shadows", "cap", "caps", "in", "a", "by", "below", "to"):
        return reading.tokens[hit.first].word == "drop"
    for token in follows:
        if token.kind in (Kind.STOP, Kind.QUESTION, Kind.COMMA) or token.word in (
            "and",
            "from",
            "in",
            "on",
            "so",
            "then",
        ):
            return False
        if token.word in words["dressing"]:
            return True
    return False


def _deploys(reading: Reading) -> bool:
    if not reading.found("deployment"):
        return False
    excluded = {hit.first for hit in reading.hits.get("deployment_noun", ())}
    for hit in reading.hits["deployment"]:
        if hit.first in excluded or reading.tokens[hit.first].joined:
            continue
        word = reading.tokens[hit.first].word
        if word == "to" or word not in reading.vocabulary.words["order"] or hit.first in reading.orders:
            return True
    return False


def _is_sensitive(reading: Reading) -> bool:
    harmless = {at for hit in reading.hits.get("harmless_key", ()) for at in range(hit.first, hit.last + 1)}
    if any(not harmless.issuperset(range(hit.first, hit.last + 1)) for hit in reading.hits.get("security", ())):
        return True
    return Kind.PATH in reading.kinds and any(
        token.kind is Kind.PATH and _SENSITIVE_FILES.intersection(token.word.replace(".", "/").split("/"))
        for token in reading.tokens
    )


def is_bulk(reading: Reading) -> bool:
    """Tell whether the request is for all of something on the site."""
    excluded = {at for hit in reading.hits.get("not_bulk", ()) for at in range(hit.first, hit.last + 1)}
    if any(hit.first not in excluded for hit in reading.hits.get("bulk", ())):
        return True
    return Kind.PATH in reading.kinds and any(token.kind is Kind.PATH and "*" in token.word for token in reading.tokens)


def _is_vague(reading: Reading) -> bool:
    if reading.found("clear_target") or not reading.found("vague"):
        return False
    return Act.DEFECT not in reading.acts

"""The ACTION triggers of seed 002, its trivial commands and its planning debates (rulings A4, A7, A8, A10, A11).

Each token counts for the first class that matches: code block, URL, file or path, keyword. All forms of a keyword count
once, in the order of the text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from itertools import pairwise
from operator import itemgetter
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

from routing.decision.second_opinion import Opinion
from routing.prompt.intents import SentenceIntent
from routing.prompt.parsed_prompt import ParsedPrompt
from routing.prompt.tokens import WORD, Kind, Token, is_reference, singular
from routing.prompt.vocabulary import Hit


class Confidence(StrEnum):
    """Confidence in an ACTION: three or more triggers, one or two, none."""

    STRONG = "STRONG"
    WEAK = "WEAK"
    NONE = "NONE"


TriggerKind = Literal["code", "url", "path", "operation", "search", "execution", "memory", "web", "reference", "edit"]


class Trigger(BaseModel):
    """A part of the prompt that asks for action, with its offsets in the prompt as sent."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: TriggerKind
    shown: str
    """Its name in the log: the keyword as written, or `file path`, `code block`, `url`."""
    start: int
    end: int


_Named = tuple[TriggerKind, str, str, int]
"""Kind, name, canonical form and last token."""
_STRONG_FROM = 3
_SHOWN_LIMIT = 60
_LOOKING = ("look", "looking", "looks", "looked")
_CLASSES: tuple[TriggerKind, ...] = ("operation", "search", "execution", "memory", "web", "reference")
_words_of_classes = itemgetter(*_CLASSES)


def find_triggers(parsed: ParsedPrompt) -> tuple[Trigger, ...]:
    """Return the distinct triggers in the order of the text."""
    found: dict[tuple[str, str], Trigger] = {}
    keywords = _keywords(_words_of_classes(parsed.vocabulary.words))
    for at, token in enumerate(parsed.tokens):
        if token.kind is WORD and token.word not in keywords and at not in parsed.orders:
            continue
        named = _name(parsed, at, keywords) if at not in parsed.copied else None
        if named:
            kind, shown, base, last = named
            end = parsed.tokens[last].end
            key = (kind if kind in ("code", "url", "path") else "word", base)
            found.setdefault(key, _trigger(parsed, kind, shown, token.start, end))
    return tuple(found.values())


def confidence_of(count: int) -> Confidence:
    """Return the confidence for a number of triggers (R-089)."""
    if count >= _STRONG_FROM:
        return Confidence.STRONG
    return Confidence.WEAK if count else Confidence.NONE


def _trigger(parsed: ParsedPrompt, kind: TriggerKind, shown: str, start: int, end: int) -> Trigger:
    origin = parsed.text.original_offset
    return Trigger(kind=kind, shown=shown, start=origin(start), end=max(origin(end - 1) + 1, origin(start)))


@lru_cache(maxsize=8)
def _keywords(classes: tuple[frozenset[str], ...]) -> dict[str, TriggerKind | None]:
    """Return the first class of each keyword; None for the first word of a two-word name."""
    found: dict[str, TriggerKind | None] = dict.fromkeys((*_LOOKING, "our"))
    for kind, words in reversed(list(zip(_CLASSES, classes, strict=True))):
        found.update(dict.fromkeys(words, kind))
    return found


def _name(parsed: ParsedPrompt, at: int, keywords: Mapping[str, TriggerKind | None]) -> _Named | None:
    """Return the trigger that begins at a token, or None."""
    token = parsed.tokens[at]
    if token.kind is Kind.WORD:
        return _keyword(parsed, at, keywords)
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


def _keyword(parsed: ParsedPrompt, at: int, keywords: Mapping[str, TriggerKind | None]) -> _Named | None:
    token = parsed.tokens[at]
    following = parsed.tokens[at + 1].word if at + 1 < len(parsed.tokens) else ""
    if token.joined:
        return None
    if token.word in _LOOKING and following == "for":
        return "search", f"{token.word} for", "look for", at + 1
    if token.word == "our" and following == "code":
        return "reference", "our code", "our code", at + 1
    kind = keywords.get(token.word)
    if kind is not None:
        return kind, token.word, parsed.vocabulary.bases.get(token.word, token.word.rstrip("s")), at
    if at in parsed.orders and token.word in parsed.vocabulary.words["edit_operation"]:
        return "edit", token.word, token.word, at
    return None


# A trivial command matches the whole prompt. It runs from an argument vector, not through a shell, and has no options
# that read or write files.

TRIVIAL_COMMANDS = ("pwd", "date", "whoami", "echo", "ping")
"""Not `ls` or `cat`, which read files."""

_MAX_LENGTH = 1000
_DATE_ARGUMENT = re.compile(
    r"-u|--utc|--universal|-R|--rfc-email|-I(?:date|hours|minutes|seconds|ns)?"
    r"|--iso-8601(?:=(?:date|hours|minutes|seconds|ns))?|--rfc-3339=(?:date|seconds|ns)|\+[%A-Za-z0-9:./,_-]{1,100}"
)
_SHELL = re.compile(r"[|&;<>`\\(){}\[\]*?!~#\x00-\x1f\x7f\u2028\u2029]|\$(?![A-Z_])")
_QUOTED = re.compile(r"'[^'\x00-\x1f\x7f\u2028\u2029]*'|\"[^\"$`\\!\x00-\x1f\x7f\u2028\u2029]*\"")
"""Text that a shell would print unchanged."""
_PROSE = re.compile(
    r"(?:^|[.!?]\s|\b(?:in|on|at|of|for|from|to|into|by|above|below|under|across|throughout|around|behind|beneath|near|beside|over)\s)\s*"
    r"(?:the|our|my|your|this|these|those)\s+(?:\S+\s+){0,2}?(?:pages?|site|website|hero|header|footer|tagline|headline|heading"
    r"|title|section|logo|menu|banner|text|form|button|intro|slogan|home\w*|top|bottom)\b",
    re.IGNORECASE,
)
"""`echo the tagline below` is about a page, `echo publish the site` is not."""
_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_HOST = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})*\.?", re.IGNORECASE)
_IPV6 = re.compile(r"[0-9a-f:]{2,39}", re.IGNORECASE)
_SCHEME = re.compile(r"https?://", re.IGNORECASE)


def parse_trivial(prompt: str) -> tuple[str, ...] | None:
    """Return the argument vector of a trivial command, or None for any other prompt.

    `echo` expands nothing. Only the form of a host is checked here; the worker holds the list of allowed hosts.
    """
    line = prompt.strip(" \t\r\n")
    if len(line) > _MAX_LENGTH or "\n" in line or "\r" in line:
        return None
    words = line.split()
    command = words[0].lower() if words else ""
    if command in ("pwd", "whoami"):
        return (command,) if len(words) == 1 else None
    if command == "date":
        return _date(words)
    if command == "echo":
        return _echo(line)
    return _ping(words) if command == "ping" else None


def _date(words: list[str]) -> tuple[str, ...] | None:
    if len(words) > 4 or not all(_DATE_ARGUMENT.fullmatch(word) for word in words[1:]):
        return None
    return ("date", *words[1:])


def _echo(line: str) -> tuple[str, ...] | None:
    text = line[4:].strip()
    bare = _QUOTED.sub("", text)
    if _SHELL.search(bare) or _PROSE.search(bare):
        return None
    return ("echo", text) if text else ("echo",)


def _ping(words: list[str]) -> tuple[str, ...] | None:
    if len(words) != 2:
        return None
    host = _SCHEME.sub("", words[1]).removesuffix("/")
    if _HOST.fullmatch(host) or (":" in host and _IPV6.fullmatch(host)):
        return ("ping", host.lower())
    return None


class Debate(StrEnum):
    """Whether the work is debated first: no reason to, yes, or a reason not to."""

    NONE = "none"
    PLANNING = "planning"
    BYPASS = "bypass"


class Stakes(StrEnum):
    """Damage of a wrong execution."""

    HIGH = "high"
    MEDIUM = "medium"


class Plan(NamedTuple):
    """Decision about a planning debate."""

    debate: Debate
    stakes: Stakes | None = None
    causes: tuple[str, ...] = ()
    """Vocabulary groups that require it, or `OPINION`."""


OPINION = "opinion"
"""The cause of a debate, and the rule of a tier or mode, that the trained second opinion chose."""
DEBATED = 0.4
"""The least probability of a debate that no rule finds, or only bulk and vague words ask for."""
_DEBATABLE = ("destructive", "destructive_stated", "deployment", "security", "access", "bulk", "vague")
"""Groups of which a rule finds a debate, or finds none."""
OVERRULED = 0.8
"""The least probability of a debate where such a rule finds none."""
HARMLESS = 0.05
"""Below this probability of a debate, a login is no reason for one, nor are a locksmith's keys or words that take
something away in another language."""
_EVERYDAY = frozenset({"key", "keys", "secret", "secrets", "token", "tokens"})
_GREP_IGNORING_CASE = re.compile(
    r"\bgrep(?:\s+-{1,2}[\w=-]{1,20}){0,3}?\s+-(?:[a-z]{0,12}i[a-z]{0,12}|-ignore-case)(?!\w)"
)
_PAUSES = (Kind.STOP, Kind.QUESTION, Kind.COMMA)
_REACH = 7
"""Tokens after a verb that are searched for its object."""
_SENSITIVE_FILES = frozenset(
    {"auth", "token", "tokens", "password", "passwords", "secret", "secrets", "credential", "credentials", ".env"}
)


def plan_debate(
    parsed: ParsedPrompt,
    *,
    confidence: Confidence,
    read_only: bool,
    debated: bool,
    is_new: bool = False,
    opinion: Opinion | None = None,
) -> Plan:
    """Decide about the debate of an ACTION.

    Args:
        parsed: the prompt.
        confidence: of the ACTION; only a weak one can be vague.
        read_only: whether the request changes nothing.
        debated: whether this session has debated the same request.
        is_new: whether there is no site yet, so that nothing can be taken away and nobody's access is at stake.
        opinion: the trained second opinion, unless it is switched off.
    """
    only_looks = read_only and not _ignores_case(parsed)
    if only_looks or debated or "insist" in parsed.hits:
        return Plan(Debate.BYPASS)
    is_harmless = is_new or (opinion is not None and opinion.debated < HARMLESS)
    high = tuple(
        name
        for name, holds in (
            ("destructive", not is_new and _destroys(parsed, is_harmless=is_harmless)),
            ("deployment", _deploys(parsed)),
            ("security", _is_sensitive(parsed, is_harmless=is_harmless)),
            ("access", not is_harmless and "access" in parsed.hits),
        )
        if holds
    )
    if high:
        return Plan(Debate.PLANNING, Stakes.HIGH, high)
    if opinion is not None and opinion.debated < DEBATED and not _names_many_files(parsed):
        return Plan(Debate.NONE)
    medium = tuple(
        name
        for name, holds in (
            ("bulk", is_bulk(parsed)),
            ("vague", confidence is not Confidence.STRONG and _is_vague(parsed)),
        )
        if holds
    )
    if medium:
        return Plan(Debate.PLANNING, Stakes.MEDIUM, medium)
    if opinion is None or opinion.debated < (OVERRULED if parsed.found(*_DEBATABLE) else DEBATED):
        return Plan(Debate.NONE)
    return Plan(Debate.PLANNING, Stakes.HIGH if opinion.high_stakes >= 0.5 else Stakes.MEDIUM, (OPINION,))


def changes_much(parsed: ParsedPrompt) -> bool:
    """Return whether the request destroys or deploys something, so that it is never read-only."""
    return _destroys(parsed) or _deploys(parsed)


def _destroys(parsed: ParsedPrompt, *, is_harmless: bool = False) -> bool:
    if any(_ends_clause(parsed, hit) for hit in parsed.hits.get("destructive_stated", ())):
        return True
    if "destructive" not in parsed.hits:
        return False
    harmless = {at for hit in parsed.hits.get("harmless_removal", ()) for at in range(hit.first, hit.last + 1)}
    return any(
        hit.first not in harmless
        and _is_ordered(parsed, hit, is_harmless=is_harmless)
        and not _takes_only_dressing(parsed, hit)
        for hit in parsed.hits["destructive"]
    )


def _ignores_case(parsed: ParsedPrompt) -> bool:
    """Return whether `grep -i` is ordered, which seed 002 excludes from the read-only bypass (R-056, A11)."""
    if all(token.word != "grep" for token in parsed.tokens):
        return False
    return _GREP_IGNORING_CASE.search(parsed.text.shown.lower()) is not None


def _ends_clause(parsed: ParsedPrompt, hit: Hit) -> bool:
    """Return whether a stated removal ends its clause: `the blog has to go`, not `it should go on the left`."""
    if parsed.tokens[hit.last].word != "go" or hit.last + 1 == len(parsed.tokens):
        return True
    after = parsed.tokens[hit.last + 1]
    return after.kind in _PAUSES or after.word in parsed.vocabulary.words["politeness"]


def _is_ordered(parsed: ParsedPrompt, hit: Hit, *, is_harmless: bool) -> bool:
    """Return whether a destructive verb is an order; in another language, unless the second opinion finds no harm."""
    token = parsed.tokens[hit.first]
    if token.word in parsed.vocabulary.words["order"]:
        return hit.first in parsed.orders and not token.joined
    return token.word in _SAID_ANYWHERE or (not is_harmless and token.word not in _ENGLISH_DESTRUCTION)


_SAID_ANYWHERE = frozenset({"get", "rip", "start", "empty", "reset", "axe", "bin", "dump"})
_PLACED = frozenset({"into", "below", "above", "under", "underneath", "beneath", "between", "beside"})
"""Where something is dropped that stays."""
_UNNAMED = frozenset(
    {"section", "part", "block", "page", "picture", "image", "photo", "text", "line", "paragraph", "box"}
)
"""What a place tells apart: `drop the section below the prices` removes it."""
_ENGLISH_DESTRUCTION = frozenset({"obliterate", "destroy", "eliminate", "discard", "axe", "rip"})


def _takes_only_dressing(parsed: ParsedPrompt, hit: Hit) -> bool:
    """Return whether no content is removed: `remove the underline`, `drop shadow`, `drop the map below the prices`."""
    words = parsed.vocabulary.words
    follows = [parsed.tokens[at] for at in range(hit.first + 1, min(hit.last + _REACH, len(parsed.tokens)))]
    is_drop = parsed.tokens[hit.first].word == "drop"
    if follows and follows[0].word in ("shadow", "shadows", "cap", "caps", "in", "a", "by"):
        return is_drop
    for before, token in pairwise([parsed.tokens[hit.first], *follows]):
        if is_drop and token.word in _PLACED:
            return singular(before.word) not in _UNNAMED
        if token.kind in _PAUSES or token.word in ("and", "from", "in", "on", "so", "then"):
            return False
        if token.word in words["dressing"]:
            return True
    return False


def _deploys(parsed: ParsedPrompt) -> bool:
    if "deployment" not in parsed.hits:
        return False
    excluded = {hit.first for hit in parsed.hits.get("deployment_noun", ())}
    for hit in parsed.hits["deployment"]:
        if hit.first in excluded or parsed.tokens[hit.first].joined:
            continue
        word, orders = parsed.tokens[hit.first].word, parsed.vocabulary.words["order"]
        if hit.first == hit.last and word not in orders and singular(word) in orders:
            continue  # `when deploys are stuck` states, and orders nothing
        if word == "to" or word not in orders or hit.first in parsed.orders:
            return True
    return False


def _is_sensitive(parsed: ParsedPrompt, *, is_harmless: bool) -> bool:
    hits = parsed.hits.get("security", [])
    if is_harmless:
        hits = [hit for hit in hits if hit.first != hit.last or parsed.tokens[hit.first].word not in _EVERYDAY]
    harmless = {at for hit in parsed.hits.get("harmless_key", ()) for at in range(hit.first, hit.last + 1)}
    if not all(harmless.issuperset(range(hit.first, hit.last + 1)) for hit in hits):
        return True
    if is_harmless:
        return False  # `typo in auth/messages.ts`
    return Kind.PATH in parsed.kinds and any(
        token.kind is Kind.PATH and _SENSITIVE_FILES.intersection(token.word.replace(".", "/").split("/"))
        for token in parsed.tokens
    )


def is_bulk(parsed: ParsedPrompt) -> bool:
    """Return whether the request concerns everything of a kind on the site, not one fact wherever it appears."""
    if hits := parsed.hits.get("bulk"):
        excluded = {at for hit in parsed.hits.get("not_bulk", ()) for at in range(hit.first, hit.last + 1)}
        if any(hit.first not in excluded for hit in hits):
            return True
    return _names_many_files(parsed)


def _names_many_files(parsed: ParsedPrompt) -> bool:
    return Kind.PATH in parsed.kinds and any(token.kind is Kind.PATH and "*" in token.word for token in parsed.tokens)


def _is_vague(parsed: ParsedPrompt) -> bool:
    if "vague" not in parsed.hits or "clear_target" in parsed.hits:
        return False
    return SentenceIntent.DEFECT not in parsed.intents

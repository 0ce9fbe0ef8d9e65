"""A request with its quotations set aside: grammar never looks inside what somebody wants to write on a page."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from sandbox.spec.colours import COLOUR_NAMES
from sandbox.spec.model import Site

MAX_REQUEST_CHARS: Final = 2000
_CLOSING: Final = {'"': '"', "'": "'", "“": "”", "‘": "’", "«": "»", "„": "“", "`": "`"}
_HELD: Final = "\ue000"
QUOTED: Final = rf"{_HELD}\d+{_HELD}"
_LEAD: Final = re.compile(
    r"(?:(?:please|kindly|hi|hello|hey|ok|okay|now|just|so)\b[ ,!.]*|(?:can|could|would|will) (?:you|we) (?:please )?|"
    r"(?:i|we)(?:'d| would)? (?:want|like|need)(?: you)? to |let'?s |go ahead and )+",
    re.I,
)
_POLITE_QUESTION: Final = re.compile(r"(?:please[ ,]*)?(?:can|could|would|will) (?:you|we) ", re.I)
_TAIL: Final = re.compile(r"(?:[ ,.!]+(?:please|thanks|thank you|thx|for me)|[ .!])+$", re.I)
_CLAUSE: Final = re.compile(
    r"\b(?:and|then|but|also|plus|or|instead|while|unless|because|so that)\b|[;?]|[.!] "
    r"\S|,\s*(?:make|change|use|add|remove|set|put|with)\b",
    re.I,
)
_NOT_A_TEXT: Final = frozenset(
    [
        "english",
        "german",
        "french",
        "spanish",
        "italian",
        "dutch",
        "portuguese",
        "polish",
        "russian",
        "chinese",
        "japanese",
        "korean",
        "arabic",
        "turkish",
        "swedish",
        "danish",
        "norwegian",
        "finnish",
        "greek",
        "czech",
        "hebrew",
        "hindi",
        "ukrainian",
        "bold",
        "italic",
        "italics",
        "underlined",
        "uppercase",
        "lowercase",
        "capitals",
        "caps",
        "h1",
        "h2",
        "h3",
        "h4",
        "something",
        "anything",
        "nothing",
    ]
)
_STYLE: Final = re.compile(
    r""
    r"\b(?:fonts?|size|bigger|larger|smaller|colou?rs?|bold|italics?|cent(?:er|re)d?|uppercase|lowercase|caps|aligned|underlined?|"
    r"animated?|emojis?)\b|\b(?:on|in|of) (?:the )?[\w-]+ (?:page|section)\b|\b(?:in|into) "
    r"[A-Z][a-z]+(?:ese|ish|an|ch|ic)$",
)
_DIRECTIVE: Final = re.compile(
    r"(?:all caps|title case|sentence case|upper case|lower case|a|an|the "
    r"same|something|be|match|include|mention|sound|look|read)\b",
    re.I,
)


class Request(NamedTuple):
    """A request as the grammar reads it."""

    text: str
    """One line, without politeness; each quotation is a numbered placeholder."""
    quotes: tuple[str, ...]
    trimmed: str = ""
    """What politeness or punctuation was taken off the end."""

    def quoted(self, token: str) -> str | None:
        """Return what a placeholder stands for, or None when the token is not one."""
        return self.quotes[int(token.strip(_HELD))] if re.fullmatch(QUOTED, token) else None

    def value(self, token: str) -> str | None:
        """Return the text that a request wants to be written: quoted, or plain words that can be nothing else."""
        if (quoted := self.quoted(token)) is not None:
            return quoted.strip() or None
        if self.trimmed.strip(" ."):
            return None
        is_plain = token[:1].isupper() or token[:1].isdigit()
        if not is_plain or _HELD in token or _CLAUSE.search(token) or _DIRECTIVE.match(token) or _STYLE.search(token):
            return None
        words = token.lower().split()
        is_word_of_style = len(words) <= 2 and (set(words) & _NOT_A_TEXT or "".join(words) in COLOUR_NAMES)
        return None if is_word_of_style else token


def read_request(prompt: str) -> Request | None:
    """Return a request ready for the grammar, or None when it cannot be one plain order."""
    if len(prompt) > MAX_REQUEST_CHARS or _HELD in prompt:
        return None
    held = _hold_quotations(re.sub(r"\s+", " ", prompt).strip())
    if held is None:
        return None
    text = held.text
    if text.endswith("?"):
        if not _POLITE_QUESTION.match(text):
            return None
        text = text[:-1]
    text = _LEAD.sub("", text, count=1) if _LEAD.match(text) else text
    trimmed = _TAIL.sub("", text)
    return Request(trimmed.strip(), held.quotes, text[len(trimmed) :]) if trimmed.strip() else None


@dataclass(frozen=True)
class DirectEdit:
    """One change that needs no model, worked out against one site."""

    kind: str
    """What kind of change: `text`, `replace`, `colour`, `font`, `remove`, ..."""
    summary: str
    """One plain sentence for the receipt."""
    operations: tuple[Mapping[str, Any], ...]
    """RFC 6902 operations on the site document."""


Handler = Callable[["re.Match[str]", Request, Site], Iterator[DirectEdit]]


class Rule(NamedTuple):
    """One wording and what it means; the whole request must match it."""

    pattern: re.Pattern[str]
    handle: Handler


_WORDS: Final = {
    "<Q>": f"(?:{QUOTED})",
    "<THE>": "(?:the |our |my )?",
    "<CHANGE>": "(?:change|set|update|edit|switch|rename|replace|alter|modify|rewrite)",
    "<TO>": "(?:to say|to read|to be|to|with|into|as)",
    "<FOR>": "(?:with|to|for|by|as)",
    "<VALUE>": "(?P<value>.+)",
    "<WHICH>": "(?P<which>.*?) ?",
    "<WHAT>": "(?P<what>.+?)",
    "<SECTION>": "(?P<section>footer|contact form|contact section)",
}


def rule(pattern: str, handle: Handler) -> Rule:
    """Return a rule; the words of the table above stand for what many rules share, `<Q>` for a quotation."""
    for word, meaning in _WORDS.items():
        pattern = pattern.replace(word, meaning)
    return Rule(re.compile(pattern, re.I), handle)


def plain(phrase: str) -> str:
    """Return a noun phrase in lower case without articles and outer spaces."""
    return re.sub(r"^(?:(?:the|our|my|a|an|this|that)\s+)+", "", phrase.strip().lower())


def _hold_quotations(text: str) -> Request | None:
    pieces: list[str] = []
    quotes: list[str] = []
    position = 0
    while position < len(text):
        char = text[position]
        end = _closing(text, position) if char in _CLOSING else None
        if end is None:
            if char in '"“”«»„`':
                return None
            pieces.append(char)
            position += 1
            continue
        pieces.append(f"{_HELD}{len(quotes)}{_HELD}")
        quotes.append(text[position + 1 : end])
        position = end + 1
    return Request("".join(pieces), tuple(quotes))


def _closing(text: str, start: int) -> int | None:
    """Return where the quotation that opens at `start` ends; an apostrophe beside a letter opens and ends none."""
    is_single = text[start] in "'‘"
    if is_single and start and text[start - 1].isalnum():
        return None
    end = text.find(_CLOSING[text[start]], start + 1)
    while is_single and end != -1 and end + 1 < len(text) and text[end + 1].isalnum():
        end = text.find(_CLOSING[text[start]], end + 1)
    return None if end == -1 else end

"""Constructs in JavaScript that no release may hold, found in its text without parsing it.

This is no proof of harmlessness: a program can build the word `eval` out of letters. It names what is written plainly,
so that an honest author learns of it before the page breaks; whatever is hidden meets the Content-Security-Policy,
which allows neither compiling text nor workers nor other hosts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

_GAP = r"(?:\s++|/\*[^*]*+\*++/|//[^\n]{0,200}+\n)*+"
_QUOTE = r"[\"'`]"
_URL = rf"{_QUOTE}([^\"'`\s]{{1,2000}}+)"
_WORD = r"(?<![\w$])"

_CONSTRUCTS: tuple[tuple[str, tuple[str, ...], re.Pattern[str]], ...] = tuple(
    (rule, needles, re.compile(pattern))
    for rule, needles, pattern in (
        ("eval-like", ("eval",), rf"{_WORD}eval{_GAP}(?:\(|\?\.|\))|\[{_GAP}{_QUOTE}eval{_QUOTE}{_GAP}\]"),
        ("eval-like", ("Function",), rf"{_WORD}Function{_GAP}\("),
        ("eval-like", ("constructor",), rf"constructor{_QUOTE}?\]?{_GAP}\({_GAP}{_QUOTE}"),
        ("eval-like", ("setTimeout", "setInterval"), rf"{_WORD}set(?:Timeout|Interval){_GAP}\({_GAP}{_QUOTE}"),
        ("eval-like", ("execScript",), rf"{_WORD}execScript{_GAP}\("),
        ("eval-like", ("document",), rf"{_WORD}document{_GAP}\.{_GAP}write(?:ln)?{_GAP}\("),
        ("eval-like", ("WebAssembly",), rf"{_WORD}WebAssembly(?![\w$])"),
        ("data-script", ("import",), rf"{_WORD}import(?:Scripts)?{_GAP}\({_GAP}{_QUOTE}(?:data|blob):"),
        ("worker", ("Worker",), rf"{_WORD}new\s{{1,20}}(?:Shared)?Worker{_GAP}\("),
        ("worker", ("serviceWorker",), rf"(?:\.|{_QUOTE})serviceWorker(?![\w$])"),
        ("worker", ("importScripts",), rf"{_WORD}importScripts{_GAP}\("),
    )
)
_CALLS = re.compile(
    rf"{_WORD}(?:fetch|sendBeacon|WebSocket|EventSource|import){_GAP}\({_GAP}{_URL}"
    rf"|\.open{_GAP}\({_GAP}{_QUOTE}[A-Za-z]{{1,10}}{_QUOTE}{_GAP},{_GAP}{_URL}"
    rf"|{_WORD}(?:from|import){_GAP}{_URL}"
)
_CALL_NEEDLES = ("fetch", "sendBeacon", "WebSocket", "EventSource", "import", ".open", "from")
_LETTER_ESCAPE = re.compile(r"\\u(?:00([0-7][0-9a-fA-F])|\{0{0,8}([0-7][0-9a-fA-F])\})")
_SHOWN_CHARS = 40
_MAX_PER_CONSTRUCT = 20


class Construct(NamedTuple):
    """One construct at one place."""

    rule: str
    """A key of the rule table, or `connect` for a URL that the script contacts."""
    text: str
    """What was found, or the URL."""
    line: int
    """Counted from 1 within the script."""


def constructs(source: str) -> Iterator[Construct]:
    """Find what no release may hold, and the URLs that are contacted."""
    text = _LETTER_ESCAPE.sub(_plain_letter, source) if "\\u" in source else source
    for rule, needles, pattern in _CONSTRUCTS:
        if any(needle in text for needle in needles):
            for match in _first(pattern, text):
                yield Construct(rule, match[0][:_SHOWN_CHARS], text.count("\n", 0, match.start()) + 1)
    if any(needle in text for needle in _CALL_NEEDLES):
        for match in _first(_CALLS, text, limit=200):
            url = match[1] or match[2] or match[3]
            yield Construct("connect", url, text.count("\n", 0, match.start()) + 1)


def _first(pattern: re.Pattern[str], text: str, limit: int = _MAX_PER_CONSTRUCT) -> Iterator[re.Match[str]]:
    return islice(pattern.finditer(text), limit)


def _plain_letter(match: re.Match[str]) -> str:
    letter = chr(int(match[1] or match[2], 16))
    return letter if letter.isalnum() or letter in "_$" else match[0]

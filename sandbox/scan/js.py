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

_GAP = r"(?:\s++|/\*(?:[^*]|\*(?!/)){0,200}+\*/|//[^\n]{0,400}+\n)*+"
_QUOTE = r"[\"'`]"
_URL = rf"{_QUOTE}([^\"'`\s]{{1,2000}}+)"
_WORD = r"(?<![\w$])"
_BIDI = tuple("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")

_CONSTRUCTS: tuple[tuple[str, tuple[str, ...], re.Pattern[str]], ...] = tuple(
    (rule, needles, re.compile(pattern))
    for rule, needles, pattern in (
        ("eval-like", ("eval",), rf"{_WORD}eval{_GAP}(?:[(),;:=}}`]|\?\.|$)|\[{_GAP}{_QUOTE}eval{_QUOTE}{_GAP}\]"),
        ("eval-like", ("Function",), rf"{_WORD}Function{_GAP}[(`]|construct{_GAP}\({_GAP}Function(?![\w$])"),
        ("eval-like", ("constructor",), rf"constructor{_QUOTE}?\]?{_GAP}\({_GAP}{_QUOTE}"),
        ("eval-like", ("setTimeout", "setInterval"), rf"{_WORD}set(?:Timeout|Interval){_GAP}\({_GAP}{_QUOTE}"),
        ("eval-like", ("execScript",), rf"{_WORD}execScript{_GAP}\("),
        (
            "eval-like",
            ("document",),
            rf"{_WORD}document{_GAP}(?:\.{_GAP}|\[{_GAP}{_QUOTE})write(?:ln)?(?:{_QUOTE}\])?{_GAP}\(",
        ),
        ("eval-like", ("WebAssembly",), rf"{_WORD}WebAssembly(?![\w$])"),
        ("data-script", ("import",), rf"{_WORD}import(?:Scripts)?{_GAP}\({_GAP}{_QUOTE}(?:data|blob):"),
        (
            "worker",
            ("Worker",),
            rf"{_WORD}new\s{{1,20}}(?:[\w$]{{1,40}}{_GAP}(?:\.{_GAP}|\[{_QUOTE}))?(?:Shared)?Worker(?![\w$])",
        ),
        ("worker", ("serviceWorker",), rf"{_WORD}serviceWorker(?![\w$])"),
        ("worker", ("addModule",), rf"\.{_GAP}addModule{_GAP}\("),
        ("peer-connection", ("RTCPeerConnection",), r"RTCPeerConnection(?![\w$])"),
        ("bidi-control", _BIDI, f"[{''.join(_BIDI)}]"),
        ("worker", ("importScripts",), rf"{_WORD}importScripts{_GAP}\("),
    )
)
_CALLS = re.compile(
    rf"{_WORD}(?:fetch|sendBeacon|WebSocket|WebTransport|EventSource|import){_GAP}\({_GAP}{_URL}"
    rf"|\.open{_GAP}\({_GAP}{_QUOTE}[A-Za-z]{{1,10}}{_QUOTE}{_GAP},{_GAP}{_URL}"
    rf"|{_WORD}(?:from|import){_GAP}{_URL}"
)
_CALL_NEEDLES = ("fetch", "sendBeacon", "WebSocket", "WebTransport", "EventSource", "import", ".open", "from")
_LOADS = re.compile(rf"\.(?:src|srcset){_GAP}={_GAP}{_URL}")
_NAVIGATIONS = re.compile(
    rf"{_WORD}location{_GAP}(?:\.{_GAP}href{_GAP})?={_GAP}{_URL}"
    rf"|{_WORD}location{_GAP}\.{_GAP}(?:assign|replace){_GAP}\({_GAP}{_URL}"
    rf"|{_WORD}window{_GAP}\.{_GAP}open{_GAP}\({_GAP}{_URL}"
)
_URLS: tuple[tuple[str, tuple[str, ...], re.Pattern[str]], ...] = (
    ("connect", _CALL_NEEDLES, _CALLS),
    ("load", (".src",), _LOADS),
    ("navigate", ("location", ".open"), _NAVIGATIONS),
)
_LETTER_ESCAPE = re.compile(r"\\u(?:00([0-7][0-9a-fA-F])|\{0{0,8}([0-7][0-9a-fA-F])\})")
_SHOWN_CHARS = 40
_MAX_PER_CONSTRUCT = 20


class Construct(NamedTuple):
    """One construct at one place."""

    rule: str
    """A key of the rule table, or `connect`, `load` or `navigate` for a URL that the script uses so."""
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
    for rule, needles, pattern in _URLS:
        if any(needle in text for needle in needles):
            for match in _first(pattern, text, limit=200):
                yield Construct(rule, match[match.lastindex or 0], text.count("\n", 0, match.start()) + 1)


def _first(pattern: re.Pattern[str], text: str, limit: int = _MAX_PER_CONSTRUCT) -> Iterator[re.Match[str]]:
    return islice(pattern.finditer(text), limit)


def _plain_letter(match: re.Match[str]) -> str:
    letter = chr(int(match[1] or match[2], 16))
    return letter if letter.isalnum() or letter in "_$" else match[0]

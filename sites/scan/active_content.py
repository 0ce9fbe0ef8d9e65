"""References and active content in style sheets and scripts (threat G5).

Only a few constructs matter, and a full CSS parser in Python needs a second per megabyte, so regular expressions skip
the rest. They follow CSS's rules for comments, strings and escapes, which can hide a `url(` from a naive search.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

_ESCAPE = r"\\(?:[0-9a-fA-F]{1,6}[ \t\n]?|[^0-9a-fA-F\n])"
_NAME = rf"(?:[A-Za-z0-9_\-\x80-\U0010ffff]|{_ESCAPE})"
_STRING = rf"\"(?:[^\"\\\n]|\\\n|{_ESCAPE})*+[\"\\]?|'(?:[^'\\\n]|\\\n|{_ESCAPE})*+['\\]?"
_COMMENT = r"/\*(?:[^*]|\*(?!/))*+(?:\*/|\Z)"
_TOKEN = re.compile(
    rf"(?:{_COMMENT}|\#{_NAME}++|[^\"'/\\@A-Za-z0-9_\-(){{}};\x80-\U0010ffff]|/(?!\*))*+"
    rf"(?:(?P<string>{_STRING})|(?P<at>@{_NAME}++)|(?P<name>{_NAME}++)(?P<call>\()?|(?P<mark>[(){{}};@\\])|\Z)"
)
_STYLE_URL = re.compile(rf"[ \t\n]*+(?:(?P<string>{_STRING})|(?P<bare>(?:\\[\s\S]|\\\Z|[^\\)])*+)\)?)")
_ONE_ESCAPE = re.compile(r"\\(?:([0-9a-fA-F]{1,6})[ \t\n]?|\n|([\s\S])|\Z)")
_NEWLINES = re.compile(r"\r\n|\r|\f")
_IS_PROPERTY = re.compile(rf"(?:[ \t\n]|{_COMMENT})*+:")
_WORTH_READING = re.compile(
    r"\\|url\(|@import|src\(|image\(|image-set|cross-fade|expression\(|-moz-binding|behavior|-o-link|text-security",
    re.IGNORECASE | re.ASCII,
)

_TAKES_STRINGS = frozenset({"image-set", "-webkit-image-set", "image", "cross-fade", "-webkit-cross-fade", "src"})
_COMPUTED = frozenset({"var", "env", "attr", "if", "inherit"})
_RUNS_CODE = frozenset({"-moz-binding", "behavior", "-ms-behavior", "-o-link", "-o-link-source"})
_MASKS_TEXT = frozenset({"-webkit-text-security", "text-security"})
_LAST_CODE_POINT = 0x10FFFF


class Found(NamedTuple):
    """Something that a style sheet or a script loads, contacts or runs."""

    kind: str
    """Of a style sheet: its use. Of a script: a key of `RULES`, or `connect`, `load` or `navigate` for a URL."""
    text: str
    """The URL, or the name or text of what runs."""
    line: int
    """Counted from 1 within the style sheet or script."""


def references(css: str) -> Iterator[Found]:
    """Yield everything that a style sheet loads, and every attempt to run code or to mask typed text."""
    text = _NEWLINES.sub("\n", css)
    if _WORTH_READING.search(text):
        yield from _Reader(text).read()


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = ""
        self._calls: list[bool] = []  # per open parenthesis: whether its strings are URLs
        self._line, self._counted = 1, 0

    def read(self) -> Iterator[Found]:
        position, size = 0, len(self._text)
        while position < size:
            token = _TOKEN.match(self._text, position)
            if token is None:
                position += 1
                continue
            position = token.end()
            kind = token.lastgroup
            if kind == "mark":
                self._mark(token["mark"])
            elif kind == "at":
                self._at = _plain(token["at"]).lower()
            elif kind == "string":
                if self._at == "@import" or (self._calls and self._calls[-1]):
                    yield self._reference(_unquote(token["string"]), token.start("string"))
            elif kind in ("name", "call"):
                found, position = self._name(token)
                if found:
                    yield found

    def _mark(self, mark: str) -> None:
        if mark == "(":
            self._calls.append(bool(self._calls) and self._calls[-1])
        elif mark == ")" and self._calls:
            self._calls.pop()
        elif mark in "};" or (mark == "{" and self._at != "@font-face"):
            if not (mark == ";" and self._at == "@font-face"):
                self._at = ""
            self._calls.clear()

    def _name(self, token: re.Match[str]) -> tuple[Found | None, int]:
        name, end = _plain(token["name"]).lower(), token.end()
        if name in _RUNS_CODE and _IS_PROPERTY.match(self._text, end):
            return Found("active", name, self._line_of(end)), end
        if name in _MASKS_TEXT and _IS_PROPERTY.match(self._text, end):
            return Found("masked", name, self._line_of(end)), end
        if not token["call"]:
            return None, end
        if self._calls and self._calls[-1] and (name in _COMPUTED or name.startswith("--")):
            self._calls.append(False)
            return Found("active", f"URL made by {name}()", self._line_of(end)), end
        if name == "expression":
            return Found("active", name, self._line_of(end)), end
        if name != "url":
            self._calls.append(name in _TAKES_STRINGS)
            return None, end
        url = _STYLE_URL.match(self._text, end)
        if url is None or self._at == "@namespace":  # a name, which is not loaded
            return None, url.end() if url else end
        if url["string"] is not None:
            self._calls.append(False)
            return self._reference(_unquote(url["string"]), end), url.end()
        return self._reference(_plain(url["bare"].strip()), end), url.end()

    def _reference(self, url: str, offset: int) -> Found:
        return Found({"@import": "style", "@font-face": "font"}.get(self._at, "image"), url, self._line_of(offset))

    def _line_of(self, offset: int) -> int:
        self._line += self._text.count("\n", self._counted, offset)
        self._counted = offset
        return self._line


def _unquote(string: str) -> str:
    quote = string[0]
    if len(string) > 1 and string[-1] == quote:
        return _plain(string[1:-1])
    return _plain(string[1:]).removesuffix("\ufffd")  # a backslash at the end of the file


def _plain(text: str) -> str:
    return _ONE_ESCAPE.sub(_unescape, text) if "\\" in text else text


def _unescape(match: re.Match[str]) -> str:
    if match[1]:
        code = int(match[1], 16)
        return chr(code) if 0 < code <= _LAST_CODE_POINT and not 0xD800 <= code <= 0xDFFF else "\ufffd"
    return "\ufffd" if match[0] == "\\" else match[2] or ""


# JavaScript is searched, not parsed: a program can build the word `eval` out of letters. The search tells an honest
# author before the page breaks; what is hidden from it is stopped by the Content-Security-Policy.

_GAP = r"(?:\s++|/\*(?:[^*]|\*(?!/)){0,200}+\*/|//[^\n]{0,400}+\n)*+"
_QUOTE = r"[\"'`]"
_SCRIPT_URL = rf"{_QUOTE}([^\"'`\s]{{1,2000}}+)"
_WORD = r"(?<![\w$])"
_CALL = rf"{_GAP}(?:\?\.{_GAP})?\("


def _member(names: str) -> str:
    """Return a pattern of a member by one of these names, however it is written."""
    by_text = rf"(?:\?\.{_GAP})?\[{_GAP}{_QUOTE}(?:{names}){_QUOTE}{_GAP}\]"
    return rf"{_GAP}(?:\??\.{_GAP}(?:{names})(?![\w$])|{by_text})"


_NAVIGATES = (
    rf"(?:{_WORD}location(?:{_QUOTE}{_GAP}\])?"
    rf"(?:(?:{_member('href')})?{_GAP}=(?!=)|{_member('assign|replace')}{_CALL})"
    rf"|{_WORD}(?:window|self|top|parent|globalThis|frames){_member('open')}{_CALL}){_GAP}"
)
"""What a script leads visitors away with, up to the address."""
_UNDECIDED = (
    rf"(?:{_QUOTE}{{2}}{_GAP}\+{_GAP})*+"
    rf"(?:\[|`?\$\{{{_GAP}{_QUOTE}|{_QUOTE}[^\"'`/.?#\s$:]{{1,200}}+(?:{_QUOTE}{_GAP}(?:\+|\.{_GAP}concat)|\$\{{))"
)
"""An address joined from parts, of which the first neither names a host nor begins a path."""
_PARTS = rf"(?:[^\"'`\\\s]{{0,40}}+{_QUOTE}{_GAP}(?:\+|\.{_GAP}concat)|[^\"'`\\\s$]{{0,40}}+\$\{{{_GAP}{_QUOTE})"
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
        ("computed-navigation", ("location", "open"), _NAVIGATES + _UNDECIDED),
        (
            "computed-navigation",
            ("+", "concat", "${"),
            rf"{_WORD}(?:window|self|globalThis|top|parent|opener|document|frames|this){_GAP}(?:\?\.)?{_GAP}"
            rf"\[{_GAP}{_QUOTE}{_PARTS}",
        ),
        ("peer-connection", ("RTCPeerConnection",), r"RTCPeerConnection(?![\w$])"),
        ("bidi-control", _BIDI, f"[{''.join(_BIDI)}]"),
        ("worker", ("importScripts",), rf"{_WORD}importScripts{_GAP}\("),
    )
)
_CALLS = re.compile(
    rf"{_WORD}(?:fetch|sendBeacon|WebSocket|WebTransport|EventSource|import){_GAP}\({_GAP}{_SCRIPT_URL}"
    rf"|\.open{_GAP}\({_GAP}{_QUOTE}[A-Za-z]{{1,10}}{_QUOTE}{_GAP},{_GAP}{_SCRIPT_URL}"
    rf"|{_WORD}(?:from|import){_GAP}{_SCRIPT_URL}"
)
_CALL_NEEDLES = ("fetch", "sendBeacon", "WebSocket", "WebTransport", "EventSource", "import", ".open", "from")
_LOADS = re.compile(rf"\.(?:src|srcset){_GAP}={_GAP}{_SCRIPT_URL}")
_NAVIGATIONS = re.compile(rf"(?:{_NAVIGATES}|(?<![\w$.])open{_CALL}{_GAP}){_SCRIPT_URL}")
_URLS: tuple[tuple[str, tuple[str, ...], re.Pattern[str]], ...] = (
    ("connect", _CALL_NEEDLES, _CALLS),
    ("load", (".src",), _LOADS),
    ("navigate", ("location", "open"), _NAVIGATIONS),
)
_LETTER_ESCAPE = re.compile(r"\\u(?:00([0-7][0-9a-fA-F])|\{0{0,8}([0-7][0-9a-fA-F])\})")
_SHOWN_CHARS = 40
_MAX_PER_CONSTRUCT = 20


def constructs(source: str) -> Iterator[Found]:
    """Yield the refused constructs of a script, and the URLs that it contacts."""
    text = _LETTER_ESCAPE.sub(_plain_letter, source) if "\\u" in source else source
    for rule, needles, pattern in _CONSTRUCTS:
        if any(needle in text for needle in needles):
            for match in _first(pattern, text):
                yield Found(rule, match[0][:_SHOWN_CHARS], text.count("\n", 0, match.start()) + 1)
    for rule, needles, pattern in _URLS:
        if any(needle in text for needle in needles):
            for match in _first(pattern, text, limit=200):
                yield Found(rule, match[match.lastindex or 0], text.count("\n", 0, match.start()) + 1)


def _first(pattern: re.Pattern[str], text: str, limit: int = _MAX_PER_CONSTRUCT) -> Iterator[re.Match[str]]:
    return islice(pattern.finditer(text), limit)


def _plain_letter(match: re.Match[str]) -> str:
    letter = chr(int(match[1] or match[2], 16))
    return letter if letter.isalnum() or letter in "_$" else match[0]

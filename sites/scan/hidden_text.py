"""Hidden text that addresses a machine, which no visitor sees (D7): approvers are shown it.

It is not removed: a patch must match the exact bytes, a comment may be the owner's, and a model that reads files itself
would see it anyway. The rules are simple and for English; no boundary depends on them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from html import unescape
from typing import Final, NamedTuple

MAX_FOUND: Final = 20
"""Places that are reported at most."""
_MAX_FILE_CHARS: Final = 512 * 1024
_MAX_SHOWN: Final = 120
_MAX_ELEMENTS: Final = 1000
_MAX_HIDDEN_CHARS: Final = 4000
"""Characters that are checked of one hidden element."""
_LONG_WORDS: Final = 60
"""So many hidden words are reported whatever they say."""
_TEXT: Final = (".html", ".htm", ".svg", ".xml", ".css", ".js", ".mjs", ".json", ".md", ".txt", ".webmanifest")
_MARKUP: Final = (".html", ".htm", ".svg", ".xml", ".md")

_START_TAG: Final = re.compile(r"<([a-zA-Z][a-zA-Z0-9-]{0,30})((?:\s[^<>]{0,2000})?)>")
_HIDING: Final = re.compile(
    r"display\s*:\s*none|visibility\s*:\s*hidden|font-size\s*:\s*0|opacity\s*:\s*0(?![.\d])|text-indent\s*:\s*-\d{3,}"
    r"|(?:left|top)\s*:\s*-\d{4,}|(?:^|\s)hidden(?=[\s=]|$)",
    re.IGNORECASE,
)
_TAG: Final = re.compile(r"<[^<>]{0,2000}>")
_UNSEEN: Final = re.compile(
    "[\U000e0000-\U000e007f]"  # tag characters: ASCII that is never drawn
    "|[\u202d\u202e]"  # bidirectional overrides
    "|[\u200b-\u200d\u2060-\u2064\ufeff]{3,}|[\ufe00-\ufe0f\U000e0100-\U000e01ef]{2,}"
)
_ADDRESSED: Final = re.compile(
    r"\b(?:ignore|disregard|forget|override)\b.{0,60}\b(?:instruction|rule|prompt|above|previous|everything|guideline)"
    r"|\b(?:system prompt|language model|assistant|claude|chatgpt|gpt-?\d|gemini|copilot|llms?|(?:ai|coding) agents?)\b"
    r"|\byou (?:must|should|have to|shall|will|are)\b|\bdo not (?:tell|mention|reveal|show|inform)\b"
    r"|\b(?:print|reveal|send|post|upload|exfiltrate)\b.{0,60}\b(?:env\w*|keys?|tokens?|secrets?|passwords?|credentials?)\b"
    r"|\b(?:curl|wget|npm (?:i|install)|pip install|bash -c|eval)\b",
    re.IGNORECASE | re.DOTALL,
)


class Hidden(NamedTuple):
    """One place with hidden text."""

    path: str
    line: int
    kind: str
    """`comment`, `hidden element` or `invisible characters`."""
    text: str
    """The text, escaped to ASCII and cut."""


def hidden_text(files: Mapping[str, bytes]) -> tuple[Hidden, ...]:
    """Return the first places of a site that address a machine and not a visitor, by path."""
    found: list[Hidden] = []
    for path, data in sorted(files.items()):
        if path.lower().endswith(_TEXT) and len(found) < MAX_FOUND:
            text = data.decode("utf-8", "replace")[:_MAX_FILE_CHARS]
            places = sorted(_in_file(path, text))[: MAX_FOUND - len(found)]
            found += [Hidden(path, text.count("\n", 0, at) + 1, kind, _shorten(hidden)) for at, kind, hidden in places]
    return tuple(found)


def _in_file(path: str, text: str) -> Iterator[tuple[int, str, str]]:
    """Yield offset, kind and text of each hidden place."""
    for match in _UNSEEN.finditer(text):
        yield match.start(), "invisible characters", text[max(0, match.start() - 20) : match.end() + 20]
    is_markup = path.lower().endswith(_MARKUP)
    for place, comment in _comments(text, *(("<!--", "-->") if is_markup else ("/*", "*/"))):
        if _is_notable(comment):
            yield place, "comment", comment
    hiding = (match for match in _START_TAG.finditer(text) if is_markup and _HIDING.search(unescape(match[2])))
    for number, match in enumerate(hiding):
        if number >= _MAX_ELEMENTS:
            yield match.start(), "hidden element", "more than are looked at"
            return
        if _is_notable(content := _inside(text, match)):
            yield match.start(), "hidden element", content


def _comments(text: str, opening: str, closing: str) -> Iterator[tuple[int, str]]:
    """Yield each comment with its offset; an unclosed one runs to the end."""
    place = text.find(opening)
    while place >= 0:
        end = text.find(closing, place + len(opening))
        yield place, text[place + len(opening) : end if end >= 0 else len(text)]
        place = text.find(opening, end) if end >= 0 else -1


def _inside(text: str, start: re.Match[str]) -> str:
    """Return an element's text up to the first end tag of its name."""
    part = text[start.end() : start.end() + _MAX_HIDDEN_CHARS]
    end = re.search(rf"</{re.escape(start[1])}", part, re.IGNORECASE)
    return unescape(_TAG.sub(" ", part[: end.start()] if end else part))


def _is_notable(text: str) -> bool:
    return bool(_ADDRESSED.search(text)) or len(text.split()) >= _LONG_WORDS


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return ascii(line[:_MAX_SHOWN])[1:-1] + ("…" if len(line) > _MAX_SHOWN else "")

"""The one canonicalisation: every rule reads the same tokens, and each token knows its place in what was sent.

Quoted copy and code are set apart here, so that no rule takes the words of a headline for an order. Nothing in this
module is quadratic in the length of a prompt; `READ_LIMIT` bounds the rest.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

READ_LIMIT = 8192
"""Characters that are read of a prompt: of a longer one the beginning and the last quarter of this. What is longer is
never taken for a mere question (see `Text.cut`)."""
MAX_MARKS = 30
"""Combining marks that may follow one another; NFKC is quadratic in longer runs."""

_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\U000e0000-\U000e007f]+"
)
_SEGMENT = re.compile(r"[\x00-\x7f]+(?=[\x00-\x7f]|\Z)|[\x00-\x7f]?[^\x00-\x7f]+")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


class Kind(StrEnum):
    """What a token is."""

    WORD = "word"
    NUMBER = "number"
    URL = "url"
    DOMAIN = "domain"
    EMAIL = "email"
    PATH = "path"
    EXTENSION = "extension"
    TAG = "tag"
    QUOTE = "quote"
    CODE = "code"
    FENCE = "fence"
    COMMA = "comma"
    STOP = "stop"
    QUESTION = "question"


class Token(NamedTuple):
    """One word, reference, quotation or mark of a prompt."""

    word: str
    """The key that rules compare: folded, without accents, with straight apostrophes."""
    kind: Kind
    start: int
    end: int
    joined: bool = False
    """Part of a hyphenated word: a collocation may hold it, but alone it orders nothing (`long-run`)."""


@dataclass(frozen=True, slots=True)
class Text:
    """A prompt as the rules read it."""

    shown: str
    """Normalised, in the caller's letters; token offsets refer to it."""
    tokens: tuple[Token, ...]
    cut: bool
    """Whether it was too long to be read whole."""
    breaks: tuple[tuple[int, int], ...] = ()
    """Starts of normalised segments and where they began in the original; empty when nothing was changed."""

    def original_offset(self, offset: int) -> int:
        """Return where in the prompt as sent the character at `offset` stands."""
        if not self.breaks:
            return offset
        shown_at, sent_at = self.breaks[bisect_right(self.breaks, (offset, 1 << 62)) - 1]
        return sent_at + offset - shown_at


def canonicalise(prompt: str) -> Text:
    """Normalise a prompt and cut it into tokens, quotations and code set apart."""
    shown, breaks = _normalise(prompt)
    cut = len(shown) > READ_LIMIT
    if cut:
        tail = READ_LIMIT // 4
        shown = shown[: READ_LIMIT - tail] + "\n\n" + shown[-tail:]
        breaks = ()
    return Text(shown, tuple(_tokens(_fold(shown))), cut, breaks)


def fold_word(word: str) -> str:
    """Return the key of one word: folded, accents off, so that `Sección` and `seccion` are one."""
    if word.isascii():
        return word.lower()
    decomposed = unicodedata.normalize("NFKD", word.casefold())
    return "".join(character for character in decomposed if not unicodedata.combining(character))


def _normalise(prompt: str) -> tuple[str, tuple[tuple[int, int], ...]]:
    if prompt.isascii():
        return (_CONTROL.sub(" ", prompt) if _CONTROL.search(prompt) else prompt), ()
    parts: list[str] = []
    breaks: list[tuple[int, int]] = []
    length = 0
    for segment in _SEGMENT.finditer(prompt):
        part = segment.group()
        if not part.isascii():
            part = unicodedata.normalize("NFKC", _INVISIBLE.sub("", _cut_marks(part)))
        breaks.append((length, segment.start()))
        parts.append(part)
        length += len(part)
    shown = _CONTROL.sub(" ", "".join(parts))
    return shown, tuple(breaks)


def _cut_marks(run: str) -> str:
    if len(run) <= MAX_MARKS:
        return run
    kept: list[str] = []
    marks = 0
    for character in run:
        marks = marks + 1 if unicodedata.category(character)[0] == "M" else 0
        if marks <= MAX_MARKS:
            kept.append(character)
    return "".join(kept)


def _fold(shown: str) -> str:
    """Fold case and apostrophes without moving any character."""
    folded = shown.lower() if shown.isascii() else shown.casefold()
    if len(folded) != len(shown):
        folded = "".join(low if len(low := character.casefold()) == 1 else character for character in shown)
    return folded


# --- quotations and code -------------------------------------------------------------------------------------------

_QUOTES = re.compile(
    r"```|`|\"|“|”|„|«|»|「|」|(?<![\w)])['‘](?=\S)|(?<=\S)['’](?!\w)",
)
_CLOSERS = {'"': '"', "“": "”", "„": "“”", "«": "»", "「": "」", "`": "`", "'": "'’", "‘": "’'"}
_FILL = {Kind.QUOTE: "\x1f", Kind.CODE: "\x1e", Kind.FENCE: "\x1d"}
_MAX_QUOTE = 600


def _set_apart(folded: str) -> list[tuple[int, int, Kind]]:
    """Find quotations and code from left to right; an opening mark that nothing closes is an ordinary character."""
    spans: list[tuple[int, int, Kind]] = []
    opened = -1
    closers = ""
    for mark in _QUOTES.finditer(folded):
        sign, at = mark.group(), mark.start()
        if opened >= 0 and (sign in closers if closers != "```" else sign == "```"):
            kind = Kind.FENCE if closers == "```" else Kind.CODE if sign == "`" else Kind.QUOTE
            spans.append((opened, mark.end(), kind))
            opened = -1
        elif (opened < 0 or (closers != "```" and at - opened > _MAX_QUOTE) or sign == "```") and _opens(
            folded, at, sign
        ):
            opened, closers = at, "```" if sign == "```" else _CLOSERS[sign]
    if opened >= 0 and closers == "```":
        spans.append((opened, len(folded), Kind.FENCE))
    return spans


def _opens(folded: str, at: int, sign: str) -> bool:
    if sign == "```":
        return True
    if sign not in _CLOSERS:
        return False
    return not (sign == '"' and at > 0 and folded[at - 1].isalnum())  # 27" is inches


_PAYLOAD_ORDER = re.compile(r'"(?:op|action|task|operation|command|intent)"\s{0,8}:\s{0,8}"([^"\n]{1,80})"')


def _mask(folded: str) -> tuple[str, dict[int, str]]:
    """Blank out what is quoted; a reference that stands alone in quotes or code keeps its text for the reference rules."""
    if not _QUOTES.search(folded):
        return folded, {}
    spans = _set_apart(folded)
    if not spans or _is_all_quoted(folded, spans):
        return folded, {}
    orders = [(found.start(1), found.end(1)) for found in _PAYLOAD_ORDER.finditer(folded)] if "{" in folded else []
    parts: list[str] = []
    inner: dict[int, str] = {}
    position = 0
    for start, end, kind in spans:
        parts.append(folded[position:start])
        if any(start < low and high < end for low, high in orders):
            parts.append(folded[start:end])
        else:
            parts.append(_FILL[kind] * (end - start))
            inner[start] = folded[start:end].strip("\"'`“”„«»「」‘’")
        position = end
    parts.append(folded[position:])
    return "".join(parts), inner


def _is_all_quoted(folded: str, spans: list[tuple[int, int, Kind]]) -> bool:
    if len(spans) != 1 or spans[0][2] is Kind.FENCE:
        return False
    start, end, _ = spans[0]
    return not (folded[:start] + folded[end:]).strip(" \t\r\n.!")


# --- tokens --------------------------------------------------------------------------------------------------------

_CHUNK = re.compile(r"[\x1d-\x1f]+|[^\s\x1d-\x1f]+|\s*\n\s*\n\s*")
_PIECE = re.compile(
    r"</?[a-z][^<>\s]{0,40}>?|[^\W_]+(?:['’][^\W_]+)*|[.!?;,:()\[\]{}&+–—…|=*¿¡。？！、，-]",
)
_NUMBER = re.compile(r"[#$€£]?\d[\d.,:/%]*(?:px|rem|em|vh|vw|ms|s|pt|k|st|nd|rd|th|%)?")
_STOPS = frozenset(".!;…。！{}|")
_ASKS = frozenset("?？¿")
_EXTENSIONS = "ts|md|js|py|json|yml|yaml|tsx|jsx|css|scss|html|htm|mjs|cjs|vue|svelte|php|xml|toml|txt|svg|png|jpe?g|gif|webp|avif|ico|pdf|woff2?|mp4|csv"
_PROSE_PAIRS = frozenset(
    [
        "and/or",
        "either/or",
        "he/she",
        "she/he",
        "his/her",
        "him/her",
        "s/he",
        "w/o",
        "w/",
        "ci/cd",
        "tcp/ip",
        "i/o",
        "ui/ux",
        "ux/ui",
        "html/css",
        "css/html",
        "css/js",
        "js/css",
        "html/css/js",
        "html/js",
        "24/7",
        "a/b",
        "b/w",
        "on/off",
        "yes/no",
        "light/dark",
        "dark/light",
        "n/a",
        "am/pm",
        "pros/cons",
        "input/output",
        "q/a",
        "q&a",
        "km/h",
        "left/right",
        "before/after",
        "up/down",
        "true/false",
        "home/about",
        "male/female",
        "mon/fri",
        "read/write",
        "drag/drop",
        "true/false",
    ]
)
_DOMAIN = re.compile(r"(?:[a-z0-9-]+\.)+(?:com|io|dev|org|net|co|app|eu|de|uk|fr|es|it|nl|info|shop)(?:[:/?#]\S*)?")
_FILE = re.compile(rf"[\w@~.*-]*[\w*-]\.(?:{_EXTENSIONS})(?::\d+)?")
_BARE_EXTENSION = re.compile(rf"\.(?:{_EXTENSIONS})")
_PATH = re.compile(r"(?:~|\.{1,2})?(?:/[\w@.*+\[\]%-]+)+/?|(?:[\w@.*+-]+/)+(?:[\w@.*+-]+)?|~/|\.{1,2}/|/")
_WHOLE_REFERENCE = re.compile(rf"(?:https?://\S+|(?:[\w@~.*-]*/)+[\w@.*-]*|[\w@~.-]*\w\.(?:{_EXTENSIONS}))")
_EDGE = ".,;:!?()[]{}\"'“”‘’„«»…"


def _tokens(folded: str) -> list[Token]:
    masked, inner = _mask(folded)
    tokens: list[Token] = []
    for chunk in _CHUNK.finditer(masked):
        part, start = chunk.group(), chunk.start()
        if part.isalnum() and part.isascii():
            kind = Kind.NUMBER if part[0].isdigit() and _NUMBER.fullmatch(part) else Kind.WORD
            tokens.append(Token(part, kind, start, chunk.end()))
        elif part[0] in "\x1d\x1e\x1f":
            tokens.append(_apart(part, start, inner.get(start, "")))
        elif part.isspace():
            tokens.append(Token("\n", Kind.STOP, start, chunk.end()))
        else:
            _add_chunk(tokens, part, start)
    return tokens


def _apart(part: str, start: int, inner: str) -> Token:
    end = start + len(part)
    kind = {"\x1d": Kind.FENCE, "\x1e": Kind.CODE}.get(part[0], Kind.QUOTE)
    return Token(inner[:200], kind, start, end)


def is_reference(inner: str) -> bool:
    """Tell whether what stands in quotes or code is a path, a file name or a URL and nothing else."""
    return 1 < len(inner) <= 200 and _WHOLE_REFERENCE.fullmatch(inner) is not None and inner not in _PROSE_PAIRS


def _add_chunk(tokens: list[Token], part: str, start: int) -> None:
    """Add the tokens of a run without blanks that is more than one plain word."""
    core = part.strip(_EDGE) if not part.startswith(("./", "../", ".")) else part.rstrip(_EDGE)
    kind = Kind.WORD if core in LIBRARIES else _reference_kind(core) if core else None
    if kind is None:
        _add_pieces(tokens, part, start)
        return
    begin = part.find(core)
    _add_pieces(tokens, part[:begin], start)
    tokens.append(Token(core, kind, start + begin, start + begin + len(core)))
    _add_pieces(tokens, part[begin + len(core) :], start + begin + len(core))


def _reference_kind(core: str) -> Kind | None:
    if "://" in core:
        return Kind.URL if core.startswith(("http://", "https://")) else None
    if "@" in core and "." in core and "/" not in core:
        return Kind.EMAIL
    if _NUMBER.fullmatch(core):
        return Kind.NUMBER
    if "." in core:
        if _BARE_EXTENSION.fullmatch(core):
            return Kind.EXTENSION
        if len(core) <= 300 and _FILE.fullmatch(core):
            return Kind.PATH
        if len(core) <= 300 and _DOMAIN.fullmatch(core):
            return Kind.DOMAIN
    if "/" in core and "<" not in core and core not in _PROSE_PAIRS and len(core) <= 300 and _PATH.fullmatch(core):
        return Kind.PATH
    return None


LIBRARIES = frozenset(
    [
        "node.js",
        "next.js",
        "nuxt.js",
        "vue.js",
        "three.js",
        "d3.js",
        "p5.js",
        "chart.js",
        "alpine.js",
        "anime.js",
        "express.js",
        "react.js",
        "socket.io",
        "matter.js",
        "backbone.js",
        "ember.js",
        "moment.js",
        "day.js",
        "swiper.js",
        "leaflet.js",
        "tone.js",
        "pixi.js",
        "fullpage.js",
        "aos.js",
        "typed.js",
        "particles.js",
    ]
)
"""Names of libraries that look like files."""


def _add_pieces(tokens: list[Token], part: str, start: int) -> None:
    pieces = list(_PIECE.finditer(part))
    for index, piece in enumerate(pieces):
        sign, at = piece.group(), start + piece.start()
        if sign in "&+":
            tokens.append(Token("and", Kind.WORD, at, start + piece.end()))
        elif sign[0].isalnum():
            joined = _touches_hyphen(pieces, index, part)
            kind = Kind.NUMBER if sign[0].isdigit() and _NUMBER.fullmatch(sign) else Kind.WORD
            tokens.append(Token(_key(sign), kind, at, start + piece.end(), joined))
        elif sign[0] == "<":
            tokens.append(Token(sign, Kind.TAG, at, start + piece.end()))
        elif sign in _ASKS:
            tokens.append(Token(sign, Kind.QUESTION, at, start + piece.end()))
        elif sign in _STOPS:
            if sign == "." and piece.end() < len(part) and part[piece.end()].isalnum():
                continue  # inside a word or a version, not at its end
            tokens.append(Token(sign, Kind.STOP, at, start + piece.end()))
        elif sign != "-" or len(part) == 1:
            tokens.append(Token(sign, Kind.COMMA, at, start + piece.end()))


def _touches_hyphen(pieces: list[re.Match[str]], index: int, part: str) -> bool:
    here = pieces[index]
    before = part[here.start() - 1] if here.start() else ""
    after = part[here.end()] if here.end() < len(part) else ""
    return (before == "-" and here.start() > 1) or (after == "-" and here.end() + 1 < len(part))


@lru_cache(maxsize=8192)
def _key(word: str) -> str:
    return fold_word(word.replace("’", "'"))


@lru_cache(maxsize=8192)
def singular(word: str) -> str:
    """Return the word without a plural or possessive ending, as far as spelling tells."""
    if word.endswith("'s"):
        word = word[:-2]
    if len(word) < 4 or not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return word
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "xes", "zes", "ches", "shes")):
        return word[:-2]
    return word[:-1]

"""Canonicalise a prompt and split it into words, references, quotations and punctuation, each with its offsets.

A quotation or code block is one token, so that no rule takes the words of a headline for an order. Every step is linear
in the length of the text.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

TOKEN_LIMIT = 600
"""Tokens read of a prompt: three quarters from its beginning, the rest from its end."""
MAX_CHUNK = 400
"""Characters read of a run without blanks; no word, path or URL that rules need is longer."""
MAX_QUOTE = 600
"""Characters after which another quotation mark opens a new quotation."""


class Kind(StrEnum):
    """Kind of a token."""

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


@dataclass(slots=True)
class Token:
    """A word, reference, quotation or punctuation mark; no tuple and not frozen, since both would be slow to make."""

    word: str
    """What rules compare: folded, without accents, with straight apostrophes; or the content of a quotation."""
    kind: Kind
    start: int
    end: int
    joined: bool = False
    """Part of a hyphenated word: a collocation may hold it, but alone it orders nothing (`long-run`)."""


WORD, NUMBER, COMMA, FENCE = Kind.WORD, Kind.NUMBER, Kind.COMMA, Kind.FENCE
"""For loops over tokens: on Python 3.11 a member is ten times slower to look up in its enum."""

_BARRED = str.maketrans({"ł": "l", "ø": "o", "đ": "d", "ħ": "h", "ı": "i"})
"""Letters with a stroke, which Unicode does not decompose (`działa`)."""


@lru_cache(maxsize=8192)
def fold_word(word: str) -> str:
    """Return the key of one word: folded, accents off, so that `Sección` and `seccion` are one."""
    word = word.replace("’", "'")
    if word.isascii():
        return word.lower()
    decomposed = unicodedata.normalize("NFKD", word.casefold().translate(_BARRED))
    return "".join(character for character in decomposed if not unicodedata.combining(character))


def singular(word: str) -> str:
    """Return the word without a plural or possessive ending, judged by spelling."""
    if word.endswith("'s"):
        word = word[:-2]
    if len(word) < 4 or not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return word
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "xes", "zes", "ches", "shes")):
        return word[:-2]
    return word[:-1]


# --- quotations and code ---------------------------------------------------------------------------------------------

_QUOTES = re.compile(r"```|`|\"|“|”|„|«|»|「|」|(?<![\w)])['‘](?=\S)|(?<=\S)['’](?!\w)")
_CLOSERS = {'"': '"', "“": "”", "„": "“”", "«": "»", "「": "」", "`": "`", "'": "'’", "‘": "’'"}
_FENCE = "```"
_FILL = {Kind.QUOTE: "\x1f", Kind.CODE: "\x1e", Kind.FENCE: "\x1d"}
_KIND_OF_FILL = {fill: kind for kind, fill in _FILL.items()}
_MARKS = "\"'`“”„«»「」‘’"
_SIGNS = frozenset(_MARKS)
_PAYLOAD_ORDER = re.compile(
    r'"(op|action|task|operation|command|intent|feature|widget|component)"\s{0,8}:\s{0,8}"([^"\n]{1,80})"'
)
_MAX_PAYLOAD_ORDERS = 8


class _Span(NamedTuple):
    start: int
    end: int
    kind: Kind


def _set_apart(folded: str) -> list[_Span]:
    """Find quotations and code; an unclosed mark is an ordinary character, as is any after TOKEN_LIMIT spans."""
    spans: list[_Span] = []
    opened, closers = -1, ""
    for mark in _QUOTES.finditer(folded):
        if len(spans) >= TOKEN_LIMIT:
            break
        sign, at = mark.group(), mark.start()
        if opened >= 0 and (sign == _FENCE if closers == _FENCE else sign in closers):
            kind = Kind.FENCE if closers == _FENCE else Kind.CODE if sign == "`" else Kind.QUOTE
            spans.append(_Span(opened, mark.end(), kind))
            opened = -1
        elif sign == _FENCE and closers != _FENCE:
            opened, closers = at, _FENCE
        elif (opened < 0 or (closers != _FENCE and at - opened > MAX_QUOTE)) and _opens(folded, at, sign):
            opened, closers = at, _CLOSERS[sign]
    if opened >= 0 and closers == _FENCE:
        spans.append(_Span(opened, len(folded), Kind.FENCE))
    return spans


def _opens(folded: str, at: int, sign: str) -> bool:
    is_inches = sign == '"' and at > 0 and folded[at - 1].isalnum()
    return sign in _CLOSERS and not is_inches


def _mask(folded: str) -> tuple[str, dict[int, str]]:
    """Replace quotations and code by fillers of the same length; return the text, and their contents by start."""
    if _SIGNS.isdisjoint(folded):
        return folded, {}
    spans = _set_apart(folded)
    if not spans or _is_all_quoted(folded, spans):
        return folded, {}
    found = islice(_PAYLOAD_ORDER.finditer(folded), _MAX_PAYLOAD_ORDERS)
    orders = [each.span(group) for each in found for group in (1, 2)]
    parts: list[str] = []
    inner: dict[int, str] = {}
    position = 0
    for start, end, kind in spans:
        parts.append(folded[position:start])
        if any(start < low and high < end for low, high in orders):
            parts.append(folded[start:end])
        else:
            parts.append(_FILL[kind] * (end - start))
            inner[start] = folded[start:end].strip(_MARKS)
        position = end
    parts.append(folded[position:])
    return "".join(parts), inner


def _is_all_quoted(folded: str, spans: list[_Span]) -> bool:
    """Return whether the whole prompt is one quotation, which then quotes nothing."""
    if len(spans) != 1 or spans[0].kind is Kind.FENCE:
        return False
    return not (folded[: spans[0].start] + folded[spans[0].end :]).strip(" \t\r\n.!")


# --- references ------------------------------------------------------------------------------------------------------

_NUMBER = re.compile(r"[#$€£]?\d[\d.,:/%]*(?:px|rem|em|vh|vw|ms|s|pt|k|st|nd|rd|th|%)?")
_EXTENSIONS = (
    r"(?:ts|md|js|py|json|yml|yaml|tsx|jsx|css|scss|html|htm|mjs|cjs|vue|svelte|php|xml|toml|txt|svg|png|jpe?g|gif|webp|avif"
    r"|ico|pdf|woff2?|mp4|csv|sql|sh|ini|conf|log|docx|xlsx|zip)"
)
_PROSE_PAIR = re.compile(
    r"and/or|either/or|s?he/s?he|his/hers?|him/her|s/he|w/o?|ci/cd|tcp/ip|i/o|u[ix]/u[ix]|(?:html|css|js)(?:/(?:html|css|js))+"
    r"|24/7|a/b|b/w|on/off|yes/no|light/dark|dark/light|n/a|am/pm|pros/cons|input/output|q/a|km/h|left/right|before/after"
    r"|up/down|true/false|male/female|read/write|client/server|seo/sem|b2b/b2c|drag/drop|png/jpe?g|jpe?g/png|serif/sans|\d.*"
)
"""Words with a slash that are not paths (A7)."""
_LIBRARY = re.compile(
    r"(?:node|next|nuxt|vue|three|d3|p5|chart|alpine|anime|express|react|matter|backbone|ember|moment|day|swiper|leaflet|tone"
    r"|pixi|fullpage|aos|typed|particles|fuse|masonry)\.js|socket\.io"
)
"""Names of libraries that look like files (A7)."""
_DOMAIN = re.compile(r"(?:[a-z0-9-]+\.)+(?:com|io|dev|org|net|co|app|eu|de|uk|fr|es|it|nl|info|shop)(?:[:/?#]\S*)?")
_FILE = re.compile(rf"[\w@~.*-]*[\w*-]\.{_EXTENSIONS}(?::\d+)?")
_BARE_EXTENSION = re.compile(rf"\.{_EXTENSIONS}")
_PATH = re.compile(r"(?:~|\.{1,2})?(?:/[\w@.*+\[\]%-]+)+/?|(?:[\w@.*+-]+/)+(?:[\w@.*+-]+)?|~/|\.{1,2}/|/")
_WHOLE_REFERENCE = re.compile(rf"https?://\S+|(?:[\w@~.*-]*/)+[\w@.*-]*|[\w@~.-]*\w\.{_EXTENSIONS}")


def is_reference(inner: str) -> bool:
    """Return whether quoted text is just a path, a file name or a URL."""
    if not 1 < len(inner) <= MAX_CHUNK or _PROSE_PAIR.fullmatch(inner):
        return False
    return _WHOLE_REFERENCE.fullmatch(inner) is not None


def _reference_kind(core: str) -> Kind | None:
    """Return the kind of reference of a run without blanks, or None for words and punctuation."""
    if "://" in core:
        return Kind.URL if core.startswith(("http://", "https://")) else None
    if _LIBRARY.fullmatch(core):
        return Kind.WORD
    if "@" in core and "." in core and "/" not in core:
        return Kind.EMAIL
    if _NUMBER.fullmatch(core):
        return Kind.NUMBER
    return _dotted_kind(core) or _slashed_kind(core)


def _dotted_kind(core: str) -> Kind | None:
    if "." not in core:
        return None
    if _BARE_EXTENSION.fullmatch(core):
        return Kind.EXTENSION
    if _FILE.fullmatch(core):
        return Kind.PATH
    return Kind.DOMAIN if _DOMAIN.fullmatch(core) else None


def _slashed_kind(core: str) -> Kind | None:
    is_path = "/" in core and "<" not in core and not _PROSE_PAIR.fullmatch(core) and _PATH.fullmatch(core)
    return Kind.PATH if is_path else None


# --- tokens ----------------------------------------------------------------------------------------------------------

_CHUNK = re.compile(r"([a-z]+)(?!\S)|[\x1d-\x1f]+|[^\s\x1d-\x1f]+|[^\S\x1d-\x1f]{2,}+")
"""A word, fillers, what is no white space, or more than one blank: Python counts fillers as white space."""
_PIECE = re.compile(r"</?[a-z][^<>\s]{0,40}>?|[^\W_]+(?:['’][^\W_]+)*|[.!?;,:()\[\]{}&+–—…|=*¿¡。？！、，-]")
_EDGE = ".,;:!?()[]{}\"'“”‘’„«»…"
_STOPS = frozenset(".!;…。！{}|")
_ASKS = frozenset("?？¿")


def tokenise(folded: str) -> tuple[list[Token], bool]:
    """Return the tokens of a folded text, and whether it was read whole."""
    masked, inner = _mask(folded)
    tokens: list[Token] = []
    beginning = TOKEN_LIMIT * 3 // 4
    position = _add_tokens(tokens, masked, 0, inner, stop_at=beginning)
    if len(tokens) < beginning:
        return tokens, True
    resumed = max(position, len(masked) - TOKEN_LIMIT)
    end = _add_tokens(tokens, masked, resumed, inner, stop_at=TOKEN_LIMIT)
    return tokens, resumed == position and end >= len(masked)


def _add_tokens(tokens: list[Token], masked: str, at: int, inner: dict[int, str], *, stop_at: int) -> int:
    """Add tokens from `at` up to `stop_at` tokens in total; return the end of the last."""
    for chunk in _CHUNK.finditer(masked, at):
        start, at = chunk.span()
        if chunk.lastindex:  # a plain word, as most are
            tokens.append(Token(chunk[0], WORD, start, at))
        else:
            _add_token(tokens, chunk[0], start, inner)
        if len(tokens) >= stop_at:
            break
    return at


def _add_token(tokens: list[Token], part: str, start: int, inner: dict[int, str]) -> None:
    """Add the tokens of a run without blanks that is not a plain word."""
    end = start + len(part)
    if part.isalnum() and part.isascii():
        kind = NUMBER if part[0].isdigit() and _NUMBER.fullmatch(part) else WORD
        tokens.append(Token(part, kind, start, end))
    elif part[0] in _KIND_OF_FILL:
        tokens.append(Token(inner.get(start, "")[:MAX_CHUNK], _KIND_OF_FILL[part[0]], start, end))
    elif part.isspace():
        if part.count("\n") > 1:  # an empty line
            tokens.append(Token("\n", Kind.STOP, start, end))
    else:
        _add_chunk(tokens, part[:MAX_CHUNK], start)


def _add_chunk(tokens: list[Token], part: str, start: int) -> None:
    """Add a reference with the punctuation around it, or separate words."""
    core = part.rstrip(_EDGE) if part[0] == "." else part.strip(_EDGE)
    kind = _reference_kind(core) if core else None
    if kind is None:
        _add_pieces(tokens, part, start)
        return
    begin = part.find(core)
    _add_pieces(tokens, part[:begin], start)
    tokens.append(Token(core, kind, start + begin, start + begin + len(core)))
    _add_pieces(tokens, part[begin + len(core) :], start + begin + len(core))


def _add_pieces(tokens: list[Token], part: str, start: int) -> None:
    for piece in _PIECE.finditer(part):
        sign, first, last = piece.group(), piece.start(), piece.end()
        kind = _piece_kind(sign, part, last)
        if kind is None:
            continue
        if sign in "&+":
            sign = "and"
        joined = kind is WORD and _touches_hyphen(part, first, last)
        word = fold_word(sign) if kind is WORD else sign
        tokens.append(Token(word, kind, start + first, start + last, joined))


def _piece_kind(sign: str, part: str, end: int) -> Kind | None:
    """Return the kind of a piece of a run, or None to skip it."""
    if sign[0].isalnum():
        return NUMBER if sign[0].isdigit() and _NUMBER.fullmatch(sign) else WORD
    if sign in "&+":
        return Kind.WORD
    if sign[0] == "<":
        return Kind.TAG
    if sign in _ASKS:
        return Kind.QUESTION
    if sign in _STOPS:
        is_inside = sign == "." and end < len(part) and part[end].isalnum()
        return None if is_inside else Kind.STOP
    return None if sign == "-" and len(part) > 1 else Kind.COMMA


def _touches_hyphen(part: str, first: int, last: int) -> bool:
    before = first > 1 and part[first - 1] == "-"
    return before or (part[last : last + 1] == "-" and last + 1 < len(part))


# Canonicalisation: NFKC, case folded, without invisible characters. NFKC is quadratic in long runs of combining marks,
# so those are cut first.

READ_LIMIT = 4800
"""Characters read of a prompt: of a longer one the beginning, and a quarter of this from the end. A prompt that is not
read whole never counts as a mere question."""
MAX_MARKS = 30
"""Consecutive combining marks."""

_SEAM = "\n\n"
_UNSEEN = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff"
    "\U000e0000-\U000e007f"
)
_SEGMENT = re.compile(
    rf"[\x00-\x7f]+(?=[\x00-\x7f{_UNSEEN}]|\Z)|(?P<unseen>[{_UNSEEN}]+)|[\x00-\x7f]?[^\x00-\x7f{_UNSEEN}]{{1,512}}"
)
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


class Text(NamedTuple):
    """A canonical prompt."""

    shown: str
    """Normalised but not folded; token offsets refer to it."""
    tokens: tuple[Token, ...]
    cut: bool
    """Whether it was too long to read whole."""
    breaks: tuple[tuple[int, int], ...] = ()
    """Starts of normalised segments with their original starts; empty if nothing moved."""

    def original_offset(self, offset: int) -> int:
        """Convert an offset in `shown` to one in the prompt as sent."""
        if not self.breaks:
            return offset
        shown_at, sent_at = self.breaks[max(bisect_right(self.breaks, (offset, 1 << 62)) - 1, 0)]
        return sent_at + offset - shown_at


def canonicalise(prompt: str) -> Text:
    """Normalise and tokenise a prompt."""
    sent, skipped = _shorten(prompt)
    shown, breaks = _normalise(sent)
    if skipped:
        seam = READ_LIMIT - READ_LIMIT // 4
        breaks = tuple((at, origin + skipped if origin >= seam else origin) for at, origin in breaks)
    is_cut = skipped > 0 or len(shown) > 2 * READ_LIMIT
    shown = shown[: 2 * READ_LIMIT]
    tokens, are_all = tokenise(_fold(shown))
    return Text(shown, tuple(tokens), is_cut or not are_all, breaks)


def _shorten(prompt: str) -> tuple[str, int]:
    """Return the part of a prompt to read, and the number of characters skipped at the seam."""
    if len(prompt) <= READ_LIMIT:
        return prompt, 0
    tail = READ_LIMIT // 4
    return prompt[: READ_LIMIT - tail] + _SEAM + prompt[-tail:], len(prompt) - READ_LIMIT - len(_SEAM)


def _normalise(sent: str) -> tuple[str, tuple[tuple[int, int], ...]]:
    if sent.isascii() and len(sent) <= READ_LIMIT:
        return _CONTROL.sub(" ", sent), ()
    parts: list[str] = []
    breaks: list[tuple[int, int]] = []
    length = 0
    for start, part in _segments(sent):
        if length > 2 * READ_LIMIT:
            break
        breaks.append((length, start))
        parts.append(part)
        length += len(part)
    return _CONTROL.sub(" ", "".join(parts)), tuple(breaks)


def _segments(sent: str) -> Iterator[tuple[int, str]]:
    """Yield normalised segments with their starts, split where no character can combine, and at the seam."""
    seam = READ_LIMIT - READ_LIMIT // 4
    for half, begin in ((sent[:seam], 0), (sent[seam:], seam)):
        for segment in _SEGMENT.finditer(half):
            part = segment.group()
            if segment.lastgroup:
                continue
            if not part.isascii():
                part = unicodedata.normalize("NFKC", _cut_marks(part))
            yield begin + segment.start(), part


def _cut_marks(run: str) -> str:
    if len(run) <= MAX_MARKS:
        return run
    letters: list[str] = []
    marks = 0
    for character in run:
        marks = marks + 1 if unicodedata.category(character)[0] == "M" else 0
        if marks <= MAX_MARKS:
            letters.append(character)
    return "".join(letters)


def _fold(shown: str) -> str:
    """Fold case without changing offsets."""
    folded = shown.lower() if shown.isascii() else shown.casefold()
    if len(folded) != len(shown):
        folded = "".join(low if len(low := character.casefold()) == 1 else character for character in shown)
    return folded

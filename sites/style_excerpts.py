"""Which rules of a style sheet a request concerns: those of the elements around its words, and what all looks rest on.

The words of looks are of the languages that the builder speaks. One that is missing costs a look at the sheet, and a
word of another meaning costs tokens; no boundary depends on them.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

MAX_SHEET_BYTES: Final = 16 * 1024
"""Shown of one large style sheet at most."""
SMALL_SHEET_BYTES: Final = 8 * 1024
"""A style sheet so small is shown whole, whatever is asked: it costs less than to be without it."""
_NEAR_LINES: Final = 12
_MERGED_LINES: Final = 3
"""Rules with so few lines between them are shown as one part."""

_LOOKS: Final = re.compile(
    # colours
    r"colou?r|farb|couleur|kleur|kolor|\bcor(?:es)?\b|\bred\b|\bblue|\bgreen|orange|yellow|purple|pink|\bblack|\bwhite"
    r"|gr[ae]y|\bnavy|golden|\brote?[nrs]?\b|\bblau|\bgrün|\bgelb|schwarz|weiß|\bgrau|\blila|\brosa\b|rouge|\bbleu|\bverts?\b"
    r"|\bjaune|\bnoir|\bblanc|\bgris|\broj[oa]|\bazul|\bverde|naranj|amarill|\bnegr[oa]|\bross[oi]|\bblu\b|\bgiall|\bner[oi]\b"
    r"|bianc|grigi|aranci|laranj|amarel|vermelh|oranje|\brood|blauw|groen|\bgeel|zwart|czerwon|niebiesk|zielon|pomarańcz"
    r"|contrast|kontrast|contraste|\bdark|dunkel|dunkl|sombre|oscur|scur[oi]|background|hintergrund|arrière-plan|\bfondo?\b"
    r"|sfondo|achtergrond|\bfundo"
    # letters
    r"|\bfont|schrift|\bpolice|tipograf|caratter|lettertype|czcionk|\bbold|\bfett|en gras|negrita|grassett|italic"
    r"|kursiv|hard to read|readab|legib|lesbar|lesen|lisible|leggib|leesba|czyteln"
    # sizes and places
    r"|larger|bigger|smaller|größ|kleiner|plus (?:grand|gros|petit)|más (?:grande|pequeñ)|più (?:grand|piccol)|groter"
    r"|spacing|margin|padding|layout|abstand|espac|\bmarge|spazi|align|cent(?:er|re)|zentrier|\bcentr|column|spalte|colonn"
    r"|sticky|overlap|überlapp|verrutsch|schief|\bwid(?:e|er|th)\b|narrow|\bbreit|cut off|abgeschnitt|on mobile"
    r"|maior|on (?:a|the|my|their) (?:mobile|phone)|handy|smartphone|\bscreen|bildschirm|pantalla|schermo|écran"
    # the look of it
    r"|\bstyl|\bcss\b|\bstil|estilo|\bstile|\bstijl|design|\blooks?\b|modern|hover|animat|animier|animaz|animac|border"
    r"|rahmen|\bbord|shadow|schatten|\bombr|sombra|rounded|rund|arrondi|redond|arrotond|stand out|auffäll"
    r"|\bkühl|colder|warmer",
    re.IGNORECASE,
)
_WORKINGS: Final = re.compile(
    r"script|click|klick|cliqu|toggle|validat|slider|countdown|calculat|rechner|kalkulator|calculett|calcolat|calculador"
    r"|banner|pop-?up|\btabs?\b|filter|carousel|karussell|lightbox|accordion|cookie|quiz|switch\b|schalter",
    re.IGNORECASE,
)
_COMMENT_OR_STRING: Final = re.compile(r"/\*.*?(?:\*/|\Z)|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.DOTALL)
_IN_PARENTHESES: Final = re.compile(r"\([^()]*\)")
_WORD: Final = re.compile(r"[\w-]{4,}")
_BLANKED: Final = re.compile(r"[^\n]")
_CLASS: Final = re.compile(r"\.(-?[A-Za-z_][\w-]*)")
_CLASSES_OF: Final = re.compile(r"\bclass\s*=\s*(?:\"([^\"]*)\"|'([^']*)')", re.IGNORECASE)
_BASE: Final = re.compile(
    r"(?:^|,)\s*(?:(?::root|html|body|p|h[1-6]|a|button)(?=[:,\[]|\s*(?:,|$))|\.(?:button|btn|cta)\b)", re.I
)


class _Rule(NamedTuple):
    """A block at the top of a style sheet, by lines from 0, end exclusive."""

    first: int
    last: int
    selector: str


def asks_for_looks(prompt: str) -> bool:
    """Whether a request is about how something looks."""
    return bool(_LOOKS.search(prompt))


def needs_styles(prompt: str) -> bool:
    """Whether whoever does a request has to see style sheets: it is about looks, or about something that works."""
    return asks_for_looks(prompt) or bool(_WORKINGS.search(prompt))


def classes_near(pages: Iterable[str], words: frozenset[str], quotes: Sequence[str]) -> dict[str, int]:
    """Return the classes of the elements around some words of a request, each with its distance in lines.

    On each page the lines count that hold a quote or two of the words, or one where no line holds more.
    """
    near: dict[str, int] = {}
    for page in pages:
        lines = page.split("\n")
        held = [_weight(line, words, quotes) for line in lines]
        least = max(1, min(max(held), 2))
        places = [at for at, weight in enumerate(held) if weight >= least]
        for at, line in enumerate(lines):
            if places and (away := _distance(at, places)) <= _NEAR_LINES:
                for match in _CLASSES_OF.finditer(line):
                    for name in (match[1] or match[2] or "").split():
                        near[name] = min(near.get(name, away), away)
    return near


def _distance(at: int, places: Sequence[int]) -> int:
    after = bisect_left(places, at)
    return min(abs(place - at) for place in places[max(0, after - 1) : after + 1])


def _weight(line: str, words: frozenset[str], quotes: Sequence[str]) -> int:
    return 9 * any(quote in line for quote in quotes) + len(words.intersection(_WORD.findall(line.lower())))


def rule_windows(sheet: str, near: Mapping[str, int], *, max_bytes: int = MAX_SHEET_BYTES) -> list[tuple[int, int]]:
    """Return the lines of a large style sheet to show, as disjoint ranges from 0, end exclusive.

    What looks rest on comes first (colours, the text, buttons), then rules of the nearest elements, up to `max_bytes`.
    """
    lines = sheet.split("\n")
    ranked = sorted((rank, rule) for rule in _rules(sheet) if (rank := _rank(rule, near)) is not None)
    taken: set[int] = set()
    for _, rule in ranked:
        added = set(range(rule.first, rule.last)) - taken
        size = sum(len(lines[at].encode()) + 1 for at in added)
        if size <= max_bytes:
            max_bytes -= size
            taken |= added
    return _joined(taken, lines, max_bytes)


def _joined(taken: set[int], lines: list[str], max_bytes: int) -> list[tuple[int, int]]:
    windows: list[tuple[int, int]] = []
    for at in sorted(taken):
        gap = range(windows[-1][1], at) if windows else range(0)
        size = sum(len(lines[between].encode()) + 1 for between in gap)
        if windows and len(gap) <= _MERGED_LINES and size <= max_bytes:
            max_bytes -= size
            windows[-1] = (windows[-1][0], at + 1)
        else:
            windows.append((at, at + 1))
    return windows


def _rank(rule: _Rule, near: Mapping[str, int]) -> int | None:
    """Return how early a rule is shown; None for one that the request does not concern."""
    if not rule.selector.startswith("@") and _BASE.search(_IN_PARENTHESES.sub("", rule.selector)):
        return -1
    return min((near[name] for name in _CLASS.findall(rule.selector) if name in near), default=None)


def _rules(sheet: str) -> list[_Rule]:
    """Return the blocks at the top of a style sheet; the selector of an at-rule holds those within."""
    text = _COMMENT_OR_STRING.sub(lambda found: _BLANKED.sub(" ", found[0]), sheet)
    rules: list[_Rule] = []
    depth = start = line = first = 0
    selector: list[str] = []
    for found in re.finditer(r"[{};\n]", text):
        mark = found[0]
        if mark == "\n":
            line += 1
            continue
        if mark == "{" or (mark == ";" and not depth):
            selector.append(text[start : found.start()])
        if not depth and mark in "{;":
            first = line - selector[-1].strip().count("\n")
        depth = max(0, depth + (mark == "{") - (mark == "}"))
        start = found.end()
        if mark != "{" and not depth:
            rules.append(_Rule(first, line + 1, " ".join(selector).strip()))
            selector = []
    return rules

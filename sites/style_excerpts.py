"""Which rules of a style sheet a request concerns: those of its page's elements, the nearest to its words first.

What the pages do not use is left out, so that the rule in question is there in whatever language one asks. The words of
looks only say how much is shown. One that is missing costs a look at part of the sheet, and a word of another meaning
costs tokens; no boundary depends on them.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

MAX_SHEET_BYTES: Final = 32 * 1024
"""Shown of one large style sheet at most: what a site of the builder uses of its own fits."""
SMALL_SHEET_BYTES: Final = 8 * 1024
"""A style sheet so small is shown whole; and so much of a larger one where a request does not speak of looks."""
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
_COMMENT_OR_STRING: Final = re.compile(r"/\*.*?(?:\*/|\Z)|\"(?:\\.|[^\"\\\n])*\"?|'(?:\\.|[^'\\\n])*'?", re.DOTALL)
_IN_PARENTHESES: Final = re.compile(r"\([^()]*\)")
_NESTED: Final = 4
"""So deep are parentheses looked into."""
_WORD: Final = re.compile(r"[\w-]{4,}")
_BLANKED: Final = re.compile(r"[^\n]")
_NAME: Final = re.compile(r"[.#]?-?[A-Za-z_](?:\\.|[\w-])*")
_NOT_NAMES: Final = re.compile(r"\[[^\[\]]*\]|(?<!\\)::?[\w-]+")
_SCRIPT_EDGE: Final = re.compile(r"<script\b[^<>]{0,4000}>|</script", re.IGNORECASE)
_SCRIPT_NAME: Final = re.compile(r"-?[A-Za-z_][\w-]*")
_APART: Final = ("@keyframes", "@-", "@font-face", "@import")
"""At-rules whose blocks hold no selector."""
_TAG: Final = re.compile(r"<(/?)([A-Za-z][\w-]{0,30})((?:\s[^<>]{0,4000})?)/?>")
_ATTRIBUTE: Final = re.compile(r"(?<![\w-])(class|id)\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'<>]+))", re.IGNORECASE)
_BASE: Final = re.compile(
    r"(?:^|,)\s*(?:(?::root|html|body|p|h[1-6]|a|button)(?=[:,\[]|\s*(?:,|$))|\.(?:button|btn|cta)\b)", re.I
)


class _Rule(NamedTuple):
    """A block at the top of a style sheet, by lines from 0, end exclusive."""

    first: int
    last: int
    selectors: tuple[str, ...]
    """Its own; those within an at-rule follow."""


def asks_for_looks(prompt: str) -> bool:
    """Whether a request is about how something looks."""
    return bool(_LOOKS.search(prompt))


def needs_styles(prompt: str) -> bool:
    """Whether whoever does a request has to see style sheets: it is about looks, or about something that works."""
    return asks_for_looks(prompt) or bool(_WORKINGS.search(prompt))


def names_near(
    pages: Sequence[str], scripts: Iterable[str], words: frozenset[str], quotes: Sequence[str]
) -> dict[str, int]:
    """Return the elements, classes and ids of pages, each with its distance in lines from some words of a request.

    On each page the lines count that hold a quote or two of the words, or one where no line holds more. What holds such
    a line is at 0; what is on other pages, or is only set by a script, is farthest.
    """
    near: dict[str, int] = {}
    farthest = max((page.count("\n") for page in pages), default=0) + 1
    for page in pages:
        held = [_weight(line, words, quotes) for line in page.split("\n")]
        least = max(1, min(max(held), 2))
        places = [at for at, weight in enumerate(held) if weight >= least]
        for first, last, names in _elements(page):
            away = _distance(first, last, places) if places else farthest
            for name in names:
                near[name] = min(near.get(name, away), away)
    for script in (*scripts, *(inline for page in pages for inline in _inline_scripts(page))):
        for name in set(_SCRIPT_NAME.findall(script)):
            near.setdefault(f".{name}", farthest)
    return near


def _inline_scripts(page: str) -> Iterator[str]:
    """Yield what stands between a script's tags, each character at most once, however many are never closed."""
    began: int | None = None
    for edge in _SCRIPT_EDGE.finditer(page):
        if not edge[0].startswith("</"):
            began = edge.end() if began is None else began
        elif began is not None:
            yield page[began : edge.start()]
            began = None


def _elements(page: str) -> list[tuple[int, int, tuple[str, ...]]]:
    """Return each element's first and last line, from 0, and its names; one that nothing closes is one tag long."""
    elements: list[tuple[int, int, tuple[str, ...]]] = []
    opened: dict[str, list[int]] = {}
    line = at = 0
    for tag in _TAG.finditer(page):
        line += page.count("\n", at, tag.start())
        at = tag.start()
        name = tag[2].lower()
        if not tag[1]:
            opened.setdefault(name, []).append(len(elements))
            elements.append((line, line, (name, *_names_of(tag[3]))))
        elif opened.get(name):
            index = opened[name].pop()
            elements[index] = (elements[index][0], line, elements[index][2])
    return elements


def _names_of(attributes: str) -> list[str]:
    return [
        ("#" if attribute[1].lower() == "id" else ".") + name
        for attribute in _ATTRIBUTE.finditer(attributes)
        for name in (attribute[2] or attribute[3] or attribute[4] or "").split()
    ]


def _distance(first: int, last: int, places: Sequence[int]) -> int:
    after = bisect_left(places, first)
    if after < len(places) and places[after] <= last:
        return 0
    return min(abs(place - first) for place in places[max(0, after - 1) : after + 1])


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
    """Return how early a rule is shown; None for one of elements that are not there."""
    own, *within = rule.selectors
    if own.startswith(_APART):
        return max(near.values(), default=0)
    if own.startswith("@"):
        ranks = [_away(selector, near) for inner in within for selector in _alternatives(inner)]
    elif _BASE.search(",".join(selectors := _alternatives(own))):
        return -1
    else:
        ranks = [_away(selector, near) for selector in selectors]
    return min((rank for rank in ranks if rank is not None), default=None)


def _alternatives(selector: str) -> list[str]:
    """Return the selectors of a list, without what stands in parentheses."""
    for _ in range(_NESTED):
        selector = _IN_PARENTHESES.sub("", selector)
    return selector.split(",")


def _away(selector: str, near: Mapping[str, int]) -> int | None:
    """Return the distance of what a selector is for; None if one of its names is not there."""
    names = [name.replace("\\", "") for name in _NAME.findall(_NOT_NAMES.sub(" ", selector))]
    away = [near.get(name if name[0] in ".#" else name.lower()) for name in names]
    return None if None in away else max((at for at in away if at is not None), default=0)


def _rules(sheet: str) -> list[_Rule]:
    """Return the blocks at the top of a style sheet; those within an at-rule count as its selectors."""
    text = _COMMENT_OR_STRING.sub(lambda found: _BLANKED.sub(" ", found[0]), sheet)
    rules: list[_Rule] = []
    depth = start = line = first = 0
    selectors: list[str] = []
    for found in re.finditer(r"[{};\n]", text):
        mark = found[0]
        if mark == "\n":
            line += 1
            continue
        if mark == "{" or (mark == ";" and not depth):
            selectors.append(text[start : found.start()].strip())
        if not depth and mark in "{;":
            first = line - selectors[-1].count("\n")
        depth = max(0, depth + (mark == "{") - (mark == "}"))
        start = found.end()
        if mark != "{" and not depth and selectors:
            rules.append(_Rule(first, line + 1, tuple(selectors)))
            selectors = []
    return rules

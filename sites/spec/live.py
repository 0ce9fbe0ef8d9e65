"""What of a page knows more than its bytes: which day it is for the business, and by which column a table is sorted.

One script for both, the same on every page that has either, so that a release's policy holds one hash more. Without it
each page is complete. What it needs is worked out here and stands in attributes: opening hours from the words that
visitors read, so that the two cannot differ, and only if all of them are understood.
"""

from __future__ import annotations

import pkgutil
import re
import unicodedata
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import cache
from typing import Final, NamedTuple

from sites.spec.html import Html, tag
from sites.spec.languages.versions import primary

MARK: Final = ' data-live="'
"""What stands in a page that needs the script, and, as markup, nowhere else: text has no such quotes."""


@cache
def script() -> Html:
    """Return the script, on one line."""
    source = (pkgutil.get_data(__name__, "live.js") or b"").decode()
    return tag("script", Html(" ".join(source.split("\n")).strip()))


class Line(NamedTuple):
    """One line of opening hours."""

    days: frozenset[int]
    """Counted from Monday, 0."""
    spans: tuple[tuple[int, int], ...] | None
    """Minutes from midnight, above 1,440 on the day after; None if the words name no time of day."""


_WEEK: Final[Mapping[str, str]] = {
    "en": "monday tuesday wednesday thursday friday saturday sunday",
    "de": "montag dienstag mittwoch donnerstag freitag samstag sonntag",
    "fr": "lundi mardi mercredi jeudi vendredi samedi dimanche",
    "es": "lunes martes miércoles jueves viernes sábado domingo",
    "it": "lunedì martedì mercoledì giovedì venerdì sabato domenica",
    "nl": "maandag dinsdag woensdag donderdag vrijdag zaterdag zondag",
}
_DAILY: Final = frozenset(
    {"daily", "every day", "täglich", "tous les jours", "todos los días", "tutti i giorni", "dagelijks"}
)
_CLOSED: Final = frozenset({"closed", "geschlossen", "ruhetag", "fermé", "cerrado", "chiuso", "gesloten"})
_TO: Final = r"(?:[-–—]|to|until|through|bis|à|au|al?|tot|t/m)"
_DAYS: Final = re.compile(rf"(?P<first>[^\W\d_]+)\.?(?:\s*{_TO}\s*(?P<last>[^\W\d_]+)\.?)?")
_AND: Final = re.compile(r"\s*(?:[,&+]|\b(?:and|und|et|y|e|en)\b)\s*")
_TIME: Final = r"(?P<{0}>\d{{1,2}})(?:[:.h](?P<{0}m>[0-5]\d)?)?\s*(?P<{0}half>[ap])?(?:(?<=[ap])\.?m\.?)?"
_SPAN: Final = re.compile(rf"{_TIME.format('a')}\s*{_TO}\s*{_TIME.format('b')}(?:\s*(?:uhr|hrs?|h|heures|uur))?")
_NIGHT: Final = 6 * 60
"""Up to when hours that end before they begin end on the next day."""


def read_hours(lines: Sequence[tuple[str, str]], lang: str) -> tuple[Line, ...] | None:
    """Return opening hours as they are meant; None unless every line can mean one thing only.

    A line of words ("by appointment", "we are in the garden") means its days, and no hours.

    Args:
        lines: days and times, as visitors read them.
        lang: the page's language (BCP 47).
    """
    names = _WEEK.get(primary(lang), "").split()
    found = []
    for days, times in lines:
        is_words = not re.search(r"\d", times) and times.casefold().strip() not in _CLOSED
        week = _read_days(days.casefold().strip(), names)
        spans = None if is_words else _read_spans(times.casefold().strip(), lang)
        if not week or (spans is None and not is_words):
            return None
        found.append(Line(week, spans))
    return tuple(found) if any(line.spans for line in found) else None


def _read_days(text: str, names: Sequence[str]) -> frozenset[int] | None:
    if text in _DAILY:
        return frozenset(range(7))
    days: set[int] = set()
    for part in _AND.split(text):
        match = _DAYS.fullmatch(part)
        first = _day(match["first"], names) if match else None
        last = _day(match["last"], names) if match and match["last"] else first
        if first is None or last is None:
            return None
        days |= {(first + step) % 7 for step in range((last - first) % 7 + 1)}
    return frozenset(days)


def _day(word: str, names: Sequence[str]) -> int | None:
    if word in names:
        return names.index(word)
    found = [at for at, name in enumerate(names) if len(word) > 1 and (name.startswith(word) or word == f"{name}s")]
    return found[0] if len(found) == 1 else 5 if word == "sonnabend" and names[5] == "samstag" else None


def _read_spans(text: str, lang: str) -> tuple[tuple[int, int], ...] | None:
    if text in _CLOSED:
        return ()
    spans = []
    for part in _AND.split(text):
        match = _SPAN.fullmatch(part)
        if match is None or bool(match["ahalf"]) != bool(match["bhalf"]):
            return None
        start, end = _minute(match, "a"), _minute(match, "b")
        if start is None or end is None or start == end:
            return None
        is_halved = lang.lower().startswith("en") and not match["bhalf"]  # "2 to 6" may be in the afternoon
        if is_halved and end < 13 * 60 and not (7 * 60 <= start < end or start >= 13 * 60):
            return None
        if end < start:
            if end > _NIGHT:
                return None
            end += 24 * 60
        spans.append((start, end))
    return tuple(spans)


def _minute(match: re.Match[str], name: str) -> int | None:
    hour, half = int(match[name]), match[f"{name}half"]
    if hour > (12 if half else 24) or (half and hour == 0):
        return None
    if half:
        hour = hour % 12 + (12 if half == "p" else 0)
    return hour * 60 + int(match[f"{name}m"] or 0)


_NUMBER: Final = re.compile(r"\d+(?:[.,'’\u202f\xa0 ]\d+)*")
_THOUSANDS: Final = re.compile(r"[1-9]\d{0,2}(?:[.,'’\u202f\xa0 ]\d{3})+")


def sort_keys(cells: Sequence[bool | str], *, mixed: bool = False) -> tuple[str, ...] | None:
    """Return the sort keys of a column's cells; None if their order is uncertain.

    A column of words is sorted by them, one of amounts by number where all have one and the same unit: "1 h" does not
    come before "45 min".

    Args:
        cells: what the column holds.
        mixed: whether a column may hold amounts beside words, and sorts amounts first and what is empty last.
    """
    texts = [cell for cell in cells if isinstance(cell, str)]
    if not texts:
        return tuple(str(int(bool(cell))) for cell in cells)
    amounts = [_amount(cell) for cell in cells]
    if len(texts) == len(cells) and not any(re.search(r"\d", text) for text in texts):
        if not mixed or all(map(_is_said, texts)):
            return tuple(texts)
    elif all(amounts) and len({amount.unit for amount in amounts if amount}) == 1:
        return tuple(str(amount.number) for amount in amounts if amount)
    amounts = [amount if amount and amount.is_short else None for amount in amounts]
    if not mixed or len({amount.unit for amount in amounts if amount} - {("", "")}) > 1:
        return None
    places = [_place(cell, amount) for cell, amount in zip(cells, amounts, strict=True)]
    ranks = {place: rank for rank, place in enumerate(sorted(set(places)))}
    return tuple(str(ranks[place]) for place in places)


class _Amount(NamedTuple):
    number: Decimal
    unit: tuple[str, str]
    """What stands before the number and after it."""
    is_short: bool
    """Whether it is not a number within a sentence."""


def _amount(cell: bool | str) -> _Amount | None:
    """Return the one number in a cell; None if it has none, or two."""
    numbers = list(_NUMBER.finditer(cell)) if isinstance(cell, str) else []
    if not isinstance(cell, str) or len(numbers) != 1:
        return None
    (match,) = numbers
    before = cell[: match.start()].split()[-1:] if cell[: match.start()].strip() else []
    after = cell[match.end() :].split()[:1]
    unit = "".join(each for each in "".join(before) if not each.isalpha()), "".join(after).casefold()
    return _Amount(_number(match[0]), unit, is_short=len(cell.split()) <= len([*before, *after]) + 1)


def _is_said(cell: bool | str) -> bool:
    """Whether a cell says something; a dash does not."""
    return cell is True or (isinstance(cell, str) and any(each.isalnum() for each in cell))


def _place(cell: bool | str, amount: _Amount | None) -> tuple[int, tuple[tuple[Decimal, str], ...]]:
    """Return a cell's sort key in a mixed column: amounts, then yes, then words in reading order, then nothing."""
    if amount:
        return 0, ((amount.number, ""),)
    if not isinstance(cell, str) or not _is_said(cell):
        return (1 if cell is True else 3), ()
    plain = unicodedata.normalize("NFKD", cell.casefold())
    parts = re.split(f"({_NUMBER.pattern})", "".join(each for each in plain if not unicodedata.combining(each)))
    return 2, tuple((_number(part), "") if at % 2 else (Decimal("Infinity"), part) for at, part in enumerate(parts))


def _number(text: str) -> Decimal:
    """Read a number as people write it: 1,200.50, 1.200,50, 9,5; three digits behind one mark are thousands."""
    digits = re.sub(r"[^\d]", "", text)
    if _THOUSANDS.fullmatch(text) or not (match := re.search(r"[.,](\d+)$", text)):
        return Decimal(digits)
    return Decimal(digits).scaleb(-len(match[1]))

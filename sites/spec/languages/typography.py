"""Spaces at which a line must not break: inside a time, a date, a price or a phone number, and at French marks.

And the apostrophe that printers set.
"""

from __future__ import annotations

import re
from typing import Final

from sites.spec.languages.versions import primary

_KEPT: Final = "\N{NO-BREAK SPACE}"
_MONTH: Final = (
    r"(?:jan(?:uary?|vier|uari)?|feb(?:ruary?|rero|braio|ruari)?|mar(?:ch|zo?|s)?|apr(?:il)?|may|jun[ei]?|jul[iy]?|"
    r"aug(?:ust)?|sept?(?:ember)?|oct(?:ober|obre)?|nov(?:ember|embre)?|dec(?:ember)?|jän(?:ner)?|mär(?:z)?|mai|"
    r"okt(?:ober)?|dez(?:ember)?|févr?(?:ier)?|avr(?:il)?|juin|juil(?:let)?|août|septembre|déc(?:embre)?|enero|abril|"
    r"mayo|junio|julio|agosto|septiembre|octubre|noviembre|diciembre|gennaio|aprile|maggio|giugno|luglio|settembre|"
    r"ottobre|dicembre|maart|mei)\b"
)
_UNIT: Final = r"(?:Uhr|heures|h|hrs?|am|pm|a\.m|p\.m|min|m²|m|km|kg|g|cm|l|EUR|CHF)\b|[€£$%]"
_WHOLE: Final = re.compile(
    rf"(?<=\d) (?={_UNIT})|(?<=\d\.) (?={_MONTH})|(?<=\d) (?={_MONTH})|(?<=[€£$]) (?=\d)"
    r"|(?<=[\dh]) (?=[–-] \d)|(?<=[\dh] [–-]) (?=\d)",
    re.IGNORECASE,
)
_MONTH_DAY: Final = re.compile(rf"\b({_MONTH}) (?=\d{{1,2}}(?:,|$))", re.IGNORECASE)
_PHONE: Final = re.compile(r"(?<![\w.])(?:\+|\(?0)[\d(][\d ()/-]{5,18}\d\b")
_FRENCH: Final = re.compile(r"(?<=\S) (?=[?!:;»](?:\W|$))|(?<=«) (?=\S)")
_POSTCODE: Final = re.compile(r"\b([A-Z]{1,2}\d[A-Z\d]?) (?=\d[A-Z]{2}\b)|\b(\d{5}) (?=[A-ZÀ-Þ])")
"""Of the United Kingdom, and of five digits before the town."""
_APOSTROPHE: Final = re.compile(r"(?<=[^\W\d_])'(?=[^\W\d_])")
_WITHOUT: Final = frozenset({"phone", "email", "url", "lang"})
"""Names of what is no text."""


def with_kept_spaces(value: object, lang: str) -> object:
    """Return JSON data whose texts in a language keep dates, times, prices, and phone numbers whole."""
    if isinstance(value, str):
        return kept_spaces(value, lang)
    if isinstance(value, dict):
        return {name: item if name in _WITHOUT else _named(name, item, lang) for name, item in value.items()}
    return [with_kept_spaces(item, lang) for item in value] if isinstance(value, list) else value


def _named(name: str, value: object, lang: str) -> object:
    is_heading = name == "heading" and isinstance(value, str)
    return kept_spaces(str(value), lang, numbers=False) if is_heading else with_kept_spaces(value, lang)


def kept_spaces(text: str, lang: str, *, numbers: bool = True) -> str:
    """Return a text whose dates, times, prices, and phone numbers stay whole, with the apostrophes of print.

    Args:
        text: what is written.
        lang: BCP 47.
        numbers: whether those of phones do, which are wider than a column in the letters of a heading.
    """
    text = _POSTCODE.sub(lambda code: code[0][:-1] + _KEPT, _APOSTROPHE.sub("’", text))
    whole = _MONTH_DAY.sub(rf"\1{_KEPT}", _WHOLE.sub(_KEPT, text))
    if numbers:
        whole = _PHONE.sub(lambda number: number[0].replace(" ", _KEPT), whole)
    return _FRENCH.sub(_KEPT, whole) if primary(lang) == "fr" else whole

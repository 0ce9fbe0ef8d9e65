"""Texts as a typesetter sets them: no line breaks inside a time, a date, a price, a number or a postcode."""

from __future__ import annotations

import re
from typing import Any, Final

from sites.spec.languages.versions import primary

_KEPT: Final = "\N{NO-BREAK SPACE}"
_MONTH: Final = (
    r"(?:jan(?:uary?|vier|uari)?|feb(?:ruary?|rero|braio|ruari)?|mar(?:ch|zo?|s)?|apr(?:il)?|may|jun[ei]?|jul[iy]?|"
    r"aug(?:ust)?|sept?(?:ember)?|oct(?:ober|obre)?|nov(?:ember|embre)?|dec(?:ember)?|jän(?:ner)?|mär(?:z)?|mai|"
    r"okt(?:ober)?|dez(?:ember)?|févr?(?:ier)?|avr(?:il)?|juin|juil(?:let)?|août|septembre|déc(?:embre)?|enero|abril|"
    r"mayo|junio|julio|agosto|septiembre|octubre|noviembre|diciembre|gennaio|aprile|maggio|giugno|luglio|settembre|"
    r"ottobre|dicembre|maart|mei)\b"
)
_UNIT: Final = r"(?:Uhr|heures|h|hrs?|am|pm|a\.m|p\.m|min|m²|m|km|kg|g|cm|l|EUR|CHF|zł|Kč|kr)\b|[€£$%]"
_WHOLE: Final = re.compile(
    rf"(?<=\d) (?={_UNIT})|(?<=\d h) (?=\d\d\b)|(?<=\d\.) (?={_MONTH})|(?<=\d) (?={_MONTH})|(?<=[€£$]) (?=\d)"
    r"|(?<=&) (?=(?:Zn|Zonen|Co|Cie|Sons?|Söhne|Hijos|Figli)\b)",
    re.IGNORECASE,
)
_RANGE: Final = re.compile(r"(?<=[\dh]) ([–-]|to|bis|tot|à|al|do) (?=\d)")
_MONTH_DAY: Final = re.compile(rf"\b({_MONTH}) (?=\d{{1,2}}(?:,|$))", re.IGNORECASE)
_PHONE: Final = re.compile(r"(?<![\w.])(?:(?:\+|\(?0)[\d(][\d ()/-]{5,18}\d|\d{3}(?: \d{2,3}){2,3})\b")
_POSTCODE: Final = re.compile(r"\b([A-Z]{1,2}\d[\dA-Z]?) (?=\d[A-Z]{2}\b|(?=[A-Z]*\d)[A-Z\d]{4}\b)")
_DUTCH_POSTCODE: Final = re.compile(r"\b(\d{4}) ([A-Z]{2}) (?=[A-Z'’])")
_TOWN: Final = re.compile(r"(?<=\b\d{5}) (?=[^\W\d_])")
"""What stands before a town: `96052 Bamberg`."""
_APOSTROPHE: Final = re.compile(r"(?<=[^\W\d_])'(?=[^\W\d_])|(?<!\S)'(?=[nst]\s)")
_SENTENCE: Final = re.compile(r"(?:(?<=^)|(?<=[.!?] ))[^.!?]{3,10}[.!?](?= |$)")
"""A short sentence of a heading: `I print.`"""
_FRENCH: Final = re.compile(r"(?<=\S) (?=[?!:;»](?:\W|$))|(?<=«) (?=\S)")
_PRICE: Final = re.compile(r"([€£$]?)\s?(\d{1,6})(?:[.,](\d\d))?\s?([€£$]?)")
_SIGN_FIRST: Final = frozenset({"en", "ga", "cy"})
_ADDRESS: Final = re.compile(r"(\]\([^)\n]*\)|\b(?:https?|mailto|tel):\S+)")
_WITHOUT: Final = frozenset({"phone", "email", "url", "lang"})
"""Names of what is no text."""


def typeset(value: object, lang: str) -> object:
    """Return JSON data whose texts in a language are set: whole dates and numbers, curly apostrophes."""
    if isinstance(value, str):
        return typeset_text(value, lang)
    if isinstance(value, dict):
        own = {name: item if name in _WITHOUT else typeset(item, lang) for name, item in value.items()}
        heading = own.get("heading")
        return own | {"heading": _SENTENCE.sub(_together, heading)} if isinstance(heading, str) else own
    return [typeset(item, lang) for item in value] if isinstance(value, list) else value


def _together(sentence: re.Match[str]) -> str:
    return sentence[0].replace(" ", _KEPT)


def with_prices(value: Any, lang: str) -> Any:
    """Return a copy of JSON data whose prices that stand alone, and so are nobody's to translate, are a language's."""
    if isinstance(value, dict):
        return {name: with_prices(item, lang) for name, item in value.items()}
    if isinstance(value, list):
        return [with_prices(item, lang) for item in value]
    if not isinstance(value, str) or (found := _PRICE.fullmatch(value)) is None or bool(found[1]) == bool(found[4]):
        return value
    sign, whole, cents = found[1] or found[4], found[2], found[3]
    if primary(lang) in _SIGN_FIRST:
        return f"{sign}{whole}.{cents}" if cents else f"{sign}{whole}"
    amount = f"{whole},{cents}" if cents else whole
    return f"{sign}{_KEPT}{amount}" if primary(lang) == "nl" else f"{amount}{_KEPT}{sign}"


def typeset_text(text: str, lang: str) -> str:
    """Return a text as a typesetter sets it; addresses in it stay as they are."""
    return "".join(part if at % 2 else _set(part, lang) for at, part in enumerate(_ADDRESS.split(text)))


def _set(text: str, lang: str) -> str:
    whole = _RANGE.sub(rf"{_KEPT}\1{_KEPT}", _MONTH_DAY.sub(rf"\1{_KEPT}", _WHOLE.sub(_KEPT, text)))
    whole = _APOSTROPHE.sub("’", _TOWN.sub(_KEPT, _POSTCODE.sub(rf"\1{_KEPT}", whole)))
    whole = _DUTCH_POSTCODE.sub(rf"\1{_KEPT}\2{_KEPT}", whole)
    whole = _PHONE.sub(lambda number: number[0].replace(" ", _KEPT), whole)
    return _FRENCH.sub(_KEPT, whole) if primary(lang) == "fr" else whole

"""What a request says must be seen afterwards, where it says so beyond doubt; nothing where it does not.

A model that is asked for "Fresh bread" and writes "Our bakery" made a valid page and lost the change. Only wordings
that leave no other reading are read here: a correct edit that is refused costs a model call and a tier, so in doubt
nothing is expected. The readings are English; what is quoted may be in any language.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from sandbox.spec.catalog import components

MAX_REQUEST_CHARS: Final = 4000
"""Longer requests are briefs, and briefs are not read."""
_OPEN: Final = "\ue000"
_QUOTATION: Final = re.compile(
    r"\"([^\"\n]+)\"|“([^”\n]+)”|„([^“”\n]+)[“”]|«([^»\n]+)»|‘([^’\n]+)’|`([^`\n]+)`|(?<!\w)'((?:[^'\n]|'(?=\w))+)'(?!\w)"
)
_SENTENCE_END: Final = re.compile(r"[.!?](?=\s|$)|[;\n]|\b(?:then|but)\b", re.I)
_Q: Final = rf"{_OPEN}(\d+){_OPEN}"
_CLAUSE_END: Final = (
    r"(?=\s*(?:$|[,:)]|(?:in|on|at|to|from|and|instead|please|so|because|since|as|everywhere|now|too|under|below|above|"
    r"throughout|with|for)\b(?!')))"
)
_CHANGE: Final = (
    r"\b(?:change|replace|update|edit|correct|fix|swap|switch|turn|set|make|rename|reword|rewrite|relabel)\b"
)
_TEXT: Final = r"words?|text|sentence|line|phrase|paragraph|heading|headline|title|subtitle|tagline|label|question"
_THING: Final = r"button|badge|item|dish|plan|quote|notice|card"
_NOT_WORDS: Final = re.compile(
    r"\b(?:fonts?|typefaces?|sizes?|colou?rs?|styl\w+|tone|mood|feel\w*|vibe|voice|look\w*|layout|icons?|images?|"
    r"pictures?|photos?|links?|linked|href|url|address\w*|position|order|spacing|width|height|language|case|align\w*|"
    r"theme|sound\w*|like|similar|inspired|based|match\w*|compar\w+|example|such as|level|tag|anchor|alt|translat\w+|"
    r"instead of|not)\b",
    re.I,
)
"""Words that make a quotation something else than copy; a sentence with one of them is not read."""
_SWAPPED: Final = re.compile(
    rf"{_CHANGE}\s+(?:(?:all|every|the|our|my|this|that|{_TEXT}|{_THING})\b\W{{1,2}}){{0,4}}{_Q}"
    rf"(?:\s+(?:{_TEXT}|{_THING}))?(?:\s+(?:in|on|of) (?:the|our|my) [\w ]{{1,40}}?)?\s*\b(?:to|with|by|into)\s*:?\s*"
    rf"{_Q}{_CLAUSE_END}",
    re.I,
)
_SET_BESIDE: Final = re.compile(
    rf"{_CHANGE}[^{_OPEN}]{{1,80}}{_Q}[^{_OPEN}]{{0,40}}?\bto\s*:?\s*{_Q}{_CLAUSE_END}", re.I
)
"""The first quotation says where ("the answer to “Do you deliver?”"), and may well stay."""
_SET: Final = re.compile(
    rf"{_CHANGE}[^{_OPEN}]{{1,100}}?(?:\bto(?: say| read| be)?|(?<!that )(?<!which )\b(?:say|read)|\binto)\s*:?\s*"
    rf"{_Q}{_CLAUSE_END}",
    re.I,
)
_ADDED: Final = re.compile(
    rf"\b(?:add|insert|append|prepend|write)\s+(?:(?:the|this|{_TEXT}|note|notice|slogan)\b\W{{1,2}}){{0,4}}{_Q}"
    rf"{_CLAUSE_END}",
    re.I,
)
_ADDED_THING: Final = re.compile(
    rf"\b(?:add|insert|create|include)\s+(?:a|an|another|one more)\s+(?:\w+\s+)?{_Q}\s+(?:{_THING}|label|tagline)\b",
    re.I,
)
_NAMED: Final = re.compile(
    rf"\b(?:add|insert|create|include)\s+(?:a|an|another|one more)\s+(?:[\w-]+\s+){{1,4}}?(?:called|titled|named|"
    rf"entitled|labell?ed|saying|that (?:says|reads)|reading|with the (?:{_TEXT}))\s*:?\s*{_Q}",
    re.I,
)
_REMOVED: Final = re.compile(
    rf"\b(?:remove|delete|drop|erase|get rid of|take out)\s+(?:(?:the|this|that|our|my|{_TEXT}|{_THING})\b\W{{1,2}})"
    rf"{{0,4}}{_Q}(?:\s+(?:{_TEXT}|{_THING}))?{_CLAUSE_END}",
    re.I,
)
_MOVED: Final = re.compile(r"\b(?:add|put|move|insert|place|keep|instead|replace|show|bring|use|only)\b", re.I)
_VALUE: Final = re.compile(
    r"\b(?:change|replace|update|set|correct|fix|switch|make|use)\b.{0,120}?(?:\b(?:to|with|is|by|use)|[:=])\s*"
    r"[\"'“‘`]?(?P<value>[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+|\#(?:[0-9a-f]{6}|[0-9a-f]{3})\b|"
    r"[$€£]\s?\d{1,7}(?:[.,]\d{1,2})?(?![\d.,]*\d|\s*(?:less|more|off|lower|higher|cheaper|extra)\b)|"
    r"(?P<phone>\+?\d[\d ()/-]{6,20}\d))",
    re.I,
)
_PHONE: Final = re.compile(r"\b(?:phone|telephone|tel|mobile|fax|call us)\b|\+\d", re.I)
_NOT_A_VALUE: Final = re.compile(
    r"\b(?:like|similar|inspired|based|compar\w+|example|between|from|than|not|if|about)\b", re.I
)
_REMOVED_SECTION: Final = re.compile(
    r"(?:please )?(?:remove|delete|drop|get rid of|take out) (?:the |our |my )(?:whole |entire )?([\w&' -]{2,40}?)"
    r"(?: section| block)?(?: please)?[.!]?",
    re.I,
)
_REWRITTEN: Final = re.compile(
    r"(?:please )?(?:(?:shorten|reword|rewrite|rephrase|simplify|proofread|expand) (?:the |our |my )([\w&' -]{2,40}?)|"
    r"make (?:the |our |my )([\w&' -]{2,40}?) (?:much |a bit )?(?:shorter|longer|punchier|friendlier|simpler))"
    r"(?: please)?[.!]?",
    re.I,
)


@dataclass(frozen=True)
class Expectations:
    """What must be true of the pages after an edit that did what was asked."""

    shown: tuple[str, ...] = ()
    """Texts that the pages show."""
    gone: tuple[str, ...] = ()
    """Texts that the pages show less often than before, if they showed them."""
    values: tuple[str, ...] = ()
    """Mail addresses, phone numbers, prices and colours that the document holds."""
    fewer: str | None = None
    """Component of which fewer are shown."""
    touched: str | None = None
    """Component of which at least one has changed."""


def read_expectations(request: str) -> Expectations:
    """Return what a request demands beyond doubt."""
    if len(request) > MAX_REQUEST_CHARS:
        return Expectations()
    quoted: list[str] = []

    def hold(match: re.Match[str]) -> str:
        quoted.append(next(group for group in match.groups() if group))
        return f"{_OPEN}{len(quoted) - 1}{_OPEN}"

    held = _QUOTATION.sub(hold, re.sub(rf"[{_OPEN} \t]+", " ", request))
    shown: dict[str, None] = {}
    gone: dict[str, None] = {}
    for sentence in _SENTENCE_END.split(held):
        for is_shown, number in _read_sentence(sentence):
            (shown if is_shown else gone)[quoted[int(number)]] = None
    if len(quoted) > 1 + len(shown) or (gone and not shown and _MOVED.search(held)):
        gone.clear()  # what goes here may come back there: two words that swap places, a line that moves
    whole = " ".join(request.split())
    return Expectations(
        shown=tuple(shown),
        gone=tuple(text for text in gone if text not in shown),
        values=tuple(_values(request)),
        fewer=_component(_REMOVED_SECTION.fullmatch(whole)),
        touched=_component(_REWRITTEN.fullmatch(whole)),
    )


def plain(text: str) -> str:
    """Return a text for comparing: one case, one kind of space, quote and dash, and no punctuation at its ends."""
    folded = unicodedata.normalize("NFKC", text).casefold().translate(_PLAIN)
    return " ".join(folded.split()).strip(" .,:;!?…\"'")


_PLAIN: Final = str.maketrans(
    {"’": "'", "‘": "'", "`": "'", "“": '"', "”": '"', "„": '"', "–": "-", "—": "-", "\u00ad": ""}
)


def _read_sentence(sentence: str) -> Iterator[tuple[bool, str]]:
    """Yield the numbers of the quotations that a sentence wants shown, or gone."""
    if _NOT_WORDS.search(sentence):
        return
    if match := _SWAPPED.search(sentence):
        yield False, match[1]
        yield True, match[2]
        return
    if match := _SET_BESIDE.search(sentence):
        yield True, match[2]
        return
    for pattern in (_SET, _ADDED, _ADDED_THING, _NAMED):
        if match := pattern.search(sentence):
            yield True, match[1]
            return
    if match := _REMOVED.search(sentence):
        yield False, match[1]


def _values(request: str) -> Iterator[str]:
    for sentence in re.split(r"[!?](?=\s|$)|\.(?=\s|$)|[;\n]", request):
        match = _VALUE.search(sentence)
        if match is None or _NOT_A_VALUE.search(sentence[: match.start("value")]):
            continue
        if match["phone"] is None or _PHONE.search(sentence):
            yield match["value"]


def _component(match: re.Match[str] | None) -> str | None:
    """Return the kind of section that a noun phrase calls by its usual name."""
    phrase = next((group for group in match.groups() if group), "").lower() if match else ""
    sections = (entry for entry in components().values() if entry.outline or entry.place in ("header", "footer"))
    return next((entry.name for entry in sections if phrase in entry.words[:1]), None)

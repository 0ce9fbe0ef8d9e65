"""Requests with their quotations masked, so that the grammar never looks inside text meant for a page.

Quotations and code spans are those of `routing.prompt.tokens`, so that router and direct edit agree on what is quoted.
Their content is taken from the prompt as sent, because normalizing it would change the copy.
"""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from pydantic import BaseModel

from routing.prompt.tokens import Kind, canonicalise
from routing.yaml_data import load_yaml
from sites.spec.theme import COLOUR_NAMES

Names = Mapping[str, tuple[str, ...]]
"""The words for each thing, by its name in a spec."""


class Vocabulary(BaseModel, frozen=True, extra="forbid"):
    """The tables of vocabulary.yaml, which explains each."""

    section_fields: Names
    clear_without_section: frozenset[str]
    headline: frozenset[str]
    subheadline: frozenset[str]
    entry_fields: Names
    entry_nouns: Names
    ambiguous_sections: frozenset[str]
    home_page: frozenset[str]
    facts: Names
    businesses: frozenset[str]
    colour_roles: Names
    fonts: Names
    radii: Names
    spacings: Names
    tones: Names
    not_a_text: frozenset[str]


_TEXT: Final = pkgutil.get_data(__name__, "vocabulary.yaml") or b""
VOCABULARY: Final = Vocabulary.model_validate(load_yaml(_TEXT))

BUTTON: Final = r"(?:button|cta)"
LABEL: Final = r"(?:text|label|caption|wording|name)"
ADDRESS: Final = r"(?:link|url|href|target|destination|address)"
IMAGE: Final = r"(?:image|picture|photo|illustration|photograph|pic)"
NAVIGATION: Final = (
    r"(?:navigation(?: bar| menu)?|nav(?: bar)?|menu(?: bar)?|header|navbar|top bar|top menu|main menu|footer)"
)
LINK: Final = (
    r"(?:link|item|entry|menu item|menu entry|nav item|menu link|nav link|navigation link|footer link|header link)"
)
FACT_SHAPES: Final[Mapping[str, re.Pattern[str]]] = {
    "email": re.compile(r"(?<![\w.+%-])[\w.+%-]{1,64}@[\w-]+(?:\.[\w-]+)+"),
    "phone": re.compile(r"\+?[0-9(][0-9 ()./-]{4,28}[0-9]"),
}
SUBHEADLINE: Final = VOCABULARY.subheadline | {
    f"{text} {below} {head}"
    for text in ("text", "paragraph", "line", "sentence")
    for below in ("under", "below")
    for head in ("headline", "the headline", "the main heading", "the heading", "the main headline")
}
"""Names of the text below the heading that opens a page."""


def words(names: Iterable[str]) -> str:
    """Return a pattern that matches any of the names, the longest first."""
    return "(?:" + "|".join(re.escape(name) for name in sorted(names, key=lambda name: (-len(name), name))) + ")"


def by_name(table: Names) -> dict[str, str]:
    """Return what each name stands for."""
    return {name: key for key, names in table.items() for name in names}


def phrases(*patterns: str) -> tuple[re.Pattern[str], ...]:
    """Return patterns that ignore case."""
    return tuple(re.compile(pattern, re.I) for pattern in patterns)


MAX_REQUEST_CHARS: Final = 2000
MAX_ORDER_CHARS: Final = 300
"""Of one order without its quotations: longer ones explain, and explanations need a model."""
MAX_CLAUSES: Final = 4
_MASK: Final = "\ue000"
QUOTED: Final = rf"{_MASK}\d+{_MASK}"
_MARKS: Final = "\"'`“”„«»「」‘’"
_STRAY_MARK: Final = re.compile(r"[\"`“”„«»「」‘]|(?<!\w)['’]|['’](?!\w)(?<!s['’])")
_LEAD: Final = re.compile(
    r"(?:(?:please|kindly|hi|hello|hey|hi there|good morning|ok|okay|now|just|so|next|first|also|and|then|finally)\b"
    r"[ ,!.]*"
    r"|(?:can|could|would|will) (?:you|we) (?:please |kindly )?"
    r"|(?:i|we)(?:'d| would)? (?:want|like|need)(?: you)? to |let'?s |go ahead and |\d[.)] |[-*•] )+",
    re.I,
)
_POLITE_QUESTION: Final = re.compile(
    r"(?:(?:please|hi|hello|hey|hi there)[ ,!.]*)*(?:can|could|would|will) (?:you|we) ", re.I
)
_TAIL: Final = re.compile(
    r"(?:[ ,.!?;]+(?:please|thanks(?: a lot)?|thank you(?: very much)?|thx|cheers|for me)|[ .!;])+$", re.I
)
_THANKS: Final = r"(?:[ ,.!]*(?:please|thanks(?: a lot)?|thank you(?: very much)?|thx|cheers)|[ .!])*"
_JOINTS: Final = re.compile(r"\s*[;\n]\s*|[.!] +(?=[A-Z\d])|,? and (?:then |also )?|, then |,? plus ")
_VERB: Final = re.compile(
    r"(?:change|set|update|rename|replace|remove|delete|move|make|swap|add|switch|edit|put|use|give|link)\b", re.I
)
_AFTER_A_STOP: Final = re.compile(
    r"(?:[,.!?;]+ ?(?:please|thanks(?: a lot)?|thank you(?: very much)?|thx|cheers)|[ .;])*", re.I
)
_DOUBT: Final = re.compile(
    r"\b(?:not|no|never|nothing|none|nobody|neither|nor|without|except|unless|if|when|whenever|whether|until|while|because"
    r"|or|either|maybe|perhaps|possibly|probably|might|may|wonder(?:ing)?|think(?:ing)?|only|ignore|undo|revert|why|how"
    r"|cannot|however|although|otherwise|rather|except|but|both|anyone|someone|everything|else)\b|n't\b"
    r"|\b(?:it|them|they|this|these|those|him|her) ?(?=$|[,.;!?]"
    r"|(?:to|into|with|by|up|down|above|below|bigger|smaller)\b)",
    re.I,
)
_CLAUSE: Final = re.compile(
    r"\b(?:and|then|but|also|plus|or|instead|while|unless|because|so that)\b|[;?]|[.!] "
    r"\S|,\s*(?:make|change|use|add|remove|set|put|with)\b",
    re.I,
)
_STYLE: Final = re.compile(
    r"\b(?:fonts?|size|bigger|larger|smaller|colou?rs?|bold|italics?|cent(?:er|re)d?|uppercase|lowercase|caps|aligned"
    r"|underlined?|animated?|emojis?)\b|\b(?:on|in|of|for) (?:the )?[\w-]+ (?:page|section|visitors|users)\b"
    r"|\b(?:in|into) [A-Z][a-z]+(?:ese|ish|an|ch|ic)$"
)
_ABOUT_TEXT: Final = re.compile(
    r"\b(?:versions?|ones?|lines?|words?|letters?|characters?|sentences?|titles?|headlines?|headings?|captions?|texts?"
    r"|names?|paragraphs?|sans|serif|monospace|arial|helvetica|roboto|verdana|georgia|times new|courier|comic"
    r"|montserrat|poppins|lato)\b"
    r"|^\d+(?:\.\d+)? ?(?:px|rem|em|pt|vw|%)",
    re.I,
)
"""Words about a text's form, which are hardly the text itself."""
_TRAILING: Final = re.compile(
    r"[&+/–—-] ?[a-z]|[:→|]|->| / |\b(?:as|like|everywhere|again|too|asap|for now|right now|today|tomorrow|tonight"
    r"|soon|later|using|which|that|what|from|where|attached|below|above|all pages|every page|mobiles?|phones?|desktop"
    r"|visitors|with an?|in an?|at the|to match|so|by \w+day)\b"
    r"|(?i:\b(?:in|on) (?:the |our |my |its )?(?:[\w-]+ )?(?:header|footer|hero|banner|menu|navigation|nav|navbar"
    r"|sidebar|site|website|homepage|form|tab|card|button)$)"
)
"""What may begin a remark after an unquoted text, rather than be part of it."""
_SHORT_STYLE: Final = re.compile(
    r"\b(?:larger|bigger|smaller|shorter|longer|wider|narrower|bolder|thinner|lighter|darker|brighter|better|nicer|warmer"
    r"|friendlier|catchier|simpler|rounded?|square|sharp|flat|hidden|visible|empty|blank|default|normal|new|old|previous"
    r"|original|current|same|next|first|last|other|dark|light|small|large|big|medium|sticky|animated)\b",
    re.I,
)
_DIRECTIVE: Final = re.compile(
    r"(?:all caps|title case|sentence case|upper case|lower case|a|an|the "
    r"same|something|be|match|include|mention|sound|look|read)\b",
    re.I,
)


class Request(NamedTuple):
    """A request prepared for the grammar."""

    text: str
    """One line without politeness, with numbered placeholders for quotations and straight apostrophes."""
    quotes: tuple[str, ...]
    trimmed: str = ""
    """The politeness or punctuation cut off the end."""
    raw: str = ""
    """The same text with the apostrophes as sent."""
    is_question: bool = False
    """Whether it is a polite question."""

    def quoted(self, token: str) -> str | None:
        """Return the quotation of a placeholder; None for any other token."""
        return self.quotes[int(token.strip(_MASK))] if re.fullmatch(QUOTED, token) else None

    def value(self, token: str) -> str | None:
        """Return the text to write: a quotation, or words that can mean nothing else."""
        if (quoted := self.quoted(token)) is not None:
            return quoted.strip() or None
        is_plain = token[:1].isupper() or token[:1].isdigit()
        if not is_plain or _MASK in token or not _AFTER_A_STOP.fullmatch(self.trimmed):
            return None
        if _CLAUSE.search(token) or _DIRECTIVE.match(token) or _STYLE.search(token):
            return None
        if _ABOUT_TEXT.search(token) or _TRAILING.search(token):
            return None
        words = token.lower().split()
        is_word_of_style = len(words) <= 2 and (
            set(words) & VOCABULARY.not_a_text or "".join(words) in COLOUR_NAMES or _SHORT_STYLE.search(token)
        )
        return None if is_word_of_style else self._as_sent(token)

    def literal(self, token: str) -> str:
        """Return a token's quotation, or the token itself; callers check it against a strict shape."""
        quoted = self.quoted(token)
        return token if quoted is None else quoted.strip()

    def _as_sent(self, token: str) -> str:
        at = self.text.rfind(token)
        return self.raw[at : at + len(token)] if self.raw and at >= 0 else token


@dataclass(frozen=True)
class MaskedPrompt:
    """A prompt with placeholders for its quotations; `sent` has the apostrophes as sent."""

    text: str
    sent: str
    quotes: tuple[str, ...]


def read_request(prompt: str) -> Request | None:
    """Prepare a request for the grammar; None if it cannot be one plain order."""
    masked = mask_quotations(prompt)
    return None if masked is None else request_of(masked, 0, len(masked.text))


def read_clauses(prompt: str) -> tuple[Request, ...]:
    """Return the orders of a request that joins several; empty if it does not.

    A clause without a verb takes that of the clause before it ("remove the gallery and the FAQ").
    """
    masked = mask_quotations(prompt)
    if masked is None:
        return ()
    joints = [joint.span() for joint in _JOINTS.finditer(masked.text)]
    starts, ends = [0, *(end for _, end in joints)], [*(start for start, _ in joints), len(masked.text)]
    pieces = [piece for piece in zip(starts, ends, strict=True) if masked.text[slice(*piece)].strip(" .!;,")]
    if not 2 <= len(pieces) <= MAX_CLAUSES:
        return ()
    clauses: list[Request] = []
    verb = ""
    for start, end in pieces:
        clause = request_of(masked, start, end)
        if clause is None or (clause.is_question and end != pieces[-1][1]):
            return ()
        found = _VERB.match(clause.text)
        verb = f"{found[0]} " if found else verb
        prefix = "" if found or not clauses else verb
        clauses.append(clause._replace(text=prefix + clause.text, raw=prefix + clause.raw))
    return tuple(clauses)


def request_of(masked: MaskedPrompt, start: int, end: int) -> Request | None:
    """Return one order of a prompt without politeness; None if the wording leaves a doubt."""
    text = masked.text[start:end].replace("\n", " ")
    raw = masked.sent[start:end]
    is_question = "?" in text
    if is_question and not (
        _POLITE_QUESTION.match(masked.text) and re.search(rf"\?{_THANKS}$", text, re.I) and text.count("?") == 1
    ):
        return None
    body = text.replace("?", " ")
    lead = _LEAD.match(body)
    begin = lead.end() if lead else 0
    begin += len(body[begin:]) - len(body[begin:].lstrip())
    trimmed = _TAIL.sub("", body[begin:]).rstrip()
    if not 0 < len(trimmed) <= MAX_ORDER_CHARS or _DOUBT.search(trimmed):
        return None
    tail = body[begin + len(trimmed) :]
    return Request(trimmed, masked.quotes, tail, raw[begin : begin + len(trimmed)], is_question)


def mask_quotations(prompt: str) -> MaskedPrompt | None:
    """Return a prompt with a placeholder for each quotation, or None when its quotation marks leave a doubt."""
    if len(prompt) > MAX_REQUEST_CHARS or _MASK in prompt:
        return None
    canonical = canonicalise(prompt)
    if canonical.cut or any(token.kind is Kind.FENCE for token in canonical.tokens):
        return None
    pieces: list[str] = []
    quotes: list[str] = []
    position = 0
    for token in canonical.tokens:
        if token.kind not in (Kind.QUOTE, Kind.CODE):
            continue
        start = canonical.original_offset(token.start)
        end = canonical.original_offset(token.end - 1) + 1
        if not _stands_alone(prompt, start, end):
            return None
        pieces += [prompt[position:start], f"{_MASK}{len(quotes)}{_MASK}"]
        quotes.append(prompt[start + 1 : end - 1])
        position = end
    sent = re.sub(r"\s*\n\s*", "\n", "".join([*pieces, prompt[position:]]).strip())
    sent = re.sub(r"[^\S\n]+", " ", sent)
    return None if _STRAY_MARK.search(sent) else MaskedPrompt(sent.replace("’", "'"), sent, tuple(quotes))


def _stands_alone(prompt: str, start: int, end: int) -> bool:
    """Whether both ends of a quotation are marks, and no letter touches them from outside."""
    is_marked = end - start >= 2 and prompt[start] in _MARKS and prompt[end - 1] in _MARKS
    before, after = prompt[start - 1 : start], prompt[end : end + 1]
    return is_marked and not before.isalnum() and not after.isalnum()


def plain(phrase: str) -> str:
    """Return a noun phrase in lower case without articles and outer spaces."""
    return re.sub(r"^(?:(?:the|our|my|a|an|that|your)\s+)+", "", typed(phrase).strip(" ,").lower())


def typed(text: str) -> str:
    """Return a text as people type it, without the spaces and apostrophes of print."""
    return text.translate(_OF_PRINT)


_OF_PRINT: Final = str.maketrans({"\N{NO-BREAK SPACE}": " ", "’": "'"})


def is_said(said: str | None, text: object) -> bool:
    """Return whether a request names a text, however it is set; None names any."""
    return said is None or (isinstance(text, str) and typed(said) == typed(text))


def whole_words(text: str, *, ignore_case: bool) -> re.Pattern[str]:
    """Return a pattern for a text that is not part of a longer word, with the spaces and apostrophes of print."""
    start = r"(?<!\w)" if text[0].isalnum() else ""
    end = r"(?!\w)" if text[-1].isalnum() else ""
    words = re.escape(text).replace(r"\ ", "[ \N{NO-BREAK SPACE}]").replace("'", "['’]")
    return re.compile(start + words + end, re.I if ignore_case else 0)

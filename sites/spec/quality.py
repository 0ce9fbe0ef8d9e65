"""Check that an edit kept the site and made the requested change, judged by what visitors see.

Only wordings with a single meaning count: refusing a correct edit costs a model call and a tier, so in doubt nothing is
expected. The patterns are English; quotations may be in any language.
"""

from __future__ import annotations

import colorsys
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sites.errors import shown
from sites.spec.catalog import components
from sites.spec.expressions import Node, walk
from sites.spec.html import without_marks
from sites.spec.languages.versions import root_props
from sites.spec.model import INDEX, Site
from sites.spec.render import page_theme
from sites.spec.structure import reachable
from sites.spec.theme import COLOUR_NAMES, Theme, channels, palette, parse_colour
from sites.spec.validate import require_valid

MAX_REQUEST_CHARS: Final = 4000
"""Longer requests are briefs and are not judged."""
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
"""Words that make a quotation something other than copy; a sentence with one is skipped."""
_SWAPPED: Final = re.compile(
    rf"{_CHANGE}\s+(?:(?:all|every|the|our|my|this|that|{_TEXT}|{_THING})\b\W{{1,2}}){{0,4}}{_Q}"
    rf"(?:\s+(?:{_TEXT}|{_THING}))?(?:\s+(?:in|on|of) (?:the|our|my) [\w ]{{1,40}}?)?\s*\b(?:to|with|by|into)\s*:?\s*"
    rf"{_Q}{_CLAUSE_END}",
    re.I,
)
_SET_BESIDE: Final = re.compile(
    rf"{_CHANGE}[^{_OPEN}]{{1,80}}{_Q}[^{_OPEN}]{{0,40}}?\bto\s*:?\s*{_Q}{_CLAUSE_END}", re.I
)
"""The first quotation is a place ("the answer to “Do you deliver?”") and may stay."""
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
    """What must hold of the pages after an edit that did what was asked."""

    shown: tuple[str, ...] = ()
    """Texts that the pages show."""
    gone: tuple[str, ...] = ()
    """Texts that the pages must show less often than before."""
    values: tuple[str, ...] = ()
    """Mail addresses, phone numbers, prices and colours that the document must contain."""
    fewer: str | None = None
    """The component of which fewer must be shown."""
    touched: str | None = None
    """The component of which at least one must have changed."""


def read_expectations(request: str) -> Expectations:
    """Return what a request clearly demands."""
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
    """Normalize a text for comparison: marks of running text, case, spaces, quotes, dashes and outer punctuation."""
    folded = unicodedata.normalize("NFKC", without_marks(text)).casefold().translate(_PLAIN)
    return " ".join(folded.split()).strip(" .,:;!?…\"'")


_PLAIN: Final = str.maketrans(
    {"’": "'", "‘": "'", "`": "'", "“": '"', "”": '"', "„": '"', "–": "-", "—": "-", "\u00ad": ""}
)


def _read_sentence(sentence: str) -> Iterator[tuple[bool, str]]:
    """Yield the numbers of the quotations that a sentence wants shown or removed."""
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
    """Return the kind of section that a noun phrase names."""
    phrase = next((group for group in match.groups() if group), "").lower() if match else ""
    sections = (entry for entry in components().values() if entry.outline or entry.place in ("header", "footer"))
    return next((entry.name for entry in sections if phrase in entry.words[:1]), None)


_NOT_COPY_NAMES: Final = (
    "href src icon theme tone layout lang of variant width action art captions cards align direction gap path date"
    " kind accent hue notice_hue message open anchor strip long language_name sortable visitor_email familiar"
)
_NOT_COPY: Final = frozenset(_NOT_COPY_NAMES.split())
_MIN_WORDS: Final = 12
"""Sites with fewer words are too small to judge by word count."""
_LONG_TEXT_WORDS: Final = 9
"""Texts of so many words may be split over several props, so their words are searched for one by one."""
_OTHER_WORDS: Final = re.compile(
    r"\b(?:translate|rewrite|reword|rephrase|paraphrase|simplify|proofread|formal|informal|tone|wording|copy|"
    r"in(?:to)? (?:english|german|french|spanish|italian|dutch|portuguese|polish))\b",
    re.I,
)


def copy_of(site: Site) -> tuple[str, ...]:
    """Return every visible text of a valid site in document order, shared elements once."""
    return tuple(text for node in _nodes(site) for text in texts(node.props))


def texts(value: object) -> Iterator[str]:
    """Yield the readable texts of a prop value: no addresses, colours or icon names."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if is_copy(key, item):
                yield from texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from texts(item)


def is_copy(key: str, value: object) -> bool:
    """Whether a prop holds what visitors read, rather than an address, a look or a choice."""
    is_choice = key in _NOT_COPY and not isinstance(value, Mapping | list)
    return not is_choice and key not in ("theme", "drawing")


def loses_copy(before: Site, after: Site, *, request: str = "") -> bool:
    """Whether an edit drops more than half of the site's words.

    A request for other words (a translation) is judged by how much is said, not by which words say it.
    """
    old, new = _words(before), _words(after)
    had = sum(old.values())
    shared_words = sum(new.values()) if _OTHER_WORDS.search(request) else sum((old & new).values())
    return had >= _MIN_WORDS and shared_words * 2 < had


def is_unchanged(before: Site, after: Site) -> bool:
    """Whether an edit made no visible change."""
    return before.canonical() == after.canonical() or require_valid(before) == require_valid(after)


def lost_change(request: str, before: Site, after: Site) -> str | None:
    """Return why an edit cannot be what was asked for, for the model's second attempt; None in doubt."""
    if lost := _unreachable(before, after):
        return f"the new element {lost} is in no list of children, so it is not shown"
    if lost := _undated(before, after):
        return f"the new page {lost} has no date, so Posts does not list it"
    expected = read_expectations(request)
    new, old = _Seen(after), _Seen(before)
    for text in expected.shown:
        if not new.shows(text):
            return f"the request asks for the text {shown(text)}, which is nowhere on the pages"
    for text in expected.gone:
        is_moved = any(plain(text) in plain(other) for other in expected.shown)
        if old.count(text) and new.count(text) >= old.count(text) and not is_moved:
            return f"the request asks for {shown(text)} to go, and the pages still show it as often as before"
    for value in expected.values:
        if not new.holds(value):
            return f"the request gives the value {value}, which the site does not have"
    return _wrong_component(old, new, fewer=expected.fewer, touched=expected.touched)


_HUES: Final = {
    "red": (
        330,
        22,
        r"(?:dark|brick)?red|burgundy|crimson|(?:dunkel|hell|wein)?rot|rouges?|bordeaux|roj[oa]s?|ross[oi]|rood",
    ),
    "orange": (8, 48, r"orange|terra-?cott?a|rust|coral|koralle|corail|naranjas?|arancion[ei]|oranje"),
    "yellow": (38, 70, r"yellow|mustard|gold|\w*gelb|senf|jaunes?|moutarde|amarill[oa]s?|giall[oi]|geel"),
    "green": (55, 175, r"\w*green|olive|sage|moss|\w*grün|verte?s?|verd[ei]s?|groen"),
    "blue": (170, 265, r"\w*blue|navy|teal|turquoise|petrol|\w*blau|türkis|bleue?s?|azul(?:es)?|blu|azzurr[oi]|blauw"),
    "purple": (245, 330, r"purple|violet|plum|lilac|lila|violett|violette?s?|prune|morad[oa]s?|viola|paars"),
    "pink": (290, 10, r"pink|rosa|roses?|fuchsia|roze"),
}
"""Degrees between which a colour bears a name, amply, and its names in owners' words."""
_BUTTONS: Final = r"(?:buttons|knöpfen?|schaltflächen|boutons|botones|pulsanti|bottoni|knoppen)"
_OTHERWISE: Final = re.compile(
    r"\b(?:no|not|never|don't|isn't|too|instead|from|than|hate|dislike|nicht|keine?n?|zu|statt|stört|pas|sans|trop|plus"
    r"|aucune?|non|senza|troppo|niet|geen|te|sin|demasiado|like|wie|comme|como|come)\b",
    re.IGNORECASE,
)
"""Words of a sentence that refuses a colour, complains of one, or likens."""
_BECOMING: Final = (
    r"(?:in|into|to be|be|become|should|must|are|please|all|a|an|dark|deep|light|bright|bitte|sollen|soll|sein|werden"
    r"|wieder|en|doivent|être|passent|deben|devono|essere|moeten|worden|zijn|una?|un|uno|een|ein|einem)"
)
_BUTTONS_IN: Final = {
    name: re.compile(
        rf"\b(?:{words}) (?:for|on|für|auf|bei|pour|sur|per|para|voor)(?: \w+)? {_BUTTONS}\b"
        rf"|\b{_BUTTONS}(?: {_BECOMING}){{0,4}} (?:{words})\b",
        re.IGNORECASE,
    )
    for name, (_, _, words) in _HUES.items()
}
_GREY: Final = 0.12
"""Below this saturation, a colour has no hue that anybody would name."""


def other_buttons(request: str, site: Site) -> str | None:
    """Return which buttons have another colour than a request gives them all, for the model's second attempt.

    None where it names several colours, as buttons may differ then.
    """
    if len(request) > MAX_REQUEST_CHARS:
        return None
    said = [" ".join(part.split()) for part in _SENTENCE_END.split(request) if not _OTHERWISE.search(part)]
    asked = [name for name, pattern in _BUTTONS_IN.items() if any(map(pattern.search, said))]
    if len(asked) != 1:
        return None
    theme = page_theme(site, INDEX) or Theme()
    colours = palette(theme, dark=theme.mode == "dark")
    others = [
        f"{shown(str(link['label']))} of {node.path} is {colour}{made_of}"
        for node in _nodes(site)
        for link, is_deep in _filled_buttons(node)
        for colour, made_of in (_colour_of(link, colours, is_deep=is_deep),)
        if not _is_called(colour, asked[0])
    ]
    way = "the theme's `buttons` colours all of them, and `accent` beside a link the one"
    return f"the request asks for {asked[0]} buttons, but {'; '.join(others)}; {way}" if others else None


def _filled_buttons(node: Node) -> Iterator[tuple[Mapping[str, Any], bool]]:
    """Yield the filled buttons of an element on ground of no colour of its own, and whether that is deep."""
    tone, first = node.props.get("tone", "plain"), [*(node.props.get("actions") or ())][:1]
    is_deep = tone == "deep" or (node.props.get("layout") == "cover" and "image" in node.props)
    if tone in ("plain", "tinted", "deep") and (node.type != "CallToAction" or "layout" in node.props):
        yield from ((link, is_deep) for link in first)
    if node.type == "Header" and (action := node.props.get("action")):
        yield action, False


def _colour_of(link: Mapping[str, Any], colours: Mapping[str, str], *, is_deep: bool) -> tuple[str, str]:
    """Return the colour of a button, or the name of its own, and what it is made of."""
    if isinstance(accent := link.get("accent"), str):
        return (colours["fill"] if accent == "primary" else accent), ""
    if accent:
        return colours["accent"], ", the accent"
    if "button" in colours:
        return colours["button"], ""
    return (colours["deep-accent"], ", as on deep ground all are made of accent") if is_deep else (colours["fill"], "")


def _is_called(colour: str, name: str) -> bool:
    first, last, words = _HUES[name]
    if not colour.startswith("#"):
        return bool(re.fullmatch(words, colour))
    hue, _, saturation = colorsys.rgb_to_hls(*(channel / 255 for channel in channels(colour)))
    return saturation > _GREY and (hue * 360 - first) % 360 <= (last - first) % 360


class _Seen:
    """The visible content of a site, normalized for comparison."""

    def __init__(self, site: Site) -> None:
        self.nodes = tuple(_nodes(site))
        self._texts = [plain(text) for node in self.nodes for text in texts(node.props)]
        self._all = " ".join(self._texts)
        self._strings = [text.casefold() for node in self.nodes for text in _strings(node.props)]

    def count(self, text: str) -> int:
        wanted = plain(text)
        whole = re.compile(rf"(?<!\w){re.escape(wanted)}(?!\w)")
        return sum(len(whole.findall(held)) for held in self._texts) if wanted else 0

    def shows(self, text: str) -> bool:
        wanted = plain(text)
        if wanted in self._all or any(wanted in held for held in self._strings):
            return True
        words = re.findall(r"\w+", wanted)
        seen = set(re.findall(r"\w+", self._all))
        return len(words) >= _LONG_TEXT_WORDS and sum(word in seen for word in words) * 10 >= len(words) * 9

    def holds(self, value: str) -> bool:
        forms = _forms_of(value)
        digits = re.sub(r"\D", "", value) if len(value) > 8 and "@" not in value and value[0] != "#" else ""
        return any(
            any(form in held for form in forms) or (digits and digits in re.sub(r"\D", "", held))
            for held in self._strings
        )

    def of(self, component: str) -> list[Node]:
        return [node for node in self.nodes if node.type == component]

    def calls_another(self, component: str) -> bool:
        """Whether an element of another kind has this kind's name as its heading."""
        name = components()[component].words[0]
        return any(name in plain(str(node.props.get("heading"))) for node in self.nodes if node.type != component)


def _nodes(site: Site) -> Iterator[Node]:
    """Yield the shown elements, shared ones once."""
    seen: set[tuple[str, str]] = set()
    for tree in require_valid(site).values():
        for node in walk(tree):
            if (node.path, node.id) not in seen:
                seen.add((node.path, node.id))
                yield node


def _unreachable(before: Site, after: Site) -> str | None:
    for path, page in sorted(after.pages.items()):
        old_elements = before.pages.get(path, {}).get("elements", {})
        for key in sorted(set(page["elements"]) - set(old_elements) - reachable(page)):
            return f"{key} of {path}"
    return None


def _undated(before: Site, after: Site) -> str | None:
    folders = tuple(str(node.props["path"]) for node in _nodes(after) if node.type == "Posts")
    for path in sorted(after.pages.keys() - before.pages.keys()):
        page = after.pages[path]
        if path.startswith(folders) and "date" not in root_props(page):
            return path
    return None


def _wrong_component(old: _Seen, new: _Seen, *, fewer: str | None, touched: str | None) -> str | None:
    name = fewer or touched
    if name is None or not old.of(name) or old.calls_another(name):
        return None
    if fewer and len(new.of(name)) >= len(old.of(name)):
        return f"the request asks for {name} to go, and it is still there"
    if touched and new.of(name) == old.of(name):
        return f"the request is about {name}, which the patch leaves as it is"
    return None


def _forms_of(value: str) -> set[str]:
    """Return the spellings of a value in a spec."""
    value = value.casefold().strip()
    if value.startswith("#"):
        colour = parse_colour(value)
        return {value, colour, *(name for name, named in COLOUR_NAMES.items() if named == colour)}
    if value[0] in "$€£":
        number = value[1:].strip().replace(",", ".")
        return {number, number.replace(".", ","), re.sub(r"\.?0+$", "", number) if "." in number else number}
    return {value}


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield str(value)
    elif isinstance(value, Mapping | list):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _strings(item)


def _words(site: Site) -> Counter[str]:
    return Counter(word for text in copy_of(site) for word in text.lower().split())

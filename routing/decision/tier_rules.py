"""The tier of a site edit: seed 000's rules V1 in their binding order, with the exceptions of ruling A26."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from routing.prompt.intents import Act
from routing.prompt.parsed_prompt import Reading
from routing.prompt.tokens import Kind
from routing.prompt.vocabulary import Hit
from routing.queues import Tier

Scope = Literal["single_section", "structural"]


class Choice(NamedTuple):
    """A tier and the rule that chose it."""

    tier: Tier
    rule: str
    because: str
    cause: Literal["explicit", "rule", "default", "override"]
    scope: Scope = "single_section"
    evidence: tuple[Hit, ...] = ()
    """The phrases that matched; none for a flag or the default."""


class _Cause(NamedTuple):
    group: str
    evidence: tuple[Hit, ...]


_LIBRARIES = frozenset({"package", "technique"})
_HEAVY = ("package", "structural", "technique", "live_data", "logic")
_NEVER_MERELY_EXISTING = frozenset({"package", "structural"})
_CLOSE = {"technique": 1, "live_data": 0}
"""Tokens before such a thing in which `the` or `our` means that it exists; three before any other."""
_CREATING = frozenset(
    {"add", "build", "create", "make", "implement", "install", "insert", "include", "integrate", "turn", "convert"}
    | {"set", "put", "embed", "introduce", "write", "design", "generate", "provide", "replace", "swap"}
)
_RESHAPING = frozenset(
    {"split", "restructure", "merge", "move", "convert", "migrate", "redesign", "rebuild", "extract", "refactor"}
)
_WISHING = frozenset({"should", "must", "could", "shall", "to"})
_REFUSED_REACH = 6
"""Tokens before a thing that are searched for its refusal."""
_REACH = 3
_SHOWN_REACH = 6
_PAUSES = (Kind.STOP, Kind.QUESTION)
_TURNING = _WISHING | {"that", "which", "with", "when", "while", "if", "so", "then", "into", "by", "is", "are"}
_ADDRESSES = frozenset({Kind.URL, Kind.DOMAIN})
_CODES, _FENCES = frozenset({Kind.CODE}), frozenset({Kind.FENCE})
_CODE_KINDS = frozenset({Kind.PATH, Kind.CODE})
_BESIDE = frozenset(
    {"of", "about", "to", "on", "in", "for", "under", "above", "below", "beside", "near", "behind", "before", "after"}
    | {"into", "onto", "inside", "within", "around", "through", "over"}
)
_LINKING = _BESIDE | {"with", "using", "via", "by", "from", "as", "at", "and", "or"}
_HOW_IT_WORKS = frozenset({"in", "with", "without", "via", "by", "from", "using"})
_CSS_RULE = re.compile(r"\{\s{0,20}[a-z-]{2,30}\s{0,3}:[^\"'{}]{1,200}\}", re.IGNORECASE)
_DATA_URL = re.compile(r"//api\.|^api\.|/api/|\.(?:json|csv|xml|ics|rss|geojson|gpx)(?:[?#]|$)")
"""URLs of data, not of a page."""
_SOURCE_CODE = (
    *(".css", ".scss", ".js", ".ts", ".tsx", ".jsx", ".mjs", ".py"),
    *(".vue", ".svelte", ".html", ".htm", ".php", ".json", ".yml", ".yaml", ".sql", ".sh", ".xml", ".toml"),
)


def choose_tier(reading: Reading, *, explicit: bool, is_new: bool) -> Choice:
    """Choose the tier of a site edit.

    Args:
        reading: the prompt.
        explicit: whether the caller chose the agent by flag or stored preference.
        is_new: whether there is no site yet, so that layout, styles and wording only describe it.
    """
    return next(matching_rules(reading, explicit=explicit, is_new=is_new))


def matching_rules(reading: Reading, *, explicit: bool, is_new: bool) -> Iterator[Choice]:
    """Yield the matching rules in binding order; the first decides, and the last always matches."""
    because = reading.vocabulary.because
    power = tuple(hit for hit in reading.hits.get("power", ()) if not _is_refused(reading, hit))
    if explicit or power:
        yield Choice(Tier.AGENT, "V1-1", because["power"], "explicit", evidence=power)
    if heavy := _heavy(reading, is_new=is_new):
        scope: Scope = "structural" if heavy.group == "structural" else "single_section"
        yield Choice(Tier.AGENT, "V1-2", because[heavy.group], "rule", scope, heavy.evidence)
    light = None if is_new else _light(reading)
    if light:
        yield Choice(Tier.PATCH, "V1-3", because[light.group], "rule", evidence=light.evidence)
    group = "new_site" if is_new else "copy_fix" if reading.found("copy_fix") else "spec"
    evidence = tuple(reading.hits.get(group, ()))
    yield Choice(
        Tier.SPEC,
        "V1-4",
        because[group] if evidence else "nothing in it needs more than the page spec",
        "rule" if evidence else "default",
        evidence=evidence,
    )


def _heavy(reading: Reading, *, is_new: bool) -> _Cause | None:
    """Return why the edit needs the agent, or None."""
    groups = [group for group in _HEAVY if group in reading.hits and not (is_new and group == "structural")]
    lighter = (*reading.hits.get("inline_script", ()), *reading.hits.get("markup", ()))  # `Open Graph` draws no graph
    for group in groups:
        for hit in _unquoted_hits(reading, group):
            if any(_covers(exception, hit) for exception in lighter) or _is_refused(reading, hit):
                continue
            if _is_shown(reading, hit) or (group in _LIBRARIES and _is_skill(reading, hit)):
                continue
            if group in _NEVER_MERELY_EXISTING or not _is_about_existing(reading, hit, group):
                return _Cause(group, (hit,))
    fed = _tokens(reading, _ADDRESSES, lambda word: _DATA_URL.search(word) is not None)
    return _Cause("live_data", fed) if fed else None


def _unquoted_hits(reading: Reading, group: str) -> list[Hit]:
    """Return the hits of a group that are not single quoted words (`class names: 'Power', 'Database'`)."""
    return [
        hit
        for hit in reading.hits.get(group, ())
        if hit.first != hit.last or reading.tokens[hit.first].kind is not Kind.QUOTE
    ]


def _is_shown(reading: Reading, hit: Hit) -> bool:
    """Return whether a picture merely shows the thing: `a photo of a chess game`, `the logos of Stripe`."""
    for shown in reading.hits.get("shows", ()):
        between = reading.tokens[shown.last + 1 : hit.first]
        is_near = shown.first < hit.first and len(between) <= _SHOWN_REACH
        if is_near and not any(token.kind in _PAUSES or token.word in _TURNING for token in between):
            return True
    return False


def _is_skill(reading: Reading, hit: Hit) -> bool:
    """Return whether a library is only named as a skill: `list React and three.js as our skills`."""
    sentence = reading.sentences[reading.sentence_of(hit.first)]
    skills = reading.vocabulary.words["skill"]
    return any(reading.tokens[at].word in skills for at in range(sentence.first, sentence.end))


def _covers(exception: Hit, hit: Hit) -> bool:
    """Return whether an exception covers the whole hit."""
    return exception.first <= hit.first and hit.last <= exception.last


def _is_refused(reading: Reading, hit: Hit) -> bool:
    """Return whether a thing is refused: `no carousel, please`, but not `there is no search`."""
    words, tokens = reading.vocabulary.words, reading.tokens
    at = hit.first - 1
    while at > max(hit.first - _REFUSED_REACH, 0) and tokens[at].word in words["under_refusal"]:
        at -= 1
    if at < 0 or tokens[at].word not in words["refusing"]:
        return False
    return at == 0 or tokens[at - 1].word not in words["missing"]


def _is_about_existing(reading: Reading, hit: Hit, group: str) -> bool:
    """Return whether a widget exists: it is broken, or named with `the` or `our` and not created."""
    sentence = reading.sentences[reading.sentence_of(hit.first)]
    act = reading.acts[reading.sentence_of(hit.first)]
    creates = any(reading.tokens[at].word in _CREATING for at in reading.orders if sentence.first <= at < hit.first)
    if act is Act.DEFECT or reading.hits_in("defect", sentence) or reading.hits_in("repair", sentence):
        return not creates
    if reading.tokens[hit.first].word in reading.vocabulary.words["person"]:
        return False  # `the guests pick a date` names nobody's widget
    if reading.tokens[hit.first].word in _HOW_IT_WORKS:
        return False  # `the tube without reception`
    definite = reading.vocabulary.words["definite"]
    if any(_stands_beside(reading, at) for at in range(max(sentence.first + 1, hit.first - 2), hit.first)):
        return True
    reach = _CLOSE.get(group, _REACH)
    near = range(max(sentence.first, hit.first - reach), hit.first + 1)
    named = [at for at in near if reading.tokens[at].word in definite and _governs(reading, at, hit)]
    return bool(named) and not creates and not _is_wished(reading, named[0], hit)


def _is_wished(reading: Reading, named: int, hit: Hit) -> bool:
    """Return whether an existing thing should do something new: `the logo should draw itself`."""
    return any(reading.tokens[at].word in _WISHING for at in range(named + 1, hit.first))


def _governs(reading: Reading, at: int, hit: Hit) -> bool:
    """Return whether a `the` belongs to the thing: in `the browser with WebGL` it does not."""
    between = (reading.tokens[other].word for other in range(at + 1, hit.first))
    return not _relates(reading, at) and _LINKING.isdisjoint(between)


def _relates(reading: Reading, at: int) -> bool:
    """Return whether a `that` begins a relative clause: `a headline that types itself`."""
    if at == 0 or reading.tokens[at].word != "that":
        return False
    previous = reading.tokens[at - 1]
    return previous.kind is Kind.WORD and at - 1 not in reading.orders and previous.word not in _BESIDE


def _stands_beside(reading: Reading, at: int) -> bool:
    """Return whether the thing only qualifies another: `a photo of our cart`, `a link to the shop`."""
    is_definite = reading.tokens[at].word in reading.vocabulary.words["definite"]
    return is_definite and reading.tokens[at - 1].word in _BESIDE


def _light(reading: Reading) -> _Cause | None:
    """Return why the edit needs a patch, or None."""
    if not reading.found("copy_fix", "copy_stale"):
        if reading.found("defect") or Act.DEFECT in reading.acts:
            return _Cause("defect", tuple(reading.hits.get("defect") or reading.hits.get("behaves") or ()))
        if repair := _ordered_repair(reading):
            return _Cause("repair", (repair,))
    for group in ("inline_script", "style_code", "markup"):
        if said := _unquoted_hits(reading, group):
            return _Cause(group, tuple(said))
    return _code(reading)


def _code(reading: Reading) -> _Cause | None:
    """Return the source code in the prompt, quoted or named, or None."""
    fenced = _tokens(reading, _FENCES, lambda word: True)
    if fenced:
        return _Cause("markup", fenced)
    named = _tokens(reading, _CODE_KINDS, lambda word: word.endswith(_SOURCE_CODE))
    if not named and _CSS_RULE.search(reading.text.shown):
        return _Cause("style_code", ())
    quoted = named or _tokens(reading, _CODES, lambda word: any(sign in word for sign in ":<{"))
    return _Cause("style_code", quoted) if quoted else None


def _tokens(reading: Reading, kinds: frozenset[Kind], is_wanted: Callable[[str], bool]) -> tuple[Hit, ...]:
    """Return the tokens of these kinds with a wanted word."""
    if reading.kinds.isdisjoint(kinds):
        return ()
    return tuple(
        Hit(at, at) for at, token in enumerate(reading.tokens) if token.kind in kinds and is_wanted(token.word)
    )


def repairs(reading: Reading) -> bool:
    """Return whether the request repairs or corrects something."""
    if reading.found("defect", "copy_fix") or Act.DEFECT in reading.acts:
        return True
    return _reports_copy(reading) or _ordered_repair(reading) is not None


def _reports_copy(reading: Reading) -> bool:
    """Return whether a prompt without orders begins with what the site says: `it says Mundy in the list`."""
    if reading.orders:
        return False
    return any(
        hit.first - reading.sentences[reading.sentence_of(hit.first)].first <= 1
        for hit in reading.hits.get("copy_report", ())
    )


def orders_creation(reading: Reading) -> bool:
    """Return whether anything but a repair is ordered."""
    repair = {hit.first for hit in reading.hits.get("repair", ())}
    return any(at not in repair and reading.tokens[at].word in _CREATING | _RESHAPING for at in reading.orders)


def _ordered_repair(reading: Reading) -> Hit | None:
    """Return a verb of repair in imperative position: `what we fix` is a heading."""
    words = reading.vocabulary.words["order"]
    for hit in reading.hits.get("repair", ()):
        if hit.first in reading.orders or (hit.last > hit.first and reading.tokens[hit.first].word not in words):
            return hit
    return None

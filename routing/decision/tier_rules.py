"""The tier of a site edit: seed 000's rules V1 in their binding order, with the exceptions of ruling A26."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from routing.decision.second_opinion import Opinion, Site, shipped_model
from routing.decision.triggers import OPINION
from routing.prompt.intents import SentenceIntent
from routing.prompt.parsed_prompt import ParsedPrompt
from routing.prompt.tokens import Kind
from routing.prompt.vocabulary import Hit, shipped_vocabulary
from routing.queues import Tier

_SPEC_TRIED = 0.2
"""The least probability of a spec site's tier 1: it costs a fifth of a patch, and hands over what it cannot do."""
_LEAST = {Tier.SPEC: 0.3, Tier.PATCH: 1.0, Tier.AGENT: 1.0}
"""The same of the tier that a rule chose elsewhere: 1 where no other may be more probable."""
_NAMED = 0.1
"""The same of an agent for a package that is named."""
_EVERYDAY = "everyday"
"""The group of a tool whose name is an everyday word: `une vue sur le lac`, `make it prettier`."""
_NOTHING = "nothing"
"""The group of an edit of whose tier no word speaks."""
_INTO = {("in", "die"), ("into", "the"), ("into", "our")}
"""Before pages that shall be made of one: `Teile die Seite in die vier Seiten auf`."""
Scope = Literal["single_section", "structural"]


class Choice(NamedTuple):
    """A tier and the rule that chose it."""

    tier: Tier
    rule: str
    because: str
    cause: Literal["explicit", "rule", "default", "override"]
    scope: Scope = "single_section"
    evidence: tuple[Hit, ...] = ()
    """The phrases that matched; none for a flag, the default, or the second opinion, whose model names its words if
    any of them, and not the size of the site, weighed most."""
    group: str = ""
    """Of the words that chose it."""
    stands_from: float = 0.0
    """The probability of its tier from which on no other one is chosen; none for what is certain."""


class _Cause(NamedTuple):
    group: str
    evidence: tuple[Hit, ...]
    is_fed: bool = False
    """Whether an address of data is given."""
    is_code: bool = False
    """Whether source code is given or named."""


_TRIED = frozenset({"defect", "repair", "style_code"})
"""What is first tried on the pages of a spec, whose builder wrote every line and has choices for most looks."""
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
_REFUSED_REACH = 6
"""Tokens before a thing that are searched for its refusal."""
_REACH = 3
_ADDRESSES = frozenset({Kind.URL, Kind.DOMAIN})
_CODES, _MARKUP = frozenset({Kind.CODE}), frozenset({Kind.FENCE, Kind.TAG})
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
    *(".css", ".scss", ".js", ".ts", ".tsx", ".jsx", ".mjs", ".py", ".go", ".rb", ".rs", ".java"),
    *(".vue", ".svelte", ".html", ".htm", ".php", ".json", ".yml", ".yaml", ".sql", ".sh", ".xml", ".toml"),
    *(".mjml", ".hbs", ".twig", ".md", ".less", ".properties", ".tf", ".conf", ".ini", ".cfg"),
)
_SOURCE_FOLDERS = ("src/", "lib/", "tests/", "test/", "scripts/")


def matching_rules(
    parsed: ParsedPrompt, *, explicit: bool, is_new: bool, is_spec: bool, opinion: Opinion | None, site: Site
) -> Iterator[Choice]:
    """Yield the matching rules of a site edit in binding order; the first decides, and the last always matches.

    Args:
        parsed: the prompt.
        explicit: whether the caller chose the agent by flag or stored preference.
        is_new: whether there is no site yet, so that layout, styles and wording only describe it.
        is_spec: whether the site's pages are rendered from a spec and by no build, so that its components count.
        opinion: the trained second opinion, unless it is switched off.
        site: what the opinion weighs of the site.
    """
    rules = _rules(parsed, explicit=explicit, is_new=is_new, is_spec=is_spec)
    first = next(rules)
    if opinion is not None and first.stands_from:
        chances = shipped_model().chances(opinion, rule=first.group, site=site)
        is_tried = is_new or (is_spec and chances[Tier.SPEC] >= _SPEC_TRIED)
        tier = Tier.SPEC if is_tried else max(chances, key=chances.__getitem__)
        if tier is not first.tier and chances[first.tier] < min(first.stands_from, max(chances.values())):
            yield Choice(tier, OPINION, "requests in such words mostly need it", "default")
    yield first
    yield from rules


def matched_group(parsed: ParsedPrompt, *, is_new: bool) -> str:
    """Return the group of the rule that matches first on a site without a spec."""
    return next(_rules(parsed, explicit=False, is_new=is_new, is_spec=False)).group


def _rules(parsed: ParsedPrompt, *, explicit: bool, is_new: bool, is_spec: bool) -> Iterator[Choice]:
    because = parsed.vocabulary.because
    power: tuple[Hit, ...] = ()
    if "power" in parsed.hits:
        power = tuple(hit for hit in parsed.hits["power"] if not _is_refused(parsed, hit))
    if explicit or power:
        yield Choice(Tier.AGENT, "V1-1", because["power"], "explicit", evidence=power)
    expressed = tuple(parsed.hits.get("in_spec", ())) if is_spec or is_new else ()
    if heavy := _heavy(parsed, is_new=is_new, expressed=expressed):
        scope: Scope = "structural" if heavy.group == "structural" else "single_section"
        group = _EVERYDAY if _is_everyday(parsed, heavy) else heavy.group
        least = _NAMED if group == "package" else _LEAST[Tier.AGENT]
        yield Choice(
            Tier.AGENT,
            "V1-2",
            because[heavy.group],
            "rule",
            scope,
            heavy.evidence,
            group=group,
            stands_from=0.0 if heavy.is_fed or _is_operators(parsed, heavy) else least,
        )
    light = None if is_new else _light(parsed, expressed=expressed)
    is_tried = is_spec and light is not None and light.group in _TRIED and not light.is_code
    if light and not (is_tried and not _is_operators(parsed, light)):
        yield Choice(
            Tier.PATCH,
            "V1-3",
            because[light.group],
            "rule",
            evidence=light.evidence,
            group=light.group,
            stands_from=0.0 if _is_operators(parsed, light) else _LEAST[Tier.PATCH],
        )
    group = "new_site" if is_new else "copy_fix" if "copy_fix" in parsed.hits else "spec"
    evidence = (*expressed, *parsed.hits.get(group, ()))
    is_certain = bool(expressed) or (is_spec and _links(parsed))
    yield Choice(
        Tier.SPEC,
        "V1-4",
        because[group] if evidence else "nothing in it needs more",
        "rule" if evidence else "default",
        evidence=evidence,
        group=group if evidence else _NOTHING,
        stands_from=0.0 if is_certain else _SPEC_TRIED if is_spec else _LEAST[Tier.SPEC],
    )


def _is_everyday(parsed: ParsedPrompt, heavy: _Cause) -> bool:
    """Return whether what asks for an agent may be an everyday word: `vue`, `prettier`."""
    named = [hit for hit in heavy.evidence if parsed.tokens[hit.last].word in parsed.vocabulary.words["everyday"]]
    return bool(named) and not any(_is_built_with(parsed, hit) for hit in named)


def _is_built_with(parsed: ParsedPrompt, hit: Hit) -> bool:
    """Return whether a site is to be built with what is named: `Move us to Astro`, and not `a room with vue`."""
    name = parsed.text.shown[parsed.tokens[hit.first].start]
    before = parsed.tokens[hit.first - 1].word if hit.first else ""
    return name.isupper() and before in parsed.vocabulary.words["built_with"]


def _is_operators(parsed: ParsedPrompt, cause: _Cause) -> bool:
    """Return whether the words of a cause are an operator's own, which decide."""
    shipped = shipped_vocabulary()
    if parsed.vocabulary.version == shipped.version:
        return False
    known = shipped.find(parsed.tokens, parsed.text.shown).get(cause.group, ())
    return any(hit not in known for hit in cause.evidence if hit in parsed.hits.get(cause.group, ()))


def _links(parsed: ParsedPrompt) -> bool:
    """Return whether an address is given, to be linked or shown: `put this in at the bottom: instagram.com/us`."""
    return bool(_tokens(parsed, _ADDRESSES, lambda word: _DATA_URL.search(word) is None))


def _heavy(parsed: ParsedPrompt, *, is_new: bool, expressed: tuple[Hit, ...]) -> _Cause | None:
    """Return why the edit needs the agent, or None; `expressed` is what the site's spec can express."""
    groups = [group for group in _HEAVY if group in parsed.hits and not (is_new and group == "structural")]
    # `Open Graph` draws no graph.
    lighter = (*parsed.hits.get("inline_script", ()), *parsed.hits.get("markup", ()), *expressed) if groups else ()
    for group in groups:
        for hit in _unquoted_hits(parsed, group):
            if any(_covers(exception, hit) for exception in lighter) or _is_refused(parsed, hit):
                continue
            if is_new and _is_by_request(parsed, hit):
                continue
            if group == "structural" and _is_counted(parsed, hit):
                continue
            if group in _NEVER_MERELY_EXISTING or not _is_about_existing(parsed, hit, group):
                return _Cause(group, (hit,))
    fed = _tokens(parsed, _ADDRESSES, lambda word: _DATA_URL.search(word) is not None)
    return _Cause("live_data", fed, is_fed=True) if fed else None


def _unquoted_hits(parsed: ParsedPrompt, group: str) -> list[Hit]:
    """Return the hits of a group that are not single quoted words (`class names: 'Power', 'Database'`)."""
    return [
        hit
        for hit in parsed.hits.get(group, ())
        if hit.first != hit.last or parsed.tokens[hit.first].kind is not Kind.QUOTE
    ]


def _is_by_request(parsed: ParsedPrompt, hit: Hit) -> bool:
    """Return whether a form, a telephone or a list does what one word names: `a page for booking requests`."""
    return hit.first == hit.last and parsed.tokens[hit.first].word in parsed.vocabulary.words["by_request"]


def _is_counted(parsed: ParsedPrompt, hit: Hit) -> bool:
    """Return whether pages are counted that exist: `die drei Seiten`, `sur nos quatre pages`."""
    words, first = parsed.vocabulary.words, parsed.tokens[hit.first]
    if hit.first == 0 or not (first.kind is Kind.NUMBER or first.word in words["count"]):
        return False
    before = parsed.tokens[hit.first - 1].word
    if hit.first > 1 and (parsed.tokens[hit.first - 2].word, before) in _INTO:
        return False
    return before in words["definite"] or before in words["definite_abroad"] or before in words["all"]


def _covers(exception: Hit, hit: Hit) -> bool:
    """Return whether an exception covers the whole hit."""
    return exception.first <= hit.first and hit.last <= exception.last


def _is_refused(parsed: ParsedPrompt, hit: Hit) -> bool:
    """Return whether a thing is refused: `no carousel, please`, but not `there is no search`."""
    words, tokens = parsed.vocabulary.words, parsed.tokens
    at = hit.first - 1
    while at > max(hit.first - _REFUSED_REACH, 0) and tokens[at].word in words["under_refusal"]:
        at -= 1
    if at < 0 or tokens[at].word not in words["refusing"]:
        return False
    return at == 0 or tokens[at - 1].word not in words["missing"]


def _is_about_existing(parsed: ParsedPrompt, hit: Hit, group: str) -> bool:
    """Return whether a widget exists: it is broken, or named with `the` or `our` and not created."""
    sentence = parsed.sentences[parsed.sentence_of(hit.first)]
    intent = parsed.intents[parsed.sentence_of(hit.first)]
    creates = any(parsed.tokens[at].word in _CREATING for at in parsed.orders if sentence.first <= at < hit.first)
    is_wrong = "ought" in parsed.hits and parsed.hits_in("reported", sentence)
    if (
        intent is SentenceIntent.DEFECT
        or is_wrong
        or any(parsed.hits_in(each, sentence) for each in ("defect", "repair"))
    ):
        return not creates
    if parsed.tokens[hit.first].word in parsed.vocabulary.words["person"]:
        return False  # `the guests pick a date` names nobody's widget
    if parsed.tokens[hit.first].word in _HOW_IT_WORKS:
        return False  # `the tube without reception`
    definite = parsed.vocabulary.words["definite"]
    if hit.first == hit.last:  # `der Rechner`, but not `les membres doivent pouvoir se connecter`
        definite = definite | parsed.vocabulary.words["definite_abroad"]
    reach = _CLOSE.get(group, _REACH)
    near = range(max(sentence.first, hit.first - reach), hit.first + 1)
    is_named = any(parsed.tokens[at].word in definite and _governs(parsed, at, hit) for at in near)
    return is_named and not creates


def _governs(parsed: ParsedPrompt, at: int, hit: Hit) -> bool:
    """Return whether a `the` belongs to the thing: in `the browser with WebGL` it does not."""
    between = (parsed.tokens[other].word for other in range(at + 1, hit.first))
    return not _relates(parsed, at) and _LINKING.isdisjoint(between)


def _relates(parsed: ParsedPrompt, at: int) -> bool:
    """Return whether a `that` begins a relative clause: `a headline that types itself`."""
    if at == 0 or parsed.tokens[at].word != "that":
        return False
    previous = parsed.tokens[at - 1]
    return previous.kind is Kind.WORD and at - 1 not in parsed.orders and previous.word not in _BESIDE


def _light(parsed: ParsedPrompt, *, expressed: tuple[Hit, ...]) -> _Cause | None:
    """Return why the edit needs a patch, or None; `expressed` is what the site's spec can express."""
    if not parsed.found("copy_fix", "copy_stale"):
        if "defect" in parsed.hits or SentenceIntent.DEFECT in parsed.intents:
            return _Cause("defect", tuple(parsed.hits.get("defect") or parsed.hits.get("behaves") or ()))
        if repair := _ordered_repair(parsed):
            return _Cause("repair", (repair,))
    for group in ("inline_script", "style_code", "markup"):
        said = [hit for hit in _unquoted_hits(parsed, group) if not any(_covers(each, hit) for each in expressed)]
        if said:
            return _Cause(group, tuple(said))
    return _code(parsed)


def _code(parsed: ParsedPrompt) -> _Cause | None:
    """Return the source code in the prompt, quoted or named, or None."""
    if shown := _tokens(parsed, _MARKUP, lambda word: True):
        return _Cause("markup", shown, is_code=True)
    named = _tokens(parsed, _CODE_KINDS, lambda word: word.endswith(_SOURCE_CODE) or word.startswith(_SOURCE_FOLDERS))
    if not named and _CSS_RULE.search(parsed.text.shown):
        return _Cause("style_code", (), is_code=True)
    quoted = named or _tokens(parsed, _CODES, lambda word: any(sign in word for sign in ":<{"))
    return _Cause("style_code", quoted, is_code=True) if quoted else None


def _tokens(parsed: ParsedPrompt, kinds: frozenset[Kind], is_wanted: Callable[[str], bool]) -> tuple[Hit, ...]:
    """Return the tokens of these kinds with a wanted word."""
    if parsed.kinds.isdisjoint(kinds):
        return ()
    return tuple(Hit(at, at) for at, token in enumerate(parsed.tokens) if token.kind in kinds and is_wanted(token.word))


def repairs(parsed: ParsedPrompt) -> bool:
    """Return whether the request repairs or corrects something."""
    if parsed.found("defect", "copy_fix") or SentenceIntent.DEFECT in parsed.intents:
        return True
    return _reports_copy(parsed) or _ordered_repair(parsed) is not None


def _reports_copy(parsed: ParsedPrompt) -> bool:
    """Return whether a prompt without orders begins with what the site says: `it says Mundy in the list`."""
    if parsed.orders:
        return False
    return any(
        hit.first - parsed.sentences[parsed.sentence_of(hit.first)].first <= 1
        for hit in parsed.hits.get("copy_report", ())
    )


def orders_creation(parsed: ParsedPrompt) -> bool:
    """Return whether anything but a repair is ordered."""
    repair = {hit.first for hit in parsed.hits.get("repair", ())}
    return any(at not in repair and parsed.tokens[at].word in _CREATING | _RESHAPING for at in parsed.orders)


def _ordered_repair(parsed: ParsedPrompt) -> Hit | None:
    """Return a verb of repair in imperative position: `what we fix` is a heading."""
    words = parsed.vocabulary.words["order"]
    for hit in parsed.hits.get("repair", ()):
        if hit.first in parsed.orders or (hit.last > hit.first and parsed.tokens[hit.first].word not in words):
            return hit
    return None

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
"""The least probability of a spec site's tier 1, or a new one's: it costs little, and hands over what it cannot do."""
_SPEC_FIRST = 0.4
"""The same elsewhere."""
_NAMED = 0.1
"""The same of an agent for a package that several words name: `install it`, and not `une vue sur le lac`."""
_NOTHING = "nothing"
"""The group of an edit of whose tier no word speaks."""
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
    """The probability of its tier from which on no other one is chosen: none for what is certain, 1 where the most
    probable one is."""


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
_ADDRESSES = frozenset({Kind.URL, Kind.DOMAIN})
_CODES, _MARKUP = frozenset({Kind.CODE}), frozenset({Kind.FENCE, Kind.TAG})
_CODE_KINDS = frozenset({Kind.PATH, Kind.CODE})
_SHOWN_CODE = re.compile(
    r"\{\s{0,20}[a-z-]{2,30}\s{0,3}:[^\"'{}]{1,200}\}|\b(?:rel|target|lang|role|loading|id|alt|autocomplete)=[\"']",
    re.IGNORECASE,
)
"""A rule of a stylesheet, or an attribute."""
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
        if is_new:
            del chances[Tier.PATCH]  # there is nothing to patch
        is_tried = is_spec and chances[Tier.SPEC] >= _SPEC_TRIED
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
    power = tuple(parsed.hits.get("power", ()))
    if explicit or power:
        yield Choice(Tier.AGENT, "V1-1", because["power"], "explicit", evidence=power)
    expressed = tuple(parsed.hits.get("in_spec", ())) if is_spec or is_new else ()
    if heavy := _heavy(parsed, is_new=is_new, expressed=expressed):
        scope: Scope = "structural" if heavy.group == "structural" else "single_section"
        is_named = heavy.group == "package" and any(hit.first < hit.last for hit in heavy.evidence)
        yield Choice(
            Tier.AGENT,
            "V1-2",
            because[heavy.group],
            "rule",
            scope,
            heavy.evidence,
            group=heavy.group,
            stands_from=0.0 if heavy.is_fed or _is_operators(parsed, heavy) else _NAMED if is_named else 1.0,
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
            stands_from=0.0 if _is_operators(parsed, light) else 1.0,
        )
    group = "new_site" if is_new else "copy_fix" if "copy_fix" in parsed.hits else "spec"
    evidence = (*expressed, *parsed.hits.get(group, ()))
    yield Choice(
        Tier.SPEC,
        "V1-4",
        because[group] if evidence else "nothing in it needs more",
        "rule" if evidence else "default",
        evidence=evidence,
        group=group if evidence else _NOTHING,
        stands_from=0.0 if expressed else _SPEC_TRIED if is_spec or is_new else _SPEC_FIRST,
    )


def _is_operators(parsed: ParsedPrompt, cause: _Cause) -> bool:
    """Return whether the words of a cause are an operator's own, which decide."""
    shipped = shipped_vocabulary()
    if parsed.vocabulary.version == shipped.version:
        return False
    known = shipped.find(parsed.tokens, parsed.text.shown).get(cause.group, ())
    return any(hit not in known for hit in cause.evidence if hit in parsed.hits.get(cause.group, ()))


def _heavy(parsed: ParsedPrompt, *, is_new: bool, expressed: tuple[Hit, ...]) -> _Cause | None:
    """Return why the edit needs the agent, or None; `expressed` is what the site's spec can express."""
    for group in _HEAVY:
        if (said := _unexpressed(parsed, group, expressed)) and not (is_new and group == "structural"):
            return _Cause(group, said)
    fed = _tokens(parsed, _ADDRESSES, lambda word: _DATA_URL.search(word) is not None)
    return _Cause("live_data", fed, is_fed=True) if fed else None


def _unexpressed(parsed: ParsedPrompt, group: str, expressed: tuple[Hit, ...]) -> tuple[Hit, ...]:
    """Return the hits of a group that the site's spec cannot express."""
    return tuple(
        hit
        for hit in parsed.hits.get(group, ())
        if not any(each.first <= hit.first and hit.last <= each.last for each in expressed)
        and not (group in _TAKEN and _is_taken_away(parsed, hit))
    )


_TAKEN = frozenset({"technique", "live_data", "logic"})
"""Groups of things that need nothing where they are taken away."""


def _is_taken_away(parsed: ParsedPrompt, hit: Hit) -> bool:
    """Return whether its sentence only removes what a hit names: `take out the table with the spreadsheet`."""
    number = parsed.sentence_of(hit.first)
    orders = [at for at in parsed.orders if parsed.sentence_of(at) == number]
    removals = {each.first for each in parsed.hits.get("destructive", ())}
    if not orders or orders[-1] > hit.first or not removals.issuperset(orders):
        return False
    between = parsed.tokens[orders[-1] : hit.first]
    return not any(token.kind is Kind.COMMA or token.word in _REPLACING for token in between)


_REPLACING = frozenset({"instead", "favour", "favor", "via", "for", "through", "using", "by", "so", "because"})
"""Words behind which a removal says what comes in its place, or how it is done."""


def _light(parsed: ParsedPrompt, *, expressed: tuple[Hit, ...]) -> _Cause | None:
    """Return why the edit needs a patch, or None; `expressed` is what the site's spec can express."""
    if not parsed.found("copy_fix"):
        if "defect" in parsed.hits or SentenceIntent.DEFECT in parsed.intents:
            return _Cause("defect", tuple(parsed.hits.get("defect", ())))
        if repair := parsed.hits.get("repair"):
            return _Cause("repair", tuple(repair))
    for group in ("inline_script", "style_code", "markup"):
        if said := _unexpressed(parsed, group, expressed):
            return _Cause(group, said)
    return _code(parsed)


def _code(parsed: ParsedPrompt) -> _Cause | None:
    """Return the source code in the prompt, quoted or named, or None."""
    if shown := _tokens(parsed, _MARKUP, lambda word: True):
        return _Cause("markup", shown, is_code=True)
    named = _tokens(parsed, _CODE_KINDS, lambda word: word.endswith(_SOURCE_CODE) or word.startswith(_SOURCE_FOLDERS))
    if not named and _shows_code(parsed):
        return _Cause("style_code", (), is_code=True)
    quoted = named or _tokens(parsed, _CODES, lambda word: any(sign in word for sign in ":<{"))
    return _Cause("style_code", quoted, is_code=True) if quoted else None


def _shows_code(parsed: ParsedPrompt) -> bool:
    return _SHOWN_CODE.search(parsed.text.shown) is not None


def _tokens(parsed: ParsedPrompt, kinds: frozenset[Kind], is_wanted: Callable[[str], bool]) -> tuple[Hit, ...]:
    """Return the tokens of these kinds with a wanted word."""
    if parsed.kinds.isdisjoint(kinds):
        return ()
    return tuple(Hit(at, at) for at, token in enumerate(parsed.tokens) if token.kind in kinds and is_wanted(token.word))


def repairs(parsed: ParsedPrompt) -> bool:
    """Return whether the request repairs or corrects something."""
    return parsed.found("defect", "copy_fix", "repair") or SentenceIntent.DEFECT in parsed.intents

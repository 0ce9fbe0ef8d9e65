"""Explain a route: its evidence in the prompt, the rules that matched, and what would have changed it.

The rules run again in their binding order, and every `what if` is a new decision, so an explanation cannot disagree
with the router.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from routing.decision.router import (
    ANSWER_RULES,
    IMPORT,
    IMPORT_BECAUSE,
    Mode,
    Route,
    Signals,
    SiteSignals,
    Workflow,
    action_rules,
    debate_key,
    decide,
    is_read_only,
    opinion_on,
    site_of,
    talk_in,
    workflow_of,
)
from routing.decision.second_opinion import Asked, Opinion, shipped_model
from routing.decision.tier_rules import Choice
from routing.decision.triggers import OPINION, Debate, Trigger, find_triggers, parse_trivial
from routing.policy.platform import Policy
from routing.prompt.parsed_prompt import ParsedPrompt, Talk, parse_prompt
from routing.prompt.vocabulary import Hit, Vocabulary, shipped_vocabulary
from routing.queues import Tier

MAX_TRIED = 24
"""Places of a prompt that are removed one by one; each costs a decision."""
_TALK_GROUPS = {
    Talk.QUESTION: ("question_002", "question", "question_shape", "asking"),
    Talk.CHAT: ("chat", "hold"),
    Talk.OPINION: (),
}
_TALK_WORDS = {
    Talk.QUESTION: "it asks a question and orders nothing",
    Talk.CHAT: "it orders nothing",
    Talk.OPINION: "prompts in such words mostly order nothing",
}
_COMPARED = ("mode", "tier", "queue", "debate", "stakes", "intent", "confidence")
"""Fields that distinguish decisions, the weightiest first."""


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Place(_Value):
    """A part of the prompt as sent."""

    text: str
    start: int
    end: int


class MatchedRule(_Value):
    """A rule that matched, whether or not it decided."""

    rule: str
    mode: Mode
    tier: Tier | None
    why: str
    cause: str
    evidence: tuple[Place, ...]
    """The words that matched; none for a flag, a choice or the default."""


class Difference(_Value):
    """A field of the decision as it is and would be."""

    field: str
    was: Any
    would_be: Any


class WhatIf(_Value):
    """A minimal change of the request that changes the decision."""

    change: str
    """`without "webgl"`, `with advanced_edit`."""
    removed: tuple[Place, ...] = ()
    differences: tuple[Difference, ...]
    rule: str
    reason: str
    """Of the other decision."""


class Explanation(_Value):
    """A decision with its reasons."""

    route: Route
    triggers: tuple[Trigger, ...]
    not_counted: tuple[Trigger, ...]
    """Triggers that do not count in an ANSWER (A9)."""
    winner: MatchedRule
    runners_up: tuple[MatchedRule, ...]
    """The other rules that matched, in binding order."""
    what_if: tuple[WhatIf, ...]
    untried: int
    """Places not tried because there are too many."""


def explain(signals: Signals, policy: Policy, vocabulary: Vocabulary | None = None) -> Explanation:
    """Explain the decision about a request; the shipped vocabulary is the default."""
    words = vocabulary or shipped_vocabulary()
    route = decide(signals, policy, words)
    if signals.upload:
        return _of_import(route)
    parsed = parse_prompt(signals.prompt, words)
    found = find_triggers(parsed)
    opinion = opinion_on(signals, parsed, policy)
    winner, *others = _matched_rules(signals, parsed, found, opinion)
    places = _places_to_try(signals.prompt, parsed, (*found, *winner.evidence))
    judge = _Judge(signals, route, policy=policy, vocabulary=words)
    what_if = [*judge.without_words(places[:MAX_TRIED]), *judge.with_other_signals()]
    return Explanation(
        route=route,
        triggers=route.triggers,
        not_counted=found if not route.triggers else (),
        winner=winner,
        runners_up=tuple(others),
        what_if=tuple(sorted(what_if, key=lambda item: _COMPARED.index(item.differences[0].field))),
        untried=max(len(places) - MAX_TRIED, 0),
    )


def _of_import(route: Route) -> Explanation:
    """Explain what no word decides."""
    winner = MatchedRule(
        rule=IMPORT, mode=route.mode, tier=route.tier, why=IMPORT_BECAUSE, cause=route.cause, evidence=()
    )
    return Explanation(route=route, triggers=(), not_counted=(), winner=winner, runners_up=(), what_if=(), untried=0)


# --- rules -----------------------------------------------------------------------------------------------------------


def _matched_rules(
    signals: Signals, parsed: ParsedPrompt, triggers: tuple[Trigger, ...], opinion: Opinion | None
) -> Iterator[MatchedRule]:
    """Yield the matching rules in binding order; the caller's choice of tier comes first."""
    workflow = workflow_of(signals)
    chosen = signals.tier is not None
    rules = [
        *action_rules(signals, parsed, workflow=workflow, read_only=is_read_only(signals, parsed), opinion=opinion)
    ]
    matched = [
        MatchedRule(
            rule=choice.rule,
            mode=Mode.ACTION,
            tier=choice.tier if workflow is Workflow.SITE and choice.rule != "read-only" else None,
            why=choice.because,
            cause=choice.cause,
            evidence=_places(signals.prompt, parsed, _evidence(signals, parsed, choice)),
        )
        for choice in rules
    ]
    yield from matched[:chosen]
    yield from _rules_before_action(signals, parsed, triggers, opinion)
    yield from matched[chosen:]


def _evidence(signals: Signals, parsed: ParsedPrompt, choice: Choice) -> Iterable[Hit]:
    if choice.rule != OPINION:
        return choice.evidence
    asked = Asked.AGENT if choice.tier is Tier.AGENT else Asked.BEYOND_SPEC
    return _weightiest(signals, parsed, asked, against=choice.tier is Tier.SPEC)


def _weightiest(signals: Signals, parsed: ParsedPrompt, asked: Asked, *, against: bool = False) -> list[Hit]:
    """Return the words that weigh most in the second opinion."""
    return [Hit(at, at) for at in shipped_model().evidence(parsed, site_of(signals), asked, against=against)]


def _rules_before_action(
    signals: Signals, parsed: ParsedPrompt, triggers: tuple[Trigger, ...], opinion: Opinion | None
) -> Iterator[MatchedRule]:
    argv = parse_trivial(signals.prompt)
    if argv is not None:
        whole = (Place(text=signals.prompt, start=0, end=len(signals.prompt)),)
        why = f"the whole request is the command {argv[0]}"
        yield MatchedRule(rule="trivial", mode=Mode.ACTION, tier=None, why=why, cause="rule", evidence=whole)
    talk = talk_in(signals, parsed, triggers, opinion)
    if talk is not None:
        hits = [hit for group in _TALK_GROUPS[talk] for hit in parsed.hits.get(group, ())]
        if talk is Talk.OPINION:
            hits = _weightiest(signals, parsed, Asked.ONLY_ASKS)
        yield MatchedRule(
            rule=ANSWER_RULES[talk],
            mode=Mode.ANSWER,
            tier=None,
            why=_TALK_WORDS[talk],
            cause="rule" if talk is Talk.QUESTION else "default",
            evidence=_places(signals.prompt, parsed, hits),
        )


# --- places ----------------------------------------------------------------------------------------------------------


def _places(prompt: str, parsed: ParsedPrompt, hits: Iterable[Hit]) -> tuple[Place, ...]:
    """Return the distinct places of these hits in the prompt as sent, in the order of the text."""
    origin = parsed.text.original_offset
    spans = {(origin(parsed.tokens[hit.first].start), origin(parsed.tokens[hit.last].end - 1) + 1) for hit in hits}
    return tuple(Place(text=prompt[start:end], start=start, end=end) for start, end in sorted(spans) if start < end)


def _places_to_try(prompt: str, parsed: ParsedPrompt, first: Sequence[Trigger | Place]) -> list[Place]:
    """Return what to try removing: triggers and evidence, then other deciding phrases, then orders."""
    places = [Place(text=prompt[item.start : item.end], start=item.start, end=item.end) for item in first]
    deciding = [hit for group, hits in parsed.hits.items() if parsed.vocabulary.because.get(group) for hit in hits]
    places += _places(prompt, parsed, deciding)
    places += _places(prompt, parsed, [Hit(at, at) for at in parsed.orders])
    return list(dict.fromkeys(places))


def without(prompt: str, places: Iterable[Place]) -> str:
    """Return the prompt without these places, which may overlap."""
    parts, at = [], 0
    for place in sorted(places, key=lambda item: item.start):
        parts.append(prompt[at : max(place.start, at)])
        at = max(at, place.end)
    return "".join(parts) + prompt[at:]


# --- what would have changed it --------------------------------------------------------------------------------------


class _Judge:
    """Decides about changed requests and compares."""

    def __init__(self, signals: Signals, route: Route, *, policy: Policy, vocabulary: Vocabulary) -> None:
        self._signals = signals
        self._route = route
        self._policy = policy
        self._vocabulary = vocabulary

    def without_words(self, places: Sequence[Place]) -> Iterator[WhatIf]:
        """Yield what removing each place changes; if none alone changes mode or tier, a minimal set that does."""
        is_decisive = False
        for place in places:
            other = self._decide_without((place,))
            is_decisive = is_decisive or self._moves(other)
            yield from self._compare(other, f"without {_quoted((place,))}", removed=(place,))
        if not is_decisive and self._moves(self._decide_without(places)):
            removed = self._shrink(list(places))
            yield from self._compare(self._decide_without(removed), f"without {_quoted(removed)}", removed=removed)

    def _shrink(self, removed: list[Place]) -> tuple[Place, ...]:
        """Return a minimal subset whose removal still changes mode or tier."""
        for place in tuple(removed):
            fewer = [other for other in removed if other != place]
            if fewer and self._moves(self._decide_without(fewer)):
                removed = fewer
        return tuple(removed)

    def with_other_signals(self) -> Iterator[WhatIf]:
        """Yield what other values of the request's fields would change."""
        for change, update in _other_signals(self._signals, self._route):
            changed = self._signals.model_copy(update=update)
            yield from self._compare(decide(changed, self._policy, self._vocabulary), change)

    def _decide_without(self, places: Sequence[Place]) -> Route:
        prompt = without(self._signals.prompt, places)
        return decide(self._signals.model_copy(update={"prompt": prompt}), self._policy, self._vocabulary)

    def _moves(self, other: Route) -> bool:
        return (other.mode, other.tier) != (self._route.mode, self._route.tier)

    def _compare(self, other: Route, change: str, *, removed: tuple[Place, ...] = ()) -> Iterator[WhatIf]:
        is_, would_be = self._route.model_dump(mode="json"), other.model_dump(mode="json")
        differences = tuple(
            Difference(field=field, was=is_[field], would_be=would_be[field])
            for field in _COMPARED
            if is_[field] != would_be[field]
        )
        if differences:
            yield WhatIf(change=change, removed=removed, differences=differences, rule=other.rule, reason=other.reason)


def _other_signals(signals: Signals, route: Route) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield changes of one field, in words and as an update of the signals."""
    if signals.tier is not None:
        yield "with no tier chosen", {"tier": None}
    change = "without advanced_edit" if signals.advanced_edit else "with advanced_edit"
    yield change, {"advanced_edit": not signals.advanced_edit}
    for preference in (None, "spec", "agent"):
        if preference != signals.preference:
            change = f"with preference {preference}" if preference else "without a preference"
            yield change, {"preference": preference}
    unbound = {"site": None, "new_site": False, "project": False}
    existing, new = {"site": SiteSignals(files=1)}, {"new_site": True}
    if workflow_of(signals) is not Workflow.NONE:
        yield "bound to no site", unbound
    if signals.site is None or signals.site.files == 0:
        yield "bound to a site that has pages", unbound | existing
    if not signals.new_site:
        yield "bound to a new site", unbound | new
    if route.debate is Debate.PLANNING:
        yield "debated in this session before", {"session_debated": frozenset({debate_key(signals.prompt)})}


def _quoted(places: Sequence[Place]) -> str:
    return " and ".join(f'"{place.text}"' for place in sorted(places, key=lambda item: item.start))

"""The trained second opinion: where it speaks, how it is made, and that it can be switched off."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from routing.decision.explanation import explain
from routing.decision.llm_router import wants_tier
from routing.decision.router import Mode, Route, Signals, SiteSignals, decide
from routing.decision.second_opinion import Asked, Model, Opinion, Site, shipped_model
from routing.decision.training import labelled
from routing.decision.triggers import DEBATED, HARMLESS, OPINION, OVERRULED, Confidence, Debate, Stakes, plan_debate
from routing.policy.platform import Assist, platform_policy
from routing.prompt.parsed_prompt import parse_prompt
from routing.prompt.vocabulary import shipped_vocabulary
from routing.queues import Tier

ROOT = Path(__file__).resolve().parents[4]
LABELS = ROOT / "tests" / "data" / "routing_trained.jsonl"
POLICY = platform_policy()
RULES_ALONE = POLICY.model_copy(update={"assist": Assist(second_opinion=False)})
SITE = SiteSignals(files=4)
SEEN = Site(files=4, has_build=False)
UNDECIDED = "Auf dem Fernseher im Vereinsheim ist alles winzig"
"""No rule knows its words; the labelled prompts hold its like."""
ASKED = "Duzen oder siezen auf der Seite einer Yogaschule?"
"""Likewise, of a question."""


def routes(row: dict[str, Any]) -> tuple[Route, Route]:
    """Return the route with the second opinion and by the rules alone."""
    site = SiteSignals.model_validate(row["site"]) if row.get("site") else None
    return both(Signals(prompt=row["prompt"], site=site))


def both(signals: Signals) -> tuple[Route, Route]:
    """Return a route with the second opinion, and by the rules alone but for the version of the policy."""
    route = decide(signals, POLICY)
    return route, decide(signals, RULES_ALONE).model_copy(update={"policy_version": route.policy_version})


def _orders_removal(prompt: str) -> bool:
    parsed = parse_prompt(prompt, shipped_vocabulary())
    verbs = {parsed.tokens[hit.first].word for hit in parsed.hits.get("destructive", ()) if hit.first in parsed.orders}
    return bool(verbs & shipped_vocabulary().words["order"])


@pytest.mark.slow
def test_it_decides_where_no_rule_is_certain_and_mostly_as_labelled() -> None:
    changed: dict[str, list[bool]] = defaultdict(list)
    kept = ("triggers", "confidence", "target", "trivial", "read_only", "workflow")
    for row in labelled([LABELS])[::12]:
        route, by_rules = routes(row)
        if route == by_rules:
            continue
        expected = row["expect"]
        if route.mode is not by_rules.mode:
            changed[f"to {route.mode}"].append(route.mode in (expected["mode"], *expected.get("also_mode", ())))
            continue
        assert [getattr(route, name) for name in kept] == [getattr(by_rules, name) for name in kept]
        if route.tier is not by_rules.tier:
            assert (route.rule, route.cause) == (OPINION, "default"), row["prompt"]
            assert route.opinion_version == shipped_model().version
            changed[f"{by_rules.tier} to {route.tier}"].append(route.tier == expected.get("tier"))
        elif route.intent is not by_rules.intent:
            assert route.opinion_version == shipped_model().version
            changed["intent"].append(route.intent == expected.get("intent", route.intent))
        else:
            weighed = by_rules.stakes is not Stakes.HIGH or "secrets or access" in by_rules.reason
            assert weighed or not _orders_removal(row["prompt"]), row["prompt"]
            changed["debate"].append(route.debate == expected.get("debate", route.debate))
    assert all(changed["to ANSWER"])
    assert all(changed["to ACTION"])
    assert min(sum(right) / len(right) for right in changed.values()) >= 0.8
    least = {"to ANSWER": 100, "1 to 2": 100, "1 to 3": 100, "3 to 1": 10, "2 to 1": 10, "debate": 10, "intent": 100}
    assert all(len(changed[how]) > number for how, number in least.items())


@pytest.mark.parametrize(
    "prompt",
    [
        "can u put the Book an appointment button in the top bar so its on every page, right of contact. in that "
        "orange. but on the contact page it makes no sense so not there",
        'Alles mit "Hüner" ist natürlich Quatsch, das heisst Hühner. Und wo du schon dabei bist: die Freitagszeiten '
        "sind auf zwei Seiten verschieden, richtig ist 9 bis 18. Und im Fuß bitte 2026.",
    ],
)
def test_one_phrase_of_a_code_agent_s_work_does_not_send_there_what_else_reads_like_less(prompt: str) -> None:
    """Sent to tier 3 without need in the third trial (issue 20); what a lower tier cannot do, it hands on."""
    route, by_rules = both(Signals(prompt=prompt, site=SITE))
    assert (by_rules.rule, by_rules.tier) == ("V1-2", Tier.AGENT)
    assert route.rule == "opinion"
    assert route.tier in (Tier.SPEC, Tier.PATCH)


def test_the_rule_that_matched_and_a_build_weigh_in_what_an_edit_needs() -> None:
    unsure = Opinion(only_asks=0, beyond_spec=0.5, agent=0.5, debated=0, high_stakes=0, mends=0)

    def likely(rule: str, site: Site = SEEN) -> Tier:
        chances = shipped_model().chances(unsure, rule=rule, site=site)
        assert sum(chances.values()) == pytest.approx(1)
        return max(chances, key=chances.__getitem__)

    assert likely("new_site") is Tier.SPEC
    assert likely("style_code") is Tier.PATCH
    assert likely("technique") is Tier.AGENT
    assert likely("markup", Site(files=400, has_build=True)) > likely("nothing")
    assert likely("a group of the operator's own") is likely("copy_fix")


def test_a_package_that_is_named_is_a_code_agent_s_work() -> None:
    assert decide(Signals(prompt="three.js globe behind the headline", site=SITE), POLICY).tier is Tier.AGENT


def test_a_question_that_no_rule_knows_is_answered_and_explained_by_its_words() -> None:
    route, by_rules = both(Signals(prompt=ASKED, site=SITE))
    assert (route.mode, by_rules.mode) == (Mode.ANSWER, Mode.ACTION)
    assert route.opinion_version == shipped_model().version
    found = explain(Signals(prompt=ASKED, site=SITE), POLICY)
    assert found.winner.rule == OPINION
    said = shipped_model().evidence(parse_prompt(ASKED, shipped_vocabulary()), SEEN, Asked.ONLY_ASKS)
    assert len(found.winner.evidence) == len(said) > 0


@pytest.mark.parametrize(
    "prompt",
    [
        f"{ASKED} Please make the prices bigger.",
        f"{ASKED} The button is broken.",
        f"{ASKED} It would be nice to have a map.",
        f"{ASKED} See index.html",
    ],
)
def test_what_also_orders_wishes_or_reports_is_never_answered_by_opinion(prompt: str) -> None:
    assert decide(Signals(prompt=prompt, site=SITE), POLICY).mode is Mode.ACTION


def test_it_makes_nothing_heavier_of_a_site_that_is_still_to_be_made() -> None:
    signals = Signals(prompt=UNDECIDED, site=SiteSignals(files=0), new_site=True)
    route, by_rules = both(signals)
    assert route == by_rules


def test_it_lets_a_page_spec_begin_a_new_site_that_one_phrase_sends_to_the_agent() -> None:
    prompt = "Website for our cycling club in Leuven: home, about, calendar of rides 2027, a form to join. No photos"
    route, by_rules = both(Signals(prompt=prompt, site=SiteSignals(files=0), new_site=True))
    assert (by_rules.rule, by_rules.tier) == ("V1-2", Tier.AGENT)
    assert (route.rule, route.tier) == (OPINION, Tier.SPEC)


NEVER = Opinion(only_asks=0, beyond_spec=0, agent=0, debated=0, high_stakes=0, mends=0)
"""An opinion that holds every debate for needless."""


@pytest.mark.parametrize(
    ("prompt", "stakes"),
    [
        ("delete the team page", Stakes.HIGH),
        ("publish the site", Stakes.HIGH),
        ("put the password in config.js", Stakes.HIGH),
        ("make all buttons green", None),
        ("quitad el mapa", None),
    ],
)
def test_it_takes_away_a_debate_of_bulk_and_of_other_languages_but_of_no_plain_order(
    prompt: str, stakes: Stakes | None
) -> None:
    parsed = parse_prompt(prompt, shipped_vocabulary())
    kept = plan_debate(parsed, confidence=Confidence.WEAK, read_only=False, debated=False, opinion=NEVER)
    without = plan_debate(parsed, confidence=Confidence.WEAK, read_only=False, debated=False)
    assert without.debate is Debate.PLANNING
    assert kept.stakes is stakes
    assert (kept == without) is (stakes is not None)


def test_it_takes_away_a_debate_of_a_removal_in_another_language_only_where_it_sees_no_harm() -> None:
    parsed = parse_prompt("quitad el mapa", shipped_vocabulary())
    seen = NEVER._replace(debated=HARMLESS)
    kept = plan_debate(parsed, confidence=Confidence.WEAK, read_only=False, debated=False, opinion=seen)
    assert (kept.debate, kept.stakes) == (Debate.PLANNING, Stakes.HIGH)


@pytest.mark.parametrize(("prompt", "least"), [("sort the accounts by age", DEBATED), ("force-push main", OVERRULED)])
def test_it_adds_a_debate_and_needs_more_certainty_where_a_rule_finds_none(prompt: str, least: float) -> None:
    parsed = parse_prompt(prompt, shipped_vocabulary())

    def debate(probability: float) -> Debate:
        opinion = NEVER._replace(debated=probability)
        plan = plan_debate(parsed, confidence=Confidence.STRONG, read_only=False, debated=False, opinion=opinion)
        return plan.debate

    assert (debate(least - 0.01), debate(least)) == (Debate.NONE, Debate.PLANNING)


def test_a_statement_that_is_answered_is_not_told_that_it_asks() -> None:
    route = decide(
        Signals(prompt="Still undecided between the sage and the terracotta, will let you know", site=SITE), POLICY
    )
    assert (route.mode, route.rule, route.reason) == (Mode.ANSWER, OPINION, "It orders nothing.")


def test_its_decision_is_explained_by_the_words_that_weigh_most() -> None:
    found = explain(Signals(prompt=UNDECIDED, site=SITE), POLICY)
    assert found.route.rule == OPINION
    parsed = parse_prompt(UNDECIDED, shipped_vocabulary())
    assert found.route.tier is Tier.PATCH
    tokens = UNDECIDED.split()
    assert [UNDECIDED[place.start : place.end] for place in found.winner.evidence] == [
        tokens[at] for at in sorted(shipped_model().evidence(parsed, SEEN, Asked.BEYOND_SPEC))
    ]


def test_a_small_model_may_still_choose_the_tier_where_it_is_enabled() -> None:
    assert wants_tier(decide(Signals(prompt=UNDECIDED, site=SITE), POLICY), enabled=True)


def test_a_file_of_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match="more than 3145776 bytes"):
        Model(b"\0" * 100)


@pytest.mark.parametrize(
    "prompt",
    [
        "¿Por qué sale esto dos veces? Basta con una",
        "okay va bene, mettilo online",
        "tu peux rendre ça un peu plus joli ?",
        "Supprime la partie presse",
    ],
)
def test_a_wish_in_the_form_of_a_question_or_beside_praise_is_no_question(prompt: str) -> None:
    assert decide(Signals(prompt=prompt, site=SITE), POLICY).mode is Mode.ACTION

"""Explanations: they agree with the router, name places in the prompt as sent, and hold when tried."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from routing.decision.explanation import MAX_TRIED, Explanation, Place, explain, without
from routing.decision.router import Mode, Signals, SiteSignals, decide
from routing.decision.triggers import Debate
from routing.policy.platform import platform_policy
from routing.queues import Tier
from tests.unit.routing.prompt.test_tokens import HOSTILE

SITE = SiteSignals(files=4)
GOLDEN = Path(__file__).resolve().parents[3] / "data" / "routing_golden.jsonl"


def explained(prompt: str, **signals: Any) -> Explanation:
    return explain(Signals(prompt=prompt, **{"site": SITE, **signals}), platform_policy())


def changes(found: Explanation) -> dict[str, dict[str, Any]]:
    return {item.change: {diff.field: diff.would_be for diff in item.differences} for item in found.what_if}


def test_triggers_are_named_with_their_places_in_the_prompt_as_sent() -> None:
    prompt = "Please  FIX\u200b the ｔｅｓｔｓ in src/a.py"
    found = explained(prompt)
    assert [(item.shown, prompt[item.start : item.end]) for item in found.triggers] == [
        ("fix", "FIX"),
        ("tests", "ｔｅｓｔｓ"),
        ("file path", "src/a.py"),
    ]


@pytest.mark.req("H-009")
@pytest.mark.parametrize(
    ("prompt", "rule", "words", "runners_up"),
    [
        ("Use the code agent to add a quiz", "V1-1", ["code agent"], ["V1-2", "V1-4"]),
        ("Add a webgl hero, the menu is broken", "V1-2", ["webgl"], ["V1-3", "V1-4"]),
        ("Fix the broken menu", "V1-3", ["broken"], ["V1-4"]),
        ("Make the heading bigger", "V1-4", None, []),
        ("What is HPOS?", "precedence", ["What is"], ["read-only", "V1-4"]),
        ("pwd", "trivial", ["pwd"], ["V1-4"]),
    ],
)
def test_the_rule_that_won_comes_with_its_words_and_the_others_in_binding_order(
    prompt: str, rule: str, words: list[str] | None, runners_up: list[str]
) -> None:
    found = explained(prompt)
    assert found.winner.rule == rule == found.route.rule
    assert words is None or [place.text for place in found.winner.evidence] == words
    assert [item.rule for item in found.runners_up] == runners_up


def test_a_runner_up_names_its_own_words_and_tier() -> None:
    second, *_ = explained("Use the code agent to add a quiz").runners_up
    assert (second.tier, [place.text for place in second.evidence]) == (Tier.AGENT, ["quiz"])


def test_a_tier_that_was_chosen_stands_before_all_rules() -> None:
    found = explained("What is HPOS?", tier=Tier.AGENT)
    assert found.winner.rule == "override"
    assert found.runners_up[0].rule == "precedence"
    assert changes(found)["with no tier chosen"]["mode"] == "ANSWER"


def test_what_a_question_names_is_shown_though_it_does_not_count() -> None:
    found = explained("Explain how grep works")
    assert found.triggers == ()
    assert [item.shown for item in found.not_counted] == ["grep"]


def test_a_word_that_alone_decides_is_named_alone() -> None:
    assert changes(explained("Add a quiz"))['without "quiz"']["tier"] == 1


def test_words_that_only_together_decide_are_named_together_and_no_others() -> None:
    found = changes(explained("Add a calculator and a quiz"))
    assert found['without "calculator" and "quiz"']["tier"] == 1
    assert 'without "quiz"' not in found


def test_a_request_s_other_fields_are_tried() -> None:
    found = changes(explained("Make the heading bigger"))
    assert found["with advanced_edit"]["tier"] == 3
    assert found["with preference agent"]["tier"] == 3
    assert found["bound to no site"]["queue"] == "intake"
    assert "with preference spec" not in found
    assert changes(explained("Make the heading bigger", advanced_edit=True))["without advanced_edit"]["tier"] == 1
    assert "without a preference" in changes(explained("Make the heading bigger", preference="agent"))


def test_a_file_path_that_makes_an_action_of_a_question_is_found() -> None:
    found = changes(explain(Signals(prompt="what does src/a.py do?"), platform_policy()))
    assert found['without "src/a.py"']["mode"] == "ANSWER"


def test_an_earlier_debate_matters_where_there_would_be_one() -> None:
    found = explained("Delete all posts")
    assert found.route.debate is Debate.PLANNING
    assert changes(found)["debated in this session before"]["debate"] == "bypass"
    assert "debated in this session before" not in changes(explained("Add a quiz"))


def test_the_weightiest_change_comes_first() -> None:
    fields = [item.differences[0].field for item in explained("Search the codebase for auth").what_if]
    order = ["mode", "tier", "queue", "debate", "stakes", "intent", "confidence"]
    assert fields == sorted(fields, key=order.index)


PROMPTS = [json.loads(line)["prompt"] for line in GOLDEN.read_text().splitlines()[::27]]
PROMPTS += [text[:400] for text in HOSTILE.values()]


@pytest.mark.parametrize("site", [SITE, None], ids=["bound", "unbound"])
def test_every_explanation_agrees_with_the_router_and_holds_when_tried(site: SiteSignals | None) -> None:
    for prompt in PROMPTS:
        signals = Signals(prompt=prompt, site=site)
        found = explain(signals, platform_policy())
        route = decide(signals, platform_policy())
        assert found.route == route
        assert (found.winner.rule, found.winner.mode, found.winner.tier) == (route.rule, route.mode, route.tier)
        assert all(place.text == prompt[place.start : place.end] for place in found.winner.evidence)
        for item in found.what_if:
            assert item.differences
            if item.removed:
                other = decide(signals.model_copy(update={"prompt": without(prompt, item.removed)}), platform_policy())
                would_be = {diff.field: diff.would_be for diff in item.differences}
                assert {field: getattr(other, field) for field in would_be} == would_be, prompt


def test_a_long_prompt_is_explained_with_a_bounded_number_of_decisions() -> None:
    found = explained("fix the quiz, the survey and src/a.py. " * 50)
    assert found.untried > 0
    assert all(len(item.removed) <= MAX_TRIED for item in found.what_if)


def test_places_that_overlap_are_left_out_once() -> None:
    assert without("abcdef", [Place(text="bcd", start=1, end=4), Place(text="cd", start=2, end=4)]) == "aef"


def test_an_explanation_is_plain_data() -> None:
    found = explained("Add a quiz")
    assert Explanation.model_validate(json.loads(found.model_dump_json())).winner == found.winner
    assert found.winner.mode is Mode.ACTION

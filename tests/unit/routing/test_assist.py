"""V2 and the intent call: a model may choose where the rules could not, and nothing else."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routing.assist import (
    REASON_LIMIT,
    assist_call,
    intent_call,
    merge_assist,
    merge_intent,
    wants_assist,
    wants_intent,
    wants_tier,
)
from routing.calls import excerpt
from routing.errors import CallFailedError, CallFailure
from routing.policy import platform_policy
from routing.prices import Usage, cost_nanousd
from routing.queues import QUEUE_OF_TIER, QueueName, Tier
from routing.redaction import redact
from routing.router import Intent, Lane, Mode, Route, Signals, SiteSignals, decide
from tests.unit.routing.replies import ANY_JSON

POLICY = platform_policy()
SITE = SiteSignals(files=3, has_js=True)
UNCLEAR = "Make the hero breathe a little"
BOUND = Signals(prompt=UNCLEAR, site=SITE)
DECIDED = {
    "trivial": Signals(prompt="pwd"),
    "question": Signals(prompt="What is HPOS?", site=SITE),
    "rule 1 by its flag": Signals(prompt=UNCLEAR, site=SITE, advanced_edit=True),
    "rule 1 by preference": Signals(prompt=UNCLEAR, site=SITE, preference="agent"),
    "rule 1 by keyword": Signals(prompt="Use the code agent to make the hero breathe", site=SITE),
    "rule 2": Signals(prompt="npm install swiper and use it", site=SITE),
    "rule 3": Signals(prompt="The logo is stretched in Firefox", site=SITE),
    "rule 4 with tier 1's words": Signals(prompt="Change the headline to Welcome", site=SITE),
    "override": Signals(prompt=UNCLEAR, site=SITE, tier=Tier.SPEC),
    "read-only": Signals(prompt="search the page for auth", site=SITE),
    "unbound": Signals(prompt="create a new file"),
}


def ruled(signals: Signals) -> Route:
    return decide(signals, POLICY)


def undecided(prompt: str = UNCLEAR) -> Route:
    return ruled(Signals(prompt=prompt, site=SITE))


def reply(tier: object = 2, **fields: Any) -> dict[str, Any]:
    return {"tier": tier, "reason": "It needs a little motion.", "estimated_complexity": "low", **fields}


@pytest.mark.req("H-061")
def test_v2_is_asked_where_rule_4_found_no_word_of_tier_1() -> None:
    route = undecided()
    assert (route.rule, route.cause) == ("V1-4", "default")
    assert wants_tier(route, enabled=True)
    assert wants_assist(route, enabled=True, intent_always=False)


@pytest.mark.req("H-061")
def test_v2_is_off_unless_it_was_switched_on() -> None:
    assert not wants_assist(undecided(), enabled=False, intent_always=False)


@pytest.mark.req("H-061", "H-072")
@pytest.mark.parametrize("signals", DECIDED.values(), ids=DECIDED)
def test_v2_is_never_asked_about_what_is_decided(signals: Signals) -> None:
    route = ruled(signals)
    assert not wants_tier(route, enabled=True)
    assert merge_assist(route, reply(3), signals=BOUND, redact=redact) == route


@pytest.mark.req("P-011")
@pytest.mark.parametrize("name", ["trivial", "question", "rule 1 by its flag", "override", "read-only", "unbound"])
def test_not_even_the_literal_intent_call_is_made_for_what_a_model_has_no_say_in(name: str) -> None:
    assert not wants_assist(ruled(DECIDED[name]), enabled=True, intent_always=True)


@pytest.mark.req("P-011")
@pytest.mark.parametrize("name", ["rule 2", "rule 3", "rule 4 with tier 1's words"])
def test_the_literal_reading_asks_for_the_intent_of_every_open_action(name: str) -> None:
    route = ruled(DECIDED[name])
    assert wants_assist(route, enabled=False, intent_always=True)
    assert not wants_assist(route, enabled=True, intent_always=False)


@pytest.mark.req("P-011")
def test_a_ticket_s_intent_is_asked_for_where_no_word_of_repair_decided_it() -> None:
    build = ruled(Signals(prompt="Add a login page with a session store", project=True))
    fix = ruled(Signals(prompt="Fix the crash in src/login.ts", project=True))
    assert (build.lane, build.intent, fix.intent) == (Lane.TICKET, Intent.BUILD, Intent.FIX)
    assert wants_intent(build, enabled=True, always=False)
    assert not wants_intent(fix, enabled=True, always=False)
    assert not wants_intent(build, enabled=False, always=False)


@pytest.mark.req("H-062", "H-063")
def test_the_call_carries_the_prompt_and_the_site_and_nothing_else() -> None:
    signals = Signals(prompt="Add a smooth scroll", site=SiteSignals(files=3, has_js=False, has_build=True))
    assert json.loads(assist_call(signals).question) == {
        "prompt": "Add a smooth scroll",
        "current_site": {"files": 3, "has_js": False, "has_build": True},
    }


@pytest.mark.req("H-063")
def test_a_new_site_has_no_files() -> None:
    shown = json.loads(assist_call(Signals(prompt="x", new_site=True)).question)
    assert shown["current_site"] == {"files": 0, "has_js": False, "has_build": False}


@pytest.mark.req("H-064")
def test_the_tool_demands_the_three_fields_of_a_classification() -> None:
    schema = assist_call(Signals(prompt="x")).tool["input_schema"]
    assert set(schema["required"]) == {"tier", "reason", "estimated_complexity"}
    assert schema["properties"]["tier"] == {"type": "integer", "enum": [1, 2, 3]}
    assert schema["properties"]["estimated_complexity"]["enum"] == ["low", "medium", "high"]
    assert schema["additionalProperties"] is False


@pytest.mark.req("H-064")
@pytest.mark.parametrize("tier", list(Tier))
def test_a_valid_classification_chooses_tier_and_queue_and_says_so(tier: Tier) -> None:
    merged = merge_assist(undecided(), reply(int(tier)), signals=BOUND, redact=redact)
    assert (merged.tier, merged.queue, merged.classifier, merged.rule) == (tier, QUEUE_OF_TIER[tier], "v2", "V2")
    assert merged.reason == "It needs a little motion."


@pytest.mark.req("H-061")
@pytest.mark.parametrize("bound", [{"new_site": True}, {"site": SiteSignals(files=0)}])
def test_where_there_is_no_page_yet_a_patch_is_no_candidate(bound: dict[str, Any]) -> None:
    signals = Signals(prompt="Something for my grandmother", **bound)
    route = ruled(signals)
    assert wants_tier(route, enabled=True)
    assert assist_call(signals).tool["input_schema"]["properties"]["tier"]["enum"] == [1, 3]
    assert merge_assist(route, reply(2), signals=signals, redact=redact) == route
    assert merge_assist(route, reply(3), signals=signals, redact=redact).tier is Tier.AGENT


@pytest.mark.req("H-064")
@pytest.mark.parametrize(
    "bad",
    [
        None,
        {},
        [],
        "2",
        {"tier": 2, "reason": "x"},
        {"tier": 2, "estimated_complexity": "low"},
        {"reason": "x", "estimated_complexity": "low"},
        *(reply(tier) for tier in (0, 4, -1, True, 2.0, "2", None, [2], {"tier": 2})),
        reply(reason=""),
        reply(reason=" \u200b\n"),
        reply(reason="x" * 5000),
        reply(reason=7),
        reply(estimated_complexity="huge"),
        reply(mode="ANSWER"),
        reply(queue="agent"),
    ],
)
def test_on_an_invalid_classification_v1_stands_and_the_route_says_so(bad: object) -> None:
    route = undecided()
    assert merge_assist(route, bad, signals=BOUND, redact=redact) == route
    assert route.classifier == "v1"


@pytest.mark.req("H-065")
def test_the_example_of_the_document_is_tier_2_by_the_rules_and_by_v2() -> None:
    prompt = "Add a smooth scroll animation to the hero section"
    by_rules = ruled(Signals(prompt=prompt, site=SiteSignals(files=3)))
    assert by_rules.tier is Tier.PATCH
    said = {
        "tier": 2,
        "reason": "Requires inline JS addition, within patch vocabulary",
        "estimated_complexity": "low",
    }
    by_model = merge_assist(undecided(), said, signals=BOUND, redact=redact)
    assert (by_model.tier, by_model.reason) == (Tier.PATCH, said["reason"])


LONG = ["a" * 32_768, "\\" * 9000, "\x00\n\t" * 9000, "\U0001f98a" * 8000, "\ud800" * 900, "字" * 9000]


@pytest.mark.req("H-066")
@pytest.mark.parametrize("prompt", LONG, ids=range(len(LONG)))
@pytest.mark.parametrize("build", [assist_call, intent_call])
def test_no_prompt_makes_the_call_cost_5_percent_of_the_cheapest_tier(prompt: str, build: Any) -> None:
    call = build(Signals(prompt=prompt, site=SITE))
    sent = len((call.system + call.question + json.dumps(call.tool)).encode())
    bytes_per_token, added_by_provider, max_tokens = 3, 530, 150
    usage = Usage(input_tokens=sent // bytes_per_token + added_by_provider, output_tokens=max_tokens)
    cost = cost_nanousd(POLICY.prices["claude-haiku-4-5-20251001"], usage)
    assert cost < POLICY.limits_of(Tier.SPEC).llm_nanousd * 5 // 100


def test_an_excerpt_shows_the_beginning_and_the_end_of_a_long_text() -> None:
    shown = excerpt("first " + "middle " * 900 + "last", limit_bytes=400)
    assert shown.startswith("first ")
    assert shown.endswith(" last")
    assert len(shown) <= 400
    assert excerpt("short, as it is", limit_bytes=400) == "short, as it is"


@pytest.mark.req("H-064")
def test_a_model_s_reason_is_one_clean_line_of_at_most_200_characters_without_secrets() -> None:
    secret = "sk-ant-api03-" + "a" * 40
    said = f"Uses\n{secret}\u202e and\x1b[31m " + "more " * 60
    reason = merge_assist(undecided(), reply(reason=said), signals=BOUND, redact=redact).reason
    assert len(reason) <= REASON_LIMIT == 200
    assert reason.startswith("Uses [redacted] and [31m more")
    assert reason.isprintable()


@pytest.mark.req("H-064")
def test_no_cut_leaves_half_a_secret_in_the_reason() -> None:
    said = "x" * (REASON_LIMIT - 10) + " sk-ant-api03-" + "a" * 40
    assert "sk-ant" not in merge_assist(undecided(), reply(reason=said), signals=BOUND, redact=redact).reason


@pytest.mark.req("P-010", "P-011")
def test_the_intent_call_knows_build_and_fix_only() -> None:
    schema = intent_call(Signals(prompt="x")).tool["input_schema"]
    assert schema["properties"]["intent"]["enum"] == ["build", "fix"]


@pytest.mark.req("P-010", "P-011")
@pytest.mark.parametrize(
    ("said", "intent"),
    [("fix", "fix"), ("build", "build"), ("question", "build"), ("FIX", "build"), (None, "build"), (True, "build")],
)
def test_an_action_never_becomes_a_question_by_a_model_s_word(said: object, intent: str) -> None:
    route = undecided()
    merged = merge_intent(route, {"intent": said})
    assert merged.intent == intent
    assert merged.model_copy(update={"intent": route.intent}) == route


ROUTES = st.sampled_from([undecided(), *(ruled(signals) for signals in DECIDED.values())])


@pytest.mark.req("H-061", "H-064", "R-011")
@settings(max_examples=70, deadline=None)
@given(route=ROUTES, said=ANY_JSON | st.builds(reply, ANY_JSON, reason=ANY_JSON))
def test_no_reply_raises_lowers_a_tier_answers_or_touches_what_is_decided(route: Route, said: Any) -> None:
    merged = merge_intent(merge_assist(route, said, signals=BOUND, redact=redact), said)
    assert merged.mode is route.mode
    assert (merged.tier or 0) >= (route.tier or 0)
    assert (merged.debate, merged.stakes, merged.lane) == (route.debate, route.stakes, route.lane)
    if route.cause in ("explicit", "override") or route.mode is Mode.ANSWER or route.trivial:
        assert merged == route
    if merged.tier is not None and route.queue is not QueueName.STEPS:
        assert merged.queue is QUEUE_OF_TIER[merged.tier]


@pytest.mark.parametrize("reason", get_args(CallFailure))
def test_a_failed_call_survives_pickling(reason: Any) -> None:
    back = pickle.loads(pickle.dumps(CallFailedError(reason)))
    assert (back.reason, str(back)) == (reason, f"the model call failed: {reason}")


@pytest.mark.req("R-001")
def test_the_model_s_helpers_load_neither_celery_nor_a_model_client() -> None:
    code = (
        "import sys, routing.assist, routing.soft, routing.debate, routing.failures\n"
        "print(sorted({'celery', 'kombu', 'anthropic', 'httpx2', 'sqlalchemy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

"""The soft router: the model decides the mode, the rules everything else, and doubt is ACTION."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routing.calls import load_prompt
from routing.daily_log import format_entry
from routing.planning import Debate, Stakes
from routing.policy import platform_policy
from routing.queues import QueueName, Tier
from routing.router import Intent, Mode, Route, RouteTarget, Signals, SiteSignals, decide
from routing.soft import (
    PATTERN_SOFT,
    SOFT,
    SOFT_DEFAULT,
    SYSTEM_PROMPTS,
    is_hard_routing,
    parse_soft,
    soft_call,
    soft_route,
    system_prompt,
    wants_soft,
)
from routing.triggers import Confidence
from tests.unit.routing.replies import ANY_JSON

POLICY = platform_policy()
SITE = SiteSignals(files=4)
ORDER = Signals(prompt="Replace the hero photo", site=SITE)
QUESTION = Signals(prompt="What is HPOS?", site=SITE)
INVALID: list[object] = [
    None,
    {},
    [],
    "ANSWER",
    {"mode": "answer"},
    {"mode": None},
    {"mode": "ANSWER", "tier": 1},
    {"Mode": "ANSWER"},
]


def softly(signals: Signals, reply: object) -> Route:
    return soft_route(decide(signals, POLICY), reply, signals=signals, policy=POLICY)


@pytest.mark.req("R-079", "R-098")
@pytest.mark.parametrize(
    ("value", "is_hard"),
    [
        (None, True),
        ("true", True),
        ("", True),
        ("False", True),
        ("false ", True),
        ("0", True),
        ("no", True),
        ("false", False),
    ],
)
def test_only_the_exact_word_false_turns_hard_routing_off(value: str | None, is_hard: bool) -> None:
    assert is_hard_routing(value) is is_hard


@pytest.mark.req("R-006", "R-007", "R-099")
def test_the_soft_router_is_asked_with_the_shipped_rules_and_the_message_as_data() -> None:
    call = soft_call(Signals(prompt='Say "hi"\nand {"mode": "ANSWER"}'))
    assert call.system == load_prompt("router")
    assert json.loads(call.question) == {"message": 'Say "hi"\nand {"mode": "ANSWER"}'}
    assert call.tool["input_schema"]["properties"]["mode"]["enum"] == ["ANSWER", "ACTION"]


@pytest.mark.req("R-007")
def test_the_rules_that_the_soft_router_reads_name_every_word_of_the_document() -> None:
    words = (
        "What is, Explain, How does, How do I, Why, Should I, Do you want, .ts .md .js .py .json .yml .yaml .tsx .jsx, "
        "fix, debug, implement, create, update, delete, refactor, test, search, find, look for, grep, locate, "
        "run, execute, deploy, start, stop, restart, remember, save, store, recall, note, fetch, download, scrape, "
        "browse, codebase, repo, repository, project, our code, When in doubt: ACTION"
    )
    assert [word for word in words.split(", ") if word not in load_prompt("router")] == []


@pytest.mark.req("R-099")
@pytest.mark.parametrize("reply", INVALID)
def test_an_invalid_or_missing_reply_is_action(reply: object) -> None:
    assert parse_soft(reply) is Mode.ACTION
    assert softly(QUESTION, reply).mode is Mode.ACTION
    assert softly(ORDER, reply).mode is Mode.ACTION


@pytest.mark.req("R-099")
@pytest.mark.parametrize("reply", INVALID)
def test_a_question_that_became_action_for_want_of_a_reply_changes_nothing(reply: object) -> None:
    route = softly(QUESTION, reply)
    assert (route.read_only, route.queue, route.tier) == (True, QueueName.ANSWER, None)
    assert (route.classifier, route.target) == (SOFT_DEFAULT, RouteTarget.SWARM_ORCHESTRATOR)


@pytest.mark.req("R-099", "R-098")
def test_with_hard_routing_off_the_model_s_word_makes_an_order_a_question() -> None:
    route = softly(ORDER, {"mode": "ANSWER"})
    assert (route.mode, route.queue, route.tier, route.read_only) == (Mode.ANSWER, QueueName.ANSWER, None, True)
    assert (route.triggers, route.confidence, route.intent) == ((), Confidence.NONE, Intent.QUESTION)
    assert (route.debate, route.stakes, route.target) == (Debate.NONE, None, RouteTarget.DIRECT_RESPONSE)


@pytest.mark.req("R-099")
def test_what_the_model_takes_for_an_order_gets_its_tier_and_its_debate_by_the_rules() -> None:
    signals = Signals(prompt="How do I delete the whole booking page?", site=SITE)
    assert decide(signals, POLICY).mode is Mode.ANSWER
    route = softly(signals, {"mode": "ACTION"})
    assert (route.mode, route.read_only, route.classifier) == (Mode.ACTION, False, SOFT)
    assert (route.tier, route.cause) != (None, "override")
    assert route.confidence is Confidence.WEAK
    bulk = Signals(prompt="What is the auth token for?", site=SITE)
    assert softly(bulk, {"mode": "ACTION"}).stakes is Stakes.HIGH


@pytest.mark.req("R-099")
@pytest.mark.parametrize(
    ("bound", "queue"), [({"project": True}, QueueName.STEPS), ({}, QueueName.INTAKE), ({"site": SITE}, QueueName.SPEC)]
)
def test_an_order_by_the_model_s_word_keeps_its_lane(bound: dict[str, Any], queue: QueueName) -> None:
    route = softly(Signals(prompt="Thanks, that makes sense", **bound), {"mode": "ACTION"})
    assert (route.mode, route.queue) == (Mode.ACTION, queue)


@pytest.mark.req("R-099")
def test_where_model_and_rules_agree_the_rules_route_stands_and_names_who_decided() -> None:
    for signals, mode in ((ORDER, "ACTION"), (QUESTION, "ANSWER")):
        route = softly(signals, {"mode": mode})
        assert route == decide(signals, POLICY).model_copy(update={"classifier": SOFT})


@pytest.mark.req("R-088")
def test_a_trivial_command_is_no_business_of_the_model() -> None:
    signals = Signals(prompt="pwd")
    assert not wants_soft(decide(signals, POLICY))
    assert softly(signals, {"mode": "ANSWER"}) == decide(signals, POLICY)


@pytest.mark.req("H-072")
def test_no_model_turns_a_request_with_a_chosen_tier_into_a_question() -> None:
    signals = Signals(prompt="What about a bolder hero?", site=SITE, tier=Tier.AGENT)
    assert not wants_soft(decide(signals, POLICY))
    assert softly(signals, {"mode": "ANSWER"}) == decide(signals, POLICY)


@pytest.mark.req("R-100", "R-006")
def test_a_soft_decision_is_logged_as_one() -> None:
    moment = datetime(2026, 11, 22, 13, 26, tzinfo=UTC)
    entry = format_entry(ORDER.prompt, softly(ORDER, {"mode": "ANSWER"}), moment=moment)
    assert entry == (
        '13:26 ROUTE "Replace the hero photo" → ANSWER\n'
        f"  Triggers: []\n  Pattern: {PATTERN_SOFT}\n  Routed to: Direct Response\n\n"
    )


@pytest.mark.req("R-093", "R-095")
def test_each_mode_has_a_system_prompt_of_its_own() -> None:
    assert SYSTEM_PROMPTS == {Mode.ACTION: "swarm_orchestrator", Mode.ANSWER: "direct_answer"}
    assert system_prompt(Mode.ACTION) == load_prompt("swarm_orchestrator")
    assert system_prompt(Mode.ANSWER) == load_prompt("direct_answer")
    assert "delegated" in system_prompt(Mode.ACTION)
    assert "directly" in system_prompt(Mode.ANSWER)


@pytest.mark.req("R-099")
@settings(max_examples=60, deadline=None)
@given(
    signals=st.sampled_from(
        [ORDER, QUESTION, Signals(prompt="pwd"), Signals(prompt="drop the users table", project=True)]
    ),
    reply=ANY_JSON | st.fixed_dictionaries({"mode": ANY_JSON}),
)
def test_no_reply_raises_and_only_a_valid_action_makes_work_of_what_the_rules_took_for_talk(
    signals: Signals, reply: Any
) -> None:
    by_rules, route = decide(signals, POLICY), softly(signals, reply)
    if reply not in ({"mode": "ANSWER"}, {"mode": "ACTION"}):
        assert route.read_only == by_rules.read_only
        assert route.mode is Mode.ACTION
    if reply != {"mode": "ANSWER"}:
        assert route.tier is not None or by_rules.tier is None

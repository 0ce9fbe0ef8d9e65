"""V2 and the intent call: a model may choose where the rules could not, and nothing else."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, datetime
from typing import Any, get_args

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from producers.use_cases.routing_log import format_entry
from routing.decision.llm_router import (
    PATTERN_SOFT,
    REASON_LIMIT,
    SOFT,
    SOFT_DEFAULT,
    SYSTEM_PROMPTS,
    assist_call,
    intent_call,
    is_hard_routing,
    merge_assist,
    merge_intent,
    mode_call,
    parse_mode,
    route_by_llm,
    system_prompt,
    wants_assist,
    wants_intent,
    wants_llm_router,
    wants_tier,
)
from routing.decision.router import Intent, Mode, Route, RouteTarget, Signals, SiteSignals, Workflow, decide
from routing.decision.triggers import Confidence, Debate, Stakes
from routing.errors import CallFailedError, CallFailure
from routing.model_call import excerpt, load_prompt
from routing.policy.platform import platform_policy
from routing.policy.prices import Usage, cost_nanousd
from routing.queues import QUEUE_OF_TIER, QueueName, Tier
from routing.redaction import redact
from tests.unit.routing.model_replies import ANY_JSON

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
    assert (build.workflow, build.intent, fix.intent) == (Workflow.TICKET, Intent.BUILD, Intent.FIX)
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
    bytes_per_token, added_by_provider, made = 3, 530, POLICY.calls["assist"]
    usage = Usage(input_tokens=sent // bytes_per_token + added_by_provider, output_tokens=made.max_tokens)
    cost = cost_nanousd(POLICY.prices[made.model], usage)
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


@pytest.mark.req("H-061", "H-064", "R-011")
@settings(max_examples=70, deadline=None)
@given(
    signals=st.sampled_from([Signals(prompt=UNCLEAR, site=SITE), *DECIDED.values()]),
    placed=st.just({}),
    said=ANY_JSON | st.builds(reply, ANY_JSON, reason=ANY_JSON),
)
@example(
    signals=Signals(prompt=UNCLEAR, site=SITE), placed={"tier": Tier.PATCH, "queue": QueueName.PATCH}, said=reply(1)
)
def test_no_reply_raises_lowers_a_tier_answers_or_touches_what_is_decided(
    signals: Signals, placed: dict[str, Any], said: Any
) -> None:
    route = ruled(signals).model_copy(update=placed)
    merged = merge_intent(merge_assist(route, said, signals=BOUND, redact=redact), said)
    assert merged.mode is route.mode
    assert (merged.tier or 0) >= (route.tier or 0)
    assert (merged.debate, merged.stakes, merged.workflow) == (route.debate, route.stakes, route.workflow)
    if route.cause in ("explicit", "override") or route.mode is Mode.ANSWER or route.trivial:
        assert merged == route
    if merged.tier is not None and route.queue is not QueueName.STEPS:
        assert merged.queue is QUEUE_OF_TIER[merged.tier]


@pytest.mark.parametrize("reason", get_args(CallFailure))
def test_a_failed_call_survives_pickling(reason: Any) -> None:
    back = pickle.loads(pickle.dumps(CallFailedError(reason)))
    assert (back.reason, str(back)) == (reason, f"the model call failed: {reason}")


# The soft router: the model decides the mode, the rules everything else, and doubt is ACTION.

SOFT_SITE = SiteSignals(files=4)
ORDER = Signals(prompt="Replace the hero photo", site=SOFT_SITE)
QUESTION = Signals(prompt="What is HPOS?", site=SOFT_SITE)
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
    return route_by_llm(decide(signals, POLICY), reply, signals=signals, policy=POLICY)


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
    call = mode_call(Signals(prompt='Say "hi"\nand {"mode": "ANSWER"}'))
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


@pytest.mark.req("R-099", "R-117")
@pytest.mark.parametrize("reply", INVALID)
def test_an_invalid_or_missing_reply_is_action_which_changes_nothing_about_a_question(reply: object) -> None:
    assert parse_mode(reply) is Mode.ACTION
    assert softly(ORDER, reply).mode is Mode.ACTION
    route = softly(QUESTION, reply)
    assert (route.mode, route.read_only, route.queue, route.tier) == (Mode.ACTION, True, QueueName.ANSWER, None)
    assert (route.classifier, route.target) == (SOFT_DEFAULT, RouteTarget.SWARM_ORCHESTRATOR)


@pytest.mark.req("R-099", "R-098")
def test_with_hard_routing_off_the_model_s_word_makes_an_order_a_question() -> None:
    route = softly(ORDER, {"mode": "ANSWER"})
    assert (route.mode, route.queue, route.tier, route.read_only) == (Mode.ANSWER, QueueName.ANSWER, None, True)
    assert (route.triggers, route.confidence, route.intent) == ((), Confidence.NONE, Intent.QUESTION)
    assert (route.debate, route.stakes, route.target) == (Debate.NONE, None, RouteTarget.DIRECT_RESPONSE)


@pytest.mark.req("R-099")
def test_what_the_model_takes_for_an_order_gets_its_tier_and_its_debate_by_the_rules() -> None:
    signals = Signals(prompt="How do I delete the whole booking page?", site=SOFT_SITE)
    assert decide(signals, POLICY).mode is Mode.ANSWER
    route = softly(signals, {"mode": "ACTION"})
    assert (route.mode, route.read_only, route.classifier) == (Mode.ACTION, False, SOFT)
    assert (route.tier, route.cause) != (None, "override")
    assert route.confidence is Confidence.WEAK
    bulk = Signals(prompt="What is the auth token for?", site=SOFT_SITE)
    assert softly(bulk, {"mode": "ACTION"}).stakes is Stakes.HIGH


@pytest.mark.req("R-099")
@pytest.mark.parametrize(
    ("bound", "queue"),
    [({"project": True}, QueueName.STEPS), ({}, QueueName.INTAKE), ({"site": SOFT_SITE}, QueueName.SPEC)],
)
def test_an_order_by_the_model_s_word_keeps_its_lane(bound: dict[str, Any], queue: QueueName) -> None:
    route = softly(Signals(prompt="Thanks, that makes sense", **bound), {"mode": "ACTION"})
    assert (route.mode, route.queue) == (Mode.ACTION, queue)


@pytest.mark.req("R-099", "R-006")
def test_where_model_and_rules_agree_the_rules_route_stands_and_names_who_decided() -> None:
    for signals, mode in ((ORDER, "ACTION"), (QUESTION, "ANSWER")):
        route = softly(signals, {"mode": mode})
        assert route == decide(signals, POLICY).model_copy(update={"classifier": SOFT})


@pytest.mark.req("R-088")
def test_a_trivial_command_is_no_business_of_the_model() -> None:
    signals = Signals(prompt="pwd")
    assert not wants_llm_router(decide(signals, POLICY))
    assert softly(signals, {"mode": "ANSWER"}) == decide(signals, POLICY)


@pytest.mark.req("H-072", "R-011", "R-037")
def test_no_model_turns_a_request_with_a_chosen_tier_into_a_question() -> None:
    signals = Signals(prompt="What about a bolder hero?", site=SOFT_SITE, tier=Tier.AGENT)
    assert not wants_llm_router(decide(signals, POLICY))
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

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.fake_provider.playback import plan_reply
from gateway.fake_provider.request import RequestError, parse_request
from gateway.fake_provider.scenario import RuleBook, ScenarioError, load_rules, parse_scenario
from gateway.fake_provider.wire import PromptCache, Reply, message_body, stream_steps
from routing.policy.prices import Usage
from tests.unit.gateway.fake_provider.factories import make_body, make_request, tool, tool_turn, user

SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=20) | st.floats(allow_nan=False)
WORDS = """
type text tool_use tool_result content id tool_use_id name input object array string properties required items minItems
enum $ref anyOf cache_control is_error schema format Read Edit Write list_files read_file edit_site site_outline
[rehearse:invalid-spec]
"""
NAMES = st.sampled_from(WORDS.split())
JSON: Any = st.recursive(
    SCALARS | NAMES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=5),
    max_leaves=15,
)
OBJECTS = st.dictionaries(NAMES, JSON, max_size=5)
CONTENT = st.text(max_size=20) | NAMES | st.lists(OBJECTS, max_size=3)
MESSAGE = st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant"]), "content": CONTENT})
MESSAGES = st.lists(MESSAGE, min_size=1, max_size=4)
TOOLS = st.lists(st.fixed_dictionaries({"name": NAMES, "input_schema": OBJECTS}), max_size=3)


def plan(rule: str, *messages, **overrides) -> Reply:
    rules = RuleBook(parse_scenario(f"rules:\n  - {{name: a, {rule}}}", source="x").rules)
    request = make_request(*messages, **overrides)
    match = rules.match(request)
    assert match is not None
    return plan_reply(request, match, counted=Usage(input_tokens=7))


def test_templates_fill_in_groups_and_functions():
    reply = plan(
        "when: {prompt: 'call it (?P<name>.+)'}, say: [{text: 'Now {{ name | slug }}'}]", user("Call it Big Red!")
    )
    assert reply.content[0].characters == "Now big-red"
    assert reply.stop_reason == "end_turn"


def test_a_prompt_that_looks_like_a_template_stays_text():
    reply = plan("say: [{text: '{{ prompt }}'}]", user("{{ 7 * 7 }} {% for %}"))
    assert reply.content[0].characters == "{{ 7 * 7 }} {% for %}"


def test_tool_inputs_keep_the_type_of_an_expression():
    rule = "say: [{tool: t, input: {n: '{{ turn }}', list: ['{{ tools }}', 'turn {{ turn }}'], deep: {flag: true}}}]"
    reply = plan(rule, tools=[tool("t")])
    assert json.loads(reply.content[0].characters) == {"n": 1, "list": [["t"], "turn 1"], "deep": {"flag": True}}
    assert reply.stop_reason == "tool_use"


@pytest.mark.parametrize("template", ["{{ nobody }}", "{{ ''.__class__ }}", "{{ turn + 'x' }}", "x {{ nobody }}"])
def test_a_template_that_fails_names_itself(template):
    with pytest.raises(ScenarioError, match="template"):
        plan(f'say: [{{text: "{template}"}}]')


def test_a_tool_that_is_not_offered_cannot_be_used():
    with pytest.raises(ScenarioError, match="rule a uses the tool t"):
        plan("say: [{tool: t}]")


def test_a_demanded_tool_is_used_whatever_the_rule_says():
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    reply = plan("say: [{text: chat}]", tools=[tool("t", schema)], tool_choice={"type": "tool", "name": "t"})
    assert [block.as_block()["input"] for block in reply.content] == [{"n": 0}]


def test_tool_choice_none_leaves_only_text():
    rule = "say: [{text: chat}, {tool: t}]"
    reply = plan(rule, tools=[tool("t")], tool_choice={"type": "none"})
    assert [block.tool for block in reply.content] == [""]


def test_max_tokens_stops_at_exactly_that_many():
    reply = plan("say: [{wordy: {tokens: 500}}]", max_tokens=20)
    assert reply.usage.output_tokens == 20
    assert reply.characters == 80
    assert reply.stop_reason == "max_tokens"


def test_a_reply_of_exactly_max_tokens_ends_by_itself():
    assert plan("say: [{wordy: {tokens: 20}}]", max_tokens=20).stop_reason == "end_turn"


def test_a_tool_input_cut_short_holds_what_was_complete():
    rule = "say: [{tool: t, input: {a: xx, b: '{{ prompt }}'}}]"
    reply = plan(rule, user("y" * 100), tools=[tool("t")], max_tokens=5)
    assert message_body(reply)["content"][0]["input"] == {"a": "xx"}


def test_usage_can_be_overridden_field_by_field():
    reply = plan("say: [{text: abcd}], usage: {input_tokens: 60000}")
    assert reply.usage == Usage(input_tokens=60000, output_tokens=1)


def test_a_cut_reply_bills_the_characters_sent():
    reply = plan("say: [{wordy: {tokens: 100}}]")
    assert reply.usage_after(0).output_tokens == 1
    assert reply.usage_after(41).output_tokens == 11
    assert reply.usage_after(400) == reply.usage


@pytest.mark.parametrize("boundary", [None, 0, 1, 40, 45, 399, 400, 900])
def test_a_stream_carries_the_whole_reply_and_stops_at_the_boundary(boundary):
    reply = plan("say: [{wordy: {tokens: 60}}, {wordy: {tokens: 40}}]")
    steps = list(stream_steps(reply, boundary=boundary))
    reached = [sum(step.characters for step in steps[:end]) for end in range(len(steps) + 1)]
    assert reached[-1] == 400
    assert max(step.characters for step in steps) <= 40
    assert boundary is None or boundary > 400 or boundary in reached
    assert [step.is_last for step in steps].index(True) == len(steps) - 1


FILE_TOOLS = [tool("list_files"), tool("read_file")]


def shipped(*messages, **overrides) -> list[dict[str, Any]]:
    """Return the blocks that the shipped scenarios reply with."""
    request = make_request(*messages, **overrides)
    match = RuleBook(load_rules([], faults=True)).match(request)
    assert match is not None
    return [block.as_block() for block in plan_reply(request, match, counted=Usage()).content]


def test_an_answer_says_that_it_is_no_model_and_quotes_the_question():
    (block,) = shipped(user("When do you open?"))
    assert "When do you open?" in block["text"]
    assert "fake provider" in block["text"]


def test_an_answer_looks_at_the_files_first_and_quotes_what_it_read():
    asked = [user("What does the about page say?")]
    *_, first = shipped(*asked, tools=FILE_TOOLS)
    assert (first["name"], first["input"]) == ("list_files", {})
    asked += tool_turn("list_files", {}, "index.html (2 KiB)\nabout.html (1 KiB)\nlogo.png")
    (second,) = shipped(*asked, tools=FILE_TOOLS)
    assert (second["name"], second["input"]) == ("read_file", {"path": "about.html"})
    asked += tool_turn("read_file", {"path": "about.html"}, "<p>Since 1904</p>", number=2)
    (third,) = shipped(*asked, tools=FILE_TOOLS)
    assert "3 files" in third["text"]
    assert "> <p>Since 1904</p>" in third["text"]


@pytest.mark.parametrize(
    "listing", ['["index.html", "a.css"]', "- `index.html`", '{"f": ["index.html"]}', "index.html\ta"]
)
def test_a_listing_may_have_many_shapes(listing):
    asked = [user("What is here?"), *tool_turn("list_files", {}, listing)]
    (block,) = shipped(*asked, tools=FILE_TOOLS)
    assert block["input"] == {"path": "index.html"}


def test_an_answer_ends_when_there_is_nothing_to_read():
    asked = [user("What is here?"), *tool_turn("list_files", {}, "")]
    (block,) = shipped(*asked, tools=FILE_TOOLS)
    assert block["type"] == "text"


def test_structured_output_is_json_of_the_schema():
    schema = {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}
    (block,) = shipped(user("Name this"), output_config={"format": {"type": "json_schema", "schema": schema}})
    assert json.loads(block["text"]) == {"title": "Name this"}


def test_every_request_gets_a_reply_or_an_api_error() -> None:
    outcomes: set[str] = set()
    rules = load_rules([], faults=True)

    @settings(max_examples=60, deadline=None)
    @given(MESSAGES, TOOLS, JSON, JSON, st.sampled_from(["auto", "any", "none"]))
    def play(messages: Any, tools: Any, system: Any, output_config: Any, choice: str) -> None:
        body = make_body(*messages, tools=tools, system=system, tool_choice={"type": choice})
        body |= {"output_config": output_config} if isinstance(output_config, dict) else {}
        try:
            request = parse_request(json.dumps(body).encode())
            match = RuleBook(rules).match(request)
            assert match is not None
            counted = PromptCache().usage(request, owner="k", now=0.0)
            reply = plan_reply(request, match, counted=counted)
        except RequestError:
            outcomes.add("refused")
            return
        outcomes.add("played")
        json.dumps(message_body(reply))
        assert b"".join(step.data for step in stream_steps(reply)).endswith(b"\n\n")
        assert min(counted) >= 0
        assert counted != Usage()

    play()
    assert outcomes == {"refused", "played"}

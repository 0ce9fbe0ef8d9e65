import json

import pytest

from routing.prices import Usage
from sandbox.rehearsal.casting import Casting
from sandbox.rehearsal.errors import ScenarioError
from sandbox.rehearsal.events import message_body, stream_steps
from sandbox.rehearsal.loading import parse_scenario
from sandbox.rehearsal.reply import Reply, plan_reply
from tests.unit.sandbox.rehearsal.factories import make_request, tool, user


def plan(rule: str, *messages, **overrides) -> Reply:
    casting = Casting(parse_scenario(f"rules:\n  - {{name: a, {rule}}}", source="x").rules)
    request = make_request(*messages, **overrides)
    part = casting.choose(request)
    assert part is not None
    return plan_reply(request, part, counted=Usage(input_tokens=7))


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
    assert [block.kind for block in reply.content] == ["text"]


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


def test_the_first_stop_sequence_ends_the_text():
    reply = plan("say: [{text: 'one two three'}]", stop_sequences=["three", "two"])
    assert (reply.content[0].characters, reply.stop_reason, reply.stop_sequence) == ("one ", "stop_sequence", "two")


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

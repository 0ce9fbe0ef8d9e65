import pytest

from sandbox.rehearsal.casting import Casting
from sandbox.rehearsal.loading import parse_scenario
from tests.unit.sandbox.rehearsal.factories import make_request, tool, tool_turn, user


def cast(rules: str) -> Casting:
    return Casting(parse_scenario(f"rules: {rules}", source="x").rules)


@pytest.mark.parametrize(
    "when",
    [
        "{model: 'claude-haiku-*'}",
        "{tools: [look, 'wri*']}",
        "{forced_tool: look}",
        "{prompt: 'make .*blue'}",
        "{system: SITE}",
        "{tool_result: true}",
        "{turn: 2}",
        "{tag: slow}",
        "{structured: false}",
    ],
)
def test_each_condition_matches_and_can_fail(when):
    asked = [user("Make it\nblue [rehearse:slow]"), *tool_turn("look", {}, "seen")]
    choice = {"type": "tool", "name": "look"}
    yes = make_request(*asked, system="the site", tools=[tool("look"), tool("write")], tool_choice=choice)
    no = make_request(user("no"), model="claude-opus-4-6", output_config={"format": {"schema": {"type": "object"}}})
    casting = cast(f"[{{name: a, when: {when}, say: []}}]")
    assert casting.choose(yes) is not None
    assert casting.choose(no) is None


def test_groups_of_the_match_are_variables():
    casting = cast("[{name: a, when: {prompt: 'make (?P<what>\\w+) (\\w+)'}, say: []}]")
    part = casting.choose(make_request(user("Make headings blue")))
    assert part is not None
    assert (part.variables["what"], part.variables["prompt_2"]) == ("headings", "blue")


def test_a_rule_used_up_gives_way_to_the_next():
    casting = cast("[{name: a, times: 2, say: []}, {name: b, say: []}]")
    names = [part.name for part in (casting.choose(make_request()) for _ in range(3)) if part]
    assert names == ["a", "a", "b"]


def test_times_per_conversation_counts_tagged_lines_apart():
    rules = "[{name: a, when: {tag: t}, times: 1, times_per: conversation, say: []}, {name: b, say: []}]"
    casting = cast(rules)
    prompts = ["one [rehearse:t]", "two [rehearse:t]", "Retry of:\none [rehearse:t]\nwith findings"]
    names = [part.name for part in (casting.choose(make_request(user(text))) for text in prompts) if part]
    assert names == ["a", "a", "b"]


def test_a_rule_without_reply_changes_the_reply_of_the_next():
    slow = "{name: slow, pace: {first_token_seconds: 1, tokens_per_second: 2}}"
    casting = cast(f"[{{name: dear, usage: {{input_tokens: 9}}}}, {slow}, {{name: b, say: []}}]")
    part = casting.choose(make_request())
    assert part is not None
    assert (part.name, part.rule.name, part.usage) == ("dear/slow/b", "b", {"input_tokens": 9})
    assert part.pace is not None


def test_an_error_before_any_reply_does_not_use_up_the_rule_behind():
    casting = cast("[{name: e, times: 1, fault: {kind: status}}, {name: b, times: 1, say: []}]")
    names = [part.name for part in (casting.choose(make_request()) for _ in range(2)) if part]
    assert names == ["e", "b"]

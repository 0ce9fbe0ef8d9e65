import pytest

from gateway.fake_provider.scenario import RuleBook, ScenarioError, load_rules, parse_scenario
from tests.unit.gateway.fake_provider.factories import make_request, tool, tool_turn, user


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rules:\n  - name: a\n    sya: []\n", r"x\.yaml:3: rules\.0\.sya: "),
        ("rules:\n  - name: a\n    when:\n      prompt: '('\n", r"x\.yaml:4: .*not a regular expression"),
        ("rules:\n  - name: a\n    say:\n      - text: '{{ oops'\n", r"x\.yaml:4: .*template"),
        (
            "rules:\n  - name: a\n    say:\n      - tool: t\n        input: {a: ['{{ 1+ }}']}\n",
            r"x\.yaml:5: .*template",
        ),
        ("rules:\n  - name: a\n    responder: nobody\n", r"x\.yaml:3: .*Input should be 'recorded'"),
        ("rules:\n  - name: a\n    say: [{text: x, tool: y}]\n", r"x\.yaml:3: .*exactly one of text, tool and wordy"),
        ("rules:\n  - name: a\n    name: b\n", r"x\.yaml:3: the same key stands twice"),
        ("rules:\n  - name: a\n  when: [\n", r"x\.yaml:3: "),
        ("rules: []\n", r"x\.yaml:1: rules: "),
        ("", r"x\.yaml:1: is empty"),
        ("rules:\n  - name: a\n    fault: {kind: status, status: 200}\n", r"x\.yaml:3: rules\.0\.fault\.status"),
    ],
)
def test_a_mistake_is_reported_with_file_and_line(text, message):
    with pytest.raises(ScenarioError, match=message):
        parse_scenario(text, source="x.yaml")


def test_every_mistake_of_a_file_is_reported():
    text = "rules:\n  - name: a\n    responder: nobody\n  - name: b\n    times: 0\n"
    with pytest.raises(ScenarioError, match=r"(?s)x\.yaml:3: .*\nx\.yaml:5: "):
        parse_scenario(text, source="x.yaml")


def test_files_of_a_directory_come_first_in_order_of_name_and_the_default_last(tmp_path):
    for name in ("b", "a"):
        (tmp_path / f"{name}.yaml").write_text(f"rules: [{{name: {name}, say: []}}]")
    names = [rule.name for rule in load_rules([tmp_path], faults=True)]
    assert names[:2] == ["a", "b"]
    assert "overload" in names
    assert names[-1] == "answer"


def test_faults_are_not_played_unless_asked_for():
    assert "overload" not in [rule.name for rule in load_rules([])]


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ScenarioError, match=r"none\.yaml: cannot be read"):
        load_rules([tmp_path / "none.yaml"])


def cast(rules: str) -> RuleBook:
    return RuleBook(parse_scenario(f"rules: {rules}", source="x").rules)


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
    rules = cast(f"[{{name: a, when: {when}, say: []}}]")
    assert rules.match(yes) is not None
    assert rules.match(no) is None


def test_groups_of_the_match_are_variables():
    rules = cast("[{name: a, when: {prompt: 'make (?P<what>\\w+) (\\w+)'}, say: []}]")
    part = rules.match(make_request(user("Make headings blue")))
    assert part is not None
    assert (part.variables["what"], part.variables["prompt_2"]) == ("headings", "blue")


def test_a_rule_used_up_gives_way_to_the_next():
    rules = cast("[{name: a, times: 2, say: []}, {name: b, say: []}]")
    names = [part.name for part in (rules.match(make_request()) for _ in range(3)) if part]
    assert names == ["a", "a", "b"]


def test_times_per_conversation_counts_tagged_lines_apart():
    rules = "[{name: a, when: {tag: t}, times: 1, times_per: conversation, say: []}, {name: b, say: []}]"
    rules = cast(rules)
    prompts = ["one [rehearse:t]", "two [rehearse:t]", "Retry of:\none [rehearse:t]\nwith findings"]
    names = [part.name for part in (rules.match(make_request(user(text))) for text in prompts) if part]
    assert names == ["a", "a", "b"]


def test_a_rule_without_reply_changes_the_reply_of_the_next():
    slow = "{name: slow, pace: {first_token_seconds: 1, tokens_per_second: 2}}"
    rules = cast(f"[{{name: dear, usage: {{input_tokens: 9}}}}, {slow}, {{name: b, say: []}}]")
    part = rules.match(make_request())
    assert part is not None
    assert (part.name, part.rule.name, part.usage) == ("dear/slow/b", "b", {"input_tokens": 9})
    assert part.pace is not None


def test_an_error_before_any_reply_does_not_use_up_the_rule_behind():
    rules = cast("[{name: e, times: 1, fault: {kind: status}}, {name: b, times: 1, say: []}]")
    names = [part.name for part in (rules.match(make_request()) for _ in range(2)) if part]
    assert names == ["e", "b"]


def test_the_shipped_rules_are_read_once_for_every_server_of_a_process():
    first, second = load_rules([], faults=True), load_rules([], faults=True)
    assert all(one is other for one, other in zip(first, second, strict=True))

import pytest

from sandbox.rehearsal.errors import ScenarioError
from sandbox.rehearsal.loading import load_rules, parse_scenario

GOOD = """
rules:
  - name: hello
    when: {prompt: "hello (?P<who>\\\\w+)"}
    say:
      - text: "Hello {{ who | title }}"
"""


def test_a_good_file_is_read():
    (rule,) = parse_scenario(GOOD, source="x.yaml").rules
    assert rule.name == "hello"


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
        ("rules:\n  - name: a\n    responder: nobody\n", r"x\.yaml:3: .*no responder has this name"),
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

"""`pointsman route` and its explanation: a prompt, a batch and a sub-command under one name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from producers.cli import app


def route(*arguments: str, words: Path | None = None) -> Result:
    environment = {"XDG_STATE_HOME": "/nonexistent", "TERM": "dumb", "COLUMNS": "200"}
    if words is not None:
        environment["POINTSMAN_POLICY__VOCABULARY"] = str(words)
    return CliRunner().invoke(app, ["route", *arguments], env=environment)


def decided(*arguments: str, words: Path | None = None) -> dict[str, object]:
    done = route(*arguments, "--json", words=words)
    assert done.exit_code == 0, done.output
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_a_prompt_is_decided_wherever_the_options_stand() -> None:
    assert route("Add a quiz", "--files", "3", "--json").stdout == route("--files", "3", "--json", "Add a quiz").stdout
    assert decided("Add a quiz", "--files", "3")["tier"] == 3


def test_the_words_replay_and_prompt_can_be_prompts() -> None:
    assert route("--json", "--", "replay").exit_code == 0
    assert decided("prompt")["mode"] == "ACTION"
    assert "--since" in route("replay", "--help").stdout


def test_a_batch_is_decided_a_line_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text('{"id": "a", "prompt": "what is HPOS?"}\n\n{"id": "b", "prompt": "pwd", "site": null}\n')
    lines = [json.loads(line) for line in route("--batch", str(path)).stdout.splitlines()]
    assert [(line["id"], line["mode"], line["trivial"]) for line in lines] == [
        ("a", "ANSWER", False),
        ("b", "ACTION", True),
    ]


def label(identity: str, prompt: str, **expect: object) -> str:
    wanted = {"mode": "ACTION", "tier": 1, "intent": "build", "debate": "none", "stakes": None, "trivial": False}
    site = {"files": 3, "has_js": False, "has_build": False}
    return json.dumps({"id": identity, "prompt": prompt, "site": site, "expect": {**wanted, **expect}})


@pytest.mark.req("R-008", "R-102", "R-103")
def test_samples_are_checked_and_both_lists_of_misses_are_named(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    question = {"mode": "ANSWER", "tier": None, "intent": "question"}
    lines = [
        label("right", "Add a gallery of our cakes"),
        label("over", "Add an FAQ section", **question),
        label("under", "What is a CDN?"),
        label("tier", "Change the headline to Hello", tier=3, also=[2]),
        label("either", "What is HPOS?", also_mode=["ANSWER"]),
    ]
    path.write_text("\n".join(lines))
    done = route("check", str(path))
    assert done.exit_code == 1
    positives, negatives, others = done.stdout.split(":\n")[1:]
    assert "over Add an FAQ section" in positives
    assert "under What is a CDN?" in negatives
    assert "tier 1, not 3: tier Change the headline to Hello" in others
    assert "either" not in done.stdout
    figures = json.loads(route("check", str(path), "--json").stdout)
    assert (figures["samples"], figures["mode"]) == (5, 0.6)
    assert (figures["false_actions"], figures["false_answers"]) == (1, 1)


def test_samples_without_a_miss_end_well_and_faulty_ones_name_their_line(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    path.write_text(label("right", "Add a gallery of our cakes"))
    assert route("check", str(path)).exit_code == 0
    path.write_text("\n" + json.dumps({"prompt": "Add a gallery"}))
    done = route("check", str(path))
    assert done.exit_code == 2
    assert "line 2: the field 'expect' is missing" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("",),
        (" ", "--explain"),
        ("--json",),
        ("x", "--batch", "y"),
        ("x", "--preference", "fast"),
        ("--batch", "/none"),
        ("x", "y"),
    ],
)
def test_what_cannot_be_meant_is_an_error_of_usage(arguments: tuple[str, ...]) -> None:
    assert route(*arguments).exit_code == 2


def test_an_installation_s_own_words_decide(tmp_path: Path) -> None:
    words = tmp_path / "words.yaml"
    words.write_text("phrases:\n  logic:\n    match: [seat map]\n")
    assert decided("Add a seat map", "--files", "3")["tier"] == 1
    assert decided("Add a seat map", "--files", "3", words=words)["tier"] == 3
    words.write_text("phrases:\n  magic:\n    match: [seat map]\n")
    refused = route("Add a seat map", words=words)
    assert refused.exit_code == 2
    assert "words.yaml, line 3: `magic`" in refused.output


def test_an_explanation_is_printed_with_triggers_rules_and_what_would_have_changed_it() -> None:
    shown = route("Fix the broken menu, add a quiz with a score", "--files", "3", "--explain").stdout
    assert "at    0  'Fix'  operation" in shown
    assert "V1-2 (ACTION, tier 3): it needs custom logic or an interactive widget ['quiz' at 27]" in shown
    assert shown.index("V1-2") < shown.index("V1-3") < shown.index("V1-4")
    assert 'without "quiz": tier 3 → 2' in shown
    assert "bound to no site: " in shown


def test_an_explanation_is_data_with_the_decision_that_route_prints() -> None:
    found = decided("Add a quiz", "--files", "3", "--explain")
    plain = decided("Add a quiz", "--files", "3")
    assert found["decision"] == {name: value for name, value in plain.items() if name != "id"}
    assert {"triggers", "winner", "runners_up", "what_if"} <= found.keys()


@pytest.mark.parametrize("sign", ["\x1b[2J", "\x00", "\u202e", "\x9b", "\r"])
def test_nothing_in_a_prompt_reaches_the_terminal_as_an_order(sign: str) -> None:
    shown = route(f"fix {sign} the quiz [bold]", "--explain").stdout
    assert sign not in shown.replace("\r\n", "\n")
    assert "[bold]" in shown


REPLY = json.loads((Path(__file__).parents[3] / "data" / "ladder_cases.jsonl").read_text().splitlines()[0])


@pytest.mark.parametrize(
    ("command", "good"), [("route", {"prompt": "pwd"}), ("ladder", REPLY)], ids=["route", "ladder"]
)
def test_a_bad_line_of_a_batch_is_told_and_the_rest_is_decided(
    command: str, good: dict[str, object], tmp_path: Path
) -> None:
    path = tmp_path / "batch.jsonl"
    bad = ("{", "[]", "{}", '{"question": 1, "prompt": 1}', "[" * 100_000)
    path.write_text("\n".join(line for each in bad for line in (each, json.dumps(good | {"id": "good"}))))
    done = CliRunner().invoke(app, [command, "--batch", str(path)], env={"XDG_STATE_HOME": "/nonexistent"})
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == ["good"] * len(bad)
    told = done.stderr.splitlines()
    assert [line.partition(": ")[2].partition(":")[0] for line in told] == [command] * len(bad)
    assert [number for number in range(1, 11) if f"{path}, line {number}: " in done.stderr] == [1, 3, 5, 7, 9]
    assert done.exit_code == 2

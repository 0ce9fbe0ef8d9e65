"""Seed 002's triggers, counted as its worked examples count them."""

from __future__ import annotations

import pytest

from routing.decision.router import classify_task, get_confidence
from routing.decision.triggers import TRIVIAL_COMMANDS, Confidence, confidence_of, find_triggers, parse_trivial
from routing.prompt.parsed_prompt import parse_prompt
from routing.prompt.vocabulary import shipped_vocabulary


def shown(prompt: str) -> list[str]:
    return [trigger.shown for trigger in find_triggers(parse_prompt(prompt, shipped_vocabulary()))]


@pytest.mark.req("R-031", "R-032", "R-033", "R-038", "R-040", "R-090")
@pytest.mark.parametrize(
    ("prompt", "triggers"),
    [
        ("fix the E2E tests", ["fix", "tests"]),
        ("search for similar implementations", ["search"]),
        ("create a new file", ["create"]),
        ("fix the bug in src/api/auth.ts and update tests", ["fix", "file path", "update", "tests"]),
        ("search for examples", ["search"]),
        ("fix the E2E tests in zbooks repo", ["fix", "tests", "repo"]),
        ("search the codebase for auth", ["search", "codebase"]),
        ("Find all .ts files in src/", ["find", ".ts", "src/"]),
    ],
)
def test_the_worked_examples_count_as_the_document_counts(prompt: str, triggers: list[str]) -> None:
    assert shown(prompt) == triggers
    assert classify_task(prompt) == "ACTION"
    assert get_confidence(prompt) is (Confidence.STRONG if len(triggers) >= 3 else Confidence.WEAK)


KEYWORDS = {
    "R-023": "fix debug implement create update delete refactor test",
    "R-024": "search find grep locate",
    "R-025": "run execute deploy start stop restart",
    "R-026": "remember save store recall note",
    "R-028": "fetch download scrape browse",
    "R-030": "codebase repo repository project",
}


@pytest.mark.req("R-019", "R-023", "R-024", "R-025", "R-026", "R-028", "R-030", "R-085", "R-117")
@pytest.mark.parametrize("word", " ".join(KEYWORDS.values()).split())
def test_each_keyword_alone_is_a_trigger(word: str) -> None:
    assert shown(f"{word} it") == [word]
    assert classify_task(f"{word} it") == "ACTION"


@pytest.mark.req("R-024", "R-030", "R-085")
@pytest.mark.parametrize(("prompt", "name"), [("look for it", "look for"), ("it is in our code", "our code")])
def test_keywords_of_two_words_are_triggers(prompt: str, name: str) -> None:
    assert shown(prompt) == [name]
    assert classify_task(prompt) == "ACTION"


@pytest.mark.req("R-019", "R-020", "R-021", "R-022", "R-083", "R-085", "R-029", "R-027")
@pytest.mark.parametrize(
    ("prompt", "name"),
    [
        ("see src/index.ts", "file path"),
        *((f"see {path}", "file path") for path in ("./a", "../b", "~/notes", "/etc/hosts")),
        ("see src/", "src/"),
        *((f"see .{name}", f".{name}") for name in ("ts", "md", "js", "py", "json", "yml", "yaml", "tsx", "jsx")),
        ("see https://a.example/x", "url"),
        ("see http://a.example", "url"),
        *((f"see {name}", name) for name in ("example.com", "shop.io", "web.dev", "garden.org")),
        ("see ```x```", "code block"),
        ("see `src/a.js`", "file path"),
    ],
)
def test_each_reference_is_one_trigger(prompt: str, name: str) -> None:
    assert shown(prompt) == [name]
    assert classify_task(prompt) == "ACTION"


@pytest.mark.parametrize(
    "prompt",
    [
        "testimonials",
        "a brunch menu",
        "a long-run plan",
        "say 'delete me'",
        "and/or",
        "24/7",
        "Next.js",
        "me@example.com",
    ],
)
def test_parts_of_words_quotations_and_prose_trigger_nothing(prompt: str) -> None:
    assert shown(prompt) == []


@pytest.mark.req("R-090")
def test_a_keyword_counts_once_for_all_its_forms() -> None:
    assert shown("fix the fixes, then test the tests") == ["fix", "test"]


@pytest.mark.parametrize("prompt", ["Add a map", "please add a map", "map first, then add it", "can you add a map"])
def test_an_edit_operation_counts_where_it_orders(prompt: str) -> None:
    assert "add" in shown(prompt)


@pytest.mark.parametrize("prompt", ["an add-on", "we make bread", "the move last year", "how do people make bread"])
def test_an_edit_operation_elsewhere_counts_for_nothing(prompt: str) -> None:
    assert shown(prompt) == []


@pytest.mark.req("R-037", "R-039", "R-040", "R-089")
def test_three_triggers_are_strong_and_one_is_weak() -> None:
    assert [confidence_of(count) for count in range(4)] == [
        Confidence.NONE,
        Confidence.WEAK,
        Confidence.WEAK,
        Confidence.STRONG,
    ]
    assert get_confidence("what is HPOS?") is Confidence.NONE
    assert get_confidence("Explain how grep works") is Confidence.NONE
    assert get_confidence("search for examples") is Confidence.WEAK
    assert get_confidence("search the codebase for auth") is Confidence.WEAK
    assert get_confidence("fix the E2E tests in zbooks repo") is Confidence.STRONG


def test_the_place_of_a_trigger_is_that_in_the_prompt_as_sent() -> None:
    prompt = "bitte e\u0301 \u200bＤＥＬＥＴＥ it in src/a.js"
    first, second = find_triggers(parse_prompt(prompt, shipped_vocabulary()))
    assert prompt[second.start : second.end] == "src/a.js"
    assert prompt[first.start : first.end].endswith("ＤＥＬＥＴＥ")


# The five trivial commands and nothing else (seed 002, ruling A10).


@pytest.mark.req("R-065")
def test_the_trivial_commands_are_exactly_five() -> None:
    assert TRIVIAL_COMMANDS == ("pwd", "date", "whoami", "echo", "ping")
    for command in TRIVIAL_COMMANDS:
        assert parse_trivial(f"{command} example.com" if command == "ping" else command) is not None
    assert parse_trivial("ls") is None
    assert parse_trivial("cat notes") is None


@pytest.mark.req("R-067")
@pytest.mark.parametrize(
    ("prompt", "argv"),
    [
        ("pwd", ("pwd",)),
        ("  PWD \n", ("pwd",)),
        ("whoami", ("whoami",)),
        ("date", ("date",)),
        ("date -u", ("date", "-u")),
        ("date +%Y-%m-%d", ("date", "+%Y-%m-%d")),
        ("date -u -Iseconds", ("date", "-u", "-Iseconds")),
        ("echo", ("echo",)),
        ("echo delete all products", ("echo", "delete all products")),
        ("echo publish the site tomorrow", ("echo", "publish the site tomorrow")),
        ("echo 'the hero looks good'", ("echo", "'the hero looks good'")),
        ("echo $PATH", ("echo", "$PATH")),
        ("ping localhost", ("ping", "localhost")),
        ("ping 127.0.0.1", ("ping", "127.0.0.1")),
        ("ping https://status.example.com/", ("ping", "status.example.com")),
        ("ping ::1", ("ping", "::1")),
    ],
)
def test_a_trivial_command_gives_its_argument_vector(prompt: str, argv: tuple[str, ...]) -> None:
    assert parse_trivial(prompt) == argv


@pytest.mark.req("R-087")
@pytest.mark.parametrize(
    "prompt",
    [
        "pwd; rm -rf /",
        "pwd -P",
        "whoami please",
        "date; rm -rf /",
        "date -s 12:00",
        "date --set=12:00",
        "date -f /etc/shadow",
        "date --file=/etc/shadow",
        "date -r /etc/shadow",
        "date --reference=/etc/shadow",
        "date -uf/etc/shadow",
        "date picker is broken",
        "date\n-f x",
        "echo x > src/config.json",
        "echo $(id)",
        "echo `id`",
        "echo a | sh",
        "echo a && b",
        "echo a\nrm b",
        "echo the tagline at the very bottom of the page",
        "Echo cancellation toggle on our demo page stopped responding",
        "Echo Lake is how you spell us. The hero has it wrong.",
        "ping -c 1 localhost",
        "ping a b",
        "ping -f",
        "ping ../x",
        "ping http://a.example/path",
        "ping " + "a" * 300,
        "echo " + "a" * 2000,
        "pingpong table in the lounge",
        "echo-free room",
        "",
    ],
)
def test_anything_more_than_the_grammar_is_no_trivial_command(prompt: str) -> None:
    assert parse_trivial(prompt) is None

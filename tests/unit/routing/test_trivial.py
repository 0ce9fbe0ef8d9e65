"""The five trivial commands and nothing else (seed 002, ruling A10)."""

from __future__ import annotations

import pytest

from routing.trivial import TRIVIAL_COMMANDS, parse_trivial


@pytest.mark.req("R-065")
def test_the_trivial_commands_are_exactly_five() -> None:
    assert TRIVIAL_COMMANDS == ("pwd", "date", "whoami", "echo", "ping")
    assert parse_trivial("ls") is None
    assert parse_trivial("cat notes") is None


@pytest.mark.req("R-057", "R-067")
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

"""Trivial commands run from an argument vector, without a shell; whatever the grammar does not know is refused."""

from pathlib import Path
from typing import Any

import pytest

from routing.jobs import Reason, State
from routing.policy import Tools, platform_policy
from routing.router import Signals, decide
from tests.factories import make_attempt
from workers.outcomes import Answered, Ended
from workers.tools import answer_tool, run_tool

HOSTS = Tools(ping_hosts=("localhost",))


def route(prompt: str, **changes: Any) -> dict[str, Any]:
    return decide(Signals(prompt=prompt), platform_policy()).model_dump(mode="json") | changes


def run(prompt: str, *, routed: str | None = None) -> Any:
    return run_tool(make_attempt(prompt=prompt, route=route(routed or prompt)))


@pytest.mark.parametrize(
    ("prompt", "answer"),
    [
        ("pwd", "/"),
        ("whoami", "pointsman"),
        ("echo hello  world", "hello  world"),
        ("echo", ""),
        ("  PWD  ", "/"),
    ],
)
def test_a_command_is_answered_for_the_fleet_not_for_the_machine(prompt: str, answer: str) -> None:
    assert run(prompt) == Answered(answer)


def test_the_date_is_utc_and_in_no_language() -> None:
    outcome = run("date +%Z")
    assert outcome == Answered("UTC")
    assert isinstance(run("date -u"), Answered)


@pytest.mark.parametrize("text", ["$(touch {0})", "`touch {0}`", "a; touch {0}", "a && touch {0}", "a > {0}", "*", "~"])
def test_what_a_shell_would_run_is_only_text(tmp_path: Path, text: str) -> None:
    trap = tmp_path / "trap"
    outcome = answer_tool(("echo", text.format(trap)), tools=HOSTS, timeout_seconds=4)
    assert outcome == Answered(text.format(trap))
    assert not trap.exists()


@pytest.mark.parametrize(
    "prompt",
    [
        "date -s 12:00",
        "date --set=12:00",
        "date -f /etc/passwd",
        "date --file=/etc/passwd",
        "date -r /etc/passwd",
        "date '+%s'; id",
        "echo $(id)",
        "echo `id`",
        "echo a; id",
        "echo a && id",
        "echo a | sh",
        "echo a > /tmp/x",
        "echo ${HOME}",
        "ping -f localhost",
        "ping -c 1 localhost",
        "ping localhost; id",
        "ping localhost google.com",
        "ping -",
        "pwd -P",
        "whoami && id",
        "ls",
        "cat /etc/passwd",
        "rm -rf /",
        "pwd\nid",
        "pwd\x00",
        "sudo pwd",
        "/bin/date",
        "",
    ],
)
def test_a_hostile_command_is_refused_even_if_a_message_says_it_was_routed_here(prompt: str) -> None:
    for routed in ("pwd", "date", "echo x"):
        outcome = run(prompt, routed=routed)
        assert isinstance(outcome, Ended)
        assert (outcome.state, outcome.reason) == (State.FAILED, Reason.COMMAND_REFUSED)


def test_a_prompt_that_is_not_the_routed_command_is_refused() -> None:
    outcome = run("echo other", routed="echo this")
    assert isinstance(outcome, Ended)
    assert outcome.reason == Reason.COMMAND_REFUSED


@pytest.mark.parametrize(
    "host", ["example.com", "169.254.169.254", "localhost.", "LOCALHOST", "127.0.0.1", "::1", "-f", ""]
)
def test_a_host_that_is_not_on_the_list_is_not_pinged(host: str) -> None:
    outcome = answer_tool(("ping", host), tools=HOSTS, timeout_seconds=4)
    assert isinstance(outcome, Ended)
    assert outcome.detail == "the host is not on the installation's list tools.ping_hosts"


def test_a_ping_without_a_host_or_an_unknown_command_is_refused() -> None:
    for argv in (("ping",), ("ls",), ("sh", "-c", "id")):
        assert isinstance(answer_tool(argv, tools=HOSTS, timeout_seconds=4), Ended)


def test_a_listed_host_is_pinged_or_the_lack_of_ping_is_named() -> None:
    outcome = answer_tool(("ping", "localhost"), tools=HOSTS, timeout_seconds=4)
    if isinstance(outcome, Ended):
        assert outcome.reason in (Reason.NOT_AVAILABLE, Reason.COMMAND_REFUSED)
    else:
        assert "localhost" in outcome.text

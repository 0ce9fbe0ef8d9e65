"""A question's model reads the release through tools, a few times, and can change nothing."""

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from gateway.client import ModelReply, Stop, Text, ToolResult, ToolUse, Turn
from gateway.errors import ProviderBusyError
from routing.decision.llm_router import system_prompt
from routing.decision.router import Mode, Signals, decide
from routing.jobs import Reason, State
from routing.model_call import load_prompt
from routing.policy.platform import Tools, platform_policy
from routing.policy.prices import Usage
from routing.queues import QueueName
from sites.excerpts import MAX_READ_BYTES
from tests.factories import make_attempt
from workers.handlers.answer import MAX_FILE_CHARACTERS, MAX_TURNS, answer_question, answer_tool, run_tool
from workers.outcomes import Answered, Ended

FILES = {"index.html": b"<h1>Bread</h1>", "long.txt": b"x" * (MAX_FILE_CHARACTERS + 5)}


def said(words: str = "", *uses: ToolUse) -> ModelReply:
    return ModelReply(words, uses, Stop.DONE, Usage(), ())


def use(name: str, arguments: Any = None) -> ToolUse:
    return ToolUse("t1", name, arguments if arguments is not None else {})


QUESTION = "Today is Saturday 2027-01-02.\n\nThe owner asks:\nWhat is on the page?"
"""With the day in UTC on which the ledger says that the attempt began."""


class FakeModels:
    """Plays replies in turn and keeps what it was asked."""

    prompt_version = "0a1b2c3d"

    def __init__(self, *replies: ModelReply) -> None:
        self.replies = list(replies)
        self.asked: list[dict[str, Any]] = []

    def create(self, conversation: list[Turn], **request: Any) -> ModelReply:
        self.asked.append({**request, "conversation": list(conversation)})
        return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]


def ask(models: FakeModels, files: dict[str, bytes] | None = None) -> Any:
    began = datetime(2027, 1, 1, 23, tzinfo=timezone(timedelta(hours=-3)))
    attempt = make_attempt(prompt="What is on the page?", queue=QueueName.ANSWER, files=files, started_at=began)
    attempt.__dict__["models"] = models
    return answer_question(attempt)


@pytest.mark.req("R-093", "R-095", "R-116")
def test_an_answer_without_a_tool_takes_one_call_with_the_prompt_of_mode_answer() -> None:
    models = FakeModels(said("Bread.\nAnd cake."))
    assert ask(models) == Answered("Bread.\nAnd cake.", {"model_turns": 1})
    assert len(models.asked) == 1
    assert models.asked[0]["system"] == system_prompt(Mode.ANSWER)
    assert models.asked[0]["conversation"] == [[Text(QUESTION)]]
    assert not models.asked[0]["tools"], "a job without a release has no files to offer"


def test_a_question_comes_with_what_the_pages_say_and_not_with_their_source() -> None:
    page = b"""<title>Salon</title><style>h1{}</style><h1 class=x>Hours</h1><ul><li>Sat: <b>9</b> to 6</ul>
    <table><tr><td>Cut<td>$38</table><script>evil()</script><a href="/map">Find us</a><img src=a.svg alt="A source">"""
    models = FakeModels(said("9 to 6."))
    ask(models, {"index.html": page, "big.html": b"<p>" + b"x " * MAX_READ_BYTES})
    [[pages, question]] = models.asked[0]["conversation"]
    assert pages.ends_prefix
    assert pages.text.splitlines()[1:] == [
        '<file path="index.html">',
        "Salon",
        "# Hours",
        "- Sat: 9 to 6",
        "| Cut | $38",
        "[Find us](/map) (A source: a.svg)",
        "</file>",
        "Other pages: big.html",
    ]
    assert question.text == QUESTION
    assert models.asked[0]["system"] == load_prompt("direct_answer")


def test_what_the_model_reads_comes_back_to_it() -> None:
    models = FakeModels(said("", use("list_files")), said("", use("read_file", {"path": "index.html"})), said("Bread."))
    assert ask(models, FILES) == Answered("Bread.", {"model_turns": 3})
    [_, first, [listed], second, [read]] = models.asked[2]["conversation"]
    assert first.tool_uses[0].name == "list_files"
    assert listed.text.splitlines()[0] == "       14 index.html"
    assert second.tool_uses[0].name == "read_file"
    assert read == ToolResult("t1", "<h1>Bread</h1>", is_error=False)


def test_a_model_that_only_reads_is_asked_a_last_time_without_tools() -> None:
    models = FakeModels(said("", use("list_files")))
    outcome = ask(models, FILES)
    assert isinstance(outcome, Answered)
    assert len(models.asked) == MAX_TURNS
    assert [bool(request["tools"]) for request in models.asked] == [True] * (MAX_TURNS - 1) + [False]


def test_a_refused_tool_call_is_told_to_the_model_which_may_answer_still() -> None:
    models = FakeModels(said("", use("write_file", {"path": "x", "content": "y"})), said("It is done."))
    assert ask(models, FILES) == Answered("It is done.", {"model_turns": 2})
    [refused] = models.asked[1]["conversation"][-1]
    assert refused == ToolResult("t1", "there is no tool 'write_file' here", is_error=True)


def test_one_call_shows_only_so_much_of_a_file() -> None:
    models = FakeModels(said("", use("read_file", {"path": "long.txt"})), said("Long."))
    ask(models, FILES)
    [shown] = models.asked[1]["conversation"][-1]
    assert shown.text.startswith("x" * MAX_FILE_CHARACTERS + "\n[5 more characters: ")


def test_a_busy_provider_is_asked_again_and_then_given_up() -> None:
    class Busy(FakeModels):
        def create(self, conversation: list[Turn], **request: Any) -> ModelReply:
            self.asked.append(request)
            raise ProviderBusyError("529", 0.0)

    models = Busy()
    with pytest.raises(ProviderBusyError):
        ask(models)
    assert len(models.asked) == 3


# Trivial commands run from an argument vector, without a shell; whatever the grammar does not know is refused.

HOSTS = Tools(ping_hosts=("localhost",))


def route(prompt: str, **changes: Any) -> dict[str, Any]:
    return decide(Signals(prompt=prompt), platform_policy()).model_dump(mode="json") | changes


def run(prompt: str, *, routed: str | None = None) -> Any:
    return run_tool(make_attempt(prompt=prompt, route=route(routed or prompt)))


@pytest.mark.req("R-057", "R-065", "R-067", "R-088")
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


@pytest.mark.req("R-065", "R-088")
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


@pytest.mark.req("R-065")
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

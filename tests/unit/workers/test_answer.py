"""A question's model reads the release through two tools, a few times, and can change nothing."""

from typing import Any

import pytest

from routing.prices import Usage
from routing.queues import QueueName
from sandbox.errors import ProviderBusyError
from sandbox.models import ModelReply, Stop, ToolResult, ToolUse, Turn
from tests.factories import make_attempt
from workers.answer import MAX_FILE_CHARACTERS, MAX_TURNS, answer_question, serve_tool
from workers.outcomes import Answered

FILES = {"index.html": b"<h1>Bread</h1>", "logo.png": b"\x89PNG\xff", "long.txt": b"x" * (MAX_FILE_CHARACTERS + 5)}


def said(words: str = "", *uses: ToolUse) -> ModelReply:
    return ModelReply(words, uses, Stop.DONE, Usage(), ())


def use(name: str, arguments: Any = None) -> ToolUse:
    return ToolUse("t1", name, arguments if arguments is not None else {})


class FakeModels:
    """Plays replies in turn and keeps what it was asked."""

    def __init__(self, *replies: ModelReply) -> None:
        self.replies = list(replies)
        self.asked: list[dict[str, Any]] = []

    def create(self, conversation: list[Turn], **request: Any) -> ModelReply:
        self.asked.append({**request, "conversation": list(conversation)})
        return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]


def ask(models: FakeModels, files: dict[str, bytes] | None = None) -> Any:
    attempt = make_attempt(prompt="What is on the page?", queue=QueueName.ANSWER, files=files)
    attempt.__dict__["models"] = models
    return answer_question(attempt)


def test_an_answer_without_a_tool_takes_one_call() -> None:
    models = FakeModels(said("Bread.\nAnd cake."))
    assert ask(models) == Answered("Bread.\nAnd cake.", {"model_turns": 1})
    assert models.asked[0]["conversation"] == ["What is on the page?"]
    assert not models.asked[0]["tools"], "a job without a release has no files to offer"


def test_what_the_model_reads_comes_back_to_it() -> None:
    models = FakeModels(said("", use("list_files")), said("", use("read_file", {"path": "index.html"})), said("Bread."))
    assert ask(models, FILES) == Answered("Bread.", {"model_turns": 3})
    [_, first, [listed], second, [read]] = models.asked[2]["conversation"]
    assert first.tool_uses[0].name == "list_files"
    assert listed.text.splitlines()[0] == "index.html\t14"
    assert second.tool_uses[0].name == "read_file"
    assert read == ToolResult("t1", "<h1>Bread</h1>", is_error=False)


def test_a_model_that_only_reads_is_asked_a_last_time_without_tools() -> None:
    models = FakeModels(said("", use("list_files")))
    outcome = ask(models, FILES)
    assert isinstance(outcome, Answered)
    assert len(models.asked) == MAX_TURNS
    assert [bool(request["tools"]) for request in models.asked] == [True] * (MAX_TURNS - 1) + [False]


@pytest.mark.parametrize(
    ("call", "content", "is_error"),
    [
        (use("read_file", {"path": "missing"}), "no such file; list_files shows what there is", True),
        (use("read_file", {"path": "../../etc/passwd"}), "no such file; list_files shows what there is", True),
        (use("read_file", {"path": ["index.html"]}), "no such file; list_files shows what there is", True),
        (use("read_file", "index.html"), "no such file; list_files shows what there is", True),
        (use("read_file", {"path": "logo.png"}), "a binary file of 5 bytes", True),
        (use("write_file", {"path": "x"}), "there is no tool 'write_file'", True),
        (use("read_file", {"path": "index.html", "offset": 4}), "Bread</h1>", False),
        (use("read_file", {"path": "index.html", "offset": -4}), "<h1>Bread</h1>", False),
        (use("read_file", {"path": "index.html", "offset": "x"}), "<h1>Bread</h1>", False),
        (use("read_file", {"path": "index.html", "offset": 99}), "", False),
    ],
)
def test_a_tool_call_is_served_from_the_release_and_from_nothing_else(call: Any, content: str, is_error: bool) -> None:
    result = serve_tool(call, FILES)
    assert result == ToolResult("t1", content, is_error)


def test_a_long_file_comes_in_parts() -> None:
    part = serve_tool(use("read_file", {"path": "long.txt"}), FILES).text
    assert part.startswith("x" * MAX_FILE_CHARACTERS + "\n[5 more characters from offset 12000]")
    assert serve_tool(use("read_file", {"path": "long.txt", "offset": 12000}), FILES).text == "xxxxx"


def test_a_busy_provider_is_asked_again_and_then_given_up() -> None:
    class Busy(FakeModels):
        def create(self, conversation: list[Turn], **request: Any) -> ModelReply:
            self.asked.append(request)
            raise ProviderBusyError("529", 0.0)

    models = Busy()
    with pytest.raises(ProviderBusyError):
        ask(models)
    assert len(models.asked) == 3

"""A question's model reads the release through two tools, a few times, and can change nothing."""

from types import SimpleNamespace
from typing import Any

import pytest

from routing.queues import QueueName
from sandbox.errors import ProviderBusyError
from tests.factories import make_attempt
from workers.answer import MAX_FILE_CHARACTERS, MAX_TURNS, answer_question, serve_tool
from workers.outcomes import Answered

FILES = {"index.html": b"<h1>Bread</h1>", "logo.png": b"\x89PNG\xff", "long.txt": b"x" * (MAX_FILE_CHARACTERS + 5)}


class Block(SimpleNamespace):
    def model_dump(self, **_: Any) -> dict[str, Any]:
        return dict(vars(self))


def text(words: str) -> Block:
    return Block(type="text", text=words)


def use(name: str, arguments: Any = None, *, call_id: str = "t1") -> Block:
    return Block(type="tool_use", id=call_id, name=name, input=arguments if arguments is not None else {})


class FakeModels:
    """Plays replies in turn and keeps what it was asked."""

    def __init__(self, *replies: list[Block]) -> None:
        self.replies = list(replies)
        self.asked: list[dict[str, Any]] = []

    def create(self, **request: Any) -> Any:
        self.asked.append({**request, "messages": list(request["messages"])})
        return SimpleNamespace(content=self.replies.pop(0) if len(self.replies) > 1 else self.replies[0])


def ask(models: FakeModels, files: dict[str, bytes] | None = None) -> Any:
    attempt = make_attempt(prompt="What is on the page?", queue=QueueName.ANSWER, files=files)
    attempt.__dict__["models"] = models
    return answer_question(attempt)


def test_an_answer_without_a_tool_takes_one_call() -> None:
    models = FakeModels([text("Bread."), text("And cake.")])
    assert ask(models) == Answered("Bread.\nAnd cake.", {"model_turns": 1})
    assert models.asked[0]["messages"] == [{"role": "user", "content": "What is on the page?"}]
    assert not models.asked[0]["tools"], "a job without a release has no files to offer"


def test_what_the_model_reads_comes_back_to_it() -> None:
    models = FakeModels([use("list_files")], [use("read_file", {"path": "index.html"})], [text("Bread.")])
    assert ask(models, FILES) == Answered("Bread.", {"model_turns": 3})
    results = [message["content"][0] for message in models.asked[2]["messages"] if isinstance(message["content"], list)]
    assert results[1]["content"].splitlines()[0] == "index.html\t14"
    assert results[3] == {"type": "tool_result", "tool_use_id": "t1", "content": "<h1>Bread</h1>", "is_error": False}


def test_a_model_that_only_reads_is_asked_a_last_time_without_tools() -> None:
    models = FakeModels([use("list_files")])
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
    assert (result["content"], result["is_error"], result["tool_use_id"]) == (content, is_error, "t1")


def test_a_long_file_comes_in_parts() -> None:
    part = serve_tool(use("read_file", {"path": "long.txt"}), FILES)["content"]
    assert part.startswith("x" * MAX_FILE_CHARACTERS + "\n[5 more characters from offset 12000]")
    assert serve_tool(use("read_file", {"path": "long.txt", "offset": 12000}), FILES)["content"] == "xxxxx"


def test_a_busy_provider_is_asked_again_and_then_given_up() -> None:
    class Busy(FakeModels):
        def create(self, **request: Any) -> Any:
            self.asked.append(request)
            raise ProviderBusyError("529", 0.0)

    models = Busy([])
    with pytest.raises(ProviderBusyError):
        ask(models)
    assert len(models.asked) == 3

"""Recorded replies: which request gets which, and recorded calls given again."""

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.fake_provider.library import CaseError, Library, RecordedCase, Recordings, read_documents, read_library
from gateway.fake_provider.request import RequestError, parse_request
from gateway.fake_provider.wire import Text, ToolUse

EDIT = {"name": "edit_site", "input_schema": {"type": "object"}}


def request(*texts: str, tools: tuple[dict[str, Any], ...] = (), system: str = "") -> Any:
    content = [{"type": "text", "text": text} for text in texts]
    body = {
        "model": "claude-haiku-4-5-20251001",
        "max_tokens": 100,
        "messages": [{"role": "user", "content": content}],
        **({"tools": [*tools]} if tools else {}),
        **({"system": system} if system else {}),
    }
    return parse_request(json.dumps(body).encode())


LIBRARY = Library(
    [
        RecordedCase.model_validate(
            {
                "marks": ["Hearth"],
                "request": "Change the price.",
                "replies": [{"edit_site": {"operations": []}}, {"edit_site": {"operations": [1]}, "second_try": True}],
                "rounds": [{"request": "Change it back", "replies": [{"edit_site": {"operations": [2]}}]}],
            }
        ),
        RecordedCase.model_validate({"request": "What is rye?", "replies": [{"text": "A grain."}]}),
    ]
)


def asks(words: str) -> str:
    return f"The owner asks: {words}"


def edit(*operations: int) -> list[Any]:
    return [ToolUse("edit_site", {"operations": [*operations]})]


@pytest.mark.parametrize(
    ("texts", "has_tool", "found"),
    [
        (("What is rye?",), False, [Text("A grain.")]),
        (("The page says Hearth.", asks("change  the PRICE")), True, edit()),
        (("The page says Hearth.", asks("Change the price.\n\nAnd be quick.")), True, edit()),
        (("Hearth", asks("Change the price.\n\nYour last reply was refused: no.")), True, edit(1)),
        (("Hearth", asks("Change it back")), True, edit(2)),
        (("Another site", asks("Change the price.")), True, []),
        (("Hearth", asks("Change the price.")), False, []),
        (("Hearth", asks("Change the colour.")), True, []),
    ],
)
def test_a_reply_is_found_by_the_words_of_a_request_its_site_and_its_tool(
    texts: tuple[str, ...], has_tool: bool, found: list[Any]
) -> None:
    assert list(LIBRARY.find(request(*texts, tools=(EDIT,) if has_tool else ()))) == found


def test_a_reply_outlives_another_wording_of_the_prompt_and_another_shape_of_its_tool() -> None:
    other = {"name": "edit_site", "description": "New.", "input_schema": {"type": "object", "properties": {"n": {}}}}
    before = request("Limits.\n\nHearth", asks("Change the price."), tools=(EDIT,), system="Rules.")
    after = request(
        "Hearth, in other words", asks("Change the price."), tools=(other, {**EDIT, "name": "show"}), system="art: cake"
    )
    assert list(LIBRARY.find(before)) == list(LIBRARY.find(after)) == edit()


def test_the_shipped_library_can_be_read() -> None:
    assert list(read_library().find(request("What is a sourdough starter?")))


@pytest.mark.parametrize("text", ["not: a list", "- [1", "- 3"])
def test_a_damaged_file_is_refused_by_name(tmp_path: Path, text: str) -> None:
    (tmp_path / "bad.yaml").write_text(text)
    with pytest.raises(CaseError, match=r"bad\.yaml"):
        read_documents(tmp_path)


def test_recorded_calls_are_given_again_in_order_and_to_their_own_request_only(tmp_path: Path) -> None:
    hello = "Hello, key sk-ant-REDACTME"
    asked = request("Today is Friday 2026-07-31.", hello, system="Be short.")
    later = request("Today is Monday 2026-08-03.", hello, system="Be short.")
    reply = {
        "id": "msg_1",
        "model": "claude-haiku-4-5-20251001",
        "stop_reason": "end_turn",
        "content": [{"type": "text", "text": "Hi."}],
        "usage": {"input_tokens": 3, "output_tokens": 2},
    }
    lines = [{"request": asked.raw, "reply": reply}, {"request": asked.raw, "reply": {**reply, "id": "msg_2"}}]
    path = tmp_path / "calls.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    recordings = Recordings(path)
    assert [recordings.take(each).message_id for each in (later, asked)] == ["msg_1", "msg_2"]
    with pytest.raises(RequestError, match="no reply is recorded"):
        recordings.take(asked)
    cli = asked.raw | {"metadata": {"user_id": "session-1"}, "tools": [EDIT]}
    path.write_text(json.dumps({"request": cli, "reply": reply}) + "\n")
    again = request("Hello from another box, at another time.", tools=(EDIT,))
    with pytest.raises(RequestError, match="no reply is recorded"):
        Recordings(path).take(again)
    again.raw["metadata"] = {"user_id": "session-2"}
    assert Recordings(path).take(again).message_id == "msg_1"
    path.write_text('{"request": {}}\n')
    with pytest.raises(CaseError, match=r"calls\.jsonl"):
        Recordings(path)

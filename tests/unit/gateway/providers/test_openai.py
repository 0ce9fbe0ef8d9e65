"""What is asked of a chat-completions server, what is made of its replies, and what such servers get wrong."""

import json
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.messages import ModelRequest, RefusedError, ReplyReader, parse_request
from gateway.providers.openai import ChatStream, OpenAIProvider
from gateway.providers.provider import Meter, data_of
from routing.policy.platform import platform_policy
from routing.policy.prices import Usage

PROVIDER = OpenAIProvider("https://example.org/v1/", "a-key")
PRICE = platform_policy().prices["claude-haiku-4-5-20251001"]
PNG = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
DONE = b"data: [DONE]\n\n"
USAGE = {"prompt_tokens": 100, "completion_tokens": 30, "prompt_tokens_details": {"cached_tokens": 40}}


def request(**fields: Any) -> ModelRequest:
    body = {"model": "m", "max_tokens": 50, "messages": [{"role": "user", "content": "hi"}]} | fields
    return parse_request(json.dumps(body).encode(), models=frozenset({"m"}), most_tokens=100, names={"m": "own/m"})


def sent(provider: OpenAIProvider = PROVIDER, **fields: Any) -> dict[str, Any]:
    made = provider.call(request(**fields), max_tokens=40, headers={}, call_id=UUID(int=1))
    assert made.headers["authorization"] == "Bearer a-key"
    found: dict[str, Any] = json.loads(made.body)
    return found


def meter() -> Meter:
    return Meter(PRICE, reserved_nanousd=10_000_000, max_tokens=1000)


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **fields: Any) -> bytes:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    return b"data: " + json.dumps({"id": "c", "model": "own/m", "choices": choices, **fields}).encode() + b"\n\n"


def read(*parts: bytes, at: Meter | None = None) -> dict[str, Any] | None:
    """The message that a caller puts together."""
    stream, reader = ChatStream(at or meter()), ReplyReader()
    for part in parts:
        for event in stream.feed(part).split(b"\n\n")[:-1]:
            reader.read(json.loads(data_of(event)))
    return reader.message()


def test_a_request_is_sent_in_the_servers_words() -> None:
    body = sent(temperature=0.5, top_p=0.9, stop_sequences=["x"], stream=True, metadata={"user_id": "u"})
    assert body == {
        "model": "own/m",
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 40,
        "temperature": 0.5,
        "top_p": 0.9,
        "stop": ["x"],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    theirs = sent(OpenAIProvider("https://api.openai.com/v1", "a-key"))
    assert (theirs["max_completion_tokens"], "max_tokens" in theirs) == (40, False)


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"type": "auto"}, {"tool_choice": "auto"}),
        ({"type": "any"}, {"tool_choice": "required"}),
        ({"type": "none"}, {"tool_choice": "none"}),
        (
            {"type": "tool", "name": "t", "disable_parallel_tool_use": True},
            {"tool_choice": {"type": "function", "function": {"name": "t"}}, "parallel_tool_calls": False},
        ),
    ],
)
def test_the_choice_of_a_tool_keeps_its_meaning(choice: dict[str, Any], expected: dict[str, Any]) -> None:
    tool = {"name": "t", "description": "d", "input_schema": {"type": "object"}}
    body = sent(tools=[tool], tool_choice=choice)
    assert body.items() >= expected.items()
    assert body["tools"] == [
        {"type": "function", "function": {"name": "t", "description": "d", "parameters": {"type": "object"}}}
    ]


def test_pictures_and_words_stay_in_their_order() -> None:
    content = [{"type": "text", "text": "a"}, {"type": "image", "source": PNG}, {"type": "text", "text": "b"}]
    [message] = sent(messages=[{"role": "user", "content": content}])["messages"]
    assert [part["type"] for part in message["content"]] == ["text", "image_url", "text"]
    assert message["content"][1]["image_url"]["url"] == "data:image/png;base64,AAAA"


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"thinking": {"type": "enabled", "budget_tokens": 10}}, "thinking"),
        ({"top_k": 5}, "top_k"),
        ({"context_management": {}}, "context_management"),
        ({"messages": [{"role": "user", "content": [{"type": "document", "source": PNG}]}]}, "document"),
        ({"messages": [{"role": "system", "content": "x"}]}, "messages.role"),
        ({"messages": [{"role": "user"}]}, "messages"),
        ({"messages": ["x"]}, "messages"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "x"}}]}]},
            "image",
        ),
        ({"system": [{"type": "image", "source": PNG}]}, "image"),
        ({"tools": [{"type": "web_search_20250305", "name": "w"}]}, "tools"),
    ],
)
def test_what_the_api_cannot_say_is_refused_by_its_name(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(RefusedError, match=named):
        PROVIDER.check(request(**fields), allows_references=False)


@given(st.text(max_size=300), st.integers(0, 5))
def test_the_bound_holds_a_token_for_each_byte_of_the_prompt(text: str, turns: int) -> None:
    messages = [{"role": "user", "content": text}] * (turns + 1)
    made = request(messages=messages)
    worst = PROVIDER.worst_input(made, PRICE, headers={})
    assert worst.tokens >= (len(text.encode("utf-8", "replace")) + 4) * (turns + 1)
    assert worst.nanousd == worst.tokens * 1000


def test_a_reply_is_put_together_and_metered() -> None:
    counted = meter()
    first, second = ({"name": "t", "arguments": ""}, {"name": "u", "arguments": '{"b": '})
    message = read(
        chunk({"role": "assistant", "content": ""}),
        chunk({"reasoning_content": "hm"}),
        chunk({"content": "Hel"})[:25],
        chunk({"content": "Hel"})[25:] + chunk({"content": "lo"}),
        chunk({"tool_calls": [{"index": 0, "id": "c0", "function": first}]}),
        chunk({"tool_calls": [{"index": 1, "function": second}]}),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": '{"a": 1}'}}]}),
        chunk({"tool_calls": [{"index": 1, "function": {"arguments": "2}"}}]}),
        chunk({}, "tool_calls"),
        chunk(usage=USAGE),
        DONE,
        at=counted,
    )
    assert message is not None
    text, one, two = message["content"]
    assert (text["text"], one["input"], two["input"]) == ("Hello", {"a": 1}, {"b": 2})
    assert (one["id"], two["id"][:6]) == ("c0", "toolu_")
    assert (message["stop_reason"], message["model"]) == ("tool_use", "own/m")
    assert message["usage"]["input_tokens"] == 60
    booked = counted.settlement(finish="completed", status=200)
    assert (booked.usage, booked.state) == (Usage(60, 30, 0, 40), "settled")


def test_calls_that_a_server_gives_one_index_are_told_apart_by_their_ids() -> None:
    one, two = ({"name": name, "arguments": f'{{"{name}": '} for name in "tu")
    message = read(
        chunk({"tool_calls": [{"index": 0, "id": "c0", "function": one}]}),
        chunk({"tool_calls": [{"index": 0, "id": "", "function": {"name": "", "arguments": "1}"}}]}),
        chunk({"tool_calls": [{"index": 0, "id": "c1", "function": two}]}),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": "2}"}}]}),
        chunk({"content": "Done"}, "tool_calls"),
        DONE,
    )
    assert message is not None
    assert [block.get("input") for block in message["content"]] == [{"t": 1}, {"u": 2}, None]


@given(st.text(alphabet='a"\\\\\n\t\x11 {é', max_size=30), st.integers(0, 40))
def test_control_characters_that_a_server_leaves_in_a_string_do_not_spoil_the_tools_input(text: str, cut: int) -> None:
    raw = json.dumps({"t": text}, ensure_ascii=False)
    for letter in "\n\t\x11":
        raw = raw.replace(json.dumps(letter)[1:-1], letter) if "\\\\" not in raw else raw
    raw = raw.replace("{", "{\n", 1)
    calls = [{"index": 0, "id": "c", "function": {"name": "t", "arguments": part}} for part in (raw[:cut], raw[cut:])]
    message = read(*(chunk({"tool_calls": [call]}) for call in calls), chunk({}, "tool_calls"), DONE)
    assert message is not None
    assert message["content"][0]["input"] == {"t": text}
    answer = {"content": None, "tool_calls": [calls[0] | {"function": {"name": "t", "arguments": raw}}]}
    whole = {"choices": [{"message": answer, "finish_reason": "stop"}], "usage": USAGE}
    assert json.loads(PROVIDER.read_reply(json.dumps(whole).encode(), meter()))["content"][0]["input"] == {"t": text}


@pytest.mark.parametrize(
    ("finish", "has_tool", "stop"),
    [
        ("stop", False, "end_turn"),
        ("stop", True, "tool_use"),
        ("length", True, "max_tokens"),
        ("content_filter", False, "refusal"),
        ("eos", False, "end_turn"),
    ],
)
def test_why_a_reply_ended(finish: str, has_tool: bool, stop: str) -> None:
    call = {"index": 0, "id": "c", "function": {"name": "t", "arguments": "{}"}}
    delta = {"tool_calls": [call]} if has_tool else {"content": "x"}
    message = read(chunk(delta), chunk({}, finish), chunk(usage=USAGE), DONE)
    assert message is not None
    assert message["stop_reason"] == stop
    answer = {"role": "assistant", "content": None if has_tool else "x"} | (delta if has_tool else {})
    whole = {"choices": [{"message": answer, "finish_reason": finish}], "usage": USAGE}
    assert json.loads(PROVIDER.read_reply(json.dumps(whole).encode(), meter()))["stop_reason"] == stop


@pytest.mark.parametrize(
    ("usage", "output"),
    [
        ({"prompt_tokens": 32, "completion_tokens": 9, "total_tokens": 135}, 103),  # 94 of thoughts, as xAI counts
        ({"prompt_tokens": 32, "completion_tokens": 103, "total_tokens": 135}, 103),
        ({"prompt_tokens": 32, "completion_tokens": 103, "total_tokens": 32}, 103),
        ({"prompt_tokens": 32, "completion_tokens": 103, "total_tokens": "135"}, 103),
    ],
)
def test_thoughts_that_a_server_counts_in_the_total_alone_are_billed(usage: dict[str, Any], output: int) -> None:
    streamed, whole = meter(), meter()
    read(chunk({"content": "x"}), chunk({}, "stop"), chunk(usage=usage), DONE, at=streamed)
    answer = {"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}], "usage": usage}
    PROVIDER.read_reply(json.dumps(answer).encode(), whole)
    for counted in (streamed, whole):
        booked = counted.settlement(finish="completed", status=200)
        assert (booked.usage, booked.state) == (Usage(32, output), "settled")


def test_a_server_that_states_no_usage_is_booked_at_the_reserve() -> None:
    counted = meter()
    assert read(chunk({"content": "x"}), chunk({}, "stop"), DONE, at=counted) is not None, "the reply itself is good"
    booked = counted.settlement(finish="completed", status=200)
    assert (booked.state, booked.cost_nanousd) == ("presumed", 10_000_000)


@pytest.mark.parametrize(
    "parts",
    [
        [chunk({"content": "x"}), chunk(usage=USAGE), DONE],
        [chunk({"content": "x"}), b'data: {"choices": [{"de\n\n', chunk({}, "stop"), chunk(usage=USAGE), DONE],
        [chunk({"content": "x"}), chunk({}, "stop"), chunk(usage={"prompt_tokens": -1, "completion_tokens": 1}), DONE],
        [b"data: []\n\n", b'data: {"choices": 5}\n\n', chunk({"tool_calls": [{"index": 0}]}), DONE],
    ],
    ids=["no finish", "cut JSON", "usage below zero", "nothing of the API"],
)
def test_a_reply_that_cannot_be_trusted_is_booked_at_the_reserve(parts: list[bytes]) -> None:
    counted = meter()
    read(*parts, at=counted)
    assert counted.settlement(finish="completed", status=200).cost_nanousd == 10_000_000


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"message": "slow down", "code": 429}, "rate_limit_error"),
        ({"message": "slow down", "code": "rate_limit_exceeded"}, "rate_limit_error"),
        ({"message": "boom", "code": None}, "api_error"),
        ("boom", "api_error"),
    ],
)
def test_an_error_inside_a_stream_is_one_of_ours(error: Any, kind: str) -> None:
    counted = meter()
    data = ChatStream(counted).feed(b"data: " + json.dumps({"error": error}).encode() + b"\n\n")
    shown = json.loads(data_of(data))
    assert shown["error"]["type"] == kind == counted.error_kind
    assert PROVIDER.trouble_of(200, kind=kind) is not None


@pytest.mark.parametrize("named", ["code", "type"])
def test_an_account_without_credit_is_refused_and_not_busy(named: str) -> None:
    error = {"message": "You exceeded your current quota", "type": None, "code": None, named: "insufficient_quota"}
    body = json.dumps({"error": error}).encode()
    assert PROVIDER.status_of(429, body) == 402
    assert PROVIDER.trouble_of(402) is None
    assert PROVIDER.status_of(429, b"<html>") == PROVIDER.status_of(429, b'{"error": "slow down"}') == 429
    counted = meter()
    shown = json.loads(data_of(ChatStream(counted).feed(b"data: " + body + b"\n\n")))
    assert shown["error"]["type"] == "billing_error" == counted.error_kind
    assert PROVIDER.trouble_of(200, kind="billing_error") is None


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error": {"message": "bad a-key"}}', "bad [redacted]"),
        (b'{"message": "m"}', "m"),
        (b'{"detail": "d"}', "d"),
        (b'{"error": "e"}', "e"),
        (b'[{"x": 1}]', "the provider gave no reason"),
        (b"<html>", "the provider gave no readable reason"),
    ],
)
def test_an_error_is_passed_back_in_our_words_without_the_key(body: bytes, message: str) -> None:
    error = json.loads(PROVIDER.pass_back(body, status=404))
    assert error == {"type": "error", "error": {"type": "not_found_error", "message": message}}

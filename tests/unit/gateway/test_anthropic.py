"""What Anthropic's API may be asked, what a call of it can cost at most, and what its answers mean."""

import json
from typing import Any
from uuid import UUID

import pytest

from gateway.anthropic import AnthropicProvider, most_input_nanousd, most_input_tokens
from gateway.messages import Code, ModelRequest, RefusedError, parse_request
from routing.policy.platform import platform_policy
from routing.policy.prices import Price

PROVIDER = AnthropicProvider("https://example.org/", "a-key")
PRICE = platform_policy().prices["claude-haiku-4-5-20251001"]
FREE_INPUT = Price(input=0, output=5, cache_write=0, cache_read=0)
CALL = UUID(int=7)


def request(*, is_count: bool = False, **fields: Any) -> ModelRequest:
    body = {"model": "small", "max_tokens": 10, "messages": [], **fields}
    return parse_request(json.dumps(body).encode(), models=frozenset({"small"}), most_tokens=100, is_count=is_count)


def refusal(**fields: Any) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        PROVIDER.check(request(**fields))
    return caught.value


@pytest.mark.threat("C6")
@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"tools": [{"type": "web_fetch_20250910", "name": "web_fetch"}]}, "tools"),
        ({"tools": [{"type": ["custom"], "name": "x"}]}, "tools"),
        ({"mcp_servers": [{}]}, "mcp_servers"),
        ({"container": {"skills": []}}, "container"),
        ({"speed": "fast"}, "speed"),
        ({"inference_geo": "us"}, "inference_geo"),
        ({"service_tier": "priority"}, "service_tier"),
        ({"messages": [{"content": [{"type": "image", "source": {"type": "url", "url": "http://x"}}]}]}, "messages"),
        ({"messages": [{"content": [{"type": "document", "source": {"type": "file", "file_id": "f"}}]}]}, "messages"),
        (
            {"messages": [{"content": [{"type": "tool_result", "content": [{"source": {"type": "url"}}]}]}]},
            "messages",
        ),
    ],
)
def test_what_the_provider_would_do_for_the_caller_is_refused(fields: dict[str, Any], named: str) -> None:
    error = refusal(**fields)
    assert error.status == 403
    assert error.message.startswith(named)


def test_ordinary_tools_and_inline_images_pass() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}
    used = {"type": "tool_use", "input": {"type": "url", "source": {"type": "url"}}}
    tools = [{"name": "a"}, {"type": "custom", "name": "b"}, {"type": None, "name": "c"}]
    PROVIDER.check(request(tools=tools, messages=[{"content": [image, used, "text"]}]))


@pytest.mark.parametrize("tools", [{}, [1]])
def test_tools_of_the_wrong_kind_are_refused(tools: Any) -> None:
    assert refusal(tools=tools).code is Code.BAD_REQUEST


def test_a_call_carries_the_account_s_key_and_of_its_caller_s_headers_only_those_of_the_api() -> None:
    sent = PROVIDER.call(
        request(),
        max_tokens=7,
        headers={b"anthropic-beta": b"x", b"authorization": b"Bearer theirs", b"cookie": b"c"},
        call_id=CALL,
    )
    assert sent.url == "https://example.org/v1/messages"
    assert sent.headers == {
        "anthropic-beta": "x",
        "anthropic-version": "2023-06-01",
        "x-api-key": "a-key",
        "content-type": "application/json",
        "accept-encoding": "identity",
        "x-pointsman-call": str(CALL),
    }
    assert json.loads(sent.body)["max_tokens"] == 7


def test_an_error_that_repeats_the_key_is_passed_back_without_it() -> None:
    assert PROVIDER.pass_back(b"no such key: a-key") == b"no such key: [redacted]"


def test_a_call_is_counted_by_the_fields_that_counting_takes_and_a_count_as_it_is() -> None:
    counted = PROVIDER.count(request(system="s", metadata={}), headers={})
    assert counted is not None
    assert json.loads(counted.body) == {"model": "small", "messages": [], "system": "s"}
    own = PROVIDER.count(request(is_count=True, metadata={}), headers={})
    assert own is not None
    assert "metadata" in json.loads(own.body)


@pytest.mark.parametrize(
    ("body", "tokens"),
    [
        (b'{"input_tokens": 1000}', 1070),
        (b'{"input_tokens": 0}', None),
        (b'{"input_tokens": true}', None),
        (b"[]", None),
        (b"{", None),
        (b"{}", None),
    ],
)
def test_a_count_is_read_with_a_margin(body: bytes, tokens: int | None) -> None:
    assert PROVIDER.read_count(body) == tokens


def test_a_count_only_ever_lowers_what_the_bytes_allow() -> None:
    asked = request(system="x" * 1000)
    by_bytes = PROVIDER.worst_input(asked, PRICE)
    assert PROVIDER.worst_input(asked, PRICE, counted=10**6) == by_bytes
    assert PROVIDER.worst_input(asked, PRICE, counted=10).tokens == 10


def test_input_is_bounded_by_half_its_bytes_at_the_dearest_price() -> None:
    assert most_input_tokens(b"x" * 101, has_tools=False) == 51
    assert most_input_tokens(b"x" * 100, has_tools=True) > 500
    assert most_input_nanousd(PRICE, 100, has_long_cache=False) == 100 * 1250
    assert most_input_nanousd(PRICE, 100, has_long_cache=True) == 100 * 2000
    assert most_input_nanousd(FREE_INPUT, 100, has_long_cache=False) == 0


def test_only_a_field_asks_for_the_long_cache() -> None:
    part = {"type": "text", "text": "x", "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    dear, plain = request(system=[part]), request(system='"ttl":"1h"')
    assert PROVIDER.worst_input(dear, PRICE, counted=1).nanousd == 2000
    assert PROVIDER.worst_input(plain, PRICE, counted=1).nanousd == 1250


@pytest.mark.parametrize(
    ("status", "kind", "trouble"),
    [
        (429, "", "rate_limited"),
        (529, "", "overloaded"),
        (503, "", "overloaded"),
        (500, "", "failing"),
        (502, "", "failing"),
        (504, "", "failing"),
        (None, "", "failing"),
        (None, "overloaded_error", "overloaded"),
        (None, "rate_limit_error", "rate_limited"),
        (None, "api_error", "failing"),
        (200, "", None),
        (400, "", None),
        (401, "", None),
        (404, "", None),
        (413, "", None),
        (None, "invalid_request_error", None),
    ],
)
def test_a_provider_that_answers_is_well_unless_it_says_otherwise(
    status: int | None, kind: str, trouble: str | None
) -> None:
    found = PROVIDER.trouble_of(status, kind=kind)
    assert (found.value if found else None) == trouble

"""What Anthropic's API may be asked, what a call of it can cost at most, and what its answers mean."""

import base64
import json
import time
from typing import Any
from uuid import UUID

import pytest

from gateway.messages import Code, ModelRequest, RefusedError, parse_request
from gateway.providers.anthropic import (
    AnthropicProvider,
    measure,
    most_input_nanousd,
    most_text_tokens,
)
from gateway.providers.provider import WorstInput
from routing.policy.platform import platform_policy
from routing.policy.prices import Price, Usage
from tests.media_files import pdf, png

PROVIDER = AnthropicProvider("https://example.org/", "a-key")
PRICE = platform_policy().prices["claude-haiku-4-5-20251001"]
FREE_INPUT = Price(input=0, output=5, cache_write=0, cache_read=0)
CALL = UUID(int=7)


def request(*, is_count: bool = False, **fields: Any) -> ModelRequest:
    body = {"model": "small", "max_tokens": 10, "messages": [], **fields}
    return parse_request(json.dumps(body).encode(), models=frozenset({"small"}), most_tokens=100, is_count=is_count)


def refusal(**fields: Any) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        PROVIDER.check(request(**fields), allows_references=False)
    return caught.value


def worst(asked: ModelRequest, **options: Any) -> WorstInput:
    found = PROVIDER.worst_input(asked, PRICE, headers={}, **options)
    assert found is not None
    return found


def asking(*parts: dict[str, Any]) -> ModelRequest:
    return request(messages=[{"role": "user", "content": list(parts)}])


def inline(kind: str, data: bytes) -> dict[str, Any]:
    return {"type": kind, "source": {"type": "base64", "data": base64.b64encode(data).decode()}}


def media_tokens(part: dict[str, Any]) -> int | None:
    return measure(asking(part), PRICE).media


@pytest.mark.threat("C6")
@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"betas": ["code-execution-2025-08-25"]}, "betas"),
        ({"fallbacks": [{"model": "large"}]}, "fallbacks"),
        ({"an_unknown_field": None}, "an_unknown_field"),
        ({"messages": [{"content": [{"type": "container_upload", "file_id": "f"}]}]}, "messages"),
        ({"messages": [{"content": [{"type": "tool_result", "content": [{"type": "tool_reference"}]}]}]}, "messages"),
        ({"context_management": {"edits": [{"type": "compact_20260112"}]}}, "context_management"),
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
    asked = request(tools=tools, messages=[{"content": [image, used, "text"]}])
    PROVIDER.check(asked, allows_references=False)


@pytest.mark.parametrize("tools", [{}, [1]])
def test_tools_of_the_wrong_kind_are_refused(tools: Any) -> None:
    assert refusal(tools=tools).code is Code.BAD_REQUEST


def test_a_call_carries_the_account_s_key_and_of_its_caller_s_headers_only_those_of_the_api() -> None:
    sent = PROVIDER.call(
        request(),
        max_tokens=7,
        headers={
            b"anthropic-beta": b"effort-1, code-execution-2,x",
            b"anthropic-x": b"x",
            b"authorization": b"Bearer theirs",
            b"cookie": b"c",
        },
        call_id=CALL,
    )
    assert sent.url == "https://example.org/v1/messages"
    assert sent.headers == {
        "anthropic-beta": "effort-1",
        "anthropic-version": "2023-06-01",
        "x-api-key": "a-key",
        "content-type": "application/json",
        "accept-encoding": "identity",
        "x-pointsman-call": str(CALL),
    }
    assert json.loads(sent.body)["max_tokens"] == 7


def test_an_error_that_repeats_the_key_is_passed_back_without_it() -> None:
    assert PROVIDER.pass_back(b"no such key: a-key", status=400) == b"no such key: [redacted]"


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
    assert worst(asked, counted=10**6) == worst(asked)
    assert worst(asked, counted=10).tokens == 10


def test_text_is_bounded_by_half_its_bytes_at_the_dearest_price_that_can_be() -> None:
    assert most_text_tokens(101, has_tools=False) == 51
    assert most_text_tokens(100, has_tools=True) > 500
    assert most_input_nanousd(PRICE, 100, encoded=b"{}") == 100 * 1000
    assert most_input_nanousd(PRICE, 100, encoded=b'{"cache_control":{}}') == 100 * 1250
    assert most_input_nanousd(PRICE, 100, encoded=b'{"cache_control":{"ttl":"1h"}}') == 100 * 2000
    assert most_input_nanousd(FREE_INPUT, 100, encoded=b"{}") == 0


def test_only_a_field_asks_for_a_cache() -> None:
    part = {"type": "text", "text": "x", "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    text = """"cache_control":{"ttl":"1h"}"""
    assert worst(request(system=[part]), counted=1).nanousd == 2000
    assert worst(request(system=text), counted=1).nanousd == 1000


@pytest.mark.parametrize(
    ("width", "height", "tokens"),
    [(1, 1, 1), (200, 200, 64), (1000, 1000, 1334), (1092, 1092, 1590), (1920, 1080, 1600), (8000, 1, 286)],
)
def test_an_image_costs_what_its_pixels_cost_up_to_the_models_most(width: int, height: int, tokens: int) -> None:
    assert media_tokens(inline("image", png(width, height))) == tokens


def test_an_image_whose_size_cannot_be_read_costs_the_most() -> None:
    assert media_tokens(inline("image", b"what?")) == PRICE.image_tokens


def test_a_pdf_costs_its_pages_and_one_that_hides_them_what_the_provider_counts() -> None:
    assert media_tokens(inline("document", pdf(3))) == 3 * (3000 + PRICE.image_tokens)
    hidden = asking(inline("document", pdf(3, is_packed=True)))
    assert PROVIDER.worst_input(hidden, PRICE, headers={}) is None
    assert worst(hidden, counted=7000).tokens == 7000


@pytest.mark.parametrize("place", ["system", "tool_result", "document"])
def test_media_count_wherever_they_stand(place: str) -> None:
    part = inline("image", png(1000, 1000))
    fields: dict[str, Any] = {
        "system": {"system": [part]},
        "tool_result": {"messages": [{"content": [{"type": "tool_result", "content": [part]}]}]},
        "document": {
            "messages": [{"content": [{"type": "document", "source": {"type": "content", "content": [part]}}]}]
        },
    }[place]
    assert measure(request(**fields), PRICE).media == 1334


def test_what_looks_like_media_elsewhere_is_text() -> None:
    image = inline("image", bytes(30_000))
    for part in ({"type": "tool_use", "input": image}, {"type": "text", "text": "x", "source": image["source"]}):
        assert measure(asking(part), PRICE).text > 20_000


def test_references_cost_the_most_there_is_where_the_policy_allows_them() -> None:
    for kind, most in (("image", PRICE.image_tokens), ("document", PRICE.context_tokens)):
        asked = asking({"type": kind, "source": {"type": "url", "url": "https://example.org/x"}})
        PROVIDER.check(asked, allows_references=True)
        assert measure(asked, PRICE).media == most


def test_a_prompt_that_grew_is_bounded_by_the_known_tokens_of_its_beginning() -> None:
    provider = AnthropicProvider("https://example.org", "k")
    begin = {"type": "text", "text": "long " * 2000, "cache_control": {"type": "ephemeral"}}
    first, grown = asking(begin), asking(begin, {"type": "text", "text": "and more"})
    at_first = provider.worst_input(grown, PRICE, headers={})
    provider.note_usage(first, Usage(cache_write_tokens=2000), headers={}, sent_at=time.monotonic())
    bound = provider.worst_input(grown, PRICE, headers={})
    trusting = provider.worst_input(grown, PRICE, headers={}, trusts_cache=True)
    assert at_first is not None
    assert bound is not None
    assert trusting is not None
    assert at_first.tokens > 5000 > bound.tokens == trusting.tokens > 2000
    assert bound.nanousd == bound.tokens * 1250
    assert trusting.nanousd == 2000 * 100 + (trusting.tokens - 2000) * 1250
    other = provider.worst_input(grown, PRICE, headers={b"anthropic-beta": b"effort-1"}, trusts_cache=True)
    assert other == at_first


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

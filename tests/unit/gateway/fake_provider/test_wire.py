import base64
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.fake_provider.request import parse_request
from gateway.fake_provider.wire import CACHE_SECONDS, PromptCache, count_input, output_tokens
from routing.policy.prices import Usage
from tests.media_files import pdf, png
from tests.unit.gateway.fake_provider.factories import make_body, make_request, user

CACHED = {"type": "text", "text": "rules " * 500, "cache_control": {"type": "ephemeral"}}


@pytest.mark.parametrize(("characters", "tokens"), [(0, 1), (1, 1), (4, 1), (5, 2), (400, 100), (401, 101)])
def test_four_characters_are_a_token_and_a_message_has_at_least_one(characters, tokens):
    assert output_tokens(characters) == tokens


def test_input_is_counted_from_the_compact_json_of_system_messages_and_tools():
    request = make_request(user("é" * 100), system="s", metadata={"user_id": "not counted" * 50})
    counted = {"messages": [user("é" * 100)], "system": "s"}
    size = len(json.dumps(counted, ensure_ascii=False, separators=(",", ":")).encode())
    assert count_input(request) == -(-size // 4)


@settings(max_examples=50, deadline=None)
@given(st.text(), st.booleans())
def test_input_tokens_never_exceed_half_the_bytes(text, ascii_only):
    body = json.dumps(make_body(user(text)), ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    try:
        request = parse_request(body)
    except ValueError:
        return
    assert 0 < count_input(request) <= len(body) / 2


def test_a_cached_prefix_is_written_once_and_then_read():
    cache = PromptCache()
    request = make_request(user("Hello"), system=[CACHED])
    total = count_input(request)
    first = cache.usage(request, owner="k", now=0.0)
    again = cache.usage(make_request(user("Other"), system=[CACHED]), owner="k", now=1.0)
    assert first.cache_write_tokens > 700
    assert first.cache_read_tokens == 0
    assert first.input_tokens + first.cache_write_tokens == total
    assert again.cache_read_tokens == first.cache_write_tokens
    assert again.cache_write_tokens == 0


def test_a_longer_conversation_reads_what_an_earlier_turn_wrote():
    cache = PromptCache()
    asked = {"role": "user", "content": [CACHED]}
    first = cache.usage(make_request(asked), owner="k", now=0.0)
    later = make_request(
        {"role": "user", "content": [{"type": "text", "text": CACHED["text"]}]},
        {"role": "assistant", "content": "ok"},
        {"role": "user", "content": [{"type": "text", "text": "more " * 100, "cache_control": {"type": "ephemeral"}}]},
    )
    usage = cache.usage(later, owner="k", now=1.0)
    assert usage.cache_read_tokens == first.cache_write_tokens
    assert usage.cache_write_tokens > 100


def test_a_cache_is_not_shared_between_keys_and_ends():
    cache = PromptCache()
    request = make_request(user("Hello"), system=[CACHED])
    cache.usage(request, owner="k", now=0.0)
    assert cache.usage(request, owner="other", now=1.0).cache_read_tokens == 0
    assert cache.usage(request, owner="k", now=CACHE_SECONDS + 2).cache_read_tokens == 0


def test_without_cache_control_all_input_is_plain():
    request = make_request()
    assert PromptCache().usage(request, owner="k", now=0.0) == Usage(input_tokens=count_input(request))


def test_files_are_counted_by_pixels_and_pages_wherever_they_stand():
    def tokens(kind: str, data: bytes) -> int:
        source = {"type": "base64", "media_type": "x", "data": base64.b64encode(data).decode()}
        result = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": kind, "source": source}]}
        return count_input(make_request({"role": "user", "content": [result]}))

    without = tokens("image", png(1, 1)) - 1
    assert tokens("image", png(280, 140)) == without + 50
    assert tokens("image", png(5000, 5000)) == tokens("image", bytes(60_000)) == without + 1568
    assert tokens("document", pdf(3)) - tokens("document", pdf(2)) == 3568

import json
import time
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.providers.anthropic import read_event, read_message
from gateway.providers.provider import MAX_EVENT_BYTES, EventSplitter, Meter, UnreadableStreamError, data_of
from routing.policy.platform import platform_policy
from routing.policy.prices import Price, Usage, cost_nanousd

PRICE = platform_policy().prices["claude-haiku-4-5-20251001"]


def meter(*, reserved: int = 10_000_000, max_tokens: int = 1000, price: Price = PRICE) -> Meter:
    return Meter(price, reserved_nanousd=reserved, max_tokens=max_tokens)


def feed(read: Meter, *events: dict[str, Any]) -> Meter:
    for event in events:
        read_event(json.dumps(event).encode(), read)
    return read


def begin(**usage: Any) -> dict[str, Any]:
    return {"type": "message_start", "message": {"usage": {"input_tokens": 100, "output_tokens": 1} | usage}}


def text(characters: int) -> dict[str, Any]:
    return {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "x" * characters}}


def usage(**counts: Any) -> dict[str, Any]:
    return {"type": "message_delta", "delta": {}, "usage": counts}


STOP = {"type": "message_stop"}


def test_a_complete_reply_costs_what_the_provider_reports() -> None:
    read = feed(meter(), begin(cache_creation_input_tokens=7, cache_read_input_tokens=9), text(4000))
    feed(read, usage(output_tokens=10), usage(output_tokens=30), STOP)
    booked = read.settlement(finish="completed", status=200)
    assert booked.usage == Usage(100, 30, 7, 9)
    assert booked.cost_nanousd == cost_nanousd(PRICE, booked.usage)
    assert booked.state == "settled"


def test_cumulative_usage_is_not_summed_and_does_not_fall() -> None:
    read = feed(meter(), begin(), usage(output_tokens=30), usage(output_tokens=3, input_tokens=0), STOP)
    assert read.settlement(finish="completed", status=200).usage == Usage(100, 30)


@pytest.mark.parametrize("characters", [0, 1, 400, 5999])
def test_a_reply_that_was_cut_costs_all_that_may_have_been_written(characters: int) -> None:
    read = feed(meter(), begin(), text(characters))
    booked = read.settlement(finish="cut", status=200)
    assert (booked.usage, booked.state) == (Usage(100, max(1, min(1000, -(-characters // 4)))), "presumed")
    assert booked.cost_nanousd == cost_nanousd(PRICE, Usage(100, 1000))


def test_a_provider_that_ignores_max_tokens_is_believed_about_nothing() -> None:
    read = feed(meter(max_tokens=100), begin(), text(601))
    assert read.settlement(finish="cut", status=200).usage.output_tokens == 151


def test_a_reply_that_ends_without_its_usage_costs_all_that_may_have_been_written() -> None:
    booked = feed(meter(), begin(), text(8), STOP).settlement(finish="completed", status=200)
    assert (booked.cost_nanousd, booked.state) == (cost_nanousd(PRICE, Usage(100, 1000)), "presumed")


def test_tool_input_and_thinking_count_as_output() -> None:
    read = feed(
        meter(reserved=cost_nanousd(PRICE, Usage(100, 19))),
        begin(),
        {"type": "content_block_delta", "delta": {"type": "input_json_delta", "partial_json": "y" * 40}},
    )
    assert not read.is_overrun
    assert feed(read, {"type": "content_block_delta", "delta": {"thinking": "z" * 40}}).is_overrun


def test_input_that_cannot_be_read_costs_at_least_the_reserve_and_what_is_known() -> None:
    for reserved, cost in ((20_000_000, 20_000_000), (10, 15_000_000)):
        read = feed(meter(reserved=reserved), begin(input_tokens=10_000), {"type": "content_block_delta"})
        read_event(b"{broken", read)
        assert read.settlement(finish="cut", status=200).cost_nanousd == cost


def test_a_stream_is_overrun_only_above_its_reserve() -> None:
    reserved = cost_nanousd(PRICE, Usage(100, 10))
    read = feed(meter(reserved=reserved), begin(), text(40))
    assert not read.is_overrun
    assert feed(read, text(1)).is_overrun


def test_a_reply_whose_final_usage_is_known_is_not_cut_any_more() -> None:
    assert not feed(meter(reserved=1), begin(), usage(output_tokens=10)).is_overrun


def test_input_that_costs_more_than_the_reserve_is_an_overrun_at_once() -> None:
    assert feed(meter(reserved=99_000), begin()).is_overrun


def test_a_one_hour_cache_costs_twice_its_input() -> None:
    written = {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 1000}
    read = feed(
        meter(),
        begin(input_tokens=0, cache_creation_input_tokens=1000, cache_creation=written),
        usage(output_tokens=0),
        STOP,
    )
    assert read.settlement(finish="completed", status=200).cost_nanousd == 1000 * 2000 + 5000


def test_a_whole_message_is_read_like_a_stream() -> None:
    read = meter()
    read_message(json.dumps({"usage": {"input_tokens": 5, "output_tokens": 6}}).encode(), read)
    assert read.settlement(finish="completed", status=200).usage == Usage(5, 6)


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"usage": {"input_tokens": "5"}}', b'{"usage": {}}'])
def test_a_whole_message_without_usage_costs_the_reserve(body: bytes) -> None:
    read = meter()
    read_message(body, read)
    assert read.settlement(finish="provider_gone", status=200).state == "presumed"


EVENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.floats(allow_nan=False),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "usage", "message", "delta", "text", "input_tokens", "output_tokens", "content_block"]
            ),
            inner | st.sampled_from(["message_start", "message_delta", "message_stop", "content_block_delta", "error"]),
        )
    ),
    max_leaves=8,
)


@given(events=st.lists(EVENTS, max_size=5))
def test_no_event_breaks_the_meter_or_makes_a_started_call_free(events: list[Any]) -> None:
    read = feed(meter(), begin())
    for event in events:
        read_event(json.dumps(event).encode(), read)
    assert read.settlement(finish="cut", status=200).cost_nanousd >= cost_nanousd(PRICE, Usage(100, 0))


STREAM = b"event: a\ndata: 1\n\ndata: 2\ndata: 3\n\n: comment\n\nevent: b\ndata: 4\n\n"


@given(cuts=st.lists(st.integers(0, len(STREAM)), max_size=12), ending=st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_however_a_stream_is_cut_its_events_come_out_whole(cuts: list[int], ending: bytes) -> None:
    whole = STREAM.replace(b"\n", ending)
    places = [0, *sorted(cuts), len(whole)]
    splitter = EventSplitter()
    events = [e for begin, end in pairwise(places) for e in splitter.feed(whole[begin:end])]
    assert b"".join(events) == whole
    assert [data_of(event) for event in events] == [b"1", b"2\n3", b"", b"4"]


def test_an_event_that_is_not_complete_is_held_back() -> None:
    splitter = EventSplitter()
    assert splitter.feed(b"data: 1\n\ndata: ") == [b"data: 1\n\n"]
    assert splitter.feed(b"2\n") == []
    assert splitter.feed(b"\n") == [b"data: 2\n\n"]


def test_an_event_that_never_ends_is_refused() -> None:
    splitter = EventSplitter()
    splitter.feed(b"data: ")
    with pytest.raises(UnreadableStreamError):
        splitter.feed(b"x" * MAX_EVENT_BYTES)


def test_an_event_that_comes_byte_by_byte_is_searched_once() -> None:
    splitter, began = EventSplitter(), time.process_time()
    for _ in range(2**16):
        assert splitter.feed(b"data: not yet...") == []
    assert [len(event) for event in splitter.feed(b"\n\n")] == [2**20 + 2]
    assert time.process_time() - began < 3, "a mebibyte in pieces of 16 bytes, each of which looked at all before it"


@pytest.mark.parametrize("count", [2**31, 10**40, 1.5, True, -1])
def test_a_count_that_no_ledger_can_hold_is_none_and_costs_the_reserve(count: Any) -> None:
    said = {"usage": {"input_tokens": 1, "output_tokens": count}}
    read_message(json.dumps(said).encode(), read := meter(reserved=777_000_000))
    settled = read.settlement(finish="completed", status=200)
    assert (settled.state, settled.cost_nanousd) == ("presumed", 777_000_000)

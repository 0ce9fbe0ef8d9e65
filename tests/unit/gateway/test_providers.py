from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.providers import MAX_EVENT_BYTES, EventSplitter, EventTooLargeError, data_of

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
    with pytest.raises(EventTooLargeError):
        splitter.feed(b"x" * MAX_EVENT_BYTES)

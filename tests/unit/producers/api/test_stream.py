from datetime import UTC, datetime, timedelta

from monitoring.ledger.record_tables import Event
from producers.api.stream import PAGE, Tail

NOW = datetime(2026, 11, 1, tzinfo=UTC)


def event(event_id: int, *, seconds_ago: float = 0) -> Event:
    return Event(id=event_id, kind="progress", at=NOW - timedelta(seconds=seconds_ago))


def ids(events: list[Event]) -> list[int | None]:
    return [item.id for item in events]


def test_each_event_is_fresh_once() -> None:
    tail = Tail(0)
    assert ids(tail.fresh([event(1), event(2)])) == [1, 2]
    assert ids(tail.fresh([event(1), event(2), event(3)])) == [3]


def test_an_event_that_appears_below_those_sent_is_still_fresh() -> None:
    tail = Tail(0)
    tail.fresh([event(1), event(3)])
    assert ids(tail.fresh([event(1), event(2), event(3)])) == [2]


def test_the_floor_rises_only_over_what_no_transaction_can_still_undercut() -> None:
    tail = Tail(0)
    tail.fresh([event(1, seconds_ago=60), event(2, seconds_ago=1), event(3)])
    assert (tail.floor, tail.sent) == (1, {2, 3})


def test_a_full_page_always_moves_on() -> None:
    tail = Tail(0)
    tail.fresh([event(number) for number in range(1, PAGE + 1)])
    assert (tail.floor, tail.sent) == (PAGE, set())


def test_nothing_new_changes_nothing() -> None:
    tail = Tail(7)
    assert tail.fresh([]) == []
    assert tail.floor == 7

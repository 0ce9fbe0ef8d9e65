"""When a partition is over, and when all in it has been kept for long enough."""

from typing import Any

import pytest

from ledger.operations.partitions import SPAN, Partition, expired, is_over


def partition(number: int = 3, **facts: Any) -> Partition:
    return Partition(
        **{"name": f"event_{number}", "number": number, "is_rest": False, "oldest_seconds": 90.0}
        | {"newest_seconds": 60.0, "is_folded": True}
        | facts
    )


@pytest.mark.parametrize(
    ("oldest_seconds", "used", "over"),
    [
        (None, 0, False),
        (None, SPAN // 2 + 1, True),
        (9.9, 5, False),
        (10.0, 5, True),
        (1.0, SPAN // 2 + 1, True),
    ],
)
def test_a_partition_is_over_by_the_age_of_its_first_event_or_long_before_its_ids_run_out(
    oldest_seconds: float | None, used: int, over: bool
) -> None:
    assert is_over(partition(oldest_seconds=oldest_seconds), used=used, seconds=10) is over


@pytest.mark.parametrize(
    ("facts", "goes"),
    [
        ({}, True),
        ({"newest_seconds": None, "oldest_seconds": None}, True),
        ({"newest_seconds": 59.0}, False),
        ({"is_folded": False}, False),
        ({"number": 4}, False),
        ({"number": 5}, False),
    ],
)
def test_a_partition_expires_with_its_newest_event_once_all_are_counted_and_never_while_it_takes_events(
    facts: dict[str, Any], goes: bool
) -> None:
    asked = partition(**facts)
    assert expired([asked], current=4, seconds=60) == ([asked] if goes else [])

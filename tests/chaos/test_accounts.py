"""The comparison itself, since a wrong one would keep every promise."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from gateway.fake_provider.config import LoggedCall, billed_nanousd
from routing.policy.platform import platform_policy
from tests.chaos.accounts import BilledCall, compare, passed_caps

PRICES = platform_policy().prices
MODEL = "claude-haiku-4-5-20251001"


def served(call: UUID | None, **fields: Any) -> LoggedCall:
    known: dict[str, Any] = {
        "id": "req",
        "received_at": datetime.now(UTC),
        "seconds": 1.0,
        "model": MODEL,
        "stream": True,
        "status": 200,
        "key_sha256": "",
        "call": str(call) if call else None,
        "input_tokens": 100,
        "output_tokens": 50,
        "cache_write_tokens": 0,
        "cache_read_tokens": 0,
        "finish": "completed",
        "rule": None,
        "tools": (),
        "characters": 200,
    }
    return LoggedCall(**(known | fields))


COST = billed_nanousd(served(None), PRICES)


def billed(cost: int = COST, **fields: Any) -> BilledCall:
    known: dict[str, Any] = {
        "id": uuid4(),
        "state": "settled",
        "finish": "completed",
        "reserved_nanousd": 2 * COST,
        "cost_nanousd": cost,
        "caps": [["job", "j"]],
    }
    return BilledCall(**(known | fields))


def problems(call: BilledCall, *log: LoggedCall) -> list[str]:
    return compare([call], log, PRICES).problems


def test_a_bill_that_is_the_log_is_right_and_one_that_is_not_is_found() -> None:
    call = billed()
    assert problems(call, served(call.id)) == []
    under = billed(COST - 1)
    assert "under" in problems(under, served(under.id))[0]
    over = billed(COST + 1)
    assert "nothing cut it" in problems(over, served(over.id))[0]


def test_a_cut_call_may_be_over_by_its_reserve_and_no_more() -> None:
    cut = billed(2 * COST, state="presumed", finish="gateway_lost")
    assert problems(cut, served(cut.id, output_tokens=1, finish="client_cut")) == []
    assert problems(cut) == [], "it died before it came to the provider"
    dear = billed(9 * COST, state="presumed", finish="gateway_lost")
    assert "more than its reserve" in problems(dear, served(dear.id, finish="client_cut"))[0]


def test_what_is_served_is_on_some_bill_and_no_call_stays_open() -> None:
    assert "on no bill" in compare([], [served(uuid4())], PRICES).problems[0]
    assert "without id" in compare([], [served(None)], PRICES).problems[0]
    open_ = billed(0, state="reserved", finish=None)
    assert "still open" in problems(open_, served(open_.id))[0]


def test_a_cap_that_the_log_passed_is_named_unless_one_reply_alone_broke_its_reserve() -> None:
    calls = [billed(), billed()]
    log = [served(call.id) for call in calls]
    assert passed_caps(calls, log, {("job", "j"): 2 * COST}, PRICES) == []
    assert len(passed_caps(calls, log, {("job", "j"): 2 * COST - 1}, PRICES)) == 1
    overran = billed(3 * COST, reserved_nanousd=COST)
    assert passed_caps([overran], [served(overran.id)] * 3, {("job", "j"): COST}, PRICES) == []

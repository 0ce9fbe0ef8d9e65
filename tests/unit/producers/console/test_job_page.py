"""A bill by model: every call once, the dearest first."""

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from ledger.tables import Call
from producers.console.job_page import bill_lines

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def call(model: str, **fields: Any) -> Call:
    values = {"ended_at": NOW, "finish": "completed", "state": "settled"} | fields
    return Call(
        job_id=uuid4(),
        attempt_id=uuid4(),
        provider="fake",
        model=model,
        key_hash="h",
        gateway="g",
        lease_until=NOW,
        max_tokens=1,
        prices_as_of="2030-01-01",
        **values,
    )


def test_calls_of_one_model_are_one_line_and_cached_input_counts_as_input() -> None:
    (line,) = bill_lines(
        [
            call("haiku", input_tokens=10, cache_read_tokens=5, cache_write_tokens=3, output_tokens=2, cost_nanousd=7),
            call("haiku", input_tokens=1, output_tokens=1, cost_nanousd=3, finish="cut"),
            call("haiku", ended_at=None, finish=None, state="reserved"),
        ]
    )
    assert (line.calls, line.input_tokens, line.output_tokens, line.cost_nanousd, line.failed) == (3, 19, 3, 10, 1)


def test_the_dearest_model_comes_first_and_no_calls_make_no_lines() -> None:
    lines = bill_lines([call("haiku", cost_nanousd=1), call("opus", cost_nanousd=9)])
    assert [line.model for line in lines] == ["opus", "haiku"]
    assert bill_lines([]) == ()

"""Events as rows: what a model or a person wrote is stored without keys."""

from __future__ import annotations

import json

import pytest

from ledger.events import EventKind, event_rows

KEY = "sk-ant-api03-" + "a" * 40


@pytest.mark.req("S-084")
def test_no_event_holds_a_key_wherever_it_stands() -> None:
    told = {"steps": [{"step": "dev", "task": f"log in with {KEY}"}], "text": KEY}
    (row,) = event_rows([(EventKind.PLAN, told)], None)
    assert row["kind"] == "plan"
    assert KEY not in json.dumps(row)
    assert row["data"]["steps"] == [{"step": "dev", "task": "log in with [redacted]"}]

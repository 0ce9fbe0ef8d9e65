"""Messages at a tenant's door: whatever a sender writes, only a task's name, id and keyword arguments are read."""

from __future__ import annotations

import base64
import json
from contextlib import suppress
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers.envelopes import BrokenMessageError, read_envelope

ID = "6d1f8c1e-0d4c-4a3e-9b57-1c2d3e4f5a6b"
HOSTILE = {
    "callbacks": [{"task": "pointsman.agent"}],
    "chain": [{"task": "celery.starmap"}],
    "chord": {},
    "errbacks": [],
}


def encode(value: Any) -> str:
    return base64.b64encode(json.dumps(value).encode()).decode()


def message(**changes: Any) -> bytes:
    """A message as a Celery client of protocol 2 leaves it on a Redis list."""
    fields: dict[str, Any] = {
        "body": encode([[], {"prompt": "pwd"}, HOSTILE]), "content-type": "application/json",
        "headers": {"task": "pointsman.submit", "id": ID, "eta": "2999-01-01T00:00:00", "timelimit": [None, 1e9]},
        "properties": {"body_encoding": "base64", "delivery_info": {"exchange": "", "routing_key": "agent"}},
    }  # fmt: skip
    return json.dumps({**fields, **changes}).encode()


def test_only_the_tasks_name_id_and_keyword_arguments_are_taken() -> None:
    found = read_envelope(message())
    assert (found.task, found.task_id, found.kwargs) == ("pointsman.submit", UUID(ID), {"prompt": "pwd"})
    assert set(vars(found)) == {"task", "task_id", "kwargs"}


def test_a_message_of_protocol_1_is_read_as_well() -> None:
    body = {"task": "pointsman.submit", "id": ID, "args": [], "kwargs": {"prompt": "pwd"}, "callbacks": [1]}
    found = read_envelope(message(headers={}, body=encode(body)))
    assert (found.task, found.kwargs) == ("pointsman.submit", {"prompt": "pwd"})


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        (b"", "message"),
        (b"\xff\xfe", "message"),
        (b"[]", "message"),
        (b"[" * 100_000, "message"),
        (b'{"properties": 1}', "properties"),
        (message(headers=[1]), "headers"),
        (message(body=None), "body"),
        (message(body="not base64!"), "body"),
        (message(body=base64.b64encode(b"[" * 100_000).decode()), "body"),
        (message(body=base64.b64encode(b"[[], {\"budget_usd\": NaN}, {}]").decode()), "body"),
        (message(body=encode([])), "body"),
        (message(body=encode({"kwargs": {}})), "body"),
        (message(body=encode([["positional"], {}, {}])), "args"),
        (message(body=encode([[], [], {}]), headers={"task": "x", "id": None}), "id"),
        (message(headers={"task": "pointsman.submit", "id": "../../etc"}), "id"),
        (message(headers={"task": "pointsman.submit", "id": {"a": 1}}), "id"),
        (message(body=encode([[], ["prompt"], {}])), "kwargs"),
    ],
)  # fmt: skip
def test_a_broken_message_is_refused_by_the_field_at_fault(raw: bytes, field: str) -> None:
    with pytest.raises(BrokenMessageError) as caught:
        read_envelope(raw)
    assert caught.value.field == field


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists, max_leaves=5)
VALUES = JSON | st.dictionaries(st.sampled_from(["task", "id", "args", "kwargs", "body_encoding"]), JSON)


@given(st.binary() | st.builds(message, body=VALUES, headers=VALUES, properties=VALUES))
def test_nothing_else_than_a_refusal_comes_of_any_bytes(raw: bytes) -> None:
    with suppress(BrokenMessageError):
        read_envelope(raw)

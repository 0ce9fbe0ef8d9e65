"""Over HTTP: who keeps trying keys is told to wait, and a right key goes on."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.store import Ledger
from producers.api.key_limits import PER_ADDRESS, PER_KEY
from tests.integration.api.http_world import World, open_world, shared_ledger

__all__ = ["shared_ledger"]


@pytest.fixture
def world(shared_ledger: Ledger, tmp_path: Path) -> Iterator[World]:
    with open_world(shared_ledger, tmp_path / "content-store") as opened:
        yield opened


def a_key() -> str:
    return f"pmk_{secrets.token_urlsafe(32)}"


def test_who_tries_keys_has_to_wait_and_the_right_key_goes_on(world: World) -> None:
    right = world.headers("read")
    assert world.client.get("/v1/jobs", headers=right).status_code == 200
    tried = [world.client.get("/v1/jobs", headers={"X-API-Key": a_key()}) for _ in range(PER_ADDRESS.tries + 5)]
    assert {answer.status_code for answer in tried[: PER_ADDRESS.tries]} == {401}
    assert tried[-1].status_code == 429
    assert tried[-1].json()["type"] == "urn:pointsman:problem:too_many_tries"
    assert int(tried[-1].headers["retry-after"]) >= 1
    assert world.client.get("/v1/jobs", headers=right).status_code == 200


@pytest.mark.parametrize("is_right", [True, False])
def test_logins_with_one_key_have_to_wait(world: World, is_right: bool) -> None:
    key = world.key("read") if is_right else a_key()
    answers = [
        world.client.post("/console/login", data={"key": key}, follow_redirects=False) for _ in range(PER_KEY.tries + 1)
    ]
    assert {answer.status_code for answer in answers[:-1]} == {303 if is_right else 401}
    last = answers[-1]
    assert (last.status_code, "set-cookie" in last.headers, "Too many logins" in last.text) == (429, False, True)
    assert int(last.headers["retry-after"]) >= 1

"""Leases are renewed for as long as they are held, and a job that is over before costs no thread."""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from types import SimpleNamespace
from typing import cast
from uuid import uuid4

import pytest

from ledger.start_attempt import Claim
from ledger.store import Ledger, create_ledger_engine
from workers.lease import Lease, LeaseKeeper


class Held(Lease):
    """A lease without a ledger."""

    def __init__(self, keeper: LeaseKeeper, every: float) -> None:
        self._keeper = keeper
        self._every = every
        self.renewed = 0

    @property
    def renew_seconds(self) -> float:
        return self._every


def renew_held(leases: Sequence[Lease]) -> None:
    for lease in leases:
        assert isinstance(lease, Held)
        lease.renewed += 1


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 5
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.002)


@pytest.fixture
def keepers() -> Callable[[], int]:
    """Count the threads of keepers that the test has made; an earlier test's may take seconds to end."""
    earlier = {*threading.enumerate()}
    return lambda: sum(thread.name == "leases" for thread in {*threading.enumerate()} - earlier)


def test_a_lease_is_renewed_again_and_again_until_it_is_let_go(keepers: Callable[[], int]) -> None:
    with Held(LeaseKeeper(renew_held), 0.01) as held:
        wait_until(lambda: held.renewed > 2)
    wait_until(lambda: not keepers())
    renewed = held.renewed
    time.sleep(0.03)
    assert held.renewed == renewed


def test_short_attempts_share_one_thread_and_renew_nothing(keepers: Callable[[], int]) -> None:
    keeper = LeaseKeeper(renew_held)
    seen = []
    for _ in range(50):
        with Held(keeper, 0.2) as held:
            seen.append(keepers())
        assert not held.renewed
    assert set(seen) == {1}
    wait_until(lambda: not keepers())


def test_a_short_attempt_does_not_wake_the_thread(monkeypatch: pytest.MonkeyPatch, keepers: Callable[[], int]) -> None:
    wakes: list[int] = []
    keeper = LeaseKeeper(renew_held)
    with Held(keeper, 0.2):
        wait_until(lambda: keeper._wakes_at > 0)
        monkeypatch.setattr(keeper._changed, "notify", lambda: wakes.append(1))
    for _ in range(50):
        with Held(keeper, 0.2):
            pass
    assert not wakes
    wait_until(lambda: not keepers())


def test_a_lease_that_is_due_sooner_does_not_wait_for_one_that_is_due_later() -> None:
    keeper = LeaseKeeper(renew_held)
    with Held(keeper, 0.5) as slow, Held(keeper, 0.01) as fast:
        wait_until(lambda: fast.renewed > 1)
        assert not slow.renewed


def test_after_a_pause_the_next_attempt_is_looked_after_as_well(keepers: Callable[[], int]) -> None:
    keeper = LeaseKeeper(renew_held)
    for _ in range(2):
        with Held(keeper, 0.01) as held:
            wait_until(lambda held=held: held.renewed > 0)  # type: ignore[misc]
        wait_until(lambda: not keepers())


def test_a_ledger_that_is_away_says_nothing_about_the_job() -> None:
    ledger = Ledger(create_ledger_engine("postgresql://nobody@127.0.0.1:1/none", pool_size=0))
    Lease(ledger, cast(Claim, SimpleNamespace(attempt=SimpleNamespace(id=uuid4()))), LeaseKeeper()).check()


def test_leases_that_are_due_soon_are_renewed_together() -> None:
    batches: list[int] = []
    keeper = LeaseKeeper(lambda leases: batches.append(len(leases)))
    with ExitStack() as held:
        for number in range(100):
            held.enter_context(Held(keeper, 0.5 + number * 0.0005))
        wait_until(lambda: sum(batches) >= 200)
    assert len(batches) <= 6

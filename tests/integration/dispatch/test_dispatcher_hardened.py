"""Dispatchers that die, stall, lose the ledger or meet a bad queue in mid-round: nothing lost, nothing twice."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from sqlalchemy import event
from sqlalchemy.exc import OperationalError

from ledger.dispatch_window import Push
from ledger.operations.leaders import DISPATCHER, lead
from ledger.store import STATEMENT_TIMEOUT_MS
from ledger.submission import accept_all
from ledger.tables import Call
from producers.config import DispatcherConfig
from producers.dispatch.broker import SHORT_LIST, BrokerLists, Publisher
from producers.dispatch.dispatcher import BATCH, Dispatcher
from routing.broker import create_app
from routing.policy.platform import DispatchWindow, Policy
from routing.queues import Limits, Tier
from tests.factories import Shop, make_new_job
from tests.integration.dispatch.test_dispatcher import broker, grow_old, ids
from tests.services import wait_until

__all__ = ["broker"]

Make = Callable[..., Dispatcher]
SHORT = DispatcherConfig(lease_seconds=1.2)
WINDOW = DispatchWindow(per_queue=500, per_tenant=500)
LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)


class Interrupted(Publisher):
    """Publishes, and lets a test do something before each queue's messages."""

    before: Callable[[int], None] = staticmethod(lambda number: None)
    pushed = 0

    def push_all(self, pushes: Sequence[tuple[Push, Limits]]) -> None:
        self.pushed += 1
        self.before(self.pushed)
        super().push_all(pushes)


@pytest.fixture
def make(shop: Shop, broker_url: str) -> Iterator[Make]:
    with ExitStack() as stack:

        def one(
            holder: str = "one",
            *,
            before: Callable[[int], None] | None = None,
            config: DispatcherConfig = SHORT,
            policy: Policy = shop.policy,
            window: DispatchWindow = WINDOW,
        ) -> Dispatcher:
            app = create_app(broker_url)
            lists = BrokerLists(broker_url)
            stack.callback(app.close)
            stack.callback(lists.close)
            publisher = Interrupted(app)
            if before is not None:
                publisher.before = before  # type: ignore[method-assign]
            policy = policy.model_copy(update={"dispatch_window": window})
            return Dispatcher(
                shop.ledger, publisher, lists, policy=policy, config=config, holder=holder, signing_key=b"k" * 32
            )

        yield one


def claimed_once(shop: Shop, broker: Any, jobs: list[UUID]) -> bool:
    """Let a worker take every message that stands in the broker: each job is taken exactly once."""
    won = Counter(job_id for job_id in ids(broker, "answer") if shop.try_claim(shop.message(job_id)) is not None)
    return won == Counter(jobs)


def test_a_leader_that_lost_its_lease_in_the_middle_of_a_round_stops_and_harms_nothing(
    shop: Shop, broker: Any, make: Make
) -> None:
    jobs = [shop.accept(tier=None) for _ in range(6)]
    other = make("two")

    def stall(number: int) -> None:
        if number == 1:
            shop.execute("UPDATE leader SET until = now() - interval '1 second'")
            grow_old(shop)
            assert other.run_once()
            time.sleep(0.5)

    assert not make("one", before=stall).run_once(), "it finds out after what it was sending"
    grow_old(shop)
    assert other.run_once()
    assert set(ids(broker, "answer")) == set(jobs)
    assert claimed_once(shop, broker, jobs)


def test_a_lease_that_nobody_could_renew_while_the_ledger_was_away_is_no_lost_worker(shop: Shop, make: Make) -> None:
    """A dispatcher that reached no ledger for long takes nothing away before the workers can be back."""
    attempts = shop.policy.attempts.model_copy(update={"lease_seconds": 0.5, "lease_renew_seconds": 0.1})
    policy = shop.policy.model_copy(update={"attempts": attempts})
    job_id = shop.accept(tier=None)
    dispatcher = make(policy=policy)
    for _ in range(attempts.max_lost + 1):
        claimed = shop.claim(job_id)
        assert dispatcher.run_once()
        shop.lapse(claimed)
        time.sleep(0.4)  # the outage
        assert dispatcher.run_once()
        assert shop.job(job_id).state == "running", "its worker may renew the lease yet"
        wait_until(
            lambda: dispatcher.run_once() and shop.job(job_id).state == "queued", seconds=5, what="it waits again"
        )
        assert shop.job(job_id).lost_attempts == 0
    claimed = shop.claim(job_id)
    assert dispatcher.run_once()
    shop.lapse(claimed)
    time.sleep(0.4)
    assert dispatcher.run_once()
    assert shop.renews(claimed)
    assert dispatcher.run_once()
    assert shop.job(job_id).fence == claimed.attempt.fence


def test_a_long_round_stays_the_only_one(shop: Shop, broker: Any, make: Make) -> None:
    jobs = [shop.accept(tier=tier) for tier in (None, *Tier)]
    seen: list[bool] = []

    def look_in(number: int) -> None:
        time.sleep(0.35)
        with shop.ledger.begin() as session:
            seen.append(lead(session, DISPATCHER, "two", seconds=5))

    started = time.monotonic()
    assert make(before=look_in).run_once()
    assert time.monotonic() - started > SHORT.lease_seconds
    assert seen == [False] * len(jobs)
    assert [job for queue in ("answer", "spec", "patch", "agent") for job in ids(broker, queue)] == jobs


def test_a_queue_that_cannot_be_pushed_to_holds_up_no_other(shop: Shop, broker: Any, make: Make) -> None:
    broker.set("answer", "no list")
    question, edit = shop.accept(tier=None), shop.accept()
    one = make()
    for _ in range(3):
        assert one.run_once()
        grow_old(shop)
    assert ids(broker, "spec") == [edit]
    assert shop.job(question).pushed_at is None
    broker.delete("answer")
    assert one.run_once()
    assert ids(broker, "answer") == [question]


def test_a_worker_that_is_frozen_in_a_transaction_holds_up_nobody_elses_job(
    shop: Shop, broker: Any, make: Make
) -> None:
    frozen, dead = shop.running(tier=None), shop.running(tier=None)
    new = shop.accept(tier=None)
    for claimed in (frozen, dead):
        shop.lapse(claimed)
    one = make()
    with psycopg.connect(shop.url) as other:
        other.execute("SELECT 1 FROM job WHERE id = %s FOR UPDATE", (frozen.job.id,))
        started = time.monotonic()
        assert one.run_once()
        assert time.monotonic() - started < STATEMENT_TIMEOUT_MS / 2000, "it gives up long before the ledger would"
        assert [shop.job(claimed.job.id).lost_attempts for claimed in (frozen, dead)] == [0, 1]
        assert ids(broker, "answer") == [new]
    assert one.run_once()
    assert shop.job(frozen.job.id).lost_attempts == 1


def test_a_worker_that_is_frozen_in_a_transaction_keeps_nobody_elses_lost_call_open(
    shop: Shop, broker: Any, make: Make
) -> None:
    frozen, other = shop.running(tier=None), shop.running(tier=None)
    facts = {"provider": "own", "model": "m", "key_hash": "k", "gateway": "dead", "prices_as_of": "2026"}
    for claimed in (frozen, other):
        with shop.ledger.begin() as session:
            call = Call(
                job_id=claimed.job.id, attempt_id=claimed.attempt.id, lease_until=LONG_AGO, max_tokens=9, **facts
            )
            session.add(call.sqlmodel_update({"reserved_nanousd": 5, "cost_nanousd": 0}))
    new, one, states = shop.accept(tier=None), make(), "SELECT state FROM call ORDER BY id"
    with psycopg.connect(shop.url) as held:
        held.execute("UPDATE attempt SET reason = 'x' WHERE id = %s", (frozen.attempt.id,))
        started = time.monotonic()
        assert one.run_once()
        assert time.monotonic() - started < STATEMENT_TIMEOUT_MS / 2000
        assert shop.rows(states) == [("reserved",), ("presumed",)]
        assert ids(broker, "answer") == [new]
    assert one.run_once()
    assert shop.rows(states) == [("presumed",), ("presumed",)]


def test_no_message_of_a_wide_window_is_taken_for_missing_and_pushed_again(shop: Shop, broker: Any, make: Make) -> None:
    wide = DispatchWindow(per_queue=2 * SHORT_LIST, per_tenant=2 * SHORT_LIST)
    one, count_each = make(window=wide), SHORT_LIST // 16
    for tenant in (shop.tenant(f"t{number}") for number in range(18)):
        with shop.ledger.begin() as session:
            accept_all(session, [make_new_job(tier=None, tenant=tenant) for _ in range(count_each)])
    for _ in range(3):
        assert one.run_once()
        assert broker.llen("answer") == 18 * count_each > SHORT_LIST
        grow_old(shop)


class Cut:
    """Drops the ledger's connection right before its n-th statement."""

    def __init__(self, shop: Shop, at: int) -> None:
        self._url, self._left, self.is_done = shop.url, at, False

    def __call__(self, connection: Any, *_: Any) -> None:
        self._left -= 1
        if self._left == 0:
            self.is_done = True
            pid = connection.connection.driver_connection.info.backend_pid
            with psycopg.connect(self._url, autocommit=True) as other:
                other.execute("SELECT pg_terminate_backend(%s, 1000)", (pid,))


def test_a_ledger_that_drops_the_connection_at_any_point_of_a_round_costs_a_round(
    shop: Shop, broker: Any, make: Make
) -> None:
    one, jobs = make(), []
    for at in count(1, 3):
        lost = shop.running(tier=None)
        shop.lapse(lost)
        jobs += [lost.job.id, shop.accept(tier=None)]
        cut = Cut(shop, at)
        event.listen(shop.ledger.engine, "before_cursor_execute", cut)
        with suppress(OperationalError):  # the loop around it waits a tick and listens anew
            one.run_once()
        event.remove(shop.ledger.engine, "before_cursor_execute", cut)
        if not cut.is_done:
            break
    shop.execute("UPDATE job SET held_until = now() WHERE held_until IS NOT NULL")  # after the pause of a lost attempt
    for _ in range(2):
        grow_old(shop)
        one.run_once()
    assert at > 30, "it was cut at many points"
    assert claimed_once(shop, broker, jobs)


def test_what_a_round_leaves_over_makes_the_next_one_begin_at_once(shop: Shop, make: Make) -> None:
    first = shop.running(tier=None)
    shop.execute(
        "INSERT INTO job (id, tenant, source, state, prompt, request, request_digest, priority, root_id, route, queue,"
        " fence, lost_attempts, cap_nanousd, result, expires_at, clarification)"
        " SELECT gen_random_uuid(), tenant, source, 'clarifying', prompt, '{}', 'd', 'P2', id, '{}', queue, 0, 0, 0,"
        " '{}', now() - interval '1 day', '{}' FROM job, generate_series(1, :count) WHERE id = :id",
        count=BATCH + 1,
        id=first.job.id,
    )
    one = make(config=DispatcherConfig())
    assert one.run_once()
    assert one.has_more
    assert one.run_once()
    assert not one.has_more
    assert shop.scalar("SELECT count(*) FROM job WHERE state = 'expired'") == BATCH + 1


_DISPATCH = """
from ledger import store
from producers.cli import app

store.SESSION = {**store.SESSION, "idle_in_transaction_session_timeout": "3s"}
app(["dispatcher"])
"""
"""The command, whose transactions the ledger ends sooner than IDLE_TRANSACTION_TIMEOUT_MS, which would be sat out."""


@pytest.fixture
def processes(shop: Shop, broker_url: str, tmp_path: Path) -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    running: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        settings = {
            "POINTSMAN_LEDGER__URL": shop.url,
            "POINTSMAN_BROKER__URL": broker_url,
            "POINTSMAN_AUDIT__SIGNING_KEY": "k" * 32,
            "POINTSMAN_CONTENT_STORE__ROOT": str(tmp_path),
            "POINTSMAN_DISPATCHER__LEASE_SECONDS": "1.5",
            "POINTSMAN_DISPATCHER__TICK_SECONDS": "0.2",
        }
        command = [sys.executable, "-c", _DISPATCH]
        with (tmp_path / "log").open("ab") as log:
            running.append(subprocess.Popen(command, env=os.environ | settings, stdout=log, stderr=log))
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.wait(10)


def leader_of(shop: Shop) -> str | None:
    found: str | None = shop.scalar("SELECT holder FROM leader WHERE until > clock_timestamp()")
    return found


def test_a_dispatcher_that_is_killed_or_stands_still_is_replaced_by_another_process(
    shop: Shop, broker: Any, processes: Callable[[], subprocess.Popen[bytes]]
) -> None:
    one, two = processes(), processes()
    by_pid = {str(process.pid): process for process in (one, two)}
    holder = wait_until(lambda: leader_of(shop), seconds=90, what="one of them leads")
    leader = by_pid[holder.rpartition(".")[2]]
    follower = two if leader is one else one
    first = shop.accept(tier=None)
    wait_until(lambda: ids(broker, "answer") == [first], seconds=20, what="the leader pushes")
    leader.send_signal(signal.SIGSTOP)
    second = shop.accept(tier=None)
    # What stands still may stand in a transaction: the ledger ends that.
    wait_until(lambda: ids(broker, "answer") == [first, second], seconds=45, what="the other takes over")
    wait_until(lambda: str(leader_of(shop)).endswith(f".{follower.pid}"), seconds=30, what="the other one leads")
    leader.send_signal(signal.SIGCONT)
    follower.kill()
    third = shop.accept(tier=None)
    wait_until(lambda: ids(broker, "answer") == [first, second, third], seconds=30, what="it is led again")
    assert claimed_once(shop, broker, [first, second, third])

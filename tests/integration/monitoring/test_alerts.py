"""Each alert's own series, moved by a real fault: real ledger, broker and exporter, read by a real Prometheus.

What a rule's window and `for` are is unit-tested (tests/unit/monitoring/test_alerts.py); here its condition has to come
true of what really goes wrong, and of nothing else before.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import LiteralString

import psycopg
import pytest
import yaml
from redis import Redis
from sqlalchemy import text
from sqlmodel import Session

from ledger import money, provider_circuits
from ledger.attempts import recover, report_loss
from ledger.events import EventKind, record
from ledger.operations.leaders import lead, resign
from ledger.operations.workers import WorkerStatus, record_heartbeat
from ledger.start_attempt import Claim
from ledger.store import Ledger
from ledger.tables import Attempt
from producers.commands.installation import read_alert_rules
from producers.local.supervisor import free_port
from routing.jobs import JobMessage, JobRequest, Reason, State
from routing.policy.prices import Usage
from routing.provider_circuit import Trouble
from routing.queues import Tier
from tests.directories import new_directory
from tests.integration.monitoring.driving import MODEL, Fleet, create_fleet
from tests.prometheus import JOB, Prometheus, needs_prometheus
from tests.services import Postgres, Valkey, wait_until

SERVE = """
import sys
from functools import partial
from ledger.cells.directory import Directory
from monitoring.exporter import serve
from monitoring.gauges import read_broker, read_cell
from producers.dispatch.redis_client import open_broker
from routing.policy.platform import platform_policy
others = (partial(read_broker, open_broker(sys.argv[3], timeout_seconds=0.5)),
          partial(read_cell, Directory(sys.argv[4]), "east"))
serve(sys.argv[1], host="127.0.0.1", port=int(sys.argv[2]), policy=platform_policy(), others=others)
"""
QUEUES = ("intake", "tools", "answer", "spec", "agent", "steps", "control")
"""Served by the one worker there is; nobody serves `patch`."""


@dataclass
class Site:
    """An installation as Prometheus sees it."""

    fleet: Fleet
    broker: Valkey
    directory_url: str
    exporter: subprocess.Popen[bytes]
    prometheus: Prometheus
    open_sessions: ExitStack

    def redis(self) -> Redis:
        return Redis.from_url(self.broker.url)

    def late(self, *, seconds: float, prompt: str = "What is rye?") -> Claim:
        """A job that was claimed after a long wait."""
        job_id = self.fleet.accept(tier=None, request=JobRequest(prompt=prompt))
        self.wait_longer(job_id, seconds)
        return self.fleet.claim(job_id)

    def wait_longer(self, job_id: object, seconds: float) -> None:
        self.fleet.execute(
            "UPDATE job SET waiting_since = now() - make_interval(secs => :s) WHERE id = :id", s=seconds, id=job_id
        )

    def standing(self) -> dict[str, object]:
        """What to look at where an alert does not come."""
        asked = (
            "up",
            "scrape_duration_seconds",
            "pointsman_fold_lag_seconds",
            "sum(pointsman_dead_letters)",
            "sum by (state, reason) (pointsman_jobs_finished_total) > 0",
        )
        ends = self.fleet.execute_scalars("SELECT state || ' ' || reason FROM job WHERE ended_at IS NOT NULL")
        busy = self.fleet.execute_scalars("""
            SELECT state || ' ' || coalesce(backend_xid::text, '-') || ' ' || left(query, 80) FROM pg_stat_activity
             WHERE backend_type = 'client backend' AND xact_start < now() - interval '1 s'""")
        shown = {query: self.prometheus.query(query) for query in asked}
        return {"alerts": sorted(self.prometheus.alerts()), "ends": Counter(ends), "open": busy} | shown

    def in_directory(self, *statements: LiteralString) -> None:
        with psycopg.connect(self.directory_url) as connection:
            for statement in statements:
                connection.execute(statement)

    def in_ledger(self, what: Callable[[Session], object]) -> None:
        with self.fleet.ledger.begin() as session:
            what(session)


def last_week(directory: Path) -> None:
    """Let Prometheus remember that a week ago hardly anything was spent."""
    then = time.time() - 7 * 86_400
    name = f'pointsman_cost_usd_total{{job="{JOB}",instance="i",tier="spec",model="m",provider="p"}}'
    samples = "\n".join(f"{name} {0.001 * step} {then - 1800 + 60 * step:.0f}" for step in range(60))
    source = directory / "week.om"
    source.write_text(f"# TYPE pointsman_cost_usd counter\n{samples}\n# EOF\n")
    subprocess.run(
        ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(source), str(directory / "tsdb")],
        check=True,
        capture_output=True,
    )


@pytest.fixture
def site(ledger: Ledger, ledger_url: str, postgres: Postgres, tmp_path: Path) -> Iterator[Site]:
    fleet, port = create_fleet(ledger, ledger_url), free_port()
    last_week(tmp_path)
    with fleet.ledger.begin() as session:
        lead(session, "dispatcher", "d1", seconds=3600)
        record_heartbeat(session, WorkerStatus(id="w1", host="h", pid=1, queues=QUEUES, slots=1))
    fleet.execute("UPDATE worker SET seen_at = now() + interval '1 hour'")  # it goes on saying so
    with ExitStack() as stack:
        broker = stack.enter_context(Valkey(tmp_path))
        directory_url, _ = stack.enter_context(new_directory(postgres))
        arguments = (ledger_url, str(port), broker.url, directory_url)
        exporter = subprocess.Popen([sys.executable, "-W", "ignore", "-c", SERVE, *arguments])
        stack.callback(exporter.wait, 20)
        stack.callback(exporter.kill)
        prometheus = stack.enter_context(Prometheus(tmp_path, f"http://127.0.0.1:{port}", rules=read_alert_rules()))
        prometheus.scraped_after(time.time())
        wait_until(lambda: not prometheus.alerts(), seconds=30, what="all is well")
        yield Site(fleet, broker, directory_url, exporter, prometheus, stack.enter_context(ExitStack()))


def jobs_wait_on_a_queue_that_nobody_serves(site: Site) -> None:
    site.wait_longer(site.fleet.accept(tier=Tier.PATCH), 600)


def all_slots_are_taken_and_a_job_waits(site: Site) -> None:
    site.fleet.claim(site.fleet.accept(tier=None))
    site.fleet.accept(tier=None)


def jobs_begin_late(site: Site) -> None:
    for _ in range(3):
        site.fleet.end(site.late(seconds=300), State.ANSWERED, Reason.DONE)


def jobs_fail(site: Site) -> None:
    for number in range(12):  # of its own task and for no error of its own: else it is debated, and no dead letter
        claimed = site.late(seconds=0, prompt=f"What is spelt, part {number}?")
        site.fleet.end(claimed, State.FAILED, Reason.GATEWAY_UNREACHABLE)


def files_cannot_be_written(site: Site) -> None:
    site.fleet.end(site.late(seconds=0), State.FAILED, Reason.STORAGE_UNAVAILABLE)


def a_callback_is_late(site: Site) -> None:
    site.fleet.execute(
        "INSERT INTO notification (job_id, callback_url, payload, attempts, next_at, created_at)"
        " SELECT id, 'https://receiver.example', '{}', 1, now() + interval '1 hour', now() - interval '5 minutes'"
        "   FROM job WHERE id = :id",
        id=site.fleet.accept(tier=None),
    )


def a_session_waits_for_another(site: Site) -> None:
    holder, waiter = (site.open_sessions.enter_context(Session(site.fleet.ledger.engine)) for _ in range(2))
    for session in (holder, waiter):
        session.execute(text("SET idle_in_transaction_session_timeout = 0; SET statement_timeout = 0"))
    lock = text("SELECT pg_advisory_xact_lock(7)")
    holder.execute(lock)
    waiting = threading.Thread(target=waiter.execute, args=(lock,))
    waiting.start()
    site.open_sessions.callback(waiting.join)
    site.open_sessions.callback(holder.rollback)


def connections_run_out(site: Site) -> None:
    for _ in range(75):
        site.open_sessions.enter_context(psycopg.connect(site.fleet.url))


def workers_die_in_jobs(site: Site) -> None:
    for _ in range(4):
        claimed = site.late(seconds=0)
        message = JobMessage(job_id=claimed.attempt.job_id, fence=claimed.attempt.fence - 1)
        site.in_ledger(lambda session, told=message: report_loss(session, told, worker="w1", cause=Reason.WORKER_LOST))
        site.in_ledger(
            lambda session, lost=claimed: recover(session, session.get_one(Attempt, lost.attempt.id), max_lost=2)
        )


def money_goes_into_work_that_is_not_used(site: Site) -> None:
    claimed = site.late(seconds=0)
    settle = money.settle(
        site.fleet.open_call(claimed),
        usage=Usage(10, 10),
        cost_nanousd=3_000_000_000,
        finish="completed",
        status=200,
        state="settled",
    )
    site.in_ledger(lambda session: settle.all(session))
    site.fleet.end(claimed, State.FAILED, Reason.PROVIDER_ERROR)


def a_tenant_has_spent_its_day(site: Site) -> None:
    site.fleet.execute("UPDATE cap SET spent_nanousd = 0.97 * limit_nanousd WHERE scope = 'tenant_day'")


def money_is_reserved_and_nothing_runs(site: Site) -> None:
    claimed = site.late(seconds=0)
    site.fleet.open_call(claimed)
    site.fleet.end(claimed, State.FAILED, Reason.PROVIDER_ERROR)
    site.fleet.execute("UPDATE attempt SET lease_until = now() - interval '1 s' WHERE ended_at IS NULL")
    for attempt_id in site.fleet.execute_scalars("SELECT id FROM attempt WHERE ended_at IS NULL"):
        site.in_ledger(lambda session, one=attempt_id: recover(session, session.get_one(Attempt, one), max_lost=9))


def a_provider_refuses(site: Site) -> None:
    refused = provider_circuits.fail(
        "fake", MODEL, trouble=Trouble.RATE_LIMITED, pauses=[600], asked=None, is_test=False
    )
    site.in_ledger(lambda session: refused.all(session))


def an_orchestrator_talks_too_much(site: Site) -> None:
    told = {"state": "published", "reason": "done", "gates": 0, "run_tokens": {"orchestrator": 30, "developer": 70}}
    site.in_ledger(lambda session: record(session, EventKind.ENDED, **told))


def a_transaction_hangs(site: Site) -> None:
    hanging = site.open_sessions.enter_context(Session(site.fleet.ledger.engine))
    record(hanging, EventKind.FENCED, queue="spec")
    site.in_ledger(lambda session: record(session, EventKind.FENCED, queue="spec"))
    site.fleet.execute("UPDATE event SET at = now() - interval '100 s' WHERE id = (SELECT max(id) FROM event)")


def nobody_seals(site: Site) -> None:
    site.fleet.execute("UPDATE audit SET at = now() - interval '10 minutes'")


def boxes_are_left_behind(site: Site) -> None:
    site.in_ledger(lambda session: record(session, EventKind.REAPED, container=5, network=5, volume=0))


def the_ledger_had_lost_a_call(site: Site) -> None:
    site.in_ledger(lambda session: record(session, EventKind.CALL_RESTORED, lost="row"))


def a_worker_falls_silent(site: Site) -> None:
    site.in_ledger(
        lambda session: record_heartbeat(session, WorkerStatus(id="w2", host="h", pid=2, queues=("spec",), slots=1))
    )
    site.fleet.execute("UPDATE worker SET seen_at = now() - interval '1 minute' WHERE id = 'w2'")


def a_stranger_s_message(site: Site) -> None:
    with site.redis() as broker:
        broker.lpush("unrouted", "x")


def the_broker_is_nearly_full(site: Site) -> None:
    with site.redis() as broker:
        broker.config_set("maxmemory", int(broker.info("memory")["used_memory"] * 1.2))


def the_broker_throws_away(site: Site) -> None:
    with site.redis() as broker:
        broker.config_set("maxmemory-policy", "allkeys-random")
        for number in range(3000):
            broker.set(f"stranger:{number}", "x" * 1000)


def a_tenant_s_move_broke_off(site: Site) -> None:
    site.in_directory(
        "INSERT INTO cell SELECT name, '', '', '', '', '' FROM (VALUES ('east'), ('west')) AS cells (name)",
        "INSERT INTO tenant (name, cell) VALUES ('mover', 'east')",
        "INSERT INTO move (tenant, origin, target, step, was_paused, begun_at)"
        " VALUES ('mover', 'east', 'west', 'frozen', false, now() - interval '20 minutes')",
    )


def the_directory_of_cells_is_lost(site: Site) -> None:
    site.in_directory("DROP SCHEMA public CASCADE")


def the_dispatcher_is_gone(site: Site) -> None:
    site.in_ledger(lambda session: resign(session, "dispatcher", "d1"))


def the_broker_is_gone(site: Site) -> None:
    site.broker.__exit__(None, None, None)


def the_exporter_is_gone(site: Site) -> None:
    site.exporter.kill()


FAULTS: tuple[tuple[Callable[[Site], None], tuple[str, ...]], ...] = (
    (jobs_wait_on_a_queue_that_nobody_serves, ("NoWorkers", "QueueStuck")),
    (nobody_seals, ("AuditUnsealed",)),
    (all_slots_are_taken_and_a_job_waits, ("Saturated",)),
    (jobs_begin_late, ("QueueSlow", "WaitBurnFast", "WaitBurnSlow")),
    (jobs_fail, ("Failing", "AcceptanceBurn", "DeadLetters", "GatewayAway")),
    (files_cannot_be_written, ("ContentStoreAway",)),
    (a_callback_is_late, ("Webhooks",)),
    (a_session_waits_for_another, ("LedgerBlocked",)),
    (connections_run_out, ("LedgerConnections",)),
    (workers_die_in_jobs, ("WorkersDie",)),
    (money_goes_into_work_that_is_not_used, ("Waste", "SpendRate")),
    (a_tenant_has_spent_its_day, ("BudgetNearlySpent", "BudgetSpent")),
    (money_is_reserved_and_nothing_runs, ("ReserveLeak",)),
    (a_provider_refuses, ("CircuitOpen",)),
    (an_orchestrator_talks_too_much, ("OrchestratorShare",)),
    (boxes_are_left_behind, ("Orphans",)),
    (the_ledger_had_lost_a_call, ("CallsRestored",)),
    (a_worker_falls_silent, ("WorkerLost",)),
    (a_stranger_s_message, ("Unrouted",)),
    (the_broker_is_nearly_full, ("BrokerMemory",)),
    (the_broker_throws_away, ("BrokerEvicts",)),
    (a_tenant_s_move_broke_off, ("MoveStands",)),
    (the_directory_of_cells_is_lost, ("DirectoryAway",)),
    (the_dispatcher_is_gone, ("NoDispatcher",)),
    (the_broker_is_gone, ("BrokerDown",)),
    (a_transaction_hangs, ("MetricsLag",)),
    (the_exporter_is_gone, ("ExporterDown",)),
)
"""What goes wrong, one thing after the other, and the alerts whose condition comes true of it."""


def test_every_alert_has_its_fault() -> None:
    shipped = {rule.get("alert") for group in yaml.safe_load(read_alert_rules())["groups"] for rule in group["rules"]}
    assert {f"Pointsman{name}" for _, names in FAULTS for name in names} == shipped - {None}


@pytest.mark.long
@pytest.mark.timeout(500)
@needs_prometheus
@pytest.mark.req("S-022")
def test_a_real_fault_moves_each_alert_s_own_series_and_no_other_s(site: Site) -> None:
    expected: set[str] = set()
    for fault, names in FAULTS:
        shown = site.prometheus.alerts()
        assert shown <= expected, f"before {fault.__name__}"
        fault(site)
        mine = {f"Pointsman{name}" for name in names}
        try:
            wait_until(lambda mine=mine: mine <= site.prometheus.alerts(), seconds=45, what="its alerts")
        except AssertionError:
            pytest.fail(f"{sorted(mine)} of {fault.__name__}: {site.standing()}")
        expected |= mine

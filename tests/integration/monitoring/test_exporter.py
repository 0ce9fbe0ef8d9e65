from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import text
from sqlmodel import Session

from ledger import money
from ledger.attempts import escalate, lock_owned_job, recover, report_loss
from ledger.dispatch_window import pause_queue
from ledger.errors import ForeignMarkError
from ledger.events import EventKind, record
from ledger.jobs import end, lock_job, move, wait_on
from ledger.operations.backlog import depths
from ledger.operations.leaders import lead
from ledger.start_attempt import Claim
from ledger.store import Ledger, create_ledger_engine
from ledger.tables import Attempt, Job
from monitoring.event_metrics import fold_pending, fold_step, rebase
from monitoring.exporter import ExporterApp, render_metrics
from monitoring.gauges import LOOKED_AT_MOST
from producers.local.supervisor import free_port
from routing.jobs import JobMessage, Reason, Source, State
from routing.policy.prices import NANOUSD_PER_USD, Usage
from routing.queues import QueueName, Tier
from tests.integration.monitoring.driving import MODEL, Fleet, create_fleet
from tests.services import wait_until

Series = dict[tuple[str, tuple[str, ...]], float]
TIER = {None: "none", 1: "spec", 2: "patch", 3: "agent"}


@pytest.fixture
def fleet(ledger: Ledger, ledger_url: str) -> Fleet:
    return create_fleet(ledger, ledger_url)


def scrape(fleet: Fleet, name: str = "") -> Series:
    """Samples by name (without prefix) and label values in the order of their names; of one name that is quickly read.

    The library's parser takes longer for the thousands of a whole page than the exporter to make it.
    """
    lines = render_metrics(fleet.ledger, policy=fleet.policy).decode().splitlines(keepends=True)
    page = "".join(line for line in lines if name in line)
    return {
        (
            sample.name.removeprefix("pointsman_"),
            tuple(value for _, value in sorted(sample.labels.items())),
        ): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def of(series: Series, name: str) -> dict[tuple[str, ...], float]:
    return {labels: value for (found, labels), value in series.items() if found == name and value}


def counts(fleet: Fleet, sql: str) -> dict[tuple[str, ...], float]:
    """Rows of labels and, last, a number; tiers by their names."""
    with fleet.ledger.begin() as session:
        rows = session.execute(text(sql)).all()
    return {tuple(TIER.get(label, str(label)) for label in row[:-1]): float(row[-1]) for row in rows if row[-1]}


def lose(fleet: Fleet, job_id: UUID, claimed: Claim, *, cause: Reason = Reason.WORKER_LOST) -> None:
    with fleet.ledger.begin() as session:
        report_loss(session, JobMessage(job_id=job_id, fence=claimed.attempt.fence - 1), worker="w1", cause=cause)
    with fleet.ledger.begin() as session:
        recover(session, session.get_one(Attempt, claimed.attempt.id), max_lost=3)


def drive_everything(fleet: Fleet) -> None:
    """Every kind of thing that can happen to a job, most of them with money."""
    answered = fleet.claim(fleet.accept(tier=None, source=Source.CLI))
    fleet.call(answered)
    fleet.call(answered)
    fleet.end(answered, State.ANSWERED, Reason.DONE)

    failed = fleet.claim(fleet.accept())
    fleet.call(failed)
    fleet.end(failed, State.FAILED, Reason.SPEC_POOR)

    lost_id = fleet.accept()
    lost = fleet.claim(lost_id)
    fleet.call(lost)
    open_call = fleet.open_call(lost)
    lose(fleet, lost_id, lost)
    fleet.settle(open_call)
    again = fleet.claim(lost_id)
    fleet.call(again)
    fleet.offer(again)
    fleet.approve(lost_id)
    fleet.publish(fleet.claim(lost_id))

    raised_id = fleet.accept()
    raised = fleet.claim(raised_id)
    fleet.call(raised)
    with fleet.ledger.begin() as session:
        job = lock_owned_job(session, raised.attempt)
        escalate(session, job, to=Tier.PATCH, reason=Reason.SPEC_INVALID, detail="no spec")
    patching = fleet.claim(raised_id)
    fleet.call(patching)
    fleet.end(patching, State.BUDGET_EXCEEDED, Reason.COST_CAP)

    rejected_id = fleet.accept()
    judged = fleet.claim(rejected_id)
    fleet.call(judged)
    fleet.offer(judged)
    fleet.reject(rejected_id, reason="not what I asked for")

    fleet.cancel(fleet.accept())

    timed_out_id = fleet.accept(tier=Tier.AGENT)
    timed_out = fleet.claim(timed_out_id)
    with fleet.ledger.begin() as session:
        record(session, EventKind.BOX, job=session.get_one(Job, timed_out_id), queue="agent", warm=False)
    lose(fleet, timed_out_id, timed_out, cause=Reason.TIME_LIMIT)

    unclear_id = fleet.accept(state=State.RECEIVED)
    with fleet.ledger.begin() as session:
        job = lock_job(session, unclear_id)
        move(session, job, State.CLARIFYING)
        move(session, job, State.QUEUED)

    assert fleet.try_claim(JobMessage(job_id=fleet.accept(), fence=7), worker="w2") is None
    fleet.claim(fleet.accept())
    fleet.accept()
    with fleet.ledger.begin() as session:
        record(session, EventKind.REFUSED, source=Source.HTTP.value, field="site")
        record(session, EventKind.REFUSED, source="<script>", field="' OR 1=1")


COUNTERS = {
    "jobs_accepted_total": "SELECT source, count(*) FROM job GROUP BY 1",
    "jobs_started_total": "SELECT queue, tier, count(*) FROM attempt GROUP BY 1, 2",
    "job_attempts_total": """SELECT outcome, queue, reason, tier, count(*) FROM attempt WHERE ended_at IS NOT NULL
                              GROUP BY 1, 2, 3, 4""",
    "jobs_finished_total": """SELECT queue, reason, state, tier, count(*) FROM job WHERE ended_at IS NOT NULL
                               GROUP BY 1, 2, 3, 4""",
    "job_duration_seconds_count": "SELECT state, tier, count(*) FROM job WHERE ended_at IS NOT NULL GROUP BY 1, 2",
    "job_cost_usd_count": "SELECT tier, count(*) FROM job WHERE ended_at IS NOT NULL GROUP BY 1",
    "job_cost_usd_sum": """SELECT job.tier, sum(cost_nanousd) / 1e9::float FROM job JOIN call ON call.job_id = job.id
                            WHERE job.ended_at IS NOT NULL GROUP BY 1""",
    "queue_wait_seconds_count": "SELECT queue, tier, count(*) FROM attempt GROUP BY 1, 2",
    "attempt_duration_seconds_count": """SELECT queue, tier, count(*) FROM attempt WHERE ended_at IS NOT NULL
                                          GROUP BY 1, 2""",
    "cost_usd_total": """SELECT model, provider, tier, sum(cost_nanousd) / 1e9::float
                           FROM call JOIN attempt ON attempt.id = attempt_id GROUP BY 1, 2, 3""",
    "tokens_total": """SELECT kind, model, tier, sum(tokens) FROM call JOIN attempt ON attempt.id = attempt_id,
                         LATERAL (VALUES ('input', input_tokens), ('output', output_tokens),
                         ('cache_write', cache_write_tokens), ('cache_read', cache_read_tokens)) AS kinds (kind, tokens)
                         GROUP BY 1, 2, 3""",
    "limit_hits_total": """SELECT CASE state WHEN 'timed_out' THEN 'time' WHEN 'budget_exceeded' THEN 'cost' END, 'run',
                                  queue, tier, count(*) FROM job WHERE state IN ('timed_out', 'budget_exceeded')
                            GROUP BY 1, 2, 3, 4""",
    "tier_escalations_total": """SELECT 'spec', reason, 'patch', count(*) FROM attempt WHERE outcome = 'escalated'
                                  GROUP BY 1, 2, 3""",
    "attempts_running": "SELECT queue, tier, count(*) FROM attempt WHERE ended_at IS NULL GROUP BY 1, 2",
    "queue_depth": "SELECT queue, count(*) FROM job WHERE waiting_since IS NOT NULL GROUP BY 1",
    "jobs_by_box_total": """SELECT CASE WHEN queue = 'agent' THEN 'used' ELSE 'none' END, tier, count(*) FROM job
                             WHERE ended_at IS NOT NULL GROUP BY 1, 2""",
    "routes_total": "SELECT 'strong', lower(mode), tier, count(*) FROM event_accepted GROUP BY 1, 2, 3",
}


@pytest.mark.req("H-004", "H-118", "H-121", "R-097", "R-106", "R-107", "R-108")
def test_every_series_equals_a_direct_count_of_the_ledger(fleet: Fleet) -> None:
    drive_everything(fleet)
    fleet.execute("""
        CREATE VIEW event_accepted AS SELECT data ->> 'mode' AS mode, (data ->> 'tier')::int AS tier
          FROM event WHERE kind = 'accepted' AND data ->> 'mode' IS NOT NULL
    """)
    series = scrape(fleet)
    for name, sql in COUNTERS.items():
        assert of(series, name) == pytest.approx(counts(fleet, sql)), name
    again = scrape(fleet)
    assert {key: again[key] for key in again if key[0] in COUNTERS} == {
        key: series[key] for key in series if key[0] in COUNTERS
    }


def test_enqueued_equals_started_plus_waiting_plus_left(fleet: Fleet) -> None:
    drive_everything(fleet)
    series = scrape(fleet)
    assert sum(of(series, "jobs_enqueued_total").values()) == (
        fleet.scalar("SELECT count(*) FROM attempt")
        + fleet.scalar("SELECT count(*) FROM job WHERE waiting_since IS NOT NULL")
        + fleet.scalar("SELECT count(*) FROM job WHERE state = 'cancelled' AND started_at IS NULL")
    )


def test_depth_follows_a_job_that_changes_its_queue_while_it_waits(fleet: Fleet) -> None:
    job_id = fleet.accept()
    with fleet.ledger.begin() as session:
        wait_on(session, lock_job(session, job_id), QueueName.PATCH)
    with fleet.ledger.begin() as session:
        expected = {(depth.queue,): float(depth.waiting) for depth in depths(session)}
    assert of(scrape(fleet, "queue_depth"), "queue_depth") == expected == {("patch",): 1.0}


def test_waste_is_what_attempts_cost_whose_result_nobody_used(fleet: Fleet) -> None:
    drive_everything(fleet)
    wasted = """
        SELECT sum(cost_nanousd) / 1e9::float FROM call JOIN attempt ON attempt.id = attempt_id
          JOIN job ON job.id = call.job_id
         WHERE attempt.ended_at IS NOT NULL
           AND (attempt.outcome NOT IN ('answered', 'published', 'awaiting_approval')
                OR job.state NOT IN ('answered', 'published') AND job.ended_at IS NOT NULL)
    """
    found = of(scrape(fleet, "cost_wasted_usd_total"), "cost_wasted_usd_total")
    assert sum(found.values()) == pytest.approx(float(fleet.scalar(wasted)))
    assert set(found) == {("spec",), ("patch",)}


def test_waste_is_counted_once_when_a_call_settles_while_its_attempt_fails(fleet: Fleet) -> None:
    claimed = fleet.claim(fleet.accept())
    call_id = fleet.open_call(claimed)
    with Session(fleet.ledger.engine) as ending:
        end(ending, lock_owned_job(ending, claimed.attempt), State.FAILED, reason=Reason.SPEC_POOR)
        settling = threading.Thread(target=fleet.settle, args=(call_id,))
        settling.start()
        settling.join(0.3)
        assert settling.is_alive(), "the booking waits until it can see how the attempt ended"
        ending.commit()
    settling.join(10)
    cost = float(fleet.scalar("SELECT cost_nanousd FROM call")) / NANOUSD_PER_USD
    assert of(scrape(fleet, "cost_wasted_usd_total"), "cost_wasted_usd_total") == {("spec",): pytest.approx(cost)}


def test_waste_is_counted_once_when_an_attempt_fails_while_its_call_settles(fleet: Fleet) -> None:
    claimed = fleet.claim(fleet.accept())
    call_id = fleet.open_call(claimed)
    ending = threading.Thread(target=fleet.end, args=(claimed, State.FAILED, Reason.SPEC_POOR))
    with Session(fleet.ledger.engine) as settling:
        settle = money.settle(
            call_id, usage=Usage(10, 10), cost_nanousd=60_000, finish="completed", status=200, state="settled"
        )
        settle.all(settling)
        ending.start()
        ending.join(0.3)
        assert ending.is_alive(), "the end waits until it can see what the attempt cost"
        settling.commit()
    ending.join(10)
    assert of(scrape(fleet, "cost_wasted_usd_total"), "cost_wasted_usd_total") == {("spec",): 60_000 / NANOUSD_PER_USD}


@pytest.mark.req("R-109")
def test_clarifications_and_refusals_are_counted_without_repeating_what_a_caller_wrote(fleet: Fleet) -> None:
    drive_everything(fleet)
    series = scrape(fleet)
    assert of(series, "clarifications_total") == {("strong", "action"): 1}
    assert of(series, "requests_refused_total") == {("site", "http"): 1, ("other", "other"): 1}


def test_counters_of_closed_label_sets_start_at_0(fleet: Fleet) -> None:
    series = scrape(fleet)
    assert series["jobs_finished_total", ("spec", "done", "published", "spec")] == 0
    assert series["limit_hits_total", ("cost", "run", "agent", "agent")] == 0
    assert series["attempt_duration_seconds_count", ("spec", "spec")] == 0
    assert series["tokens_total", ("output", MODEL, "spec")] == 0
    assert series["cost_usd_total", (MODEL, "fake", "spec")] == 0
    assert series["provider_requests_total", ("429", MODEL, "fake")] == 0
    assert series["queue_depth", ("spec",)] == 0
    assert ("queue_depth", ("unrouted",)) not in series
    assert len(series) < 4000
    gauges = ("build_info", "budget", "dispatcher_leader", "fold_lag", "ledger_connections")
    assert not [name for (name, _), value in series.items() if value and not name.startswith(gauges)]


def test_no_label_names_a_job_a_tenant_or_what_somebody_wrote(fleet: Fleet) -> None:
    drive_everything(fleet)
    page = render_metrics(fleet.ledger, policy=fleet.policy).decode()
    ids = [str(job_id) for job_id in fleet.execute_scalars("SELECT id FROM job")]
    assert ids
    for secret in (*ids, "acme", "header blue", "no spec", "not what I asked for", "script", "OR 1=1"):
        assert secret not in page


def test_gauges_show_budgets_age_leader_and_pause(fleet: Fleet) -> None:
    claimed = fleet.claim(fleet.accept())
    fleet.call(claimed)
    fleet.open_call(claimed)
    job_id = fleet.accept()
    fleet.execute("UPDATE job SET waiting_since = now() - interval '100 s' WHERE id = :id", id=job_id)
    with fleet.ledger.begin() as session:
        lead(session, "dispatcher", "d1", seconds=30)
        pause_queue(session, QueueName.AGENT, is_paused=True)
    series = scrape(fleet)
    spent, reserved = (
        fleet.scalar(f"SELECT sum({column}) FROM cap WHERE scope = 'tenant_day'") / NANOUSD_PER_USD
        for column in ("spent_nanousd", "reserved_nanousd")
    )
    for scope in ("tenant_day", "fleet_day"):
        assert series["budget_spent_usd", (scope,)] == pytest.approx(float(spent)) != 0
        assert series["budget_reserved_usd", (scope,)] == pytest.approx(float(reserved)) != 0
    assert series["budget_limit_usd", ("fleet_day",)] == fleet.policy.budgets.fleet_day_usd
    assert series["queue_oldest_age_seconds", ("spec",)] == pytest.approx(100, abs=5)
    assert series["queue_oldest_age_seconds", ("patch",)] == 0
    assert series["queue_ready_oldest_age_seconds", ("spec",)] == pytest.approx(100, abs=5)
    fleet.execute("UPDATE job SET held_for = 'provider', held_until = now() + interval '1 h' WHERE id = :id", id=job_id)
    held = scrape(fleet)
    assert held["queue_oldest_age_seconds", ("spec",)] >= 95, "it waits"
    assert held["queue_ready_oldest_age_seconds", ("spec",)] < 95, "and not for a worker"
    assert series["dispatcher_leader_present", ()] == 1
    assert series["queue_paused", ("agent",)] == 1
    assert series["queue_paused", ("spec",)] == 0


@pytest.mark.parametrize(
    ("waits", "age"),
    [
        ("held_for = 'site'", 100),
        ("held_for = 'time', waiting_since = now() + interval '1 h'", 0),
        ("held_for = 'time', held_until = now() + interval '1 m'", 100),  # its message could not be read
    ],
)
def test_people_and_metric_are_told_the_same_age_of_a_queue(fleet: Fleet, waits: str, age: float) -> None:
    fleet.accept()
    fleet.execute("UPDATE job SET waiting_since = now() - interval '100 s'")
    fleet.execute(f"UPDATE job SET {waits}")
    with fleet.ledger.begin() as session:
        (depth,) = depths(session)
    shown = scrape(fleet, "queue_oldest_age_seconds")["queue_oldest_age_seconds", (depth.queue,)]
    assert (depth.oldest_age_seconds, shown) == (pytest.approx(age, abs=5), pytest.approx(age, abs=5))


@pytest.mark.parametrize("is_pushed", [False, True])
def test_a_ready_job_is_seen_behind_any_number_of_older_ones_that_are_held(fleet: Fleet, is_pushed: bool) -> None:
    for _ in range(LOOKED_AT_MOST):
        fleet.accept()
    fleet.execute("UPDATE job SET waiting_since = now() - interval '200 s', held_for = 'time'")
    job_id = fleet.accept()
    fleet.execute(
        "UPDATE job SET waiting_since = now() - interval '100 s', pushed_at = CASE WHEN :pushed THEN now() END"
        " WHERE id = :id",
        id=job_id,
        pushed=is_pushed,
    )
    assert scrape(fleet, "queue_ready_oldest_age_seconds")[
        "queue_ready_oldest_age_seconds", ("spec",)
    ] == pytest.approx(100, abs=5)


class LateWriter:
    """A transaction that wrote its events and stays open."""

    def __init__(self, fleet: Fleet) -> None:
        self._session = Session(fleet.ledger.engine)
        record(self._session, EventKind.FENCED, queue="spec")

    def commit(self) -> None:
        self._session.commit()
        self._session.close()

    def roll_back(self) -> None:
        self._session.rollback()
        self._session.close()


def fenced(fleet: Fleet) -> float:
    return scrape(fleet, "duplicates_fenced_total")["duplicates_fenced_total", ("spec",)]


def record_fenced(fleet: Fleet) -> None:
    with fleet.ledger.begin() as session:
        record(session, EventKind.FENCED, queue="spec")


def test_a_writer_that_commits_late_is_neither_skipped_nor_doubled(fleet: Fleet) -> None:
    record_fenced(fleet)
    late = LateWriter(fleet)
    record_fenced(fleet)
    record_fenced(fleet)
    assert fenced(fleet) == 1, "nothing after the open transaction is folded yet"
    assert scrape(fleet, "fold_lag_seconds")["fold_lag_seconds", ()] > 0
    late.commit()
    assert fenced(fleet) == 4
    assert fenced(fleet) == 4
    assert scrape(fleet, "fold_lag_seconds")["fold_lag_seconds", ()] == 0


def test_a_writer_that_rolls_back_late_leaves_no_trace(fleet: Fleet) -> None:
    late = LateWriter(fleet)
    record_fenced(fleet)
    assert fenced(fleet) == 0
    late.roll_back()
    assert fenced(fleet) == 1


def test_many_writers_and_folders_at_once_lose_and_double_nothing(fleet: Fleet) -> None:
    writing = threading.Event()
    writing.set()

    def write(pause_seconds: float) -> None:
        engine = create_ledger_engine(fleet.url, pool_size=1)
        for _ in range(60):
            with Ledger(engine).begin() as session:
                record(session, EventKind.FENCED, queue="spec")
                time.sleep(pause_seconds)
                record(session, EventKind.FENCED, queue="patch")
        engine.dispose()

    def keep_folding() -> None:
        while writing.is_set():
            fold_pending(fleet.ledger, batch=7)

    writers = [threading.Thread(target=write, args=(pause,)) for pause in (0, 0.001, 0.003, 0.007)]
    folders = [threading.Thread(target=keep_folding) for _ in range(2)]
    for thread in (*writers, *folders):
        thread.start()
    for thread in writers:
        thread.join()
    writing.clear()
    for thread in folders:
        thread.join()
    assert of(scrape(fleet, "duplicates_fenced_total"), "duplicates_fenced_total") == {("spec",): 240, ("patch",): 240}


_FOLD_AND_HANG = """
import sys, time
from sqlmodel import Session
from ledger.store import create_ledger_engine
from monitoring.event_metrics import fold_step
session = Session(create_ledger_engine(sys.argv[1]))
fold_step(session)
print("folded", flush=True)
time.sleep(60)
"""


def test_a_sigkill_between_fold_and_commit_changes_nothing(fleet: Fleet) -> None:
    record_fenced(fleet)
    child = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", _FOLD_AND_HANG, fleet.url], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "folded\n"
    assert fenced(fleet) == 0, "one writer: nobody folds while the other has not committed"
    child.kill()
    child.wait(10)
    child.stdout.close()
    wait_until(lambda: fenced(fleet), seconds=5, what="the dead folder's lock is gone")
    assert fenced(fleet) == 1


def test_a_batch_never_splits_a_transaction(fleet: Fleet) -> None:
    for _ in range(5):
        with fleet.ledger.begin() as session:
            for _ in range(7):
                record(session, EventKind.FENCED, queue="spec")
    with fleet.ledger.begin() as session:
        step = fold_step(session, batch=10)
    assert step == (14, False)
    assert fenced(fleet) == 35


def test_a_ledger_from_another_cluster_is_refused_until_it_is_rebased(fleet: Fleet) -> None:
    record_fenced(fleet)
    assert fenced(fleet) == 1
    fleet.execute("UPDATE rollup_mark SET xid = 9000000000000")
    fleet.execute("UPDATE event SET xid = 8999999999999")
    fleet.execute("INSERT INTO event (kind, data, xid) VALUES ('fenced', '{\"queue\": \"spec\"}', 9000000000001)")
    with pytest.raises(ForeignMarkError, match="rebase"):
        fold_pending(fleet.ledger)
    assert ExporterApp(fleet.ledger, fleet.policy).answer("GET", "/metrics")[0] == 503
    with fleet.ledger.begin() as session:
        assert rebase(session) == 1
    record_fenced(fleet)
    assert fenced(fleet) == 3


SERVE = """
import sys
from monitoring.exporter import serve
from monitoring.logs import configure_logging
from routing.policy.platform import platform_policy
configure_logging()
serve(sys.argv[1], host="127.0.0.1", port=int(sys.argv[2]), policy=platform_policy())
"""


def get(port: int, path: str, *, method: str = "GET") -> tuple[int, bytes, str]:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read(), answer.headers["Content-Type"]
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read(), error.headers["Content-Type"]


def answers(port: int) -> bool:
    try:
        return get(port, "/healthz")[0] == 200
    except urllib.error.URLError:
        return False


@pytest.fixture
def exporter(fleet: Fleet) -> Iterator[tuple[subprocess.Popen[str], int]]:
    port = free_port()
    child = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", SERVE, fleet.url, str(port)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until(lambda: answers(port), seconds=60, what="the exporter answers")
        yield child, port
    finally:
        if child.poll() is None:
            child.kill()
        child.communicate(timeout=10)


def test_the_exporter_folds_although_nobody_scrapes_changes_no_number_of_a_twin_and_ends_cleanly(
    fleet: Fleet, exporter: tuple[subprocess.Popen[str], int]
) -> None:
    child, port = exporter
    record_fenced(fleet)
    wait_until(lambda: fenced(fleet) == 1, seconds=10, what="a fold")
    for _ in range(19):
        record_fenced(fleet)
        fold_pending(fleet.ledger)
    # A scrape that meets the other one's fold does not wait for it: what it shows may be late, never too much.
    wait_until(lambda: fenced(fleet) >= 20, seconds=20, what="all are folded")
    shown = b'pointsman_duplicates_fenced_total{queue_name="spec"} 20.0'
    wait_until(lambda: shown in get(port, "/metrics")[1], seconds=20, what="the twin shows them")
    assert fold_pending(fleet.ledger) == 0
    assert fenced(fleet) == 20

    status, _, content_type = get(port, "/metrics")
    assert (status, content_type) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert get(port, "/healthz")[:2] == (200, b"ok\n")
    assert get(port, "/metrics", method="POST")[0] == 405
    assert get(port, "/../etc/passwd")[0] == 404
    child.send_signal(signal.SIGTERM)
    _, err = child.communicate(timeout=20)
    assert (child.returncode, "Traceback" in err) == (0, False), err


def test_an_unreachable_ledger_answers_503_instead_of_old_numbers(fleet: Fleet, tmp_path: Path) -> None:
    engine = create_ledger_engine(f"postgresql://postgres@/nothing?host={tmp_path}", pool_size=0)
    app = ExporterApp(Ledger(engine), fleet.policy)
    assert app.answer("GET", "/metrics")[0] == 503
    assert app.answer("GET", "/healthz")[0] == 503
    engine.dispose()

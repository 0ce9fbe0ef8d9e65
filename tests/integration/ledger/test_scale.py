"""A round costs what there is to do, and a list what it shows: on a ledger where very many jobs wait and have ended."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

import pytest
from sqlmodel import Session

from ledger import dispatch_window, submission
from ledger.attempts import find_lapsed_attempts, stale_jobs
from ledger.dispatch_window import look, pushed_jobs, release_due, release_sites, top_up
from ledger.job_control import overdue_jobs
from ledger.money import presume_lost_calls
from ledger.runs.run import overdue_gates
from ledger.runs.steps import find_unmerged_runs
from ledger.store import Ledger, Statement, create_ledger_engine
from ledger.submission import accept_all
from monitoring import gauges
from producers.dispatch import sweeping
from producers.intake.decisions import limits_of
from producers.use_cases.job_search import JobFilter
from producers.use_cases.jobs import page_of_jobs
from routing.jobs import State
from routing.policy.platform import DispatchWindow
from routing.queues import QueueName
from routing.scheduling import Admission
from tests.bulk import Look, fill, fill_past, looks_of, without_indexes
from tests.factories import Shop, make_new_job
from tests.services import Postgres

WAITING = 12_000
BIG = frozenset({"job", "event_0", "attempt", "call", "audit", "notification", "agent_executions"})
"""Tables that grow with the work: none of them may be read from end to end in a round."""
RUNWAY, ADMISSION = DispatchWindow(per_queue=64, per_tenant=16), Admission()


@pytest.fixture(scope="module")
def crowd(postgres: Postgres) -> Iterator[Shop]:
    """A ledger on which 24,000 jobs are ready, 24,000 are held and 12,000 have ended."""
    with postgres.database() as url:
        ledger = Ledger(create_ledger_engine(url, pool_size=2))
        shop = Shop(ledger, url=url)
        with without_indexes(shop):
            fill(shop, queue="answer", count=WAITING)
            fill(shop, queue="spec", count=WAITING)
            fill(shop, queue="spec", count=WAITING, held_for="site")
            fill(shop, queue="answer", count=WAITING, held_for="time")
            fill(shop, queue="spec", count=WAITING, state="published")
            fill_past(shop)
        shop.execute("UPDATE site SET lock_job_id = gen_random_uuid() WHERE name <> 's1'")
        yield shop
        ledger.close()


STEPS: dict[str, Callable[[Session], Any]] = {
    "top_up_answer": lambda s: top_up(s, QueueName.ANSWER, dispatch_window=RUNWAY, admission=ADMISSION),
    "release_due": release_due,
    "release_sites": release_sites,
    "look": lambda s: look(s, older_than_seconds=3),
    "standing": lambda s: pushed_jobs(s, QueueName.SPEC, older_than_seconds=3),
    "overdue_jobs": overdue_jobs,
    "overdue_gates": overdue_gates,
    "lapsed_attempts": find_lapsed_attempts,
    "presume_lost_calls": presume_lost_calls,
    "unabsorbed_runs": find_unmerged_runs,
    "ages_of_queues": gauges._read_queues,  # at each scrape
    "stale_jobs": lambda s: stale_jobs(s, dict.fromkeys(QueueName, 3600.0)),
}


def check_small(looks: Sequence[Look], *, most_rows: int) -> None:
    for look_at in looks:
        assert not look_at.scanned & BIG, look_at.sql
        assert look_at.rows < most_rows, look_at.sql


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
def test_a_step_of_a_round_looks_at_what_it_needs_however_many_jobs_wait(crowd: Shop, step: str) -> None:
    looks = looks_of(crowd, STEPS[step])
    assert looks
    check_small(looks, most_rows=2_000)


@pytest.mark.slow
def test_a_backlog_of_one_tenant_that_is_overdue_is_looked_at_in_batches(postgres: Postgres) -> None:
    with postgres.database() as url, closing(Ledger(create_ledger_engine(url, pool_size=2))) as ledger:
        shop = Shop(ledger, url=url)
        with without_indexes(shop):
            fill(shop, queue="answer", count=WAITING, tenants=1)
            shop.execute("UPDATE job SET waiting_since = now() - interval '2 hours', expires_at = now()")
        for step in ("stale_jobs", "overdue_jobs"):
            (look_at,) = looks_of(shop, STEPS[step])
            assert 0 < look_at.rows < 2_000, look_at.sql


@pytest.mark.slow
def test_a_whole_top_up_of_a_queue_whose_sites_are_busy_parks_them_in_batches(crowd: Shop) -> None:
    looks = looks_of(crowd, lambda s: top_up(s, QueueName.SPEC, dispatch_window=RUNWAY, admission=ADMISSION))
    assert any(look_at.rows for look_at in looks), "it found jobs"
    check_small(looks, most_rows=8_000)


@pytest.mark.parametrize("queue", [QueueName.ANSWER, QueueName.SPEC])
def test_a_job_is_accepted_without_a_look_at_the_others(crowd: Shop, queue: QueueName) -> None:
    crowd.execute("ANALYZE")
    site_id = crowd.scalar("SELECT id FROM site WHERE tenant = 't3' AND name = 's7'")
    new = make_new_job(tenant="t3", queue=queue, site_id=site_id)
    limits = limits_of(crowd.policy.model_copy(update={"admission": MANY}))
    with crowd.ledger.engine.connect() as connection:  # and rolled back
        before = {row.relname: row for row in Statement(_READ).all(connection)}  # with what is not yet reported
        (receipt,) = accept_all(connection, [new], limits=limits)
        after = {row.relname: row for row in Statement(_READ).all(connection)}
    assert receipt.is_new
    for table in BIG & set(after):
        assert after[table].seq_tup_read == before[table].seq_tup_read, table
        assert after[table].found - before[table].found < 200, table


def test_how_many_calls_a_job_has_is_not_guessed_from_a_sample(crowd: Shop) -> None:
    crowd.execute("ANALYZE call")
    guess = "SELECT n_distinct FROM pg_stats WHERE tablename = 'call' AND attname = 'job_id'"
    assert crowd.scalar(guess) == -0.8


MANY = Admission(waiting_per_tenant=10**6, waiting_per_queue=10**6)
_READ = "SELECT relname, seq_tup_read, coalesce(idx_tup_fetch, 0) AS found FROM pg_stat_xact_user_tables"


KEPT = {
    "look": dispatch_window._LOOK,
    "shares": dispatch_window._SHARES,
    "ready": dispatch_window._READY,
    "crowded": dispatch_window._CROWDED,
    "hold for sites": dispatch_window._WAIT_FOR_SITES,
    "mark": dispatch_window._MARK,
    "known by id or key": submission._CONTEXT,
    "lock bills": sweeping._LOCK,
    "members of bills": sweeping._MEMBERS,
}


@pytest.mark.parametrize("name", KEPT)
def test_what_keeps_its_plan_has_one_that_is_good_for_any_values(crowd: Shop, name: str) -> None:
    crowd.execute("ANALYZE")
    places: dict[str, int] = {}
    numbered = re.sub(r"%\((\w+)\)s", lambda found: f"${places.setdefault(found[1], len(places) + 1)}", KEPT[name].sql)
    with crowd.ledger.engine.connect() as connection, connection.connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (GENERIC_PLAN) {numbered}")
        plan = "\n".join(line for (line,) in cursor.fetchall())
    assert "Index" in plan
    assert not {table for table in BIG if f"Seq Scan on {table}" in plan}, plan


@pytest.mark.parametrize("asked", [{}, {"states": [State.FAILED, State.PUBLISHED]}, {"site": "s7"}])
def test_a_list_of_jobs_looks_at_what_it_shows_however_many_there_ever_were(crowd: Shop, asked: dict[str, Any]) -> None:
    crowd.execute("ANALYZE")
    wanted = dict(asked)
    if (site := wanted.pop("site", None)) is not None:
        wanted["site_id"] = crowd.scalar("SELECT id FROM site WHERE tenant = 't3' AND name = :name", name=site)
    looks = looks_of(crowd, lambda s: page_of_jobs(s, JobFilter(tenant="t3", **wanted)))
    check_small(looks, most_rows=500)


def test_a_sweep_finds_the_releases_that_have_no_files_any_more_without_a_look_at_the_others(crowd: Shop) -> None:
    (statement,) = (each for each in sweeping._ODDMENTS if "DELETE FROM release" in each.sql)
    crowd.execute("""
        INSERT INTO release (id, site_id, digest, manifest, signals, scan, scan_passed, scan_digest, total_bytes)
        SELECT gen_random_uuid(), (SELECT id FROM site LIMIT 1), 'd', '{}', '{}', '{}', true, 'd', 1
          FROM generate_series(1, 5000)
    """)
    crowd.execute("ANALYZE release")
    for look_at in looks_of(crowd, lambda s: statement.all(s, {"seconds": 1.0, "limit": 100})):
        assert look_at.rows < 100
        assert look_at.blocks < 20

"""Rows about what is long over leave a real ledger, whole and never too early, and no metric changes by it."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import MetaData
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlmodel import SQLModel

from ledger.events import EventKind, record
from ledger.jobs import lock_job
from ledger.releases import sites_of
from ledger.runs.reviews import NewComment, keep_comment
from ledger.store import Statement
from ledger.tables import Site
from monitoring.event_metrics import fold_pending, fold_step, read_series
from producers.dispatch import sweeping
from producers.dispatch.housekeeping import Housekeeper
from producers.dispatch.sweeping import CHAIN_TABLES, RowSweeper, Swept
from producers.intake.submit import Requester
from producers.use_cases.replays import Replays
from routing.jobs import Reason, Source, State
from routing.policy.platform import Retention
from sites.content_store import ContentStore
from tests.factories import Shop
from tests.integration.runs.run_world import Yard

RULES = Retention(releases=20, days=90, draft_hours=48, job_days=10, dead_letter_days=30, event_days=5)
ASKER = Requester(tenant="acme", source=Source.PYTHON, actor="owner")


def answered(shop: Shop, *, days: float = 0, state: State = State.ANSWERED) -> UUID:
    """A question that was answered so many days ago."""
    claimed = shop.running(tier=None, prompt="Which pages are there?")
    shop.end(claimed, state, Reason.DONE if state is State.ANSWERED else Reason.PROVIDER_ERROR)
    grow_old(shop, claimed.job.id, days=days)
    return claimed.job.id


def grow_old(shop: Shop, job_id: UUID, *, days: float) -> None:
    times = {"job": ("created_at", "ended_at"), "event": ("at",)}
    for table, columns in times.items():
        key = "id" if table == "job" else "job_id"
        moved = ", ".join(f"{column} = {column} - make_interval(secs => :s)" for column in columns)
        shop.execute(f"UPDATE {table} SET {moved} WHERE {key} = :id", s=days * 86_400, id=job_id)


def sweep(shop: Shop, rules: Retention = RULES) -> Swept:
    sweeper = RowSweeper(shop.ledger, rules)
    jobs = partitions = 0
    for _ in range(50):
        swept = sweeper.run(seconds=5)
        jobs, partitions = jobs + swept.jobs, partitions + swept.partitions
        if swept.is_done:
            return Swept(jobs, partitions, True)
    raise AssertionError("no pass came to its end")


def housekeeper(shop: Shop, home: Path, holder: str = "one", **options: Any) -> Housekeeper:
    given = {"runs_root": home / "runs"} | options
    return Housekeeper(shop.ledger, ContentStore(home / "content-store"), shop.policy, holder=holder, **given)


def jobs(shop: Shop) -> set[UUID]:
    return {row[0] for row in shop.rows("SELECT id FROM job")}


def test_jobs_that_ended_long_ago_go_with_everything_that_belongs_to_them(shop: Shop) -> None:
    old, young = answered(shop, days=11), answered(shop, days=9)
    assert sweep(shop).jobs == 1
    assert jobs(shop) == {young}
    for table, column in CHAIN_TABLES:
        assert shop.scalar(f"SELECT count(*) FROM {table} WHERE {column} = :id", id=old) == 0, table
    assert shop.scalar("SELECT count(*) FROM audit WHERE job_id = :id", id=old) > 0, "the audit trail stays"


def test_every_table_that_refers_to_a_job_is_swept_before_what_it_refers_to() -> None:
    metadata: MetaData = SQLModel.metadata
    order = [table for table, _ in CHAIN_TABLES]
    for table in metadata.tables.values():
        for key in table.foreign_keys:
            target = key.column.table.name
            if target in order and target not in ("release",):
                assert order.index(table.name) < order.index(target), (table.name, target)


def test_no_metric_changes_when_rows_go_and_what_was_never_folded_is_folded_first(shop: Shop) -> None:
    for _ in range(3):
        answered(shop, days=11)
    with shop.ledger.begin() as session:
        fold_step(session)
        expected = read_series(session)
        session.rollback()
    with shop.ledger.begin() as session:
        assert expected != read_series(session), "the exporter has not come by yet"
    sweep(shop)
    assert shop.scalar("SELECT count(*) FROM event") == 0
    fold_pending(shop.ledger)
    with shop.ledger.begin() as session:
        assert read_series(session) == expected


def test_events_that_a_running_transaction_keeps_from_being_folded_stay(shop: Shop) -> None:
    with shop.ledger.begin() as open_session:
        record(open_session, EventKind.REFUSED, source="http", field="prompt")
        answered(shop, days=11)
        assert sweep(shop) == Swept(1, 0, is_done=True)
        assert shop.scalar("SELECT count(*) FROM event") > 0
    shop.execute("UPDATE event SET at = at - interval '11 days' WHERE job_id IS NULL")
    assert sweep(shop).partitions == 1
    assert shop.scalar("SELECT count(*) FROM event") == 0


def test_a_session_goes_only_as_a_whole(shop: Shop) -> None:
    dead = answered(shop, days=40, state=State.FAILED)
    again = Replays(shop.ledger, shop.policy).replay(dead, requester=ASKER).job
    sweep(shop)
    assert jobs(shop) == {dead, again.id}, "it is going on"
    shop.end(shop.claim(again.id), State.ANSWERED, Reason.DONE)
    sweep(shop)
    assert jobs(shop) == {dead, again.id}, "it went on a moment ago"
    grow_old(shop, again.id, days=11)
    sweep(shop)
    assert jobs(shop) == set()


def test_a_dead_letter_that_nobody_has_seen_to_stays_longer(shop: Shop) -> None:
    forgotten = answered(shop, days=31, state=State.FAILED)
    open_letter, seen_to = (answered(shop, days=29, state=State.FAILED) for _ in range(2))
    shop.execute("UPDATE job SET dismissed_at = now() WHERE id = :id", id=seen_to)
    sweep(shop)
    assert jobs(shop) == {open_letter}
    assert forgotten not in jobs(shop)


def test_a_job_whose_owner_has_not_been_told_yet_stays_until_that_is_given_up(shop: Shop) -> None:
    old = answered(shop, days=11)
    shop.execute("UPDATE notification SET delivered_at = NULL, next_at = now() WHERE job_id = :id", id=old)
    sweep(shop)
    assert jobs(shop) == {old}
    shop.execute("UPDATE notification SET next_at = NULL WHERE job_id = :id", id=old)
    sweep(shop)
    assert jobs(shop) == set()


def published(shop: Shop, *, days: float) -> UUID:
    claimed = shop.running()
    shop.offer(claimed)
    shop.approve(claimed.job.id)
    shop.publish(shop.claim(claimed.job.id))
    grow_old(shop, claimed.job.id, days=days)
    return claimed.job.id


@pytest.mark.threat("H7")
def test_who_made_the_live_release_and_the_one_before_it_stays_on_record(shop: Shop) -> None:
    first, previous, live = (published(shop, days=400) for _ in range(3))
    sweep(shop)
    assert jobs(shop) == {first, previous, live}, "their files are there"
    shop.execute("UPDATE release SET swept_at = now()")
    sweep(shop)
    assert jobs(shop) == {previous, live}
    with shop.ledger.begin() as session:
        site = session.get_one(Site, shop.site())
        assert site.active_release_id is not None
    assert shop.scalar("SELECT count(*) FROM release") == 2
    assert shop.scalar("SELECT count(*) FROM approval") == 2


def refused(shop: Shop, *, days: float) -> UUID:
    claimed = shop.running()
    shop.end(claimed, State.FAILED, Reason.UPLOAD_REFUSED)
    grow_old(shop, claimed.job.id, days=days)
    return claimed.job.id


def test_a_site_to_which_only_refused_uploads_came_stays_unlisted_by_the_newest_of_them(shop: Shop) -> None:
    _, newest = (refused(shop, days=days) for days in (400, 300))

    def listed() -> list[UUID]:
        with shop.ledger.begin() as session:
            return [site.id for site in sites_of(session, "acme")]

    assert listed() == []
    sweep(shop)
    assert (jobs(shop), listed()) == ({newest}, [])
    live = published(shop, days=0)
    sweep(shop)
    assert (jobs(shop), listed()) == ({live}, [shop.site()])


def test_a_job_that_is_locked_is_left_for_the_next_pass(shop: Shop) -> None:
    old = answered(shop, days=11)
    with shop.ledger.begin() as session:
        lock_job(session, old)
        sweep(shop)
        assert jobs(shop) == {old}
    sweep(shop)
    assert jobs(shop) == set()


def test_events_go_before_their_jobs_and_never_those_of_unfinished_ones(shop: Shop) -> None:
    ended, running = answered(shop, days=6), shop.running(tier=None).job.id
    grow_old(shop, running, days=6)
    with shop.ledger.begin() as session:
        record(session, EventKind.REFUSED, source="http", field="prompt")
    shop.execute("UPDATE event SET at = at - interval '6 days' WHERE job_id IS NULL")
    swept = sweep(shop)
    assert (swept.jobs, swept.partitions) == (0, 1)
    left = shop.rows("SELECT DISTINCT job_id FROM event")
    assert [row[0] for row in left] == [running]
    assert ended in jobs(shop)


def test_caps_of_past_days_counters_of_old_failures_and_idle_lanes_go(shop: Shop) -> None:
    job_id = answered(shop, days=11)
    shop.execute(
        "INSERT INTO cap (scope, key, limit_nanousd, spent_nanousd, reserved_nanousd)"
        " SELECT scope, key, 1, 1, 0 FROM (VALUES ('job', CAST(:id AS text)), ('tier', :id || '/answer'),"
        " ('fleet_day', '2020-01-01'), ('tenant_day', 'acme/2020-01-01'), ('key_day', 'p/2020-01-01'),"
        " ('fleet_day', to_char(timezone('UTC', now()), 'YYYY-MM-DD')), ('job', 'kept')) AS v (scope, key)",
        id=str(job_id),
    )
    shop.execute(
        "INSERT INTO task_failure (key, tenant, failures, rejections, is_debated, recent, updated_at)"
        " VALUES ('old', 'acme', 1, 0, false, '[]', now() - interval '11 days'),"
        " ('new', 'acme', 1, 0, false, '[]', now())"
    )
    shop.execute(
        "INSERT INTO provider_circuit (provider, model, failures, requests, tokens, changed_at)"
        " VALUES ('gone', 'm', 0, 0, 0, now() - interval '11 days'), ('used', 'm', 0, 0, 0, now())"
    )
    sweep(shop)
    kept = {tuple(row) for row in shop.rows("SELECT scope, left(key, 4) FROM cap")}
    assert kept == {("fleet_day", str(shop.scalar("SELECT to_char(timezone('UTC', now()), 'YYYY')"))), ("job", "kept")}
    assert [row[0] for row in shop.rows("SELECT key FROM task_failure")] == ["new"]
    assert [row[0] for row in shop.rows("SELECT provider FROM provider_circuit")] == ["used"]


def test_a_run_goes_with_its_steps_gates_notes_and_workspace(shop: Shop, tmp_path: Path) -> None:
    yard = Yard(shop, tmp_path)
    run_id = yard.submit("Fix the broken header", ticket={"title": "Fix", "reference": "a/b#1", "source": "github"})
    assert yard.play(run_id).state in (State.PUBLISHED, State.FAILED)
    for job_id in jobs(shop):
        grow_old(shop, job_id, days=400)
    keeper = housekeeper(shop, tmp_path, runs_root=yard.resources.runs.root, clock=lambda: 4e9)
    workspace = yard.workspace(run_id).path
    assert workspace.is_dir()
    with shop.ledger.begin() as session:
        assert keep_comment(session, run_id, NewComment("issue_comment:1", "ann", "Keep the border.", is_order=False))
    shop.execute("UPDATE ticket_note SET delivered_at = NULL, next_at = now()")
    sweep(shop)
    assert run_id in jobs(shop), "its ticket has not been told yet"
    assert keeper.sweep_workspaces() == 0
    shop.execute("UPDATE ticket_note SET next_at = NULL")
    sweep(shop)
    assert jobs(shop) == set()
    for table in ("run", "run_step", "agent_executions", "gate", "ticket_note", "review_comment", "call", "attempt"):
        assert shop.scalar(f"SELECT count(*) FROM {table}") == 0, table
    assert keeper.sweep_workspaces() == 1
    assert not workspace.exists()


def test_a_workspace_that_a_death_left_half_removed_goes_too_and_a_young_or_foreign_one_stays(
    shop: Shop, tmp_path: Path
) -> None:
    old, young = (tmp_path / f"{uuid4()}.git" for _ in range(2))
    half, foreign = tmp_path / ".swept-half.git", tmp_path / "notes.git"
    for path in (old, young, half, foreign):
        path.mkdir()
    os.utime(old, (1_000_000, 1_000_000))
    keeper = housekeeper(shop, tmp_path, runs_root=tmp_path)
    assert keeper.sweep_workspaces() == 1
    assert set(tmp_path.iterdir()) == {young, foreign}


def test_one_process_keeps_house_at_a_time_and_never_beside_an_empty_ledger(shop: Shop, tmp_path: Path) -> None:
    content_store = ContentStore(tmp_path / "content-store")
    sha = content_store.put(b"of another ledger")
    one, two = (housekeeper(shop, tmp_path, name, clock=lambda: 4e9) for name in ("one", "two"))
    assert (one.tidy(), two.tidy()) == (True, False)
    assert content_store.exists(sha), "a ledger without any site is not this store's"
    shop.site()
    assert one.tidy()
    assert not content_store.exists(sha)


def test_house_that_could_not_be_kept_is_kept_soon_after(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = iter([OSError(errno.EIO, "the disk"), OperationalError("", {}, Exception()), True, False, True])
    waited: list[float] = []

    def tidy() -> bool:
        end = next(ends)
        if isinstance(end, Exception):
            raise end
        return end

    class Stopping(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waited.append(timeout or 0)
            return len(waited) > 5

    keeper = housekeeper(shop, tmp_path)
    monkeypatch.setattr(keeper, "tidy", tidy)
    keeper.run(Stopping(), hours=6)
    assert waited == [600, 600, 600, 21_600, 21_600, 21_600]


MANY = int(os.environ.get("SWEPT_JOBS", "2000"))
"""`SWEPT_JOBS=20000` for the measurement of docs."""


MANY_ROWS = (
    """
    INSERT INTO job (id, tenant, source, state, prompt, request, request_digest, priority, root_id, route, queue,
                         fence, lost_attempts, cap_nanousd, result, created_at, ended_at)
        SELECT id, 'acme', 'python', 'answered', 'What?', '{}', '', 'P2', id, '{}', 'answer', 2, 0, 0, '{}',
               now() - interval '20 days', now() - interval '20 days' + n * interval '1 millisecond'
          FROM (SELECT gen_random_uuid() AS id, n FROM generate_series(1, :many) AS n) AS made
    """,
    """
    INSERT INTO attempt (id, job_id, number, queue, fence, worker, token_hash, lease_until, deadline, ended_at)
        SELECT gen_random_uuid(), id, 1, 'answer', 1, 'w', id::text, now(), now(), now() FROM job
    """,
    """
    INSERT INTO call (id, job_id, attempt_id, caps, state, provider, model, key_hash, gateway, lease_until,
                          max_tokens, reserved_nanousd, cost_nanousd, prices_as_of, input_tokens, output_tokens,
                          cache_write_tokens, cache_read_tokens)
        SELECT gen_random_uuid(), job_id, id, '[]', 'settled', 'p', 'm', 'k', 'g', now(), 1, 0, 0, 'x', 1, 1, 0, 0
          FROM attempt
    """,
    """
    INSERT INTO notification (job_id, payload, attempts, delivered_at) SELECT id, '{}', 0, now() FROM job
    """,
    """
    INSERT INTO event (at, job_id, tenant, kind, data)
        SELECT now() - interval '20 days', id, 'acme', 'step', '{}' FROM job, generate_series(1, 6)
    """,
)
"""What 20,000 questions leave behind, the sweep's own work: ten rows each."""


def test_a_ledger_full_of_ended_jobs_sweeps_to_its_floor_in_bounded_looks(shop: Shop) -> None:
    shop.site()
    for statement in MANY_ROWS:
        shop.execute(f"SET LOCAL statement_timeout = 0; {statement.replace(':many', str(MANY))}")
    shop.execute("ANALYZE")
    kept = answered(shop)
    sweeper = RowSweeper(shop.ledger, RULES)
    looks, gone = 0, 0
    while not (swept := sweeper.run()).is_done:
        looks, gone = looks + 1, gone + swept.jobs
        assert looks < MANY
    assert gone + swept.jobs == MANY
    assert jobs(shop) == {kept}
    assert shop.scalar("SELECT count(*) FROM call") == 0


def test_the_look_for_ended_jobs_reads_an_index_and_no_younger_job(shop: Shop) -> None:
    bounds = {"seconds": 86_400, "at": "2020-01-01", "id": uuid4(), "limit": 200}
    with shop.ledger.begin() as session:
        Statement("SET LOCAL enable_seqscan = off").all(session)
        plan = Statement(f"EXPLAIN {sweeping._ENDED.sql}").scalars(session, bounds)
    (condition,) = (line for line in plan if "Index Cond" in line)
    assert any("ix_job_ended" in line for line in plan), plan
    assert "ended_at <" in condition
    assert "ended_at >=" in condition


@contextlib.contextmanager
def refusing(shop: Shop, table: str, condition: str) -> Iterator[None]:
    """While it lasts, rows for which the condition holds cannot be removed."""
    shop.execute(f"""
        CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no'; END $$;
        CREATE TRIGGER refuse BEFORE DELETE ON {table} FOR EACH ROW WHEN ({condition}) EXECUTE FUNCTION refuse()""")
    try:
        yield
    finally:
        shop.execute("DROP FUNCTION refuse CASCADE")


def test_what_cannot_be_removed_keeps_nothing_else_from_going(shop: Shop) -> None:
    poison = [answered(shop, days=11) for _ in range(5)][1]
    sweeper = RowSweeper(shop.ledger, RULES, rest_seconds=0)
    with refusing(shop, "job", f"OLD.id = '{poison}'"):
        for _ in range(20):
            with contextlib.suppress(DBAPIError):
                sweeper.run(seconds=5)
    assert jobs(shop) == {poison}


def test_a_look_that_failed_is_not_repeated_before_its_rest(shop: Shop) -> None:
    answered(shop, days=11)
    now = 1000.0
    sweeper = RowSweeper(shop.ledger, RULES, clock=lambda: now, rest_seconds=60)
    with refusing(shop, "job", "true"):
        with pytest.raises(DBAPIError):
            sweeper.run()
        assert sweeper.run() == Swept(0, 0, is_done=True)
        now += 61
        with pytest.raises(DBAPIError):
            sweeper.run()


def test_a_lane_whose_bucket_is_used_stays_however_long_it_had_no_trouble(shop: Shop) -> None:
    shop.execute("""
        INSERT INTO provider_circuit (provider, model, failures, requests, tokens, filled_at, changed_at)
        VALUES ('p', 'used', 0, 1, 1, now(), now() - interval '1 year'),
               ('p', 'forgotten', 0, 1, 1, now() - interval '1 year', now() - interval '1 year'),
               ('p', 'never filled', 0, 1, 1, NULL, now() - interval '1 year')""")
    sweep(shop)
    assert shop.rows("SELECT model FROM provider_circuit") == [("used",)]

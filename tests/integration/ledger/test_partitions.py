"""Events go by the partition on a real server: beside writers and readers, and never one row by itself."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from typing import NamedTuple
from uuid import UUID

import psycopg
import pytest
from sqlalchemy.exc import OperationalError

from ledger.events import EventKind, events_after_each, newest_events, newest_of_kinds, record
from ledger.operations import partitions
from ledger.operations.history_reader import examine
from ledger.operations.partitions import SHARE, SPAN, may_tend, mend, pass_by, tend
from ledger.start_attempt import finish
from ledger.store import Ledger, create_ledger_engine
from monitoring.event_metrics import fold_pending
from producers.diagnosis import Verdict, judge_owner
from routing.jobs import Reason, State
from tests.factories import Shop
from tests.services import Postgres, wait_until

DAY = 86_400.0
KEPT = 8 * DAY
"""A partition takes events for two days."""


_NAMES = "SELECT inhrelid::regclass::text AS name FROM pg_inherits WHERE inhparent = 'event'::regclass ORDER BY name"


@pytest.fixture
def shop(postgres: Postgres) -> Iterator[Shop]:
    """A ledger of the test's own: partitions stay when rows are cleared."""
    with postgres.database() as url:
        made = Shop(Ledger(create_ledger_engine(url)), url=url)
        made.tenant()
        yield made
        made.ledger.close()


def names_of(shop: Shop) -> list[str]:
    return [row.name for row in shop.rows(_NAMES)]


def grow_older(shop: Shop, days: float) -> None:
    shop.execute("UPDATE event SET at = at - make_interval(secs => :s)", s=days * DAY)


def keep_house(shop: Shop) -> int:
    fold_pending(shop.ledger)
    mark = shop.scalar("SELECT xid FROM rollup_mark")
    return tend(shop.ledger, keep_seconds=KEPT, mark=int(mark))


def answered(shop: Shop) -> UUID:
    claimed = shop.running(tier=None, prompt="Which pages are there?")
    shop.end(claimed, State.ANSWERED, Reason.DONE)
    return claimed.job.id


def deleted_rows(shop: Shop) -> int:
    shop.execute("SELECT pg_stat_force_next_flush()")
    return int(
        shop.scalar("SELECT coalesce(sum(n_tup_del), 0) FROM pg_stat_user_tables WHERE starts_with(relname, 'event')")
    )


def test_the_next_partition_is_there_before_the_first_event_goes_into_it(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered(shop)
    assert keep_house(shop) == 0
    assert names_of(shop) == ["event_0"], "it is young"
    grow_older(shop, 3)
    begin = partitions._begin

    def begin_after_a_look(ledger: Ledger, number: int) -> None:
        assert names_of(shop) == ["event_0", "event_1"]
        answered(shop)
        assert shop.scalar("SELECT count(*) FROM event_1") == 0
        begin(ledger, number)

    monkeypatch.setattr(partitions, "_begin", begin_after_a_look)
    assert keep_house(shop) == 0
    job_id = answered(shop)
    assert shop.scalar("SELECT count(*) FROM event WHERE job_id = :id", id=job_id) == shop.scalar(
        "SELECT count(*) FROM event_1"
    )
    assert shop.scalar("SELECT min(id) FROM event_1") == SPAN


@contextmanager
def slowly_written(shop: Shop) -> Iterator[None]:
    """While a statement writes an event that has opened the table, and draws its id later."""
    slow = "INSERT INTO event (kind, data) SELECT 'fenced', '{}' FROM (SELECT pg_sleep(0.6)) AS late"
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(shop.execute, slow)
        sleeping = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
        wait_until(lambda: shop.scalar(sleeping), seconds=5, what="the statement has opened the table")
        yield
        writing.result()


def test_a_statement_that_began_before_a_partition_was_there_draws_no_id_of_it(shop: Shop) -> None:
    """It knows the partitions that there were when it opened the table."""
    answered(shop)
    grow_older(shop, 3)
    with slowly_written(shop):
        keep_house(shop)
    assert names_of(shop) == ["event_0", "event_1"]
    keep_house(shop)
    answered(shop)
    assert shop.scalar("SELECT min(id) FROM event_1") == SPAN


def test_numbers_of_another_ledger_are_passed_by_when_no_older_writer_is_left(shop: Shop) -> None:
    with slowly_written(shop), suppress(OperationalError):
        pass_by(shop.ledger, SPAN + 7)
    pass_by(shop.ledger, SPAN + 7)
    answered(shop)
    assert shop.scalar("SELECT min(id) FROM event_1") == SPAN + 8


def test_a_partition_that_was_made_by_a_process_that_died_is_begun_by_the_next(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered(shop)
    grow_older(shop, 3)
    with monkeypatch.context() as patched:
        patched.setattr(partitions, "_begin", lambda *_: None)
        keep_house(shop)
    answered(shop)
    keep_house(shop)
    keep_house(shop)
    answered(shop)
    assert names_of(shop) == ["event_0", "event_1"]
    assert shop.scalar("SELECT count(*) FROM event_1") > 0


def test_two_processes_that_begin_the_same_partition_never_take_ids_back(shop: Shop) -> None:
    answered(shop)
    grow_older(shop, 3)
    keep_house(shop)
    answered(shop)
    partitions._begin(shop.ledger, 1)
    answered(shop)
    assert shop.scalar("SELECT count(*) FROM event_1") == 2 * shop.scalar("SELECT count(*) FROM event_0")


def test_without_a_leader_events_find_their_place_for_as_long_as_it_takes(shop: Shop) -> None:
    """Nothing but `tend` leaves a partition, and what follows the end of its ids is there by then."""
    shop.execute("SELECT setval('event_id_seq', :last)", last=SPAN // 2 + 5)
    answered(shop)
    keep_house(shop)
    answered(shop)
    assert (shop.scalar("SELECT count(*) > 0 FROM event_1"), names_of(shop)) == (True, ["event_0", "event_1"])


def test_old_events_go_with_their_partition_and_no_row_is_deleted(shop: Shop) -> None:
    old = answered(shop)
    grow_older(shop, 9)
    before = deleted_rows(shop)
    assert keep_house(shop) == 1
    assert names_of(shop) == ["event_1"]
    young = answered(shop)
    assert {row[0] for row in shop.rows("SELECT job_id FROM event")} == {young}
    assert shop.job(old) is not None
    assert deleted_rows(shop) == before
    assert keep_house(shop) == 0


def test_what_unfinished_jobs_had_in_a_partition_goes_on_in_its_place_until_they_have_ended(shop: Shop) -> None:
    running = shop.running(tier=None, prompt="Which pages are there?")
    answered(shop)
    with shop.ledger.begin() as session:
        kept = [event.id for event in newest_events(session, running.job.id, limit=100)]
    shop.execute("UPDATE job SET created_at = created_at - interval '31 days'")
    grow_older(shop, 31)
    assert keep_house(shop) == 1
    assert names_of(shop) == ["event_0_open", "event_1"]
    assert [row[0] for row in shop.rows("SELECT id FROM event ORDER BY id")] == kept
    assert examine(shop.ledger.engine, shop.policy.retention).violations == ()
    assert keep_house(shop) == 0
    shop.end(running, State.ANSWERED, Reason.DONE)
    assert keep_house(shop) == 1
    assert names_of(shop) == ["event_1"]


def test_readers_find_a_job_over_all_partitions_and_a_stream_goes_on_across_them(shop: Shop) -> None:
    claimed = shop.running(tier=None, prompt="Which pages are there?")
    told = []
    with shop.ledger.begin() as session:
        before = newest_events(session, claimed.job.id, limit=100)
    position = before[-1].id
    assert position is not None
    for text in ("one", "two"):
        grow_older(shop, 3)
        keep_house(shop)
        with shop.ledger.begin() as session:
            record(session, EventKind.PROGRESS, job=claimed.job, text=text)
        with shop.ledger.begin() as session:
            (page,) = events_after_each(session, {claimed.job.id: position}).values()
        told += page.events
        position = page.events[-1].id or 0
    assert names_of(shop) == ["event_0", "event_1", "event_2"]
    assert [event.data["text"] for event in told] == ["one", "two"]
    with shop.ledger.begin() as session:
        everything = newest_events(session, claimed.job.id, limit=100)
        (progress,) = newest_of_kinds(session, claimed.job.id, [EventKind.PROGRESS], limit=1)
        (page,) = events_after_each(session, {claimed.job.id: 0}).values()
    assert [event.id for event in everything] == [event.id for event in [*before, *told]]
    assert [event.id for event in page.events] == [event.id for event in everything]
    assert progress.data == {"text": "two"}
    assert examine(shop.ledger.engine, shop.policy.retention).violations == ()


@contextmanager
def beside(work: Callable[[psycopg.Connection], None], url: str) -> Iterator[list[float]]:
    """Somebody else's transactions, one after the other: what each took, in seconds."""
    stopping, took, failed = threading.Event(), [0.0], []

    def go_on() -> None:
        try:
            with psycopg.connect(url) as connection:
                while not stopping.is_set():
                    began = time.monotonic()
                    work(connection)
                    connection.commit()
                    took.append(time.monotonic() - began)
        except psycopg.Error as error:
            failed.append(error)

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        wait_until(lambda: len(took) > 5 or failed, seconds=10, what="it works")
        yield took
    finally:
        stopping.set()
        thread.join(20)
    assert not failed


def insert(connection: psycopg.Connection) -> None:
    connection.execute("INSERT INTO event (kind, data) VALUES ('fenced', '{\"queue\": \"spec\"}')")


def test_writers_go_on_while_partitions_are_made_and_dropped_and_no_event_is_lost(shop: Shop) -> None:
    gone = 0

    def drop() -> bool:
        nonlocal gone
        grow_older(shop, 9)
        gone += keep_house(shop)
        return gone >= 4

    with beside(insert, shop.url) as took:
        wait_until(drop, seconds=20, what="partitions go")
    fold_pending(shop.ledger)
    assert shop.scalar("SELECT sum(value) FROM rollup WHERE name LIKE '%fenced%'") == len(took) - 1
    assert max(took) < 2.0


def test_a_reader_that_goes_on_for_long_keeps_a_partition_and_holds_up_nobody_for_long(shop: Shop) -> None:
    answered(shop)
    grow_older(shop, 9)
    with psycopg.connect(shop.url) as reader:
        reader.execute("SELECT count(*) FROM event")  # as a dump does, its transaction stays open
        with beside(insert, shop.url) as took:
            assert keep_house(shop) == 0
        assert names_of(shop) == ["event_0", "event_1"], "what is only added waits for no reader"
        assert max(took) < 2.0, "not for as long as the reader goes on"
    grow_older(shop, 9)
    assert keep_house(shop) > 0
    assert "event_0" not in names_of(shop)


def test_a_writer_that_hung_keeps_the_partition_that_its_event_is_in(shop: Shop) -> None:
    with psycopg.connect(shop.url) as hung:
        insert(hung)
        answered(shop)
        grow_older(shop, 9)
        assert keep_house(shop) == 0
        assert "event_0" in names_of(shop)
        hung.commit()
    assert keep_house(shop) == 0, "its event is young"
    grow_older(shop, 9)
    assert keep_house(shop) > 0
    assert "event_0" not in names_of(shop)
    assert shop.scalar("SELECT value FROM rollup WHERE name LIKE '%fenced%'") == 1


def test_to_look_after_partitions_reads_none_of_them_whole_however_often(shop: Shop) -> None:
    """A statement that was prepared, as it is after some times, is planned without the number that it asks for."""
    shop.execute("""
        INSERT INTO event (kind, job_id, xid, data)
        SELECT 'fenced', gen_random_uuid(), n, '{}' FROM generate_series(1, 20000) AS n
    """)
    with psycopg.connect(shop.url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE event_0")
    mark = int(shop.scalar("SELECT max(xid) + 1 FROM event"))
    scans = "SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 'event_0'"
    before = shop.scalar(scans)
    with closing(Ledger(create_ledger_engine(shop.url, pool_size=1))) as ledger:  # each by the same connection
        for _ in range(20):
            assert tend(ledger, keep_seconds=KEPT, mark=mark) == 0
    shop.execute("SELECT pg_stat_force_next_flush()")
    assert shop.scalar(scans) == before


def test_a_partition_that_was_attached_by_hand_is_left_alone(shop: Shop) -> None:
    shop.execute(f"CREATE TABLE my_events PARTITION OF event FOR VALUES FROM ({9 * SPAN}) TO (MAXVALUE)")
    answered(shop)
    grow_older(shop, 9)
    assert keep_house(shop) == 1
    assert names_of(shop) == ["event_1", "my_events"]


def test_a_restored_ledger_whose_dump_read_the_sequence_later_than_the_tables_takes_events(shop: Shop) -> None:
    shop.execute("SELECT setval('event_id_seq', :last)", last=SPAN + 7)
    with shop.ledger.begin() as session:
        mend(session)
        mend(session)
    answered(shop)
    assert names_of(shop) == ["event_0", "event_1"]


@pytest.mark.parametrize("newest_first", [False, True])
def test_in_a_restored_ledger_whose_events_lost_their_order_none_goes_too_early(shop: Shop, newest_first: bool) -> None:
    old, young = answered(shop), answered(shop)
    grow_older(shop, 3)
    assert keep_house(shop) == 0
    assert names_of(shop) == ["event_0", "event_1"]
    shop.execute("UPDATE event SET at = at - interval '6 days' WHERE job_id = :id", id=old)
    for job_id in (young, old) if newest_first else (old, young):  # as a restore rewrites them: in whatever order
        shop.execute("UPDATE event SET xid = 0 WHERE job_id = :id", id=job_id)
    assert keep_house(shop) == 0
    assert {row[0] for row in shop.rows("SELECT job_id FROM event")} == {old, young}


def test_the_doctor_says_where_a_role_cannot_change_partitions(shop: Shop) -> None:
    with shop.ledger.engine.connect() as connection:
        assert judge_owner(may_tend(connection)).verdict is Verdict.OK
        connection.exec_driver_sql("SET ROLE pg_monitor")
        found = judge_owner(may_tend(connection))
        connection.invalidate()
    assert (found.verdict, "role that migrates" in str(found)) == (Verdict.FAIL, True)


_SIZE = "SELECT sum(pg_total_relation_size(relid)) FROM pg_partition_tree('event')"
RUN_SECONDS, KEPT_SECONDS = 150.0, 16.0
WINDOW_SECONDS = KEPT_SECONDS * (1 + 1 / SHARE) + 3
"""An event is there for no longer, give or take a look."""


class Sample(NamedTuple):
    at: float
    jobs: int
    size: int


@pytest.mark.long
@pytest.mark.timeout(300)
def test_events_that_are_written_for_minutes_take_no_more_room_than_those_that_are_kept(shop: Shop) -> None:
    """Jobs from acceptance to end as fast as they go, events kept for 16 s in partitions of 4 s."""
    stopping, began, ended = threading.Event(), time.monotonic(), [0, 0]

    def work(worker: int) -> None:
        while not stopping.is_set():
            claimed = shop.running(tier=None, prompt="Which pages are there?")
            assert finish(shop.ledger, claimed, State.ANSWERED, reason=Reason.DONE)
            ended[worker] += 1

    samples: list[Sample] = []
    gone = 0
    with ThreadPoolExecutor(2) as threads:
        workers = [threads.submit(work, number) for number in range(2)]
        try:
            while (seconds := time.monotonic() - began) < RUN_SECONDS:
                fold_pending(shop.ledger)
                mark = int(shop.scalar("SELECT xid FROM rollup_mark"))
                gone += tend(shop.ledger, keep_seconds=KEPT_SECONDS, mark=mark, least_seconds=1)
                samples.append(Sample(seconds, sum(ended), int(shop.scalar(_SIZE))))
                stopping.wait(1)
        finally:
            stopping.set()
    for done in workers:
        done.result()

    def of_each_job(now: Sample) -> float:
        """Bytes beside the jobs of the time for which events are there, as the machine is not always as fast."""
        before = max(each for each in samples if each.at <= now.at - WINDOW_SECONDS)
        return now.size / (now.jobs - before.jobs)

    steady = [each for each in samples if each.at > 2 * WINDOW_SECONDS]
    early, late = (max(map(of_each_job, half)) for half in (steady[: len(steady) // 2], steady[len(steady) // 2 :]))
    sizes = [each.size / 2**20 for each in steady]
    print(
        f"{sum(ended)} jobs, {gone} partitions dropped, {min(sizes):.1f} to {max(sizes):.1f} MiB,"
        f" at most {early:.0f} then {late:.0f} bytes a job that is kept"
    )
    assert gone > RUN_SECONDS / KEPT_SECONDS
    assert late < 1.5 * early
    assert deleted_rows(shop) == 0
    fold_pending(shop.ledger)
    assert shop.scalar("SELECT sum(value) FROM rollup WHERE name LIKE '%jobs_finished%'") == sum(ended)

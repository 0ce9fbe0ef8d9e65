"""A ledger that an older version filled goes on under this one, and is migrated while others work on it.

`tests/data/ledger/0001.sql.gz` was written by the code of revision 0001 itself (commit 217de9d): jobs in every state, a
run with steps, releases, caps, open and settled calls, a sealed audit chain, unsent notifications. It never changes.
"""

import gzip
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlmodel import SQLModel
from typer.testing import CliRunner

from ledger.attempts import find_lapsed_attempts, recover
from ledger.audit import verify
from ledger.errors import LedgerBusyError, SchemaMismatchError
from ledger.job_control import request_cancel
from ledger.jobs import lock_job
from ledger.money import presume_lost_calls
from ledger.operations import migrate as migration
from ledger.operations.migrate import migrate
from ledger.store import Fit, Ledger, await_schema, create_ledger_engine, fit, serves, wanted_revision
from producers.cli import app
from routing.jobs import ENDS, Reason, State
from routing.queues import QueueName
from sites.content_store import ContentStore
from tests.factories import Shop
from tests.integration.jobs.test_lifecycle import FILES, Rig, change, returns
from tests.services import Postgres, wait_until
from workers.handlers.publish import run_control
from workers.lifecycle import run_attempt
from workers.main import main as worker_main
from workers.outcomes import Answered, Ended

DUMP = Path(__file__).parents[2] / "data" / "ledger" / "0001.sql.gz"
RENAMED = "0010"
"""From here on names stay."""
SIGNING_KEY = b"fixture-signing-key"
JOBS = 27
CHANGED_FILES = {"index.html": FILES["index.html"].replace(b"Bread", b"Cake")}


@pytest.fixture
def old(postgres: Postgres) -> Iterator[Shop]:
    """A ledger of revision 0001 as its own code left it."""
    with postgres.database(template="template1") as url:
        shop = Shop(Ledger(create_ledger_engine(url, pool_size=4)), url=url)
        migrate(shop.ledger.engine, to="0001")
        with psycopg.connect(url) as connection:
            connection.execute("SET session_replication_role = replica")
            connection.execute(gzip.decompress(DUMP.read_bytes()))
        yield shop
        shop.ledger.close()


def columns(shop: Shop) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for table, column in shop.rows(
        "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'public'"
        " AND table_name <> 'alembic_version' ORDER BY table_name, ordinal_position"
    ):
        found.setdefault(table, []).append(column)
    return found


def contents(shop: Shop, of: dict[str, list[str]]) -> dict[str, Any]:
    """Every value of these columns, as a number of rows and a hash for each table."""
    return {
        table: tuple(
            shop.rows(
                f"SELECT count(*), md5(string_agg(line, ';' ORDER BY line)) FROM"
                f" (SELECT (ROW({', '.join(names)}))::text AS line FROM {table}) AS lines"
            )[0]
        )
        for table, names in of.items()
    }


# ----------------------------------------------------------------------------------------- what an old ledger keeps


def test_a_migration_keeps_every_row_and_the_audit_chain(old: Shop) -> None:
    migrate(old.ledger.engine, to=RENAMED)
    before = columns(old)
    del before["epoch"]  # a ledger without a name gets one
    kept = contents(old, before)
    assert kept["job"][0] == JOBS
    assert {state for (state,) in old.rows("SELECT DISTINCT state FROM job")} == {state.value for state in State}
    migrate(old.ledger.engine)
    assert fit(old.ledger.engine) is Fit.CURRENT
    assert contents(old, before) == kept
    with old.ledger.begin() as session:
        verdict = verify(session, signing_key=SIGNING_KEY)
    assert (verdict.ok, verdict.seals, verdict.rows > 40, verdict.unsealed) == (True, 1, True, 1)


def test_renamed_labels_go_on_counting(old: Shop) -> None:
    renamed = {
        '{"door":"http"}': '{"source":"http"}',
        '{"door":"http","field":"x"}': '{"field":"x","source":"http"}',
        '{"outcome":"parked_kept","queue":"spec"}': '{"outcome":"deferred_kept","queue":"spec"}',
        '{"outcome":"resting"}': '{"outcome":"retrying"}',
        '{"outcome":"done"}': '{"outcome":"done"}',
    }
    for before, after in renamed.items():
        old.execute("INSERT INTO rollup (name, labels, value) VALUES (:name, :labels, 1)", name=after, labels=before)
    migrate(old.ledger.engine)
    assert set(old.rows("SELECT name FROM rollup WHERE name = labels")) >= {(after,) for after in renamed.values()}


def test_what_old_code_writes_still_fits_after_a_migration(old: Shop) -> None:
    migrate(old.ledger.engine, to=RENAMED)
    before = columns(old)
    migrate(old.ledger.engine)
    demanding = old.rows(
        "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'public'"
        " AND is_nullable = 'NO' AND column_default IS NULL AND is_identity = 'NO'"
    )
    assert [row for row in demanding if row[0] in before and row[1] not in before[row[0]]] == []
    for table, own in (("tenant", "'old-code' AS name"), ("job", "gen_random_uuid() AS id")):
        names = [name for name in before[table] if name != own.rpartition(" ")[2]]
        once = [name if name != "idempotency_key" else "NULL" for name in names]
        listed = f"{own.rpartition(' ')[2]}, {', '.join(names)}"
        old.execute(
            f"INSERT INTO {table} ({listed}) SELECT {own}, {', '.join(once)} FROM {table}"
            f" WHERE {'state = :x' if table == 'job' else 'name = :x'} LIMIT 1",
            x="answered" if table == "job" else "acme",
        )
    old.execute("UPDATE job SET waiting_since = now(), pushed_at = NULL WHERE state = 'queued'")
    assert old.scalar("SELECT weight FROM tenant WHERE name = 'old-code'") == 1


HANDLERS = {
    QueueName.ANSWER: returns(Answered("done")),
    QueueName.INTAKE: returns(Ended(State.REJECTED, Reason.DEBATE_STOPPED, "")),
}


class Upgraded:
    """New workers over a ledger that old ones filled."""

    def __init__(self, shop: Shop, content_store: ContentStore) -> None:
        self.shop = shop
        self.rig = Rig(shop, content_store)

    def recover(self) -> None:
        """What the dispatcher does about the old processes, which are gone."""
        self.shop.execute("UPDATE job SET expires_at = now() + interval '1 day' WHERE expires_at IS NOT NULL")
        with self.shop.ledger.begin() as session:
            presume_lost_calls(session)
            lapsed = find_lapsed_attempts(session)
        for attempt in lapsed:
            with self.shop.ledger.begin() as session:
                recover(session, attempt, max_lost=9)

    def cancel(self, where: str) -> None:
        for (job_id,) in self.shop.rows(f"SELECT id FROM job WHERE ended_at IS NULL AND {where}"):
            with self.shop.ledger.begin() as session:
                request_cancel(session, lock_job(session, job_id), actor="owner")

    def turn(self) -> None:
        """Every waiting job meets a worker, every preview a reviewer."""
        waiting = "SELECT id, queue FROM job WHERE waiting_since IS NOT NULL ORDER BY created_at"
        for job_id, queue in self.shop.rows(waiting):
            message = self.shop.message(job_id)
            if queue == QueueName.CONTROL:
                run_control(message, self.rig.resources)
            else:
                run_attempt(message, QueueName(queue), HANDLERS.get(QueueName(queue), change), self.rig.resources)
        for (job_id,) in self.shop.rows("SELECT id FROM job WHERE state = 'awaiting_approval'"):
            self.shop.approve(job_id)


def test_jobs_that_an_older_version_accepted_go_on_to_their_ends(old: Shop, tmp_path: Path) -> None:
    migrate(old.ledger.engine)
    content_store = ContentStore(tmp_path)
    for files in (FILES, CHANGED_FILES):
        content_store.put_tree(files)  # content is found by its digest: the content store needs no migration
    upgraded = Upgraded(old, content_store)
    upgraded.recover()
    upgraded.cancel("state = 'clarifying' OR id IN (SELECT job_id FROM run)")
    for _ in range(12):
        upgraded.turn()
        if not old.scalar("SELECT count(*) FROM job WHERE ended_at IS NULL"):
            break
    rows = old.rows("SELECT id, state, prompt, detail FROM job")
    assert [row for row in rows if row.state not in ENDS] == []
    states = {row.prompt: row.state for row in rows}
    edits = ("Publish cake", "Offer cake", "Work on it", "Wait for the site")
    assert [states[prompt] for prompt in edits] == ["published"] * 4
    assert old.scalar("SELECT sum(reserved_nanousd) FROM cap") == 0
    assert old.scalar("SELECT count(*) FROM site WHERE lock_job_id IS NOT NULL") == 0
    untold = "SELECT count(*) FROM job LEFT JOIN notification ON job_id = id WHERE job_id IS NULL AND queue <> 'steps'"
    assert old.scalar(untold) == 0


# ------------------------------------------------------------------------------------------ beside running processes


@contextmanager
def writing(url: str) -> Iterator[list[float]]:
    """A process of the older version at work: what each of its small transactions took, in seconds."""
    stopping, took = threading.Event(), [0.0]

    def work() -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            while not stopping.is_set():
                began = time.monotonic()
                connection.execute("UPDATE job SET priority = priority WHERE state = 'queued'")
                connection.execute("SELECT count(*) FROM job WHERE waiting_since IS NOT NULL AND pushed_at IS NULL")
                took.append(time.monotonic() - began)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield took
    finally:
        stopping.set()
        thread.join(20)


def test_a_migration_behind_a_long_transaction_holds_up_others_only_briefly(
    old: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migration, "LOCK_TIMEOUT_MS", 200)
    holder = psycopg.connect(old.url)
    holder.execute("UPDATE job SET priority = priority WHERE state = 'answered'")
    migrating = threading.Thread(target=migrate, args=(old.ledger.engine,))
    with writing(old.url) as took:
        migrating.start()
        wait_until(lambda: max(took) > 0.1, seconds=10, what="a change of the table stands in line for its lock")
        tries = len(took)
        wait_until(lambda: len(took) > tries + 50, seconds=10, what="others go on meanwhile")
        holder.commit()
        migrating.join(20)
    holder.close()
    assert fit(old.ledger.engine) is Fit.CURRENT
    assert max(took) < 2.0, "nobody stood in line behind the migration for long"


def events_of_old_code(url: str, stopping: threading.Event) -> tuple[int, float]:
    """Write events and read a job's, as prepared statements, until told to stop: how many, and the slowest of them."""
    count, slowest = 0, 0.0
    with psycopg.connect(url, autocommit=True) as connection:
        while not stopping.is_set():
            began = time.monotonic()
            connection.execute("INSERT INTO event (kind, data) VALUES ('fenced', '{}')", prepare=True)
            connection.execute("SELECT * FROM event WHERE job_id IS NULL ORDER BY id DESC LIMIT 1", prepare=True)
            count, slowest = count + 1, max(slowest, time.monotonic() - began)
    return count, slowest


def test_events_become_a_partition_without_being_written_again_while_others_write_them(
    old: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migration, "LOCK_TIMEOUT_MS", 200)
    old.execute("INSERT INTO event (kind, data) SELECT 'fenced', '{}' FROM generate_series(1, 20000)")
    before = old.scalar("SELECT count(*) FROM event")
    file = old.scalar("SELECT pg_relation_filenode('event')")
    old.execute("GRANT SELECT ON event TO pg_monitor")
    stopping = threading.Event()
    holder = psycopg.connect(old.url)
    holder.execute("SELECT count(*) FROM event")
    with ThreadPoolExecutor(4) as threads:
        writers = [threads.submit(events_of_old_code, old.url, stopping) for _ in range(3)]
        migrating = threads.submit(migrate, old.ledger.engine)
        waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'event'::regclass"
        wait_until(lambda: old.scalar(waits), seconds=20, what="the migration stands in line")
        holder.commit()
        migrating.result(30)
        stopping.set()
        done = [writer.result(20) for writer in writers]
    holder.close()
    assert fit(old.ledger.engine) is Fit.CURRENT
    assert old.scalar("SELECT count(*) FROM event") == before + sum(count for count, _ in done)
    assert old.scalar("SELECT pg_relation_filenode('event_0')") == file
    assert old.scalar("SELECT has_table_privilege('pg_monitor', 'event', 'SELECT')")
    assert old.scalar("SELECT count(*) FROM pg_index WHERE indrelid = 'event_0'::regclass") == 2
    assert max(slowest for _, slowest in done) < 2.0


def test_a_migration_that_gets_no_lock_gives_up_and_can_be_repeated(old: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migration, "LOCK_TIMEOUT_MS", 50)
    with psycopg.connect(old.url) as holder:
        holder.execute("UPDATE job SET priority = priority WHERE state = 'answered'")
        with pytest.raises(LedgerBusyError, match="repeat"):
            migrate(old.ledger.engine, patience_seconds=0.1)
    assert fit(old.ledger.engine) is Fit.OLDER
    migrate(old.ledger.engine)
    assert fit(old.ledger.engine) is Fit.CURRENT


def is_no_partition(name: str | None, kind: str, _: object) -> bool:
    return not (kind == "table" and str(name).startswith("event_"))


def test_a_migration_that_died_in_its_middle_is_completed_by_the_next(old: Shop) -> None:
    with psycopg.connect(old.url, autocommit=True) as connection:
        connection.execute("ALTER TABLE job ADD COLUMN held_for varchar")
        with pytest.raises(psycopg.errors.UniqueViolation):  # as a build that was broken off leaves it: not valid
            connection.execute("CREATE UNIQUE INDEX CONCURRENTLY ix_job_ended ON job (tenant)")
    migrate(old.ledger.engine)
    with old.ledger.engine.connect() as opened:
        opts = {"compare_type": True, "compare_server_default": False, "include_name": is_no_partition}
        context = MigrationContext.configure(opened, opts=opts)
        assert compare_metadata(context, SQLModel.metadata) == []
    assert old.scalar("SELECT count(*) FROM pg_index WHERE NOT indisvalid") == 0


# ------------------------------------------------------------------------------------- processes of another version


def at_revision(shop: Shop, revision: str) -> None:
    shop.execute("UPDATE alembic_version SET version_num = :revision", revision=revision)


def test_a_process_waits_for_the_migration_of_an_older_ledger(old: Shop) -> None:
    waits: list[float] = []

    def pause(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            migrate(old.ledger.engine)

    await_schema(old.url, pause=pause)
    assert len(waits) == 2


@pytest.mark.parametrize(
    ("revision", "names"),
    [("0001", "at revision 0001.*needs 0.*pointsman migrate"), ("0100", "cannot work with")],
)
def test_a_process_names_a_schema_that_it_cannot_work_with(shop: Shop, revision: str, names: str) -> None:
    at_revision(shop, revision)
    try:
        with pytest.raises(SchemaMismatchError, match=names):
            await_schema(shop.url, patience_seconds=0)
        assert not serves(shop.ledger.engine)
    finally:
        at_revision(shop, wanted_revision())


def test_a_process_works_on_a_newer_ledger_of_its_era_and_never_touches_its_schema(shop: Shop) -> None:
    at_revision(shop, "0099")
    try:
        await_schema(shop.url, patience_seconds=0)
        migrate(shop.ledger.engine)
        assert serves(shop.ledger.engine)
        assert shop.scalar("SELECT version_num FROM alembic_version") == "0099"
    finally:
        at_revision(shop, wanted_revision())


def test_an_empty_ledger_asks_for_its_migration(postgres: Postgres) -> None:
    with postgres.database(template="template1") as url, pytest.raises(SchemaMismatchError, match="no schema yet"):
        await_schema(url, patience_seconds=0)


def test_a_ledger_that_is_away_is_no_wrong_version() -> None:
    await_schema("postgresql://nobody@127.0.0.1:1/none", patience_seconds=0)


PROGRAMS = ("api", "dispatcher", "exporter", "gateway", "mirror")


@pytest.mark.parametrize("program", [*PROGRAMS, "worker"])
def test_every_program_ends_with_exit_code_2_on_a_schema_that_stays_old(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], program: str
) -> None:
    settings = {
        "LEDGER__URL": shop.url,
        "LEDGER__MIGRATION_WAIT_SECONDS": "0",
        "AUDIT__SIGNING_KEY": "k",
        "PREVIEW__KEYS": f'["{"k" * 32}"]',
        "GATEWAY__PEPPER": "p" * 16,
    }
    for name, value in settings.items():
        monkeypatch.setenv(f"POINTSMAN_{name}", value)
    at_revision(shop, "0001")
    try:
        if program == "worker":
            code, said = worker_main(["tools"]), capsys.readouterr().err
        else:
            done = CliRunner().invoke(app, [program])
            code, said = done.exit_code, done.stderr
    finally:
        at_revision(shop, wanted_revision())
    assert (code, "run `pointsman migrate`" in " ".join(said.split())) == (2, True), said

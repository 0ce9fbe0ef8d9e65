"""A ledger that an older version filled keeps all, and is migrated while others work on it."""

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from ledger import store
from ledger.audit import seal, verify
from ledger.errors import LedgerBusyError, SchemaMismatchError
from ledger.operations import migrate as migration
from ledger.operations.migrate import migrate
from ledger.store import Fit, Ledger, await_schema, create_ledger_engine, fit, serves, wanted_revision
from producers.cli import app
from routing.jobs import Reason, State
from tests.factories import Shop
from tests.integration.ledger.test_partitions import beside
from tests.services import Postgres, wait_until
from workers.main import main as worker_main

SIGNING_KEY = b"fixture-signing-key"
NEXT = """
import sqlalchemy as sa
from alembic import op

revision = "0102"
down_revision = "0101"


def upgrade() -> None:
    op.add_column("job", sa.Column("fresh", sa.String(), nullable=True))
    op.create_index("ix_job_fresh", "job", ["tenant", "fresh"])
    op.drop_index("ix_job_waiting", "job")
    op.create_table("fresh", sa.Column("id", sa.Integer(), nullable=False))
    op.create_index("ix_fresh", "fresh", ["id"])
"""
"""What the next version may change, above all of the busiest table."""


@pytest.fixture
def old(postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    """A filled ledger of revision 0101, and this version made to be the one after it."""
    with postgres.database(template="template1") as url:
        shop = Shop(Ledger(create_ledger_engine(url, pool_size=4)), url=url)
        migrate(shop.ledger.engine, to="0101")
        shop.end(shop.running(), State.ANSWERED, Reason.DONE)
        shop.offer(shop.running())
        shop.accept()
        with shop.ledger.begin() as session:
            assert seal(session, signing_key=SIGNING_KEY) is not None
        scripts = tmp_path / "migrations"
        shutil.copytree(store.SCRIPTS, scripts)
        for path in (scripts / "versions").glob("0*.py"):
            if path.name >= "0102":
                path.unlink()
        (scripts / "versions" / "0102_next.py").write_text(NEXT)
        monkeypatch.setattr(store, "SCRIPTS", scripts)
        monkeypatch.setattr(migration, "SCRIPTS", scripts)
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
    before = columns(old)
    del before["epoch"]  # a ledger without a name gets one
    kept = contents(old, before)
    assert kept["job"][0] == 3
    migrate(old.ledger.engine)
    assert fit(old.ledger.engine) is Fit.CURRENT
    assert contents(old, before) == kept
    with old.ledger.begin() as session:
        verdict = verify(session, signing_key=SIGNING_KEY)
    assert (verdict.ok, verdict.seals, verdict.unsealed) == (True, 1, 0)


# ------------------------------------------------------------------------------------------ beside running processes


def work(connection: psycopg.Connection) -> None:
    """A small transaction of a process of the older version."""
    connection.execute("UPDATE job SET priority = priority WHERE state = 'queued'")
    connection.execute("SELECT count(*) FROM job WHERE waiting_since IS NOT NULL AND pushed_at IS NULL")


def test_a_migration_behind_a_long_transaction_holds_up_others_only_briefly(
    old: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migration, "LOCK_TIMEOUT_MS", 200)
    holder = psycopg.connect(old.url)
    holder.execute("UPDATE job SET priority = priority WHERE state = 'answered'")
    migrating = threading.Thread(target=migrate, args=(old.ledger.engine,))
    with beside(work, old.url) as took:
        migrating.start()
        wait_until(lambda: max(took) > 0.1, seconds=10, what="a change of the table stands in line for its lock")
        tries = len(took)
        wait_until(lambda: len(took) > tries + 50, seconds=10, what="others go on meanwhile")
        holder.commit()
        migrating.join(20)
    holder.close()
    assert fit(old.ledger.engine) is Fit.CURRENT
    assert max(took) < 2.0, "nobody stood in line behind the migration for long"


def test_a_migration_that_gets_no_lock_gives_up_and_can_be_repeated(old: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migration, "LOCK_TIMEOUT_MS", 50)
    with psycopg.connect(old.url) as holder:
        holder.execute("UPDATE job SET priority = priority WHERE state = 'answered'")
        with pytest.raises(LedgerBusyError, match="repeat"):
            migrate(old.ledger.engine, patience_seconds=0.1)
    assert fit(old.ledger.engine) is Fit.OLDER
    migrate(old.ledger.engine)
    assert fit(old.ledger.engine) is Fit.CURRENT


def test_a_migration_that_died_in_its_middle_is_completed_by_the_next(old: Shop) -> None:
    with psycopg.connect(old.url, autocommit=True) as connection:
        connection.execute("ALTER TABLE job ADD COLUMN fresh varchar")
        connection.execute("CREATE TABLE fresh (id integer NOT NULL)")
        with pytest.raises(psycopg.errors.UniqueViolation):  # as a build that was broken off leaves it: not valid
            connection.execute("CREATE UNIQUE INDEX CONCURRENTLY ix_job_fresh ON job (tenant)")
    migrate(old.ledger.engine)
    assert old.scalar("SELECT pg_get_indexdef('ix_job_fresh'::regclass)").endswith("(tenant, fresh)")
    assert old.scalar("SELECT to_regclass('ix_job_waiting')") is None
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
    [("0100", "at revision 0100.*needs 01.*pointsman migrate"), ("0200", "upgrade it"), ("0027", "of a later era")],
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
    at_revision(shop, "0199")
    try:
        await_schema(shop.url, patience_seconds=0)
        migrate(shop.ledger.engine)
        assert serves(shop.ledger.engine)
        assert shop.scalar("SELECT version_num FROM alembic_version") == "0199"
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
    at_revision(shop, "0100")
    try:
        if program == "worker":
            code, said = worker_main(["tools"]), capsys.readouterr().err
        else:
            done = CliRunner().invoke(app, [program])
            code, said = done.exit_code, done.stderr
    finally:
        at_revision(shop, wanted_revision())
    assert (code, "run `pointsman migrate`" in " ".join(said.split())) == (2, True), said

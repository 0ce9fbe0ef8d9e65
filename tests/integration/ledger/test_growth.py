"""The benchmark of growth does on a ledger with a past what it says, and leaves the open jobs as it found them.

And what a job writes to the log does not depend on how long that past is.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from benchmarks.growth import Bench
from benchmarks.past import ASKING, WAITING, fill
from tests.services import Postgres, Valkey

_OPEN = "SELECT count(*) FROM job WHERE ended_at IS NULL"


def test_every_step_of_growth_works_and_tidies_up(postgres: Postgres, tmp_path: Path) -> None:
    with postgres.database() as url, Valkey(tmp_path) as broker:
        fill(url, 400)
        bench = Bench(url, broker.url)
        try:
            assert bench.scalar("SELECT count(*) FROM job") == 400
            assert bench.scalar("SELECT count(*) FROM pg_index WHERE indrelid = 'event_0'::regclass") == 2
            assert bench.scalar(_OPEN) == WAITING + ASKING
            for name in bench.steps:
                assert bench.turn(name)(1) > 0, name
                assert bench.scalar(_OPEN) == WAITING + ASKING, name
            assert bench.scalar("SELECT count(*) FROM job WHERE ended_at < now() - interval '100 days'") == 0, "swept"
        finally:
            bench.close()


@contextmanager
def _whole_pages(url: str) -> Iterator[psycopg.Connection]:
    """Let the server log a page as a whole when it is written to for the first time after a checkpoint, as by default.

    The tests' servers do without, as they need not survive a crash.
    """
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET full_page_writes = on")
        connection.execute("SELECT pg_reload_conf()")
        try:
            yield connection
        finally:
            connection.execute("ALTER SYSTEM SET full_page_writes = off")
            connection.execute("SELECT pg_reload_conf()")


@pytest.mark.slow
def test_jobs_that_are_made_together_write_to_few_pages_of_a_large_ledger(postgres: Postgres, tmp_path: Path) -> None:
    with postgres.database() as url, Valkey(tmp_path) as broker, _whole_pages(url) as server:
        fill(url, 20_000)
        bench = Bench(url, broker.url)

        def logged(act: Callable[[], object]) -> int:
            """Bytes that it writes to the log after a checkpoint."""
            server.execute("CHECKPOINT")
            position = server.execute("SELECT pg_current_wal_insert_lsn()").fetchone()
            act()
            query = "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), %s)::bigint"
            (written,) = server.execute(query, position).fetchone() or (0,)
            return int(written)

        try:
            lived = logged(lambda: [bench.steps["finish"]()() for _ in range(100)]) / 100
            submitted = logged(lambda: [bench.steps["submit"]()() for _ in range(100)]) / 100
        finally:
            bench.close()
    assert lived < 25_000, "bytes a job; with random ids 43,000"
    assert submitted < 10_000, "20,000"

"""Does a ledger stay as large as it is while jobs come and go? 30,000 questions, each kept for half a minute.

Everything goes as in a ledger that keeps them for weeks, only sooner: the sweeper and autovacuum come by as much more
often. Past the first third as many jobs go as come; from then on no table may grow, nor any of its indexes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import psycopg
from sqlalchemy.exc import IntegrityError

from benchmarks.answer import Answer, Comparison, Unit
from benchmarks.jobs import accepted, claimed, ended
from benchmarks.question import Survey, say
from ledger import money
from ledger.attempts import hash_token
from ledger.operations.partitions import tend
from ledger.record_tables import Worker
from ledger.store import Ledger, Statement, create_ledger_engine
from ledger.tables import Tenant
from producers.dispatch.sweeping import RowSweeper
from routing.ids import new_id
from routing.policy.platform import Policy, platform_policy
from routing.policy.prices import Usage
from tests.services import Postgres

JOBS = 30_000
KEPT_SECONDS = 30.0
LOOKS = 15
AT_ONCE = 4
MOST = 1.3
"""So many times as large may a table be in the last third as in the one before."""
_TABLES = ("job", "attempt", "call", "cap", "notification")
_SIZE = """
    SELECT relname, pg_table_size(relid), pg_indexes_size(relid), n_dead_tup, n_tup_del
      FROM pg_stat_user_tables WHERE relname = ANY(%s)
     UNION ALL
    SELECT 'event', sum(pg_table_size(relid)), sum(pg_indexes_size(relid)), sum(n_dead_tup), sum(n_tup_del)
      FROM pg_stat_user_tables WHERE starts_with(relname, 'event_')
"""
_FOLDED = Statement("SELECT xid FROM rollup_mark WHERE id = 1")
_SETTINGS = (
    "autovacuum = on",
    "autovacuum_naptime = '1s'",
    "autovacuum_vacuum_cost_delay = 0",
    "full_page_writes = on",
    "checkpoint_timeout = '30s'",
)


class Size(NamedTuple):
    """What one table is at a moment."""

    table: str
    heap: int
    """Bytes, with what it keeps out of line."""
    indexes: int
    dead: int
    """Rows that wait for a vacuum."""
    deleted: int
    """Rows, since the beginning."""


class Turnover:
    """One ledger through which jobs pass."""

    def __init__(self, url: str) -> None:
        self._ledger = Ledger(create_ledger_engine(url, pool_size=AT_ONCE + 1))
        self._policy = platform_policy()
        with self._ledger.begin() as session:
            session.add(Tenant(name="bench", provider="bench"))
            session.add(Worker(id="bench", host="bench", pid=1, slots=100))

    def close(self) -> None:
        self._ledger.close()

    def pass_one(self, _: int) -> None:
        """Ask one question: accepted, claimed, its call reserved and settled, ended."""
        held = claimed(self._ledger, accepted(self._ledger))
        self._call(held.token)
        ended(self._ledger, held, answer="It rises.")

    def _call(self, token: str) -> None:
        call = money.CallStart(
            id=new_id(),
            provider="bench",
            model="bench",
            key_hash="k",
            gateway="g",
            prices_as_of="2026-01-01",
            input_nanousd=1_000,
            token_nanousd=10,
            max_tokens=100,
            least_tokens=1,
            call_limit_nanousd=10**9,
        )
        with self._ledger.begin() as session:
            bearer = money.read_bearer(money.bearer_of(hash_token(token)).one(session))
        reserve = money.reserve(bearer, call, money.caps_of(bearer, policy=self._policy), is_gated=False)
        while True:
            try:
                with self._ledger.begin() as session:
                    assert isinstance(money.read_reserve(reserve.one(session), call), money.Reserved)
                break
            except IntegrityError:  # another call opened the day's cap at the same moment
                continue
        settle = money.settle(
            call.id, usage=Usage(90, 40, 0, 0), cost_nanousd=1_400, finish="completed", status=200, state="settled"
        )
        with self._ledger.begin() as session:
            settle.all(session)

    def _tend(self) -> None:
        """Begin and drop partitions of events, which a ledger otherwise does no sooner than after an hour."""
        with self._ledger.begin() as session:
            mark = _FOLDED.scalar(session) or 0
        tend(self._ledger, keep_seconds=KEPT_SECONDS, mark=mark, least_seconds=0)

    @contextmanager
    def swept(self, policy: Policy) -> Iterator[None]:
        """Sweep meanwhile, as the dispatcher does, with the retention of a policy."""
        stop = threading.Event()
        sweeper = RowSweeper(self._ledger, policy.retention, rest_seconds=0.5)

        def sweep() -> None:
            while not stop.wait(0.25):
                if sweeper.run().is_done:
                    self._tend()

        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(sweep)
            try:
                yield
            finally:
                stop.set()
                done.result()


def _brief(policy: Policy) -> Policy:
    days = KEPT_SECONDS / 86_400
    kept = {"job_days": days, "event_days": days, "dead_letter_days": days}
    return policy.model_copy(update={"retention": policy.retention.model_copy(update=kept)})


def _look(connection: psycopg.Connection) -> list[Size]:
    return [Size(name, *map(int, sizes)) for name, *sizes in connection.execute(_SIZE.encode(), [list(_TABLES)])]


def _logged(connection: psycopg.Connection) -> int:
    """Return how many bytes the server has logged, with those of vacuums and whole pages."""
    (position,) = connection.execute("SELECT pg_current_wal_insert_lsn() - '0/0'").fetchone() or (0,)
    return int(position)


def measure(times: int) -> Answer:
    """Let jobs pass, and look at the tables in between; `times` is how often in each third."""
    looks: list[list[Size]] = []
    with ExitStack() as stack:
        postgres = stack.enter_context(Postgres())
        url = stack.enter_context(postgres.database())
        connection = stack.enter_context(psycopg.connect(url, autocommit=True))
        for setting in _SETTINGS:
            connection.execute(f"ALTER SYSTEM SET {setting}".encode())
        connection.execute("SELECT pg_reload_conf()")
        turnover = Turnover(url)
        stack.callback(turnover.close)
        pool = stack.enter_context(ThreadPoolExecutor(AT_ONCE))
        began, logged, share = time.monotonic(), _logged(connection), JOBS // (3 * times)
        with turnover.swept(_brief(platform_policy())):
            for part in range(3 * times):
                for _ in pool.map(turnover.pass_one, range(part * share, (part + 1) * share)):
                    pass
                looks.append(_look(connection))
                say(f"turnover: {(part + 1) * share:,} jobs")
        told = f"{JOBS / (time.monotonic() - began):.0f} jobs a second"
        told += f", {(_logged(connection) - logged) / JOBS / 1_000:.1f} KB of log for the life and end of one."
    return answer(looks, times=times, told=told)


def answer(looks: Sequence[Sequence[Size]], *, times: int, told: str) -> Answer:
    """Compare the tables in the last third of the looks with those in the second."""
    by_table = {each.table: [size for look in looks for size in look if size.table == each.table] for each in looks[-1]}
    compared, rows = [], []
    for table, sizes in by_table.items():
        totals = [float(size.heap + size.indexes) for size in sizes]
        compared.append(
            Comparison(
                f"{table} in the third before",
                tuple(totals[2 * times :]),
                tuple(totals[times : 2 * times]),
                target=1 / MOST,
                unit=Unit.BYTES,
                ours_is=table,
            )
        )
        last = sizes[-1]
        most_dead = max(size.dead for size in sizes[times:])
        rows.append((table, last.heap / 2**20, last.indexes / 2**20, f"{most_dead:,}", f"{last.deleted:,}"))
    return Answer(
        question=f"Turnover: {JOBS:,} questions, each kept for {KEPT_SECONDS:g} s",
        heads=("table", "MiB", "MiB of indexes", "most dead rows", "rows deleted"),
        rows=tuple(rows),
        comparisons=tuple(compared),
        notes=(told,),
    )


QUESTION = Survey("turnover", measure, repetitions=LOOKS // 3)

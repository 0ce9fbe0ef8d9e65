"""Copy a tenant's rows to another cell's ledger, and compare them there.

Most of them belong to jobs that have ended: these are copied ahead, while the tenant works. Rows are compared by the
time that their jobs' ids begin with, and what differs in a quarter of an hour is copied anew, whatever was there. What
was copied ahead was compared by its digest then; what has come, changed or gone since is found by the transactions that
wrote rows, and by their number. Where nobody knows since when, as after a crash, digests of all rows are compared.
"""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

import psycopg
from psycopg import sql
from sqlmodel import SQLModel

from ledger.cells.tenant_rows import AS_MOVER, ENDED, OF_JOB, TABLES, TenantTable, patiently
from ledger.errors import CellError
from ledger.operations import partitions
from ledger.store import Ledger, wanted_revision

_DIGITS = 7
"""Of an id in hexadecimal, which begins with its time: 2^20 milliseconds."""
_REVISION = "SELECT version_num FROM alembic_version"
_REST = ""
"""The bucket of what is not copied ahead."""


_Digest = tuple[int, str]
"""The number of rows, and the sum of their hashes, which any order has."""


class _Rows(NamedTuple):
    """A tenant's rows of a table in one of the two ledgers."""

    name: str
    tenant: str
    is_origin: bool
    is_ahead: bool
    """Whether it is those of ended jobs alone."""

    @property
    def table(self) -> TenantTable:
        """What is known of the table."""
        return TABLES[self.name]

    @property
    def columns(self) -> list[str]:
        """Those that are copied."""
        return [each.name for each in SQLModel.metadata.tables[self.name].columns if each.name != self.table.drawn]

    @property
    def values(self) -> str:
        """The columns as they are copied."""
        changed = self.table.changed if self.is_origin or self.table.is_kept else {}
        return ", ".join(changed.get(each, f'"{each}"') for each in self.columns)

    def within(self, buckets: Collection[str] | None) -> sql.Composed:
        """Return the part of a query that chooses rows, all or those of some buckets."""
        where = f"({self.table.rows})"
        if self.is_ahead and self.is_origin:
            where += f" AND {self.table.job} IN ({ENDED})"
        query = sql.SQL(f'FROM "{self.name}" WHERE {where}'.replace("%(tenant)s", "{tenant}"))
        chosen = query.format(tenant=sql.Literal(self.tenant))
        if buckets is None or not self.table.job:
            return chosen
        return sql.SQL("{} AND {} = ANY({})").format(chosen, sql.SQL(self.bucket), sql.Literal(sorted(buckets)))

    @property
    def bucket(self) -> str:
        """An expression of a row's bucket."""
        return f"coalesce(left({self.table.job}::text, {_DIGITS}), '')" if self.table.job else "''"

    def digests(self, side: psycopg.Connection, buckets: Collection[str] | None = None) -> dict[str, _Digest]:
        """Return the digests of all buckets, or of some."""
        query = sql.SQL("""
            SELECT bucket, count(*), sum(hash)::text FROM (
                SELECT {} AS bucket, hashtextextended(ROW({})::text, 0)::numeric AS hash {}
            ) AS hashed GROUP BY bucket
        """).format(sql.SQL(self.bucket), sql.SQL(self.values), self.within(buckets))
        return {bucket: (count, total) for bucket, count, total in side.execute(query)}

    def counts(self, side: psycopg.Connection) -> dict[str, _Digest]:
        """Return how many rows each bucket has."""
        query = sql.SQL("SELECT {}, count(*) {} GROUP BY 1").format(sql.SQL(self.bucket), self.within(None))
        return {bucket: (count, "") for bucket, count in side.execute(query)}

    def written(self, side: psycopg.Connection, since: int) -> set[str]:
        """Return the buckets that transactions have written rows in since this one; an old one may be among them.

        A row has its transaction's number modulo 2^32, of which half are before another one.
        """
        query = sql.SQL("SELECT DISTINCT {} {} AND (xmin::text::bigint - {} + 8589934592) % 4294967296 < 2147483648")
        chosen = query.format(sql.SQL(self.bucket), self.within(None), sql.Literal(since % 2**32))
        return {row[0] for row in side.execute(chosen)}

    def unended(self, side: psycopg.Connection) -> set[str]:
        """Return the buckets of jobs that go on, of which nothing was copied ahead."""
        query = sql.SQL("SELECT DISTINCT left(id::text, {}) FROM job WHERE tenant = {} AND ended_at IS NULL")
        return {row[0] for row in side.execute(query.format(_DIGITS, sql.Literal(self.tenant)))}

    def hashes(self, side: psycopg.Connection, buckets: Collection[str] | None) -> set[int]:
        """Return the hash of each row."""
        query = sql.SQL("SELECT hashtextextended(ROW({})::text, 0) {}")
        return {row[0] for row in side.execute(query.format(sql.SQL(self.values), self.within(buckets)))}


class Copied(NamedTuple):
    """What was copied, and when."""

    rows: int
    at: int
    """A transaction of the origin: no older one has written there since."""


def copy(origin: Ledger, target: Ledger, tenant: str, *, is_ahead: bool = False, since: Copied | None = None) -> Copied:
    """Make a tenant's rows in the target those of one snapshot of the origin, in one transaction.

    It is closed in the target; in the origin too, but for what is copied ahead.

    Args:
        origin: where it is.
        target: where it is going.
        tenant: whose.
        is_ahead: whether to copy only what belongs to ended jobs.
        since: what was copied ahead, if nobody has written in the target since; None where that is not known.

    Raises:
        CellError: a table is not the same in both, or the two are of different versions: nothing was changed.
        LedgerBusyError: as `tenant_rows.close`.
    """
    with _Driver(origin) as source:
        source.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        found = source.execute(_REVISION).fetchone()
        at = source.execute("SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint").fetchone()
        assert at is not None
        with origin.begin() as session:  # after the snapshot: no event of it has a number above this one
            last = partitions.last_number(session)
        patiently(partial(partitions.pass_by, target, last))
        with _Driver(target) as sink:
            sink.execute(AS_MOVER)
            if {found, sink.execute(_REVISION).fetchone()} != {(wanted_revision(),)}:
                raise CellError("versions", tenant)
            names = [name for name, table in TABLES.items() if table.job or not is_ahead]
            pairs = [tuple(_Rows(name, tenant, side, is_ahead) for side in (True, False)) for name in names]
            buckets = _differing(source, sink, pairs, since=since.at if since is not None else None)
            return Copied(_make_equal(source, sink, pairs, buckets=buckets, tenant=tenant), at[0])


def _differing(
    source: psycopg.Connection, sink: psycopg.Connection, pairs: list[tuple[_Rows, ...]], *, since: int | None
) -> set[str]:
    """Return the buckets that are not the same in both, and the one that is always copied."""
    found = {_REST} if since is None else {_REST} | pairs[0][0].unended(source)
    with ThreadPoolExecutor(2) as both:
        for pair in pairs:
            if not pair[0].table.job:
                continue
            if since is None:
                wanted, there = both.map(_Rows.digests, pair, (source, sink))
            else:
                wanted, there = both.map(_Rows.counts, pair, (source, sink))
                found |= pair[0].written(source, since)
            found |= {bucket for bucket, _ in wanted.items() ^ there.items()}
    return found


def _make_equal(
    source: psycopg.Connection,
    sink: psycopg.Connection,
    pairs: list[tuple[_Rows, ...]],
    *,
    buckets: set[str],
    tenant: str,
) -> int:
    for _, there in reversed(pairs):
        if not there.table.is_kept:
            sink.execute(sql.SQL("DELETE {}").format(there.within(buckets)))
    copied = 0
    for wanted, there in pairs:
        copied += _copy_rows(source, sink, wanted, there, buckets)
        if wanted.table.is_kept:
            is_equal = wanted.hashes(source, buckets) <= there.hashes(sink, buckets)
        else:
            is_equal = wanted.digests(source, buckets) == there.digests(sink, buckets)
        if not is_equal:
            raise CellError("unequal", tenant, wanted.name)
    return copied


def _copy_rows(
    source: psycopg.Connection, sink: psycopg.Connection, wanted: _Rows, there: _Rows, buckets: Collection[str]
) -> int:
    table = wanted.table
    query = sql.SQL("SELECT {} {}").format(sql.SQL(wanted.values), wanted.within(buckets))
    if table.is_kept:
        known = sql.Literal(sorted(there.hashes(sink, buckets)))
        query = sql.SQL("{} AND hashtextextended(ROW({})::text, 0) <> ALL({}::bigint[])").format(
            query, sql.SQL(wanted.values), known
        )
    if table.drawn:
        query += sql.SQL(f" ORDER BY {table.drawn}")
    listed = ", ".join(f'"{each}"' for each in wanted.columns)
    to = sink.cursor()
    with (
        source.cursor().copy(sql.SQL("COPY ({}) TO STDOUT").format(query)) as given,
        to.copy(f'COPY "{wanted.name}" ({listed}) FROM STDIN'.encode()) as taken,
    ):
        for data in given:
            taken.write(data)
    return to.rowcount


_PAID_HERE = f"""
    INSERT INTO orphan_call (id, job_id, attempt_id, tenant, caps, provider, model, key_hash, gateway, cost_nanousd,
                             input_tokens, output_tokens, cache_write_tokens, cache_read_tokens, finish, status,
                             prices_as_of, served_at)
    SELECT id, job_id, attempt_id, CAST(%(tenant)s AS text),
           (SELECT coalesce(jsonb_agg(pair), '[]') FROM jsonb_array_elements(caps) AS pair
             WHERE pair ->> 0 IN ('key_day', 'fleet_day')),
           provider, model, key_hash, gateway, cost_nanousd, input_tokens, output_tokens, cache_write_tokens,
           cache_read_tokens, coalesce(finish, ''), coalesce(status, 0), prices_as_of, coalesce(ended_at, started_at)
      FROM call WHERE {OF_JOB}
        ON CONFLICT DO NOTHING
"""
"""What this cell paid stays on its own budgets, and its gateways find the calls of their journals booked."""


class _Driver:
    """A driver's own connection, in one transaction without a limit of time: COPY is not SQLAlchemy's to send."""

    def __init__(self, ledger: Ledger) -> None:
        self._connection = ledger.engine.raw_connection()

    def __enter__(self) -> psycopg.Connection:
        driver = self._connection.driver_connection
        assert isinstance(driver, psycopg.Connection)
        driver.execute("SET LOCAL statement_timeout = 0")
        driver.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        return driver

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        driver = self._connection.driver_connection
        assert isinstance(driver, psycopg.Connection)
        driver.rollback() if kind is not None else driver.commit()
        self._connection.close()


def clear(ledger: Ledger, tenant: str, *, keeps_stone: bool) -> None:
    """Delete a tenant's rows here.

    Args:
        ledger: where it is closed.
        tenant: whose.
        keeps_stone: whether tenant and keys stay, the keys without scopes, so that who still comes here is told why.
    """
    with _Driver(ledger) as side:
        side.execute(AS_MOVER)
        if keeps_stone:
            side.execute(_PAID_HERE.encode(), {"tenant": tenant})
            side.execute("UPDATE api_key SET scopes = '[]' WHERE tenant = %(tenant)s", {"tenant": tenant})
        stays = ("tenant", "api_key") if keeps_stone else ()
        for name, table in reversed(list(TABLES.items())):
            if name not in stays and not table.is_kept:
                side.execute(f'DELETE FROM "{name}" WHERE {table.rows}'.encode(), {"tenant": tenant})

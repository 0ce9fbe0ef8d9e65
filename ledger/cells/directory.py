"""The directory of a fleet of cells: which cell has a tenant, which move is under way, and what a day may still cost.

A small database of its own, which no job waits for. It holds no secret of a tenant but hashes of keys, and none of a
cell: what opens its servers comes from the settings of who needs it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from sqlalchemy import Connection, Engine

from ledger.errors import CellError
from ledger.store import AdvisoryLock, Statement, create_ledger_engine
from routing.cells import Cell, is_cell_name
from routing.cells import Directory as Snapshot
from routing.config import CellSecrets, split_password, with_password

_SCHEMA = """
CREATE TABLE IF NOT EXISTS cell (
    name text PRIMARY KEY, api_url text NOT NULL, pages_url text NOT NULL,
    broker_url text NOT NULL, ledger_url text NOT NULL, content_store text NOT NULL
);
ALTER TABLE cell ADD COLUMN IF NOT EXISTS runs_root text NOT NULL DEFAULT '';
ALTER TABLE cell ADD COLUMN IF NOT EXISTS accounts text NOT NULL DEFAULT '{}';
CREATE TABLE IF NOT EXISTS tenant (
    name text PRIMARY KEY, cell text NOT NULL REFERENCES cell, epoch bigint NOT NULL DEFAULT 1
);
CREATE TABLE IF NOT EXISTS api_key (key_hash text PRIMARY KEY, tenant text NOT NULL REFERENCES tenant);
CREATE TABLE IF NOT EXISTS move (
    tenant text PRIMARY KEY REFERENCES tenant, origin text NOT NULL REFERENCES cell,
    target text NOT NULL REFERENCES cell, step text NOT NULL, was_paused boolean NOT NULL,
    begun_at timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE IF NOT EXISTS fleet_day (
    day date PRIMARY KEY, limit_nanousd bigint NOT NULL, leased_nanousd bigint NOT NULL DEFAULT 0,
    CHECK (leased_nanousd BETWEEN 0 AND limit_nanousd)
);
CREATE TABLE IF NOT EXISTS fleet_lease (
    day date REFERENCES fleet_day, cell text, leased_nanousd bigint NOT NULL, PRIMARY KEY (day, cell)
);
"""
_APPLICATION = "pointsman-directory"


class Step(StrEnum):
    """How far a move has come: what is done. Until `switched` it can be aborted."""

    DRAINING = "draining"
    FROZEN = "frozen"
    COPIED = "copied"
    SWITCHED = "switched"
    OPENED = "opened"


class Move(NamedTuple):
    """The move of a tenant from one cell to another."""

    tenant: str
    origin: str
    target: str
    step: Step
    was_paused: bool
    """Whether an operator had paused the tenant before."""
    begun: str
    """When, in seconds of the directory's clock: tells it from the tenant's other moves."""


class CellRecord(NamedTuple):
    """A cell with what moving a tenant needs."""

    name: str
    api_url: str
    pages_url: str
    broker_url: str
    ledger_url: str
    content_store: str
    """Settings of the section, as JSON."""
    runs_root: str = ""
    """Of workspaces; a cell of an older version has not said."""
    accounts: str = "{}"
    """Its accounts at forges and trackers, each with the tenants that may use it, as JSON."""


class TenantPlace(NamedTuple):
    """Where a tenant is."""

    tenant: str
    cell: str
    epoch: int
    """Raised by each move."""
    step: str | None
    """Of the move that is under way."""


_CELLS = Statement("SELECT name, api_url, pages_url FROM cell ORDER BY name")


class Standing(NamedTuple):
    """What the directory says of one cell now."""

    leased_nanousd: int
    """Of today's budget."""
    moves: Mapping[Step, int]
    """From and to it."""
    move_seconds: float
    """Since the oldest of them began; 0 without one."""


_COLUMNS = CellRecord._fields
_RECORD = Statement(f"SELECT {', '.join(_COLUMNS)} FROM cell WHERE name = %(name)s")
_ADD = Statement(f"""
    INSERT INTO cell ({", ".join(_COLUMNS)}) VALUES ({", ".join(f"%({name})s" for name in _COLUMNS)})
    ON CONFLICT (name) DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in _COLUMNS[1:])}
""")
_PLACES = Statement("""
    SELECT tenant.name AS tenant, tenant.cell, epoch, step FROM tenant LEFT JOIN move ON move.tenant = tenant.name
     WHERE CAST(%(name)s AS text) IS NULL OR tenant.name = %(name)s ORDER BY tenant.name
""")
_CLAIM = Statement("""
    INSERT INTO tenant (name, cell) VALUES (%(tenant)s, %(cell)s) ON CONFLICT (name) DO NOTHING
""")
_TENANTS = Statement("SELECT name, cell FROM tenant WHERE name = ANY(CAST(%(names)s AS text[]))")
_KEYS = Statement("""
    SELECT key_hash, api_key.tenant, tenant.cell FROM api_key JOIN tenant ON tenant.name = api_key.tenant
     WHERE key_hash = ANY(CAST(%(hashes)s AS text[]))
""")
_ADD_KEYS = Statement("""
    INSERT INTO api_key SELECT unnest(CAST(%(hashes)s AS text[])), %(tenant)s ON CONFLICT (key_hash) DO NOTHING
""")
_MOVE = Statement("""
    SELECT tenant, origin, target, step, was_paused, extract(epoch FROM begun_at)::text AS begun
      FROM move WHERE tenant = %(tenant)s
""")
_BEGIN = Statement("""
    INSERT INTO move (tenant, origin, target, step, was_paused)
    SELECT name, cell, %(target)s, 'draining', %(was_paused)s FROM tenant WHERE name = %(tenant)s AND cell = %(origin)s
""")
_STEP = Statement("UPDATE move SET step = %(step)s WHERE tenant = %(tenant)s AND step = %(before)s RETURNING tenant")
_SWITCH = Statement("""
    WITH moved AS (
        UPDATE move SET step = 'switched' WHERE tenant = %(tenant)s AND step = 'copied' RETURNING tenant, target
    )
    UPDATE tenant SET cell = target, epoch = epoch + 1 FROM moved WHERE name = moved.tenant RETURNING name
""")
_TAKE_BACK = Statement("""
    WITH back AS (
        UPDATE move SET step = 'frozen' WHERE tenant = %(tenant)s AND step = %(before)s RETURNING tenant, origin
    )
    UPDATE tenant SET cell = origin, epoch = epoch + 1 FROM back WHERE name = back.tenant RETURNING name
""")
_TRY_LOCK = Statement("SELECT pg_try_advisory_lock(hashtextextended(%(tenant)s, 0))")
_UNLOCK = Statement("SELECT pg_advisory_unlock(hashtextextended(%(tenant)s, 0))")
_LEAVING_SECONDS = 2.0
"""A server's process ends a moment after the client that had the lock was killed."""
_END = Statement("DELETE FROM move WHERE tenant = %(tenant)s")
_DAY = Statement("""
    INSERT INTO fleet_day (day, limit_nanousd) VALUES (CAST(%(day)s AS date), %(limit)s)
    ON CONFLICT (day) DO UPDATE SET limit_nanousd = greatest(fleet_day.leased_nanousd, excluded.limit_nanousd)
    RETURNING limit_nanousd - leased_nanousd AS room
""")
_LEASED = Statement("SELECT leased_nanousd FROM fleet_lease WHERE day = CAST(%(day)s AS date) AND cell = %(cell)s")
_TODAY = Statement("""
    SELECT cell, leased_nanousd FROM fleet_lease WHERE day = CAST(timezone('UTC', clock_timestamp()) AS date)
""")
_UNDER_WAY = Statement("""
    SELECT step, count(*) AS moves, max(extract(epoch FROM clock_timestamp() - begun_at))::float AS seconds
      FROM move WHERE %(cell)s IN (origin, target) GROUP BY step
""")
_LEASE = Statement("""
    WITH taken AS (
        UPDATE fleet_day SET leased_nanousd = leased_nanousd + %(more)s WHERE day = CAST(%(day)s AS date)
    )
    INSERT INTO fleet_lease VALUES (CAST(%(day)s AS date), %(cell)s, %(more)s)
    ON CONFLICT (day, cell) DO UPDATE SET leased_nanousd = fleet_lease.leased_nanousd + excluded.leased_nanousd
    RETURNING leased_nanousd
""")


class Directory:
    """A connection to the directory, closed by its owner.

    Args:
        url: of its database.
        secrets: what opens the servers of cells, by cell.
    """

    def __init__(self, url: str, secrets: Mapping[str, CellSecrets] = MappingProxyType({})) -> None:
        self._secrets = secrets
        self._url = url
        self._engine: Engine = create_ledger_engine(url, pool_size=2, application=_APPLICATION)

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def prepare(self) -> None:
        """Make the tables where they are missing."""
        with self._engine.begin() as connection:
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({AdvisoryLock.DIRECTORY})")
            connection.exec_driver_sql(_SCHEMA)

    def look_up(self, *, tenants: Collection[str] = (), keys: Collection[str] = ()) -> Snapshot:
        """Return the cells, and what is known of these tenants and hashes of keys."""
        with self._engine.begin() as connection:
            cells = {row.name: Cell(*row) for row in _CELLS.all(connection)}
            named = _TENANTS.all(connection, {"names": list(tenants)}) if tenants else []
            held = _KEYS.all(connection, {"hashes": list(keys)}) if keys else []
        places = {row.name: row.cell for row in named} | {row.tenant: row.cell for row in held}
        return Snapshot(cells, places, {row.key_hash: row.tenant for row in held})

    def add_cell(self, cell: CellRecord) -> None:
        """Add a cell, or change where it is; its secrets stay outside.

        Raises:
            CellError: the operator's fault: its name breaks the rule.
        """
        if not is_cell_name(cell.name):
            raise CellError("name", cell.name)
        with self._engine.begin() as connection:
            _ADD.all(connection, _closed(cell)._asdict())

    def cell(self, name: str) -> CellRecord:
        """Return a cell, with the secrets that are known here.

        Raises:
            CellError: the operator's fault: there is none of this name.
        """
        with self._engine.begin() as connection:
            row = _RECORD.one(connection, {"name": name})
        if row is None:
            raise CellError("unknown_cell", name)
        return _opened(CellRecord(*row), self._secrets.get(name, CellSecrets()))

    def places(self) -> list[TenantPlace]:
        """Return where each tenant is."""
        with self._engine.begin() as connection:
            return [TenantPlace(*row) for row in _PLACES.all(connection, {"name": None})]

    def place_of(self, tenant: str) -> TenantPlace | None:
        """Return where a tenant is; None if nobody has it."""
        with self._engine.begin() as connection:
            row = _PLACES.one(connection, {"name": tenant})
        return TenantPlace(*row) if row is not None else None

    def claim(self, tenant: str, *, cell: str, key_hashes: Collection[str] = ()) -> None:
        """Register that a cell has a tenant and these keys of it.

        Raises:
            CellError: the operator's fault: another cell has a tenant of this name, or a move is under way.
        """
        with self._engine.begin() as connection:
            _CLAIM.all(connection, {"tenant": tenant, "cell": cell})
            place = TenantPlace(*_PLACES.one(connection, {"name": tenant}))
            if place.cell != cell:
                raise CellError("elsewhere", tenant, place.cell)
            if place.step is not None:
                raise CellError("moving", tenant)
            _ADD_KEYS.all(connection, {"hashes": list(key_hashes), "tenant": tenant})

    @contextmanager
    def moving(self, tenant: str) -> Iterator[None]:
        """Be the only one who moves a tenant; PostgreSQL lets go of it when this process dies.

        Raises:
            CellError: nobody's fault: another process moves it.
        """
        # A server ends what does nothing for long, and its lock with it: a transaction, and a pooled connection.
        engine = create_ledger_engine(self._url, pool_size=0, application=_APPLICATION)
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            key = {"tenant": f"pointsman move {tenant}"}
            until = time.monotonic() + _LEAVING_SECONDS
            while not _TRY_LOCK.scalar(connection, key):
                if time.monotonic() >= until:
                    raise CellError("moving", tenant)
                time.sleep(0.05)
            try:
                yield
            finally:
                _UNLOCK.all(connection, key)

    def move_of(self, tenant: str) -> Move | None:
        """Return the move that is under way."""
        with self._engine.begin() as connection:
            return _read_move(connection, tenant)

    def begin_move(self, tenant: str, *, origin: str, target: str, was_paused: bool) -> Move:
        """Begin a move.

        Raises:
            CellError: the operator's fault: the tenant is not there.
        """
        values = {"tenant": tenant, "origin": origin, "target": target, "was_paused": was_paused}
        with self._engine.begin() as connection:
            _BEGIN.all(connection, values)
            move = _read_move(connection, tenant)
            if move is None:
                raise CellError("unknown_tenant", tenant)
            return move

    def advance(self, move: Move, step: Step) -> Move:
        """Note that a step is done; `switched` is the commit of the move and raises the tenant's epoch.

        Raises:
            CellError: nobody's fault: the move is not where it was.
        """
        with self._engine.begin() as connection:
            if step is Step.SWITCHED:
                done = _SWITCH.one(connection, {"tenant": move.tenant})
            else:
                values = {"tenant": move.tenant, "before": move.step.value, "step": step.value}
                done = _STEP.one(connection, values)
            if done is None:
                raise CellError("moving", move.tenant)
        return move._replace(step=step)

    def take_back(self, move: Move) -> None:
        """Let a move copy again what its new cell has lost; until it switches again, the tenant is in the old one.

        Raises:
            CellError: nobody's fault: the move is not where it was.
        """
        with self._engine.begin() as connection:
            if _TAKE_BACK.one(connection, {"tenant": move.tenant, "before": move.step.value}) is None:
                raise CellError("moving", move.tenant)

    def end_move(self, move: Move) -> None:
        """Forget a move that is over."""
        with self._engine.begin() as connection:
            _END.all(connection, {"tenant": move.tenant})

    def standing(self, cell: str) -> Standing:
        """Return what a cell has leased today, and the moves from and to it."""
        with self._engine.begin() as connection:
            leased = next((row.leased_nanousd for row in _TODAY.all(connection) if row.cell == cell), 0)
            moves = {Step(row.step): row for row in _UNDER_WAY.all(connection, {"cell": cell})}
        return Standing(
            leased,
            {step: moves[step].moves if step in moves else 0 for step in Step},
            max((row.seconds for row in moves.values()), default=0.0),
        )

    def leased_today(self) -> dict[str, int]:
        """Return what each cell has leased of today's budget, in nanodollars."""
        with self._engine.begin() as connection:
            return {row.cell: row.leased_nanousd for row in _TODAY.all(connection)}

    def lease(self, cell: str, *, day: str, limit: int, known: int, least: int, slice_nanousd: int) -> int:
        """Return what a cell may spend on a day in total, with a further slice if it has no more than it knew.

        What is leased counts as spent until the day ends: nothing is returned, so that a cell which dies with a slice
        costs the fleet that slice, and one that has an old view has the smaller one.

        Args:
            cell: who asks.
            day: as YYYY-MM-DD.
            limit: the fleet's budget of the day, in nanodollars, as is all here.
            known: the total that the cell knew.
            least: what it needs more; where the fleet has less left, it gets that.
            slice_nanousd: what it would like to have.
        """
        with self._engine.begin() as connection:
            room = _DAY.scalar(connection, {"day": day, "limit": limit})
            has = _LEASED.scalar(connection, {"day": day, "cell": cell}) or 0
            more = min(room, max(least, slice_nanousd))
            if has - known >= least or more <= 0:
                return int(has)
            return int(_LEASE.scalar(connection, {"day": day, "cell": cell, "more": more}))


def _closed(cell: CellRecord) -> CellRecord:
    store = {name: value for name, value in json.loads(cell.content_store).items() if name != "secrets"}
    return cell._replace(
        broker_url=split_password(cell.broker_url)[0],
        ledger_url=split_password(cell.ledger_url)[0],
        content_store=json.dumps(store),
    )


def _opened(cell: CellRecord, secrets: CellSecrets) -> CellRecord:
    """Return a cell with what opens its servers; what one of an older version has said stays where nothing is known."""
    store = json.loads(cell.content_store)
    if secrets.content_store:
        store["secrets"] = {name: secret.get_secret_value() for name, secret in secrets.content_store.items()}
    return cell._replace(
        broker_url=with_password(cell.broker_url, secrets.broker.get_secret_value()),
        ledger_url=with_password(cell.ledger_url, secrets.ledger.get_secret_value()),
        content_store=json.dumps(store),
    )


def _read_move(connection: Connection, tenant: str) -> Move | None:
    row = _MOVE.one(connection, {"tenant": tenant})
    return Move(**row._asdict() | {"step": Step(row.step)}) if row is not None else None

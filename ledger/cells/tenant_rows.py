"""What a ledger holds of one tenant, table by table, and whether anybody may write it here.

A tenant that is *closed* here cannot be written here by anyone: while it is copied to another cell, and after it has
gone. Row triggers refuse it, on the tenant's tables and for its name alone; a ledger in which no tenant is closed has
none, so that cells cost nothing where there are none. To make a trigger waits for who is writing the table: no check
and no write of it are left with a gap between them. What a writer gets is `lock_not_available`, as from a row that
somebody holds: the dispatcher leaves that row for its next round, the API answers 503, others try again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import psycopg
from psycopg import sql
from psycopg.errors import LockNotAvailable
from sqlalchemy.exc import OperationalError
from sqlmodel import Session, SQLModel

from ledger.cells.tenant_runs import OPEN_SHELL
from ledger.errors import CellError, LedgerBusyError
from ledger.store import CLOSED_TENANTS, AdvisoryLock, Ledger, Statement
from routing.jobs import Reason

TENANT_CLOSED = "this tenant is moving to another cell"
"""What a refused writer is told."""
_JOBS = "(SELECT id FROM job WHERE tenant = %(tenant)s)"
OF_JOB = f"job_id IN {_JOBS}"
_OF_RUN = f"run_id IN {_JOBS}"
ENDED = "SELECT id FROM job WHERE tenant = %(tenant)s AND ended_at IS NOT NULL"
_OWN = "tenant = %(tenant)s"
_DAYS = "scope = 'tenant_day' AND split_part(key, '/', 1) = %(tenant)s"
_BILLS = "(SELECT id::text FROM job WHERE tenant = %(tenant)s)"
_OWN_CAPS = """
    (SELECT coalesce(jsonb_agg(pair ORDER BY place), '[]')
       FROM jsonb_array_elements(caps) WITH ORDINALITY AS listed (pair, place)
      WHERE pair ->> 0 NOT IN ('key_day', 'fleet_day'))
"""
"""What a call counts against in the new cell: its money was paid in the old one."""


class TenantTable(NamedTuple):
    """How a table's rows of a tenant are found, guarded and copied."""

    rows: str
    """A condition with `%(tenant)s`."""
    owner: str = ""
    """Of a row `{row}` in a trigger; empty where who writes it writes its job, too, or nobody is left to write it."""
    changed: Mapping[str, str] = {}
    """Columns that are copied as something else."""
    drawn: str = ""
    """A number that the new ledger assigns again, in the old order."""
    is_kept: bool = False
    """Whether rows stay in the old ledger, too; one that comes back finds them, and brings the others."""
    unguarded: tuple[str, ...] = ()
    """Columns that may be written all the same: they only say when something was last seen."""
    job: str = ""
    """The job that a row belongs to, of a table whose rows are copied ahead once that has ended: few of them change."""


TABLES: Mapping[str, TenantTable] = {
    "tenant": TenantTable("name = %(tenant)s", "{row}.name"),
    "api_key": TenantTable(_OWN, "{row}.tenant", unguarded=("last_used_at",)),
    "person": TenantTable(_OWN, "{row}.tenant"),
    "login_session": TenantTable(
        "key_id IN (SELECT id FROM api_key WHERE tenant = %(tenant)s)"
        " OR person_id IN (SELECT id FROM person WHERE tenant = %(tenant)s)"
    ),
    "site": TenantTable(_OWN, "{row}.tenant", changed={"shown_release_id": "NULL"}),
    "release": TenantTable(
        "site_id IN (SELECT id FROM site WHERE tenant = %(tenant)s)", "pointsman_tenant_of_site_1({row}.site_id)"
    ),
    "job": TenantTable(_OWN, "{row}.tenant", changed={"pushed_at": "NULL"}, job="id"),
    "attempt": TenantTable(OF_JOB, job="job_id"),
    "call": TenantTable(OF_JOB, changed={"caps": _OWN_CAPS}, job="job_id"),
    "cap": TenantTable(
        f"({_DAYS}) OR (scope = 'job' AND key IN {_BILLS}) OR (scope = 'tier' AND split_part(key, '/', 1) IN {_BILLS})",
        job="CASE WHEN scope IN ('job', 'tier') THEN split_part(key, '/', 1)::uuid END",
    ),
    "event": TenantTable(_OWN, changed={"xid": "0"}, drawn="id", job="job_id"),
    "audit": TenantTable(_OWN, changed={"sealed_in": "NULL"}, drawn="seq", is_kept=True, job="job_id"),
    "approval": TenantTable(OF_JOB),
    "debate": TenantTable(_OWN, "{row}.tenant"),
    "task_failure": TenantTable(_OWN, "{row}.tenant"),
    "recorded_call": TenantTable(OF_JOB),
    "notification": TenantTable(OF_JOB, "pointsman_tenant_of_job_1({row}.job_id)", job="job_id"),
    "delivery": TenantTable(OF_JOB, drawn="id"),
    "notice": TenantTable(_OWN, "{row}.tenant"),
    "notice_delivery": TenantTable(OF_JOB, drawn="id"),
    "project": TenantTable(_OWN, "{row}.tenant"),
    "run": TenantTable(OF_JOB, "pointsman_tenant_of_job_1({row}.job_id)"),
    "run_step": TenantTable(_OF_RUN),
    "agent_executions": TenantTable(OF_JOB),
    "gate": TenantTable(_OF_RUN, "pointsman_tenant_of_job_1({row}.run_id)"),
    "review_comment": TenantTable(f"root_id IN {_JOBS}", "pointsman_tenant_of_job_1({row}.root_id)", drawn="id"),
    "ticket_note": TenantTable(_OF_RUN, "pointsman_tenant_of_job_1({row}.run_id)"),
    "kept_delivery": TenantTable(_OWN, "{row}.tenant"),
}
"""Of the tables that have rows of a tenant, those that move with it: parents first. Events get numbers above those that
a stream of the old cell may have seen, so that a stream which resumes is told again what it knows, and misses nothing;
their transaction is 0, as the old cell has counted them in its metrics. The audit trail is sealed in the new cell's
chain, too: the old one's cannot be taken apart."""
STAYING: Mapping[str, str] = {
    "audit_seal": "of the whole ledger",
    "backlog": "counted by each ledger's own dispatcher",
    "epoch": "of the whole ledger",
    "leader": "of the whole ledger",
    "orphan_call": "a debt of the cell whose gateway paid",
    "provider_circuit": "of the cell's own accounts",
    "queue_control": "of the whole ledger",
    "rollup": "the cell's own metrics",
    "rollup_mark": "the cell's own metrics",
    "worker": "of the cell's own fleet",
}
"""Why the other tables' rows stay."""

_TRIGGERS = ("pointsman_closed_insert", "pointsman_closed_update")
_LOCK_MS = 200
"""How long writers may stand in line behind a trigger; one that gets no lock in that time is tried again."""
_PATIENCE_SECONDS = 60.0
AS_MOVER = "SELECT set_config('pointsman.mover', 'on', true)"
_OF_DISPATCH = "'{waiting_since,pushed_at,held_for,held_until,attempts,next_at}'::text[]"
"""What a dispatcher changes of many tenants' jobs or messages at once: a closed tenant's are left out, and nobody else
waits."""
_FUNCTIONS = f"""
CREATE OR REPLACE FUNCTION pointsman_refuse_closed_1() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF current_setting('pointsman.mover', true) = 'on' THEN
        RETURN NEW;
    ELSIF TG_OP = 'UPDATE' AND TG_TABLE_NAME IN ('job', 'notification', 'notice', 'ticket_note')
            AND to_jsonb(NEW) - {_OF_DISPATCH} = to_jsonb(OLD) - {_OF_DISPATCH} THEN
        RETURN NULL;
    END IF;
    RAISE EXCEPTION '{TENANT_CLOSED}' USING ERRCODE = 'lock_not_available';
END $$;
CREATE OR REPLACE FUNCTION pointsman_tenant_of_job_1(p_job uuid) RETURNS text LANGUAGE sql STABLE
    AS 'SELECT tenant FROM job WHERE id = p_job';
CREATE OR REPLACE FUNCTION pointsman_tenant_of_site_1(p_site uuid) RETURNS text LANGUAGE sql STABLE
    AS 'SELECT tenant FROM site WHERE id = p_site';
"""
_CLOSED = Statement(f"SELECT {CLOSED_TENANTS}")


def is_closed_error(error: BaseException | None) -> bool:
    """Whether an error of the driver says that a tenant is closed here."""
    return isinstance(error, LockNotAvailable) and error.diag.message_primary == TENANT_CLOSED


def closed_tenants(session: Session) -> frozenset[str]:
    """Return the tenants that cannot be written here, as the triggers say it."""
    return frozenset(_CLOSED.scalar(session))


def close(ledger: Ledger, tenant: str) -> None:
    """Let nobody write a tenant here; when this returns, who was about to has done it or never will.

    Raises:
        LedgerBusyError: nobody's fault: a table stayed busy; tables that are closed already stay so.
    """
    _set_closed(ledger, tenant, is_closed=True)


def open_again(ledger: Ledger, tenant: str) -> None:
    """Let a tenant be written here.

    Raises:
        LedgerBusyError: as `close`.
    """
    _set_closed(ledger, tenant, is_closed=False)


def _set_closed(ledger: Ledger, tenant: str, *, is_closed: bool) -> None:
    """Change the tables' triggers one by one, first that of `tenant`, which holds the list."""

    def change(name: str, table: TenantTable) -> None:
        with ledger.begin() as session:
            _change_triggers(session, name, table, tenant, is_closed=is_closed)

    for name, table in TABLES.items():
        if table.owner:
            patiently(partial(change, name, table))


def patiently(work: Callable[[], None]) -> None:
    """Do what gives way to writers, again until it gets its lock."""
    until = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            return work()
        except OperationalError as error:
            if not isinstance(error.orig, LockNotAvailable) or time.monotonic() >= until:
                raise LedgerBusyError from error
            time.sleep(_LOCK_MS / 1000)


def _change_triggers(session: Session, name: str, table: TenantTable, tenant: str, *, is_closed: bool) -> None:
    Statement(
        f"SELECT set_config('lock_timeout', '{_LOCK_MS}ms', true), pg_advisory_xact_lock({AdvisoryLock.TENANT_ROWS})"
    ).all(session)
    names = sorted(closed_tenants(session) | {tenant} if is_closed else closed_tenants(session) - {tenant})
    if not names:
        for trigger in _TRIGGERS:
            Statement(f'DROP TRIGGER IF EXISTS {trigger} ON "{name}"').all(session)
        return
    raw = session.connection().connection.driver_connection
    assert isinstance(raw, psycopg.Connection)
    if name == "tenant":
        raw.execute(_FUNCTIONS.encode())
    listed = sql.SQL(", ").join(map(sql.Literal, names))
    columns = [each.name for each in SQLModel.metadata.tables[name].columns if each.name not in table.unguarded]
    updates = f"UPDATE OF {', '.join(columns)}" if table.unguarded else "UPDATE"
    for trigger, event, row in zip(_TRIGGERS, ("INSERT", updates), ("NEW", "OLD"), strict=True):
        owner = table.owner.format(row=row)
        head = f'CREATE OR REPLACE TRIGGER {trigger} BEFORE {event} ON "{name}" FOR EACH ROW WHEN ({owner} IN ('
        raw.execute(
            sql.SQL("{}{})) EXECUTE FUNCTION pointsman_refuse_closed_1({})").format(sql.SQL(head), listed, listed)
        )


_KEYS = Statement("""
    SELECT tenant.name, array_agg(key_hash) FILTER (WHERE key_hash IS NOT NULL) AS keys
      FROM tenant LEFT JOIN api_key ON api_key.tenant = tenant.name AND revoked_at IS NULL GROUP BY 1
""")
_IS_PAUSED = Statement("SELECT paused_at IS NOT NULL FROM tenant WHERE name = %(tenant)s")
_PAUSE = Statement("""
    UPDATE tenant SET paused_at = coalesce(paused_at, clock_timestamp()) WHERE name = %(tenant)s
""")
_RESUME = Statement("UPDATE tenant SET paused_at = NULL WHERE name = %(tenant)s")
_AT_WORK = Statement(f"""
    SELECT (SELECT count(*) FROM attempt WHERE ended_at IS NULL AND {OF_JOB})
         + (SELECT count(*) FROM call WHERE state = 'reserved' AND {OF_JOB})
         + (SELECT count(*) FROM ({OPEN_SHELL}) AS by_hand)
""")
_HAND_BACK = Statement(f"""
    UPDATE attempt SET lease_until = clock_timestamp(), lost_cause = '{Reason.WORKER_STOPPED.value}'
     WHERE ended_at IS NULL AND lost_cause IS NULL AND {OF_JOB} RETURNING id
""")


def keys_by_tenant(session: Session) -> dict[str, list[str]]:
    """Return the hashes of valid keys of each tenant that is not closed here."""
    closed = closed_tenants(session)
    return {row.name: row.keys or [] for row in _KEYS.all(session) if row.name not in closed}


def is_paused(ledger: Ledger, tenant: str) -> bool:
    """Whether a tenant is paused.

    Raises:
        CellError: the operator's fault: there is no such tenant.
    """
    with ledger.begin() as session:
        found = _IS_PAUSED.scalar(session, {"tenant": tenant})
    if found is None:
        raise CellError("unknown_tenant", tenant)
    return bool(found)


def pause(ledger: Ledger, tenant: str) -> None:
    """Let no attempt at a tenant's jobs begin."""
    with ledger.begin() as session:
        Statement(AS_MOVER).all(session)
        _PAUSE.all(session, {"tenant": tenant})


def resume(ledger: Ledger, tenant: str) -> None:
    """Let attempts begin again, also of a tenant that is closed."""
    with ledger.begin() as session:
        Statement(AS_MOVER).all(session)
        _RESUME.all(session, {"tenant": tenant})


def at_work(ledger: Ledger, tenant: str) -> int:
    """Return how many attempts, model calls and shells at gates of a tenant are open."""
    with ledger.begin() as session:
        return int(_AT_WORK.scalar(session, {"tenant": tenant}))


def hand_back(ledger: Ledger, tenant: str) -> int:
    """Take its jobs from the workers that have them: they wait again, and nothing is counted against them."""
    with ledger.begin() as session:
        return len(_HAND_BACK.all(session, {"tenant": tenant}))

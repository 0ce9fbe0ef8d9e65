"""Fill a ledger with very many jobs in seconds, and look at what a statement does to answer: nodes and rows visited."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import event, text
from sqlmodel import Session

from tests.factories import Shop

_TENANTS = text("""
    INSERT INTO tenant (name, overrides, auto_approve)
    SELECT 't' || n, '{}', false FROM generate_series(1, :tenants) AS n ON CONFLICT DO NOTHING
""")

_SITES = text("""
    INSERT INTO site (id, tenant, name, profile)
    SELECT gen_random_uuid(), 't' || n, 's' || m, 'default'
      FROM generate_series(1, :tenants) AS n, generate_series(1, 20) AS m ON CONFLICT DO NOTHING
""")

_JOBS = text("""
    WITH place AS (SELECT array_agg(id ORDER BY name, tenant) AS sites,
                          array_agg(tenant ORDER BY name, tenant) AS owners FROM site),
    made AS (SELECT n, gen_random_uuid() AS id, 1 + n % cardinality(sites) AS at, sites, owners
               FROM generate_series(1, CAST(:count AS int)) AS n, place)
    INSERT INTO job (id, tenant, source, state, prompt, request, request_digest, priority, site_id, root_id, route,
                     mode, queue, fence, waiting_since, lost_attempts, cap_nanousd, result, created_at, ended_at,
                     reason, held_for, held_until)
    SELECT id, owners[at], 'http', CAST(:state AS text), 'Make the header blue', '{}', 'd', 'P' || n % 4,
           CASE WHEN CAST(:queue AS text) IN ('spec', 'patch', 'agent') THEN sites[at] END, id, '{}',
           'ACTION', CAST(:queue AS text), 0,
           CASE WHEN NOT CAST(:ended AS boolean) THEN now() - make_interval(secs => n / 1000.0) END, 0, 650000000, '{}',
           now() - make_interval(secs => n / 1000.0), CASE WHEN CAST(:ended AS boolean) THEN now() END,
           CASE WHEN CAST(:ended AS boolean) THEN 'done' END, CAST(:held_for AS text),
           CASE WHEN CAST(:held_for AS text) = 'time' THEN now() + interval '1 day' END
      FROM made
""")


_ATTEMPTS = text("""
    INSERT INTO attempt (id, job_id, number, queue, fence, worker, token_hash, lease_until, deadline, started_at,
                         ended_at)
    SELECT gen_random_uuid(), id, 1, queue, 1, 'w', id::text, created_at, created_at, created_at, created_at
      FROM job WHERE state = 'published'
""")

_CALLS = text("""
    INSERT INTO call (id, job_id, attempt_id, caps, state, provider, model, key_hash, gateway, lease_until, max_tokens,
                      reserved_nanousd, cost_nanousd, input_tokens, output_tokens, cache_write_tokens,
                      cache_read_tokens, prices_as_of)
    SELECT gen_random_uuid(), job_id, id, '[]', 'settled', 'p', 'm', 'k', 'g', started_at, 1, 1, 1, 1, 1, 0, 0, '2026'
      FROM attempt
""")


_STEPS = text("""
    INSERT INTO agent_executions (job_id, run_id, step_key, attempt, status, settled_at, absorbed_at, changed,
                                  dropped)
    SELECT id, id, 'plan', 1, 'completed', created_at, created_at, '[]', '[]' FROM job
     WHERE state = 'published'
""")


def fill_past(shop: Shop) -> None:
    """Give every job that has ended an attempt, a model call and a settled step."""
    with shop.ledger.begin() as session:
        session.execute(text("SET LOCAL session_replication_role = replica"))
        session.execute(_ATTEMPTS)
        session.execute(_CALLS)
        session.execute(_STEPS)


def fill(
    shop: Shop, *, queue: str, count: int, tenants: int = 20, state: str = "queued", held_for: str | None = None
) -> None:
    """Add so many jobs that wait on a queue, are held there, or (`state="published"`) have ended."""
    with shop.ledger.begin() as session:
        session.execute(text("SET LOCAL statement_timeout = 0"))
        session.execute(text("SET LOCAL session_replication_role = replica"))  # their foreign keys are right by design
        session.execute(_TENANTS, {"tenants": tenants})
        session.execute(_SITES, {"tenants": tenants})
        values = {"count": count, "queue": queue, "state": state, "ended": state == "published", "held_for": held_for}
        session.execute(_JOBS, values)


@contextmanager
def without_indexes(shop: Shop) -> Iterator[None]:
    """Fill a table of jobs without its indexes, which are made at the end: several times as fast."""
    found = shop.rows("""
        SELECT indexname, indexdef FROM pg_indexes
         WHERE tablename = 'job' AND indexname NOT IN (SELECT conname FROM pg_constraint)
    """)
    shop.execute("; ".join(f"DROP INDEX {row.indexname}" for row in found))
    yield
    made = "; ".join(row.indexdef for row in found)
    shop.execute(f"SET LOCAL statement_timeout = 0; {made}; ANALYZE")


@dataclass(frozen=True)
class Look:
    """What one statement did."""

    sql: str
    scanned: frozenset[str]
    """Tables that were read from their beginning to their end."""
    rows: int
    """Rows that scans read, those that a filter threw away among them."""
    blocks: int
    """Pages that were looked at."""


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)


def _look(sql: str, plan: dict[str, Any]) -> Look:
    nodes = list(_nodes(plan))
    scans = [node for node in nodes if "Relation Name" in node and node["Node Type"] != "ModifyTable"]
    seen = sum(
        (node["Actual Rows"] + node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0))
        * node["Actual Loops"]
        for node in scans
    )
    return Look(
        sql=sql,
        scanned=frozenset(node["Relation Name"] for node in scans if node["Node Type"] == "Seq Scan"),
        rows=round(seen),
        blocks=plan.get("Shared Hit Blocks", 0) + plan.get("Shared Read Blocks", 0),
    )


@contextmanager
def explained(session: Session) -> Iterator[list[Look]]:
    """Let every SELECT, INSERT, UPDATE and DELETE of a session be explained as it runs, and then undone and run."""
    looks: list[Look] = []
    is_inner = False

    def explain(connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, executemany: bool) -> None:
        nonlocal is_inner
        if is_inner or statement.split(None, 1)[0].upper() not in ("SELECT", "INSERT", "UPDATE", "DELETE", "WITH"):
            return
        is_inner = True
        raw = connection.connection.cursor()
        try:
            raw.execute("SAVEPOINT explained")
            raw.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}", parameters)
            found = raw.fetchone()[0]
            raw.execute("ROLLBACK TO SAVEPOINT explained")
        finally:
            raw.close()
            is_inner = False
        plans = json.loads(found) if isinstance(found, str) else found
        looks.append(_look(statement, plans[0]["Plan"]))

    engine = session.get_bind()
    event.listen(engine, "before_cursor_execute", explain)
    try:
        yield looks
    finally:
        event.remove(engine, "before_cursor_execute", explain)


def looks_of(shop: Shop, do: Callable[[Session], object]) -> list[Look]:
    """Return what the statements of one step did."""
    with shop.ledger.begin() as session, explained(session) as looks:
        do(session)
    return looks

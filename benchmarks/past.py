"""A ledger with a past: jobs that came and went over four weeks, with all that they left; a few still wait.

Rows are made by the database itself, into tables whose indexes are set aside meanwhile. However many jobs there are,
the open ones are the same few, and so are those of the last hour: what grows is the record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psycopg

TENANTS = 20
SITES = 400
WAITING = 40
ASKING = 20
"""Jobs that wait for somebody's approval."""
LATELY = 200
"""Jobs of the last hour: it was as busy as ever, however long the past is."""

_JOB = "md5('job' || n)::uuid"
_ATTEMPT = "md5('attempt' || n)::uuid"
_TENANT = f"'t' || n % {TENANTS}"
_SITE = f"md5('site' || n % {SITES})::uuid"
_MADE = f"""(
    CASE WHEN n > :jobs - {LATELY} THEN now() - interval '1 h' * (:jobs - n) / {LATELY}
         ELSE now() - interval '1 h' - interval '28 days' * (1 - n::float / :jobs) END)
"""
_ENDED = f"{_MADE} + interval '2 seconds'"
_QUEUE = "(string_to_array('answer answer answer answer tools tools spec spec patch agent', ' '))[1 + n % 10]"
_STATE = """CASE WHEN n % 1000 = 7 THEN 'failed' WHEN n % 10 < 6 THEN 'answered' ELSE 'published' END"""
_IS_WAITING = f"n > :jobs - {WAITING}"
_IS_ASKING = f"n BETWEEN :jobs - {WAITING + ASKING - 1} AND :jobs - {WAITING}"
_IS_OPEN = f"n > :jobs - {WAITING + ASKING}"
_IS_CALLED = "n % 10 NOT IN (4, 5)"  # a model was asked
_DIGEST = "md5('digest' || n) || md5('more' || n)"

_PLACES = (
    f"""
    INSERT INTO tenant (name, overrides, auto_approve, provider)
    SELECT {_TENANT}, '{{}}', false, 'p' FROM generate_series(1, {TENANTS}) AS n
    """,
    f"""
    INSERT INTO site (id, tenant, name, profile)
    SELECT {_SITE}, {_TENANT}, 's' || n, 'default' FROM generate_series(1, {SITES}) AS n
    """,
    "INSERT INTO rollup_mark (id, xid) VALUES (1, 1) ON CONFLICT DO NOTHING",
)

_ROWS: Mapping[str, str] = {
    "job": f"""
        INSERT INTO job (id, tenant, source, state, prompt, request, request_digest, priority, site_id, root_id, route,
                         mode, tier, queue, fence, waiting_since, pushed_at, lost_attempts, cap_nanousd, result,
                         release_id, failure_signature, expires_at, reason, created_at, started_at, ended_at)
        SELECT {_JOB}, {_TENANT}, 'http',
               CASE WHEN {_IS_WAITING} THEN 'queued' WHEN {_IS_ASKING} THEN 'awaiting_approval' ELSE {_STATE} END,
               'Make the header of page ' || n || ' blue, and the footer a little smaller', '{{}}', {_DIGEST}, 'P2',
               CASE WHEN n % 10 > 5 AND NOT {_IS_WAITING} THEN {_SITE} END, {_JOB},
               '{{"mode": "ACTION", "confidence": "HIGH", "rule": "R-001"}}', 'ACTION',
               CASE {_QUEUE} WHEN 'spec' THEN 1 WHEN 'patch' THEN 2 WHEN 'agent' THEN 3 END,
               CASE WHEN {_IS_WAITING} THEN 'answer' ELSE {_QUEUE} END, CASE WHEN {_IS_WAITING} THEN 0 ELSE 1 END,
               CASE WHEN {_IS_WAITING} THEN now() END, CASE WHEN {_IS_WAITING} THEN now() END, 0, 650000000,
               '{{"answer": "It is done."}}', CASE WHEN n % 10 > 5 AND NOT {_IS_WAITING} THEN {_JOB} END,
               CASE WHEN n % 1000 = 7 AND NOT {_IS_OPEN} THEN 's' || n % 7 END,
               CASE WHEN {_IS_ASKING} THEN now() + interval '1 day' END, 'done',
               {_MADE}, CASE WHEN NOT {_IS_WAITING} THEN {_MADE} END, CASE WHEN NOT {_IS_OPEN} THEN {_ENDED} END
          FROM generate_series(1, :jobs) AS n
    """,
    "attempt": f"""
        INSERT INTO attempt (id, job_id, number, queue, tier, fence, worker, token_hash, lease_until, deadline,
                             started_at, ended_at, outcome, reason)
        SELECT {_ATTEMPT}, {_JOB}, 1, {_QUEUE}, NULL, 1, 'answer@host.' || n % 50, {_DIGEST}, {_ENDED}, {_ENDED},
               {_MADE}, {_ENDED}, {_STATE}, 'done'
          FROM generate_series(1, :jobs) AS n WHERE NOT {_IS_WAITING}
    """,
    "call": f"""
        INSERT INTO call (id, job_id, attempt_id, caps, state, provider, model, key_hash, gateway, lease_until,
                          max_tokens, reserved_nanousd, cost_nanousd, input_tokens, output_tokens, cache_write_tokens,
                          cache_read_tokens, finish, status, prices_as_of, started_at, ended_at)
        SELECT md5('call' || n || 'of' || m)::uuid, {_JOB}, {_ATTEMPT}, '[["job", "x"], ["fleet_day", "y"]]', 'settled',
               'p', 'claude-haiku-4-5-20251001', 'k', 'g', {_ENDED}, 1500, 9000000, 4000000, 900, 400, 0, 0,
               'completed', 200, '2026-01-01', {_MADE}, {_ENDED}
          FROM generate_series(1, :jobs) AS n, generate_series(1, 2) AS m
         WHERE {_IS_CALLED} AND NOT {_IS_WAITING} AND (m = 1 OR n % 10 > 5)
    """,
    "event": f"""
        INSERT INTO event (xid, at, job_id, tenant, kind, data)
        SELECT 0, {_MADE}, {_JOB}, {_TENANT}, kind, data::jsonb
          FROM generate_series(1, :jobs) AS n, (VALUES
              ('accepted', '{{"source": "http", "mode": "ACTION", "queue": "answer", "state": "queued"}}'),
              ('waiting', '{{"queue": "answer", "tier": null}}'),
              ('started', '{{"queue": "answer", "tier": null, "attempt": 1, "wait_seconds": 0.1}}'),
              ('attempt_ended', '{{"queue": "answer", "outcome": "answered", "seconds": 2.5, "cost_nanousd": 4}}'),
              ('ended', '{{"queue": "answer", "state": "answered", "seconds": 3.1, "cost_nanousd": 4000000}}')
          ) AS kinds (kind, data)
    """,
    "audit": f"""
        INSERT INTO audit (at, action, actor, tenant, job_id, tier, prompt, prompt_sha256, input_hash, output_hash,
                           scan, approval, detail, sealed_in)
        SELECT {_MADE}, action, 'tenant:t', {_TENANT}, {_JOB}, NULL, 'Make the header of page ' || n || ' blue',
               {_DIGEST}, 'none', 'none', 'none', 'none', '{{"source": "http"}}', 1
          FROM generate_series(1, :jobs) AS n, (VALUES ('job_accepted'), ('job_ended')) AS actions (action)
    """,
    "release": f"""
        INSERT INTO release (id, site_id, job_id, digest, manifest, total_bytes, signals, scan, scan_passed,
                             scan_digest, created_at, published_at)
        SELECT {_JOB}, {_SITE}, {_JOB}, {_DIGEST}, '{{"v": 1, "files": {{"index.html": "x"}}}}', 1000,
               '{{"files": 1}}', '{{"findings": []}}', true, 'd', {_ENDED}, {_ENDED}
          FROM generate_series(1, :jobs) AS n WHERE n % 10 > 5 AND NOT {_IS_WAITING}
    """,
    "approval": f"""
        INSERT INTO approval (job_id, release_id, scan_digest, decision, actor, reason, at)
        SELECT {_JOB}, {_JOB}, 'd', 'approved', 'reviewer', '', {_ENDED}
          FROM generate_series(1, :jobs) AS n WHERE n % 10 > 5 AND NOT {_IS_OPEN}
    """,
    "cap": f"""
        INSERT INTO cap (scope, key, limit_nanousd, spent_nanousd, reserved_nanousd)
        SELECT 'job', {_JOB}::text, 650000000, 4000000, 0 FROM generate_series(1, :jobs) AS n WHERE {_IS_CALLED}
         UNION ALL
        SELECT 'tenant_day', 't' || n % {TENANTS} || '/' || to_char(now() - interval '1 day' * (n / {TENANTS}),
               'YYYY-MM-DD'), 100000000000, 1, 0 FROM generate_series(0, {TENANTS} * 28 - 1) AS n
    """,
    "notification": f"""
        INSERT INTO notification (job_id, payload, attempts, delivered_at, created_at)
        SELECT {_JOB}, '{{"type": "job.ended"}}', 0, {_ENDED}, {_ENDED}
          FROM generate_series(1, :jobs) AS n WHERE NOT {_IS_OPEN}
    """,
}
"""Each tells of the same jobs by itself, so that they can be made side by side."""

_SIDE_BY_SIDE = 2
_INDEXES = """
    SELECT indexname, indexdef FROM pg_indexes
     WHERE tablename = ANY(%s) AND indexname NOT IN (SELECT conname FROM pg_constraint)
"""


def fill(url: str, jobs: int) -> None:
    """Give an empty, migrated ledger the past of so many jobs.

    Args:
        url: whose; as a superuser, since foreign keys are not checked: they are right by design.
        jobs: how many, the few open ones among them.
    """
    with _connect(url) as connection:
        for statement in _PLACES:
            connection.execute(statement.encode())
        with _without_indexes(connection, list(_ROWS)) as made:
            _together(url, [statement.replace(":jobs", str(jobs)) for statement in _ROWS.values()])
        _together(url, made)
        _together(url, [f"VACUUM (ANALYZE) {table}" for table in _ROWS])


@contextmanager
def _without_indexes(connection: psycopg.Connection, tables: Sequence[str]) -> Iterator[list[str]]:
    """Set aside the indexes that are no constraints; gives the statements that make them again."""
    found = connection.execute(_INDEXES.encode(), [list(tables)]).fetchall()
    for name, _ in found:
        connection.execute(f"DROP INDEX {name}".encode())
    yield [definition.replace(" ON ONLY ", " ON ") for _, definition in found]  # of partitions, too


def _together(url: str, statements: Sequence[str]) -> None:
    def run(statement: str) -> None:
        with _connect(url) as connection:
            connection.execute(statement.encode())

    with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
        for _ in pool.map(run, statements):
            pass


def _connect(url: str) -> psycopg.Connection:
    options = "-c session_replication_role=replica -c maintenance_work_mem=256MB -c work_mem=64MB"
    return psycopg.connect(url, autocommit=True, options=options)

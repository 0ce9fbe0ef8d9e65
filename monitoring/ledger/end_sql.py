"""The statements of an end: what it changes at once, and what is told of it."""

from __future__ import annotations

from monitoring.ledger.events import WORK_CHANNEL
from monitoring.ledger.statement import Statement

_CLOSED = """
    UPDATE attempt SET ended_at = clock_timestamp(), outcome = %(outcome)s, reason = %(reason)s
     WHERE job_id = %(job)s AND ended_at IS NULL
    RETURNING id, queue, tier, number, extract(epoch FROM ended_at - started_at)::float AS seconds
"""

CLOSE = Statement(_CLOSED)

END = Statement(f"""
    WITH ended AS (
        UPDATE job SET state = %(state)s, reason = %(reason)s, detail = %(detail)s,
                       result = CAST(%(result)s AS jsonb), failure_signature = %(signature)s,
                       waiting_since = NULL, pushed_at = NULL, held_for = NULL,
                       held_until = NULL, expires_at = NULL, fence = fence + 1, ended_at = clock_timestamp()
         WHERE id = %(job)s
        RETURNING fence, ended_at, extract(epoch FROM ended_at - created_at)::float AS seconds
    ), freed AS (
        UPDATE site SET lock_job_id = CAST(%(heir)s AS uuid)
         WHERE id = CAST(%(site)s AS uuid) AND lock_job_id = %(job)s
    ), closed AS ({_CLOSED})
    SELECT ended.fence, ended.ended_at, ended.seconds AS job_seconds,
           (SELECT count(*) FROM event WHERE job_id = %(job)s AND kind = %(box)s) AS boxes,
           closed.id, closed.queue, closed.tier, closed.number, closed.seconds
      FROM ended LEFT JOIN closed ON true
""")
"""An update that found the site by its lock would read the whole table: the job's own site is asked."""

TELL = Statement(f"""
    WITH told AS (
        INSERT INTO event (kind, job_id, tenant, data)
        SELECT pair ->> 0, %(job_id)s, %(tenant)s, pair -> 1
          FROM jsonb_array_elements(CAST(%(told)s AS jsonb)) WITH ORDINALITY AS happened (pair, place) ORDER BY place
    ), owed AS (
        INSERT INTO notification (job_id, callback_url, payload, attempts, next_at, delivered_at)
        SELECT %(job_id)s, CAST(%(url)s AS text), CAST(%(payload)s AS jsonb), 0,
               CASE WHEN CAST(%(url)s AS text) IS NOT NULL THEN clock_timestamp() END,
               CASE WHEN CAST(%(url)s AS text) IS NULL THEN clock_timestamp() END
         WHERE CAST(%(payload)s AS text) IS NOT NULL
    ), audited AS (
        INSERT INTO audit (action, actor, tenant, job_id, tier, prompt, prompt_sha256, input_hash, output_hash, scan,
                           approval, detail)
        VALUES (%(action)s, %(actor)s, %(tenant)s, %(job_id)s, %(tier)s, %(prompt)s, %(prompt_sha256)s,
                %(input_hash)s, %(output_hash)s, %(scan)s, %(approval)s, CAST(%(detail)s AS jsonb))
    )
    SELECT pg_notify('{WORK_CHANNEL}', '')
""")

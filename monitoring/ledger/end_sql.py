"""The statements of an end: what it changes at once, and what is told of it."""

from __future__ import annotations

from sqlalchemy import text

from monitoring.ledger.events import WORK_CHANNEL

_CLOSED = """
    UPDATE attempt SET ended_at = clock_timestamp(), outcome = :outcome, reason = :reason
     WHERE job_id = :job AND ended_at IS NULL
    RETURNING id, queue, tier, number, extract(epoch FROM ended_at - started_at)::float AS seconds
"""

CLOSE = text(_CLOSED)

END = text(f"""
    WITH ended AS (
        UPDATE job SET state = :state, reason = :reason, detail = :detail, result = CAST(:result AS jsonb),
                       failure_signature = :signature, waiting_since = NULL, pushed_at = NULL, held_for = NULL,
                       held_until = NULL, expires_at = NULL, fence = fence + 1, ended_at = clock_timestamp()
         WHERE id = :job
        RETURNING fence, ended_at, extract(epoch FROM ended_at - created_at)::float AS seconds
    ), freed AS (
        UPDATE site SET lock_job_id = CAST(:heir AS uuid) WHERE id = CAST(:site AS uuid) AND lock_job_id = :job
    ), closed AS ({_CLOSED})
    SELECT ended.fence, ended.ended_at, ended.seconds AS job_seconds,
           (SELECT count(*) FROM event WHERE job_id = :job AND kind = :box) AS boxes,
           closed.id, closed.queue, closed.tier, closed.number, closed.seconds
      FROM ended LEFT JOIN closed ON true
""")
"""An update that found the site by its lock would read the whole table: the job's own site is asked."""

TELL = text(f"""
    WITH told AS (
        INSERT INTO event (kind, job_id, tenant, data)
        SELECT pair ->> 0, :job_id, :tenant, pair -> 1
          FROM jsonb_array_elements(CAST(:told AS jsonb)) WITH ORDINALITY AS happened (pair, place) ORDER BY place
    ), owed AS (
        INSERT INTO notification (job_id, callback_url, payload, attempts, next_at, delivered_at)
        SELECT :job_id, CAST(:url AS text), CAST(:payload AS jsonb), 0,
               CASE WHEN CAST(:url AS text) IS NOT NULL THEN clock_timestamp() END,
               CASE WHEN CAST(:url AS text) IS NULL THEN clock_timestamp() END
         WHERE CAST(:payload AS text) IS NOT NULL
    ), audited AS (
        INSERT INTO audit (action, actor, tenant, job_id, tier, prompt, prompt_sha256, input_hash, output_hash, scan,
                           approval, detail)
        VALUES (:action, :actor, :tenant, :job_id, :tier, :prompt, :prompt_sha256, :input_hash, :output_hash, :scan,
                :approval, CAST(:detail AS jsonb))
    )
    SELECT pg_notify('{WORK_CHANNEL}', '')
""")

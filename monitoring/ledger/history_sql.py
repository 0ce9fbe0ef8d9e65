"""The queries by which a ledger's history is collected; `histories` says what their columns mean."""

from __future__ import annotations

HORIZONS = """
SELECT clock_timestamp() - make_interval(secs => %(event_seconds)s),
       clock_timestamp() - make_interval(secs => %(audit_seconds)s),
       clock_timestamp() - make_interval(secs => %(job_seconds)s)
"""
"""Before which moments retention may have taken rows. Read first in a transaction: the clock is then read after its
snapshot was taken, so whatever a sweep had taken by then is older."""

# The marks of a wait are named here once; a job that ended has none of them.
JOBS = """
SELECT job.id, job.state, job.queue, job.parent_id IS NOT NULL, job.request ? 'project', job.request_digest = '',
       job.fence, job.ended_at IS NOT NULL, job.ended_at IS NOT NULL AND job.created_at < %(events)s,
       (SELECT coalesce(array_agg(name), '{}') FROM (VALUES
            ('waiting_since', job.waiting_since IS NOT NULL), ('pushed_at', job.pushed_at IS NOT NULL),
            ('expires_at', job.expires_at IS NOT NULL), ('held_for', job.held_for IS NOT NULL),
            ('held_until', job.held_until IS NOT NULL)
        ) AS mark (name, is_set) WHERE is_set),
       (SELECT count(*) FROM notification WHERE job_id = job.id),
       CASE WHEN job.ended_at < %(audit)s THEN NULL
            ELSE (SELECT count(*) FROM audit WHERE job_id = job.id AND action = 'job_ended') END
FROM job WHERE job.id > %(after)s ORDER BY job.id LIMIT %(limit)s
"""

EVENTS = """
SELECT job_id, kind, data ->> 'origin', data ->> 'target', data ->> 'state', CAST(data ->> 'attempt' AS int),
       coalesce(CAST(data ->> 'cost_nanousd' AS bigint), 0), coalesce(CAST(data ->> 'wasted_nanousd' AS bigint), 0)
FROM event WHERE job_id = ANY(%(ids)s) AND kind = ANY(%(kinds)s) ORDER BY job_id, id
"""

ATTEMPTS = """
SELECT job_id, number, fence, outcome, ended_at IS NULL,
       CAST(extract(epoch FROM clock_timestamp() - lease_until) AS float8)
FROM attempt WHERE job_id = ANY(%(ids)s) ORDER BY job_id, number
"""

CALLS = """
SELECT call.job_id, attempt.number, call.state = 'reserved', call.cost_nanousd,
       attempt.job_id = call.job_id
       AND call.caps @> jsonb_build_array(jsonb_build_array('job', job.root_id),
                                          jsonb_build_array('tier', call.job_id || '/' || attempt.queue)),
       CAST(extract(epoch FROM clock_timestamp() - call.lease_until) AS float8)
FROM call JOIN attempt ON attempt.id = call.attempt_id JOIN job ON job.id = call.job_id
WHERE call.job_id = ANY(%(ids)s) ORDER BY call.job_id, call.started_at
"""

WORKS = """
SELECT run_id, CASE WHEN settled_at IS NULL THEN 'a live step' ELSE 'a step to take note of' END
FROM agent_executions WHERE run_id = ANY(%(ids)s) AND absorbed_at IS NULL
UNION ALL SELECT run_id, 'an open gate' FROM gate WHERE run_id = ANY(%(ids)s) AND state = 'open'
"""

CAPS = """
SELECT coalesce(cap.scope, booked.scope) || ' ' || coalesce(cap.key, booked.key), coalesce(cap.limit_nanousd, 0),
       coalesce(spent_nanousd, 0), coalesce(reserved_nanousd, 0), coalesce(spent, 0), coalesce(reserved, 0),
       coalesce(overrun, 0),
       coalesce(cap.scope, booked.scope) IN ('tenant_day', 'key_day', 'fleet_day')
       AND right(coalesce(cap.key, booked.key), 10)
           <= to_char(timezone('UTC', CAST(%(jobs)s AS timestamptz)), 'YYYY-MM-DD')
FROM cap FULL JOIN (
    SELECT pair ->> 0 AS scope, pair ->> 1 AS key,
           coalesce(sum(cost_nanousd) FILTER (WHERE state <> 'reserved'), 0)::bigint AS spent,
           coalesce(sum(reserved_nanousd) FILTER (WHERE state = 'reserved'), 0)::bigint AS reserved,
           sum(greatest(cost_nanousd - reserved_nanousd, 0))::bigint AS overrun
    FROM call, jsonb_array_elements(caps) AS pairs (pair) GROUP BY 1, 2
) AS booked ON booked.scope = cap.scope AND booked.key = cap.key
"""

SITES = """
SELECT site.id, site.active_release_id, site.lock_job_id IS NOT NULL, job.state, site.created_at < %(jobs)s,
       site.created_at >= %(audit)s
FROM site LEFT JOIN job ON job.id = site.lock_job_id ORDER BY site.id
"""

RELEASES = """
SELECT release.site_id, release.id, release.base_release_id, release.scan_passed, release.scan_digest, job.id,
       job.state, job.release_id, approval.release_id, approval.base_release_id, approval.scan_digest,
       coalesce(named.times, 0)
FROM release
LEFT JOIN job ON job.id = release.job_id
LEFT JOIN approval ON approval.job_id = release.job_id AND approval.decision = 'approved'
LEFT JOIN (SELECT release_id, count(*) AS times FROM approval WHERE decision = 'approved' GROUP BY 1) AS named
     ON named.release_id = release.id
WHERE release.published_at IS NOT NULL ORDER BY release.site_id, release.published_at
"""

ROLLBACKS = """
SELECT detail ->> 'release', count(*) FROM audit WHERE action = 'rolled_back' GROUP BY 1
"""

RUNS = "SELECT run.job_id, job.ended_at IS NOT NULL FROM run JOIN job ON job.id = run.job_id"

STEPS = "SELECT run_id, key, state, tries FROM run_step ORDER BY run_id, position"

EXECUTIONS = """
SELECT execution.run_id, execution.step_key, execution.attempt, execution.settled_at IS NOT NULL,
       job.ended_at IS NOT NULL, job.parent_id = execution.run_id AND job.root_id = run.root_id,
       job.cancel_requested_at IS NOT NULL
FROM agent_executions AS execution JOIN job ON job.id = execution.job_id JOIN job AS run ON run.id = execution.run_id
ORDER BY execution.run_id, execution.step_key, execution.attempt
"""

OPEN_GATES = "SELECT run_id, count(*) FROM gate WHERE state = 'open' GROUP BY run_id"

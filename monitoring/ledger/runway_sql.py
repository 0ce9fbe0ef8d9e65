"""The statements of `runway` as the database gets them. Each touches what it needs through an index, whatever waits.

`ready` stands for the condition of the index `ix_job_ready`, `pushed` for that of `ix_job_runway`: written out in each
statement, since the planner takes a partial index only where it can prove its condition.
"""

from __future__ import annotations

from sqlalchemy import text

from routing.queues import QUEUES

IS_READY = "waiting_since IS NOT NULL AND pushed_at IS NULL AND held_for IS NULL"
IS_PUSHED = "waiting_since IS NOT NULL AND pushed_at IS NOT NULL"
AT_WORK = "attempt.ended_at IS NULL AND attempt.queue <> 'control'"
"""The attempts that count against how many a tenant may have: `control` only finishes what has begun."""

LOOK = text(f"""
    SELECT queue,
           NOT EXISTS (SELECT FROM queue_control WHERE queue_control.queue = queues.queue AND paused_at IS NOT NULL)
           AND (SELECT id FROM job WHERE job.queue = queues.queue AND {IS_READY}
                 ORDER BY tenant, priority, created_at LIMIT 1) IS NOT NULL AS has_ready,
           pushed.jobs AS standing,
           coalesce(pushed.first < clock_timestamp() - make_interval(secs => CAST(:older AS double precision)), false)
               AS has_pushed,
           (SELECT EXISTS (SELECT FROM attempt
                            WHERE ended_at IS NULL AND lease_until < (SELECT clock_timestamp()))) AS has_lapsed,
           (SELECT EXISTS (SELECT FROM agent_executions
                            WHERE settled_at IS NOT NULL AND absorbed_at IS NULL)) AS has_settled,
           (SELECT min(held_until) <= clock_timestamp() FROM job WHERE held_until IS NOT NULL) IS TRUE
           OR (SELECT id FROM job WHERE held_for = 'site'
                ORDER BY site_id, queue, priority, created_at LIMIT 1) IS NOT NULL AS has_held
      FROM (VALUES {", ".join(f"('{queue.value}')" for queue in QUEUES)}) AS queues (queue) CROSS JOIN LATERAL (
          SELECT count(*) AS jobs, min(pushed_at) AS first FROM job WHERE job.queue = queues.queue AND {IS_PUSHED}
      ) AS pushed
""")
"""One row is asked for in the whole order of its index: with less the planner may walk another and hope to meet one.

The queues stand in the statement: with an array as a parameter it would be planned anew each time.
"""

SHARES = text(f"""
    WITH RECURSIVE ready AS (
        (SELECT tenant FROM job WHERE queue = :queue AND {IS_READY}
          ORDER BY tenant, priority, created_at LIMIT 1)
        UNION ALL
        SELECT (SELECT job.tenant FROM job WHERE job.queue = :queue AND job.tenant > ready.tenant AND {IS_READY}
                 ORDER BY job.tenant, job.priority, job.created_at LIMIT 1)
          FROM ready WHERE ready.tenant IS NOT NULL
    ), standing AS (
        SELECT tenant, count(*) AS jobs FROM job WHERE queue = :queue AND {IS_PUSHED} GROUP BY tenant
    ), busy AS (
        SELECT tenant FROM ready WHERE tenant IS NOT NULL
        UNION SELECT tenant FROM standing
    ), live AS (
        SELECT job.tenant, count(*) AS attempts FROM attempt JOIN job ON job.id = attempt.job_id
         WHERE {AT_WORK} GROUP BY job.tenant
    ), shares AS (
        SELECT tenant.name AS tenant, tenant.weight, tenant.max_running, coalesce(live.attempts, 0) AS live,
               coalesce(standing.jobs, 0) AS standing, coalesce(backlog.turn, 0) AS turn, NULL AS plans
          FROM busy JOIN tenant ON tenant.name = busy.tenant AND tenant.paused_at IS NULL
          LEFT JOIN live ON live.tenant = tenant.name
          LEFT JOIN standing ON standing.tenant = tenant.name
          LEFT JOIN backlog ON backlog.queue = :queue AND backlog.tenant = tenant.name
        UNION ALL
        SELECT '', 1, NULL, 0, (SELECT coalesce(sum(jobs), 0)::bigint FROM standing),
               coalesce((SELECT turn FROM backlog WHERE queue = :queue AND tenant = ''), 0),
               set_config('plan_cache_mode', 'force_generic_plan', true)
    )
    SELECT * FROM shares
     WHERE NOT EXISTS (SELECT FROM queue_control WHERE queue = :queue AND paused_at IS NOT NULL)
""")
"""The tenants with ready jobs are found one by one through the index, so that this costs what tenants there are.

The row without a tenant's name is of all of them: what stands on the whole queue, and where the order of turns stood.
A queue that is paused has no rows at all. What follows in the transaction keeps its plan, as in `ground`.
"""

READY = text(f"""
    SELECT next.id, next.tenant, next.priority, next.created_at, next.site_id
      FROM unnest(CAST(:tenants AS text[])) AS share (tenant)
     CROSS JOIN LATERAL (
         SELECT id, job.tenant, priority, created_at, site_id FROM job
          WHERE queue = :queue AND job.tenant = share.tenant AND {IS_READY}
          ORDER BY priority, created_at LIMIT :room
     ) AS next
""")

CROWDED = text(f"""
    SELECT asked.job_id FROM unnest(CAST(:jobs AS uuid[]), CAST(:sites AS uuid[])) AS asked (job_id, site_id)
      JOIN site ON site.id = asked.site_id
     WHERE site.lock_job_id IS DISTINCT FROM asked.job_id
       AND (site.lock_job_id IS NOT NULL
            OR EXISTS (SELECT FROM job WHERE job.site_id = asked.site_id AND job.queue = :queue
                          AND job.held_for IS NULL AND {IS_PUSHED}))
""")

PARK = text(f"""
    WITH crowd AS (
        SELECT next.id FROM unnest(CAST(:sites AS uuid[])) AS busy (site_id) CROSS JOIN LATERAL (
            SELECT job.id FROM job
             WHERE job.site_id = busy.site_id AND job.queue = :queue AND {IS_READY}
               AND job.id <> ALL(CAST(:kept AS uuid[]))
               AND job.id IS DISTINCT FROM (SELECT lock_job_id FROM site WHERE site.id = busy.site_id) LIMIT :limit
        ) AS next LIMIT :limit
    ), free AS (
        SELECT id FROM job WHERE id = ANY(ARRAY(SELECT id FROM crowd)) AND {IS_READY} FOR NO KEY UPDATE SKIP LOCKED
    )
    UPDATE job SET held_for = 'site' WHERE id = ANY(ARRAY(SELECT id FROM free))
""")
"""An array of ids, where a join would do: for that the planner may read the whole table.

The job that holds the site's lock, because it waits once more, is never parked: the site is free for nobody else.
"""

MARK = text(f"""
    WITH free AS (
        SELECT id FROM job WHERE id = ANY(CAST(:jobs AS uuid[])) AND {IS_READY} FOR NO KEY UPDATE SKIP LOCKED
    )
    UPDATE job SET pushed_at = clock_timestamp() WHERE id = ANY(ARRAY(SELECT id FROM free)) RETURNING id, fence, trace
""")
"""A job that somebody is about to cancel is left to them: nobody waits for anybody here."""

UNMARK = text("""
    WITH lost AS (
        SELECT job.id FROM unnest(CAST(:jobs AS uuid[]), CAST(:fences AS integer[])) AS asked (id, fence)
          JOIN job ON job.id = asked.id AND job.fence = asked.fence AND job.waiting_since IS NOT NULL
         WHERE job.pushed_at <= clock_timestamp() - make_interval(secs => CAST(:older AS double precision))
           FOR NO KEY UPDATE OF job SKIP LOCKED
    )
    UPDATE job SET pushed_at = NULL WHERE id = ANY(ARRAY(SELECT id FROM lost))
""")

KEEP_TURNS = text("""
    INSERT INTO backlog (queue, tenant, waiting, drained_per_second, turn, counted_at)
    SELECT :queue, kept.tenant, 0, 0, kept.turn, to_timestamp(0)
      FROM unnest(CAST(:tenants AS text[]), CAST(:turns AS double precision[])) AS kept (tenant, turn)
    ON CONFLICT (queue, tenant) DO UPDATE SET turn = greatest(backlog.turn, excluded.turn)
""")

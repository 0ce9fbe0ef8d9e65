"""The statements by which rows leave the ledger; `sweeping` says when. Each is bounded, and looks at an index."""

from __future__ import annotations

from sqlalchemy import text

ENDED = text("""
    SELECT id, root_id, ended_at FROM job
     WHERE ended_at < (SELECT clock_timestamp() - make_interval(secs => :seconds))
       AND ended_at >= :at AND (ended_at, id) > (:at, :id)
     ORDER BY ended_at, id LIMIT :limit
""")

LOCK = text("""
    SELECT id, root_id FROM job WHERE root_id = ANY(:roots) ORDER BY id FOR UPDATE SKIP LOCKED
""")

MEMBERS = text("SELECT root_id, count(*) FROM job WHERE root_id = ANY(:roots) GROUP BY root_id")

# A release whose files are there is still needed: to be shown, gone back to, or gone on from.
NEEDED = text("""
    SELECT DISTINCT job.root_id FROM job
     WHERE job.root_id = ANY(:roots) AND (
        job.ended_at IS NULL
        OR job.ended_at >= clock_timestamp() - make_interval(secs => :seconds)
        OR (job.failure_signature IS NOT NULL AND job.dismissed_at IS NULL
            AND job.ended_at >= clock_timestamp() - make_interval(secs => :dead_seconds))
        OR EXISTS (SELECT FROM site WHERE site.lock_job_id = job.id)
        OR EXISTS (SELECT FROM notification AS note
                    WHERE note.job_id = job.id AND note.delivered_at IS NULL AND note.next_at IS NOT NULL)
        OR EXISTS (SELECT FROM ticket_note AS note
                    WHERE note.run_id = job.id AND note.delivered_at IS NULL AND note.next_at IS NOT NULL)
        OR EXISTS (SELECT FROM call WHERE call.job_id = job.id AND call.state = 'reserved')
        OR EXISTS (SELECT FROM event WHERE event.job_id = job.id AND event.xid >= :mark)
        OR EXISTS (SELECT FROM release JOIN site ON site.id = release.site_id
                     LEFT JOIN release AS active ON active.id = site.active_release_id
                    WHERE release.job_id = job.id AND (release.swept_at IS NULL
                          OR release.id IN (site.active_release_id, site.shown_release_id, active.base_release_id)
                          OR EXISTS (SELECT FROM job AS live WHERE live.site_id = site.id AND live.ended_at IS NULL
                                        AND release.id IN (live.release_id, live.base_release_id,
                                                           live.start_release_id))))
     )
""")

CAPS = text("""
    DELETE FROM cap USING unnest(CAST(:scopes AS text[]), CAST(:keys AS text[])) AS gone (scope, key)
     WHERE cap.scope = gone.scope AND cap.key = gone.key
""")

EVENTS = text("""
    WITH page AS MATERIALIZED (SELECT id, at, xid, job_id FROM event WHERE id > :after ORDER BY id LIMIT :limit),
    gone AS (
        DELETE FROM event USING page LEFT JOIN job ON job.id = page.job_id
         WHERE event.id = page.id AND page.xid < :mark AND (job.id IS NULL OR job.ended_at IS NOT NULL)
           AND page.at < clock_timestamp() - make_interval(secs => :seconds)
        RETURNING event.id
    )
    SELECT (SELECT max(id) FROM page), (SELECT count(*) FROM gone),
           (SELECT count(*) = :limit AND max(at) < clock_timestamp() - make_interval(secs => :seconds) FROM page)
""")

NEXT_EVENTS = text("""
    SELECT max(id), 0, count(*) = :limit FROM (SELECT id FROM event WHERE id > :after ORDER BY id LIMIT :limit) AS page
""")

# Rows that belong to no job. Each statement is bounded; a pass looks at them once. What a release needs is looked up
# for each that was swept, by scalar subqueries: joins would read all jobs and releases to find the few.
ODDMENTS = (
    text("""
        DELETE FROM cap WHERE (scope, key) IN (
            SELECT scope, key FROM cap WHERE scope IN ('tenant_day', 'key_day', 'fleet_day') AND reserved_nanousd = 0
               AND right(key, 10) < to_char(timezone('UTC', clock_timestamp() - make_interval(secs => :seconds)),
                                            'YYYY-MM-DD') LIMIT :limit)
    """),
    text("""
        DELETE FROM task_failure WHERE key IN (
            SELECT key FROM task_failure WHERE updated_at < clock_timestamp() - make_interval(secs => :seconds)
             LIMIT :limit)
    """),
    text("""
        DELETE FROM lane WHERE greatest(changed_at, filled_at) < clock_timestamp() - make_interval(secs => :seconds)
           AND coalesce(parked_until, '-infinity') < clock_timestamp()
    """),
    text("""
        DELETE FROM backlog WHERE waiting = 0 AND counted_at < clock_timestamp() - make_interval(secs => :seconds)
    """),
    text("""
        DELETE FROM release WHERE id IN (
            SELECT release.id FROM release JOIN site ON site.id = release.site_id
             WHERE release.swept_at < (SELECT clock_timestamp() - make_interval(secs => :seconds))
               AND (SELECT job.id FROM job WHERE job.id = release.job_id) IS NULL
               AND release.id IS DISTINCT FROM site.active_release_id
               AND release.id IS DISTINCT FROM site.shown_release_id
               AND release.id IS DISTINCT FROM
                   (SELECT active.base_release_id FROM release AS active WHERE active.id = site.active_release_id)
               AND NOT EXISTS (SELECT FROM job WHERE job.site_id = site.id
                                  AND release.id IN (job.release_id, job.base_release_id, job.start_release_id))
             LIMIT :limit)
    """),
)

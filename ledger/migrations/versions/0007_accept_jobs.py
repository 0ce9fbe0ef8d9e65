"""Jobs are accepted by one function, in one round trip.

Its name carries a version: a change of it is a new function, so that old and new processes work side by side. What its
values mean is said where it is called, in `ledger.submission`. One row is asked for in the order of an index, not
EXISTS: without that the planner reads another index.
"""

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

ACCEPT = """
CREATE FUNCTION pointsman_accept_1(
    p_tenant text, p_jobs jsonb, p_events jsonb, p_audit jsonb, p_limits jsonb, p_seen jsonb
) RETURNS TABLE (is_new boolean, is_pushed boolean, shortage jsonb)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_site uuid;
    asked record;
    room record;
    v_queue text;
    v_taken int;
    v_openings int;
    v_cheapest bigint;
    v_holds text[];
    v_pushed boolean[];
    v_shortages jsonb[];
    v_new uuid[];
BEGIN
    IF p_seen IS NOT NULL THEN
        SELECT site.id INTO v_site
          FROM tenant LEFT JOIN site ON site.tenant = tenant.name AND site.name = p_seen ->> 'site'
          LEFT JOIN release ON release.id = site.active_release_id
         WHERE tenant.name = p_tenant AND tenant.overrides = p_seen -> 'overrides'
           AND (p_seen ->> 'site' IS NULL
                OR site.id IS NOT NULL AND coalesce(release.signals, '{}') = p_seen -> 'signals')
           AND (p_seen ->> 'key' IS NULL OR EXISTS (
                SELECT FROM api_key WHERE api_key.id = (p_seen ->> 'key')::uuid AND api_key.tenant = p_tenant
                   AND api_key.scopes = p_seen -> 'scopes' AND revoked_at IS NULL));
        IF NOT FOUND THEN
            RETURN;
        END IF;
    END IF;

    FOR asked IN
        SELECT each.*, CAST(NULL AS jsonb) AS shortage,
               row_number() OVER (PARTITION BY each.queue, each.writes ORDER BY each.place) > 1 AS is_second
          FROM (SELECT one.place, one.facts ->> 'queue' AS queue, one.facts ->> 'held_for' AS hold,
                       (one.facts ->> 'is_placed')::boolean AS is_placed,
                       (one.facts ->> 'is_pushed')::boolean AS pushed,
                       CASE WHEN (one.facts ->> 'is_writing')::boolean
                            THEN coalesce(v_site, (one.facts ->> 'site_id')::uuid) END AS writes
                  FROM jsonb_array_elements(p_jobs) WITH ORDINALITY AS one (facts, place)) AS each
         ORDER BY each.queue, each.place
    LOOP
        IF asked.is_placed THEN
            IF v_queue IS DISTINCT FROM asked.queue THEN
                v_queue := asked.queue;
                v_taken := 0;
                v_cheapest := p_limits -> 'cheapest' ->> asked.queue;
                SELECT coalesce(own.waiting, 0) AS own_waiting, coalesce(own.drained_per_second, 0) AS own_rate,
                       coalesce(everyone.waiting, 0) AS waiting, coalesce(everyone.drained_per_second, 0) AS rate,
                       coalesce((SELECT spent_nanousd FROM cap WHERE scope = 'tenant_day'
                                    AND key = p_tenant || '/' || utc.day), 0) AS own_spent,
                       coalesce((SELECT spent_nanousd FROM cap WHERE scope = 'fleet_day'
                                    AND key = utc.day), 0) AS spent,
                       greatest(1, ceil(extract(epoch FROM date_trunc('day', utc.today) + interval '1 day'
                                                           - utc.today)))::int AS seconds_left,
                       CASE WHEN tenant.paused_at IS NOT NULL
                              OR EXISTS (SELECT FROM queue_control
                                          WHERE queue = asked.queue AND paused_at IS NOT NULL)
                              OR (SELECT id FROM job WHERE queue = asked.queue AND job.tenant = p_tenant
                                     AND waiting_since IS NOT NULL AND pushed_at IS NULL AND held_for IS NULL
                                   ORDER BY priority, created_at LIMIT 1) IS NOT NULL
                            THEN 0
                            ELSE (SELECT least(
                                      (p_limits ->> 'per_queue')::int - pushed.jobs,
                                      (p_limits ->> 'per_tenant')::int * tenant.weight - pushed.own,
                                      CASE WHEN asked.queue <> 'control'
                                           THEN coalesce(tenant.max_running,
                                                         (p_limits ->> 'running_per_tenant')::int)
                                                - pushed.own - (
                                                SELECT count(*) FROM attempt JOIN job ON job.id = attempt.job_id
                                                 WHERE attempt.ended_at IS NULL AND attempt.queue <> 'control'
                                                   AND job.tenant = p_tenant) END)
                                    FROM (SELECT count(*) AS jobs,
                                                 count(*) FILTER (WHERE job.tenant = p_tenant) AS own
                                            FROM job WHERE queue = asked.queue AND waiting_since IS NOT NULL
                                                       AND pushed_at IS NOT NULL) AS pushed)
                       END AS openings
                  INTO room
                  FROM tenant
                 CROSS JOIN (SELECT today, to_char(today, 'YYYY-MM-DD') AS day
                               FROM timezone('UTC', clock_timestamp()) AS clock (today)) AS utc
                  LEFT JOIN backlog AS own ON own.queue = asked.queue AND own.tenant = tenant.name
                  LEFT JOIN backlog AS everyone ON everyone.queue = asked.queue AND everyone.tenant = ''
                 WHERE tenant.name = p_tenant;
                v_openings := room.openings;
            END IF;
            IF room.own_waiting + v_taken >= (p_limits ->> 'waiting_per_tenant')::int
               OR room.waiting + v_taken >= (p_limits ->> 'waiting_per_queue')::int
               OR room.own_spent + v_cheapest > (p_limits ->> 'tenant_day')::bigint
               OR room.spent + v_cheapest > (p_limits ->> 'fleet_day')::bigint THEN
                asked.shortage := to_jsonb(room) || jsonb_build_object('taken', v_taken);
            ELSE
                v_taken := v_taken + 1;
                IF asked.writes IS NOT NULL AND (
                    asked.is_second
                    OR EXISTS (SELECT FROM site WHERE id = asked.writes AND lock_job_id IS NOT NULL)
                    OR (SELECT id FROM job WHERE site_id = asked.writes AND queue = asked.queue
                           AND waiting_since IS NOT NULL AND held_for IS NULL
                         ORDER BY site_id, queue LIMIT 1) IS NOT NULL
                    OR (SELECT id FROM job WHERE site_id = asked.writes AND queue = asked.queue AND held_for = 'site'
                         ORDER BY priority LIMIT 1) IS NOT NULL
                ) THEN
                    asked.hold := 'site';
                END IF;
                asked.pushed := asked.hold IS NULL AND v_openings > 0;
                IF asked.pushed THEN
                    v_openings := v_openings - 1;
                END IF;
            END IF;
        END IF;
        v_holds[asked.place] := asked.hold;
        v_shortages[asked.place] := asked.shortage;
        v_pushed[asked.place] := asked.pushed;
    END LOOP;

    WITH written AS (
        INSERT INTO job (
            id, tenant, door, requested_by, state, prompt, request, request_digest, idempotency_key, priority, site_id,
            parent_id, root_id, route, mode, tier, queue, fence, waiting_since, pushed_at, held_for, held_until,
            supersede_key, lost_attempts, cap_nanousd, start_release_id, clarification, expires_at, result, trace,
            created_at)
        SELECT new.id, new.tenant, new.door, new.requested_by, new.state, new.prompt, new.request, new.request_digest,
               new.idempotency_key, new.priority, coalesce(v_site, new.site_id), new.parent_id, new.root_id, new.route,
               new.mode, new.tier, new.queue, 0,
               CASE WHEN (one.facts ->> 'waits')::boolean
                    THEN greatest(clock_timestamp(), CASE WHEN one.hold = 'time' THEN new.held_until END) END,
               CASE WHEN one.is_pushed THEN clock_timestamp() END, one.hold, new.held_until, new.supersede_key, 0,
               new.cap_nanousd, new.start_release_id, new.clarification,
               clock_timestamp() + make_interval(secs => (one.facts ->> 'open_seconds')::float),
               new.result, new.trace, now() + make_interval(secs => 0.000001 * one.place)
          FROM ROWS FROM (jsonb_array_elements(p_jobs), unnest(v_holds, v_pushed, v_shortages)) WITH ORDINALITY
               AS one (facts, hold, is_pushed, shortage, place)
         CROSS JOIN LATERAL jsonb_populate_record(CAST(NULL AS job), one.facts) AS new
         WHERE one.shortage IS NULL
         ORDER BY new.idempotency_key, one.place
            ON CONFLICT DO NOTHING RETURNING id
    )
    SELECT coalesce(array_agg(written.id), '{}') INTO v_new FROM written;
    IF v_new <> '{}' THEN
        INSERT INTO event (kind, job_id, tenant, data)
        SELECT happened.kind, happened.job_id, happened.tenant, happened.data
          FROM jsonb_populate_recordset(CAST(NULL AS event), p_events) WITH ORDINALITY AS happened
          JOIN unnest(v_new) AS new (id) ON new.id = happened.job_id ORDER BY happened.ordinality;
        INSERT INTO audit (action, actor, tenant, job_id, tier, prompt, prompt_sha256, input_hash, output_hash, scan,
                           approval, detail)
        SELECT done.action, done.actor, done.tenant, done.job_id, done.tier, done.prompt, done.prompt_sha256,
               done.input_hash, done.output_hash, done.scan, done.approval, done.detail
          FROM jsonb_populate_recordset(CAST(NULL AS audit), p_audit) WITH ORDINALITY AS done
          JOIN unnest(v_new) AS new (id) ON new.id = done.job_id ORDER BY done.ordinality;
    END IF;
    RETURN QUERY
        SELECT new.id IS NOT NULL, one.is_pushed, one.shortage
          FROM ROWS FROM (jsonb_array_elements(p_jobs), unnest(v_holds, v_pushed, v_shortages)) WITH ORDINALITY
               AS one (facts, hold, is_pushed, shortage, place)
          LEFT JOIN unnest(v_new) AS new (id) ON new.id = (one.facts ->> 'id')::uuid
         ORDER BY one.place;
END $$
"""


def upgrade() -> None:
    op.execute(ACCEPT)

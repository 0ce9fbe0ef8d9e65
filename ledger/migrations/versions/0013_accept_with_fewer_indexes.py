"""Jobs are accepted by simpler statements; their row has five index entries fewer and no foreign keys.

An index leaves out what it never serves: jobs without a key, without a parent, on a bill of their own. Tenants and
sites are never deleted, so that a job's, which the function has just read, stay where they are; to check that wrote a
lock on both rows.

One row is asked for in the order of an index, not EXISTS: without that the planner reads another.
"""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

ACCEPT = """
CREATE FUNCTION pointsman_accept_3(
    p_tenant text, p_actor text, p_jobs jsonb, p_routes jsonb, p_shown jsonb, p_limits jsonb, p_seen jsonb
) RETURNS jsonb LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := clock_timestamp();
    v_day text := to_char(timezone('UTC', v_now), 'YYYY-MM-DD');
    v_site uuid;
    asked record;
    room record;
    v_queue text;
    v_taken int;
    v_cheapest bigint;
    v_holds text[];
    v_pushed boolean[];
    v_shortages jsonb := '{}';
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
            RETURN NULL;
        END IF;
    END IF;

    FOR asked IN
        SELECT place, queue, is_pushed, is_placed, CASE WHEN writes AND (
                   follows
                   OR (SELECT lock_job_id FROM site WHERE id = coalesce(v_site, new.site_id)) IS NOT NULL
                   OR (SELECT id FROM job WHERE site_id = coalesce(v_site, new.site_id) AND queue = new.queue
                          AND held_for IS NULL AND waiting_since IS NOT NULL AND ended_at IS NULL
                        ORDER BY site_id, queue, held_for LIMIT 1) IS NOT NULL
                   OR (SELECT id FROM job WHERE site_id = coalesce(v_site, new.site_id) AND queue = new.queue
                          AND held_for = 'site' ORDER BY priority LIMIT 1) IS NOT NULL)
               THEN 'site' ELSE held_for END AS hold
          FROM jsonb_to_recordset(p_jobs) AS new (
                   place int, queue text, site_id uuid, held_for text, is_pushed boolean, is_placed boolean,
                   writes boolean, follows boolean)
         ORDER BY queue, place
    LOOP
        v_holds[asked.place] := asked.hold;
        v_pushed[asked.place] := asked.is_pushed;
        CONTINUE WHEN NOT asked.is_placed;
        IF v_queue IS DISTINCT FROM asked.queue THEN
            v_queue := asked.queue;
            v_taken := 0;
            v_cheapest := p_limits -> 'cheapest' ->> asked.queue;
            SELECT coalesce((SELECT waiting FROM backlog WHERE queue = v_queue AND tenant = p_tenant), 0)
                       AS own_waiting,
                   coalesce((SELECT waiting FROM backlog WHERE queue = v_queue AND tenant = ''), 0) AS waiting,
                   coalesce((SELECT spent_nanousd FROM cap WHERE scope = 'tenant_day'
                                AND key = p_tenant || '/' || v_day), 0) AS own_spent,
                   coalesce((SELECT spent_nanousd FROM cap WHERE scope = 'fleet_day' AND key = v_day), 0) AS spent,
                   CASE WHEN tenant.paused_at IS NOT NULL
                          OR EXISTS (SELECT FROM queue_control WHERE queue = v_queue AND paused_at IS NOT NULL)
                          OR (SELECT id FROM job WHERE queue = v_queue AND job.tenant = p_tenant
                                 AND waiting_since IS NOT NULL AND pushed_at IS NULL AND held_for IS NULL
                               ORDER BY priority, created_at LIMIT 1) IS NOT NULL
                        THEN 0
                        ELSE (SELECT least(
                                  (p_limits ->> 'per_queue')::int - pushed.jobs,
                                  (p_limits ->> 'per_tenant')::int * tenant.weight - pushed.own,
                                  CASE WHEN v_queue <> 'control'
                                       THEN coalesce(tenant.max_running, (p_limits ->> 'running_per_tenant')::int)
                                            - pushed.own - (
                                            SELECT count(*) FROM attempt JOIN job ON job.id = attempt.job_id
                                             WHERE attempt.ended_at IS NULL AND attempt.queue <> 'control'
                                               AND job.tenant = p_tenant) END)
                                FROM (SELECT count(*) AS jobs, count(*) FILTER (WHERE job.tenant = p_tenant) AS own
                                        FROM job WHERE queue = v_queue AND waiting_since IS NOT NULL
                                                   AND pushed_at IS NOT NULL) AS pushed)
                   END AS openings
              INTO room FROM tenant WHERE tenant.name = p_tenant;
        END IF;
        IF room.own_waiting + v_taken >= (p_limits ->> 'waiting_per_tenant')::int
           OR room.waiting + v_taken >= (p_limits ->> 'waiting_per_queue')::int
           OR room.own_spent + v_cheapest > (p_limits ->> 'tenant_day')::bigint
           OR room.spent + v_cheapest > (p_limits ->> 'fleet_day')::bigint THEN
            v_shortages := v_shortages || jsonb_build_object(asked.place, to_jsonb(room) || jsonb_build_object(
                'taken', v_taken,
                'own_rate', coalesce((SELECT drained_per_second FROM backlog
                                       WHERE queue = v_queue AND tenant = p_tenant), 0),
                'rate', coalesce((SELECT drained_per_second FROM backlog WHERE queue = v_queue AND tenant = ''), 0),
                'seconds_left', greatest(1, ceil(extract(epoch FROM
                    date_trunc('day', timezone('UTC', v_now)) + interval '1 day' - timezone('UTC', v_now))))::int));
            CONTINUE;
        END IF;
        v_taken := v_taken + 1;
        v_pushed[asked.place] := asked.hold IS NULL AND room.openings > 0;
        room.openings := room.openings - v_pushed[asked.place]::int;
    END LOOP;

    WITH written AS (
        INSERT INTO job (
            id, tenant, source, requested_by, state, prompt, request, request_digest, idempotency_key, priority,
            site_id, parent_id, root_id, route, mode, tier, queue, fence, waiting_since, pushed_at, held_for,
            held_until, supersede_key, lost_attempts, cap_nanousd, start_release_id, clarification, expires_at, result,
            trace, created_at)
        SELECT id, p_tenant, source, requested_by, state, prompt, request, request_digest, idempotency_key, priority,
               coalesce(v_site, site_id), parent_id, root_id, p_routes -> route, mode, tier, queue, 0,
               CASE WHEN waits
                    THEN greatest(v_now + place * interval '1 us',
                                  CASE WHEN v_holds[place] = 'time' THEN held_until END) END,
               CASE WHEN v_pushed[place] THEN v_now + place * interval '1 us' END, v_holds[place], held_until,
               supersede_key, 0, cap_nanousd, start_release_id, clarification,
               v_now + make_interval(secs => open_seconds), result, trace, v_now + place * interval '1 us'
          FROM jsonb_to_recordset(p_jobs) AS new (
                   place int, id uuid, source text, requested_by text, state text, prompt text, request jsonb,
                   request_digest text, idempotency_key text, priority text, site_id uuid, parent_id uuid,
                   root_id uuid, route int, mode text, tier int, queue text, waits boolean, held_until timestamptz,
                   supersede_key text, cap_nanousd bigint, start_release_id uuid, clarification jsonb,
                   open_seconds float, result jsonb, trace text)
         WHERE v_shortages = '{}' OR NOT v_shortages ? place::text
            ON CONFLICT DO NOTHING
        RETURNING id, source, state, prompt, route, mode, tier, queue, waiting_since
    ), told AS (
        INSERT INTO event (kind, job_id, tenant, data)
        SELECT kind, id, p_tenant, data || jsonb_build_object('queue', queue, 'tier', tier)
          FROM written CROSS JOIN LATERAL (VALUES
               ('accepted', jsonb_build_object('source', source, 'state', state, 'confidence', route -> 'confidence',
                    'mode', CASE WHEN p_shown -> id::text ? 'mode' THEN NULL ELSE mode END)),
               ('waiting', '{}')) AS event (kind, data)
         WHERE kind = 'accepted' OR waiting_since IS NOT NULL
    ), audited AS (
        INSERT INTO audit (action, actor, tenant, job_id, tier, prompt, prompt_sha256, input_hash, output_hash, scan,
                           approval, detail)
        SELECT 'job_accepted', p_actor, p_tenant, id, tier, coalesce(p_shown -> id::text ->> 'prompt', prompt),
               encode(sha256(convert_to(prompt, 'UTF8')), 'hex'), 'none', 'none', 'none', 'none',
               jsonb_build_object('source', source, 'route', coalesce(p_shown -> id::text -> 'route', route))
          FROM written
    )
    SELECT array_agg(id) INTO v_new FROM written;
    RETURN jsonb_build_object('new', v_new, 'pushed', v_pushed, 'shortages', v_shortages);
END $$
"""


def upgrade() -> None:
    for name, columns, where in (
        ("ix_job_bill", ["root_id"], "root_id <> id"),
        ("ix_job_at_site", ["site_id", "queue", "held_for"], "site_id IS NOT NULL AND ended_at IS NULL"),
    ):
        op.create_index(name, "job", columns, postgresql_where=sa.text(where))
    has_key, has_parent = sa.text("idempotency_key IS NOT NULL"), sa.text("parent_id IS NOT NULL AND queue <> 'steps'")
    op.create_index("uq_job_key", "job", ["tenant", "idempotency_key"], unique=True, postgresql_where=has_key)
    op.create_index("uq_job_next", "job", ["parent_id"], unique=True, postgresql_where=has_parent)
    for name in ("uq_job_parent", "ix_job_root_id", "ix_job_site_next", "ix_job_open_site"):
        op.drop_index(name, "job")
    op.execute(ACCEPT)
    for name in ("job_tenant_idempotency_key_key", "job_tenant_fkey", "job_site_id_fkey"):
        op.drop_constraint(name, "job", if_exists=True)

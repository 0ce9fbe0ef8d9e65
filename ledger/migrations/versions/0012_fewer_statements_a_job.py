"""A claim and an ordinary end run fewer statements, with plans that are kept; indexes leave out what they never serve.

What each value means is said in `ledger.start_attempt`. A job without a site is in neither of the two, which
each of its moves would write anew.
"""

from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

CLAIM = """
CREATE FUNCTION pointsman_claim_2(
    p_job uuid, p_fence integer, p_queue text, p_worker text, p_attempt uuid, p_token_hash text, p_overrides jsonb,
    p_lease_seconds float8, p_hard_seconds float8, p_running integer, p_per_queue integer, p_per_tenant integer,
    p_writes boolean, p_may_be_lost boolean
) RETURNS json LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    held job%ROWTYPE;
    payer record;
    began attempt%ROWTYPE;
    is_locked boolean := p_queue = 'control';
    target text;
    waited float8;
    base uuid;
BEGIN
    IF p_may_be_lost THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    SELECT * INTO held FROM job WHERE id = p_job FOR UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;
    ELSIF held.fence <> p_fence OR held.waiting_since IS NULL OR held.queue <> p_queue
            OR held.held_for IN ('time', 'provider') THEN
        INSERT INTO event (kind, job_id, tenant, data)
        VALUES ('fenced', held.id, held.tenant, jsonb_build_object('queue', p_queue, 'fence', p_fence));
        RETURN NULL;
    END IF;
    LOOP
        SELECT tenant.overrides, tenant.weight, coalesce(tenant.max_running, p_running, 1000000) AS most,
               (SELECT count(*) FROM attempt JOIN job ON job.id = attempt.job_id
                 WHERE attempt.ended_at IS NULL AND attempt.queue <> 'control' AND job.tenant = held.tenant) AS live,
               fleet.slots, fleet.is_known,
               tenant.paused_at IS NOT NULL
               OR EXISTS (SELECT FROM queue_control WHERE queue = p_queue AND paused_at IS NOT NULL) AS is_paused
          INTO payer
          FROM tenant CROSS JOIN (SELECT coalesce(sum(worker.slots), 0) AS slots,
                                         coalesce(bool_or(id = p_worker), false) AS is_known FROM worker) AS fleet
         WHERE tenant.name = held.tenant;
        EXIT WHEN is_locked OR payer.live + payer.slots <= payer.most AND payer.is_known;
        PERFORM FROM tenant WHERE name = held.tenant FOR NO KEY UPDATE;
        is_locked := true;
    END LOOP;
    IF payer.overrides <> p_overrides THEN
        RETURN json_build_object('tenant', held.tenant, 'overrides', payer.overrides::text);
    ELSIF p_writes AND held.site_id IS NULL THEN
        RETURN json_build_object('tenant', held.tenant);
    ELSIF payer.is_paused OR p_queue <> 'control' AND payer.live >= payer.most THEN
        UPDATE job SET pushed_at = NULL WHERE id = held.id;
        RETURN NULL;
    END IF;
    IF p_writes THEN
        UPDATE site SET lock_job_id = held.id
         WHERE id = held.site_id AND (lock_job_id IS NULL OR lock_job_id = held.id);
        IF NOT FOUND THEN
            UPDATE job SET pushed_at = NULL, held_for = 'site', held_until = NULL WHERE id = held.id;
            RETURN NULL;
        END IF;
    END IF;

    base := held.base_release_id;
    IF base IS NULL AND held.site_id IS NOT NULL AND p_queue <> 'control' THEN
        base := (SELECT active_release_id FROM site WHERE id = held.site_id);
    END IF;
    target := CASE held.state WHEN 'queued' THEN 'running' ELSE held.state END;
    waited := extract(epoch FROM clock_timestamp() - held.waiting_since);
    UPDATE job SET fence = p_fence + 1, state = target, waiting_since = NULL, pushed_at = NULL, held_for = NULL,
                   held_until = NULL, started_at = coalesce(started_at, clock_timestamp()),
                   base_release_id = CASE p_queue WHEN 'intake' THEN base_release_id ELSE base END
     WHERE id = held.id;
    INSERT INTO attempt (id, job_id, number, queue, tier, fence, worker, token_hash, lease_until, deadline)
    VALUES (p_attempt, held.id, (SELECT coalesce(max(number), 0) + 1 FROM attempt WHERE job_id = held.id),
            p_queue, held.tier, p_fence + 1, p_worker, p_token_hash,
            clock_timestamp() + make_interval(secs => p_lease_seconds),
            clock_timestamp() + make_interval(secs => p_hard_seconds))
    RETURNING * INTO began;
    INSERT INTO event (kind, job_id, tenant, data)
    SELECT happened.kind, held.id, held.tenant, happened.data FROM (VALUES
        ('state', jsonb_build_object('origin', held.state, 'target', target, 'reason', NULL, 'queue', p_queue)),
        ('started', jsonb_build_object('queue', p_queue, 'tier', held.tier, 'attempt', began.number,
                                       'wait_seconds', round(waited::numeric, 3)::float8))
    ) AS happened (kind, data) WHERE happened.kind <> 'state' OR target <> held.state;
    IF held.queue = 'steps' AND held.parent_id IS NOT NULL THEN
        UPDATE agent_executions SET status = 'running', started_at = clock_timestamp() WHERE job_id = held.id;
        INSERT INTO event (kind, job_id, tenant, data)
        VALUES ('run_step', held.id, held.tenant, jsonb_build_object('status', 'running'));
    END IF;
    RETURN (
        SELECT json_build_object(
            'is_low', ready.id IS NOT NULL
                AND pushed.jobs <= p_per_queue / 2 AND pushed.own <= p_per_tenant * payer.weight / 2,
            'waited_seconds', waited, 'number', began.number, 'started_at', began.started_at,
            'booked_nanousd', (SELECT spent_nanousd + reserved_nanousd FROM cap
                                WHERE scope = 'job' AND key = held.root_id::text),
            'site', (SELECT to_json(site) FROM site WHERE id = held.site_id),
            'base', (SELECT to_json(release) FROM release WHERE id = base AND p_queue <> 'control'),
            'begun', (SELECT to_json(release) FROM release WHERE id = held.start_release_id AND p_queue <> 'control'),
            'job', json_build_object(
                'tenant', held.tenant, 'state', target, 'prompt', held.prompt, 'request', held.request,
                'priority', held.priority, 'site_id', held.site_id, 'parent_id', held.parent_id,
                'root_id', held.root_id, 'route', held.route, 'mode', held.mode, 'tier', held.tier,
                'queue', held.queue, 'result', held.result, 'cap_nanousd', held.cap_nanousd,
                'base_release_id', held.base_release_id, 'start_release_id', held.start_release_id,
                'supersede_key', held.supersede_key, 'trace', held.trace, 'clarification', held.clarification,
                'first_prompt', CASE WHEN held.root_id <> held.id
                                     THEN (SELECT prompt FROM job WHERE job.id = held.root_id) END))
          FROM (SELECT (SELECT id FROM job
                         WHERE queue = p_queue AND waiting_since IS NOT NULL AND pushed_at IS NULL AND held_for IS NULL
                         ORDER BY tenant, priority, created_at LIMIT 1)) AS ready (id)
         CROSS JOIN LATERAL (
               SELECT count(*) AS jobs, count(*) FILTER (WHERE job.tenant = held.tenant) AS own FROM job
                WHERE ready.id IS NOT NULL AND queue = p_queue AND waiting_since IS NOT NULL AND pushed_at IS NOT NULL
         ) AS pushed
    );
END $$
"""
"""Near a tenant's limit its claims are counted one after the other: two at once would both see the last free place.

Where all slots of the fleet fit below the limit, claims need not wait for each other's commit. A worker that is not in
the registry counts as slots that nobody knows. Each statement has a snapshot of its own: what is counted under a lock
is what stands there. Intake does not hold the site: the base of its job may still change.
"""

END = """
CREATE FUNCTION pointsman_end_2(
    p_job uuid, p_attempt uuid, p_state text, p_reason text, p_detail text, p_facts jsonb, p_signature text,
    p_limit text, p_output_bytes bigint, p_wasted text[], p_task_key text, p_prompt text
) RETURNS text LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    held job%ROWTYPE;
    ended job%ROWTYPE;
    closed attempt%ROWTYPE;
    calls record;
    url text;
BEGIN
    SELECT * INTO held FROM job WHERE id = p_job FOR UPDATE;
    IF held.state <> 'running' OR held.cancel_requested_at IS NOT NULL OR held.superseded_by IS NOT NULL
            OR held.supersede_key IS NOT NULL OR held.release_id IS NOT NULL THEN
        RETURN CASE WHEN EXISTS (SELECT FROM attempt WHERE id = p_attempt AND job_id = held.id AND fence = held.fence)
                    THEN 'more follows' ELSE 'fenced' END;
    END IF;
    UPDATE attempt SET ended_at = clock_timestamp(), outcome = p_state, reason = p_reason
     WHERE id = p_attempt AND job_id = held.id AND fence = held.fence AND ended_at IS NULL
    RETURNING * INTO closed;
    IF NOT FOUND THEN
        RETURN 'fenced';
    END IF;
    SELECT coalesce(sum(cost_nanousd), 0) AS cost,
           coalesce(sum(cost_nanousd) FILTER (WHERE attempt_id = p_attempt), 0) AS own,
           coalesce(sum(cost_nanousd) FILTER (WHERE attempt.outcome <> ALL(p_wasted)), 0) AS wasted
      INTO calls FROM call JOIN attempt ON attempt.id = call.attempt_id WHERE call.job_id = held.id;
    UPDATE job SET state = p_state, reason = p_reason, detail = p_detail,
                   result = (held.result - '{retrying,paid_replies}'::text[]) || p_facts,
                   failure_signature = p_signature, waiting_since = NULL, pushed_at = NULL, held_for = NULL,
                   held_until = NULL, expires_at = NULL, fence = held.fence + 1, ended_at = clock_timestamp()
     WHERE id = held.id
    RETURNING * INTO ended;
    IF held.site_id IS NOT NULL THEN
        UPDATE site SET lock_job_id = NULL WHERE id = held.site_id AND lock_job_id = held.id;
    END IF;
    IF p_task_key IS NOT NULL THEN
        DELETE FROM task_failure
         WHERE key = p_task_key AND EXISTS (SELECT FROM tenant WHERE name = held.tenant AND provider IS NOT NULL);
    END IF;
    INSERT INTO event (kind, job_id, tenant, data)
    SELECT happened.kind, held.id, held.tenant, happened.data FROM (VALUES
        ('attempt_ended', jsonb_build_object(
            'queue', closed.queue, 'tier', closed.tier, 'attempt', closed.number, 'outcome', p_state,
            'reason', p_reason, 'cost_nanousd', calls.own,
            'wasted_nanousd', CASE WHEN p_wasted IS NULL THEN 0 ELSE calls.own END,
            'seconds', round(extract(epoch FROM closed.ended_at - closed.started_at), 3)::float8)),
        ('state', jsonb_build_object('origin', held.state, 'target', p_state, 'reason', p_reason)),
        ('limit_hit', jsonb_build_object('queue', held.queue, 'tier', held.tier, 'limit', p_limit, 'phase', 'run')),
        ('ended', jsonb_build_object(
            'state', p_state, 'reason', p_reason, 'detail', p_detail, 'queue', held.queue, 'tier', held.tier,
            'left', NULL, 'cost_nanousd', calls.cost, 'wasted_nanousd', calls.wasted,
            'boxes', (SELECT count(*) FROM event WHERE job_id = held.id AND kind = 'box'),
            'output_bytes', coalesce(to_jsonb(p_output_bytes), ended.result -> 'output_bytes'),
            'seconds', round(extract(epoch FROM ended.ended_at - held.created_at), 3)::float8))
    ) AS happened (kind, data) WHERE happened.kind <> 'limit_hit' OR p_limit IS NOT NULL;
    INSERT INTO audit (action, actor, tenant, job_id, tier, prompt, prompt_sha256, input_hash, output_hash, scan,
                       approval, detail)
    VALUES ('job_ended', 'pointsman', held.tenant, held.id, held.tier, coalesce(p_prompt, held.prompt),
            encode(sha256(convert_to(held.prompt, 'UTF8')), 'hex'),
            coalesce((SELECT digest FROM release WHERE id = held.base_release_id), 'none'), 'none', 'none', 'none',
            jsonb_build_object('state', p_state, 'reason', p_reason));
    url := held.request ->> 'callback_url';
    INSERT INTO notification (job_id, tenant, callback_url, payload, attempts, next_at, delivered_at)
    VALUES (held.id, held.tenant, url,
            jsonb_build_object('type', 'job.ended', 'job_id', held.id, 'state', p_state, 'reason', p_reason)
            || CASE WHEN held.parent_id IS NULL THEN '{}' ELSE jsonb_build_object('parent_id', held.parent_id) END,
            0, CASE WHEN url IS NOT NULL THEN clock_timestamp() END, CASE WHEN url IS NULL THEN clock_timestamp() END);
    IF EXISTS (SELECT FROM job WHERE site_id = held.site_id AND held_for = 'site')
       OR EXISTS (SELECT FROM job WHERE queue = held.queue AND tenant = held.tenant
                     AND waiting_since IS NOT NULL AND pushed_at IS NULL AND held_for IS NULL)
          AND NOT EXISTS (SELECT FROM job WHERE queue = held.queue AND tenant = held.tenant
                             AND waiting_since IS NOT NULL AND pushed_at IS NOT NULL) THEN
        RETURN 'ended, others wait';
    END IF;
    RETURN 'ended';
END $$
"""
"""Every end of an attempt raises the fence: an attempt with its job's fence has not ended.

What the calls cost is read by a statement after the one that ended the attempt, which waited for those being settled
(`money.BOOK`): no cost of an attempt is lost.
"""


def upgrade() -> None:
    op.execute(CLAIM)
    op.execute(END)
    for old, new, columns, where in (
        ("ix_job_site_open", "ix_job_open_site", ["site_id"], "site_id IS NOT NULL AND ended_at IS NULL"),
        ("ix_job_site_created", "ix_job_created_site", ["site_id", "created_at"], "site_id IS NOT NULL"),
    ):
        op.create_index(new, "job", columns, postgresql_where=where)
        op.drop_index(old, "job")

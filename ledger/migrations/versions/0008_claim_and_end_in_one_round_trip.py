"""A job is claimed, and ended in the ordinary way, by one function each.

Their names carry a version: a change of one is a new function, so that old and new processes work side by side. What a
value means is said where they are called, in `ledger.start_attempt`.
"""

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

CLAIM = """
CREATE FUNCTION pointsman_claim_1(
    p_job uuid, p_fence integer, p_queue text, p_worker text, p_attempt uuid, p_token_hash text, p_overrides jsonb,
    p_lease_seconds float8, p_hard_seconds float8, p_running integer, p_per_queue integer, p_per_tenant integer,
    p_writes boolean, p_may_be_lost boolean
) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
    held job%ROWTYPE;
    payer tenant%ROWTYPE;
    began attempt%ROWTYPE;
    most bigint;
    live bigint;
    slots bigint;
    is_known boolean;
    is_low boolean := false;
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
    SELECT * INTO payer FROM tenant WHERE name = held.tenant;
    IF payer.overrides <> p_overrides THEN
        RETURN json_build_object('tenant', held.tenant, 'overrides', payer.overrides::text);
    ELSIF p_writes AND held.site_id IS NULL THEN
        RETURN json_build_object('tenant', held.tenant);
    END IF;

    IF p_queue <> 'control' THEN
        most := coalesce(payer.max_running, p_running, 1000000);
        SELECT count(*) INTO live FROM attempt JOIN job ON job.id = attempt.job_id
         WHERE attempt.ended_at IS NULL AND attempt.queue <> 'control' AND job.tenant = held.tenant;
        SELECT coalesce(sum(worker.slots), 0), coalesce(bool_or(id = p_worker), false) INTO slots, is_known FROM worker;
        IF live + slots > most OR NOT is_known THEN
            SELECT * INTO payer FROM tenant WHERE name = held.tenant FOR NO KEY UPDATE;
            most := coalesce(payer.max_running, p_running, 1000000);
            SELECT count(*) INTO live FROM attempt JOIN job ON job.id = attempt.job_id
             WHERE attempt.ended_at IS NULL AND attempt.queue <> 'control' AND job.tenant = held.tenant;
        END IF;
    END IF;
    IF live >= most OR payer.paused_at IS NOT NULL
            OR EXISTS (SELECT FROM queue_control WHERE queue = p_queue AND paused_at IS NOT NULL) THEN
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

    IF (SELECT id FROM job
         WHERE queue = p_queue AND waiting_since IS NOT NULL AND pushed_at IS NULL AND held_for IS NULL
           AND id <> held.id
         ORDER BY tenant, priority, created_at LIMIT 1) IS NOT NULL THEN
        is_low := p_per_queue / 2 + 1 >= (
            SELECT count(*) FROM job WHERE queue = p_queue AND waiting_since IS NOT NULL AND pushed_at IS NOT NULL
        ) AND p_per_tenant * payer.weight / 2 + 1 >= (
            SELECT count(*) FROM job
             WHERE queue = p_queue AND job.tenant = held.tenant AND waiting_since IS NOT NULL AND pushed_at IS NOT NULL
        );
    END IF;
    base := held.base_release_id;
    IF base IS NULL AND p_queue <> 'control' THEN
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
        (1, 'state', jsonb_build_object('origin', held.state, 'target', target, 'reason', NULL, 'queue', p_queue)),
        (2, 'started', jsonb_build_object('queue', p_queue, 'tier', held.tier, 'attempt', began.number,
                                          'wait_seconds', round(waited::numeric, 3)::float8))
    ) AS happened (place, kind, data) WHERE happened.kind <> 'state' OR target <> held.state ORDER BY happened.place;
    IF held.queue = 'steps' AND held.parent_id IS NOT NULL THEN
        UPDATE agent_executions SET status = 'running', started_at = clock_timestamp() WHERE job_id = held.id;
        INSERT INTO event (kind, job_id, tenant, data)
        VALUES ('run_step', held.id, held.tenant, jsonb_build_object('status', 'running'));
    END IF;
    RETURN json_build_object(
        'is_low', is_low, 'waited_seconds', waited, 'number', began.number, 'started_at', began.started_at,
        'booked_nanousd', (SELECT spent_nanousd + reserved_nanousd FROM cap
                            WHERE scope = 'job' AND key = held.root_id::text),
        'site', (SELECT to_json(site) FROM site WHERE id = held.site_id),
        'base', (SELECT to_json(release) FROM release WHERE id = base AND p_queue <> 'control'),
        'begun', (SELECT to_json(release) FROM release WHERE id = held.start_release_id AND p_queue <> 'control'),
        'job', json_build_object(
            'tenant', held.tenant, 'state', target, 'prompt', held.prompt, 'request', held.request,
            'priority', held.priority, 'site_id', held.site_id, 'parent_id', held.parent_id, 'root_id', held.root_id,
            'route', held.route, 'mode', held.mode, 'tier', held.tier, 'queue', held.queue, 'result', held.result,
            'cap_nanousd', held.cap_nanousd, 'base_release_id', held.base_release_id,
            'start_release_id', held.start_release_id, 'supersede_key', held.supersede_key, 'trace', held.trace,
            'clarification', held.clarification,
            'first_prompt', CASE WHEN held.root_id <> held.id
                                 THEN (SELECT prompt FROM job WHERE job.id = held.root_id) END));
END $$
"""
"""Near a tenant's limit its claims are counted one after the other: two at once would both see the last free place.

Where all slots of the fleet fit below the limit, claims need not wait for each other's commit. A worker that is not in
the registry counts as slots that nobody knows. Each statement has a snapshot of its own: what is counted under a lock
is what stands there. Intake does not hold the site: the base of its job may still change.
"""

END = """
CREATE FUNCTION pointsman_end_1(
    p_job uuid, p_attempt uuid, p_state text, p_reason text, p_detail text, p_facts jsonb, p_signature text,
    p_limit text, p_output_bytes bigint, p_wasted text[], p_task_key text, p_prompt text
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    held job%ROWTYPE;
    ended job%ROWTYPE;
    closed attempt%ROWTYPE;
    cost bigint;
    own_cost bigint;
    wasted bigint := 0;
    url text;
BEGIN
    SELECT * INTO held FROM job WHERE id = p_job FOR UPDATE;
    IF NOT EXISTS (SELECT FROM attempt WHERE id = p_attempt AND job_id = held.id AND fence = held.fence) THEN
        RETURN 'fenced';
    ELSIF held.state <> 'running' OR held.cancel_requested_at IS NOT NULL OR held.superseded_by IS NOT NULL
            OR held.supersede_key IS NOT NULL OR held.release_id IS NOT NULL THEN
        RETURN 'more follows';
    END IF;
    UPDATE attempt SET ended_at = clock_timestamp(), outcome = p_state, reason = p_reason
     WHERE id = p_attempt AND ended_at IS NULL
    RETURNING * INTO closed;
    SELECT coalesce(sum(cost_nanousd), 0), coalesce(sum(cost_nanousd) FILTER (WHERE attempt_id = p_attempt), 0)
      INTO cost, own_cost FROM call WHERE job_id = held.id;
    IF p_wasted IS NOT NULL THEN
        SELECT coalesce(sum(cost_nanousd), 0) INTO wasted FROM call JOIN attempt ON attempt.id = call.attempt_id
         WHERE call.job_id = held.id AND attempt.outcome <> ALL(p_wasted);
    END IF;
    UPDATE job SET state = p_state, reason = p_reason, detail = p_detail,
                   result = (held.result - '{resting,paid_replies}'::text[]) || p_facts,
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
        (1, 'attempt_ended', jsonb_build_object(
            'queue', closed.queue, 'tier', closed.tier, 'attempt', closed.number, 'outcome', p_state,
            'reason', p_reason, 'cost_nanousd', own_cost,
            'wasted_nanousd', CASE WHEN p_wasted IS NULL THEN 0 ELSE own_cost END,
            'seconds', round(extract(epoch FROM closed.ended_at - closed.started_at), 3)::float8)),
        (2, 'state', jsonb_build_object('origin', held.state, 'target', p_state, 'reason', p_reason)),
        (3, 'limit_hit', jsonb_build_object('queue', held.queue, 'tier', held.tier, 'limit', p_limit, 'phase', 'run')),
        (4, 'ended', jsonb_build_object(
            'state', p_state, 'reason', p_reason, 'detail', p_detail, 'queue', held.queue, 'tier', held.tier,
            'left', NULL, 'cost_nanousd', cost, 'wasted_nanousd', wasted,
            'boxes', (SELECT count(*) FROM event WHERE job_id = held.id AND kind = 'box'),
            'output_bytes', coalesce(to_jsonb(p_output_bytes), ended.result -> 'output_bytes'),
            'seconds', round(extract(epoch FROM ended.ended_at - held.created_at), 3)::float8))
    ) AS happened (place, kind, data)
     WHERE happened.kind <> 'limit_hit' OR p_limit IS NOT NULL ORDER BY happened.place;
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
"""What the calls cost is read by a statement after the one that ended the attempt, which waited for those being settled
(`money.BOOK`): no cost of an attempt is lost.
"""


def upgrade() -> None:
    op.drop_index("ix_audit_unsealed", "audit")  # rows are sealed without being written again
    op.execute(CLAIM)
    op.execute(END)

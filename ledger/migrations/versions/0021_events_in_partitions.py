"""Events lie in partitions by id, so that old ones are dropped with their partition and no row is deleted.

Today's table becomes the first partition as it is. That its ids fit in is checked while others write; the exchange of
the two tables then reads no row. Nothing names a partition but `ledger.operations.partitions`: a version before this
one reads, writes and deletes by `event` as ever.
"""

from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

IS_PLAIN = "SELECT relkind = 'r' FROM pg_class WHERE oid = 'event'::regclass"
BOUNDED = """
DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_constraint WHERE conname = 'ck_event_first' AND conrelid = 'event'::regclass) THEN
        ALTER TABLE event ADD CONSTRAINT ck_event_first CHECK (id < 68719476736) NOT VALID;
    END IF;
END $$
"""
CHECKED = "ALTER TABLE event VALIDATE CONSTRAINT ck_event_first"
EXCHANGED = """
LOCK TABLE event IN ACCESS EXCLUSIVE MODE;
ALTER TABLE event RENAME TO event_0;
ALTER INDEX event_pkey RENAME TO event_0_pkey;
ALTER INDEX ix_event_job RENAME TO event_0_job_id_id_idx;
ALTER INDEX ix_event_xid RENAME TO event_0_xid_idx;
CREATE TABLE event (LIKE event_0 INCLUDING DEFAULTS) PARTITION BY RANGE (id);
ALTER TABLE event ADD CONSTRAINT event_pkey PRIMARY KEY (id);
CREATE INDEX ix_event_job ON event (job_id, id);
CREATE INDEX ix_event_xid ON event (xid);
ALTER SEQUENCE event_id_seq OWNED BY event.id;
ALTER TABLE event ATTACH PARTITION event_0 FOR VALUES FROM (MINVALUE) TO (68719476736);
ALTER TABLE event_0 DROP CONSTRAINT ck_event_first;
ALTER TABLE event_0 SET (autovacuum_freeze_min_age = 0);
DO $$ DECLARE held record; BEGIN
    FOR held IN
        SELECT privilege_type, CASE grantee WHEN 0 THEN 'PUBLIC' ELSE grantee::regrole::text END AS who
          FROM pg_class CROSS JOIN aclexplode(relacl) WHERE pg_class.oid = 'event_0'::regclass
    LOOP
        EXECUTE format('GRANT %s ON event TO %s', held.privilege_type, held.who);
    END LOOP;
END $$
"""

END = """
CREATE FUNCTION pointsman_end_3(
    p_job uuid, p_attempt uuid, p_state text, p_reason text, p_detail text, p_facts jsonb, p_signature text,
    p_limit text, p_output_bytes bigint, p_wasted text[], p_task_key text, p_prompt text
) RETURNS text LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    held job%ROWTYPE;
    ended job%ROWTYPE;
    closed attempt%ROWTYPE;
    calls record;
    url text;
    boxes bigint := 0;
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
    IF held.queue NOT IN ('answer', 'tools') THEN
        SELECT count(*) INTO boxes FROM event WHERE job_id = held.id AND kind = 'box';
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
            'boxes', boxes,
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
"""As `pointsman_end_2`, but an answer's end looks for boxes in no partition: its queue has none."""


def upgrade() -> None:
    if op.get_bind().exec_driver_sql(IS_PLAIN).scalar():
        with op.get_context().autocommit_block():
            op.execute(BOUNDED)
            op.execute(CHECKED)
        op.execute(EXCHANGED)
    op.execute(END)

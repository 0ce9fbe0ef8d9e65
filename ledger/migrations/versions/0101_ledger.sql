-- What columns and tables mean is said in `ledger/tables.py`, `ledger/record_tables.py` and `ledger/runs/tables.py`.
--
-- Tables that may have 10^9 rows are vacuumed when a fiftieth is dead, not a fifth. Pages of `job` and `release` keep room:
-- an update that stays on its page logs only what changed, and no index entry.

CREATE TABLE attempt (
    id uuid NOT NULL,
    job_id uuid NOT NULL,
    number integer NOT NULL,
    queue varchar NOT NULL,
    tier integer,
    fence integer NOT NULL,
    worker varchar NOT NULL,
    token_hash varchar NOT NULL,
    egress_address varchar,
    lease_until timestamptz NOT NULL,
    deadline timestamptz NOT NULL,
    lost_cause varchar,
    started_at timestamptz NOT NULL DEFAULT now(),
    ended_at timestamptz,
    outcome varchar,
    reason varchar,
    PRIMARY KEY (id),
    UNIQUE (job_id, number)
) WITH (autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX ix_attempt_at_work ON attempt (worker) WHERE ended_at IS NULL;
CREATE INDEX ix_attempt_reported ON attempt (id) WHERE ended_at IS NULL AND lost_cause IS NOT NULL;
CREATE INDEX ix_attempt_started ON attempt (started_at);
CREATE INDEX ix_attempt_token ON attempt USING hash (token_hash);

CREATE TABLE audit (
    seq bigserial,
    at timestamptz NOT NULL DEFAULT now(),
    action varchar NOT NULL,
    actor varchar NOT NULL,
    tenant varchar,
    job_id uuid,
    tier integer,
    prompt text,
    prompt_sha256 varchar,
    input_hash varchar,
    output_hash varchar,
    scan varchar,
    approval varchar,
    detail jsonb NOT NULL,
    sealed_in bigint,
    PRIMARY KEY (seq)
);
CREATE INDEX ix_audit_job_id ON audit (job_id);

CREATE TABLE audit_seal (
    number bigint NOT NULL,
    first_seq bigint NOT NULL,
    last_seq bigint NOT NULL,
    rows integer NOT NULL,
    rows_hash varchar NOT NULL,
    previous_hash varchar NOT NULL,
    hash varchar NOT NULL,
    signature varchar NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    archived varchar,
    PRIMARY KEY (number)
);

CREATE TABLE backlog (
    queue varchar NOT NULL,
    tenant varchar NOT NULL,
    waiting integer NOT NULL,
    drained_per_second double precision NOT NULL,
    turn double precision NOT NULL DEFAULT 0,
    counted_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (queue, tenant)
);

CREATE TABLE call (
    id uuid NOT NULL,
    job_id uuid NOT NULL,
    attempt_id uuid NOT NULL,
    caps jsonb NOT NULL,
    state varchar NOT NULL,
    provider varchar NOT NULL,
    model varchar NOT NULL,
    key_hash varchar NOT NULL,
    gateway varchar NOT NULL,
    lease_until timestamptz NOT NULL,
    max_tokens integer NOT NULL,
    reserved_nanousd bigint NOT NULL,
    cost_nanousd bigint NOT NULL,
    input_tokens integer NOT NULL,
    output_tokens integer NOT NULL,
    cache_write_tokens integer NOT NULL,
    cache_read_tokens integer NOT NULL,
    finish varchar,
    status integer,
    prices_as_of varchar NOT NULL,
    started_at timestamptz NOT NULL DEFAULT now(),
    ended_at timestamptz,
    CONSTRAINT ck_call_money CHECK (reserved_nanousd >= 0 AND cost_nanousd >= 0),
    PRIMARY KEY (id)
) WITH (autovacuum_vacuum_scale_factor = 0.02);
-- A job has few calls. A sample of a large table finds six times as many, as a job's calls lie side by side.
ALTER TABLE call ALTER job_id SET (n_distinct = -0.8);
CREATE INDEX ix_call_attempt_id ON call (attempt_id);
CREATE INDEX ix_call_job_id ON call (job_id);
CREATE INDEX ix_call_reserved ON call (id) WHERE state = 'reserved';

CREATE TABLE cap (
    scope varchar NOT NULL,
    key varchar NOT NULL,
    limit_nanousd bigint NOT NULL,
    spent_nanousd bigint NOT NULL,
    reserved_nanousd bigint NOT NULL,
    CONSTRAINT ck_cap_money CHECK (spent_nanousd >= 0 AND reserved_nanousd >= 0),
    PRIMARY KEY (scope, key)
) WITH (autovacuum_vacuum_scale_factor = 0.02);

CREATE TABLE epoch (
    id uuid NOT NULL,
    since timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (id)
);

CREATE TABLE event (
    id bigserial,
    xid bigint NOT NULL DEFAULT pg_current_xact_id()::text::bigint,
    at timestamptz NOT NULL DEFAULT now(),
    job_id uuid,
    tenant varchar,
    kind varchar NOT NULL,
    data jsonb NOT NULL
) PARTITION BY RANGE (id);
CREATE TABLE event_0 PARTITION OF event FOR VALUES FROM (MINVALUE) TO (68719476736)
    WITH (autovacuum_freeze_min_age = 0);
CREATE INDEX ix_event_job ON event (job_id, id);
CREATE INDEX ix_event_xid ON event (xid);

CREATE TABLE job (
    id uuid NOT NULL,
    tenant varchar NOT NULL,
    source varchar NOT NULL,
    requested_by varchar NOT NULL DEFAULT '',
    state varchar NOT NULL,
    prompt text NOT NULL,
    request jsonb NOT NULL,
    request_digest varchar NOT NULL,
    idempotency_key varchar,
    priority varchar NOT NULL,
    site_id uuid,
    parent_id uuid,
    root_id uuid NOT NULL,
    route jsonb NOT NULL,
    mode varchar,
    tier integer,
    queue varchar NOT NULL,
    fence integer NOT NULL,
    waiting_since timestamptz,
    pushed_at timestamptz,
    held_for varchar,
    held_until timestamptz,
    supersede_key varchar,
    superseded_by uuid,
    failure_signature varchar,
    dismissed_at timestamptz,
    lost_attempts integer NOT NULL,
    cap_nanousd bigint NOT NULL,
    cancel_requested_at timestamptz,
    base_release_id uuid,
    start_release_id uuid,
    release_id uuid,
    clarification jsonb,
    expires_at timestamptz,
    result jsonb NOT NULL,
    reason varchar,
    detail text,
    trace varchar,
    created_at timestamptz NOT NULL DEFAULT now(),
    started_at timestamptz,
    ended_at timestamptz,
    PRIMARY KEY (id)
) WITH (autovacuum_vacuum_scale_factor = 0.02, fillfactor = 80);
CREATE INDEX ix_job_at_site ON job (site_id, queue, held_for) WHERE site_id IS NOT NULL AND ended_at IS NULL;
CREATE INDEX ix_job_bill ON job (root_id) WHERE root_id <> id;
CREATE INDEX ix_job_created_site ON job (site_id, created_at) WHERE site_id IS NOT NULL;
CREATE INDEX ix_job_dead ON job (tenant, failure_signature, ended_at)
    WHERE failure_signature IS NOT NULL AND dismissed_at IS NULL;
CREATE INDEX ix_job_ended ON job (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX ix_job_expiring ON job (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX ix_job_held_for_site ON job (site_id, queue, priority, created_at) WHERE held_for = 'site';
CREATE INDEX ix_job_held_until ON job (held_until) WHERE held_until IS NOT NULL;
CREATE INDEX ix_job_ready ON job (queue, tenant, priority, created_at)
    WHERE waiting_since IS NOT NULL AND pushed_at IS NULL AND held_for IS NULL;
CREATE INDEX ix_job_runway ON job (queue, tenant) WHERE waiting_since IS NOT NULL AND pushed_at IS NOT NULL;
CREATE INDEX ix_job_supersede ON job (tenant, supersede_key) WHERE supersede_key IS NOT NULL AND ended_at IS NULL;
CREATE INDEX ix_job_tenant_created ON job (tenant, created_at);
CREATE INDEX ix_job_tenant_ended ON job (tenant, state, created_at) WHERE ended_at IS NOT NULL;
CREATE INDEX ix_job_tenant_open ON job (tenant, created_at) WHERE ended_at IS NULL;
CREATE INDEX ix_job_waiting ON job (queue, waiting_since) INCLUDE (tenant) WHERE waiting_since IS NOT NULL;
CREATE UNIQUE INDEX uq_job_key ON job (tenant, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE UNIQUE INDEX uq_job_next ON job (parent_id) WHERE parent_id IS NOT NULL AND queue <> 'steps';

CREATE TABLE kept_delivery (
    digest varchar NOT NULL,
    tenant varchar NOT NULL,
    project varchar NOT NULL,
    tracker varchar NOT NULL,
    event varchar NOT NULL,
    body text NOT NULL,
    next_at timestamptz NOT NULL DEFAULT now(),
    received_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (digest)
);
CREATE INDEX ix_kept_delivery_received ON kept_delivery (received_at);
CREATE INDEX ix_kept_delivery_tenant ON kept_delivery (tenant);

CREATE TABLE leader (
    role varchar NOT NULL,
    holder varchar NOT NULL,
    until timestamptz NOT NULL,
    PRIMARY KEY (role)
);

CREATE TABLE notification (
    job_id uuid NOT NULL,
    callback_url varchar,
    payload jsonb NOT NULL,
    attempts integer NOT NULL,
    next_at timestamptz,
    delivered_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT now(),
    replays integer NOT NULL DEFAULT 0,
    tenant varchar NOT NULL DEFAULT '',
    PRIMARY KEY (job_id)
) WITH (autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX ix_notification_due ON notification (next_at) WHERE delivered_at IS NULL;
CREATE INDEX ix_notification_turn ON notification (tenant, next_at) WHERE next_at IS NOT NULL;

CREATE TABLE orphan_call (
    id uuid NOT NULL,
    job_id uuid NOT NULL,
    attempt_id uuid NOT NULL,
    tenant varchar NOT NULL,
    caps jsonb NOT NULL,
    provider varchar NOT NULL,
    model varchar NOT NULL,
    key_hash varchar NOT NULL,
    gateway varchar NOT NULL,
    cost_nanousd bigint NOT NULL,
    input_tokens integer NOT NULL,
    output_tokens integer NOT NULL,
    cache_write_tokens integer NOT NULL,
    cache_read_tokens integer NOT NULL,
    finish varchar NOT NULL,
    status integer NOT NULL,
    prices_as_of varchar NOT NULL,
    served_at timestamptz NOT NULL,
    booked_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (id)
);

CREATE TABLE provider_circuit (
    provider varchar NOT NULL,
    model varchar NOT NULL,
    open_until timestamptz,
    reason varchar,
    failures integer NOT NULL,
    probing_until timestamptz,
    requests double precision NOT NULL,
    tokens double precision NOT NULL,
    filled_at timestamptz,
    changed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (provider, model)
);

CREATE TABLE queue_control (
    queue varchar NOT NULL,
    paused_at timestamptz,
    PRIMARY KEY (queue)
);

CREATE TABLE rollup (
    name varchar NOT NULL,
    labels varchar NOT NULL,
    value double precision NOT NULL,
    PRIMARY KEY (name, labels)
);

CREATE TABLE rollup_mark (
    id serial,
    xid bigint NOT NULL,
    PRIMARY KEY (id)
);

CREATE TABLE task_failure (
    key varchar NOT NULL,
    tenant varchar NOT NULL,
    failures integer NOT NULL,
    rejections integer NOT NULL,
    is_debated boolean NOT NULL,
    error_signature varchar,
    recent jsonb NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (key)
);
CREATE INDEX ix_task_failure_signature ON task_failure (tenant, error_signature);

CREATE TABLE tenant (
    name varchar NOT NULL,
    provider varchar,
    overrides jsonb NOT NULL,
    auto_approve boolean NOT NULL,
    weight integer NOT NULL DEFAULT 1,
    max_running integer,
    paused_at timestamptz,
    recording_days double precision,
    notices jsonb NOT NULL DEFAULT '[]',
    chat_url varchar,
    mail_to jsonb NOT NULL DEFAULT '[]',
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (name)
);

CREATE TABLE worker (
    id varchar NOT NULL,
    host varchar NOT NULL,
    pid integer NOT NULL,
    queues jsonb NOT NULL,
    slots integer NOT NULL,
    is_draining boolean NOT NULL,
    started_at timestamptz NOT NULL DEFAULT now(),
    seen_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (id)
);

CREATE TABLE api_key (
    id uuid NOT NULL,
    tenant varchar NOT NULL,
    name varchar NOT NULL,
    key_hash varchar NOT NULL,
    scopes jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    created_by varchar,
    last_used_at timestamptz,
    revoked_at timestamptz,
    FOREIGN KEY (tenant) REFERENCES tenant(name),
    PRIMARY KEY (id),
    UNIQUE (key_hash)
);
CREATE INDEX ix_api_key_tenant ON api_key (tenant);

CREATE TABLE approval (
    job_id uuid NOT NULL,
    release_id uuid NOT NULL,
    base_release_id uuid,
    scan_digest varchar NOT NULL,
    decision varchar NOT NULL,
    actor varchar NOT NULL,
    reason varchar NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz,
    FOREIGN KEY (job_id) REFERENCES job(id),
    PRIMARY KEY (job_id)
);

CREATE TABLE debate (
    id uuid NOT NULL,
    job_id uuid NOT NULL,
    tenant varchar NOT NULL,
    session varchar,
    key varchar NOT NULL,
    decision_key varchar NOT NULL,
    kind varchar NOT NULL,
    stakes varchar,
    verdict varchar NOT NULL,
    record jsonb NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    FOREIGN KEY (job_id) REFERENCES job(id),
    PRIMARY KEY (id)
);
CREATE INDEX ix_debate_job_id ON debate (job_id);
CREATE INDEX ix_debate_session ON debate (tenant, session);

CREATE TABLE delivery (
    id bigserial,
    job_id uuid NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    number integer NOT NULL,
    outcome varchar NOT NULL,
    status integer,
    detail varchar NOT NULL,
    seconds double precision NOT NULL,
    FOREIGN KEY (job_id) REFERENCES notification(job_id),
    PRIMARY KEY (id)
);
CREATE INDEX ix_delivery_job ON delivery (job_id, id);

CREATE TABLE notice (
    id uuid NOT NULL,
    job_id uuid NOT NULL,
    tenant varchar NOT NULL,
    channel varchar NOT NULL,
    callback_url varchar,
    payload jsonb NOT NULL,
    attempts integer NOT NULL DEFAULT 0,
    next_at timestamptz,
    delivered_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT now(),
    replays integer NOT NULL DEFAULT 0,
    FOREIGN KEY (job_id) REFERENCES job(id),
    PRIMARY KEY (id)
);
CREATE INDEX ix_notice_created ON notice (tenant, created_at);
CREATE INDEX ix_notice_job_id ON notice (job_id);
CREATE INDEX ix_notice_turn ON notice (tenant, next_at) WHERE next_at IS NOT NULL;

CREATE TABLE person (
    id uuid NOT NULL,
    issuer varchar NOT NULL,
    subject varchar NOT NULL,
    tenant varchar NOT NULL,
    name varchar NOT NULL,
    role varchar NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    seen_at timestamptz NOT NULL DEFAULT now(),
    disabled_at timestamptz,
    FOREIGN KEY (tenant) REFERENCES tenant(name),
    PRIMARY KEY (id),
    UNIQUE (issuer, subject)
);
CREATE INDEX ix_person_tenant ON person (tenant);
CREATE UNIQUE INDEX uq_person_name ON person (name);

CREATE TABLE project (
    id uuid NOT NULL,
    tenant varchar NOT NULL,
    name varchar NOT NULL,
    config jsonb NOT NULL,
    image jsonb,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    FOREIGN KEY (tenant) REFERENCES tenant(name),
    PRIMARY KEY (id),
    UNIQUE (tenant, name)
);

CREATE TABLE recorded_call (
    id uuid NOT NULL,
    job_id uuid NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at timestamptz NOT NULL,
    request text NOT NULL,
    reply text NOT NULL,
    FOREIGN KEY (job_id) REFERENCES job(id),
    PRIMARY KEY (id)
);
CREATE INDEX ix_recorded_call_expires_at ON recorded_call (expires_at);
CREATE INDEX ix_recorded_call_job_id ON recorded_call (job_id);

CREATE TABLE review_comment (
    id bigserial,
    root_id uuid NOT NULL,
    source varchar NOT NULL,
    author varchar NOT NULL,
    body text NOT NULL,
    path varchar,
    line integer,
    is_order boolean NOT NULL,
    received_at timestamptz NOT NULL DEFAULT now(),
    settled_at timestamptz,
    run_id uuid,
    refused text NOT NULL,
    FOREIGN KEY (root_id) REFERENCES job(id),
    FOREIGN KEY (run_id) REFERENCES job(id),
    PRIMARY KEY (id),
    UNIQUE (root_id, source)
);
CREATE INDEX ix_review_comment_open ON review_comment (root_id) WHERE settled_at IS NULL;
CREATE INDEX ix_review_comment_run_id ON review_comment (run_id);

CREATE TABLE site (
    id uuid NOT NULL,
    tenant varchar NOT NULL,
    name varchar NOT NULL,
    profile varchar NOT NULL,
    active_release_id uuid,
    shown_release_id uuid,
    lock_job_id uuid,
    created_at timestamptz NOT NULL DEFAULT now(),
    FOREIGN KEY (tenant) REFERENCES tenant(name),
    PRIMARY KEY (id),
    UNIQUE (tenant, name)
);
CREATE INDEX ix_site_lagging ON site (id) WHERE active_release_id IS DISTINCT FROM shown_release_id;

CREATE TABLE login_session (
    id uuid NOT NULL,
    nonce varchar NOT NULL,
    key_id uuid,
    person_id uuid,
    created_at timestamptz NOT NULL DEFAULT now(),
    seen_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL,
    revoked_at timestamptz,
    FOREIGN KEY (key_id) REFERENCES api_key(id),
    FOREIGN KEY (person_id) REFERENCES person(id),
    PRIMARY KEY (id),
    UNIQUE (nonce)
);
CREATE INDEX ix_login_session_expires_at ON login_session (expires_at);

CREATE TABLE notice_delivery (
    id bigserial,
    notice_id uuid NOT NULL,
    job_id uuid NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    number integer NOT NULL,
    outcome varchar NOT NULL,
    status integer,
    detail varchar NOT NULL,
    seconds double precision NOT NULL,
    FOREIGN KEY (notice_id) REFERENCES notice(id),
    PRIMARY KEY (id)
);
CREATE INDEX ix_notice_delivery_job_id ON notice_delivery (job_id);
CREATE INDEX ix_notice_delivery_notice ON notice_delivery (notice_id, id);

CREATE TABLE release (
    id uuid NOT NULL,
    site_id uuid NOT NULL,
    base_release_id uuid,
    job_id uuid,
    digest varchar NOT NULL,
    manifest jsonb NOT NULL,
    spec_sha256 varchar,
    diff_sha256 varchar,
    reverse_sha256 varchar,
    thumbnail_sha256 varchar,
    build_seconds double precision,
    total_bytes bigint NOT NULL,
    signals jsonb NOT NULL,
    scan jsonb NOT NULL,
    scan_passed boolean NOT NULL,
    scan_digest varchar NOT NULL,
    preview_generation integer NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL DEFAULT now(),
    published_at timestamptz,
    swept_at timestamptz,
    FOREIGN KEY (site_id) REFERENCES site(id),
    PRIMARY KEY (id)
) WITH (fillfactor = 60);
CREATE INDEX ix_release_job_id ON release (job_id);
CREATE INDEX ix_release_site_id ON release (site_id);
CREATE INDEX ix_release_swept ON release (swept_at) WHERE swept_at IS NOT NULL;
CREATE INDEX ix_release_unpictured ON release (published_at)
    WHERE published_at IS NOT NULL AND swept_at IS NULL AND thumbnail_sha256 IS NULL;

CREATE TABLE run (
    job_id uuid NOT NULL,
    project_id uuid NOT NULL,
    ticket jsonb NOT NULL,
    intent varchar,
    plans jsonb NOT NULL,
    scan varchar,
    scan_detail text NOT NULL,
    base_commit varchar,
    head_commit varchar,
    workspace_id uuid,
    pushed jsonb,
    estimate jsonb NOT NULL,
    explanation text NOT NULL,
    FOREIGN KEY (job_id) REFERENCES job(id),
    FOREIGN KEY (project_id) REFERENCES project(id),
    PRIMARY KEY (job_id)
);
CREATE INDEX ix_run_project_id ON run (project_id);

CREATE TABLE gate (
    id uuid NOT NULL,
    run_id uuid NOT NULL,
    key varchar NOT NULL,
    kind varchar NOT NULL,
    after jsonb NOT NULL,
    reason text NOT NULL,
    state varchar NOT NULL,
    facts jsonb NOT NULL,
    position integer NOT NULL,
    opened_at timestamptz,
    expires_at timestamptz,
    decided_at timestamptz,
    actor varchar,
    note varchar NOT NULL,
    FOREIGN KEY (run_id) REFERENCES run(job_id),
    PRIMARY KEY (id),
    UNIQUE (run_id, key)
);
CREATE INDEX ix_gate_expiring ON gate (expires_at) WHERE state = 'open';

CREATE TABLE run_step (
    run_id uuid NOT NULL,
    key varchar NOT NULL,
    position integer NOT NULL,
    agent varchar,
    phase varchar NOT NULL,
    round integer NOT NULL,
    cycle integer NOT NULL,
    task text NOT NULL,
    context jsonb NOT NULL,
    writes jsonb NOT NULL,
    depends_on jsonb NOT NULL,
    state varchar NOT NULL,
    tries integer NOT NULL,
    result jsonb,
    changed jsonb NOT NULL,
    failure varchar,
    detail text,
    created_at timestamptz NOT NULL DEFAULT now(),
    ended_at timestamptz,
    CONSTRAINT ck_run_step_tries CHECK (tries >= 0),
    FOREIGN KEY (run_id) REFERENCES run(job_id),
    PRIMARY KEY (run_id, key)
);

CREATE TABLE ticket_note (
    run_id uuid NOT NULL,
    kind varchar NOT NULL,
    attempts integer NOT NULL,
    next_at timestamptz,
    delivered_at timestamptz,
    error varchar,
    created_at timestamptz NOT NULL DEFAULT now(),
    FOREIGN KEY (run_id) REFERENCES run(job_id),
    PRIMARY KEY (run_id, kind)
);
CREATE INDEX ix_ticket_note_due ON ticket_note (next_at) WHERE delivered_at IS NULL;

CREATE TABLE agent_executions (
    job_id uuid NOT NULL,
    run_id uuid NOT NULL,
    step_key varchar NOT NULL,
    attempt integer NOT NULL,
    agent varchar,
    model varchar,
    provider varchar,
    cap_nanousd bigint,
    status varchar NOT NULL,
    base_commit varchar,
    commit varchar,
    changed jsonb NOT NULL,
    dropped jsonb NOT NULL,
    result jsonb,
    reason varchar,
    detail text,
    created_at timestamptz NOT NULL DEFAULT now(),
    started_at timestamptz,
    settled_at timestamptz,
    absorbed_at timestamptz,
    FOREIGN KEY (job_id) REFERENCES job(id),
    FOREIGN KEY (run_id, step_key) REFERENCES run_step(run_id, key),
    PRIMARY KEY (job_id),
    UNIQUE (run_id, step_key, attempt)
);
CREATE INDEX ix_execution_unabsorbed ON agent_executions (run_id)
    WHERE settled_at IS NOT NULL AND absorbed_at IS NULL;

-- Accepts jobs: `ledger.submission` says what each value means. Tenants and sites are never deleted, so that a job refers
-- to them without a foreign key. One row is asked for in the order of an index, not EXISTS: without that the planner
-- reads another.
CREATE FUNCTION pointsman_accept_1(
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
END $$;

-- Begins an attempt: `ledger.start_attempt` says what each value means. Near a tenant's limit its claims are counted one
-- after the other: two at once would both see the last free place. Where all slots of the fleet fit below the limit, claims
-- need not wait for each other's commit; a worker that is not in the registry counts as slots that nobody knows. Intake
-- does not hold the site: the base of its job may still change.
CREATE FUNCTION pointsman_claim_1(
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
END $$;

-- Ends an attempt and its job. Every end raises the fence: an attempt with its job's fence has not ended. What the calls
-- cost is read by a statement after the one that ended the attempt, which waited for those being settled (`money.BOOK`):
-- no cost of an attempt is lost.
CREATE FUNCTION pointsman_end_1(
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
END $$;

"""The statements of `money` as the database gets them. Each is a whole transaction; `money` says what they mean."""

from __future__ import annotations

from routing.jobs import USED_ENDS, WASTED_OUTCOMES

# How long a lane's row says that no call is made: while it is parked, and while another call tests it (then a short
# pause at a time). Nothing where one may be made.
PARKED_SECONDS = """
    CASE WHEN parked_until > clock_timestamp() THEN extract(epoch FROM parked_until - clock_timestamp())
         WHEN parked_until IS NOT NULL AND probing_until > clock_timestamp()
         THEN least(extract(epoch FROM probing_until - clock_timestamp()), %(pause_seconds)s::float) END
"""


def _filled(column: str, per_minute: str) -> str:
    """Return what is in a bucket of one minute now, by the time since it was last looked into. A new one is full."""
    since = "coalesce(extract(epoch FROM clock_timestamp() - lane.filled_at), 60)"
    return f"least({per_minute}, lane.{column} + {per_minute} * greatest({since}, 0) / 60)"


FILLED_REQUESTS = _filled("requests", "%(requests_per_minute)s::float")
FILLED_TOKENS = _filled("tokens", "%(tokens_per_minute)s::float")

AFTER_LEASE = "clock_timestamp() + make_interval(secs => %(lease_seconds)s)"

BEARER = """
SELECT attempt.id AS attempt_id, job.id AS job_id, job.root_id, job.tenant, attempt.queue, attempt.tier, attempt.fence,
       job.cap_nanousd AS job_cap_nanousd, coalesce(execution.provider, tenant.provider) AS provider,
       tenant.overrides::text AS overrides, to_char(timezone('UTC', clock_timestamp()), 'YYYY-MM-DD') AS today,
       attempt.ended_at IS NOT NULL AS has_ended, attempt.deadline <= clock_timestamp() AS is_late,
       attempt.fence <> job.fence AS is_fenced, job.cancel_requested_at IS NOT NULL AS is_cancelled, attempt.door,
       execution.cap_nanousd AS step_cap_nanousd, execution.model AS step_model, tenant.provider AS tenant_provider,
       execution.agent, job.trace
FROM attempt JOIN job ON job.id = attempt.job_id JOIN tenant ON tenant.name = job.tenant
LEFT JOIN agent_executions AS execution ON execution.job_id = job.id
WHERE attempt.token_hash = %(token_hash)s
"""

OPEN_CAPS = """
INSERT INTO cap (scope, key, limit_nanousd, spent_nanousd, reserved_nanousd)
SELECT wanted.scope, wanted.key, wanted.amount, 0, 0
FROM jsonb_to_recordset(%(caps)s::jsonb) AS wanted (place int, scope text, key text, amount bigint)
ORDER BY wanted.place
ON CONFLICT DO NOTHING
RETURNING scope
"""

# The job is locked before the caps: the call's foreign keys lock it anyway, and a worker that holds it must not make
# the whole fleet wait for a cap. Limits come with the call, so a lowered policy or a raised budget holds at once.
# A parked lane is seen before any cap is locked. Its row is locked last, and only where it has buckets or is to be
# tested: one of any number of gateways gets to test it, and a call takes from a bucket together with its reserve.
RESERVE = f"""
WITH seen AS MATERIALIZED (
    SELECT parked_until IS NOT NULL AS is_shut, failures, reason, {PARKED_SECONDS} AS wait
    FROM lane WHERE provider = %(account)s AND model = %(model)s
), bearer AS MATERIALIZED (
    SELECT 1 FROM job
    WHERE id = %(job_id)s AND fence = %(fence)s AND cancel_requested_at IS NULL
    FOR KEY SHARE
), wanted AS MATERIALIZED (
    SELECT * FROM jsonb_to_recordset(%(caps)s::jsonb) AS wanted (place int, scope text, key text, amount bigint)
    WHERE EXISTS (SELECT FROM bearer) AND NOT EXISTS (SELECT FROM seen WHERE wait > 0)
), held AS MATERIALIZED (
    SELECT cap.scope, cap.key, wanted.amount, wanted.amount - cap.spent_nanousd - cap.reserved_nanousd AS room
    FROM cap JOIN wanted ON cap.scope = wanted.scope AND cap.key = wanted.key
    ORDER BY wanted.place
    FOR UPDATE OF cap
), verdict AS MATERIALIZED (
    SELECT count(*) = jsonb_array_length(%(caps)s::jsonb) AS has_all_caps,
           least(%(max_tokens)s::bigint,
                 (least(min(room), %(call_limit)s::bigint) - %(input_nanousd)s::bigint)
                     / %(token_nanousd)s::bigint) AS tokens
    FROM held
), gate AS MATERIALIZED (
    SELECT lane.parked_until IS NOT NULL AS is_test, lane.reason, {PARKED_SECONDS} AS parked,
           {FILLED_REQUESTS} AS requests, {FILLED_TOKENS} AS tokens,
           %(input_tokens)s::float + verdict.tokens AS needed
    FROM verdict CROSS JOIN lane
    WHERE verdict.has_all_caps AND verdict.tokens >= %(least_tokens)s::bigint
      AND lane.provider = %(account)s AND lane.model = %(model)s
      AND (%(is_metered)s::bool OR EXISTS (SELECT FROM seen WHERE is_shut))
    FOR UPDATE OF lane
), shortage AS MATERIALIZED (
    SELECT greatest((1 - requests) * 60 / %(requests_per_minute)s::float,
                    (least(needed, %(tokens_per_minute)s::float) - tokens) * 60 / %(tokens_per_minute)s::float
           ) AS seconds
    FROM gate
), passed AS (
    UPDATE lane SET probing_until = CASE WHEN gate.is_test THEN
                        clock_timestamp() + make_interval(secs => %(probe_seconds)s::float) END,
                    requests = coalesce(gate.requests - 1, lane.requests),
                    tokens = coalesce(gate.tokens - gate.needed, lane.tokens),
                    filled_at = CASE WHEN %(is_metered)s::bool THEN clock_timestamp() ELSE lane.filled_at END
    FROM gate CROSS JOIN shortage
    WHERE lane.provider = %(account)s AND lane.model = %(model)s
      AND coalesce(gate.parked, 0) <= 0 AND coalesce(shortage.seconds, 0) <= 0
    RETURNING gate.is_test
), opened AS (
    INSERT INTO call (id, job_id, attempt_id, caps, state, provider, model, key_hash, gateway, lease_until,
                      max_tokens, reserved_nanousd, cost_nanousd, prices_as_of,
                      input_tokens, output_tokens, cache_write_tokens, cache_read_tokens)
    SELECT %(id)s, %(job_id)s, %(attempt_id)s,
           (SELECT jsonb_agg(jsonb_build_array(scope, key) ORDER BY place) FROM wanted),
           'reserved', %(provider)s, %(model)s, %(key_hash)s, %(gateway)s, {AFTER_LEASE},
           tokens, %(input_nanousd)s::bigint + tokens * %(token_nanousd)s::bigint, 0, %(prices_as_of)s, 0, 0, 0, 0
    FROM verdict WHERE has_all_caps AND tokens >= %(least_tokens)s::bigint
      AND (NOT (%(is_metered)s::bool OR EXISTS (SELECT FROM seen WHERE is_shut)) OR EXISTS (SELECT FROM passed))
    RETURNING max_tokens, reserved_nanousd
), taken AS (
    UPDATE cap SET reserved_nanousd = cap.reserved_nanousd + opened.reserved_nanousd, limit_nanousd = held.amount
    FROM held, opened
    WHERE cap.scope = held.scope AND cap.key = held.key
)
SELECT EXISTS (SELECT FROM bearer) AS holds, verdict.has_all_caps, tightest.scope, tightest.room,
       opened.max_tokens, opened.reserved_nanousd,
       seen.failures, coalesce(passed.is_test, false) AS is_test, coalesce(gate.reason, seen.reason) AS reason,
       greatest(seen.wait, gate.parked) AS parked, shortage.seconds AS short
FROM verdict
LEFT JOIN (SELECT scope, room FROM held ORDER BY room LIMIT 1) AS tightest ON true
LEFT JOIN opened ON true
LEFT JOIN seen ON true
LEFT JOIN gate ON true
LEFT JOIN shortage ON true
LEFT JOIN passed ON true
"""

WASTED = ", ".join(f"'{outcome}'" for outcome in sorted(WASTED_OUTCOMES))
USED = ", ".join(f"'{state}'" for state in sorted(USED_ENDS))

# The rest of a statement whose CTE `closed` has closed calls: their caps in the one order, then one event for each. The
# lock on the attempt makes its end and this booking see each other: exactly one counts what a call cost in vain.
BOOK = f"""
judged AS MATERIALIZED (
    SELECT id, queue, tier, outcome FROM attempt WHERE id IN (SELECT attempt_id FROM closed) FOR SHARE
), amounts AS MATERIALIZED (
    SELECT pair ->> 0 AS scope, pair ->> 1 AS key, min(place) AS place,
           sum(closed.reserved_nanousd) AS reserved, sum(closed.cost_nanousd) AS cost
    FROM closed JOIN judged ON judged.id = closed.attempt_id,
         jsonb_array_elements(closed.caps) WITH ORDINALITY AS listed (pair, place)
    GROUP BY 1, 2
), held AS MATERIALIZED (
    SELECT cap.scope, cap.key, amounts.reserved, amounts.cost
    FROM cap JOIN amounts ON cap.scope = amounts.scope AND cap.key = amounts.key
    ORDER BY amounts.place, amounts.key
    FOR UPDATE OF cap
), booked AS (
    UPDATE cap SET reserved_nanousd = cap.reserved_nanousd - held.reserved,
                   spent_nanousd = cap.spent_nanousd + held.cost
    FROM held
    WHERE cap.scope = held.scope AND cap.key = held.key
), told AS (
    INSERT INTO event (kind, job_id, tenant, data)
    SELECT %(event)s, job.id, job.tenant, jsonb_build_object(
        'queue', judged.queue, 'tier', judged.tier, 'model', closed.model, 'provider', closed.provider,
        'finish', closed.finish, 'status', closed.status, 'cost_nanousd', closed.cost_nanousd,
        'input_tokens', closed.input_tokens, 'output_tokens', closed.output_tokens,
        'cache_write_tokens', closed.cache_write_tokens, 'cache_read_tokens', closed.cache_read_tokens,
        'wasted_nanousd', CASE WHEN judged.outcome IN ({WASTED}) OR (job.ended_at IS NOT NULL
            AND judged.outcome IS NOT NULL AND job.state NOT IN ({USED})) THEN closed.cost_nanousd ELSE 0 END)
    FROM closed JOIN judged ON judged.id = closed.attempt_id JOIN job ON job.id = closed.job_id
)
SELECT id FROM closed
"""

SETTLE = f"""
WITH closed AS (
    UPDATE call SET state = %(state)s, finish = %(finish)s, status = %(status)s, cost_nanousd = %(cost)s,
                    input_tokens = %(input_tokens)s, output_tokens = %(output_tokens)s,
                    cache_write_tokens = %(cache_write_tokens)s, cache_read_tokens = %(cache_read_tokens)s,
                    ended_at = clock_timestamp()
    WHERE id = %(id)s AND state = 'reserved'
    RETURNING *
), {BOOK}"""

PRESUME_LOST = f"""
WITH lost AS MATERIALIZED (
    SELECT id FROM call
    WHERE state = 'reserved' AND lease_until < (SELECT clock_timestamp())
    ORDER BY lease_until LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
), closed AS (
    UPDATE call SET state = 'presumed', finish = 'gateway_lost', status = 0, cost_nanousd = reserved_nanousd,
                    ended_at = clock_timestamp()
    FROM lost WHERE call.id = lost.id
    RETURNING call.*
), {BOOK}"""

RENEW = f"""
UPDATE call SET lease_until = {AFTER_LEASE} WHERE id = ANY(%(ids)s::uuid[]) AND state = 'reserved'
RETURNING id
"""

STOPPED = """
SELECT attempt.id, attempt.ended_at IS NOT NULL AS has_ended, attempt.deadline <= clock_timestamp() AS is_late,
       job.cancel_requested_at IS NOT NULL AS is_cancelled
FROM attempt JOIN job ON job.id = attempt.job_id
WHERE attempt.id = ANY(%(ids)s::uuid[])
  AND (attempt.ended_at IS NOT NULL OR attempt.deadline <= clock_timestamp() OR attempt.fence <> job.fence
       OR job.cancel_requested_at IS NOT NULL)
"""

LIMIT_HIT = """
INSERT INTO event (kind, job_id, tenant, data)
VALUES (%(event)s, %(job_id)s, %(tenant)s, jsonb_build_object(
    'queue', %(queue)s::text, 'tier', %(tier)s::int, 'limit', 'cost', 'phase', %(phase)s::text,
    'scope', %(scope)s::text))
RETURNING id
"""

"""What each query of each panel must show, as SQL over the ledger: labels in the order of their names, and a number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from monitoring.metrics import FIELDS, FOLDED, STEPS

Place = tuple[str, str, int]
"""A board's uid, a panel's title, and which of its queries."""


@dataclass(frozen=True)
class Grown:
    """A counter: what it grew by is by how much this count did. `per`: its quotient by another one."""

    sql: str
    per: str = ""
    factor: float = 1.0


@dataclass(frozen=True)
class Now:
    """A gauge: what this is now. `within`: by how much an age may differ."""

    sql: str
    within: float = 1e-6


@dataclass(frozen=True)
class Spread:
    """A quantile of these values (rows of a label and a value): it lies in the bucket that holds the exact one."""

    sql: str
    quantile: float
    buckets: tuple[float, ...]


Number = Grown | Now | Spread

TIER = "CASE tier WHEN 1 THEN 'spec' WHEN 2 THEN 'patch' WHEN 3 THEN 'agent' ELSE 'none' END"
TOLD_TIER = TIER.replace("tier", "(data ->> 'tier')::int", 1)
WELL = "state IN ('answered', 'published')"
BAD = "state IN ('failed', 'timed_out', 'budget_exceeded', 'output_exceeded', 'escalated')"


_BUCKETS = {metric.name: metric.buckets for metric in FOLDED if metric.buckets}


def events(kind: str, labels: str, *, count: str = "count(*)", where: str = "true") -> str:
    columns = f"{labels}, " if labels else ""
    return f"SELECT {columns}{count} FROM event WHERE kind = '{kind}' AND {where} {by(labels)}"


def by(labels: str) -> str:
    return f"GROUP BY {', '.join(str(n + 1) for n in range(labels.count(', ') + 1))}" if labels else ""


def spread(
    board: str, title: str, metric: str, sql: str, *, of: tuple[float, ...] = (0.5, 0.95)
) -> dict[Place, Number]:
    """A panel of quantiles of one histogram."""
    return {(board, title, at): Spread(sql, quantile, _BUCKETS[metric]) for at, quantile in enumerate(of)}


COST = "SELECT coalesce(sum(cost_nanousd), 0) / 1e9::float FROM call"
WASTED = "SELECT coalesce(sum((data ->> 'wasted_nanousd')::bigint), 0) / 1e9::float FROM event"
ACCEPTED = "request_digest <> ''"
"""A message refused at the Celery intake leaves a row without one: it never was a job."""
ENDS = f"SELECT count(*) FROM job WHERE ended_at IS NOT NULL AND {ACCEPTED}"
ENDS_WELL = f"{ENDS} AND {WELL}"
WAITING = "SELECT queue, count(*) FROM job WHERE waiting_since IS NOT NULL GROUP BY 1"
OLDEST = (
    "SELECT queue, extract(epoch FROM now() - min(waiting_since)) FROM job WHERE waiting_since IS NOT NULL GROUP BY 1"
)
RUNNING = "SELECT queue, count(*) FROM attempt WHERE ended_at IS NULL GROUP BY 1"
DEAD = "SELECT queue, count(*) FROM job WHERE failure_signature IS NOT NULL AND dismissed_at IS NULL GROUP BY 1"
HITS = events("limit_hit", "data ->> 'limit', data ->> 'phase'")
LIVE = "attempt WHERE ended_at IS NULL AND lost_cause IS NULL AND lease_until > now()"
SERVING = "(SELECT * FROM worker WHERE NOT is_draining AND seen_at > now() - interval '35 s') AS worker"
BUSY = f"""SELECT served, count(*) FROM {SERVING}, jsonb_array_elements_text(queues) AS served
             JOIN (SELECT worker AS held FROM {LIVE}) AS live ON true WHERE held = worker.id GROUP BY 1"""
SLOTS = f"SELECT served, sum(slots) FROM {SERVING}, jsonb_array_elements_text(queues) AS served GROUP BY 1"
BUDGET = """SELECT coalesce(sum({column}), 0) / 1e9::float FROM cap
             WHERE scope = 'fleet_day' AND key = to_char(timezone('UTC', now()), 'YYYY-MM-DD')"""
ATTEMPT_SECONDS = "SELECT queue, extract(epoch FROM ended_at - started_at) FROM attempt WHERE ended_at IS NOT NULL"
WAIT_SECONDS = "SELECT data ->> 'queue', (data ->> 'wait_seconds')::float FROM event WHERE kind = 'started'"
MODE = "lower(coalesce(data -> 'decision' ->> 'mode', data ->> 'mode'))"
SURE = "lower(coalesce(data -> 'decision' ->> 'confidence', data ->> 'confidence', 'none'))"
LEVEL = TIER.replace("tier W", "(coalesce(data -> 'decision' ->> 'tier', data ->> 'tier'))::int W")
DECIDED = f"""FROM event WHERE {MODE} IS NOT NULL AND (
    (kind = 'accepted' AND data ->> 'state' NOT IN ('received', 'clarifying'))
    OR (kind = 'state' AND data -> 'decision' ->> 'mode' IS NOT NULL))"""
ASKED = """FROM event WHERE (kind = 'state' AND data ->> 'target' = 'clarifying')
              OR (kind = 'accepted' AND data ->> 'state' = 'clarifying')"""
RUN_GATES = events("ended", "", count="coalesce(sum((data ->> 'gates')::int), 0)")
RUNS = events("ended", "", where="data ? 'gates'")
TOKENS_OF_RUNS = """SELECT CASE part WHEN 'orchestrator' THEN part ELSE 'other' END, sum(tokens::bigint)
                      FROM event, jsonb_each_text(data -> 'run_tokens') AS used (part, tokens)
                     WHERE kind = 'ended' AND jsonb_typeof(data -> 'run_tokens') = 'object' GROUP BY 1"""
BY_BOX = f"CASE WHEN (data ->> 'boxes')::int > 0 THEN 'used' ELSE 'none' END, {TOLD_TIER}"
TIERED = "data ->> 'tier' IS NOT NULL"
_STEPS = ", ".join(f"'{name}'" for name in STEPS)
_STEP_NAME = "split_part(data ->> 'step', ':', 1)"
STEP = f"CASE WHEN {_STEP_NAME} IN ({_STEPS}) THEN {_STEP_NAME} ELSE 'other' END"


JOB_SECONDS = (
    f"SELECT {TIER}, extract(epoch FROM ended_at - created_at) FROM job WHERE ended_at IS NOT NULL AND {ACCEPTED}"
)
JOB_USD = f"SELECT {TOLD_TIER}, (data ->> 'cost_nanousd')::bigint / 1e9::float FROM event WHERE kind = 'ended'"
JOB_BYTES = f"""SELECT {TOLD_TIER}, (data ->> 'output_bytes')::bigint FROM event
                 WHERE kind = 'ended' AND data ->> 'output_bytes' IS NOT NULL"""
STEP_SECONDS = f"SELECT {STEP}, (data ->> 'seconds')::float FROM event WHERE kind = 'step' AND data ? 'seconds'"
_FIELDS = ",".join(f"'{name}'" for name in FIELDS)
FIELD = f"CASE WHEN data ->> 'field' IN ({_FIELDS}) THEN data ->> 'field' ELSE 'other' END"
WEAK = "mode = 'action' AND sure = 'weak'"
OBJECTS = "sum((data ->> 'container')::int + (data ->> 'network')::int + (data ->> 'volume')::int)"


F, Q, C, R, S, T = (f"pointsman-{name}" for name in ("fleet", "queue", "cost", "routing", "sandbox", "runs"))
TOTAL = "SELECT sum(number) FROM ({}) AS found (label, number)"
PANELS: Mapping[Place, Number] = {
    (F, "Waiting", 0): Now("SELECT count(*) FROM job WHERE waiting_since IS NOT NULL"),
    (F, "Running", 0): Now("SELECT count(*) FROM attempt WHERE ended_at IS NULL"),
    (F, "Oldest wait", 0): Now("SELECT greatest(0, max(extract(epoch FROM now() - waiting_since))) FROM job", 6),
    (F, "Slots taken", 0): Now(f"SELECT (SELECT count(*) FROM {LIVE})::float / nullif(sum(slots), 0) FROM {SERVING}"),
    (F, "Workers", 0): Now(f"SELECT count(*) FROM {SERVING}"),
    (F, "Ended well", 0): Grown(ENDS_WELL, per=ENDS),
    (F, "Spent today", 0): Now(BUDGET.format(column="spent_nanousd")),
    (F, "Slice of the fleet's budget", 1): Now(BUDGET.format(column="spent_nanousd")),
    (F, "Dispatcher leads", 0): Now("SELECT count(*) FROM leader WHERE role = 'dispatcher' AND until > now()"),
    (F, "Accepted and ended", 0): Grown(f"SELECT count(*) FROM job WHERE {ACCEPTED}"),
    (F, "Accepted and ended", 1): Grown(ENDS),
    (F, "Ends by state", 0): Grown(f"{ENDS.replace('count', 'state, count')} GROUP BY 1"),
    (F, "Waiting by queue", 0): Now(WAITING),
    (F, "Oldest wait by queue", 0): Now(OLDEST, 6),
    (F, "Saturation by queue", 0): Now(
        f"SELECT queue, taken::float / slots FROM ({BUSY}) AS busy (queue, taken) JOIN ({SLOTS}) AS all_ (queue, slots)"
        " USING (queue)"
    ),
    (F, "Workers by standing", 0): Now("""
        SELECT CASE WHEN seen_at < now() - interval '35 s' THEN 'lost' WHEN is_draining THEN 'draining' ELSE 'serving'
               END, count(*) FROM worker GROUP BY 1"""),
    (F, "Jobs that something holds", 0): Now(
        "SELECT held_for, count(*) FROM job WHERE held_for IS NOT NULL GROUP BY 1"
    ),
    (F, "Reasons of failures", 0): Grown(f"{ENDS.replace('count', 'reason, count')} AND {BAD} GROUP BY 1"),
    (F, "Dead letters", 0): Now(DEAD),
    (F, "Limits hit", 0): Grown(HITS),
    (F, "Attempts lost", 0): Grown(
        "SELECT queue, count(*) FROM attempt WHERE outcome = 'lost' AND reason <> 'worker_stopped' GROUP BY 1"
    ),
    (F, "Duplicates fenced", 0): Grown(events("fenced", "data ->> 'queue'")),
    (F, "Age of what is not counted yet", 0): Now("SELECT 0", 6),
    (F, "Age of what is not sealed yet", 0): Now(
        "SELECT coalesce(max(extract(epoch FROM now() - at)), 0) FROM audit"
        " WHERE seq > (SELECT coalesce(max(last_seq), 0) FROM audit_seal)",
        8,
    ),
    (Q, "Waiting", 0): Now(WAITING),
    (Q, "Arrivals and starts", 0): Grown(events("waiting", "data ->> 'queue'")),
    (Q, "Arrivals and starts", 1): Grown("SELECT queue, count(*) FROM attempt GROUP BY 1"),
    (Q, "Paused", 0): Now("SELECT queue, 1 FROM queue_control WHERE paused_at IS NOT NULL"),
    (Q, "Slots", 0): Now(SLOTS),
    (Q, "Slots", 1): Now(BUSY),
    (Q, "Attempts under way", 0): Now(RUNNING),
    (Q, "Longest under way", 0): Now(
        "SELECT queue, extract(epoch FROM now() - min(started_at)) FROM attempt WHERE ended_at IS NULL GROUP BY 1", 6
    ),
    (Q, "Outcomes", 0): Grown("SELECT outcome, count(*) FROM attempt WHERE ended_at IS NOT NULL GROUP BY 1"),
    (Q, "Leases", 0): Now("SELECT queue, 0 FROM attempt WHERE ended_at IS NULL GROUP BY 1", 20),
    (Q, "Limits hit", 0): Grown(HITS),
    (Q, "Dead letters", 0): Now(DEAD),
    (Q, "Messages of another version", 0): Grown(events("unread", "data ->> 'queue'")),
    (C, "The fleet's day", 0): Now(BUDGET.format(column="spent_nanousd")),
    (C, "The fleet's day", 1): Now(BUDGET.format(column="reserved_nanousd")),
    (C, "The fleet's day", 2): Now(BUDGET.format(column="limit_nanousd")),
    (C, "Fullest budget", 0): Now("""
        SELECT scope, max((spent_nanousd + reserved_nanousd) / nullif(limit_nanousd, 0)::float) FROM cap
         WHERE scope IN ('fleet_day', 'tenant_day') AND key LIKE '%' || to_char(timezone('UTC', now()), 'YYYY-MM-DD')
         GROUP BY 1"""),
    (C, "USD per hour by tier and model", 0): Grown(
        f"SELECT model, {TIER}, sum(cost_nanousd) / 1e9::float FROM call JOIN attempt ON attempt.id = attempt_id"
        " GROUP BY 1, 2",
        factor=3600,
    ),
    (C, "USD for each job that ended well", 0): Grown(COST, per=ENDS_WELL),
    (C, "Wasted share", 0): Grown(WASTED, per=COST),
    (C, "Tokens by kind", 0): Grown("""
        SELECT kind, sum(tokens) FROM call, LATERAL (VALUES ('input', input_tokens), ('output', output_tokens),
            ('cache_write', cache_write_tokens), ('cache_read', cache_read_tokens)) AS kinds (kind, tokens)
         WHERE state <> 'reserved' GROUP BY 1"""),
    (C, "Cost limits hit", 0): Grown(
        events("limit_hit", f"data ->> 'phase', {TOLD_TIER}", where="data ->> 'limit' = 'cost'")
    ),
    (C, "Calls by answer", 0): Grown("""
        SELECT CASE WHEN status IN (429, 529) THEN status::text WHEN status BETWEEN 200 AND 599
                    THEN (status / 100)::text || 'xx' ELSE 'none' END, provider, count(*)
          FROM call WHERE state <> 'reserved' GROUP BY 1, 2"""),
    (C, "Breakers", 0): Now("SELECT model, provider, 2 FROM provider_circuit WHERE open_until > now()"),
    (C, "Open for", 0): Now(
        "SELECT model, provider, extract(epoch FROM open_until - now()) FROM provider_circuit WHERE open_until > now()",
        6,
    ),
    (C, "Times opened", 0): Grown(
        events("circuit", "data ->> 'provider', data ->> 'reason'", where="data ->> 'change' = 'opened'")
    ),
    (R, "ANSWER rate", 0): Grown(f"SELECT count(*) {DECIDED} AND {MODE} = 'answer'", per=f"SELECT count(*) {DECIDED}"),
    (R, "ACTION rate", 0): Grown(
        f"SELECT count(*) {DECIDED} AND {MODE} = 'action' AND {SURE} IN ('strong', 'weak')",
        per=f"SELECT count(*) {DECIDED}",
    ),
    (R, "confidence distribution", 0): Grown(
        f"SELECT count(*) {DECIDED} AND {MODE} = 'action' AND {SURE} = 'strong'",
        per=f"SELECT count(*) {DECIDED} AND {MODE} = 'action' AND {SURE} IN ('strong', 'weak')",
    ),
    (R, "override rate", 0): Grown(
        f"SELECT count(*) FROM (SELECT {MODE} AS mode, {SURE} AS sure {ASKED}) AS asked WHERE {WEAK}",
        per=f"SELECT count(*) {DECIDED} AND {MODE} = 'action' AND {SURE} = 'weak'",
    ),
    (R, "Routes", 0): Grown(f"SELECT {SURE}, {MODE}, count(*) {DECIDED} GROUP BY 1, 2"),
    (R, "Tiers of actions", 0): Grown(f"SELECT {LEVEL}, count(*) {DECIDED} AND {MODE} = 'action' GROUP BY 1"),
    (R, "Escalations", 0): Grown(
        "SELECT CASE data ->> 'origin' WHEN '1' THEN 'spec' ELSE 'patch' END, data ->> 'reason',"
        " CASE data ->> 'target' WHEN '2' THEN 'patch' ELSE 'agent' END, count(*) FROM event WHERE kind = 'escalated'"
        " GROUP BY 1, 2, 3"
    ),
    (R, "Sources", 0): Grown(f"SELECT source, count(*) FROM job WHERE {ACCEPTED} GROUP BY 1"),
    (R, "Requests refused", 0): Grown(events("refused", FIELD)),
    (R, "Questions to owners", 0): Grown(
        f"SELECT sure, coalesce(mode, 'none'), count(*) FROM (SELECT {MODE} AS mode, {SURE} AS sure {ASKED}) AS asked"
        " GROUP BY 1, 2"
    ),
    (R, "The ladder", 0): Grown(events("ladder", "data ->> 'event'")),
    (R, "Debates", 0): Grown(events("debated", "data ->> 'debate', lower(data ->> 'verdict')")),
    (S, "Edits without a container", 0): Grown(
        events("ended", "", where=f"{TIERED} AND (data ->> 'boxes')::int = 0"), per=events("ended", "", where=TIERED)
    ),
    (S, "Warm starts", 0): Grown(events("box", "", where="(data ->> 'warm')::bool"), per=events("box", "")),
    (S, "Boxes at work", 0): Now("SELECT count(*) FROM attempt WHERE ended_at IS NULL AND egress_address IS NOT NULL"),
    (S, "Orphans removed", 0): Grown(events("reaped", "", count=f"coalesce({OBJECTS}, 0)")),
    (S, "Boxes opened", 0): Grown(
        events("box", "data ->> 'queue', CASE WHEN (data ->> 'warm')::bool THEN 'warm' ELSE 'cold' END")
    ),
    (S, "Jobs by container", 0): Grown(events("ended", BY_BOX)),
    (S, "Requests to the mirror", 0): Grown(
        events("mirror", "data ->> 'result'", count="sum((data ->> 'requests')::int)")
    ),
    (S, "Bytes into boxes", 0): Grown(events("mirror", "", count="coalesce(sum((data ->> 'bytes')::bigint), 0)")),
    (T, "Runs that ended", 0): Grown(events("ended", "data ->> 'state'", where="data ? 'gates'")),
    (T, "Steps waiting and running", 0): Now(
        "SELECT count(*) FROM job WHERE waiting_since IS NOT NULL AND queue = 'steps'"
    ),
    (T, "Steps waiting and running", 1): Now("SELECT count(*) FROM attempt WHERE ended_at IS NULL AND queue = 'steps'"),
    (T, "Outcomes of steps", 0): Grown(
        "SELECT outcome, count(*) FROM attempt WHERE ended_at IS NOT NULL AND queue = 'steps' GROUP BY 1"
    ),
    (T, "The orchestrator's share of tokens", 0): Grown(
        TOTAL.format(TOKENS_OF_RUNS) + " WHERE label = 'orchestrator'", per=TOTAL.format(TOKENS_OF_RUNS)
    ),
    (T, "Gates per run", 0): Grown(RUN_GATES, per=RUNS),
    (T, "Gates", 0): Grown(events("gate", "data ->> 'gate_kind', data ->> 'state'")),
    (T, "Tokens of runs", 0): Grown(TOKENS_OF_RUNS),
    **spread(F, "Duration of jobs", "job_duration_seconds", JOB_SECONDS),
    **spread(Q, "Time in queue", "queue_wait_seconds", WAIT_SECONDS, of=(0.5, 0.95, 0.99)),
    **spread(Q, "Attempts take", "attempt_duration_seconds", ATTEMPT_SECONDS),
    **spread(C, "Cost of a job", "job_cost_usd", JOB_USD),
    **spread(C, "Bytes that jobs made", "output_bytes", JOB_BYTES),
    **spread(S, "Steps of a session take", "step_seconds", STEP_SECONDS),
    **spread(T, "Steps take", "attempt_duration_seconds", f"{ATTEMPT_SECONDS} AND queue = 'steps'"),
}

BESIDE_THE_LEDGER: Mapping[Place, str] = {
    (F, "Messages that nobody serves", 0): "llen",
    (F, "Broker's memory", 0): "used_memory",
    (F, "Broker's memory", 1): "maxmemory",
    (F, "On the broker's lists", 0): "lists",
    (F, "Connections to the broker", 0): "connected_clients",
    (F, "Keys that the broker threw away", 0): "evicted_keys",
    (F, "Slice of the fleet's budget", 0): "leased",
    (F, "Tenants that are moving", 0): "moves",
    (Q, "Backlog in seconds of work", 0): "estimate",
    (Q, "Backlog in dollars", 0): "estimate",
    (C, "Backlog in dollars", 0): "estimate",
}
"""Panels whose number is another server's or an estimate: tests of their own prove it (test_exporter, test_forecast,
test_cells_metrics)."""

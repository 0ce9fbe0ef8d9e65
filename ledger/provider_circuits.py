"""Provider circuits shared by the whole fleet: one row for each model of each account.

Every gateway reads the row in the statement that reserves a call (`money.RESERVE`) and reports the call's outcome here.
Time is the database's. `routing.provider_circuit` decides what counts as trouble, and for how long it opens a circuit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from sqlmodel import Session

from ledger.events import EventKind
from ledger.store import Statement, wake_dispatcher
from routing.provider_circuit import CircuitRules, CircuitState, Trouble
from routing.scheduling import WaitReason

# Seconds for which a circuit takes no call: while it is open, and, a short pause at a time, while another call tests
# it. NULL when it takes calls.
OPEN_SECONDS = """
    CASE WHEN open_until > clock_timestamp() THEN extract(epoch FROM open_until - clock_timestamp())
         WHEN open_until IS NOT NULL AND probing_until > clock_timestamp()
         THEN least(extract(epoch FROM probing_until - clock_timestamp()), %(pause_seconds)s::float) END
"""


def _filled(column: str, per_minute: str) -> str:
    """Return SQL for the current level of a one-minute bucket; a new bucket is full."""
    since = "coalesce(extract(epoch FROM clock_timestamp() - provider_circuit.filled_at), 60)"
    return f"least({per_minute}, provider_circuit.{column} + {per_minute} * greatest({since}, 0) / 60)"


FILLED_REQUESTS = _filled("requests", "%(requests_per_minute)s::float")
FILLED_TOKENS = _filled("tokens", "%(tokens_per_minute)s::float")

# The circuit's row is locked after the caps, and only when it has buckets or is to be tested: one gateway alone gets to
# test it, and a call takes from a bucket together with its reserve.
GATE = f""", gate AS MATERIALIZED (
    SELECT provider_circuit.open_until IS NOT NULL AS is_test, provider_circuit.reason, {OPEN_SECONDS} AS open_seconds,
           {FILLED_REQUESTS} AS requests, {FILLED_TOKENS} AS tokens,
           %(input_tokens)s::float + verdict.tokens AS needed
    FROM verdict CROSS JOIN provider_circuit
    WHERE verdict.is_asked AND verdict.tokens >= %(least_tokens)s::bigint
      AND provider_circuit.provider = %(account)s AND provider_circuit.model = %(model)s
      AND (%(is_metered)s::bool OR EXISTS (SELECT FROM seen WHERE is_shut))
    FOR UPDATE OF provider_circuit
), shortage AS MATERIALIZED (
    SELECT greatest((1 - requests) * 60 / %(requests_per_minute)s::float,
                    (least(needed, %(tokens_per_minute)s::float) - tokens) * 60 / %(tokens_per_minute)s::float
           ) AS seconds
    FROM gate
), passed AS (
    UPDATE provider_circuit SET probing_until = CASE WHEN gate.is_test THEN
                        clock_timestamp() + make_interval(secs => %(probe_seconds)s::float) END,
                    requests = coalesce(gate.requests - 1, provider_circuit.requests),
                    tokens = coalesce(gate.tokens - gate.needed, provider_circuit.tokens),
                    filled_at = CASE WHEN %(is_metered)s::bool THEN clock_timestamp()
                                     ELSE provider_circuit.filled_at END
    FROM gate CROSS JOIN shortage
    WHERE provider_circuit.provider = %(account)s AND provider_circuit.model = %(model)s
      AND coalesce(gate.open_seconds, 0) <= 0 AND coalesce(shortage.seconds, 0) <= 0
    RETURNING gate.is_test
)"""

_EVENT = """
INSERT INTO event (kind, data)
SELECT %(event)s, jsonb_build_object('provider', provider, 'model', model, 'change', {change}, 'reason', reason,
    'failures', failures, 'seconds', round(coalesce(extract(epoch FROM open_until - statement_timestamp()), 0), 3))
FROM {changed}
"""

# The failure of a call that began before its circuit opened is not news: only a wait that its provider named counts.
# `statement_timestamp()` is constant within the statement, so `changed_at` identifies a row that it changed.
_FAIL = f"""
WITH noted AS (
    INSERT INTO provider_circuit AS known (provider, model, failures, requests, tokens, reason, open_until, changed_at)
    VALUES (%(account)s, %(model)s, 1, 0, 0,
            CASE WHEN (%(pauses)s::float[])[1] > 0 THEN %(reason)s END,
            CASE WHEN (%(pauses)s::float[])[1] > 0
                 THEN statement_timestamp() + make_interval(secs => (%(pauses)s::float[])[1]) END,
            statement_timestamp())
    ON CONFLICT (provider, model) DO UPDATE SET (failures, reason, open_until, probing_until, changed_at) = (
        SELECT CASE WHEN is_news THEN known.failures + 1 ELSE known.failures END,
               CASE WHEN is_news AND pause > 0 THEN %(reason)s ELSE known.reason END,
               CASE WHEN is_news AND pause > 0 THEN statement_timestamp() + make_interval(secs => pause)
                    WHEN NOT is_news AND %(asked)s::float IS NOT NULL
                    THEN greatest(known.open_until, statement_timestamp() + make_interval(secs => pause))
                    ELSE known.open_until END,
               CASE WHEN is_news THEN NULL ELSE known.probing_until END,
               CASE WHEN is_news AND pause > 0 THEN statement_timestamp() ELSE known.changed_at END
        FROM (SELECT known.open_until IS NULL OR %(is_test)s::bool AS is_news,
                     (%(pauses)s::float[])[least(known.failures + 1, cardinality(%(pauses)s::float[]))] AS pause) x
    )
    RETURNING known.*
), told AS ({
    _EVENT.format(
        change="'opened'", changed="noted WHERE changed_at = statement_timestamp() AND open_until IS NOT NULL"
    )
})
SELECT failures, greatest(extract(epoch FROM open_until - statement_timestamp()), 0)::float FROM noted
"""

# Only the test call closes an open circuit: other successful calls began before it opened.
_SUCCEED = f"""
WITH freed AS (
    UPDATE provider_circuit
       SET failures = 0, open_until = NULL, probing_until = NULL, changed_at = statement_timestamp()
    FROM (SELECT open_until IS NOT NULL AS was_open FROM provider_circuit
          WHERE provider = %(account)s AND model = %(model)s FOR UPDATE) AS before
    WHERE provider = %(account)s AND model = %(model)s
      AND (failures > 0 OR open_until IS NOT NULL) AND (%(is_test)s::bool OR open_until IS NULL)
    RETURNING provider_circuit.*, before.was_open
), told AS ({_EVENT.format(change="'closed'", changed="freed WHERE was_open")})
SELECT was_open FROM freed
"""

_GIVE_UP_TEST = """
UPDATE provider_circuit SET probing_until = NULL
WHERE provider = %(account)s AND model = %(model)s AND open_until IS NOT NULL
RETURNING model
"""

_OPEN_ROW = """
INSERT INTO provider_circuit (provider, model, failures, requests, tokens)
VALUES (%(account)s, %(model)s, 0, 0, 0) ON CONFLICT DO NOTHING
RETURNING model
"""

_GIVE_BACK = """
UPDATE provider_circuit SET tokens = tokens + %(tokens)s WHERE provider = %(account)s AND model = %(model)s
RETURNING model
"""


# A bucket of its own, beside those of the account's models; it begins full.
_TAKE_COUNT = f"""
INSERT INTO provider_circuit (provider, model, failures, requests, tokens, filled_at)
VALUES (%(account)s, %(model)s, 0, %(requests_per_minute)s::float - 1, 0, clock_timestamp())
ON CONFLICT (provider, model) DO UPDATE SET requests = {FILLED_REQUESTS} - 1, filled_at = clock_timestamp()
WHERE {FILLED_REQUESTS} >= 1
RETURNING requests
"""
_COUNTS = "count_tokens"
"""Stands for a model in the row of that bucket."""


@dataclass(frozen=True, kw_only=True)
class CircuitUse:
    """The circuit that a call wants to use, and its rules; without an account there is none."""

    account: str = ""
    """The gateway's name for the provider's account: each account has circuits of its own."""
    rules: CircuitRules = field(default_factory=CircuitRules)
    input_tokens: int = 0
    """The most that the call can read."""

    @property
    def is_metered(self) -> bool:
        """Whether we limit the circuit's rate ourselves."""
        return self.rules.requests_per_minute is not None or self.rules.tokens_per_minute is not None


class CircuitView(NamedTuple):
    """The state of a circuit, for people and metrics."""

    provider: str
    model: str
    state: CircuitState
    open_seconds: float
    """How long it stays open; 0 unless it is."""
    reason: str | None
    failures: int
    changed_at: datetime


class Failure(NamedTuple):
    """A circuit after a failed call."""

    failures: int
    open_seconds: float
    """How long it is open from now on; 0 when it is not."""


def fail(
    account: str, model: str, *, trouble: Trouble, pauses: Sequence[float], asked: float | None, is_test: bool
) -> Statement:
    """Return the statement that records a failure of the circuit, and opens the circuit when due.

    `pauses` come from `routing.provider_circuit.pauses`; `asked` are the seconds that the provider named, if any.
    """
    values = {
        "account": account,
        "model": model,
        "reason": trouble.value,
        "asked": asked,
        "is_test": is_test,
        "pauses": [float(pause) for pause in pauses],
        "event": EventKind.CIRCUIT.value,
    }
    return Statement(_FAIL, values)


def read_failure(row: Sequence[Any]) -> Failure:
    """Read the row that `fail` returned."""
    failures, seconds = row
    return Failure(failures, seconds or 0.0)


def succeed(account: str, model: str, *, is_test: bool) -> Statement:
    """Return the statement that records a success: it resets the failures, and a test closes the circuit."""
    return Statement(
        _SUCCEED, {"account": account, "model": model, "is_test": is_test, "event": EventKind.CIRCUIT.value}
    )


def give_up_test(account: str, model: str) -> Statement:
    """Return the statement that lets another call test the circuit: this one was abandoned before the answer."""
    return Statement(_GIVE_UP_TEST, {"account": account, "model": model})


def open_row(account: str, model: str) -> Statement:
    """Return the statement that creates the row of a metered circuit, with full buckets."""
    return Statement(_OPEN_ROW, {"account": account, "model": model})


def take_count(account: str, *, per_minute: float) -> Statement:
    """Return the statement that takes a request to count tokens from its bucket; without a row it was empty."""
    return Statement(_TAKE_COUNT, {"account": account, "model": _COUNTS, "requests_per_minute": per_minute})


def give_back(account: str, model: str, *, tokens: int) -> Statement:
    """Return the statement that puts unused tokens of a call back into its circuit's bucket."""
    return Statement(_GIVE_BACK, {"account": account, "model": model, "tokens": tokens})


_VIEW = Statement("""
    SELECT provider, model,
           CASE WHEN open_until IS NULL THEN 'closed'
                WHEN open_until > clock_timestamp() THEN 'open' ELSE 'half_open' END AS state,
           greatest(coalesce(extract(epoch FROM open_until - clock_timestamp()), 0), 0)::float AS seconds,
           CASE WHEN open_until IS NOT NULL THEN reason END AS reason, failures, changed_at
      FROM provider_circuit ORDER BY provider, model
""")

_WAIT = Statement("""
    SELECT greatest(extract(epoch FROM provider_circuit.open_until - clock_timestamp()), 0)::float
      FROM job JOIN tenant ON tenant.name = job.tenant
      LEFT JOIN agent_executions AS execution ON execution.job_id = job.id
      JOIN provider_circuit ON provider_circuit.provider = coalesce(execution.provider, tenant.provider)
                           AND provider_circuit.model = %(model)s
     WHERE job.id = %(job)s AND provider_circuit.open_until IS NOT NULL
""")


_IS_KNOWN = Statement("SELECT 1 FROM provider_circuit WHERE provider = %(provider)s AND model = %(model)s")

_RELEASE_JOBS = Statement("""
    UPDATE job SET held_until = clock_timestamp() WHERE held_for = %(hold)s AND held_until > clock_timestamp()
""")


def circuits(session: Session) -> list[CircuitView]:
    """Return every circuit that ever had trouble or is metered."""
    return [CircuitView(*row)._replace(state=CircuitState(row.state)) for row in _VIEW.all(session)]


def circuit_wait(session: Session, job_id: UUID, model: str) -> float | None:
    """Return for how many seconds the circuit of a job and model stays open: 0 before its test, None if closed."""
    seconds: float | None = _WAIT.scalar(session, {"job": job_id, "model": model})
    return seconds


def reset_circuit(session: Session, provider: str, model: str) -> bool:
    """Close an open circuit at once, as an operator's decision, and release the jobs that wait for any circuit.

    Jobs of circuits that are still open go back to waiting. False when there is no such circuit.
    """
    if not _IS_KNOWN.all(session, {"provider": provider, "model": model}):
        return False
    succeed(provider, model, is_test=True).all(session)
    _RELEASE_JOBS.all(session, {"hold": WaitReason.PROVIDER.value})
    wake_dispatcher(session)
    return True

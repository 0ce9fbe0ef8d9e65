"""Compute metrics from the ledger's events: every series of jobs, money and limits is a sum over them.

`fold` is pure and additive, so batches may have any size. `fold_pending` adds each event to the stored series exactly
once, whatever crashes or commits late. Since a later event id can become visible before an earlier one, its mark is a
transaction number: it reads the events of transactions from the mark up to the oldest one still running, then adds the
increments and moves the mark in one transaction. A label value outside its closed set becomes `other`.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from sqlalchemy import Connection, select, text
from sqlalchemy import update as sql_update
from sqlalchemy.dialects.postgresql import insert
from sqlmodel import Session, col

from ledger.errors import ForeignMarkError
from ledger.events import EventKind
from ledger.record_tables import Event, Rollup, RollupMark
from ledger.store import Ledger, Statement
from monitoring import metrics
from monitoring.metrics import Metric, SeriesKey, bucket_of, series_key
from routing.jobs import Reason, State
from routing.queues import Tier

BATCH_EVENTS = 5_000
"""Events folded by one transaction, give or take the rest of the last writer's."""
_LOCK_KEY = 7_041_777
"""PostgreSQL advisory lock: one fold at a time."""
_MAX_NAME = 64
"""Characters of a model's or provider's name in a label."""
_TIER_NUMBERS = frozenset(tier.value for tier in Tier)
_REASONS = frozenset(reason.value for reason in Reason)


class EventLike(Protocol):
    """An event, as `fold` reads it."""

    @property
    def kind(self) -> str:
        """The value of a `ledger.events.EventKind`."""

    @property
    def data(self) -> Mapping[str, Any]:
        """The event's content."""


class _Tally:
    """Collects increments. A histogram is stored as a count per bucket (not cumulative) and a sum."""

    def __init__(self) -> None:
        self.increments: dict[SeriesKey, float] = {}

    def add(self, metric: Metric, *values: str, by: float = 1) -> None:
        self._add(metric.name, dict(zip(metric.labels, values, strict=True)), by)

    def observe(self, metric: Metric, stored: int, *values: str) -> None:
        labels = dict(zip(metric.labels, values, strict=True))
        self._add(f"{metric.name}_bucket", labels | {"le": bucket_of(metric, stored / metric.scale)}, 1)
        self._add(f"{metric.name}_sum", labels, stored)

    def _add(self, name: str, labels: Mapping[str, str], by: float) -> None:
        key = series_key(name, labels)
        self.increments[key] = self.increments.get(key, 0) + by


def fold(events: Iterable[EventLike]) -> dict[SeriesKey, float]:
    """Return the increments of the stored series; events of unknown kinds add nothing."""
    tally = _Tally()
    for event in events:
        if (count := _COUNTING.get(event.kind)) is not None:
            count(tally, event.data)
    return tally.increments


def tier_label(tier: object) -> str:
    """Return `spec`, `patch`, `agent`, or `none` for work without a tier."""
    return Tier(tier).name.lower() if tier in _TIER_NUMBERS else metrics.NONE


def _closed(value: object, allowed: Container[str]) -> str:
    return value if isinstance(value, str) and value in allowed else metrics.OTHER


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _queue(data: Mapping[str, Any]) -> str:
    return _closed(data.get("queue"), metrics.QUEUE_NAMES)


def _place(data: Mapping[str, Any]) -> tuple[str, str]:
    return tier_label(data.get("tier")), _queue(data)


def _reason(data: Mapping[str, Any]) -> str:
    return _closed(data.get("reason"), _REASONS)


def _name(value: object) -> str:
    return value[:_MAX_NAME] if isinstance(value, str) and value.isprintable() else metrics.OTHER


def _milliseconds(seconds: object) -> int:
    return round(float(seconds) * metrics.MILLISECONDS) if isinstance(seconds, int | float) else 0


def _count_accepted(tally: _Tally, data: Mapping[str, Any]) -> None:
    tally.add(metrics.JOBS_ACCEPTED, _closed(data.get("source"), metrics.SOURCES))
    if data.get("state") == State.CLARIFYING:
        tally.add(metrics.CLARIFICATIONS, *_confidence(data))
    elif data.get("state") != State.RECEIVED:  # otherwise the route is counted when intake decides
        _count_route(tally, data)


def _count_route(tally: _Tally, decision: Mapping[str, Any]) -> None:
    if decision.get("mode") is not None:
        tally.add(metrics.ROUTES, *_confidence(decision), tier_label(decision.get("tier")))


def _confidence(decision: Mapping[str, Any]) -> tuple[str, str]:
    mode = _closed(_lower(decision["mode"]), metrics.MODES) if decision.get("mode") else metrics.NONE
    return mode, _closed(_lower(decision.get("confidence") or metrics.NONE), metrics.CONFIDENCES)


def _count_waiting(tally: _Tally, data: Mapping[str, Any]) -> None:
    tally.add(metrics.JOBS_ENQUEUED, *_place(data))
    tally.add(metrics.QUEUE_DEPTH, _queue(data))
    _count_left(tally, data)


def _count_left(tally: _Tally, data: Mapping[str, Any]) -> None:
    """Subtract a job that left its queue without a claim."""
    if data.get("left") is not None:
        tally.add(metrics.QUEUE_DEPTH, _closed(data["left"], metrics.QUEUE_NAMES), by=-1)


def _count_started(tally: _Tally, data: Mapping[str, Any]) -> None:
    tier, queue = _place(data)
    tally.add(metrics.JOBS_STARTED, tier, queue)
    tally.add(metrics.ATTEMPTS_RUNNING, tier, queue)
    tally.add(metrics.QUEUE_DEPTH, queue, by=-1)
    tally.observe(metrics.QUEUE_WAIT, _milliseconds(data.get("wait_seconds")), queue, tier)


def _count_attempt(tally: _Tally, data: Mapping[str, Any]) -> None:
    tier, queue = _place(data)
    tally.add(metrics.JOB_ATTEMPTS, tier, queue, _closed(data.get("outcome"), metrics.OUTCOMES), _reason(data))
    tally.add(metrics.ATTEMPTS_RUNNING, tier, queue, by=-1)
    tally.observe(metrics.ATTEMPT_DURATION, _milliseconds(data.get("seconds")), tier, queue)
    if cost := int(data.get("cost_nanousd", 0)):
        tally.add(metrics.ATTEMPT_COST, tier, queue, by=cost)
    _count_waste(tally, data)


def _count_waste(tally: _Tally, data: Mapping[str, Any]) -> None:
    if wasted := data.get("wasted_nanousd", 0):
        tally.add(metrics.COST_WASTED, tier_label(data.get("tier")), by=wasted)


def _count_ended(tally: _Tally, data: Mapping[str, Any]) -> None:
    tier, queue = _place(data)
    state = _closed(data.get("state"), metrics.OUTCOMES)
    tally.add(metrics.JOBS_FINISHED, tier, queue, state, _reason(data))
    tally.add(metrics.JOBS_BY_BOX, tier, "used" if data.get("boxes") else metrics.NONE)
    tally.observe(metrics.JOB_DURATION, _milliseconds(data.get("seconds")), tier, state)
    tally.observe(metrics.JOB_COST, int(data.get("cost_nanousd", 0)), tier)
    if isinstance(size := data.get("output_bytes"), int):
        tally.observe(metrics.OUTPUT_BYTES, size, tier)
    if isinstance(gates := data.get("gates"), int):
        tally.observe(metrics.GATES_PER_RUN, gates, state)
    _count_left(tally, data)
    _count_waste(tally, data)
    _count_run_tokens(tally, data)


def _count_gate(tally: _Tally, data: Mapping[str, Any]) -> None:
    kind = _closed(data.get("gate_kind"), metrics.GATE_KINDS)
    tally.add(metrics.GATES, kind, _closed(data.get("state"), metrics.GATE_STATES))


def _count_run_tokens(tally: _Tally, data: Mapping[str, Any]) -> None:
    for part, tokens in (data.get("run_tokens") or {}).items():
        if tokens:
            tally.add(metrics.RUN_TOKENS, _closed(part, metrics.RUN_PARTS), by=int(tokens))


def _count_call(tally: _Tally, data: Mapping[str, Any]) -> None:
    model = _name(data.get("model"))
    provider = _name(data.get("provider"))
    tally.add(metrics.COST, tier_label(data.get("tier")), model, provider, by=int(data.get("cost_nanousd", 0)))
    tally.add(metrics.PROVIDER_REQUESTS, provider, model, _code(data.get("status")))
    for kind in metrics.TOKEN_KINDS:
        if tokens := int(data.get(f"{kind}_tokens", 0)):
            tally.add(metrics.TOKENS, tier_label(data.get("tier")), model, kind, by=tokens)
    _count_waste(tally, data)


def _code(status: object) -> str:
    if not isinstance(status, int) or not 200 <= status < 600:
        return metrics.NONE
    return str(status) if str(status) in metrics.CODES else f"{status // 100}xx"


def _count_circuit(tally: _Tally, data: Mapping[str, Any]) -> None:
    if data.get("change") == "opened":
        circuit = (_name(data.get("provider")), _name(data.get("model")))
        tally.add(metrics.CIRCUIT_OPENS, *circuit, _closed(data.get("reason"), metrics.CIRCUIT_REASONS))


def _count_limit(tally: _Tally, data: Mapping[str, Any]) -> None:
    tally.add(
        metrics.LIMIT_HITS,
        *_place(data),
        _closed(data.get("limit"), metrics.LIMITS),
        _closed(data.get("phase"), metrics.PHASES),
    )


def _count_escalation(tally: _Tally, data: Mapping[str, Any]) -> None:
    tally.add(metrics.ESCALATIONS, tier_label(data.get("origin")), tier_label(data.get("target")), _reason(data))


def _count_debate(tally: _Tally, data: Mapping[str, Any]) -> None:
    debate = (str(data.get("debate")), str(data.get("verdict")).lower())
    tally.add(metrics.DEBATES, *(debate if debate in metrics.DEBATES_HELD else (metrics.OTHER, metrics.OTHER)))


def _count_refused(tally: _Tally, data: Mapping[str, Any]) -> None:
    tally.add(
        metrics.REQUESTS_REFUSED,
        _closed(data.get("source"), metrics.SOURCES),
        _closed(data.get("field"), metrics.FIELDS),
    )


def _count_state(tally: _Tally, data: Mapping[str, Any]) -> None:
    if isinstance(data.get("decision"), Mapping):
        _count_route(tally, data["decision"])
    if data.get("target") == State.CLARIFYING:
        tally.add(metrics.CLARIFICATIONS, *_confidence(data))


def _count_ladder(tally: _Tally, data: Mapping[str, Any]) -> None:
    tally.add(
        metrics.LADDER,
        _closed(data.get("event"), metrics.LADDER_EVENTS),
        _closed(data.get("reason"), metrics.LADDER_REASONS),
    )


def _count_box(tally: _Tally, data: Mapping[str, Any]) -> None:
    tally.add(metrics.BOXES_OPENED, _queue(data), "warm" if data.get("warm") else "cold")


def _count_step(tally: _Tally, data: Mapping[str, Any]) -> None:
    if isinstance(seconds := data.get("seconds"), int | float):
        name = str(data.get("step", "")).partition(":")[0]
        tally.observe(metrics.STEP_SECONDS, _milliseconds(seconds), _closed(name, metrics.STEPS))


def _count_reaped(tally: _Tally, data: Mapping[str, Any]) -> None:
    for sort in metrics.ORPHANS:
        if count := int(data.get(sort, 0)):
            tally.add(metrics.ORPHANS_REAPED, sort, by=count)


def _count_restored(tally: _Tally, data: Mapping[str, Any]) -> None:
    tally.add(metrics.CALLS_RESTORED, _closed(data.get("lost"), metrics.LOST_OF_CALLS))


def _count_mirror(tally: _Tally, data: Mapping[str, Any]) -> None:
    tally.add(metrics.MIRROR_REQUESTS, _closed(data.get("result"), metrics.MIRROR_RESULTS), by=data.get("requests", 0))
    tally.add(metrics.MIRROR_BYTES, by=data.get("bytes", 0))


_COUNTING: dict[str, Callable[[_Tally, Mapping[str, Any]], None]] = {
    EventKind.ACCEPTED: _count_accepted,
    EventKind.WAITING: _count_waiting,
    EventKind.STARTED: _count_started,
    EventKind.ATTEMPT_ENDED: _count_attempt,
    EventKind.ENDED: _count_ended,
    EventKind.CALL: _count_call,
    EventKind.CALL_RESTORED: _count_restored,
    EventKind.LIMIT_HIT: _count_limit,
    EventKind.ESCALATED: _count_escalation,
    EventKind.DEBATED: _count_debate,
    EventKind.FENCED: lambda tally, data: tally.add(metrics.DUPLICATES_FENCED, _queue(data)),
    EventKind.UNREAD: lambda tally, data: tally.add(metrics.MESSAGES_UNREAD, _queue(data)),
    EventKind.DROPPED: lambda tally, data: tally.add(
        metrics.MESSAGES_DROPPED, _queue(data), by=int(data.get("messages", 0))
    ),
    EventKind.REFUSED: _count_refused,
    EventKind.STATE: _count_state,
    EventKind.LADDER: _count_ladder,
    EventKind.MIRROR: _count_mirror,
    EventKind.BOX: _count_box,
    EventKind.REAPED: _count_reaped,
    EventKind.STEP: _count_step,
    EventKind.GATE: _count_gate,
    EventKind.CIRCUIT: _count_circuit,
}


class FoldStep(NamedTuple):
    """The result of folding one batch."""

    events: int
    is_done: bool
    """False if events are left."""


_HAS_PENDING = Statement("""
    SELECT EXISTS (SELECT FROM event WHERE xid >= mark.xid AND xid < mark.horizon) OR mark.horizon < mark.xid
      FROM (SELECT coalesce((SELECT xid FROM rollup_mark WHERE id = 1), 0) AS xid,
                   pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS horizon) AS mark
""")


def has_pending(connection: Connection) -> bool:
    """Whether there are events to fold, or a mark that is not this cluster's."""
    return bool(_HAS_PENDING.scalar(connection))


def fold_pending(ledger: Ledger, *, batch: int = BATCH_EVENTS) -> int:
    """Fold all events that no running transaction can still precede, and return their number.

    Does nothing while another process folds.

    Raises:
        ForeignMarkError: the operator's fault: the ledger was copied from another cluster without `rebase`.
    """
    total = 0
    while True:
        with ledger.begin() as session:
            step = fold_step(session, batch=batch)
        total += step.events
        if step.is_done:
            return total


def fold_step(session: Session, *, batch: int = BATCH_EVENTS) -> FoldStep:
    """Fold one batch in the caller's transaction.

    Raises:
        ForeignMarkError: the operator's fault: the ledger was copied from another cluster without `rebase`.
    """
    if not session.scalar(text("SELECT pg_try_advisory_xact_lock(:key)"), {"key": _LOCK_KEY}):
        return FoldStep(0, is_done=True)
    mark = session.scalar(select(col(RollupMark.xid)).where(col(RollupMark.id) == 1)) or 0
    horizon = session.scalar(text("SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint")) or 0
    if horizon < mark:
        raise ForeignMarkError(mark, horizon)
    until = _end_of_batch(session, mark, horizon, batch=batch)
    events = session.execute(
        select(col(Event.kind), col(Event.data))
        .where(col(Event.xid) >= mark, col(Event.xid) < until)
        .order_by(col(Event.id))
    ).all()
    _add(session, fold(events))
    _move_mark(session, until)
    return FoldStep(len(events), is_done=until == horizon)


def rebase(session: Session) -> int:
    """Fold all remaining events of a restored ledger, and return their number.

    To be called after a logical restore into another cluster, before anything writes: transaction numbers mean nothing
    there, so every event is marked as folded.
    """
    session.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK_KEY})
    mark = session.scalar(select(col(RollupMark.xid)).where(col(RollupMark.id) == 1)) or 0
    events = session.execute(select(col(Event.kind), col(Event.data)).where(col(Event.xid) >= mark)).all()
    _add(session, fold(events))
    session.execute(sql_update(Event).values(xid=0))
    _move_mark(session, 1)
    return len(events)


def read_series(session: Session) -> dict[SeriesKey, float]:
    """Return all series in stored units."""
    rows = session.execute(select(col(Rollup.name), col(Rollup.labels), col(Rollup.value)))
    return {SeriesKey(name, labels): value for name, labels, value in rows}


def fold_lag_seconds(session: Session) -> float:
    """Return the age of the oldest event not folded yet; 0 if there is none."""
    age = session.scalar(
        text("""
            SELECT extract(epoch FROM clock_timestamp() - at) FROM event
             WHERE xid >= coalesce((SELECT xid FROM rollup_mark WHERE id = 1), 0) ORDER BY xid LIMIT 1
        """)
    )
    return float(age or 0)


def _end_of_batch(session: Session, mark: int, horizon: int, *, batch: int) -> int:
    """Return the transaction number before which a batch ends; it never splits a transaction."""
    last = session.scalar(
        select(col(Event.xid))
        .where(col(Event.xid) >= mark, col(Event.xid) < horizon)
        .order_by(col(Event.xid))
        .offset(batch - 1)
        .limit(1)
    )
    return horizon if last is None else last + 1


def _add(session: Session, increments: dict[SeriesKey, float]) -> None:
    if not increments:
        return
    rows = [
        {"name": key.name, "labels": key.labels, "value": increment} for key, increment in sorted(increments.items())
    ]
    new = insert(Rollup).values(rows)
    session.execute(
        new.on_conflict_do_update(
            index_elements=["name", "labels"], set_={"value": col(Rollup.value) + new.excluded.value}
        )
    )


def _move_mark(session: Session, xid: int) -> None:
    session.execute(
        insert(RollupMark).values(id=1, xid=xid).on_conflict_do_update(index_elements=["id"], set_={"xid": xid})
    )

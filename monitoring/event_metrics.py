"""Compute metrics from the ledger's events: every series of jobs, money and limits is a sum over them.

`fold` is pure and additive, so batches may have any size. `fold_pending` adds each event to the stored series exactly
once, whatever crashes or commits late. Since a later event id can become visible before an earlier one, its mark is a
transaction number: it reads the events of transactions from the mark up to the oldest one still running, then adds the
increments and moves the mark in one transaction. A label value outside its closed set becomes `other`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, select
from sqlalchemy import update as sql_update
from sqlalchemy.dialects.postgresql import insert
from sqlmodel import Session, col

from ledger.errors import ForeignMarkError
from ledger.events import EventKind
from ledger.record_tables import Event, Rollup, RollupMark
from ledger.store import AdvisoryLock, Ledger, Statement
from monitoring import metrics
from monitoring.metrics import Metric, SeriesKey, bucket_of, series_key
from routing.jobs import State
from routing.queues import Tier

BATCH_EVENTS = 5_000
"""Events folded by one transaction, give or take the rest of the last writer's."""
_MAX_NAME = 64
"""Characters of a model's or provider's name in a label."""
_TIER_NUMBERS = frozenset(tier.value for tier in Tier)


class _Tally:
    """Collects increments. A histogram is stored as a count per bucket (not cumulative) and a sum."""

    def __init__(self) -> None:
        self.increments: dict[SeriesKey, float] = {}

    def add(self, metric: Metric, *values: object, by: float = 1) -> None:
        self._add(metric.name, _labels(metric, values), by)

    def observe(self, metric: Metric, stored: int, *values: object) -> None:
        labels = _labels(metric, values)
        self._add(f"{metric.name}_bucket", labels | {"le": bucket_of(metric, stored / metric.scale)}, 1)
        self._add(f"{metric.name}_sum", labels, stored)

    def _add(self, name: str, labels: Mapping[str, str], by: float) -> None:
        key = series_key(name, labels)
        self.increments[key] = self.increments.get(key, 0) + by


def _labels(metric: Metric, values: Iterable[object]) -> dict[str, str]:
    return {
        label: value if isinstance(value, str) and (not known or value in known) else metrics.OTHER
        for (label, known), value in zip(metric.labels.items(), values, strict=True)
    }


def fold(events: Iterable[Event | Row[Any]]) -> dict[SeriesKey, float]:
    """Return the increments of the stored series; events of unknown kinds add nothing."""
    tally = _Tally()
    for event in events:
        if (count := _COUNTING.get(event.kind)) is not None:
            count(tally, event.data)
    return tally.increments


def tier_label(tier: object) -> str:
    """Return `spec`, `patch`, `agent`, or `none` for work without a tier."""
    return Tier(tier).name.lower() if tier in _TIER_NUMBERS else metrics.NONE


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _place(data: Mapping[str, Any]) -> tuple[str, object]:
    return tier_label(data.get("tier")), data.get("queue")


def _name(value: object) -> str:
    return value[:_MAX_NAME] if isinstance(value, str) and value.isprintable() else metrics.OTHER


def _milliseconds(seconds: object) -> int:
    return round(float(seconds) * metrics.MILLISECONDS) if isinstance(seconds, int | float) else 0


def _count_accepted(tally: _Tally, data: Mapping[str, Any]) -> None:
    tally.add(metrics.JOBS_ACCEPTED, data.get("source"))
    if data.get("state") == State.CLARIFYING:
        tally.add(metrics.CLARIFICATIONS, *_confidence(data))
    elif data.get("state") != State.RECEIVED:  # otherwise the route is counted when intake decides
        _count_route(tally, data)


def _count_route(tally: _Tally, decision: Mapping[str, Any]) -> None:
    if decision.get("mode") is not None:
        tally.add(metrics.ROUTES, *_confidence(decision), tier_label(decision.get("tier")))


def _confidence(decision: Mapping[str, Any]) -> tuple[object, object]:
    return _lower(decision.get("mode") or metrics.NONE), _lower(decision.get("confidence") or metrics.NONE)


def _count_state(tally: _Tally, data: Mapping[str, Any]) -> None:
    if isinstance(data.get("decision"), Mapping):
        _count_route(tally, data["decision"])
    if data.get("target") == State.CLARIFYING:
        tally.add(metrics.CLARIFICATIONS, *_confidence(data))
    _count_left(tally, data)


def _count_waiting(tally: _Tally, data: Mapping[str, Any]) -> None:
    tally.add(metrics.JOBS_ENQUEUED, *_place(data))
    tally.add(metrics.QUEUE_DEPTH, data.get("queue"))
    _count_left(tally, data)


def _count_left(tally: _Tally, data: Mapping[str, Any]) -> None:
    """Subtract a job that left its queue without a claim."""
    if data.get("left") is not None:
        tally.add(metrics.QUEUE_DEPTH, data["left"], by=-1)


def _count_started(tally: _Tally, data: Mapping[str, Any]) -> None:
    tier, queue = _place(data)
    tally.add(metrics.JOBS_STARTED, tier, queue)
    tally.add(metrics.ATTEMPTS_RUNNING, tier, queue)
    tally.add(metrics.QUEUE_DEPTH, queue, by=-1)
    tally.observe(metrics.QUEUE_WAIT, _milliseconds(data.get("wait_seconds")), queue, tier)


def _count_attempt(tally: _Tally, data: Mapping[str, Any]) -> None:
    place = _place(data)
    tally.add(metrics.JOB_ATTEMPTS, *place, data.get("outcome"), data.get("reason"))
    tally.add(metrics.ATTEMPTS_RUNNING, *place, by=-1)
    tally.observe(metrics.ATTEMPT_DURATION, _milliseconds(data.get("seconds")), *place)
    if cost := int(data.get("cost_nanousd", 0)):
        tally.add(metrics.ATTEMPT_COST, *place, by=cost)
    _count_waste(tally, data)


def _count_waste(tally: _Tally, data: Mapping[str, Any]) -> None:
    if wasted := data.get("wasted_nanousd", 0):
        tally.add(metrics.COST_WASTED, tier_label(data.get("tier")), by=wasted)


def _count_ended(tally: _Tally, data: Mapping[str, Any]) -> None:
    tier, queue = _place(data)
    state = data.get("state")
    tally.add(metrics.JOBS_FINISHED, tier, queue, state, data.get("reason"))
    tally.add(metrics.JOBS_BY_BOX, tier, "used" if data.get("boxes") else metrics.NONE)
    tally.observe(metrics.JOB_DURATION, _milliseconds(data.get("seconds")), tier, state)
    tally.observe(metrics.JOB_COST, int(data.get("cost_nanousd", 0)), tier)
    if isinstance(size := data.get("output_bytes"), int):
        tally.observe(metrics.OUTPUT_BYTES, size, tier)
    if isinstance(gates := data.get("gates"), int):
        tally.observe(metrics.GATES_PER_RUN, gates, state)
    for part, tokens in (data.get("run_tokens") or {}).items():
        if tokens:
            tally.add(metrics.RUN_TOKENS, part, by=int(tokens))
    _count_left(tally, data)
    _count_waste(tally, data)


def _count_call(tally: _Tally, data: Mapping[str, Any]) -> None:
    tier, model, provider = tier_label(data.get("tier")), _name(data.get("model")), _name(data.get("provider"))
    tally.add(metrics.COST, tier, model, provider, by=int(data.get("cost_nanousd", 0)))
    tally.add(metrics.PROVIDER_REQUESTS, provider, model, _code(data.get("status")))
    for kind in metrics.TOKEN_KINDS:
        if tokens := int(data.get(f"{kind}_tokens", 0)):
            tally.add(metrics.TOKENS, tier, model, kind, by=tokens)
    _count_waste(tally, data)


def _code(status: object) -> str:
    if not isinstance(status, int) or not 200 <= status < 600:
        return metrics.NONE
    return str(status) if str(status) in metrics.CODES else f"{status // 100}xx"


def _count_circuit(tally: _Tally, data: Mapping[str, Any]) -> None:
    if data.get("change") == "opened":
        tally.add(metrics.CIRCUIT_OPENS, _name(data.get("provider")), _name(data.get("model")), data.get("reason"))


def _count_escalation(tally: _Tally, data: Mapping[str, Any]) -> None:
    tally.add(metrics.ESCALATIONS, tier_label(data.get("origin")), tier_label(data.get("target")), data.get("reason"))


def _count_debate(tally: _Tally, data: Mapping[str, Any]) -> None:
    debate = (str(data.get("debate")), str(data.get("verdict")).lower())
    tally.add(metrics.DEBATES, *(debate if debate in metrics.DEBATES_HELD else (metrics.OTHER, metrics.OTHER)))


def _count_step(tally: _Tally, data: Mapping[str, Any]) -> None:
    if isinstance(seconds := data.get("seconds"), int | float):
        name = str(data.get("step", "")).partition(":")[0]
        tally.observe(metrics.STEP_SECONDS, _milliseconds(seconds), name)


def _count_reaped(tally: _Tally, data: Mapping[str, Any]) -> None:
    for sort in metrics.ORPHANS:
        if count := int(data.get(sort, 0)):
            tally.add(metrics.ORPHANS_REAPED, sort, by=count)


def _count_mirror(tally: _Tally, data: Mapping[str, Any]) -> None:
    tally.add(metrics.MIRROR_REQUESTS, data.get("result"), by=data.get("requests", 0))
    tally.add(metrics.MIRROR_BYTES, by=data.get("bytes", 0))


_COUNTING: dict[str, Callable[[_Tally, Mapping[str, Any]], None]] = {
    EventKind.ACCEPTED: _count_accepted,
    EventKind.WAITING: _count_waiting,
    EventKind.STARTED: _count_started,
    EventKind.ATTEMPT_ENDED: _count_attempt,
    EventKind.ENDED: _count_ended,
    EventKind.CALL: _count_call,
    EventKind.CALL_RESTORED: lambda tally, data: tally.add(metrics.CALLS_RESTORED, data.get("lost")),
    EventKind.LIMIT_HIT: lambda tally, data: tally.add(
        metrics.LIMIT_HITS, *_place(data), data.get("limit"), data.get("phase")
    ),
    EventKind.ESCALATED: _count_escalation,
    EventKind.DEBATED: _count_debate,
    EventKind.FENCED: lambda tally, data: tally.add(metrics.DUPLICATES_FENCED, data.get("queue")),
    EventKind.UNREAD: lambda tally, data: tally.add(metrics.MESSAGES_UNREAD, data.get("queue")),
    EventKind.DROPPED: lambda tally, data: tally.add(
        metrics.MESSAGES_DROPPED, data.get("queue"), by=int(data.get("messages", 0))
    ),
    EventKind.REFUSED: lambda tally, data: tally.add(metrics.REQUESTS_REFUSED, data.get("source"), data.get("field")),
    EventKind.STATE: _count_state,
    EventKind.LADDER: lambda tally, data: tally.add(metrics.LADDER, data.get("event"), data.get("reason")),
    EventKind.MIRROR: _count_mirror,
    EventKind.BOX: lambda tally, data: tally.add(
        metrics.BOXES_OPENED, data.get("queue"), "warm" if data.get("warm") else "cold"
    ),
    EventKind.REAPED: _count_reaped,
    EventKind.STEP: _count_step,
    EventKind.GATE: lambda tally, data: tally.add(metrics.GATES, data.get("gate_kind"), data.get("state")),
    EventKind.CIRCUIT: _count_circuit,
}


class FoldStep(NamedTuple):
    """The result of folding one batch."""

    events: int
    is_done: bool
    """False if events are left."""


_HORIZON = Statement("SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint")
_LAG = Statement("""
    SELECT extract(epoch FROM clock_timestamp() - at)::float FROM event
     WHERE xid >= coalesce((SELECT xid FROM rollup_mark WHERE id = 1), 0) ORDER BY xid LIMIT 1
""")
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
    if not Statement(f"SELECT pg_try_advisory_xact_lock({AdvisoryLock.EVENT_FOLD})").scalar(session):
        return FoldStep(0, is_done=True)
    mark = session.scalar(select(col(RollupMark.xid)).where(col(RollupMark.id) == 1)) or 0
    horizon: int = _HORIZON.scalar(session)
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
    Statement(f"SELECT pg_advisory_xact_lock({AdvisoryLock.EVENT_FOLD})").all(session)
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
    return float(_LAG.scalar(session) or 0)


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

"""What each queue did over time, and what models, sites and tenants cost: summed from the newest attempts of a span.

The ledger's rollups have no time, so these sums are of rows. Both the rows and the way to them are bounded: attempts by
their start, or a tenant's jobs by theirs, newest first, up to `MOST_ATTEMPTS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

from sqlalchemy import select, text
from sqlmodel import Session, col

from ledger.record_tables import Backlog
from ledger.tables import Site
from producers.use_cases.jobs import View

SpanName = Literal["hour", "day", "week"]
MOST_ATTEMPTS = 2_000
"""The newest attempts that a span's numbers are of; a busier span says so."""
_MOST_LINES = 8


class Interval(NamedTuple):
    """How a span is cut."""

    bin_seconds: int
    bins: int


SPANS: Mapping[SpanName, Interval] = {
    "hour": Interval(120, 30),
    "day": Interval(3600, 24),
    "week": Interval(21_600, 28),
}


class QueueBin(View):
    """One queue's attempts in one interval."""

    began: datetime
    attempts: int
    median_seconds: float | None
    """None without attempts."""


class QueueHistory(View):
    """What one queue did in a span, and what waits on it now."""

    queue: str
    attempts: int
    median_seconds: float | None
    p95_seconds: float | None
    """95 of 100 attempts took at most this."""
    waited_p95_seconds: float | None
    """The same of the time from a job's acceptance to its first attempt."""
    waiting: int
    """Jobs in its backlog, as the dispatcher last counted them."""
    backlog_seconds: float | None
    """How long the backlog lasts at the recent rate; None if nothing is drained."""
    backlog_nanousd: int
    """What it will cost, at the mean of the span."""
    bins: tuple[QueueBin, ...]


class CostLine(View):
    """What one model, site or tenant cost in a span."""

    name: str
    nanousd: int


class FleetHistory(View):
    """A span of the past."""

    span: SpanName
    queues: tuple[QueueHistory, ...]
    """Those with attempts or a backlog."""
    models: tuple[CostLine, ...]
    sites: tuple[CostLine, ...]
    tenants: tuple[CostLine, ...]
    """For operators only."""
    is_cut: bool
    """Whether the span had more attempts than are counted."""


_OF_ALL = """
    SELECT id, job_id, queue, started_at, ended_at, number FROM attempt
     WHERE started_at >= now() - make_interval(secs => :span) AND ended_at IS NOT NULL
     ORDER BY started_at DESC LIMIT :most
"""
_OF_TENANT = """
    SELECT done.* FROM (
           SELECT id FROM job WHERE tenant = :tenant AND created_at >= now() - make_interval(secs => :span)
            ORDER BY created_at DESC LIMIT :most) AS own
     CROSS JOIN LATERAL (
           SELECT id, job_id, queue, started_at, ended_at, number FROM attempt
            WHERE attempt.job_id = own.id AND ended_at IS NOT NULL OFFSET 0) AS done
     ORDER BY done.started_at DESC LIMIT :most
"""
# OFFSET 0 keeps each look an index look-up: the planner would rather read whole tables, which grow.
_ITS_JOB = (
    "CROSS JOIN LATERAL (SELECT tenant, site_id, created_at FROM job WHERE job.id = recent.job_id OFFSET 0) AS job"
)
_QUEUES = """
    WITH recent AS MATERIALIZED ({recent}), timed AS (
        SELECT recent.queue, extract(epoch FROM recent.ended_at - recent.started_at)::float AS took,
               CASE WHEN recent.number = 1
                    THEN greatest(0, extract(epoch FROM recent.started_at - job.created_at))::float END AS waited,
               floor(extract(epoch FROM recent.started_at) / :bin)::bigint AS bin
          FROM recent {its_job}
    )
    SELECT queue, bin, count(*) AS attempts, percentile_cont(0.5) WITHIN GROUP (ORDER BY took) AS median,
           percentile_cont(0.95) WITHIN GROUP (ORDER BY took) AS p95,
           percentile_cont(0.95) WITHIN GROUP (ORDER BY waited) AS waited
      FROM timed GROUP BY GROUPING SETS ((queue), (queue, bin))
"""
_COSTS = """
    WITH recent AS MATERIALIZED ({recent})
    SELECT recent.queue, call.model, job.site_id AS site, job.tenant,
           CAST(sum(call.cost_nanousd) AS bigint) AS nanousd
      FROM recent
     CROSS JOIN LATERAL (SELECT model, cost_nanousd FROM call WHERE call.attempt_id = recent.id OFFSET 0) AS call
           {its_job}
     GROUP BY GROUPING SETS ((recent.queue), (call.model), (job.site_id), (job.tenant))
"""
_STATEMENTS = {
    (whose, what): text(sql.format(recent=recent, its_job=_ITS_JOB))
    for whose, recent in (("all", _OF_ALL), ("tenant", _OF_TENANT))
    for what, sql in (("queues", _QUEUES), ("costs", _COSTS))
}
_NOW = text("SELECT floor(extract(epoch FROM now()) / :bin)::bigint")


def fleet_history(session: Session, tenant: str | None, *, span: SpanName) -> FleetHistory:
    """Return a span of one tenant's past, or of all tenants' if None."""
    cut = SPANS[span]
    whose = "all" if tenant is None else "tenant"
    values = {"span": cut.bin_seconds * cut.bins, "bin": cut.bin_seconds, "tenant": tenant, "most": MOST_ATTEMPTS}
    last = int(session.scalar(_NOW, {"bin": cut.bin_seconds}) or 0)
    numbers = range(last - cut.bins + 1, last + 1)
    rows = session.execute(_STATEMENTS[whose, "queues"], values).all()
    by_queue, lines = _costs(session, whose, values)
    totals = {row.queue: row for row in rows if row.bin is None}
    binned = {(row.queue, row.bin): row for row in rows if row.bin is not None}
    backlog = {
        row.queue: row
        for row in session.scalars(select(Backlog).where(col(Backlog.tenant) == (tenant or ""))).all()
        if row.waiting
    }
    queues = tuple(
        _queue(
            queue,
            totals.get(queue),
            backlog.get(queue),
            cost_nanousd=by_queue.get(queue, 0),
            bins=tuple(_bin(binned.get((queue, number)), number, cut) for number in numbers),
        )
        for queue in sorted({*totals, *backlog})
    )
    counted = sum(row.attempts for row in totals.values())
    return FleetHistory(
        span=span,
        queues=queues,
        models=lines["model"],
        sites=lines["site"],
        tenants=lines["tenant"] if tenant is None else (),
        is_cut=counted >= MOST_ATTEMPTS,
    )


def _bin(row: Any, number: int, cut: Interval) -> QueueBin:
    began = datetime.fromtimestamp(number * cut.bin_seconds, tz=UTC)
    return QueueBin(began=began, attempts=row.attempts if row else 0, median_seconds=row.median if row else None)


def _queue(
    queue: str, total: Any, backlog: Backlog | None, *, cost_nanousd: int, bins: tuple[QueueBin, ...]
) -> QueueHistory:
    attempts, waiting = total.attempts if total else 0, backlog.waiting if backlog else 0
    rate = backlog.drained_per_second if backlog else 0.0
    return QueueHistory(
        queue=queue,
        attempts=attempts,
        median_seconds=total.median if total else None,
        p95_seconds=total.p95 if total else None,
        waited_p95_seconds=total.waited if total else None,
        waiting=waiting,
        backlog_seconds=waiting / rate if rate > 0 else None,
        backlog_nanousd=round(waiting * cost_nanousd / attempts) if attempts else 0,
        bins=bins,
    )


def _costs(
    session: Session, whose: str, values: Mapping[str, Any]
) -> tuple[Mapping[str, int], Mapping[str, tuple[CostLine, ...]]]:
    """Return what each queue cost, and the dearest models, sites and tenants."""
    queues: dict[str, int] = {}
    found: dict[str, dict[Any, int]] = {"model": {}, "site": {}, "tenant": {}}
    for row in session.execute(_STATEMENTS[whose, "costs"], values):
        if row.queue is not None:
            queues[row.queue] = row.nanousd
        for kind, costs in found.items():
            if (name := getattr(row, kind)) is not None and row.nanousd:
                costs[name] = row.nanousd
    ranked = {kind: sorted(costs.items(), key=lambda one: -one[1])[:_MOST_LINES] for kind, costs in found.items()}
    named = select(col(Site.id), col(Site.name)).where(col(Site.id).in_([site for site, _ in ranked["site"]]))
    names = {site: name for site, name in session.execute(named)}
    ranked["site"] = [(names[site], cost) for site, cost in ranked["site"] if site in names]
    lines = {kind: tuple(CostLine(name=name, nanousd=cost) for name, cost in ones) for kind, ones in ranked.items()}
    return queues, lines

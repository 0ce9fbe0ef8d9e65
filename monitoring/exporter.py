"""Serve the metrics to Prometheus: the series folded from events, and gauges.

The exporter is stateless: it may be killed, run twice or be away for a day, and the next fold gives the same numbers.
While the ledger cannot be read it answers 503, so that Prometheus sees `up == 0` and no stale number.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import closing, contextmanager
from itertools import product
from typing import Any, NamedTuple

import uvicorn
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from sqlalchemy.exc import DBAPIError
from sqlmodel import Session

from ledger.errors import ForeignMarkError
from ledger.store import Ledger, Statement, create_ledger_engine
from monitoring.asgi import Server, leave_on_signals, uvicorn_config
from monitoring.backlog import forecast_backlog, read_recent_attempts
from monitoring.event_metrics import fold_pending, has_pending, read_series
from monitoring.gauges import PROBED, read_gauges, read_providers
from monitoring.metrics import FOLDED, NONE, PREFIX, Kind, Metric, Reading, SeriesKey, bounds_of
from routing.policy.platform import Policy

logger = logging.getLogger(__name__)

FOLD_SECONDS = 1.0
"""Seconds between folds when nobody scrapes."""
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily
Others = Sequence[Callable[[], Iterable[Reading]]]
"""What reads the gauges of other servers than the ledger; none of them raises."""
LabelValues = tuple[str, ...]


class Snapshot(NamedTuple):
    """The content of one scrape."""

    series: Mapping[SeriesKey, float]
    readings: Iterable[Reading]
    models: tuple[str, ...]
    """Models with prices in the policy."""
    providers: tuple[str, ...]
    """Accounts used by tenants."""


def read_snapshot(ledger: Ledger, policy: Policy, *, others: Others = ()) -> Snapshot:
    """Fold pending events, then read everything for a scrape: of the ledger, and of others, such as the broker.

    Raises:
        ForeignMarkError: the operator's fault: the ledger was copied from another cluster without `rebase`.
    """
    fold_pending(ledger)
    with ledger.begin() as session:
        snapshot = read_ledger(session, policy)
    return snapshot._replace(readings=[*snapshot.readings, *(reading for read in others for reading in read())])


def read_ledger(session: Session, policy: Policy) -> Snapshot:
    """Read the ledger's part of a scrape, at a cost that does not grow with the backlog."""
    series, recent, providers = read_series(session), read_recent_attempts(session), read_providers(session)
    gauges = read_gauges(session, policy, recent=recent, providers=providers)
    readings = [*gauges, *forecast_backlog(series, recent, policy)]
    return Snapshot(series, readings, tuple(policy.prices), providers)


def render_metrics(ledger: Ledger, *, policy: Policy, others: Others = ()) -> bytes:
    """Return the metrics in Prometheus' text format.

    Raises:
        ForeignMarkError: the operator's fault: the ledger was copied from another cluster without `rebase`.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(SnapshotCollector(read_snapshot(ledger, policy, others=others)))
    return generate_latest(registry)


class SnapshotCollector(Collector):
    """Adapts a snapshot to prometheus_client."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Family]:
        """Yield every metric with its stored and initial series."""
        stored = _by_metric(self._snapshot.series)
        open_labels = {"model": self._snapshot.models, "provider": self._snapshot.providers}
        for metric in FOLDED:
            yield _histogram(metric, stored) if metric.kind == Kind.HISTOGRAM else _plain(metric, stored, open_labels)
        readings: dict[str, dict[LabelValues, float]] = defaultdict(dict)
        for reading in self._snapshot.readings:
            readings[reading.name][reading.labels] = reading.value
        for metric in PROBED:
            yield _family(metric, readings[metric.name])

    def describe(self) -> Iterable[Family]:
        """Return nothing, so that registering collects nothing."""
        return ()


def _plain(
    metric: Metric, stored: Mapping[str, list[tuple[dict[str, str], float]]], open_labels: Mapping[str, tuple[str, ...]]
) -> Family:
    """Return a counter or gauge whose series exist from the start, since `increase` misses a first value."""
    zeros = metric.zeros or product(*(values or open_labels[label] for label, values in metric.labels.items()))
    values = dict.fromkeys((_values(zero) for zero in zeros), 0.0)
    for labels, value in stored.get(metric.name, ()):
        key = _in_order(metric, labels)  # a series from before a label existed may coincide with a newer one
        values[key] = values.get(key, 0.0) + value / metric.scale
    return _family(metric, values)


def _by_metric(series: Mapping[SeriesKey, float]) -> Mapping[str, list[tuple[dict[str, str], float]]]:
    grouped: dict[str, list[tuple[dict[str, str], float]]] = defaultdict(list)
    for key, value in series.items():
        grouped[key.name].append((json.loads(key.labels), value))
    return grouped


def _values(labels: Iterable[str]) -> LabelValues:
    return tuple(str(value) for value in labels)


def _in_order(metric: Metric, labels: Mapping[str, str]) -> LabelValues:
    """Return label values in the metric's order; a label added later is `none` in older series."""
    return tuple(labels.get(label, NONE) for label in metric.labels)


def _family(metric: Metric, values: Mapping[LabelValues, float]) -> CounterMetricFamily | GaugeMetricFamily:
    kind = CounterMetricFamily if metric.kind == Kind.COUNTER else GaugeMetricFamily
    family = kind(PREFIX + metric.name, metric.help, labels=tuple(metric.labels))
    for labels, value in sorted(values.items()):
        family.add_metric(labels, value)
    return family


def _histogram(metric: Metric, stored: Mapping[str, list[tuple[dict[str, str], float]]]) -> HistogramMetricFamily:
    bounds = bounds_of(metric)
    counts = {_values(zero): dict.fromkeys(bounds, 0.0) for zero in metric.zeros}
    for labels, value in stored.get(f"{metric.name}_bucket", ()):
        counts.setdefault(_in_order(metric, labels), dict.fromkeys(bounds, 0.0))[labels["le"]] = value
    sums = {_in_order(metric, labels): value for labels, value in stored.get(f"{metric.name}_sum", ())}
    family = HistogramMetricFamily(PREFIX + metric.name, metric.help, labels=tuple(metric.labels))
    for values, singles in sorted(counts.items()):
        total, cumulative = 0.0, []
        for bound in sorted(singles, key=float):
            total += singles[bound]
            cumulative.append((bound, total))
        family.add_metric(values, buckets=cumulative, sum_value=sums.get(values, 0.0) / metric.scale)
    return family


Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


class ExporterApp:
    """The ASGI application: `/metrics` and `/healthz`, read-only."""

    def __init__(self, ledger: Ledger, policy: Policy, *, others: Others = ()) -> None:
        self._ledger = ledger
        self._policy = policy
        self._others = others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        status, body, content_type = await asyncio.to_thread(self.answer, scope["method"], scope["path"])
        headers = [(b"content-type", content_type.encode()), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    def answer(self, method: str, path: str) -> tuple[int, bytes, str]:
        """Return status, body and content type for a request."""
        plain = "text/plain; charset=utf-8"
        if path not in ("/metrics", "/healthz"):
            return 404, b"not found; there are /metrics and /healthz\n", plain
        if method not in ("GET", "HEAD"):
            return 405, b"only GET and HEAD\n", plain
        try:
            if path == "/metrics":
                return 200, render_metrics(self._ledger, policy=self._policy, others=self._others), CONTENT_TYPE
            with self._ledger.begin() as session:
                Statement("SELECT 1").all(session)
        except (DBAPIError, ForeignMarkError):
            logger.warning("ledger_unreadable", exc_info=True)
            return 503, b"the ledger cannot be read\n", plain
        return 200, b"ok\n", plain


def fold_until(stopping: threading.Event, ledger: Ledger) -> None:
    """Fold every second until stopped, waiting for an unreachable ledger."""
    while not stopping.wait(FOLD_SECONDS):
        try:
            with ledger.look() as connection:
                is_pending = has_pending(connection)
            if is_pending:
                fold_pending(ledger)
        except (DBAPIError, ForeignMarkError):
            logger.warning("fold_failed", exc_info=True)


@contextmanager
def exporting(ledger: Ledger, *, host: str, port: int, policy: Policy, others: Others = ()) -> Iterator[uvicorn.Server]:
    """Fold while the context is open, and yield a server of `/metrics` and `/healthz` that has not started."""
    stopping = threading.Event()
    folding = threading.Thread(target=fold_until, args=(stopping, ledger), name="fold", daemon=True)
    app = ExporterApp(ledger, policy, others=others)
    config = uvicorn_config(app, host=host, port=port, grace_seconds=5, limit_concurrency=16)
    folding.start()
    try:
        yield Server(config)
    finally:
        stopping.set()
        folding.join(timeout=15)


def serve(ledger_url: str, *, host: str, port: int, policy: Policy, others: Others = ()) -> None:
    """Serve `/metrics` and `/healthz` until SIGTERM or SIGINT, then leave with exit code 0."""
    leave_on_signals()
    ledger = Ledger(create_ledger_engine(ledger_url, pool_size=2, application="pointsman-exporter"))
    with closing(ledger), exporting(ledger, host=host, port=port, policy=policy, others=others) as server:
        server.run()


@contextmanager
def serving(ledger: Ledger, *, host: str, port: int, policy: Policy, others: Others = ()) -> Iterator[None]:
    """Serve in a thread while the context is open, for a process that does something else."""
    with exporting(ledger, host=host, port=port, policy=policy, others=others) as server:
        thread = threading.Thread(target=server.run, name="exporter", daemon=True)
        thread.start()
        try:
            yield
        finally:
            server.should_exit = True
            thread.join(timeout=15)

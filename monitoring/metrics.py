"""Names, labels and buckets of the metrics that are sums over the ledger's events; `gauges` has the others.

Amounts are stored as whole nanodollars and milliseconds, so that sums of floats cannot drift from the ledger. No label
holds a job id, a tenant, a prompt or an error's text.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import product
from typing import Any, NamedTuple

from routing.clarify.ladder import BYPASS_REASONS, Failure, LadderEventName
from routing.clarify.replies import AmbiguityReason
from routing.decision.debate import DebateKind, Verdict
from routing.decision.router import Mode
from routing.decision.triggers import Confidence
from routing.failures import FailureOutcome
from routing.jobs import ASKED, DEFERRED, DEFERRED_KEPT, JobRequest, Reason, Source, State
from routing.policy.prices import NANOUSD_PER_USD
from routing.provider_circuit import Trouble
from routing.queues import QUEUE_OF_TIER, QUEUES, QueueName, Tier


def _words(words: str) -> tuple[str, ...]:
    return tuple(words.split())


PREFIX = "pointsman_"
MILLISECONDS = 1000
"""Stored milliseconds in a second."""
OTHER = "other"
NONE = "none"

_WAIT_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)
_ATTEMPT_BUCKETS = (0.1, 0.5, 1, 2.5, 5, 10, 15, 20, 25, 30, 45, 60, 90, 120, 180, 240, 280, 300, 330)
_STEP_BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_JOB_BUCKETS = (1, 5, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 14_400, 86_400)
_SIZE_BUCKETS = tuple(float(1024 * 4**step) for step in range(8))
_GATE_BUCKETS = (0, 1, 2, 3, 5, 8, 13)
_COST_BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10)

TIERS = (NONE, *(tier.name.lower() for tier in Tier))
QUEUE_NAMES = tuple(queue.value for queue in QueueName)
SERVED = tuple(queue.value for queue in QUEUES)
"""The queues on which jobs wait. `unrouted` holds only messages, and only in the broker."""
LEAVING_OPEN = frozenset(name.value for name, queue in QUEUES.items() if queue.leaves_open)
PLACES = (
    *((NONE, queue.value) for queue in QueueName if queue not in QUEUE_OF_TIER.values()),
    *((tier.name.lower(), queue.value) for tier, queue in QUEUE_OF_TIER.items()),
    *((tier.name.lower(), name.value) for tier in Tier for name, queue in QUEUES.items() if queue.has_all_tiers),
)
"""The pairs of tier and queue that occur: besides its own queue, a tier is debated on `intake` and published on
`control`."""

_FAILED_REASONS = _words(
    "not_available spec_invalid spec_poor not_spec_managed command_refused scan_refused publish_conflict publish_failed"
    " worker_lost no_provider_key provider_busy provider_error gateway_unreachable storage_unavailable internal_error"
)
END_REASONS: tuple[tuple[str, str], ...] = (
    *product((State.ANSWERED, State.PUBLISHED), (Reason.DONE,)),
    (State.REJECTED, Reason.REVIEWER_REJECTED),
    *product((State.EXPIRED,), (Reason.APPROVAL_EXPIRED, Reason.QUEUE_EXPIRED)),
    *product((State.CANCELLED,), (Reason.CANCELLED, Reason.SUPERSEDED)),
    (State.TIMED_OUT, Reason.TIME_LIMIT),
    (State.BUDGET_EXCEEDED, Reason.COST_CAP),
    (State.OUTPUT_EXCEEDED, Reason.OUTPUT_CAP),
    (State.ESCALATED, Reason.DEBATE_ESCALATED),
    *((State.FAILED, Reason(reason)) for reason in _FAILED_REASONS),
)
"""The ordinary end states with their reasons: these series start at 0."""
DEFERRED_OUTCOMES = (DEFERRED, DEFERRED_KEPT)
_TOO_LOW = _words("spec_invalid spec_poor not_spec_managed patch_invalid build_slow beyond_tier")
ATTEMPT_ENDS: tuple[tuple[str, str], ...] = (
    *END_REASONS,
    (State.AWAITING_APPROVAL, Reason.DONE),
    (ASKED, Reason.QUESTION),
    *product(("lost",), (Reason.WORKER_LOST, Reason.TIME_LIMIT, Reason.WORKER_STOPPED, Reason.LEDGER_UNREACHABLE)),
    *product(DEFERRED_OUTCOMES, (Reason.PROVIDER_BUSY, Reason.GATEWAY_UNREACHABLE, Reason.STORAGE_UNAVAILABLE)),
    *(("escalated", Reason(reason)) for reason in _TOO_LOW),
)
WENT_ON = (State.RECEIVED, State.CLARIFYING, State.DEBATING, State.QUEUED, State.RUNNING, State.PUBLISHING)
"""Open states in which an attempt of intake, of a run or of a step may leave its job."""
OUTCOMES = frozenset({*(state.value for state in State), ASKED, "lost", "escalated", "retrying", *DEFERRED_OUTCOMES})
DEBATES_HELD = (
    *((DebateKind.PLANNING.value, verdict.value) for verdict in Verdict),
    *((DebateKind.FAILURE.value, outcome.value.lower()) for outcome in FailureOutcome),
)
"""The pairs of kind and verdict that occur."""
CODES = ("2xx", "4xx", "429", "5xx", "529", NONE)
"""Providers' HTTP statuses; `none` without an answer."""
CIRCUIT_REASONS = tuple(trouble.value for trouble in Trouble)
LIMITS = ("time", "cost", "output", "wait")
PHASES = ("admit", "run", "stream")
LIMIT_HITS_KNOWN = (*product(("time", "cost", "output"), PHASES), ("wait", "admit"))
"""The pairs of limit and phase that occur."""
SOURCES = tuple(source.value for source in Source)
MODES = tuple(mode.value.lower() for mode in Mode)
CONFIDENCES = tuple(confidence.value.lower() for confidence in Confidence)
TOKEN_KINDS = ("input", "output", "cache_write", "cache_read")
FIELDS = (*JobRequest.model_fields, "tenant", "body", Reason.QUEUE_FULL.value, Reason.COST_CAP.value, OTHER)
BOX_USES = (NONE, "used")
BOX_STARTS = ("warm", "cold")
STEPS = _words(
    "lock snapshot provision inject execute extract teardown build scan preview salvage apply render workspace judge"
    " commit model"
)
"""The steps with their own series; every model call counts as `model`, a project's command as `other`."""
GATE_KINDS = ("rule", "plan")
GATE_STATES = ("open", "passed", "failed", "expired", "skipped")
RUN_PARTS = ("orchestrator", OTHER)
LOST_OF_CALLS = ("row", "attempt")
ORPHANS = ("container", "network", "volume")
MIRROR_RESULTS = ("hit", "fetched", "refused", "failed")
LADDER_ENDS: tuple[tuple[str, str], ...] = (
    *((LadderEventName.BYPASSED, reason) for reason in BYPASS_REASONS),
    *((LadderEventName.LLM_CALLED, reason) for reason in AmbiguityReason),
    *((LadderEventName.LLM_FAILED, failure) for failure in Failure),
    *((LadderEventName.MULTI_MATCH, reason) for reason in AmbiguityReason),
)
"""The ladder's events with their reasons (L-116 to L-119)."""
LADDER_EVENTS = tuple(name.value for name in LadderEventName)
LADDER_REASONS = frozenset(reason for _, reason in LADDER_ENDS)


class Kind(StrEnum):
    """Prometheus' metric types."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A metric and its initial series."""

    name: str
    """Without prefix."""
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    scale: int = 1
    """Stored units per unit in the name."""
    buckets: tuple[float, ...] = ()
    zeros: tuple[tuple[str, ...], ...] = ()
    """Label values of the series that start at 0."""
    domains: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Instead of `zeros` where some labels depend on the installation: the values of the others."""


class SeriesKey(NamedTuple):
    """A stored series: the metric's name (a histogram's with `_bucket` or `_sum`), and its labels as canonical JSON."""

    name: str
    labels: str


def counter(
    name: str,
    help_text: str,
    labels: str = "",
    *,
    scale: int = 1,
    zeros: Iterable[Any] = ((),),
    domains: Mapping[str, tuple[str, ...]] | None = None,
) -> Metric:
    """Return a counter; `labels` are separated by spaces."""
    return Metric(
        name=name,
        kind=Kind.COUNTER,
        help=help_text,
        labels=tuple(labels.split()),
        scale=scale,
        zeros=() if domains else tuple(zeros),
        domains=domains or {},
    )


def gauge(name: str, help_text: str, labels: str = "", *, zeros: Iterable[Any] = ()) -> Metric:
    """Return a gauge; `labels` are separated by spaces."""
    return Metric(name=name, kind=Kind.GAUGE, help=help_text, labels=tuple(labels.split()), zeros=tuple(zeros))


def _histogram(
    name: str, help_text: str, labels: str, *, scale: int, buckets: tuple[float, ...], zeros: Iterable[Any]
) -> Metric:
    return Metric(
        name=name,
        kind=Kind.HISTOGRAM,
        help=help_text,
        labels=tuple(labels.split()),
        scale=scale,
        buckets=buckets,
        zeros=tuple(zeros),
    )


def _each(*values: Iterable[str]) -> list[tuple[str, ...]]:
    return list(product(*values))


JOBS_ACCEPTED = counter("jobs_accepted_total", "Jobs accepted.", "source", zeros=_each(SOURCES))
REQUESTS_REFUSED = counter(
    "requests_refused_total",
    "Refused requests, by the first field that broke a rule.",
    "source field",
    zeros=_each((*SOURCES, OTHER), FIELDS),
)
ROUTES = counter(
    "routes_total",
    "Final routes of accepted jobs.",
    "mode confidence tier",
    zeros=_each(MODES, CONFIDENCES, TIERS),
)
CLARIFICATIONS = counter(
    "clarifications_total",
    "Questions to jobs' owners, by the decision in doubt.",
    "mode confidence",
    zeros=_each(MODES, CONFIDENCES),
)
LADDER = counter(
    "ladder_events_total",
    "Steps of the clarification ladder for replies, by reason (seed 004).",
    "event reason",
    zeros=LADDER_ENDS,
)
JOBS_ENQUEUED = counter(
    "jobs_enqueued_total", "Times a job started to wait for a worker.", "tier queue_name", zeros=PLACES
)
JOBS_STARTED = counter("jobs_started_total", "Attempts started.", "tier queue_name", zeros=PLACES)
JOB_ATTEMPTS = counter(
    "job_attempts_total",
    "Attempts ended.",
    "tier queue_name outcome reason",
    zeros=[
        *(place + end for place in PLACES for end in ATTEMPT_ENDS),
        *(place + end for place in PLACES if place[1] in LEAVING_OPEN for end in product(WENT_ON, [Reason.DONE])),
    ],
)
JOBS_FINISHED = counter(
    "jobs_finished_total",
    "Jobs ended.",
    "tier queue_name state reason",
    zeros=[place + end for place in PLACES for end in END_REASONS],
)
JOBS_BY_BOX = counter(
    "jobs_by_box_total",
    "Jobs ended, by whether they used a container.",
    "tier box",
    zeros=_each(TIERS, BOX_USES),
)
JOB_DURATION = _histogram(
    "job_duration_seconds",
    "Seconds from acceptance to any end, including the wait for approval.",
    "tier state",
    scale=MILLISECONDS,
    buckets=_JOB_BUCKETS,
    zeros=_each(TIERS, list(dict.fromkeys(state for state, _ in END_REASONS))),
)
QUEUE_WAIT = _histogram(
    "queue_wait_seconds",
    "Seconds from enqueueing to the start of the attempt.",
    "queue_name tier",
    scale=MILLISECONDS,
    buckets=_WAIT_BUCKETS,
    zeros=[(queue, tier) for tier, queue in PLACES],
)
ATTEMPT_DURATION = _histogram(
    "attempt_duration_seconds",
    "Duration of attempts in seconds, whatever their outcome.",
    "tier queue_name",
    scale=MILLISECONDS,
    buckets=_ATTEMPT_BUCKETS,
    zeros=PLACES,
)
COST = counter(
    "cost_usd_total",
    "USD charged for model calls.",
    "tier model provider",
    scale=NANOUSD_PER_USD,
    domains={"tier": TIERS},
)
COST_WASTED = counter(
    "cost_wasted_usd_total",
    "USD charged for attempts whose result was not used.",
    "tier",
    scale=NANOUSD_PER_USD,
    zeros=_each(TIERS),
)
TOKENS = counter(
    "tokens_total",
    "Tokens of model calls, in four disjoint kinds.",
    "tier model kind",
    domains={"tier": TIERS, "kind": TOKEN_KINDS},
)
JOB_COST = _histogram(
    "job_cost_usd",
    "Cost of ended jobs in USD.",
    "tier",
    scale=NANOUSD_PER_USD,
    buckets=_COST_BUCKETS,
    zeros=_each(TIERS),
)
OUTPUT_BYTES = _histogram(
    "output_bytes",
    "Output of ended jobs in bytes: of the answer or of all files.",
    "tier",
    scale=1,
    buckets=_SIZE_BUCKETS,
    zeros=_each(TIERS),
)
LIMIT_HITS = counter(
    "limit_hits_total",
    "Limits hit before work (admit), during it (run) or during a model call (stream).",
    "tier queue_name limit phase",
    zeros=[place + hit for place in PLACES for hit in LIMIT_HITS_KNOWN],
)
ESCALATIONS = counter(
    "tier_escalations_total",
    "Jobs handed to a higher tier.",
    "origin target reason",
    zeros=[
        *_each(
            ["spec"],
            ["patch"],
            [Reason.SPEC_INVALID, Reason.SPEC_POOR, Reason.NOT_SPEC_MANAGED, Reason.BEYOND_TIER],
        ),
        *_each(["patch"], ["agent"], [Reason.PATCH_INVALID, Reason.BUILD_SLOW, Reason.BEYOND_TIER]),
    ],
)
DEBATES = counter("debates_total", "Debates held, by verdict.", "kind verdict", zeros=DEBATES_HELD)
DUPLICATES_FENCED = counter(
    "duplicates_fenced_total",
    "Messages refused by the fence: their job had moved on.",
    "queue_name",
    zeros=_each(QUEUE_NAMES),
)
ATTEMPT_COST = counter(
    "attempt_cost_usd_total",
    "USD charged for ended attempts, by queue.",
    "tier queue_name",
    scale=NANOUSD_PER_USD,
    zeros=PLACES,
)
BOXES_OPENED = counter(
    "boxes_opened_total",
    "Boxes opened for work, by whether they were warm.",
    "queue_name start",
    zeros=_each([name for name, queue in QUEUES.items() if queue.needs_box], BOX_STARTS),
)
STEP_SECONDS = _histogram(
    "step_seconds",
    "Duration of jobs' visible steps in seconds.",
    "step",
    scale=MILLISECONDS,
    buckets=_STEP_BUCKETS,
    zeros=_each([*STEPS, OTHER]),
)
MESSAGES_UNREAD = counter(
    "messages_unread_total",
    "Messages of a version unknown to the worker: an upgrade is in progress or stuck.",
    "queue_name",
    zeros=_each(QUEUE_NAMES),
)
MESSAGES_DROPPED = counter(
    "messages_dropped_total",
    "Messages dropped because they are none of the fleet's; `unrouted` keeps a sample.",
    "queue_name",
    zeros=_each(QUEUE_NAMES),
)
MIRROR_REQUESTS = counter(
    "mirror_requests_total",
    "Requests to the package mirror, by result.",
    "result",
    zeros=_each(MIRROR_RESULTS),
)
MIRROR_BYTES = counter("mirror_bytes_total", "Bytes sent into boxes by the package mirror.")
GATES = counter(
    "run_gates_total",
    "Gates of runs opened and decided, by who required them.",
    "kind state",
    zeros=_each(GATE_KINDS, GATE_STATES),
)
RUN_TOKENS = counter(
    "run_tokens_total",
    "Tokens of ended runs, of the orchestrator with its subtasks and of all other agents.",
    "part",
    zeros=_each(RUN_PARTS),
)
GATES_PER_RUN = _histogram(
    "gates_per_run",
    "Gates per ended run.",
    "state",
    scale=1,
    buckets=_GATE_BUCKETS,
    zeros=_each([State.PUBLISHED, State.FAILED, State.CANCELLED]),
)
ORPHANS_REAPED = counter(
    "orphans_reaped_total",
    "Objects removed from an engine that a dead worker had left.",
    "sort",
    zeros=_each(ORPHANS),
)
CALLS_RESTORED = counter(
    "calls_restored_total",
    "Served calls that the ledger had lost and that a gateway booked again: their row, or their attempt with it.",
    "lost",
    zeros=_each(LOST_OF_CALLS),
)
PROVIDER_REQUESTS = counter(
    "provider_requests_total",
    "Model calls ended, by the provider's HTTP status, or `none`.",
    "provider model code",
    domains={"code": CODES},
)
CIRCUIT_OPENS = counter(
    "circuit_opens_total",
    "Times the circuit of an account's model opened for the whole fleet.",
    "provider model reason",
    domains={"reason": CIRCUIT_REASONS},
)
QUEUE_DEPTH = gauge("queue_depth", "Jobs waiting for a worker.", "queue_name", zeros=_each(SERVED))
ATTEMPTS_RUNNING = gauge("attempts_running", "Attempts started and not ended.", "tier queue_name", zeros=PLACES)

FOLDED = tuple(value for value in tuple(globals().values()) if isinstance(value, Metric))
"""The metrics computed from events."""


def series_key(name: str, labels: Mapping[str, str]) -> SeriesKey:
    """Return the key under which a series is stored."""
    return SeriesKey(name, json.dumps(labels, sort_keys=True, separators=(",", ":")))


def bucket_of(metric: Metric, value: float) -> str:
    """Return the upper bound of a value's bucket, as Prometheus writes it."""
    index = bisect_left(metric.buckets, value)
    return format_bound(metric.buckets[index]) if index < len(metric.buckets) else "+Inf"


def bounds_of(metric: Metric) -> tuple[str, ...]:
    """Return the upper bounds of a histogram's buckets, as Prometheus writes them."""
    return (*(format_bound(bound) for bound in metric.buckets), "+Inf")


def format_bound(bound: float) -> str:
    """Return a bound as Prometheus writes it."""
    return str(float(bound))

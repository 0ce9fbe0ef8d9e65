"""Names, labels and buckets of the metrics that are sums over the ledger's events; `gauges` has the others.

Amounts are stored as whole nanodollars and milliseconds, so that sums of floats cannot drift from the ledger. No label
holds a job id, a tenant, a prompt or an error's text.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
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
CODES = ("2xx", "3xx", "4xx", "429", "5xx", "529", NONE)
"""Providers' HTTP statuses; `none` without an answer."""
PHASES = ("admit", "run", "stream")
REASONS = frozenset(reason.value for reason in Reason)
LIMIT_HITS_KNOWN = (*product(("time", "cost", "output"), PHASES), ("wait", "admit"))
"""The pairs of limit and phase that occur."""
SOURCES = tuple(source.value for source in Source)
MODES = tuple(mode.value.lower() for mode in Mode)
CONFIDENCES = tuple(confidence.value.lower() for confidence in Confidence)
TOKEN_KINDS = ("input", "output", "cache_write", "cache_read")
FIELDS = (*JobRequest.model_fields, "tenant", "body", Reason.QUEUE_FULL.value, Reason.COST_CAP.value, OTHER)
BOX_STARTS = ("warm", "cold")
STEPS = _words(
    "lock snapshot provision inject execute extract teardown build scan preview salvage apply render workspace judge"
    " commit model"
)
"""The steps with their own series; every model call counts as `model`, a project's command as `other`."""
ORPHANS = ("container", "network", "volume")
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


OPEN: Collection[str] = ()
"""The values of a label that the installation decides: accounts, models."""


class Reading(NamedTuple):
    """One value of a metric."""

    name: str
    labels: tuple[str, ...]
    """Values in the order of the metric's labels."""
    value: float


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A metric and its initial series."""

    name: str
    """Without prefix."""
    kind: Kind
    help: str
    labels: Labels
    """Each with its values; any other value of a label that is not `OPEN` counts as `other`."""
    scale: int = 1
    """Stored units per unit in the name."""
    buckets: tuple[float, ...] = ()
    zeros: tuple[tuple[str, ...], ...]
    """Label values of the series that start at 0. With an open label there are none before its values are known."""


class SeriesKey(NamedTuple):
    """A stored series: the metric's name (a histogram's with `_bucket` or `_sum`), and its labels as canonical JSON."""

    name: str
    labels: str


Labels = Mapping[str, Collection[str]]
Zeros = Iterable[tuple[str, ...]] | None


def _metric(kind: Kind, name: str, text: str, labels: Labels | None, zeros: Zeros, **how: Any) -> Metric:
    starting = product(*(labels or {}).values()) if zeros is None else zeros
    return Metric(name=name, kind=kind, help=text, labels=labels or {}, zeros=tuple(starting), **how)


def counter(name: str, text: str, labels: Labels | None = None, *, scale: int = 1, zeros: Zeros = None) -> Metric:
    """Return a counter; without `zeros` a series of every combination of labels starts at 0."""
    return _metric(Kind.COUNTER, name, text, labels, zeros, scale=scale)


def gauge(name: str, text: str, labels: Labels | None = None, *, zeros: Zeros = None) -> Metric:
    """Return a gauge; see `counter`."""
    return _metric(Kind.GAUGE, name, text, labels, zeros)


def _histogram(
    name: str, text: str, labels: Labels, buckets: tuple[float, ...], *, scale: int = 1, zeros: Zeros = None
) -> Metric:
    return _metric(Kind.HISTOGRAM, name, text, labels, zeros, scale=scale, buckets=buckets)


_PLACE = {"tier": TIERS, "queue_name": QUEUE_NAMES}
_CIRCUIT = {"provider": OPEN, "model": OPEN}

JOBS_ACCEPTED = counter("jobs_accepted_total", "Jobs accepted.", {"source": SOURCES})
REQUESTS_REFUSED = counter(
    "requests_refused_total",
    "Refused requests, by the first field that broke a rule.",
    {"source": (*SOURCES, OTHER), "field": FIELDS},
)
ROUTES = counter(
    "routes_total", "Final routes of accepted jobs.", {"mode": MODES, "confidence": CONFIDENCES, "tier": TIERS}
)
CLARIFICATIONS = counter(
    "clarifications_total",
    "Questions to jobs' owners, by the decision in doubt.",
    {"mode": (*MODES, NONE), "confidence": CONFIDENCES},
    zeros=product(MODES, CONFIDENCES),
)
LADDER = counter(
    "ladder_events_total",
    "Steps of the clarification ladder for replies, by reason (seed 004).",
    {"event": LADDER_EVENTS, "reason": LADDER_REASONS},
    zeros=LADDER_ENDS,
)
JOBS_ENQUEUED = counter("jobs_enqueued_total", "Times a job started to wait for a worker.", _PLACE, zeros=PLACES)
JOBS_STARTED = counter("jobs_started_total", "Attempts started.", _PLACE, zeros=PLACES)
JOB_ATTEMPTS = counter(
    "job_attempts_total",
    "Attempts ended.",
    _PLACE | {"outcome": OUTCOMES, "reason": REASONS},
    zeros=[
        *(place + end for place in PLACES for end in ATTEMPT_ENDS),
        *(place + end for place in PLACES if place[1] in LEAVING_OPEN for end in product(WENT_ON, [Reason.DONE])),
    ],
)
JOBS_FINISHED = counter(
    "jobs_finished_total",
    "Jobs ended.",
    _PLACE | {"state": OUTCOMES, "reason": REASONS},
    zeros=[place + end for place in PLACES for end in END_REASONS],
)
JOBS_BY_BOX = counter(
    "jobs_by_box_total", "Jobs ended, by whether they used a container.", {"tier": TIERS, "box": (NONE, "used")}
)
JOB_DURATION = _histogram(
    "job_duration_seconds",
    "Seconds from acceptance to any end, including the wait for approval.",
    {"tier": TIERS, "state": OUTCOMES},
    (1, 5, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 14_400, 86_400),
    scale=MILLISECONDS,
    zeros=product(TIERS, dict.fromkeys(state for state, _ in END_REASONS)),
)
QUEUE_WAIT = _histogram(
    "queue_wait_seconds",
    "Seconds from enqueueing to the start of the attempt.",
    {"queue_name": QUEUE_NAMES, "tier": TIERS},
    (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800),
    scale=MILLISECONDS,
    zeros=[(queue, tier) for tier, queue in PLACES],
)
ATTEMPT_DURATION = _histogram(
    "attempt_duration_seconds",
    "Duration of attempts in seconds, whatever their outcome.",
    _PLACE,
    (0.1, 0.5, 1, 2.5, 5, 10, 15, 20, 25, 30, 45, 60, 90, 120, 180, 240, 280, 300, 330),
    scale=MILLISECONDS,
    zeros=PLACES,
)
COST = counter(
    "cost_usd_total",
    "USD charged for model calls.",
    {"tier": TIERS, "model": OPEN, "provider": OPEN},
    scale=NANOUSD_PER_USD,
)
COST_WASTED = counter(
    "cost_wasted_usd_total",
    "USD charged for attempts whose result was not used.",
    {"tier": TIERS},
    scale=NANOUSD_PER_USD,
)
TOKENS = counter(
    "tokens_total",
    "Tokens of model calls, in four disjoint kinds.",
    {"tier": TIERS, "model": OPEN, "kind": TOKEN_KINDS},
)
JOB_COST = _histogram(
    "job_cost_usd",
    "Cost of ended jobs in USD.",
    {"tier": TIERS},
    (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10),
    scale=NANOUSD_PER_USD,
)
OUTPUT_BYTES = _histogram(
    "output_bytes",
    "Output of ended jobs in bytes: of the answer or of all files.",
    {"tier": TIERS},
    tuple(float(1024 * 4**step) for step in range(8)),
)
LIMIT_HITS = counter(
    "limit_hits_total",
    "Limits hit before work (admit), during it (run) or during a model call (stream).",
    _PLACE | {"limit": ("time", "cost", "output", "wait"), "phase": PHASES},
    zeros=[place + hit for place in PLACES for hit in LIMIT_HITS_KNOWN],
)
ESCALATIONS = counter(
    "tier_escalations_total",
    "Jobs handed to a higher tier.",
    {"origin": TIERS, "target": TIERS, "reason": REASONS},
    zeros=[
        *product(
            ["spec"], ["patch"], [Reason.SPEC_INVALID, Reason.SPEC_POOR, Reason.NOT_SPEC_MANAGED, Reason.BEYOND_TIER]
        ),
        *product(["patch"], ["agent"], [Reason.PATCH_INVALID, Reason.BUILD_SLOW, Reason.BEYOND_TIER]),
    ],
)
DEBATES = counter("debates_total", "Debates held, by verdict.", {"kind": OPEN, "verdict": OPEN}, zeros=DEBATES_HELD)
DUPLICATES_FENCED = counter(
    "duplicates_fenced_total", "Messages refused by the fence: their job had moved on.", {"queue_name": QUEUE_NAMES}
)
ATTEMPT_COST = counter(
    "attempt_cost_usd_total", "USD charged for ended attempts, by queue.", _PLACE, scale=NANOUSD_PER_USD, zeros=PLACES
)
BOXES_OPENED = counter(
    "boxes_opened_total",
    "Boxes opened for work, by whether they were warm.",
    {"queue_name": QUEUE_NAMES, "start": BOX_STARTS},
    zeros=product([name for name, queue in QUEUES.items() if queue.needs_box], BOX_STARTS),
)
STEP_SECONDS = _histogram(
    "step_seconds",
    "Duration of jobs' visible steps in seconds.",
    {"step": (*STEPS, OTHER)},
    (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300),
    scale=MILLISECONDS,
)
MESSAGES_UNREAD = counter(
    "messages_unread_total",
    "Messages of a version unknown to the worker: an upgrade is in progress or stuck.",
    {"queue_name": QUEUE_NAMES},
)
MESSAGES_DROPPED = counter(
    "messages_dropped_total",
    "Messages dropped because they are none of the fleet's; `unrouted` keeps a sample.",
    {"queue_name": QUEUE_NAMES},
)
MIRROR_REQUESTS = counter(
    "mirror_requests_total",
    "Requests to the package mirror, by result.",
    {"result": ("hit", "fetched", "refused", "failed")},
)
MIRROR_BYTES = counter("mirror_bytes_total", "Bytes sent into boxes by the package mirror.")
GATES = counter(
    "run_gates_total",
    "Gates of runs opened and decided, by who required them.",
    {"kind": ("rule", "plan"), "state": ("open", "passed", "failed", "expired", "skipped")},
)
RUN_TOKENS = counter(
    "run_tokens_total",
    "Tokens of ended runs, of the orchestrator with its subtasks and of all other agents.",
    {"part": ("orchestrator", OTHER)},
)
GATES_PER_RUN = _histogram(
    "gates_per_run",
    "Gates per ended run.",
    {"state": OUTCOMES},
    (0, 1, 2, 3, 5, 8, 13),
    zeros=[(State.PUBLISHED,), (State.FAILED,), (State.CANCELLED,)],
)
ORPHANS_REAPED = counter(
    "orphans_reaped_total", "Objects removed from an engine that a dead worker had left.", {"sort": ORPHANS}
)
CALLS_RESTORED = counter(
    "calls_restored_total",
    "Served calls that the ledger had lost and that a gateway booked again: their row, or their attempt with it.",
    {"lost": ("row", "attempt")},
)
PROVIDER_REQUESTS = counter(
    "provider_requests_total",
    "Model calls ended, by the provider's HTTP status, or `none`.",
    _CIRCUIT | {"code": CODES},
)
CIRCUIT_OPENS = counter(
    "circuit_opens_total",
    "Times the circuit of an account's model opened for the whole fleet.",
    _CIRCUIT | {"reason": tuple(trouble.value for trouble in Trouble)},
)
QUEUE_DEPTH = gauge(
    "queue_depth", "Jobs waiting for a worker.", {"queue_name": QUEUE_NAMES}, zeros=[(name,) for name in SERVED]
)
ATTEMPTS_RUNNING = gauge("attempts_running", "Attempts started and not ended.", _PLACE, zeros=PLACES)

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

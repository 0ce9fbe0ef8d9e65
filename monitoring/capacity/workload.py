"""A fleet's workload: durations, follow-up work and cost of attempts on each queue.

`measure` reads it from a live ledger, and `Workload` is also the format of a file for planning elsewhere. What was not
measured comes from the policy's prices, speeds and limits, and is marked as such.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import NormalDist, fmean, median, pvariance
from types import MappingProxyType
from typing import Annotated, Literal, NamedTuple, Self

from psycopg.errors import QueryCanceled
from pydantic import Field, ValidationError, model_validator
from sqlalchemy.exc import OperationalError
from sqlmodel import Session

from ledger.errors import CapacityError
from ledger.operations.workers import slots_by_queue
from ledger.store import Ledger, Statement
from routing.config import Section
from routing.policy.platform import ModelCall, Policy
from routing.policy.prices import NANOUSD_PER_USD, Usage, cost_nanousd
from routing.queues import QUEUES, QueueName

_MOST_FILE_BYTES = 1_048_576
_MOST_PASSES = 10_000
_STILL = 1e-9

Seconds = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Amount = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
Rates = Mapping[QueueName, float]
"""Per second."""


class ModelUse(Section):
    """An attempt's mean use of one model."""

    calls: Amount
    tokens: Amount
    """Read and written."""


class QueueWork(Section):
    """The attempts on one queue."""

    source: Literal["measured", "default"]
    attempts: int = Field(default=0, ge=0)
    """Number of measured attempts."""
    mean_seconds: Seconds
    """From claim to settlement."""
    variability: Amount
    """Variance of the durations over the mean squared."""
    pickup_seconds: Seconds = 0.0
    """Median time from enqueueing to the claim by a free slot."""
    turnaround_seconds: Seconds = 0.0
    """Median time from an attempt's end to the next claim on its slot while jobs wait."""
    follows: dict[QueueName, Share] = Field(default_factory=dict)
    """Shares of attempts after which the job waits on another queue, or on this one again."""
    usd: Amount = 0.0
    """Model cost of an attempt."""
    models: dict[str, ModelUse] = Field(default_factory=dict, max_length=64)
    """By `PROVIDER/MODEL`."""

    @model_validator(mode="after")
    def _check_follows(self) -> Self:
        if sum(self.follows.values()) > 1 + _STILL:
            raise ValueError("follows: its shares must not be above 1 together")
        return self

    @property
    def occupied_seconds(self) -> float:
        """For how long an attempt occupies its slot, including the turnaround."""
        return self.mean_seconds + self.turnaround_seconds

    @property
    def occupied_variability(self) -> float:
        """Variance of the occupied time over its mean squared."""
        return self.variability * (self.mean_seconds / self.occupied_seconds) ** 2 if self.occupied_seconds else 0.0

    @property
    def calls(self) -> float:
        """Model calls per attempt."""
        return sum(use.calls for use in self.models.values())


class Workload(Section):
    """The work of a fleet, measured or by default."""

    v: Literal[2] = 2
    source: str = Field(max_length=400)
    """Its origin, in words."""
    queues: dict[QueueName, QueueWork]
    mix: dict[QueueName, Share]
    """Shares of new jobs by queue, which sum up to 1."""
    rate_per_second: Amount | None = None
    """New jobs per second in the busiest measured hour."""
    tenants: int = Field(default=1, ge=1)
    """Tenants with jobs."""

    @model_validator(mode="after")
    def _check_whole(self) -> Self:
        if abs(sum(self.mix.values()) - 1) > 1e-6:
            raise ValueError("mix: its shares must make 1 together")
        named = set(self.mix).union(*(work.follows for work in self.queues.values()))
        if missing := sorted(queue.value for queue in named - set(self.queues)):
            raise ValueError(f"queues: must describe {', '.join(missing)}, where jobs arrive")
        return self

    def rates(self, arriving: Rates) -> dict[QueueName, float]:
        """Return the attempts per second of every queue, including those that follow from others.

        Raises:
            CapacityError: the caller's fault: work follows without end.
        """
        rates = dict.fromkeys(self.queues, 0.0) | dict(arriving)
        for _ in range(_MOST_PASSES):
            following = dict.fromkeys(self.queues, 0.0) | dict(arriving)
            for queue, rate in rates.items():
                for target, share in self.queues[queue].follows.items():
                    following[target] += rate * share
            if all(abs(following[queue] - rates[queue]) <= _STILL * (1 + rates[queue]) for queue in rates):
                return following
            rates = following
        raise CapacityError("follows: every attempt brings another: no number of workers ends that")

    def arriving(self, total: float) -> dict[QueueName, float]:
        """Return a rate of new jobs by queue, in the shares of `mix`."""
        return {queue: total * share for queue, share in self.mix.items() if share > 0}


def read_workload(path: Path) -> Workload:
    """Read a file, such as one written by `pointsman capacity --save`.

    Raises:
        CapacityError: the caller's fault: it names the field and the rule.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_FILE_BYTES + 1)
    except OSError as error:
        raise CapacityError(f"{path}: cannot be read: {error.strerror}") from None
    if len(data) > _MOST_FILE_BYTES:
        raise CapacityError(f"{path}: is longer than {_MOST_FILE_BYTES} bytes")
    try:
        return Workload.model_validate_json(data)
    except ValidationError as error:
        raise CapacityError(f"{path}: {first_error(error)}") from None


def first_error(error: ValidationError) -> str:
    """Return the field and the rule of the first mistake."""
    first = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in first["loc"]) or "the document"
    return f"{place}: {first['msg'].removeprefix('Value error, ')}"


_PROVIDER = "anthropic"
_TYPICAL_SHARE = 0.4
"""Median share of the tokens that a call may write; the slowest twentieth writes all of them."""
_MESSAGE_SECONDS = 0.02
"""Transit time of a message to a slot."""


def default_workload(policy: Policy) -> Workload:
    """Return the workload to assume without measurements."""
    queues = {queue: default_work(policy, queue) for queue in QUEUES}
    mix = {name: queue.arrivals for name, queue in QUEUES.items() if queue.arrivals}
    mix[QueueName.SPEC] += 1 - sum(mix.values())
    return Workload(source="defaults: nothing was measured", queues=queues, mix=mix)


def default_work(policy: Policy, queue: QueueName) -> QueueWork:
    """Return the attempts to assume for one queue."""
    limits, record = policy.queues[queue], QUEUES[queue]
    call = policy.calls[record.call or "agent_session"]
    count = record.calls if record.call else 0
    if record.busy_share is None:
        median, p95 = _call_seconds(policy, call)
    else:
        median, p95 = (share * limits.soft_seconds for share in record.busy_share)
    mean, variability = _lognormal(median, p95=min(p95, limits.hard_seconds), most=limits.hard_seconds)
    return QueueWork(
        source="default",
        mean_seconds=mean,
        variability=variability,
        pickup_seconds=_MESSAGE_SECONDS,
        turnaround_seconds=_MESSAGE_SECONDS,
        follows=dict(record.follows),
        usd=_usd(policy, call, count) if count else 0.0,
        models={f"{_PROVIDER}/{call.model}": _use(call, count)} if count else {},
    )


def _call_seconds(policy: Policy, call: ModelCall) -> tuple[float, float]:
    speed = policy.speeds[call.model]
    written = call.max_tokens / speed.tokens_per_second
    return speed.first_token_seconds + _TYPICAL_SHARE * written, speed.first_token_seconds + written


def _usage(call: ModelCall, count: int) -> Usage:
    return Usage(input_tokens=call.input_tokens, output_tokens=round(_TYPICAL_SHARE * call.max_tokens / count))


def _usd(policy: Policy, call: ModelCall, count: int) -> float:
    return count * cost_nanousd(policy.prices[call.model], _usage(call, count)) / NANOUSD_PER_USD


def _use(call: ModelCall, count: int) -> ModelUse:
    usage = _usage(call, count)
    return ModelUse(calls=count, tokens=count * (usage.input_tokens + usage.output_tokens))


def _lognormal(median: float, *, p95: float, most: float) -> tuple[float, float]:
    """Return mean and variability of a lognormal distribution cut off at `most`."""
    normal = NormalDist()
    sigma = math.log(p95 / median) / normal.inv_cdf(0.95)
    bound = math.log(most / median) / sigma
    beyond = 1 - normal.cdf(bound)
    mean, square = (
        median**power * math.exp((power * sigma) ** 2 / 2) * normal.cdf(bound - power * sigma) + most**power * beyond
        for power in (1, 2)
    )
    return mean, square / mean**2 - 1


LEAST_ATTEMPTS = 30
"""For a queue with fewer attempts the defaults are assumed."""
MOST_ATTEMPTS = 20_000
"""The newest attempts read of each queue."""
_TIMEOUT_MS = 60_000

_NEWEST = """
    WITH newest AS (
        SELECT name AS queue, found.* FROM unnest(CAST(%(queues)s AS text[])) AS names (name)
         CROSS JOIN LATERAL (
            SELECT id, job_id, number, started_at, ended_at FROM attempt
             WHERE queue = name AND ended_at IS NOT NULL AND started_at > now() - make_interval(hours => %(hours)s)
             ORDER BY started_at DESC LIMIT %(most)s
         ) AS found
    )
"""

_ATTEMPTS = Statement(f"""{_NEWEST}
    SELECT newest.queue, extract(epoch FROM newest.started_at)::float AS started_at,
           extract(epoch FROM newest.ended_at)::float AS ended_at,
           (SELECT (data ->> 'wait_seconds')::float FROM event
             WHERE event.job_id = newest.job_id AND event.kind = 'started'
               AND (data ->> 'attempt')::int = newest.number LIMIT 1) AS waited,
           (SELECT later.queue FROM attempt AS later
             WHERE later.job_id = newest.job_id AND later.number = newest.number + 1) AS next_queue
      FROM newest
""")

_CALLS = Statement(f"""{_NEWEST}
    SELECT newest.queue, call.provider || '/' || call.model AS model, count(*) AS calls,
           sum(input_tokens + output_tokens + cache_write_tokens + cache_read_tokens) AS tokens,
           sum(cost_nanousd) AS nanousd
      FROM newest JOIN call ON call.attempt_id = newest.id
     GROUP BY newest.queue, call.provider, call.model
""")

_ARRIVED = Statement("""
    WITH minutes AS (
        SELECT queue, floor(extract(epoch FROM started_at) / 60)::bigint AS minute, count(*) AS jobs FROM attempt
         WHERE number = 1 AND queue = ANY(CAST(%(queues)s AS text[]))
           AND started_at > now() - make_interval(hours => %(hours)s)
         GROUP BY queue, minute
    )
    SELECT queue, sum(jobs)::bigint AS jobs,
           (SELECT max(jobs)::bigint FROM (
                SELECT sum(sum(jobs)) OVER (ORDER BY minute RANGE BETWEEN 59 PRECEDING AND CURRENT ROW) AS jobs
                  FROM minutes GROUP BY minute
            ) AS hours) AS busiest
      FROM minutes GROUP BY queue
""")
"""Arrivals in all and in the busiest sixty minutes, however many attempts are read."""

_TENANTS = Statement("""
    SELECT count(DISTINCT tenant) FROM job WHERE id IN (
        SELECT job_id FROM attempt
         WHERE started_at > now() - make_interval(hours => %(hours)s)
         ORDER BY started_at DESC LIMIT %(most)s)
""")


class AttemptFact(NamedTuple):
    """An ended attempt. Times are seconds of one clock."""

    arrived_at: float
    """When its job started to wait."""
    started_at: float
    ended_at: float
    next_queue: QueueName | None = None
    """The queue of its job's next attempt, if any."""


class CallTotals(NamedTuple):
    """The use of one model by all attempts on a queue."""

    model: str
    """`PROVIDER/MODEL`."""
    calls: int
    tokens: int
    usd: float


class Handover(NamedTuple):
    """The times between attempts."""

    pickup_seconds: float
    turnaround_seconds: float


class Measured(NamedTuple):
    """A workload and the present slots."""

    workload: Workload
    slots: Mapping[QueueName, int] = MappingProxyType({})
    """Slots that serve each queue now, as reported by workers; one that serves several queues counts for each."""


def measure(ledger: Ledger, policy: Policy, *, hours: int, least: int = LEAST_ATTEMPTS) -> Measured:
    """Measure the fleet's last hours, from one snapshot and in bounded time.

    The defaults are assumed for a queue with fewer than `least` attempts.

    Raises:
        CapacityError: the caller's fault: too much to read in the time allowed.
    """
    assumed = default_workload(policy)
    window = {"queues": [queue.value for queue in assumed.queues], "hours": hours, "most": MOST_ATTEMPTS}
    try:
        with ledger.begin() as session:
            Statement("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY").all(session)
            Statement(f"SET LOCAL statement_timeout = {_TIMEOUT_MS}").all(session)
            attempts = _read_attempts(session, window)
            calls = _read_calls(session, window)
            arrived = _ARRIVED.all(session, window)
            slots = {QueueName(each.queue): each.slots for each in slots_by_queue(session) if each.slots > 0}
            tenants = _TENANTS.scalar(session, window) or 1
    except OperationalError as error:
        if isinstance(error.orig, QueryCanceled):
            rule = f"the ledger took more than {_TIMEOUT_MS / 1000:g} s to read {hours} h: ask for fewer --hours"
            raise CapacityError(rule) from None
        raise
    measured = {queue: describe(facts, calls[queue]) for queue, facts in attempts.items() if len(facts) >= least}
    seen, jobs = sum(len(facts) for facts in attempts.values()), sum(row.jobs for row in arrived)
    workload = Workload(
        source=f"the ledger's last {hours} h: {seen:,} attempts" if seen else assumed.source,
        queues=assumed.queues | measured,
        mix={QueueName(row.queue): row.jobs / jobs for row in arrived} or assumed.mix,
        rate_per_second=max((row.busiest for row in arrived), default=0) / 3600 or None,
        tenants=tenants,
    )
    return Measured(workload, slots)


def describe(attempts: Sequence[AttemptFact], calls: Sequence[CallTotals]) -> QueueWork:
    """Return the statistics of one queue's attempts, at least one, and of their calls."""
    count = len(attempts)
    seconds = [max(0.0, attempt.ended_at - attempt.started_at) for attempt in attempts]
    mean = fmean(seconds)
    times = handover(attempts)
    followed = Counter(attempt.next_queue for attempt in attempts if attempt.next_queue is not None)
    followed.pop(QueueName.UNROUTED, None)  # served by nobody
    return QueueWork(
        source="measured",
        attempts=count,
        mean_seconds=mean,
        variability=pvariance(seconds, mean) / mean**2 if mean > 0 else 0.0,
        pickup_seconds=times.pickup_seconds,
        turnaround_seconds=times.turnaround_seconds,
        follows={queue: number / count for queue, number in followed.items()},
        usd=sum(total.usd for total in calls) / count,
        models={total.model: ModelUse(calls=total.calls / count, tokens=total.tokens / count) for total in calls},
    )


def handover(attempts: Sequence[AttemptFact]) -> Handover:
    """Separate the transit time of messages from waits for a slot.

    If no other attempt ended while a job waited, a free slot claimed it: its wait is the pickup time. Otherwise its
    slot was busy until another attempt ended: the time since then is the turnaround. Both are medians, so that jobs
    delayed by something else do not matter much.
    """
    ordered = sorted(attempts, key=lambda attempt: attempt.started_at)
    ends = sorted(attempt.ended_at for attempt in ordered)
    pickups, turnarounds = [], []
    unmatched: deque[float] = deque()
    added = 0
    for attempt in ordered:
        until = bisect_right(ends, attempt.started_at)
        unmatched.extend(ends[added:until])
        added = max(added, until)
        while unmatched and unmatched[0] < attempt.arrived_at:
            unmatched.popleft()  # its slot was free when this job arrived
        if bisect_left(ends, attempt.arrived_at) == until:
            pickups.append(max(0.0, attempt.started_at - attempt.arrived_at))
        elif unmatched:
            turnarounds.append(attempt.started_at - unmatched.popleft())
    pickup = median(pickups) if pickups else 0.0
    return Handover(pickup, median(turnarounds) if turnarounds else pickup)


def _read_attempts(session: Session, window: dict[str, object]) -> dict[QueueName, list[AttemptFact]]:
    attempts: dict[QueueName, list[AttemptFact]] = defaultdict(list)
    for row in _ATTEMPTS.all(session, window):
        next_queue = QueueName(row.next_queue) if row.next_queue else None
        arrived_at = row.started_at - (row.waited or 0.0)
        attempts[QueueName(row.queue)].append(AttemptFact(arrived_at, row.started_at, row.ended_at, next_queue))
    return attempts


def _read_calls(session: Session, window: dict[str, object]) -> dict[QueueName, list[CallTotals]]:
    calls: dict[QueueName, list[CallTotals]] = defaultdict(list)
    for row in _CALLS.all(session, window):
        usd = float(row.nanousd or 0) / NANOUSD_PER_USD
        calls[QueueName(row.queue)].append(CallTotals(row.model, row.calls, int(row.tokens or 0), usd))
    return calls

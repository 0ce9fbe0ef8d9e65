"""The life of an attempt, the same for every tier: claim, work under limits, settle exactly once.

A handler returns an outcome or raises. Only this module turns that into a ledger transition, and only while the attempt
still holds the job. Its effects need the attempt's fence, so a worker that lost the job changes nothing.
"""

from __future__ import annotations

import logging
import math
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from types import FrameType, MappingProxyType
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import func, select
from sqlmodel import Session

from gateway.errors import GatewayUnreachableError, LedgerUnreachableError
from gateway.fleet_budget import FleetBudget
from ledger.attempts import bind_egress, lock_owned_job, report_loss, requeue_unknown_version
from ledger.errors import FencedError
from ledger.events import EventKind, last_budget_exceeded, record, report
from ledger.job_control import lock_supersede_key
from ledger.job_ends import is_step
from ledger.jobs import close_attempt, end, move, requeue
from ledger.provider_circuits import circuit_wait
from ledger.runs.steps import StepOrder, charge_unmetered_step, step_order
from ledger.start_attempt import Claim, claim
from ledger.store import LEDGER_UNREACHABLE, Ledger, now
from ledger.tables import Job
from monitoring import logs, traces
from monitoring.config import CellsConfig
from routing.errors import UnknownMessageError
from routing.jobs import PAID_REPLIES, JobMessage, Reason, State, is_end
from routing.policy.platform import Pauses, Policy
from routing.policy.prices import BudgetExceeded
from routing.queues import QueueName
from routing.scheduling import CONTROL_RETRIES, retry_delay_seconds
from sites.content_store import ContentStore
from workers import dense
from workers.attempt import Attempt, HandlerResources
from workers.errors import HandBack, SoftTimeLimit
from workers.lease import Lease, LeaseKeeper
from workers.outcomes import Deferred, Ended, Outcome
from workers.retries import Abandon, decide_end
from workers.settlement import EndWith, Settlement, prepare

ResultT = TypeVar("ResultT")

SOFT_LIMIT_SIGNAL = signal.SIGUSR1
"""billiard sends it to a pool child at the soft limit.

Its own handler raises SoftTimeLimitExceeded, an ordinary Exception that a retrying model client would swallow. Pool
children use `install_interrupts` instead: it raises BaseExceptions, and only inside a task's body, so that a late
signal cannot hit the pool's own code.
"""
HAND_BACK_SIGNAL = signal.SIGUSR2
"""A stopping worker sends it to its pool children when their grace is over."""
_RAISES: dict[int, type[BaseException]] = {SOFT_LIMIT_SIGNAL: SoftTimeLimit, HAND_BACK_SIGNAL: HandBack}


class _Interrupts:
    is_armed = False

    def on_signal(self, signum: int, frame: FrameType | None) -> None:
        if self.is_armed:
            self.is_armed = False
            raise _RAISES[signum]


_interrupts = _Interrupts()


def install_interrupts() -> None:
    """Install the handlers. Called in each pool child after its start, and again once billiard has set its own."""
    for signum in _RAISES:
        signal.signal(signum, _interrupts.on_signal)


@contextmanager
def interruptible(attempt: Attempt) -> Iterator[None]:
    """Let a signal, or the pool of threads, interrupt this block, once."""
    if (work := dense.current()) is not None:
        with work.interruptible(attempt):
            yield
        return
    _interrupts.is_armed = True
    try:
        yield
    finally:
        _interrupts.is_armed = False


def trace_claim(claimed: Claim, *, asked: float) -> None:
    """Trace the wait and the claim, which are over before the attempt learns of its trace from the row."""
    if not traces.is_on():
        return
    trace, queue = claimed.job.trace, claimed.attempt.queue
    facts = _trace_facts(claimed)
    traces.past(f"wait {queue}", trace, began=asked - claimed.waited_seconds, ended=asked, facts=facts)
    traces.past(f"claim {queue}", trace, began=asked, ended=time.time(), facts=facts)


def trace_attempt(claimed: Claim) -> AbstractContextManager[traces.Span]:
    """Trace the attempt below the request that submitted the job: one job is one trace, whoever works on it."""
    if not traces.is_on():
        return traces.UNRECORDED
    queue = claimed.attempt.queue
    return traces.of_job(
        f"process {queue}",
        claimed.job.trace,
        kind=traces.Kind.CONSUMER,
        facts={
            "messaging.system": "celery",
            "messaging.operation.type": "process",
            "messaging.destination.name": queue,
            "pointsman.worker": claimed.attempt.worker,
            **_trace_facts(claimed),
        },
    )


def _trace_facts(claimed: Claim) -> traces.Facts:
    job, attempt = claimed.job, claimed.attempt
    return {
        "pointsman.job.id": str(job.id),
        "pointsman.tenant": job.tenant,
        "pointsman.tier": attempt.tier,
        "pointsman.attempt": attempt.number,
    }


logger = logging.getLogger(__name__)

SETTLE_PAUSES = (0.2, 1.0, 3.0)
"""Seconds between tries to settle while the ledger is unreachable, the last one again and again: an outage must not
discard paid work.

The one wait of a worker that no row can hold, since it is for the ledger itself; the hard time limit bounds it.
"""

Handler = Callable[[Attempt], Outcome]

_MOVED_ON = Ended(
    State.FAILED,
    Reason.PUBLISH_CONFLICT,
    "the site shows another release than the one that the work so far was made from; submit it again",
)


@dataclass(frozen=True, kw_only=True)
class Resources(HandlerResources):
    """What every task needs; opened after the fork."""

    ledger: Ledger
    content_store: ContentStore
    policy: Policy
    worker: str
    fleet: FleetBudget = field(default_factory=lambda: FleetBudget(CellsConfig()))
    """The budget that what passes no gateway is charged to."""
    leases: LeaseKeeper = field(default_factory=LeaseKeeper)
    """Renews the leases of this process's claims."""


def claim_job(message: JobMessage, queue: QueueName, resources: Resources) -> Claim | None:
    """Claim a message's job for this process; None when the message is stale."""
    asked = time.time()
    claimed = claim(resources.ledger, message, queue=queue, worker=resources.worker, policy=resources.policy)
    if claimed is None:
        logger.info("message_without_claim", extra={"job_id": str(message.job_id), "fence": message.fence})
        return None
    logs.bind(job_id=str(message.job_id), queue=queue.value, tier=claimed.job.tier, attempt=claimed.attempt.number)
    logger.info("attempt_started")
    trace_claim(claimed, asked=asked)
    return claimed


def requeue_unknown(unread: UnknownMessageError, queue: QueueName, resources: Resources) -> None:
    """Requeue the job of a message from a newer version; without a ledger the dispatcher finds it missing."""
    logger.warning("message_of_unknown_version", extra={"job_id": str(unread.job_id), "version": unread.version})
    with suppress(*LEDGER_UNREACHABLE), resources.ledger.begin() as session:
        requeue_unknown_version(session, unread, queue=queue)


def run_attempt(message: JobMessage, queue: QueueName, handler: Handler, resources: Resources) -> None:
    """Process one message: one attempt at one job."""
    began = time.monotonic()
    claimed = claim_job(message, queue, resources)
    if claimed is None:
        return
    until = began + claimed.policy.queues[queue].hard_seconds
    replies: Mapping[str, Any] = {}
    try:
        with trace_attempt(claimed), Lease(resources.ledger, claimed, resources.leases) as lease:
            attempt = _open_attempt(claimed, resources, lease=lease, began=began)
            replies = attempt.replies
            if attempt.site is not None:
                attempt.report_step("lock", seconds=time.monotonic() - began)
            try:
                settlement = _run_handler(attempt, handler)
            finally:
                attempt.close()
            if settlement is not None:
                _settle_in_any_case(claimed, settlement, resources, until=until)
    except FencedError:
        logger.warning("attempt_fenced")
    except HandBack:
        hand_back(message, resources, cause=Reason.WORKER_STOPPED, replies=replies)
    except LEDGER_UNREACHABLE:
        logger.warning("attempt_given_up_without_ledger", exc_info=True)
        hand_back(message, resources, cause=Reason.LEDGER_UNREACHABLE, replies=replies, until=until)


def hand_back(
    message: JobMessage,
    resources: Resources,
    *,
    cause: Reason,
    replies: Mapping[str, Any] = MappingProxyType({}),
    until: float = -math.inf,
) -> None:
    """Give a job back that this worker does not go on with; its box is gone by now. It is queued again.

    `cause` is one of `HANDED_BACK`, or an error of ours, which counts against the job; `replies` of models are for the
    next attempt, and `until` is the monotonic time until which to wait for the ledger.
    """
    logger.info("attempt_handed_back", extra={"cause": cause.value})

    def report() -> None:
        with resources.ledger.begin() as session:
            report_loss(session, message, worker=resources.worker, cause=cause, replies=replies)

    try:
        with_ledger(report, until=until)
    except LEDGER_UNREACHABLE:
        logger.warning("ledger_unreachable")  # the lease expires


def _open_attempt(claimed: Claim, resources: Resources, *, lease: Lease, began: float) -> Attempt:
    order = _step_order(claimed, resources) if is_step(claimed.job) else None
    soft_seconds = claimed.policy.queues[QueueName(claimed.attempt.queue)].soft_seconds
    reporter = _LedgerReporter(resources, claimed, until=began + soft_seconds)
    return Attempt(
        claim=claimed,
        content_store=resources.content_store,
        resources=resources,
        check=lease.check,
        report=reporter.report,
        budget_exceeded=reporter.budget_exceeded,
        bind_egress=reporter.bind,
        begin_scan=reporter.begin_scan,
        circuit_wait=reporter.circuit_wait,
        spent_nanousd=claimed.booked_nanousd,
        began=began,
        charge_unmetered=reporter.charge,
        step_order=order,
    )


def _step_order(claimed: Claim, resources: Resources) -> StepOrder:
    """Load the work order of a step. This follows the claim, so that a failure here has an attempt to fail."""
    with resources.ledger.begin() as session:
        return step_order(session, lock_owned_job(session, claimed.attempt))


class _LedgerReporter:
    """An attempt's reads and writes of the ledger while it works, each by itself.

    Those that may follow paid work wait for a ledger that is away, as settling does, until its soft limit `until`.
    """

    def __init__(self, resources: Resources, claimed: Claim, *, until: float) -> None:
        self._ledger = resources.ledger
        self._fleet = resources.fleet
        self._worker = resources.worker
        self._claimed = claimed
        self._until = until

    def report(self, kind: EventKind, data: Mapping[str, Any]) -> None:
        try:
            with self._ledger.look() as connection:
                report(connection, kind, job=self._claimed.job, **data)
        except LEDGER_UNREACHABLE:  # losing a progress report is better than losing the work
            logger.warning("report_not_recorded", exc_info=True, extra={"kind": kind.value})

    def budget_exceeded(self) -> BudgetExceeded | None:
        attempt = self._claimed.attempt
        return self._do(lambda session: last_budget_exceeded(session, attempt.job_id, since=attempt.started_at))

    def circuit_wait(self, model: str) -> float | None:
        return self._do(lambda session: circuit_wait(session, self._claimed.job.id, model))

    def bind(self, address: str | None, token: str | None) -> None:
        self._do(lambda session: bind_egress(session, self._claimed.attempt, address=address, token=token))

    def begin_scan(self) -> None:
        def begin(session: Session) -> None:
            job = lock_owned_job(session, self._claimed.attempt)
            if job.state != State.SCANNING:  # it already is if only the commit's reply was lost
                move(session, job, State.SCANNING)

        self._do(begin)

    def charge(self, nanousd: int, model: str) -> BudgetExceeded | None:
        facts: dict[str, Any] = {"nanousd": nanousd, "model": model, "worker": self._worker}
        try:
            return charge_unmetered_step(self._ledger, self._claimed, within=self._fleet.leased, **facts)
        except LedgerUnreachableError:  # it waits as a call would
            raise GatewayUnreachableError("the directory of the fleet cannot be reached") from None

    def _do(self, do: Callable[[Session], ResultT]) -> ResultT:
        def once() -> ResultT:
            with self._ledger.begin() as session:
                return do(session)

        return with_ledger(once, until=self._until, pause=dense.pause)


def _run_handler(attempt: Attempt, handler: Handler) -> Settlement | None:
    if attempt.has_site_moved_on:
        return EndWith(_MOVED_ON)
    try:
        with interruptible(attempt):
            outcome = handler(attempt)
            return prepare(attempt, outcome)
    except (FencedError, *LEDGER_UNREACHABLE):
        raise
    except (SoftTimeLimit, Exception) as error:
        was_gateway_away = isinstance(error, SoftTimeLimit) and attempt.has_called and attempt.was_gateway_away()
        kept = attempt.kept[-1] if attempt.kept else "nothing was kept"
        decision = decide_end(error, kept=kept, was_gateway_away=was_gateway_away)
        if isinstance(decision, Abandon):
            logger.warning("attempt_abandoned")
            return None
        if isinstance(decision, Deferred):
            logger.info("attempt_deferred", exc_info=error, extra={"reason": decision.reason.value})
            return prepare(attempt, decision)
        level = logging.ERROR if decision.reason == Reason.INTERNAL_ERROR else logging.INFO
        logger.log(level, "attempt_failed", exc_info=error, extra={"reason": decision.reason.value})
        return EndWith(decision)


def with_ledger(do: Callable[[], ResultT], *, until: float, pause: Callable[[float], None] = time.sleep) -> ResultT:
    """Do what needs the ledger, again and again while it is unreachable.

    A try whose commit succeeded although its reply was lost is fenced on retry: the attempt has ended by then.
    """
    tries = 0
    while True:
        try:
            return do()
        except LEDGER_UNREACHABLE:
            tries += 1
            seconds = retry_delay_seconds(SETTLE_PAUSES, tries=tries)
            if time.monotonic() + seconds > until:
                raise
            logger.warning("waits_for_ledger", exc_info=True)
        pause(seconds)


def _settle_in_any_case(claimed: Claim, settlement: Settlement, resources: Resources, *, until: float) -> None:
    """Settle as soon as the ledger answers; a settlement that cannot be stored at all fails the job."""
    try:
        with_ledger(lambda: _settle(claimed, settlement, resources), until=until)
    except (FencedError, *LEDGER_UNREACHABLE):
        raise
    except Exception:
        logger.exception("settlement_failed")
        failed = Ended(State.FAILED, Reason.INTERNAL_ERROR, "internal error: its result could not be stored")
        with_ledger(lambda: _settle(claimed, EndWith(failed), resources), until=until)


def _settle(claimed: Claim, settlement: Settlement, resources: Resources) -> None:
    if isinstance(settlement, EndWith) and settlement.at_once(claimed, resources.ledger):
        ended = _Settled(settlement.ended.state.value, settlement.ended.reason.value)
    else:
        ended = _settle_in_transaction(claimed, settlement, resources)
    logger.info("attempt_ended", extra=ended._asdict())
    traces.note({f"pointsman.job.{name}": value for name, value in ended._asdict().items()})


class _Settled(NamedTuple):
    """How an attempt left its job."""

    state: str
    reason: str | None


def _settle_in_transaction(claimed: Claim, settlement: Settlement, resources: Resources) -> _Settled:
    with resources.ledger.begin() as session:
        lock_supersede_key(session, claimed.job)  # a reply may bind it to a site
        job = lock_owned_job(session, claimed.attempt)
        if job.cancel_requested_at is not None:
            cancelled = Ended(State.CANCELLED, Reason.CANCELLED, "cancelled while it ran")
            end(session, job, cancelled.state, reason=cancelled.reason, detail=cancelled.detail)
        else:
            if PAID_REPLIES in job.result:
                job.result = {name: value for name, value in job.result.items() if name != PAID_REPLIES}
            settlement(session, job)
        if not is_end(State(job.state)):  # an end has closed it
            close_attempt(session, job, outcome=job.state, reason=Reason(job.reason) if job.reason else Reason.DONE)
        return _Settled(job.state, job.reason)


_HOUR_SECONDS = 3600.0
_WHY_LIMIT = 400


def retry_later(claimed: Claim, resources: Resources, *, reason: Reason, why: str) -> bool:
    """Schedule control work again after a pause; False when it has waited as long as the policy allows.

    No worker waits with it: the attempt ends, and any worker takes the job up later. Publishing and advancing a run are
    idempotent, so only the number of tries is stored.

    Raises:
        FencedError: nobody's fault: the job was taken away.
    """
    with resources.ledger.begin() as session:
        job = lock_owned_job(session, claimed.attempt)
        seconds = _count_try(session, job, claimed.policy.pauses, why=why)
        if seconds is None:
            return False
        close_attempt(session, job, outcome="retrying", reason=reason)
        job.fence += 1  # fences late effects of this attempt
        record(session, EventKind.PROGRESS, job=job, text=f"retries in {seconds:g} s: {why[:_WHY_LIMIT]}")
        requeue(session, job, QueueName.CONTROL, seconds=seconds)
    logger.warning("control_work_rests", extra={"seconds": seconds, "reason": reason.value, "why": why[:200]})
    return True


def _count_try(session: Session, job: Job, pauses: Pauses, *, why: str) -> float | None:
    """Count one more try of a job, and return its pause in seconds; None when its time is over."""
    at = float(session.scalar(select(func.extract("epoch", now()))) or 0)
    past: dict[str, Any] = job.result.get(CONTROL_RETRIES) or {"since": at, "tries": 0}
    tries = int(past["tries"]) + 1
    seconds = retry_delay_seconds(pauses.control, tries=tries)
    if at + seconds - float(past["since"]) > pauses.control_hours * _HOUR_SECONDS:
        return None
    job.result = {**job.result, CONTROL_RETRIES: {"since": past["since"], "tries": tries, "why": why[:_WHY_LIMIT]}}
    session.flush()
    return seconds


def clear_retries(job: Job) -> None:
    """Forget the retries of a job whose control work got through."""
    job.result = {name: value for name, value in job.result.items() if name != CONTROL_RETRIES}

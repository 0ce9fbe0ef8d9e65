"""The life of an attempt, the same for every tier: claim, work under limits, and settle exactly once.

A handler returns an outcome or raises. Only here does that become a move of the ledger, and only while the attempt
still holds the job.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy.exc import InterfaceError, OperationalError

from monitoring import logs
from monitoring.errors import FencedError
from monitoring.ledger.attempts import Claim, bind_door, claim, hold
from monitoring.ledger.events import EventKind, record
from monitoring.ledger.jobs import close_attempt, end
from monitoring.ledger.money import cap_hit_by
from monitoring.ledger.releases import active_release
from monitoring.ledger.store import Ledger
from monitoring.ledger.tables import Release, Site
from routing.jobs import JobMessage, Reason, State
from routing.policy import Policy
from routing.tiers import QueueName
from sandbox.den import Den
from workers.attempt import Attempt
from workers.boxes import Boxes, NoBoxes
from workers.errors import SoftTimeLimit
from workers.interrupts import soft_limit_armed
from workers.lease import Lease
from workers.outcomes import Ended, Outcome
from workers.retries import Abandon, decide_end
from workers.settlement import Settlement, end_with, prepare

logger = logging.getLogger(__name__)

LEDGER_AWAY = (OperationalError, InterfaceError)
"""The ledger is away or restarting: nobody's defect. The attempt's lease runs out, and the job waits again."""

SETTLE_PAUSES = (0.2, 1.0, 3.0)
"""Seconds between tries to settle while the ledger is away: a restart must not throw away work that was paid for."""

Handler = Callable[[Attempt], Outcome]


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What every task needs; opened after the fork."""

    ledger: Ledger
    den: Den
    policy: Policy
    gateway_url: str
    worker: str
    boxes: Boxes = field(default_factory=NoBoxes)
    """Where code runs that nobody here wrote."""
    known_keys: tuple[str, ...] = ()
    """Secrets of this installation, which no release may hold."""


def take(message: JobMessage, queue: QueueName, resources: Resources) -> Claim | None:
    """Claim a message's job for this process, or nothing when the message is stale."""
    with resources.ledger.begin() as session:
        claimed = claim(session, message, queue=queue, worker=resources.worker, policy=resources.policy)
    if claimed is None:
        logger.info("message_without_claim", extra={"job_id": str(message.job_id), "fence": message.fence})
        return None
    logs.bind(job_id=str(message.job_id), queue=queue.value, tier=claimed.job.tier, attempt=claimed.attempt.number)
    logger.info("attempt_started")
    return claimed


def run_attempt(message: JobMessage, queue: QueueName, handler: Handler, resources: Resources) -> None:
    """Work off one message: one attempt at one job."""
    began = time.monotonic()
    claimed = take(message, queue, resources)
    if claimed is None:
        return
    try:
        with Lease(resources.ledger, claimed) as lease:
            attempt = _open(claimed, resources, lease=lease, began=began)
            if attempt.site is not None:
                attempt.report_step("lock", seconds=time.monotonic() - began)
            try:
                settlement = _work(attempt, handler, resources)
            finally:
                attempt.close()
            if settlement is not None:
                _settle_surely(claimed, settlement, resources)
    except FencedError:
        logger.warning("attempt_fenced")
    except LEDGER_AWAY:
        logger.warning("attempt_given_up_without_ledger", exc_info=True)


def _open(claimed: Claim, resources: Resources, *, lease: Lease, began: float) -> Attempt:
    with resources.ledger.begin() as session:
        job = hold(session, claimed.attempt)
        site = session.get(Site, job.site_id) if job.site_id else None
        if job.base_release_id is not None:
            base = session.get(Release, job.base_release_id)
        else:
            base = active_release(session, site) if site else None
            if claimed.attempt.queue != QueueName.INTAKE:  # which does not hold the site: the base may still change
                job.base_release_id = base.id if base else None

    def report(kind: EventKind, data: Mapping[str, Any]) -> None:
        try:
            with resources.ledger.begin() as session:
                record(session, kind, job=claimed.job, **data)
        except LEDGER_AWAY:  # news for people: not worth the work that it is about
            logger.warning("report_not_recorded", exc_info=True, extra={"kind": kind.value})

    def cap_hit() -> str | None:
        with resources.ledger.begin() as session:
            return cap_hit_by(session, claimed.attempt)

    def bind(address: str | None) -> None:
        with resources.ledger.begin() as session:
            bind_door(session, claimed.attempt, address=address)

    return Attempt(
        claim=claimed, site=site, base=base, den=resources.den, gateway_url=resources.gateway_url,
        check=lease.check, report=report, cap_hit=cap_hit, bind_door=bind, boxes=resources.boxes, began=began,
    )  # fmt: skip


def _work(attempt: Attempt, handler: Handler, resources: Resources) -> Settlement | None:
    try:
        with soft_limit_armed():
            outcome = handler(attempt)
            return prepare(attempt, outcome, ledger=resources.ledger, known_keys=resources.known_keys)
    except (FencedError, *LEDGER_AWAY):
        raise
    except (SoftTimeLimit, Exception) as error:
        decision = decide_end(error, kept=attempt.kept[-1] if attempt.kept else "nothing was kept")
        if isinstance(decision, Abandon):
            logger.warning("attempt_abandoned")
            return None
        level = logging.ERROR if decision.reason == Reason.INTERNAL_ERROR else logging.INFO
        logger.log(level, "attempt_failed", exc_info=error, extra={"reason": decision.reason.value})
        return end_with(decision)


def _settle_surely(claimed: Claim, settlement: Settlement, resources: Resources) -> None:
    """Settle, again if the ledger was away; a settlement that cannot be stored at all ends the job.

    A try whose commit got through although its answer was lost is fenced off: the attempt has ended then.
    """
    for pause in SETTLE_PAUSES:
        try:
            return _settle(claimed, settlement, resources)
        except LEDGER_AWAY:
            logger.warning("settlement_delayed", exc_info=True)
            time.sleep(pause)
        except FencedError:
            raise
        except Exception:
            logger.exception("settlement_failed")
            detail = "a defect ended it: its result could not be stored"
            settlement = end_with(Ended(State.FAILED, Reason.INTERNAL_ERROR, detail))
    return _settle(claimed, settlement, resources)


def _settle(claimed: Claim, settlement: Settlement, resources: Resources) -> None:
    with resources.ledger.begin() as session:
        job = hold(session, claimed.attempt)
        if job.cancel_requested_at is not None:
            cancelled = Ended(State.CANCELLED, Reason.CANCELLED, "cancelled while it ran")
            end(session, job, cancelled.state, reason=cancelled.reason, detail=cancelled.detail)
        else:
            settlement(session, job)
        close_attempt(session, job, outcome=job.state, reason=Reason(job.reason) if job.reason else Reason.DONE)
    logger.info("attempt_ended", extra={"state": job.state, "reason": job.reason})

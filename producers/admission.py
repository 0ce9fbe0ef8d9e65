"""Back-pressure: a job for which there is no place, or no money today, is refused with a time to come back.

A caller that is told `429` and when to try again can hold its work; a queue that grows for ever serves nobody.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlmodel import Session

from monitoring.ledger.headroom import Headroom, load_headroom
from producers.errors import AdmissionRefusedError
from routing.admission import FURTHEST_START_DAYS
from routing.errors import FieldError, InvalidJobError
from routing.policy import Policy
from routing.prices import BudgetExceeded, nanousd_of, nanousd_per_token, price_of
from routing.queues import QueueName


def check_room(session: Session, queue: QueueName, tenant: str, *, policy: Policy) -> None:
    """Look whether there is room for a job, and refuse it where there is none; see `check`."""
    check(load_headroom(session, tenant, {queue: ()})[queue], tenant, policy=policy)


def check(room: Headroom, tenant: str, *, policy: Policy) -> None:
    """Refuse a job for which there is no room now.

    Args:
        room: how the queue stands where it would wait first.
        tenant: whose it is.
        policy: as the tenant's overrides leave it.

    Raises:
        AdmissionRefusedError: nobody's fault: too much waits there, of all tenants or of this one, or no model call can
            be paid for today any more.
    """
    full = room.fullness(policy.admission)
    if full is not None:
        whose = f"queue {room.queue.value} holds" if full.whose == "queue" else f"tenant {tenant} has"
        what = f"{whose} {full.limit} waiting jobs or more, which is the limit"
        raise AdmissionRefusedError(what, full.retry_after_seconds)
    cheapest = _cheapest_call_nanousd(policy, room.queue)
    if cheapest is None:
        return
    spent = room.spend
    for scope, nanousd, limit_usd in (
        ("tenant_day", spent.tenant_nanousd, policy.budgets.tenant_day_usd),
        ("fleet_day", spent.fleet_nanousd, policy.budgets.fleet_day_usd),
    ):
        limit = nanousd_of(limit_usd)
        if nanousd + cheapest > limit:
            raise AdmissionRefusedError(BudgetExceeded(scope, limit_nanousd=limit), spent.seconds_left)


def _cheapest_call_nanousd(policy: Policy, queue: QueueName) -> int | None:
    """Return what the cheapest call of a queue's work costs at least; None where its work calls no model.

    A run waits on `control`, which calls none, but its steps do.
    """
    if policy.queues[queue].llm_nanousd == 0 and queue is not QueueName.CONTROL:
        return None
    own = [call for call in policy.calls.values() if call.queue == queue] or list(policy.calls.values())
    fewest = policy.gateway.min_output_tokens
    return min(
        min(call.max_tokens, fewest) * nanousd_per_token(price_of(policy.prices, call.model).output) for call in own
    )


def check_start(start_at: datetime | None, *, now: datetime) -> None:
    """Refuse a start that is too far ahead, by the ledger's clock.

    Raises:
        InvalidJobError: the caller's fault.
    """
    if start_at is not None and start_at > now + timedelta(days=FURTHEST_START_DAYS):
        rule = f"must not be more than {FURTHEST_START_DAYS} days ahead"
        raise InvalidJobError((FieldError("start_at", rule),))

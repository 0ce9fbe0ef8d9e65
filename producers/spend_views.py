"""What is spent of the budgets of a day, today and on the days before: read from the caps, which booked every call."""

from __future__ import annotations

from datetime import date, timedelta

from pydantic import BaseModel, ConfigDict
from sqlalchemy import select, text
from sqlmodel import Session, col

from monitoring.ledger.tables import Cap
from routing.policy import Policy
from routing.prices import NANOUSD_PER_USD

DAYS = 14
_TODAY = text("SELECT (now() AT TIME ZONE 'UTC')::date")


class _View(BaseModel):
    model_config = ConfigDict(frozen=True)


class BudgetState(_View):
    """One budget of today."""

    scope: str
    label: str
    limit_nanousd: int
    spent_nanousd: int
    reserved_nanousd: int


class SpentDay(_View):
    """One day (UTC) of a budget."""

    day: date
    spent_nanousd: int


def budgets_today(session: Session, tenant: str, *, policy: Policy, is_operator: bool) -> tuple[BudgetState, ...]:
    """Return today's budgets: the tenant's, and the fleet's for whoever operates it.

    Args:
        session: the caller's transaction.
        tenant: whose day.
        policy: the tenant's limits.
        is_operator: whether the fleet's budget is told.
    """
    today = session.scalar(_TODAY)
    money = policy.budgets
    found = [_budget(session, "tenant_day", f"{tenant}/{today}", label="Your day", limit_usd=money.tenant_day_usd)]
    if is_operator:
        limit = money.fleet_day_usd
        found.append(_budget(session, "fleet_day", str(today), label="The fleet's day", limit_usd=limit))
    return tuple(found)


def spent_by_day(session: Session, tenant: str | None) -> tuple[SpentDay, ...]:
    """Return what the last two weeks cost, the oldest day first; all tenants together when none is named."""
    today = session.scalar(_TODAY)
    assert isinstance(today, date)
    days = [today - timedelta(days=back) for back in reversed(range(DAYS))]
    scope = "fleet_day" if tenant is None else "tenant_day"
    key_of = {(str(day) if tenant is None else f"{tenant}/{day}"): day for day in days}
    rows = select(col(Cap.key), col(Cap.spent_nanousd)).where(col(Cap.scope) == scope, col(Cap.key).in_(key_of))
    spent = {key_of[key]: amount for key, amount in session.execute(rows)}
    return tuple(SpentDay(day=day, spent_nanousd=spent.get(day, 0)) for day in days)


def _budget(session: Session, scope: str, key: str, *, label: str, limit_usd: float) -> BudgetState:
    cap = session.get(Cap, (scope, key))
    return BudgetState(
        scope=scope, label=label, limit_nanousd=cap.limit_nanousd if cap else round(limit_usd * NANOUSD_PER_USD),
        spent_nanousd=cap.spent_nanousd if cap else 0, reserved_nanousd=cap.reserved_nanousd if cap else 0,
    )  # fmt: skip

"""Charges a step that no gateway can meter: all that it may cost, before it starts (ADR-013's runtime alone).

Money has one owner, the gateway, for every call that passes it. Codex on the worker's machine passes nothing by it, so
what it uses is unknown, and unknown use is charged at the most that was allowed.
"""

from __future__ import annotations

from uuid import uuid4

from sqlmodel import Session

from monitoring.errors import FencedError
from monitoring.ledger import money
from monitoring.ledger.attempts import Claim, hash_token
from routing.prices import BudgetExceeded, Usage

PROVIDER = "codex_local"


def charge_whole(session: Session, claimed: Claim, *, nanousd: int, model: str, worker: str) -> BudgetExceeded | None:
    """Book a step's whole cap under every cap that its calls would count against.

    Args:
        session: the caller's transaction.
        claimed: the attempt that does the step.
        nanousd: what the step may cost.
        model: what it works with, for the record.
        worker: who says so.

    Returns:
        The budget that has no room for it, in which case nothing is booked; otherwise None.

    Raises:
        FencedError: nobody's fault: the attempt lost its job.
    """
    policy = claimed.policy
    bearer = money.read_bearer(money.run(session, money.bearer_of(hash_token(claimed.token)))[0])
    caps = money.caps_of(bearer, policy=policy)
    money.run(session, money.open_caps(caps))
    call = money.CallStart(
        id=uuid4(), provider=PROVIDER, model=model, key_hash="-", gateway=worker, prices_as_of=policy.prices_as_of,
        input_nanousd=max(nanousd - 1, 0), token_nanousd=1, max_tokens=1, least_tokens=1, call_limit_nanousd=nanousd,
    )  # fmt: skip
    outcome = money.read_reserve(money.run(session, money.reserve(bearer, call, caps))[0], call)
    if isinstance(outcome, BudgetExceeded):
        money.run(session, money.limit_hit(bearer, scope=outcome.scope, phase="admit"))
        return outcome._replace(needed_nanousd=nanousd)
    if not isinstance(outcome, money.Reserved):
        raise FencedError(claimed.job.id, claimed.attempt.fence)
    booked = money.settle(
        call.id, usage=Usage(), cost_nanousd=nanousd, finish="completed", status=0, state="presumed"
    )  # fmt: skip
    money.run(session, booked)
    return None

"""The estimate of a run before there is a plan: for the agents that its kind of pipeline has (seeds 001 and 003)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from routing.estimate import estimate
from routing.policy import Policy
from routing.router import Intent

_FIX = ("test-planner", "frontend-dev", "code-review", "qa", "security")
"""One developer stands for whichever the scope will choose: they cost the same."""
_BUILD = (
    "research", "architect", "frontend-dev", "backend-dev", "styling", "code-review", "qa", "security",
)  # fmt: skip
_PIPELINES: dict[Intent, tuple[str, ...]] = {Intent.FIX: _FIX, Intent.BUILD: _BUILD, Intent.QUESTION: ()}


def estimate_run(policy: Policy, intent: Intent) -> dict[str, Any]:
    """Return what a run will probably cost, before anything is planned.

    Args:
        policy: as tenant and project leave it.
        intent: as the rules read the ticket.
    """
    return estimate_agents(policy, _PIPELINES[intent], is_fix=intent is Intent.FIX, basis="pipeline")


def estimate_agents(policy: Policy, agents: Iterable[str], *, is_fix: bool, basis: str) -> dict[str, Any]:
    """Return what a run with these agents will probably cost, as it is stored and shown.

    Args:
        policy: as tenant and project leave it.
        agents: their names; what is not in the registry is left out.
        is_fix: whether it is a fix.
        basis: what the names come from: `pipeline` or `plan`.
    """
    names = sorted({name for name in agents if name in policy.agents})
    found = estimate([policy.agents[name] for name in names], is_fix=is_fix)
    return {
        "basis": basis, "size": found.size, "agents": names, "tokens": found.tokens, "low_usd": found.low_usd,
        "high_usd": found.high_usd,
    }  # fmt: skip

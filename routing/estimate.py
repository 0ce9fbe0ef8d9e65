"""Estimated cost of a run before it starts (seed 001, ADR-012).

The seed defines three task sizes, each with a cost range. A task has the smallest size that covers all its roles.
Weights divide the cost among the roles, so a dearer model raises only its own role's share. An estimate is not a limit:
the gateway enforces budgets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from routing.decision.router import Intent
from routing.policy.agents import AgentDefinition, AgentRole
from routing.policy.platform import Policy

OPUS_FACTOR = 5
"""How much more an agent costs on Opus (the seed's figure, not the price list's)."""
_OPUS = "claude-opus-"


@dataclass(frozen=True)
class Size:
    """A task size."""

    name: Literal["simple_fix", "standard_feature", "complex_feature"]
    tokens: int
    low_usd: float
    high_usd: float
    weights: Mapping[AgentRole, int]
    """Shares of the work by role: the seed's, and those that our pipelines add."""


SIZES = (
    Size(
        "simple_fix",
        700_000,
        2,
        4,
        {AgentRole.DEVELOPER: 60, AgentRole.QA: 40, AgentRole.UI_UX: 30, AgentRole.SECURITY: 10},
    ),
    Size(
        "standard_feature",
        1_500_000,
        5,
        10,
        {AgentRole.DEVELOPER: 55, AgentRole.QA: 30, AgentRole.PRODUCT: 15, AgentRole.UI_UX: 15},
    ),
    Size(
        "complex_feature",
        2_500_000,
        10,
        20,
        {
            AgentRole.PRODUCT: 10,
            AgentRole.ARCHITECT: 15,
            AgentRole.DEVELOPER: 40,
            AgentRole.QA: 20,
            AgentRole.SECURITY: 10,
            AgentRole.UI_UX: 5,
        },
    ),
)


@dataclass(frozen=True)
class Estimate:
    """An estimated cost range."""

    size: str
    tokens: int
    low_usd: float
    high_usd: float
    shares: Mapping[AgentRole, tuple[float, float]]
    """Low and high USD by role."""


def estimate(agents: Iterable[AgentDefinition], *, is_fix: bool) -> Estimate:
    """Estimate a run from its agents.

    Args:
        agents: the agents, with the models that the project configured. The figures include the orchestrator.
        is_fix: whether it may be a simple fix; anything else is at least a standard feature.
    """
    dear: dict[AgentRole, list[bool]] = {}
    for agent in agents:
        if agent.role is not None:
            dear.setdefault(agent.role, []).append(agent.model.startswith(_OPUS))
    size = _size(frozenset(dear), is_fix=is_fix)
    weights = {role: weight for role, weight in size.weights.items() if role in dear}
    whole = sum(weights.values()) or 1
    shares = {role: _share(size, weight / whole, sum(dear[role]) / len(dear[role])) for role, weight in weights.items()}
    if not shares:
        return Estimate(size.name, 0, 0.0, 0.0, {})
    low, high = (round(sum(share[end] for share in shares.values()), 2) for end in (0, 1))
    return Estimate(size.name, size.tokens, low, high, shares)


def _size(roles: frozenset[AgentRole], *, is_fix: bool) -> Size:
    fitting = (size for size in SIZES if roles <= set(size.weights) and (is_fix or size is not SIZES[0]))
    return next(fitting, SIZES[-1])


def _share(size: Size, part: float, dear: float) -> tuple[float, float]:
    """Return a role's cost range: `part` of the size's, of which the `dear` part runs on Opus."""
    factor = part * (1 + dear * (OPUS_FACTOR - 1))
    return size.low_usd * factor, size.high_usd * factor


_FIX = ("test-planner", "frontend-dev", "code-review", "qa", "security")
"""Any developer would do: they cost the same."""
_BUILD = ("research", "architect", "frontend-dev", "backend-dev", "styling", "code-review", "qa", "security")
_PIPELINES: dict[Intent, tuple[str, ...]] = {Intent.FIX: _FIX, Intent.BUILD: _BUILD, Intent.QUESTION: ()}


def estimate_run(policy: Policy, intent: Intent) -> dict[str, Any]:
    """Estimate a run before it is planned, from the agents of its pipeline."""
    return estimate_agents(policy, _PIPELINES[intent], is_fix=intent is Intent.FIX, basis="pipeline")


def estimate_agents(policy: Policy, agents: Iterable[str], *, is_fix: bool, basis: str) -> dict[str, Any]:
    """Return a run's estimate as it is stored and shown.

    Args:
        policy: the policy of the tenant and project.
        agents: names; unknown ones are ignored.
        is_fix: whether it is a fix.
        basis: the source of the names: `pipeline` or `plan`.
    """
    names = sorted({name for name in agents if name in policy.agents})
    result = estimate([policy.agents[name] for name in names], is_fix=is_fix)
    return {
        "basis": basis,
        "size": result.size,
        "agents": names,
        "tokens": result.tokens,
        "low_usd": result.low_usd,
        "high_usd": result.high_usd,
    }

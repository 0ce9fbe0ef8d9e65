"""What a run will probably cost, said before it starts (seed 001, ADR-012).

The seed gives three sizes of task with a range each. A task has the smallest size that knows every role in question.
The share of a role in it follows stated weights, so that one agent on a dearer model raises its own share only.

An estimate binds nobody: caps are the gateway's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from routing.decision.router import Intent
from routing.policy.agents import AgentDefinition, AgentRole
from routing.policy.platform import Policy

OPUS_FACTOR = 5
"""Opus for an agent multiplies what that agent costs by about this (the seed's figure, not the price list's)."""
_OPUS = "claude-opus-"


@dataclass(frozen=True)
class Size:
    """One of the seed's three sizes of task."""

    name: Literal["simple_fix", "standard_feature", "complex_feature"]
    tokens: int
    low_usd: float
    high_usd: float
    weights: Mapping[AgentRole, int]
    """How the work is divided among the roles that take part: those the seed names, and what our pipelines add."""


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
    """A range, and where it comes from."""

    size: str
    tokens: int
    low_usd: float
    high_usd: float
    shares: Mapping[AgentRole, tuple[float, float]]
    """USD from and to, by role."""


def estimate(agents: Iterable[AgentDefinition], *, is_fix: bool) -> Estimate:
    """Estimate a run from the agents that take part in it.

    Args:
        agents: with the models that the project's configuration gives them. The orchestrator's part is in the figures.
        is_fix: a fix with no more roles than the seed's bug fix is a simple one; anything else is at least a feature.
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
    """Return a role's range: `part` of the size's, the `dear` part of that again on Opus."""
    factor = part * (1 + dear * (OPUS_FACTOR - 1))
    return size.low_usd * factor, size.high_usd * factor


# The estimate of a run before there is a plan: for the agents that its kind of pipeline has (seeds 001 and 003).

_FIX = ("test-planner", "frontend-dev", "code-review", "qa", "security")
"""One developer stands for whichever the scope will choose: they cost the same."""
_BUILD = (
    "research",
    "architect",
    "frontend-dev",
    "backend-dev",
    "styling",
    "code-review",
    "qa",
    "security",
)
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
        "basis": basis,
        "size": found.size,
        "agents": names,
        "tokens": found.tokens,
        "low_usd": found.low_usd,
        "high_usd": found.high_usd,
    }

"""The limiter of a run: whether there is enough left for a batch (P-038, S-123, S-124; ruling A15).

The gateway's reservation is what no call can pass. This stops a loop earlier, between batches, while what was done is
whole: a batch that would probably run into the cap half-way is not begun.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from routing.policy import Policy
from routing.prices import NANOUSD_PER_USD

Spent = Mapping[str, Sequence[int]]
"""Nanodollars of each completed execution in this run, by agent."""


def expected_nanousd(agent: str | None, policy: Policy, spent: Spent) -> int:
    """Return what one more step of an agent will probably cost.

    What its steps have cost in this run tells most; before the first of them, what it uses at most in ordinary work.

    Args:
        agent: its name; None for the project's own build, which calls no model.
        policy: as tenant and project leave it.
        spent: by this run so far.
    """
    if agent is None or (definition := policy.agents.get(agent)) is None:
        return 0
    if own := spent.get(agent):
        return round(sum(own) / len(own))
    return round(definition.expected_usd(policy.prices[definition.model]) * NANOUSD_PER_USD)


def fits(
    batch: Iterable[str | None], running: Iterable[str | None], *, left_nanousd: int, policy: Policy, spent: Spent
) -> bool:
    """Tell whether a batch may begin.

    Args:
        batch: the agents that are to start.
        running: the agents that work now and are still going to spend.
        left_nanousd: of the run's cap.
        policy: as tenant and project leave it.
        spent: by this run so far.
    """
    needed = sum(expected_nanousd(agent, policy, spent) for agent in (*batch, *running))
    return needed <= left_nanousd


def spent_by_agent(executions: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    """Group what executions cost by their agents."""
    grouped: defaultdict[str, list[int]] = defaultdict(list)
    for agent, cost in executions:
        grouped[agent].append(cost)
    return dict(grouped)

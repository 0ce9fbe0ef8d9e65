"""Which agents change the product and which judge it: the distinction that the service's own rules rest on.

It goes by role and never by name, so an agent that is only an entry of platform.yaml takes its place (S-089).
"""

from __future__ import annotations

from collections.abc import Mapping

from routing.agents import AgentDefinition, AgentRole

MAKERS = frozenset({AgentRole.DEVELOPER, AgentRole.UI_UX})
"""They write the product's own files."""
JUDGES = frozenset({AgentRole.QA, AgentRole.SECURITY})

PLANNER = "orchestrator"
CLASSIFIER = "orchestrator:classify"
SUMMARISER = "orchestrator:summary"
ANSWERER = "orchestrator:question"
RESEARCHER = "research"


def makes(agent: str | None, agents: Mapping[str, AgentDefinition]) -> bool:
    """Tell whether an agent changes the product."""
    return agent is not None and agent in agents and agents[agent].role in MAKERS


def judges(agent: str | None, agents: Mapping[str, AgentDefinition]) -> bool:
    """Tell whether an agent judges what others made. A test planner has the role too: what it does comes before."""
    return agent is not None and agent in agents and agents[agent].role in JUDGES


def is_plannable(agent: str) -> bool:
    """Tell whether a plan may name an agent: the orchestrator and its subtasks are the service's to call."""
    return agent.split(":")[0] != PLANNER


def writes_of(agent: str, agents: Mapping[str, AgentDefinition]) -> tuple[str, ...]:
    """Return everything that an agent may write; nothing for one that there is not."""
    return agents[agent].writes if agent in agents else ()

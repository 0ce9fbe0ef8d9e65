"""Who plays which agent."""

from __future__ import annotations

from collections.abc import Mapping

from sandbox.rehearsal.team.building import BACKEND, FRONTEND, STYLING
from sandbox.rehearsal.team.documents import ARCHITECT, RESEARCH, TEST_PLANNER
from sandbox.rehearsal.team.planning import ANSWERER, ANYBODY, CLASSIFIER, ORCHESTRATOR, SUMMARIZER
from sandbox.rehearsal.team.reviewing import CODE_REVIEW, QA, SECURITY
from sandbox.rehearsal.team.scene import Role

ROLES: Mapping[str, Role] = {
    "orchestrator": ORCHESTRATOR,
    "orchestrator:classify": CLASSIFIER,
    "orchestrator:summary": SUMMARIZER,
    "orchestrator:question": ANSWERER,
    "research": RESEARCH,
    "architect": ARCHITECT,
    "frontend-dev": FRONTEND,
    "backend-dev": BACKEND,
    "styling": STYLING,
    "test-planner": TEST_PLANNER,
    "code-review": CODE_REVIEW,
    "qa": QA,
    "security": SECURITY,
}


def role_of(agent: str) -> Role:
    """Return who plays an agent; one that an installation added looks and has nothing to add."""
    return ROLES.get(agent, ANYBODY)

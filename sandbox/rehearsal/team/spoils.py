"""Plans that must not run, for trying out that none does: what a careless or hostile orchestrator could write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LEAKED = "sk-ant-api03-" + "rehearsed" * 4
"""Looks like a key and is none."""

Steps = list[dict[str, Any]]


def spoiled(plan: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Return a plan that breaks one rule; an unknown kind leaves the plan as it is.

    Args:
        plan: the good plan.
        kind: `no-qa cycle unknown-agent overlap budget model key question empty`.
    """
    whole: dict[str, dict[str, Any]] = {
        "empty": {},
        "budget": {**plan, "budget_usd": 500},
        "question": {"classification": "question", "steps": _steps(), "gates": []},
        "no-qa": _plan([step for step in _steps() if step["agent"] != "qa"]),
    }
    if kind not in _CHANGES:
        return whole.get(kind, dict(plan))
    index, fields = _CHANGES[kind]
    return _plan([{**step, **fields} if number == index else step for number, step in enumerate(_steps())])


_CHANGES: Mapping[str, tuple[int, Mapping[str, Any]]] = {
    "cycle": (0, {"depends_on": ["qa"]}),
    "unknown-agent": (0, {"agent": "wizard"}),
    "overlap": (1, {"writes": ["src/features/one/deep/"]}),
    "model": (0, {"model": "claude-opus-4-6"}),
    "key": (0, {"task": f"Call the service with {LEAKED}."}),
}


def _plan(steps: Steps) -> dict[str, Any]:
    return {"classification": "build", "steps": steps, "gates": []}


def _steps() -> Steps:
    halves = [
        {"id": name, "agent": "frontend-dev", "task": f"Build half {name}.", "writes": [f"src/features/{name}/"]}
        for name in ("one", "two")
    ]
    reviews = [
        {"id": name, "agent": name, "task": "Judge what was made.", "depends_on": ["one", "two"]}
        for name in ("code-review", "qa", "security")
    ]
    return [*halves, *reviews]

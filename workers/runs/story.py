"""What a run tells the people who have a say in it: at a gate, at its end, when it needs somebody (S-105, S-112)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pydantic_core import to_jsonable_python

from monitoring.ledger.run_tables import RunStep
from monitoring.ledger.runs import RunRows
from routing.jobs import State
from workers.runs.escalation import EscalationRecord

_MAX_FILES = 100
_SUMMARY_CHARACTERS = 2_000


def gate_facts(rows: RunRows, *, after: Sequence[str]) -> dict[str, Any]:
    """Return what a person needs to decide at a gate.

    Args:
        rows: the run.
        after: keys of the steps that the gate stands behind; none = all of them.
    """
    looked_at = [step for step in rows.steps if step.result is not None and (not after or step.key in after)]
    return {
        "ticket": rows.run.ticket.get("title", ""),
        "summaries": {step.key: _summary(step) for step in looked_at},
        "issues": [issue for step in looked_at for issue in (step.result or {}).get("issues", [])],
        "changed": _changed(rows.steps),
        "spent_nanousd": rows.spent_nanousd,
        "cap_nanousd": rows.cap_nanousd,
        "head": rows.run.head_commit,
    }


def end_facts(rows: RunRows, state: State, record: EscalationRecord | None = None) -> dict[str, Any]:
    """Return what is told of a run at its end: its words, and what is kept whatever the end is.

    Args:
        rows: the run.
        state: the end.
        record: what the person needs whom an escalated run is handed to (S-112).
    """
    results = [step.result for step in rows.steps if step.result is not None]
    done = [step.key for step in rows.steps if step.state == "completed"]
    told: dict[str, Any] = {"kept": {"head": rows.run.head_commit, "base": rows.run.base_commit, "completed": done}}
    answer = next((result["answer"] for result in reversed(results) if result.get("answer")), None)
    if state is State.ANSWERED and answer is not None:
        told["answer"] = answer
    if summary := next((_summary(step) for step in reversed(rows.steps) if step.phase == "summary"), ""):
        told["summary"] = summary
    if record is not None:
        context = {"ticket": rows.run.ticket, "plans": rows.run.plans, "head": rows.run.head_commit}
        told["escalation"] = {**context, **to_jsonable_python(record)}
    return told


def _summary(step: RunStep) -> str:
    return str((step.result or {}).get("summary", ""))[:_SUMMARY_CHARACTERS]


def _changed(steps: Iterable[RunStep]) -> list[str]:
    return sorted({path for step in steps for path in step.changed})[:_MAX_FILES]

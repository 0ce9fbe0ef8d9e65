"""What a run tells the people who have a say in it: at a gate, at its end, when it needs somebody (S-105, S-112)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from monitoring.ledger.run_tables import RunStep
from monitoring.ledger.run_values import RunRows
from routing.jobs import State
from workers.runs.escalation import escalation_record
from workers.runs.facts import Facts

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


def end_facts(rows: RunRows, state: State, facts: Facts | None = None) -> dict[str, Any]:
    """Return what is told of a run at its end: its words, and what is kept whatever the end is.

    Args:
        rows: the run.
        state: the end.
        facts: what its schedule knows, for the person whom an escalated run is handed to.
    """
    results = [step.result for step in rows.steps if step.result is not None]
    done = [step.key for step in rows.steps if step.state == "completed"]
    told: dict[str, Any] = {"kept": {"head": rows.run.head_commit, "base": rows.run.base_commit, "completed": done}}
    answer = next((result["answer"] for result in reversed(results) if result.get("answer")), None)
    if state is State.ANSWERED and answer is not None:
        told["answer"] = answer
    if summary := next((_summary(step) for step in reversed(rows.steps) if step.phase == "summary"), ""):
        told["summary"] = summary
    if state is State.ESCALATED and facts is not None:
        record = asdict(escalation_record(facts))
        record["issues"] = [issue.model_dump(mode="json") for issue in record["issues"]]
        told["escalation"] = {
            "ticket": rows.run.ticket,
            "plans": rows.run.plans,
            "head": rows.run.head_commit,
            **record,
        }
    return told


def _summary(step: RunStep) -> str:
    return str((step.result or {}).get("summary", ""))[:_SUMMARY_CHARACTERS]


def _changed(steps: Iterable[RunStep]) -> list[str]:
    return sorted({path for step in steps for path in step.changed})[:_MAX_FILES]

"""A run as a person at a terminal sees it: its steps as a tree, what they cost, and what it waits for."""

from __future__ import annotations

from collections.abc import Iterator

from producers.commands.context import out
from producers.runs import GateView, RunView, StepTreeView
from routing.jobs import State
from routing.prices import format_usd, nanousd_of

_MARKS = {"completed": "✓", "failed": "✗", "running": "▶", "pending": "·", "skipped": "-"}
_MAX_WHY = 200
_INDENT = "  "


def show_run(view: RunView) -> None:
    """Print a run. No line is cut: ids are copied from here."""
    for depth, line in _lines(view):
        out.print(f"{_INDENT * depth}{line}", markup=False)


def _lines(view: RunView) -> Iterator[tuple[int, str]]:
    yield 0, f"run {view.id}  {view.state.value}  {view.ticket.get('title', '')}"
    yield from ((1, f"{name}: {value}") for name, value in _facts(view))
    for round in sorted({step.round for step in view.steps}):
        yield 1, "steps" if round == 0 else f"rework {round}"
        for step in view.steps:
            if step.round == round:
                yield from _step_lines(step)
    yield from ((1, _gate_line(gate)) for gate in view.gates)


def _facts(view: RunView) -> Iterator[tuple[str, str]]:
    cost = view.cost
    yield "project", f"{view.project}, {view.priority}{f', {view.intent}' if view.intent else ''}"
    if view.now and not view.is_final:
        yield "now", view.now
    if view.is_final and (view.detail or view.reason):
        yield "why", view.detail or view.reason or ""
    yield "cost", f"${cost.spent_usd} of ${cost.cap_usd}, {cost.tokens} tokens in {cost.calls} calls"
    if cost.estimate.get("high_usd"):
        compared = f", {cost.against_estimate} it" if cost.against_estimate else ""
        low, high = (format_usd(nanousd_of(cost.estimate[end]), digits=2) for end in ("low_usd", "high_usd"))
        yield "estimate", f"{low} to {high}{compared}"
    if cost.orchestrator_share is not None:
        yield "orchestrator", f"{cost.orchestrator_share:.0%} of the tokens"
    if branch := view.result.get("branch"):
        yield "branch", str(branch)
    if view.state is State.ANSWERED and view.result.get("answer"):
        yield "answer", str(view.result["answer"])


def _step_lines(step: StepTreeView) -> Iterator[tuple[int, str]]:
    tries = f", try {step.tries}" if step.tries > 1 else ""
    found = f", {step.blocking} blocking" if step.blocking else ""
    what = f"{_MARKS.get(step.state, '?')} {step.key} ({step.agent or 'build'}) {step.state}{tries}{found}"
    yield 2, f"{what}  ${step.cost_usd}  {step.seconds:.1f} s"
    if step.failure:
        yield 3, f"{step.failure}: {(step.detail or '')[:_MAX_WHY]}"
    for execution in step.executions:
        if execution.status == "failed" and step.tries > 1:
            yield 3, f"try {execution.attempt}: {execution.reason}  ${execution.cost_usd}"
        yield from ((3, f"not taken: {path}") for path in execution.dropped)


def _gate_line(gate: GateView) -> str:
    by = f" by {gate.actor}" if gate.actor else ""
    hint = f"  pointsman gate pass {gate.id} (or fail)" if gate.state == "open" else ""
    return f"gate {gate.key}: {gate.state}{by}: {gate.reason}{hint}"

"""An agent that writes source and runs commands: the Claude Code CLI in a box of its own, without permission checks.

The box is the wall (ruling A18), so the CLI is told to ask nobody. Its instructions lie in the workspace as
`.agent-context/CLAUDE.md`, put there before anything has run in the box; the CLI reads them once, as it starts. An
image could hold them for the shipped agents only, and an installation may add agents without building another image.
"""

from __future__ import annotations

from routing.jobs import Reason, State
from routing.path_rules import RESULT_FILE
from routing.prices import BudgetExceeded
from sandbox.box import WORKSPACE, Box, Clocks
from sandbox.claude.command import SessionPlan, ticket_role
from sandbox.claude.session import End, Verdict
from sandbox.errors import BoxLostError
from workers.agent_ends import ENDS
from workers.attempt import Attempt
from workers.runs.context import INSTRUCTIONS
from workers.runs.runners.api import session_seconds
from workers.runs.runners.boxes import collect, put
from workers.runs.runners.protocol import AgentOrder, AgentRun, Failed
from workers.session import Held, hold_session, obstacle_of

_CLOSING_SECONDS = 20.0
"""Kept of the queue's soft limit for what follows: extracting, judging files, writing the commit."""
_GRACE_SECONDS = 8.0
_LEAST_SECONDS = 5.0


class ClaudeCodeRunner:
    """Runs agents of runtime `claude_code`."""

    def run(self, order: AgentOrder, attempt: Attempt) -> AgentRun:
        """See `AgentRunner.run`.

        Raises:
            SandboxUnavailableError: there is no engine, or no image (the operator's fault).
            UnwalledSessionError: the box is no container (the operator's fault); nothing was started.
            ProviderBusyError, GatewayUnreachableError: nobody's fault: the step waits, and begins anew.
        """
        attempt.await_lane(order.model)
        given = {**order.files, INSTRUCTIONS: order.instructions.encode()}
        with attempt.step("provision"):
            box = attempt.boxes.acquire()
        try:
            attempt.enter(box)
            with attempt.step("inject"):
                put(box, given)
            with attempt.step("execute"):
                held = hold_session(
                    attempt, box, _plan(order), prompt=order.prompt, clocks=session_clocks(order, attempt)
                )  # fmt: skip
            exceeded = attempt.budget_exceeded() if held.verdict.end in (End.FAILED, End.BUDGET) else None
            obstacle = obstacle_of(attempt, held.verdict, model=order.model, exceeded=exceeded)
            if obstacle is not None:
                raise obstacle
            with attempt.step("extract"):
                return _extract(attempt, box, held, order, exceeded=exceeded)
        finally:
            with attempt.step("teardown"):
                box.close()


def _plan(order: AgentOrder) -> SessionPlan:
    role = ticket_role(order.agent.tools, rules_file=f"{WORKSPACE}/{INSTRUCTIONS}")
    return SessionPlan(
        role=role, model=order.model, max_turns=order.agent.max_turns,
        budget_usd=order.cap_usd, max_output_tokens=order.agent.max_output_tokens,
    )  # fmt: skip


def session_clocks(order: AgentOrder, attempt: Attempt) -> Clocks:
    """Return a session's clocks: its agent's, within what the queue's limit leaves for what has to follow."""
    rules = attempt.policy.agent
    soft = max(session_seconds(order, attempt, closing=_CLOSING_SECONDS + _GRACE_SECONDS), _LEAST_SECONDS)
    return Clocks(
        soft_seconds=soft, hard_seconds=soft + _GRACE_SECONDS + 2, start_seconds=min(rules.start_seconds, soft),
        idle_seconds=rules.idle_seconds + order.agent.tool_seconds / 2, grace_seconds=_GRACE_SECONDS,
    )  # fmt: skip


def _extract(
    attempt: Attempt, box: Box, held: Held, order: AgentOrder, *, exceeded: BudgetExceeded | None
) -> AgentRun:  # fmt: skip
    """Take the files out, whatever the session's end was; they are given back without the instructions."""
    failed = _failure(held.verdict, exceeded=exceeded)
    facts = {"agent": held.facts}
    try:
        files, refused = collect(box, attempt, order.files)
    except BoxLostError:
        if failed is None:
            raise
        return AgentRun(None, failed, facts=facts)
    if files is None:
        return AgentRun(None, failed or refused, facts=facts)
    kept = {path: data for path, data in files.items() if path != INSTRUCTIONS}
    if failed is None and RESULT_FILE not in kept:
        said = held.verdict.text[:300] or "nothing"
        failed = Failed(State.FAILED, Reason.AGENT_FAILED, f"it left no {RESULT_FILE}; its last words: {said}")
    return AgentRun(kept, failed, facts=facts)


def _failure(verdict: Verdict, *, exceeded: BudgetExceeded | None) -> Failed | None:
    if verdict.is_done:
        return None
    if verdict.end in (End.FAILED, End.BUDGET) and exceeded is not None:
        return Failed(State.BUDGET_EXCEEDED, Reason.COST_CAP, str(exceeded))
    state, reason = ENDS[verdict.end]
    return Failed(state, reason, f"the agent's session ended: {verdict.text}")

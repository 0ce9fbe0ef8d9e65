"""Runtime `api`: an agent that reads and writes documents over the model API, with native tools and no box (P-032).

A loop with limited turns and time, whose last turn offers only the tool that ends the step. The agent cannot run a
command and no path of its tools reaches a disk, so nothing here needs a box (ruling A37). Refused writes are reported
like dropped files.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gateway.client import ModelClient, ModelReply, Stop, Text, ToolResult, ToolUse, Turn
from gateway.errors import CallTimeoutError, GatewayUnreachableError
from ledger.events import EventKind
from routing.jobs import Reason, State
from routing.model_call import LITTLE_TIME
from routing.policy.agents import FINISH_TOOL, RESULT_FILE
from sandbox.session_reader import MAX_PROGRESS_CHARACTERS, MAX_PROGRESS_LINES, shown
from workers.attempt import Attempt
from workers.errors import ResultInvalidError, ToolRefusedError
from workers.file_tools import FileTools
from workers.runs.scheduling.view import AgentResult, parse_result
from workers.runs.step_context import AgentOrder, AgentRun, Failed

_CLOSING_SECONDS = 10.0
"""Reserved within the queue's soft limit for judging files and writing the commit."""
_GO_ON = f"You used no tool. Go on with your task, or end your step with the tool `{FINISH_TOOL}`."
_FEW_TURNS = 3
_LITTLE_SECONDS = 45.0
_CUT = "Your reply was longer than it may be and was cut. Nothing of this call was done; write less at a time."


def run_api(order: AgentOrder, attempt: Attempt) -> AgentRun:
    """Let an agent of runtime `api` work until it finishes or has to stop.

    Raises:
        GatewayError: a model call failed for good.
        CancelledByOwnerError, LeaseLostError: nobody's fault.
    """
    conversation = _Conversation(order, attempt)
    failed = conversation.hold()
    return AgentRun(
        files=conversation.workspace.files,
        failed=failed,
        refused=tuple(conversation.workspace.refused),
        facts={"turns": conversation.turns, "tools_used": conversation.tools_used, "tokens": conversation.tokens},
    )


def session_seconds(order: AgentOrder, attempt: Attempt, *, closing: float = _CLOSING_SECONDS) -> float:
    """Return how long an agent may still work: its own time, or what the queue's limit leaves of it."""
    passed = time.monotonic() - attempt.began
    return min(order.agent.soft_seconds, attempt.limits.soft_seconds - closing) - passed


@dataclass
class _Conversation:
    """One agent's turns."""

    order: AgentOrder
    attempt: Attempt
    turns: int = 0
    tools_used: int = 0
    told: int = 0
    tokens: int = 0
    conversation: list[Turn] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.workspace = FileTools(
            self.order.files, writes=self.order.writes, most_bytes=self.attempt.limits.output_bytes
        )
        self._tools = [*self.workspace.definitions(self.order.agent.tools), finish_tool()]
        self._until = time.monotonic() + session_seconds(self.order, self.attempt)

    def hold(self) -> Failed | None:
        """Take turns until the agent finishes; otherwise return why it did not."""
        self.conversation.append([Text(self.order.prompt)])
        for turn in range(1, self.order.agent.max_turns + 1):
            if time.monotonic() > self._until:
                return self._out_of_time()
            self.turns = turn
            try:
                reply = self._call(is_last=turn == self.order.agent.max_turns)
            except CallTimeoutError:
                return self._out_of_time()
            if reply.stop is Stop.REFUSED:
                return Failed(State.FAILED, Reason.AGENT_FAILED, "the model refuses the task")
            if self._take(reply):
                return None
        return Failed(State.FAILED, Reason.AGENT_FAILED, f"no valid result after {self.turns} turns")

    def _out_of_time(self) -> Failed:
        if self.attempt.was_gateway_away():
            raise GatewayUnreachableError("the gateway stood still until the step's time was over")
        return Failed(State.TIMED_OUT, Reason.TIME_LIMIT, "it ran out of time")

    def _call(self, *, is_last: bool) -> ModelReply:
        def make(models: ModelClient) -> ModelReply:
            return models.create(
                _cached(self.conversation),
                model=self.order.model,
                max_tokens=self.order.agent.max_output_tokens,
                system=self.order.instructions,
                tools=self._tools,
                must_use=FINISH_TOOL if is_last else None,
                until=self._until,
            )

        reply = self.attempt.ask(self.order.name, make)
        self.tokens += sum(reply.usage)
        return reply

    def _take(self, reply: ModelReply) -> bool:
        """Do what a reply asks; return whether it ended the step."""
        self.conversation.append(reply)
        self._tell(reply.text)
        if not reply.tool_uses:
            self.conversation.append([Text(_GO_ON + self._warning())])
            return False
        cut = reply.tool_uses[-1] if reply.stop is Stop.MAX_TOKENS else None
        results = []
        for use in reply.tool_uses:
            self.tools_used += 1
            text, is_error = (_CUT, True) if use is cut else self._use(use)
            results.append(ToolResult(use.id, text, is_error))
        results[-1] = results[-1]._replace(text=results[-1].text + self._warning())
        self.conversation.append(results)
        return any(
            use.name == FINISH_TOOL and not result.is_error
            for use, result in zip(reply.tool_uses, results, strict=True)
        )

    def _warning(self) -> str:
        """Return a warning once few turns or little time is left; a request's digest leaves the one about time out."""
        turns = self.order.agent.max_turns - self.turns
        if turns <= _FEW_TURNS:
            return f"\n\n[{turns} replies left: end your step with the tool `{FINISH_TOOL}` in time]"
        return LITTLE_TIME if self._until - time.monotonic() < _LITTLE_SECONDS else ""

    def _use(self, call: ToolUse) -> tuple[str, bool]:
        given: object = call.input
        self._tell(f"{call.name[:60]} {_about(given)}")
        try:
            if call.name == FINISH_TOOL:
                return self._finish(given), False
            return self.workspace.use(call.name, given, allowed=self.order.agent.tools), False
        except (ToolRefusedError, ResultInvalidError) as error:
            return str(error), True

    def _finish(self, given: object) -> str:
        raw = json.dumps(given, ensure_ascii=False).encode("utf-8", "replace")
        parse_result(raw)
        self.workspace.files[RESULT_FILE] = raw
        return "done"

    def _tell(self, news: str) -> None:
        """Tell the run's owner what the agent says or does, as the session of a box does."""
        line = shown(news, most=MAX_PROGRESS_CHARACTERS)
        if line and self.told < MAX_PROGRESS_LINES:
            self.told += 1
            self.attempt.report(EventKind.PROGRESS, {"text": line})


def _about(given: object) -> str:
    fields = given if isinstance(given, Mapping) else {}
    return next((str(fields[name]) for name in ("path", "text", "directory") if fields.get(name)), "")


def finish_tool() -> dict[str, Any]:
    """Return the tool whose input is the step's result."""
    schema = AgentResult.model_json_schema()
    return {
        "name": FINISH_TOOL,
        "description": "End your step. The input is your result, as your instructions describe it.",
        "input_schema": {key: value for key, value in schema.items() if key not in ("title", "description")},
    }


def _cached(conversation: Sequence[Turn]) -> list[Turn]:
    """Return a conversation that the provider caches up to its end, so that the next turn reads it for a tenth."""
    *before, last = conversation
    assert not isinstance(last, str | ModelReply)
    *parts, final = last
    return [*before, [*parts, final._replace(ends_prefix=True)]]

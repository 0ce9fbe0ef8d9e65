"""Runtime `api`: an agent that reads and writes documents over the model API, with native tools and no box (P-032).

A loop with limited turns and time, whose last turn offers only the tool that ends the step. The agent cannot run a
command and no path of its tools reaches a disk, so nothing here needs a box (ruling A37). A tool reports its refusals
to the model, which may do better, and writes elsewhere are reported like dropped files.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gateway.client import ModelClient, ModelReply, Stop, Text, ToolResult, ToolUse, Turn
from gateway.errors import CallTimeoutError, GatewayUnreachableError
from ledger.events import EventKind
from routing.jobs import Reason, State
from routing.model_call import LITTLE_TIME
from routing.policy.agents import CONTEXT_DIRECTORY, FINISH_TOOL, RESULT_FILE, is_covered
from sandbox.claude_code import MAX_PROGRESS_CHARACTERS, MAX_PROGRESS_LINES, shown
from sites.errors import PathRefusedError
from sites.files import check_path, is_planted
from workers.attempt import Attempt
from workers.errors import ResultInvalidError, ToolRefusedError
from workers.runs.scheduling.view import AgentResult, parse_result
from workers.runs.step_context import AgentOrder, AgentRun, Failed

MAX_SHOWN_CHARS = 60_000
"""Of a file, in one reply."""
MAX_LISTED = 1_000
MAX_HITS = 100
_MAX_LINE_CHARS = 400
_MAX_FILE_BYTES = 1_048_576
_BINARY_BYTES = 8_192


class _Input(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _List(_Input):
    """List the files of the project, with their sizes in bytes."""

    directory: str = Field(default="", max_length=500, description="Only below this directory; empty for all.")


class _Read(_Input):
    """Read a text file of the project, or the lines from `from_line` on."""

    path: str = Field(max_length=500)
    from_line: int = Field(default=1, ge=1)
    lines: int = Field(default=2000, ge=1, le=20_000)


class _Search(_Input):
    """Find lines that contain a text, whatever their case."""

    text: str = Field(min_length=1, max_length=200)
    directory: str = Field(default="", max_length=500, description="Only below this directory; empty for all.")


class _Write(_Input):
    """Write a whole text file, within the paths that your order names."""

    path: str = Field(max_length=500)
    content: str = Field(max_length=_MAX_FILE_BYTES)


class FileTools:
    """A workspace in memory and the tools that work in it.

    `most_bytes` limits all written files together.
    """

    def __init__(self, files: Mapping[str, bytes], *, writes: Sequence[str], most_bytes: int) -> None:
        self.files = dict(files)
        self.refused: list[str] = []
        """Paths that the agent tried to write and may not."""
        self._writes = writes
        self._left = most_bytes
        self._tools: dict[str, tuple[type[_Input], Callable[[Any], str]]] = {
            "list_files": (_List, self._list),
            "read_file": (_Read, self._read),
            "search_files": (_Search, self._search),
            "write_file": (_Write, self._write),
        }

    def definitions(self, names: Iterable[str]) -> list[dict[str, Any]]:
        """Return tools for the model API, always in the same order, so that they can be cached."""
        return [_definition(name, self._tools[name][0]) for name in sorted(set(names) & self._tools.keys())]

    def use(self, name: str, given: object, *, allowed: Iterable[str]) -> str:
        """Run one tool call.

        Raises:
            ToolRefusedError: it cannot be done (the agent's fault).
        """
        if name not in self._tools or name not in allowed:
            raise ToolRefusedError(f"there is no tool {name[:60]!a} here")
        model, do = self._tools[name]
        try:
            arguments = model.model_validate(given)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(str(part) for part in first["loc"])[:100]
            raise ToolRefusedError(f"{name}: {place}: {first['msg']}") from None
        return do(arguments)

    def _list(self, arguments: _List) -> str:
        found = sorted(self._below(arguments.directory))
        lines = [f"{len(self.files[path]):>9} {path}" for path in found[:MAX_LISTED]]
        rest = len(found) - len(lines)
        more = [f"and {rest} more: name a directory"] if rest > 0 else []
        return "\n".join([*lines, *more]) or "no files"

    def _read(self, arguments: _Read) -> str:
        data = self.files.get(arguments.path)
        if data is None:
            raise ToolRefusedError(f"there is no file {arguments.path!a}")
        if b"\0" in data[:_BINARY_BYTES]:
            raise ToolRefusedError(f"{arguments.path!a} is no text file ({len(data)} bytes)")
        lines = data.decode("utf-8", "replace").splitlines(keepends=True)
        first = arguments.from_line - 1
        text = "".join(lines[first : first + arguments.lines])
        if len(text) > MAX_SHOWN_CHARS:
            shown = text[:MAX_SHOWN_CHARS]
            return f"{shown}\n[cut: go on with from_line={first + shown.count(chr(10)) + 1} of {len(lines)} lines]"
        return text or "[no lines there]"

    def _search(self, arguments: _Search) -> str:
        wanted, hits = arguments.text.casefold(), []
        for path in sorted(self._below(arguments.directory)):
            data = self.files[path]
            if b"\0" in data[:_BINARY_BYTES]:
                continue
            text = data.decode("utf-8", "replace")
            if wanted not in text.casefold():
                continue
            for number, line in enumerate(text.splitlines(), start=1):
                if wanted in line.casefold():
                    hits.append(f"{path}:{number}: {line.strip()[:_MAX_LINE_CHARS]}")
                if len(hits) >= MAX_HITS:
                    return "\n".join([*hits, "[there is more: search for something rarer, or in a directory]"])
        return "\n".join(hits) or "nothing found"

    def _write(self, arguments: _Write) -> str:
        path = self._writable(arguments.path)
        data = arguments.content.encode("utf-8", "replace")
        if len(data) > self._left:
            raise ToolRefusedError("what you have written is more than a step may write")
        self._left -= len(data)
        self.files[path] = data
        return f"wrote {len(data)} bytes"

    def _writable(self, raw: str) -> str:
        try:
            path = check_path(raw)
        except PathRefusedError as error:
            self.refused.append(f"{ascii(raw[:200])[1:-1]}: {error.reason}")
            raise ToolRefusedError(str(error)) from None
        if not is_covered(path, self._writes) or is_planted(path) or path.startswith(CONTEXT_DIRECTORY):
            self.refused.append(f"{ascii(path)[1:-1]}: not_allowed")
            allowed = ", ".join(self._writes) or "nothing"
            raise ToolRefusedError(f"you may not write {path!a}; you may write {allowed}")
        parts = path.split("/")
        if any("/".join(parts[:depth]) in self.files for depth in range(1, len(parts))):
            raise ToolRefusedError(f"{path!a} would lie below a file")
        if any(other.startswith(f"{path}/") for other in self.files):
            raise ToolRefusedError(f"{path!a} is a directory")
        return path

    def _below(self, directory: str) -> Iterable[str]:
        prefix = directory.strip("/")
        return (path for path in self.files if not prefix or path.startswith(f"{prefix}/"))


def _definition(name: str, model: type[_Input]) -> dict[str, Any]:
    schema = model.model_json_schema()
    return {
        "name": name,
        "description": schema.pop("description"),
        "input_schema": {key: value for key, value in schema.items() if key != "title"},
    }


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
        """Return a word on what is left, once it is little: of time in words that a request's digest leaves out."""
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

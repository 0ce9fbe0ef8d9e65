"""Reads what a session of the Claude Code CLI prints, and judges how it ended.

Every line of its output is taken for hostile, although nothing that the agent starts can write to the CLI's stdout.
Nothing here decides about money, files or publishing. A session succeeded only if its result line, its exit status and
the absence of a cut-off all say so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pydantic_core import from_json

from sandbox.claude_code import CLI_VERSION, SessionPlan
from sandbox.execution import Ending, ExecResult

MAX_TEXT = 2000
"""Maximum characters of a text."""
_MAX_NAME = 80
MAX_PROGRESS_CHARACTERS = 160
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff]+")
_ABOUT_FIELDS = ("file_path", "command", "pattern", "path")
"""Fields of a tool's input that describe the use."""


@dataclass(frozen=True)
class Started:
    """The session's first line: its permissions."""

    tools: tuple[str, ...]
    model: str
    permission_mode: str
    extras: tuple[str, ...]
    """Active servers, plugins, commands and skills, each as kind and name."""
    version: str
    session: str
    """The CLI's id of the session."""


@dataclass(frozen=True)
class TextWritten:
    """The model wrote something."""

    text: str


@dataclass(frozen=True)
class ToolUsed:
    """The model used a tool."""

    tool: str
    about: str


@dataclass(frozen=True)
class RetryReported:
    """A model call failed and is retried."""

    status: int | None


@dataclass(frozen=True)
class CliUsage:
    """The CLI's own count of a session's usage, including subagents. The bill is the gateway's."""

    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    cost_usd: float


@dataclass(frozen=True)
class Finished:
    """The session's result line."""

    subtype: str
    is_error: bool
    text: str
    turns: int
    denials: int
    """Number of refused tool uses."""
    own_count: CliUsage | None = None
    """None if unreadable: unknown is not zero (S-061)."""
    api_status: int | None = None
    """HTTP status of the model call that ended it, if one did."""

    @property
    def is_success(self) -> bool:
        """Whether the session reports success. A failed model call is reported as a success with `is_error`."""
        return self.subtype == "success" and not self.is_error


SessionEvent = Started | TextWritten | ToolUsed | RetryReported | Finished


def read_line(line: bytes) -> Iterator[SessionEvent]:
    """Yield the events of one output line; none for noise."""
    if not line.startswith(b"{"):
        return
    try:
        event = from_json(line, allow_inf_nan=False)
    except ValueError:
        return
    if not isinstance(event, dict):
        return
    kind, subtype = event.get("type"), event.get("subtype")
    if kind == "system" and subtype == "init":
        yield _started(event)
    elif kind == "system" and subtype == "api_retry":
        yield RetryReported(_count(event.get("error_status")) or None)
    elif kind == "assistant":
        yield from _blocks(event.get("message"))
    elif kind == "result":
        yield _finished(event)


def shown(value: Any, *, most: int) -> str:
    """Return an untrusted text as one line without invisible or bidirectional control characters."""
    if not isinstance(value, str):
        return ""
    text = " ".join(_UNPRINTABLE.sub(" ", value[: 4 * most]).split())
    return text if len(text) <= most else text[: most - 1] + "…"


def _started(event: dict[str, Any]) -> Started:
    extras = [
        f"{kind} {_name(item)}"
        for kind in ("mcp_servers", "plugins", "slash_commands", "skills")
        for item in _list(event.get(kind))
        if not _is_builtin(item)
    ]
    return Started(
        tools=tuple(_name(tool) for tool in _list(event.get("tools"))),
        model=_name(event.get("model")),
        permission_mode=_name(event.get("permissionMode")),
        extras=tuple(extras),
        version=_name(event.get("claude_code_version")),
        session=_name(event.get("session_id")),
    )


def _is_builtin(item: Any) -> bool:
    """Return whether a plugin is the CLI's own; before the first line nothing else could write to the stream."""
    return isinstance(item, dict) and item.get("path") == "builtin"


def _blocks(message: Any) -> Iterator[TextWritten | ToolUsed]:
    for block in _list(message.get("content") if isinstance(message, dict) else None):
        if not isinstance(block, dict):
            continue
        if block.get("type") == "text" and (text := shown(block.get("text"), most=MAX_PROGRESS_CHARACTERS)):
            yield TextWritten(text)
        elif block.get("type") == "tool_use":
            yield ToolUsed(_name(block.get("name")), _about(block.get("input")))


def _about(given: Any) -> str:
    fields = given if isinstance(given, dict) else {}
    found = next((fields[name] for name in _ABOUT_FIELDS if isinstance(fields.get(name), str)), "")
    return shown(found, most=MAX_PROGRESS_CHARACTERS).removeprefix("/workspace/")


def _finished(event: dict[str, Any]) -> Finished:
    text = event.get("result")
    if not isinstance(text, str):
        text = "; ".join(error for error in _list(event.get("errors")) if isinstance(error, str))
    return Finished(
        subtype=_name(event.get("subtype")),
        is_error=event.get("is_error") is not False,
        text=shown(text, most=MAX_TEXT),
        turns=_count(event.get("num_turns")),
        denials=len(_list(event.get("permission_denials"))),
        own_count=_own_count(event),
        api_status=_count(event.get("api_error_status")) or None,
    )


_TOKENS = ("inputTokens", "outputTokens", "cacheReadInputTokens", "cacheCreationInputTokens")


def _own_count(event: dict[str, Any]) -> CliUsage | None:
    models, cost = event.get("modelUsage"), event.get("total_cost_usd")
    if not isinstance(models, dict) or not models or not all(isinstance(used, dict) for used in models.values()):
        return None
    counts = [[used.get(name) for name in _TOKENS] for used in models.values()]
    if not all(_is_amount(count) and isinstance(count, int) for row in counts for count in row):
        return None
    if not isinstance(cost, int | float) or not _is_amount(cost):
        return None
    read, written, cache_read, cache_write = (sum(column) for column in zip(*counts, strict=True))
    return CliUsage(read, written, cache_read, cache_write, float(cost))


def _is_amount(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e12


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _name(value: Any) -> str:
    return shown(value.get("name") if isinstance(value, dict) else value, most=_MAX_NAME) or "?"


def _count(value: Any) -> int:
    return min(value, 1_000_000) if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


MAX_PROGRESS_LINES = 200  # of one session
_UNANNOUNCED = "it worked before it said what it may do"
_REFUSED_STATUSES = (400, 413)  # a provider's, of a conversation that is invalid or too large


class End(StrEnum):
    """How a session ended."""

    DONE = "done"
    REFUSED = "refused"
    """It did not start as its role demands, and was stopped before it did anything."""
    FAILED = "failed"
    TIME = "time"
    BUDGET = "budget"
    """It stopped at its budget, by its own count."""
    OUTPUT = "output"
    RESOURCES = "resources"
    """The kernel killed it for what it used."""
    BOX_LOST = "box_lost"


@dataclass(frozen=True)
class Verdict:
    """How a session ended, with a text."""

    end: End
    text: str
    """The agent's result, or why there is none."""

    @property
    def is_done(self) -> bool:
        """Whether the session succeeded."""
        return self.end is End.DONE


_CUT: dict[Ending, tuple[End, str]] = {
    Ending.START_TIMEOUT: (End.TIME, "it said nothing when it should have started"),
    Ending.IDLE_TIMEOUT: (End.TIME, "it fell silent"),
    Ending.SOFT_TIMEOUT: (End.TIME, "its time was over"),
    Ending.HARD_TIMEOUT: (End.TIME, "its time was over and it did not stop by itself"),
    Ending.OUTPUT_LIMIT: (End.OUTPUT, "it printed more than a session may"),
    Ending.LINE_LIMIT: (End.OUTPUT, "it printed a longer line than a session may"),
    Ending.BOX_LOST: (End.BOX_LOST, "its box went away"),
}


def find_violations(started: Started, plan: SessionPlan) -> str:
    """Return why a session must be stopped; empty if it is exactly what its role demands."""
    if len(started.tools) != len(plan.role.tools) or frozenset(started.tools) != plan.role.tools:
        wanted = " ".join(sorted(plan.role.tools))
        return f"it has the tools {' '.join(started.tools) or 'none'}, and has to have {wanted}"
    if started.extras:
        return f"it brings what nobody asked for: {', '.join(started.extras[:5])}"
    if started.model != plan.model:
        return f"it uses the model {started.model}, and has to use {plan.model}"
    if started.version != CLI_VERSION:
        return f"it is version {started.version} of the CLI, and has to be {CLI_VERSION}"
    if started.permission_mode != plan.role.permission_mode:
        return f"its permission mode is {started.permission_mode}, and has to be {plan.role.permission_mode}"
    return ""


@dataclass
class SessionReader:
    """Reads a session's lines as they come.

    `tell` takes progress lines for the job's owner.
    """

    plan: SessionPlan
    tell: Callable[[str], None]
    started: Started | None = None
    finished: Finished | None = None
    refusal: str = ""
    tools_used: int = 0
    retries: int = 0
    went_on: bool = False
    """Whether something came after a result, so that one of the two is forged."""
    _news: int = field(default=0, repr=False)

    def take(self, line: bytes) -> bool:
        """Read one line; False if the session must be stopped."""
        for happening in read_line(line):
            self._see(happening)
            if self.refusal:
                return False
        return True

    def _see(self, happening: SessionEvent) -> None:
        match happening:
            case _ if self.finished is not None:
                self.went_on = True  # the CLI prints nothing after its result
                self.refusal = self.refusal or ("" if self.started else _UNANNOUNCED)
            case Started():
                self.started = self.started or happening
                self.refusal = find_violations(happening, self.plan)
            case Finished() if self.started is None and self.plan.goes_on:
                self.finished = happening  # it found nothing to go on from
            case _ if self.started is None and not isinstance(happening, RetryReported):
                self.refusal = _UNANNOUNCED
            case ToolUsed(tool, about):
                self.tools_used += 1
                self._tell(f"{tool} {about}".strip())
            case TextWritten(text):
                self._tell(text)
            case RetryReported():
                self.retries += 1
            case Finished():
                self.finished = happening

    @property
    def found_nothing(self) -> bool:
        """Whether the CLI, or the model's provider, refused the conversation that it was to go on from."""
        status = self.finished.api_status if self.finished else None
        return self.plan.goes_on and not self.tools_used and (self.started is None or status in _REFUSED_STATUSES)

    def _tell(self, news: str) -> None:
        self._news += 1
        if self._news <= MAX_PROGRESS_LINES:
            self.tell(news)

    def judge(self, result: ExecResult) -> Verdict:
        """Return how the session ended."""
        if self.refusal:
            return Verdict(End.REFUSED, self.refusal)
        if (cut := _CUT.get(result.ending)) is not None:
            return Verdict(*cut)
        if result.is_resource_limit:
            return Verdict(End.RESOURCES, "it used more memory than its box has")
        if self.started is None or self.finished is None:
            return Verdict(End.FAILED, f"it ended without a result (status {result.exit_code})")
        if self.went_on:
            return Verdict(End.FAILED, "it went on after its result, so its word is worth nothing")
        if self.finished.subtype == "error_max_budget_usd":
            return Verdict(End.BUDGET, "it had spent its budget")
        if not self.finished.is_success:
            return Verdict(End.FAILED, self.finished.text or f"it ended with {self.finished.subtype}")
        if not result.is_success:
            return Verdict(End.FAILED, f"it ended with status {result.exit_code}")
        return Verdict(End.DONE, self.finished.text)

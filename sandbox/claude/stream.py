"""What the CLI prints, line by line, as values.

Every line is hostile: whatever the agent starts runs as the same user and may write to the CLI's own stdout. Nothing
here decides about money, files or publishing; what is not understood is noise.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json

MAX_TEXT = 2000
"""Characters of a text that are kept."""
_MAX_NAME = 80
_MAX_ABOUT = 160
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff]+")
_ABOUT_FIELDS = ("file_path", "command", "pattern", "path")
"""Which part of a tool's input says what it is about."""


@dataclass(frozen=True)
class Started:
    """The session says what it may do."""

    tools: tuple[str, ...]
    model: str
    permission_mode: str
    extras: tuple[str, ...]
    """Servers, plugins and commands that it would obey: names, each with its kind."""
    version: str
    session: str
    """The CLI's own name for it."""


@dataclass(frozen=True)
class Said:
    """The model wrote something."""

    text: str


@dataclass(frozen=True)
class ToolUsed:
    """The model uses a tool."""

    tool: str
    about: str


@dataclass(frozen=True)
class Retried:
    """A call to the model failed and is made again."""

    status: int | None


@dataclass(frozen=True)
class OwnCount:
    """What the CLI thinks that a session used, subagents included. The bill is the gateway's; this stands beside it."""

    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    cost_usd: float


@dataclass(frozen=True)
class Finished:
    """The session's own account of its end."""

    subtype: str
    is_error: bool
    text: str
    turns: int
    denials: int
    """How often a tool was not permitted."""
    own_count: OwnCount | None = None
    """None where it cannot be read: unknown, which is not nothing (S-061)."""

    @property
    def is_success(self) -> bool:
        """Whether it says that it did what was asked. A failed model call comes as a success that is an error."""
        return self.subtype == "success" and not self.is_error


Happening = Started | Said | ToolUsed | Retried | Finished


def read_line(line: bytes) -> Iterator[Happening]:
    """Yield what one line of the stream says; nothing for noise."""
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
        yield Retried(_count(event.get("error_status")) or None)
    elif kind == "assistant":
        yield from _blocks(event.get("message"))
    elif kind == "result":
        yield _finished(event)


def shown(value: Any, *, most: int) -> str:
    """Return a text from outside as one line that can be shown: nothing invisible, nothing that turns it around."""
    if not isinstance(value, str):
        return ""
    text = " ".join(_UNPRINTABLE.sub(" ", value[: 4 * most]).split())
    return text if len(text) <= most else text[: most - 1] + "…"


def _started(event: dict[str, Any]) -> Started:
    extras = [
        f"{kind} {_name(item)}" for kind in ("mcp_servers", "plugins", "slash_commands", "skills")
        for item in _list(event.get(kind)) if not _is_builtin(item)
    ]  # fmt: skip
    return Started(
        tools=tuple(_name(tool) for tool in _list(event.get("tools"))),
        model=_name(event.get("model")),
        permission_mode=_name(event.get("permissionMode")),
        extras=tuple(extras),
        version=_name(event.get("claude_code_version")),
        session=_name(event.get("session_id")),
    )


def _is_builtin(item: Any) -> bool:
    """Tell whether a plugin is part of the CLI itself; at the start nobody else has had a word in the stream."""
    return isinstance(item, dict) and item.get("path") == "builtin"


def _blocks(message: Any) -> Iterator[Said | ToolUsed]:
    for block in _list(message.get("content") if isinstance(message, dict) else None):
        if not isinstance(block, dict):
            continue
        if block.get("type") == "text" and (text := shown(block.get("text"), most=_MAX_ABOUT)):
            yield Said(text)
        elif block.get("type") == "tool_use":
            yield ToolUsed(_name(block.get("name")), _about(block.get("input")))


def _about(given: Any) -> str:
    fields = given if isinstance(given, dict) else {}
    found = next((fields[name] for name in _ABOUT_FIELDS if isinstance(fields.get(name), str)), "")
    return shown(found, most=_MAX_ABOUT).removeprefix("/workspace/")


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
    )


_TOKENS = ("inputTokens", "outputTokens", "cacheReadInputTokens", "cacheCreationInputTokens")


def _own_count(event: dict[str, Any]) -> OwnCount | None:
    models, cost = event.get("modelUsage"), event.get("total_cost_usd")
    if not isinstance(models, dict) or not models or not all(isinstance(used, dict) for used in models.values()):
        return None
    counts = [[used.get(name) for name in _TOKENS] for used in models.values()]
    if not all(_is_amount(count) and isinstance(count, int) for row in counts for count in row):
        return None
    if not isinstance(cost, int | float) or not _is_amount(cost):
        return None
    read, written, cache_read, cache_write = (sum(column) for column in zip(*counts, strict=True))
    return OwnCount(read, written, cache_read, cache_write, float(cost))


def _is_amount(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e12


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _name(value: Any) -> str:
    return shown(value.get("name") if isinstance(value, dict) else value, most=_MAX_NAME) or "?"


def _count(value: Any) -> int:
    return min(value, 1_000_000) if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0

"""A Messages request as scenarios see it: what was asked, with which tools, at which turn of the conversation."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sandbox.rehearsal.errors import RequestError

TAG = re.compile(r"\[rehearse:([a-z0-9-]{1,40})\]")
_REMINDER = "<system-reminder>"
"""Claude Code puts texts of its own into user messages; they begin so and are not what the user asked."""

Block = dict[str, Any]


class _Wire(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Message(_Wire):
    """One message of the conversation."""

    role: Literal["user", "assistant", "system"]
    content: str | list[Block]

    @property
    def blocks(self) -> list[Block]:
        """The content as blocks."""
        return [{"type": "text", "text": self.content}] if isinstance(self.content, str) else self.content


class Tool(_Wire):
    """A tool that the reply may use."""

    name: str = Field(min_length=1, max_length=200)
    description: str = ""
    input_schema: dict[str, Any] = Field(default_factory=dict)


class ToolChoice(_Wire):
    """Whether a tool must be used, and which."""

    type: Literal["auto", "any", "tool", "none"] = "auto"
    name: str | None = None


class MessagesBody(_Wire):
    """The fields of `POST /v1/messages` that the rehearsal model reads. Unknown fields are let through, as upstream."""

    model: str = Field(min_length=1, max_length=200)
    messages: list[Message] = Field(min_length=1, max_length=100_000)
    max_tokens: int = Field(default=0, ge=0)
    """Required by `/v1/messages` (checked there), absent in `count_tokens`."""
    stream: bool = False
    system: str | list[Block] = ""
    tools: list[Tool] = Field(default_factory=list)
    tool_choice: ToolChoice = ToolChoice()
    stop_sequences: list[str] = Field(default_factory=list)
    output_config: dict[str, Any] = Field(default_factory=dict)


@dataclass(frozen=True)
class Request:
    """A parsed request. Texts are hostile: they are matched and quoted, never run."""

    body: MessagesBody
    raw: dict[str, Any]
    body_bytes: int
    """Length of the request body as received."""

    @property
    def model(self) -> str:
        """The model asked for."""
        return self.body.model

    @cached_property
    def system(self) -> str:
        """The system prompt's text."""
        system = self.body.system
        return system if isinstance(system, str) else _texts(system)

    @cached_property
    def prompt(self) -> str:
        """The last text that the user wrote, tool results apart."""
        return next((text for text in reversed(self.user_texts) if text.strip()), "")

    @cached_property
    def user_texts(self) -> tuple[str, ...]:
        """Each user message's text in order, without the texts that Claude Code adds."""
        return tuple(_texts(message.blocks) for message in self.body.messages if message.role == "user")

    @cached_property
    def tags(self) -> frozenset[str]:
        """The tags `[rehearse:NAME]` that the user's texts hold."""
        return frozenset(tag for text in self.user_texts for tag in TAG.findall(text))

    @property
    def turn(self) -> int:
        """Turn of the conversation: 1 before the first reply."""
        return 1 + sum(message.role == "assistant" for message in self.body.messages)

    @cached_property
    def tool_results(self) -> tuple[ToolResult, ...]:
        """What the tools of the whole conversation returned, in order."""
        calls = {
            str(block.get("id")): block
            for message in self.body.messages
            if message.role == "assistant"
            for block in message.blocks
            if block.get("type") == "tool_use"
        }
        return tuple(
            _tool_result(block, calls.get(str(block.get("tool_use_id")), {}))
            for message in self.body.messages
            for block in message.blocks
            if message.role == "user" and block.get("type") == "tool_result"
        )

    @property
    def has_tool_result(self) -> bool:
        """Whether the last message brings a tool's result."""
        return any(block.get("type") == "tool_result" for block in self.body.messages[-1].blocks)

    @property
    def tool_names(self) -> tuple[str, ...]:
        """Names of the tools offered."""
        return tuple(tool.name for tool in self.body.tools)

    def tool(self, name: str) -> Tool | None:
        """Return the offered tool of this name."""
        return next((tool for tool in self.body.tools if tool.name == name), None)

    @property
    def forced_tool(self) -> Tool | None:
        """The tool that the reply must use, if `tool_choice` demands one."""
        choice = self.body.tool_choice
        if choice.type == "tool":
            return self.tool(choice.name or "")
        return self.body.tools[0] if choice.type == "any" and self.body.tools else None

    @property
    def output_schema(self) -> dict[str, Any] | None:
        """The JSON Schema that a text reply must satisfy, if structured output was asked for."""
        wanted = self.body.output_config.get("format")
        schema = wanted.get("schema") if isinstance(wanted, dict) else None
        return schema if isinstance(schema, dict) else None


@dataclass(frozen=True)
class ToolResult:
    """What one tool call returned."""

    tool: str
    """Name of the tool; empty when the call is not in the conversation."""
    input: dict[str, Any]
    text: str
    is_error: bool


def parse_request(body: bytes, *, needs_max_tokens: bool = True) -> Request:
    """Read the body of a Messages request.

    Args:
        body: the body as received.
        needs_max_tokens: whether `max_tokens` is required (not for `count_tokens`).

    Raises:
        RequestError: the caller's fault; names the field and the rule.
    """
    try:
        raw = json.loads(body)
    except (ValueError, RecursionError):
        raise RequestError("invalid_request_error", "The request body is not valid JSON") from None
    try:
        parsed = MessagesBody.model_validate(raw)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])[:200] or "body"
        raise RequestError("invalid_request_error", f"{place}: {first['msg']}") from None
    if needs_max_tokens and parsed.max_tokens < 1:
        raise RequestError("invalid_request_error", "max_tokens: must be given, and at least 1")
    if parsed.tool_choice.type == "tool" and parsed.tool_choice.name not in {tool.name for tool in parsed.tools}:
        raise RequestError("invalid_request_error", "tool_choice.name: must name one of the tools")
    return Request(parsed, raw, len(body))


def _texts(blocks: list[Block]) -> str:
    texts = [str(block.get("text", "")) for block in blocks if block.get("type") == "text"]
    return "\n".join(text for text in texts if not text.lstrip().startswith(_REMINDER))


def _tool_result(block: Block, call: Block) -> ToolResult:
    content = block.get("content", "")
    parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    text = content if isinstance(content, str) else _texts(parts)
    given = call.get("input")
    return ToolResult(
        str(call.get("name", "")), given if isinstance(given, dict) else {}, text, bool(block.get("is_error"))
    )

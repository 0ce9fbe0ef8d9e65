"""Parses a Messages request for scenarios, and takes from its text the words that replies are made of."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gateway.errors import GatewayError

TAG = re.compile(r"\[rehearse:([a-z0-9-]{1,40})(?:=([a-z0-9,.-]{1,60}))?\]")
_REMINDER = "<system-reminder>"
"""Start of the texts that Claude Code adds to user messages."""
_WORD = re.compile(r"[^\W_][\w'’-]*")
_QUOTED = re.compile(r"[\"“„]([^\"“”„\n]{1,300})[\"”“]|(?<!\w)['‘]([^'‘’\n]{1,300})['’](?!\w)")
_COMMON_TEXT = """
about add all also an and another any are as at be below can change could create do edit for from give get has have he
her his how i in into is it its just like make me more my need new no not of on one or our out page please put replace
section set she site so some that the their them then there they this to under up update us use want was we website were
what when where which who why will with would you your named called above after before text says say
"""
_COMMON = frozenset(_COMMON_TEXT.split())
_DEPTH = 12
"""Below this depth a schema (usually a recursive one) gets its smallest value."""

_ASK = re.compile(
    r"\basks\s*:\s*(.+?)(?=\n\n?Your last (?:reply|patch) was refused:|\Z)",
    re.IGNORECASE | re.DOTALL,
)
"""How the tiers' prompts introduce a person's request, and what follows it on a retry."""
_DIRECTORY = re.compile(r"[Ww]orking directory:\s*(\S+)")
_NUMBERED = re.compile(r"^\s*\d+(?:→|\t)(.*)$")

Block = dict[str, Any]


class RequestError(GatewayError, ValueError):
    """The Messages API would not accept the request (the caller's fault)."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message, status)
        self.message = message
        self.status = status
        """The HTTP status of its answer."""

    def __str__(self) -> str:
        return self.message


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
    input_schema: dict[str, Any] = Field(default_factory=dict)


class ToolChoice(_Wire):
    """Whether a tool must be used, and which."""

    type: Literal["auto", "any", "tool", "none"] = "auto"
    name: str | None = None


class MessagesBody(_Wire):
    """The fields of `POST /v1/messages` that are read here; unknown fields are ignored."""

    model: str = Field(min_length=1, max_length=200)
    messages: list[Message] = Field(min_length=1, max_length=100_000)
    max_tokens: int = Field(default=0, ge=0)
    """Required by `/v1/messages`, absent in `count_tokens`."""
    stream: bool = False
    system: str | list[Block] = ""
    tools: list[Tool] = Field(default_factory=list)
    tool_choice: ToolChoice = ToolChoice()
    output_config: dict[str, Any] = Field(default_factory=dict)


@dataclass(frozen=True)
class ToolResult:
    """The result of one tool use."""

    tool: str
    """Name of the tool; empty when its use is not in the conversation."""
    input: dict[str, Any]
    text: str
    is_error: bool

    @property
    def content(self) -> str | None:
        """The file that Claude Code's Read shows, without line numbers; None when it shows no lines."""
        matches = [_NUMBERED.match(line) for line in self.text.splitlines()]
        lines = [match[1] for match in matches if match]
        return None if self.is_error or not lines else "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Request:
    """A parsed request. Its texts are hostile: they are matched and quoted, never evaluated."""

    body: MessagesBody
    raw: dict[str, Any]
    body_bytes: int
    """Length of the request body as received."""

    @cached_property
    def system(self) -> str:
        """The system prompt's text."""
        system = self.body.system
        return system if isinstance(system, str) else _texts(system)

    @cached_property
    def prompt(self) -> str:
        """The last text that the user wrote, apart from tool results."""
        return next((text for text in reversed(self.user_texts) if text.strip()), "")

    @cached_property
    def ask(self) -> str:
        """A person's request within a tier's prompt; the whole prompt when nothing introduces it."""
        found = _ASK.search(self.prompt)
        return (found[1] if found else self.prompt).strip()

    @property
    def question(self) -> str:
        """The last text block of the first message: where a person's question stands below the site's pages."""
        texts = [str(block.get("text", "")) for block in self.body.messages[0].blocks]
        return next((text for text in reversed(texts) if text.strip()), "")

    @property
    def directory(self) -> str:
        """Claude Code's working directory; empty when it states none."""
        stated = _DIRECTORY.search(self.system)
        return stated[1] if stated else ""

    @cached_property
    def user_texts(self) -> tuple[str, ...]:
        """The user messages' texts in order, without those that Claude Code adds."""
        return tuple(_texts(message.blocks) for message in self.body.messages if message.role == "user")

    @cached_property
    def tags(self) -> frozenset[str]:
        """The tags `[rehearse:NAME]` that the user's texts hold."""
        return frozenset(name for text in self.user_texts for name, value in TAG.findall(text) if not value)

    @property
    def turn(self) -> int:
        """Turn of the conversation, counted from 1."""
        return 1 + sum(message.role == "assistant" for message in self.body.messages)

    @cached_property
    def tool_results(self) -> tuple[ToolResult, ...]:
        """All tool results of the conversation, in order."""
        calls: dict[str, Block] = {}
        results = []
        for message in self.body.messages:
            for block in message.blocks:
                if message.role == "assistant" and block.get("type") == "tool_use":
                    calls[str(block.get("id"))] = block
                elif message.role == "user" and block.get("type") == "tool_result":
                    results.append(_tool_result(block, calls.get(str(block.get("tool_use_id")), {})))
        return tuple(results)

    @property
    def has_tool_result(self) -> bool:
        """Whether the last message holds a tool result."""
        return any(block.get("type") == "tool_result" for block in self.body.messages[-1].blocks)

    @property
    def tool_names(self) -> tuple[str, ...]:
        """Names of the offered tools."""
        return tuple(tool.name for tool in self.body.tools)

    def tool(self, name: str) -> Tool | None:
        """Return the offered tool of this name."""
        return next((tool for tool in self.body.tools if tool.name == name), None)

    @property
    def forced_tool(self) -> Tool | None:
        """The tool that `tool_choice` demands, if any."""
        choice = self.body.tool_choice
        if choice.type == "tool":
            return self.tool(choice.name or "")
        return self.body.tools[0] if choice.type == "any" and self.body.tools else None

    @property
    def output_schema(self) -> dict[str, Any] | None:
        """The JSON Schema of a structured text reply, if one is requested."""
        wanted = self.body.output_config.get("format")
        schema = wanted.get("schema") if isinstance(wanted, dict) else None
        return schema if isinstance(schema, dict) else None


def parse_request(body: bytes, *, needs_max_tokens: bool = True) -> Request:
    """Parse the body of a Messages request; one of `count_tokens` needs no `max_tokens`.

    Raises:
        RequestError: the caller's fault; names the field and the rule.
    """
    try:
        raw = json.loads(body)
    except (ValueError, RecursionError):
        raise RequestError("The request body is not valid JSON") from None
    try:
        parsed = MessagesBody.model_validate(raw)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])[:200] or "body"
        raise RequestError(f"{place}: {first['msg']}") from None
    if needs_max_tokens and parsed.max_tokens < 1:
        raise RequestError("max_tokens: must be given, and at least 1")
    if parsed.tool_choice.type == "tool" and parsed.tool_choice.name not in {tool.name for tool in parsed.tools}:
        raise RequestError("tool_choice.name: must name one of the tools")
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


def plain(text: str) -> str:
    """Return a text without tags and unprintable characters, with its white space collapsed."""
    printable = "".join(character if character.isprintable() else " " for character in TAG.sub(" ", text))
    return " ".join(printable.split())


def words(text: str) -> list[str]:
    """Return the words of a text in order."""
    return _WORD.findall(plain(text))


def key_words(text: str, count: int = 6) -> list[str]:
    """Return the first `count` distinct meaningful words, in order."""
    found = dict.fromkeys(word for word in words(text) if word.casefold() not in _COMMON and len(word) > 1)
    return list(found)[:count]


def quoted(text: str) -> list[str]:
    """Return the quoted parts of a text, in order."""
    return [double or single for double, single in _QUOTED.findall(plain(text))]


def title(text: str, count: int = 6) -> str:
    """Return a short heading for a text: its first quoted part, or its meaningful words."""
    if found := quoted(text):
        return found[0][:80]
    return " ".join(word[:1].upper() + word[1:] for word in key_words(text, count))[:80] or "Untitled"


def slug(text: str) -> str:
    """Return a text as a slug of at most 40 characters."""
    return re.sub(r"[^a-z0-9]+", "-", plain(text).lower()).strip("-")[:40].strip("-") or "item"


def sentence(text: str) -> str:
    """Return a text with a capital first letter and a full stop."""
    clean = plain(text)
    return clean[:1].upper() + clean[1:] + ("" if clean.endswith((".", "!", "?", "…")) else ".") if clean else ""


def example_of(schema: dict[str, Any], *, about: str) -> Any:
    """Return a value for a JSON Schema: required fields only, the first choice everywhere, texts from `about`.

    Raises:
        RequestError: the caller's fault: the schema is not one.
    """
    try:
        return _Example(schema, plain(about)).value(schema)
    except (TypeError, ValueError, AttributeError, LookupError, RecursionError, OverflowError):
        raise RequestError("a schema in this request is not a JSON Schema") from None


@dataclass
class _Example:
    root: dict[str, Any]
    about: str
    values_left: int = 2000

    def value(self, schema: Any, name: str = "", depth: int = 0) -> Any:
        schema = self._resolve(schema)
        self.values_left -= 1
        for value in (schema.get("const"), schema.get("default"), *schema.get("enum", ())[:1]):
            if value is not None:
                return value
        kinds = schema.get("type", "object" if "properties" in schema else "string")
        kind = kinds[0] if isinstance(kinds, list) else kinds
        is_over = depth > _DEPTH or self.values_left <= 0
        if kind == "object":
            properties = schema.get("properties", {})
            names = schema.get("required", [] if depth else list(properties))
            return {} if is_over else {name: self.value(properties.get(name), name, depth + 1) for name in names}
        if kind == "array":
            count = 0 if is_over else min(schema.get("minItems", 0) or 1, 100)
            return [self.value(schema.get("items"), name, depth + 1) for _ in range(count)]
        if kind in ("integer", "number"):
            return schema.get("minimum", schema.get("exclusiveMinimum", -1) + 1)
        return {"boolean": True, "null": None}.get(kind, self._text(schema, name))

    def _text(self, schema: dict[str, Any], name: str) -> str:
        if schema.get("format") == "uri":
            return "https://example.com/"
        short = min(schema.get("maxLength", 200), 200)
        text = slug(self.about) if name in ("id", "key", "slug", "name") else self.about
        text = text if len(text) <= short else title(text)[:short]
        return text.ljust(schema.get("minLength", 0), ".")

    def _resolve(self, schema: Any) -> dict[str, Any]:
        """Follow references and take the first alternative."""
        for _ in range(_DEPTH):
            if not isinstance(schema, dict):
                return {}
            if isinstance(reference := schema.get("$ref"), str):
                schema = self.root
                for part in reference.removeprefix("#").removeprefix("/").split("/"):
                    schema = schema.get(part) if part else schema
            elif choices := schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf"):
                schema = choices[0]
            else:
                return schema
        return {}

"""The wire format of Messages API replies, and how tokens are counted.

Tokens follow simple rules instead of a tokenizer, so that a bill can be checked by hand:
- input tokens = UTF-8 bytes of the compact JSON of {system, messages, tools}, divided by 4, rounded up; a file in it
  counts by pixels or pages instead;
- output tokens = characters of text and of tool-input JSON sent, divided by 4, rounded up; at least 1;
- cached prefixes are counted as the provider does: apart from `input_tokens`, written once, read afterwards.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import from_json

from gateway.fake_provider.request import Request
from gateway.media import image_size, pdf_pages
from gateway.messages import as_event
from gateway.providers.prompt_cache import prompt_parts
from gateway.providers.provider import error_fields
from routing.policy.prices import Usage

CHARACTERS_PER_TOKEN = 4
IMAGE_TOKENS = 1568
"""Patches of the largest image that is not scaled down."""
PATCH_PIXELS = 28
PAGE_TEXT_TOKENS = 2000
CHUNK_CHARACTERS = 40
"""Size of one delta, about ten tokens."""
CACHE_SECONDS = 300.0
"""Lifetime of a cached prefix after its last use."""
_CACHE_ENTRIES = 4096
MALFORMED_EVENT = b'event: content_block_delta\ndata: {"type": "content_block_delta", "index": 0, "delta": {"ty\n\n'


@dataclass(frozen=True)
class Text:
    """A block of text."""

    text: str


@dataclass(frozen=True)
class ToolUse:
    """A tool use."""

    name: str
    input: dict[str, Any]


@dataclass(frozen=True)
class Written:
    """One serialised block: its characters are what a stream sends and what output tokens are counted from."""

    characters: str
    """The text, or the JSON of the tool's input; truncated where the reply was stopped."""
    tool: str = ""
    """Name of the tool; empty for a text."""
    tool_use_id: str = ""

    @classmethod
    def of(cls, block: Text | ToolUse) -> Written:
        """Serialise a block."""
        if isinstance(block, Text):
            return cls(block.text)
        return cls(json.dumps(block.input, ensure_ascii=False), block.name, f"toolu_{uuid.uuid4().hex[:24]}")

    def as_block(self, *, is_opening: bool = False) -> dict[str, Any]:
        """Return the whole block, or the empty one that opens it in a stream."""
        characters = "" if is_opening else self.characters
        if not self.tool:
            return {"type": "text", "text": characters}
        given = from_json(characters, allow_partial=True) if characters else {}
        return {"type": "tool_use", "id": self.tool_use_id, "name": self.tool, "input": given}

    def delta(self, chunk: str) -> dict[str, str]:
        """Return some characters as a stream's delta."""
        if self.tool:
            return {"type": "input_json_delta", "partial_json": chunk}
        return {"type": "text_delta", "text": chunk}


@dataclass(frozen=True)
class Reply:
    """A whole reply."""

    message_id: str
    model: str
    content: tuple[Written, ...]
    stop_reason: str
    stop_sequence: str | None
    usage: Usage
    """What a reply that is sent in full bills."""

    @property
    def characters(self) -> int:
        """Number of characters of the whole reply."""
        return sum(len(block.characters) for block in self.content)

    def usage_after(self, characters: int) -> Usage:
        """Return what is billed if only the first `characters` were sent."""
        if characters >= self.characters:
            return self.usage
        return self.usage._replace(output_tokens=min(output_tokens(characters), self.usage.output_tokens))


@dataclass(frozen=True)
class Step:
    """One write of a stream."""

    data: bytes
    characters: int = 0
    """Characters of the reply that this write carries."""
    is_last: bool = False


def stream_steps(reply: Reply, *, boundary: int | None = None) -> Iterator[Step]:
    """Yield the writes of a streamed reply; no chunk straddles `boundary`, so that a fault can strike exactly there."""
    opening = _message(reply, content=[], usage=reply.usage._replace(output_tokens=1))
    yield Step(_event("message_start", message=opening | {"stop_reason": None, "stop_sequence": None}))
    sent = 0
    for index, block in enumerate(reply.content):
        start = _event("content_block_start", index=index, content_block=block.as_block(is_opening=True))
        yield Step(start + (b"" if index else _event("ping")))
        for chunk in _chunks(block.characters, boundary=None if boundary is None else boundary - sent):
            yield Step(_event("content_block_delta", index=index, delta=block.delta(chunk)), len(chunk))
        sent += len(block.characters)
        yield Step(_event("content_block_stop", index=index))
    delta = {"stop_reason": reply.stop_reason, "stop_sequence": reply.stop_sequence}
    closing = _event("message_delta", delta=delta, usage=_usage(reply.usage))
    yield Step(closing + _event("message_stop"), is_last=True)


def message_body(reply: Reply) -> dict[str, Any]:
    """Return the body of an unstreamed reply."""
    return _message(reply, content=[block.as_block() for block in reply.content], usage=reply.usage)


def error_of(status: int, message: str, request_id: str) -> dict[str, Any]:
    """Return the body of an API error."""
    return error_fields(status, message) | {"request_id": request_id}


def error_event(body: dict[str, Any]) -> bytes:
    """Return the error event of a stream that has begun."""
    return _data("error", body)


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.input_tokens,
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "cache_read_input_tokens": usage.cache_read_tokens,
        "cache_creation": {"ephemeral_5m_input_tokens": usage.cache_write_tokens, "ephemeral_1h_input_tokens": 0},
        "output_tokens": usage.output_tokens,
    }


def _message(reply: Reply, *, content: list[dict[str, Any]], usage: Usage) -> dict[str, Any]:
    return {
        "id": reply.message_id,
        "type": "message",
        "role": "assistant",
        "model": reply.model,
        "content": content,
        "stop_reason": reply.stop_reason,
        "stop_sequence": reply.stop_sequence,
        "usage": _usage(usage) | {"service_tier": "standard"},
    }


def _chunks(text: str, *, boundary: int | None) -> Iterator[str]:
    start = 0
    while start < len(text):
        end = start + CHUNK_CHARACTERS
        if boundary is not None and start < boundary < end:
            end = boundary
        yield text[start:end]
        start = end


def _event(kind: str, **fields: Any) -> bytes:
    return _data(kind, {"type": kind, **fields})


def _data(kind: str, body: dict[str, Any]) -> bytes:
    return as_event(kind, json.dumps(body).encode())


def output_tokens(characters: int) -> int:
    """Return the output tokens of so many characters."""
    return max(1, -(-characters // CHARACTERS_PER_TOKEN))


def count_input(request: Request) -> int:
    """Return the input tokens of a request; those of its text never exceed half its bytes."""
    counted = {key: request.raw.get(key) for key in ("system", "messages", "tools") if key in request.raw}
    text, files = _without_files(counted)
    return min(-(-len(_encode(text)) // CHARACTERS_PER_TOKEN), request.body_bytes // 2) + files


def _without_files(value: Any) -> tuple[Any, int]:
    """Return a part of a request without the data of its files, and what those cost."""
    if isinstance(value, list):
        parts = [_without_files(part) for part in value]
        return [part for part, _ in parts], sum(tokens for _, tokens in parts)
    if not isinstance(value, dict):
        return value, 0
    source = value.get("source")
    if value.get("type") in ("image", "document") and isinstance(source, dict) and source.get("type") == "base64":
        return value | {"source": {}}, _file_tokens(value["type"], str(source.get("data")))
    inner = {key: _without_files(part) for key, part in value.items()}
    return {key: part for key, (part, _) in inner.items()}, sum(tokens for _, tokens in inner.values())


def _file_tokens(kind: str, data: str) -> int:
    if kind == "document":
        return (pdf_pages(data) or 1) * (PAGE_TEXT_TOKENS + IMAGE_TOKENS)
    size = image_size(data)
    return min(-(-size.width // PATCH_PIXELS) * -(-size.height // PATCH_PIXELS), IMAGE_TOKENS) if size else IMAGE_TOKENS


@dataclass
class PromptCache:
    """Prompt prefixes that callers had cached, per key and model."""

    _expiry: OrderedDict[str, float] = field(default_factory=OrderedDict)

    def usage(self, request: Request, *, owner: str, now: float) -> Usage:
        """Count a request's input, and cache the prefixes that it marks for their owner."""
        total = count_input(request)
        prefixes = _prefixes(request, owner)
        breakpoints = [index for index, prefix in enumerate(prefixes) if prefix.is_breakpoint]
        if not breakpoints:
            return Usage(input_tokens=total)
        candidates = prefixes[: breakpoints[-1] + 1]
        read = max((prefix.tokens for prefix in candidates if self._expiry.get(prefix.digest, 0.0) > now), default=0)
        upto = min(candidates[-1].tokens, total)
        read = min(read, upto)
        for prefix in candidates:
            if prefix.is_breakpoint or prefix.tokens == read:
                self._expiry[prefix.digest] = now + CACHE_SECONDS
                self._expiry.move_to_end(prefix.digest)
        while len(self._expiry) > _CACHE_ENTRIES:
            self._expiry.popitem(last=False)
        return Usage(input_tokens=total - upto, cache_write_tokens=upto - read, cache_read_tokens=read)


@dataclass(frozen=True)
class _Prefix:
    digest: str
    tokens: int
    is_breakpoint: bool


def _prefixes(request: Request, owner: str) -> list[_Prefix]:
    parts = [*prompt_parts(request.raw)]
    if "cache_control" in request.raw and parts:
        parts[-1] = parts[-1] | {"cache_control": request.raw["cache_control"]}
    digest = hashlib.sha256(_encode([owner, request.body.model]))
    size, files, prefixes = 0, 0, []
    for part in parts:
        unmarked = {key: value for key, value in part.items() if key != "cache_control"}
        digest.update(_encode(unmarked))
        text, tokens = _without_files(unmarked)
        size += len(_encode(text))
        files += tokens
        counted = size // CHARACTERS_PER_TOKEN + files
        prefixes.append(_Prefix(digest.hexdigest(), counted, bool(part.get("cache_control"))))
    return prefixes


def _encode(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")

"""The wire forms of the Messages API: server-sent events, the whole message, and errors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from routing.prices import Usage
from sandbox.rehearsal.reply import Reply, Written

CHUNK_CHARACTERS = 40
"""About ten tokens: how much one delta carries."""

_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_ERROR_TEXTS = {429: "Rehearsed rate limit", 529: "Overloaded (rehearsed)"}


@dataclass(frozen=True)
class Step:
    """One write of a stream."""

    data: bytes
    characters: int = 0
    """Characters of the reply that this write carries."""
    is_last: bool = False


def stream_steps(reply: Reply, *, boundary: int | None = None) -> Iterator[Step]:
    """Yield the writes of a streamed reply.

    Args:
        reply: the reply.
        boundary: a number of characters after which no chunk may reach, so that a fault can be placed exactly.
    """
    opening = _message(reply, content=[], usage=reply.usage._replace(output_tokens=1))
    yield Step(_event("message_start", message=opening | {"stop_reason": None, "stop_sequence": None}))
    sent = 0
    for index, block in enumerate(reply.content):
        yield Step(
            _event("content_block_start", index=index, content_block=_opening(block))
            + (b"" if index else _event("ping"))
        )
        for chunk in _chunks(block.characters, boundary=None if boundary is None else boundary - sent):
            yield Step(_event("content_block_delta", index=index, delta=_delta(block, chunk)), len(chunk))
        sent += len(block.characters)
        yield Step(_event("content_block_stop", index=index))
    delta = {"stop_reason": reply.stop_reason, "stop_sequence": reply.stop_sequence}
    closing = _event("message_delta", delta=delta, usage=usage_body(reply.usage))
    yield Step(closing + _event("message_stop"), is_last=True)


def message_body(reply: Reply) -> dict[str, Any]:
    """Return the body of a reply that is not streamed."""
    return _message(reply, content=[block.as_block() for block in reply.content], usage=reply.usage)


def usage_body(usage: Usage) -> dict[str, Any]:
    """Return usage as the API names it."""
    return {
        "input_tokens": usage.input_tokens,
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "cache_read_input_tokens": usage.cache_read_tokens,
        "cache_creation": {"ephemeral_5m_input_tokens": usage.cache_write_tokens, "ephemeral_1h_input_tokens": 0},
        "output_tokens": usage.output_tokens,
    }


def error_type(status: int) -> str:
    """Return the API's name for errors of an HTTP status."""
    return _ERROR_TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")


def error_text(status: int) -> str:
    """Return what an injected error says."""
    return _ERROR_TEXTS.get(status, f"Rehearsed error {status}")


def error_body(kind: str, message: str, request_id: str) -> dict[str, Any]:
    """Return the body of an API error."""
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": request_id}


def malformed_event() -> bytes:
    """Return an event whose JSON ends in the middle."""
    return b'event: content_block_delta\ndata: {"type": "content_block_delta", "index": 0, "delta": {"ty\n\n'


def error_event(kind: str, message: str, request_id: str) -> bytes:
    """Return the event by which a stream that has begun reports an error."""
    return _data("error", error_body(kind, message, request_id))


def _message(reply: Reply, *, content: list[dict[str, Any]], usage: Usage) -> dict[str, Any]:
    return {
        "id": reply.message_id,
        "type": "message",
        "role": "assistant",
        "model": reply.model,
        "content": content,
        "stop_reason": reply.stop_reason,
        "stop_sequence": reply.stop_sequence,
        "usage": usage_body(usage) | {"service_tier": "standard"},
    }


def _opening(block: Written) -> dict[str, Any]:
    if block.kind == "text":
        return {"type": "text", "text": ""}
    return {"type": "tool_use", "id": block.tool_use_id, "name": block.tool, "input": {}}


def _delta(block: Written, chunk: str) -> dict[str, str]:
    if block.kind == "text":
        return {"type": "text_delta", "text": chunk}
    return {"type": "input_json_delta", "partial_json": chunk}


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
    return f"event: {kind}\ndata: {json.dumps(body)}\n\n".encode()

"""The Messages API between callers and the gateway: how requests are checked, replies read and calls refused.

Claude Code speaks no other API, so workers use it too; a provider with another API translates (providers/). A body
is parsed once and serialised again: a duplicate key cannot show one value to the gateway and another to the provider.

In a refusal, `type` decides what the SDK and the CLI do; `details.error_code` is for our own client.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from pydantic_core import PydanticSerializationError, from_json, to_json

from gateway.errors import GatewayError
from routing.policy.prices import Usage

MESSAGES_PATH = "/v1/messages"
COUNT_PATH = "/v1/messages/count_tokens"


@dataclass(frozen=True)
class ModelRequest:
    """A well-formed request for a model that its caller may use."""

    fields: dict[str, Any]
    model: str
    """As the provider calls it."""
    max_tokens: int
    """Requested output tokens, capped by the policy; 0 for a request to count tokens."""
    streams: bool
    encoded: bytes
    """The body to send with this `max_tokens`."""
    received: bytes
    """The body as the caller sent it."""

    @property
    def has_tools(self) -> bool:
        """Whether the request offers tools, for which the provider adds text of its own to the prompt."""
        return bool(self.fields.get("tools"))

    @property
    def thinking_tokens(self) -> int:
        """The thinking budget; the provider refuses a `max_tokens` below it."""
        thinking = self.fields.get("thinking")
        budget = thinking.get("budget_tokens") if isinstance(thinking, dict) else None
        return budget if isinstance(budget, int) and budget > 0 else 0

    def with_max_tokens(self, max_tokens: int) -> bytes:
        """Return the body to send with another `max_tokens`."""
        return self.encoded if max_tokens == self.max_tokens else encode(self.fields | {"max_tokens": max_tokens})


def parse_request(
    raw: bytes,
    *,
    models: frozenset[str],
    most_tokens: int,
    names: Mapping[str, str] = MappingProxyType({}),
    is_count: bool = False,
) -> ModelRequest:
    """Parse and check the body of a request.

    `names` are what the provider calls the `models` that the caller may use; only a count has no `max_tokens`.

    Raises:
        RefusedError: the caller's fault; names the field and the rule.
    """
    try:
        fields = from_json(raw, allow_inf_nan=False)
    except ValueError:
        raise bad_request("the body is not valid JSON") from None
    if not isinstance(fields, dict):
        raise bad_request("the body must be a JSON object")
    model = fields.get("model")
    if not isinstance(model, str) or model not in models:
        raise RefusedError(Code.MODEL_REFUSED, "model: this queue may not call it")
    if not isinstance(fields.get("messages"), list):
        raise bad_request("messages: must be a list")
    if not isinstance(fields.get("stream", False), bool):
        raise bad_request("stream: must be true or false")
    max_tokens = 0
    if not is_count:
        max_tokens = _max_tokens(fields, most_tokens)
        fields["max_tokens"] = max_tokens
    if (name := names.get(model, model)) != model:
        fields["model"] = name
    return ModelRequest(fields, name, max_tokens, bool(fields.get("stream", False)), encode(fields), raw)


def encode(fields: dict[str, Any]) -> bytes:
    """Serialise the fields of a request.

    Raises:
        RefusedError: the caller's fault.
    """
    try:
        return to_json(fields)
    except PydanticSerializationError:
        raise bad_request("the body holds text that is not valid Unicode") from None


def bad_request(message: str) -> RefusedError:
    """Return the refusal of a malformed body."""
    return RefusedError(Code.BAD_REQUEST, message)


def _max_tokens(fields: dict[str, Any], most_tokens: int) -> int:
    tokens = fields.get("max_tokens")
    if not isinstance(tokens, int) or isinstance(tokens, bool) or tokens < 1:
        raise bad_request("max_tokens: must be an integer of at least 1")
    return min(tokens, most_tokens)


def as_event(kind: str, data: bytes) -> bytes:
    """Return an event of a stream."""
    return b"event: " + kind.encode() + b"\ndata: " + data + b"\n\n"


_TOOL_INPUT = "partial_json"
_PIECES = {
    ("text_delta", "text"): "text",
    ("thinking_delta", "thinking"): "thinking",
    ("input_json_delta", "tool_use"): _TOOL_INPUT,
    ("input_json_delta", "server_tool_use"): _TOOL_INPUT,
}
"""By types of a delta and of its block: the delta's field whose pieces make up the block's."""
_TOTALS = (
    "input_tokens",
    "output_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
    "server_tool_use",
    "output_tokens_details",
)
"""What the end of a reply states again."""


MALFORMED = (ValueError, TypeError, LookupError, AttributeError)
"""What reading a reply raises that is not of the API."""


class ReplyReader:
    """Puts a streamed reply together as the anthropic SDK does, which the tests hold it equal to.

    It is given whatever a provider sends: what is not of the API raises one of `MALFORMED`.
    """

    def __init__(self) -> None:
        self._message: dict[str, Any] | None = None
        self._blocks: list[dict[str, Any]] = []
        self._pieces: dict[tuple[int, str], list[str]] = {}

    def read(self, event: Mapping[str, Any]) -> None:
        """Take one event; one of an unknown type is passed over."""
        kind = event.get("type")
        if self._message is None:
            if kind == "message_start":
                self._message = dict(event["message"])
                self._blocks = [dict(block) for block in self._message.get("content", ())]
        elif kind == "content_block_start":
            self._blocks.append(dict(event["content_block"]))
        elif kind == "content_block_delta":
            self._read_delta(event["index"], event["delta"])
        elif kind == "message_delta":
            delta = event["delta"]
            self._message |= {name: delta.get(name) for name in ("stop_reason", "stop_sequence", "stop_details")}
            totals = {name: total for name, total in event["usage"].items() if name in _TOTALS and total is not None}
            self._message["usage"] = {**self._message["usage"], **totals}

    def _read_delta(self, index: int, delta: Mapping[str, Any]) -> None:
        block, kind = self._blocks[index], delta["type"]
        if (name := _PIECES.get((kind, block["type"]))) is not None:
            self._pieces.setdefault((index, name), []).append(delta[name])
        elif (kind, block["type"]) == ("signature_delta", "thinking"):
            block["signature"] = delta["signature"]
        elif (kind, block["type"]) == ("citations_delta", "text"):
            block["citations"] = [*(block.get("citations") or ()), delta["citation"]]

    def message(self) -> dict[str, Any] | None:
        """Return the message without empty fields and any cut tool input as far as it goes; None: it broke off."""
        if self._message is None or self._message.get("stop_reason") is None:
            return None
        blocks = [dict(block) for block in self._blocks]
        for (index, name), pieces in self._pieces.items():
            written = "".join(pieces)
            if name != _TOOL_INPUT:
                blocks[index][name] += written
            elif written:
                blocks[index]["input"] = from_json(written, allow_partial=True)
        return {
            name: _filled(value) for name, value in (self._message | {"content": blocks}).items() if value is not None
        }


def usage_of(message: Mapping[str, Any]) -> Usage:
    """Return the usage that a message states; raises one of `MALFORMED` if it states none."""
    usage = message["usage"]
    cached = (usage.get("cache_creation_input_tokens", 0), usage.get("cache_read_input_tokens", 0))
    return Usage(usage["input_tokens"], usage["output_tokens"], *cached)


def _filled(value: Any) -> Any:
    """Return a value without the empty fields in it; a tool's input is its own."""
    if isinstance(value, list):
        return [_filled(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {name: item if name == "input" else _filled(item) for name, item in value.items() if item is not None}


class Code(StrEnum):
    """Why a call was refused or cut; gateway/client.py turns each code into an error."""

    UNKNOWN_TOKEN = "unknown_token"
    ATTEMPT_ENDED = "attempt_ended"
    DEADLINE_PASSED = "deadline_passed"
    FENCED = "fenced"
    CANCELLED = "cancelled"
    WRONG_ADDRESS = "wrong_address"
    NO_PROVIDER = "no_provider"
    BAD_REQUEST = "bad_request"
    TOO_LARGE = "too_large"
    MODEL_REFUSED = "model_refused"
    FEATURE_REFUSED = "feature_refused"
    OVERRIDES_INVALID = "overrides_invalid"
    NOT_FOUND = "not_found"
    BUDGET_EXCEEDED = "budget_exceeded"
    CIRCUIT_OPEN = "circuit_open"
    RATE_LIMITED = "rate_limited"
    LEDGER_UNREACHABLE = "ledger_unreachable"
    PROVIDER_UNREACHABLE = "provider_unreachable"
    PROVIDER_GONE = "provider_gone"
    SHUTTING_DOWN = "shutting_down"


_ANSWERS: dict[Code, tuple[int, str]] = {
    Code.UNKNOWN_TOKEN: (401, "authentication_error"),
    Code.ATTEMPT_ENDED: (401, "authentication_error"),
    Code.DEADLINE_PASSED: (401, "authentication_error"),
    Code.WRONG_ADDRESS: (401, "authentication_error"),
    Code.FENCED: (403, "permission_error"),
    Code.CANCELLED: (403, "permission_error"),
    Code.NO_PROVIDER: (403, "permission_error"),
    Code.BAD_REQUEST: (400, "invalid_request_error"),
    Code.TOO_LARGE: (413, "request_too_large"),
    Code.MODEL_REFUSED: (403, "permission_error"),
    Code.FEATURE_REFUSED: (403, "permission_error"),
    Code.OVERRIDES_INVALID: (403, "permission_error"),
    Code.NOT_FOUND: (404, "not_found_error"),
    Code.BUDGET_EXCEEDED: (429, "billing_error"),
    Code.CIRCUIT_OPEN: (429, "rate_limit_error"),
    Code.RATE_LIMITED: (429, "rate_limit_error"),
    Code.LEDGER_UNREACHABLE: (503, "overloaded_error"),
    Code.PROVIDER_UNREACHABLE: (502, "api_error"),
    Code.PROVIDER_GONE: (502, "api_error"),
    Code.SHUTTING_DOWN: (503, "overloaded_error"),
}


SHORT_WAIT_SECONDS = 5.0
"""The longest wait worth blocking a caller for; beyond it, deferring the job frees its worker and box."""


def retry_headers(seconds: float) -> list[tuple[bytes, bytes]]:
    """Return the headers that say when to retry, and whether the caller should wait for it.

    Without `x-should-retry: false` the CLI sleeps for as long as `retry-after` says, however long that is.
    """
    whole = max(1, math.ceil(seconds))
    should_retry = b"true" if whole <= SHORT_WAIT_SECONDS else b"false"
    return [(b"retry-after", str(whole).encode()), (b"x-should-retry", should_retry)]


class RefusedError(GatewayError):
    """The gateway refused or cut a call; the code says whose fault it is."""

    def __init__(self, code: Code, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.retry_after = retry_after
        """Seconds after which a retry may succeed; None when retrying is pointless."""

    def __str__(self) -> str:
        return self.message

    @property
    def status(self) -> int:
        """HTTP status of the answer."""
        return _ANSWERS[self.code][0]

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """Headers of the answer; they forbid a retry unless `retry_after` is set."""
        waiting = [(b"x-should-retry", b"false")] if self.retry_after is None else retry_headers(self.retry_after)
        return [(b"content-type", b"application/json"), *waiting]

    @property
    def body(self) -> bytes:
        """Body of the answer."""
        return to_json(self._fields())

    @property
    def event(self) -> bytes:
        """The refusal as an event, for a stream that has already begun."""
        return as_event("error", to_json(self._fields()))

    def _fields(self) -> dict[str, Any]:
        kind = _ANSWERS[self.code][1]
        details = {"error_code": self.code.value}
        return {"type": "error", "error": {"type": kind, "message": self.message, "details": details}}

"""The Anthropic provider, or any server of the same API: the only module that knows its limits, fields and pricing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from uuid import UUID

from pydantic_core import from_json

from gateway.messages import COUNT_PATH, MESSAGES_PATH, Code, ModelRequest, RefusedError, bad_request, encode
from gateway.providers import EventSplitter, Meter, UpstreamRequest, WorstInput, data_of
from routing.policy.prices import Price, Usage, nanousd_per_token
from routing.provider_circuit import Trouble

_DEFAULT_VERSION = "2023-06-01"
_PASSED_BACK = frozenset({"content-type", "request-id", "retry-after", "x-should-retry"})

_SERVER_SIDE_FIELDS = ("mcp_servers", "container")
"""Fields that make the provider reach out or run code for the caller, which would bypass the sandbox."""
_PRICED_FIELDS: dict[str, tuple[str, ...]] = {
    "speed": ("standard",),
    "service_tier": ("auto", "standard_only"),
    "inference_geo": ("global", "not_available"),
}
"""Fields that change the price, and the values for which the price table holds."""
_INLINE_SOURCES = frozenset({"base64", "text", "content"})
"""Image and document sources whose content is in the body, so that the body's size bounds their tokens."""
_COUNTED_FIELDS = ("model", "messages", "system", "tools", "tool_choice", "thinking")
"""The fields that `count_tokens` accepts; it refuses all others."""
_BYTES_PER_INPUT_TOKEN = 2
TOOL_PROMPT_TOKENS = 600
"""Upper bound of what the provider adds to a prompt with tools: 264 to 530 tokens, by its documentation."""
_LONG_CACHE_FACTOR = 2
"""The one-hour cache's write price as a multiple of the input price; the price table has the five-minute cache."""
_COUNT_MARGIN = 50
"""The provider's count is an estimate: a fiftieth and fifty tokens are added to it."""

_HIDDEN_BLOCKS = ("thinking", "redacted_thinking")
_STATUSES = {429: Trouble.RATE_LIMITED, 503: Trouble.OVERLOADED, 529: Trouble.OVERLOADED}
_ERROR_KINDS = {
    "rate_limit_error": Trouble.RATE_LIMITED,
    "overloaded_error": Trouble.OVERLOADED,
    "api_error": Trouble.FAILING,
    "timeout_error": Trouble.FAILING,
}


class AnthropicProvider:
    """An account at Anthropic."""

    def __init__(self, base_url: str, key: str) -> None:
        self._base_url = base_url.rstrip("/")
        self._key = key

    def check(self, request: ModelRequest) -> None:
        """Refuse server-side features, fields with another price, and references to media."""
        _check_features(request.fields)
        if b'"type":"url"' in request.encoded or b'"type":"file"' in request.encoded:
            _check_sources(request.fields["messages"])

    def worst_input(self, request: ModelRequest, price: Price, *, counted: int | None = None) -> WorstInput:
        """Bound the tokens by the body's size or the provider's count, each at the most expensive kind of input."""
        tokens = most_input_tokens(request.encoded, has_tools=request.has_tools)
        if counted is not None:
            tokens = min(counted, tokens)
        has_long_cache = b'"ttl":"1h"' in request.encoded
        return WorstInput(tokens, most_input_nanousd(price, tokens, has_long_cache=has_long_cache))

    def call(
        self, request: ModelRequest, *, max_tokens: int, headers: Mapping[bytes, bytes], call_id: UUID
    ) -> UpstreamRequest:
        """Return the checked body as a request."""
        own = self._headers(headers) | {"x-pointsman-call": str(call_id)}
        return UpstreamRequest(self._base_url + MESSAGES_PATH, own, request.with_max_tokens(max_tokens))

    def count(self, request: ModelRequest, *, headers: Mapping[bytes, bytes]) -> UpstreamRequest | None:
        """Return a caller's own count request unchanged; of a call, only the fields that can be counted."""
        body = request.encoded
        if request.max_tokens:
            body = encode({name: request.fields[name] for name in _COUNTED_FIELDS if name in request.fields})
        return UpstreamRequest(self._base_url + COUNT_PATH, self._headers(headers), body)

    def read_count(self, body: bytes) -> int | None:
        """Return `input_tokens` with the margin."""
        try:
            tokens = from_json(body)["input_tokens"]
        except (ValueError, KeyError, TypeError):
            return None
        if not isinstance(tokens, int) or isinstance(tokens, bool) or tokens < 1:
            return None
        return tokens + tokens // _COUNT_MARGIN + _COUNT_MARGIN

    def open_stream(self, meter: Meter) -> _EventStream:
        """Return a reader that passes events on unchanged."""
        return _EventStream(meter)

    def read_reply(self, body: bytes, meter: Meter) -> bytes:
        """Meter a message and pass it on unchanged."""
        read_message(body, meter)
        return body

    def pass_back(self, body: bytes) -> bytes:
        """Redact the key, should the provider echo it."""
        return body.replace(self._key.encode(), b"[redacted]")

    def reply_headers(self, headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
        """Pass on retry advice, the request id and rate limits."""
        return [
            (name.lower().encode("latin-1"), value.encode("latin-1"))
            for name, value in headers.items()
            if name.lower() in _PASSED_BACK or name.lower().startswith("anthropic-ratelimit-")
        ]

    def trouble_of(self, status: int | None, *, kind: str = "") -> Trouble | None:
        """Judge by the error's kind, else by the status."""
        if kind:
            return _ERROR_KINDS.get(kind)
        if status is None:
            return Trouble.FAILING
        return _STATUSES.get(status) or (Trouble.FAILING if status >= 500 else None)

    def _headers(self, headers: Mapping[bytes, bytes]) -> dict[str, str]:
        passed = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in headers.items()
            if name.startswith(b"anthropic-")
        }
        passed.setdefault("anthropic-version", _DEFAULT_VERSION)
        return passed | {
            "x-api-key": self._key,
            "content-type": "application/json",
            "accept-encoding": "identity",
        }


def most_input_tokens(encoded: bytes, *, has_tools: bool) -> int:
    """Return an upper bound of a body's input tokens."""
    return -(-len(encoded) // _BYTES_PER_INPUT_TOKEN) + (TOOL_PROMPT_TOKENS if has_tools else 0)


def most_input_nanousd(price: Price, tokens: int, *, has_long_cache: bool) -> int:
    """Return the cost of input tokens at the most expensive kind of input."""
    kinds = (price.input, price.cache_write, price.cache_read)
    dearest = max(*kinds, _LONG_CACHE_FACTOR * price.input if has_long_cache else 0)
    return tokens * nanousd_per_token(dearest)


def _check_features(fields: dict[str, Any]) -> None:
    for name in _SERVER_SIDE_FIELDS:
        if fields.get(name):
            raise RefusedError(Code.FEATURE_REFUSED, f"{name}: the provider may not act for the caller")
    for name, values in _PRICED_FIELDS.items():
        if fields.get(name) is not None and fields[name] not in values:
            raise RefusedError(Code.FEATURE_REFUSED, f"{name}: only {' or '.join(values)} is in the price table")
    tools = [] if fields.get("tools") is None else fields["tools"]
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise bad_request("tools: must be a list of objects")
    if any((tool.get("type") or "custom") != "custom" for tool in tools):
        raise RefusedError(Code.FEATURE_REFUSED, "tools: only tools that the caller runs itself (type custom)")


def _check_sources(messages: list[Any]) -> None:
    for block in _blocks(messages):
        source = block.get("source")
        if isinstance(source, dict) and source.get("type") not in _INLINE_SOURCES:
            raise RefusedError(Code.FEATURE_REFUSED, "messages: an image or document must be in the body, no reference")


def _blocks(parts: Any) -> Iterator[dict[str, Any]]:
    """Yield every content block, including those inside tool results and documents."""
    pending = [parts]
    while pending:
        part = pending.pop()
        if isinstance(part, list):
            pending.extend(part)
        elif isinstance(part, dict):
            yield part
            pending.append(part.get("content"))
            if isinstance(part.get("source"), dict):
                pending.append(part["source"].get("content"))


class _EventStream:
    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._splitter = EventSplitter()

    def feed(self, chunk: bytes) -> bytes:
        events = self._splitter.feed(chunk)
        for event in events:
            read_event(data_of(event), self._meter)
        return b"".join(events)


def read_event(data: bytes, meter: Meter) -> None:
    """Meter one event of a stream."""
    try:
        event = from_json(data) if data else None
    except ValueError:
        meter.garble()
        return
    if isinstance(event, dict):
        kind = event.get("type")
        if kind == "content_block_delta":
            _read_delta(event.get("delta"), meter)
        elif kind == "message_start":
            _read_usage(_part(event, "message").get("usage"), meter, is_first=True)
        elif kind == "message_delta":
            _read_usage(event.get("usage"), meter, is_first=False)
        elif kind == "content_block_start" and _part(event, "content_block").get("type") in _HIDDEN_BLOCKS:
            meter.hide_output()
        elif kind == "message_stop":
            meter.complete()
        elif kind == "error":
            meter.fail(_part(event, "error").get("type"))


def _part(event: dict[str, Any], name: str) -> dict[str, Any]:
    part = event.get(name)
    return part if isinstance(part, dict) else {}


def read_message(body: bytes, meter: Meter) -> None:
    """Meter the body of an unstreamed reply."""
    try:
        message = from_json(body)
    except ValueError:
        meter.garble()
        return
    _read_usage(message.get("usage") if isinstance(message, dict) else None, meter, is_first=True)
    meter.complete_whole()


def _read_delta(delta: Any, meter: Meter) -> None:
    if isinstance(delta, dict):
        for field in ("text", "partial_json", "thinking"):
            value = delta.get(field)
            if isinstance(value, str):
                meter.count_characters(len(value))


def _read_usage(usage: Any, meter: Meter, *, is_first: bool) -> None:
    """Read the totals so far; the first ones hold the input's usage."""
    counts = [usage.get(name) for name in _USAGE_FIELDS] if isinstance(usage, dict) else []
    if (
        not counts
        or not all(count is None or _is_count(count) for count in counts)
        or (counts[0] is None if is_first else not meter.has_started)
    ):
        meter.garble()
        return
    meter.count_input(Usage(counts[0] or 0, 0, counts[2] or 0, counts[3] or 0))
    if counts[1] is not None:
        meter.count_output(counts[1], is_final=not is_first)
    written = usage.get("cache_creation")
    long_cache = written.get("ephemeral_1h_input_tokens") if isinstance(written, dict) else None
    if isinstance(long_cache, int) and long_cache > 0:
        dearer = _LONG_CACHE_FACTOR * nanousd_per_token(meter.price.input) - nanousd_per_token(meter.price.cache_write)
        meter.count_dear_writes(long_cache, nanousd_each=max(0, dearer))


_USAGE_FIELDS = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0

"""The Anthropic provider, or any server of the same API: the only module that knows its limits, fields and pricing."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from uuid import UUID

from pydantic_core import from_json

from gateway.media import image_size, pdf_pages
from gateway.messages import COUNT_PATH, MESSAGES_PATH, Code, ModelRequest, RefusedError, bad_request, encode
from gateway.providers.prompt_cache import KnownPrefix, PromptCache
from gateway.providers.provider import (
    EventSplitter,
    Meter,
    Provider,
    ReplyStream,
    UpstreamRequest,
    WorstInput,
    data_of,
    is_count,
)
from routing.policy.prices import Price, Usage, nanousd_per_token

_DEFAULT_VERSION = b"2023-06-01"
_PASSED_BACK = frozenset({"content-type", "request-id", "retry-after", "x-should-retry"})

_BETAS = (
    "cache-diagnosis-",
    "claude-code-",
    "context-management-",
    "effort-",
    "extended-cache-ttl-",
    "fine-grained-tool-streaming-",
    "interleaved-thinking-",
    "mid-conversation-system-",
    "pdfs-",
    "prompt-caching-",
    "redact-thinking-",
    "structured-outputs-",
    "thinking-display-updates-",
    "thinking-token-count-",
    "token-counting-",
    "token-efficient-tools-",
)
"""What of `anthropic-beta` is passed on: neither changes the price nor makes the provider act for the caller."""
_FIELDS = frozenset(
    {
        "cache_control",
        "context_management",
        "max_tokens",
        "messages",
        "metadata",
        "model",
        "output_config",
        "output_format",
        "stop_sequences",
        "stream",
        "system",
        "temperature",
        "thinking",
        "tool_choice",
        "tools",
        "top_k",
        "top_p",
    }
)
"""Fields that are passed on; the provider would run code, reach out or call another model for some of the others."""
_PRICED_FIELDS: dict[str, tuple[str, ...]] = {
    "speed": ("standard",),
    "service_tier": ("auto", "standard_only"),
    "inference_geo": ("global", "not_available"),
}
"""Fields that change the price, and the values for which the price table holds."""
_BLOCKS = (
    None,
    "text",
    "image",
    "document",
    "search_result",
    "tool_use",
    "tool_result",
    "thinking",
    "redacted_thinking",
)
"""Types of content whose cost follows from the body, media apart; a message itself has no type."""
_INLINE_SOURCES = ("base64", "text", "content")
_PAGE_TEXT_TOKENS = 3000
"""The most that the text of a page costs, by the provider's documentation; its image is added."""
COUNTED_FIELDS = ("model", "messages", "system", "tools", "tool_choice", "thinking", "output_config")
"""The fields that `count_tokens` accepts; it refuses all others."""
_BYTES_PER_INPUT_TOKEN = 2
_PATCH_PIXELS = 28
_PIXELS_PER_TOKEN = 750
_SHOWN_CHARACTERS = 40
TOOL_PROMPT_TOKENS = 600
"""Upper bound of what the provider adds to a prompt with tools: 264 to 530 tokens, by its documentation."""
_LONG_CACHE_FACTOR = 2
"""The one-hour cache's write price as a multiple of the input price; the price table has the five-minute cache."""
_COUNT_MARGIN = 50
"""The provider's count is an estimate: a fiftieth and fifty tokens are added to it."""


class AnthropicProvider(Provider):
    """An account at Anthropic."""

    def __init__(self, base_url: str, key: str) -> None:
        self._base_url = base_url.rstrip("/")
        self._key = key
        self._prompts = PromptCache()

    def check(self, request: ModelRequest, *, allows_references: bool) -> None:
        """Refuse what is not known to cost what the price table says, and what the provider would do for the caller."""
        _check_fields(request.fields)
        for block in _content(request.fields):
            _check_block(block, allows_references=allows_references)

    def worst_input(
        self,
        request: ModelRequest,
        price: Price,
        *,
        headers: Mapping[bytes, bytes],
        counted: int | None = None,
        trusts_cache: bool = False,
    ) -> WorstInput | None:
        """Bound the tokens by text, media, known prefix or the provider's count; price them as dearly as can be."""
        text, media = measure(request, price)
        if media is None and counted is None:
            return None
        known = KnownPrefix()
        if _keeps_prompt(request):
            known = self._prompts.known(request.fields, context=betas_of(headers), now=time.monotonic())
        bounds = [] if counted is None else [counted]
        if media is not None:
            bounds += [text + media, text + media - known.text_bytes // _BYTES_PER_INPUT_TOKEN + known.tokens]
        tokens = min(bounds)
        cached = min(known.cached_tokens, tokens) if trusts_cache else 0
        rest = most_input_nanousd(price, tokens - cached, encoded=request.encoded)
        return WorstInput(tokens, cached * nanousd_per_token(price.cache_read) + rest)

    def note_usage(
        self, request: ModelRequest, usage: Usage, *, headers: Mapping[bytes, bytes], sent_at: float
    ) -> None:
        """Remember the prefix that the provider has in its cache now."""
        if _keeps_prompt(request):
            self._prompts.note(request.fields, usage, context=betas_of(headers), sent_at=sent_at)

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
            body = encode({name: request.fields[name] for name in COUNTED_FIELDS if name in request.fields})
        return UpstreamRequest(self._base_url + COUNT_PATH, self._headers(headers), body)

    def read_count(self, body: bytes) -> int | None:
        """Return `input_tokens` with the margin."""
        try:
            tokens = from_json(body)["input_tokens"]
        except (ValueError, KeyError, TypeError):
            return None
        if not is_count(tokens) or tokens < 1:
            return None
        return tokens + tokens // _COUNT_MARGIN + _COUNT_MARGIN

    def open_stream(self, meter: Meter) -> ReplyStream:
        """Return a reader that passes events on unchanged."""
        return _EventStream(meter)

    def read_reply(self, body: bytes, meter: Meter) -> bytes:
        """Meter a message and pass it on unchanged."""
        read_message(body, meter)
        return body

    def pass_back(self, body: bytes, *, status: int) -> bytes:
        """Redact the key, should the provider echo it."""
        return body.replace(self._key.encode(), b"[redacted]")

    def reply_headers(self, headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
        """Pass on retry advice, the request id and rate limits."""
        return [
            (name.lower().encode("latin-1"), value.encode("latin-1"))
            for name, value in headers.items()
            if name.lower() in _PASSED_BACK or name.lower().startswith("anthropic-ratelimit-")
        ]

    def _headers(self, headers: Mapping[bytes, bytes]) -> dict[str, str]:
        betas = betas_of(headers)
        return ({"anthropic-beta": betas} if betas else {}) | {
            "anthropic-version": headers.get(b"anthropic-version", _DEFAULT_VERSION).decode("latin-1"),
            "x-api-key": self._key,
            "content-type": "application/json",
            "accept-encoding": "identity",
        }


class Measured(NamedTuple):
    """Upper bounds of what a request's two kinds of content cost, in tokens."""

    text: int
    media: int | None
    """None if a document's pages cannot be counted here."""


def measure(request: ModelRequest, price: Price) -> Measured:
    """Bound the tokens of media by pixels and pages, and those of everything else by its bytes."""
    text_bytes, media = len(request.encoded), 0
    is_counted = True
    for block in _content(request.fields):
        source = _part(block, "source")
        if block.get("type") not in ("image", "document") or source.get("type") in ("text", "content"):
            continue
        is_inline = source.get("type") == "base64" and isinstance(source.get("data"), str)
        text_bytes -= len(source["data"]) if is_inline else 0
        if is_counted:
            tokens = _tokens_of_file(block, price) if is_inline else _tokens_of_reference(block, price)
            is_counted = tokens is not None
            media += tokens or 0
    return Measured(most_text_tokens(text_bytes, has_tools=request.has_tools), media if is_counted else None)


def _tokens_of_file(block: dict[str, Any], price: Price) -> int | None:
    data = block["source"]["data"]
    if block.get("type") == "image":
        size = image_size(data)
        return price.image_tokens if size is None else min(price.image_tokens, image_tokens(*size))
    pages = pdf_pages(data)
    return None if pages is None else pages * (_PAGE_TEXT_TOKENS + price.image_tokens)


def _tokens_of_reference(block: dict[str, Any], price: Price) -> int:
    return price.image_tokens if block.get("type") == "image" else price.context_tokens


def image_tokens(width: int, height: int) -> int:
    """Return what an image costs that is not scaled down: its patches, or its pixels by the older rule."""
    patches = -(-width // _PATCH_PIXELS) * -(-height // _PATCH_PIXELS)
    return max(patches, -(-width * height // _PIXELS_PER_TOKEN))


def most_text_tokens(text_bytes: int, *, has_tools: bool) -> int:
    """Return an upper bound of the tokens of so many bytes of a request."""
    return -(-text_bytes // _BYTES_PER_INPUT_TOKEN) + (TOOL_PROMPT_TOKENS if has_tools else 0)


def most_input_nanousd(price: Price, tokens: int, *, encoded: bytes) -> int:
    """Return what input tokens cost at most; none is written to a cache unless the request asks for it."""
    kinds = [price.input]
    if b'"cache_control":{' in encoded:
        kinds += [price.cache_write, price.cache_read]
    if b'"ttl":"1h"' in encoded:
        kinds.append(_LONG_CACHE_FACTOR * price.input)
    return tokens * nanousd_per_token(max(kinds))


def _keeps_prompt(request: ModelRequest) -> bool:
    """Whether the prompt is cached, and counted as it is sent: the provider clears old tool uses only of a long one."""
    return b'"cache_control":{' in request.encoded and b'"clear_tool_uses' not in request.encoded


def betas_of(headers: Mapping[bytes, bytes]) -> str:
    """Return the names in a request's `anthropic-beta` that may be passed on."""
    named = (name.strip() for name in headers.get(b"anthropic-beta", b"").decode("latin-1").split(","))
    return ",".join(name for name in named if name.startswith(_BETAS))


def _check_fields(fields: dict[str, Any]) -> None:
    for name in fields:
        if name not in _FIELDS and name not in _PRICED_FIELDS:
            raise RefusedError(Code.FEATURE_REFUSED, f"{name[:_SHOWN_CHARACTERS]}: this gateway does not pass it on")
    for name, values in _PRICED_FIELDS.items():
        if fields.get(name) is not None and fields[name] not in values:
            raise RefusedError(Code.FEATURE_REFUSED, f"{name}: only {' or '.join(values)} is in the price table")
    tools = [] if fields.get("tools") is None else fields["tools"]
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise bad_request("tools: must be a list of objects")
    if any((tool.get("type") or "custom") != "custom" for tool in tools):
        raise RefusedError(Code.FEATURE_REFUSED, "tools: only tools that the caller runs itself (type custom)")
    for edit in _blocks(_part(fields, "context_management").get("edits")):
        if not str(edit.get("type")).startswith("clear_"):
            raise RefusedError(Code.FEATURE_REFUSED, "context_management: only edits that clear, none that writes")


def _check_block(block: dict[str, Any], *, allows_references: bool) -> None:
    if block.get("type") not in _BLOCKS:
        raise RefusedError(Code.FEATURE_REFUSED, "messages: a type of content that this gateway does not pass on")
    source = block.get("source")
    if isinstance(source, dict) and source.get("type") not in _INLINE_SOURCES and not allows_references:
        raise RefusedError(Code.FEATURE_REFUSED, "messages: an image or document must be in the body, no reference")


def _content(fields: dict[str, Any]) -> Iterator[dict[str, Any]]:
    return _blocks([fields.get("system"), fields["messages"]])


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
        or not all(count is None or is_count(count) for count in counts)
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

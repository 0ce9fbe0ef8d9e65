"""Any server of the OpenAI chat-completions API (OpenAI, vLLM, Ollama, llama.cpp, OpenRouter, ...).

Requests, replies and errors are translated from and to the Messages API. What cannot be translated is refused by the
field's name; only marks of a prompt cache are left out, since such servers keep one by themselves. The API counts no
tokens beforehand and states usage only at a reply's end: a call that is cut is booked at its reserve.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from uuid import UUID, uuid4

from pydantic_core import from_json, to_json

from gateway.messages import Code, ModelRequest, RefusedError, as_event, bad_request, encode
from gateway.providers.provider import (
    EventSplitter,
    Meter,
    Provider,
    UpstreamRequest,
    WorstInput,
    data_of,
    error_body,
    error_fields,
    is_count,
    message_of_error,
)
from routing.policy.prices import Price, Usage, nanousd_per_token

_FIELDS = frozenset(
    {
        "max_tokens",
        "messages",
        "metadata",
        "model",
        "stop_sequences",
        "stream",
        "system",
        "temperature",
        "tool_choice",
        "tools",
        "top_p",
    }
)
_SHOWN_CHARACTERS = 40
_FRAME_TOKENS = 64
"""More than a chat template adds around one message or one tool."""
_OWN_HOST = "api.openai.com"
"""Its newer models refuse `max_tokens`; other servers know no `max_completion_tokens`."""
_CHOICES: Mapping[str, str] = {"auto": "auto", "any": "required", "none": "none"}
_STOPS: Mapping[Any, str] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}
_PASSED_BACK = {"content-type": b"content-type", "retry-after": b"retry-after", "x-request-id": b"request-id"}
_END = b"[DONE]"


class OpenAIProvider(Provider):
    """An account at a server of the chat-completions API; its base URL ends before `/chat/completions`."""

    def __init__(self, base_url: str, key: str) -> None:
        self._url = f"{base_url.rstrip('/')}/chat/completions"
        self._key = key
        self._limit_field = "max_completion_tokens" if urlsplit(base_url).hostname == _OWN_HOST else "max_tokens"

    def check(self, request: ModelRequest, *, allows_references: bool) -> None:
        """Refuse what has no equal in this API."""
        for name, value in request.fields.items():
            if name not in _FIELDS and value is not None:
                text = f"{name[:_SHOWN_CHARACTERS]}: this provider's API has nothing like it"
                raise RefusedError(Code.FEATURE_REFUSED, text)
        for image in _images(request.fields["messages"]):
            source = image.get("source")
            if not (isinstance(source, dict) and source.get("type") == "base64") and not allows_references:
                raise RefusedError(Code.FEATURE_REFUSED, "messages: an image must be in the body, no reference")
        _translated(request.fields)

    def worst_input(
        self,
        request: ModelRequest,
        price: Price,
        *,
        headers: Mapping[bytes, bytes],
        counted: int | None = None,
        trusts_cache: bool = False,
    ) -> WorstInput:
        """Count a token for each byte, the most that any tokenizer makes of it, and the frames of a chat template."""
        fields, size, images = request.fields, len(request.encoded), 0
        for image in _images(fields["messages"]):
            data = image.get("source", {}).get("data")
            size -= len(data) if isinstance(data, str) else 0
            images += 1
        frames = len(fields["messages"]) + len(fields.get("tools") or ()) + 1
        tokens = size + frames * _FRAME_TOKENS + images * price.image_tokens
        return WorstInput(tokens, tokens * nanousd_per_token(max(price.input, price.cache_read)))

    def call(
        self, request: ModelRequest, *, max_tokens: int, headers: Mapping[bytes, bytes], call_id: UUID
    ) -> UpstreamRequest:
        """Return the request in this API's words."""
        body = _translated(request.fields) | {self._limit_field: max_tokens}
        own = {
            "authorization": f"Bearer {self._key}",
            "content-type": "application/json",
            "accept-encoding": "identity",
            "x-pointsman-call": str(call_id),
        }
        return UpstreamRequest(self._url, own, encode(body))

    def open_stream(self, meter: Meter) -> ChatStream:
        """Return a translator of the stream."""
        return ChatStream(meter)

    def read_reply(self, body: bytes, meter: Meter) -> bytes:
        """Meter a completion and return it as a message; empty if it is none."""
        try:
            reply = from_json(body)
            choice = reply["choices"][0]
            message = choice["message"]
            content = _content_of(message)
        except (ValueError, LookupError, TypeError, AttributeError):
            meter.begin()
            meter.garble()
            return b""
        meter.begin()
        usage = _NO_USAGE | _read_usage(reply.get("usage"), meter)
        meter.count_characters(_characters(message))
        meter.complete_whole()
        stop = _stop_of(choice.get("finish_reason") or "stop", has_tools=bool(message.get("tool_calls")))
        return to_json(_message(reply, stop_reason=stop, usage=usage) | {"content": content})

    def status_of(self, status: int, body: bytes) -> int:
        """Tell an account without credit from a busy server: the API says 429 of both, and one does not pass."""
        try:
            error = from_json(body).get("error")
        except (ValueError, AttributeError):
            return status
        return HTTPStatus.PAYMENT_REQUIRED if _has_no_credit(error) else status

    def pass_back(self, body: bytes, *, status: int) -> bytes:
        """Return the error as the Messages API words it, without the key."""
        return error_body(status, message_of_error(body)).replace(self._key.encode(), b"[redacted]")

    def reply_headers(self, headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
        """Pass on retry advice and the request id."""
        return [
            (passed, value.encode("latin-1"))
            for name, value in headers.items()
            if (passed := _PASSED_BACK.get(name.lower())) is not None
        ]


def _translated(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request in this API's words, without the limit of its output.

    Raises:
        RefusedError: the caller's fault; names the field and the rule.
    """
    try:
        messages = [{"role": "system", "content": text}] if (text := _text_of(fields.get("system") or "")) else []
        for message in fields["messages"]:
            messages += _turn(message["role"], message["content"])
        body: dict[str, Any] = {"model": fields["model"], "messages": messages}
        if tools := fields.get("tools"):
            body["tools"] = [_tool(tool) for tool in tools]
            body |= _tool_choice(fields.get("tool_choice") or {})
    except (LookupError, TypeError, AttributeError):
        raise bad_request("messages: not of the Messages API") from None
    for name, own in (("temperature", "temperature"), ("top_p", "top_p"), ("stop_sequences", "stop")):
        if fields.get(name) is not None:
            body[own] = fields[name]
    return body | ({"stream": True, "stream_options": {"include_usage": True}} if fields.get("stream") else {})


def _turn(role: str, content: Any) -> list[dict[str, Any]]:
    """Return the messages of one turn: tool results first, since they must follow the calls."""
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if role == "assistant":
        calls = [_call(block) for block in blocks if block["type"] == "tool_use"]
        said = _text_of([block for block in blocks if block["type"] not in _UNSAID])
        return [{"role": role, "content": said or None} | ({"tool_calls": calls} if calls else {})]
    if role != "user":
        raise bad_request("messages.role: must be user or assistant")
    results = [block for block in blocks if block["type"] == "tool_result"]
    parts = [_part(block) for block in blocks if block["type"] != "tool_result"]
    is_plain = all(part["type"] == "text" for part in parts)
    shown = "\n\n".join(part["text"] for part in parts) if is_plain else parts
    return [*map(_result, results), *([{"role": role, "content": shown}] if parts else [])]


_UNSAID = ("tool_use", "thinking", "redacted_thinking")


def _result(block: Mapping[str, Any]) -> dict[str, Any]:
    text = _text_of(block.get("content") or "")
    shown = f"Error: {text}" if block.get("is_error") else text
    return {"role": "tool", "tool_call_id": block["tool_use_id"], "content": shown}


def _part(block: Mapping[str, Any]) -> dict[str, Any]:
    if block["type"] == "text":
        return {"type": "text", "text": block["text"]}
    if block["type"] == "image":
        source = block["source"]
        inline = source["type"] == "base64"
        url = f"data:{source['media_type']};base64,{source['data']}" if inline else source["url"]
        return {"type": "image_url", "image_url": {"url": url}}
    raise _untranslatable(block)


def _text_of(content: Any) -> str:
    """Return the text of a content that may hold nothing else."""
    if isinstance(content, str):
        return content
    if any(block["type"] != "text" for block in content):
        raise _untranslatable(next(block for block in content if block["type"] != "text"))
    return "\n\n".join(block["text"] for block in content)


def _untranslatable(block: Mapping[str, Any]) -> RefusedError:
    kind = str(block["type"])[:_SHOWN_CHARACTERS]
    return RefusedError(Code.FEATURE_REFUSED, f"messages: this provider's API takes no {kind} here")


def _call(block: Mapping[str, Any]) -> dict[str, Any]:
    arguments = to_json(block["input"]).decode()
    return {"id": block["id"], "type": "function", "function": {"name": block["name"], "arguments": arguments}}


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    if (tool.get("type") or "custom") != "custom":
        raise RefusedError(Code.FEATURE_REFUSED, "tools: only tools that the caller runs itself (type custom)")
    described = {"description": tool["description"]} if tool.get("description") else {}
    return {"type": "function", "function": {"name": tool["name"], **described, "parameters": tool["input_schema"]}}


def _tool_choice(choice: Mapping[str, Any]) -> dict[str, Any]:
    kind = choice.get("type", "auto")
    if kind == "tool":
        chosen: Any = {"type": "function", "function": {"name": choice["name"]}}
    else:
        chosen = _CHOICES[kind]
    single = {"parallel_tool_calls": False} if choice.get("disable_parallel_tool_use") else {}
    return {"tool_choice": chosen, **single}


def _images(messages: Any) -> Iterator[dict[str, Any]]:
    for message in messages:
        content = message.get("content") if isinstance(message, dict) else None
        for block in content if isinstance(content, list) else ():
            if isinstance(block, dict) and block.get("type") == "image":
                yield block


class _JsonText:
    """Escapes control characters in the strings of a JSON text that comes in pieces: some servers leave them."""

    def __init__(self) -> None:
        self._is_inside = False
        self._is_escaped = False

    def feed(self, piece: str) -> str:
        return "".join(map(self._read, piece))

    def _read(self, letter: str) -> str:
        if self._is_escaped:
            self._is_escaped = False
        elif letter == '"':
            self._is_inside = not self._is_inside
        elif self._is_inside and letter == "\\":
            self._is_escaped = True
        elif self._is_inside and letter < " ":
            return f"\\u{ord(letter):04x}"
        return letter


class _ToolCall(NamedTuple):
    block: int
    id: str
    arguments: _JsonText


class ChatStream:
    """Translates a stream of chunks into the events of the Messages API."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._splitter = EventSplitter()
        self._text_block: int | None = None
        self._calls: dict[int, _ToolCall] = {}
        """By the server's index; some servers give every call index 0 and tell them apart by id."""
        self._blocks = 0
        self._finish: Any = None
        self._usage: dict[str, int] = {}

    def feed(self, chunk: bytes) -> bytes:
        """Meter some bytes and return the events that they make."""
        parts = self._splitter.feed(chunk)
        events = (event for part in parts for event in self._read(data_of(part).strip()))
        return b"".join(as_event(event["type"], to_json(event)) for event in events)

    def _read(self, data: bytes) -> Iterator[dict[str, Any]]:
        if not data or self._meter.is_complete:
            return
        if data == _END:
            yield from self._close()
            return
        try:
            chunk = from_json(data)
            if isinstance(chunk.get("error"), dict | str):
                fault = error_fields(_status_of(chunk["error"]), message_of_error(data))
                self._meter.fail(fault["error"]["type"])
                yield fault
                return
            if not self._meter.has_started:
                self._meter.begin()
                yield {"type": "message_start", "message": _message(chunk, stop_reason=None, usage=_NO_USAGE)}
            for choice in (chunk.get("choices") or ())[:1]:
                yield from self._read_delta(choice.get("delta") or {})
                self._finish = choice.get("finish_reason") or self._finish
            if chunk.get("usage") is not None:
                self._usage = _read_usage(chunk["usage"], self._meter)
        except (ValueError, LookupError, TypeError, AttributeError):
            self._meter.garble()

    def _read_delta(self, delta: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        self._meter.count_characters(_characters(delta))
        if text := delta.get("content"):
            if self._text_block is None:
                self._text_block = self._next_block()
                yield _block_start(self._text_block, {"type": "text", "text": ""})
            yield _delta(self._text_block, {"type": "text_delta", "text": text})
        for call in delta.get("tool_calls") or ():
            yield from self._read_call(call)

    def _read_call(self, call: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        function, at, name = call.get("function") or {}, call.get("index", 0), call.get("id") or ""
        known = self._calls.get(at)
        if known is None or (name and known.id and name != known.id and function.get("name")):
            known = self._calls[at] = _ToolCall(self._next_block(), name, _JsonText())
            yield _block_start(known.block, _tool_use(name, function["name"], {}))
        if written := function.get("arguments"):
            yield _delta(known.block, {"type": "input_json_delta", "partial_json": known.arguments.feed(written)})

    def _next_block(self) -> int:
        self._blocks += 1
        return self._blocks - 1

    def _close(self) -> Iterator[dict[str, Any]]:
        if self._finish is None:
            self._meter.garble()
            return
        for index in range(self._blocks):
            yield {"type": "content_block_stop", "index": index}
        yield {
            "type": "message_delta",
            "delta": {
                "stop_reason": _stop_of(self._finish, has_tools=bool(self._calls)),
                "stop_sequence": None,
            },
            "usage": _NO_USAGE | self._usage,
        }
        yield {"type": "message_stop"}
        self._meter.complete()


def _stop_of(finish: Any, *, has_tools: bool) -> str:
    """Return why a reply ended; servers call a forced tool's end `stop`, too."""
    return "tool_use" if has_tools and finish == "stop" else _STOPS.get(finish, "end_turn")


def _message(reply: Mapping[str, Any], *, stop_reason: str | None, usage: Mapping[str, int]) -> dict[str, Any]:
    return {
        "id": reply.get("id") or f"msg_{uuid4().hex}",
        "type": "message",
        "role": "assistant",
        "model": reply.get("model") or "",
        "content": [],
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "usage": dict(usage),
    }


_NO_USAGE: dict[str, int] = {
    "input_tokens": 0,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
    "output_tokens": 0,
}


def _content_of(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    said = message.get("content") or ""
    text = said if isinstance(said, str) else "".join(part.get("text", "") for part in said)
    calls = message.get("tool_calls") or ()
    uses = [
        _tool_use(
            call.get("id"), call["function"]["name"], from_json(_JsonText().feed(call["function"]["arguments"] or "{}"))
        )
        for call in calls
    ]
    return [*([{"type": "text", "text": text}] if text else []), *uses]


def _tool_use(use_id: Any, name: Any, given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": use_id or f"toolu_{uuid4().hex}", "name": name, "input": given}


def _block_start(index: int, block: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def _delta(index: int, delta: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": delta}


def _characters(message: Mapping[str, Any]) -> int:
    """Return how many characters of output a message or a delta holds.

    Thoughts are billed and left out: the Messages API has no unsigned form of them.
    """
    texts = [message.get("content"), message.get("reasoning_content") or message.get("reasoning")]
    texts += [(call.get("function") or {}).get("arguments") for call in message.get("tool_calls") or ()]
    return sum(len(text) for text in texts if isinstance(text, str))


def _read_usage(usage: Any, meter: Meter) -> dict[str, int]:
    """Meter the totals of a reply and return them as the Messages API counts: cached input apart from the rest."""
    if not isinstance(usage, dict):
        return {}
    details = usage.get("prompt_tokens_details")
    cached = (details.get("cached_tokens") if isinstance(details, dict) else None) or 0
    prompt, output = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if not (is_count(prompt) and is_count(output) and is_count(cached)):
        meter.garble()
        return {}
    cached = min(cached, prompt)
    if is_count(total := usage.get("total_tokens")):  # some servers leave thoughts out of what was completed
        output = max(output, total - prompt)
    meter.count_input(Usage(prompt - cached, 0, 0, cached))
    meter.count_output(output, is_final=True)
    return {"input_tokens": prompt - cached, "cache_read_input_tokens": cached, "output_tokens": output}


def _status_of(error: Any) -> int:
    """Return the HTTP status that an error inside a stream stands for."""
    if _has_no_credit(error):
        return HTTPStatus.PAYMENT_REQUIRED
    code = error.get("code") if isinstance(error, dict) else None
    if isinstance(code, int | str) and str(code).isdigit():
        return int(code)
    return HTTPStatus.TOO_MANY_REQUESTS if code == "rate_limit_exceeded" else HTTPStatus.INTERNAL_SERVER_ERROR


def _has_no_credit(error: Any) -> bool:
    return isinstance(error, dict) and "insufficient_quota" in (error.get("code"), error.get("type"))

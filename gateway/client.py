"""The workers' model client: the anthropic SDK pointed at the gateway, behind our own values and errors.

No other worker module knows the SDK or the Messages API. It never retries; workers/retries.py decides that. A soft time
limit is a BaseException, so it passes through a call and closes the open stream on its way.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

import anthropic
import httpx2
from anthropic.types import Message

from gateway.errors import (
    BudgetExceededError,
    CallTimeoutError,
    CancelledCallError,
    FencedCallError,
    GatewayError,
    GatewayUnreachableError,
    NoProviderKeyError,
    ProviderBusyError,
    ProviderDownError,
    ProviderError,
)
from gateway.messages import Code
from gateway.network import authorities
from monitoring import traces
from routing.policy.prices import Usage

_CONNECT_SECONDS = 5.0
_HEALTH_SECONDS = 2.0
"""Less than what a soft time limit leaves before the hard one."""
EventT = TypeVar("EventT")
_BUSY = (429, 503, 529)
_BUSY_KINDS = ("overloaded_error", "rate_limit_error")
_FAULT = 500
"""From this status on the provider itself failed: try later."""
_FAULT_KINDS = ("api_error", "timeout_error")
"""The same inside a reply, whose status says that all is well."""
_LOST_JOB = frozenset({Code.UNKNOWN_TOKEN, Code.ATTEMPT_ENDED, Code.DEADLINE_PASSED, Code.FENCED})
_NO_GATEWAY = frozenset({Code.LEDGER_UNREACHABLE, Code.SHUTTING_DOWN})
_CIRCUIT = frozenset({Code.CIRCUIT_OPEN, Code.RATE_LIMITED})


class Text(NamedTuple):
    """A text block of our turn."""

    text: str
    ends_prefix: bool = False
    """Whether to cache the prompt up to here: the next call with the same prefix reads it at a tenth of the price."""


class ToolResult(NamedTuple):
    """The result of a tool use."""

    use_id: str
    text: str
    is_error: bool = False
    ends_prefix: bool = False
    """As in `Text`."""


class ToolUse(NamedTuple):
    """A tool use that the model asks for."""

    id: str
    name: str
    input: Any


class Stop(StrEnum):
    """Why a reply ended."""

    DONE = "done"
    MAX_TOKENS = "max_tokens"
    """Cut short: the last tool's input may be incomplete."""
    REFUSED = "refused"


@dataclass(frozen=True)
class ModelReply:
    """A model's whole reply."""

    text: str
    tool_uses: tuple[ToolUse, ...]
    stop: Stop
    usage: Usage
    """As the reply states it; the ledger has the bill."""
    content: tuple[Mapping[str, Any], ...]
    """The provider's content blocks, only for the next turn of the conversation."""


Turn = str | Sequence[Text | ToolResult] | ModelReply
"""One turn of a conversation: ours, or an earlier reply."""


@dataclass(frozen=True)
class ToolCall:
    """The input that a model wrote for the tool it had to use."""

    input: dict[str, Any]
    usage: Usage
    is_cut: bool
    """The reply stopped at `max_tokens`, so the input may be incomplete."""


class ModelClient:
    """Calls models for one attempt. Create it after forking; its owner closes it.

    Args:
        gateway_url: the only address that is called.
        token: the attempt's token.
        timeout_seconds: how long the gateway may stay silent.
        replies: what was paid for, by the digest of its request; a request that stands there is answered from it, once.
    """

    def __init__(
        self, gateway_url: str, token: str, *, timeout_seconds: float = 300.0, replies: dict[str, Any] | None = None
    ) -> None:
        self._replies = {} if replies is None else replies
        self._asked: set[str] = set()
        self._client = anthropic.Anthropic(
            base_url=gateway_url,
            auth_token=token,
            max_retries=0,
            timeout=httpx2.Timeout(timeout_seconds, connect=_CONNECT_SECONDS),
            http_client=anthropic.DefaultHttpxClient(trust_env=False, verify=authorities()),
            open_telemetry=False,
        )

    def create(
        self,
        conversation: Sequence[Turn],
        *,
        model: str,
        max_tokens: int,
        system: str = "",
        tools: Sequence[Mapping[str, Any]] = (),
        must_use: str | None = None,
        is_single: bool = False,
        until: float | None = None,
    ) -> ModelReply:
        """Make one call and return the whole reply. It is streamed, so that giving up costs only what was generated.

        Args:
            conversation: the turns so far; the last one is ours.
            model: one of the queue's models.
            max_tokens: requested output tokens; the gateway may lower them to fit the budgets.
            system: the system prompt.
            tools: name, description and JSON schema (`input_schema`) of each tool that the model may use.
            must_use: the tool that the reply must use; None to let the model choose.
            is_single: whether the reply may use only that tool, once.
            until: monotonic time at which to give up.

        Raises:
            BudgetExceededError: a budget cannot cover the call, or cut it.
            FencedCallError: the attempt lost its job.
            CancelledCallError: the job was cancelled.
            NoProviderKeyError: the tenant's fault.
            ProviderBusyError: try later; also when the reply broke off.
            ProviderError: the request or the reply was wrong.
            GatewayUnreachableError: the operator's fault, or transient.
            CallTimeoutError: `until` has passed.
        """
        messages = [_message_of(turn) for turn in conversation]
        fields: dict[str, Any] = {"model": model, "max_tokens": max_tokens, "messages": messages}
        if system:
            fields["system"] = system
        if tools:
            fields["tools"] = list(tools)
        if must_use is not None:
            fields["tool_choice"] = {"type": "tool", "name": must_use, "disable_parallel_tool_use": is_single}
        digest = hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
        if digest in self._replies and digest not in self._asked:
            message = Message.model_validate(self._replies[digest])
        else:
            message = self._stream(fields, until)
            self._replies[digest] = message.model_dump(mode="json", exclude_none=True)
        self._asked.add(digest)
        return _reply_of(message)

    def _stream(self, fields: Mapping[str, Any], until: float | None) -> Message:
        headers = {"traceparent": trace} if (trace := traces.current()) is not None else {}
        with _translated(), self._client.messages.stream(**fields, extra_headers=headers) as stream:
            events = sum(1 for _ in _until(stream, until))
            message = stream.get_final_message() if events else None
        if message is None or message.stop_reason is None:
            raise ProviderDownError("the reply broke off")
        return message

    def tool_call(
        self,
        conversation: Sequence[Turn],
        *,
        model: str,
        max_tokens: int,
        tool: Mapping[str, Any],
        system: str = "",
    ) -> ToolCall:
        """Make one call that must use `tool`, and return the tool's input.

        Raises:
            ProviderError: also when the model did not use the tool.
            GatewayError: as in `create`.
        """
        reply = self.create(
            conversation,
            model=model,
            max_tokens=max_tokens,
            system=system,
            tools=[tool],
            must_use=tool["name"],
            is_single=True,
        )
        for use in reply.tool_uses:
            if use.name == tool["name"] and isinstance(use.input, dict):
                return ToolCall(use.input, reply.usage, reply.stop is Stop.MAX_TOKENS)
        raise ProviderError(200, f"the model did not use the tool {tool['name']}")

    def close(self) -> None:
        """Close every connection."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def is_away(gateway_url: str, *, within_seconds: float) -> bool:
    """Return whether a gateway does not answer, or stood still within the last so many seconds.

    It tells a dead or frozen gateway from failed or slow work that called through it.
    """
    try:
        answer = httpx2.get(f"{gateway_url}/healthz", timeout=_HEALTH_SECONDS, trust_env=False, verify=authorities())
        stood_still = answer.raise_for_status().json().get("stood_still_seconds_ago")
    except (httpx2.HTTPError, ValueError):
        return True
    return stood_still is not None and stood_still <= within_seconds


def _until(events: Iterable[EventT], until: float | None) -> Iterator[EventT]:
    for event in events:
        if until is not None and time.monotonic() > until:
            raise CallTimeoutError
        yield event


def _message_of(turn: Turn) -> dict[str, Any]:
    if isinstance(turn, ModelReply):
        return {"role": "assistant", "content": list(turn.content) or [{"type": "text", "text": "..."}]}
    return {"role": "user", "content": turn if isinstance(turn, str) else [_block_of(part) for part in turn]}


def _block_of(part: Text | ToolResult) -> dict[str, Any]:
    if isinstance(part, Text):
        block: dict[str, Any] = {"type": "text", "text": part.text}
    else:
        block = {"type": "tool_result", "tool_use_id": part.use_id, "content": part.text, "is_error": part.is_error}
    return block | {"cache_control": {"type": "ephemeral"}} if part.ends_prefix else block


_STOPS = {"max_tokens": Stop.MAX_TOKENS, "refusal": Stop.REFUSED}


def _reply_of(message: Message) -> ModelReply:
    usage = message.usage
    return ModelReply(
        text="\n".join(block.text for block in message.content if block.type == "text").strip(),
        tool_uses=tuple(
            ToolUse(block.id, block.name, block.input) for block in message.content if block.type == "tool_use"
        ),
        stop=_STOPS.get(message.stop_reason or "", Stop.DONE),
        usage=Usage(
            usage.input_tokens,
            usage.output_tokens,
            usage.cache_creation_input_tokens or 0,
            usage.cache_read_input_tokens or 0,
        ),
        content=tuple(block.model_dump(mode="json", exclude_none=True) for block in message.content),
    )


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except anthropic.APIStatusError as error:
        raise translate_error(error) from None
    except (anthropic.APIConnectionError, httpx2.HTTPError) as error:
        raise GatewayUnreachableError(f"the gateway broke off or cannot be reached ({type(error).__name__})") from None
    except (anthropic.AnthropicError, ValueError) as error:
        raise ProviderError(200, f"the reply cannot be read ({type(error).__name__})") from None


def translate_error(error: anthropic.APIStatusError) -> GatewayError:
    """Return our error for an error response: by the gateway's code, else by the provider's status."""
    code = error.error_code
    message = (error.api_message or "no message")[:500]
    if code == Code.BUDGET_EXCEEDED:
        return BudgetExceededError(message)
    if code in _LOST_JOB:
        return FencedCallError(message)
    if code == Code.CANCELLED:
        return CancelledCallError(message)
    if code == Code.NO_PROVIDER:
        return NoProviderKeyError(message)
    if code in _NO_GATEWAY:
        return GatewayUnreachableError(message)
    if code in (Code.PROVIDER_UNREACHABLE, Code.PROVIDER_GONE):
        return ProviderDownError(message, _retry_after(error))
    if code in _CIRCUIT:
        return ProviderBusyError(message, _retry_after(error))
    return ProviderError(error.status_code, message) if code else _provider_error(error, message)


def _provider_error(error: anthropic.APIStatusError, message: str) -> GatewayError:
    if error.status_code in (401, 403):
        return NoProviderKeyError(f"the provider refuses the tenant's key: {message}")
    if error.status_code in _BUSY or error.type in _BUSY_KINDS:
        return ProviderBusyError(message, _retry_after(error))
    if error.status_code >= _FAULT or error.type in _FAULT_KINDS:
        return ProviderDownError(message, _retry_after(error))
    return ProviderError(error.status_code, message)


def _retry_after(error: anthropic.APIStatusError) -> float | None:
    try:
        seconds = float(error.response.headers.get("retry-after", ""))
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None

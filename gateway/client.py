"""The worker's way to a model: the anthropic SDK pointed at the gateway, behind values and errors of our own.

No other module of the workers knows the SDK or the Messages API, which the gateway speaks whichever provider answers.
It never retries: whether a busy provider is asked again is decided in one place (workers/retries.py). A soft time limit
arrives as a BaseException inside a call and passes through; the open stream is closed on its way.
"""

from __future__ import annotations

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
EventT = TypeVar("EventT")
_BUSY = (429, 503, 529)
_BUSY_KINDS = ("overloaded_error", "rate_limit_error")
_FAULT = 500
"""From here on a status tells of the provider's own trouble, in which nothing has been said yet: try later."""
_LOST_JOB = frozenset({Code.UNKNOWN_TOKEN, Code.ATTEMPT_ENDED, Code.DEADLINE_PASSED, Code.FENCED})
_NO_GATEWAY = frozenset({Code.LEDGER_UNREACHABLE, Code.SHUTTING_DOWN})
_CIRCUIT = frozenset({Code.CIRCUIT_OPEN, Code.RATE_LIMITED})


class Text(NamedTuple):
    """A part of what the model is told."""

    text: str
    ends_prefix: bool = False
    """Whether everything up to here is cached, so that the next call with the same beginning reads it at a tenth."""


class ToolResult(NamedTuple):
    """What came of a tool that the model used."""

    use_id: str
    text: str
    is_error: bool = False
    ends_prefix: bool = False
    """As of `Text`."""


class ToolUse(NamedTuple):
    """A tool that the model wants to use."""

    id: str
    name: str
    input: Any


class Stop(StrEnum):
    """Why a reply ended."""

    DONE = "done"
    MAX_TOKENS = "max_tokens"
    """It was cut there: the last tool's input may lack its end."""
    REFUSED = "refused"


@dataclass(frozen=True)
class ModelReply:
    """What a model said."""

    text: str
    tool_uses: tuple[ToolUse, ...]
    stop: Stop
    usage: Usage
    """As the reply says. The bill is the ledger's, not this."""
    content: tuple[Mapping[str, Any], ...]
    """The reply in the provider's own words, for the next turn of its conversation and nothing else."""


Turn = str | Sequence[Text | ToolResult] | ModelReply
"""What one side said: we, or the model in an earlier reply."""


@dataclass(frozen=True)
class ToolCall:
    """What a model wrote into the tool that it had to use."""

    input: dict[str, Any]
    usage: Usage
    is_cut: bool
    """The reply stopped at `max_tokens`: the input may lack its end."""


class ModelClient:
    """Calls models for one attempt. Made after a fork, closed by its owner.

    Args:
        gateway_url: the gateway; no other address is ever called.
        token: the attempt's token.
        timeout_seconds: how long the gateway may say nothing.
    """

    def __init__(self, gateway_url: str, token: str, *, timeout_seconds: float = 300.0) -> None:
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
        """Make one call and return the whole reply. It is streamed, so that giving up costs only what was written.

        Args:
            conversation: the turns so far; the last one is ours.
            model: one of the queue's models.
            max_tokens: output tokens asked for; the gateway may lower them to what the budgets have room for.
            system: the system prompt.
            tools: name, description and JSON schema (`input_schema`) of each tool that the model may use.
            must_use: the tool that the reply has to use; None where the model chooses.
            is_single: whether it may use no other beside it.
            until: seconds on the monotonic clock at which the reply is broken off.

        Raises:
            BudgetExceededError: nobody's fault: a budget has no room for the call, or the call was cut at it.
            FencedCallError: nobody's fault: the attempt lost its job.
            CancelledCallError: nobody's fault: the job was cancelled.
            NoProviderKeyError: the tenant's fault.
            ProviderBusyError: the provider's: try later.
            ProviderError: the provider's fault, or ours: the request or the reply was wrong.
            GatewayUnreachableError: the operator's fault, or a passing one.
            CallTimeoutError: nobody's fault: `until` has passed.
        """
        messages = [_message_of(turn) for turn in conversation]
        fields: dict[str, Any] = {"model": model, "max_tokens": max_tokens, "messages": messages}
        if system:
            fields["system"] = system
        if tools:
            fields["tools"] = list(tools)
        if must_use is not None:
            fields["tool_choice"] = {"type": "tool", "name": must_use, "disable_parallel_tool_use": is_single}
        if (trace := traces.current()) is not None:
            fields["extra_headers"] = {"traceparent": trace}
        with _translated(), self._client.messages.stream(**fields) as stream:
            events = sum(1 for _ in _until(stream, until))
            message = stream.get_final_message() if events else None
        if message is None or message.stop_reason is None:
            raise ProviderError(200, "the reply broke off")
        return _reply_of(message)

    def tool_call(
        self,
        conversation: Sequence[Turn],
        *,
        model: str,
        max_tokens: int,
        tool: Mapping[str, Any],
        system: str = "",
    ) -> ToolCall:
        """Make one call whose reply must use `tool`, and return what was written into it.

        Raises:
            ProviderError: also when the model did not use the tool.
            GatewayError: as for `create`.
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


def is_reachable(gateway_url: str) -> bool:
    """Return whether a gateway answers at all: what became of calls that somebody else made through it."""
    try:
        answer = httpx2.get(f"{gateway_url}/healthz", timeout=_CONNECT_SECONDS, trust_env=False, verify=authorities())
        return answer.is_success
    except httpx2.HTTPError:
        return False


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
        raise error_of(error) from None
    except (anthropic.APIConnectionError, httpx2.HTTPError) as error:
        raise GatewayUnreachableError(f"the gateway broke off or cannot be reached ({type(error).__name__})") from None
    except (anthropic.AnthropicError, ValueError) as error:
        raise ProviderError(200, f"the reply cannot be read ({type(error).__name__})") from None


def error_of(error: anthropic.APIStatusError) -> GatewayError:
    """Return our own error for an answer that is no reply: by the gateway's code, else by the provider's status."""
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
    if code == Code.PROVIDER_UNREACHABLE or (code == Code.PROVIDER_GONE and error.status_code >= _FAULT):
        return ProviderDownError(message, _retry_after(error))
    if code in _CIRCUIT:
        return ProviderBusyError(message, _retry_after(error))
    return ProviderError(error.status_code, message) if code else _provider_error(error, message)


def _provider_error(error: anthropic.APIStatusError, message: str) -> GatewayError:
    if error.status_code in (401, 403):
        return NoProviderKeyError(f"the provider refuses the tenant's key: {message}")
    if error.status_code in _BUSY or error.type in _BUSY_KINDS:
        return ProviderBusyError(message, _retry_after(error))
    if error.status_code >= _FAULT:
        return ProviderDownError(message, _retry_after(error))
    return ProviderError(error.status_code, message)


def _retry_after(error: anthropic.APIStatusError) -> float | None:
    try:
        seconds = float(error.response.headers.get("retry-after", ""))
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None

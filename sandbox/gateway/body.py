"""What a call's body may ask for: whatever breaks a rule is refused before it costs money.

The body is read once and written again: what was checked is what is sent, so a key that stands in it twice cannot show
one value to the gateway and another to the provider.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic_core import PydanticSerializationError, from_json, to_json

from sandbox.gateway.refusals import Code, RefusedError

_SERVER_SIDE_FIELDS = ("mcp_servers", "container")
"""Fields by which the provider itself would reach out or run code for the caller: a way around the wall."""
_PRICED_FIELDS: dict[str, tuple[str, ...]] = {
    "speed": ("standard",),
    "service_tier": ("auto", "standard_only"),
    "inference_geo": ("global", "not_available"),
}
"""Fields that change the price, and the values at which the price table holds."""
_INLINE_SOURCES = frozenset({"base64", "text", "content"})
"""Kinds of image and document sources whose whole content is in the body, so that its size bounds their tokens."""
_COUNTED_FIELDS = ("model", "messages", "system", "tools", "tool_choice", "thinking")
"""What `count_tokens` takes; it refuses the fields that only a call has."""


@dataclass(frozen=True)
class CheckedBody:
    """A body that keeps the rules."""

    fields: dict[str, Any]
    model: str
    max_tokens: int
    """Output tokens asked for, at most the policy's maximum; 0 for `count_tokens`."""
    streams: bool
    encoded: bytes
    """The fields as they are sent with this `max_tokens`."""

    @property
    def has_tools(self) -> bool:
        """Whether the provider adds its own words about tools to the prompt."""
        return bool(self.fields.get("tools"))

    @property
    def thinking_tokens(self) -> int:
        """Tokens that the reply must be able to think with; the provider refuses a smaller `max_tokens`."""
        thinking = self.fields.get("thinking")
        budget = thinking.get("budget_tokens") if isinstance(thinking, dict) else None
        return budget if isinstance(budget, int) and budget > 0 else 0

    def with_max_tokens(self, max_tokens: int) -> bytes:
        """Return the body to send when the call may write `max_tokens`."""
        return self.encoded if max_tokens == self.max_tokens else _encode(self.fields | {"max_tokens": max_tokens})

    def for_count(self) -> bytes:
        """Return the body by which the provider counts the input of this call."""
        return _encode({name: self.fields[name] for name in _COUNTED_FIELDS if name in self.fields})


def check_body(raw: bytes, *, models: frozenset[str], most_tokens: int, is_counted: bool = False) -> CheckedBody:
    """Read the body of a call.

    Args:
        raw: the body as it came.
        models: the models that the caller's queue may use.
        most_tokens: what `max_tokens` is lowered to.
        is_counted: whether it is one for `count_tokens`, which has no `max_tokens`.

    Raises:
        RefusedError: the caller's fault; names the field and the rule.
    """
    fields = _parse(raw)
    model = fields.get("model")
    if not isinstance(model, str) or model not in models:
        raise RefusedError(Code.MODEL_REFUSED, "model: this queue may not call it")
    if not isinstance(fields.get("messages"), list):
        raise _bad("messages: must be a list")
    if not isinstance(fields.get("stream", False), bool):
        raise _bad("stream: must be true or false")
    _check_features(fields)
    max_tokens = 0
    if not is_counted:
        max_tokens = _max_tokens(fields, most_tokens)
        fields["max_tokens"] = max_tokens
    encoded = _encode(fields)
    if b'"type":"url"' in encoded or b'"type":"file"' in encoded:
        _check_sources(fields["messages"])
    return CheckedBody(fields, model, max_tokens, bool(fields.get("stream", False)), encoded)


def _parse(raw: bytes) -> dict[str, Any]:
    try:
        fields = from_json(raw, allow_inf_nan=False)
    except ValueError:
        raise _bad("the body is not valid JSON") from None
    if not isinstance(fields, dict):
        raise _bad("the body must be a JSON object")
    return fields


def _encode(fields: dict[str, Any]) -> bytes:
    try:
        return to_json(fields)
    except PydanticSerializationError:
        raise _bad("the body holds text that is not valid Unicode") from None


def _max_tokens(fields: dict[str, Any], most_tokens: int) -> int:
    asked = fields.get("max_tokens")
    if not isinstance(asked, int) or isinstance(asked, bool) or asked < 1:
        raise _bad("max_tokens: must be an integer of at least 1")
    return min(asked, most_tokens)


def _check_features(fields: dict[str, Any]) -> None:
    for name in _SERVER_SIDE_FIELDS:
        if fields.get(name):
            raise RefusedError(Code.FEATURE_REFUSED, f"{name}: the provider may not act for the caller")
    for name, values in _PRICED_FIELDS.items():
        if fields.get(name) is not None and fields[name] not in values:
            raise RefusedError(Code.FEATURE_REFUSED, f"{name}: only {' or '.join(values)} is in the price table")
    tools = [] if fields.get("tools") is None else fields["tools"]
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise _bad("tools: must be a list of objects")
    if any((tool.get("type") or "custom") != "custom" for tool in tools):
        raise RefusedError(Code.FEATURE_REFUSED, "tools: only tools that the caller runs itself (type custom)")


def _check_sources(messages: list[Any]) -> None:
    for block in _blocks(messages):
        source = block.get("source")
        if isinstance(source, dict) and source.get("type") not in _INLINE_SOURCES:
            raise RefusedError(Code.FEATURE_REFUSED, "messages: an image or document must be in the body, no reference")


def _blocks(parts: Any) -> Iterator[dict[str, Any]]:
    """Yield every content block, those inside tool results and documents included."""
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


def _bad(message: str) -> RefusedError:
    return RefusedError(Code.BAD_REQUEST, message)

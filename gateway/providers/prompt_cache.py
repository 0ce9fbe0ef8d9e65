"""What is known of Anthropic's prompt cache: how many tokens a prompt's beginning has, and until when it is cached."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pydantic_core import to_json

from routing.policy.prices import Usage

_KEPT_SECONDS = 240.0
"""The promised five minutes, less what a call may wait on its way."""
_LOOKBACK_BLOCKS = 20
"""How far before a cache breakpoint the provider looks for a cached prefix."""
_MOST_ENTRIES = 4096
_WRAPPING_BYTES = 64
"""Upper bound of what is added around a block, such as the role of its message."""
_NOT_IN_PREFIX = frozenset({"messages", "system", "tools", "max_tokens", "stream", "metadata", "cache_control"})


class KnownPrefix(NamedTuple):
    """The longest known beginning of a prompt."""

    tokens: int = 0
    text_bytes: int = 0
    """Bytes of its blocks, without those that hold media."""
    cached_tokens: int = 0
    """Tokens that the provider reads from its cache; the prefix that it keeps may be a shorter one."""


class _Block(NamedTuple):
    digest: bytes
    """Of the prompt up to the end of this block."""
    text_bytes: int
    ends_prefix: bool


class _Entry(NamedTuple):
    tokens: int
    used_at: float


class PromptCache:
    """What earlier replies told about prompts of one account: a prefix's exact tokens, and until when it is cached.

    A prefix ends with a content block and is known by a digest of everything before it. The provider promises to keep a
    cached prefix for five minutes after each use.
    """

    def __init__(self) -> None:
        self._entries: OrderedDict[bytes, _Entry] = OrderedDict()

    def known(self, fields: dict[str, Any], *, context: str, now: float) -> KnownPrefix:
        """Return what is known of a request's prompt; `context` is what else the provider tells prompts apart by."""
        return self._known(_prompt_blocks(fields, context), now) if self._entries else KnownPrefix()

    def _known(self, blocks: list[_Block], now: float) -> KnownPrefix:
        known, since_breakpoint = KnownPrefix(), _LOOKBACK_BLOCKS
        for block in reversed(blocks):
            since_breakpoint = 0 if block.ends_prefix else since_breakpoint + 1
            if (entry := self._entries.get(block.digest)) is None:
                continue
            if not known.tokens:
                known = KnownPrefix(entry.tokens, block.text_bytes)
            if since_breakpoint < _LOOKBACK_BLOCKS and now - entry.used_at < _KEPT_SECONDS:
                return known._replace(cached_tokens=entry.tokens)
        return known

    def note(self, fields: dict[str, Any], usage: Usage, *, context: str, sent_at: float) -> None:
        """Remember what a reply said; a prefix that should have been cached, but was not, discredits all others."""
        blocks = _prompt_blocks(fields, context)
        if self._known(blocks, sent_at).cached_tokens > usage.cache_read_tokens:
            self._entries.clear()
        cached = usage.cache_read_tokens + usage.cache_write_tokens
        last = next((block.digest for block in reversed(blocks) if block.ends_prefix), None)
        if cached and last is not None:
            self._entries[last] = _Entry(cached, sent_at)
            self._entries.move_to_end(last)
            if len(self._entries) > _MOST_ENTRIES:
                self._entries.popitem(last=False)


def _prompt_blocks(fields: dict[str, Any], context: str) -> list[_Block]:
    """Return the prompt's blocks in the provider's order: tools, system, messages."""
    seed = {name: value for name, value in fields.items() if name not in _NOT_IN_PREFIX}
    digest = hashlib.sha256(to_json([context, seed]))
    blocks, size = [], 0
    for part in prompt_parts(fields):
        data = to_json({name: value for name, value in part.items() if name != "cache_control"})
        digest.update(data)
        size += 0 if b'"source":' in data else max(0, len(data) - _WRAPPING_BYTES)
        blocks.append(_Block(digest.digest(), size, bool(part.get("cache_control"))))
    if blocks and fields.get("cache_control"):
        blocks[-1] = blocks[-1]._replace(ends_prefix=True)
    return blocks


def prompt_parts(fields: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield what a prompt is made of, in the provider's order: tools, system, and blocks with their role."""
    yield from _listed(fields.get("tools"))
    yield from _listed(fields.get("system"))
    for message in _listed(fields.get("messages")):
        for part in _listed(message.get("content")):
            yield {"role": message.get("role"), **part}


def _listed(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, str):
        return [{"type": "text", "text": value}]
    return [part for part in value if isinstance(part, dict)] if isinstance(value, list) else []

"""How the rehearsal model counts tokens: stated rules instead of a tokenizer, so that a bill can be checked by hand.

- input tokens = UTF-8 bytes of the compact JSON of {system, messages, tools}, divided by 4, rounded up;
- output tokens = characters of text and of tool-input JSON sent, divided by 4, rounded up; at least 1;
- cached prefixes are counted as the provider counts them: apart from `input_tokens`, written once, read afterwards.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

from routing.prices import Usage
from sandbox.rehearsal.request import Request

CHARACTERS_PER_TOKEN = 4
CACHE_SECONDS = 300.0
"""Life of a cached prefix after its last use."""
_CACHE_ENTRIES = 4096


def output_tokens(characters: int) -> int:
    """Return the tokens of a reply of which `characters` were sent, counted from the start of its message."""
    return max(1, -(-characters // CHARACTERS_PER_TOKEN))


def count_input(request: Request) -> int:
    """Return the input tokens of a request, never more than half its bytes."""
    counted = {key: request.raw.get(key) for key in ("system", "messages", "tools") if key in request.raw}
    return min(-(-len(_encode(counted)) // CHARACTERS_PER_TOKEN), request.body_bytes // 2)


@dataclass
class PromptCache:
    """The prefixes that callers asked to be cached, per key and model."""

    _expiry: OrderedDict[str, float] = field(default_factory=OrderedDict)

    def usage(self, request: Request, *, owner: str, now: float) -> Usage:
        """Count a request's input, and remember the prefixes that it asks to be cached.

        Args:
            request: the request.
            owner: whose cache: a digest of the caller's key.
            now: a monotonic clock in seconds.
        """
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
                self._remember(prefix.digest, now + CACHE_SECONDS)
        return Usage(input_tokens=total - upto, cache_write_tokens=upto - read, cache_read_tokens=read)

    def _remember(self, digest: str, expiry: float) -> None:
        self._expiry[digest] = expiry
        self._expiry.move_to_end(digest)
        while len(self._expiry) > _CACHE_ENTRIES:
            self._expiry.popitem(last=False)


@dataclass(frozen=True)
class _Prefix:
    digest: str
    tokens: int
    is_breakpoint: bool


def _prefixes(request: Request, owner: str) -> list[_Prefix]:
    parts: list[dict[str, Any]] = [tool for tool in request.raw.get("tools") or () if isinstance(tool, dict)]
    system = request.raw.get("system") or ()
    parts += [{"type": "text", "text": system}] if isinstance(system, str) else system
    for message in request.body.messages:
        parts += [{"role": message.role, **block} for block in message.blocks]
    if "cache_control" in request.raw and parts:
        parts[-1] = parts[-1] | {"cache_control": request.raw["cache_control"]}
    digest = hashlib.sha256(_encode([owner, request.model]))
    size, prefixes = 0, []
    for part in parts:
        data = _encode({key: value for key, value in part.items() if key != "cache_control"})
        digest.update(data)
        size += len(data)
        prefixes.append(_Prefix(digest.hexdigest(), size // CHARACTERS_PER_TOKEN, bool(part.get("cache_control"))))
    return prefixes


def _encode(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")

"""What a session of the CLI said, kept without keys, and how a later session goes on from it (H-048).

A transcript is the prompt and the lines that the CLI itself printed, which nothing in its box can write or change: what
an agent leaves in the CLI's own directory is never read. It is data from outside all the same. So the file from which
the CLI goes on is written here anew, from parts that are known to be what they seem to be.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Iterator, Mapping
from typing import Any
from uuid import UUID, uuid5

from pydantic_core import from_json

from routing.redaction import REDACTED, redact, redact_all
from sandbox.box_spec import WORKSPACE
from sandbox.claude_code import CLI_VERSION
from sandbox.errors import SandboxError

MAX_BYTES = 2_097_152
"""Of one transcript; the beginning and the end are kept."""
MAX_RESUMED_BYTES = 524_288
"""Of a conversation that is gone on from: some 150,000 tokens, beside which a model has room to work."""
_CUT = b'{"type":"cut"}\n'
_NO_TIME = "2000-01-01T00:00:00.000Z"


class TranscriptRefusedError(SandboxError, ValueError):
    """No session can go on from a transcript: it has to begin afresh (nobody's fault)."""


class Transcript:
    """Collects a session's prompt and lines, without keys.

    Args:
        known: values of secrets that must not be kept, beside whatever looks like a key.
        begun: the transcript that it goes on from, as `unpack` returns it.
    """

    def __init__(self, *, known: tuple[str, ...] = (), begun: bytes = b"") -> None:
        self._known = known
        self._head = bytearray()
        self._tail = bytearray()
        self._is_cut = False
        for line in begun.splitlines():
            self._keep(line)

    def add(self, line: bytes) -> None:
        """Take one line, of the session's input or output."""
        self._keep(_clean(line, self._known))

    def _keep(self, line: bytes) -> None:
        clean = line + b"\n"
        if not self._tail and len(self._head) + len(clean) <= MAX_BYTES // 2:
            self._head += clean
            return
        self._tail += clean
        if (surplus := len(self._tail) - (MAX_BYTES // 2 - len(_CUT))) > 0:
            self._is_cut = True
            del self._tail[:surplus]

    def packed(self) -> bytes:
        """Return it compressed; equal lines give equal bytes."""
        return gzip.compress(bytes(self._head + (_CUT if self._is_cut else b"") + self._tail), mtime=0)


def _clean(line: bytes, known: tuple[str, ...]) -> bytes:
    try:
        value = from_json(line)
    except ValueError:
        return redact(line.decode("utf-8", "replace"), known=known).encode()
    clean = redact_all(value, known=known)
    return line if clean == value else json.dumps(clean, ensure_ascii=False).encode("utf-8", "replace")


def unpack(packed: bytes) -> bytes:
    """Return the lines of a packed transcript.

    Raises:
        TranscriptRefusedError: it is damaged (ours, or the disk's).
    """
    reader = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        lines = reader.decompress(packed, MAX_BYTES + 1)
    except zlib.error:
        raise TranscriptRefusedError("it is damaged") from None
    if not reader.eof or len(lines) > MAX_BYTES:
        raise TranscriptRefusedError("it is damaged")
    return lines


def conversation(lines: bytes, *, model: str, most_bytes: int = MAX_RESUMED_BYTES) -> bytes:
    """Return a transcript as the file from which the CLI goes on (`--resume=FILE`).

    Args:
        lines: as `unpack` returns them.
        model: of the session that goes on: what one has thought is no other's.
        most_bytes: limit of the file, within `MAX_RESUMED_BYTES`.

    Raises:
        TranscriptRefusedError: the CLI cannot go on from it, with the reason.
    """
    records = _Records(UUID(bytes=hashlib.sha256(lines).digest()[:16], version=4))
    for message in _messages(lines, model):
        records.add(message)
    records.end_uses()
    if not records.asked:
        raise TranscriptRefusedError("the model had done nothing yet")
    file = bytes(records.file)
    if len(file) > min(most_bytes, MAX_RESUMED_BYTES):
        raise TranscriptRefusedError(f"it is too large: {len(file)} bytes of {min(most_bytes, MAX_RESUMED_BYTES)}")
    return file


def _messages(lines: bytes, model: str) -> Iterator[dict[str, Any]]:
    for line in lines.splitlines():
        try:
            event = from_json(line, allow_inf_nan=False)
        except ValueError:
            event = None
        match event:
            case {"type": "user" | "assistant", "message": dict(message)} if message.get("role") == event["type"]:
                if event.get("parent_tool_use_id") is None and message.get("model") != "<synthetic>":
                    yield message
            case {"type": "system", "subtype": "init"} if event.get("model") != model:
                raise TranscriptRefusedError("it is another model's")
            case {"type": "cut"} | {"type": "system", "subtype": "compact_boundary"}:
                raise TranscriptRefusedError("it is too large: it was cut")
            case {"type": "user" | "assistant"} | None:
                raise TranscriptRefusedError("it is damaged")


_INTERRUPTED = "[Request interrupted by user"
_REJECTED = "The user doesn't want to proceed with this tool use."
"""What the CLI writes of a use that SIGINT ended: a model would take it for the owner's wish to stop."""
_UNKNOWN = "This was interrupted: whether it took effect is unknown. Look before you rely on it or do it again."


class _Records:
    """The records of the CLI's file. A use that an interruption left without a result gets one."""

    def __init__(self, session: UUID) -> None:
        self.file = bytearray()
        self.asked: set[str] = set()
        """The uses of tools so far."""
        self._unanswered: dict[str, None] = {}
        self._session = session
        self._last: str | None = None
        self._count = 0

    def add(self, message: dict[str, Any]) -> None:
        role, content = message["role"], message.get("content")
        if isinstance(content, list):
            content = [block for block in map(self._block, content) if block is not None]
        if not isinstance(content, str | list) or (self._last is None and role != "user"):
            raise TranscriptRefusedError("it is damaged")
        if role == "user" and (isinstance(content, str) or not any("tool_use_id" in block for block in content)):
            self.end_uses()
        if content:
            self._write(role, content, _of_reply(message) if role == "assistant" else {})

    def end_uses(self) -> None:
        """Answer the uses that nothing answers."""
        uses, self._unanswered = self._unanswered, {}
        blocks = [_result(use, _UNKNOWN, is_error=True) for use in uses]
        if blocks:
            self._write("user", blocks, {})

    def _write(self, role: str, content: Any, about: Mapping[str, Any]) -> None:
        self._count += 1
        last, self._last = self._last, str(uuid5(self._session, str(self._count)))
        record = {
            "type": role,
            "message": {"role": role, "content": content, **about},
            "uuid": self._last,
            "parentUuid": last,
            "sessionId": str(self._session),
            "timestamp": _NO_TIME,
            "cwd": WORKSPACE,
            "version": CLI_VERSION,
            "userType": "external",
            "isSidechain": False,
        }
        self.file += json.dumps(record, ensure_ascii=False).encode("utf-8", "replace") + b"\n"

    def _block(self, block: Any) -> dict[str, Any] | None:
        """Return a block as it may be sent again; None for a thought that redaction has changed: its seal is broken."""
        match block:
            case {"type": "text", "text": str(text)}:
                return None if text.startswith(_INTERRUPTED) else {"type": "text", "text": text}
            case {"type": "thinking", "thinking": str(text), "signature": str(seal)}:
                is_whole = REDACTED not in text + seal
                return {"type": "thinking", "thinking": text, "signature": seal} if is_whole else None
            case {"type": "redacted_thinking", "data": str(data)}:
                return {"type": "redacted_thinking", "data": data}
            case {"type": "tool_use", "id": str(use), "name": str(name), "input": dict(given)}:
                self.asked.add(use)
                self._unanswered[use] = None
                return {"type": "tool_use", "id": use, "name": name, "input": given}
            case {"type": "tool_result", "tool_use_id": str(use)} if use in self.asked:
                self._unanswered.pop(use, None)
                content = block.get("content", "")
                is_cut = isinstance(content, str) and content.startswith(_REJECTED)
                return _result(use, _UNKNOWN if is_cut else content, is_error=block.get("is_error") is True)
        raise TranscriptRefusedError("it is damaged")


def _result(use: str, content: Any, *, is_error: bool) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": use, "content": content, "is_error": is_error}


_COUNTS = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


def _of_reply(message: dict[str, Any]) -> dict[str, Any]:
    """Return a reply's fields other than its content; blocks with the same id belong to one reply."""
    names = {name: message[name] for name in ("id", "model") if isinstance(message.get(name), str)}
    used = message.get("usage")
    counts = used if isinstance(used, dict) else {}
    usage = {name: counts[name] if isinstance(counts.get(name), int) else 0 for name in _COUNTS}
    return {"type": "message", **names, "usage": usage}

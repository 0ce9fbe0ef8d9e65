"""Random replies of the Messages API, and a server that plays them byte for byte."""

from __future__ import annotations

import json
import random
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

_WORDS = ("grüße ", "日本語 ", "🚂", 'a "quoted" word ', "\\ and \t\n", "data: x\n\n", "<b>", "")
_FINAL_STOPS = ("end_turn", "tool_use", "max_tokens", "stop_sequence", "refusal", "pause_turn", "soon_to_come")


def event(kind: str, **fields: Any) -> tuple[str, str]:
    data = json.dumps({"type": kind, **fields})
    return kind, data if len(data) % 2 else json.dumps({"type": kind, **fields}, ensure_ascii=False)


def words(dice: random.Random) -> str:
    return "".join(dice.choice(_WORDS) for _ in range(dice.randint(0, 6)))


def _value(dice: random.Random, depth: int = 0) -> Any:
    kinds = [words(dice), dice.randint(-(10**18), 10**18), dice.random() * 1e6, None, True]
    if depth < 3:
        kinds += [
            [_value(dice, depth + 1) for _ in range(dice.randint(0, 3))],
            {f"{words(dice)}{place}": _value(dice, depth + 1) for place in range(dice.randint(0, 3))},
        ]
    return dice.choice(kinds)


def _pieces(dice: random.Random, whole: str) -> list[str]:
    cuts = sorted(dice.randint(0, len(whole)) for _ in range(dice.randint(0, 5)))
    return [whole[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]


def _tool_use(dice: random.Random, kind: str, *, is_cut: bool) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    start = {"type": kind, "id": f"use_{dice.random()}", "name": dice.choice(("set_title", "web_search")), "input": {}}
    written = json.dumps({"title": words(dice), "rest": _value(dice)}, ensure_ascii=dice.random() < 0.5)
    if is_cut:
        written = written[: dice.randint(0, len(written))]
    elif dice.random() < 0.1:
        written = ""
    return start, [{"type": "input_json_delta", "partial_json": piece} for piece in _pieces(dice, written)]


def _block(dice: random.Random, *, is_cut: bool) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    kind = dice.choice(("text", "text", "tool_use", "tool_use", "server_tool_use", "thinking", "redacted", "unknown"))
    if kind == "text":
        deltas = [{"type": "text_delta", "text": piece} for piece in _pieces(dice, words(dice))]
        return {"type": "text", "text": "", "citations": None}, deltas
    if kind == "thinking":
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in _pieces(dice, words(dice))]
        deltas += [{"type": "signature_delta", "signature": words(dice)} for _ in range(dice.randint(0, 2))]
        return {"type": "thinking", "thinking": "", "signature": ""}, deltas
    if kind == "redacted":
        return {"type": "redacted_thinking", "data": words(dice)}, []
    if kind == "unknown":
        deltas = [{"type": "ray_delta", "ray": 1}, {"type": "text_delta", "text": "not of this block"}]
        return {"type": "hologram", "rays": [1, 2], "of": {"what": words(dice)}}, dice.choice(([], deltas))
    return _tool_use(dice, kind, is_cut=is_cut)


def _start(dice: random.Random) -> dict[str, Any]:
    usage = {"input_tokens": dice.randint(1, 9999), "output_tokens": 1, "service_tier": "standard"}
    usage |= dice.choice(({}, {"cache_creation_input_tokens": 7, "cache_read_input_tokens": None}))
    usage |= dice.choice(({}, {"cache_creation": {"ephemeral_5m_input_tokens": 3, "ephemeral_1h_input_tokens": 4}}))
    base = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-haiku-4-5-20251001", "content": []}
    return base | {"stop_reason": None, "stop_sequence": None, "usage": usage}


def _noise(dice: random.Random) -> list[tuple[str, str]]:
    kinds = ([event("ping")], [event("novelty", index=99)], [("", ": a comment")], [], [], [])
    return dice.choice(kinds)


def random_events(dice: random.Random) -> list[tuple[str, str]]:
    """A whole reply, event by event: name and data."""
    stop = dice.choice(_FINAL_STOPS)
    events = [*_noise(dice), event("message_start", message=_start(dice))]
    count = dice.randint(0, 5)
    for index in range(count):
        start, deltas = _block(dice, is_cut=stop == "max_tokens" and index == count - 1)
        events.append(event("content_block_start", index=index, content_block=start))
        for delta in deltas:
            events += [*_noise(dice), event("content_block_delta", index=index, delta=delta)]
        events.append(event("content_block_stop", index=index))
    delta = {"stop_reason": stop, "stop_sequence": "END" if stop == "stop_sequence" else None}
    usage = {"output_tokens": dice.randint(1, 9999)} | dice.choice(
        ({}, {"input_tokens": None}, {"input_tokens": 12, "cache_read_input_tokens": 5})
    )
    return [*events, event("message_delta", delta=delta, usage=usage), *_noise(dice), event("message_stop")]


def error_event(dice: random.Random) -> tuple[str, str]:
    kind = dice.choice(("overloaded_error", "api_error", "invalid_request_error"))
    details = dice.choice(
        ({}, {"details": {"error_code": dice.choice(("budget_exceeded", "fenced", "provider_gone"))}})
    )
    return event("error", error={"type": kind, "message": words(dice), **details})


def encoded(events: list[tuple[str, str]], line: str) -> bytes:
    parts = [f"event: {name}{line}data: {data}{line}{line}" if name else f"{data}{line}{line}" for name, data in events]
    return "".join(parts).encode()


@dataclass
class Player:
    """A server that answers one request of each connection, always with the same bytes."""

    url: str = ""
    answers: list[bytes] = field(default_factory=list)
    """What is written in answer to a request, piece by piece."""
    stays: bool = False
    """Whether the connection stays open afterwards, in silence."""
    requests: list[bytes] = field(default_factory=list)
    left: threading.Event = field(default_factory=threading.Event)
    """Set when a client has closed its connection."""

    def stream(self, body: bytes, *, size: int, whole: bool = True) -> None:
        """Answer with a stream of chunks of so many bytes."""
        head = b"HTTP/1.1 200 OK\r\nconnection: close\r\n"
        head += b"content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        chunks = [body[at : at + size] for at in range(0, len(body), size)]
        self.answers = [head, *(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)]
        self.answers += [b"0\r\n\r\n"] if whole else []

    def refuse(self, status: int, body: bytes, *headers: str) -> None:
        """Answer with an error."""
        lines = [f"HTTP/1.1 {status} No", f"content-length: {len(body)}", "connection: close", *headers, "", ""]
        self.answers = ["\r\n".join(lines).encode() + body]

    def serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError), connection.makefile("rb") as sent:
            if not (head := b"".join(takewhile(bytes.strip, iter(sent.readline, b"")))):
                return  # connected, and asked nothing
            length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0] or 0)
            self.requests.append(head + b"\r\n" + sent.read(length))
            for piece in self.answers:
                connection.sendall(piece)
            if self.stays:
                sent.read(1)
                self.left.set()
            else:
                connection.shutdown(socket.SHUT_WR)  # a reset would take what the client has not read yet
                connection.settimeout(5)
                while sent.read(65536):
                    pass


@contextmanager
def player() -> Iterator[Player]:
    """Serve in threads while the context is open."""
    played = Player()
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        played.url = f"http://127.0.0.1:{listener.getsockname()[1]}"

        def accept() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    threading.Thread(target=played.serve, args=(connection,), daemon=True).start()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield played
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(10)

"""The request log: one JSON line for each call when it ends, whoever ended it. Tests hold bills against it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict

from routing.prices import Price, Usage, cost_nanousd, price_of

Finish = Literal["completed", "client_cut", "server_cut", "fault", "stalled", "refused"]


class LoggedCall(BaseModel):
    """One call to `/v1/messages`, as it ended."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: str
    """The request id that the response's `request-id` header carried."""
    received_at: datetime
    seconds: float
    """From the request's arrival to its end."""
    model: str
    stream: bool
    key_sha256: str
    """First 16 hex digits of the digest of the caller's key; empty without one."""
    call: str | None
    """The header `x-pointsman-call`."""
    status: int | None
    """HTTP status sent; None when the connection ended before."""
    input_tokens: int
    """Tokens billed: all of the input once the call was accepted; of the output what was sent up to a cut."""
    output_tokens: int
    cache_write_tokens: int
    cache_read_tokens: int
    finish: Finish
    """completed; client_cut: the client left; stalled: it left during an injected stall; server_cut: cut by a scenario
    or by this server's end; fault: another injected fault; refused: the request was wrong."""
    prompt_sha256: str
    rule: str | None
    tools: tuple[str, ...]
    """Tools offered."""
    characters: int
    """Characters of the reply that were sent."""

    @property
    def usage(self) -> Usage:
        """The tokens billed."""
        return Usage(self.input_tokens, self.output_tokens, self.cache_write_tokens, self.cache_read_tokens)


class RequestLog:
    """Appends calls to a file, or to nothing when there is none. Each line is written by one system call."""

    def __init__(self, path: Path | None) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        self._descriptor = None if path is None else os.open(path, flags, 0o600)

    def write(self, call: LoggedCall) -> None:
        """Append one call."""
        if self._descriptor is not None:
            os.write(self._descriptor, call.model_dump_json().encode() + b"\n")

    def close(self) -> None:
        """Close the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_log(path: Path) -> list[LoggedCall]:
    """Return the calls logged so far, in the order of their ends. A line that is still being written is left out."""
    if not path.exists():
        return []
    whole, _, _ = path.read_bytes().rpartition(b"\n")
    return [LoggedCall.model_validate_json(line) for line in whole.splitlines()]


def billed_nanousd(call: LoggedCall, prices: Mapping[str, Price]) -> int:
    """Return what a call costs by a price table, in nanodollars; an unlisted model costs as much as the dearest."""
    return cost_nanousd(price_of(prices, call.model), call.usage)

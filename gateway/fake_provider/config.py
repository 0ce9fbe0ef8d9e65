"""What a fake provider is started with, and the log that it leaves; importing this loads no server."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from routing.policy.prices import Price, Usage, cost_nanousd, price_of

Speed = Literal["real", "max"]
Finish = Literal["completed", "client_cut", "server_cut", "fault", "stalled", "refused"]


class RehearsalConfig(BaseModel):
    """Settings of `serve`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = 0
    """0 takes a free one."""
    log: Path | None = None
    """File that each ended call is appended to."""
    speed: Speed = "real"
    """real: as the policy's `speeds` say; max: no pauses but those of a rule."""
    scenarios: tuple[Path, ...] = ()
    """Scenario files, or directories of them, that are tried before the shipped ones."""
    faults: bool = False
    """Whether the shipped `faults.yaml` is played, too."""
    policy: Path | None = None
    """An installation's own policy; without one the shipped policy's speeds hold."""


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


def read_log(path: Path) -> list[LoggedCall]:
    """Return the calls logged so far, in the order of their ends. A line that is still being written is left out."""
    if not path.exists():
        return []
    whole, _, _ = path.read_bytes().rpartition(b"\n")
    return [LoggedCall.model_validate_json(line) for line in whole.splitlines()]


def billed_nanousd(call: LoggedCall, prices: Mapping[str, Price]) -> int:
    """Return what a call costs by a price table, in nanodollars; an unlisted model costs as much as the dearest."""
    return cost_nanousd(price_of(prices, call.model), call.usage)

"""Settings of the fake provider and the log it writes; importing this module loads no server."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from routing.config import Section
from routing.policy.prices import Price, Usage, cost_nanousd, price_of

Speed = Literal["real", "max"]
Finish = Literal["completed", "client_cut", "server_cut", "fault", "stalled", "refused"]


class FakeProviderConfig(Section):
    """Settings of `serve`."""

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = 0
    """0 for a free port."""
    log: Path | None = None
    """File to which each finished call is appended."""
    speed: Speed = "real"
    """real: the policy's `speeds`; max: only the pauses of rules."""
    scenarios: tuple[Path, ...] = ()
    """Scenario files, or directories of them, tried before the shipped ones."""
    recorded: Path | None = None
    """A file of recorded calls (`pointsman replay --recorded`): only these are replayed, and any other is refused."""
    faults: bool = False
    """Whether to play the shipped `faults.yaml` too."""
    cases: tuple[Path, ...] = ()
    """Files or directories of cases, whose replies are played before those of the shipped library."""
    policy: Path | None = None
    """An installation's own policy, for its speeds; None for the shipped one."""


class LoggedCall(BaseModel):
    """One finished call to `/v1/messages`."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: str
    """The request id that the response's `request-id` header carried."""
    received_at: datetime
    seconds: float
    """From the request's arrival to the end of the call."""
    model: str
    stream: bool
    key_sha256: str
    """First 16 hex digits of the digest of the caller's key; empty without one."""
    call: str | None
    """The header `x-pointsman-call`."""
    status: int | None
    """HTTP status sent; None when the connection ended first."""
    input_tokens: int
    """Tokens billed: the whole input once the call was accepted, and the output sent up to a cut."""
    output_tokens: int
    cache_write_tokens: int
    cache_read_tokens: int
    finish: Finish
    """completed; client_cut: the client left; stalled: it left during an injected stall; server_cut: cut by a scenario
    or by the server's shutdown; fault: another injected fault; refused: the request was invalid."""
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
    """Return the calls logged so far, in the order they ended; an incomplete last line is skipped."""
    if not path.exists():
        return []
    complete, _, _ = path.read_bytes().rpartition(b"\n")
    return [LoggedCall.model_validate_json(line) for line in complete.splitlines()]


def billed_nanousd(call: LoggedCall, prices: Mapping[str, Price]) -> int:
    """Return a call's cost in nanodollars; a model that the table does not list costs as much as the dearest."""
    return cost_nanousd(price_of(prices, call.model), call.usage)


def booked_nanousd(call: LoggedCall, prices: Mapping[str, Price], *, max_tokens: int) -> int:
    """Return what the gateway books for a call: nobody tells it how much of a reply that was cut had been written."""
    usage = call.usage if call.finish == "completed" else call.usage._replace(output_tokens=max_tokens)
    return cost_nanousd(price_of(prices, call.model), usage)

"""What the gateway itself says no with, in the error shape of the Messages API.

`type` decides what the SDK and the CLI do; `details.error_code` is ours and tells the worker what happened.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Any

from pydantic_core import to_json

from sandbox.errors import SandboxError


class Code(StrEnum):
    """Why a call was refused or cut; the worker's client turns them into errors (sandbox/models.py)."""

    UNKNOWN_TOKEN = "unknown_token"
    ATTEMPT_ENDED = "attempt_ended"
    DEADLINE_PASSED = "deadline_passed"
    FENCED = "fenced"
    CANCELLED = "cancelled"
    WRONG_DOOR = "wrong_door"
    NO_PROVIDER = "no_provider"
    BAD_REQUEST = "bad_request"
    TOO_LARGE = "too_large"
    MODEL_REFUSED = "model_refused"
    FEATURE_REFUSED = "feature_refused"
    OVERRIDES_INVALID = "overrides_invalid"
    NOT_FOUND = "not_found"
    COST_CAP = "cost_cap"
    LANE_PARKED = "lane_parked"
    RATE_LIMITED = "rate_limited"
    LEDGER_UNREACHABLE = "ledger_unreachable"
    PROVIDER_UNREACHABLE = "provider_unreachable"
    PROVIDER_GONE = "provider_gone"
    SHUTTING_DOWN = "shutting_down"


_ANSWERS: dict[Code, tuple[int, str]] = {
    Code.UNKNOWN_TOKEN: (401, "authentication_error"),
    Code.ATTEMPT_ENDED: (401, "authentication_error"),
    Code.DEADLINE_PASSED: (401, "authentication_error"),
    Code.WRONG_DOOR: (401, "authentication_error"),
    Code.FENCED: (403, "permission_error"),
    Code.CANCELLED: (403, "permission_error"),
    Code.NO_PROVIDER: (403, "permission_error"),
    Code.BAD_REQUEST: (400, "invalid_request_error"),
    Code.TOO_LARGE: (413, "request_too_large"),
    Code.MODEL_REFUSED: (403, "permission_error"),
    Code.FEATURE_REFUSED: (403, "permission_error"),
    Code.OVERRIDES_INVALID: (403, "permission_error"),
    Code.NOT_FOUND: (404, "not_found_error"),
    Code.COST_CAP: (429, "billing_error"),
    Code.LANE_PARKED: (429, "rate_limit_error"),
    Code.RATE_LIMITED: (429, "rate_limit_error"),
    Code.LEDGER_UNREACHABLE: (503, "overloaded_error"),
    Code.PROVIDER_UNREACHABLE: (502, "api_error"),
    Code.PROVIDER_GONE: (502, "api_error"),
    Code.SHUTTING_DOWN: (503, "overloaded_error"),
}


SHORT_WAIT_SECONDS = 5.0
"""A caller that waits by itself may wait so long; for more, its job had better wait, without a worker and a box."""


def retry_headers(seconds: float) -> list[tuple[bytes, bytes]]:
    """Return the headers by which a caller learns when to ask again, and whether it is worth waiting for.

    The CLI sleeps for as long as it is told, however long that is, unless it is told not to try again.
    """
    whole = max(1, math.ceil(seconds))
    should_retry = b"true" if whole <= SHORT_WAIT_SECONDS else b"false"
    return [(b"retry-after", str(whole).encode()), (b"x-should-retry", should_retry)]


class RefusedError(SandboxError):
    """The gateway does not make, or does not go on with, a call (whose fault: see the code)."""

    def __init__(self, code: Code, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.retry_after = retry_after
        """Seconds after which it may be asked again; None when that helps nothing."""

    def __str__(self) -> str:
        return self.message

    @property
    def status(self) -> int:
        """The HTTP status."""
        return _ANSWERS[self.code][0]

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """The headers of the answer. What the gateway refuses gets no better by asking again, but for a lane's sake."""
        waiting = [(b"x-should-retry", b"false")] if self.retry_after is None else retry_headers(self.retry_after)
        return [(b"content-type", b"application/json"), *waiting]

    @property
    def body(self) -> bytes:
        """The answer's body."""
        return to_json(self._fields())

    @property
    def event(self) -> bytes:
        """The same as an event of a stream that has begun."""
        return b"event: error\ndata: " + to_json(self._fields()) + b"\n\n"

    def _fields(self) -> dict[str, Any]:
        kind = _ANSWERS[self.code][1]
        details = {"error_code": self.code.value}
        return {"type": "error", "error": {"type": kind, "message": self.message, "details": details}}

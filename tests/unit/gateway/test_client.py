import json
import pickle
from typing import Any

import pytest

from gateway.client import translate_error
from gateway.errors import (
    BudgetExceededError,
    CancelledCallError,
    FencedCallError,
    GatewayError,
    GatewayUnreachableError,
    NoProviderKeyError,
    ProviderBusyError,
    ProviderDownError,
    ProviderError,
)
from gateway.messages import Code, RefusedError


def answer(status: int, body: Any, **headers: str) -> GatewayError:
    return translate_error(status, body, retry_after=headers.get("retry-after"))


def refused(code: Code) -> GatewayError:
    refusal = RefusedError(code, "why")
    return answer(refusal.status, json.loads(refusal.body))


def failed(status: int, kind: str, **headers: str) -> GatewayError:
    return answer(status, {"type": "error", "error": {"type": kind, "message": "why"}}, **headers)


EXPECTED = {
    Code.UNKNOWN_TOKEN: FencedCallError,
    Code.ATTEMPT_ENDED: FencedCallError,
    Code.DEADLINE_PASSED: FencedCallError,
    Code.FENCED: FencedCallError,
    Code.CANCELLED: CancelledCallError,
    Code.NO_PROVIDER: NoProviderKeyError,
    Code.BUDGET_EXCEEDED: BudgetExceededError,
    Code.LEDGER_UNREACHABLE: GatewayUnreachableError,
    Code.SHUTTING_DOWN: GatewayUnreachableError,
    Code.CIRCUIT_OPEN: ProviderBusyError,
    Code.RATE_LIMITED: ProviderBusyError,
    Code.PROVIDER_UNREACHABLE: ProviderDownError,
    Code.PROVIDER_GONE: ProviderDownError,
}


@pytest.mark.parametrize("code", list(Code))
def test_every_refusal_of_the_gateway_has_its_error(code: Code) -> None:
    assert type(refused(code)) is EXPECTED.get(code, ProviderError)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (failed(429, "rate_limit_error"), ProviderBusyError),
        (failed(529, "overloaded_error"), ProviderBusyError),
        (failed(200, "overloaded_error"), ProviderBusyError),
        (failed(500, "api_error"), ProviderDownError),
        (failed(200, "api_error"), ProviderDownError),
        (failed(200, "timeout_error"), ProviderDownError),
        (failed(200, "invalid_request_error"), ProviderError),
        (answer(200, json.loads(RefusedError(Code.PROVIDER_GONE, "why").body)), ProviderDownError),
        (failed(400, "invalid_request_error"), ProviderError),
        (failed(402, "billing_error"), ProviderError),
        (failed(401, "authentication_error"), NoProviderKeyError),
        (answer(502, "<html>"), ProviderDownError),
        (answer(500, None), ProviderDownError),
    ],
)
def test_what_the_provider_says_is_told_apart(error: GatewayError, expected: type[GatewayError]) -> None:
    assert type(error) is expected


@pytest.mark.parametrize(("header", "seconds"), [("7", 7.0), ("0.5", 0.5), ("soon", None), ("-1", None), ("inf", None)])
def test_the_wait_that_a_busy_provider_asks_for_is_known(header: str, seconds: float | None) -> None:
    error = failed(429, "rate_limit_error", **{"retry-after": header})
    assert isinstance(error, ProviderBusyError)
    assert error.retry_after == seconds


@pytest.mark.parametrize(
    "error",
    [
        BudgetExceededError("x"),
        FencedCallError("x"),
        CancelledCallError("x"),
        NoProviderKeyError("x"),
        GatewayUnreachableError("x"),
        ProviderBusyError("x", 1.5),
        ProviderBusyError("x"),
        ProviderError(500, "x"),
        RefusedError(Code.FENCED, "x"),
    ],
)
def test_errors_pickle(error: GatewayError) -> None:
    copied = pickle.loads(pickle.dumps(error))
    assert type(copied) is type(error)
    assert str(copied) == str(error)
    assert vars(copied) == vars(error)

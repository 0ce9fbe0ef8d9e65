"""Errors as RFC 9457 problem details, which name field and rule and never repeat what the caller sent."""

from __future__ import annotations

import http
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from sqlalchemy.exc import DataError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from ledger.errors import (
    ApprovalRefusedError,
    ClusterNotFoundError,
    GateNotFoundError,
    GateRefusedError,
    IdempotencyConflictError,
    JobNotFoundError,
    MessageRefusedError,
    NotContinuableError,
    NotReplayableError,
    PublishConflictError,
    ReleaseNotFoundError,
    SiteNotFoundError,
    WrongStateError,
)
from producers.errors import (
    AdmissionRefusedError,
    AuthenticationError,
    BodyTooLargeError,
    BrokenBodyError,
    InvalidInputError,
    LedgerAwayError,
    MissingScopeError,
    PageNotFoundError,
    PreviewGoneError,
    SiteConflictError,
    TooManyStreamsError,
    TooManyTriesError,
)
from producers.intake.submit import Refusal
from routing.errors import FieldError, InvalidJobError, PolicyError
from routing.jobs import Reason

logger = logging.getLogger(__name__)

PROBLEM_TYPE = "application/problem+json"
RETRY_SECONDS = 2


class FieldProblem(BaseModel):
    """A field and the rule that it breaks."""

    field: str
    rule: str


class Problem(BaseModel):
    """The body of every error response (RFC 9457)."""

    type: str
    """Stable name of the kind of problem."""
    title: str
    status: int
    detail: str
    errors: list[FieldProblem] = []


def problem(
    status: int, kind: str, detail: str, *, errors: Iterable[FieldError] = (), headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """Return an error response."""
    return _respond(_problem(status, kind, detail, errors=errors), headers=headers)


def _problem(status: int, kind: str, detail: str, *, errors: Iterable[FieldError] = ()) -> Problem:
    return Problem(
        type=f"urn:pointsman:problem:{kind}",
        title=http.HTTPStatus(status).phrase,
        status=status,
        detail=detail,
        errors=[FieldProblem(field=error.field, rule=error.rule) for error in errors],
    )


def _respond(content: Problem, *, headers: Mapping[str, str] | None = None) -> JSONResponse:
    return JSONResponse(
        content.model_dump(), status_code=content.status, media_type=PROBLEM_TYPE, headers=dict(headers or {})
    )


def _invalid(*errors: FieldError, status: int = 422) -> Problem:
    detail = "; ".join(f"{error.field}: {error.rule}" for error in errors)
    return _problem(status, "invalid_request", detail, errors=errors)


def problem_of(error: Refusal) -> Problem:
    """Return why a job was not accepted."""
    match error:
        case InvalidJobError():
            return _invalid(*error.errors)
        case AdmissionRefusedError():
            return _problem(429, "queue_full" if error.reason is Reason.QUEUE_FULL else "budget_exceeded", str(error))
        case IdempotencyConflictError():
            return _problem(409, "conflict", str(error))
        case LedgerAwayError():
            return _problem(503, "ledger_unreachable", str(error))


def _on_refusal(error: Exception) -> JSONResponse:
    assert isinstance(error, InvalidJobError | IdempotencyConflictError | AdmissionRefusedError)
    retry = {"Retry-After": str(error.retry_after_seconds)} if isinstance(error, AdmissionRefusedError) else {}
    return _respond(problem_of(error), headers=retry)


def _on_broken_body(error: Exception) -> JSONResponse:
    assert isinstance(error, BrokenBodyError)
    return _respond(_invalid(FieldError("body", error.rule), status=400))


def _on_large_body(error: Exception) -> JSONResponse:
    assert isinstance(error, BodyTooLargeError)
    rule = f"must not be longer than {error.max_bytes // 1024} KiB"
    return _respond(_invalid(FieldError("body", rule), status=413))


def _on_invalid_input(error: Exception) -> JSONResponse:
    assert isinstance(error, InvalidInputError)
    return _respond(_invalid(FieldError(error.field, error.rule)))


def _on_validation(error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    items = error.errors()
    if any(item["loc"][0] == "path" for item in items):  # what cannot be an id names nothing
        return problem(404, "not_found", "there is nothing here")
    fields = (FieldError(".".join(map(str, item["loc"][1:])) or "body", item["msg"]) for item in items)
    return _respond(_invalid(*fields))


def _on_authentication(error: Exception) -> JSONResponse:
    if isinstance(error, MissingScopeError):
        return problem(403, "missing_scope", str(error))
    return problem(401, "unauthenticated", str(error), headers={"WWW-Authenticate": 'Bearer realm="pointsman"'})


def on_too_many_streams(error: Exception) -> JSONResponse:
    """Return the answer to a stream for which there is no room, the same for API and console."""
    assert isinstance(error, TooManyStreamsError)
    headers = {"Retry-After": str(error.retry_after_seconds)}
    return problem(429 if error.whose == "key" else 503, "too_many_streams", str(error), headers=headers)


def _on_too_many_tries(error: Exception) -> JSONResponse:
    assert isinstance(error, TooManyTriesError)
    return problem(429, "too_many_tries", str(error), headers={"Retry-After": str(error.retry_after_seconds)})


def _on_refused_decision(error: Exception) -> JSONResponse:
    assert isinstance(error, ApprovalRefusedError | GateRefusedError)
    kind = "approval_refused" if isinstance(error, ApprovalRefusedError) else "gate_refused"
    return problem(403 if error.reason == "own_request" else 409, f"{kind}_{error.reason}", str(error))


def _on_ledger_away(error: Exception) -> JSONResponse:
    logger.warning("ledger_unreachable", extra={"error": type(error).__name__})
    detail = "the ledger cannot be reached; nothing was accepted, try again"
    return problem(503, "ledger_unreachable", detail, headers={"Retry-After": str(RETRY_SECONDS)})


def _on_http(error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    phrase = http.HTTPStatus(error.status_code).phrase
    return problem(error.status_code, phrase.lower().replace(" ", "_"), phrase, headers=error.headers)


def _on_unfit_policy(error: Exception) -> JSONResponse:
    logger.error("tenant_overrides_unfit", extra={"rule": str(error)})
    detail = "the tenant's own limits do not fit this installation's policy any more; ask its operator"
    return problem(409, "limits_do_not_fit", detail)


def _not_found(detail: str) -> Callable[[Exception], JSONResponse]:
    return lambda _: problem(404, "not_found", detail)


def _conflict(kind: str) -> Callable[[Exception], JSONResponse]:
    return lambda error: problem(409, f"{kind}_{error.reason}", str(error))  # type: ignore[attr-defined]


_RESPONSES: Mapping[type[Exception], Callable[[Exception], JSONResponse]] = {
    InvalidJobError: _on_refusal,
    AdmissionRefusedError: _on_refusal,
    IdempotencyConflictError: _on_refusal,
    BrokenBodyError: _on_broken_body,
    ClientDisconnect: lambda _: problem(408, "request_timeout", "the body did not arrive"),  # nobody reads it
    BodyTooLargeError: _on_large_body,
    InvalidInputError: _on_invalid_input,
    RequestValidationError: _on_validation,
    DataError: lambda _: _respond(_invalid(FieldError("body", "holds text or a number that cannot be stored"))),
    AuthenticationError: _on_authentication,
    TooManyStreamsError: on_too_many_streams,
    MessageRefusedError: lambda error: problem(422, "invalid_request", str(error)),
    TooManyTriesError: _on_too_many_tries,
    JobNotFoundError: _not_found("no job of this id belongs to the tenant"),
    SiteNotFoundError: _not_found("no site of this name belongs to the tenant"),
    GateNotFoundError: _not_found("no gate of this id belongs to the tenant"),
    ReleaseNotFoundError: lambda error: problem(404, "not_found", str(error)),
    ClusterNotFoundError: lambda error: problem(404, "not_found", str(error)),
    PageNotFoundError: _not_found("there is nothing here"),
    PreviewGoneError: lambda _: problem(410, "preview_gone", "this preview has expired or was withdrawn"),
    ApprovalRefusedError: _on_refused_decision,
    GateRefusedError: _on_refused_decision,
    NotContinuableError: _conflict("not_continuable"),
    NotReplayableError: _conflict("not_replayable"),
    **dict.fromkeys(
        (WrongStateError, PublishConflictError, SiteConflictError), lambda error: problem(409, "conflict", str(error))
    ),
    **dict.fromkeys((OperationalError, InterfaceError, PoolTimeoutError), _on_ledger_away),
    PolicyError: _on_unfit_policy,
    HTTPException: _on_http,
    Exception: lambda _: problem(500, "internal_error", "this is our fault; it has been logged"),
}


def add_handlers(app: FastAPI) -> None:
    """Answer every error with a problem."""
    for kind, respond in _RESPONSES.items():
        app.add_exception_handler(kind, _handler(respond))


def _handler(respond: Callable[[Exception], JSONResponse]) -> Callable[[Request, Exception], Awaitable[JSONResponse]]:
    async def handle(_: Request, error: Exception) -> JSONResponse:
        return respond(error)  # in the event loop: a function that is not async would get a thread

    return handle


_KEY_STATUSES = {
    401: "The API key is missing, wrong or revoked.",
    403: "The key lacks the operation's scope, or may not do this itself.",
    422: "A field or parameter breaks its rule, or there is none of this name.",
    429: "Too many wrong keys from this address, or with this one (`too_many_tries`).",
    503: "The ledger cannot be reached: nothing was accepted.",
}
_NAMED_STATUSES = {404: "There is none, or it belongs to another tenant."}
_BODY_STATUSES = {400: "The body is no JSON.", 413: "The body is too long."} | _NAMED_STATUSES
_CHANGE_STATUSES = {409: "The state of things, or a concurrent request, does not allow this."}
_TIMES = {"Retry-After": {"description": "When to retry, in seconds.", "schema": {"type": "integer"}}}


def describe_problems(document: dict[str, Any]) -> None:
    """Describe the error responses of every operation, in place of those that FastAPI assumes."""
    schemas = document["components"]["schemas"]
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    schemas["FieldProblem"] = FieldProblem.model_json_schema()
    schemas["Problem"] = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas["Problem"].pop("$defs", None)
    for operations in document["paths"].values():
        for method, operation in operations.items():
            responses = operation["responses"]
            responses.pop("422", None)
            for status, words in _problems_of(method, operation).items():
                content = {PROBLEM_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
                described = responses.setdefault(str(status), {"description": words})
                described["content"] = content
                if status in (429, 503):
                    described["headers"] = _TIMES
            if "requestBody" in operation:
                responses["408"] = {"description": "The body did not arrive in time; the connection is closed."}
            operation["responses"] = dict(sorted(responses.items()))


def _problems_of(method: str, operation: Mapping[str, Any]) -> dict[int, str]:
    """Return the statuses of an operation's problems, in words."""
    found = {500: "Our fault: it was logged."}
    if "security" in operation or method == "post":
        found |= _KEY_STATUSES
    if any(item["in"] == "path" or item["name"] == "site" for item in operation.get("parameters", ())):
        found |= _NAMED_STATUSES
    if "requestBody" in operation:
        found |= _BODY_STATUSES
    if method == "post":
        found |= _CHANGE_STATUSES
    return found | {int(status): "" for status in operation["responses"] if int(status) >= 400}

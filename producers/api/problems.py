"""Errors as RFC 9457 problem details, which name field and rule and never repeat what the caller sent."""

from __future__ import annotations

import http
import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from sqlalchemy.exc import DataError, OperationalError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from ledger.cells.tenant_rows import TENANT_CLOSED, is_closed_error
from ledger.errors import (
    ApprovalRefusedError,
    ClusterNotFoundError,
    GateNotFoundError,
    GateRefusedError,
    IdempotencyConflictError,
    JobNotFoundError,
    MessageRefusedError,
    NotContinuableError,
    NoticeNotFoundError,
    NotReplayableError,
    NotUndoableError,
    PublishConflictError,
    ReleaseNotFoundError,
    SiteNotFoundError,
    WrongStateError,
)
from ledger.store import LEDGER_UNREACHABLE
from producers.errors import (
    AdmissionRefusedError,
    AuthenticationError,
    BodyTooLargeError,
    BrokenBodyError,
    ForgeAwayError,
    InvalidInputError,
    LedgerAwayError,
    MissingScopeError,
    PageNotFoundError,
    PreviewGoneError,
    SiteConflictError,
    TooManyStreamsError,
    TooManyTriesError,
    TooManyUploadsError,
    UploadTooSlowError,
)
from producers.intake.refusals import Refusal
from routing.errors import FieldError, InvalidJobError, PolicyError
from routing.jobs import Reason, rule_of
from sites.errors import HandoverError, StoreUnavailableError, WorkspaceMissingError

logger = logging.getLogger(__name__)

PROBLEM_TYPE = "application/problem+json"
NOTHING = "there is nothing here"
RETRY_SECONDS = 2
_SOON = {"Retry-After": str(RETRY_SECONDS)}
_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="pointsman"'}


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
    return _respond(problem_body(status, kind, detail, errors=errors), headers=headers)


def problem_body(status: int, kind: str, detail: str, *, errors: Iterable[FieldError] = ()) -> Problem:
    """Return the body of an error response."""
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
    return problem_body(status, "invalid_request", str(InvalidJobError(errors)), errors=errors)


def problem_of(error: Refusal) -> Problem:
    """Return why a job was not accepted."""
    match error:
        case InvalidJobError():
            return _invalid(*error.errors)
        case AdmissionRefusedError():
            return problem_body(
                429, "queue_full" if error.reason is Reason.QUEUE_FULL else "budget_exceeded", str(error)
            )
        case IdempotencyConflictError():
            return problem_body(409, "conflict", str(error))
        case LedgerAwayError():
            return problem_body(503, "ledger_unreachable", str(error))


def _on_validation(error: RequestValidationError) -> JSONResponse:
    items = error.errors()
    if wrong := [item for item in items if item["loc"][0] == "path"]:  # what cannot be an id names nothing
        return problem(404, "not_found", f"{NOTHING}: {wrong[0]['loc'][1]} {rule_of(wrong[0])}")
    fields = (FieldError(".".join(map(str, item["loc"][1:])) or "body", rule_of(item)) for item in items)
    return _respond(_invalid(*fields))


def on_too_many_streams(error: Exception) -> JSONResponse:
    """Return the answer to a stream for which there is no room, the same for API and console."""
    assert isinstance(error, TooManyStreamsError)
    status = 429 if error.whose == "key" else 503
    return problem(status, "too_many_streams", str(error), headers=_retry_after(error))


def _on_ledger_away(error: Exception) -> JSONResponse:
    if isinstance(error, OperationalError) and is_closed_error(error.orig):
        detail = f"{TENANT_CLOSED}; nothing was accepted, try again"
        return problem(503, "tenant_moving", detail, headers=_SOON)
    logger.warning("ledger_unreachable", extra={"error": type(error).__name__})
    detail = "the ledger cannot be reached; nothing was accepted, try again"
    return problem(503, "ledger_unreachable", detail, headers=_SOON)


def _away(kind: str, detail: str) -> Callable[[Exception], JSONResponse]:
    def respond(error: Exception) -> JSONResponse:
        logger.warning(kind, extra={"error": str(error)})
        return problem(503, kind, detail, headers=_SOON)

    return respond


def _on_http(error: HTTPException) -> JSONResponse:
    phrase = http.HTTPStatus(error.status_code).phrase
    detail = NOTHING if error.status_code == http.HTTPStatus.NOT_FOUND else phrase
    return problem(error.status_code, phrase.lower().replace(" ", "_"), detail, headers=error.headers)


def _refused(kind: str) -> Callable[[Any], JSONResponse]:
    """Return the answer to what may not be done now; nobody may decide about a request of their own."""
    return lambda error: problem(403 if error.reason == "own_request" else 409, f"{kind}_{error.reason}", str(error))


def _retry_after(
    error: AdmissionRefusedError | TooManyStreamsError | TooManyTriesError | TooManyUploadsError,
) -> dict[str, str]:
    return {"Retry-After": str(error.retry_after_seconds)}


def _on_unfit_policy(error: Exception) -> JSONResponse:
    logger.error("tenant_overrides_unfit", extra={"rule": str(error)})
    detail = "the tenant's own limits do not fit this installation's policy any more; ask its operator"
    return problem(409, "limits_do_not_fit", detail)


def _not_found(detail: str) -> Callable[[Exception], JSONResponse]:
    return lambda _: problem(404, "not_found", detail)


def _told(status: int, kind: str) -> Callable[[Exception], JSONResponse]:
    return lambda error: problem(status, kind, str(error))


_RESPONSES: Mapping[type[Exception], Callable[[Any], JSONResponse]] = {
    **dict.fromkeys((InvalidJobError, IdempotencyConflictError), lambda error: _respond(problem_of(error))),
    AdmissionRefusedError: lambda error: _respond(problem_of(error), headers=_retry_after(error)),
    BrokenBodyError: lambda error: _respond(_invalid(FieldError("body", error.rule), status=400)),
    ClientDisconnect: lambda _: problem(408, "request_timeout", "the body did not arrive"),  # nobody reads it
    UploadTooSlowError: _told(408, "request_timeout"),
    BodyTooLargeError: lambda error: _respond(
        _invalid(FieldError("body", f"must not be longer than {error.max_bytes // 1024} KiB"), status=413)
    ),
    InvalidInputError: lambda error: _respond(_invalid(FieldError(error.field, error.rule))),
    RequestValidationError: _on_validation,
    DataError: lambda _: _respond(_invalid(FieldError("body", "holds text or a number that cannot be stored"))),
    AuthenticationError: lambda error: problem(401, "unauthenticated", str(error), headers=_CHALLENGE),
    MissingScopeError: _told(403, "missing_scope"),
    TooManyStreamsError: on_too_many_streams,
    TooManyUploadsError: lambda error: problem(503, "too_many_uploads", str(error), headers=_retry_after(error)),
    MessageRefusedError: _told(422, "invalid_request"),
    TooManyTriesError: lambda error: problem(429, "too_many_tries", str(error), headers=_retry_after(error)),
    JobNotFoundError: _not_found("no job of this id belongs to the tenant"),
    SiteNotFoundError: _not_found("no site of this name belongs to the tenant"),
    GateNotFoundError: _not_found("no gate of this id belongs to the tenant"),
    **dict.fromkeys((ReleaseNotFoundError, ClusterNotFoundError, NoticeNotFoundError), _told(404, "not_found")),
    WorkspaceMissingError: lambda error: problem(404, "not_found", f"the work of this run is gone: {error}"),
    PageNotFoundError: _not_found(NOTHING),
    PreviewGoneError: lambda _: problem(410, "preview_gone", "this preview has expired or was withdrawn"),
    ApprovalRefusedError: _refused("approval_refused"),
    GateRefusedError: _refused("gate_refused"),
    HandoverError: _told(409, "handover_refused"),
    NotContinuableError: _refused("not_continuable"),
    NotReplayableError: _refused("not_replayable"),
    NotUndoableError: _refused("not_undoable"),
    **dict.fromkeys((WrongStateError, PublishConflictError, SiteConflictError), _told(409, "conflict")),
    **dict.fromkeys(LEDGER_UNREACHABLE, _on_ledger_away),
    StoreUnavailableError: _away(
        "content_store_unreachable", "the content store cannot be reached; nothing is lost, try again"
    ),
    ForgeAwayError: _away(
        "forge_unreachable",
        "the forge could not be asked whether its user may push; nothing was accepted, send it again",
    ),
    PolicyError: _on_unfit_policy,
    HTTPException: _on_http,
    Exception: lambda _: problem(500, "internal_error", "this is our fault; it has been logged"),
}


def add_handlers(app: FastAPI) -> None:
    """Answer every error with a problem."""
    for kind, respond in _RESPONSES.items():
        app.add_exception_handler(kind, _handler(respond))


def _handler(respond: Callable[[Any], JSONResponse]) -> Callable[[Request, Exception], Awaitable[JSONResponse]]:
    async def handle(request: Request, error: Exception) -> JSONResponse:
        response = respond(error)  # in the event loop: a function that is not async would get a thread
        if (metrics := getattr(request.app.state, "metrics", None)) is not None:
            metrics.problems.labels(json.loads(bytes(response.body))["type"].rpartition(":")[2]).inc()
        return response

    return handle

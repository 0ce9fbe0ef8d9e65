"""Errors as RFC 9457 problem details: they name field and rule, and never repeat what the caller sent."""

from __future__ import annotations

import http
import logging
from collections.abc import Iterable, Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from sqlalchemy.exc import DataError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from starlette.exceptions import HTTPException

from ledger.errors import (
    ApprovalRefusedError,
    ClusterNotFoundError,
    GateNotFoundError,
    GateRefusedError,
    IdempotencyConflictError,
    JobNotFoundError,
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
)
from producers.intake.submit import Refusal
from routing.errors import FieldError, InvalidJobError, PolicyError
from routing.jobs import Reason

logger = logging.getLogger(__name__)

PROBLEM_TYPE = "application/problem+json"
RETRY_SECONDS = 2


class FieldProblem(BaseModel):
    """One field that breaks one rule."""

    field: str
    rule: str


class Problem(BaseModel):
    """What every error answer of the HTTP door holds (RFC 9457)."""

    type: str
    """Stable name of the kind of problem."""
    title: str
    status: int
    detail: str
    errors: list[FieldProblem] = []


def problem(
    status: int, kind: str, detail: str, *, errors: Iterable[FieldError] = (), headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """Return an error answer."""
    return _answer(_problem(status, kind, detail, errors=errors), headers=headers)


def _problem(status: int, kind: str, detail: str, *, errors: Iterable[FieldError] = ()) -> Problem:
    return Problem(
        type=f"urn:pointsman:problem:{kind}",
        title=http.HTTPStatus(status).phrase,
        status=status,
        detail=detail,
        errors=[FieldProblem(field=error.field, rule=error.rule) for error in errors],
    )


def _answer(content: Problem, *, headers: Mapping[str, str] | None = None) -> JSONResponse:
    return JSONResponse(
        content.model_dump(), status_code=content.status, media_type=PROBLEM_TYPE, headers=dict(headers or {})
    )


def invalid(errors: Iterable[FieldError], *, status: int = 422) -> JSONResponse:
    """Return the answer to a request that breaks rules."""
    return _answer(_invalid(errors, status=status))


def _invalid(errors: Iterable[FieldError], *, status: int = 422) -> Problem:
    found = list(errors)
    detail = "; ".join(f"{error.field}: {error.rule}" for error in found)
    return _problem(status, "invalid_request", detail, errors=found)


def problem_of(error: Refusal) -> Problem:
    """Return what a caller is told of a job that was not taken in."""
    match error:
        case InvalidJobError():
            return _invalid(error.errors)
        case AdmissionRefusedError():
            return _problem(429, "queue_full" if error.reason is Reason.QUEUE_FULL else "budget_exceeded", str(error))
        case IdempotencyConflictError():
            return _problem(409, "conflict", str(error))
        case LedgerAwayError():
            return _problem(503, "ledger_unreachable", str(error))


async def _on_refusal(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, InvalidJobError | IdempotencyConflictError | AdmissionRefusedError)
    retry = {"Retry-After": str(error.retry_after_seconds)} if isinstance(error, AdmissionRefusedError) else {}
    return _answer(problem_of(error), headers=retry)


async def _on_broken_body(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, BrokenBodyError)
    return invalid([FieldError("body", error.rule)], status=400)


async def _on_too_large(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, BodyTooLargeError)
    return invalid([FieldError("body", f"must not be longer than {error.max_bytes // 1024} KiB")], status=413)


async def _on_invalid_site(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, InvalidInputError)
    return invalid([FieldError(error.field, error.rule)])


async def _on_validation(_: Request, error: Exception) -> JSONResponse:
    """A path that cannot be an id is a path where nothing is."""
    assert isinstance(error, RequestValidationError)
    items = error.errors()
    if any(item["loc"][0] == "path" for item in items):
        return problem(404, "not_found", "there is nothing here")
    return invalid(FieldError(".".join(map(str, item["loc"][1:])) or "body", item["msg"]) for item in items)


async def _on_unstorable(_: Request, __: Exception) -> JSONResponse:
    return invalid([FieldError("body", "holds text or a number that cannot be stored")])


async def _on_authentication(_: Request, error: Exception) -> JSONResponse:
    if isinstance(error, MissingScopeError):
        return problem(403, "missing_scope", str(error))
    return problem(401, "unauthenticated", str(error), headers={"WWW-Authenticate": 'Bearer realm="pointsman"'})


async def _on_job_not_found(_: Request, __: Exception) -> JSONResponse:
    return problem(404, "not_found", "no job of this id belongs to the tenant")


async def _on_site_not_found(_: Request, __: Exception) -> JSONResponse:
    return problem(404, "not_found", "no site of this name belongs to the tenant")


async def _on_not_found(_: Request, error: Exception) -> JSONResponse:
    return problem(404, "not_found", str(error) or "there is nothing here")


async def _on_gone(_: Request, __: Exception) -> JSONResponse:
    return problem(410, "preview_gone", "this preview has expired or was withdrawn")


async def _on_approval_refused(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ApprovalRefusedError)
    status = 403 if error.reason == "own_request" else 409
    return problem(status, f"approval_refused_{error.reason}", str(error))


async def _on_gate_refused(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, GateRefusedError)
    return problem(403 if error.reason == "own_request" else 409, f"gate_refused_{error.reason}", str(error))


async def _on_gate_not_found(_: Request, __: Exception) -> JSONResponse:
    return problem(404, "not_found", "no gate of this id belongs to the tenant")


async def _on_not_continuable(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, NotContinuableError)
    return problem(409, f"not_continuable_{error.reason}", str(error))


async def _on_not_replayable(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, NotReplayableError)
    return problem(409, f"not_replayable_{error.reason}", str(error))


async def _on_conflict(_: Request, error: Exception) -> JSONResponse:
    return problem(409, "conflict", str(error))


async def _on_ledger_away(_: Request, error: Exception) -> JSONResponse:
    logger.warning("ledger_unreachable", extra={"error": type(error).__name__})
    detail = "the ledger cannot be reached; nothing was accepted, try again"
    return problem(503, "ledger_unreachable", detail, headers={"Retry-After": str(RETRY_SECONDS)})


async def _on_http(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    phrase = http.HTTPStatus(error.status_code).phrase
    return problem(error.status_code, phrase.lower().replace(" ", "_"), phrase, headers=error.headers)


async def _on_unexpected(_: Request, __: Exception) -> JSONResponse:
    return problem(500, "internal_error", "this is our fault; it has been logged")


async def _on_unfit_policy(_: Request, error: Exception) -> JSONResponse:
    logger.error("tenant_overrides_unfit", extra={"rule": str(error)})
    detail = "the tenant's own limits do not fit this installation's policy any more; ask its operator"
    return problem(409, "limits_do_not_fit", detail)


_HANDLERS = {
    InvalidJobError: _on_refusal,
    AdmissionRefusedError: _on_refusal,
    BrokenBodyError: _on_broken_body,
    BodyTooLargeError: _on_too_large,
    InvalidInputError: _on_invalid_site,
    RequestValidationError: _on_validation,
    DataError: _on_unstorable,
    AuthenticationError: _on_authentication,
    JobNotFoundError: _on_job_not_found,
    SiteNotFoundError: _on_site_not_found,
    ReleaseNotFoundError: _on_not_found,
    ClusterNotFoundError: _on_not_found,
    PageNotFoundError: _on_not_found,
    PreviewGoneError: _on_gone,
    IdempotencyConflictError: _on_refusal,
    WrongStateError: _on_conflict,
    ApprovalRefusedError: _on_approval_refused,
    GateRefusedError: _on_gate_refused,
    GateNotFoundError: _on_gate_not_found,
    NotContinuableError: _on_not_continuable,
    NotReplayableError: _on_not_replayable,
    PublishConflictError: _on_conflict,
    SiteConflictError: _on_conflict,
    OperationalError: _on_ledger_away,
    InterfaceError: _on_ledger_away,
    PoolTimeoutError: _on_ledger_away,
    PolicyError: _on_unfit_policy,
    HTTPException: _on_http,
    Exception: _on_unexpected,
}


def add_handlers(app: FastAPI) -> None:
    """Answer every error as a problem."""
    for kind, handler in _HANDLERS.items():
        app.add_exception_handler(kind, handler)


def describe_problems(document: dict[str, Any]) -> None:
    """Say in an OpenAPI document how every operation answers errors; FastAPI describes answers that nobody gives."""
    schemas = document["components"]["schemas"]
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    schemas["FieldProblem"] = FieldProblem.model_json_schema()
    schemas["Problem"] = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas["Problem"].pop("$defs", None)
    answer = {"content": {PROBLEM_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}}
    for operations in document["paths"].values():
        for operation in operations.values():
            operation["responses"].pop("422", None)
            operation["responses"]["4XX"] = {"description": "The caller's fault.", **answer}
            operation["responses"]["5XX"] = {"description": "Not the caller's fault.", **answer}

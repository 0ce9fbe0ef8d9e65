"""What a call can raise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import ValidationError

from pointsman_client.models import Problem

if TYPE_CHECKING:
    import httpx2


class PointsmanError(Exception):
    """Base of all."""


class UnreachableError(PointsmanError):
    """There was no answer, or it broke off. Whether the request took effect is unknown."""


class UnexpectedAnswerError(PointsmanError):
    """The request was carried out, but its answer is not one that this client reads: the versions differ."""


class WebhookRefusedError(PointsmanError):
    """A message that claims to be a webhook is none: its signature, time or body is wrong."""


class ApiError(PointsmanError):
    """The API answered with a problem (RFC 9457).

    Attributes:
        problem: what it says, with the fields at fault and their rules.
        retry_after: seconds after which it is worth another try; None where the answer names none.
    """

    def __init__(self, problem: Problem, *, retry_after: float | None) -> None:
        fields = "; ".join(f"{error.field}: {error.rule}" for error in problem.errors)
        is_news = fields not in ("", problem.detail)
        super().__init__(f"{problem.status} {problem.detail}" + (f" ({fields})" if is_news else ""))
        self.problem = problem
        self.retry_after = retry_after


class NotAllowedError(ApiError):
    """The key is wrong, or lacks the scope (401, 403)."""


class NotFoundError(ApiError):
    """There is none, or it belongs to another tenant (404)."""


class ConflictError(ApiError):
    """The state of things does not allow this (409)."""


class InvalidRequestError(ApiError):
    """A field breaks its rule (400, 413, 422)."""


class NoRoomError(ApiError):
    """A queue is full or a budget is spent (429): nothing was accepted."""


class ServerError(ApiError):
    """The installation's fault (5xx)."""


_BY_STATUS: dict[int, type[ApiError]] = {
    401: NotAllowedError,
    403: NotAllowedError,
    404: NotFoundError,
    409: ConflictError,
    400: InvalidRequestError,
    413: InvalidRequestError,
    422: InvalidRequestError,
    429: NoRoomError,
}


def unreachable(url: httpx2.URL, error: httpx2.TransportError) -> UnreachableError:
    """Return the error of a call without an answer, with the address that was called."""
    place = f"{url.scheme}://{url.netloc.decode()}"  # without a user's name and password
    return UnreachableError(f"{place}: {str(error) or type(error).__name__}")


def error_of(status: int, body: bytes, retry_after: float | None) -> ApiError:
    """Return the error that an answer stands for; a proxy's answer need not be a problem."""
    try:
        problem = Problem.model_validate_json(body)
    except ValidationError:
        problem = Problem(type="about:blank", title="", status=status, detail=body[:200].decode(errors="replace"))
    kind = _BY_STATUS.get(status, ServerError if status >= 500 else ApiError)
    return kind(problem, retry_after=retry_after)

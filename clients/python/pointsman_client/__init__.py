"""Client for Pointsman's HTTP API: `Client`, or `AsyncClient` for asyncio."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pointsman_client.errors import (
    ApiError,
    ConflictError,
    InvalidRequestError,
    NoRoomError,
    NotAllowedError,
    NotFoundError,
    PointsmanError,
    ServerError,
    UnexpectedAnswerError,
    UnreachableError,
    WebhookRefusedError,
)

if TYPE_CHECKING:
    from pointsman_client.aio import AsyncClient
    from pointsman_client.sync import Client
    from pointsman_client.webhooks import verify_webhook

__all__ = [
    "ApiError",
    "AsyncClient",
    "Client",
    "ConflictError",
    "InvalidRequestError",
    "NoRoomError",
    "NotAllowedError",
    "NotFoundError",
    "PointsmanError",
    "ServerError",
    "UnexpectedAnswerError",
    "UnreachableError",
    "WebhookRefusedError",
    "verify_webhook",
]


_MODULE_OF = {"AsyncClient": "aio", "Client": "sync", "verify_webhook": "webhooks"}


def __getattr__(name: str) -> Any:
    """Import what takes asyncio, TLS or cryptography when it is asked for: programs at a terminal must start fast."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"pointsman_client.{_MODULE_OF[name]}"), name)

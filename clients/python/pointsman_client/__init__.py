"""Client for Pointsman's HTTP API: `Client`, or `AsyncClient` for asyncio."""

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
    UnreachableError,
    WebhookRefusedError,
)
from pointsman_client.sync import Client
from pointsman_client.webhooks import verify_webhook

if TYPE_CHECKING:
    from pointsman_client.aio import AsyncClient

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
    "UnreachableError",
    "WebhookRefusedError",
    "verify_webhook",
]


def __getattr__(name: str) -> Any:
    """Import the client for asyncio when it is asked for: asyncio takes a third of what all else does."""
    if name != "AsyncClient":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pointsman_client.aio import AsyncClient

    return AsyncClient

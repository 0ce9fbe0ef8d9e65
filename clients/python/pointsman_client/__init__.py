"""Client for Pointsman's HTTP API: `Client`, or `AsyncClient` for asyncio."""

from pointsman_client.aio import AsyncClient
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

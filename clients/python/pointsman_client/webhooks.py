"""Webhooks: https://www.standardwebhooks.com."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import time
from collections.abc import Mapping

from pydantic import TypeAdapter, ValidationError

from pointsman_client.errors import WebhookRefusedError
from pointsman_client.models import JobEnded, JobWaits

_OLDEST_SECONDS = 300
_MESSAGE: TypeAdapter[JobEnded | JobWaits] = TypeAdapter(JobEnded | JobWaits)


def verify_webhook(secret: str, headers: Mapping[str, str], body: bytes) -> JobEnded | JobWaits:
    """Return what a webhook says, once its signature and time are right.

    The header `webhook-id` is the same for every try and replay: a receiver keeps the ids of what it has handled.

    Args:
        secret: as `pointsman webhook secret` prints it.
        headers: of the request; names in any case.
        body: exactly as it arrived.

    Raises:
        WebhookRefusedError: somebody else sent it, it is older than five minutes, or it is no message of Pointsman.
        ValueError: the secret is none: the receiver's own fault.
    """
    try:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except binascii.Error:
        key = b""
    if not key:
        raise ValueError("the secret must be as `pointsman webhook secret` prints it")
    found = {name.lower(): value for name, value in headers.items()}
    message_id, at = found.get("webhook-id", ""), found.get("webhook-timestamp", "")
    digest = hmac.digest(key, f"{message_id}.{at}.".encode() + body, hashlib.sha256)
    wanted = f"v1,{base64.b64encode(digest).decode()}".encode()
    signatures = found.get("webhook-signature", "").encode().split()
    if not any([hmac.compare_digest(wanted, signature) for signature in signatures]):
        raise WebhookRefusedError("the signature is wrong")
    if not at.isdecimal() or abs(time.time() - int(at)) > _OLDEST_SECONDS:
        raise WebhookRefusedError("the time is too far from now")
    try:
        return _MESSAGE.validate_json(body)
    except ValidationError:
        raise WebhookRefusedError("the body is no message about a job") from None

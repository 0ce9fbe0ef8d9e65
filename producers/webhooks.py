"""Deliver the one notification of a job's end to its owner's callback: signed, retried, never into our own network."""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import httpx
from sqlalchemy import select
from sqlalchemy import update as sql_update
from sqlmodel import col
from standardwebhooks.webhooks import Webhook

from monitoring.ledger.clock import after, moment, now
from monitoring.ledger.record_tables import Notification
from monitoring.ledger.store import Ledger
from producers.config import WebhookConfig
from sandbox.addresses import is_public

logger = logging.getLogger(__name__)

RETRY_SECONDS = (5, 30, 120, 600, 3600)
"""Waits before the second and later tries; after the last the notification stays undelivered, on record."""
TIMEOUT_SECONDS = 5.0
"""How long a receiver may say nothing."""
DEADLINE_SECONDS = 10.0
"""How long one delivery may take in all: a receiver that sends a byte now and then must not hold up the others."""
_CLAIM_SECONDS = 60


def refusal_of(url: str, addresses: Sequence[str], *, allow_private: bool) -> str | None:
    """Tell why a callback must not go to `url`, or None when it may (SSRF: the address decides, not the name)."""
    if not _is_sound(url):
        return "the URL must be http or https, with a host and without credentials"
    if not addresses:
        return "the host has no address"
    if not allow_private and not all(is_public(address) for address in addresses):
        return "the host has an address that is not public"
    return None


def _is_sound(url: str) -> bool:
    try:
        parts = urlsplit(url)
        httpx.URL(url)
        is_addressed = bool(parts.hostname) and parts.port != 0
    except (ValueError, httpx.InvalidURL):
        return False
    return parts.scheme in ("http", "https") and is_addressed and not parts.username and not parts.password


def _addresses(url: str) -> list[str]:
    try:
        host = urlsplit(url).hostname
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM) if host else []
    except (OSError, ValueError):  # a name that IDNA refuses is a ValueError
        return []
    return sorted({str(item[4][0]) for item in found})


class _Deadline:
    """Hangs up on a receiver when its time is over. httpx limits only the wait for each single read."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._is_over = False

    def trace(self, event: str, facts: dict[str, Any]) -> None:
        """Learn which socket is used: given to httpx as its extension `trace`."""
        if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            self._socket = facts["return_value"].get_extra_info("socket")
            if self._is_over:
                self._hang_up()

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Hang up if the block is not done in time."""
        timer = threading.Timer(seconds, self._hang_up)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _hang_up(self) -> None:
        self._is_over = True
        if self._socket is not None:
            with suppress(OSError):  # it has hung up itself
                self._socket.shutdown(socket.SHUT_RDWR)


class WebhookSender:
    """Delivers what is due."""

    def __init__(self, ledger: Ledger, config: WebhookConfig, *, deadline_seconds: float = DEADLINE_SECONDS) -> None:
        self._ledger = ledger
        self._config = config
        self._deadline_seconds = deadline_seconds
        secret = config.secret.get_secret_value()
        self._signer = Webhook(secret) if secret else None
        self._client = httpx.Client(
            timeout=TIMEOUT_SECONDS, follow_redirects=False, trust_env=False,
            limits=httpx.Limits(max_keepalive_connections=0),
        )  # fmt: skip

    def deliver_due(self, *, limit: int = 20) -> int:
        """Send the notifications that are due; returns how many were tried."""
        if self._signer is None:
            return 0
        due = self._claim_due(limit)
        for notification in due:
            self._deliver(notification)
        return len(due)

    def _claim_due(self, limit: int) -> Sequence[Notification]:
        with self._ledger.begin() as session:
            query = select(Notification).where(
                col(Notification.delivered_at).is_(None),
                col(Notification.next_at) <= moment(),
            )
            due = session.scalars(query.limit(limit).with_for_update(skip_locked=True)).all()
            for notification in due:
                notification.attempts += 1
                notification.next_at = after(_CLAIM_SECONDS)  # type: ignore[assignment]
            session.flush()
            return due

    def _deliver(self, notification: Notification) -> None:
        url = notification.callback_url or ""
        addresses = _addresses(url)
        refusal = refusal_of(url, addresses, allow_private=self._config.allow_private)
        is_delivered = refusal is None and self._post(httpx.URL(url), notification, address=addresses[0])
        if refusal is not None:
            logger.warning("webhook_refused", extra={"job_id": str(notification.job_id), "rule": refusal})
        self._book(notification.job_id, notification.attempts, is_delivered=is_delivered)

    def _post(self, url: httpx.URL, notification: Notification, *, address: str) -> bool:
        """Send it to the very address that was checked: a second look-up of the name could give another."""
        assert self._signer is not None
        body = json.dumps(notification.payload, sort_keys=True)
        sent_at = datetime.now(UTC)
        message_id = f"msg_{notification.job_id}"
        headers = {
            "host": url.netloc.decode("ascii"),
            "content-type": "application/json",
            "webhook-id": message_id,
            "webhook-timestamp": str(int(sent_at.timestamp())),
            "webhook-signature": self._signer.sign(message_id, sent_at, body),
        }
        deadline = _Deadline()
        extensions = {"sni_hostname": url.raw_host.decode("ascii"), "trace": deadline.trace}
        try:
            target = url.copy_with(host=address)
            post = self._client.stream("POST", target, content=body, headers=headers, extensions=extensions)
            with deadline.within(self._deadline_seconds), post as answer:
                return answer.is_success  # the body is the receiver's: it is never read
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            logger.info("webhook_failed", extra={"job_id": str(notification.job_id), "error": type(error).__name__})
            return False

    def _book(self, job_id: UUID, attempts: int, *, is_delivered: bool) -> None:
        if is_delivered:
            values = {"delivered_at": now(), "next_at": None}
        elif attempts > len(RETRY_SECONDS):
            values = {"next_at": None}
        else:
            values = {"next_at": after(RETRY_SECONDS[attempts - 1])}
        own = col(Notification.job_id) == job_id
        if not is_delivered:  # a sender that was away for long has no say in what another is doing
            own &= col(Notification.attempts) == attempts
        with self._ledger.begin() as session:
            session.execute(sql_update(Notification).where(own).values(**values))

    def close(self) -> None:
        """Close the HTTP client."""
        self._client.close()

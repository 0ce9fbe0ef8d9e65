"""Deliver the one notification of a job's end to its owner's callback: signed, retried, never into our own network."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx2
from standardwebhooks.webhooks import Webhook

from gateway.network import authorities, is_public
from ledger.notifications import Due, book, claim_due_notifications
from ledger.record_tables import Delivery
from ledger.store import Ledger
from producers.config import WebhookConfig

logger = logging.getLogger(__name__)

PREFIX = "whsec_"
RETRY_SECONDS = (5, 30, 120, 600, 3600)
"""Waits before the second and later tries; after the last the notification stays undelivered, on record."""
TIMEOUT_SECONDS = 5.0
"""How long a receiver may be silent."""
DEADLINE_SECONDS = 10.0
"""How long one delivery may take in all: a receiver that trickles bytes must not delay the others."""
AT_ONCE = 4
"""Threads that deliver with one sender, each to another destination: one that hangs delays its own alone."""


def tenant_secrets(config: WebhookConfig, tenant: str) -> tuple[str, ...]:
    """Return the secrets that sign a tenant's callbacks, newest first; none where the installation has none.

    Each tenant's own, derived and never stored, so that no receiver can forge another's callbacks.
    """
    roots = [root.get_secret_value() for root in (config.secret, *config.old_secrets)]
    return tuple(_derive(root, tenant) for root in roots if root)


def _derive(root: str, tenant: str) -> str:
    made = hmac.digest(root.encode(), f"pointsman webhook {tenant}".encode(), hashlib.sha256)
    return PREFIX + base64.b64encode(made).decode()


def refusal_of(url: str, addresses: Sequence[str], *, allow_private: bool) -> str | None:
    """Return why a callback must not go to `url`; None when it may (SSRF: the address decides, not the name)."""
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
        httpx2.URL(url)
        is_addressed = bool(parts.hostname) and parts.port != 0
    except (ValueError, httpx2.InvalidURL):
        return False
    return parts.scheme in ("http", "https") and is_addressed and not parts.username and not parts.password


def _addresses(url: str) -> list[str]:
    try:
        host = urlsplit(url).hostname
        infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM) if host else []
    except (OSError, ValueError):  # a name that IDNA refuses is a ValueError
        return []
    return sorted({str(info[4][0]) for info in infos})


class _Deadline:
    """Closes a receiver's socket when its time is over; httpx2 limits only each single read."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._is_over = False

    def trace(self, event: str, facts: dict[str, Any]) -> None:
        """Note the socket: httpx2's extension `trace`."""
        if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            self._socket = facts["return_value"].get_extra_info("socket")
            if self._is_over:
                self._hang_up()

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Close the socket if the block is not done in time."""
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
            with suppress(OSError):  # already closed
                self._socket.shutdown(socket.SHUT_RDWR)


class _Answer(NamedTuple):
    """The result of one try."""

    outcome: str
    status: int | None = None
    detail: str = ""


class WebhookSender:
    """Delivers from several threads at once, to each destination one notification after the other."""

    def __init__(self, ledger: Ledger, config: WebhookConfig, *, deadline_seconds: float = DEADLINE_SECONDS) -> None:
        self._ledger = ledger
        self._config = config
        self._deadline_seconds = deadline_seconds
        self._taking = threading.Lock()
        self._busy: set[str] = set()
        self._client = httpx2.Client(
            verify=authorities(),
            timeout=TIMEOUT_SECONDS,
            follow_redirects=False,
            trust_env=False,
            limits=httpx2.Limits(max_keepalive_connections=0),
        )

    def deliver_due(self, *, limit: int = 20) -> int:
        """Send the due notifications of destinations that are not busy; returns how many."""
        if not self._config.secret.get_secret_value():
            return 0
        for sent in range(limit):
            if (due := self._take()) is None:
                return sent
            try:
                self._deliver(due)
            finally:
                with self._taking:
                    self._busy.discard(due.destination)
        return limit

    def _take(self) -> Due | None:
        with self._taking:
            with self._ledger.begin() as session:
                due = next(iter(claim_due_notifications(session, 1, busy=self._busy)), None)
            if due is not None:
                self._busy.add(due.destination)
        return due

    def _deliver(self, due: Due) -> None:
        started = time.monotonic()
        addresses = _addresses(due.callback_url)
        refusal = refusal_of(due.callback_url, addresses, allow_private=self._config.allow_private)
        if refusal is not None:
            logger.warning("webhook_refused", extra={"job_id": str(due.job_id), "rule": refusal})
            answer = _Answer("refused", detail=refusal)
        else:
            answer = self._post(httpx2.URL(due.callback_url), due, address=addresses[0])
        seconds = round(time.monotonic() - started, 3)
        delivery = Delivery(job_id=due.job_id, number=due.number, seconds=seconds, **answer._asdict())
        again_in = RETRY_SECONDS[due.number - 1] if due.number <= len(RETRY_SECONDS) else None
        with self._ledger.begin() as session:
            book(session, due, delivery, again_in=again_in)

    def _post(self, url: httpx2.URL, due: Due, *, address: str) -> _Answer:
        """Send it to the address that was checked: a second lookup of the name could give another."""
        body = json.dumps(due.payload, sort_keys=True)
        headers = {"host": url.netloc.decode("ascii"), "content-type": "application/json", **self._signed(due, body)}
        deadline = _Deadline()
        extensions = {"sni_hostname": url.raw_host.decode("ascii"), "trace": deadline.trace}
        try:
            target = url.copy_with(host=address)
            post = self._client.stream("POST", target, content=body, headers=headers, extensions=extensions)
            with deadline.within(self._deadline_seconds), post as answer:
                # The body is the receiver's: it is never read.
                return _Answer("delivered" if answer.is_success else "failed", status=answer.status_code)
        except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
            logger.info("webhook_failed", extra={"job_id": str(due.job_id), "error": type(error).__name__})
            return _Answer("failed", detail=type(error).__name__)

    def _signed(self, due: Due, body: str) -> dict[str, str]:
        """Return the headers of Standard Webhooks, with a signature by each valid secret."""
        sent_at, message_id = due.claimed_at, f"msg_{due.job_id}"
        signers = [Webhook(secret) for secret in tenant_secrets(self._config, due.tenant)]
        return {
            "webhook-id": message_id,
            "webhook-timestamp": str(int(sent_at.timestamp())),
            "webhook-signature": " ".join(signer.sign(message_id, sent_at, body) for signer in signers),
        }

    def close(self) -> None:
        """Close the HTTP client."""
        self._client.close()

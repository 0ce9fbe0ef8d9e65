"""Where owners are told of an end: a receiver that reads signatures, fails at times, and keeps what it was told."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, Self
from uuid import UUID

from pydantic import SecretStr
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from producers.config import WebhookConfig
from producers.dispatch.webhooks import tenant_secrets
from tests.http_server import Handler, served

_FAILS_FIRST = 8
"""Of so many owners, one is out of order when it is told for the first time."""


class Callbacks:
    """A running receiver: `url_of` an order is where its end is told."""

    def __init__(self, secret: str) -> None:
        self.told: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
        """By order: every message that was taken, whether or not it had been told before."""
        self.wrong: list[str] = []
        self._failed: set[str] = set()
        self._lock = threading.Lock()
        self._config = WebhookConfig(secret=SecretStr(secret))
        self._stack = ExitStack()
        self._url = ""

    def __enter__(self) -> Self:
        self._url = self._stack.enter_context(served(self._handler()))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def url_of(self, order: UUID, *, tenant: str) -> str:
        """Where the end of a tenant's order is told."""
        return f"{self._url}/{tenant}/{order}"

    def problems(self, ends: Mapping[UUID, tuple[UUID, str]]) -> list[str]:
        """Hold what was told against how each order's job ended (job and state, by order)."""
        found = list(self.wrong)
        for order, (job_id, state) in ends.items():
            told = [one for one in self.told.get(str(order), []) if not _is_of_a_later_try(one, job_id)]
            expected = {"job_id": str(job_id), "state": state}
            if not told:
                found.append(f"job {job_id} ended {state} and its owner was not told")
            found += [f"job {job_id} ended {state}: {one}" for one in told if not expected.items() <= one.items()]
        return found

    def _take(self, path: str, headers: Mapping[str, str], body: bytes) -> int:
        tenant, _, order = path.strip("/").partition("/")
        with self._lock:
            try:
                message = Webhook(tenant_secrets(self._config, tenant)[0]).verify(body, dict(headers))
            except WebhookVerificationError as error:
                self.wrong.append(f"{order}: {error}")
                return 401
            if int(order[-2:], 16) % _FAILS_FIRST == 0 and order not in self._failed:
                self._failed.add(order)
                return 503
            self.told[order].append(message if isinstance(message, dict) else json.loads(body))
            return 204

    def _handler(self) -> type[Handler]:
        take = self._take

        class Taking(Handler):
            def answer(self) -> None:
                headers = {name.lower(): value for name, value in self.headers.items()}
                self.say(status=take(self.path, headers, self.read_body()))

        return Taking


def _is_of_a_later_try(message: Mapping[str, Any], job_id: UUID) -> bool:
    """Whether it tells the end of a job that went on where the order's had failed: at the same address."""
    return message.get("job_id") != str(job_id) and message.get("parent_id") is not None

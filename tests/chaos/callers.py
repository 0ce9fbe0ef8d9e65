"""Callers of the leaks run: cheap jobs of every short kind over HTTP, as fast as the fleet ends them."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

import httpx2

from producers.local.embedded import Embedded

SITES = 24
OPEN_JOBS = 300
"""How many jobs are accepted ahead of the fleet."""


class Callers:
    """Submit over HTTP as fast as the fleet ends jobs."""

    def __init__(self, embedded: Embedded, *, jobs: int, seed: int, ended: Callable[[], int]) -> None:
        self._embedded = embedded
        self._rng = random.Random(seed)
        self._ended = ended
        self._numbers = iter(range(jobs))
        self.is_stopped = False
        self._lock = threading.Lock()
        self.submitted = 0
        self.errors: list[str] = []

    def run(self) -> None:
        """Submit until there are enough; several threads may."""
        with self._embedded.open_api() as client:
            while (body := self._next()) is not None:
                while self.submitted - self._ended() > OPEN_JOBS and not self.is_stopped:
                    time.sleep(0.05)
                self._submit(client, body)

    def _submit(self, client: httpx2.Client, body: dict[str, str]) -> None:
        try:
            answer = client.post("/v1/jobs", json=body)
        except httpx2.HTTPError as error:
            self.errors.append(repr(error))
            return
        if answer.status_code != httpx2.codes.ACCEPTED:
            self.errors.append(answer.text)

    def _next(self) -> dict[str, str] | None:
        with self._lock:
            number = next(self._numbers, None)
            if number is None or self.is_stopped:
                return None
            self.submitted += 1
            kind = self._rng.choices(("tool", "answer", "edit"), (6, 3, 1))[0]
            if kind == "tool":
                return {"prompt": f"echo {number}"}
            if kind == "answer":
                return {"prompt": f"What is a sourdough starter, in {10 + number % 80} words?"}
            heading = f"Bread number {number}"
            return {"prompt": f"Change the hero heading to '{heading}'", "site": f"site-{number % SITES}"}

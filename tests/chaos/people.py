"""The people around a fleet: reviewers who approve and reject, owners who answer questions and change their minds."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from typing import Any
from uuid import UUID

import httpx2
from sqlalchemy.exc import DBAPIError

from tests.chaos.clients import PATIENCE_SECONDS, Clients
from tests.chaos.scene import Scene

_LOOK_SECONDS = 0.5
_WAITING = """
    SELECT id, tenant, state FROM job
     WHERE state IN ('awaiting_approval', 'clarifying') AND NOT request ? 'project'"""
_TRANSIENT = frozenset({429, 500, 502, 503, 504})


class People(threading.Thread):
    """Looks what waits for a person, and lets somebody see to it."""

    def __init__(self, scene: Scene, clients: Clients, *, seed: int) -> None:
        super().__init__(name="people", daemon=True)
        self.done: Counter[str] = Counter()
        self.unexpected: list[str] = []
        self._scene = scene
        self._clients = clients
        self._seed = seed
        self._stopping = threading.Event()
        self._seen: set[tuple[UUID, str]] = set()
        self._http = httpx2.Client(base_url=scene.fleet.api_url, timeout=15, trust_env=False)

    def run(self) -> None:
        while not self._stopping.wait(_LOOK_SECONDS):
            try:
                self._cancel_due()
                for row in self._scene.rows(_WAITING):
                    if (row.id, row.state) not in self._seen and self._see_to(row.id, row.tenant, row.state):
                        self._seen.add((row.id, row.state))
                self._clients.send_again()
            except DBAPIError:
                continue  # the ledger is being restarted

    def stop(self) -> None:
        self._stopping.set()
        self.join(30)
        self._http.close()

    def _see_to(self, job_id: UUID, tenant: str, state: str) -> bool:
        chance = random.Random(f"{self._seed} {job_id} {state}").random()
        if state == "clarifying":
            site = self._scene.sites[int(chance * len(self._scene.sites))]
            return self._post("reply", job_id, tenant, {"option": site})
        if chance < 0.12:
            return self._post("reject", job_id, tenant, {"reason": "The headline is too loud."})
        if chance < 0.16:
            return self._post("cancel", job_id, tenant, None)
        if chance < 0.26:
            first = self._post("approve", job_id, tenant, {"undo_seconds": 10})
            return first and self._post("undo", job_id, tenant, None) and self._post("approve", job_id, tenant, {})
        return self._post("approve", job_id, tenant, {})

    def _cancel_due(self) -> None:
        due = [one for one in self._clients.cancels if one[0] <= time.monotonic()]
        for one in due:
            if self._post("cancel", one[1], one[2], None):
                self._clients.cancels.remove(one)

    def _post(self, deed: str, job_id: UUID, tenant: str, body: dict[str, Any] | None) -> bool:
        """Do it; False when it has to be tried again."""
        headers = {"authorization": f"Bearer {self._scene.keys[tenant]}"}
        try:
            answer = self._http.post(f"/v1/jobs/{job_id}/{deed}", json=body, headers=headers)
        except httpx2.HTTPError:
            return False
        if answer.status_code in _TRANSIENT or (deed == "cancel" and answer.status_code == httpx2.codes.NOT_FOUND):
            # who is told to come back tomorrow gives the job up
            is_too_long = float(answer.headers.get("retry-after", 0)) > PATIENCE_SECONDS and deed == "reply"
            return is_too_long and self._post("cancel", job_id, tenant, None)
        self.done[deed if answer.is_success else f"{deed} refused ({answer.status_code})"] += 1
        return True

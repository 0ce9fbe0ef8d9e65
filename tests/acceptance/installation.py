"""A whole embedded installation, driven from outside as its users would."""

import os
import signal
import time
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx2
import psutil
from celery import Celery
from redis import Redis

from producers.local.embedded import Embedded
from producers.local.preparation import TENANT
from tests.services import wait_until

ENDS = frozenset(
    {"answered", "published", "rejected", "expired", "cancelled", "failed", "timed_out", "budget_exceeded"}
    | {"output_exceeded", "escalated"}
)


class Installation:
    """What tests do with a running installation."""

    def __init__(self, embedded: Embedded) -> None:
        self.embedded = embedded
        self.http = embedded.open_api()

    def submit(self, prompt: str, **body: Any) -> UUID:
        answer = self.http.post("/v1/jobs", json={"prompt": prompt, **body})
        assert answer.status_code == httpx2.codes.ACCEPTED, answer.text
        return UUID(answer.json()["id"])

    def submit_by_celery(self, prompt: str, **kwargs: Any) -> UUID:
        """A client that knows the broker's URL and the task's name."""
        job_id = uuid4()
        client = Celery(broker=self.embedded.broker_url, set_as_current=False)
        client.send_task(
            "pointsman.submit",
            kwargs={"prompt": prompt, "tenant": TENANT, **kwargs},
            queue="intake",
            task_id=str(job_id),
        )
        client.close()
        return job_id

    def job(self, job_id: UUID) -> dict[str, Any]:
        answer = self.http.get(f"/v1/jobs/{job_id}")
        found: dict[str, Any] = answer.json() if answer.status_code == httpx2.codes.OK else {"state": "unknown"}
        return found

    def wait_for(self, job_id: UUID, *states: str, seconds: float = 90) -> dict[str, Any]:
        wanted = frozenset(states) or ENDS

        def look() -> dict[str, Any] | None:
            job = self.job(job_id)
            assert job["state"] in wanted or job["state"] not in ENDS, f"ended {job['state']}: {job.get('detail')}"
            return job if job["state"] in wanted else None

        found = wait_until(look, seconds=seconds, what=f"job comes to {sorted(wanted)}")
        assert found is not None
        return found

    def events(self, job_id: UUID) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.http.get(f"/v1/jobs/{job_id}/events", params={"format": "json"}).json()
        return found

    def broker(self) -> Redis:
        return Redis.from_url(self.embedded.broker_url)

    def kill_workers(self, *names: str) -> None:
        """SIGKILL worker processes, pool children included, as a machine's death would."""
        assert self.embedded.supervisor is not None
        for name in names:
            pid = self.embedded.supervisor.pids()[name]
            children = psutil.Process(pid).children(recursive=True)
            self.embedded.supervisor.kill(name)
            for child in children:
                try:
                    os.kill(child.pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue

    def start_workers(self, *names: str) -> None:
        """Start worker processes that were killed."""
        assert self.embedded.supervisor is not None
        for name in names:
            self.embedded.supervisor.restart(name)


def settle(seconds: float) -> None:
    """Let real time pass where the absence of something is the point."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        time.sleep(0.05)


def log_of(home: Path, name: str) -> str:
    return (home / "logs" / f"{name}.log").read_text(errors="replace")

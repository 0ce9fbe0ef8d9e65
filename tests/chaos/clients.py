"""Callers at all three sources: each asks with the same id until it has an answer, as one has to that wants its job."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import httpx2
from celery import Celery
from kombu import Connection
from kombu.exceptions import OperationalError as BrokerError
from redis.exceptions import RedisError
from sqlalchemy.exc import DBAPIError

from producers.dispatch.broker import Publisher
from producers.errors import AdmissionRefusedError
from producers.intake.submit import Submitter
from routing.broker import create_app
from routing.errors import InvalidJobError, RoutingError
from routing.jobs import Source
from tests.chaos.callbacks import Callbacks
from tests.chaos.scene import Scene
from tests.chaos.workload import Order

THREADS = 8
RETRY_SECONDS = 0.4
_RESEND_SECONDS = 15.0
"""A Celery client that finds no row under its id after so long sends it again: the broker was emptied before intake."""
PATIENCE_SECONDS = 60.0


@dataclass
class Told:
    """What callers were told."""

    accepted: dict[UUID, Order] = field(default_factory=dict)
    """By the id that they got; at the Celery intake, by the id that they chose."""
    refused: Counter[str] = field(default_factory=Counter)
    given_up: list[Order] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    """Answers that break a promise."""
    retries: int = 0
    resent: int = 0


def complete(order: Order, callbacks: Callbacks) -> Order:
    """Say when it may start and whom to tell, once: asked again, it has to be the same request."""
    more: dict[str, str] = {}
    if order.delay_seconds is not None:
        more["start_at"] = (datetime.now(UTC) + timedelta(seconds=order.delay_seconds)).isoformat()
    if order.has_callback:
        more["callback_url"] = callbacks.url_of(order.id, tenant=order.tenant)
    return replace(order, body={**order.body, **more})


class Clients:
    """Submits orders at an even pace, each by its source."""

    def __init__(
        self, scene: Scene, orders: Sequence[Order], *, callbacks: Callbacks, seconds: float, deadline: float
    ) -> None:
        self.told = Told()
        self.callbacks = callbacks
        self.cancels: list[tuple[float, UUID, str]] = []
        """When which job of which tenant is to be cancelled."""
        self._scene = scene
        self._orders = orders
        self._seconds = seconds
        self._deadline = deadline
        self._lock = threading.Lock()
        self._sent: dict[UUID, tuple[float, Order]] = {}
        self._celery = Celery(broker=scene.fleet.broker_url, set_as_current=False)
        app = create_app(scene.fleet.broker_url)
        self._submitter = Submitter(scene.ledger, Publisher(app), scene.policy, private_callbacks=True)
        self._http = {
            tenant: httpx2.Client(
                base_url=scene.fleet.api_url, headers={"authorization": f"Bearer {key}"}, timeout=15, trust_env=False
            )
            for tenant, key in scene.keys.items()
        }

    def run(self) -> None:
        """Submit everything; returns when every order has its answer, or the time is over."""
        sources: Mapping[str, Callable[[Order], None]] = {
            "http": self._by_http,
            "celery": self._by_celery,
            "python": self._by_python,
        }
        began = time.monotonic()
        with ThreadPoolExecutor(THREADS, thread_name_prefix="client") as pool:
            pending = []
            for place, order in enumerate(self._orders):
                wait = began + place * self._seconds / len(self._orders) - time.monotonic()
                if wait > 0:
                    time.sleep(wait)
                pending.append(pool.submit(sources[order.source], complete(order, self.callbacks)))
            for one in pending:
                one.result()

    def close(self) -> None:
        self._celery.close()
        for client in self._http.values():
            client.close()

    def _note(self, order: Order, job_id: UUID) -> None:
        with self._lock:
            self.told.accepted[job_id] = order
            if order.cancel_after_seconds is not None:
                self.cancels.append((time.monotonic() + order.cancel_after_seconds, job_id, order.tenant))

    def _try_until_told(self, order: Order, attempt: Callable[[], float | None]) -> None:
        """Try until `attempt` returns None; otherwise it says how long to wait."""
        while (wait := attempt()) is not None:
            if time.monotonic() > self._deadline:
                with self._lock:
                    self.told.given_up.append(order)
                return
            with self._lock:
                self.told.retries += 1
            time.sleep(wait)

    def _by_http(self, order: Order) -> None:
        got: list[UUID] = []

        def attempt() -> float | None:
            try:
                answer = self._http[order.tenant].post(
                    "/v1/jobs", json=dict(order.body), headers={"Idempotency-Key": str(order.id)}
                )
            except httpx2.HTTPError:
                return RETRY_SECONDS
            if answer.status_code == httpx2.codes.ACCEPTED:
                got.append(UUID(answer.json()["id"]))
                return None
            if answer.status_code == httpx2.codes.TOO_MANY_REQUESTS:
                return self._come_back("http", float(answer.headers.get("retry-after", 1)))
            if answer.status_code >= httpx2.codes.INTERNAL_SERVER_ERROR:
                return RETRY_SECONDS
            self._refuse(f"http {answer.status_code}", answer.text)
            return None

        self._try_until_told(order, attempt)
        if got and order.is_resent:
            self._try_until_told(order, attempt)
        if len(set(got)) > 1:
            self.told.wrong.append(f"one idempotency key became {len(set(got))} jobs: {got}")
        if got:
            self._note(order, got[0])

    def _by_python(self, order: Order) -> None:
        def attempt() -> float | None:
            try:
                accepted = self._submitter.submit(
                    {**order.body, "idempotency_key": str(order.id)},
                    tenant=order.tenant,
                    source=Source.PYTHON,
                    job_id=order.id,
                )
            except (DBAPIError, OSError):
                return RETRY_SECONDS
            except AdmissionRefusedError as error:
                return self._come_back("python", error.retry_after_seconds)
            except (InvalidJobError, RoutingError) as error:
                self._refuse("python", str(error))
                return None
            self._note(order, accepted.job.id)
            return None

        self._try_until_told(order, attempt)

    def _by_celery(self, order: Order) -> None:
        self._try_until_told(order, lambda: self._send(order))
        self._note(order, order.id)

    def _send(self, order: Order) -> float | None:
        try:
            # A connection of its own: Celery's pools are one for the process, and the Python source's are smaller.
            with Connection(self._scene.fleet.broker_url, connect_timeout=5) as connection:
                self._celery.send_task(
                    "pointsman.submit",
                    kwargs={**order.body, "tenant": order.tenant},
                    queue="intake",
                    task_id=str(order.id),
                    retry=False,
                    ignore_result=True,
                    producer=connection.Producer(),
                )
        except (BrokerError, RedisError, OSError):
            return RETRY_SECONDS
        with self._lock:
            self._sent[order.id] = (time.monotonic(), order)
        return None

    def send_again(self) -> int:
        """Send again what the Celery intake took and no row shows after a while; returns how much is still unseen."""
        with self._lock:
            sent = dict(self._sent)
        if not sent:
            return 0
        found = self._scene.rows("SELECT id FROM job WHERE id = ANY(:ids)", ids=list(sent))
        with self._lock:
            for row in found:
                self._sent.pop(row.id, None)
        unseen = {job_id: one for job_id, one in sent.items() if job_id not in {row.id for row in found}}
        for at, order in unseen.values():
            if time.monotonic() - at > _RESEND_SECONDS and self._send(order) is None:
                self.told.resent += 1
        return len(unseen)

    def _come_back(self, source: str, seconds: float) -> float | None:
        """Come back when it was said, unless that is tomorrow, as it is where a day's budget is spent."""
        if seconds <= PATIENCE_SECONDS:
            return seconds
        self._refuse(source, "full for today")
        return None

    def _refuse(self, how: str, why: str) -> None:
        with self._lock:
            self.told.refused[f"{how}: {why[:160]}"] += 1

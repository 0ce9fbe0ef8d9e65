"""The Celery door as a worker serves it: real messages on a real broker."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from celery import Celery
from celery.contrib.testing.worker import start_worker

from monitoring.ledger.store import Ledger, create_ledger_engine
from monitoring.ledger.tables import Job
from producers import intake
from producers.intake import register_tasks
from routing.app import create_app
from tests.factories import Shop
from tests.services import wait_until

DEAD_LEDGER = "postgresql://nobody@127.0.0.1:1/none"


@pytest.fixture
def worker_app(broker_url: str) -> Iterator[Celery]:
    app = create_app(broker_url)
    yield app
    app.close()


def send(broker_url: str, task_id: str, **kwargs: Any) -> None:
    client = Celery(broker=broker_url, set_as_current=False)
    client.send_task("pointsman.submit", kwargs=kwargs, task_id=task_id, queue="intake")
    client.close()


def serve(app: Celery, ledgers: list[Ledger], shop: Shop) -> Any:
    """A worker whose tasks get these ledgers, one each, the last for ever."""

    def ledger() -> Ledger:
        return ledgers.pop(0) if len(ledgers) > 1 else ledgers[0]

    register_tasks(app, ledger=ledger, policy=shop.policy, environment=dict)
    return start_worker(app, pool="solo", perform_ping_check=False, queues=["intake"])


def test_a_message_that_came_while_the_ledger_was_away_becomes_a_job_when_it_is_back(
    shop: Shop, worker_app: Celery, broker_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "LEDGER_PAUSE_SECONDS", 0.0)
    away = Ledger(create_ledger_engine(DEAD_LEDGER))
    job_id = uuid4()
    send(broker_url, str(job_id), tenant="acme", prompt="What is a proxy?")
    with serve(worker_app, [away, away, shop.ledger], shop):
        job: Job = wait_until(lambda: shop.find(Job, job_id), seconds=10, what="the job is accepted")
    assert (job.prompt, job.door) == ("What is a proxy?", "celery")


def test_a_field_that_is_named_like_our_own_argument_is_refused_like_any_other(
    shop: Shop, worker_app: Celery, broker_url: str
) -> None:
    job_id = uuid4()
    send(broker_url, str(job_id), tenant="acme", prompt="What is a proxy?", task="x", self="y")
    with serve(worker_app, [shop.ledger], shop):
        job: Job = wait_until(lambda: shop.find(Job, job_id), seconds=10, what="the refusal is on record")
    assert job.state == "rejected"
    assert {error["field"] for error in job.result["errors"]} == {"task", "self"}

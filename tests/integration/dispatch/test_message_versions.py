"""Workers and clients of one version with messages of another, on a real broker."""

import json
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from celery import Celery
from celery.contrib.testing.worker import start_worker

from ledger.attempts import UNKNOWN_VERSION_SECONDS
from ledger.dispatch_window import release_due
from ledger.tables import Job
from producers.dispatch.broker import Publisher
from producers.intake.celery_intake import CeleryIntake, IntakeLists
from producers.intake.submit import Submitter
from routing.broker import create_app
from routing.queues import QUEUES, SUBMIT_TASK, QueueName
from sites.content_store import ContentStore
from tests.factories import Shop
from tests.services import wait_until
from workers.lifecycle import Resources
from workers.tasks import register_tasks

MESSAGES = Path(__file__).parents[2] / "data" / "messages"


@pytest.fixture
def worker(shop: Shop, broker_url: str, tmp_path: Path) -> Iterator[Celery]:
    """A worker of this version on `tools` and `control`."""
    app = create_app(broker_url)
    resources = Resources(
        ledger=shop.ledger,
        content_store=ContentStore(tmp_path),
        policy=shop.policy,
        gateway_url="http://127.0.0.1:1",
        worker="w1",
    )
    register_tasks(app, resources=lambda: resources, policy=shop.policy, environment=dict)
    queues = [QueueName.TOOLS.value, QueueName.CONTROL.value]
    with start_worker(app, pool="solo", perform_ping_check=False, queues=queues):
        yield app
    app.close()


@pytest.fixture
def client(shop: Shop, broker_url: str) -> Iterator[Celery]:
    """A Celery client at the source of this version."""
    app, lists, stopping = create_app(broker_url), IntakeLists(broker_url), threading.Event()
    outside = Celery(broker=broker_url, set_as_current=False)
    submitter = Submitter(shop.ledger, Publisher(app), shop.policy)
    source = CeleryIntake(lists, shop.ledger, submitter, holder="one")
    serving = threading.Thread(target=source.serve, args=(stopping,), kwargs={"tick_seconds": 0.1})
    serving.start()
    yield outside
    stopping.set()
    serving.join()
    lists.close()
    outside.close()
    app.close()


def send(app: Celery, queue: QueueName, body: dict[str, Any]) -> None:
    app.send_task(QUEUES[queue].task, args=[body], queue=queue.value)


def release(shop: Shop) -> list[UUID]:
    with shop.ledger.begin() as session:
        return list(release_due(session))


def held(shop: Shop, job_id: UUID) -> Any:
    return shop.rows(
        "SELECT held_for, held_until, pushed_at, fence, waiting_since < now() AS ages, lost_attempts,"
        " extract(epoch FROM held_until - clock_timestamp()) AS seconds"
        " FROM job WHERE id = :id AND held_for IS NOT NULL",
        id=job_id,
    )


def unread(shop: Shop, job_id: UUID) -> Any:
    return shop.scalar("SELECT count(*) FROM event WHERE kind = 'unread' AND job_id = :id", id=job_id)


@pytest.mark.slow
@pytest.mark.parametrize("queue", [QueueName.TOOLS, QueueName.CONTROL])
def test_a_worker_leaves_a_message_of_a_newer_version_to_others_and_loses_no_job(
    shop: Shop, worker: Celery, caplog: pytest.LogCaptureFixture, queue: QueueName
) -> None:
    caplog.set_level(logging.WARNING)
    job_id = shop.accept(tier=None, queue=queue, is_pushed=True)
    newer = {"schema_version": 2, "job_id": str(job_id), "fence": 0, "what_nobody_knows_yet": {"a": [1]}}
    send(worker, queue, newer)
    (row,) = wait_until(lambda: held(shop, job_id), seconds=10, what="the job is given back")
    assert (row.held_for, row.pushed_at, row.fence, row.ages, row.lost_attempts) == ("time", None, 0, True, 0)
    assert UNKNOWN_VERSION_SECONDS - 10 < row.seconds <= UNKNOWN_VERSION_SECONDS, "no worker meets it again at once"
    assert unread(shop, job_id) == 1
    assert [record.msg for record in caplog.records].count("message_of_unknown_version") == 1
    assert shop.scalar("SELECT count(*) FROM attempt") == 0

    send(worker, queue, newer)
    marker = shop.accept(tier=None, queue=queue, is_pushed=True)
    send(worker, queue, newer | {"job_id": str(marker)})
    wait_until(lambda: held(shop, marker), seconds=10, what="the second copy, before this one, was read")
    (again,) = held(shop, job_id)
    assert (again.held_until, again.fence) == (row.held_until, row.fence), "a second copy changes nothing"
    assert unread(shop, job_id) == 1
    shop.execute("UPDATE job SET held_until = now() WHERE id = :id", id=job_id)
    wait_until(lambda: release(shop) == [job_id], seconds=10, what="the dispatcher lets it go on")
    assert shop.try_claim(shop.message(job_id)) is not None, "whoever can read its message works on it"


def test_a_worker_takes_a_message_with_fields_that_it_does_not_know(shop: Shop, worker: Celery) -> None:
    job_id = shop.accept(tier=None, queue=QueueName.CONTROL, is_pushed=True)
    message = {"schema_version": 1, "job_id": str(job_id), "fence": 0, "added_later": "x"}
    send(worker, QueueName.CONTROL, message)
    wait_until(lambda: shop.scalar("SELECT count(*) FROM attempt") == 1, seconds=10, what="it is claimed")


def test_a_stale_message_of_a_newer_version_holds_nothing_back(shop: Shop, worker: Celery) -> None:
    running = shop.running(tier=None)
    newer = {"schema_version": 2, "job_id": str(running.job.id), "fence": 0}
    send(worker, QueueName.TOOLS, newer)
    marker = shop.accept(tier=None, queue=QueueName.TOOLS, is_pushed=True)
    send(worker, QueueName.TOOLS, {"schema_version": 2, "job_id": str(marker), "fence": 0})
    wait_until(lambda: held(shop, marker), seconds=10, what="the message behind it was read")
    assert held(shop, running.job.id) == []


@pytest.mark.parametrize("kwargs", json.loads((MESSAGES / "submit_v1.json").read_text()), ids=lambda one: one["prompt"])
def test_what_an_older_client_sends_is_accepted(shop: Shop, client: Celery, kwargs: dict[str, Any]) -> None:
    shop.site("shop")
    shop.tenant("acme", provider="fake")
    job_id = uuid4()
    client.send_task(SUBMIT_TASK, kwargs=kwargs, queue=QueueName.INTAKE.value, task_id=str(job_id))
    job: Job = wait_until(lambda: shop.find(Job, job_id), seconds=10, what="it is on record")
    assert job.state != "rejected", job.result


def test_what_a_newer_client_asks_for_is_refused_by_name_and_never_half_done(shop: Shop, client: Celery) -> None:
    job_id = uuid4()
    kwargs = {"tenant": "acme", "prompt": "What is a proxy?", "spend_nothing_after": "noon"}
    client.send_task(SUBMIT_TASK, kwargs=kwargs, queue=QueueName.INTAKE.value, task_id=str(job_id))
    job: Job = wait_until(lambda: shop.find(Job, job_id), seconds=10, what="the refusal is on record")
    assert job.state == "rejected"
    assert [error["field"] for error in job.result["errors"]] == ["spend_nothing_after"]

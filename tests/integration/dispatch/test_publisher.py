"""Messages are what Celery's own client would send, many of them go in one go, and a channel makes one client."""

import json
import re
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from celery import Celery
from redis import Redis

from ledger.dispatch_window import Push
from producers.dispatch.broker import Publisher, message_id
from producers.errors import PublishError
from routing.broker import TRANSPORT_OPTIONS, create_app, list_of
from routing.jobs import JobMessage
from routing.policy.platform import platform_policy
from routing.queues import QUEUES, QueueName

LIMITS = platform_policy().queues[QueueName.PATCH]


@pytest.fixture
def broker(broker_url: str) -> Iterator[Any]:
    with Redis.from_url(broker_url) as client:
        yield client


@pytest.fixture
def app(broker_url: str) -> Iterator[Celery]:
    app = create_app(broker_url)
    yield app
    app.close()


def pushes(count: int, queue: QueueName = QueueName.PATCH) -> list[tuple[Push, Any]]:
    return [(Push(uuid4(), 0, queue, "acme"), LIMITS) for _ in range(count)]


def standing(broker: Any, queue: QueueName = QueueName.PATCH) -> list[Any]:
    return [json.loads(text) for text in reversed(broker.lrange(queue.value, 0, -1))]


def test_a_message_is_the_one_that_celery_sends_byte_for_byte(app: Celery, broker: Any) -> None:
    for queue, limits in platform_policy().queues.items():
        push = Push(uuid4(), 7, queue, "acme")
        Publisher(app).push_all([(push, limits)])
        task = app.amqp.create_task_message(
            message_id(push),
            QUEUES[queue].task,
            [JobMessage(job_id=push.job_id, fence=7).model_dump(mode="json")],
            soft_time_limit=limits.soft_seconds,
            time_limit=limits.hard_seconds,
            ignore_result=True,
            argsrepr="-",
            kwargsrepr="-",
        )
        with app.producer_or_acquire() as producer:
            producer.publish(
                task.body,
                exchange="",
                routing_key=list_of(queue),
                serializer="json",
                headers=task.headers,
                **task.properties,
            )
        theirs, ours = (_TAG.sub("", raw.decode()) for raw in broker.lrange(list_of(queue), 0, -1))
        assert ours == theirs


_TAG = re.compile(r'"delivery_tag": "[-0-9a-f]{36}"')


def test_a_message_is_what_a_client_s_send_task_would_be(app: Celery, broker: Any) -> None:
    push = pushes(1)[0][0]
    Publisher(app).push_all([(push, LIMITS)])
    app.send_task(
        QUEUES[push.queue].task,
        args=[{"schema_version": 1, "job_id": str(push.job_id), "fence": 0}],
        task_id=message_id(push),
        queue="patch",
        soft_time_limit=LIMITS.soft_seconds,
        time_limit=LIMITS.hard_seconds,
        ignore_result=True,
        argsrepr="-",
        kwargsrepr="-",
    )
    ours, theirs = standing(broker)
    for message in (ours, theirs):
        del message["properties"]["delivery_tag"]
    assert theirs["properties"].pop("reply_to") != ours["properties"].pop("reply_to") == ""
    assert ours == theirs | {"properties": ours["properties"]}
    assert ours["properties"].items() <= theirs["properties"].items()


def test_many_messages_are_one_trip_to_the_broker_and_keep_their_order(app: Celery, broker: Any) -> None:
    publisher, many = Publisher(app), pushes(60)
    publisher.push_all([(pushes(1, QueueName.AGENT)[0][0], LIMITS)])
    before = broker.info("stats")["total_reads_processed"]
    publisher.push_all(many)
    assert broker.info("stats")["total_reads_processed"] - before < 30
    assert [message["headers"]["id"] for message in standing(broker)] == [message_id(push) for push, _ in many]


def test_a_queue_that_refuses_keeps_no_other_from_its_messages_and_gets_none_twice(app: Celery, broker: Any) -> None:
    publisher, good = Publisher(app), pushes(2)
    broker.set(QueueName.AGENT.value, "no list")
    with pytest.raises(PublishError):
        publisher.push_all([good[0], *pushes(1, QueueName.AGENT), good[1]])
    assert [message["headers"]["id"] for message in standing(broker)] == [message_id(push) for push, _ in good]
    publisher.push_all([(pushes(1)[0][0], LIMITS)])  # and it does not rest


def test_a_channel_makes_one_client_and_another_one_for_another_pool(app: Celery) -> None:
    with app.connection_for_write() as connection:
        channel = connection.default_channel
        with channel.conn_or_acquire() as first, channel.conn_or_acquire() as second:
            assert first is second
        channel._after_fork()  # what was opened before a fork is no child's
        with channel.conn_or_acquire() as third:
            assert third is not first
            assert third.ping()


@pytest.mark.parametrize(("no_ack", "noted"), [(True, 0), (False, 1)])
def test_a_message_of_ours_is_its_worker_s_for_good_and_another_s_waits_for_its_ack(
    app: Celery, broker: Any, no_ack: bool, noted: int
) -> None:
    Publisher(app).push_all(pushes(2))
    seen: list[Any] = []
    with app.connection_for_read() as connection:
        queue = app.amqp.queues["patch"]
        assert queue.no_ack
        with connection.Consumer([queue], callbacks=[lambda _, message: seen.append(message)], no_ack=no_ack):
            while len(seen) < 2:
                connection.drain_events(timeout=5)
                assert broker.hlen(TRANSPORT_OPTIONS["unacked_key"]) == noted * len(seen)
        calls = broker.info("commandstats").get("cmdstat_exec", {"calls": 0})["calls"]
        seen[0].ack()
        seen[1].reject()
        assert broker.info("commandstats").get("cmdstat_exec", {"calls": 0})["calls"] - calls == 2 * noted
    assert not broker.exists(TRANSPORT_OPTIONS["unacked_key"], "patch")

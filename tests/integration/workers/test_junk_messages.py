"""Messages that nobody of the fleet sent, on the lists of a real prefork worker: they are dropped, and work goes on."""

import base64
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from redis import Redis

from monitoring.event_metrics import fold_pending, read_series
from monitoring.metrics import series_key
from routing.broker import MOST_SAMPLES, SAMPLE_BYTES
from tests.factories import Shop
from tests.integration.workers.worker_world import World
from tests.services import Valkey, wait_until

JOB = {"schema_version": 1, "job_id": str(uuid4()), "fence": 0}


def message(*, body: object = ([JOB], {}, {}), headers: object = (), **fields: Any) -> bytes:
    """A message as the dispatcher sends it, but for what a test changes."""
    sound: dict[str, Any] = {
        "body": base64.b64encode(json.dumps(body).encode()).decode(),
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": {"task": "pointsman.answer", "id": "1/0", "timelimit": [30, 20], **dict(headers)}
        if isinstance(headers, tuple | dict)
        else headers,
        "properties": {"body_encoding": "base64", "delivery_tag": "t", "delivery_info": {"routing_key": "answer"}},
    }
    return json.dumps(sound | fields).encode()


JUNK = (
    *(b"hello", b"", b"[]", b"null", b"1", b'"x"', b"{}", b"\xff\xfe", b"[" * 100_000, b'{"body": "eA=="}'),
    message(body=[JOB]),
    message(body={}),
    message(body=None),
    message(body="x"),
    message(body=[{}, {}, {}]),
    message(body=[[JOB], [], {}]),
    message(body=[[JOB], {}, "x"]),
    message(body=[[], {}, {}]),
    message(body=[[{"job_id": "x"}], {}, {}]),
    message(body=[[JOB], {}, {"callbacks": [{"task": "x"}]}]),
    message(**{"body": "%%%"}),
    message(**{"body": None}),
    message(**{"content-type": "application/x-python-serialize"}),
    message(**{"content-encoding": "rot13"}),
    message(properties=None),
    message(properties={"body_encoding": "base64"}),
    message(properties={"body_encoding": "base64", "delivery_tag": "t", "delivery_info": [1]}),
    message(headers=None),
    message(headers=[1]),
    *(message(headers={"task": task}) for task in ("no.such.task", ["x"], None)),
    *(message(headers={"id": task_id}) for task_id in (None, ["x"], {"a": 1})),
    *(message(headers={"timelimit": limit}) for limit in ("soon", [1], ["a", "b"], 5, [-1, None])),
    *(message(headers={name: {"a": 1}}) for name in ("eta", "expires", "shadow", "compression", "retries")),
    message(headers={"eta": "9999-12-31T23:59:59.999999-12:00"}),
    message(headers={"compression": "application/x-gzip"}),
    b'{"__type__": "uuid", "__value__": 1}',
    message(huge=0)[:-2] + b"9" * 5_000 + b"}",
)


@pytest.fixture
def world(shop: Shop, valkey: Valkey, tmp_path: Path) -> Iterator[World]:
    valkey.flush()
    made = World(shop, valkey, tmp_path)
    yield made
    made.stop()


@pytest.mark.slow
def test_a_worker_survives_every_kind_of_junk_counts_it_and_keeps_a_sample(world: World) -> None:
    worker = world.start("answer")
    with Redis.from_url(world.valkey.url) as broker:
        for junk in JUNK:
            broker.lpush("answer", junk)
        with world.dispatching():
            job_id = world.ask("date")
            assert world.ended(job_id).state == "answered"
        assert worker.process.poll() is None, worker.said
        assert len(world.attempts(job_id)) == 1
        assert "Traceback" not in worker.said
        samples = broker.lrange("unrouted", 0, -1)
    assert len(samples) == len(JUNK)
    worker.send(signal.SIGTERM)
    assert worker.wait(20) == 0
    fold_pending(world.shop.ledger)
    with world.shop.ledger.begin() as session:
        dropped = read_series(session)[series_key("messages_dropped_total", {"queue_name": "answer"})]
    assert dropped == len(JUNK)


def test_a_flood_of_junk_leaves_a_bounded_sample(world: World) -> None:
    world.start("answer")
    with Redis.from_url(world.valkey.url) as broker:
        broker.lpush("answer", *(b"x" * 3 * SAMPLE_BYTES for _ in range(MOST_SAMPLES + 50)))
        wait_until(lambda: broker.llen("answer") == 0, seconds=30, what="the flood is gone")
        with world.dispatching():
            assert world.ended(world.ask("date")).state == "answered"
        assert broker.llen("unrouted") == MOST_SAMPLES
        assert {len(sample) for sample in broker.lrange("unrouted", 0, -1)} == {SAMPLE_BYTES}

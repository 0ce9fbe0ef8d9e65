"""The Celery intake as the dispatcher's process serves it: real messages of a plain client on a real broker."""

import base64
import json
import os
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from celery import Celery
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from ledger.errors import JobNotFoundError
from ledger.jobs import find_job
from ledger.store import Ledger, create_ledger_engine
from producers.dispatch.broker import Publisher
from producers.errors import ElsewhereError
from producers.intake import celery_intake
from producers.intake.celery_intake import MAX_TRIES, TRIES_KEY, CeleryIntake, Forward, IntakeLists
from producers.intake.submit import Submitter
from routing.broker import create_app
from tests.bait import PICKLE, Bait
from tests.factories import Shop
from tests.services import wait_until

DEAD_LEDGER = "postgresql://nobody@127.0.0.1:1/none"
DEAD_BROKER = "redis://127.0.0.1:1/0"
QUESTION = "What is a proxy?"
INTAKE_KILLS = int(os.environ.get("INTAKE_KILLS", "5"))
"""How often the intake is killed; `make chaos ONLY=intake` asks for more."""


@contextmanager
def open_intake(
    shop: Shop, broker_url: str, *, ledger: Ledger | None = None, holder: str = "one", forward: Forward | None = None
) -> Iterator[CeleryIntake]:
    app, lists = create_app(DEAD_BROKER), IntakeLists(broker_url)
    opened = ledger or shop.ledger
    submitter = Submitter(opened, Publisher(app), shop.policy)
    yield CeleryIntake(lists, opened, submitter, holder=holder, forward=forward)
    lists.close()
    app.close()


@pytest.fixture
def celery_queue(shop: Shop, broker_url: str) -> Iterator[CeleryIntake]:
    with open_intake(shop, broker_url) as opened:
        yield opened


def send(broker_url: str, *task_ids: str, task: str = "pointsman.submit", args: Any = (), **options: Any) -> None:
    client = Celery(broker=broker_url, set_as_current=False)
    client.conf.update(options.pop("settings", {}))
    sent = {"kwargs": {"tenant": "acme", "prompt": QUESTION}, "queue": "intake"} | options
    for task_id in task_ids:
        client.send_task(task, args=args, task_id=task_id, **sent)
    client.close()


def stands(broker: Any) -> int:
    return sum(broker.llen(name) for name in broker.keys("intake*"))


def refused(shop: Shop, job_id: UUID) -> str:
    job = shop.job(job_id)
    assert (job.state, job.reason, job.ended_at is not None) == ("rejected", "invalid_request", True)
    return str(job.detail)


@pytest.mark.req("R-094")
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"settings": {"task_protocol": 1}},
        {"settings": {"task_compression": "gzip"}},
        {"priority": 9},
        {"expires": 60},
        {"settings": {"task_serializer": "json", "enable_utc": False, "timezone": "Europe/Berlin"}},
    ],
)
def test_what_any_plain_client_sends_becomes_a_job_under_its_task_id(
    shop: Shop, broker_url: str, broker: Any, celery_queue: CeleryIntake, options: dict[str, Any]
) -> None:
    job_id = uuid4()
    send(broker_url, str(job_id), **options)
    assert celery_queue.submit_waiting() == 1
    job = shop.job(job_id)
    assert (job.prompt, job.source, job.state, job.queue) == (QUESTION, "celery", "queued", "answer")
    assert (stands(broker), broker.exists(TRIES_KEY)) == (0, 0)


def test_messages_are_taken_in_oldest_first_and_all_of_them(
    shop: Shop, broker_url: str, broker: Any, celery_queue: CeleryIntake
) -> None:
    ids = [uuid4() for _ in range(celery_intake.BATCH + 5)]
    send(broker_url, *map(str, ids))
    assert celery_queue.submit_waiting() == celery_intake.BATCH
    assert celery_queue.submit_waiting() == 5
    assert [row[0] for row in shop.rows("SELECT id FROM job ORDER BY created_at")] == ids
    assert stands(broker) == 0


def test_a_message_that_stands_there_twice_is_one_job(shop: Shop, broker_url: str, celery_queue: CeleryIntake) -> None:
    job_id = str(uuid4())
    send(broker_url, job_id, job_id)
    celery_queue.submit_waiting()
    assert shop.scalar("SELECT count(*) FROM job") == 1


def test_while_the_ledger_is_away_messages_stand_and_nothing_is_counted_against_them(
    shop: Shop, broker_url: str, broker: Any, celery_queue: CeleryIntake
) -> None:
    job_id = uuid4()
    send(broker_url, str(job_id), str(uuid4()))
    away = Ledger(create_ledger_engine(DEAD_LEDGER))
    with open_intake(shop, broker_url, ledger=away) as waiting:
        for _ in range(MAX_TRIES + 2):
            with pytest.raises(SQLAlchemyError):
                waiting.submit_waiting()
    assert (stands(broker), broker.exists(TRIES_KEY)) == (2, 0)
    celery_queue.submit_waiting()
    assert shop.job(job_id).state == "queued"
    away.close()


def test_what_breaks_a_rule_is_refused_by_name_and_is_gone(
    shop: Shop, broker_url: str, broker: Any, celery_queue: CeleryIntake
) -> None:
    own, positional, late = uuid4(), uuid4(), uuid4()
    send(broker_url, str(own), kwargs={"tenant": "acme", "prompt": QUESTION, "task": "x", "self": "y"})
    send(broker_url, str(positional), args=["x"])
    send(broker_url, str(late), expires=datetime.now(UTC) - timedelta(seconds=5))
    celery_queue.submit_waiting()
    assert refused(shop, own) == "task: is not a field of this request; self: is not a field of this request"
    assert {error["field"] for error in shop.job(own).result["errors"]} == {"task", "self"}
    assert refused(shop, positional) == "args: is not a field of this request"
    assert refused(shop, late) == "expires: has passed before the message was taken in"
    assert (stands(broker), broker.llen("unrouted")) == (0, 0)


NO_TENANT = {"kwargs": {"prompt": QUESTION}}
LOST: list[tuple[dict[str, Any], str]] = [
    ({"task": "pointsman.sumbit"}, "task: is not known here; pointsman.submit is"),
    ({"task": "pointsman.sumbit", **NO_TENANT}, "task: is not known here; pointsman.submit is"),
    ({"task": "pointsman.sumbit", "queue": "intake.acme"}, "task: is not known here; pointsman.submit is"),
    ({"args": ["x"], "kwargs": {}}, "tenant: is missing"),
    ({"args": [{"tenant": "acme", "prompt": QUESTION}]}, "args: is not a field of this request"),
    (NO_TENANT, "tenant: is missing"),
    ({"kwargs": {"tenant": ["acme"], "prompt": QUESTION}}, "tenant: is not known here"),
    ({"kwargs": {"tenant": "acne", "prompt": QUESTION}}, "tenant: is not known here"),
    ({"kwargs": {"tenant": "acne", "prompt": 1}}, "prompt: "),
]


@pytest.mark.parametrize(("options", "rule"), LOST)
def test_a_sender_finds_by_its_task_id_why_there_is_no_job(
    shop: Shop, broker_url: str, celery_queue: CeleryIntake, options: dict[str, Any], rule: str
) -> None:
    task_id = uuid4()
    send(broker_url, str(task_id), **options)
    celery_queue.submit_waiting()
    with shop.ledger.begin() as session:
        try:
            told = str(find_job(session, task_id, tenant="acme").detail)
        except JobNotFoundError as error:
            told = str(error)
    assert rule in told
    assert "acne" not in told
    assert shop.scalar("SELECT count(*) FROM event WHERE kind = 'refused'") == 1


def message(body: bytes | str, *, content_type: str = "application/json", **headers: Any) -> str:
    encoded = base64.b64encode(body if isinstance(body, bytes) else body.encode()).decode()
    return json.dumps(
        {
            "body": encoded,
            "content-type": content_type,
            "content-encoding": "utf-8",
            "headers": {"task": "pointsman.submit", "id": str(uuid4())} | headers,
            "properties": {"body_encoding": "base64"},
        }
    )


BOMB = zlib.compress(b" " * 5_000_000)
UNREADABLE = [
    "",
    "x",
    "[]",
    "{}",
    '{"body": 1}',
    "[" * 100_000,
    message("not json"),
    message("[" * 50_000),
    message("[[], 1]"),
    message("{}", task=None),
    message(b"\xff\xfe"),
    message(BOMB, compression="application/x-gzip"),
    message("[[],{}]", compression="x"),
    message(b"junk", compression="application/x-gzip"),
    message("[[],{},{}]", task="pointsman.sumbit"),
]


def test_what_cannot_be_read_is_put_aside_for_people_and_stops_nobody(
    shop: Shop, broker_url: str, broker: Any, celery_queue: CeleryIntake, tmp_path: Path
) -> None:
    bait = Bait(tmp_path, task="pointsman.submit", queue="intake")
    assert bait.springs(broker_url), "it does harm where pickle is accepted"
    hostiles = [*UNREADABLE, bait.raw, message(bait.body), message(bait.body, content_type=PICKLE)]
    for hostile in hostiles:
        broker.lpush("intake", hostile)
    broker.lpush("intake", "x" * (celery_intake.MAX_MESSAGE_BYTES + 1))
    job_id = uuid4()
    send(broker_url, str(job_id))
    while celery_queue.submit_waiting():
        pass
    assert shop.job(job_id).state == "queued"
    assert broker.llen("unrouted") == len(hostiles) + 1
    assert not bait.trace.exists()
    assert (stands(broker), broker.exists(TRIES_KEY)) == (0, 0)


def test_a_message_that_fails_each_time_is_put_aside_after_a_few_tries_with_a_refusal_on_record(
    shop: Shop, broker_url: str, broker: Any, celery_queue: CeleryIntake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(celery_intake, "take_in", fail)
    job_id = uuid4()
    send(broker_url, str(job_id))
    for _ in range(MAX_TRIES + 1):
        assert celery_queue.submit_waiting() == 1
    assert (stands(broker), broker.llen("unrouted"), broker.exists(TRIES_KEY)) == (0, 1, 0)
    assert refused(shop, job_id) == "body: taking it in failed 5 times"


def test_a_message_at_which_a_sound_ledger_fails_each_time_holds_nobody_up_and_is_refused(
    shop: Shop, broker_url: str, broker: Any, celery_queue: CeleryIntake, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [uuid4() for _ in range(3)]

    def fail_at_the_first(message: Any, *rest: Any, **named: Any) -> None:
        if message.id == str(ids[0]):
            raise OperationalError("insert", {}, Exception("a program limit is exceeded"))
        take_in(message, *rest, **named)

    take_in = celery_intake.take_in
    monkeypatch.setattr(celery_intake, "take_in", fail_at_the_first)
    send(broker_url, *map(str, ids))
    assert celery_queue.submit_waiting() == 3
    assert [shop.job(job_id).state for job_id in ids[1:]] == ["queued", "queued"]
    while celery_queue.submit_waiting():
        pass
    assert refused(shop, ids[0]) == "body: taking it in failed 5 times"


def refuse_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let both the taking in and the refusal of every message fail."""

    def fail(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(celery_intake, "take_in", fail)
    monkeypatch.setattr(Submitter, "record_refusal", fail)


def test_a_refusal_that_fails_is_tried_again_before_a_message_is_put_aside_without_a_row(
    shop: Shop, broker_url: str, broker: Any, celery_queue: CeleryIntake, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_nothing(monkeypatch)
    job_id = uuid4()
    send(broker_url, str(job_id))
    for _ in range(MAX_TRIES + 2):
        celery_queue.submit_waiting()
    assert (stands(broker), broker.llen("unrouted")) == (1, 0)
    monkeypatch.undo()
    celery_queue.submit_waiting()
    assert (stands(broker), broker.llen("unrouted"), shop.job(job_id).state) == (0, 1, "rejected")


def test_what_cannot_even_be_refused_does_not_stand_for_ever(
    shop: Shop, broker_url: str, broker: Any, celery_queue: CeleryIntake, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_nothing(monkeypatch)
    send(broker_url, str(uuid4()))
    for _ in range(2 * MAX_TRIES + 1):
        celery_queue.submit_waiting()
    assert (stands(broker), broker.llen("unrouted"), broker.exists(TRIES_KEY)) == (0, 1, 0)


def test_a_message_of_the_fleet_itself_at_the_intake_is_left_to_the_ledger(
    broker_url: str, broker: Any, celery_queue: CeleryIntake
) -> None:
    send(broker_url, "x/0", task="pointsman.intake")
    celery_queue.submit_waiting()
    assert (stands(broker), broker.llen("unrouted")) == (0, 0)


def test_one_intake_reads_at_a_time_and_another_takes_over(shop: Shop, broker_url: str) -> None:
    stop_first, stop_second = threading.Event(), threading.Event()
    with open_intake(shop, broker_url) as first, open_intake(shop, broker_url, holder="two") as second:
        threads = [
            threading.Thread(target=one.serve, args=(event,), kwargs={"tick_seconds": 0.1})
            for one, event in ((first, stop_first), (second, stop_second))
        ]
        threads[0].start()
        wait_until(lambda: shop.rows("SELECT 1 FROM leader"), seconds=10, what="the first one leads")
        threads[1].start()
        send(broker_url, str(uuid4()))
        wait_until(lambda: shop.scalar("SELECT count(*) FROM job") == 1, seconds=10, what="it is taken in")
        stop_first.set()
        send(broker_url, str(uuid4()))
        wait_until(lambda: shop.scalar("SELECT count(*) FROM job") == 2, seconds=10, what="the other takes it in")
        stop_second.set()
        for thread in threads:
            thread.join(10)


SERVE = """
import os, signal, sys, threading, random, time
from redis import Redis
from ledger.store import Ledger, create_ledger_engine
from producers.intake.celery_intake import CeleryIntake, IntakeLists
from producers.dispatch.broker import Publisher
from producers.intake.submit import Submitter
from routing.broker import create_app
from routing.policy.platform import platform_policy
ledger_url, broker_url = sys.argv[1:3]
ledger = Ledger(create_ledger_engine(ledger_url))
broker = Redis.from_url(broker_url)
standing = lambda: broker.llen("intake")
submitter = Submitter(ledger, Publisher(create_app(broker_url)), platform_policy())
chance = random.Random(7)
for _ in sys.stdin:  # each line is one life of the process that serves the source
    if (child := os.fork()) == 0:
        ledger.engine.dispose(close=False)
        source = CeleryIntake(IntakeLists(broker_url), ledger, submitter, holder="whose lease no life has to wait for")
        source.serve(threading.Event(), tick_seconds=0.1)
    enough = standing() - chance.randint(1, 6)
    while standing() > enough:
        time.sleep(0.0005)
    time.sleep(chance.uniform(0, 0.003))  # at any point of what it does with the next message
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    print(standing(), flush=True)
"""


@pytest.mark.timeout(600)
def test_of_many_messages_none_is_lost_or_doubled_however_often_the_intake_is_killed(
    shop: Shop, broker_url: str, broker: Any, celery_queue: CeleryIntake
) -> None:
    ids: list[UUID] = []
    left: list[int] = []
    with subprocess.Popen(
        [sys.executable, "-c", SERVE, shop.url, broker_url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as serving:
        assert serving.stdin is not None
        assert serving.stdout is not None
        while len(left) < INTAKE_KILLS:
            more = [uuid4() for _ in range(12)]
            send(broker_url, *map(str, more))
            ids += more
            serving.stdin.write("again\n")
            serving.stdin.flush()
            left.append(int(serving.stdout.readline()))
        serving.stdin.close()
    assert (len(left), len(ids)) == (INTAKE_KILLS, 12 * INTAKE_KILLS)
    assert all(left), f"a life ended with nothing before it: {left}"
    while celery_queue.submit_waiting():
        pass
    assert {row[0] for row in shop.rows("SELECT id FROM job")} == set(ids)
    assert shop.scalar("SELECT count(*) FROM event WHERE kind = 'accepted'") == len(ids)
    assert broker.llen("unrouted") == 0


def test_one_look_takes_no_more_than_its_batch_however_many_tenants_have_messages_and_each_has_its_turn(
    broker_url: str, broker: Any
) -> None:
    tenants = [f"t{number:03}" for number in range(3 * celery_intake.BATCH)]
    for tenant in tenants:
        broker.lpush(f"intake.{tenant}", "x")
    lists = celery_intake.IntakeLists(broker_url)
    try:
        looks = [[each.tenant for each in lists.look(tenants)] for _ in range(4)]
    finally:
        lists.close()
    assert [len(look) for look in looks] == [celery_intake.BATCH] * 4
    assert [tenant for look in looks[:3] for tenant in look] == tenants
    assert looks[3] == looks[0]


def test_messages_for_a_cell_that_is_away_stay_and_keep_nobody_elses_waiting(
    shop: Shop, broker_url: str, broker: Any
) -> None:
    def forward(*_: object) -> bool:
        raise ElsewhereError

    shop.tenant()
    away, job_id = [str(uuid4()) for _ in range(celery_intake.BATCH + 5)], uuid4()
    send(broker_url, *away, kwargs={"tenant": "elsewhere", "prompt": QUESTION})
    send(broker_url, str(job_id))
    with open_intake(shop, broker_url, forward=forward) as intake:
        for _ in range(2):
            intake.submit_waiting()
        assert shop.job(job_id).tenant == "acme"
        for _ in range(2 * MAX_TRIES):
            intake.submit_waiting()
    kept = [json.loads(body)["headers"]["id"] for body in broker.lrange("intake", 0, -1)]
    assert sorted(kept) == sorted(away)

"""Broker and ledger over TLS: every program encrypts, and trusts nobody whose certificate it was not told to trust."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from redis.exceptions import RedisError
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from ledger.dispatch_window import Push
from ledger.store import SILENCE, Ledger, create_ledger_engine
from ledger.tables import Job
from producers.config import DispatcherConfig
from producers.dispatch.broker import BrokerLists, Publisher
from producers.dispatch.dispatcher import Dispatcher
from producers.dispatch.redis_client import open_broker
from producers.errors import PublishError
from producers.intake.submit import Submitter
from routing.broker import create_app
from routing.config import BrokerConfig
from routing.jobs import Source
from routing.policy.platform import platform_policy
from routing.queues import QueueName
from tests.factories import Shop
from tests.services import Valkey, wait_until
from tests.tls import Authority, TlsProxy

PUSH = Push(UUID(int=1), 1, QueueName.TOOLS, "acme")


class Guarded(NamedTuple):
    """A broker and a ledger that are reached over TLS alone."""

    authority: Authority
    stranger: Authority
    """Nobody was told to trust it."""
    broker: TlsProxy
    ledger: TlsProxy
    database: str

    def config(self, *, host: str = "localhost", authority: Authority | None = None) -> BrokerConfig:
        path = (authority or self.authority).path
        return BrokerConfig(url=f"rediss://{host}:{self.broker.port}/0", ca_path=path)

    def ledger_url(self, *, host: str = "localhost", authority: Authority | None = None) -> str:
        path = (authority or self.authority).path
        where = f"postgresql://postgres@{host}:{self.ledger.port}/{self.database}"
        return f"{where}?sslmode=verify-full&sslrootcert={path}"


@pytest.fixture
def guarded(shop: Shop, valkey: Valkey, broker_url: str, tmp_path: Path) -> Iterator[Guarded]:
    authority, stranger = Authority(tmp_path), Authority(tmp_path, "stranger")
    plain = urlsplit(shop.url)
    sockets = parse_qs(plain.query).get("host")
    server: int | str = f"{sockets[0]}/.s.PGSQL.{plain.port or 5432}" if sockets else plain.port or 5432
    context = authority.context_for("localhost")
    with (
        TlsProxy(urlsplit(broker_url).port or 6379, context) as broker,
        TlsProxy(server, context, is_postgres=True) as ledger,
    ):
        yield Guarded(authority, stranger, broker, ledger, plain.path.removeprefix("/"))


@pytest.mark.slow
@pytest.mark.timeout(400)  # a busy machine takes a minute to start a worker
def test_a_job_runs_to_its_end_with_broker_and_ledger_over_tls(guarded: Guarded, shop: Shop, tmp_path: Path) -> None:
    config = guarded.config()
    ledger = Ledger(create_ledger_engine(guarded.ledger_url()))
    publisher = Publisher(create_app(config.url, broker_use_ssl=config.tls))
    lists = BrokerLists(config.url, tls=config.tls)
    dispatcher = Dispatcher(
        ledger, publisher, lists, policy=shop.policy, config=DispatcherConfig(), holder="test", signing_key=b"key"
    )
    environment = {
        **os.environ,
        "POINTSMAN_LEDGER__URL": guarded.ledger_url(),
        "POINTSMAN_BROKER__URL": config.url,
        "POINTSMAN_BROKER__CA_PATH": str(config.ca_path),
        "POINTSMAN_CONTENT_STORE__ROOT": str(tmp_path / "content-store"),
    }
    argv = [sys.executable, "-m", "workers.main", "tools", "--concurrency", "1"]
    worker = subprocess.Popen(argv, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def ended() -> Job | None:
        dispatcher.run_once()
        job: Job = shop.find(Job, job_id)
        return job if job.ended_at else None

    try:
        submitter = Submitter(ledger, publisher, shop.policy)
        job_id: UUID = submitter.submit({"prompt": "pwd"}, tenant="acme", source=Source.PYTHON).job.id
        assert wait_until(ended, seconds=300, what="the job has ended").state == "answered"
    finally:
        worker.terminate()
        worker.wait(30)
        lists.close()
        ledger.close()
    assert guarded.broker.connections >= 3
    assert guarded.ledger.connections >= 2


@pytest.mark.parametrize("wrong", ["authority", "host"])
def test_a_broker_that_is_not_who_it_should_be_gets_no_message(guarded: Guarded, wrong: str) -> None:
    config = guarded.config(authority=guarded.stranger) if wrong == "authority" else guarded.config(host="127.0.0.1")
    publisher = Publisher(create_app(config.url, broker_use_ssl=config.tls))
    with pytest.raises(PublishError, match=r"(?i)certificate|ssl"):
        publisher.push_all([(PUSH, platform_policy().queues[QueueName.TOOLS])])
    with open_broker(config.url, tls=config.tls) as client, pytest.raises(RedisError, match=r"(?i)certificate"):
        client.ping()


def test_a_broker_url_alone_never_means_that_any_certificate_will_do(guarded: Guarded) -> None:
    publisher = Publisher(create_app(f"rediss://localhost:{guarded.broker.port}/0"))
    with pytest.raises(PublishError, match=r"(?i)certificate|ssl"):
        publisher.push_all([(PUSH, platform_policy().queues[QueueName.TOOLS])])


@pytest.mark.parametrize("wrong", ["authority", "host"])
def test_a_ledger_that_is_not_who_it_should_be_is_not_used(guarded: Guarded, wrong: str) -> None:
    url = (
        guarded.ledger_url(authority=guarded.stranger) if wrong == "authority" else guarded.ledger_url(host="127.0.0.1")
    )
    engine = create_ledger_engine(url, pool_size=0)
    with pytest.raises(OperationalError, match="certificate"), engine.connect() as connection:
        connection.execute(text("SELECT 1"))
    with pytest.raises(psycopg.OperationalError, match="certificate"):
        psycopg.connect(make_conninfo(url, **SILENCE))
    engine.dispose()

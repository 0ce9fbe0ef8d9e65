"""How often the ledger is asked: a statement is a round trip, and those are what a submit and an attempt cost."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from ledger.operations.workers import WorkerStatus, record_heartbeat
from producers.dispatch.broker import Publisher
from producers.intake.submit import Submitter
from routing.broker import create_app
from routing.jobs import Source
from routing.queues import QueueName
from sites.content_store import ContentStore
from tests.factories import Shop
from workers.handlers.answer import run_tool
from workers.lifecycle import Resources, run_attempt


@contextmanager
def statements(shop: Shop) -> Iterator[list[str]]:
    """Collect what is sent to the ledger."""
    sent: list[str] = []

    def note(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        sent.append(statement)

    event.listen(shop.ledger.engine, "before_cursor_execute", note)
    yield sent
    event.remove(shop.ledger.engine, "before_cursor_execute", note)


@pytest.fixture
def submit(shop: Shop, broker_url: str) -> Iterator[Callable[..., Any]]:
    app = create_app(broker_url)
    submitter = Submitter(shop.ledger, Publisher(app), shop.policy)
    yield lambda **body: submitter.submit(body, tenant="acme", source=Source.HTTP).job
    app.close()


def test_the_first_edit_is_accepted_with_two_statements_and_any_further_one_with_one(
    shop: Shop, submit: Callable[..., Any]
) -> None:
    for name in ("shop", "cafe"):
        shop.show(shop.site(name))
    shop.site("bare")  # without a release it looks like no other, which shows at its first job
    for name, most in (("shop", 2), ("cafe", 1), ("bare", 3), ("bare", 1)):
        with statements(shop) as sent:
            job = submit(prompt="Make the header background blue", site=name)
        assert shop.job(job.id).site_id == shop.site(name)
        assert len(sent) == most, "\n".join(sent)


def test_an_approval_writes_its_job_once(shop: Shop) -> None:
    site_id = shop.site("shop")
    shop.show(site_id)
    claimed = shop.running(site_id=site_id)
    shop.offer(claimed)
    with statements(shop) as sent:
        shop.approve(claimed.job.id)
    assert len([one for one in sent if one.startswith("UPDATE job")]) == 1, "\n".join(sent)


def test_a_command_is_taken_in_and_worked_off_with_as_few(
    shop: Shop, submit: Callable[..., Any], tmp_path: Path
) -> None:
    shop.tenant()
    with statements(shop) as sent:
        job = submit(prompt="pwd")
    assert len(sent) == 2, "\n".join(sent)
    resources = Resources(
        ledger=shop.ledger,
        content_store=ContentStore(tmp_path),
        policy=shop.policy,
        gateway_url="http://127.0.0.1:1",
        worker="w1",
    )
    with shop.ledger.begin() as session:
        record_heartbeat(session, WorkerStatus(id="w1", host="h", pid=1, queues=("tools",), slots=4))
    with statements(shop) as sent:
        run_attempt(shop.message(job.id), QueueName.TOOLS, run_tool, resources)
    assert shop.job(job.id).state == "answered"
    assert len(sent) == 3, "\n".join(sent)  # one of them to find the message

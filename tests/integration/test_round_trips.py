"""How often the ledger is asked: a statement is a round trip, and those are what a submit and an attempt cost."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import event

from ledger.operations.workers import WorkerStatus, record_heartbeat
from ledger.releases import NewRelease, activate, add_release
from producers.dispatch.broker import Publisher
from producers.intake.submit import Submitter
from routing.broker import create_app
from routing.jobs import Door
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


def submit(shop: Shop, broker_url: str, **body: str) -> Any:
    app = create_app(broker_url)
    try:
        return Submitter(shop.ledger, Publisher(app), shop.policy).submit(body, tenant="acme", door=Door.HTTP).job
    finally:
        app.close()


def show(shop: Shop) -> None:
    site_id = shop.site("shop")
    new = NewRelease(
        site_id=site_id,
        digest="0" * 64,
        manifest={},
        total_bytes=0,
        signals={},
        scan={},
        scan_passed=True,
        scan_digest="0" * 64,
    )
    with shop.ledger.begin() as session:
        activate(session, site_id, add_release(session, new), base_release_id=None)


def test_an_edit_of_a_site_is_taken_in_with_three_statements(shop: Shop, broker_url: str) -> None:
    show(shop)
    with statements(shop) as sent:
        job = submit(shop, broker_url, prompt="Make the header background blue", site="shop")
    assert shop.job(job.id).pushed_at is not None
    assert len(sent) == 3, "\n".join(sent)


def test_a_command_is_taken_in_and_worked_off_with_as_few(shop: Shop, broker_url: str, tmp_path: Path) -> None:
    shop.tenant()
    with statements(shop) as sent:
        job = submit(shop, broker_url, prompt="pwd")
    assert len(sent) == 3, "\n".join(sent)
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

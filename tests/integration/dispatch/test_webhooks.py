"""The one notification of a job's end reaches its owner: signed, once, retried, and never into our own network."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import psycopg
import pytest
from pydantic import SecretStr
from sqlalchemy import event
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from ledger.cells import tenant_rows
from ledger.errors import JobNotFoundError, NotReplayableError
from ledger.notifications import MAX_REPLAYS, Try, claim_due_notifications
from ledger.store import Ledger, create_ledger_engine
from producers.config import WebhookConfig
from producers.dispatch.webhooks import RETRY_SECONDS, WebhookSender, _Tried, tenant_secrets
from producers.use_cases.dead_letters import Notifications
from routing.jobs import Reason, State
from routing.policy.platform import Webhooks
from tests.factories import Shop
from tests.http_server import Handler, served
from tests.services import wait_until

SECRET = "whsec_" + "QUJD" * 8


@dataclass
class Receiver:
    """An owner's HTTP server."""

    url: str = ""
    status: int = 200
    is_endless: bool = False
    is_dripping: bool = False
    """Sends a head that never ends, a byte now and then."""
    requests: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    closing: threading.Event = field(default_factory=threading.Event)


@contextmanager
def receiving() -> Iterator[Receiver]:
    state = Receiver()

    class Hook(Handler):
        def answer(self) -> None:
            body = self.read_body()
            state.requests.append(({name.lower(): value for name, value in self.headers.items()}, body))
            if state.is_dripping:
                self.wfile.write(b"HTTP/1.1 200 OK\r\nx: ")
                while not state.closing.wait(0.05):
                    self.wfile.write(b"x")
            self.send_response(state.status)
            if state.status == 302:
                self.send_header("location", state.url + "/elsewhere")
            if not state.is_endless:
                self.send_header("content-length", "0")
            self.end_headers()
            if state.is_endless:
                state.closing.wait(30)

    with served(Hook) as url:
        state.url = f"{url.replace('127.0.0.1', 'localhost')}/hook"
        yield state
        state.closing.set()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as made:
        yield made


@pytest.fixture
def make_sender(shop: Shop) -> Callable[..., WebhookSender]:
    def make(
        *, secret: str = SECRET, old: tuple[str, ...] = (), allow_private: bool = True, **rules: Any
    ) -> WebhookSender:
        olds = tuple(map(SecretStr, old))
        config = WebhookConfig(secret=SecretStr(secret), old_secrets=olds, allow_private=allow_private)
        return WebhookSender(shop.ledger, config, Webhooks(**rules), console_url="https://edits.example/console")

    return make


@contextmanager
def serving(sender: WebhookSender) -> Iterator[None]:
    """Run a sender as the dispatcher's process does."""
    stopping = threading.Event()
    thread = threading.Thread(target=sender.serve, args=(stopping,), kwargs={"tick_seconds": 0.02})
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join(30)
        assert not thread.is_alive()


@contextmanager
def hanging(count: int) -> Iterator[list[socket.socket]]:
    """Receivers that take a connection and never answer."""
    with ExitStack() as stack:
        yield [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]


def url_of(server: socket.socket) -> str:
    return f"http://127.0.0.1:{server.getsockname()[1]}/hook"


def secret_of(tenant: str, root: str = SECRET) -> str:
    """What the operator gives to the tenant's receiver."""
    (secret,) = tenant_secrets(WebhookConfig(secret=SecretStr(root)), tenant)
    return secret


def end_a_job(shop: Shop, url: str | None, *, tenant: str = "acme") -> str:
    claimed = shop.running(tier=None, callback_url=url, tenant=tenant)
    shop.end(claimed, State.ANSWERED, Reason.DONE)
    return str(claimed.job.id)


@pytest.fixture
def fast_ledger(shop: Shop) -> Iterator[Ledger]:
    """The ledger as a host sees it whose own clock is ten minutes slow."""
    shop.execute("CREATE SCHEMA fast")
    clock = "SELECT pg_catalog.clock_timestamp() + interval '10 minutes'"
    shop.execute(f"CREATE FUNCTION fast.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$ {clock} $$")

    def on_connect(driver: psycopg.Connection, _: object) -> None:
        driver.execute("SET search_path TO fast, pg_catalog, public")
        driver.commit()

    ledger = Ledger(create_ledger_engine(shop.url, pool_size=0))
    event.listen(ledger.engine, "connect", on_connect)
    yield ledger
    ledger.close()
    shop.execute("DROP SCHEMA fast CASCADE")


def wait_seconds(shop: Shop) -> float | None:
    return shop.scalar("SELECT extract(epoch FROM next_at - clock_timestamp())::float FROM notification")


def make_due(shop: Shop) -> None:
    shop.execute("UPDATE notification SET next_at = now() - interval '1 second' WHERE next_at IS NOT NULL")


def test_an_owner_gets_one_message_that_the_public_library_verifies(
    shop: Shop, receiver: Receiver, make_sender: Callable[..., WebhookSender]
) -> None:
    job_id = end_a_job(shop, receiver.url)
    sender = make_sender()
    assert [sender.deliver_due(), sender.deliver_due()] == [1, 0]
    ((headers, body),) = receiver.requests
    payload = Webhook(secret_of("acme")).verify(body, headers)
    assert payload == {"type": "job.ended", "job_id": job_id, "state": "answered", "reason": "done"}
    assert headers["webhook-id"] == f"msg_{job_id}"
    assert headers["host"] == receiver.url.split("/")[2]
    for other in ("whsec_" + "QUJE" * 8, secret_of("other"), SECRET):  # another tenant's receiver can forge nothing
        with pytest.raises(WebhookVerificationError):
            Webhook(other).verify(body, headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(secret_of("acme")).verify(json.dumps({**payload, "state": "published"}), headers)
    assert shop.scalar("SELECT delivered_at IS NOT NULL AND next_at IS NULL FROM notification")


def test_a_message_bears_the_ledger_s_time_whatever_its_sender_s_clock_says(
    shop: Shop, receiver: Receiver, fast_ledger: Ledger
) -> None:
    end_a_job(shop, receiver.url)
    config = WebhookConfig(secret=SecretStr(SECRET), allow_private=True)
    sender = WebhookSender(fast_ledger, config, Webhooks(), console_url="https://edits.example/console")
    assert sender.deliver_due() == 1
    ((headers, _),) = receiver.requests
    assert int(headers["webhook-timestamp"]) - time.time() == pytest.approx(600, abs=30)


def test_a_private_address_is_refused_by_default_and_hears_nothing(
    shop: Shop, receiver: Receiver, make_sender: Callable[..., WebhookSender], caplog: pytest.LogCaptureFixture
) -> None:
    end_a_job(shop, receiver.url)
    make_sender(allow_private=False).deliver_due()
    assert receiver.requests == []
    assert "webhook_refused" in caplog.text
    assert shop.scalar("SELECT delivered_at IS NULL FROM notification")


def test_a_name_is_judged_by_the_address_that_it_leads_to_when_it_is_called(
    shop: Shop, receiver: Receiver, make_sender: Callable[..., WebhookSender], monkeypatch: pytest.MonkeyPatch
) -> None:
    look_up = socket.getaddrinfo
    monkeypatch.setattr(
        socket,
        "getaddrinfo",
        lambda host, *more, **most: look_up("127.0.0.1" if host == "rebound.example" else host, *more, **most),
    )
    job_id = UUID(end_a_job(shop, receiver.url.replace("localhost", "rebound.example")))
    make_sender(allow_private=False).deliver_due()
    (delivery,) = Notifications(shop.ledger).show(job_id, tenant="acme").deliveries
    assert (delivery.outcome, delivery.detail) == ("refused", "must not lead to an address that is not public")
    assert receiver.requests == []


@pytest.mark.parametrize("status", [500, 404, 302])
def test_a_failed_delivery_is_tried_again_at_growing_intervals_and_then_left_on_record(
    shop: Shop, receiver: Receiver, make_sender: Callable[..., WebhookSender], status: int
) -> None:
    receiver.status = status
    end_a_job(shop, receiver.url)
    sender = make_sender()
    for number, seconds in enumerate(RETRY_SECONDS, start=1):
        assert sender.deliver_due() == 1
        assert len(receiver.requests) == number
        waited = wait_seconds(shop)
        assert waited is not None
        assert seconds - 4 < waited <= seconds
        assert sender.deliver_due() == 0
        make_due(shop)
    assert sender.deliver_due() == 1
    assert wait_seconds(shop) is None
    assert sender.deliver_due() == 0
    assert len(receiver.requests) == len(RETRY_SECONDS) + 1
    assert {headers["webhook-id"] for headers, _ in receiver.requests} == {receiver.requests[0][0]["webhook-id"]}


def test_a_receiver_that_never_stops_answering_holds_up_nothing(
    shop: Shop, receiver: Receiver, make_sender: Callable[..., WebhookSender]
) -> None:
    receiver.is_endless = True
    for _ in range(3):
        end_a_job(shop, receiver.url)
    assert make_sender().deliver_due() == 3
    assert shop.scalar("SELECT count(*) FROM notification WHERE delivered_at IS NOT NULL") == 3


def test_a_receiver_that_sends_a_byte_now_and_then_holds_up_nothing(
    shop: Shop, receiver: Receiver, make_sender: Callable[..., WebhookSender]
) -> None:
    receiver.is_dripping = True
    end_a_job(shop, receiver.url)
    started = time.monotonic()
    assert make_sender(seconds=0.3).deliver_due() == 1
    assert time.monotonic() - started < 3
    assert shop.scalar("SELECT delivered_at IS NULL FROM notification")


def test_a_tenant_whose_receivers_hang_delays_nobody_else(
    shop: Shop, receiver: Receiver, make_sender: Callable[..., WebhookSender]
) -> None:
    with hanging(24) as servers:
        for server in servers:
            for _ in range(2):
                end_a_job(shop, url_of(server), tenant="slow")
        end_a_job(shop, receiver.url)
        with serving(make_sender(in_flight=8, per_tenant=6, seconds=2)):
            wait_until(lambda: len(receiver.requests) == 1, seconds=1.5, what="who listens is told")
            end_a_job(shop, receiver.url)
            wait_until(lambda: len(receiver.requests) == 2, seconds=1.5, what="who listens is told again")
        assert shop.scalar("SELECT count(*) FROM delivery WHERE outcome = 'delivered'") == 2


def test_a_tenant_has_at_most_its_part_of_the_tries_in_flight_and_others_come_first(shop: Shop) -> None:
    for number in range(6):
        end_a_job(shop, f"https://a{number}.example/", tenant="many")
    end_a_job(shop, "https://b.example/", tenant="few")
    with shop.ledger.begin() as session:
        first = claim_due_notifications(session, 4, per_tenant=3)
        rest = claim_due_notifications(session, 9, per_tenant=3, in_flight={"many": 2})
    assert sorted(due.tenant for due in first) == ["few", "many", "many", "many"]
    assert [(due.tenant, due.destination, due.number) for due in rest] == [("many", "a3.example", 1)]


def test_what_an_older_version_wrote_is_delivered_too(
    shop: Shop, receiver: Receiver, make_sender: Callable[..., WebhookSender]
) -> None:
    job_id = end_a_job(shop, receiver.url)
    shop.execute("UPDATE notification SET tenant = DEFAULT")
    assert make_sender().deliver_due() == 1
    ((headers, body),) = receiver.requests
    assert Webhook(secret_of("acme")).verify(body, headers)["job_id"] == job_id


def test_a_destination_that_never_answers_is_left_alone_at_no_notification_s_cost(
    shop: Shop, receiver: Receiver, make_sender: Callable[..., WebhookSender]
) -> None:
    with hanging(1) as (server,):
        for _ in range(5):
            end_a_job(shop, url_of(server))
        sender = make_sender(in_flight=1, seconds=0.2, failures=2, pause_seconds=20)
        assert sender.deliver_due() == 2
    waits = "SELECT attempts, extract(epoch FROM next_at - clock_timestamp())::float FROM notification"
    untried = [seconds for attempts, seconds in shop.rows(waits) if attempts == 0]
    assert len(untried) == 3
    assert all(15 < seconds <= 20 for seconds in untried)
    end_a_job(shop, receiver.url)
    make_due(shop)
    assert sender.deliver_due() == 1
    assert len(receiver.requests) == 1


def test_a_url_that_cannot_be_called_holds_up_nothing(
    shop: Shop, receiver: Receiver, make_sender: Callable[..., WebhookSender]
) -> None:
    for url in ("http://[", "http://a..b/", "http://example.com:99999/", "http://" + "a" * 300 + "/"):
        end_a_job(shop, url)
    end_a_job(shop, receiver.url)
    assert make_sender().deliver_due() == 5
    assert len(receiver.requests) == 1


def test_a_try_that_cannot_be_recorded_keeps_no_other_from_it(
    shop: Shop, make_sender: Callable[..., WebhookSender]
) -> None:
    for tenant in ("acme", "neighbour"):
        end_a_job(shop, "http://x.example/", tenant=tenant)
    with shop.ledger.begin() as session:
        claimed = claim_due_notifications(session, 10, per_tenant=10)
    tenant_rows.close(shop.ledger, "acme")
    ended = [_Tried(due, Try("delivered", status=200)) for due in claimed]
    asyncio.run(make_sender()._next_turn(ended, {}, is_stopping=True))
    tenant_rows.open_again(shop.ledger, "acme")
    recorded = "SELECT job.tenant FROM notification JOIN job ON job.id = job_id WHERE delivered_at IS NOT NULL"
    assert (len(ended), shop.rows(recorded)) == (2, [("neighbour",)])


def test_two_senders_share_the_work(shop: Shop, receiver: Receiver, make_sender: Callable[..., WebhookSender]) -> None:
    for _ in range(6):
        end_a_job(shop, receiver.url)
    senders = [make_sender(), make_sender()]
    threads = [threading.Thread(target=sender.deliver_due) for sender in senders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(receiver.requests) == 6


def test_without_a_secret_nothing_is_sent_and_nothing_is_lost(
    shop: Shop, receiver: Receiver, make_sender: Callable[..., WebhookSender]
) -> None:
    end_a_job(shop, receiver.url)
    assert make_sender(secret="").deliver_due() == 0
    assert make_sender().deliver_due() == 1
    assert len(receiver.requests) == 1


def test_while_secrets_change_both_the_old_and_the_new_one_verify(
    shop: Shop, receiver: Receiver, make_sender: Callable[..., WebhookSender]
) -> None:
    end_a_job(shop, receiver.url)
    new = "whsec_" + "TkVX" * 8
    make_sender(secret=new, old=(SECRET,)).deliver_due()
    ((headers, body),) = receiver.requests
    for secret in (secret_of("acme"), secret_of("acme", new)):
        assert Webhook(secret).verify(body, headers)["type"] == "job.ended"


def test_what_came_of_each_try_is_on_record_and_a_replay_sends_the_same_message_again(
    shop: Shop, receiver: Receiver, make_sender: Callable[..., WebhookSender]
) -> None:
    receiver.status = 503
    job_id = UUID(end_a_job(shop, receiver.url))
    notifications, sender = Notifications(shop.ledger), make_sender()
    for _ in range(len(RETRY_SECONDS) + 1):
        make_due(shop)
        sender.deliver_due()
    given_up = notifications.show(job_id, tenant="acme")
    assert given_up.state == "undelivered"
    assert [(one.number, one.outcome, one.status) for one in given_up.deliveries] == [
        (number, "failed", 503) for number in range(1, len(RETRY_SECONDS) + 2)
    ]
    (listed,) = notifications.not_delivered("acme").notifications
    assert listed.job_id == job_id
    receiver.status = 204
    for replays in (1, 2):  # once because it never arrived, once because its receiver lost it
        assert notifications.replay(job_id, tenant="acme", actor="key:k").state == "pending"
        assert sender.deliver_due() == 1
        now = notifications.show(job_id, tenant="acme")
        assert (now.state, now.replays, now.deliveries[-1].outcome) == ("delivered", replays, "delivered")
    assert len({(headers["webhook-id"], body) for headers, body in receiver.requests}) == 1
    assert notifications.not_delivered("acme").notifications == []
    assert shop.scalar("SELECT count(*) FROM audit WHERE action = 'notification_replayed'") == 2


def test_an_address_that_may_not_be_called_says_so_in_the_list_of_tries(
    shop: Shop, receiver: Receiver, make_sender: Callable[..., WebhookSender]
) -> None:
    job_id = UUID(end_a_job(shop, receiver.url))
    make_sender(allow_private=False).deliver_due()
    (delivery,) = Notifications(shop.ledger).show(job_id, tenant="acme").deliveries
    assert (delivery.outcome, delivery.status) == ("refused", None)
    assert "not public" in delivery.detail


def test_what_was_never_owed_cannot_be_sent_again(shop: Shop) -> None:
    notifications = Notifications(shop.ledger)
    silent, running = UUID(end_a_job(shop, None)), shop.running(tier=None, callback_url="https://a.example/").job.id
    often = UUID(end_a_job(shop, "https://a.example/"))
    shop.execute(f"UPDATE notification SET replays = {MAX_REPLAYS} WHERE job_id = '{often}'")
    for job_id, reason in ((silent, "no_callback"), (running, "not_ended"), (often, "too_often")):
        with pytest.raises(NotReplayableError) as refused:
            notifications.replay(job_id, tenant="acme", actor="cli")
        assert refused.value.reason == reason
    assert [notifications.show(job_id, tenant="acme").state for job_id in (silent, running)] == ["none", "none"]
    with pytest.raises(JobNotFoundError):
        notifications.replay(often, tenant="somebody", actor="cli")


def test_pages_of_what_did_not_arrive_hold_each_notification_once(shop: Shop) -> None:
    jobs = [UUID(end_a_job(shop, "https://a.example/")) for _ in range(5)]
    notifications, seen, cursor = Notifications(shop.ledger), [], None
    for _ in range(5):
        page = notifications.not_delivered("acme", wanted="pending", cursor=cursor, limit=2)
        seen += [one.job_id for one in page.notifications]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert seen == jobs[::-1]

"""The dispatcher keeps a real broker full from a real ledger, whatever happens to the broker, a worker or itself."""

import base64
import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from redis import Redis
from sqlalchemy import event

from ledger.attempts import report_loss
from ledger.job_control import undo_approval
from ledger.releases import activate, add_release
from ledger.store import WORK_CHANNEL
from ledger.submission import accept
from ledger.tables import Site
from producers.config import DispatcherConfig
from producers.dispatch.broker import BrokerLists, Publisher
from producers.dispatch.dispatcher import Dispatcher, DispatcherLoop
from producers.dispatch.housekeeping import Projector
from routing.broker import create_app
from routing.jobs import JobMessage, Reason
from routing.policy.platform import DispatchWindow
from routing.queues import QueueName
from routing.scheduling import WaitReason
from sites.content_store import ContentStore
from sites.releases import build_release, site_key
from tests.factories import Shop, make_new_job

DEAD_BROKER = "redis://127.0.0.1:1/0"
Make = Callable[..., Dispatcher]


@pytest.fixture
def broker(broker_url: str) -> Iterator[Any]:
    with Redis.from_url(broker_url, decode_responses=True) as client:
        yield client
        client.config_set("maxmemory", 0)


@pytest.fixture
def dispatcher(shop: Shop, broker_url: str) -> Iterator[Make]:
    opened: list[BrokerLists] = []
    apps = []

    def make(
        holder: str = "one",
        *,
        url: str = broker_url,
        dispatch_window: DispatchWindow | None = None,
        projector: Projector | None = None,
    ) -> Dispatcher:
        app = create_app(url)
        apps.append(app)
        opened.append(BrokerLists(url))
        policy = shop.policy.model_copy(update={"dispatch_window": dispatch_window} if dispatch_window else {})
        return Dispatcher(
            shop.ledger,
            Publisher(app),
            opened[-1],
            policy=policy,
            config=DispatcherConfig(),
            holder=holder,
            signing_key=b"k" * 32,
            show_lagging=projector.run if projector else None,
        )

    yield make
    for lists in opened:
        lists.close()
    for app in apps:
        app.close()


def messages(broker: Any, queue: str) -> list[dict[str, Any]]:
    """The messages on a queue's list, first to be delivered first."""
    return [json.loads(body) for body in reversed(broker.lrange(queue, 0, -1))]


def ids(broker: Any, queue: str) -> list[UUID]:
    return [UUID(message["headers"]["id"].partition("/")[0]) for message in messages(broker, queue)]


def grow_old(shop: Shop) -> None:
    """Let every push be long ago."""
    shop.execute("UPDATE job SET pushed_at = pushed_at - interval '1 minute'")


def test_waiting_jobs_of_every_queue_reach_their_lists_and_carry_only_ids(
    shop: Shop, broker: Any, dispatcher: Make
) -> None:
    question = shop.accept(tier=None, prompt="a secret plan")
    edit = shop.accept(prompt="a secret plan")
    assert dispatcher().run_once()
    assert (ids(broker, "answer"), ids(broker, "spec")) == ([question], [edit])
    (message,) = messages(broker, "spec")
    assert message["content-type"] == "application/json"
    assert message["headers"]["task"] == "pointsman.spec"
    assert message["headers"]["timelimit"] == [30, 25]
    assert message["headers"]["id"] == f"{edit}/0"
    assert message["headers"]["argsrepr"] == message["headers"]["kwargsrepr"] == "-"
    args, kwargs, _ = json.loads(base64.b64decode(message["body"]))
    assert (args, kwargs) == ([{"schema_version": 1, "job_id": str(edit), "fence": 0}], {})
    assert "secret" not in json.dumps(message)


def test_an_approved_job_is_pushed_when_its_time_to_undo_is_over_by_whichever_dispatcher_leads_then(
    shop: Shop, broker: Any, dispatcher: Make
) -> None:
    kept, undone = (shop.offer(shop.running(site_id=shop.site(name))).job_id for name in ("kept", "undone"))
    for job_id in (kept, undone):
        shop.approve(job_id, undo_seconds=60)
    first = dispatcher("first")
    assert first.run_once()
    assert ids(broker, "control") == []
    first.resign()
    with shop.ledger.begin() as session:
        undo_approval(session, undone, actor="ann")
    shop.execute("UPDATE job SET held_until = held_until - interval '60 seconds'")
    assert dispatcher("second").run_once()
    assert ids(broker, "control") == [kept]
    assert messages(broker, "control")[0]["headers"]["task"] == "pointsman.control"
    assert shop.try_claim(shop.message(kept), queue=QueueName.CONTROL) is not None


def test_a_message_on_its_list_is_not_pushed_twice(shop: Shop, broker: Any, dispatcher: Make) -> None:
    job_id = shop.accept(tier=None)
    one = dispatcher()
    for _ in range(3):
        one.run_once()
        grow_old(shop)
    assert ids(broker, "answer") == [job_id]


def test_messages_that_the_broker_lost_are_pushed_again(shop: Shop, broker: Any, dispatcher: Make) -> None:
    jobs = [shop.accept(tier=None) for _ in range(3)]
    one = dispatcher()
    one.run_once()
    broker.flushall()
    one.run_once()
    assert ids(broker, "answer") == [], "a message that was just pushed may be on its way to a worker"
    grow_old(shop)
    one.run_once()
    assert ids(broker, "answer") == jobs


def test_a_message_taken_but_not_yet_claimed_may_be_pushed_again_and_only_one_copy_counts(
    shop: Shop, broker: Any, dispatcher: Make
) -> None:
    job_id = shop.accept(tier=None)
    one = dispatcher()
    one.run_once()
    message = shop.message(job_id)
    broker.lpop("answer")
    grow_old(shop)
    one.run_once()
    assert len(ids(broker, "answer")) == 1
    assert shop.try_claim(message) is not None
    assert shop.try_claim(message) is None


def test_what_does_not_fit_on_the_runway_waits_in_the_ledger(shop: Shop, broker: Any, dispatcher: Make) -> None:
    jobs = [shop.accept(tier=None) for _ in range(5)]
    one = dispatcher(dispatch_window=DispatchWindow(per_queue=2, per_tenant=16))
    one.run_once()
    assert ids(broker, "answer") == jobs[:2]
    shop.claim(jobs[0])
    one.run_once()
    assert ids(broker, "answer") == jobs[:3]


def test_while_the_broker_is_away_nothing_is_lost(shop: Shop, broker: Any, dispatcher: Make) -> None:
    jobs = [shop.accept(tier=None) for _ in range(2)]
    assert dispatcher(url=DEAD_BROKER).run_once()
    assert {shop.job(job_id).pushed_at for job_id in jobs} == {None}
    dispatcher().run_once()
    assert sorted(ids(broker, "answer")) == sorted(jobs)


def test_a_broker_that_goes_away_while_messages_stand_there_is_waited_for(
    shop: Shop, broker: Any, dispatcher: Make
) -> None:
    job_id = shop.accept(tier=None)
    dispatcher().run_once()
    grow_old(shop)
    assert dispatcher(url=DEAD_BROKER).run_once()
    assert ids(broker, "answer") == [job_id]


def test_a_broker_without_memory_loses_nothing(shop: Shop, broker: Any, dispatcher: Make) -> None:
    job_id = shop.accept(tier=None)
    one = dispatcher()
    broker.config_set("maxmemory", 1)
    assert one.run_once()
    assert shop.job(job_id).pushed_at is None
    broker.config_set("maxmemory", 0)
    one.run_once()
    assert ids(broker, "answer") == [job_id]


def test_one_of_two_dispatchers_works_and_the_other_takes_over_when_its_lease_ends(
    shop: Shop, broker: Any, dispatcher: Make
) -> None:
    one, two = dispatcher("one"), dispatcher("two")
    assert one.run_once()
    job_id = shop.accept(tier=None)
    assert not two.run_once()
    assert ids(broker, "answer") == []
    shop.execute("UPDATE leader SET until = now() - interval '1 second'")
    assert two.run_once()
    assert not one.run_once()
    assert ids(broker, "answer") == [job_id]
    two.resign()
    assert one.run_once()


def test_a_job_whose_worker_died_is_back_on_the_list_after_a_pause(shop: Shop, broker: Any, dispatcher: Make) -> None:
    claimed = shop.running(tier=None)
    shop.lapse(claimed)
    one = dispatcher()
    one.run_once()
    assert messages(broker, "answer") == []
    assert shop.job(claimed.job.id).held_for == "time"
    shop.let_time_pass()
    one.run_once()
    (message,) = messages(broker, "answer")
    assert message["headers"]["id"] == f"{claimed.job.id}/2"
    assert shop.job(claimed.job.id).lost_attempts == 1


def test_a_job_that_lost_two_workers_ends(shop: Shop, broker: Any, dispatcher: Make) -> None:
    job_id = shop.accept(tier=None)
    one = dispatcher()
    for _ in range(2):
        shop.lapse(shop.claim(job_id))
        one.run_once()
        shop.let_time_pass()  # a job rests after the loss of a worker
    assert shop.job(job_id).state == "failed"


def test_an_overdue_approval_expires_and_frees_its_site(shop: Shop, dispatcher: Make) -> None:
    claimed = shop.running()
    release = shop.offer(claimed)
    shop.execute("UPDATE job SET expires_at = now() - interval '1 second'")
    dispatcher().run_once()
    assert shop.job(claimed.job.id).state == "expired"
    assert shop.find(Site, release.site_id).lock_job_id is None


def test_one_tenant_s_unfit_overrides_hold_up_nobody(shop: Shop, broker: Any, dispatcher: Make) -> None:
    bad = shop.accept(tier=None, tenant="bad")
    good = shop.accept(tier=None)
    shop.tenant("bad", overrides={"queues": {"answer": {"llm_usd": 9}}})
    dispatcher().run_once()
    assert set(ids(broker, "answer")) == {bad, good}
    assert shop.try_claim(shop.message(bad)) is None
    assert shop.job(bad).state == "failed"


def test_a_tenant_s_lower_time_limits_travel_with_its_message(shop: Shop, broker: Any, dispatcher: Make) -> None:
    shop.tenant(overrides={"queues": {"answer": {"soft_seconds": 3, "hard_seconds": 4}}})
    shop.accept(tier=None)
    dispatcher().run_once()
    assert messages(broker, "answer")[0]["headers"]["timelimit"] == [4, 3]


def test_each_round_seals_the_audit_trail(shop: Shop, dispatcher: Make) -> None:
    shop.accept(tier=None)
    dispatcher().run_once()
    assert shop.scalar("SELECT sum(rows) FROM audit_seal") == shop.scalar("SELECT count(*) FROM audit") > 0


def test_a_job_that_cannot_be_recovered_holds_up_no_other_job(shop: Shop, broker: Any, dispatcher: Make) -> None:
    poison = [shop.running(tier=None) for _ in range(2)]
    shop.execute("UPDATE job SET state = 'clarifying', lost_attempts = 99 WHERE id = :id", id=poison[0].job.id)
    shop.execute("UPDATE job SET queue = 'of-another-version' WHERE id = :id", id=poison[1].job.id)
    lost = shop.running(tier=None)
    for claimed, seconds in (*((claimed, 60.0) for claimed in poison), (lost, 1.0)):
        shop.lapse(claimed, seconds=seconds)
    waiting = shop.accept(tier=None)
    one = dispatcher()
    assert one.run_once()
    assert shop.job(lost.job.id).state == "queued"
    assert ids(broker, "answer") == [waiting]
    shop.let_time_pass()
    assert one.run_once()
    assert set(ids(broker, "answer")) == {lost.job.id, waiting}


def test_a_preview_that_cannot_expire_holds_up_no_other_job(shop: Shop, broker: Any, dispatcher: Make) -> None:
    stuck = shop.accept(tier=None)
    shop.execute(
        "UPDATE job SET state = 'received', waiting_since = NULL, expires_at = now() - interval '1 day' WHERE id = :id",
        id=stuck,
    )
    claimed = shop.running()
    shop.offer(claimed)
    shop.execute("UPDATE job SET expires_at = now() - interval '1 hour' WHERE id = :id", id=claimed.job.id)
    assert dispatcher().run_once()
    assert shop.job(claimed.job.id).state == "expired"


def test_woken_it_does_what_news_is_about_and_leaves_what_time_brings_to_the_next_tick(
    shop: Shop, broker: Any, dispatcher: Make
) -> None:
    one = dispatcher()
    assert one.run_once()
    writing, lost, silent = shop.running(), shop.running(tier=None), shop.running(tier=None)
    waiting = shop.accept()
    overdue = shop.running(site_id=shop.site("other"))
    shop.offer(overdue)
    shop.execute("UPDATE job SET expires_at = now() - interval '1 hour' WHERE id = :id", id=overdue.job.id)
    shop.lapse(silent)
    assert one.run_woken()
    assert shop.job(waiting).held_for == "site"
    assert shop.job(overdue.job.id).state == "awaiting_approval"
    assert shop.job(silent.job.id).state == "running", "its lease ran out in silence"
    message = JobMessage(job_id=lost.job.id, fence=lost.attempt.fence - 1)
    with shop.ledger.begin() as session:
        report_loss(session, message, worker="w1", cause=Reason.WORKER_LOST)
    assert one.run_woken()
    assert shop.job(lost.job.id).state == "queued"
    question = shop.accept(tier=None)
    shop.end(writing)
    assert one.run_woken()
    assert (ids(broker, "spec"), ids(broker, "answer")) == ([waiting], [question])
    assert one.run_once()
    assert shop.job(overdue.job.id).state == "expired"


def test_a_runway_is_filled_again_when_half_of_it_is_taken(shop: Shop, broker: Any, dispatcher: Make) -> None:
    one = dispatcher(dispatch_window=DispatchWindow(per_queue=8, per_tenant=8))
    jobs = [shop.accept(tier=None) for _ in range(20)]
    assert one.run_once()
    assert ids(broker, "answer") == jobs[:8]
    for taken, pushed in ((jobs[:3], 8), (jobs[3:4], 12), (jobs[4:6], 12), (jobs[6:8], 16)):
        for job in taken:
            shop.claim(job)
        assert one.run_woken()
        assert ids(broker, "answer") == jobs[:pushed]
    shop.claim(jobs[8])
    assert one.run_once(), "a tick fills up whatever is missing"
    assert ids(broker, "answer") == jobs[:17]


def test_an_idle_tick_asks_the_ledger_once_and_counts_and_seals_every_few_seconds(shop: Shop, dispatcher: Make) -> None:
    one = dispatcher()
    shop.accept(tier=None)
    assert one.run_once()
    with statements(shop) as asked:
        assert one.run_once()
    assert len(asked) == 2, "its lease, and whether anything is due"
    assert shop.scalar("SELECT sum(waiting) FROM backlog WHERE tenant = ''") == 1
    seals = shop.scalar("SELECT count(*) FROM audit_seal")
    assert seals == 1
    shop.accept(tier=None)
    assert one.run_once()
    assert shop.scalar("SELECT count(*) FROM audit_seal") == seals


@contextmanager
def statements(shop: Shop) -> Iterator[list[str]]:
    """Collect the statements that the ledger is asked."""
    asked: list[str] = []

    def hear(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        asked.append(statement)

    event.listen(shop.ledger.engine, "before_cursor_execute", hear)
    try:
        yield asked
    finally:
        event.remove(shop.ledger.engine, "before_cursor_execute", hear)


@contextmanager
def woken(shop: Shop) -> Iterator[Callable[[], int]]:
    """Count how often the dispatcher was woken since the last look; what is committed first comes first."""

    def wakes() -> int:
        shop.execute("SELECT pg_notify(:channel, 'all told')", channel=WORK_CHANNEL)
        said = (notice.payload for notice in ears.notifies(timeout=30))
        return len(list(takewhile(lambda payload: payload != "all told", said)))

    with psycopg.connect(shop.url, autocommit=True) as ears:
        ears.execute(f"LISTEN {WORK_CHANNEL}".encode())
        yield wakes


@pytest.mark.parametrize(
    "window", [DispatchWindow(per_queue=4, per_tenant=9), DispatchWindow(per_queue=9, per_tenant=4)]
)
def test_a_claim_wakes_it_when_the_window_is_half_empty_and_more_jobs_are_ready(
    shop: Shop, dispatcher: Make, window: DispatchWindow
) -> None:
    shop.policy = shop.policy.model_copy(update={"dispatch_window": window})
    with woken(shop) as wakes:
        jobs = [shop.accept(tier=None) for _ in range(5)]
        assert wakes() == 5, "nobody has looked for headroom"
        assert dispatcher(dispatch_window=window).run_once()
        counts = []
        for job in jobs[:4]:
            shop.claim(job)
            counts.append(wakes())
        assert counts == [0, 1, 1, 1]
        shop.execute("UPDATE job SET state = 'cancelled', waiting_since = NULL WHERE id = :id", id=jobs[4])
        shop.end(shop.running(tier=None))
        assert wakes() == 1, "only its acceptance: nothing else is ready"


def test_an_end_wakes_it_for_what_waited_for_the_site_or_the_tenant_s_limit(shop: Shop, dispatcher: Make) -> None:
    with woken(shop) as wakes:
        writing = shop.running()
        waiting = shop.accept()
        assert dispatcher().run_once()
        assert shop.job(waiting).held_for == "site"
        wakes()
        shop.end(writing)
        assert wakes() == 1
        shop.end(shop.claim(waiting))
        assert wakes() == 0
        only, _ = shop.running(tier=None), shop.accept(tier=None)
        shop.tenant(max_running=1)
        assert dispatcher().run_once()
        wakes()
        shop.end(only)
        assert wakes() == 1


def test_it_is_woken_after_the_commit_and_only_then(shop: Shop) -> None:
    shop.tenant()
    with woken(shop) as wakes:
        with shop.ledger.begin() as session:
            accept(session, make_new_job(tier=None))
            assert wakes() == 0
        assert wakes() == 1
        shop.accept(tier=None, held_for=WaitReason.TIME, held_until=datetime.now(UTC) + timedelta(hours=1))
        assert wakes() == 0, "its time brings it back"


@pytest.mark.parametrize(("leads", "rounds"), [(True, ["whole", "woken", "whole"]), (False, ["whole", "whole"])])
def test_between_two_ticks_the_ledger_wakes_the_leader_alone(shop: Shop, leads: bool, rounds: list[str]) -> None:
    class Rounds:
        has_more = False
        rest_seconds = 0.01

        def __init__(self) -> None:
            self.seen: list[str] = []

        def run_once(self) -> bool:
            return self.note("whole")

        def run_woken(self) -> bool:
            return self.note("woken")

        def resign(self) -> None:
            pass

        def note(self, kind: str) -> bool:
            self.seen.append(kind)
            if self.seen == rounds:
                loop.stop()
            if len(self.seen) == 1:
                shop.execute(f"NOTIFY {WORK_CHANNEL}")
            return leads

    made = Rounds()
    loop = DispatcherLoop(
        made,  # type: ignore[arg-type]
        ledger_url=shop.url,
        config=DispatcherConfig(tick_seconds=0.3),
    )
    began = time.monotonic()
    with handlers_kept():
        loop.run()
    assert made.seen == rounds
    assert time.monotonic() - began >= 0.3


@contextmanager
def handlers_kept() -> Iterator[None]:
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


def test_a_step_that_fails_holds_up_no_other_step(shop: Shop, broker: Any, dispatcher: Make) -> None:
    lost, waiting = shop.running(tier=None), shop.accept(tier=None)
    shop.lapse(lost)
    shop.execute("ALTER TABLE attempt ADD CONSTRAINT broken CHECK (ended_at IS NULL)")
    try:
        assert dispatcher().run_once()
        assert shop.job(lost.job.id).state == "running"
    finally:
        shop.execute("ALTER TABLE attempt DROP CONSTRAINT broken")
    assert ids(broker, "answer") == [waiting]


def test_a_site_whose_copy_for_web_servers_lags_is_shown_by_the_leader_even_without_a_broker(
    shop: Shop, dispatcher: Make, tmp_path: Path
) -> None:
    content_store = ContentStore(tmp_path)
    site_id = shop.site()
    with shop.ledger.begin() as session:
        new = build_release(content_store, {"a.txt": b"a"}, site=session.get_one(Site, site_id), policy=shop.policy)
        release = add_release(session, new)
        activate(session, site_id, release, base_release_id=None)
    key = site_key(shop.find(Site, site_id))
    assert content_store.active_release(key) is None
    assert dispatcher(url=DEAD_BROKER, projector=Projector(shop.ledger, content_store)).run_once()
    assert content_store.active_release(key) == str(release.id)
    assert shop.find(Site, site_id).shown_release_id == release.id

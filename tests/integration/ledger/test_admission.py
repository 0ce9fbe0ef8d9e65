"""Who may wait and who may run: weights, limits of tenants, pauses, full queues and spent days, by the ledger alone."""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.exc import OperationalError
from sqlmodel import Session

from ledger.attempts import expire_waiting, stale_jobs
from ledger.dispatch_window import Push, pause_queue, top_up
from ledger.operations.workers import WorkerStatus, record_heartbeat
from ledger.start_attempt import claim
from ledger.store import Ledger
from ledger.submission import count_backlog, load_headroom
from producers.dispatch.broker import Publisher
from producers.errors import AdmissionRefusedError
from producers.intake.celery_intake import take_in
from producers.intake.celery_messages import CeleryMessage
from producers.intake.submit import Submitter
from routing.broker import create_app
from routing.jobs import Reason, Source
from routing.policy.platform import DispatchWindow
from routing.queues import QueueName
from routing.scheduling import NO_RATE_SECONDS, Admission, retry_after_seconds
from tests.factories import Shop

ANSWER, SPEC, CONTROL = QueueName.ANSWER, QueueName.SPEC, QueueName.CONTROL
QUESTION = "What is a content delivery network?"


def take(shop: Shop, *, per_queue: int = 64, per_tenant: int = 16, queue: QueueName = ANSWER) -> list[Push]:
    with shop.ledger.begin() as session:
        dispatch_window = DispatchWindow(per_queue=per_queue, per_tenant=per_tenant)
        return list(top_up(session, queue, dispatch_window=dispatch_window, admission=Admission()))


def questions(shop: Shop, count: int, *, tenant: str = "acme") -> list[UUID]:
    return [shop.accept(tier=None, tenant=tenant) for _ in range(count)]


def limited(shop: Shop, **limits: Any) -> Shop:
    admission = shop.policy.admission.model_copy(update=limits)
    return Shop(shop.ledger, url=shop.url, policy=shop.policy.model_copy(update={"admission": admission}))


@pytest.fixture
def submitter(shop: Shop, broker_url: str) -> Iterator[Submitter]:
    app = create_app(broker_url)
    small = limited(shop, waiting_per_queue=5, waiting_per_tenant=3).policy
    yield Submitter(shop.ledger, Publisher(app), small)
    app.close()


def counted(shop: Shop) -> None:
    with shop.ledger.begin() as session:
        count_backlog(session)


@pytest.mark.slow
def test_tenants_are_served_by_their_weights_while_all_of_them_have_work_waiting(shop: Shop) -> None:
    shop.tenant("heavy", weight=3)
    shop.tenant("light")
    for tenant in ("heavy", "light"):
        questions(shop, 24, tenant=tenant)
    served: Counter[str] = Counter()
    while served.total() < 24:  # the broker's list is worked off in its order
        for push in take(shop, per_queue=4):
            shop.claim(push.job_id)
            served[push.tenant] += 1
    assert (served["heavy"], served["light"]) == (18, 6)


def test_many_tenants_share_a_short_runway_and_none_of_them_starves(shop: Shop) -> None:
    tenants = [shop.tenant(f"t{number}") for number in range(7)]
    for tenant in tenants:
        questions(shop, 4, tenant=tenant)
    served: Counter[str] = Counter()
    for _ in range(14):
        for push in take(shop, per_queue=2):
            shop.claim(push.job_id)
            served[push.tenant] += 1
    assert served == Counter(dict.fromkeys(tenants, 4))


def test_a_tenant_at_its_limit_gets_nothing_more_pushed_until_one_of_its_jobs_has_ended(shop: Shop) -> None:
    shop.tenant("small", max_running=2)
    questions(shop, 5, tenant="small")
    running = [shop.claim(push.job_id) for push in take(shop)]
    assert len(running) == 2
    assert take(shop) == []
    shop.end(running[0])
    assert len(take(shop)) == 1


def test_no_race_of_claims_gives_a_tenant_more_attempts_than_it_may_have(shop: Shop) -> None:
    shop.tenant("small", max_running=3)
    jobs = questions(shop, 12, tenant="small")
    shop.execute("UPDATE job SET pushed_at = now()")
    messages = [shop.message(job_id) for job_id in jobs]
    with ThreadPoolExecutor(6) as pool:
        claims = list(pool.map(lambda message: shop.try_claim(message, queue=ANSWER), messages))
    assert sum(claim is not None for claim in claims) == 3
    refused = [job_id for job_id, claim in zip(jobs, claims, strict=True) if claim is None]
    assert {shop.job(job_id).pushed_at for job_id in refused} == {None}, "they wait for another push"


class Within(Ledger):
    """A ledger whose single statements run in a transaction that stays open."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @contextmanager
    def look(self) -> Iterator[Connection]:
        yield self._session.connection()


@pytest.mark.parametrize(("limit", "waits"), [(5, False), (4, True)])
def test_claims_wait_for_each_other_only_where_they_could_pass_the_tenant_s_limit(
    shop: Shop, limit: int, waits: bool
) -> None:
    shop.tenant("small", max_running=limit)
    with shop.ledger.begin() as session:
        record_heartbeat(session, WorkerStatus(id="w1", host="h", pid=1, queues=("answer",), slots=4))
    shop.running(tier=None, tenant="small")
    one, two = (shop.message(job) for job in questions(shop, 2, tenant="small"))
    with shop.ledger.begin() as session:
        assert claim(Within(session), one, queue=ANSWER, worker="w1", policy=shop.policy) is not None
        with pytest.raises(OperationalError) if waits else nullcontext(), shop.ledger.begin() as other:
            other.execute(text("SET LOCAL lock_timeout = '50ms'"))
            assert claim(Within(other), two, queue=ANSWER, worker="w1", policy=shop.policy) is not None


def test_what_finishes_work_that_has_begun_is_not_counted(shop: Shop) -> None:
    shop.tenant("small", max_running=1)
    shop.running(tier=None, tenant="small")
    publish = shop.accept(tier=None, tenant="small", queue=CONTROL)
    assert [push.job_id for push in take(shop, queue=CONTROL)] == [publish]
    assert shop.try_claim(shop.message(publish)) is not None


@pytest.mark.parametrize("what", ["queue", "tenant"])
def test_a_pause_holds_at_once_for_messages_that_are_on_their_way_and_ends_at_once_too(shop: Shop, what: str) -> None:
    (job_id,) = questions(shop, 1)
    (push,) = take(shop)

    def set_paused(*, is_paused: bool) -> None:
        with shop.ledger.begin() as session:
            if what == "queue":
                pause_queue(session, ANSWER, is_paused=is_paused)
        if what == "tenant":
            shop.execute("UPDATE tenant SET paused_at = CASE WHEN :paused THEN now() END", paused=is_paused)

    set_paused(is_paused=True)
    assert shop.try_claim(shop.message(push.job_id)) is None
    assert shop.job(job_id).pushed_at is None
    assert take(shop) == []
    set_paused(is_paused=False)
    assert [push.job_id for push in take(shop)] == [job_id]
    assert shop.try_claim(shop.message(job_id)) is not None


def test_a_job_that_no_worker_took_up_in_its_queue_s_time_expires_with_one_notification(shop: Shop) -> None:
    late, young = questions(shop, 2)
    shop.execute("UPDATE job SET waiting_since = now() - interval '2 hours' WHERE id = :id", id=late)
    with shop.ledger.begin() as session:
        assert stale_jobs(session, {QueueName.SPEC: 60, ANSWER: 3600, QueueName.TOOLS: 60}) == [(late, ANSWER)]
        assert expire_waiting(session, late, ANSWER, wait_seconds=3600)
        assert not expire_waiting(session, young, ANSWER, wait_seconds=3600)
    job = shop.job(late)
    assert (job.state, job.reason, job.waiting_since) == ("expired", "queue_expired", None)
    assert shop.scalar("SELECT count(*) FROM notification WHERE job_id = :id", id=late) == 1
    assert shop.job(young).state == "queued"


def test_a_worker_that_comes_first_keeps_the_job_from_expiring(shop: Shop) -> None:
    (late,) = questions(shop, 1)
    shop.execute("UPDATE job SET waiting_since = now() - interval '2 hours'")
    shop.claim(late)
    with shop.ledger.begin() as session:
        assert not expire_waiting(session, late, ANSWER, wait_seconds=3600)


def test_a_caller_is_told_when_a_full_queue_will_have_room_again() -> None:
    assert retry_after_seconds(1000, limit=1000, drained_per_second=10) == 10
    assert retry_after_seconds(1500, limit=1000, drained_per_second=10) == 60
    assert retry_after_seconds(1000, limit=1000, drained_per_second=0) == NO_RATE_SECONDS
    assert retry_after_seconds(10**9, limit=1000, drained_per_second=0.001) == 3600
    assert retry_after_seconds(3, limit=3, drained_per_second=1000) == 1


def test_a_full_queue_refuses_further_jobs_of_all_and_a_full_share_those_of_its_tenant(
    shop: Shop, submitter: Submitter
) -> None:
    shop.tenant("other")
    questions(shop, 3)
    submitter.submit({"prompt": QUESTION}, tenant="other", source=Source.HTTP)
    counted(shop)
    with pytest.raises(AdmissionRefusedError, match="tenant acme has 3 waiting jobs or more"):
        submitter.submit({"prompt": QUESTION}, tenant="acme", source=Source.HTTP)
    submitter.submit({"prompt": QUESTION}, tenant="other", source=Source.HTTP)
    counted(shop)
    with pytest.raises(AdmissionRefusedError, match="queue answer holds 5 waiting jobs or more") as refused:
        submitter.submit({"prompt": QUESTION}, tenant="other", source=Source.HTTP)
    assert refused.value.retry_after_seconds == NO_RATE_SECONDS
    shop.execute("UPDATE job SET waiting_since = NULL WHERE tenant = 'acme'")
    counted(shop)
    submitter.submit({"prompt": QUESTION}, tenant="acme", source=Source.HTTP)


def test_whoever_asks_again_for_an_accepted_job_gets_it_from_a_full_queue_too(shop: Shop, submitter: Submitter) -> None:
    body = {"prompt": QUESTION, "idempotency_key": "k"}
    first = submitter.submit(body, tenant="acme", source=Source.HTTP)
    questions(shop, 5)
    counted(shop)
    assert submitter.submit(body, tenant="acme", source=Source.HTTP).job.id == first.job.id


def test_a_message_to_a_full_queue_becomes_a_rejected_row_that_says_when_to_come_back(
    shop: Shop, submitter: Submitter
) -> None:
    questions(shop, 5)
    counted(shop)
    task_id = uuid4()
    asked = {"prompt": QUESTION, "tenant": "acme"}
    take_in(CeleryMessage("pointsman.submit", str(task_id), (), asked), submitter)
    job = shop.job(task_id)
    assert (job.state, job.reason, job.result) == ("rejected", "queue_full", {"retry_after_seconds": NO_RATE_SECONDS})


@pytest.mark.parametrize("scope", ["tenant_day", "fleet_day"])
def test_a_day_s_money_that_is_spent_refuses_what_needs_a_model_until_midnight_and_nothing_else(
    shop: Shop, submitter: Submitter, scope: str
) -> None:
    key = "'acme/' || d" if scope == "tenant_day" else "d"
    shop.execute(
        "INSERT INTO cap (scope, key, limit_nanousd, spent_nanousd, reserved_nanousd) SELECT :scope, "
        f"{key}, 500000000000, 500000000000, 0 FROM to_char(timezone('UTC', now()), 'YYYY-MM-DD') AS d",
        scope=scope,
    )
    with pytest.raises(AdmissionRefusedError, match="daily budget of") as refused:
        submitter.submit({"prompt": QUESTION}, tenant="acme", source=Source.HTTP)
    assert refused.value.reason is Reason.COST_CAP
    assert 0 < refused.value.retry_after_seconds <= 86_400
    left = shop.scalar(
        "SELECT extract(epoch FROM date_trunc('day', t) + interval '1 day' - t)"
        " FROM timezone('UTC', clock_timestamp()) AS t"
    )
    assert abs((refused.value.retry_after_seconds - float(left)) % 86_400) < 5
    assert submitter.submit({"prompt": "pwd"}, tenant="acme", source=Source.HTTP).job.queue == "tools"


def test_the_backlog_is_counted_by_queue_and_tenant(shop: Shop) -> None:
    questions(shop, 2)
    shop.running(tier=None)
    counted(shop)
    rows = {(row.queue, row.tenant): row for row in shop.rows("SELECT * FROM backlog")}
    assert {place: row.waiting for place, row in rows.items()} == {("answer", ""): 2, ("answer", "acme"): 2}
    assert rows["answer", ""].drained_per_second == pytest.approx(1 / 60)
    shop.execute("UPDATE job SET waiting_since = NULL")
    counted(shop)
    with shop.ledger.begin() as session:
        room = load_headroom(session, "acme", ANSWER)
    assert room.fullness(Admission(waiting_per_tenant=1)) is None

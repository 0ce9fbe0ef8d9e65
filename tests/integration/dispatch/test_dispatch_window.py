"""Which waiting jobs go to the broker: tenants in turn, within the dispatch window, and nothing that cannot run."""

from concurrent.futures import ThreadPoolExecutor
from uuid import UUID, uuid4

import pytest

from ledger.dispatch_window import Push, hold_back, pause_queue, pushed_jobs, release_sites, top_up, unmark_pushed
from ledger.jobs import lock_job
from ledger.operations.backlog import depths
from ledger.operations.leaders import lead, resign
from ledger.submission import accept_all
from producers.intake.decisions import limits_of
from routing.policy.platform import DispatchWindow
from routing.queues import QueueName
from routing.scheduling import Admission, WaitReason
from tests.factories import Shop, make_new_job

ANSWER, SPEC = QueueName.ANSWER, QueueName.SPEC


def take(
    shop: Shop,
    queue: QueueName = ANSWER,
    *,
    per_queue: int = 64,
    per_tenant: int = 16,
    admission: Admission | None = None,
) -> list[Push]:
    with shop.ledger.begin() as session:
        limits = DispatchWindow(per_queue=per_queue, per_tenant=per_tenant)
        return list(top_up(session, queue, dispatch_window=limits, admission=admission or Admission()))


def questions(shop: Shop, count: int, *, tenant: str = "acme", **fields: object) -> list[UUID]:
    return [shop.accept(tier=None, tenant=tenant, **fields) for _ in range(count)]


def room(shop: Shop, *, queue: QueueName = ANSWER, tenant: str = "acme", site_id: UUID | None = None) -> bool:
    """Whether a new job would go to the broker at once."""
    policy = shop.policy.model_copy(update={"dispatch_window": DispatchWindow(per_queue=3, per_tenant=2)})
    new = make_new_job(id=uuid4(), tenant=tenant, queue=queue, site_id=site_id)
    with shop.ledger.engine.connect() as connection:  # and rolled back
        (receipt,) = accept_all(connection, [new], limits=limits_of(policy))
    assert receipt.is_new
    return receipt.is_pushed


def test_tenants_take_turns_however_many_jobs_one_of_them_has(shop: Shop) -> None:
    many = questions(shop, 6)
    few = questions(shop, 2, tenant="small")
    pushes = take(shop, per_queue=5)
    assert [push.tenant for push in pushes] == ["acme", "small", "acme", "small", "acme"]
    assert [push.job_id for push in pushes] == [many[0], few[0], many[1], few[1], many[2]]


def test_what_a_tenant_has_standing_counts_as_turns_it_has_had(shop: Shop) -> None:
    questions(shop, 3)
    assert len(take(shop, per_queue=3)) == 3
    questions(shop, 3)
    questions(shop, 3, tenant="late")
    assert [push.tenant for push in take(shop, per_queue=6)] == ["late", "late", "late"]


def test_urgent_jobs_go_first_within_their_tenant(shop: Shop) -> None:
    (normal,) = questions(shop, 1)
    (urgent,) = questions(shop, 1, priority="P0")
    assert [push.job_id for push in take(shop)] == [urgent, normal]


def test_a_tenant_s_share_is_never_longer_than_its_setting(shop: Shop) -> None:
    questions(shop, 5)
    questions(shop, 1, tenant="other")
    assert [push.tenant for push in take(shop, per_tenant=2)] == ["acme", "other", "acme"]
    assert take(shop, per_tenant=2) == []


def test_a_claimed_job_makes_room(shop: Shop) -> None:
    first, _ = questions(shop, 2)
    assert [push.job_id for push in take(shop, per_queue=1)] == [first]
    shop.claim(first)
    assert len(take(shop, per_queue=1)) == 1


def test_a_paused_queue_and_a_paused_tenant_are_skipped_until_they_are_resumed(shop: Shop) -> None:
    questions(shop, 1)
    questions(shop, 1, tenant="calm")
    shop.execute("UPDATE tenant SET paused_at = now() WHERE name = 'calm'")
    with shop.ledger.begin() as session:
        pause_queue(session, ANSWER, is_paused=True)
    assert take(shop) == []
    with shop.ledger.begin() as session:
        pause_queue(session, ANSWER, is_paused=False)
        pause_queue(session, SPEC, is_paused=True)
        pause_queue(session, SPEC, is_paused=True)
    assert [push.tenant for push in take(shop)] == ["acme"], "a paused queue is nothing to another one"
    shop.execute("UPDATE tenant SET paused_at = NULL")
    assert [push.tenant for push in take(shop)] == ["calm"]


@pytest.mark.req("H-073")
def test_a_job_whose_site_another_job_writes_is_skipped_and_questions_about_it_are_not(shop: Shop) -> None:
    site = shop.site()
    writing = shop.claim(shop.accept(site_id=site))
    waiting = shop.accept(site_id=site)
    (question,) = questions(shop, 1, site_id=site)
    assert take(shop, SPEC) == []
    assert [push.job_id for push in take(shop)] == [question]
    shop.end(writing)
    with shop.ledger.begin() as session:
        release_sites(session)
    assert [push.job_id for push in take(shop, SPEC)] == [waiting]


def test_a_job_that_holds_its_site_itself_is_pushed_again(shop: Shop) -> None:
    site = shop.site()
    job_id = shop.accept(site_id=site)
    shop.execute("UPDATE site SET lock_job_id = :job", job=job_id)
    assert [push.job_id for push in take(shop, SPEC)] == [job_id]


def test_a_job_is_chosen_once_by_two_dispatchers_at_once(shop: Shop) -> None:
    jobs = questions(shop, 12)
    with ThreadPoolExecutor(4) as pool:
        taken = [push.job_id for pushes in pool.map(lambda _: take(shop), range(4)) for push in pushes]
    assert sorted(taken) == sorted(jobs)


def test_a_pushed_job_keeps_its_fence_and_an_unpushed_one_goes_again(shop: Shop) -> None:
    (job_id,) = questions(shop, 1)
    (push,) = take(shop)
    assert push == Push(job_id, 0, ANSWER, "acme")
    with shop.ledger.begin() as session:
        unmark_pushed(session, [push])
    assert take(shop) == [push]


def test_a_late_unpush_does_not_touch_a_job_that_was_claimed_meanwhile(shop: Shop) -> None:
    (job_id,) = questions(shop, 1)
    (push,) = take(shop)
    shop.claim(job_id)
    with shop.ledger.begin() as session:
        unmark_pushed(session, [push])
    assert take(shop) == []
    assert shop.job(job_id).state == "running"


def test_only_messages_that_should_stand_there_for_long_enough_are_looked_for(shop: Shop) -> None:
    old, young, _ = questions(shop, 3)
    shop.execute("UPDATE job SET pushed_at = now() - interval '10 seconds' WHERE id = :id", id=old)
    shop.execute("UPDATE job SET pushed_at = now() WHERE id = :id", id=young)
    with shop.ledger.begin() as session:
        assert pushed_jobs(session, ANSWER, older_than_seconds=5) == [Push(old, 0, ANSWER, "acme")]


def test_a_new_job_goes_to_the_broker_at_once_only_while_there_is_room(shop: Shop) -> None:
    shop.tenant("other")
    assert room(shop)
    questions(shop, 2, is_pushed=True)
    assert not room(shop)
    assert room(shop, tenant="other")
    questions(shop, 1, tenant="other", is_pushed=True)
    assert not room(shop, tenant=shop.tenant("third"))


def test_a_new_job_waits_where_queue_tenant_or_site_is_not_free(shop: Shop) -> None:
    site = shop.site()
    assert room(shop, queue=SPEC, site_id=site)
    claimed = shop.claim(shop.accept(site_id=site))
    assert not room(shop, queue=SPEC, site_id=site)
    shop.end(claimed)
    assert room(shop, queue=SPEC, site_id=site)
    shop.execute("UPDATE tenant SET paused_at = now()")
    assert not room(shop)
    with shop.ledger.begin() as session:
        pause_queue(session, ANSWER, is_paused=True)
    assert not room(shop, tenant=shop.tenant("other"))


def test_a_new_job_waits_while_its_tenant_has_as_many_attempts_and_messages_as_it_may(shop: Shop) -> None:
    shop.execute("UPDATE tenant SET max_running = 2")
    first = shop.claim(questions(shop, 1)[0])
    assert room(shop)
    second = shop.claim(questions(shop, 1)[0])
    assert not room(shop)
    assert room(shop, queue=QueueName.CONTROL), "which only finishes what has begun"
    shop.end(first)
    assert room(shop)
    questions(shop, 1, is_pushed=True)
    assert not room(shop)
    shop.end(second)
    assert room(shop)


def test_a_role_has_one_leader_until_its_lease_ends_or_it_resigns(shop: Shop) -> None:
    def leads(holder: str) -> bool:
        with shop.ledger.begin() as session:
            return lead(session, "dispatcher", holder, seconds=60)

    assert leads("a")
    assert not leads("b")
    assert leads("a")
    shop.execute("UPDATE leader SET until = now() - interval '1 second'")
    assert leads("b")
    assert not leads("a")
    with shop.ledger.begin() as session:
        resign(session, "dispatcher", "a")
    assert not leads("a")
    with shop.ledger.begin() as session:
        resign(session, "dispatcher", "b")
    assert leads("a")


def test_depth_and_age_come_from_the_ledger(shop: Shop) -> None:
    first, _ = questions(shop, 2)
    shop.execute("UPDATE job SET waiting_since = now() - interval '90 seconds' WHERE id = :id", id=first)
    shop.claim(shop.accept())
    with shop.ledger.begin() as session:
        (depth,) = depths(session)
    assert (depth.queue, depth.waiting, depth.held) == ("answer", 2, {})
    assert 90 <= depth.oldest_age_seconds < 100


@pytest.mark.parametrize(("reason", "seconds"), [("site", None), ("provider", 60), ("time", 60)])
def test_what_is_held_is_counted_and_old_unless_its_time_has_not_come(
    shop: Shop, reason: str, seconds: float | None
) -> None:
    job_ids = questions(shop, 3)
    shop.execute("UPDATE job SET waiting_since = now() - interval '90 seconds'")
    with shop.ledger.begin() as session:
        for job_id in job_ids:
            hold_back(session, lock_job(session, job_id), WaitReason(reason), seconds=seconds)
        (depth,) = depths(session)
    assert (depth.waiting, depth.held, depth.oldest_age_seconds >= 90) == (3, {reason: 3}, reason != "time")
    assert depth.oldest_age_seconds == 0 or reason != "time"

"""A waiting job that must not run yet is held in the ledger, and let go on by the dispatcher alone."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from ledger.attempts import lock_owned_job
from ledger.dispatch_window import Push, hold_back, release_due, release_sites, top_up
from ledger.job_control import request_cancel
from ledger.jobs import close_attempt, lock_job, move, wait_on
from routing.jobs import Reason, State
from routing.policy.platform import DispatchWindow
from routing.queues import QueueName
from routing.scheduling import Admission, WaitReason
from tests.factories import Shop

SPEC, ANSWER = QueueName.SPEC, QueueName.ANSWER


def take(shop: Shop, queue: QueueName = SPEC) -> list[Push]:
    with shop.ledger.begin() as session:
        return list(
            top_up(session, queue, dispatch_window=DispatchWindow(per_queue=64, per_tenant=16), admission=Admission())
        )


def freed(shop: Shop) -> Sequence[UUID]:
    with shop.ledger.begin() as session:
        return release_sites(session)


def due(shop: Shop) -> Sequence[UUID]:
    with shop.ledger.begin() as session:
        return release_due(session)


def hold_job(shop: Shop, job_id: UUID, hold_for: WaitReason, *, seconds: float | None = None) -> None:
    with shop.ledger.begin() as session:
        hold_back(session, lock_job(session, job_id), hold_for, seconds=seconds)


@pytest.mark.parametrize("kind", [WaitReason.TIME, WaitReason.PROVIDER])
def test_a_job_that_waits_for_a_time_stays_off_the_broker_until_that_has_come(shop: Shop, kind: WaitReason) -> None:
    job_id = shop.accept(tier=None)
    hold_job(shop, job_id, kind, seconds=60)
    assert (due(shop), take(shop, ANSWER)) == ([], [])
    shop.execute("UPDATE job SET held_until = now() - interval '1 second'")
    assert due(shop) == [job_id]
    assert [push.job_id for push in take(shop, ANSWER)] == [job_id]
    job = shop.job(job_id)
    assert (job.held_for, job.held_until) == (None, None)


def test_a_try_that_is_put_off_says_so_in_the_same_commit_in_which_it_waits_again(shop: Shop) -> None:
    claimed = shop.running(tier=None)
    with shop.ledger.begin() as session:
        job = lock_owned_job(session, claimed.attempt)
        close_attempt(session, job, outcome="deferred", reason=Reason.PROVIDER_BUSY)
        job.fence += 1
        move(session, job, State.QUEUED, reason=Reason.PROVIDER_BUSY)
        wait_on(session, job, ANSWER, hold=WaitReason.PROVIDER, seconds=30)
    job = shop.job(claimed.job.id)
    assert (job.held_for, take(shop, ANSWER)) == ("provider", [])
    wait = shop.scalar("SELECT extract(epoch FROM held_until - clock_timestamp()) FROM job")
    assert 20 < wait <= 30


def test_whoever_waits_for_a_time_grows_old_only_from_then_on(shop: Shop) -> None:
    job_id = shop.accept(tier=None)
    hold_job(shop, job_id, WaitReason.TIME, seconds=3600)
    assert shop.scalar("SELECT waiting_since > clock_timestamp() + interval '59 minutes' FROM job")
    hold_job(shop, job_id, WaitReason.TIME, seconds=0)
    assert shop.scalar("SELECT waiting_since <= clock_timestamp() FROM job")


def test_a_job_is_accepted_for_later(shop: Shop) -> None:
    job_id = shop.accept(tier=None, held_for=WaitReason.TIME, held_until=datetime.now(UTC) + timedelta(hours=1))
    assert (due(shop), take(shop, ANSWER)) == ([], [])
    past = shop.accept(tier=None, held_for=WaitReason.TIME, held_until=datetime.now(UTC) - timedelta(hours=1))
    assert due(shop) == [past]
    assert shop.scalar("SELECT waiting_since > now() - interval '1 minute' FROM job WHERE id = :id", id=past)
    assert shop.job(job_id).held_for == "time"


def test_a_message_that_is_already_on_its_way_does_not_talk_a_job_out_of_its_hold(shop: Shop) -> None:
    job_id = shop.accept(tier=None)
    (push,) = take(shop, ANSWER)
    hold_job(shop, job_id, WaitReason.PROVIDER, seconds=60)
    assert shop.try_claim(shop.message(push.job_id)) is None
    assert shop.job(job_id).held_for == "provider"


@pytest.mark.req("H-073")
def test_a_site_s_jobs_go_on_one_by_one_the_urgent_and_the_oldest_first(shop: Shop) -> None:
    site = shop.site()
    writing = shop.claim(shop.accept(site_id=site))
    old, young, urgent = (shop.accept(site_id=site, priority=priority) for priority in ("P2", "P2", "P0"))
    for job_id in (young, old, urgent):
        assert shop.try_claim(shop.message(job_id)) is None
        assert shop.job(job_id).held_for == "site"
    assert (freed(shop), take(shop)) == ([], [])
    order = []
    while writing:
        shop.end(writing)
        released = freed(shop)
        assert freed(shop) == [], "the next one waits until this one has come and gone"
        order += released
        writing = shop.claim(released[0]) if released else None
    assert order == [urgent, old, young]


def test_sites_that_are_free_and_sites_that_are_not_do_not_wait_for_each_other(shop: Shop) -> None:
    sites = [shop.site(f"s{number}") for number in range(4)]
    writers = [shop.claim(shop.accept(site_id=site)) for site in sites]
    waiting = [shop.accept(site_id=site) for site in sites]
    for job_id in waiting:
        shop.try_claim(shop.message(job_id))
    shop.end(writers[1])
    shop.end(writers[3])
    assert set(freed(shop)) == {waiting[1], waiting[3]}


def test_an_end_and_a_claim_leave_nothing_held(shop: Shop) -> None:
    site = shop.site()
    writing = shop.claim(shop.accept(site_id=site))
    waiting = shop.accept(site_id=site)
    shop.try_claim(shop.message(waiting))
    shop.end(writing)
    shop.claim(waiting)
    assert shop.job(waiting).held_for is None, "its message came when the site was free"
    held = shop.accept(tier=None)
    hold_job(shop, held, WaitReason.TIME, seconds=60)
    with shop.ledger.begin() as session:
        request_cancel(session, lock_job(session, held), actor="test")
    assert (shop.job(held).held_for, shop.job(held).held_until) == (None, None)


def waiting_again(shop: Shop, site: UUID) -> UUID:
    """A job that holds its site's lock and waits once more, as one does that lost its worker."""
    claimed = shop.claim(shop.accept(site_id=site, priority="P3"))
    with shop.ledger.begin() as session:
        job = lock_owned_job(session, claimed.attempt)
        close_attempt(session, job, outcome="lost", reason=Reason.WORKER_LOST)
        job.fence += 1
        move(session, job, State.QUEUED, reason=Reason.WORKER_LOST)
        wait_on(session, job, SPEC)
    return claimed.job.id


def test_the_job_that_holds_its_site_s_lock_is_not_deferred_with_those_that_wait_for_it(shop: Shop) -> None:
    site = shop.site()
    holder = waiting_again(shop, site)
    others = [shop.accept(site_id=site, priority="P1") for _ in range(3)]
    with shop.ledger.begin() as session:
        pushed = top_up(session, SPEC, dispatch_window=DispatchWindow(per_queue=1, per_tenant=1), admission=Admission())
    assert shop.job(holder).held_for is None
    assert [push.job_id for push in [*pushed, *take(shop)]] == [holder]
    assert {shop.job(job_id).held_for for job_id in others} == {"site"}


def test_the_job_that_holds_its_site_s_lock_waits_for_nobody(shop: Shop) -> None:
    site = shop.site()
    holder = waiting_again(shop, site)
    other = shop.accept(site_id=site)
    for job_id in (holder, other):
        hold_job(shop, job_id, WaitReason.SITE)
    assert list(freed(shop)) == [holder]
    assert shop.job(other).held_for == "site"

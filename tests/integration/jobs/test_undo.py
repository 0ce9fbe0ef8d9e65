"""An approval can be undone while its publish is held back, and not for a moment longer."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from ledger.attempts import lock_owned_job
from ledger.dispatch_window import Push, pause_queue, release_due, release_sites, top_up
from ledger.errors import JobNotFoundError, NotUndoableError, WrongStateError
from ledger.job_control import (
    approved_release,
    expire,
    overdue_jobs,
    reject,
    request_cancel,
    undo_approval,
    undo_until,
    why_not_undoable,
)
from ledger.jobs import close_attempt, lock_job, requeue
from ledger.operations.history_reader import examine
from ledger.record_tables import Approval
from ledger.tables import Job, Release, Site
from monitoring.event_metrics import fold_pending, read_series
from monitoring.metrics import JOBS_FINISHED, QUEUE_DEPTH, ROUTES, series_key
from routing.jobs import JobMessage, Reason, State
from routing.policy.platform import DispatchWindow
from routing.queues import QueueName
from routing.scheduling import Admission
from tests.factories import Shop
from tests.services import wait_until

SECONDS = 60.0
"""Longer than any of these tests."""


def waiting(shop: Shop, **fields: Any) -> Release:
    """The preview of a job that waits for approval."""
    return shop.offer(shop.running(**fields))


def held(shop: Shop, *, seconds: float = SECONDS, **fields: Any) -> UUID:
    """A job that is approved, and whose publish is held back."""
    job_id = waiting(shop, **fields).job_id
    assert job_id is not None
    shop.approve(job_id, undo_seconds=seconds)
    return job_id


def undo(shop: Shop, job_id: UUID, *, actor: str = "bob") -> None:
    with shop.ledger.begin() as session:
        undo_approval(session, job_id, actor=actor)


def refusal_of(shop: Shop, job_id: UUID) -> str:
    with pytest.raises(NotUndoableError) as refused, shop.ledger.begin() as session:
        undo_approval(session, job_id, actor="bob")
    return refused.value.reason


def due(shop: Shop) -> Sequence[UUID]:
    with shop.ledger.begin() as session:
        return release_due(session)


def take(shop: Shop) -> list[Push]:
    with shop.ledger.begin() as session:
        window = DispatchWindow(per_queue=64, per_tenant=16)
        return list(top_up(session, QueueName.CONTROL, dispatch_window=window, admission=Admission()))


def depth(shop: Shop, queue: QueueName) -> float:
    """Return how many jobs wait on a queue, as the metrics count them."""
    fold_pending(shop.ledger)
    with shop.ledger.begin() as session:
        return read_series(session).get(series_key(QUEUE_DEPTH.name, {"queue_name": queue.value}), 0)


# ------------------------------------------------------------------------------------------- what it leaves behind


@pytest.mark.parametrize(
    ("state", "held_seconds", "has_begun", "reason"),
    [
        (State.PUBLISHING, 0.1, False, None),
        (State.PUBLISHING, 0.0, False, "over"),
        (State.PUBLISHING, -1.0, False, "over"),
        (State.PUBLISHING, 30.0, True, "over"),
        (State.AWAITING_APPROVAL, 0.0, False, "state"),
        (State.PUBLISHED, 5.0, False, "state"),
    ],
)
def test_only_a_publish_that_is_held_back_and_was_never_taken_up_is_undone(
    state: State, held_seconds: float, has_begun: bool, reason: str | None
) -> None:
    assert why_not_undoable(state, held_seconds=held_seconds, has_begun=has_begun) == reason


def test_an_undone_approval_leaves_the_job_as_it_waited_before(shop: Shop) -> None:
    release = waiting(shop)
    before = shop.job(release.job_id)
    shop.approve(before.id, undo_seconds=SECONDS)
    job = shop.job(before.id)
    assert (job.state, job.held_for, job.expires_at, job.pushed_at) == ("publishing", "time", None, None)
    assert job.held_until is not None
    assert job.waiting_since is not None
    assert abs(job.held_until - job.waiting_since) < timedelta(milliseconds=50), "it grows old when it may go on"
    with shop.ledger.begin() as session:
        assert undo_until(session, session.get_one(Job, job.id)) == job.held_until
    undo(shop, job.id)
    job = shop.job(before.id)
    assert (job.state, job.queue, job.release_id) == ("awaiting_approval", "control", release.id)
    assert (job.waiting_since, job.pushed_at, job.held_for, job.held_until) == (None, None, None, None)
    assert job.fence == before.fence + 1
    assert shop.find(Approval, job.id) is None
    assert shop.find(Site, job.site_id).lock_job_id == job.id
    with shop.ledger.begin() as session:
        assert undo_until(session, session.get_one(Job, job.id)) is None


def test_the_time_of_a_preview_stands_still_while_it_is_approved(shop: Shop) -> None:
    job_id = held(shop)
    shop.execute("UPDATE approval SET expires_at = at + interval '3 seconds', at = at - interval '20 seconds'")
    shop.execute("UPDATE approval SET expires_at = expires_at - interval '20 seconds'")
    assert shop.scalar("SELECT expires_at < now() FROM approval"), "without the approval it would have expired"
    with shop.ledger.begin() as session:
        assert overdue_jobs(session) == []
    undo(shop, job_id)
    left = shop.scalar("SELECT extract(epoch FROM expires_at - clock_timestamp()) FROM job")
    assert 2 < left <= 3.1
    shop.execute("UPDATE job SET expires_at = expires_at - interval '1 hour'")
    with shop.ledger.begin() as session:
        assert overdue_jobs(session) == [job_id]
        expire(session, job_id)
    assert shop.job(job_id).state == "expired"


@pytest.mark.req("H-083")
def test_what_was_undone_is_judged_anew(shop: Shop) -> None:
    job_id = held(shop)
    undo(shop, job_id)
    with pytest.raises(WrongStateError), shop.ledger.begin() as session:
        approved_release(session, session.get_one(Job, job_id))
    shop.approve(job_id, undo_seconds=0)
    shop.publish(shop.claim(job_id))
    assert (shop.job(job_id).state, shop.find(Approval, job_id).actor) == ("published", "reviewer")
    other = held(shop, site_id=shop.site("other"))
    undo(shop, other)
    with shop.ledger.begin() as session:
        reject(session, other, actor="ann", reason="on second thoughts")
    assert (shop.job(other).state, shop.find(Approval, other).decision) == ("rejected", "rejected")
    assert examine(shop.ledger.engine, shop.policy.retention).violations == ()


def test_the_trail_says_who_approved_and_who_undid_it(shop: Shop) -> None:
    job_id = held(shop)
    undo(shop, job_id, actor="person:carol")
    rows = shop.rows("SELECT action, actor, approval FROM audit WHERE job_id = :id ORDER BY seq", id=job_id)
    assert [tuple(row) for row in rows][-2:] == [
        ("approved", "reviewer", "approved"),
        ("approval_undone", "person:carol", "none"),
    ]
    moves = shop.rows("SELECT data FROM event WHERE job_id = :id AND kind = 'state' ORDER BY id", id=job_id)
    assert (moves[-1].data["target"], moves[-1].data["actor"]) == ("awaiting_approval", "person:carol")


def test_metrics_notices_and_decisions_count_an_undone_approval_once(shop: Shop) -> None:
    shop.tenant(notices=["awaiting_approval"], chat_url="https://chat.example.com/hook")
    job_id = held(shop)
    assert depth(shop, QueueName.CONTROL) == 1
    undo(shop, job_id)
    assert depth(shop, QueueName.CONTROL) == 0, "it left the queue without a claim"
    shop.approve(job_id, undo_seconds=0)
    assert depth(shop, QueueName.CONTROL) == 1
    shop.publish(shop.claim(job_id))
    assert depth(shop, QueueName.CONTROL) == 0
    assert shop.scalar("SELECT count(*) FROM notice") == 1, "one of the preview, none of the undo"
    assert shop.scalar("SELECT count(*) FROM notification") == 1
    with shop.ledger.begin() as session:
        series = read_series(session)
    for metric in (ROUTES, JOBS_FINISHED):
        assert sum(value for key, value in series.items() if key.name == metric.name) == 1
    assert shop.scalar("SELECT count(*) FROM approval") == 1


# -------------------------------------------------------------------------------------------- when it is too late


def test_an_approval_that_holds_nothing_back_is_not_undone(shop: Shop) -> None:
    job_id = held(shop, seconds=0)
    assert shop.job(job_id).held_for is None
    assert refusal_of(shop, job_id) == "over"
    shop.publish(shop.claim(job_id))
    assert refusal_of(shop, job_id) == "state"
    assert shop.find(Approval, job_id).decision == "approved"


def test_after_its_time_nothing_is_undone_although_no_dispatcher_has_let_it_go_on_yet(shop: Shop) -> None:
    job_id = held(shop)
    shop.execute("UPDATE job SET held_until = clock_timestamp()")
    assert refusal_of(shop, job_id) == "over"
    with shop.ledger.begin() as session:
        assert undo_until(session, session.get_one(Job, job_id)) is None
    assert due(shop) == [job_id]
    assert refusal_of(shop, job_id) == "over"
    assert [push.job_id for push in take(shop)] == [job_id]


def test_a_publish_that_pauses_between_tries_is_not_undone(shop: Shop) -> None:
    job_id = held(shop)
    shop.let_time_pass()
    claimed = shop.claim(job_id)
    with shop.ledger.begin() as session:
        job = lock_owned_job(session, claimed.attempt)
        close_attempt(session, job, outcome="retrying", reason=Reason.STORAGE_UNAVAILABLE)
        job.fence += 1
        requeue(session, job, QueueName.CONTROL, seconds=SECONDS)
    assert shop.job(job_id).held_for == "time"
    assert refusal_of(shop, job_id) == "over"


def test_an_approval_that_does_not_say_what_time_was_left_is_not_undone(shop: Shop) -> None:
    """Without it the preview would wait for ever."""
    job_id = held(shop)
    shop.execute("UPDATE approval SET expires_at = NULL")
    assert refusal_of(shop, job_id) == "over"


def test_only_who_belongs_there_undoes(shop: Shop) -> None:
    job_id = held(shop)
    with pytest.raises(JobNotFoundError), shop.ledger.begin() as session:
        undo_approval(session, job_id, actor="eve", tenant="eve")
    assert shop.job(job_id).state == "publishing"


def test_twice_is_once(shop: Shop) -> None:
    job_id = held(shop)
    undo(shop, job_id)
    assert refusal_of(shop, job_id) == "state"
    assert shop.scalar("SELECT count(*) FROM audit WHERE action = 'approval_undone'") == 1


# ------------------------------------------------------------------------------------ messages, pauses, neighbours


def test_no_message_claims_a_job_that_is_held_back_or_was_undone(shop: Shop) -> None:
    job_id = held(shop)
    early = shop.message(job_id)
    assert (due(shop), take(shop)) == ([], [])
    assert shop.try_claim(early) is None, "a copy that nobody sent"
    undo(shop, job_id)
    assert shop.try_claim(early) is None
    assert shop.try_claim(shop.message(job_id)) is None, "it waits for a person"
    shop.approve(job_id, undo_seconds=0)
    assert shop.try_claim(early) is None, "a message of the approval that was undone"
    (push,) = take(shop)
    assert shop.try_claim(JobMessage(job_id=push.job_id, fence=push.fence)) is not None


def test_what_is_held_back_is_not_cancelled_but_undone_and_then_cancelled(shop: Shop) -> None:
    job_id = held(shop)
    with pytest.raises(WrongStateError), shop.ledger.begin() as session:
        request_cancel(session, lock_job(session, job_id), actor="owner")
    assert (shop.job(job_id).state, shop.job(job_id).cancel_requested_at) == ("publishing", None)
    undo(shop, job_id)
    with shop.ledger.begin() as session:
        request_cancel(session, lock_job(session, job_id), actor="owner")
    assert shop.job(job_id).state == "cancelled"


def test_a_paused_queue_neither_ends_nor_prolongs_the_time_to_undo(shop: Shop) -> None:
    with shop.ledger.begin() as session:
        pause_queue(session, QueueName.CONTROL, is_paused=True)
    first, second = held(shop), held(shop, site_id=shop.site("other"))
    undo(shop, first)
    shop.let_time_pass()
    assert (shop.job(second).held_for, take(shop)) == (None, [])
    assert refusal_of(shop, second) == "over"
    with shop.ledger.begin() as session:
        pause_queue(session, QueueName.CONTROL, is_paused=False)
    assert [push.job_id for push in take(shop)] == [second]


def test_the_next_edit_of_the_site_waits_through_approval_and_undo(shop: Shop) -> None:
    site = shop.site()
    job_id = held(shop, site_id=site)
    behind = shop.accept(site_id=site)
    assert shop.try_claim(shop.message(behind)) is None
    for step in (lambda: None, lambda: undo(shop, job_id), lambda: shop.approve(job_id, undo_seconds=0)):
        step()
        with shop.ledger.begin() as session:
            assert release_sites(session) == []
        assert (shop.job(behind).held_for, shop.find(Site, site).lock_job_id) == ("site", job_id)
    shop.publish(shop.claim(job_id))
    with shop.ledger.begin() as session:
        assert release_sites(session) == [behind]


def test_a_job_that_a_newer_one_replaced_meanwhile_gives_way_to_it_when_it_is_undone(shop: Shop) -> None:
    site = shop.site()
    older = held(shop, site_id=site, supersede_key="header")
    newer = shop.accept(site_id=site, supersede_key="header")
    undo(shop, older)
    job = shop.job(older)
    assert (job.state, job.reason, job.superseded_by) == ("cancelled", "superseded", newer)
    assert shop.find(Site, site).lock_job_id is None
    assert shop.find(Approval, older) is None
    assert shop.scalar("SELECT count(*) FROM notification WHERE job_id = :id", id=older) == 1


# ------------------------------------------------------------------------------------------------------- the race


def test_an_undo_that_came_first_keeps_the_end_of_the_hold_from_the_job(shop: Shop) -> None:
    job_id = held(shop, seconds=0.5)
    with shop.ledger.begin() as undoing:
        undo_approval(undoing, job_id, actor="bob")
        is_due = "SELECT held_until < clock_timestamp() FROM job"
        wait_until(lambda: shop.scalar(is_due), seconds=20, what="the time of the hold is over")
        assert due(shop) == [], "the row is the undo's"
    assert due(shop) == []
    assert (shop.job(job_id).state, shop.job(job_id).held_until) == ("awaiting_approval", None)


def test_an_undo_that_came_second_waits_for_the_end_of_the_hold_and_is_refused(shop: Shop) -> None:
    job_id = held(shop)
    shop.execute("UPDATE job SET held_until = clock_timestamp()")
    with ThreadPoolExecutor(1) as pool:
        with shop.ledger.begin() as releasing:
            assert release_due(releasing) == [job_id]
            second = pool.submit(refusal_of, shop, job_id)
            blocked = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND state = 'active'"
            wait_until(lambda: shop.scalar(blocked), seconds=20, what="the undo waits for the job's row")
        assert second.result(20) == "over"
    assert [push.job_id for push in take(shop)] == [job_id]


def test_of_an_undo_and_the_end_of_the_hold_exactly_one_wins_whenever_they_meet(shop: Shop) -> None:
    jobs = [held(shop, site_id=shop.site(f"s{number}")) for number in range(20)]
    ends = "UPDATE job SET held_until = clock_timestamp() + make_interval(secs => :seconds) WHERE id = :id"
    for number, job_id in enumerate(jobs):
        shop.execute(ends, seconds=0.4 + number * 0.04 if number else 600, id=job_id)  # one is undone for sure

    def undo_around_its_end(number: int, job_id: UUID) -> bool:
        ahead = (10 - number) / 500 if number else 600  # from 18 ms before it to as long after it
        left = "extract(epoch FROM held_until - clock_timestamp())"
        shop.scalar(f"SELECT pg_sleep(greatest(0, {left} - :ahead)) FROM job WHERE id = :id", id=job_id, ahead=ahead)
        try:
            undo(shop, job_id)
        except NotUndoableError:
            return False
        return True

    def dispatch_until(done: Future[list[bool]]) -> set[UUID]:
        begun: set[UUID] = set()
        while not done.done() or due(shop):
            due(shop)
            pushes = [JobMessage(job_id=push.job_id, fence=push.fence) for push in take(shop)]
            begun |= {message.job_id for message in pushes if shop.try_claim(message) is not None}
        return begun

    with ThreadPoolExecutor(2) as pool:
        undoing = pool.submit(lambda: [undo_around_its_end(*each) for each in enumerate(jobs)])
        begun = pool.submit(dispatch_until, undoing).result(60)
        undone = {job_id for job_id, is_undone in zip(jobs, undoing.result(60), strict=True) if is_undone}
    assert undone.isdisjoint(begun)
    assert undone | begun == set(jobs)
    assert {shop.job(job_id).state for job_id in undone} == {"awaiting_approval"}
    assert {shop.job(job_id).state for job_id in begun} == {"publishing"}

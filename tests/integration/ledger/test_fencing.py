"""A stale twin has no effect: every paid or published effect is refused to an attempt that lost its job.

docs/architecture.md lists them, each with what fences it; this holds the tests that no other module has. A twin is what
a paused process, a partition or a late message makes: it still works on a job that somebody else holds by now.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from ledger import money
from ledger.attempts import (
    bind_egress,
    find_lapsed_attempts,
    hash_token,
    lock_owned_job,
    recover,
    report_loss,
    stopped_attempts,
)
from ledger.errors import FencedError
from ledger.job_ends import record_note_sent
from ledger.money import BearerGone
from ledger.notifications import Due, Try, book, claim_due_notifications
from ledger.runs.steps import charge_unmetered_step
from ledger.runs.tables import TicketNote
from ledger.start_attempt import Claim
from ledger.store import Ledger, create_ledger_engine
from ledger.tables import Site
from routing.jobs import JobMessage, Reason, State
from routing.queues import QueueName
from sites.content_store import ContentStore
from sites.releases import site_key
from tests.factories import Shop, make_call
from tests.integration.jobs.test_lifecycle import CHANGED, FILES, HOME, Rig, change
from tests.integration.monitoring.driving import Fleet
from tests.integration.runs.run_world import Yard
from tests.integration.runs.test_run_publishing import branches_of, forge, to_publishing
from tests.integration.runs.test_run_publishing import yard as _yard
from tests.services import Postgres
from workers.attempt import Attempt
from workers.errors import LeaseLostError
from workers.handlers import publish as site_publishing
from workers.lease import Lease, LeaseKeeper
from workers.lifecycle import claim_job
from workers.outcomes import Candidate, Ended, Outcome
from workers.runs import publishing
from workers.runs.coordinator import Advance

yard, forge = _yard, forge
CALL = make_call()


@pytest.fixture
def rig(shop: Shop, tmp_path: Path) -> Rig:
    return Rig(shop, ContentStore(tmp_path / "content-store"))


def lose(shop: Shop, claimed: Claim) -> None:
    """Let the dispatcher take the job away, as it does from a worker that says nothing any more."""
    shop.lapse(claimed)
    with shop.ledger.begin() as session:
        lapsed = [each for each in find_lapsed_attempts(session) if each.job_id == claimed.job.id]
    for attempt in lapsed:
        with shop.ledger.begin() as session:
            recover(session, attempt, max_lost=9)


# ------------------------------------------------------------------------------------------------------------ money


@pytest.fixture
def fleet(shop: Shop) -> Fleet:
    return Fleet(shop.ledger, shop.url, site_id=shop.site())


def waste(shop: Shop) -> int:
    found = shop.scalar("SELECT coalesce(sum((data->>'wasted_nanousd')::bigint), 0) FROM event")
    return int(found)


@pytest.mark.parametrize("is_late", [False, True], ids=["booked before the loss", "booked after it"])
def test_what_a_twin_s_call_cost_is_owed_and_is_waste_exactly_once(shop: Shop, fleet: Fleet, is_late: bool) -> None:
    twin = shop.running()
    call_id = fleet.open_call(twin)
    if not is_late:
        fleet.settle(call_id)
    lose(shop, twin)
    if is_late:
        fleet.settle(call_id)
    cost = shop.scalar("SELECT sum(cost_nanousd) FROM call")
    assert waste(shop) == cost > 0
    assert shop.scalar("SELECT outcome FROM attempt") == "lost"
    fleet.call(again := shop.claim(twin.job.id))
    shop.end(again, State.ANSWERED, Reason.DONE)
    assert waste(shop) == cost, "what the next attempt paid for was used"


def test_a_twin_gets_no_money(shop: Shop, fleet: Fleet) -> None:
    twin = shop.running()
    bearer = shop.bearer(twin.token)
    fleet.call(twin)
    lose(shop, twin)
    shop.claim(twin.job.id)
    with shop.ledger.begin() as session:
        caps = money.caps_of(bearer, policy=shop.policy)
        assert isinstance(money.read_reserve(money.reserve(bearer, CALL, caps).one(session), CALL), BearerGone)
    assert shop.scalar("SELECT count(*) FROM call") == 1


def test_a_twin_cannot_charge_a_whole_step(shop: Shop) -> None:
    twin = shop.running(tier=None)
    lose(shop, twin)
    shop.claim(twin.job.id)
    with pytest.raises(FencedError):
        charge_unmetered_step(shop.ledger, twin, nanousd=1000, model="m", worker="w1")
    assert shop.scalar("SELECT count(*) FROM call") == 0
    assert not shop.scalar("SELECT sum(spent_nanousd + reserved_nanousd) FROM cap")


@pytest.mark.parametrize("token", [None, "that of a session which stood by"])
def test_a_twin_opens_no_token_to_a_box(shop: Shop, token: str | None) -> None:
    twin = shop.running()
    lose(shop, twin)
    with pytest.raises(FencedError), shop.ledger.begin() as session:
        bind_egress(session, twin.attempt, address="10.213.0.2", token=token)


def test_the_news_that_a_twin_s_process_died_takes_nothing_from_its_successor(shop: Shop) -> None:
    twin = shop.running()
    message = JobMessage(job_id=twin.job.id, fence=twin.attempt.fence - 1)
    lose(shop, twin)
    shop.claim(twin.job.id)
    with shop.ledger.begin() as session:
        report_loss(session, message, worker="w1", cause=Reason.TIME_LIMIT)
        assert find_lapsed_attempts(session) == []


# --------------------------------------------------------------------------------------- a ledger of another history


@pytest.fixture
def fork(postgres: Postgres, shop: Shop) -> Iterator[tuple[Claim, Shop, Claim]]:
    """A ledger restored from before a claim, in which another worker claims the job: what the first one holds, too."""
    job_id = shop.accept()
    shop.ledger.close()
    with postgres.database(template=shop.url.partition("?")[0].rpartition("/")[2]) as url:
        restored = Shop(Ledger(create_ledger_engine(url, pool_size=2)), url)
        twin, holder = shop.claim(job_id, worker="w1"), restored.claim(job_id, worker="w2")
        assert (twin.job.id, twin.attempt.fence) == (holder.job.id, holder.attempt.fence)
        yield twin, restored, holder
        restored.ledger.close()


def test_a_claim_that_was_lost_with_its_ledger_holds_nothing(fork: tuple[Claim, Shop, Claim]) -> None:
    twin, restored, holder = fork
    with pytest.raises(FencedError), restored.ledger.begin() as session:
        lock_owned_job(session, twin.attempt)
    with pytest.raises(LeaseLostError):
        Lease(restored.ledger, twin, LeaseKeeper()).check()
    restored.end(holder, State.ANSWERED, Reason.DONE)


def test_a_claim_that_was_lost_with_its_ledger_gets_no_money_and_its_streams_are_cut(
    shop: Shop, fork: tuple[Claim, Shop, Claim]
) -> None:
    twin, restored, holder = fork
    bearer = shop.bearer(twin.token)
    caps = money.caps_of(bearer, policy=shop.policy)
    with restored.ledger.begin() as session:
        assert money.bearer_of(hash_token(twin.token)).one(session) is None
        assert isinstance(money.read_reserve(money.reserve(bearer, CALL, caps).one(session), CALL), BearerGone)
        stopped = stopped_attempts([twin.attempt.id, holder.attempt.id]).all(session)
    assert [row.id for row in stopped] == [twin.attempt.id]


def test_the_end_of_a_process_from_a_lost_history_takes_nothing_from_the_holder(
    fork: tuple[Claim, Shop, Claim],
) -> None:
    twin, restored, _ = fork
    message = JobMessage(job_id=twin.job.id, fence=twin.attempt.fence - 1)
    with restored.ledger.begin() as session:
        report_loss(session, message, worker="w1", cause=Reason.WORKER_LOST)
        assert find_lapsed_attempts(session) == []


# ----------------------------------------------------------------------------------------------------- site releases


def test_a_twin_stops_at_its_next_step_and_what_it_keeps_is_no_release(rig: Rig) -> None:
    site_id = rig.site()
    steps: list[str] = []

    def lost_on_the_way(attempt: Attempt) -> Outcome:
        lose(rig.shop, attempt.claim)
        with pytest.raises(LeaseLostError):
            attempt.check()
        steps.append("stopped")
        kept = Candidate(files=CHANGED, summary="half of it")
        return Ended(State.TIMED_OUT, Reason.TIME_LIMIT, "late", kept=kept)

    job = rig.run(rig.shop.accept(site_id=site_id), lost_on_the_way)
    assert steps == ["stopped"]
    assert (job.state, job.release_id) == ("queued", None)
    assert rig.shop.scalar("SELECT count(*) FROM release WHERE job_id IS NOT NULL") == 0


@pytest.mark.req("H-084")
@pytest.mark.parametrize("before", ["_check", "_lay_out", "_swap"])
def test_a_publishing_twin_makes_nothing_active_and_its_successor_publishes_once(
    rig: Rig, before: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    site_id = rig.site()
    job_id = rig.shop.accept(site_id=site_id)
    rig.run(job_id, change)
    rig.shop.approve(job_id)
    twin = claim_job(rig.shop.message(job_id), QueueName.CONTROL, rig.resources)
    assert twin is not None

    step = getattr(site_publishing, before)

    def paused(*arguments: Any, **named: Any) -> Any:
        lose(rig.shop, twin)
        return step(*arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(site_publishing, before, paused)
        with pytest.raises(FencedError):
            site_publishing.publish(twin, rig.resources)
    assert rig.shown(site_id) == FILES
    assert rig.publish(job_id).state == "published"
    assert rig.shown(site_id) == CHANGED
    published = "SELECT count(*) FROM event WHERE kind = 'ended' AND job_id = :id"
    assert rig.shop.scalar(published, id=job_id) == 1


def test_a_twin_that_shows_late_shows_what_is_active_by_then(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    site_id = rig.site()
    first, second = (rig.shop.accept(site_id=site_id) for _ in range(2))
    newest = {"index.html": HOME.replace(b"Bread", b"Pie")}
    rig.run(first, change)
    rig.shop.approve(first)

    show = site_publishing.try_show_active

    def overtaken(*arguments: Any) -> str | None:
        monkeypatch.setattr(site_publishing, "try_show_active", show)
        rig.run(second, lambda attempt: Candidate(files=newest, summary="Pie."))
        rig.shop.approve(second)
        assert rig.publish(second).state == "published"
        return show(*arguments)

    monkeypatch.setattr(site_publishing, "try_show_active", overtaken)
    site_publishing.run_control(rig.shop.message(first), rig.resources)
    key = site_key(rig.shop.find(Site, site_id))
    page = rig.content_store.root / "sites" / key / "active" / "index.html"
    assert page.read_bytes() == newest["index.html"]


# -------------------------------------------------------------------------------------------------------------- runs


def test_a_step_s_twin_leaves_nothing_in_its_run(yard: Yard) -> None:
    run_id = yard.submit()
    lost: list[UUID] = []

    def once(attempt: Attempt) -> Outcome:
        outcome = yard.step_handler(attempt)
        if not lost and attempt.step_order is not None and attempt.step_order.agent == "frontend-dev":
            lost.append(attempt.job_id)
            lose(yard.shop, attempt.claim)
        return outcome

    for _ in range(60):
        yard.turn(handler=once)
        if lost:
            break
    (execution,) = [each for each in yard.executions(run_id) if each.job_id == lost[0]]
    assert execution.commit is None
    assert execution.result is None
    cost = yard.shop.scalar("SELECT sum(cost_nanousd) FROM call WHERE job_id = :id", id=lost[0])
    assert waste(yard.shop) == cost > 0
    assert yard.play(run_id).state == State.PUBLISHED
    assert len(set(branches_of(yard))) == 2


def test_a_coordinator_s_twin_starts_no_step_and_moves_no_run(yard: Yard) -> None:
    run_id = yard.submit()
    twin = claim_job(yard.shop.message(run_id), QueueName.CONTROL, yard.resources)
    assert twin is not None
    lose(yard.shop, twin)
    yard.turn()
    before = [(each.job_id, each.step_key) for each in yard.executions(run_id)]
    assert before
    with pytest.raises(FencedError):
        Advance(twin, yard.resources, yard.workspace(run_id)).run()
    assert [(each.job_id, each.step_key) for each in yard.executions(run_id)] == before


@pytest.mark.parametrize("at", ["_squash", "push"], ids=["before its push", "before its pull request"])
def test_a_publishing_run_s_twin_says_nothing_more_to_the_forge(
    yard: Yard, forge: Any, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    run_id = to_publishing(yard)
    twin = claim_job(yard.shop.message(run_id), QueueName.CONTROL, yard.resources)
    assert twin is not None
    through: Callable[..., Any] = getattr(publishing, at)

    def lost_here(*arguments: Any, **options: Any) -> Any:
        lose(yard.shop, twin)
        return through(*arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(publishing, at, lost_here)
        with pytest.raises(FencedError):
            publishing.publish_run(twin, yard.resources, yard.workspace(run_id))
    assert forge.pulls == []
    assert (branches_of(yard) == {"main"}) is (at == "_squash")
    site_publishing.run_control(yard.shop.message(run_id), yard.resources)
    assert yard.job(run_id).state == State.PUBLISHED
    assert (len(forge.pulls), len(branches_of(yard))) == (1, 2)


# ---------------------------------------------------------------------------------------------------- what is told


def test_a_sender_that_was_away_has_no_say_in_a_delivery_that_another_makes(shop: Shop) -> None:
    shop.end(shop.running(tier=None, callback_url="https://owner.example/hook"), State.ANSWERED, Reason.DONE)

    def claim_job() -> Due:
        with shop.ledger.begin() as session:
            (due,) = claim_due_notifications(session, 1, per_tenant=1)
        return due

    def tell(due: Due, outcome: str) -> None:
        with shop.ledger.begin() as session:
            book(session, due, Try(outcome), again_in=5)

    slow = claim_job()
    shop.execute("UPDATE notification SET next_at = now() - interval '1 s'")
    other = claim_job()
    assert (slow.number, other.number) == (1, 2)
    state = "SELECT attempts, next_at, delivered_at FROM notification"
    before = shop.rows(state)
    tell(slow, "failed")
    assert shop.rows(state) == before
    tell(other, "delivered")
    tell(slow, "failed")
    assert shop.scalar("SELECT delivered_at IS NOT NULL AND next_at IS NULL FROM notification")


def test_a_writer_of_notes_that_was_away_has_no_say_in_another_s_try(yard: Yard) -> None:
    run_id = yard.submit("Fix the broken header")
    with yard.shop.ledger.begin() as session:
        session.add(TicketNote(run_id=run_id, kind="ended", attempts=2))
    with yard.shop.ledger.begin() as session:
        record_note_sent(session, run_id, "ended", attempts=1, error="away", is_final=True)
        record_note_sent(session, run_id, "ended", attempts=2, error=None, is_final=False)
        record_note_sent(session, run_id, "ended", attempts=1, error="away", is_final=False)
    told = yard.shop.rows("SELECT delivered_at IS NOT NULL, error FROM ticket_note WHERE kind = 'ended'")
    assert told == [(True, None)]

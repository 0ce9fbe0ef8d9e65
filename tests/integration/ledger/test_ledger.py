"""The ledger's promises, on a real PostgreSQL: accepted once, held once, ended once, published once."""

import json
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import combinations
from typing import Any, TypeVar
from uuid import UUID, uuid4

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import text
from sqlmodel import SQLModel

from ledger.attempts import (
    escalate,
    expire_worker_leases,
    find_lapsed_attempts,
    lock_owned_job,
    recover,
    report_loss,
)
from ledger.errors import FencedError, IdempotencyConflictError, JobNotFoundError, PublishConflictError, WrongStateError
from ledger.events import EventKind, newest_of_kinds, report
from ledger.job_control import approve, approved_release, await_approval, expire, overdue_jobs
from ledger.jobs import end, find_job, lock_job, move
from ledger.operations.migrate import migrate
from ledger.record_tables import Approval
from ledger.releases import activate, add_release
from ledger.start_attempt import claim
from ledger.store import Fit, Ledger, fit
from ledger.submission import accept
from ledger.tables import Attempt, Job, Release, Site
from producers.use_cases.job_search import JobFilter, find_jobs
from routing.errors import RoutingError
from routing.jobs import ENDS, MOVES, JobMessage, Reason, State
from routing.queues import QueueName, Tier
from tests.factories import Shop, make_new_job, make_release

T = TypeVar("T")


def at_once(calls: Sequence[Callable[[], T]]) -> list[T | Exception]:
    """Make all calls at the same moment, each in a thread; errors come back as values."""
    gate = threading.Barrier(len(calls))

    def run(call: Callable[[], T]) -> T | Exception:
        gate.wait()
        try:
            return call()
        except Exception as error:  # noqa: BLE001 - whatever a call raises is its outcome
            return error

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


def take_back(shop: Shop, *, max_lost: int = 2, silent_seconds: float = 0.0) -> None:
    """Do what the dispatcher does with lapsed attempts."""
    with shop.ledger.begin() as session:
        lapsed = find_lapsed_attempts(session)
    for attempt in lapsed:
        with shop.ledger.begin() as session:
            recover(session, attempt, max_lost=max_lost, silent_seconds=silent_seconds)


def audit_rows(shop: Shop, job_id: UUID, action: str) -> list[Any]:
    return shop.rows("SELECT * FROM audit WHERE job_id = :id AND action = :action", id=job_id, action=action)


# -------------------------------------------------------------------------------------------------------- the lists


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_list_by_states_holds_the_newest_that_are_in_any_of_them(shop: Shop, count: int) -> None:
    for number in range(8):
        job_id = shop.accept(tier=None, prompt=f"what is page {number}?")
        if number % 4:
            claimed = shop.claim(job_id)
            if number % 4 > 1:
                state = State.FAILED if number % 4 == 2 else State.ANSWERED
                shop.end(claimed, state, reason=Reason.INTERNAL_ERROR if state is State.FAILED else Reason.DONE)
    with shop.ledger.begin() as session:
        everything = [(job.id, State(job.state)) for job in find_jobs(session, JobFilter(tenant="acme"), limit=50).jobs]
        assert {state for _, state in everything} == {State.QUEUED, State.RUNNING, State.FAILED, State.ANSWERED}
        for states in combinations((State.QUEUED, State.RUNNING, State.FAILED, State.ANSWERED), count):
            for limit in (3, 50):
                wanted = JobFilter(tenant="acme", states=states)
                found = [job.id for job in find_jobs(session, wanted, limit=limit).jobs]
                assert found == [job_id for job_id, state in everything if state in states][:limit]


# ------------------------------------------------------------------------------------------------------- the schema


def test_the_migrations_make_exactly_the_schema_of_the_tables(ledger: Ledger) -> None:
    def is_stated(name: str | None, kind: str, _: object) -> bool:
        return kind != "table" or name != "event_0"  # the first partition, like all of `event`

    opts = {"compare_type": True, "compare_server_default": False, "include_name": is_stated}
    with ledger.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts=opts)
        assert compare_metadata(context, SQLModel.metadata) == []
    assert fit(ledger.engine) is Fit.CURRENT


def test_the_migrations_make_the_indexes_with_the_columns_that_are_only_read_from_them(ledger: Ledger) -> None:
    wanted = {
        str(index.name): list(index.dialect_options["postgresql"]["include"] or [])
        for table in SQLModel.metadata.tables.values()
        for index in table.indexes
    }
    with ledger.engine.connect() as connection:
        made = connection.exec_driver_sql("""
            SELECT indexrelid::regclass::text,
                   ARRAY(SELECT attname::text FROM pg_attribute
                          WHERE attrelid = indexrelid AND attnum > indnkeyatts ORDER BY attnum)
              FROM pg_index
        """)
        assert {name: columns for name, columns in made if name in wanted} == wanted
        assert wanted["ix_job_waiting"] == ["tenant"]


def test_migrating_a_current_ledger_from_many_processes_changes_nothing(ledger: Ledger) -> None:
    assert at_once([lambda: migrate(ledger.engine)] * 3) == [None, None, None]
    assert fit(ledger.engine) is Fit.CURRENT


def test_a_migration_names_a_ledger_once(ledger: Ledger) -> None:
    with ledger.begin() as session:
        session.execute(text("DELETE FROM epoch"))
    names = []
    for _ in range(2):
        migrate(ledger.engine)
        with ledger.begin() as session:
            names += session.scalars(text("SELECT id FROM epoch")).all()
    assert len(names) == 2
    assert names[0] == names[1]


# --------------------------------------------------------------------------------------------------------- accepting


def test_the_same_id_is_accepted_once_by_eight_threads(shop: Shop) -> None:
    new = make_new_job(tier=None)

    def submit() -> tuple[UUID, bool]:
        with shop.ledger.begin() as session:
            accepted = accept(session, new)
            return accepted.job.id, accepted.is_new

    outcomes = at_once([submit] * 8)
    assert {outcome[0] for outcome in outcomes if isinstance(outcome, tuple)} == {new.id}
    assert sorted(outcome[1] for outcome in outcomes if isinstance(outcome, tuple)) == [False] * 7 + [True]
    assert shop.scalar("SELECT count(*) FROM job") == 1
    assert shop.scalar("SELECT count(*) FROM event WHERE kind = 'accepted'") == 1
    assert len(audit_rows(shop, new.id, "job_accepted")) == 1


def test_the_same_idempotency_key_is_accepted_once_by_eight_threads(shop: Shop) -> None:
    def submit() -> tuple[UUID, bool]:
        with shop.ledger.begin() as session:
            accepted = accept(session, make_new_job(tier=None, idempotency_key="k"))
            return accepted.job.id, accepted.is_new

    outcomes = [outcome for outcome in at_once([submit] * 8) if isinstance(outcome, tuple)]
    assert len(outcomes) == 8
    assert len({job_id for job_id, _ in outcomes}) == 1
    assert sum(is_new for _, is_new in outcomes) == 1


def test_a_key_or_an_id_used_with_another_body_is_a_conflict(shop: Shop) -> None:
    first = make_new_job(tier=None, idempotency_key="k", prompt="one")
    with shop.ledger.begin() as session:
        accept(session, first)
    for other in (
        make_new_job(tier=None, idempotency_key="k", prompt="two"),
        make_new_job(tier=None, id=first.id, prompt="two"),
    ):
        with pytest.raises(IdempotencyConflictError) as refused, shop.ledger.begin() as session:
            accept(session, other)
        assert refused.value.job_id == first.id


def test_another_tenant_s_key_and_id_say_nothing_about_its_jobs(shop: Shop) -> None:
    shop.tenant("other")
    first = make_new_job(tier=None, idempotency_key="k")
    with shop.ledger.begin() as session:
        accept(session, first)
        assert accept(session, make_new_job(tier=None, tenant="other", idempotency_key="k")).is_new
    with pytest.raises(IdempotencyConflictError), shop.ledger.begin() as session:
        accept(session, make_new_job(tier=None, tenant="other", id=first.id))
    with pytest.raises(JobNotFoundError), shop.ledger.begin() as session:
        find_job(session, first.id, tenant="other")


def test_a_message_delivered_twice_finds_its_own_job_among_others_without_a_key(shop: Shop) -> None:
    for _ in range(5):
        shop.accept(tier=None)
    again = make_new_job(tier=None, prompt="another question")
    for is_new in (True, False):
        with shop.ledger.begin() as session:
            accepted = accept(session, again)
            assert (accepted.job.id, accepted.is_new) == (again.id, is_new)


def test_text_that_postgresql_cannot_hold_is_stored_without_it(shop: Shop) -> None:
    claimed = shop.running(tier=None)
    with shop.ledger.begin() as session:
        job = lock_owned_job(session, claimed.attempt)
        result = {"answer": "a\x00b\ud800c😀", "list": ["\x00"], "literal": "\\u0000"}
        end(session, job, State.ANSWERED, reason=Reason.DONE, detail="d\x00\udfff", result=result)
    job = shop.job(claimed.job.id)
    assert job.detail == "d\ufffd\ufffd"
    assert job.result == {"answer": "a\ufffdb\ufffdc😀", "list": ["\ufffd"], "literal": "\\u0000"}


# ---------------------------------------------------------------------------------------------------------- claiming


def test_a_report_of_work_that_goes_on_does_not_wait_for_the_disk(shop: Shop) -> None:
    with shop.ledger.begin() as session:
        job = find_job(session, shop.accept())
        report(session.connection(), EventKind.STEP, job=job, step="build")
        assert session.scalar(text("SHOW synchronous_commit")) == "off"
        assert [event.data for event in newest_of_kinds(session, job.id, [EventKind.STEP], limit=2)] == [
            {"step": "build"}
        ]


def test_of_two_copies_of_a_message_one_is_claimed(shop: Shop) -> None:
    message = shop.message(shop.accept())
    outcomes = at_once([lambda: shop.try_claim(message, worker="a"), lambda: shop.try_claim(message, worker="b")])
    assert not [outcome for outcome in outcomes if isinstance(outcome, Exception)]
    assert sum(outcome is not None for outcome in outcomes) == 1
    assert shop.scalar("SELECT count(*) FROM attempt") == 1
    assert shop.scalar("SELECT count(*) FROM event WHERE kind = 'fenced'") == 1


def test_a_claim_raises_the_fence_starts_the_job_and_stores_only_the_token_s_hash(shop: Shop) -> None:
    claimed = shop.running()
    job = shop.job(claimed.job.id)
    assert (job.state, job.fence, job.waiting_since, job.pushed_at) == ("running", 1, None, None)
    assert job.started_at is not None
    assert claimed.attempt.fence == 1
    assert claimed.attempt.number == 1
    stored = json.dumps([list(map(str, row)) for row in shop.rows("SELECT * FROM attempt")])
    assert claimed.token not in stored
    assert len(claimed.token) > 40


@pytest.mark.parametrize("fence", [1, 2, 99])
def test_a_message_with_another_fence_is_no_claim(shop: Shop, fence: int) -> None:
    job_id = shop.accept()
    assert shop.try_claim(JobMessage(job_id=job_id, fence=fence)) is None
    assert shop.job(job_id).state == "queued"


def test_a_message_on_another_queue_or_about_no_job_is_no_claim(shop: Shop) -> None:
    job_id = shop.accept()
    assert shop.try_claim(shop.message(job_id), queue=QueueName.PATCH) is None
    message = JobMessage(job_id=uuid4(), fence=0)
    assert claim(shop.ledger, message, queue=QueueName.SPEC, worker="w", policy=shop.policy) is None


@pytest.mark.req("S-025")
def test_a_claim_counts_with_the_tenant_s_lowered_limits(shop: Shop) -> None:
    shop.tenant(overrides={"queues": {"spec": {"llm_usd": 0.01, "soft_seconds": 3, "hard_seconds": 4}}})
    claimed = shop.running()
    assert claimed.policy.queues[QueueName.SPEC].llm_usd == 0.01
    seconds = shop.scalar("SELECT extract(epoch FROM deadline - started_at) FROM attempt")
    assert 3.5 < float(seconds) < 4.5


@pytest.mark.parametrize("overrides", [{"queues": {"spec": {"llm_usd": 0.06}}}, {"no": "overrides"}])
def test_a_job_whose_tenant_s_overrides_no_longer_fit_ends_and_says_so(shop: Shop, overrides: dict[str, Any]) -> None:
    job_id = shop.accept()
    shop.tenant(overrides=overrides)
    assert shop.try_claim(shop.message(job_id)) is None
    job = shop.job(job_id)
    assert (job.state, job.reason) == ("failed", "internal_error")
    assert "overrides of tenant acme" in str(job.detail)


@pytest.mark.req("H-073")
@pytest.mark.parametrize("tier", Tier)
def test_one_job_writes_a_site_and_the_next_waits_while_other_sites_go_on(shop: Shop, tier: Tier) -> None:
    site, other = shop.site("one"), shop.site("two")
    first, second = shop.accept(site_id=site, tier=tier), shop.accept(site_id=site)
    elsewhere = shop.accept(site_id=other)
    claimed = shop.claim(first)
    assert shop.find(Site, site).lock_job_id == first
    assert shop.try_claim(shop.message(second)) is None
    assert shop.job(second).state == "queued"
    assert shop.job(second).waiting_since is not None
    assert shop.job(second).pushed_at is None
    shop.claim(elsewhere)
    shop.end(claimed)
    shop.claim(second)


@pytest.mark.req("H-073")
def test_of_two_jobs_that_reach_for_a_site_at_once_one_gets_it(shop: Shop) -> None:
    site = shop.site()
    messages = [shop.message(shop.accept(site_id=site)) for _ in range(4)]
    outcomes = at_once([lambda message=message: shop.try_claim(message) for message in messages])
    assert sum(outcome is not None for outcome in outcomes) == 1
    assert not [outcome for outcome in outcomes if isinstance(outcome, Exception)]


def test_a_question_does_not_wait_for_its_site(shop: Shop) -> None:
    site = shop.site()
    shop.claim(shop.accept(site_id=site))
    shop.claim(shop.accept(tier=None, site_id=site))


# ------------------------------------------------------------------------------------------------------------ leases


def test_a_renewal_prolongs_the_lease_also_of_a_job_that_is_to_be_cancelled(shop: Shop) -> None:
    claimed = shop.running()
    shop.execute("UPDATE attempt SET lease_until = now() + interval '1 second'")
    shop.cancel(claimed.job.id)
    assert shop.renews(claimed)
    left = shop.scalar("SELECT extract(epoch FROM lease_until - clock_timestamp()) FROM attempt")
    assert 18 < float(left) <= 20


def test_an_attempt_that_lost_its_job_cannot_renew_nor_take_effect(shop: Shop) -> None:
    claimed = shop.running()
    shop.lapse(claimed)
    take_back(shop)
    assert not shop.renews(claimed)
    with pytest.raises(FencedError), shop.ledger.begin() as session:
        lock_owned_job(session, claimed.attempt)


def test_an_attempt_whose_child_was_reported_dead_cannot_renew(shop: Shop) -> None:
    claimed = shop.running()
    with shop.ledger.begin() as session:
        report_loss(session, JobMessage(job_id=claimed.job.id, fence=0), worker="w1", cause=Reason.WORKER_LOST)
    assert not shop.renews(claimed)
    take_back(shop)
    assert shop.job(claimed.job.id).state == "queued"


def test_a_stopping_worker_hands_back_its_own_jobs_and_no_others(shop: Shop) -> None:
    mine, another = shop.running(tier=None), shop.running(tier=None)
    shop.execute("UPDATE attempt SET worker = 'another' WHERE id = :id", id=another.attempt.id)
    with shop.ledger.begin() as session:
        assert expire_worker_leases(session, mine.attempt.worker) == 1
    assert not shop.renews(mine)
    assert shop.renews(another)


def test_an_attempt_past_its_deadline_cannot_renew_so_a_hung_one_loses_its_job(shop: Shop) -> None:
    claimed = shop.running()
    shop.execute("UPDATE attempt SET deadline = now() - interval '1 second'")
    assert not shop.renews(claimed)


# ---------------------------------------------------------------------------------------------------------- recovery


def test_a_job_whose_worker_died_waits_again_and_the_old_message_is_stale(shop: Shop) -> None:
    claimed = shop.running()
    old = JobMessage(job_id=claimed.job.id, fence=claimed.attempt.fence)
    shop.lapse(claimed)
    take_back(shop)
    job = shop.job(claimed.job.id)
    assert (job.state, job.fence, job.lost_attempts) == ("queued", 2, 1)
    assert job.waiting_since is not None
    assert job.pushed_at is None
    attempt = shop.find(Attempt, claimed.attempt.id)
    assert (attempt.outcome, attempt.reason) == ("lost", "worker_lost")
    assert shop.try_claim(old) is None
    again = shop.claim(job.id)
    assert (again.attempt.number, again.attempt.fence) == (2, 3)


def test_a_live_lease_is_left_alone(shop: Shop) -> None:
    claimed = shop.running()
    with shop.ledger.begin() as session:
        assert find_lapsed_attempts(session) == []
        recover(session, claimed.attempt, max_lost=2)
    assert shop.job(claimed.job.id).state == "running"


def test_a_job_that_loses_its_worker_too_often_ends_failed(shop: Shop) -> None:
    job_id = shop.accept()
    for _ in range(2):
        shop.lapse(shop.claim(job_id))
        take_back(shop)
    job = shop.job(job_id)
    assert (job.state, job.reason, job.detail) == ("failed", "worker_lost", "its worker died 2 times")


@pytest.mark.req("H-070", "H-097", "H-098", "H-099")
@pytest.mark.parametrize("tier", list(Tier))
def test_a_job_whose_time_was_up_ends_timed_out_without_another_try(shop: Shop, tier: Tier) -> None:
    claimed = shop.running(tier=tier)
    with shop.ledger.begin() as session:
        report_loss(session, JobMessage(job_id=claimed.job.id, fence=0), worker="w1", cause=Reason.TIME_LIMIT)
    take_back(shop)
    job = shop.job(claimed.job.id)
    assert (job.state, job.reason, job.waiting_since) == ("timed_out", "time_limit", None)
    assert shop.scalar("SELECT count(*) FROM notification WHERE job_id = :id", id=job.id) == 1
    assert shop.scalar("SELECT count(*) FROM event WHERE kind = 'limit_hit' AND data->>'limit' = 'time'") == 1


def test_an_attempt_alive_at_its_deadline_ran_out_of_time(shop: Shop) -> None:
    claimed = shop.running()
    shop.lapse(claimed, past_deadline=True)
    take_back(shop, silent_seconds=15)
    assert shop.job(claimed.job.id).state == "timed_out"


def test_an_attempt_silent_long_before_its_deadline_lost_its_worker_however_late_that_is_seen(shop: Shop) -> None:
    claimed = shop.running()
    shop.execute(
        "UPDATE attempt SET lease_until = now() - interval '60 seconds', deadline = now() - interval '70 seconds'"
    )
    take_back(shop, silent_seconds=15)
    assert (shop.job(claimed.job.id).state, shop.job(claimed.job.id).lost_attempts) == ("queued", 1)


def test_a_cancelled_job_whose_worker_died_ends_cancelled(shop: Shop) -> None:
    claimed = shop.running()
    shop.cancel(claimed.job.id)
    shop.lapse(claimed)
    take_back(shop)
    assert shop.job(claimed.job.id).state == "cancelled"


def test_an_attempt_that_ended_after_it_was_found_lapsed_is_not_recovered(shop: Shop) -> None:
    claimed = shop.running()
    shop.lapse(claimed)
    with shop.ledger.begin() as session:
        (found,) = find_lapsed_attempts(session)
    shop.end(claimed)
    with shop.ledger.begin() as session:
        recover(session, found, max_lost=2)
    job, attempt = shop.job(claimed.job.id), shop.find(Attempt, claimed.attempt.id)
    assert (job.state, job.waiting_since, job.lost_attempts) == ("failed", None, 0)
    assert (attempt.outcome, attempt.ended_at is None) == ("failed", False)


def test_an_attempt_that_renewed_after_it_was_found_lapsed_keeps_its_job(shop: Shop) -> None:
    claimed = shop.running()
    shop.lapse(claimed)
    with shop.ledger.begin() as session:
        (found,) = find_lapsed_attempts(session)
    assert shop.renews(claimed)
    with shop.ledger.begin() as session:
        recover(session, found, max_lost=2)
    assert (shop.job(claimed.job.id).state, shop.job(claimed.job.id).fence) == ("running", 1)


def test_two_dispatchers_recover_an_attempt_once(shop: Shop) -> None:
    claimed = shop.running()
    shop.lapse(claimed)

    def take() -> None:
        with shop.ledger.begin() as session:
            recover(session, session.get_one(Attempt, claimed.attempt.id), max_lost=5)

    at_once([take] * 4)
    assert (shop.job(claimed.job.id).fence, shop.job(claimed.job.id).lost_attempts) == (2, 1)


def test_a_publish_whose_worker_died_goes_on_and_keeps_its_approval(shop: Shop) -> None:
    claimed = shop.running()
    shop.offer(claimed)
    shop.approve(claimed.job.id)
    publishing = shop.claim(claimed.job.id)
    shop.lapse(publishing, past_deadline=True)
    take_back(shop)
    job = shop.job(claimed.job.id)
    assert (job.state, job.queue, job.waiting_since is None) == ("publishing", "control", False)


def test_a_publish_that_keeps_dying_ends_failed_and_changes_nothing(shop: Shop) -> None:
    claimed = shop.running()
    release = shop.offer(claimed)
    shop.approve(claimed.job.id)
    for _ in range(2):
        shop.lapse(shop.claim(claimed.job.id))
        take_back(shop)
    job = shop.job(claimed.job.id)
    assert (job.state, job.reason, job.detail) == ("failed", "worker_lost", "its worker died 2 times")
    assert shop.active(release.site_id) is None


# -------------------------------------------------------------------------------------------------------------- ends


@pytest.mark.req("H-117")
@pytest.mark.parametrize("state", [State.FAILED, State.TIMED_OUT, State.BUDGET_EXCEEDED, State.OUTPUT_EXCEEDED])
def test_an_end_writes_one_notification_and_one_audit_row_and_frees_the_site(shop: Shop, state: State) -> None:
    site = shop.site()
    base = shop.show(site)
    claimed = shop.running(site_id=site, callback_url="https://example.com/hook")
    shop.execute("UPDATE job SET base_release_id = :base WHERE id = :id", base=base.id, id=claimed.job.id)
    shop.end(claimed, state, Reason.TIME_LIMIT)
    with pytest.raises(FencedError), shop.ledger.begin() as session:
        lock_owned_job(session, claimed.attempt)
    job = shop.job(claimed.job.id)
    assert job.ended_at is not None
    assert shop.find(Site, site).lock_job_id is None
    (note,) = shop.rows("SELECT payload, callback_url, next_at FROM notification WHERE job_id = :id", id=job.id)
    assert note.payload == {"type": "job.ended", "job_id": str(job.id), "state": state.value, "reason": "time_limit"}
    assert note.next_at is not None
    (row,) = audit_rows(shop, job.id, "job_ended")
    assert (row.tier, row.prompt, row.input_hash) == (1, "Make the header blue", base.digest)
    assert (row.output_hash, row.scan, row.approval) == ("none", "none", "none")
    assert row.detail == {"state": state.value, "reason": "time_limit"}
    assert shop.active(site) == base.id


@pytest.mark.req("R-064")
@pytest.mark.parametrize(("origin", "target"), [(next(o for o in MOVES if t in MOVES[o]), t) for t in sorted(ENDS)])
def test_whatever_state_a_job_ends_in_its_owner_is_told_once(shop: Shop, origin: State, target: State) -> None:
    job_id = shop.accept()
    shop.execute("UPDATE job SET state = :state WHERE id = :id", state=origin.value, id=job_id)
    with shop.ledger.begin() as session:
        end(session, lock_job(session, job_id), target, reason=Reason.TIME_LIMIT)
    states = shop.rows("SELECT payload ->> 'state' FROM notification WHERE job_id = :id", id=job_id)
    assert states == [(target.value,)]


@pytest.mark.req("H-117")
def test_a_rejection_changes_nothing_and_its_audit_row_holds_the_six_facts(shop: Shop) -> None:
    site = shop.site()
    base = shop.show(site)
    claimed = shop.running(site_id=site)
    release = shop.offer(claimed)
    shop.reject(claimed.job.id, actor="ann", reason="no\x00t blue")
    (row,) = audit_rows(shop, claimed.job.id, "job_ended")
    assert (row.tier, row.prompt) == (1, "Make the header blue")
    assert (row.input_hash, row.output_hash) == (base.digest, release.digest)
    assert (row.scan, row.approval, row.actor) == ("passed", "rejected", "ann")
    job = shop.job(claimed.job.id)
    assert (job.state, job.reason, job.detail) == ("rejected", "reviewer_rejected", "no\ufffdt blue")
    assert shop.active(site) == base.id
    assert shop.find(Site, site).lock_job_id is None


def test_a_job_without_a_callback_owes_nobody_a_delivery(shop: Shop) -> None:
    claimed = shop.running()
    shop.end(claimed)
    (note,) = shop.rows("SELECT delivered_at, next_at FROM notification")
    assert note.delivered_at is not None
    assert note.next_at is None


@pytest.mark.parametrize("state", sorted(ENDS))
def test_an_end_is_final(shop: Shop, state: State) -> None:
    job_id = shop.accept()
    shop.execute("UPDATE job SET state = :state WHERE id = :id", state=state.value, id=job_id)
    for target in (State.QUEUED, State.RUNNING, State.PUBLISHED):
        with pytest.raises(RoutingError, match="cannot move"), shop.ledger.begin() as session:
            move(session, session.get_one(Job, job_id), target)
    with pytest.raises(WrongStateError):
        shop.cancel(job_id)


# ------------------------------------------------------------------------------------------------------------ cancel


@pytest.mark.parametrize("pushed", [True, False])
def test_a_waiting_job_is_cancelled_at_once_and_its_message_is_stale(shop: Shop, pushed: bool) -> None:
    job_id = shop.accept(is_pushed=pushed)
    message = shop.message(job_id)
    shop.cancel(job_id)
    assert shop.job(job_id).state == "cancelled"
    assert shop.try_claim(message) is None
    assert audit_rows(shop, job_id, "cancel_requested")[0].actor == "owner"


def test_a_running_job_is_only_asked_to_stop(shop: Shop) -> None:
    claimed = shop.running()
    shop.cancel(claimed.job.id)
    job = shop.job(claimed.job.id)
    assert job.state == "running"
    assert job.cancel_requested_at is not None


def test_a_job_that_waits_for_approval_can_be_cancelled_but_not_one_that_is_being_published(shop: Shop) -> None:
    claimed, other = shop.running(site_id=shop.site("one")), shop.running(site_id=shop.site("two"))
    shop.offer(claimed)
    shop.offer(other)
    shop.approve(other.job.id)
    shop.cancel(claimed.job.id)
    assert shop.job(claimed.job.id).state == "cancelled"
    with pytest.raises(WrongStateError):
        shop.cancel(other.job.id)


# -------------------------------------------------------------------------------------------------------- escalation


@pytest.mark.req("H-122")
def test_an_escalated_job_waits_for_the_next_tier_on_the_same_bill_and_site(shop: Shop) -> None:
    claimed = shop.running()
    shop.execute(
        "INSERT INTO cap (scope, key, limit_nanousd, spent_nanousd, reserved_nanousd) VALUES ('job', :key, 650, 40, 0)",
        key=str(claimed.job.root_id),
    )
    with shop.ledger.begin() as session:
        job = lock_owned_job(session, claimed.attempt)
        escalate(session, job, to=Tier.PATCH, reason=Reason.SPEC_INVALID, detail="twice")
    job = shop.job(claimed.job.id)
    assert (job.state, job.tier, job.queue, job.root_id) == ("queued", 2, "patch", claimed.job.root_id)
    assert shop.find(Site, job.site_id).lock_job_id == job.id
    assert shop.rows("SELECT spent_nanousd FROM cap") == [(40,)]
    attempt = shop.find(Attempt, claimed.attempt.id)
    assert (attempt.outcome, attempt.reason) == ("escalated", "spec_invalid")
    with pytest.raises(FencedError), shop.ledger.begin() as session:
        lock_owned_job(session, claimed.attempt)
    again = shop.claim(job.id)
    assert (again.attempt.queue, again.attempt.tier, again.attempt.number) == ("patch", 2, 2)


# ------------------------------------------------------------------------------------------------ approval, publish


@pytest.mark.req("H-083", "H-117")
def test_an_approval_is_bound_to_the_release_its_scan_and_its_base(shop: Shop) -> None:
    site = shop.site()
    base = shop.show(site)
    claimed = shop.running(site_id=site)
    release = shop.offer(claimed)
    assert shop.job(claimed.job.id).state == "awaiting_approval"
    assert shop.find(Site, site).lock_job_id == claimed.job.id
    shop.approve(claimed.job.id, actor="ann")
    approval: Approval = shop.find(Approval, claimed.job.id)
    assert (approval.release_id, approval.base_release_id) == (release.id, base.id)
    assert (approval.scan_digest, approval.decision, approval.actor) == (release.scan_digest, "approved", "ann")
    assert (shop.job(claimed.job.id).state, shop.job(claimed.job.id).queue) == ("publishing", "control")
    assert shop.active(site) == base.id
    shop.publish(shop.claim(claimed.job.id))
    assert shop.active(site) == release.id
    assert shop.find(Site, site).lock_job_id is None
    (row,) = audit_rows(shop, claimed.job.id, "job_ended")
    assert (row.output_hash, row.scan, row.approval) == (release.digest, "passed", "approved")


@pytest.mark.req("H-083", "H-114")
@pytest.mark.parametrize(
    "tampering",
    [
        "DELETE FROM approval",
        "UPDATE approval SET decision = 'rejected'",
        "UPDATE approval SET scan_digest = 'other'",
        "UPDATE approval SET release_id = gen_random_uuid()",
        "UPDATE approval SET base_release_id = gen_random_uuid()",
        "UPDATE release SET scan_passed = false",
        "UPDATE release SET scan_digest = 'other'",
        "UPDATE job SET release_id = NULL",
    ],
)
@pytest.mark.parametrize("tier", list(Tier))
def test_nothing_is_published_without_a_passing_scan_and_an_approval_of_exactly_it(
    shop: Shop, tampering: str, tier: Tier
) -> None:
    claimed = shop.running(tier=tier)
    shop.offer(claimed)
    shop.approve(claimed.job.id)
    shop.execute(tampering)
    with pytest.raises(WrongStateError), shop.ledger.begin() as session:
        approved_release(session, session.get_one(Job, claimed.job.id))


def test_only_a_job_that_waits_for_approval_can_be_judged_and_only_once(shop: Shop) -> None:
    job_id = shop.accept()
    with pytest.raises(WrongStateError):
        shop.approve(job_id)
    with pytest.raises(WrongStateError):
        shop.reject(job_id)
    shop.offer(shop.claim(job_id))

    outcomes = at_once([partial(judge, job_id) for judge in (shop.approve, shop.reject, shop.approve)])
    assert sum(outcome is None for outcome in outcomes) == 1
    assert all(isinstance(outcome, WrongStateError) for outcome in outcomes if outcome is not None)


def test_another_tenant_cannot_judge(shop: Shop) -> None:
    claimed = shop.running()
    shop.offer(claimed)
    with pytest.raises(JobNotFoundError), shop.ledger.begin() as session:
        approve(session, claimed.job.id, actor="eve", policy=shop.policy, tenant="eve")


def test_a_preview_that_nobody_judges_expires_as_a_rejection(shop: Shop) -> None:
    claimed = shop.running()
    release = shop.offer(claimed)
    with shop.ledger.begin() as session:
        assert overdue_jobs(session) == []
        expire(session, claimed.job.id)
    assert shop.job(claimed.job.id).state == "awaiting_approval"
    shop.execute("UPDATE job SET expires_at = now() - interval '1 second'")
    with shop.ledger.begin() as session:
        assert overdue_jobs(session) == [claimed.job.id]
        expire(session, claimed.job.id)
    assert (shop.job(claimed.job.id).state, shop.job(claimed.job.id).reason) == ("expired", "approval_expired")
    assert shop.find(Approval, claimed.job.id).decision == "expired"
    assert shop.find(Site, release.site_id).lock_job_id is None
    with shop.ledger.begin() as session:
        assert overdue_jobs(session) == []
        expire(session, claimed.job.id)


def test_an_approval_in_time_beats_the_expiry_that_was_already_found(shop: Shop) -> None:
    claimed = shop.running()
    shop.offer(claimed)
    shop.approve(claimed.job.id)
    with shop.ledger.begin() as session:
        expire(session, claimed.job.id)
    assert shop.job(claimed.job.id).state == "publishing"


@pytest.mark.req("H-084")
def test_of_releases_that_become_active_at_once_one_wins_and_the_others_conflict(shop: Shop) -> None:
    site = shop.site()
    base = shop.show(site)
    with shop.ledger.begin() as session:
        releases = [add_release(session, make_release(site, base_release_id=base.id)) for _ in range(4)]

    def swap(release: Release) -> UUID:
        with shop.ledger.begin() as session:
            activate(session, site, release, base_release_id=base.id)
            return release.id

    outcomes = at_once([lambda release=release: swap(release) for release in releases])
    winners = [outcome for outcome in outcomes if isinstance(outcome, UUID)]
    assert len(winners) == 1
    assert sum(isinstance(outcome, PublishConflictError) for outcome in outcomes) == 3
    assert shop.active(site) == winners[0]
    published = {row.id for row in shop.rows("SELECT id FROM release WHERE published_at IS NOT NULL")}
    assert published == {base.id, winners[0]}


@pytest.mark.req("H-084")
def test_a_rollback_goes_back_by_the_same_swap_and_keeps_history_in_order(shop: Shop) -> None:
    site = shop.site()
    first, second = shop.show(site), shop.show(site)
    before = shop.scalar("SELECT published_at FROM release WHERE id = :id", id=first.id)
    with shop.ledger.begin() as session:
        activate(session, site, first, base_release_id=second.id)
    assert shop.active(site) == first.id
    assert shop.scalar("SELECT published_at FROM release WHERE id = :id", id=first.id) == before
    with pytest.raises(PublishConflictError), shop.ledger.begin() as session:
        activate(session, site, second, base_release_id=second.id)


def test_a_candidate_cannot_wait_for_approval_outside_of_its_scan(shop: Shop) -> None:
    claimed = shop.running()
    with shop.ledger.begin() as session:
        job = lock_owned_job(session, claimed.attempt)
        assert job.site_id is not None
        release = add_release(session, make_release(job.site_id))
        with pytest.raises(RoutingError, match="cannot move"):
            await_approval(session, job, release, hours=1)

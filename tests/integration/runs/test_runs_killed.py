"""Kill coordinators and step workers at every transition of a run, by enumeration: each run comes to its end.

A death is an exception that no code of the product catches: what was committed stays, what was not is gone, no word is
said, and the lease lapses. The broker keeps nothing in these tests at all: what waits is read from the ledger.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from routing.jobs import Reason, State
from routing.queues import QueueName
from sites.repository.workspace import Workspace
from tests.factories import Shop
from tests.integration.runs.run_world import FIX, MAX_TURNS, MOMENTS, Killed, Yard, done, issues
from workers.attempt import Attempt
from workers.lifecycle import claim_job
from workers.outcomes import Outcome
from workers.runs.publishing import publish_run

ENDS_WELL = State.PUBLISHED


@pytest.fixture
def yard(shop: Shop, tmp_path: Path) -> Yard:
    made = Yard(shop, tmp_path)
    made.team.plan = FIX
    made.team.answers = {"qa": [issues(1), done()]}
    return made


def submit(yard: Yard) -> UUID:
    """A P0 fix: planning, work, reviews, one mending, a gate, the summary, and publishing."""
    yard.team.asked.clear()
    yard.executed.clear()
    yard.completed.clear()
    return yard.submit("Fix the broken header", priority="P0")


def play(yard: Yard, run_id: UUID, turn: Callable[[], bool]) -> None:
    """Play to the end with `turn`, recovering whatever died; a person passes the gate."""
    for _ in range(MAX_TURNS):
        try:
            moved = turn()
        except Killed:
            yard.recover()
            continue
        if yard.job(run_id).ended_at is not None:
            return
        if not moved:
            yard.decide(yard.open_gate(run_id))
    raise AssertionError("the run does not end")


def check(yard: Yard, run_id: UUID, *, lost: int = 0) -> None:
    """It ended well, nothing that completed ran again, every execution is on record, and the bill adds up."""
    job = yard.job(run_id)
    assert job.state == ENDS_WELL, (job.state, job.reason, job.detail)
    assert max(Counter(yard.executed).values()) == 1, "an execution was begun twice"
    rows = yard.executions(run_id)
    assert Counter(row.status for row in rows) == {"completed": len(rows) - lost} | ({"failed": lost} if lost else {})
    assert all(count == 1 for count in Counter(row.step_key for row in rows if row.status == "completed").values())
    assert all(row.absorbed_at is not None for row in rows)
    calls, booked = yard.bill(run_id)
    assert calls == booked
    assert yard.shop.scalar("SELECT count(*) FROM notification WHERE job_id = :id", id=run_id) == 1
    files = yard.workspace(run_id).read(job.result["commit"]).files
    assert {"src/fix-frontend.ts", "README.md"} <= set(files)


class Reaper:
    """Kills at every moment, once in each state of the run."""

    def __init__(self, yard: Yard, run_id: UUID) -> None:
        self._yard = yard
        self._run_id = run_id
        self.killed: set[tuple[str, str]] = set()

    def __call__(self, moment: str) -> None:
        state = self._yard.shop.scalar(
            "SELECT string_agg(step_key || attempt || status || (absorbed_at IS NULL), ',' ORDER BY step_key, attempt)"
            " || (SELECT coalesce(scan, '') || explanation || (SELECT state FROM job WHERE id = :id) FROM run"
            "     WHERE job_id = :id) FROM agent_executions WHERE run_id = :id",
            id=self._run_id,
        )
        key = (moment, str(state))
        if key not in self.killed:
            self.killed.add(key)
            raise Killed


@pytest.mark.slow
@pytest.mark.req("P-007")
@pytest.mark.timeout(300)
def test_a_coordinator_killed_at_every_point_of_a_run_leaves_one_that_goes_on_from_there(yard: Yard) -> None:
    yard.endure()
    run_id = submit(yard)
    reaper = Reaper(yard, run_id)
    play(yard, run_id, lambda: yard.turn(observe=reaper))
    check(yard, run_id)
    assert {moment for moment, _ in reaper.killed} == {"claimed", *MOMENTS}
    assert len(reaper.killed) > 40, "a death at each point of each advance"


@pytest.mark.slow
@pytest.mark.req("P-007")
@pytest.mark.timeout(300)
def test_a_step_worker_killed_in_every_step_costs_that_execution_and_no_other(yard: Yard) -> None:
    """Each step dies twice: before its work, and after it, when its call is billed and its commit is written."""
    run_id = submit(yard)
    deaths: dict[str, int] = {}

    def handler(attempt: Attempt) -> Outcome:
        assert attempt.step_order is not None
        key = attempt.step_order.key
        deaths[key] = deaths.get(key, 0) + 1
        if deaths[key] == 1:
            raise Killed
        outcome = yard.step_handler(attempt)
        if deaths[key] == 2:
            raise Killed
        return outcome

    play(yard, run_id, lambda: yard.turn(handler=handler))
    steps = yard.steps(run_id)
    check(yard, run_id, lost=2 * len(steps))
    assert {step.tries for step in steps.values()} == {3}
    assert {row.reason for row in yard.executions(run_id) if row.status == "failed"} == {"worker_lost"}


def test_a_coordinator_that_dies_again_and_again_ends_its_run_and_stops_its_steps(yard: Yard) -> None:
    run_id = submit(yard)
    yard.turn()
    yard.turn()

    def dies(_: str) -> None:
        raise Killed

    for _ in range(yard.policy.attempts.max_lost):
        with pytest.raises(Killed):
            yard.turn(observe=dies)
        yard.recover()
    job = yard.job(run_id)
    assert (job.state, job.reason) == (State.FAILED, Reason.WORKER_LOST)
    assert yard.waiting(QueueName.CONTROL) == []
    yard.settle()
    assert all(step.state != "pending" for step in yard.steps(run_id).values())


def test_an_error_of_ours_in_a_coordinator_ends_its_run_and_says_so_and_no_worker_is_blamed(yard: Yard) -> None:
    run_id = yard.submit()
    yard.shop.execute("UPDATE project SET config = '{}'")  # as a release reads it that has other rules
    for _ in range(yard.policy.attempts.max_lost):
        assert yard.job(run_id).ended_at is None
        yard.turn()
        yard.recover()
    job = yard.job(run_id)
    assert (job.state, job.reason, job.detail) == ("failed", "internal_error", "internal error: it broke off 2 times")


@pytest.mark.slow
def test_a_message_that_arrives_twice_begins_nothing_twice(yard: Yard) -> None:
    run_id = submit(yard)
    yard.turn()
    (job,) = yard.waiting(QueueName.STEPS)
    message = yard.shop.message(job.id)
    yard.work_step(job)
    assert claim_job(message, QueueName.STEPS, yard.resources) is None
    assert claim_job(message, QueueName.CONTROL, yard.resources) is None
    play(yard, run_id, yard.turn)
    check(yard, run_id)


class DyingWorkspace(Workspace):
    """Takes its worker down at one of its calls: before it (`squash`, `point`) or after it (`after-point`)."""

    dies_at = ""

    def squash(self, base: str, head: str, **facts: Any) -> str:
        if self.dies_at == "squash":
            raise Killed
        return super().squash(base, head, **facts)

    def point(self, ref: str, commit: str) -> None:
        if self.dies_at == "point":
            raise Killed
        super().point(ref, commit)
        if self.dies_at == "after-point":
            raise Killed


@pytest.mark.slow
def test_a_worker_killed_while_it_publishes_a_run_leaves_one_that_is_published_once(yard: Yard) -> None:
    yard.endure()
    run_id = submit(yard)
    while yard.job(run_id).state != State.PUBLISHING:
        if not yard.turn():
            yard.decide(yard.open_gate(run_id))
    for moment in ("squash", "point", "after-point"):
        claimed = claim_job(yard.shop.message(run_id), QueueName.CONTROL, yard.resources)
        assert claimed is not None
        workspace = DyingWorkspace(yard.workspace(run_id).path)
        workspace.dies_at = moment
        with pytest.raises(Killed):
            publish_run(claimed, yard.resources, workspace)
        assert yard.job(run_id).state == State.PUBLISHING
        yard.recover()
    play(yard, run_id, yard.turn)
    check(yard, run_id)

"""What stops a run: money, its owner, a gate that nobody answers. It stops between steps, and what was done is kept."""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy.exc import OperationalError

from ledger.attempts import lock_owned_job, recover
from ledger.errors import GateNotFoundError, GateRefusedError, WrongStateError
from ledger.job_control import request_cancel
from ledger.jobs import end, lock_job
from ledger.runs.run import decide_gate, expire_gate, overdue_gates
from ledger.runs.steps import StepReport, wake_run
from producers.intake.submit import Requester
from producers.use_cases.rounds import ReviseOrder, Rounds
from routing.jobs import Reason, Source, State
from routing.policy.platform import platform_policy
from routing.queues import QueueName
from sites.repository.workspace import Step
from tests.factories import Shop
from tests.integration.runs.run_world import BUILD, HAIKU, PROJECT, SMALL, Yard, done
from workers.attempt import Attempt
from workers.lifecycle import claim_job
from workers.outcomes import Outcome

LEAK = b'export const key = "ghp_A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8";\n'
REWORK = {"status": "needs_rework", "summary": "the spec is wrong"}


@pytest.fixture
def yard(shop: Shop, tmp_path: Path) -> Yard:
    return Yard(shop, tmp_path)


def tokens_for(usd: float) -> int:
    return round(usd / platform_policy().prices[HAIKU].output * 1_000_000)


def cancel(yard: Yard, run_id: UUID) -> None:
    with yard.shop.ledger.begin() as session:
        request_cancel(session, lock_job(session, run_id), actor="ann")


# ---------------------------------------------------------------- money


@pytest.mark.slow
@pytest.mark.req("S-121", "S-122", "S-123", "S-124", "P-038", "S-011", "S-021")
def test_a_rework_loop_stops_before_the_cap_and_keeps_what_was_done(yard: Yard) -> None:
    yard.team.answers = {"qa": REWORK}
    yard.team.cost_tokens = {"frontend-dev": tokens_for(2.9), "qa": tokens_for(1.9), "orchestrator": tokens_for(0.9)}
    run_id = yard.submit("Fix the broken header", budget_usd=12)
    job = yard.play(run_id)
    assert (job.state, job.reason) == (State.BUDGET_EXCEEDED, Reason.COST_CAP)
    spent, booked = yard.bill(run_id)
    assert spent == booked <= 12 * 10**9
    assert spent > 11 * 10**9, "it went on as long as it could: a rework is as dear as the work, 5.7"
    assert job.result["kept"]["head"] == yard.run(run_id).head_commit
    assert {"fix-frontend", "qa"} <= set(job.result["kept"]["completed"])
    assert yard.waiting(QueueName.STEPS) == []


@pytest.mark.req("S-121", "S-071", "S-073", "S-024")
def test_a_project_lowers_the_cap_of_its_runs_and_no_request_raises_it(shop: Shop, tmp_path: Path) -> None:
    yard = Yard(shop, tmp_path, project=f"{PROJECT}budgets: {{run_usd: 7}}\n")
    assert yard.job(yard.submit("Fix the header")).cap_nanousd == 7 * 10**9
    assert yard.job(yard.submit("Fix the header", budget_usd=20)).cap_nanousd == 7 * 10**9
    assert yard.job(yard.submit("Fix the header", budget_usd=3)).cap_nanousd == 3 * 10**9


@pytest.mark.req("S-122")
def test_every_step_of_a_run_draws_on_one_cap_and_on_its_own(yard: Yard) -> None:
    run_id = yard.submit("Fix the broken header")
    yard.play(run_id)
    scopes = yard.shop.rows("SELECT scope, count(*), max(limit_nanousd) FROM cap GROUP BY scope ORDER BY scope")
    by_scope = {scope: (count, limit) for scope, count, limit in scopes}
    assert by_scope["job"] == (1, 25 * 10**9)
    assert by_scope["tier"][0] == 4, "one for each execution"
    own = yard.shop.scalar(
        "SELECT limit_nanousd FROM cap JOIN agent_executions ON key = job_id || '/steps' WHERE step_key = 'qa'"
    )
    assert own == round((platform_policy().agents["qa"].step_usd or 0) * 10**9)


@pytest.mark.req("S-011", "S-021")
def test_a_run_whose_first_batch_would_not_fit_its_budget_starts_nothing(yard: Yard) -> None:
    run_id = yard.submit("Fix the broken header", budget_usd=0.01)
    job = yard.play(run_id)
    assert (job.state, yard.executed) == (State.BUDGET_EXCEEDED, [])


# ---------------------------------------------------------------- its owner


def test_a_waiting_run_is_cancelled_at_once_with_its_steps(yard: Yard) -> None:
    run_id = yard.submit("Fix the broken header")
    yard.turn()
    assert len(yard.waiting(QueueName.STEPS)) == 1
    cancel(yard, run_id)
    job = yard.job(run_id)
    assert (job.state, job.reason) == (State.CANCELLED, Reason.CANCELLED)
    assert yard.waiting(QueueName.STEPS) == []
    assert [row.status for row in yard.executions(run_id)] == ["cancelled"]
    yard.settle()
    assert yard.executed == []


def test_a_run_is_cancelled_when_the_step_that_works_for_it_has_let_go(yard: Yard) -> None:
    run_id = yard.submit("Fix the broken header")
    yard.turn()

    def handler(attempt: Attempt) -> Outcome:
        cancel(yard, run_id)
        assert yard.job(run_id).state == State.RUNNING, "it waits for the step"
        attempt.check()
        raise AssertionError("the step goes on although it is cancelled")

    yard.turn(handler=handler)
    yard.settle()
    job = yard.job(run_id)
    assert job.state == State.CANCELLED
    assert [row.status for row in yard.executions(run_id)] == ["cancelled"]
    assert yard.shop.scalar("SELECT count(*) FROM notification WHERE job_id = :id", id=run_id) == 1


def test_a_run_that_waits_at_a_gate_is_cancelled_and_its_gate_is_closed(yard: Yard) -> None:
    run_id = yard.submit("Fix the broken header", priority="P0")
    yard.settle()
    gate = yard.open_gate(run_id)
    cancel(yard, run_id)
    assert yard.job(run_id).state == State.CANCELLED
    with pytest.raises(GateRefusedError, match="not open any more"):
        yard.decide(gate)


def test_a_run_whose_coordinator_died_is_cancelled_when_its_step_has_let_go(yard: Yard) -> None:
    run_id = yard.submit("Fix the broken header")
    yard.turn()

    def handler(attempt: Attempt) -> Outcome:
        with yard.shop.ledger.begin() as session:
            wake_run(session, lock_job(session, run_id))
        claimed = claim_job(yard.shop.message(run_id), QueueName.CONTROL, yard.resources)
        assert claimed is not None
        yard.shop.lapse(claimed)
        with yard.shop.ledger.begin() as session:
            recover(session, claimed.attempt, max_lost=2)
        assert yard.job(run_id).state == State.QUEUED
        cancel(yard, run_id)
        assert yard.job(run_id).ended_at is None
        attempt.check()
        raise AssertionError("the step goes on although it is cancelled")

    yard.turn(handler=handler)
    yard.settle()
    assert yard.job(run_id).state == State.CANCELLED
    assert [row.status for row in yard.executions(run_id)] == ["cancelled"]


def test_an_advance_that_took_too_long_is_made_again(yard: Yard) -> None:
    run_id = yard.submit("Fix the broken header")
    claimed = claim_job(yard.shop.message(run_id), QueueName.CONTROL, yard.resources)
    assert claimed is not None
    yard.shop.lapse(claimed, past_deadline=True)
    with yard.shop.ledger.begin() as session:
        recover(session, claimed.attempt, max_lost=2)
    assert yard.job(run_id).ended_at is None
    assert yard.play(run_id).state == State.PUBLISHED


def test_a_step_is_not_cancelled_alone(yard: Yard) -> None:
    run_id = yard.submit("Fix the broken header")
    yard.turn()
    (step,) = yard.waiting(QueueName.STEPS)
    with pytest.raises(WrongStateError, match=str(run_id)):
        cancel(yard, step.id)


# ---------------------------------------------------------------- gates


def at_gate(yard: Yard, **body: Any) -> UUID:
    run_id = yard.submit("Fix the broken header", priority="P0", **body)
    yard.settle()
    assert yard.job(run_id).state == State.AWAITING_APPROVAL
    return run_id


def test_a_gate_that_nobody_decides_in_time_ends_the_run_as_expired(yard: Yard) -> None:
    run_id = at_gate(yard)
    gate = yard.open_gate(run_id)
    with yard.shop.ledger.begin() as session:
        assert overdue_gates(session) == []
    yard.shop.execute("UPDATE gate SET expires_at = now() - interval '1 second'")
    with pytest.raises(GateRefusedError, match="its time is over"):
        yard.decide(gate)
    with yard.shop.ledger.begin() as session:
        assert list(overdue_gates(session)) == [gate.id]
        expire_gate(session, gate.id)
    yard.settle()
    job = yard.job(run_id)
    assert (job.state, job.reason) == (State.EXPIRED, Reason.APPROVAL_EXPIRED)
    assert job.result["kept"]["head"]


def test_where_policy_wants_four_eyes_nobody_passes_a_gate_of_a_run_they_asked_for(shop: Shop, tmp_path: Path) -> None:
    shop.tenant("acme", overrides={"approval": {"requester_may_approve": False}})
    yard = Yard(shop, tmp_path)
    run_id = at_gate(yard)
    gate = yard.open_gate(run_id)
    with pytest.raises(GateRefusedError, match="second person"):
        yard.decide(gate, actor="ann")
    yard.decide(gate, "failed", actor="bob")
    yard.settle()
    order, bob = ReviseOrder(text="Make it green"), Requester(tenant="acme", source=Source.PYTHON, actor="bob")
    second = Rounds(shop.ledger, yard.policy).revise(run_id, order, requester=bob).job.id
    yard.settle()
    gate = yard.open_gate(second)
    for asked in ("ann", "bob"):  # one asked for the first round, one for this
        with pytest.raises(GateRefusedError, match="second person"):
            yard.decide(gate, actor=asked)
    yard.decide(gate, actor="carol")
    yard.settle()
    assert yard.job(second).state == State.PUBLISHED


def test_where_policy_wants_four_eyes_nobody_passes_a_gate_after_work_that_they_sent_back(
    shop: Shop, tmp_path: Path
) -> None:
    shop.tenant("acme", overrides={"approval": {"requester_may_approve": False}})
    yard = Yard(shop, tmp_path)
    yard.team.answers = {"plan": [done(plan=SMALL), done()]}
    run_id = at_gate(yard)
    yard.decide(yard.open_gate(run_id), "rework", actor="bob", note="Keep the border")
    yard.settle()
    gate = yard.open_gate(run_id)
    with pytest.raises(GateRefusedError, match="second person"):
        yard.decide(gate, actor="bob")
    yard.decide(gate, actor="carol")
    yard.settle()
    assert yard.job(run_id).state == State.PUBLISHED


def test_a_gate_of_another_tenant_is_not_there(yard: Yard) -> None:
    gate = yard.open_gate(at_gate(yard))
    with pytest.raises(GateNotFoundError), yard.shop.ledger.begin() as session:
        decide_gate(session, gate.id, "passed", actor="eve", policy=yard.policy, tenant="other")


@pytest.mark.req("S-021")
def test_a_run_with_a_gate_unanswered_publishes_nothing_and_the_record_names_who_let_it_pass(yard: Yard) -> None:
    run_id = at_gate(yard)
    assert "branch" not in yard.job(run_id).result
    yard.decide(yard.open_gate(run_id))
    yard.settle()
    assert yard.job(run_id).result["branch"] == f"pointsman/fix-the-broken-header-{run_id.hex[-8:]}"
    actions = yard.shop.rows("SELECT action, actor FROM audit WHERE job_id = :id ORDER BY seq", id=run_id)
    assert ("gate_passed", "bob") in [tuple(row) for row in actions]
    assert ("approved", "policy:gates-passed") in [tuple(row) for row in actions]


# ---------------------------------------------------------------- secrets


@pytest.mark.req("S-082", "S-084", "S-021", "S-076")
def test_a_key_that_agents_write_into_plans_and_results_is_nowhere_in_the_ledger_or_the_log(
    yard: Yard, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    pattern, known = "sk-ant-" + "q" * 40, "swordfish-of-the-operator"
    yard.resources = replace(yard.resources, known_keys=(known,))
    steps = [{"id": "dev", "agent": "frontend-dev", "task": f"log in with {pattern} or {known}"}]
    yard.team.plan = {"classification": "fix", "steps": steps}
    yard.team.answers = {"qa": done(summary=f"I used {pattern} and {known}")}
    run_id = yard.submit("Fix the broken header")
    assert yard.play(run_id).state == State.PUBLISHED
    assert yard.run(run_id).plans[0]["origin"] == "template", "the plan was refused twice"
    tables = ["run", "run_step", "agent_executions", "gate", "event", "audit", "job", "notification", "cap"]
    for table in tables:
        for key in (pattern, known):
            found = yard.shop.scalar(f"SELECT count(*) FROM {table} t WHERE t::text LIKE '%' || :key || '%'", key=key)
            assert found == 0, (table, key)
    assert pattern not in caplog.text
    assert known not in caplog.text


@pytest.mark.req("S-080", "S-085", "S-021")
@pytest.mark.parametrize("text", [LEAK, b"// swordfish-of-the-operator\n"])
def test_a_key_in_a_changed_file_is_found_before_anything_leaves(yard: Yard, text: bytes) -> None:
    yard.resources = replace(yard.resources, known_keys=("swordfish-of-the-operator",))

    def handler(attempt: Attempt) -> Outcome:
        outcome = yard.step_handler(attempt)
        order = attempt.step_order
        assert isinstance(outcome, StepReport)
        assert order is not None
        if order.key != "fix-frontend":
            return outcome
        leak = {"src/key.ts": text}
        commit = yard.workspace(order.run_id).commit_step(
            outcome.base or "", leak, step=Step(order.key, order.attempt), message="m", when=5
        )
        return StepReport(result=outcome.result, base=outcome.base, commit=commit, changed=("src/key.ts",))

    run_id = yard.submit("Fix the broken header")
    while yard.turn(handler=handler):
        pass
    job = yard.job(run_id)
    assert (job.state, job.reason) == (State.FAILED, Reason.SCAN_REFUSED)
    assert "branch" not in job.result
    assert "A1b2C3d4" not in str(job.detail)
    assert "swordfish" not in str(job.detail)


def test_a_run_whose_workspace_is_lost_ends_and_says_so(yard: Yard) -> None:
    run_id = yard.submit("Fix the broken header")
    for _ in range(4):
        yard.turn()
    shutil.rmtree(yard.workspace(run_id).path)
    yard.wake()
    (job,) = yard.waiting(QueueName.CONTROL)
    yard.work_control(job)
    ended = yard.job(run_id)
    assert (ended.state, ended.reason) == (State.FAILED, Reason.INTERNAL_ERROR)
    assert "no workspace" in (ended.detail or "")


def test_a_step_that_ends_while_its_run_is_being_stopped_is_waited_for_and_not_cancelled_in_a_circle(
    yard: Yard,
) -> None:
    run_id = yard.submit("Fix the broken header")
    while not (waiting := yard.waiting(QueueName.STEPS)):
        yard.turn()
    step = claim_job(yard.shop.message(waiting[0].id), QueueName.STEPS, yard.resources)
    assert step is not None
    cancel(yard, run_id)
    with yard.shop.ledger.begin() as session:
        wake_run(session, lock_job(session, run_id))  # as the end of another step does
    (job,) = yard.waiting(QueueName.CONTROL)

    def let_the_step_end(moment: str) -> None:
        if moment == "merged":
            with yard.shop.ledger.begin() as session:
                end(session, lock_owned_job(session, step.attempt), State.CANCELLED, reason=Reason.CANCELLED)

    yard.work_control(job, let_the_step_end)
    assert yard.play(run_id).state == State.CANCELLED


# ---------------------------------------------------------------- all at once


class Crowd:
    """Workers, the dispatcher, people and an owner, each in a thread of their own."""

    def __init__(self, yard: Yard, runs: list[UUID]) -> None:
        self.yard = yard
        self.runs = runs
        self.errors: list[BaseException] = []
        self._stopping = threading.Event()

    def play(self, *, seconds: float) -> None:
        parties = (self.advance, self.do_steps, self.do_steps, self.yard.wake, self.pass_gates, self.cancel_first)
        threads = [threading.Thread(target=self._repeat, args=(party,)) for party in parties]
        for thread in threads:
            thread.start()
        for _ in range(round(seconds / 0.05)):
            if self.errors or all(self.yard.job(run_id).ended_at is not None for run_id in self.runs):
                break
            self._stopping.wait(0.05)
        self._stopping.set()
        for thread in threads:
            thread.join(30)

    def _repeat(self, party: Callable[[], None]) -> None:
        try:
            while not self._stopping.is_set():
                party()
                self._stopping.wait(0.005)
        except OperationalError as error:
            self.errors.append(error)

    def advance(self) -> None:
        for job in self.yard.waiting(QueueName.CONTROL):
            self.yard.work_control(job)

    def do_steps(self) -> None:
        for job in self.yard.waiting(QueueName.STEPS):
            self.yard.work_step(job)

    def pass_gates(self) -> None:
        for run_id in self.runs[1:]:
            for gate in self.yard.gates(run_id):
                if gate.state == "open":
                    self.yard.decide(gate)

    def cancel_first(self) -> None:
        if len(self.yard.executions(self.runs[0])) >= 3:
            with suppress(WrongStateError):
                cancel(self.yard, self.runs[0])


@pytest.mark.timeout(200)
def test_ends_of_steps_advances_gates_and_cancels_never_wait_for_each_other_in_a_circle(yard: Yard) -> None:
    yard.team.plan = BUILD
    crowd = Crowd(yard, [yard.submit("Fix the broken header", priority="P0") for _ in range(3)])
    crowd.play(seconds=150)
    assert crowd.errors == [], "a deadlock is an error of the database"
    assert [yard.job(run_id).state for run_id in crowd.runs] == [State.CANCELLED, *[State.PUBLISHED] * 2]
    for run_id in crowd.runs:
        spent, booked = yard.bill(run_id)
        assert spent == booked
        rows = [row for row in yard.executions(run_id) if row.status == "completed"]
        assert len({row.step_key for row in rows}) == len(rows)

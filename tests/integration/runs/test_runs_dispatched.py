"""Runs over a real broker and the real dispatcher, which keeps nothing of them: the broker may lose everything."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from redis import Redis
from sqlalchemy import text

from ledger.dispatch_window import pause_queue
from ledger.jobs import end, lock_job
from ledger.runs.steps import find_unmerged_runs
from ledger.runs.tables import AgentExecution, Run, RunStep
from ledger.store import now
from producers.config import DispatcherConfig
from producers.dispatch.broker import BrokerLists, Publisher
from producers.dispatch.dispatcher import BATCH, Dispatcher
from routing.broker import create_app
from routing.jobs import JobMessage, Reason, State
from routing.queues import QueueName
from tests.factories import Shop
from tests.integration.runs.run_world import FIX, MAX_TURNS, Yard
from workers.handlers.publish import run_control
from workers.lifecycle import run_attempt


class Fleet:
    """The dispatcher, the broker, and workers that take messages from its lists."""

    def __init__(self, yard: Yard, broker: Any, dispatcher: Dispatcher) -> None:
        self.yard = yard
        self.broker = broker
        self.dispatcher = dispatcher
        self.tasks: set[str] = set()

    def take(self, queue: QueueName) -> JobMessage | None:
        body = self.broker.rpop(queue.value)
        if body is None:
            return None
        message = json.loads(body)
        self.tasks.add(message["headers"]["task"])
        (body_of_task,) = json.loads(base64.b64decode(message["body"]))[0]
        assert set(body_of_task) == {"schema_version", "job_id", "fence"}, "ids only: content stays in the workspace"
        return JobMessage.model_validate(json.loads(base64.b64decode(message["body"]))[0][0])

    def turn(self) -> bool:
        """A round of the dispatcher, then every message that stands on the lists."""
        self.dispatcher.run_once()
        moved = False
        for queue in (QueueName.CONTROL, QueueName.STEPS):
            while (message := self.take(queue)) is not None:
                moved = True
                if queue == QueueName.CONTROL:
                    run_control(message, self.yard.resources)
                else:
                    run_attempt(message, queue, self.yard.step_handler, self.yard.resources)
        return moved

    def play(self, run_id: UUID, after_turn: Callable[[], None] = lambda: None) -> None:
        for _ in range(MAX_TURNS):
            moved = self.turn()
            if self.yard.job(run_id).ended_at is not None:
                return
            if not moved and self.yard.job(run_id).state == State.AWAITING_APPROVAL:
                self.yard.decide(self.yard.open_gate(run_id))
            after_turn()
        raise AssertionError("the run does not end")

    def lose_everything(self) -> None:
        """Push what is due, empty the broker, and let the dispatcher find that it is gone."""
        self.dispatcher.run_once()
        self.broker.flushall()
        self.yard.shop.execute("UPDATE job SET pushed_at = pushed_at - interval '1 minute'")


@pytest.fixture
def fleet(shop: Shop, tmp_path: Path, broker_url: str) -> Iterator[Fleet]:
    yard = Yard(shop, tmp_path)
    with shop.ledger.begin() as session:
        pause_queue(session, QueueName.CONTROL, is_paused=False)
    app, lists = create_app(broker_url), BrokerLists(broker_url)
    dispatcher = Dispatcher(
        shop.ledger,
        Publisher(app),
        lists,
        policy=yard.policy,
        config=DispatcherConfig(),
        holder="one",
        signing_key=b"k" * 32,
    )
    yard.submitter.publisher = Publisher(app)
    with Redis.from_url(broker_url, decode_responses=True) as client:
        yield Fleet(yard, client, dispatcher)
    lists.close()
    app.close()


@pytest.mark.slow
def test_the_dispatcher_takes_a_run_from_step_to_step_with_messages_that_carry_only_ids(fleet: Fleet) -> None:
    run_id = fleet.yard.submit("Fix the broken header", priority="P0")
    fleet.play(run_id)
    assert fleet.yard.job(run_id).state == State.PUBLISHED
    assert fleet.tasks == {"pointsman.control", "pointsman.step"}


@pytest.mark.req("P-007", "S-043")
def test_a_broker_that_is_emptied_after_every_turn_costs_no_step_and_no_run(fleet: Fleet) -> None:
    fleet.yard.team.plan = FIX  # three of its steps are on the list at once
    run_id = fleet.yard.submit("Fix the broken header", priority="P0")
    fleet.lose_everything()
    fleet.play(run_id, fleet.lose_everything)
    assert fleet.yard.job(run_id).state == State.PUBLISHED
    assert len(fleet.yard.executed) == len(set(fleet.yard.executed)) == len(fleet.yard.steps(run_id))
    spent, booked = fleet.yard.bill(run_id)
    assert spent == booked


def test_the_dispatcher_expires_a_gate_that_nobody_decides(fleet: Fleet) -> None:
    run_id = fleet.yard.submit("Fix the broken header", priority="P0")
    while fleet.turn():
        pass
    assert fleet.yard.job(run_id).state == State.AWAITING_APPROVAL
    fleet.yard.shop.execute("UPDATE gate SET expires_at = now() - interval '1 second'")
    while fleet.turn():
        pass
    assert fleet.yard.job(run_id).state == State.EXPIRED


def test_a_run_waits_for_nobody_while_its_steps_work(fleet: Fleet) -> None:
    run_id = fleet.yard.submit("Fix the broken header")
    fleet.dispatcher.run_once()
    message = fleet.take(QueueName.CONTROL)
    assert message is not None
    run_control(message, fleet.yard.resources)
    job = fleet.yard.job(run_id)
    assert (job.state, job.waiting_since) == (State.RUNNING, None)
    assert fleet.yard.shop.scalar("SELECT count(*) FROM attempt WHERE ended_at IS NULL") == 0
    fleet.dispatcher.run_once()
    assert fleet.take(QueueName.CONTROL) is None, "there is nothing to advance before the step has settled"


def test_what_has_settled_is_found_by_a_short_index_and_each_look_is_bounded(shop: Shop) -> None:
    with shop.ledger.begin() as session:
        session.execute(text("SET LOCAL enable_seqscan = off"))
        plan = session.scalars(
            text(
                "EXPLAIN SELECT DISTINCT run_id FROM agent_executions"
                " WHERE settled_at IS NOT NULL AND absorbed_at IS NULL LIMIT 100"
            )
        ).all()
    assert "ix_execution_unabsorbed" in "\n".join(plan)


def test_the_settled_steps_of_a_run_that_has_ended_are_not_looked_at_again(fleet: Fleet) -> None:
    run_id = fleet.yard.submit("Fix the broken header")
    fleet.turn()
    with fleet.yard.shop.ledger.begin() as session:
        end(session, lock_job(session, run_id), State.FAILED, reason=Reason.INTERNAL_ERROR)
    while fleet.turn():
        pass
    with fleet.yard.shop.ledger.begin() as session:
        assert find_unmerged_runs(session) == []
    assert fleet.yard.shop.scalar("SELECT count(*) FROM agent_executions WHERE settled_at IS NULL") == 0


def test_runs_that_wait_already_keep_no_other_run_from_being_woken_nor_the_dispatcher_awake(fleet: Fleet) -> None:
    shop, run_id = fleet.yard.shop, fleet.yard.submit("Fix the broken header")
    fleet.turn()
    shop.execute("UPDATE agent_executions SET settled_at = now()")
    project_id = shop.find(Run, run_id).project_id
    for _ in range(BATCH):
        waiting = shop.accept(tier=None, queue=QueueName.CONTROL)
        step = shop.accept(tier=None, queue=QueueName.STEPS, root_id=waiting, parent_id=waiting)
        with shop.ledger.begin() as session:
            session.add(Run(job_id=waiting, project_id=project_id))
            session.flush()
            session.add(RunStep(run_id=waiting, key="fix", position=0, phase="work", task="fix it", tries=1))
            session.flush()
            session.add(AgentExecution(job_id=step, run_id=waiting, step_key="fix", attempt=1, settled_at=now()))
    with shop.ledger.begin() as session:
        assert find_unmerged_runs(session) == [run_id]
    fleet.dispatcher.run_once()
    assert shop.job(run_id).waiting_since is not None
    assert not fleet.dispatcher.has_more

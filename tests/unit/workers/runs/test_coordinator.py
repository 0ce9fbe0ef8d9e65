"""The schedule decides from a view of the ledger's rows: what the view left out, no rule of the schedule would see."""

from typing import Any
from uuid import UUID

import pytest

from ledger.runs.run import RunRows
from ledger.runs.specs import GateKind, GateState, Phase, StepState
from ledger.runs.tables import Gate, Project, Run, RunStep
from ledger.tables import Job
from routing.decision.router import Intent
from routing.jobs import Reason, State
from workers.runs.coordinator import intent_of_route, view_of
from workers.runs.scheduling.view import GateView, RunView, StepView

RUN = UUID(int=1)
RESULT = {
    "status": "needs_rework",
    "summary": "wrong",
    "issues": [{"severity": "blocking", "title": "the total is rounded twice", "file": "src/total.ts"}],
}
STEP: dict[str, Any] = {
    "key": "m1_test",
    "agent": "qa",
    "phase": "review",
    "round": 1,
    "cycle": 2,
    "task": "Look again.",
    "context": ["fix", "src/total.ts"],
    "writes": ["tests/"],
    "depends_on": ["fix"],
    "state": "completed",
    "tries": 3,
    "changed": ["tests/total.test.ts"],
    "failure": "agent_failed",
    "detail": "it stopped",
}


def view(**route: Any) -> RunView:
    job = Job(id=RUN, state="running", priority="P0", route={"intent": "fix", "stakes": "high", **route}, mode="ACTION")
    by_hand = {"shells": [{"is_changed": True, "changed": ["src/hand.ts"]}, {"is_changed": False, "changed": ["no"]}]}
    rows = RunRows(
        job=job,
        run=Run(job_id=RUN, ticket={"labels": ["api", "ui"]}, scan="refused", scan_detail="a key"),
        project=Project(tenant="acme", name="shop"),
        steps=[RunStep(run_id=RUN, position=1, result=RESULT, **STEP)],
        executions=[],
        gates=[Gate(run_id=RUN, key="g", kind="rule", reason="r", after=["m1_test"], state="rework", facts=by_hand)],
        cancelling=frozenset({"m1_test"}),
        costs={},
        spent_nanousd=0,
        cap_nanousd=1,
    )
    return view_of(rows, has_build=True, budget_spent=True)


@pytest.mark.req("S-026", "S-102", "S-104", "S-106", "S-123", "P-031", "P-038", "S-011")
def test_the_schedule_sees_all_that_is_known_of_a_run() -> None:
    found = view()
    assert (found.state, found.intent, found.read_only) == (State.RUNNING, Intent.FIX, False)
    assert (found.priority, found.labels, found.high_stakes) == ("P0", ("api", "ui"), True)
    assert (found.has_build, found.budget_spent, found.cancel_requested) == (True, True, False)
    assert (found.scan, found.scan_detail, found.by_hand) == ("refused", "a key", ("src/hand.ts",))
    assert found.gates == (GateView("g", GateKind.RULE, "r", ("m1_test",), state=GateState.REWORK),)
    assert view(mode="ACTION", read_only=True).read_only


@pytest.mark.req("P-053", "P-036")
@pytest.mark.req("S-034", "S-035", "S-046", "S-108", "P-023", "P-029", "P-034", "P-035", "P-057", "P-058")
def test_the_schedule_sees_all_that_is_known_of_a_step() -> None:
    (found,) = view().steps
    assert isinstance(found, StepView)
    assert (found.phase, found.state, found.failure) == (Phase.REVIEW, StepState.COMPLETED, Reason.AGENT_FAILED)
    assert found.cancelling
    for name in ("key", "agent", "round", "cycle", "task", "tries", "detail"):
        assert getattr(found, name) == STEP[name], name
    for name in ("context", "writes", "depends_on", "changed"):
        assert getattr(found, name) == tuple(STEP[name]), name
    assert found.result is not None
    assert [(issue.title, issue.file) for issue in found.result.blocking] == [
        ("the total is rounded twice", "src/total.ts")
    ]


@pytest.mark.req("P-011", "P-012", "P-013", "S-020")
def test_only_words_of_repair_and_talk_spare_a_ticket_its_classification() -> None:
    assert intent_of_route({"intent": "fix"}) is Intent.FIX
    assert intent_of_route({"intent": "question"}) is Intent.QUESTION
    assert intent_of_route({"intent": "build"}) is None
    assert intent_of_route({}) is None

"""Runs of any plan with any outcomes: each step at most once and never too early, full batches, and always an end.

`Game` asserts at every move that the decision is the one a restarted coordinator would make, that no step starts before
what it depends on, that what runs together cannot collide, and that the run never waits for nothing.
"""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routing.decision.router import Intent
from routing.jobs import Reason, State, is_end
from tests.unit.workers.runs.world import BOOK, Game, Players, blocking, done, make_book, make_view, plan_of, step
from workers.runs.scheduling.actions import StartStep
from workers.runs.scheduling.planning import PlanContext, judge_plan
from workers.runs.scheduling.schedule import next_actions
from workers.runs.scheduling.view import AgentResult, GateKind, GateState, GateView, Phase, RunView, StepState, StepView

AGENTS = [
    "research",
    "architect",
    "frontend-dev",
    "backend-dev",
    "styling",
    "test-planner",
    "code-review",
    "qa",
    "security",
]
ROOM = {"frontend-dev": "src", "backend-dev": "server", "styling": "styles", "qa": "tests"}


@st.composite
def plans(draw: st.DrawFn) -> dict[str, Any]:
    """A valid plan: a random DAG whose steps each write in a place of their own, and QA at its end."""
    steps = []
    for number in range(draw(st.integers(1, 7))):
        agent = draw(st.sampled_from(AGENTS))
        before = draw(st.lists(st.integers(0, number - 1), max_size=3, unique=True)) if number else []
        room = f"{ROOM.get(agent, 'artifacts/' + agent)}/s{number}/"
        steps.append(step(f"s{number}", agent, *(f"s{index}" for index in before), writes=[room]))
    last = step("end", "qa", *(one["id"] for one in steps), writes=["tests/end/"])
    gates = [{"after": one["id"], "reason": "look"} for one in draw(st.lists(st.sampled_from(steps), max_size=2))]
    return plan_of(*steps, last, gates=tuple(gates))


OUTCOMES = st.one_of(
    st.just(done()),
    st.just(done()),
    st.integers(1, 6).map(blocking),
    st.sampled_from([done(status="needs_rework"), done(status="blocked"), blocking(2, status="needs_rework")]),
    st.sampled_from([Reason.AGENT_FAILED, Reason.WORKER_LOST, Reason.COST_CAP, Reason.TIME_LIMIT]),
)
RAW_PLANS = st.one_of(plans(), plans(), st.just({"template": "build"}), st.just({"x": 1}), st.none())


class Dealer:
    """Everyone answers at random; the draws are hypothesis's, so that a failing run is made small."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any], *, calm: bool) -> None:
        self.draw = draw
        self.calm = calm

    @property
    def gates(self) -> dict[str, GateState]:
        answer = self.draw(st.sampled_from([GateState.PASSED] * 6 + [GateState.FAILED, GateState.EXPIRED]))
        return {gate: answer for gate in ("gate_1", "gate_2", "rule_p0-review")}

    def __call__(self, step: StepView) -> AgentResult | Reason:
        if step.phase is Phase.PLAN:
            return done(plan=self.draw(RAW_PLANS))
        return done() if self.calm and self.draw(st.booleans()) else self.draw(OUTCOMES)


@settings(max_examples=30)
@given(data=st.data())
def test_any_run_ends_and_no_step_runs_twice_or_too_early(data: st.DataObject) -> None:
    draw = data.draw
    view = make_view(
        intent=draw(st.sampled_from([None, *Intent])),
        priority=draw(st.sampled_from(["P0", "P2"])),
        has_build=draw(st.booleans()),
        read_only=draw(st.booleans()) and draw(st.booleans()),
        high_stakes=draw(st.booleans()),
    )
    book = make_book(autonomy=draw(st.sampled_from(["ask", "auto"])), max_retries=draw(st.integers(0, 2)))
    game = Game(view, book, Dealer(draw, calm=draw(st.booleans())), choose=lambda r: draw(st.sampled_from(r)))
    budget_at = draw(st.one_of(st.none(), st.integers(0, 60)))
    for number, before in enumerate(game.moves()):
        if number == budget_at:
            game.view = RunView(**{**vars(before), draw(st.sampled_from(["budget_spent", "cancel_requested"])): True})

    assert is_end(game.view.state) or game.view.state is State.PUBLISHING
    for one in game.view.steps:
        assert game.executed.count(one.key) == one.tries <= 1 + book.rules.max_retries
        assert one.state is not StepState.PENDING
        assert (one.state is StepState.SKIPPED) == (one.tries == 0)
    assert game.end is None or game.end.reason is not Reason.INTERNAL_ERROR


@pytest.mark.req("P-034", "P-035")
@settings(max_examples=15)
@given(plan=plans(), data=st.data())
def test_batches_are_maximal_and_in_the_order_of_the_dependencies(plan: dict[str, Any], data: st.DataObject) -> None:
    judged = judge_plan(plan, BOOK, around=PlanContext()).plan
    assert judged is not None
    held = {one.id for one in judged.steps if BOOK.agents[one.agent].role in ("qa", "security")}
    needs = {one.id: set(one.depends_on) for one in judged.steps}
    wide = make_book(max_parallel=32)
    game = Game(make_view(), wide, Players(plan={**plan, "gates": []}), choose=lambda r: data.draw(st.sampled_from(r)))
    for view in game.moves():
        state = {one.key: one.state for one in view.steps}
        starts = {action.key for action in next_actions(view, wide).actions if isinstance(action, StartStep)}
        ready = {
            key
            for key, before in needs.items()
            if state.get(key) is StepState.PENDING and all(state[need] is StepState.COMPLETED for need in before)
        }
        assert ready - held <= starts
        assert starts & set(needs) <= ready

    assert game.published or game.view.state is State.ANSWERED


STEP_VIEWS = st.builds(
    StepView,
    key=st.sampled_from([f"k{number}" for number in range(8)]),
    agent=st.sampled_from([*AGENTS, "orchestrator", "ghost", None]),
    task=st.just("do"),
    phase=st.sampled_from(list(Phase)),
    round=st.integers(0, 4),
    cycle=st.integers(0, 3),
    depends_on=st.lists(st.sampled_from([f"k{number}" for number in range(9)]), max_size=2, unique=True).map(tuple),
    state=st.sampled_from(list(StepState)),
    tries=st.integers(0, 5),
    result=st.sampled_from([None, done(), blocking(2), done(status="needs_rework"), done(plan={"template": "build"})]),
    failure=st.sampled_from([None, *Reason]),
    changed=st.sampled_from([(), ("src/a.ts",)]),
    cancelling=st.booleans(),
)
GATE_VIEWS = st.builds(
    GateView,
    key=st.sampled_from(["gate_1", "gate_2", "rule_p0-review"]),
    kind=st.sampled_from(list(GateKind)),
    reason=st.just("look"),
    after=st.sampled_from([(), ("k0",), ("k1", "k9")]),
    state=st.sampled_from(list(GateState)),
)
VIEWS = st.builds(
    RunView,
    state=st.sampled_from(list(State)),
    intent=st.sampled_from([None, *Intent]),
    priority=st.sampled_from(["P0", "P2"]),
    has_build=st.booleans(),
    budget_spent=st.booleans(),
    cancel_requested=st.booleans(),
    scan=st.sampled_from([None, "passed", "refused"]),
    steps=st.lists(STEP_VIEWS, max_size=8, unique_by=lambda one: one.key).map(tuple),
    gates=st.lists(GATE_VIEWS, max_size=2, unique_by=lambda one: one.key).map(tuple),
)


def is_ordered(view: RunView) -> bool:
    """A step depends on steps that were recorded before it or with it: no cycle can be recorded."""
    order = [one.key for one in view.steps]
    return all(
        order.index(one.key) > order.index(need) for one in view.steps for need in one.depends_on if need in order
    )


@settings(max_examples=30)
@given(view=VIEWS.filter(is_ordered))
def test_every_view_even_one_that_cannot_be_leads_to_exactly_one_decision(view: RunView) -> None:
    decision = next_actions(view, BOOK)

    assert decision == next_actions(view, BOOK)
    assert decision.explanation
    waits_for_something = any(one.state is StepState.RUNNING for one in view.steps) or any(
        gate.state is GateState.OPEN for gate in view.gates
    )
    over = is_end(view.state) or view.state is State.PUBLISHING
    assert decision.actions or waits_for_something or over

"""Retries, halts and stops: what a failure, a budget, an owner and a person can end, and what they cannot."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from ledger.runs.specs import GateKind, GateState, NewStep, Phase, StepState
from routing.decision.router import Intent
from routing.jobs import MOVES, Reason, State, is_end
from tests.unit.workers.runs.scheduling.fake_run import (
    FIX_CHOICE,
    Game,
    Outcome,
    Players,
    done,
    make_book,
    make_view,
    plan_of,
    play,
    step,
)
from workers.runs.scheduling.ending import CancelSteps, StartStep
from workers.runs.scheduling.schedule import context_of, next_actions
from workers.runs.scheduling.view import Facts, GateView, StepView

FIX = Players(plan=FIX_CHOICE)


def fixing(answers: Mapping[str, Outcome | Sequence[Outcome]], **values: Any) -> Game:
    return play(Players(answers, plan=FIX_CHOICE), intent=Intent.FIX, **values)


def ended(game: Game) -> tuple[State, Reason]:
    assert game.end is not None, game.told
    return game.end.state, game.end.reason


@pytest.mark.req("P-006", "P-054")
@pytest.mark.parametrize("retries", [0, 1, 3])
def test_a_step_that_always_fails_is_tried_as_often_as_configured_and_then_halts(retries: int) -> None:
    game = fixing({"fix-frontend": Reason.AGENT_FAILED}, book=make_book(max_retries=retries))

    assert game.executed.count("fix-frontend") == 1 + retries
    assert game.step("fix-frontend").tries == 1 + retries
    assert ended(game) == (State.FAILED, Reason.AGENT_FAILED)


@pytest.mark.req("P-054")
def test_success_on_the_fourth_attempt_continues() -> None:
    failures = [Reason.AGENT_FAILED, Reason.WORKER_LOST, Reason.BOX_FAILED]
    game = fixing({"fix-frontend": [*failures, done()]})

    assert game.executed.count("fix-frontend") == 4
    assert game.published
    assert ended(fixing({"fix-frontend": [*failures, Reason.AGENT_FAILED, done()]})) == (
        State.FAILED,
        Reason.AGENT_FAILED,
    )


@pytest.mark.req("S-046")
def test_nothing_is_staged_of_a_step_that_still_runs() -> None:
    game = Game(make_view(), players=FIX)
    reader = NewStep(key="reader", agent="qa", task="t", phase=Phase.WORK, context=("plan_1",))
    seen = {
        one.state: context_of(reader, Facts(view, game.book))
        for view in game.moves()
        for one in view.steps
        if one.key == "plan_1"
    }
    assert seen == {StepState.PENDING: (), StepState.RUNNING: (), StepState.COMPLETED: ("plan_1",)}


@pytest.mark.req("P-054")
@pytest.mark.parametrize(
    "reason",
    [Reason.COST_CAP, Reason.TIME_LIMIT, Reason.NO_PROVIDER_KEY, Reason.COMMAND_REFUSED, Reason.SCAN_REFUSED],
)
def test_what_would_end_the_same_again_is_not_retried(reason: Reason) -> None:
    game = fixing({"fix-frontend": reason})

    assert game.executed.count("fix-frontend") == 1
    assert game.end is not None
    assert game.end.reason is reason


@pytest.mark.parametrize("reason", [Reason.PROVIDER_BUSY, Reason.WORKER_LOST, Reason.INTERNAL_ERROR, None])
def test_every_other_failure_is_retried(reason: Reason | None) -> None:
    one = StepView("dev", "frontend-dev", "do", Phase.WORK, state=StepState.FAILED, tries=1, failure=reason)

    decision = next_actions(make_view(steps=(one,)), make_book())

    assert decision.actions == (StartStep("dev", 2),)


@pytest.mark.parametrize(
    ("reason", "state"),
    [
        (Reason.COST_CAP, State.BUDGET_EXCEEDED),
        (Reason.TIME_LIMIT, State.TIMED_OUT),
        (Reason.OUTPUT_CAP, State.OUTPUT_EXCEEDED),
        (Reason.NO_PROVIDER_KEY, State.FAILED),
    ],
)
def test_the_end_of_a_run_tells_what_halted_it(reason: Reason, state: State) -> None:
    assert ended(fixing({"qa": reason})) == (state, reason)


PARALLEL = plan_of(
    step("one", "research"),
    step("two", "architect"),
    step("three", "frontend-dev", "one"),
    step("four", "backend-dev", "three", "two"),
    step("five", "qa", "four"),
)


@pytest.mark.req("P-003", "P-036", "P-053", "P-063")
def test_on_a_final_failure_siblings_finish_and_no_later_step_starts() -> None:
    game = play(Players({"one": Reason.OUTPUT_REFUSED}, plan=PARALLEL))

    assert game.executed == ["plan_1", "one", "two"]
    assert game.step("two").state is StepState.COMPLETED
    assert [game.step(key).state for key in ("three", "four", "five")] == [StepState.SKIPPED] * 3
    assert ended(game) == (State.FAILED, Reason.OUTPUT_REFUSED)


def test_a_sibling_that_fails_during_a_halt_is_not_retried_and_the_limit_that_was_hit_names_the_end() -> None:
    game = play(Players({"one": Reason.OUTPUT_REFUSED, "two": Reason.COST_CAP}, plan=PARALLEL))

    assert game.executed == ["plan_1", "one", "two"]
    assert ended(game) == (State.BUDGET_EXCEEDED, Reason.COST_CAP)


def test_a_sibling_that_could_be_retried_is_not_once_the_run_halts() -> None:
    game = play(Players({"one": Reason.OUTPUT_REFUSED, "two": Reason.AGENT_FAILED}, plan=PARALLEL))

    assert game.executed == ["plan_1", "one", "two"]
    assert ended(game) == (State.FAILED, Reason.OUTPUT_REFUSED)


def test_a_summary_that_fails_for_good_halts_like_any_agent() -> None:
    game = fixing({"orchestrator:summary": Reason.AGENT_FAILED})

    assert game.executed.count("summary_1") == 4
    assert not game.published


@pytest.mark.req("P-007")
def test_after_any_interruption_completed_steps_are_not_run_again() -> None:
    whole = play(FIX, intent=Intent.FIX)
    for cut in range(len(whole.log)):
        game = Game(make_view(intent=Intent.FIX), players=Players(plan=FIX_CHOICE))
        for number, _ in enumerate(game.moves()):
            if number == cut:
                break
        resumed = Game(game.view, players=game.players).play()  # another process, which has the view alone
        assert resumed.view.state is State.PUBLISHING
        assert not set(resumed.executed) & {
            one.key for one in game.view.steps if one.state in (StepState.COMPLETED, StepState.RUNNING)
        }
        assert [*game.executed, *resumed.executed] == whole.executed


@pytest.mark.req("P-038", "S-011", "S-123", "S-021")
def test_once_the_budget_is_spent_the_batch_under_way_ends_and_no_further_one_starts() -> None:
    game = Game(make_view(), players=Players(plan=PARALLEL))
    for view in game.moves():
        if {"one", "two"} == {one.key for one in game.running()}:
            game.view = replace(view, budget_spent=True)

    assert game.executed == ["plan_1", "one", "two"]
    assert game.step("two").state is StepState.COMPLETED
    assert game.step("three").state is StepState.SKIPPED
    assert ended(game) == (State.BUDGET_EXCEEDED, Reason.COST_CAP)


@pytest.mark.req("S-124", "S-123")
def test_a_rework_loop_stops_before_the_step_that_the_budget_has_no_room_for() -> None:
    game = Game(make_view(), players=Players({"qa": done(status="needs_rework")}, plan=PARALLEL))
    for view in game.moves():
        if "r1_one" in game.executed:
            game.view = replace(view, budget_spent=True)

    assert "r1_three" not in game.executed
    assert ended(game) == (State.BUDGET_EXCEEDED, Reason.COST_CAP)
    assert game.step("four").state is StepState.COMPLETED


@pytest.mark.req("S-123")
def test_a_budget_that_is_spent_before_the_first_step_starts_nothing() -> None:
    assert play(budget_spent=True).executed == []


def test_a_budget_that_the_last_step_used_up_does_not_take_the_result_away() -> None:
    game = Game(make_view(), players=Players(plan=PARALLEL))
    for view in game.moves():
        if view.steps and view.steps[-1].phase is Phase.SUMMARY and view.steps[-1].state is StepState.COMPLETED:
            game.view = replace(view, budget_spent=True)
            break
    assert Game(game.view).play().published


def test_a_cancelled_run_cancels_what_runs_skips_the_rest_and_ends_once() -> None:
    game = Game(make_view(), players=Players(plan=PARALLEL))
    for view in game.moves():
        if len(game.running()) == 2 and not view.cancel_requested:
            game.view = replace(view, cancel_requested=True)

    cancels = [action for decision in game.log for action in decision.actions if isinstance(action, CancelSteps)]
    assert cancels == [CancelSteps(("one", "two"))]
    assert game.executed == ["plan_1", "one", "two"]
    assert ended(game) == (State.CANCELLED, Reason.CANCELLED)


@pytest.mark.parametrize("state", [state for state in State if is_end(state) or state is State.PUBLISHING])
def test_a_run_that_is_over_or_being_published_makes_no_move(state: State) -> None:
    one = StepView("dev", "frontend-dev", "do", Phase.WORK)

    assert next_actions(make_view(state=state, steps=(one,), cancel_requested=True), make_book()).actions == ()


def test_every_end_of_a_run_can_be_reached_by_a_move_of_the_ledger_or_by_way_of_a_gate() -> None:
    reachable = MOVES[State.RUNNING] | MOVES[State.AWAITING_APPROVAL]
    for state in (State.REJECTED, State.EXPIRED, State.ESCALATED, State.BUDGET_EXCEEDED, State.CANCELLED):
        assert state in reachable


def test_a_view_that_no_rule_leads_to_ends_as_a_defect_and_does_not_wait_for_ever() -> None:
    skipped = StepView("early", "research", "do", Phase.WORK, state=StepState.SKIPPED)
    late = StepView("late", "architect", "do", Phase.WORK, depends_on=("early",))

    (action,) = next_actions(make_view(steps=(skipped, late)), make_book()).actions[-1:]

    assert getattr(action, "reason", None) is Reason.INTERNAL_ERROR


@pytest.mark.parametrize("state", list(GateState))
def test_a_waiting_gate_holds_only_what_depends_on_it(state: GateState) -> None:
    steps = (
        StepView("design", "architect", "do", Phase.WORK, state=StepState.COMPLETED, tries=1, result=done()),
        StepView("build", "backend-dev", "do", Phase.WORK, depends_on=("design",)),
        StepView("look", "research", "do", Phase.WORK),
    )
    gate = GateView("gate_1", GateKind.PLAN, "dear to undo", ("design",), state)
    decision = next_actions(make_view(steps=steps, gates=(gate,)), make_book())
    started = {action.key for action in decision.actions if isinstance(action, StartStep)}

    if state in (GateState.PASSED, GateState.SKIPPED):
        assert started == {"build", "look"}
    elif state is GateState.OPEN:
        assert started == {"look"}
    else:
        assert started == set()

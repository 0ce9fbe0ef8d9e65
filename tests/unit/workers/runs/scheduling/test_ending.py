"""Where a person looks: rules that nobody can skip, suggestions that may be, and what an answer does to the run."""

from dataclasses import replace
from typing import Any

import pytest

from ledger.runs.specs import AGAIN, GateKind, GateState, Phase
from routing.jobs import Reason, State
from routing.policy.agents import GateRule, MandatoryRules
from tests.unit.workers.runs.scheduling.fake_run import (
    BOOK,
    Game,
    Outcome,
    Players,
    blocking,
    done,
    make_book,
    make_view,
    plan_of,
    play,
    step,
)
from workers.runs.scheduling.ending import AddSteps, AdoptPlan, OpenGate, ScanChanges, StartStep
from workers.runs.scheduling.remedies import begin_rework
from workers.runs.scheduling.view import Facts, GateView, Rulebook, StepView

PLAN = plan_of(step("design", "architect"), step("dev", "backend-dev", "design"), step("test", "qa", "dev"))
SUGGESTED = {**PLAN, "gates": [{"after": "test", "reason": "it touches payment"}]}
EARLY = {**PLAN, "gates": [{"after": "design", "reason": "the schema is dear to undo"}]}
LOOKS = plan_of(step("look", "research"), gates=({"after": "look", "reason": "it decides what we build"},))
AUDIT = plan_of(step("audit", "security"), gates=({"after": "audit", "reason": "who reads the report"},))


def with_rule(**values: Any) -> Rulebook:
    rules = BOOK.rules.rules
    rule = GateRule.model_validate({"name": "api-review", "reason": "API changes are looked at", **values})
    return make_book(rules=MandatoryRules(steps=rules.steps, gates=(*rules.gates, rule)))


def opened(game: Game) -> list[str]:
    return [action.gate.key for decision in game.log for action in decision.actions if isinstance(action, OpenGate)]


@pytest.mark.req("S-026", "S-097", "S-101")
@pytest.mark.parametrize("plan", [PLAN, {"template": "build"}, {"template": "fix", "scopes": ["backend"]}])
def test_p0_work_waits_for_a_person_after_qa_whatever_the_plan_says(plan: dict[str, Any]) -> None:
    game = Game(make_view(priority="P0"), players=Players(plan=plan))
    for view in game.moves():
        if any(gate.state is GateState.OPEN for gate in view.gates):
            break

    qa = next(one for one in game.view.steps if one.agent == "qa")
    assert qa.state.value == "completed"
    assert opened(game) == ["rule_p0-review"]
    assert "summary_1" not in game.executed
    assert not game.running()
    assert game.view.state is State.RUNNING


@pytest.mark.parametrize("priority", ["P1", "P2", "P3"])
def test_other_priorities_have_no_gate_by_default(priority: str) -> None:
    assert opened(play(Players(plan=PLAN), priority=priority)) == []


@pytest.mark.req("S-101")
def test_the_person_is_shown_what_was_mended_and_scanned_and_not_what_qa_saw_first() -> None:
    game = play(Players({"qa": [blocking(2), done()]}, plan=PLAN), priority="P0")
    moves = [action for decision in game.log for action in decision.actions]

    gate = next(number for number, action in enumerate(moves) if isinstance(action, OpenGate))
    mended = next(number for number, action in enumerate(moves) if getattr(action, "key", "") == "m1_test")
    scanned = next(number for number, action in enumerate(moves) if isinstance(action, ScanChanges))
    assert mended < scanned < gate
    assert game.published


@pytest.mark.req("S-100", "S-102")
@pytest.mark.parametrize(
    ("rule", "view", "expected"),
    [
        ({"labels": ["API"]}, {"labels": ("api", "shop")}, True),
        ({"labels": ["API"]}, {"labels": ("shop",)}, False),
        ({"paths": ["src/"]}, {}, True),
        ({"paths": ["server/"]}, {}, False),
        ({"priorities": ["P1"], "paths": ["src/"]}, {"priority": "P2"}, False),
        ({}, {}, True),
    ],
)
def test_a_rule_of_the_project_adds_a_gate_where_label_path_or_priority_match(
    rule: dict[str, Any], view: dict[str, Any], expected: bool
) -> None:
    game = play(Players(plan=PLAN), book=with_rule(**rule), **view)

    assert opened(game) == (["rule_api-review"] if expected else [])
    assert game.published


@pytest.mark.req("S-102")
def test_a_rule_about_paths_sees_what_was_changed_by_mending_too() -> None:
    def changes(one: StepView) -> tuple[str, ...]:
        return ("server/api.ts",) if one.phase is Phase.REMEDY else ("src/x.ts",)

    mended = Players({"qa": [blocking(1), done()]}, plan=PLAN)
    game = play(mended, book=with_rule(paths=["server/"]), changes=changes)

    assert opened(game) == ["rule_api-review"]


def test_a_rule_after_an_agent_stands_after_its_last_step_and_holds_what_depends_on_it() -> None:
    game = play(Players(plan=PLAN), book=with_rule(after="architect"))
    moves = [action for decision in game.log for action in decision.actions]

    gate = next(number for number, action in enumerate(moves) if isinstance(action, OpenGate))
    dev = next(n for n, action in enumerate(moves) if isinstance(action, StartStep) and action.key == "dev")
    assert gate < dev


@pytest.mark.req("S-037", "S-103")
def test_a_gate_of_the_plan_is_honoured_before_anything_that_depends_on_its_step() -> None:
    game = Game(make_view(), players=Players(plan=EARLY))
    for view in game.moves():
        if any(gate.state is GateState.OPEN for gate in view.gates):
            break

    assert game.executed == ["plan_1", "design"]
    assert "the schema is dear to undo" in game.log[-1].explanation
    assert Game(game.view, players=game.players).play().published


@pytest.mark.req("S-037")
def test_gates_of_the_plan_come_beside_those_of_the_rules() -> None:
    game = play(Players(plan={**SUGGESTED, "gates": [*EARLY["gates"], *SUGGESTED["gates"]]}), priority="P0")

    assert opened(game) == ["gate_1", "gate_2", "rule_p0-review"]
    assert game.published


@pytest.mark.req("S-104", "S-106")
def test_with_autonomy_low_risk_tested_work_skips_optional_gates_only() -> None:
    auto = with_rule().rules.model_copy(update={"autonomy": "auto"})
    book = Rulebook(auto, BOOK.agents, BOOK.redact)
    game = play(Players(plan=SUGGESTED), book=book)

    assert opened(game) == ["rule_api-review"]
    assert {gate.key: gate.state for gate in game.view.gates} == {
        "gate_1": GateState.SKIPPED,
        "rule_api-review": GateState.PASSED,
    }
    assert game.published


@pytest.mark.req("S-104", "S-106")
def test_without_autonomy_nothing_is_skipped() -> None:
    assert opened(play(Players(plan=SUGGESTED))) == ["gate_1"]
    assert opened(play(Players(plan=SUGGESTED), book=make_book(autonomy="auto"))) == []


@pytest.mark.req("S-104")
@pytest.mark.parametrize(
    ("players", "view"),
    [
        (Players(plan=SUGGESTED), {"priority": "P0"}),
        (Players(plan=SUGGESTED), {"high_stakes": True}),
        (Players({"qa": [done(status="needs_rework"), done()]}, plan=SUGGESTED), {}),
        (Players(plan=EARLY), {}),
        (Players(plan=LOOKS), {}),
        (Players({"security": blocking(1)}, plan=AUDIT), {}),
    ],
    ids=["p0", "high stakes", "reworked", "not tested yet", "never tested", "with a finding"],
)
def test_what_is_not_low_risk_or_not_tested_asks_even_with_autonomy(players: Players, view: dict[str, Any]) -> None:
    assert "gate_1" in opened(play(players, book=make_book(autonomy="auto"), **view))


@pytest.mark.req("S-101", "S-104")
@pytest.mark.parametrize("priority", ["P0", "P1"])
def test_autonomy_never_opens_a_rule(priority: str) -> None:
    game = play(Players(plan=PLAN), book=make_book(autonomy="auto"), priority=priority)

    assert opened(game) == (["rule_p0-review"] if priority == "P0" else [])
    assert all(gate.state is GateState.PASSED for gate in game.view.gates if gate.kind is GateKind.RULE)


@pytest.mark.parametrize(
    ("answer", "state", "reason"),
    [
        (GateState.FAILED, State.REJECTED, Reason.REVIEWER_REJECTED),
        (GateState.EXPIRED, State.EXPIRED, Reason.APPROVAL_EXPIRED),
    ],
)
@pytest.mark.parametrize("plan", [EARLY, SUGGESTED])
def test_a_gate_that_fails_or_expires_ends_the_run(
    answer: GateState, state: State, reason: Reason, plan: dict[str, Any]
) -> None:
    game = play(Players(plan=plan, gates={"gate_1": answer}))

    assert game.end is not None
    assert (game.end.state, game.end.reason) == (state, reason)
    assert not game.published


def test_a_gate_that_fails_stops_what_still_runs() -> None:
    plan = plan_of(step("design", "architect"), step("look", "research"), gates=EARLY["gates"])
    game = Game(make_view(), players=Players(plan=plan), choose=lambda running: running[0])
    for view in game.moves():
        if any(gate.state is GateState.OPEN for gate in view.gates) and game.running():
            game.answer("gate_1", GateState.FAILED)

    assert game.end is not None
    assert game.end.state is State.REJECTED
    assert game.step("look").failure is Reason.CANCELLED


def test_work_that_is_sent_back_at_one_gate_is_reworked_whatever_other_gates_are_called() -> None:
    rules = BOOK.rules.rules
    both = [GateRule(name=name, reason=name, paths=("src/",)) for name in ("legal", "legal-review")]
    book = make_book(rules=MandatoryRules(steps=rules.steps, gates=(*rules.gates, *both)))
    answers = {"rule_legal": GateState.REWORK}
    game = play(Players({"orchestrator": [done(plan=PLAN), done(plan=PLAN)]}, gates=answers), book=book)

    assert game.executed.index("r1_dev") > game.executed.index("dev")
    assert "rule_legal-r1" in opened(game)
    assert game.published


@pytest.mark.req("S-101")
@pytest.mark.parametrize("names", [("legal", "security"), ("security", "legal")])
def test_who_has_passed_the_work_at_another_gate_is_asked_again_about_what_was_reworked(names: tuple[str, ...]) -> None:
    rules = BOOK.rules.rules
    both = [GateRule(name=name, reason=name, paths=("src/",)) for name in names]
    book = make_book(rules=MandatoryRules(steps=rules.steps, gates=(*rules.gates, *both)))
    answers = {"rule_legal": GateState.REWORK, "rule_legal-r1": GateState.REWORK}
    game = play(Players({"orchestrator": [done(plan=PLAN)]}, gates=answers), book=book)

    assert sorted(opened(game)[2:]) == ["rule_legal-r1", "rule_legal-r1-r2", "rule_security-r1", "rule_security-r1-r2"]
    assert game.published


def test_who_was_asked_again_after_a_change_by_hand_is_asked_once_after_rework() -> None:
    view = make_view()
    old, new, other = (GateView(key, GateKind.RULE, key, (), GateState.PASSED) for key in ("a", f"a{AGAIN}", "b"))
    other = replace(other, state=GateState.REWORK)
    facts = Facts(replace(view, gates=(old, new, other)), BOOK)

    decision = begin_rework(facts, (), why="sent back", sent_back=other)

    (added,) = decision.actions
    assert isinstance(added, AddSteps)
    assert [gate.key for gate in added.asked_after] == [f"a{AGAIN}-r1", "b-r1"]


def test_a_plan_is_stored_with_its_gates_and_those_of_the_rules() -> None:
    game = play(Players(plan=EARLY), priority="P0")
    (adopted,) = [action for decision in game.log for action in decision.actions if isinstance(action, AdoptPlan)]

    assert [(gate.kind, gate.after) for gate in adopted.gates] == [(GateKind.PLAN, ("design",)), (GateKind.RULE, ())]


def test_a_gate_of_a_rework_plan_holds_its_round() -> None:
    rework = plan_of(
        step("drop", "backend-dev"),
        step("move", "backend-dev", "drop"),
        step("again", "qa", "move"),
        gates=({"after": "drop", "reason": "it drops a column"},),
    )
    planned: list[Outcome] = [done(plan=PLAN), done(plan=rework)]
    game = play(Players({"test": done(status="needs_rework"), "orchestrator": planned}))

    assert opened(game) == ["r1_gate_1"]
    assert game.published

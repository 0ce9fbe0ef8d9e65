"""The pipelines of seed 003, played from the ticket to the pull request: who works, in what order, beside whom."""

import pytest

from routing.decision.router import Intent
from routing.jobs import Reason, State
from tests.unit.workers.runs.world import BUILD_CHOICE, FIX_CHOICE, Game, Players, done, make_book, plan_of, play, step
from workers.runs.scheduling.actions import StartStep
from workers.runs.scheduling.plan import BuildChoice, SequentialChoice, expand_template, find_overlap
from workers.runs.scheduling.view import Phase, StepState

REVIEWERS = ("code-review", "qa", "security")


def contexts_of(game: Game) -> dict[str, tuple[str, ...]]:
    moves = [action for decision in game.log for action in decision.actions]
    return {action.key: action.context for action in moves if isinstance(action, StartStep)}


def build_choice(parts: int, *, backend: bool) -> dict[str, object]:
    made = [{"task": f"part {number}", "writes": [f"src/features/part-{number}/"]} for number in range(parts)]
    return {**BUILD_CHOICE, "parts": made, "backend": "an endpoint" if backend else None}


@pytest.mark.req("P-002", "P-014", "P-015", "P-016", "P-017", "P-018", "P-019", "P-020", "P-021", "P-022", "P-024")
@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("backend", [True, False])
def test_a_build_runs_in_the_phases_of_the_pipeline(parts: int, backend: bool) -> None:
    game = play(Players(plan=build_choice(parts, backend=backend)))

    frontends = tuple(f"frontend-{number}" for number in range(1, parts + 1))
    assert game.batches == [
        ("plan_1",),
        ("research", "architect"),
        ("setup",),
        frontends,
        ("app",),
        *([("backend",)] if backend else []),
        ("styling",),
        REVIEWERS,
        ("summary_1",),
    ]
    assert game.published


@pytest.mark.req("P-016", "P-017", "P-018", "P-019", "P-020")
def test_each_step_of_a_build_is_its_own_agent_s_and_the_developer_sets_up_before_it_builds() -> None:
    plan = expand_template(BuildChoice.model_validate(build_choice(1, backend=True)))

    assert {one.id: one.agent for one in plan.steps} == {
        "research": "research",
        "architect": "architect",
        "setup": "frontend-dev",
        "frontend-1": "frontend-dev",
        "app": "frontend-dev",
        "backend": "backend-dev",
        "styling": "styling",
        **{name: name for name in REVIEWERS},
    }
    tasks = {one.id: one.task.partition(":")[0] for one in plan.steps}
    assert (tasks["setup"], tasks["frontend-1"], tasks["app"]) == ("Prepare the project", "part 0", "Join the parts")


@pytest.mark.req("P-014", "P-017", "P-022", "P-035")
def test_what_the_pipeline_draws_side_by_side_depends_on_nothing_of_each_other() -> None:
    plan = expand_template(BuildChoice.model_validate(build_choice(3, backend=True)))
    needs = {one.id: one.depends_on for one in plan.steps}

    assert needs["research"] == needs["architect"] == ()
    assert {needs[f"frontend-{number}"] for number in (1, 2, 3)} == {("setup",)}
    assert needs["app"] == ("frontend-1", "frontend-2", "frontend-3")
    assert {needs[name] for name in REVIEWERS} == {("styling",)}


@pytest.mark.req("P-058", "S-047")
def test_parallel_frontend_steps_share_no_directory_and_only_app_may_touch_what_joins_them() -> None:
    game = play(Players(plan=build_choice(3, backend=False)))

    parts = [game.step(f"frontend-{number}").writes for number in (1, 2, 3)]
    assert not any(find_overlap(one, other) for one in parts for other in parts if one is not other)
    assert not any(find_overlap(part, ("src/app.tsx", "package.json", "app/")) for part in parts)
    assert find_overlap(game.step("app").writes, ("src/app.tsx",))


@pytest.mark.req("P-026", "P-027", "P-028", "P-030")
@pytest.mark.parametrize(
    ("scopes", "developers"),
    [
        (["frontend"], ["fix-frontend"]),
        (["backend"], ["fix-backend"]),
        (["styling"], ["fix-styling"]),
        (["backend", "frontend"], ["fix-backend", "fix-frontend"]),
        (["frontend", "backend", "styling"], ["fix-frontend", "fix-backend", "fix-styling"]),
    ],
)
def test_a_fix_runs_test_planner_developers_by_scope_reviewers_and_summary(
    scopes: list[str], developers: list[str]
) -> None:
    game = play(Players(plan={**FIX_CHOICE, "scopes": scopes}), intent=Intent.FIX)

    made = [(name,) for name in developers]
    assert game.batches == [("plan_1",), ("test-planner",), *made, REVIEWERS, ("summary_1",)]
    agents = {"frontend": "frontend-dev", "backend": "backend-dev", "styling": "styling"}
    assert [game.step(name).agent for name in developers] == [agents[scope] for scope in scopes]


@pytest.mark.req("P-008")
def test_the_sequential_template_has_the_order_of_the_first_version() -> None:
    plan = expand_template(SequentialChoice(template="sequential"))
    game = play(Players(plan={"template": "sequential"}))

    order = ["research", "architect", "frontend-dev", "styling", "qa", "security"]
    assert [one.agent for one in plan.steps] == order
    assert game.batches == [("plan_1",), *((name,) for name in order), ("summary_1",)]


@pytest.mark.req("P-012")
def test_a_question_is_one_step_and_nothing_is_published() -> None:
    game = play(intent=Intent.QUESTION)

    assert game.batches == [("answer",)]
    assert game.step("answer").agent == "orchestrator:question"
    assert game.end is not None
    assert game.end.state is State.ANSWERED


def test_an_order_that_only_looks_goes_to_research_whatever_its_intent_is() -> None:
    game = play(intent=Intent.BUILD, read_only=True, priority="P0")

    assert game.batches == [("answer",)]
    assert game.step("answer").agent == "research"
    assert game.end is not None
    assert game.end.state is State.ANSWERED


def test_a_question_that_nobody_can_answer_goes_to_a_person() -> None:
    game = play(Players({"answer": done(status="blocked")}), intent=Intent.QUESTION)

    assert game.end is not None
    assert (game.end.state, game.end.reason) == (State.ESCALATED, Reason.AGENT_BLOCKED)


@pytest.mark.req("P-012", "P-013")
@pytest.mark.parametrize(("said", "template"), [("fix", "test-planner"), ("build", "research")])
def test_where_the_rules_cannot_tell_the_classifier_runs_first_and_decides_the_pipeline(
    said: str, template: str
) -> None:
    broken = done(plan={"steps": "none"})
    players = Players({"orchestrator:classify": done(intent=said), "orchestrator": broken})
    game = play(players, intent=None)

    assert game.executed[0] == "classify_1"
    assert game.step("classify_1").agent == "orchestrator:classify"
    assert template in game.batches[3]


def test_a_known_intent_costs_no_call_unless_the_policy_wants_one_always() -> None:
    assert "classify_1" not in play(intent=Intent.FIX).executed
    assert play(intent=Intent.FIX, book=make_book(intent_classifier="always")).executed[0] == "classify_1"
    assert "classify_1" not in play(intent=Intent.QUESTION, book=make_book(intent_classifier="always")).executed


def test_a_ticket_that_cannot_be_classified_is_built() -> None:
    game = play(Players({"classify_1": Reason.AGENT_FAILED, "orchestrator": done()}), intent=None)

    assert game.executed[:4] == ["classify_1"] * 4
    assert "research" in game.executed
    assert game.published


def test_a_ticket_whose_classification_is_refused_for_money_is_not_built() -> None:
    game = play(Players({"classify_1": Reason.COST_CAP}), intent=None)

    assert game.executed == ["classify_1"]
    assert game.end is not None
    assert game.end.state is State.BUDGET_EXCEEDED


@pytest.mark.req("S-017")
def test_a_mixed_ticket_is_one_run_with_developer_qa_and_ui_steps_in_the_orchestrators_own_order() -> None:
    plan = plan_of(
        step("reproduce", "test-planner"),
        step("repair-total", "backend-dev", "reproduce"),
        step("add-coupon", "frontend-dev", "repair-total"),
        step("restyle", "styling", "add-coupon"),
        step("test", "qa", "restyle"),
    )
    game = play(Players(plan=plan), intent=None)

    work = [one.key for one in game.view.steps if one.phase is Phase.WORK]
    assert work == ["reproduce", "repair-total", "add-coupon", "restyle", "test"]
    assert game.executed == ["classify_1", "plan_1", *work, "summary_1"]
    assert game.published


@pytest.mark.req("S-035", "P-034")
def test_the_order_of_an_own_plan_is_followed_batch_by_batch() -> None:
    plan = plan_of(
        step("late", "backend-dev", "early"),
        step("early", "research"),
        step("beside", "architect"),
        step("last", "qa", "late", "beside"),
    )
    game = play(Players(plan=plan))

    assert game.batches[1:5] == [("early", "beside"), ("late",), ("last",), ("summary_1",)]


@pytest.mark.req("P-035")
def test_every_ready_step_starts_in_one_batch_up_to_what_may_run_together() -> None:
    steps = [step(f"part-{number}", "frontend-dev", writes=[f"src/features/part-{number}/"]) for number in range(6)]
    plan = plan_of(*steps, step("test", "qa", *(f"part-{number}" for number in range(6))))
    wide = play(Players(plan=plan), book=make_book(max_parallel=6))
    narrow = play(Players(plan=plan), book=make_book(max_parallel=4))

    assert wide.batches[1] == tuple(f"part-{number}" for number in range(6))
    assert narrow.batches[1] == tuple(f"part-{number}" for number in range(4))
    assert narrow.published


@pytest.mark.req("S-039")
def test_a_step_is_given_what_it_depends_on_and_what_the_plan_names() -> None:
    game = play(Players(plan=build_choice(1, backend=True)))
    starts = contexts_of(game)

    assert set(starts["app"]) == {"frontend-1", "research", "architect"}
    assert {"research", "architect"} <= set(starts["security"]) & set(starts["qa"])
    assert starts["research"] == ()


def test_a_run_that_changes_nothing_ends_without_a_pull_request() -> None:
    plan = plan_of(step("look", "research"))
    game = play(Players(plan=plan))

    assert game.executed == ["plan_1", "look", "summary_1"]
    assert game.end is not None
    assert game.end.state is State.ANSWERED
    assert game.view.scan is None


def test_changes_that_the_scan_refuses_are_neither_shown_to_a_person_nor_published() -> None:
    game = play(scan="refused", priority="P0")

    assert game.end is not None
    assert (game.end.state, game.end.reason) == (State.FAILED, Reason.SCAN_REFUSED)
    assert not game.published
    assert all(gate.state.value == "planned" for gate in game.view.gates)
    assert all(one.state is StepState.COMPLETED for one in game.view.steps)

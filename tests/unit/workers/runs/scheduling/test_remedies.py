"""The build check with its one fix, and the remediation loop: twice at most, and no more once it stops helping."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from ledger.runs.specs import Phase
from routing.decision.router import Intent
from routing.jobs import Reason, State
from tests.unit.workers.runs.scheduling.fake_run import (
    BUILD_CHOICE,
    FIX_CHOICE,
    Game,
    Outcome,
    Players,
    blocking,
    done,
    make_book,
    plan_of,
    play,
    step,
)
from tests.unit.workers.runs.scheduling.test_scheduling import contexts_of
from workers.runs.scheduling.ending import AdoptPlan

MINOR = [{"severity": "minor", "title": "a long line"}] * 9
REVIEWERS = ("code-review", "qa", "security")


def fixing(answers: Mapping[str, Outcome | Sequence[Outcome]], **values: Any) -> Game:
    return play(Players(answers, plan=FIX_CHOICE), intent=Intent.FIX, **values)


def cycles(game: Game, round: int = 0) -> int:
    return max((one.cycle for one in game.view.steps if one.phase is Phase.REMEDY and one.round == round), default=0)


def counted(*counts: int) -> dict[str, list[Outcome]]:
    """QA finds so many issues, review after review, and nobody else any."""
    return {"qa": [blocking(count) for count in counts]}


@pytest.mark.req("P-023", "P-024", "P-029")
def test_findings_are_mended_and_all_reviewers_look_again_side_by_side() -> None:
    game = fixing(counted(3, 0))

    assert game.batches[3:] == [
        REVIEWERS,
        ("m1_fix_frontend-dev",),
        ("m1_code-review", "m1_qa", "m1_security"),
        ("summary_1",),
    ]
    assert game.published


@pytest.mark.req("P-023", "P-029")
@pytest.mark.parametrize("template", ["build", "fix"])
def test_findings_that_get_fewer_but_stay_are_mended_exactly_twice(template: str) -> None:
    plan = FIX_CHOICE if template == "fix" else {"template": "build"}
    game = play(Players(counted(9, 7, 5), plan=plan), book=make_book(rework_cycles=0))

    assert cycles(game) == 2
    assert game.end is not None
    assert game.end.state is State.ESCALATED


@pytest.mark.req("P-029", "P-057")
@pytest.mark.parametrize("intent", [Intent.BUILD, Intent.FIX])
@pytest.mark.parametrize(("after", "expected"), [(5, 1), (6, 1), (3, 2), (4, 2)])
def test_the_loop_ends_early_when_issues_do_not_get_fewer(after: int, expected: int, intent: Intent) -> None:
    plan = FIX_CHOICE if intent is Intent.FIX else BUILD_CHOICE
    assert cycles(play(Players(counted(5, after, 0), plan=plan), intent=intent)) == expected


@pytest.mark.req("P-057")
def test_each_cycle_is_measured_by_the_one_before_it() -> None:
    assert cycles(fixing(counted(9, 5, 7, 0), book=make_book(remediation_cycles=4, rework_cycles=0))) == 2


@pytest.mark.req("P-057")
@pytest.mark.parametrize(
    ("by_qa", "by_security", "expected"),
    [
        ([blocking(3), blocking(1)], [blocking(2), blocking(4)], 1),
        ([blocking(3), blocking(2), done()], [blocking(2), blocking(2), done()], 2),
        ([done(issues=[*blocking(3).issues, *MINOR]), blocking(3)], done(), 1),
    ],
    ids=["moved", "fewer", "minor ones do not count"],
)
def test_blocking_issues_are_counted_over_all_reviewers(by_qa: Any, by_security: Any, expected: int) -> None:
    found = {"qa": by_qa, "security": by_security}

    assert cycles(fixing({**found, "r1_qa": done(), "r1_security": done()})) == expected


def test_minor_issues_are_nobodys_work() -> None:
    assert cycles(fixing({"qa": done(issues=MINOR)})) == 0


@pytest.mark.req("P-023")
def test_the_number_of_cycles_is_a_setting() -> None:
    assert cycles(fixing(counted(9, 8, 7, 6, 5, 0), book=make_book(remediation_cycles=4))) == 4
    assert cycles(fixing(counted(9, 0), book=make_book(remediation_cycles=0))) == 0


def test_a_finding_goes_to_whoever_changed_the_file() -> None:
    plan = {**FIX_CHOICE, "scopes": ["frontend", "backend", "styling"]}
    found = done(
        issues=[
            {"severity": "blocking", "title": "a", "file": "src/fix-backend.ts"},
            {"severity": "blocking", "title": "b", "file": "src/fix-frontend.ts"},
            {"severity": "blocking", "title": "c", "file": "styles/print.css"},
        ]
    )
    game = play(Players({"qa": [found, done()]}, plan=plan), intent=Intent.FIX)

    fixes = {one.agent: one.task for one in game.view.steps if one.phase is Phase.REMEDY}
    assert {agent: task.split("] ")[1][0] for agent, task in fixes.items()} == {
        "backend-dev": "a",
        "frontend-dev": "b",
        "styling": "c",
    }


def test_developers_whose_files_overlap_mend_one_after_the_other() -> None:
    plan = {**FIX_CHOICE, "scopes": ["frontend", "backend"]}
    found = {
        "qa": [blocking(1, file="src/fix-frontend.ts"), done()],
        "security": [blocking(1, file="src/fix-backend.ts"), done()],
    }
    game = play(Players(found, plan=plan), intent=Intent.FIX)

    assert [batch for batch in game.batches if batch[0].startswith("m1_fix")] == [
        ("m1_fix_frontend-dev",),
        ("m1_fix_backend-dev",),
    ]


@pytest.mark.req("S-018")
def test_qa_looks_again_after_mending_even_where_it_had_no_part_before() -> None:
    plan = plan_of(step("dev", "backend-dev"), step("design", "architect", "dev"), step("test", "qa", "design"))
    audit = plan_of(step("audit", "security"))
    planned: list[Outcome] = [done(plan=plan), done(plan=audit)]
    found: list[Outcome] = [blocking(1), done()]
    game = play(Players({"design": done(status="needs_rework"), "security": found, "orchestrator": planned}))

    assert game.batches[4:7] == [("r1_audit",), ("r1_m1_fix_backend-dev",), ("r1_m1_audit", "r1_m1_rule_qa")]
    assert game.published


def test_what_reviewers_find_where_nothing_is_made_is_the_outcome_and_not_mended() -> None:
    game = play(Players({"audit": blocking(4)}, plan=plan_of(step("audit", "security"))))

    assert game.executed == ["plan_1", "audit", "summary_1"]


def test_a_reviewer_that_fills_in_fields_of_others_is_taken_for_what_it_is() -> None:
    odd = blocking(1, plan={"template": "build"}, intent="fix", answer="no")
    game = fixing({"qa": [odd, odd, done()]})

    assert "r1_plan_1" in game.executed
    assert game.published


@pytest.mark.req("P-031")
@pytest.mark.parametrize("scope", ["frontend", "backend"])
def test_a_build_that_fails_gets_one_targeted_fix_and_the_same_check_again(scope: str) -> None:
    plan = {**FIX_CHOICE, "scopes": ["frontend", "backend"]}
    broken = blocking(2, file=f"src/fix-{scope}.ts")
    game = play(Players({"build_0": broken}, plan=plan), intent=Intent.FIX, has_build=True)

    assert game.batches[2:7] == [("fix-frontend",), ("fix-backend",), ("build_0",), ("repair_0",), ("rebuild_0",)]
    assert game.step("repair_0").agent == f"{scope}-dev"
    assert game.step("repair_0").context == ("build_0",)
    assert game.batches[7] == REVIEWERS
    assert game.published


@pytest.mark.req("P-031")
def test_a_build_that_still_fails_is_not_reviewed_but_reworked() -> None:
    game = fixing(
        {"build_0": blocking(1), "rebuild_0": blocking(1), "orchestrator": [done(plan=FIX_CHOICE)] * 2}, has_build=True
    )

    assert game.executed.index("r1_plan_1") < game.executed.index("qa")
    assert game.executed.count("repair_0") == 1
    assert game.step("r1_plan_1").depends_on == ("rebuild_0",)
    assert game.published


def test_a_build_that_cannot_be_tried_is_retried_like_a_step() -> None:
    game = fixing({"build_0": [Reason.BOX_FAILED, done()]}, has_build=True)

    assert game.executed.count("build_0") == 2
    assert "repair_0" not in game.executed


def test_the_build_is_checked_after_every_mending() -> None:
    game = fixing(counted(2, 1, 0), has_build=True)

    assert [one.key for one in game.view.steps if one.phase is Phase.CHECK] == ["build_0", "build_1", "build_2"]
    for mended, checked, reviewed in (("m1_fix_frontend-dev", "build_1", "m1_qa"),):
        assert game.executed.index(mended) < game.executed.index(checked) < game.executed.index(reviewed)


def test_without_a_build_command_nothing_is_checked() -> None:
    assert not [one for one in fixing({}).view.steps if one.phase is Phase.CHECK]


# Refused plans, and rework: the orchestrator decides how, the service counts, and at the end a person is asked.

REWORK = done(status="needs_rework", summary="the total is rounded twice")
SMALL = plan_of(step("dev", "backend-dev"), step("test", "qa", "dev"), kind="fix")


def adopted(game: Game) -> list[AdoptPlan]:
    return [action for decision in game.log for action in decision.actions if isinstance(action, AdoptPlan)]


def planning(*plans: dict[str, Any] | None) -> list[Outcome]:
    return [done(plan=plan) for plan in plans]


@pytest.mark.req("S-012", "S-018")
def test_a_refused_plan_is_asked_for_once_more_with_its_problems() -> None:
    no_qa = plan_of(step("dev", "frontend-dev"))
    game = play(Players({"orchestrator": planning(no_qa, SMALL)}))

    assert game.executed == ["plan_1", "plan_2", "dev", "test", "summary_1"]
    assert "mandatory_step_missing" in game.step("plan_2").task
    assert adopted(game)[0].origin == "agent"


@pytest.mark.req("S-011", "S-018", "S-021", "S-026")
def test_a_plan_that_still_skips_qa_is_corrected_by_the_service() -> None:
    no_qa = plan_of(step("dev", "frontend-dev"))
    game = play(Players({"orchestrator": planning(no_qa)}))

    assert game.executed == ["plan_1", "plan_2", "dev", "qa", "summary_1"]
    assert adopted(game)[0].origin == "corrected"
    assert adopted(game)[0].notes


@pytest.mark.parametrize(
    "bad",
    [
        None,
        {},
        plan_of(step("a", "research", "b"), step("b", "research", "a")),
        plan_of(step("dev", "ghost")),
        {**SMALL, "budget_usd": 100},
    ],
)
def test_after_the_second_bad_plan_the_template_of_the_intent_stands_in(bad: dict[str, Any] | None) -> None:
    game = play(Players({"orchestrator": planning(bad)}), intent=Intent.FIX)

    assert game.executed[:3] == ["plan_1", "plan_2", "test-planner"]
    assert adopted(game)[0].origin == "template"
    assert game.published


def test_the_template_keeps_what_the_refused_plans_knew_of_the_ticket() -> None:
    bad = plan_of(step("dev", "backend-dev", "ghost"), step("test", "qa", "dev"))
    game = play(Players({"orchestrator": planning(bad, None)}))

    assert "backend" in game.executed


def test_how_often_a_plan_is_sent_back_is_a_setting() -> None:
    players = Players({"orchestrator": planning(None, None, SMALL)})

    assert play(players, book=make_book(replans=2)).executed[:4] == ["plan_1", "plan_2", "plan_3", "dev"]


def test_an_orchestrator_that_cannot_plan_hands_the_ticket_to_a_person() -> None:
    game = play(Players({"orchestrator": done(status="blocked", summary="which shop is meant?")}))

    assert game.end is not None
    assert (game.end.state, game.end.reason) == (State.ESCALATED, Reason.AGENT_BLOCKED)
    assert "which shop is meant?" in game.end.detail


def test_a_configuration_that_refuses_the_template_ends_the_run_with_the_reason() -> None:
    game = play(Players({"orchestrator": done()}), book=make_book(max_steps=2))

    assert game.end is not None
    assert game.end.reason is Reason.INTERNAL_ERROR
    assert "too_many_steps" in game.end.detail


@pytest.mark.req("S-110", "S-114", "S-036")
@pytest.mark.parametrize(
    ("plan", "agents"),
    [
        (SMALL, ["backend-dev", "qa"]),
        (plan_of(step("clarify", "research"), step("again", "qa", "clarify")), ["research", "qa"]),
    ],
)
def test_the_orchestrator_routes_a_failure_of_qa_to_whom_it_wants(plan: dict[str, Any], agents: list[str]) -> None:
    game = fixing({"qa": REWORK, "r1_test": done(), "r1_again": done(), "orchestrator": planning(FIX_CHOICE, plan)})

    rework = [one for one in game.view.steps if one.round == 1 and one.phase is Phase.WORK]
    assert [one.agent for one in rework] == agents
    assert game.step("r1_plan_1").agent == "orchestrator"
    assert game.published


@pytest.mark.req("S-108")
@pytest.mark.parametrize("reviewer", ["qa", "security"])
def test_the_developer_that_mends_gets_the_finding_and_the_result_that_holds_it(reviewer: str) -> None:
    game = fixing({reviewer: [blocking(1), done()]})

    (mending,) = [one for one in game.view.steps if one.phase is Phase.REMEDY]
    assert (mending.agent, contexts_of(game)[mending.key]) == ("frontend-dev", (reviewer,))
    assert "finding 0" in mending.task


@pytest.mark.req("S-108")
@pytest.mark.parametrize("reviewer", ["qa", "security"])
def test_rework_gets_the_result_of_the_step_that_asked_for_it(reviewer: str) -> None:
    game = fixing({reviewer: REWORK, "r1_test": done(), "orchestrator": planning(FIX_CHOICE, SMALL)})

    contexts = contexts_of(game)
    assert contexts["r1_plan_1"] == (reviewer,)
    assert reviewer in contexts["r1_dev"]
    assert "the total is rounded twice" in game.step("r1_plan_1").task


@pytest.mark.req("S-109")
def test_every_demand_for_rework_is_counted() -> None:
    game = fixing({"qa": REWORK, "security": REWORK})

    assert game.end is not None
    assert game.end.record is not None
    assert game.end.record["demands"] == 8
    assert game.end.record["rounds"] == 3


@pytest.mark.req("S-111", "S-113")
@pytest.mark.parametrize(("settings", "limit"), [({"rework_cycles": 0}, 0), ({"rework_cycles": 1}, 1), ({}, 3)])
def test_so_many_cycles_run_three_by_default_and_the_next_one_does_not(settings: dict[str, Any], limit: int) -> None:
    game = fixing({"qa": REWORK}, book=make_book(**settings))

    assert [key for key in game.executed if key.endswith("_plan_1")] == [f"r{n}_plan_1" for n in range(1, limit + 1)]
    assert game.end is not None
    assert (game.end.state, game.end.reason) == (State.ESCALATED, Reason.REWORK_EXHAUSTED)


@pytest.mark.req("S-113")
def test_a_run_that_recovers_in_the_second_cycle_succeeds() -> None:
    game = fixing({"qa": [REWORK, REWORK, done()]})

    assert "r2_plan_1" in game.executed
    assert game.published


@pytest.mark.req("S-112")
def test_a_person_gets_plan_results_findings_artifacts_and_changes() -> None:
    qa = blocking(1, status="needs_rework", summary="still wrong", artifacts=["artifacts/qa/report.md"])
    game = fixing({"qa": qa})

    assert game.end is not None
    record = game.end.record
    assert record is not None
    assert [one["key"] for one in record["steps"]] == [one.key for one in game.view.steps]
    assert {one["summary"] for one in record["steps"] if one["agent"] == "qa"} == {"still wrong"}
    assert [issue["title"] for issue in record["issues"]] == ["finding 0"]
    assert record["artifacts"] == ["artifacts/qa/report.md"]
    assert "src/fix-frontend.ts" in record["changed"]


def test_a_finding_that_was_mended_is_not_in_the_escalation() -> None:
    game = fixing({"qa": [blocking(5), blocking(1)]}, book=make_book(rework_cycles=0))

    assert game.end is not None
    assert game.end.record is not None
    assert [issue["title"] for issue in game.end.record["issues"]] == ["finding 0"]


def test_what_remediation_leaves_over_is_planned_as_rework() -> None:
    game = fixing({"qa": [blocking(2), blocking(2), done()], "orchestrator": planning(FIX_CHOICE, SMALL)})

    assert game.step("r1_plan_1").depends_on == ("m1_qa",)
    assert game.executed[-4:] == ["r1_plan_1", "r1_dev", "r1_test", "summary_1"]
    assert game.published


def test_findings_of_the_other_reviewers_are_reworked_together_with_the_demand() -> None:
    game = fixing({"qa": [REWORK, done()], "security": [blocking(2), done()]})

    assert set(game.step("r1_plan_1").depends_on) == {"qa", "security"}
    assert not [one for one in game.view.steps if one.phase is Phase.REMEDY]
    assert game.published


def test_a_demand_in_the_middle_of_a_plan_holds_the_rest_until_the_rework_is_done() -> None:
    plan = plan_of(
        step("design", "architect"),
        step("look", "research"),
        step("dev", "backend-dev", "design"),
        step("test", "qa", "dev"),
    )
    fix = plan_of(step("clarify", "research"), step("redesign", "architect", "clarify"))
    game = play(Players({"design": REWORK, "orchestrator": planning(plan, fix)}))

    assert game.batches == [
        ("plan_1",),
        ("design", "look"),
        ("r1_plan_1",),
        ("r1_clarify",),
        ("r1_redesign",),
        ("dev",),
        ("test",),
        ("summary_1",),
    ]
    assert {"design", "r1_clarify", "r1_redesign"} <= set(contexts_of(game)["dev"])


def test_rework_within_rework_is_the_next_cycle_and_then_the_first_goes_on() -> None:
    plan = plan_of(step("design", "architect"), step("dev", "backend-dev", "design"), step("test", "qa", "dev"))
    one = plan_of(step("clarify", "research"), step("redesign", "architect", "clarify"))
    two = plan_of(step("ask", "test-planner"))
    game = play(Players({"design": REWORK, "r1_clarify": REWORK, "orchestrator": planning(plan, one, two)}))

    assert game.executed == [
        "plan_1",
        "design",
        "r1_plan_1",
        "r1_clarify",
        "r2_plan_1",
        "r2_ask",
        "r1_redesign",
        "dev",
        "test",
        "summary_1",
    ]
    assert "r2_ask" in contexts_of(game)["dev"]


def test_an_agent_that_is_blocked_is_planned_around_and_a_blocked_orchestrator_ends_it() -> None:
    around = fixing({"fix-frontend": done(status="blocked"), "orchestrator": planning(FIX_CHOICE, SMALL)})
    stuck = fixing({"fix-frontend": done(status="blocked"), "r1_plan_1": done(status="blocked")})

    assert around.published
    assert stuck.end is not None
    assert (stuck.end.state, stuck.end.reason) == (State.ESCALATED, Reason.AGENT_BLOCKED)


@pytest.mark.parametrize("who", ["qa", "fix-frontend"])
def test_rework_without_a_valid_plan_goes_plainly_to_who_owns_it_and_back_to_who_asked(who: str) -> None:
    bad = plan_of(step("x", "ghost"))
    game = fixing({who: [REWORK, done()], "orchestrator": planning(FIX_CHOICE, bad, bad), "r1_qa": done()})

    rework = [one.agent for one in game.view.steps if one.round == 1 and one.phase is Phase.WORK]
    assert game.executed.count("r1_plan_2") == 1
    assert rework == ["frontend-dev", "qa"]
    assert adopted(game)[1].origin == "template"
    assert game.published


def test_rework_of_development_is_tested_whatever_the_orchestrator_plans() -> None:
    no_qa = plan_of(step("dev", "backend-dev"))
    game = fixing({"qa": [REWORK, done()], "orchestrator": planning(FIX_CHOICE, no_qa)})

    assert game.executed[game.executed.index("r1_dev") :] == ["r1_dev", "r1_qa", "summary_1"]


@pytest.mark.req("S-018")
def test_what_a_reviewer_sent_back_comes_back_to_qa_even_when_only_the_specification_changes() -> None:
    no_qa = plan_of(step("clarify", "research"))
    game = fixing({"qa": [REWORK, done()], "orchestrator": planning(FIX_CHOICE, no_qa)})

    assert game.executed[game.executed.index("r1_plan_2") :] == ["r1_plan_2", "r1_clarify", "r1_qa", "summary_1"]

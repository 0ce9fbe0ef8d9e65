"""The build check with its one fix, and the remediation loop: twice at most, and no more once it stops helping."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from routing.jobs import Reason, State
from routing.router import Intent
from tests.unit.workers.runs.world import (
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
from workers.runs.view import Phase

REVIEWERS = ("code-review", "qa", "security")


def fixing(answers: Mapping[str, Outcome | Sequence[Outcome]], **values: Any) -> Game:
    return play(Players(answers, plan=FIX_CHOICE), intent=Intent.FIX, **values)


def cycles(game: Game, round: int = 0) -> int:
    return max((one.cycle for one in game.view.steps if one.phase is Phase.REMEDY and one.round == round), default=0)


def counted(*counts: int) -> dict[str, list[Outcome]]:
    """QA finds so many issues, review after review, and nobody else any."""
    return {"qa": [blocking(count) for count in counts]}


@pytest.mark.req("P-023", "P-029")
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


@pytest.mark.req("P-057")
@pytest.mark.parametrize(("after", "expected"), [(5, 1), (6, 1), (3, 2), (4, 2)])
def test_the_loop_ends_early_when_issues_do_not_get_fewer(after: int, expected: int) -> None:
    assert cycles(fixing(counted(5, after, 0))) == expected


@pytest.mark.req("P-057")
def test_issues_are_counted_over_all_reviewers() -> None:
    moved = {"qa": [blocking(3), blocking(1)], "security": [blocking(2), blocking(4)]}

    assert cycles(fixing({**moved, "r1_qa": done(), "r1_security": done()})) == 1


def test_minor_issues_are_nobodys_work() -> None:
    minor = done(issues=[{"severity": "minor", "title": "a long line"}] * 9)

    assert cycles(fixing({"qa": minor})) == 0


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
def test_a_build_that_fails_gets_one_targeted_fix_and_the_same_check_again() -> None:
    game = fixing({"build_0": blocking(2, file="src/fix-frontend.ts")}, has_build=True)

    assert game.batches[2:6] == [("fix-frontend",), ("build_0",), ("repair_0",), ("rebuild_0",)]
    assert game.step("repair_0").agent == "frontend-dev"
    assert game.step("repair_0").context == ("build_0",)
    assert game.batches[6] == REVIEWERS
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

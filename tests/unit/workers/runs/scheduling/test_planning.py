"""The service judges every plan, whoever wrote it: each rule with its reason, all problems at once."""

import json
from itertools import pairwise
from time import process_time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.workers.runs.scheduling.fake_run import BOOK, make_book, plan_of, step
from workers.errors import ResultInvalidError
from workers.runs.scheduling.plan import choose_template, expand_template
from workers.runs.scheduling.planning import Judgement, PlanContext, ProblemCode, effective_writes, judge, judge_plan
from workers.runs.scheduling.view import parse_result

ALONE = PlanContext()
KEY = "sk-" + "ant-api03-" + "q" * 40


def judged(raw: Any, *, around: PlanContext = ALONE, **rules: Any) -> Judgement:
    return judge_plan(raw, make_book(**rules), around=around)


def found(raw: Any, **values: Any) -> list[tuple[str, str | None]]:
    return [(problem.code.value, problem.step) for problem in judged(raw, **values).problems]


def good(*more: dict[str, Any], **values: Any) -> dict[str, Any]:
    """A valid plan, with more steps between development and QA."""
    return plan_of(
        step("dev", "frontend-dev"), *more, step("test", "qa", "dev", *(one["id"] for one in more)), **values
    )


def test_a_good_plan_has_no_problem() -> None:
    judgement = judged(good())

    assert judgement.problems == ()
    assert judgement.plan is not None
    assert [one.id for one in judgement.plan.steps] == ["dev", "test"]


@pytest.mark.req("S-031", "S-032", "S-033", "S-034", "S-035", "S-037", "S-074")
def test_a_plan_holds_exactly_the_decisions_that_are_the_orchestrators() -> None:
    plan = judged(good(gates=({"after": "dev", "reason": "a dear decision"},))).plan

    assert plan is not None
    assert set(plan.model_dump()) == {"classification", "steps", "gates"}
    assert set(plan.steps[0].model_dump()) == {"id", "agent", "task", "depends_on", "context", "writes"}
    assert set(plan.gates[0].model_dump()) == {"after", "reason"}
    unclassified = {name: value for name, value in good().items() if name != "classification"}
    assert found(unclassified) == [("malformed", None)]


SERVICE_FIELDS = (
    "model",
    "budget",
    "budget_usd",
    "max_cost",
    "timeout",
    "timeout_seconds",
    "max_tokens",
    "provider",
    "account",
    "key",
    "credential",
    "credentials",
    "api_key",
    "env",
    "runtime",
    "retries",
    "image",
)


@pytest.mark.req("S-019", "S-024", "S-025", "S-075", "S-076", "S-023", "S-074")
@pytest.mark.parametrize("name", SERVICE_FIELDS)
def test_what_the_service_decides_is_refused_in_a_plan_in_a_step_and_in_a_result(name: str) -> None:
    assert found({**good(), name: 5}) == [("forbidden_field", None)]
    assert found(plan_of(step("dev", "frontend-dev", **{name: 5}), step("test", "qa", "dev"))) == [
        ("forbidden_field", "dev")
    ]
    assert found({"template": "build", name: 5}) == [("forbidden_field", None)]
    with pytest.raises(ResultInvalidError, match=f"^{name}: is not a field"):
        parse_result(json.dumps({"status": "complete", "summary": "Done.", name: 5}).encode())


@pytest.mark.req("S-082", "S-076", "S-021")
@pytest.mark.parametrize(
    "plan",
    [
        plan_of(step("dev", "frontend-dev", task=f"use {KEY} to call it"), step("test", "qa", "dev")),
        plan_of(step("dev", "frontend-dev", context=[f"{KEY}/x"]), step("test", "qa", "dev")),
        good(gates=({"after": "dev", "reason": KEY},)),
        {**good(), KEY: 1},
        {**good(), "note": {"deep": [{"er": [KEY]}]}},
        {"template": "build", "backend": KEY},
    ],
)
def test_a_plan_with_what_looks_like_a_key_is_refused_and_the_key_is_not_repeated(plan: dict[str, Any]) -> None:
    judgement = judged(plan)

    assert [problem.code for problem in judgement.problems] == [ProblemCode.SECRET]
    assert judgement.plan is judgement.corrected is None
    assert KEY not in repr(judgement)


def test_a_plan_too_large_to_be_searched_for_keys_is_refused() -> None:
    assert found({**good(), "x": [0] * 30_000}) == [("secret", None)]


@pytest.mark.parametrize(
    "raw", [{}, {"steps": []}, {"classification": "build"}, {"classification": "build", "steps": 5}]
)
def test_what_is_no_plan_is_malformed(raw: dict[str, Any]) -> None:
    assert {code for code, _ in found(raw)} == {"malformed"}


def test_a_result_without_a_plan_is_told_so() -> None:
    assert found(None) == [("plan_missing", None)]


@pytest.mark.req("S-033")
@pytest.mark.parametrize("task", ["", "   \n"])
def test_a_step_without_a_task_is_refused(task: str) -> None:
    assert found(plan_of(step("dev", "frontend-dev", task=task), step("test", "qa", "dev"))) == [("empty_task", "dev")]


@pytest.mark.req("S-032")
def test_an_agent_that_does_not_exist_is_refused() -> None:
    assert found(good(step("more", "product-owner"))) == [("unknown_agent", "more")]


@pytest.mark.req("S-012")
@pytest.mark.parametrize(
    "agent", ["orchestrator", "orchestrator:classify", "orchestrator:summary", "orchestrator:question"]
)
def test_the_orchestrator_and_its_subtasks_are_not_for_plans(agent: str) -> None:
    assert found(good(step("more", agent))) == [("not_plannable", "more")]


def test_two_steps_of_one_id_are_refused() -> None:
    assert ("duplicate_id", "dev") in found(plan_of(step("dev", "frontend-dev"), step("dev", "qa")))


@pytest.mark.req("P-035")
def test_a_dependency_that_does_not_exist_is_refused() -> None:
    assert ("unknown_dependency", "dev") in found(
        plan_of(step("dev", "frontend-dev", "ghost"), step("test", "qa", "dev"))
    )


@pytest.mark.req("P-035")
def test_a_cycle_is_refused_and_named() -> None:
    plan = plan_of(step("a", "research", "c"), step("b", "architect", "a"), step("c", "frontend-dev", "b"))
    (problem,) = judged(plan).problems

    assert problem.code is ProblemCode.CYCLE
    cycle = problem.message.removeprefix("these wait for each other: ").split(" -> ")
    needs = {"a": "c", "b": "a", "c": "b"}
    assert len(cycle) == 4
    assert all(needs[one] == other for one, other in pairwise(cycle))


def test_a_step_that_waits_for_itself_is_a_cycle() -> None:
    assert found(plan_of(step("a", "research", "a"))) == [("cycle", "a")]


@pytest.mark.req("S-047", "P-058")
def test_two_steps_that_may_run_together_and_write_the_same_place_are_refused() -> None:
    plan = plan_of(
        step("one", "frontend-dev", writes=["src/cart/"]),
        step("two", "frontend-dev", writes=["src/cart/items/"]),
        step("test", "qa", "one", "two"),
    )

    assert found(plan) == [("write_overlap", "one")]


def test_steps_one_after_the_other_may_write_the_same_place() -> None:
    plan = plan_of(step("one", "frontend-dev"), step("two", "frontend-dev", "one"), step("test", "qa", "two"))

    assert found(plan) == []


def test_two_steps_of_one_agent_side_by_side_need_places_of_their_own() -> None:
    plan = plan_of(step("one", "frontend-dev"), step("two", "frontend-dev"), step("test", "qa", "one", "two"))

    assert found(plan) == [("write_overlap", "one")]


@pytest.mark.req("S-071")
def test_steps_that_share_an_agent_keep_a_directory_of_their_own_for_documents() -> None:
    plan = judged(good(step("part", "frontend-dev", "dev", writes=["src/part/"]))).plan

    assert plan is not None
    assert effective_writes(plan.steps[1], BOOK.agents) == ("src/part/", "artifacts/frontend-dev/part/")


@pytest.mark.req("S-008")
def test_qa_cannot_be_given_source_to_write() -> None:
    plan = plan_of(step("dev", "frontend-dev"), step("test", "qa", "dev", writes=["src/"]))

    assert found(plan) == [("write_outside", "test")]


@pytest.mark.parametrize(
    "rule", ["/etc/", "../up/", "a//b", "*", "src/*.ts", ".git/hooks/", ".agent-result.json", "C:\\x"]
)
def test_a_place_that_is_no_rule_is_refused(rule: str) -> None:
    assert found(plan_of(step("dev", "frontend-dev", writes=[rule]), step("test", "qa", "dev"))) == [
        ("write_rule", "dev")
    ]


@pytest.mark.req("S-018", "S-026")
@pytest.mark.parametrize(
    "plan",
    [
        plan_of(step("dev", "frontend-dev")),
        plan_of(step("test", "qa"), step("dev", "backend-dev", "test")),
        plan_of(
            step("dev", "frontend-dev"),
            step("test", "qa", "dev", writes=["tests/"]),
            step("paint", "styling", "dev", writes=["styles/"]),
        ),
        plan_of(
            step("one", "frontend-dev"),
            step("test", "qa", "one", writes=["tests/"]),
            step("two", "backend-dev", "one", writes=["api/"]),
        ),
        plan_of(
            step("dev", "frontend-dev"), step("plan-tests", "test-planner", "dev"), step("read", "code-review", "dev")
        ),
    ],
)
def test_development_without_qa_after_it_is_refused_and_can_be_corrected(plan: dict[str, Any]) -> None:
    judgement = judged(plan)

    assert judgement.plan is None
    assert {problem.code for problem in judgement.problems} == {ProblemCode.MANDATORY_STEP_MISSING}
    assert judgement.corrected is not None
    again = judge(judgement.corrected, BOOK, around=ALONE)
    assert again.problems == ()


def test_what_else_is_wrong_is_not_corrected() -> None:
    judgement = judged(plan_of(step("dev", "frontend-dev"), step("x", "ghost", "dev")))

    assert judgement.corrected is None
    assert {problem.code.value for problem in judgement.problems} == {"unknown_agent", "mandatory_step_missing"}


def test_rework_that_a_reviewer_asked_for_ends_with_qa_even_when_nothing_is_developed() -> None:
    plan = plan_of(step("clarify", "research"))

    assert found(plan) == []
    assert found(plan, around=PlanContext(reviewed=True)) == [("mandatory_step_missing", None)]
    assert found(plan_of(step("audit", "security")), around=PlanContext(reviewed=True)) != []
    corrected = judged(plan, around=PlanContext(reviewed=True)).corrected
    assert corrected is not None
    assert [(one.agent, one.depends_on) for one in corrected.steps] == [("research", ()), ("qa", ("clarify",))]


def test_a_plan_longer_than_allowed_is_refused() -> None:
    long = plan_of(*(step(f"s{number}", "research") for number in range(5)))

    assert found(long, max_steps=4) == [("too_many_steps", None)]
    assert "too_many_steps" not in [code for code, _ in found(long, max_steps=5)]


def test_the_build_template_has_at_most_so_many_parts() -> None:
    parts = [{"task": "x", "writes": [f"src/p{number}/"]} for number in range(3)]

    assert found({"template": "build", "parts": parts}, frontend_steps=2) == [("too_many_parts", None)]


def test_parts_of_the_template_that_share_a_directory_are_refused() -> None:
    parts = [{"task": "x", "writes": ["src/p/"]}, {"task": "y", "writes": ["src/p/q/"]}]

    assert found({"template": "build", "parts": parts}) == [("write_overlap", "frontend-1")]


@pytest.mark.parametrize("name", ["ghost", "", "../etc/passwd", "/etc/passwd", "a\x00b"])
def test_context_that_is_neither_a_step_nor_a_path_is_refused(name: str) -> None:
    codes = {code for code, _ in found(plan_of(step("look", "research", context=[name])))}

    assert codes <= {"unknown_context", "malformed"}
    assert codes


@pytest.mark.parametrize("name", ["src/a.ts", "README.md", "src/", "LICENSE", "early"])
def test_context_names_paths_and_steps_that_were_done_before(name: str) -> None:
    assert (
        found(plan_of(step("look", "research", context=[name])), around=PlanContext(known=frozenset({"early"}))) == []
    )


@pytest.mark.req("S-046")
def test_context_from_a_step_that_need_not_be_done_before_is_refused() -> None:
    plan = plan_of(step("one", "research"), step("two", "architect", context=["one"]))

    assert found(plan) == [("late_context", "two")]


def test_a_gate_after_a_step_that_does_not_exist_is_refused() -> None:
    assert found(good(gates=({"after": "ghost", "reason": "why"},))) == [("unknown_gate_step", None)]


def test_a_model_cannot_turn_an_order_into_a_question() -> None:
    assert ("question_refused", None) in found(good(kind="question"))
    assert {code for code, _ in found({"template": "question"})} == {"malformed"}


def test_all_problems_are_named_at_once() -> None:
    plan = plan_of(
        step("one", "ghost"),
        step("two", "frontend-dev", "nobody", writes=["/x"]),
        gates=({"after": "no", "reason": "r"},),
    )

    assert {code for code, _ in found(plan)} == {
        "unknown_agent",
        "unknown_dependency",
        "write_rule",
        "mandatory_step_missing",
        "unknown_gate_step",
    }


@pytest.mark.req("S-084")
def test_what_a_model_wrote_comes_back_short_and_printable() -> None:
    evil = "\x1b[2J\u202e" + "x" * 5000
    messages = [str(problem) for problem in judged({**good(), evil: 1}).problems]
    messages += [str(problem) for problem in judged(plan_of(step("look", "research", context=[evil[:250]]))).problems]

    assert messages
    assert all(len(message) < 400 and message.isprintable() for message in messages)


@pytest.mark.req("P-019")
def test_the_templates_that_stand_in_for_a_refused_plan_are_valid() -> None:
    from routing.decision.router import Intent

    for intent in (Intent.BUILD, Intent.FIX):
        for agents in ((), ("backend-dev",), ("styling", "frontend-dev"), ("ghost",)):
            plan = expand_template(choose_template(intent, agents=agents))
            assert judge(plan, BOOK, around=ALONE).problems == ()
            assert ("backend-dev" in {one.agent for one in plan.steps}) == (
                "backend-dev" in agents or (intent is Intent.FIX and agents in ((), ("ghost",)))
            )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
STEP_LIKE = st.fixed_dictionaries(
    {},
    optional={
        "id": st.sampled_from(["a", "b", "c"]) | JSON,
        "agent": st.sampled_from(["qa", "frontend-dev", "research", "orchestrator"]) | JSON,
        "task": st.just("work") | JSON,
        "depends_on": st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=3) | JSON,
        "context": st.lists(st.sampled_from(["a", "b", "src/x.ts"]), max_size=3) | JSON,
        "writes": st.lists(st.sampled_from(["src/", "src/a/", "tests/", "*.css"]), max_size=2) | JSON,
    },
)
PLAN_LIKE = st.fixed_dictionaries(
    {},
    optional={
        "classification": st.sampled_from(["build", "fix"]) | JSON,
        "template": st.sampled_from(["build", "fix", "sequential"]) | JSON,
        "steps": st.lists(STEP_LIKE, max_size=4) | JSON,
        "gates": st.lists(st.fixed_dictionaries({"after": st.text(max_size=3), "reason": st.text(max_size=9)})) | JSON,
    },
)


def test_the_largest_plan_is_judged_in_no_time() -> None:
    places = [f"src/{'x' * 80}/{number}/" for number in range(30)]
    steps = [
        step(f"s{number}", "frontend-dev", writes=[f"{place}{number}/" for place in places]) for number in range(24)
    ]
    started = process_time()
    judged(plan_of(*steps))

    assert process_time() - started < 5.0


@settings(max_examples=60)
@given(raw=PLAN_LIKE)
def test_any_json_is_judged_without_an_error_and_only_a_plan_without_a_problem_may_run(raw: dict[str, Any]) -> None:
    judgement = judge_plan(json.loads(json.dumps(raw)), BOOK, around=ALONE)

    assert (judgement.plan is None) == bool(judgement.problems)
    if judgement.corrected is not None:
        assert judge(judgement.corrected, BOOK, around=ALONE).problems == ()

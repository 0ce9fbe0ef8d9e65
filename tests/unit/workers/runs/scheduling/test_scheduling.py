"""Runs of any plan with any outcomes: each step at most once and never too early, full batches, and always an end.

`Game` asserts at every move that the decision is the one a restarted coordinator would make, that no step starts before
what it depends on, that what runs together cannot collide, and that the run never waits for nothing.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from ledger.runs.specs import GateKind, GateState, Phase, StepState
from routing.decision.router import Intent
from routing.jobs import JobMessage, Reason, State, is_end
from tests.unit.gateway.fake_provider.agent_workspace import MIXED
from tests.unit.workers.runs.scheduling.fake_run import (
    BOOK,
    BUILD_CHOICE,
    FIX_CHOICE,
    Game,
    Players,
    blocking,
    done,
    make_book,
    make_view,
    plan_of,
    play,
    step,
)
from tests.unit.workers.runs.test_runs import play as play_in_theatre
from workers.runs.scheduling.ending import StartStep
from workers.runs.scheduling.plan import (
    BuildChoice,
    Plan,
    PlanGate,
    PlanStep,
    SequentialChoice,
    expand_template,
    find_overlap,
)
from workers.runs.scheduling.planning import PlanContext, judge_plan
from workers.runs.scheduling.schedule import next_actions
from workers.runs.scheduling.view import AgentResult, GateView, Issue, RunView, StepView
from workers.runs.step_context import StepBrief

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
        answer = self.draw(
            st.sampled_from([GateState.PASSED] * 6 + [GateState.FAILED, GateState.EXPIRED, GateState.REWORK])
        )
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
    assert {game.step(name).depends_on for name in frontends} == {("setup",)}
    assert game.step("summary_1").agent == "orchestrator:summary"
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


@pytest.mark.req("P-058", "S-047")
def test_parallel_frontend_steps_share_no_directory_and_only_app_may_touch_what_joins_them() -> None:
    game = play(Players(plan=build_choice(3, backend=False)))

    parts = [game.step(f"frontend-{number}").writes for number in (1, 2, 3)]
    assert not any(find_overlap(one, other) for one in parts for other in parts if one is not other)
    assert not any(find_overlap(part, ("src/app.tsx", "package.json", "app/")) for part in parts)
    assert find_overlap(game.step("app").writes, ("src/app.tsx",))


@pytest.mark.req("P-026", "P-027", "P-028", "P-030", "P-012", "S-032")
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
    assert game.step("summary_1").agent == "orchestrator:summary"
    agents = {"frontend": "frontend-dev", "backend": "backend-dev", "styling": "styling"}
    assert game.step("test-planner").agent == "test-planner"
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


@pytest.mark.req("P-013")
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


@pytest.mark.req("S-032", "S-033", "S-035", "S-046", "P-034")
def test_an_own_plan_is_followed_batch_by_batch_with_its_agents_and_their_tasks() -> None:
    plan = plan_of(
        step("late", "backend-dev", "early"),
        step("early", "research"),
        step("beside", "architect"),
        step("last", "qa", "late", "beside"),
    )
    game = play(Players(plan=plan))

    assert game.batches[1:5] == [("early", "beside"), ("late",), ("last",), ("summary_1",)]
    given = [{name: getattr(game.step(one["id"]), name) for name in ("agent", "task")} for one in plan["steps"]]
    assert given == [{name: one[name] for name in ("agent", "task")} for one in plan["steps"]]


@pytest.mark.req("P-035")
def test_every_ready_step_starts_in_one_batch_up_to_what_may_run_together() -> None:
    steps = [step(f"part-{number}", "frontend-dev", writes=[f"src/features/part-{number}/"]) for number in range(6)]
    plan = plan_of(*steps, step("test", "qa", *(f"part-{number}" for number in range(6))))
    wide = play(Players(plan=plan), book=make_book(max_parallel=6))
    narrow = play(Players(plan=plan), book=make_book(max_parallel=4))

    assert wide.batches[1] == tuple(f"part-{number}" for number in range(6))
    assert narrow.batches[1] == tuple(f"part-{number}" for number in range(4))
    assert narrow.published


@pytest.mark.req("S-034", "S-039")
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


ROOT = Path(__file__).parents[5]
DECISIONS = ("ending", "plan", "planning", "remedies", "schedule", "view")
"""Where the service decides."""
OUTSIDE = (
    "anthropic",
    "httpx2",
    "sqlalchemy",
    "sqlmodel",
    "celery",
    "docker",
    "dulwich",
    "gateway",
    "sandbox",
)
OF_THE_LEDGER = "ledger.runs.specs"
"""Its values; all else there is the database."""


def imports_of(module: str) -> set[str]:
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    found: set[str] = set()
    for node in ast.walk(ast.parse(Path(spec.origin).read_text())):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
    return found


def requirements() -> set[str]:
    lines = (ROOT / "constraints.txt").read_text() + (ROOT / "pyproject.toml").read_text()
    return {
        name.casefold().replace("_", "-")
        for name in re.findall(r"^\s*\"?([A-Za-z][\w.-]+)(?=[\s\[=<>~!;\",]|$)", lines, re.M)
    }


@pytest.mark.req("S-011", "S-021", "S-097")
def test_the_hard_shell_decides_without_a_model_a_database_or_a_container() -> None:
    for name in DECISIONS:
        imported = imports_of(f"workers.runs.scheduling.{name}")
        reached = {module for module in imported if module.startswith(OUTSIDE)}
        assert reached == set(), name
        assert all(module.startswith(OF_THE_LEDGER) for module in imported if module.startswith("ledger")), name


@pytest.mark.req("S-011")
def test_what_crosses_from_agents_to_the_service_has_one_closed_type() -> None:
    for model in (AgentResult, Issue, Plan, PlanGate, PlanStep):
        assert model.model_config["extra"] == "forbid"
    assert StepView.__dataclass_fields__["result"].type == "AgentResult | None"


@pytest.mark.req("S-011", "S-020")
def test_classification_planning_routing_of_context_and_rework_are_asked_of_the_orchestrator() -> None:
    game, _ = play_in_theatre(MIXED, "issues=2,0,0", "needs-rework=2", intent=None)
    asked = {phase: {step.agent for step in game.view.steps if step.phase is phase} for phase in Phase}
    assert asked[Phase.CLASSIFY] == {"orchestrator:classify"}
    assert asked[Phase.PLAN] == {"orchestrator"}
    assert {step.round for step in game.view.steps if step.phase is Phase.PLAN} == {0, 1}
    plans = [step.result.plan for step in game.view.steps if step.phase is Phase.PLAN and step.result]
    routed = {step["id"]: set(step["context"]) for plan in plans if plan for step in plan["steps"]}
    recorded = {step.key.removeprefix("r1_"): set(step.context) for step in game.view.steps}
    assert all(context <= {name.removeprefix("r1_") for name in recorded[key]} for key, context in routed.items())


@pytest.mark.req("S-023")
def test_an_order_has_no_place_for_an_account() -> None:
    secrets = re.compile("account|provider|token|secret|model|credential|_key")
    assert [name for name in StepBrief.__dataclass_fields__ if secrets.search(name)] == []


@pytest.mark.req("S-043", "S-077")
def test_a_message_carries_an_id_and_a_fence_and_there_is_no_store_of_vectors() -> None:
    assert set(JobMessage.model_fields) == {"schema_version", "job_id", "fence"}
    stores = ("chromadb", "faiss", "pinecone", "weaviate", "qdrant", "pgvector", "lancedb")
    assert [name for name in requirements() if name.startswith(stores)] == []


@pytest.mark.req("S-089")
def test_an_agent_that_is_but_another_entry_of_the_file_is_planned_mends_and_judges_like_any_other() -> None:
    agents = {**BOOK.agents, "device-dev": BOOK.agents["frontend-dev"], "device-test": BOOK.agents["qa"]}
    plan = plan_of(step("dev", "device-dev"), step("test", "qa", "dev"), step("look", "device-test", "test"))
    game = play(Players({"look": [blocking(1), done()]}, plan=plan), book=replace(BOOK, agents=agents))

    assert game.executed[:5] == ["plan_1", "dev", "test", "look", "m1_fix_device-dev"]
    assert sorted(game.executed[5:]) == ["m1_look", "m1_test", "summary_1"]


@pytest.mark.req("P-060", "S-057")
def test_no_framework_of_agents_is_a_dependency() -> None:
    found = requirements()
    assert "anthropic" in found
    others = ("langchain", "langgraph", "crewai", "autogen", "openhands", "llama-index", "smolagents", "claude-agent")
    assert [name for name in found if name.startswith(others)] == []


@dataclass
class Stopwatch:
    """Lets every step take its time: of those under way, the one that ends first ends next."""

    seconds: dict[str, float]
    now: float = 0.0
    ends: dict[str, float] = field(default_factory=dict)

    def __call__(self, running: tuple[StepView, ...]) -> StepView:
        for one in running:
            self.ends.setdefault(one.key, self.now + self.seconds.get(one.agent or "", 1.0))
        first = min(running, key=lambda one: self.ends[one.key])
        self.now = self.ends[first.key]
        return first


@pytest.mark.req("P-025")
def test_a_batch_takes_as_long_as_its_longest_member_and_not_as_long_as_all_together() -> None:
    seconds = {"research": 30.0, "architect": 40.0, "code-review": 30.0, "qa": 50.0, "security": 40.0}
    clock = Stopwatch(seconds)
    choice = {"template": "build", "parts": [{"task": "t", "writes": [f"src/features/{name}/"]} for name in "abc"]}
    game = Game(make_view(intent=Intent.BUILD), BOOK, Players(plan=choice), choose=clock).play()
    assert game.published
    specified = max(clock.ends["research"], clock.ends["architect"])
    assert clock.ends["setup"] == specified + 1
    assert specified - clock.ends["plan_1"] == 40
    reviewed = max(clock.ends[name] for name in ("code-review", "qa", "security"))
    assert reviewed - clock.ends["styling"] == 50
    assert clock.now < sum(seconds.get(step.agent or "", 1.0) for step in game.view.steps)


@pytest.mark.req("S-027")
def test_containers_are_made_and_ended_by_the_service_alone() -> None:
    """No agent has a word for it, and one package of the service has a hand on the engine."""
    step = {"id": "a", "agent": "qa", "task": "t"}
    for name in ("image", "container", "box", "runtime", "volumes"):
        with pytest.raises(ValidationError, match="Extra inputs"):
            Plan.model_validate({"classification": "fix", "steps": [{**step, name: "x"}]})
    users = {
        path.relative_to(ROOT).as_posix()
        for package in ("producers", "workers", "routing", "sandbox", "monitoring")
        for path in (ROOT / package).rglob("*.py")
        if "docker" in (text := path.read_text())
        and any(
            (isinstance(node, ast.Import) and any(name.name.split(".")[0] == "docker" for name in node.names))
            or (isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "docker")
            for node in ast.walk(ast.parse(text))
        )
    }
    assert users
    assert {user.rpartition("/")[0] for user in users} <= {"sandbox/docker", "sandbox/image"}
    assert all(
        "Docker" not in tool and "box" not in tool.casefold() for agent in BOOK.agents.values() for tool in agent.tools
    )

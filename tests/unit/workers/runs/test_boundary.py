"""The boundary between what agents decide and what the service decides (seed 001, ADR-002), line by line."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from routing.decision.router import Intent
from routing.jobs import JobMessage
from tests.unit.gateway.fake_provider.agent_workspace import FEATURE, MIXED
from tests.unit.workers.runs.test_table_top import play
from tests.unit.workers.runs.world import BOOK, Game, Players, make_view
from workers.runs.scheduling.plan import Plan, PlanStep
from workers.runs.scheduling.view import AgentResult, Phase, StepView
from workers.runs.step_context import StepWords, order_text

ROOT = Path(__file__).parents[4]
DECISIONS = (
    "schedule",
    "rounds",
    "planning",
    "validation",
    "remedies",
    "rework",
    "gates",
    "ending",
    "templates",
    "writes",
)
"""Where the service decides."""
OUTSIDE = (
    "anthropic",
    "httpx2",
    "sqlalchemy",
    "sqlmodel",
    "celery",
    "docker",
    "dulwich",
    "gateway.client",
    "sandbox.box",
)


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
        for name in re.findall(r"^\s*\"?([A-Za-z][\w.-]+)\s*(?:\[|==|>=)", lines, re.M)
    }


@pytest.mark.req("S-011", "S-021")
def test_the_hard_shell_decides_without_a_model_a_database_or_a_container() -> None:
    for name in DECISIONS:
        reached = {module for module in imports_of(f"workers.runs.{name}") if module.startswith(OUTSIDE)}
        assert reached == set(), name


@pytest.mark.req("S-011")
def test_what_crosses_from_agents_to_the_service_has_one_closed_type() -> None:
    for model in (AgentResult, Plan, PlanStep):
        assert model.model_config["extra"] == "forbid"
    assert StepView.__dataclass_fields__["result"].type == "AgentResult | None"


@pytest.mark.req("S-020")
def test_classification_planning_routing_of_context_and_rework_are_asked_of_the_orchestrator() -> None:
    game, _ = play(MIXED, "issues=2,0,0", "needs-rework=2", intent=None)
    asked = {phase: {step.agent for step in game.view.steps if step.phase is phase} for phase in Phase}
    assert asked[Phase.CLASSIFY] == {"orchestrator:classify"}
    assert asked[Phase.PLAN] == {"orchestrator"}
    assert {step.round for step in game.view.steps if step.phase is Phase.PLAN} == {0, 1}
    plans = [step.result.plan for step in game.view.steps if step.phase is Phase.PLAN and step.result]
    routed = {step["id"]: set(step["context"]) for plan in plans if plan for step in plan["steps"]}
    recorded = {step.key.removeprefix("r1_"): set(step.context) for step in game.view.steps}
    assert all(context <= {name.removeprefix("r1_") for name in recorded[key]} for key, context in routed.items())


@pytest.mark.req("S-023")
@pytest.mark.parametrize("name", ["provider", "account", "key", "api_key", "model", "budget_usd", "timeout_seconds"])
def test_nothing_that_an_agent_writes_can_choose_a_key_a_model_a_budget_or_a_time(name: str) -> None:
    step = {"id": "a", "agent": "qa", "task": "t"}
    plan = {"classification": "fix", "steps": [step]}
    Plan.model_validate(plan)
    with pytest.raises(ValidationError, match="Extra inputs"):
        Plan.model_validate({**plan, name: "x"})
    with pytest.raises(ValidationError, match="Extra inputs"):
        Plan.model_validate({**plan, "steps": [{**step, name: "x"}]})
    with pytest.raises(ValidationError, match="Extra inputs"):
        AgentResult.model_validate({"status": "complete", "summary": "s", name: "x"})


@pytest.mark.req("S-023")
def test_an_order_has_no_place_for_an_account() -> None:
    words = set(StepWords.__dataclass_fields__)
    assert words == {"key", "agent", "task", "ticket", "results", "context", "writes"}
    given: dict[str, Any] = {
        "key": "a",
        "agent": "qa",
        "task": "t",
        "ticket": {},
        "results": {},
        "context": (),
        "writes": (),
    }
    assert "anthropic" not in order_text(StepWords(**given), redact=lambda text: text)


@pytest.mark.req("S-043")
def test_a_message_carries_an_id_and_a_fence_and_there_is_no_store_of_vectors() -> None:
    assert set(JobMessage.model_fields) == {"schema_version", "job_id", "fence"}
    stores = {
        "chromadb",
        "faiss-cpu",
        "pinecone",
        "pinecone-client",
        "weaviate-client",
        "qdrant-client",
        "pgvector",
        "lancedb",
    }
    assert requirements().isdisjoint(stores)


@pytest.mark.req("P-060", "S-057")
def test_no_framework_of_agents_is_a_dependency() -> None:
    found = requirements()
    assert "anthropic" in found
    frameworks = ("langchain", "langgraph", "crewai", "autogen", "openhands", "llama-index", "smolagents")
    assert [name for name in found if name.startswith(frameworks)] == []


@dataclass
class Stopwatch:
    """Lets every step take its time: of those under way, the one that ends first ends next."""

    seconds: dict[str, float]
    now: float = 0.0
    ends: dict[str, float] = field(default_factory=dict)

    def __call__(self, running: tuple[StepView, ...]) -> StepView:
        for step in running:
            self.ends.setdefault(step.key, self.now + self.seconds.get(step.agent or "", 1.0))
        first = min(running, key=lambda step: self.ends[step.key])
        self.now = self.ends[first.key]
        return first


@pytest.mark.req("P-025")
def test_a_batch_takes_as_long_as_its_longest_member_and_not_as_long_as_all_together() -> None:
    seconds = {"research": 30.0, "architect": 40.0, "code-review": 20.0, "qa": 50.0, "security": 10.0}
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


def test_a_feature_s_steps_that_can_run_together_do() -> None:
    game, _ = play(FEATURE, "parts=2")
    assert {"research", "architect"} in [set(batch) for batch in game.batches]
    assert {"code-review", "qa", "security"} in [set(batch) for batch in game.batches]


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
        if any(
            (isinstance(node, ast.Import) and any(name.name.split(".")[0] == "docker" for name in node.names))
            or (isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "docker")
            for node in ast.walk(ast.parse(path.read_text()))
        )
    }
    assert users
    assert {user.rpartition("/")[0] for user in users} <= {"sandbox/docker", "sandbox/image"}
    assert all(
        "Docker" not in tool and "box" not in tool.casefold() for agent in BOOK.agents.values() for tool in agent.tools
    )

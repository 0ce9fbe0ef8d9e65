"""`make runs`: a feature and a P0 ticket from their words to a pull request; who writes code works in a real box.

Too long for every check (some minutes); the fix of test_ticket_agents is its smoke there.
"""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pydantic import SecretStr

from ledger.tables import Job
from routing.policy.agents import Account, AccountsConfig
from sandbox.docker.engine import Engine, is_outer_network
from tests.box.test_ticket_agents import CANARY, world
from tests.factories import Shop
from tests.forge import TOKEN, Forge
from tests.integration.runs.step_world import StepYard
from tests.integration.runs.test_whole_run import RealYard
from tests.unit.gateway.fake_provider.agent_workspace import FEATURE, MIXED, PROJECT
from workers.lifecycle import Resources

__all__ = ["world"]
pytestmark = [
    pytest.mark.docker,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(os.environ.get("RUNS") != "1", reason="`make runs` asks for it"),
]
CONFIG = """
repo: {{url: "file://{home}/remotes/shop.git"}}
stack: {{language: typescript, frontend: react}}
integrations: {{github: {{repository: acme/shop, token: acme}}}}
"""


@pytest.fixture
def forge() -> Iterator[Forge]:
    with Forge() as running:
        yield running


@pytest.fixture
def yard(world: tuple[Shop, Resources, Engine], forge: Forge, tmp_path: Path) -> RealYard:
    shop, resources, _ = world
    shop.clear()
    account = Account(
        kind="github",
        api_url=forge.url,
        token=SecretStr(TOKEN),
        git_url="https://forge.example/acme/",
        tenants=("acme",),
    )
    made = RealYard(shop, tmp_path, policy=resources.policy, project=CONFIG.format(home=tmp_path), files=PROJECT)
    made.resources = replace(
        resources, runs=StepYard.runs_config(tmp_path), accounts=AccountsConfig(by_name={"acme": account})
    )
    return made


def submit(yard: RealYard, ticket: dict[str, Any], *tags: str) -> UUID:
    body = " ".join((str(ticket["body"]), *(f"[rehearse:{tag}]" for tag in tags)))
    return yard.submit(
        f"{ticket['title']}\n\n{body}",
        priority=ticket.get("priority", "P2"),
        ticket={"title": ticket["title"], "key": "acme/shop#12", "url": "https://f.example/12"},
    )


def published(yard: RealYard, run_id: UUID, engine: Engine, forge: Forge) -> Job:
    job = yard.play(run_id)
    told = [(row.step_key, row.attempt, row.status, row.reason, row.detail) for row in yard.executions(run_id)]
    for line in told:
        print(line)
    assert job.state == "published", (job.state, job.reason, job.detail, told)
    assert [pull["number"] for pull in forge.pulls] == [job.result["pull_request"]["number"]]
    calls, booked = yard.bill(run_id)
    assert calls == booked > 0
    assert all(is_outer_network(found) for found in engine.leftovers())
    for path in (yard.home / "runs").rglob("*"):
        assert not path.is_file() or CANARY.encode() not in path.read_bytes()
    print(f"{len(told)} executions, ${calls / 1e9:.2f}")
    return job


def agents_of(yard: RealYard, run_id: UUID) -> list[str | None]:
    return [row.agent for row in yard.executions(run_id)]


def test_a_feature_is_built_by_parallel_developers_and_the_one_who_joins_their_work(
    yard: RealYard, world: tuple[Shop, Resources, Engine], forge: Forge
) -> None:
    run_id = submit(yard, FEATURE, "parts=3")
    published(yard, run_id, world[2], forge)
    steps = yard.steps(run_id)
    agents = agents_of(yard, run_id)
    assert agents.count("frontend-dev") == 5  # setup, three parts, app
    assert {"research", "architect", "backend-dev", "styling", "code-review", "qa", "security"} <= set(agents)
    parts = [key for key, step in steps.items() if step.agent == "frontend-dev" and len(step.depends_on) == 1]
    assert len({tuple(steps[key].writes) for key in parts}) == len(parts) >= 3


def test_a_p0_ticket_is_planned_mended_reworked_gated_and_becomes_a_pull_request(
    yard: RealYard, world: tuple[Shop, Resources, Engine], forge: Forge
) -> None:
    run_id = submit(yard, MIXED, "issues=2,0,0", "needs-rework=2")
    job = published(yard, run_id, world[2], forge)
    steps = yard.steps(run_id)
    assert max(step.round for step in steps.values()) == 1
    assert max(step.cycle for step in steps.values()) >= 1
    assert [(gate.state, gate.actor) for gate in yard.gates(run_id)] == [("passed", "bob")]
    run = yard.run(run_id)
    assert run.base_commit is not None
    changed = yard.workspace(run_id).changes(run.base_commit, job.result["commit"])
    assert b"Math.round" in (changed["src/price.ts"] or b"")
    assert "passed by bob" in forge.pulls[0]["body"]

"""Whose key pays for a project's steps, at which address, and for which model: through a real gateway and ledger."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from aiohttp import web

from ledger.attempts import bind_egress
from ledger.jobs import lock_job
from ledger.runs.specs import NewStep
from ledger.runs.steps import StepStart, add_steps, start_step
from ledger.start_attempt import claim
from ledger.store import Ledger
from ledger.tables import Attempt
from producers.dispatch.broker import Publisher
from producers.intake.submit import Submitter
from producers.use_cases.runs import Projects
from routing.broker import create_app
from routing.jobs import JobMessage, Source
from routing.policy.project import accounts_for, for_project, read_project
from routing.queues import QueueName
from tests.integration.gateway.gateway_world import (
    Held,
    ScriptedProvider,
    World,
    block,
    closing,
    gateway_world,
    message,
    opening,
    provider,
    scripted_provider,
    stream,
    words,
)

SONNET, OPUS, HAIKU = "claude-sonnet-4-6", "claude-opus-4-6", "claude-haiku-4-5-20251001"
REPLY = (opening(), block(), words("yes"), closing(output_tokens=5))
BASE = "repo: {url: 'https://forge.example/acme/shop.git'}\nstack: {language: typescript}\n"
KEYS = {"own": "sk-ant-own-" + "0" * 30, "enterprise": "sk-ant-ent-" + "1" * 30, "strangers": "sk-ant-str-" + "2" * 30}


def reply(played: ScriptedProvider, http: web.Request) -> Any:
    return stream(played, http, *REPLY)


@dataclass
class Accounts:
    """A gateway with three accounts: the tenant's, a second one of the tenant's, and one that is a stranger's."""

    world: World
    ups: dict[str, ScriptedProvider]

    def step(self, project: str, text: str, agent: str) -> Held:
        """Let one step of a run wait as the coordinator would, and let a worker claim it."""
        ledger, policy = self.world.ledger, self.world.policy
        Projects(ledger, policy).put("acme", project, text, source="project.yaml", actor="operator")
        config = read_project(text, source="project.yaml", policy=policy)
        mine = for_project(policy, config).agents[agent]
        account = accounts_for(config, policy, tenant_account="own")[mine.provider]
        submitter = Submitter(ledger, Publisher(create_app("redis://127.0.0.1:1/0")), policy)
        asked = {"prompt": "Fix the header\n\nIt overlaps.", "project": project}
        run_id = submitter.submit(asked, tenant="acme", source=Source.PYTHON, actor="ann").job.id
        with ledger.begin() as session:
            job = lock_job(session, run_id)
            add_steps(session, job, [NewStep(key="step", agent=agent, phase="work", task="t")])
            job_id = start_step(session, job, StepStart(key="step", attempt=1, model=mine.model, provider=account))
            assert job_id is not None
        given = JobMessage(job_id=job_id, fence=0)
        claimed = claim(ledger, given, queue=QueueName.STEPS, worker="w", policy=policy)
        assert claimed is not None
        return Held(job_id, claimed.attempt.id, claimed.token)

    def called(self) -> dict[str, int]:
        return {name: len(up.requests) for name, up in self.ups.items()}


@pytest.fixture
def accounts(ledger: Ledger, ledger_url: str) -> Iterator[Accounts]:
    with ExitStack() as stack:
        ups = {name: stack.enter_context(scripted_provider(reply)) for name in KEYS}
        providers = {name: provider(up.url, label=name, key=KEYS[name]) for name, up in ups.items()}
        providers["enterprise"] = providers["enterprise"].model_copy(update={"tenants": ("acme",)})
        world = stack.enter_context(gateway_world(ledger, ledger_url, providers))
        yield Accounts(world, ups)


@pytest.mark.req("S-066", "S-067", "P-037", "S-073")
def test_two_projects_of_a_tenant_pay_with_two_accounts_at_two_addresses(accounts: Accounts) -> None:
    plain = accounts.step("one", BASE, "research")
    named = accounts.step("two", BASE + "keys: {anthropic: enterprise}\n", "research")
    for held in (plain, named):
        assert accounts.world.post(held, message(model=SONNET)).status_code == 200
    assert accounts.called() == {"own": 1, "enterprise": 1, "strangers": 0}
    assert [accounts.ups[name].requests[0][0]["x-api-key"] for name in ("own", "enterprise")] == [
        KEYS["own"],
        KEYS["enterprise"],
    ]
    calls = accounts.world.calls()
    assert [call.provider for call in calls] == ["own", "enterprise"]
    assert len({call.key_hash for call in calls}) == 2
    assert not any(key in str(call.key_hash) for call in calls for key in KEYS.values())


@pytest.mark.req("S-065", "S-068")
def test_a_project_that_names_a_stranger_s_account_makes_no_call(accounts: Accounts) -> None:
    held = accounts.step("three", BASE + "keys: {anthropic: strangers}\n", "research")
    answer = accounts.world.post(held, message(model=SONNET))
    assert answer.status_code == 403
    assert "not tenant acme's" in answer.text
    assert accounts.called() == {"own": 0, "enterprise": 0, "strangers": 0}


@pytest.mark.req("P-004", "S-077", "S-073")
def test_a_step_may_call_the_model_that_its_layers_chose_and_no_other(accounts: Accounts) -> None:
    held = accounts.step("four", BASE + f"models: {{security: {OPUS}}}\n", "security")
    assert accounts.world.post(held, message(model=OPUS)).status_code == 200
    for other in (HAIKU, SONNET):
        assert accounts.world.post(held, message(model=other)).status_code in (400, 403)
    assert accounts.called()["own"] == 1


@pytest.mark.threat("C2")
@pytest.mark.req("H-115")
def test_a_step_of_an_agent_with_a_box_calls_from_its_egress_on_a_key_with_a_limit(accounts: Accounts) -> None:
    held = accounts.step("five", BASE, "qa")
    outside = accounts.world.post(held, message(model=SONNET))
    assert (outside.status_code, "bound to none" in outside.text) == (401, True)
    with accounts.world.ledger.begin() as session:
        bind_egress(session, session.get_one(Attempt, held.attempt_id), address="127.0.0.1")
    unlimited = accounts.world.post(held, message(model=SONNET))
    assert (unlimited.status_code, "day_usd" in unlimited.text) == (403, True)
    assert accounts.called()["own"] == 0

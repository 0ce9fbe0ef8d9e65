"""A whole run with its real parts: coordinator, steps, gateway and rehearsal team; only the boxes are played."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pydantic import SecretStr

from gateway.config import GatewayConfig, ProviderConfig
from gateway.fake_provider.config import FakeProviderConfig
from gateway.fake_provider.server import running_fake_provider
from ledger.store import Ledger
from sites.content_store import ContentStore
from tests.factories import Shop
from tests.integration.runs.run_world import Yard
from tests.integration.runs.step_world import StepYard, policy_with_file_remotes
from tests.played_cli import PlayedMaker
from tests.threads import serve_gateway_in_thread
from workers.attempt import Attempt
from workers.lifecycle import Resources
from workers.outcomes import Outcome
from workers.runs.step import run_step

CLI = """
name = pathlib.Path(".agent-context/CLAUDE.md").read_text().split("`")[1]
init()
if name == "qa":
    pathlib.Path("src").mkdir(exist_ok=True)
    write("src/app.js", "// a tester was here")
    write("tests/header.test.js", "import test from 'node:test';")
else:
    write("src/header.js", "export const header = 'Shop';")
write(".agent-result.json", json.dumps({"status": "complete", "summary": name + " is done."}))
result()
"""


@pytest.fixture(scope="module")
def servers(module_ledger: tuple[Ledger, str]) -> Iterator[str]:
    _, url = module_ledger
    with ExitStack() as stack:
        model = stack.enter_context(running_fake_provider(FakeProviderConfig(speed="max")))
        provider = ProviderConfig(base_url=model.url, api_key=SecretStr("k" * 32), label="fake", day_usd=100)
        gateway = GatewayConfig(providers={"fake": provider}, pepper=SecretStr("p" * 32))
        yield stack.enter_context(serve_gateway_in_thread(gateway, url, policy_with_file_remotes()))


class RealYard(Yard):
    """A yard whose steps are done for real."""

    def step_handler(self, attempt: Attempt) -> Outcome:
        assert attempt.step_order is not None
        self.executed.append((attempt.step_order.key, attempt.step_order.attempt))
        return run_step(attempt)


@pytest.mark.slow
@pytest.mark.req("S-003", "S-005", "S-006", "S-045")
def test_a_fix_goes_from_its_ticket_to_one_commit_through_real_steps(shop: Shop, servers: str, tmp_path: Path) -> None:
    policy = policy_with_file_remotes()
    project = f'repo: {{url: "file://{tmp_path}/remotes/shop.git"}}\nstack: {{language: typescript, frontend: react}}\n'
    yard = RealYard(shop, tmp_path, policy=policy, project=project)
    maker = PlayedMaker(tmp_path / "programs", is_walled=True)
    maker.program("claude", CLI)
    yard.resources = Resources(
        ledger=shop.ledger,
        content_store=ContentStore(tmp_path / "content-store"),
        policy=policy,
        gateway_url=servers,
        worker="w1",
        boxes=maker,
        runs=StepYard.runs_config(tmp_path),
    )

    run_id = yard.submit("Fix the broken header")
    job = yard.play(run_id)

    told = [(row.step_key, row.attempt, row.status, row.reason, row.detail) for row in yard.executions(run_id)]
    assert job.state == "published", (job.state, job.reason, job.detail, told)
    run = yard.run(run_id)
    assert run.base_commit is not None
    changed = yard.workspace(run_id).changes(run.base_commit, job.result["commit"])
    assert changed["src/header.js"] == b"export const header = 'Shop';"
    assert changed["tests/header.test.js"] == b"import test from 'node:test';"
    assert "src/app.js" not in changed
    assert not any(path.startswith(("artifacts/", ".agent-")) for path in changed)
    qa = next(row for row in yard.executions(run_id) if row.agent == "qa")
    assert qa.dropped == ["src/app.js: not_allowed"]
    assert len({box.id for box in maker.boxes}) == len(maker.boxes) >= 2
    calls, booked = yard.bill(run_id)
    assert calls == booked > 0

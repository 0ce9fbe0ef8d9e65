"""Agents of the ticket workflow whole: the real CLI in real boxes, through the real gateway, to a step's commit.

The CLI runs without permission checks here and nowhere else; what keeps it in is the box, and what keeps its writes in
is what the service takes over.
"""

import gzip
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml
from pydantic import SecretStr

from gateway.config import GatewayConfig, ProviderConfig
from gateway.fake_provider.config import FakeProviderConfig
from gateway.fake_provider.server import running_fake_provider
from sandbox.docker.engine import Engine, is_outer_network
from tests.box.ground import open_resources, start_gateway
from tests.engine import TestEngine
from tests.factories import Shop
from tests.integration.runs.step_world import FILES, StepYard, policy_with_file_remotes
from tests.integration.runs.test_whole_run import RealYard
from tests.services import Postgres
from tests.threads import serve_gateway_in_thread
from workers.lifecycle import Resources

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]

GATEWAY_PORT = 8110
MODEL_PORT = 8111
CANARY = "sk-ant-canary-of-the-agents-0123456789abcdef"
SCENARIO = """
rules:
  - name: develops
    when: {tag: develops, turn: 1, tools: [Bash, Write], system: "You are the agent .frontend-dev. of a run"}
    say:
      - tool: Write
        input: {file_path: /workspace/src/header.js, content: "export const header = 'Shop';"}
      - tool: Bash
        input:
          command: >-
            env; id -u; touch /usr/local/bin/x; echo "root $?"; cat .agent-context/ticket.md;
            head -1 .agent-context/CLAUDE.md | cut -c1-30;
            git --version; echo "git $?"; node --version; npm run test; echo "test $?"; mkdir -p node_modules/x;
            echo x > node_modules/x/y.js; echo obey > CLAUDE.md; curl http://203.0.113.7/; echo "curl $?";
            echo changed > .agent-context/ticket.md
      - tool: Write
        input: {file_path: /workspace/artifacts/handoff/frontend-dev-to-qa.md, content: "Look at the header."}
  - name: develops-on
    when: {tag: develops, turn: 2}
    say:
      - tool: Write
        input:
          file_path: /workspace/.agent-result.json
          content: '{"status": "complete", "summary": "Built the header.", "artifacts":
            ["artifacts/handoff/frontend-dev-to-qa.md"]}'
  - name: has-developed
    when: {tag: develops, turn: 3}
    say:
      - text: I built the header.
  - name: tests
    when: {tag: tests, turn: 1, tools: [Bash, Edit, Write]}
    say:
      - tool: Read
        input: {file_path: /workspace/src/app.js}
      - tool: Read
        input: {file_path: /workspace/artifacts/handoff/frontend-dev-to-qa.md}
  - name: edits-source
    when: {tag: tests, turn: 2}
    say:
      - tool: Edit
        input: {file_path: /workspace/src/app.js, old_string: "a + b", new_string: "b + a"}
      - tool: Bash
        input: {command: "rm src/cart.js; echo done"}
      - tool: Write
        input: {file_path: /workspace/tests/total.test.js, content: "import test from 'node:test';"}
      - tool: Write
        input:
          file_path: /workspace/.agent-result.json
          content: '{"status": "complete", "summary": "Tested.", "issues": [{"severity": "blocking",
            "title": "The header overlaps"}]}'
  - name: has-tested
    when: {tag: tests, turn: 3}
    say:
      - text: I tested it.
  - name: goes-on
    when: {tag: forgets, prompt: Go on where you stopped, tool_result: false}
    say:
      - tool: Write
        input:
          file_path: /workspace/.agent-result.json
          content: '{"status": "complete", "summary": "Went on after: {{ results[0].input.command }}"}'
  - name: has-gone-on
    when: {tag: forgets, prompt: Go on where you stopped}
    say:
      - text: I have handed it in.
  - name: forgets-its-result
    when: {tag: forgets, turn: 1}
    say:
      - tool: Bash
        input: {command: echo half > src/half.js}
  - name: has-forgotten-its-result
    when: {tag: forgets}
    say:
      - text: I am done.
"""


@pytest.fixture(scope="module")
def world(
    daemon: TestEngine, postgres: Postgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Shop, Resources, Engine]]:
    home = tmp_path_factory.mktemp("agents")
    policy = policy_with_file_remotes()
    (home / "policy.yaml").write_text(yaml.safe_dump(policy.model_dump(mode="json")))
    with ExitStack() as stack:
        url = stack.enter_context(postgres.database())
        start_gateway(
            stack,
            daemon,
            home,
            url,
            port=GATEWAY_PORT,
            model_port=MODEL_PORT,
            canary=CANARY,
            scenario=SCENARIO,
            POINTSMAN_POLICY__PATH=str(home / "policy.yaml"),
        )
        # Agents without a box call from this process, which the engine's network is not for: a gateway of their own.
        here = stack.enter_context(running_fake_provider(FakeProviderConfig(speed="max")))
        own = ProviderConfig(base_url=here.url, api_key=SecretStr(CANARY), label="fake", day_usd=100)
        gateway = GatewayConfig(providers={"fake": own}, pepper=SecretStr("p" * 32))
        gateway_url = stack.enter_context(serve_gateway_in_thread(gateway, url, policy))
        config = daemon.config(gateway_port=GATEWAY_PORT, mirror_port=0, memory_mib=1536, processes=256, warm=0)
        shop, resources = open_resources(
            stack, home, url, config, gateway_url=gateway_url, canary=CANARY, policy=policy
        )
        engine = daemon.open()
        stack.callback(engine.close)
        yield shop, resources, engine


@pytest.fixture
def yard(world: tuple[Shop, Resources, Engine], tmp_path: Path) -> StepYard:
    shop, resources, _ = world
    shop.clear()
    shop.tenant(provider="fake")
    return StepYard(shop, Resources(**{**vars(resources), "runs": StepYard.runs_config(tmp_path)}), tmp_path)


@pytest.mark.req("S-007", "S-054", "S-055", "S-056", "S-077")
def test_a_developer_writes_code_with_the_cli_that_asks_nobody_behind_the_wall(
    yard: StepYard, world: tuple[Shop, Resources, Engine]
) -> None:
    done = yard.do("frontend-dev", "Build the header [rehearse:develops]")

    assert done.job.state == "answered", (done.job.reason, done.job.detail)
    assert done.changes() == {
        "artifacts/handoff/frontend-dev-to-qa.md": b"Look at the header.",
        "src/header.js": b"export const header = 'Shop';",
    }
    assert done.execution.dropped == [".agent-context/ticket.md: context", "CLAUDE.md: planted"]
    assert all(is_outer_network(found) for found in world[2].leftovers())
    agent = done.job.result["agent"]
    said = gzip.decompress(yard.resources.content_store.get(agent["transcript_sha256"])).decode()
    assert '"permissionMode":"bypassPermissions"' in said
    for line in (
        "You are the agent `frontend-de",
        "root 1",
        "git 12[67]",
        "curl 12[67]",
        r"(18|19|20|21)\d{8}",
        "overlaps the menu",
    ):
        assert re.search(line, said), line
    assert "ANTHROPIC_MODEL=claude-sonnet-4-6" in said  # what the layers chose, given as the CLI was started
    assert CANARY not in said
    assert yard.shop.url not in said
    stored = yard.shop.rows(
        "SELECT row_to_json(run_step)::text FROM run_step UNION ALL SELECT row_to_json(e)::text FROM agent_executions e"
        " UNION ALL SELECT row_to_json(job)::text FROM job UNION ALL SELECT row_to_json(run)::text FROM run"
    )
    assert stored
    assert not any("pma_" in text or CANARY in text for (text,) in stored)


@pytest.mark.req("S-006", "S-008")
def test_a_tester_that_edits_source_has_edited_nothing_and_is_reported(
    yard: StepYard, world: tuple[Shop, Resources, Engine]
) -> None:
    first = yard.do("frontend-dev", "Build the header [rehearse:develops]", key="dev")
    assert all(is_outer_network(found) for found in world[2].leftovers()), (
        "the developer's box is gone before the tester's"
    )
    workspace, commit = yard.workspace(), first.execution.commit
    assert commit is not None
    head = workspace.absorb(yard.base, commit, base=yard.base, message="m", when=5).head
    yard.complete("dev-done", dict(first.result), head=head)

    done = yard.do("qa", "Test the header [rehearse:tests]", key="qa", depends_on=("dev-done",))

    assert done.job.state == "answered", (done.job.reason, done.job.detail)
    assert done.changes() == {"tests/total.test.js": b"import test from 'node:test';"}
    assert done.execution.dropped == ["src/app.js: not_allowed", "src/cart.js: not_allowed"]
    assert [issue["title"] for issue in done.result["issues"]] == ["The header overlaps"]
    assert workspace.read(done.execution.commit or "").files["src/app.js"] == b"export const total = (a, b) => a + b;\n"
    sessions = {first.job.result["agent"]["session"], done.job.result["agent"]["session"]}
    assert len(sessions) == 2


@pytest.mark.req("S-051")
def test_a_session_that_leaves_no_result_has_failed_whatever_it_says_and_the_next_goes_on(yard: StepYard) -> None:
    done = yard.do("frontend-dev", "Build it [rehearse:forgets]")

    assert (done.job.state, done.job.reason) == ("failed", "agent_failed")
    assert "left no .agent-result.json" in (done.job.detail or "")
    assert done.execution.commit is None

    yard.shop.execute("UPDATE run_step SET state = 'failed'")  # as its run does
    done = yard.do("frontend-dev", "Build it [rehearse:forgets]")
    assert (done.job.state, done.job.detail) == ("answered", None)
    assert done.result["summary"] == "Went on after: echo half > src/half.js"
    assert done.changes() == {"src/half.js": b"half\n"}


@pytest.mark.req("S-003")
def test_a_fix_goes_from_its_ticket_to_one_commit_with_the_real_cli_in_real_boxes(
    world: tuple[Shop, Resources, Engine], tmp_path: Path
) -> None:
    shop, resources, engine = world
    shop.clear()
    project = f'repo: {{url: "file://{tmp_path}/remotes/shop.git"}}\nstack: {{language: javascript}}\n'
    yard = RealYard(shop, tmp_path, policy=resources.policy, project=project, files=FILES)
    yard.resources = Resources(**{**vars(resources), "runs": StepYard.runs_config(tmp_path)})

    run_id = yard.submit("Fix src/app.js: it says `a + b` instead of `b + a`")
    job = yard.play(run_id)

    told = [(row.step_key, row.attempt, row.status, row.reason, row.detail) for row in yard.executions(run_id)]
    assert job.state == "published", (job.state, job.reason, job.detail, told)
    tested = yard.steps(run_id)["qa"].result
    assert tested is not None
    assert "The tests ran." in tested["summary"]
    run = yard.run(run_id)
    assert run.base_commit is not None
    changed = yard.workspace(run_id).changes(run.base_commit, job.result["commit"])
    assert changed["src/app.js"] == b"export const total = (a, b) => b + a;\n"
    assert not any(path.startswith(("artifacts/", ".agent-")) for path in changed)
    calls, booked = yard.bill(run_id)
    assert calls == booked > 0
    assert all(is_outer_network(found) for found in engine.leftovers())
    print(told, sorted(changed), f"${calls / 1e9:.2f}")
    for path in resources.content_store.root.rglob("*"):
        assert not path.is_file() or CANARY.encode() not in path.read_bytes()
    for path in (tmp_path / "runs").rglob("*"):
        assert not path.is_file() or CANARY.encode() not in path.read_bytes()

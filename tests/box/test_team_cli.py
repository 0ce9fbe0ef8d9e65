"""The rehearsed team through the real Claude Code CLI in real boxes: code that runs, tests that run, valid results."""

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import pytest

from routing.policy.agents import RESULT_FILE, is_covered
from routing.policy.platform import platform_policy
from sandbox.box import WORKSPACE, Clocks, CollectRules, Ending
from sandbox.claude_code import SessionPlan, arguments, encode_prompt, environment, ticket_role
from sandbox.docker.engine import Engine
from sandbox.pool import build_maker
from sites.content_store import ContentStore
from tests.engine import Listener, TestEngine
from workers.runs.cli_runners import put
from workers.runs.scheduling.view import AgentResult, Status, parse_result
from workers.runs.step_context import INSTRUCTIONS, StepBrief, claude_md, order_text

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]

PORT = 8096
CLOCKS = Clocks(soft_seconds=200, hard_seconds=220, start_seconds=60)
AGENTS = platform_policy().agents
PROJECT = {
    "package.json": b'{"name": "shop", "private": true, "type": "module", "scripts": {"test": "node --test"}}\n',
    "tsconfig.json": b"{}\n",
    "src/price.ts": b"export function cents(price: number): number {\n  return Math.floor(price * 100);\n}\n",
}
TICKET = {
    "title": "Prices are rounded down",
    "body": "src/price.ts uses `Math.floor` instead of `Math.round`. [rehearse:qa-edits-source]",
}


@pytest.fixture(scope="module")
def model(daemon: TestEngine) -> Iterator[None]:
    """The fake provider on the engine's host."""
    with ExitStack() as stack:
        daemon.run(stack, "fake-provider", "--host", "0.0.0.0", "--port", str(PORT), "--speed", "max")
        daemon.await_ports(PORT)
        yield


def step(
    agent: str, files: Mapping[str, bytes], *, daemon: TestEngine, engine: Engine, content_store: ContentStore
) -> tuple[AgentResult, dict[str, bytes]]:
    """Run one agent of runtime claude_code, and return its result and the files that it left."""
    definition = AGENTS[agent]
    words = StepBrief(
        key=agent,
        agent=agent,
        task="Do your part of the fix.",
        ticket=TICKET,
        results={},
        context=(),
        writes=definition.writes,
    )
    role = ticket_role(definition.tools, rules_file=f"{WORKSPACE}/{INSTRUCTIONS}")
    plan = SessionPlan(
        role=role,
        model=definition.model,
        max_turns=definition.max_turns,
        budget_usd=2,
        max_output_tokens=definition.max_output_tokens,
    )
    box = build_maker(daemon.config(gateway_port=PORT, memory_mib=1536, processes=256), engine).create()
    events: list[dict[str, Any]] = []
    try:
        put(box, {**files, INSTRUCTIONS: claude_md(agent, definition).encode()})
        result = box.run(
            arguments(plan, is_walled=True),
            clocks=CLOCKS,
            stdin=encode_prompt(order_text(words, redact=lambda text: text)),
            env=environment(plan, gateway_url=box.egress.gateway_url, token="virtual"),
            on_line=lambda line: events.append(json.loads(line)) if line.startswith(b"{") else None,
        )
        assert (result.ending, result.exit_code) == (Ending.EXITED, 0), result.stderr
        assert events[-1]["subtype"] == "success"
        left = dict(
            content_store.read_tree(
                box.collect(content_store, CollectRules(max_bytes=5_000_000, planted=lambda path: False))
            )
        )
    finally:
        box.close()
    return parse_result(left.pop(RESULT_FILE)), left


@pytest.mark.req("S-055", "S-056")
def test_a_developer_mends_and_qa_writes_tests_that_run_in_a_box_of_its_own(
    daemon: TestEngine, engine: Engine, mirror: Listener, model: None, content_store: ContentStore
) -> None:
    mended, files = step("backend-dev", PROJECT, daemon=daemon, engine=engine, content_store=content_store)
    assert mended.status is Status.COMPLETE
    assert b"Math.round" in files["src/price.ts"]
    kept = {path: data for path, data in files.items() if not path.startswith(".agent-context/")}

    tested, after = step("qa", kept, daemon=daemon, engine=engine, content_store=content_store)
    assert tested.status is Status.COMPLETE
    assert tested.issues == ()
    assert "The tests ran." in tested.summary
    made = {path for path, data in after.items() if kept.get(path) != data and not path.startswith(".agent-context/")}
    assert made == {"artifacts/qa/report-1.md", "tests/prices-are-rounded-down.test.ts", "src/price.ts"}
    assert not is_covered("src/price.ts", AGENTS["qa"].writes)

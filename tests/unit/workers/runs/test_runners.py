"""What holds for every runner, whatever runs the agent: the fake one passes the same tests (S-063)."""

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from routing.jobs import Reason, State
from routing.policy.platform import platform_policy
from routing.queues import QueueName
from sandbox.box import Clocks, UncontainedSessionError
from sandbox.claude_code import SITE, SessionPlan, arguments, ticket_role
from sites.content_store import ContentStore
from tests.factories import make_attempt
from tests.played_cli import PlayedMaker
from tests.unit.workers.runs.fake_runner import Played
from tests.well import well_gateway
from workers.attempt import Attempt
from workers.config import RunsConfig
from workers.runs.cli_runners import run_claude_code, run_codex
from workers.runs.step_context import INSTRUCTIONS, AgentOrder, AgentRun, Failed

FILES = {"README.md": b"# Shop\n", "src/app.ts": b"app\n", ".agent-context/index.md": b"index\n"}
RESULT = {".agent-result.json": b'{"status": "complete", "summary": "Done."}'}
AGENT = platform_policy().agents["frontend-dev"]
ORDER = AgentOrder(
    name="frontend-dev",
    agent=AGENT,
    model="claude-sonnet-4-6",
    instructions="You are a developer.\n",
    prompt="Build it. --dangerous",
    files=FILES,
    writes=("src/",),
    cap_usd=3.0,
)
Changes = Mapping[str, bytes | None]


def attempt_in(home: Path, **fields: object) -> Attempt:
    made = make_attempt(queue=QueueName.STEPS)
    changes = {
        "content_store": ContentStore(home / "content-store"),
        "environment": {"PATH": os.defpath, "HOME": str(home)},
        **fields,
    }
    return replace(made, **changes)  # type: ignore[arg-type]


def script(changes: Changes, *, fails: bool) -> str:
    """A program's body that leaves changes in its directory."""
    plain = {path: data.decode() if data is not None else None for path, data in changes.items()}
    lines = [
        f"changes = json.loads({json.dumps(plain)!r})",
        "for path, text in changes.items():",
        "    place = pathlib.Path(path)",
        "    if text is None: place.unlink(); continue",
        "    place.parent.mkdir(parents=True, exist_ok=True); place.write_text(text)",
    ]
    return "\n".join([*lines, *(["sys.exit(3)"] if fails else [])])


@pytest.fixture(scope="module")
def gateway() -> Iterator[str]:
    """A gateway that says it is well: what fails then is the agent's own failure."""
    with well_gateway() as url:
        yield url


class Shop:
    """A place where any runner can be run."""

    def __init__(self, home: Path, gateway: str) -> None:
        self.home = home
        self.gateway = gateway
        self.maker = PlayedMaker(home / "programs", is_walled=True)

    def played(self, changes: Changes, *, fails: bool) -> AgentRun:
        failed = Failed(State.FAILED, Reason.AGENT_FAILED, "it fails") if fails else None
        return Played(changes, failed=failed)(ORDER, attempt_in(self.home))

    def claude_code(self, changes: Changes, *, fails: bool) -> AgentRun:
        self.maker.program("claude", "init()\n" + script(changes, fails=fails) + "\nresult()")
        return run_claude_code(ORDER, attempt_in(self.home, boxes=self.maker, gateway_url=self.gateway))

    def codex_local(self, changes: Changes, *, fails: bool) -> AgentRun:
        program = self.home / "codex"
        body = f"#!{sys.executable}\nimport json, pathlib, sys\nsys.stdin.read()\n{script(changes, fails=fails)}\n"
        program.write_text(body)
        program.chmod(0o755)
        config = RunsConfig(codex_tenant="acme", codex_command=str(program))
        attempt = attempt_in(self.home, runs=config, charge_unmetered=lambda nanousd, model: None)
        return run_codex(ORDER, attempt)


Run = Callable[..., AgentRun]


@pytest.fixture(params=["played", "claude_code", "codex_local"])
def run(request: pytest.FixtureRequest, tmp_path: Path, gateway: str) -> Run:
    found: Run = getattr(Shop(tmp_path, gateway), request.param)
    return found


@pytest.mark.req("S-063")
def test_a_runner_gives_back_the_whole_workspace_as_the_agent_left_it(run: Run) -> None:
    ran = run({**RESULT, "src/app.ts": b"new\n", "src/new.ts": b"n\n", "README.md": None}, fails=False)

    assert ran.failed is None
    files = {path: data for path, data in FILES.items() if path != "README.md"}
    assert ran.files == {**files, **RESULT, "src/app.ts": b"new\n", "src/new.ts": b"n\n"}


@pytest.mark.req("S-063")
def test_a_runner_does_not_judge_where_an_agent_wrote(run: Run) -> None:
    ran = run({**RESULT, "elsewhere/x.ts": b"x\n", "CLAUDE.md": b"obey\n"}, fails=False)

    assert ran.files is not None
    assert {"elsewhere/x.ts", "CLAUDE.md"} <= ran.files.keys()


@pytest.mark.req("S-063")
def test_a_runner_says_why_an_agent_failed_and_still_brings_its_files(run: Run) -> None:
    ran = run({**RESULT, "src/new.ts": b"n\n"}, fails=True)

    assert ran.failed is not None
    assert (ran.failed.state, ran.failed.reason) == (State.FAILED, Reason.AGENT_FAILED)
    assert ran.files is not None
    assert ran.files["src/new.ts"] == b"n\n"


# The Claude Code runner


@pytest.mark.req("S-055", "S-059")
def test_the_command_line_of_a_ticket_agent_is_pinned() -> None:
    role = ticket_role(AGENT.tools, rules_file=f"/workspace/{INSTRUCTIONS}")
    plan = SessionPlan(role=role, model="m", max_turns=60, budget_usd=3, max_output_tokens=6000)

    argv = arguments(plan, is_walled=True)

    assert argv == (
        "claude",
        "--print",
        "--verbose",
        "--output-format=stream-json",
        "--input-format=stream-json",
        "--setting-sources=user",
        "--settings=/etc/claude-code/roles/ticket.json",
        "--strict-mcp-config",
        "--disable-slash-commands",
        "--no-session-persistence",
        "--tools=Bash,Edit,Glob,Grep,Read,Write",
        "--allowedTools=Bash,Edit,Glob,Grep,Read,Write",
        "--disallowedTools=WebFetch,WebSearch,Agent,Task,mcp__*",
        "--dangerously-skip-permissions",
        "--append-system-prompt-file=/workspace/.agent-context/CLAUDE.md",
        "--model=m",
        "--max-turns=60",
        "--max-budget-usd=3.0000",
    )


@pytest.mark.req("S-060")
def test_permission_checks_are_skipped_only_behind_a_wall() -> None:
    role = ticket_role(AGENT.tools, rules_file="/x")
    plan = SessionPlan(role=role, model="m", max_turns=1, budget_usd=1, max_output_tokens=1)
    with pytest.raises(UncontainedSessionError):
        arguments(plan, is_walled=False)
    assert "--dangerously-skip-permissions" not in arguments(replace(plan, role=SITE), is_walled=False)


@pytest.mark.req("S-060")
def test_without_a_wall_nothing_is_started_at_all(tmp_path: Path) -> None:
    maker = PlayedMaker(tmp_path / "programs")
    maker.program("claude", "init(); result()")

    with pytest.raises(UncontainedSessionError):
        run_claude_code(ORDER, attempt_in(tmp_path, boxes=maker))

    (box,) = maker.boxes
    assert box.commands == []
    assert box.is_closed


@pytest.mark.req("S-056", "S-081")
@pytest.mark.threat("D9")
def test_instructions_lie_in_the_box_before_anything_runs_and_the_prompt_is_on_no_command_line(tmp_path: Path) -> None:
    shop = Shop(tmp_path, "http://127.0.0.1:1")
    shop.maker.program(
        "claude",
        "init()\npathlib.Path('seen.txt').write_text(pathlib.Path('.agent-context/CLAUDE.md').read_text() + prompt)\n"
        "pathlib.Path('.agent-result.json').write_text('{}')\nresult()",
    )
    attempt = attempt_in(tmp_path, boxes=shop.maker)
    attempt = replace(attempt, claim=replace(attempt.claim, token="virtual-7f3a"))
    ran = run_claude_code(ORDER, attempt)

    assert ran.files is not None
    assert ran.files["seen.txt"] == b"You are a developer.\nBuild it. --dangerous"
    assert INSTRUCTIONS not in ran.files
    (box,) = shop.maker.boxes
    words = [word for command in box.commands for word in command]
    assert all("Build it" not in word and "virtual-7f3a" not in word for word in words)
    assert all(b"virtual-7f3a" not in data for data in ran.files.values())
    (environment,) = box.environments
    assert [name for name, value in environment.items() if value == "virtual-7f3a"] == ["ANTHROPIC_AUTH_TOKEN"]


@pytest.mark.parametrize(
    ("body", "state", "reason"),
    [
        ("init(permissionMode='dontAsk'); result()", State.FAILED, Reason.BOX_FAILED),
        ("init(tools=TOOLS + ['WebFetch']); result()", State.FAILED, Reason.BOX_FAILED),
        ("init(); result(subtype='error_max_budget_usd')", State.BUDGET_EXCEEDED, Reason.COST_CAP),
        ("init(); sys.exit(1)", State.FAILED, Reason.AGENT_FAILED),
        ("init(); result()", State.FAILED, Reason.AGENT_FAILED),
        ("init(); os.symlink('/etc/passwd', 'link'); result()", State.FAILED, Reason.AGENT_FAILED),
    ],
)
def test_a_session_that_ends_otherwise_than_well_is_a_failure_with_its_reason(
    tmp_path: Path, gateway: str, body: str, state: State, reason: Reason
) -> None:
    shop = Shop(tmp_path, gateway)
    shop.maker.program("claude", body)
    ran = run_claude_code(ORDER, attempt_in(tmp_path, boxes=shop.maker, gateway_url=gateway))

    assert ran.failed is not None
    assert (ran.failed.state, ran.failed.reason) == (state, reason)
    assert shop.maker.boxes[0].is_closed


def test_clocks_leave_room_for_what_follows_a_session(tmp_path: Path) -> None:
    from workers.runs.cli_runners import session_clocks

    attempt = attempt_in(tmp_path)
    clocks: Clocks = session_clocks(ORDER, attempt)
    assert clocks.hard_seconds < attempt.limits.soft_seconds
    assert clocks.soft_seconds <= AGENT.soft_seconds

"""Every runner alike, whatever runs the agent (S-063); the project's own build; Codex and its one retry (ADR-013)."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from routing.jobs import Reason, State
from routing.policy.platform import platform_policy
from routing.policy.project import Commands
from routing.queues import QueueName
from sandbox.claude_code import SITE, SessionPlan, arguments, ticket_role
from sandbox.errors import BoxLostError, UncontainedSessionError
from sandbox.execution import Clocks
from sandbox.local_box import LocalBox
from sites.content_store import ContentStore
from tests.factories import make_attempt
from tests.played_cli import LosingMaker, PlayedMaker
from tests.unit.workers.runs.fake_runner import Played
from tests.well import well_gateway
from workers.attempt import Attempt
from workers.config import RunsConfig
from workers.runs import cli_runners
from workers.runs.cli_runners import AUTH_SIGNATURE, FALLBACK_FLAG, run_check, run_claude_code, run_codex
from workers.runs.scheduling.view import AgentResult, parse_result
from workers.runs.step_context import INSTRUCTIONS, AgentOrder, AgentRun, Failed

PACKAGE = b'{"scripts": {"build": "tsc"}, "dependencies": {"react": "1"}}'
PROJECT = {"package.json": PACKAGE, "src/app.ts": b"let a: number = 'x';\n"}


def check(home: Path, body: str, files: dict[str, bytes] | None = None) -> tuple[AgentResult, PlayedMaker]:
    maker = PlayedMaker(home / "programs")
    maker.program("npm", f"import sys\n{body}")
    ran = run_check(files or PROJECT, attempt_in(home, boxes=maker))
    assert ran.files is not None
    assert ran.failed is None
    return parse_result(ran.files[".agent-result.json"]), maker


def test_a_build_that_succeeds_has_no_findings_and_leaves_nothing_but_that(tmp_path: Path) -> None:
    result, maker = check(tmp_path, "open('dist.js', 'w').write('x')")

    assert (result.status, result.issues) == ("complete", ())
    (box,) = maker.boxes
    assert box.is_closed
    assert [command[:2] for command in box.commands] == [("npm", "install"), ("npm", "run"), ("rm", "-rf")]
    assert "--ignore-scripts" in box.commands[0]
    assert box.environments == [{}, {}, {}]


def test_a_project_s_own_commands_run_in_their_order_until_one_fails(tmp_path: Path) -> None:
    maker = PlayedMaker(tmp_path / "programs")
    maker.program("bash", "import sys\nprint('tests/test_a.py:3: boom')\nsys.exit('pytest' in sys.argv[-1])")
    own = Commands(test="pytest -q", setup="python -m venv .venv", lint="ruff check")
    ran = run_check({"tests/test_a.py": b"x"}, attempt_in(tmp_path, boxes=maker), own)
    assert ran.files is not None
    (issue,) = parse_result(ran.files[".agent-result.json"]).issues
    assert (issue.title, issue.file, issue.line) == ("`pytest -q` fails (status 1)", "tests/test_a.py", 3)
    (box,) = maker.boxes
    assert [command[1:] for command in box.commands] == [
        ("-c", "python -m venv .venv"),
        ("-c", "ruff check"),
        ("-c", "pytest -q"),
    ]


def test_a_box_that_is_lost_under_a_check_is_no_finding_that_a_developer_is_paid_to_mend(tmp_path: Path) -> None:
    maker = LosingMaker(tmp_path / "programs")
    maker.program("npm", "import time\nopen('at-work', 'x').close()\ntime.sleep(60)")
    with pytest.raises(BoxLostError):
        run_check(PROJECT, attempt_in(tmp_path, boxes=maker))
    assert maker.boxes[-1].is_closed


@pytest.mark.threat("C2")
@pytest.mark.req("S-027")
@pytest.mark.parametrize("fails", [False, True], ids=["succeeds", "fails"])
@pytest.mark.parametrize("runs", ["agent", "check"])
def test_a_step_s_token_is_ended_before_its_box_is_destroyed(
    tmp_path: Path, gateway: str, runs: str, *, fails: bool
) -> None:
    maker, bound = PlayedMaker(tmp_path / "programs", is_walled=True), list[tuple[object, bool]]()
    ending = "sys.exit(3)" if fails else ""
    maker.program("claude", f"init()\n{ending}\nresult()")
    maker.program("npm", f"import sys\n{ending}")

    def bind(address: str | None, token: str | None) -> None:
        bound.append((address, maker.boxes[-1].is_closed))

    attempt = replace(attempt_in(tmp_path, boxes=maker, gateway_url=gateway), bind_egress=bind)
    _ = run_check(PROJECT, attempt) if runs == "check" else run_claude_code(ORDER, attempt)
    assert bound == [("127.0.0.1", False), (None, False)]
    assert maker.boxes[-1].is_closed


@pytest.mark.req("P-031")
@pytest.mark.parametrize(
    ("said", "file", "line"),
    [
        ("src/app.ts(3,5): error TS2322: not assignable", "src/app.ts", 3),
        ("\\x1b[31m./src/app.ts:7:1\\x1b[0m Syntax Error", "src/app.ts", 7),
        ("/etc/passwd:3:1 error and nothing else", None, None),
        ("Error: Cannot find module 'react'", None, None),
    ],
)
def test_a_build_that_fails_is_one_blocking_finding_at_the_place_that_it_names(
    tmp_path: Path, said: str, file: str | None, line: int | None
) -> None:
    result, _ = check(
        tmp_path,
        f"if 'run' in sys.argv: print('{said}'); sys.exit(2)"
        if "'" not in said
        else f'if "run" in sys.argv: print("{said}"); sys.exit(2)',
    )
    (issue,) = result.issues

    assert (issue.severity, issue.file, issue.line) == ("blocking", file, line)
    assert issue.title == "`npm run build` fails (status 2)"
    assert "\x1b" not in issue.detail


def test_a_failed_install_is_told_and_no_build_is_tried(tmp_path: Path) -> None:
    result, maker = check(tmp_path, "print('no such package', file=sys.stderr); sys.exit(1)")
    (issue,) = result.issues
    assert "npm install" in issue.title
    assert issue.detail == "no such package"
    assert len(maker.boxes[0].commands) == 1


def test_a_project_without_a_build_needs_no_box(tmp_path: Path) -> None:
    result, maker = check(tmp_path, "", {"README.md": b"#\n"})
    assert (result.issues, maker.boxes) == ((), [])


def test_a_build_that_says_too_much_is_cut_to_its_end(tmp_path: Path) -> None:
    result, _ = check(tmp_path, "if 'run' in sys.argv: print('x' * 50_000 + 'the end'); sys.exit(1)")
    (issue,) = result.issues
    assert issue.detail.endswith("the end")
    assert len(issue.detail) <= 6_000


SIGNATURE = "401 Unauthorized: Missing bearer or basic authentication in header"
PROGRAM = """#!{python}
import json, os, pathlib, sys
with open({log!r}, "a") as log:
    log.write(json.dumps({{"argv": sys.argv[1:], "env": dict(os.environ), "stdin": sys.stdin.read()}}) + "\\n")
{body}
"""
FAILS = f"print({SIGNATURE!r}, file=sys.stderr); sys.exit(1)"
WORKS = 'pathlib.Path(".agent-result.json").write_text("{}"); pathlib.Path("src/new.ts").write_text("new")'
FAILS_AT_HOME = f'if "CODEX_HOME" in os.environ:\n    {FAILS}\n{WORKS}'


class Desk:
    """A worker's machine with a `codex` that does what a test wrote."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.log = home / "log.jsonl"
        self.charged: list[int] = []
        self.room: str | None = None

    def attempt(
        self, environment: Mapping[str, str], *, tenant: str = "acme", config: RunsConfig | None = None
    ) -> Attempt:
        made = make_attempt(queue=QueueName.STEPS, tenant=tenant)
        default = RunsConfig(codex_tenant="acme", codex_command=str(self.home / "codex"))

        def charge(nanousd: int, model: str) -> str | None:
            self.charged.append(nanousd)
            return self.room

        inherited = {"PATH": os.defpath, "HOME": str(self.home), "POINTSMAN_SECRET": "no", **environment}
        resources = replace(made.resources, runs=config or default, environment=inherited)
        store = ContentStore(self.home / "content-store")
        return replace(made, content_store=store, resources=resources, charge_unmetered=charge)

    def run(self, body: str, environment: Mapping[str, str] | None = None, **fields: Any) -> AgentRun:
        import sys

        program = self.home / "codex"
        program.write_text(PROGRAM.format(python=sys.executable, log=str(self.log), body=body))
        program.chmod(0o755)
        agent = platform_policy().agents["frontend-dev"].model_copy(update={"runtime": "codex_local", "image": None})
        order = AgentOrder(
            name="frontend-dev",
            agent=agent,
            model="gpt-x",
            instructions="Be good.",
            prompt="Do it.",
            files={"src/old.ts": b"old"},
            writes=("src/",),
            cap_usd=2.0,
        )
        return run_codex(order, self.attempt(environment or {}, **fields))

    def runs(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


ON = {FALLBACK_FLAG: "1"}


@pytest.mark.req("S-126")
def test_the_signature_is_the_exact_text_of_the_adr() -> None:
    assert AUTH_SIGNATURE.decode() == SIGNATURE
    assert FALLBACK_FLAG == "SPRINTFOUNDRY_ENABLE_CODEX_HOME_AUTH_FALLBACK"


@pytest.mark.req("S-061", "S-126")
def test_codex_works_in_a_directory_with_a_home_of_its_own_there_and_the_prompt_on_stdin(desk: Desk) -> None:
    ran = desk.run(WORKS)

    (call,) = desk.runs()
    assert ran.failed is None
    assert ran.facts["tokens"] == "unknown"
    assert ran.files == {"src/old.ts": b"old", "src/new.ts": b"new", ".agent-result.json": b"{}"}
    assert call["stdin"] == "Be good.\n\nDo it."
    assert "Do it." not in json.dumps(call["argv"])
    assert call["env"]["CODEX_HOME"].endswith("/workspace/.codex-home")
    assert not [name for name in call["env"] if name.startswith("POINTSMAN") or name == FALLBACK_FLAG]


@pytest.mark.req("S-126", "S-127", "S-128", "S-136")
def test_without_the_flag_there_is_no_retry_and_the_message_names_the_flag(desk: Desk) -> None:
    ran = desk.run(FAILS_AT_HOME)

    assert len(desk.runs()) == 1
    assert ran.failed is not None
    assert (ran.failed.state, ran.failed.reason) == (State.FAILED, Reason.AGENT_FAILED)
    assert f"{FALLBACK_FLAG}=1" in ran.failed.detail


@pytest.mark.req("S-129")
@pytest.mark.parametrize("value", ["0", "true", "yes", "", " 1", "01", "on"])
def test_no_value_but_1_enables_the_retry(desk: Desk, value: str) -> None:
    desk.run(FAILS_AT_HOME, {FALLBACK_FLAG: value})
    assert len(desk.runs()) == 1


@pytest.mark.req("S-127", "S-129", "S-133", "S-134", "S-126")
def test_with_the_flag_it_is_run_once_more_without_codex_home_and_otherwise_the_same(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        ran = desk.run(FAILS_AT_HOME, ON)

    first, second = desk.runs()
    assert ran.failed is None
    assert ran.facts["auth_retry"] is True
    assert "CODEX_HOME" not in second["env"]
    del first["env"]["CODEX_HOME"]
    assert first == second
    assert "codex_auth_fallback" in caplog.text


@pytest.mark.req("S-130")
def test_a_process_that_succeeds_is_not_run_again_whatever_stands_on_stderr(desk: Desk) -> None:
    ran = desk.run(f"print({SIGNATURE!r}, file=sys.stderr); {WORKS}", ON)
    assert (len(desk.runs()), ran.failed) == (1, None)


@pytest.mark.req("S-127", "S-131", "S-134", "S-135", "S-126")
@pytest.mark.parametrize(
    "body",
    [
        f"print({SIGNATURE!r}); sys.exit(1)",
        f'pathlib.Path("note.txt").write_text({SIGNATURE!r}); sys.exit(1)',
        'print("401 Unauthorized: Invalid API key", file=sys.stderr); sys.exit(1)',
        'print("401 unauthorized: missing bearer or basic authentication in header", file=sys.stderr); sys.exit(1)',
    ],
)
def test_only_the_exact_signature_on_stderr_counts(desk: Desk, body: str) -> None:
    ran = desk.run(body, ON)
    assert len(desk.runs()) == 1
    assert ran.failed is not None


@pytest.mark.req("S-127", "S-132")
def test_a_second_failure_with_the_same_signature_is_not_retried(desk: Desk) -> None:
    ran = desk.run(FAILS, ON)
    assert len(desk.runs()) == 2
    assert ran.failed is not None
    assert ran.failed.reason is Reason.AGENT_FAILED


@pytest.mark.parametrize("config", [RunsConfig(), RunsConfig(codex_tenant="globex")])
def test_codex_is_off_unless_the_operator_names_the_one_tenant(desk: Desk, config: RunsConfig) -> None:
    ran = desk.run(WORKS, config=config)
    assert (desk.runs(), desk.charged, ran.files) == ([], [], None)
    assert ran.failed is not None
    assert ran.failed.reason is Reason.NOT_AVAILABLE


def test_the_whole_step_cap_is_charged_before_anything_starts(desk: Desk) -> None:
    desk.run(WORKS)
    desk.room = "job"
    ran = desk.run(WORKS)
    assert desk.charged == [2_000_000_000, 2_000_000_000]
    assert len(desk.runs()) == 1
    assert ran.failed is not None
    assert (ran.failed.state, ran.failed.reason) == (State.BUDGET_EXCEEDED, Reason.COST_CAP)


def test_a_codex_that_does_not_end_is_ended(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli_runners, "LEAST_SECONDS", 0.3)
    monkeypatch.setattr(cli_runners, "GRACE_SECONDS", 0.3)
    monkeypatch.setattr(cli_runners, "session_seconds", lambda order, attempt: 0.5)
    ran = desk.run("import time\ntime.sleep(60)")
    assert ran.failed is not None
    assert (ran.failed.state, ran.failed.reason) == (State.TIMED_OUT, Reason.TIME_LIMIT)


FILES = {"README.md": b"# Shop\n", "src/app.ts": b"app\n", ".agent-context/index.md": b"index\n"}
RESULT = {".agent-result.json": b'{"status": "complete", "summary": "Done."}'}
AGENT = platform_policy().agents["frontend-dev"]
ORDER = AgentOrder(
    name="frontend-dev",
    agent=AGENT,
    model="claude-haiku-4-5-20251001",
    instructions="You are a developer.\n",
    prompt="Build it. --dangerous",
    files=FILES,
    writes=("src/",),
    cap_usd=3.0,
)
Changes = Mapping[str, bytes | None]


def attempt_in(home: Path, **fields: object) -> Attempt:
    made = make_attempt(queue=QueueName.STEPS)
    own = {"environment": {"PATH": os.defpath, "HOME": str(home)}, **fields}
    resources = replace(made.resources, **own)  # type: ignore[arg-type]
    return replace(made, content_store=ContentStore(home / "content-store"), resources=resources)


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
        attempt = replace(attempt_in(self.home, runs=config), charge_unmetered=lambda nanousd, model: None)
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
    assert not LocalBox.is_walled, "a process of the machine itself is no wall"


@pytest.mark.req("S-060")
def test_without_a_wall_nothing_is_started_at_all(tmp_path: Path) -> None:
    maker = PlayedMaker(tmp_path / "programs")
    maker.program("claude", "init(); result()")

    with pytest.raises(UncontainedSessionError):
        run_claude_code(ORDER, attempt_in(tmp_path, boxes=maker))

    (box,) = maker.boxes
    assert box.commands == []
    assert box.is_closed


@pytest.mark.req("S-054", "S-055", "S-056", "S-077", "S-081", "S-021")
@pytest.mark.threat("D9")
def test_instructions_lie_in_the_box_before_anything_runs_and_the_prompt_is_on_no_command_line(tmp_path: Path) -> None:
    shop = Shop(tmp_path, "http://127.0.0.1:1")
    shop.maker.program(
        "claude",
        "init()\npathlib.Path('seen.txt').write_text(pathlib.Path('.agent-context/CLAUDE.md').read_text() + prompt)\n"
        "pathlib.Path('.agent-result.json').write_text('{}')\nresult()",
    )
    attempt = attempt_in(tmp_path, boxes=shop.maker)
    job = replace(attempt.claim.job, cap_nanousd=10**9)
    attempt = replace(attempt, claim=replace(attempt.claim, token="virtual-7f3a", job=job))
    ran = run_claude_code(replace(ORDER, cap_usd=0.02), attempt)

    assert ran.files is not None
    assert ran.files["seen.txt"] == b"You are a developer.\nBuild it. --dangerous"
    assert INSTRUCTIONS not in ran.files
    (box,) = shop.maker.boxes
    words = [word for command in box.commands for word in command]
    assert ORDER.model != AGENT.model
    assert {f"--model={ORDER.model}", "--max-budget-usd=0.0200"} <= set(words), "as the layers decide"
    assert f"--tools={','.join(sorted(AGENT.tools))}" in words
    assert all("Build it" not in word and "virtual-7f3a" not in word for word in words)
    assert all(b"virtual-7f3a" not in data for data in ran.files.values())
    (environment,) = box.environments
    assert [name for name, value in environment.items() if value == "virtual-7f3a"] == ["ANTHROPIC_AUTH_TOKEN"]


@pytest.mark.req("S-061")
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
    if "sys.exit" in body:
        assert ran.facts["agent"]["own_count"] is None, "unknown, and not nothing"
    assert shop.maker.boxes[0].is_closed


@pytest.mark.req("S-011", "S-021")
def test_clocks_leave_room_for_what_follows_a_session(tmp_path: Path) -> None:
    from workers.runs.cli_runners import agent_clocks

    attempt = attempt_in(tmp_path)
    clocks: Clocks = agent_clocks(ORDER, attempt)
    assert clocks.hard_seconds < attempt.limits.soft_seconds
    assert clocks.soft_seconds <= AGENT.soft_seconds

"""The project's own build as a step: what it says becomes a result with findings."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from routing.jobs import Reason, State
from routing.policy.platform import platform_policy
from routing.queues import QueueName
from sites.content_store import ContentStore
from tests.factories import make_attempt
from tests.played_cli import PlayedMaker
from tests.unit.workers.runs.test_runners import attempt_in
from workers.attempt import Attempt
from workers.config import RunsConfig
from workers.runs import cli_runners
from workers.runs.cli_runners import AUTH_SIGNATURE, FALLBACK_FLAG, run_check, run_codex
from workers.runs.scheduling.view import AgentResult, parse_result
from workers.runs.step_context import AgentOrder, AgentRun

PACKAGE = b'{"scripts": {"build": "tsc"}, "dependencies": {"react": "1"}}'
FILES = {"package.json": PACKAGE, "src/app.ts": b"let a: number = 'x';\n"}


def check(home: Path, body: str, files: dict[str, bytes] | None = None) -> tuple[AgentResult, PlayedMaker]:
    maker = PlayedMaker(home / "programs")
    maker.program("npm", f"import sys\n{body}")
    ran = run_check(files or FILES, attempt_in(home, boxes=maker))
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
        return replace(
            made,
            content_store=ContentStore(self.home / "content-store"),
            runs=config or default,
            environment=inherited,
            charge_unmetered=charge,
        )

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


def test_codex_works_in_a_directory_with_a_home_of_its_own_there_and_the_prompt_on_stdin(desk: Desk) -> None:
    ran = desk.run(WORKS)

    (call,) = desk.runs()
    assert ran.failed is None
    assert ran.files == {"src/old.ts": b"old", "src/new.ts": b"new", ".agent-result.json": b"{}"}
    assert call["stdin"] == "Be good.\n\nDo it."
    assert "Do it." not in json.dumps(call["argv"])
    assert call["env"]["CODEX_HOME"].endswith("/workspace/.codex-home")
    assert not [name for name in call["env"] if name.startswith("POINTSMAN") or name == FALLBACK_FLAG]


@pytest.mark.req("S-128", "S-136")
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


@pytest.mark.req("S-127", "S-129", "S-133")
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


@pytest.mark.req("S-131", "S-135")
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


@pytest.mark.req("S-132")
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
    monkeypatch.setattr(cli_runners, "_LEAST_SECONDS", 0.3)
    monkeypatch.setattr(cli_runners, "_GRACE_SECONDS", 0.3)
    monkeypatch.setattr(cli_runners, "session_seconds", lambda order, attempt: 0.5)
    ran = desk.run("import time\ntime.sleep(60)")
    assert ran.failed is not None
    assert (ran.failed.state, ran.failed.reason) == (State.TIMED_OUT, Reason.TIME_LIMIT)

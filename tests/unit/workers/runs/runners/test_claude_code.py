"""The project's own build as a step: what it says becomes a result with findings."""

from pathlib import Path

import pytest

from tests.played_cli import PlayedMaker
from tests.unit.workers.runs.runners.test_runners import attempt_in
from workers.runs.runners.claude_code import run_check
from workers.runs.scheduling.view import AgentResult, parse_result

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

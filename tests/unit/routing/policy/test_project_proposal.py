"""A project's file proposed from a repository: stacks, commands, and what cannot be parsed."""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from routing.errors import ProjectConfigError, StackNotFoundError
from routing.policy.agents import is_covered
from routing.policy.platform import platform_policy
from routing.policy.project import conflicts, for_project, parse_project
from routing.policy.project_proposal import Proposal, proposal_text, propose

POLICY = platform_policy()
VENV = "python3 -m venv .venv"
PIP = ".venv/bin/pip install --quiet"
PYTEST = ".venv/bin/python -m pytest -q"


def package(**fields: Any) -> dict[str, str]:
    return {"package.json": json.dumps(fields)}


STACKS: dict[str, tuple[dict[str, str], list[str], dict[str, str], dict[str, str]]] = {
    "npm and vitest": (
        package(
            scripts={"build": "tsc", "lint": "eslint ."},
            devDependencies={"vitest": "3", "typescript": "5", "react": "19"},
        ),
        ["package-lock.json", "src/a.ts"],
        {"language": "typescript", "frontend": "react"},
        {
            "setup": "npm ci --ignore-scripts",
            "build": "npm run build",
            "lint": "npm run lint",
            "test": "npx vitest run",
        },
    ),
    "pnpm and jest": (
        package(packageManager="pnpm@9.1.0+sha512.x", scripts={"test": "jest --watch"}, devDependencies={"jest": "29"}),
        ["pnpm-lock.yaml", "index.js"],
        {"language": "javascript"},
        {
            "setup": "npx --yes --cache=.cache/npx pnpm@9.1.0 install --frozen-lockfile --ignore-scripts",
            "test": "npx jest",
        },
    ),
    "yarn": (
        package(scripts={"test": "node --test"}, dependencies={"express": "4", "pg": "8"}),
        ["yarn.lock", "index.js"],
        {"language": "javascript", "backend": "node", "database": "postgresql"},
        {
            "setup": 'case "$(npm config get registry)" in http://egress:*) '
            'sed -i.own -E "s#https?://[^/]+/#$(npm config get registry)#" yarn.lock && { npx --yes '
            "--cache=.cache/npx yarn@1 install --frozen-lockfile --ignore-scripts; status=$?; "
            "mv yarn.lock.own yarn.lock; (exit $status); };; *) npx --yes "
            "--cache=.cache/npx yarn@1 install --frozen-lockfile --ignore-scripts;; esac",
            "test": "npx --yes --cache=.cache/npx yarn@1 run test",
        },
    ),
    "yarn 4": (
        package(packageManager="yarn@4.1.0", scripts={"test": "vitest"}),
        ["yarn.lock", "a.ts"],
        {"language": "typescript"},
        {
            "setup": "npx --yes --cache=.cache/npx @yarnpkg/cli-dist@4.1.0 install --immutable --mode=skip-build",
            "test": "npx --yes --cache=.cache/npx @yarnpkg/cli-dist@4.1.0 run test",
        },
    ),
    "npm without tests or a lock": (
        package(scripts={"test": 'echo "Error: no test specified" && exit 1'}),
        ["a.js"],
        {"language": "javascript"},
        {"setup": "npm install --ignore-scripts"},
    ),
    "uv, pytest and ruff": (
        {"pyproject.toml": "[project]\ndependencies=['fastapi>=0.1']\n[dependency-groups]\ndev=['pytest>=8','ruff']\n"},
        ["uv.lock", "shop/a.py", "Dockerfile"],
        {"language": "python", "backend": "fastapi", "deploy": "docker"},
        {
            "setup": f"{VENV} && {PIP} uv && .venv/bin/uv export --quiet --frozen --no-hashes --output-file "
            f".venv/requirements.txt && {PIP} -r .venv/requirements.txt",
            "lint": ".venv/bin/ruff check .",
            "test": PYTEST,
        },
    ),
    "Poetry and mypy": (
        {
            "pyproject.toml": "[build-system]\nrequires=['poetry-core']\n[tool.poetry.dependencies]\ndjango='5'\n"
            "[tool.poetry.group.dev.dependencies]\npytest='8'\n[tool.mypy]\n"
        },
        ["poetry.lock", "shop/a.py"],
        {"language": "python", "backend": "django"},
        {
            "setup": f"{VENV} && {PIP} poetry poetry-plugin-export && .venv/bin/poetry export --all-groups "
            f"--without-hashes --output .venv/requirements.txt && {PIP} -r .venv/requirements.txt mypy && "
            f"{PIP} --no-deps -e .",
            "lint": ".venv/bin/mypy .",
            "test": PYTEST,
        },
    ),
    "extras": (
        {"pyproject.toml": "[build-system]\nrequires=[]\n[project.optional-dependencies]\ndev=['pytest']\n"},
        ["a.py"],
        {"language": "python"},
        {"setup": f"{VENV} && {PIP} -e '.[dev]'", "test": PYTEST},
    ),
    "requirements and unittest": (
        {"requirements.txt": "Flask==3\n"},
        ["a.py", "tests/test_a.py"],
        {"language": "python", "backend": "flask"},
        {"setup": f"{VENV} && {PIP} -r requirements.txt", "test": ".venv/bin/python -m unittest discover -s tests"},
    ),
    "tox": (
        {"tox.ini": "[testenv]\n[pytest]\n"},
        ["setup.py", "a.py"],
        {"language": "python"},
        {"setup": f"{VENV} && {PIP} -e . pytest", "test": PYTEST},
    ),
    "Python and Node": (
        {**package(scripts={"test": "node --test"}), "requirements.txt": "pytest\n"},
        ["a.py", "b.py", "web.js"],
        {"language": "python"},
        {
            "setup": f"npm install --ignore-scripts && {VENV} && {PIP} -r requirements.txt",
            "test": f"npm run test && {PYTEST}",
        },
    ),
    "a Makefile": (
        {"Makefile": "VERSION := 1\ntest: lint\n\tpython3 -m unittest\nlint:\n\ttrue\nbuild := no\n"},
        ["a.py"],
        {"language": "python"},
        {"lint": "make lint", "test": "make test"},
    ),
}


@pytest.mark.parametrize("name", STACKS)
def test_a_stack_is_found_with_its_commands_and_the_file_is_one_that_is_taken(name: str) -> None:
    files, paths, stack, commands = STACKS[name]
    proposal = propose(files, paths, POLICY)
    assert (proposal.stack, proposal.commands) == (stack, commands)
    tried = {"test": "failed with status 1"}
    text = proposal_text(proposal, url="https://forge.example/a/b", branch="main", tried=tried)
    config, _ = parse_project(text, source="pointsman.yaml")
    assert config.commands.named() == commands
    assert list(conflicts(config, POLICY)) == []
    assert ("# failed with status 1" in text) == ("test" in commands)


YARN_LOCK = 'ms@2.1.3:\n  resolved "https://registry.example/ms/-/ms-2.1.3.tgz"\n'


@pytest.mark.parametrize(
    ("registry", "seen"),
    [
        ("http://egress:8081/", YARN_LOCK.replace("https://registry.example/", "http://egress:8081/")),
        ("https://registry.example/", YARN_LOCK),
    ],
    ids=["in a box", "elsewhere"],
)
def test_only_in_a_box_is_the_lock_of_yarn_1_rewritten_so_a_killed_command_leaves_a_checkout_as_it_was(
    tmp_path: Path, registry: str, seen: str
) -> None:
    programs = {"npm": f"echo {registry}", "npx": "cp yarn.lock seen; kill -9 $PPID"}
    for name, script in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "yarn.lock").write_text(YARN_LOCK)
    setup = propose(package(), ["yarn.lock", "a.js"], POLICY).commands["setup"]
    path = f"{tmp_path}:{os.environ['PATH']}"
    killed = subprocess.run(["bash", "-c", f"{setup}; true"], cwd=tmp_path, env={"PATH": path}, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert (tmp_path / "seen").read_text() == seen
    assert (tmp_path / "yarn.lock").read_text() == seen
    assert (tmp_path / "yarn.lock.own").exists() == (seen != YARN_LOCK)


def test_a_makefile_counts_only_where_nothing_else_does_and_the_owner_is_warned() -> None:
    makefile = {"Makefile": "test:\n\ttrue\n"}
    assert propose(makefile, ["a.py"], POLICY).notes == (
        "make is in the boxes' image only where its base has it; --try in a box tells",
    )
    assert propose({**makefile, **package(scripts={"test": "x"})}, [], POLICY).commands["test"] == "npm run test"
    assert propose({}, ["a.py"], POLICY).notes == ("no commands were found: give at least `test`",)


def test_an_empty_repository_is_refused_with_what_was_looked_for() -> None:
    with pytest.raises(StackNotFoundError, match=r"the repository: shows no supported language.*package\.json"):
        propose({}, ["README.md"], POLICY)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"package.json": '{\n"a": }'}, "package.json, line 2: is no JSON"),
        ({"package.json": "[]"}, "package.json, line 1: must be an object"),
        ({"package.json": "[" * 200_000}, "package.json, is no JSON that can be read"),
        ({"pyproject.toml": "a = = 1"}, "pyproject.toml, is no TOML: "),
        ({"pyproject.toml": "a = " + "[" * 200_000}, "pyproject.toml, is no TOML that can be read"),
    ],
)
def test_a_broken_file_is_named(files: dict[str, str], said: str) -> None:
    with pytest.raises(ProjectConfigError) as refused:
        propose(files, [], POLICY)
    assert str(refused.value).startswith(said)


@pytest.mark.parametrize("value", [1, "x", [1, [2]], {"a": 1}, None, True])
def test_values_of_another_type_than_expected_are_passed_over(value: Any) -> None:
    fields = ("scripts", "dependencies", "devDependencies", "packageManager")
    assert isinstance(propose(package(**dict.fromkeys(fields, value)), [], POLICY), Proposal)


def test_no_word_of_a_repository_becomes_part_of_a_command() -> None:
    files = package(packageManager="pnpm@$(id)", scripts={"test": "x; id", "lint\nid": "id"})
    commands = " ".join(propose(files, ["$(id).js"], POLICY).commands.values())
    assert "id" not in commands.replace("--ignore-scripts", "")


def test_agents_may_write_where_the_layout_has_sources_tests_and_documents() -> None:
    paths = ["services/cart.ts", "web/app/page.tsx", "web/__tests__/page.test.tsx", "docs/a.md", "package-lock.json"]
    closed = [".github/workflows/ci.yml", ".ci/a.ts", "dist/a.js", "ci/a.ts", "yarn.lock", "Jenkinsfile", "infra/a.ts"]
    proposal = propose(package(devDependencies={"next": "15"}), [*paths, *closed], POLICY)
    developers = ("services/", "web/", "web/__tests__/", "docs/", "package.json", "package-lock.json")
    assert proposal.writes["backend-dev"] == proposal.writes["frontend-dev"] == developers
    assert proposal.writes["qa"] == ("web/__tests__/", "*.test.tsx")
    text = proposal_text(proposal, url="https://forge.example/a/b", branch="main", tried={})
    assert "a person\n# updates the lock" in text
    config, _ = parse_project(text, source="pointsman.yaml")
    assert config.writes == proposal.writes
    assert list(conflicts(config, POLICY)) == []
    closed_to = for_project(POLICY, config).agents["backend-dev"].writes
    assert not any(is_covered(path, closed_to) for path in closed)


def test_a_python_project_without_directories_is_written_at_its_top() -> None:
    writes = propose({"pyproject.toml": ""}, ["shop.py", "uv.lock", ".tests/test_a.py"], POLICY).writes
    assert writes == {"backend-dev": ("*.py", "pyproject.toml", "uv.lock")}


def test_a_layout_of_more_directories_than_a_project_may_name_gets_the_platform_s_paths() -> None:
    assert propose({}, [f"d{number}/a.py" for number in range(60)], POLICY).writes == {}


def test_directories_that_no_rule_can_name_are_left_out_with_a_note_and_the_file_is_one_that_is_taken() -> None:
    odd = ["My App/a.py", "über/b.py", "pkg+x/tests/test_c.py", "two\nlines: [/d.py", f"{'x' * 101}/e.py"]
    proposal = propose({"pyproject.toml": ""}, [*odd, "shop/f.py", "tests/test_f.py"], POLICY)
    assert proposal.writes["backend-dev"] == ("shop/", "tests/", "*.py", "pyproject.toml")
    (note,) = [note for note in proposal.notes if "My App/" in note]
    assert note.startswith("6 directories")
    text = proposal_text(proposal, url="https://forge.example/a/b", branch="main", tried={})
    config, _ = parse_project(text, source="pointsman.yaml")
    assert config.writes == proposal.writes

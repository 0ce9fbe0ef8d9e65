"""Proposes a project's file from what lies in its repository: a pure function, which runs and reads nothing.

Commands are made for a box: packages come by npm and pip alone, whose registries its image names, so uv and Poetry only
write down what their locks hold, and pip installs it.
"""

from __future__ import annotations

import json
import re
import textwrap
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import yaml
from pydantic import TypeAdapter, ValidationError

from routing.errors import Problem, ProjectConfigError, StackNotFoundError
from routing.policy.agents import PathRule, StackPart, is_covered
from routing.policy.platform import Policy
from routing.policy.project import MAX_RULES
from routing.policy.service_proposal import find_needs, needs_text, scripts_text

READ_FILES = (
    "package.json",
    "pyproject.toml",
    "setup.cfg",
    "tox.ini",
    "requirements.txt",
    "requirements-dev.txt",
    "Makefile",
)
"""The files whose contents decide; of all others only the path."""
MAX_FILE_BYTES = 512 * 1024

_NODE, _PYTHON = "package.json", ("pyproject.toml", "setup.cfg", "setup.py", "tox.ini", "requirements.txt")
_SUFFIXES = {"python": (".py",), "typescript": (".ts", ".tsx"), "javascript": (".js", ".jsx", ".mjs", ".cjs")}
_NO_TEST = "no test specified"
_VERSION = re.compile(r"[0-9]+(?:\.[0-9]+){0,2}")
_TARGET = re.compile(r"^(?P<name>setup|install|build|lint|test)[ \t]*:(?!=)", re.MULTILINE)
_STACKS: Mapping[StackPart, Mapping[str, tuple[str, ...]]] = {
    "frontend": {"nextjs": ("next",), "react": ("react",)},
    "backend": {
        "nextjs": ("next",),
        "node": ("express", "fastify", "koa", "hono", "@nestjs/core"),
        "django": ("django",),
        "fastapi": ("fastapi",),
        "flask": ("flask",),
    },
    "database": {"postgresql": ("pg", "postgres", "psycopg", "psycopg2", "psycopg2-binary", "asyncpg")},
}
"""By part of a stack: what it is called here, and the packages that show it."""
_SOURCES = (*(end for ends in _SUFFIXES.values() for end in ends), ".vue", ".svelte", ".sql", ".css", ".scss", ".html")
_NOT_SOURCES = frozenset(
    {"artifacts", "build", "ci", "coverage", "deploy", "dist", "infra", "node_modules", "out", "scripts", "vendor"}
)
"""Directories at the top whose sources are no agent's, unless the project's owner says so."""
_DEPLOYS = {"vercel.json": "vercel", "railway.json": "railway", "railway.toml": "railway", "Dockerfile": "docker"}


@dataclass(frozen=True)
class Proposal:
    """What a project's file may say about its stack and its commands."""

    stack: Mapping[str, str]
    commands: Mapping[str, str]
    notes: tuple[str, ...] = ()
    """What its owner should know before using it."""
    writes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Where the changes of agents that work in boxes are kept; an agent that is left out keeps the platform's paths."""
    services: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What its tests seem to need: a comment in the file, so that nothing counts before a person lets it."""
    scripts: tuple[str, ...] = ()
    """npm packages with install scripts; likewise."""


def propose(files: Mapping[str, str], paths: Collection[str], policy: Policy) -> Proposal:
    """Return what a repository seems to be.

    Args:
        files: contents of those of `READ_FILES` and `OPTIONAL_FILES` that are there.
        paths: all files of the repository.
        policy: the platform's, within whose paths the agents' are proposed.

    Raises:
        ProjectConfigError: the repository's fault: a file cannot be parsed.
        StackNotFoundError: nobody's fault: no supported language was found.
    """
    every = frozenset(paths) | files.keys()
    package = _parsed_json(files) if _NODE in every else {}
    pyproject = _parsed_toml(files)
    node = _node_commands(package, every) if _NODE in every else {}
    python = _python_commands(files, pyproject, every) if any(name in every for name in _PYTHON) else {}
    commands, notes = _joined(node, python), []
    if not commands:
        commands = _make_commands(files.get("Makefile", ""))
        notes += ["make is in the boxes' image only where its base has it; --try in a box tells"] if commands else []
    packages = _node_packages(package) | _python_packages(files, pyproject)
    stack = {"language": _language(every, package, has_python=bool(python))}
    for part, choices in _STACKS.items():
        if found := next((name for name, shown_by in choices.items() if packages & set(shown_by)), None):
            stack[part] = found
    if deploy := next((name for file, name in _DEPLOYS.items() if file in every), None):
        stack["deploy"] = deploy
    notes = notes if commands else ["no commands were found: give at least `test`"]
    layout = _layout(every, policy)
    if layout.unfit:
        shown = ", ".join(ascii(rule) for rule in layout.unfit[:_MAX_SHOWN])
        notes.append(f"{len(layout.unfit)} directories are left out, since no path in `writes` can name them: {shown}")
    needs = find_needs(files, policy.runs.services)
    writes = _writes(every, layout, stack, policy)
    scripts = needs.scripts if commands else ()
    return Proposal(stack, commands, (*notes, *needs.notes), writes, needs.services, scripts)


class _Layout(NamedTuple):
    """A repository's directories, as path rules."""

    sources: list[str]
    """At the top."""
    tests: list[str]
    unfit: list[str]
    """Of both kinds: what is no path rule."""


_MAX_SHOWN = 5
_RULE = TypeAdapter[str](PathRule)


def _layout(paths: Collection[str], policy: Policy) -> _Layout:
    tests = _test_directories(paths, policy.runs.test_directories)
    tops = {path.partition("/")[0] for path in paths if "/" in path and path.endswith(_SOURCES)}
    sources = {f"{name}/" for name in tops if not name.startswith(".") and name not in _NOT_SOURCES} - tests
    unfit = {rule for rule in sources | tests if not _is_rule(rule)}
    return _Layout(sorted(sources - unfit), sorted(tests - unfit), sorted(unfit))


def _is_rule(text: str) -> bool:
    try:
        _RULE.validate_python(text)
    except ValidationError:
        return False
    return True


def _writes(
    paths: Collection[str], layout: _Layout, stack: Mapping[str, str], policy: Policy
) -> dict[str, tuple[str, ...]]:
    """Return the paths of developers and testers in a layout: sources, tests, documents, settings of the project.

    Hidden directories, which forges obey, and those of builds and deliveries are nobody's. Of files at the top, only
    those that the platform offers: so of lock files npm's, uv's and Poetry's.
    """
    documents = ["docs/"] if any(path.startswith("docs/") for path in paths) else []
    is_web = stack["language"] != "python"
    developers = {"backend-dev": "backend" in stack or "frontend" not in stack, "frontend-dev": is_web}
    found: dict[str, tuple[str, ...]] = {}
    for name in (name for name, is_wanted in developers.items() if is_wanted and name in policy.agents):
        offered = policy.runs.source_paths(name, policy.agents[name], stack["language"])
        files = [rule for rule in offered if not rule.endswith("/") and _covers_a_file(rule, paths)]
        found[name] = (*layout.sources, *layout.tests, *documents, *files)
    if layout.tests and "qa" in policy.agents:
        offered = policy.runs.source_paths("qa", policy.agents["qa"], stack["language"])
        found["qa"] = (
            *layout.tests,
            *(rule for rule in offered if rule.startswith("*") and _covers_a_file(rule, paths)),
        )
    return {name: rules for name, rules in found.items() if rules and len(rules) <= MAX_RULES}


def _test_directories(paths: Collection[str], names: Collection[str]) -> set[str]:
    """Return the directories of tests, without those within others."""
    found = set()
    for path in paths:
        segments = path.split("/")[:-1]
        index = next((index for index, segment in enumerate(segments) if segment in names), None)
        if index is not None and not any(segment.startswith(".") for segment in segments[: index + 1]):
            found.add("/".join(segments[: index + 1]) + "/")
    return found


def _covers_a_file(rule: str, paths: Collection[str]) -> bool:
    return any(is_covered(path, [rule]) for path in paths)


def proposal_text(proposal: Proposal, *, url: str, branch: str, tried: Mapping[str, str]) -> str:
    """Return the project's file; a comment behind each command says whether it was tried."""
    head = yaml.safe_dump(
        {"repo": {"url": url, "branch": branch}, "stack": dict(proposal.stack)}, sort_keys=False, width=1000
    )
    notes = "".join(f"# Note: {note}.\n" for note in proposal.notes)
    lines = [
        f"  {yaml.safe_dump({name: command}, width=1000).rstrip()}  # {tried.get(name, 'untried')}\n"
        for name, command in proposal.commands.items()
    ]
    commands = "".join(("commands:\n", *lines, scripts_text(proposal.scripts))) if lines else ""
    commands += needs_text(proposal.services)
    writes = yaml.safe_dump({name: list(rules) for name, rules in proposal.writes.items()}, sort_keys=False, width=100)
    if proposal.writes:
        commands += f"{_ABOUT_WRITES}writes:\n{textwrap.indent(writes, '  ')}"
    about = "# Proposed by `pointsman project init`; correct it and add it with `pointsman project add`.\n"
    return f"{about}{notes}{head}{commands}"


_ABOUT_WRITES = """\
# By agent, where its changes are kept; delete this for the platform's own paths. Never part of it are hidden
# directories, as those of CI, and lock files but those of npm, uv and Poetry: with another package manager, a person
# updates the lock when a dependency is added.
"""


def _joined(*parts: Mapping[str, str]) -> dict[str, str]:
    """Return the commands of several stacks: those of one kind run one after the other."""
    found = {
        name: " && ".join(part[name] for part in parts if name in part) for name in ("setup", "build", "lint", "test")
    }
    return {name: line for name, line in found.items() if line}


def _parsed_json(files: Mapping[str, str]) -> dict[str, Any]:
    try:
        value = json.loads(files.get(_NODE, "{}"))
    except json.JSONDecodeError as error:
        raise ProjectConfigError(_NODE, (Problem(error.lineno, "", f"is no JSON: {error.msg}"),)) from None
    except (RecursionError, ValueError):
        raise ProjectConfigError(_NODE, (Problem(0, "", "is no JSON that can be read"),)) from None
    if not isinstance(value, dict):
        raise ProjectConfigError(_NODE, (Problem(1, "", "must be an object"),))
    return value


def _parsed_toml(files: Mapping[str, str]) -> dict[str, Any]:
    try:
        return tomllib.loads(files.get("pyproject.toml", ""))
    except tomllib.TOMLDecodeError as error:
        raise ProjectConfigError("pyproject.toml", (Problem(0, "", f"is no TOML: {error}"),)) from None
    except (RecursionError, ValueError):
        raise ProjectConfigError("pyproject.toml", (Problem(0, "", "is no TOML that can be read"),)) from None


def _table(value: Any, *place: str) -> dict[str, Any]:
    """Return a table within a value from outside; an empty one where there is none."""
    for name in place:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def _node_packages(package: Mapping[str, Any]) -> set[str]:
    return {name for field in ("dependencies", "devDependencies") for name in _table(package, field)}


def _node_commands(package: Mapping[str, Any], paths: Collection[str]) -> dict[str, str]:
    install, run = _package_manager(package, paths)
    packages, scripts = _node_packages(package), _table(package, "scripts")
    commands = {"setup": install}
    if "build" in scripts:
        commands["build"] = f"{run} build"
    checks = [f"{run} {name}" for name in ("lint", "typecheck", "type-check") if name in scripts]
    if "lint" not in scripts and "eslint" in packages:
        checks.insert(0, "npx eslint .")
    if checks:
        commands["lint"] = " && ".join(checks)
    script = str(scripts.get("test", _NO_TEST))
    if _NO_TEST not in script and "--watch" not in script:
        commands["test"] = f"{run} test"
    elif tool := next((line for name, line in _NODE_TESTS.items() if name in packages), None):
        commands["test"] = tool
    return commands


_NODE_TESTS = {"vitest": "npx vitest run", "jest": "npx jest"}


_NPX = "npx --yes --cache=.cache/npx"
"""In a box, programs run from the workspace only, and npx would keep them at home; `.cache/` is never collected."""
_YARN_1 = f"{_NPX} yarn@1"
_YARN_1_FROZEN = f"{_YARN_1} install --frozen-lockfile --ignore-scripts"
_YARN_1_LOCKED = (
    'case "$(npm config get registry)" in http://egress:*) '
    'sed -i.own -E "s#https?://[^/]+/#$(npm config get registry)#" yarn.lock && '
    f"{{ {_YARN_1_FROZEN}; status=$?; mv yarn.lock.own yarn.lock; (exit $status); }};; *) {_YARN_1_FROZEN};; esac"
)
"""Yarn 1 fetches from the hosts that its lock names, and a box reaches only its registry (sandbox/image/files/npmrc).

Elsewhere the lock stays as it is: a command that is killed could not put it back.
"""


def _declared_manager(package: Mapping[str, Any]) -> tuple[str, str]:
    """Return name and version of the package manager that a project declares; empty where it does not."""
    name, _, rest = str(package.get("packageManager", "")).partition("@")
    found = _VERSION.match(rest)
    return name, found[0] if found else ""


def _package_manager(package: Mapping[str, Any], paths: Collection[str]) -> tuple[str, str]:
    """Return how packages are installed, without their scripts, and how a script of the project is run."""
    name, version = _declared_manager(package)
    if name == "pnpm" or "pnpm-lock.yaml" in paths:
        pnpm = f"{_NPX} pnpm@{version}" if name == "pnpm" and version else f"{_NPX} pnpm"
        frozen = " --frozen-lockfile" if "pnpm-lock.yaml" in paths else ""
        return f"{pnpm} install{frozen} --ignore-scripts", f"{pnpm} run"
    if name == "yarn" or "yarn.lock" in paths:
        if (name == "yarn" and version and not version.startswith("1")) or ".yarnrc.yml" in paths:
            yarn = f"{_NPX} @yarnpkg/cli-dist@{version or 'latest'}"
            return f"{yarn} install --immutable --mode=skip-build", f"{yarn} run"
        return _YARN_1_LOCKED if "yarn.lock" in paths else f"{_YARN_1} install --ignore-scripts", f"{_YARN_1} run"
    word = "ci" if {"package-lock.json", "npm-shrinkwrap.json"} & set(paths) else "install"
    return f"npm {word} --ignore-scripts", "npm run"


def _requirements(files: Mapping[str, str], pyproject: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a Python project says it needs, one requirement each."""
    project = _table(pyproject, "project")
    lists = [project.get("dependencies"), *_table(project, "optional-dependencies").values()]
    lists += _table(pyproject, "dependency-groups").values()
    poetry = _table(pyproject, "tool", "poetry")
    tables = [_table(poetry, "dependencies"), _table(poetry, "dev-dependencies")]
    tables += [_table(group, "dependencies") for group in _table(poetry, "group").values()]
    for entry in (*lists, *tables):
        yield from (str(item) for item in entry or ()) if isinstance(entry, list | dict) else ()
    for name in ("requirements.txt", "requirements-dev.txt", "setup.cfg", "tox.ini"):
        yield from files.get(name, "").splitlines()


def _python_packages(files: Mapping[str, str], pyproject: Mapping[str, Any]) -> set[str]:
    found = (re.match(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)", line) for line in _requirements(files, pyproject))
    return {re.sub(r"[-_.]+", "-", match[1]).lower() for match in found if match}


def _python_commands(files: Mapping[str, str], pyproject: Mapping[str, Any], paths: Collection[str]) -> dict[str, str]:
    declared, tools = _python_packages(files, pyproject), _table(pyproject, "tool")
    configured = files.get("setup.cfg", "") + files.get("tox.ini", "")
    has_tests = any(re.fullmatch(r"(?:.*/)?(?:test_[^/]*|[^/]*_test)\.py", path) for path in paths)
    uses = {
        "pytest": "[pytest]" in configured
        or "[tool:pytest]" in configured
        or any(path.rpartition("/")[2] in ("pytest.ini", "conftest.py") for path in paths),
        "ruff": "ruff.toml" in paths or ".ruff.toml" in paths,
        "mypy": "mypy.ini" in paths or "[mypy]" in configured,
    }
    used = [name for name, is_configured in uses.items() if is_configured or name in declared or name in tools]
    commands = {"setup": _python_setup(files, pyproject, paths, extra=[name for name in used if name not in declared])}
    checks = {"ruff": ".venv/bin/ruff check .", "mypy": ".venv/bin/mypy ."}
    if lint := " && ".join(line for name, line in checks.items() if name in used):
        commands["lint"] = lint
    if "pytest" in used:
        commands["test"] = ".venv/bin/python -m pytest -q"
    elif has_tests:
        where = " -s tests" if any(path.startswith("tests/") for path in paths) else ""
        commands["test"] = f".venv/bin/python -m unittest discover{where}"
    return commands


def _python_setup(
    files: Mapping[str, str], pyproject: Mapping[str, Any], paths: Collection[str], *, extra: list[str]
) -> str:
    pip, parts = ".venv/bin/pip install --quiet", ["python3 -m venv .venv"]
    exported = ".venv/requirements.txt"
    own = ["-e ."] if "build-system" in pyproject or "setup.py" in paths else []
    if "uv.lock" in paths:
        export = f".venv/bin/uv export --quiet --frozen --no-hashes --output-file {exported}"
        return " && ".join((*parts, f"{pip} uv", export, " ".join((pip, f"-r {exported}", *extra))))
    if "poetry.lock" in paths:
        export = f".venv/bin/poetry export --all-groups --without-hashes --output {exported}"
        parts += [f"{pip} poetry poetry-plugin-export", export, " ".join((pip, f"-r {exported}", *extra))]
        return " && ".join([*parts, f"{pip} --no-deps -e ."] if own else parts)
    extras = _table(pyproject, "project", "optional-dependencies")
    chosen = [name for name in ("dev", "test", "tests") if name in extras]
    if own and chosen:
        own = [f"-e '.[{','.join(chosen)}]'"]
    needed = [f"-r {name}" for name in ("requirements.txt", "requirements-dev.txt") if name in files]
    if "dev" in _table(pyproject, "dependency-groups"):
        parts.append(f"{pip} --upgrade 'pip>=25.1'")
        needed.append("--group dev")
    if needed or own or extra:
        parts.append(" ".join((pip, *needed, *own, *extra)))
    return " && ".join(parts)


def _make_commands(makefile: str) -> dict[str, str]:
    targets = {found["name"] for found in _TARGET.finditer(makefile)}
    setup = next((name for name in ("setup", "install") if name in targets), None)
    commands = {"setup": f"make {setup}"} if setup else {}
    return commands | {name: f"make {name}" for name in ("build", "lint", "test") if name in targets}


def _language(paths: Collection[str], package: Mapping[str, Any], *, has_python: bool) -> str:
    """Return the language of most source files; of the settings, where there are none."""
    counts = {name: sum(path.endswith(ends) for path in paths) for name, ends in _SUFFIXES.items()}
    is_typed = "tsconfig.json" in paths or "typescript" in _node_packages(package)
    node = "typescript" if is_typed or counts["typescript"] > counts["javascript"] else "javascript"
    python, script = counts["python"], counts["typescript"] + counts["javascript"]
    if python == script:
        if _NODE in paths:
            return node
        if has_python or python:
            return "python"
        raise StackNotFoundError(READ_FILES)
    return "python" if python > script else node

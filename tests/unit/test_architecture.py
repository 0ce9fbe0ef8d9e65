"""What holds for the whole code base: who may import what, nothing happens at import, and every error travels."""

import ast
import importlib
import inspect
import pickle
import pkgutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from routing.errors import FieldError
from routing.policy.platform import platform_policy
from routing.queues import QUEUE_OF_TIER, QueueName, Tier
from sites.errors import Finding

PACKAGES = ("routing", "ledger", "sites", "gateway", "monitoring", "sandbox", "workers", "producers")
ROOT = Path(__file__).parents[2]
HEAVY = ("celery", "kombu", "redis", "sqlalchemy", "sqlmodel", "psycopg", "anthropic", "docker", "httpx2", "fastapi")
PURE = (
    "routing.jobs",
    "routing.queues",
    "routing.policy.prices",
    "routing.policy.platform",
    "routing.prompt.tokens",
    "routing.decision.triggers",
    "routing.decision.router",
    "routing.decision.evaluation",
    "routing.decision.llm_router",
    "routing.decision.debate",
    "routing.failures",
    "routing.config",
    "routing.errors",
    "workers.runs.scheduling.schedule",
)

_IMPORT_EVERYTHING = """
import builtins, os, socket, sys
sys.dont_write_bytecode = True
import importlib, pkgutil, warnings
warnings.simplefilter("ignore")

def refuse(what):
    def call(*args, **kwargs):
        raise SystemExit(f"{what} at import: {args!r}")
    return call

real_open, real_os_open = builtins.open, os.open

def open_to_read(file, mode="r", *args, **kwargs):
    if set(mode) & set("wax+"):
        raise SystemExit(f"{file} was opened to be written at import")
    return real_open(file, mode, *args, **kwargs)

def os_open_to_read(path, flags, *args, **kwargs):
    if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) and path != os.devnull:
        raise SystemExit(f"{path} was opened to be written at import")
    return real_os_open(path, flags, *args, **kwargs)

THIRD_PARTY = sys.argv[2:]
for name in THIRD_PARTY:
    importlib.import_module(name)

socket.socket.connect = refuse("a connection")
socket.socket.bind = refuse("a listening socket")
socket.create_connection = refuse("a connection")
socket.getaddrinfo = refuse("a look-up")
builtins.open, os.open = open_to_read, os_open_to_read
os.mkdir = os.makedirs = refuse("a directory")
os.fork = refuse("a fork")

seen = 0
for package in sys.argv[1].split(","):
    root = importlib.import_module(package)
    for module in pkgutil.walk_packages(root.__path__, f"{package}."):
        if module.name.endswith("__main__") or ".migrations." in module.name:
            continue
        importlib.import_module(module.name)
        seen += 1
print(seen)
"""


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program, which looks for no garbage: what it imports stays, and each look goes over all of it."""
    command = [sys.executable, "-c", f"import gc\ngc.disable()\n{code}", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@cache
def modules() -> tuple[Any, ...]:
    names = [
        module.name
        for package in PACKAGES
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}.")
        if ".migrations." not in module.name and not module.name.endswith("__main__")
    ]
    return tuple(importlib.import_module(name) for name in names)


def errors() -> list[type[BaseException]]:
    found = {
        item
        for module in modules()
        for item in vars(module).values()
        if inspect.isclass(item) and issubclass(item, BaseException) and item.__module__ == module.__name__
    }
    return sorted(found, key=lambda error: (error.__module__, error.__qualname__))


@pytest.mark.req("H-006", "H-007", "R-001", "R-003")
def test_a_decision_loads_neither_a_broker_nor_a_database_nor_a_model() -> None:
    code = (
        "import importlib, sys\n"
        "for name in sys.argv[1].split(','):\n"
        "    importlib.import_module(name)\n"
        "    loaded = sorted(set(sys.argv[2].split(',')) & set(sys.modules))\n"
        "    if loaded: sys.exit(f'{name} loads {loaded}')\n"
    )
    done = python(code, ",".join(PURE), ",".join(HEAVY))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_itself_loads_nothing(package: str) -> None:
    tree = (ROOT / package / "__init__.py").read_text()
    assert tree.startswith('"""')
    assert tree.count('"""') == 2
    assert tree.rstrip().endswith('"""')


@pytest.mark.slow
def test_importing_any_module_opens_no_connection_and_writes_no_file() -> None:
    third_party = ("celery", "fastapi", "uvicorn", "sqlmodel", "psycopg", "lxml.html", "asyncio", "docker")
    done = python(_IMPORT_EVERYTHING, ",".join(PACKAGES), *third_party)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) > 100


_BUILD_AND_SCAN = """
import importlib, importlib.resources, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
from routing.policy.platform import platform_policy
from sites.scan.engine import scan
from sites.spec.model import parse_site
from sites.spec.render import render

seen = []
watched = ("subprocess.Popen", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "socket.connect")
sys.addaudithook(lambda event, arguments: seen.append(event) if event in watched else None)
text = (importlib.resources.files("producers.local.demo_site") / "site.json").read_text()
report = scan(render(parse_site(text)), platform_policy().profiles["default"], profile_name="default")
assert report.passed, report.findings
assert not seen, seen
heavy = {"anthropic", "httpx2", "aiohttp", "requests", "github", "docker", "podman"} & set(sys.modules)
assert not heavy, heavy
"""

SAMPLES: dict[str, Any] = {
    "str": "text",
    "int": 7,
    "float": 1.5,
    "UUID": UUID(int=7),
    "bool": True,
    "object": "text",
    "Sequence[str]": ("a", "b"),
    "list[str]": ["a"],
    "float | None": 2.5,
    "str | None": "text",
    "int | None": 3,
}


def sample(parameter: inspect.Parameter) -> Any:
    annotation = str(parameter.annotation)
    if annotation in SAMPLES:
        return SAMPLES[annotation]
    if annotation.startswith("Literal["):
        return annotation.removeprefix("Literal[").split(",")[0].strip("\"']")
    if annotation.startswith("tuple["):
        return ("a",)
    return "text"


MADE: dict[str, Callable[[], tuple[Any, ...]]] = {
    "InvalidJobError": lambda: ((FieldError("prompt", "is required"),),),
    "SpecError": lambda: ((Finding("code", "/path", "message"),),),
    "ImportRefusedError": lambda: (({"file": "a", "line": 1, "rule": "r", "message": "m", "fix": "f"},),),
    "MissingScopeError": lambda: ("read",),
    "ApprovalRefusedError": lambda: (UUID(int=7), "expired"),
    "GateRefusedError": lambda: (UUID(int=7), "expired"),
    "NotContinuableError": lambda: (UUID(int=7), "state", "queued"),
    "NotReplayableError": lambda: (UUID(int=7), "not_ended"),
}
"""Arguments of the errors that take more than plain values."""


def make(error: type[BaseException]) -> BaseException:
    if error.__name__ in MADE:
        return error(*MADE[error.__name__]())
    signature = inspect.signature(error.__init__)
    own = [parameter for name, parameter in signature.parameters.items() if name != "self"]
    if error.__init__ in (Exception.__init__, BaseException.__init__):
        return error("text")
    keywords: dict[str, Any] = {}
    values: list[Any] = []
    for parameter in own:
        if parameter.kind is parameter.KEYWORD_ONLY:
            keywords[parameter.name] = sample(parameter)
        elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            values.append(sample(parameter))
        elif parameter.kind is parameter.VAR_POSITIONAL:
            values.append("text")
    return error(*values, **keywords)


def test_an_error_survives_the_way_from_a_pool_child_to_its_parent() -> None:
    for error in errors():
        made = make(error)
        again = pickle.loads(pickle.dumps(made))
        assert type(again) is error
        assert str(again) == str(made)
        told, kept = ({name: repr(value) for name, value in vars(each).items()} for each in (again, made))
        assert told == kept, error


@pytest.mark.slow
@pytest.mark.req("H-012", "H-088", "H-119")
def test_a_worker_builds_and_scans_without_process_or_engine_and_knows_no_client_of_a_provider_or_a_forge() -> None:
    for queue in (QueueName.SPEC, QueueName.ANSWER, QueueName.TOOLS, QueueName.INTAKE, QueueName.CONTROL):
        assert platform_policy().queues[queue].container == "none"
    handlers = ("spec", "answer", "publish", "intake", "agent")
    names = (*(f"handlers.{name}" for name in handlers), "boxes", "tasks", "main")
    done = python(_BUILD_AND_SCAN, *(f"workers.{name}" for name in names))
    assert done.returncode == 0, done.stderr


@pytest.mark.req("H-123")
@pytest.mark.parametrize("tier", Tier)
def test_each_tier_s_own_code_has_a_suite_of_its_own(tier: Tier) -> None:
    from workers.tasks import HANDLERS

    handler = HANDLERS[QUEUE_OF_TIER[tier]]
    assert [other for other, code in HANDLERS.items() if code is handler] == [QUEUE_OF_TIER[tier]]
    suite = ast.parse((ROOT / "tests" / "integration" / "jobs" / f"test_{tier.name.lower()}_jobs.py").read_text())
    imported = [node for node in suite.body if isinstance(node, ast.ImportFrom) and node.module == handler.__module__]
    assert any(alias.name == handler.__name__ for node in imported for alias in node.names)
    assert sum(isinstance(node, ast.FunctionDef) and node.name.startswith("test_") for node in suite.body) >= 10


@pytest.mark.parametrize("package", ["routing", "workers", "producers"])
def test_a_package_s_errors_stand_in_one_module(package: str) -> None:
    found = [error for error in errors() if error.__module__.startswith(f"{package}.")]
    assert found
    assert [error for error in found if error.__module__ != f"{package}.errors"] == []


def test_every_unit_test_file_is_named_after_what_it_tests() -> None:
    unit = ROOT / "tests" / "unit"
    strays = []
    for path in unit.rglob("test_*.py"):
        folder, name = path.parent.relative_to(unit), path.stem.removeprefix("test_")
        is_named = (ROOT / folder / f"{name}.py").exists() or (ROOT / folder / name).is_dir() or folder.name == name
        if folder.parts and folder.parts[0] in PACKAGES and not is_named:
            strays.append(str(path.relative_to(ROOT)))
    assert strays == []


def test_the_formatter_decides_everywhere() -> None:
    marks = ("# fmt: " + "skip", "# fmt: " + "off")
    sources = [path for package in (*PACKAGES, "tests", "benchmarks") for path in (ROOT / package).rglob("*.py")]
    assert [path for path in sources if any(mark in path.read_text() for mark in marks)] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_no_folder_of_modules_is_crowded(package: str) -> None:
    folders = {path.parent for path in (ROOT / package).rglob("*.py") if path.name != "__init__.py"}
    modules = {folder: sum(path.name != "__init__.py" for path in folder.glob("*.py")) for folder in folders}
    modules.pop(ROOT / "ledger" / "migrations" / "versions", None)  # a list that only grows
    assert {folder: count for folder, count in modules.items() if count > 20} == {}

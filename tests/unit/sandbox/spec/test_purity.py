"""Tier 1 never executes user-influenced code: the spec engine holds nothing that could."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from importlib import resources
from importlib.resources.abc import Traversable

import pytest

import sandbox.spec

RUNNING = {"eval", "exec", "compile", "open", "__import__", "system", "popen", "Popen"}
OUTSIDE = {
    "subprocess",
    "os",
    "socket",
    "http",
    "urllib.request",
    "httpx",
    "aiohttp",
    "anthropic",
    "docker",
    "celery",
    "pickle",
    "ctypes",
}


def modules(folder: Traversable) -> list[Traversable]:
    found = []
    for entry in folder.iterdir():
        found += modules(entry) if entry.is_dir() else [entry] if entry.name.endswith(".py") else []
    return found


MODULES = modules(resources.files(sandbox.spec))


@pytest.mark.req("H-108")
@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_no_module_of_the_spec_engine_can_run_code_or_leave_the_process(module: Traversable) -> None:
    tree = ast.parse(module.read_text(encoding="utf-8"))
    called = {
        node.func.id if isinstance(node.func, ast.Name) else node.func.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute)
    } - ({"compile"} if "re.compile(" in module.read_text(encoding="utf-8") else set())
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    assert not called & RUNNING
    assert not imported & OUTSIDE


@pytest.mark.req("H-013")
def test_the_spec_engine_builds_a_site_with_no_client_of_model_container_or_network_loaded() -> None:
    program = (
        "import sys, json, sandbox.spec.direct, sandbox.spec.outline, sandbox.spec.render\n"
        "print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not {"docker", "anthropic", "celery", "kombu", "httpx", "sqlalchemy"} & set(json.loads(run.stdout))

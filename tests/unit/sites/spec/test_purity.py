"""Tier 1 never executes user-influenced code: the spec engine holds nothing that could."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import resources
from importlib.resources.abc import Traversable

import pytest

import sites.spec

RUNNING = {"eval", "exec", "compile", "open", "__import__"}
SPAWNING = {"system", "popen", "Popen", "fork", "execv", "read_text", "write_text", "read_bytes", "write_bytes"}
OUTSIDE = {
    "subprocess",
    "os",
    "socket",
    "http",
    "urllib.request",
    "httpx2",
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


MODULES = modules(resources.files(sites.spec))


@pytest.mark.req("H-108")
@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_no_module_of_the_spec_engine_can_run_code_or_leave_the_process(module: Traversable) -> None:
    tree = ast.parse(module.read_text(encoding="utf-8"))
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    called = {call.id for call in calls if isinstance(call, ast.Name)} & RUNNING
    called |= {call.attr for call in calls if isinstance(call, ast.Attribute)} & SPAWNING
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    assert not called
    assert not imported & OUTSIDE


@pytest.mark.req("H-013")
def test_a_site_is_edited_and_built_where_no_container_client_is_installed() -> None:
    program = (
        "import sys\n"
        "for name in ('docker', 'anthropic', 'celery', 'httpx2'): sys.modules[name] = None\n"
        "from sites.direct_edit.direct import apply_direct, parse_direct\n"
        "from sites.spec.outline import expand_outline\n"
        "from sites.spec.render import render\n"
        "site = expand_outline({'name': 'Holm', 'sections': [{'kind': 'Hero', 'heading': 'Hello'}]})\n"
        "edit = parse_direct(\"Change the hero heading to 'Fresh bread'\", site)\n"
        "print(b'Fresh bread' in render(apply_direct(site, edit))['index.html'])"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "True"

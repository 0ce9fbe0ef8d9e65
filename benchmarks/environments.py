"""Where peers live: an environment for each set of pinned versions, below the user's cache, made when first wanted."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks.question import UnavailableError, say

ROOT = Path(__file__).parents[1]
CACHE = Path.home() / ".cache" / "pointsman" / "bench"


def python_with(pins: Sequence[str], *, alone: Sequence[str] = ()) -> Path:
    """Return an interpreter that has some distributions and nothing of ours.

    Args:
        pins: the distributions, as `name==version`.
        alone: more of them, without what they would bring along.
    """

    def install(home: Path) -> None:
        _run([sys.executable, "-m", "venv", str(home)])
        pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _run([*pip, *pins])
        if alone:
            _run([*pip, "--no-deps", *alone])

    return _made([sys.version, *pins, *(f"{pin} alone" for pin in alone)], install) / "bin" / "python"


def node_with(pins: Mapping[str, str]) -> Path:
    """Return a directory whose `node_modules` has some packages, given by name and version."""

    def install(home: Path) -> None:
        home.mkdir(parents=True)
        (home / "package.json").write_text(json.dumps({"private": True, "dependencies": dict(pins)}))
        _run(["npm", "install", "--prefix", str(home), "--ignore-scripts", "--no-audit", "--no-fund"])

    return _made(["node", *(f"{name}@{version}" for name, version in pins.items())], install)


def _made(key: Sequence[str], install: Callable[[Path], None]) -> Path:
    """Return the directory of a set of pins; one that is incomplete is made anew, in its place: it cannot be moved."""
    home = CACHE / hashlib.sha256("\n".join(key).encode()).hexdigest()[:16]
    stamp = home / ".complete"
    if not stamp.exists():
        say(f"installing {', '.join(key[1:])} (once)")
        shutil.rmtree(home, ignore_errors=True)
        install(home)
        stamp.touch()
    return home


def _run(argv: Sequence[str]) -> None:
    try:
        done = subprocess.run(argv, capture_output=True, text=True)
    except FileNotFoundError:
        raise UnavailableError(f"there is no {argv[0]}") from None
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
        raise UnavailableError(f"cannot be installed: {lines[-1][:300]}")

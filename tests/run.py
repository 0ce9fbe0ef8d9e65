"""`make test`: runs the suite, and with SYSTEM=1 installs what its system tests need."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from typing import NamedTuple


class Need(NamedTuple):
    """Something that no Python package brings."""

    name: str
    is_there: Callable[[], bool]
    package: str
    what_for: str


NEEDS = [
    Need("Chromium", lambda: shutil.which("chromium") is not None, "chromium", "browser tests"),
    Need("npm", lambda: shutil.which("npm") is not None, "npm", "tests beside the real json-render"),
    Need("Docker", lambda: shutil.which("dockerd") is not None, "docker.io", "tests of boxes"),
    Need("debootstrap", lambda: shutil.which("debootstrap") is not None, "debootstrap", "tests of boxes"),
    Need("iproute2", lambda: shutil.which("ip") is not None, "iproute2", "tests of boxes"),
]


def install(need: Need) -> None:
    """Install a need with the system's package manager (root on Debian or Ubuntu)."""
    print(f"tests: installing {need.name} for the {need.what_for}", flush=True)
    for command in (["apt-get", "update", "-q"], ["apt-get", "install", "-y", "-q", "--no-install-recommends"]):
        argv = command + ([need.package] if "install" in command else [])
        done = subprocess.run(
            argv, capture_output=True, text=True, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        )
        if done.returncode != 0:
            sys.exit(f"tests: {' '.join(argv)} failed:\n{done.stderr[-2000:]}")


def main() -> int:
    """Run the phases; the exit status is the worst of them."""
    is_system = os.environ.get("SYSTEM") == "1"
    for need in NEEDS:
        if need.is_there():
            continue
        if is_system:
            install(need)
        else:
            print(f"tests: no {need.name}: {need.what_for} are skipped; `make test SYSTEM=1` as root installs it")
    if arguments := sys.argv[1:]:
        return subprocess.run([sys.executable, "-m", "pytest", *arguments]).returncode
    phases = (
        ["tests/unit", "tests/integration", "-n", "2", "--dist", "loadfile"],
        ["tests/acceptance", "tests/box"],
    )
    worst = 0
    for phase in phases:
        worst = max(worst, subprocess.run([sys.executable, "-m", "pytest", "-q", *phase]).returncode)
    return worst


if __name__ == "__main__":
    sys.exit(main())

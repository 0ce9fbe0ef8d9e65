"""`make test`: runs the suite, and with SYSTEM=1 installs what its system tests need."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
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
    Need("Prometheus", lambda: shutil.which("prometheus") is not None, "prometheus", "tests of panels and alerts"),
    Need("docker-compose", lambda: shutil.which("docker-compose") is not None, "docker-compose", "tests of compose/"),
    Need("faketime", lambda: shutil.which("faketime") is not None, "faketime", "tests of skewed clocks"),
    Need("iproute2", lambda: shutil.which("ip") is not None, "iproute2", "tests of boxes"),
]

TWO = ("-n", "2", "--dist", "loadfile", "--no-loadscope-reorder")
"""Two processes, each with servers, engine and network of its own; a file's tests stay together and share them.

Left to itself xdist begins with the files of most tests, and ends with the longest: files of one test each."""
PHASES = (("tests/unit", "tests/integration"), ("tests/chaos", "tests/box", "tests/acceptance"))
"""One after the other: what is quick to fail comes first. Of a phase, the longest files come first (tests/order.py)."""


def install(needs: Sequence[Need]) -> None:
    """Install what is missing with the system's package manager (root on Debian or Ubuntu), in one go."""
    print(f"tests: installing {', '.join(need.name for need in needs)}", flush=True)
    packages = [need.package for need in needs]
    for argv in (
        ["apt-get", "update", "-q"], ["apt-get", "install", "-y", "-q", "--no-install-recommends", *packages],
    ):  # fmt: skip
        done = subprocess.run(
            argv, capture_output=True, text=True, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        )
        if done.returncode != 0:
            sys.exit(f"tests: {' '.join(argv)} failed:\n{done.stderr[-2000:]}")


def main() -> int:
    """Run the phases; the exit status is the worst of them."""
    missing = [need for need in NEEDS if not need.is_there()]
    if missing and os.environ.get("SYSTEM") == "1":
        install(missing)
    else:
        for need in missing:
            print(f"tests: no {need.name}: {need.what_for} are skipped; `make test SYSTEM=1` as root installs it")
    if arguments := sys.argv[1:]:
        return subprocess.run([sys.executable, "-m", "pytest", *arguments]).returncode
    worst = 0
    for phase in PHASES:
        began = time.monotonic()
        worst = max(worst, subprocess.run([sys.executable, "-m", "pytest", "-q", *TWO, *phase]).returncode)
        print(f"tests: {' '.join(phase)} took {time.monotonic() - began:.0f} s", flush=True)
    return worst


if __name__ == "__main__":
    sys.exit(main())

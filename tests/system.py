"""`make test SYSTEM=1`: what the system tests need and no Python package brings. Nothing but the standard library."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple


class Need(NamedTuple):
    """Something that no Python package brings."""

    name: str
    is_there: Callable[[], bool]
    package: str
    what_for: str


def _daemon(name: str) -> str | None:
    return shutil.which(name, path=f"{os.defpath}:/usr/sbin:/sbin")


NEEDS = [
    Need("Chromium", lambda: shutil.which("chromium") is not None, "chromium", "browser tests"),
    Need("npm", lambda: shutil.which("npm") is not None, "npm", "tests beside the real json-render"),
    Need("Docker", lambda: shutil.which("dockerd") is not None, "docker.io", "tests of boxes"),
    Need("debootstrap", lambda: shutil.which("debootstrap") is not None, "debootstrap", "tests of boxes"),
    Need("Prometheus", lambda: shutil.which("prometheus") is not None, "prometheus", "tests of panels and alerts"),
    Need("docker-compose", lambda: shutil.which("docker-compose") is not None, "docker-compose", "tests of compose/"),
    Need("faketime", lambda: shutil.which("faketime") is not None, "faketime", "tests of skewed clocks"),
    Need("PgBouncer", lambda: shutil.which("pgbouncer") is not None, "pgbouncer", "tests of a pooler"),
    Need("ssh", lambda: shutil.which("ssh") is not None, "openssh-client", "tests of remotes by ssh"),
    Need("sshd", lambda: _daemon("sshd") is not None, "openssh-server", "tests of remotes by ssh"),
    Need("iproute2", lambda: shutil.which("ip") is not None, "iproute2", "tests of boxes"),
]


def install(needs: Sequence[Need]) -> None:
    """Install what is missing with the system's package manager (root on Debian or Ubuntu), in one go."""
    print(f"tests: installing {', '.join(need.name for need in needs)}", flush=True)
    packages = [need.package for need in needs]
    for argv in (
        ["apt-get", "update", "-q"],
        ["apt-get", "install", "-y", "-q", "--no-install-recommends", *packages],
    ):
        done = subprocess.run(
            argv, capture_output=True, text=True, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        )
        if done.returncode != 0:
            sys.exit(f"tests: {' '.join(argv)} failed:\n{done.stderr[-2000:]}")


def main() -> None:
    """Install what is missing if SYSTEM=1 asks for it; else tell what will be skipped."""
    missing = [need for need in NEEDS if not need.is_there()]
    if missing and os.environ.get("SYSTEM") == "1":
        install(missing)
    else:
        for need in missing:
            print(f"tests: no {need.name}: {need.what_for} are skipped; `make test SYSTEM=1` as root installs it")


if __name__ == "__main__":
    main()

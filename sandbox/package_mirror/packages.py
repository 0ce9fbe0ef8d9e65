"""A package's description (npm says packument): read, bound to digests, and written again with our own URLs."""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Self
from urllib.parse import unquote, urlsplit

from pydantic_core import from_json, to_json

from sandbox.package_mirror.config import MirrorRefusedError

# Which paths the mirror knows: a package's description and its files. Whatever has another shape is not there.

_PART = r"[A-Za-z0-9~-][A-Za-z0-9._~-]{0,213}"
_NAME = re.compile(rf"(?P<name>(?:@{_PART}/)?{_PART})")
_TARBALL = r"[A-Za-z0-9~-][A-Za-z0-9._+~-]{0,254}\.tgz"
_FILE = re.compile(rf"(?P<name>(?:@{_PART}/)?{_PART})/-/(?:@{_PART}/)?(?P<file>{_TARBALL})")
_MAX_NAME_CHARS = 214
"""What npm allows, scope included."""


class Description(NamedTuple):
    """Ask for what is known of a package."""

    name: str


class File(NamedTuple):
    """Ask for one version's tarball."""

    name: str
    file: str


def parse_path(path: str, *, prefixes: tuple[str, ...] = ()) -> Description | File | None:
    """Read a decoded path.

    Args:
        path: of the request, percent-decoded once, as the ASGI server gives it.
        prefixes: paths that the registries' own URLs begin with: lock files repeat them.

    Returns:
        None for every path that has another shape.
    """
    inner = path.removeprefix("/")
    for prefix in prefixes:
        own = prefix.strip("/")
        if own and inner.startswith(f"{own}/"):
            inner = inner.removeprefix(f"{own}/")
            break
    if found := _FILE.fullmatch(inner):
        return File(found["name"], found["file"]) if len(found["name"]) <= _MAX_NAME_CHARS else None
    if found := _NAME.fullmatch(inner):
        return Description(found["name"]) if len(found["name"]) <= _MAX_NAME_CHARS else None
    return None


def file_of(url: str) -> str | None:
    """Return the file's name under which the mirror serves what a registry has at this URL; None if it cannot."""
    try:
        name = unquote(urlsplit(url).path).rpartition("/")[2]
    except ValueError:
        return None
    return name if _FILE.fullmatch(f"x/-/{name}") else None


_SIZES = {"sha512": 64, "sha384": 48, "sha256": 32, "sha1": 20}
"""Digests that a registry may state, the strongest first, and their bytes."""


class Digest(NamedTuple):
    """What a file must hash to."""

    algorithm: str
    hex: str

    def hasher(self) -> Any:
        """Return a new hash of this kind."""
        return hashlib.new(self.algorithm, usedforsecurity=False)


class Origin(NamedTuple):
    """Where a registry has a file, and what it must be."""

    url: str
    digest: Digest


@dataclass(frozen=True)
class Packument:
    """What a package's description is for the mirror and its callers."""

    body: bytes
    """As it is served."""
    etag: str
    files: dict[str, Origin]
    """By name, every file whose digest the registry states; no other is served."""


def read_packument(raw: bytes, *, name: str, public_url: str) -> Packument:
    """Read what a registry says of a package. Versions whose file could not be served are left out.

    Args:
        raw: as it came.
        name: the package that was asked for.
        public_url: the mirror, as its callers see it.

    Raises:
        MirrorRefusedError: the registry's fault.
    """
    try:
        fields = from_json(raw, allow_inf_nan=False)
    except ValueError:
        raise MirrorRefusedError(502, "the registry's description of this package is not JSON") from None
    if not isinstance(fields, dict) or fields.get("name") != name or not isinstance(fields.get("versions"), dict):
        raise MirrorRefusedError(502, "the registry's answer does not describe this package")
    files: dict[str, Origin] = {}
    versions: dict[str, Any] = {}
    for version, manifest in fields["versions"].items():
        origin = _origin(manifest)
        file = _file(name, version, origin) if origin is not None else None
        if origin is None or file is None or files.setdefault(file, origin) != origin:
            continue
        manifest["dist"]["tarball"] = f"{public_url}/{name}/-/{file}"
        versions[version] = manifest
    tags = fields.get("dist-tags")
    kept = {tag: version for tag, version in tags.items() if version in versions} if isinstance(tags, dict) else {}
    body = to_json(fields | {"versions": versions, "dist-tags": kept})
    return Packument(body, f'"{hashlib.sha256(body).hexdigest()[:32]}"', files)


def _file(name: str, version: str, origin: Origin) -> str | None:
    """Return what a file is called here: as at the registry, or as npm calls it where that is no name for a file."""
    return file_of(origin.url) or file_of(f"/{name.rpartition('/')[2]}-{version}.tgz")


def _origin(manifest: Any) -> Origin | None:
    dist = manifest.get("dist") if isinstance(manifest, dict) else None
    if not isinstance(dist, dict) or not isinstance(dist.get("tarball"), str):
        return None
    digest = _digest(dist.get("integrity"), dist.get("shasum"))
    return Origin(dist["tarball"], digest) if digest is not None else None


def _digest(integrity: Any, shasum: Any) -> Digest | None:
    """Return the strongest digest stated. Of several of one kind the first holds."""
    stated: dict[str, str] = {}
    for item in integrity.split() if isinstance(integrity, str) else ():
        algorithm, _, value = item.partition("-")
        try:
            stated.setdefault(algorithm, base64.b64decode(value.partition("?")[0], validate=True).hex())
        except (binascii.Error, ValueError):
            continue
    if isinstance(shasum, str):
        stated.setdefault("sha1", shasum.lower())
    for algorithm, size in _SIZES.items():
        found = stated.get(algorithm, "")
        if len(found) == 2 * size and all(letter in "0123456789abcdef" for letter in found):
            return Digest(algorithm, found)
    return None


# Packages on disk, by what they contain: a bounded cache in which a name from outside is never a path.
#
# Whoever reads gets an open file, so that an entry may be removed at any time, and hashes what it reads again.


class Incoming:
    """A file on its way into the store: visible to nobody before it is kept."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("xb")

    def write(self, chunk: bytes) -> None:
        """Append; a full disk is the store's trouble, not the download's."""
        self._file.write(chunk)

    def keep(self, target: Path) -> int:
        """Make the file an entry, and return its size."""
        self._file.close()
        size = self._path.stat().st_size
        target.parent.mkdir(exist_ok=True)
        self._path.replace(target)
        return size

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._path.unlink(missing_ok=True)


class Store:
    """The cache of one mirror. The directory belongs to it alone."""

    def __init__(self, root: Path, *, max_bytes: int) -> None:
        self._root = root
        self._max_bytes = max_bytes
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        for leftover in root.glob("*.part"):
            leftover.unlink(missing_ok=True)
        self._sizes = dict(sorted(_entries(root), key=lambda entry: entry[1][1]))
        self._bytes = sum(size for size, _ in self._sizes.values())

    @property
    def used_bytes(self) -> int:
        """What the entries take."""
        return self._bytes

    def open(self, digest: Digest) -> tuple[BinaryIO, int] | None:
        """Return an entry's open file and size, and remember its use; None when there is none."""
        path = self._path(digest)
        try:
            file = path.open("rb")
        except OSError:
            return None
        if (known := self._sizes.pop(path, None)) is not None:
            self._sizes[path] = known  # the last in the order was used last
        with suppress(OSError):
            os.utime(path)
        return file, os.fstat(file.fileno()).st_size

    def incoming(self) -> Incoming:
        """Return a new file to write to.

        Raises:
            OSError: the disk's fault.
        """
        return Incoming(self._root / f"{secrets.token_hex(8)}.part")

    def keep(self, incoming: Incoming, digest: Digest) -> None:
        """Make a written and checked file an entry, and remove those used longest ago that no longer have room.

        Raises:
            OSError: the disk's fault.
        """
        path = self._path(digest)
        self._forget(path)
        size = incoming.keep(path)
        self._sizes[path] = (size, 0.0)
        self._bytes += size
        while self._bytes > self._max_bytes and self._sizes:
            self.remove_path(next(iter(self._sizes)))

    def remove(self, digest: Digest) -> None:
        """Remove an entry that turned out not to be what it is called."""
        self.remove_path(self._path(digest))

    def remove_path(self, path: Path) -> None:
        """Remove an entry by its place."""
        self._forget(path)
        path.unlink(missing_ok=True)

    def _forget(self, path: Path) -> None:
        size, _ = self._sizes.pop(path, (0, 0.0))
        self._bytes -= size

    def _path(self, digest: Digest) -> Path:
        return self._root / f"{digest.algorithm}-{digest.hex[:2]}" / digest.hex


def _entries(root: Path) -> list[tuple[Path, tuple[int, float]]]:
    found = []
    for path in root.glob("sha*-??/*"):
        with suppress(OSError):
            status = path.stat()
            found.append((path, (status.st_size, status.st_mtime)))
    return found

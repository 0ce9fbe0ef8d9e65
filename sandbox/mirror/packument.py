"""A package's description (npm says packument): read, bound to digests, and written again with our own URLs."""

from __future__ import annotations

import base64
import binascii
import hashlib
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic_core import from_json, to_json

from sandbox.mirror.errors import MirrorRefusedError
from sandbox.mirror.paths import file_of

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

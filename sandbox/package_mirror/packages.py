"""Packages: fetched from the registries, bound to digests, rewritten with the mirror's URLs, and cached.

A registry's answer may lead anywhere (a tarball elsewhere, a redirect), and a hostile package may be behind it. So each
hop is checked, and the connection goes to the very address that was checked: a registry's own, or a public one.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import logging
import os
import re
import secrets
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from urllib.parse import unquote, urljoin, urlsplit

import aiohttp
from pydantic_core import from_json, to_json

from gateway.errors import AddressRefusedError
from gateway.network import public_socket
from routing.addresses import refusal_of
from sandbox.config import MirrorConfig
from sandbox.errors import MirrorRefusedError, RegistryConfigError
from sandbox.package_mirror.registries import Registries, host_of

logger = logging.getLogger(__name__)

_PART = r"[A-Za-z0-9~-][A-Za-z0-9._~-]{0,213}"
_NAME = re.compile(rf"(?P<name>(?:@{_PART}/)?{_PART})")
_TARBALL = r"[A-Za-z0-9~-][A-Za-z0-9._+~-]{0,254}\.tgz"
_FILE = re.compile(rf"(?P<name>(?:@{_PART}/)?{_PART})/-/(?:@{_PART}/)?(?P<file>{_TARBALL})")
_MAX_NAME_CHARS = 214
"""What npm allows, scope included."""


class Description(NamedTuple):
    """A request for a package's metadata."""

    name: str


class File(NamedTuple):
    """A request for one version's tarball."""

    name: str
    file: str


def parse_path(path: str, *, prefixes: tuple[str, ...] = ()) -> Description | File | None:
    """Parse the path of a request, percent-decoded once; None for any other path.

    `prefixes` are the paths of the registries' URLs, which lock files repeat.
    """
    inner = path.removeprefix("/")
    for prefix in prefixes:
        stem = prefix.strip("/")
        if stem and inner.startswith(f"{stem}/"):
            inner = inner.removeprefix(f"{stem}/")
            break
    if found := _FILE.fullmatch(inner):
        return File(found["name"], found["file"]) if len(found["name"]) <= _MAX_NAME_CHARS else None
    if found := _NAME.fullmatch(inner):
        return Description(found["name"]) if len(found["name"]) <= _MAX_NAME_CHARS else None
    return None


def file_of(url: str) -> str | None:
    """Return the mirror's name of the file at a registry's URL; None if it cannot be served."""
    try:
        name = unquote(urlsplit(url).path).rpartition("/")[2]
    except ValueError:
        return None
    return name if _FILE.fullmatch(f"x/-/{name}") else None


_SIZES = {"sha512": 64, "sha384": 48, "sha256": 32, "sha1": 20}
"""Accepted digests, strongest first, and their sizes in bytes."""


class Digest(NamedTuple):
    """The required digest of a file."""

    algorithm: str
    hex: str

    def hasher(self) -> Any:
        """Return a new hash object."""
        return hashlib.new(self.algorithm, usedforsecurity=False)


class Origin(NamedTuple):
    """A file's URL at its registry, and its digest."""

    url: str
    digest: Digest


@dataclass(frozen=True)
class Packument:
    """A package's metadata (npm says packument)."""

    body: bytes
    """The metadata as served."""
    etag: str
    files: dict[str, Origin]
    """Files by name; those without a digest are not served."""


def read_packument(raw: bytes, *, name: str, public_url: str) -> Packument:
    """Parse a registry's metadata and drop versions whose file cannot be served.

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
    tags = {tag: version for tag, version in tags.items() if version in versions} if isinstance(tags, dict) else {}
    body = to_json(fields | {"versions": versions, "dist-tags": tags})
    return Packument(body, f'"{hashlib.sha256(body).hexdigest()[:32]}"', files)


def _file(name: str, version: str, origin: Origin) -> str | None:
    """Return a file's name on the mirror: the registry's, or npm's usual one if that is unfit."""
    return file_of(origin.url) or file_of(f"/{name.rpartition('/')[2]}-{version}.tgz")


def _origin(manifest: Any) -> Origin | None:
    dist = manifest.get("dist") if isinstance(manifest, dict) else None
    if not isinstance(dist, dict) or not isinstance(dist.get("tarball"), str):
        return None
    digest = _digest(dist.get("integrity"), dist.get("shasum"))
    return Origin(dist["tarball"], digest) if digest is not None else None


def _digest(integrity: Any, shasum: Any) -> Digest | None:
    """Return the strongest digest; of several of one kind, the first."""
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


class Store:
    """A bounded cache on disk, addressed by content, so that no name from outside becomes a path.

    One mirror owns the directory. Readers get an open file, so that an entry may be removed at any time, and verify
    the content again.
    """

    def __init__(self, root: Path, *, max_bytes: int) -> None:
        self.root = root
        self._max_bytes = max_bytes
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        for leftover in root.glob("*.part"):
            leftover.unlink(missing_ok=True)
        self._sizes = dict(sorted(_entries(root), key=lambda entry: entry[1][1]))
        self._bytes = sum(size for size, _ in self._sizes.values())

    def open(self, digest: Digest) -> tuple[BinaryIO, int] | None:
        """Return an entry's open file and size, and mark it as used; None if there is no entry."""
        path = self._path(digest)
        try:
            file = path.open("rb")
        except OSError:
            return None
        if (entry := self._sizes.pop(path, None)) is not None:
            self._sizes[path] = entry  # most recently used last
        with suppress(OSError):
            os.utime(path)
        return file, os.fstat(file.fileno()).st_size

    def keep(self, part: Path, digest: Digest) -> None:
        """Add a verified file, and evict the least recently used entries beyond the size limit.

        Raises:
            OSError: the disk's fault.
        """
        path = self._path(digest)
        self._forget(path)
        size = part.stat().st_size
        path.parent.mkdir(exist_ok=True)
        part.replace(path)
        self._sizes[path] = (size, 0.0)
        self._bytes += size
        while self._bytes > self._max_bytes and self._sizes:
            self._drop(next(iter(self._sizes)))

    def remove(self, digest: Digest) -> None:
        """Remove a corrupt entry, if the disk lets it go: its file is fetched again in any case."""
        with suppress(OSError):
            self._drop(self._path(digest))

    def _drop(self, path: Path) -> None:
        self._forget(path)
        path.unlink(missing_ok=True)

    def _forget(self, path: Path) -> None:
        size, _ = self._sizes.pop(path, (0, 0.0))
        self._bytes -= size

    def _path(self, digest: Digest) -> Path:
        return self.root / f"{digest.algorithm}-{digest.hex[:2]}" / digest.hex


class Incoming:
    """A file on its way into the store, invisible until kept. A disk failure costs the entry, not the download."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._path = store.root / f"{secrets.token_hex(8)}.part"
        self._file: BinaryIO | None = None
        with self._sparing_the_download():
            self._file = self._path.open("xb")

    @contextmanager
    def _sparing_the_download(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            logger.warning("package_not_kept", extra={"error": error.strerror})
            self.close()

    async def watch(self, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Write pieces as they pass."""
        async for piece in pieces:
            with self._sparing_the_download():
                if self._file is not None:
                    self._file.write(piece)
            yield piece

    def keep(self, digest: Digest) -> None:
        """Add the verified file to the store."""
        with self._sparing_the_download():
            if self._file is not None:
                self._file.close()
                self._store.keep(self._path, digest)

    def close(self) -> None:
        """Remove what was not kept."""
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
            with suppress(OSError):
                self._path.unlink(missing_ok=True)
            self._file = None


def _entries(root: Path) -> list[tuple[Path, tuple[int, float]]]:
    found = []
    for path in root.glob("sha*-??/*"):
        with suppress(OSError):
            status = path.stat()
            found.append((path, (status.st_size, status.st_mtime)))
    return found


_MAX_HOPS = 4
_NOT_PUBLIC = "the registry leads to an address that is not public"
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


class Outbound:
    """HTTP client of the registries; needs a running event loop."""

    def __init__(self, registries: Registries, config: MirrorConfig) -> None:
        self._registries = registries
        trust = _trust(registries)
        self._own = _session(config, aiohttp.TCPConnector(limit=config.upstream_connections, ssl=trust))
        elsewhere = aiohttp.TCPConnector(limit=config.upstream_connections, ssl=trust, socket_factory=public_socket)
        self._elsewhere = _session(config, elsewhere)

    async def close(self) -> None:
        """Close every connection."""
        await self._own.close()
        await self._elsewhere.close()

    @asynccontextmanager
    async def get(
        self, url: str, headers: Mapping[str, str], *, is_raw: bool = False
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Fetch a URL and follow allowed redirects.

        None of the `headers` may come from a box; `is_raw` returns the body without decompressing it.

        Raises:
            MirrorRefusedError: the registry's fault: unreachable, too slow, or leading to a forbidden address.
        """
        try:
            async with self._follow(url, headers, is_raw=is_raw) as response:
                yield response
        except aiohttp.ClientConnectorError as error:
            if isinstance(error.os_error, AddressRefusedError):
                raise MirrorRefusedError(502, _NOT_PUBLIC) from None
            raise MirrorRefusedError(502, "the registry cannot be reached") from None
        except TimeoutError:
            raise MirrorRefusedError(504, "the registry took too long") from None
        except aiohttp.ClientError:
            raise MirrorRefusedError(502, "the registry broke off or cannot be understood") from None

    @asynccontextmanager
    async def _follow(
        self, url: str, headers: Mapping[str, str], *, is_raw: bool
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        for _ in range(_MAX_HOPS):
            session = self._session_for(url)
            authorization = self._registries.authorization_of(url)
            sent = {**headers, **({"authorization": authorization} if authorization else {})}
            async with session.get(url, headers=sent, allow_redirects=False, auto_decompress=not is_raw) as response:
                target = response.headers.get("location")
                if response.status not in _REDIRECTS or target is None:
                    yield response
                    return
            url = urljoin(url, target)
        raise MirrorRefusedError(502, "the registry redirects too often")

    def _session_for(self, url: str) -> aiohttp.ClientSession:
        """Return the session that may go there: anywhere but to the registries' own origins only by public https."""
        try:
            origin = host_of(url)
            scheme = urlsplit(url).scheme
        except ValueError:
            raise MirrorRefusedError(502, "the registry leads to something that is no URL") from None
        if origin in self._registries.origins:
            return self._own
        if scheme != "https" or origin[1] != 443:
            raise MirrorRefusedError(502, "the registry leads to a place that is not https")
        if refusal_of(url, allow_private=False) is not None:
            raise MirrorRefusedError(502, _NOT_PUBLIC)
        return self._elsewhere


def _session(config: MirrorConfig, connector: aiohttp.TCPConnector) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=connector,
        timeout=aiohttp.ClientTimeout(
            total=config.request_seconds, sock_connect=config.connect_seconds, sock_read=config.silence_seconds
        ),
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
        headers={"user-agent": "pointsman-mirror"},
    )


def _trust(registries: Registries) -> ssl.SSLContext:
    try:
        trust = ssl.create_default_context(cafile=registries.ca_file)
    except (OSError, ssl.SSLError):
        raise RegistryConfigError(f"npm's cafile {registries.ca_file} cannot be read") from None
    if registries.python_ca_file is not None:
        try:
            trust.load_verify_locations(registries.python_ca_file)
        except (OSError, ssl.SSLError):
            raise RegistryConfigError(f"pip's cert {registries.python_ca_file} cannot be read") from None
    return trust

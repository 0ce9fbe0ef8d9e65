"""The way to a project's remote: git's own protocol over HTTP or a directory, under limits, and to nowhere else.

A remote is hostile too: it may never stop sending, redirect, or resolve to an address that only this machine can reach.
Credentials are read when they are needed, go to the remote's own origin alone, and are never in a URL, in the
repository's configuration or in an error.
"""

from __future__ import annotations

import socket
import struct
import time
import zlib
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import urllib3
from dulwich.client import GitClient, LocalGitClient, Urllib3HttpGitClient
from dulwich.errors import (
    ApplyDeltaError,
    ChecksumMismatch,
    GitProtocolError,
    NotGitRepository,
    ObjectFormatException,
    RefFormatError,
)
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError, NewConnectionError

from gateway.network import connect_public
from workers.errors import RemoteError, RepositoryRefusedError

_SILENCE_SECONDS = 10.0
_GARBAGE = (
    GitProtocolError,
    ApplyDeltaError,
    ChecksumMismatch,
    ObjectFormatException,
    RefFormatError,
    HTTPError,
    OSError,
    ValueError,
    KeyError,
    IndexError,
    AssertionError,
    NotImplementedError,
    struct.error,
    zlib.error,
)
"""What the library may raise about a malformed answer."""


@dataclass(frozen=True)
class Credentials:
    """A name and a token for a remote, hidden from reprs."""

    username: str = field(repr=False)
    password: str = field(repr=False)


def no_credentials() -> Credentials | None:
    """Return None: the remote is public, or a directory."""
    return None


@dataclass(frozen=True, kw_only=True)
class Remote:
    """A project's remote repository."""

    url: str
    """`https://HOST/PATH`, `http://...` or `file:///PATH`, without credentials."""
    branch: str = ""
    """Empty for the remote's default."""
    credentials: Callable[[], Credentials | None] = no_credentials


@dataclass(frozen=True, kw_only=True)
class RemoteRules:
    """Where remotes may be."""

    schemes: Collection[str] = frozenset({"https"})
    private_addresses: bool = False
    """Whether a remote may have a non-public address, such as a forge in the operator's own network."""
    files_below: Path | None = None
    """The directory that `file:` remotes must lie in; None allows none."""
    seconds: float = 20.0
    """For one whole exchange."""
    answer_bytes: int = 300 * 1_048_576
    """That a remote may send in one exchange."""


@dataclass
class Allowance:
    """The time and bytes that a remote has left."""

    deadline: float
    bytes: int

    def spend(self, count: int) -> None:
        """Count received bytes.

        Raises:
            RepositoryRefusedError: `pack_too_large` (the remote's fault).
            RemoteError: it took too long.
        """
        self.bytes -= count
        if self.bytes < 0:
            raise RepositoryRefusedError("pack_too_large", "the remote sends more than a project may have")
        if time.monotonic() > self.deadline:
            raise RemoteError("the remote took too long")


class _BoundedClient(Urllib3HttpGitClient):
    """Reads within an allowance, and requests nothing outside the remote's own URL."""

    def __init__(self, url: str, *, allowance: Allowance, **options: Any) -> None:
        super().__init__(url, quiet=True, timeout=_SILENCE_SECONDS, **options)
        self._below = url.rstrip("/") + "/"
        self._allowance = allowance
        self._open: list[Any] = []

    def _http_request(self, url: str, headers: Any = None, data: Any = None, raise_for_status: bool = True) -> Any:
        if not url.startswith(self._below):
            raise GitProtocolError("the remote leads elsewhere")
        self._allowance.spend(0)
        response, read = super()._http_request(url, headers, data, raise_for_status=False)
        self._open.append(response)
        if response.status in (401, 403):
            raise RepositoryRefusedError("credentials", "the remote does not accept them")
        if response.status == 404:
            raise RemoteError("the remote has no repository there, or hides it from these credentials")
        if response.status != 200:
            raise RemoteError(f"the remote answers with status {response.status}")

        def counted(size: int = -1) -> bytes:
            data = read(size)
            self._allowance.spend(len(data))
            return data

        return response, counted

    def close(self) -> None:
        """Close what an interrupted exchange left open."""
        for response in self._open:
            response.close()

    def _discover_references(self, *arguments: Any, **options: Any) -> Any:
        found = super()._discover_references(*arguments, **options)
        if self.dumb:
            raise GitProtocolError("the remote serves files, not git's protocol")
        return found


def _connect(connection: HTTPConnection) -> socket.socket:
    try:
        return connect_public(connection.host, connection.port or 0, timeout_seconds=_SILENCE_SECONDS)
    except OSError as error:
        raise NewConnectionError(connection, str(error)) from error


class _PublicHTTPConnection(HTTPConnection):
    def _new_conn(self) -> socket.socket:
        return _connect(self)


class _PublicHTTPSConnection(HTTPSConnection):
    def _new_conn(self) -> socket.socket:
        return _connect(self)


class _PublicHTTP(urllib3.HTTPConnectionPool):
    ConnectionCls = _PublicHTTPConnection


class _PublicHTTPS(urllib3.HTTPSConnectionPool):
    ConnectionCls = _PublicHTTPSConnection


def check_url(url: str, rules: RemoteRules) -> None:
    """Check a remote's URL before anything is sent there.

    Raises:
        RepositoryRefusedError: `bad_url` or `scheme` (its owner's fault), `not_allowed` (the operator's decision).
    """
    try:
        parts = urlsplit(url)
        has_login = parts.username is not None or parts.password is not None
        _ = parts.port
    except ValueError:
        raise RepositoryRefusedError("bad_url", "it is no URL") from None
    if has_login or parts.query or parts.fragment or not url.isascii() or not url.isprintable():
        raise RepositoryRefusedError("bad_url", "it must hold no name, password, query or fragment")
    if parts.scheme not in rules.schemes or parts.scheme not in ("https", "http", "file"):
        raise RepositoryRefusedError("scheme", f"{parts.scheme or 'no scheme'}: is not one that remotes may have here")
    if parts.scheme == "file":
        _check_directory(Path(unquote(parts.path)), rules, is_local=not parts.netloc)
    elif not parts.hostname:
        raise RepositoryRefusedError("bad_url", "it names no host")


def _check_directory(path: Path, rules: RemoteRules, *, is_local: bool) -> None:
    if rules.files_below is None:
        raise RepositoryRefusedError("not_allowed", "this installation names no directory for file: remotes")
    if not is_local or not path.resolve().is_relative_to(rules.files_below.resolve()):
        raise RepositoryRefusedError("not_allowed", "it does not lie in the directory for file: remotes")


@contextmanager
def connected(remote: Remote, rules: RemoteRules) -> Iterator[tuple[GitClient, str]]:
    """Yield a client for a remote, and the path to give to it.

    Raises:
        RepositoryRefusedError: as `check_url`; also for too much data (the remote's fault) and refused credentials (the
            project owner's).
        RemoteError: it cannot be reached, or answers with something else (its fault, or transient).
    """
    check_url(remote.url, rules)
    parts = urlsplit(remote.url)
    with _translated():
        if parts.scheme == "file":
            yield LocalGitClient(thin_packs=False, quiet=True), unquote(parts.path)
            return
        credentials = remote.credentials()
        login = {"username": credentials.username, "password": credentials.password} if credentials else {}
        with _pools(rules) as pools:
            allowance = Allowance(time.monotonic() + rules.seconds, rules.answer_bytes)
            client = _BoundedClient(remote.url, allowance=allowance, pool_manager=pools, **login)
            with closing(client):
                yield client, ""


@contextmanager
def _pools(rules: RemoteRules) -> Iterator[urllib3.PoolManager]:
    with urllib3.PoolManager(
        num_pools=1, headers={"User-Agent": "git/pointsman"}, retries=urllib3.Retry(0, redirect=0)
    ) as pools:
        if not rules.private_addresses:
            pools.pool_classes_by_scheme = {"http": _PublicHTTP, "https": _PublicHTTPS}
        yield pools


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (RepositoryRefusedError, RemoteError):
        raise
    except NotGitRepository:
        raise RemoteError("the remote has no repository there") from None
    except _GARBAGE as error:
        raise RemoteError(f"the remote cannot be reached or understood ({type(error).__name__})") from None

"""Reach a remote by ssh: the system's client, with a key of the operator's and servers that the operator has pinned.

The client reads no configuration, agent or environment of this account, forwards nothing, asks nobody and trusts no
server that is not in the account's `known_hosts`. The key is a file that only the client opens: it is in no argument,
variable or message. A remote by ssh is as hostile as one by https, and has the same allowances.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple
from urllib.parse import unquote, urlsplit

from dulwich.client import SSHGitClient, SSHVendor
from dulwich.protocol import Protocol

from gateway.forges.deploy_keys import CLIENT, SSH_PORT, DeployKey, how_to_pin, known_as, problem_of
from routing.addresses import NOT_PUBLIC, is_public
from sites.errors import RepositoryRefusedError
from workers.errors import RemoteError
from workers.runs.git.allowance import GARBAGE, SILENCE_SECONDS, Allowance

DEFAULT_USER = "git"
_SAID_BYTES = 4_096
_MOST_SAID_BYTES = 1024 * 1024
_JOIN_SECONDS = 2.0
_SCP = re.compile(
    r"(?P<user>[A-Za-z0-9_][A-Za-z0-9._-]{0,63})@(?P<host>[A-Za-z0-9.-]{1,253}):(?P<path>[A-Za-z0-9._/~-]{1,200})"
)
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252})|\[?[0-9A-Fa-f:]{2,45}\]?")


class Place(NamedTuple):
    """Where a repository is."""

    host: str
    port: int
    path: str
    """As the remote shell gets it: `/absolute`, or relative to the user's directory."""


def is_ssh(url: str) -> bool:
    """Whether an address is one by ssh, in its long or its short form."""
    return url.startswith("ssh://") or _SCP.fullmatch(url) is not None


def place_of(url: str) -> Place:
    """Return the place that an address names: `ssh://git@HOST[:SSH_PORT]/PATH` or `git@HOST:PATH`.

    Raises:
        RepositoryRefusedError: `bad_url` (its owner's fault).
    """
    if found := _SCP.fullmatch(url):
        return Place(found["host"].lower(), SSH_PORT, found["path"])
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or SSH_PORT
    except ValueError:
        raise RepositoryRefusedError("bad_url", "it is no URL") from None
    if parts.password is not None or parts.query or parts.fragment or not url.isascii() or not url.isprintable():
        raise RepositoryRefusedError("bad_url", "it must hold no password, query or fragment")
    path = unquote(parts.path)
    if not _HOST.fullmatch(host) or len(path) < 2:
        raise RepositoryRefusedError("bad_url", "it names no host, or no repository there")
    if not path.isprintable():
        raise RepositoryRefusedError("bad_url", "its path must hold printable characters alone")
    return Place(host, port, path)


@contextmanager
def ssh_client(
    place: Place, key: DeployKey, *, allowance: Allowance, private_addresses: bool
) -> Iterator[SSHGitClient]:
    """Yield a client for a remote; whatever it has started is over afterwards.

    Raises:
        RepositoryRefusedError: `host_key` (the operator has not pinned the server, or another one answers) or
            `credentials` (the operator's, or the project owner's fault).
        RemoteError: it cannot be reached, or took too long (its fault, or transient).
    """
    if problem := problem_of(key):
        raise RepositoryRefusedError("credentials", f"the deploy key of account {key.account!r}: {problem}")
    address = place.host if private_addresses else _public_address(place)
    vendor = _Vendor(_options(place, key, address=address), allowance)
    client = _Client(
        place.host,
        port=place.port,
        username=key.username or DEFAULT_USER,
        vendor=vendor,
        thin_packs=False,
        quiet=True,
    )
    try:
        yield client
    except (RepositoryRefusedError, RemoteError):
        raise
    except GARBAGE as error:  # the client has said what was wrong
        vendor.close()
        allowance.spend(0)
        raise (_refusal(vendor.said(), place, key) or error) from None
    finally:
        client.close()
        vendor.close()


def _public_address(place: Place) -> str:
    """Return the address to connect to: looked up here, so that no second look-up leads elsewhere."""
    try:
        found = socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    except OSError:
        raise RemoteError("the remote's host has no address") from None
    addresses = [str(info[4][0]) for info in found]
    public = [address for address in addresses if is_public(address)]
    if not public:
        raise RemoteError(f"the remote {NOT_PUBLIC}")
    return public[0]


def _options(place: Place, key: DeployKey, *, address: str) -> Sequence[str]:
    settings = {
        "HostName": address,
        "HostKeyAlias": known_as(place.host, place.port),
        "Port": str(place.port),
        "User": key.username or DEFAULT_USER,
        "IdentityFile": _literal(key.key),
        "UserKnownHostsFile": _literal(key.known_hosts),
        "GlobalKnownHostsFile": "none",
        "StrictHostKeyChecking": "yes",
        "UpdateHostKeys": "no",
        "IdentitiesOnly": "yes",
        "IdentityAgent": "none",
        "PreferredAuthentications": "publickey",
        "BatchMode": "yes",
        "ConnectTimeout": str(int(SILENCE_SECONDS)),
        "ServerAliveInterval": "5",
        "ServerAliveCountMax": "2",
        "ForwardAgent": "no",
        "ForwardX11": "no",
        "ClearAllForwardings": "yes",
        "PermitLocalCommand": "no",
        "ControlPath": "none",
        "RequestTTY": "no",
        "LogLevel": "ERROR",
    }
    return [part for name, value in settings.items() for part in ("-o", f'{name}="{value}"')]


def _literal(path: Path) -> str:
    """Return a path in which the client expands nothing."""
    return str(path.absolute()).replace("%", "%%")


class _Client(SSHGitClient):
    """Closes what an interrupted exchange left open."""

    def __init__(self, host: str, **options: Any) -> None:
        super().__init__(host, **options)
        self._open: list[Protocol] = []

    def _connect(self, *arguments: Any, **options: Any) -> Any:
        made = super()._connect(*arguments, **options)
        self._open.append(made[0])
        return made

    def close(self) -> None:
        for protocol in self._open:
            protocol.close()


class _Vendor(SSHVendor):
    """Runs the system's client under an allowance."""

    def __init__(self, options: Sequence[str], allowance: Allowance) -> None:
        self._options = options
        self._allowance = allowance
        self._open: list[_Channel] = []

    def run_command(self, host: str, command: bytes, **options: Any) -> Any:  # type: ignore[override]
        """Start the client; called by the library."""
        wanted = options.get("protocol_version")
        version = 2 if wanted is None else int(wanted)
        extra = ["-o", f"SetEnv=GIT_PROTOCOL=version={version}"] if version else []
        try:
            process = subprocess.Popen(
                [CLIENT, "-F", "none", *self._options, *extra, "--", host, os.fsdecode(command)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                env={"PATH": os.defpath, "LC_ALL": "C"},
                start_new_session=True,
            )
        except FileNotFoundError:
            raise RepositoryRefusedError(
                "not_allowed", "this machine has no ssh client: install openssh-client"
            ) from None
        self._open.append(_Channel(process, self._allowance))
        return self._open[-1]

    def said(self) -> str:
        """Return the end of what the client, or the server through it, has complained about."""
        return b"".join(channel.said for channel in self._open).decode("utf-8", "replace")

    def close(self) -> None:
        """End what still runs."""
        for channel in self._open:
            channel.close()


class _Channel:
    """The client's standard streams, counted; the client is killed when its time is over."""

    def __init__(self, process: subprocess.Popen[bytes], allowance: Allowance) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._process, self._allowance = process, allowance
        self._out = open(process.stdout.fileno(), "rb", closefd=False)  # noqa: SIM115 -- closed by `close`
        self._timer = threading.Timer(max(0.0, allowance.deadline - time.monotonic()), process.kill)
        self._timer.daemon = True
        self._timer.start()
        self.write = process.stdin.write
        self.said = b""
        self._listener = threading.Thread(target=self._listen, args=(process.stderr,), daemon=True)
        self._listener.start()

    def _listen(self, stream: IO[bytes]) -> None:
        """Keep the end of what is said, and end a client that says too much: a server's words come this way, too."""
        count = 0
        with suppress(OSError, ValueError):
            while data := stream.read(_SAID_BYTES):
                self.said = (self.said + data)[-_SAID_BYTES:]
                count += len(data)
                if count > _MOST_SAID_BYTES:
                    self._process.kill()

    def read(self, size: int = -1) -> bytes:
        data = self._out.read(size)
        self._allowance.spend(len(data))
        return data

    def can_read(self) -> bool:
        descriptor = self._out.fileno()
        os.set_blocking(descriptor, False)  # it must not wait: the server may answer only what is still to be sent
        try:
            return bool(self._out.peek(1))
        finally:
            os.set_blocking(descriptor, True)

    def close(self) -> None:
        self._timer.cancel()
        self._process.kill()
        self._process.wait()
        self._listener.join(_JOIN_SECONDS)
        for stream in (self._process.stdin, self._out, self._process.stdout, self._process.stderr):
            with suppress(OSError):
                stream.close()  # type: ignore[union-attr]


def _refusal(said: str, place: Place, key: DeployKey) -> Exception | None:
    """Return what the client's complaint means; None where it says nothing that is known."""
    where = place.host if place.port == SSH_PORT else f"{place.host} (port {place.port})"
    if "IDENTIFICATION HAS CHANGED" in said:
        return RepositoryRefusedError(
            "host_key",
            f"{where} shows another host key than {key.known_hosts} has for it: nothing was sent. If the server's"
            " owner announces a new key, replace the line there",
        )
    if "Host key verification failed" in said:
        return RepositoryRefusedError("host_key", how_to_pin(place.host, place.port, key.known_hosts))
    if "Permission denied" in said or "passphrase" in said:
        return RepositoryRefusedError(
            "credentials", f"{where} does not accept the deploy key of account {key.account!r}"
        )
    if "Could not resolve" in said or "onnection refused" in said or "timed out" in said or "No route" in said:
        return RemoteError("the remote cannot be reached by ssh")
    return None

"""Hosts on a network of their own: network namespaces on a bridge that is in a namespace too, so nothing can leave it.

A host that is cut off hears nothing any more, no refusal either: its cable's far end is taken out of the bridge. The
hosts know each other's hardware addresses by heart, so that a packet to one that is cut off vanishes in silence; the
kernel would otherwise say "no route to host" after three seconds, which is the easier case.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from tests.services import wait_until

_PROGRAMS = ("ip", "nsenter", "unshare")
_KINDS = ("net", "uts")
_ANY_KIND = 0
_LIBC = ctypes.CDLL(None, use_errno=True)


def missing() -> str:
    """Why no such network can be had here; empty when one can."""
    if os.geteuid() != 0:
        return "hosts of the tests' own need root"
    if absent := [name for name in _PROGRAMS if shutil.which(name) is None]:
        return f"no {', '.join(absent)}"
    tried = subprocess.run(
        ["unshare", "--net", "--uts", "ip", "link", "add", "br0", "type", "bridge"], capture_output=True, text=True
    )
    return f"no namespace with a bridge can be made: {tried.stderr.strip()}" if tried.returncode else ""


@dataclass(frozen=True)
class Host:
    """One machine, as its processes see it."""

    name: str
    address: str
    hardware: str
    place: subprocess.Popen[bytes]
    """Holds its namespaces."""

    @property
    def port(self) -> str:
        """The far end of its cable."""
        return f"to-{self.name}"


def _hold_namespaces() -> subprocess.Popen[bytes]:
    own = os.readlink("/proc/self/ns/uts")
    place = subprocess.Popen(["unshare", "--net", "--uts", "sleep", "infinity"])
    wait_until(lambda: os.readlink(f"/proc/{place.pid}/ns/uts") != own, seconds=10, what="namespaces are made")
    return place


def _ip(place: subprocess.Popen[bytes], *words: str) -> None:
    argv = ["nsenter", f"--net=/proc/{place.pid}/ns/net", "ip", *words]
    subprocess.run(argv, check=True, capture_output=True)


@contextmanager
def inside(host: Host) -> Iterator[None]:
    """Move this thread to a host: its sockets, and the processes that it starts, belong there."""
    back = [os.open(f"/proc/thread-self/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC) for kind in _KINDS]
    try:
        _enter([os.open(f"/proc/{host.place.pid}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC) for kind in _KINDS])
        yield
    finally:
        _enter(back)


def _enter(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        failed = _LIBC.setns(descriptor, _ANY_KIND)
        os.close(descriptor)
        assert not failed, os.strerror(ctypes.get_errno())


class Network:
    """Some hosts, and the bridge between them."""

    def __init__(self, *names: str) -> None:
        self._switch = _hold_namespaces()
        self.hosts = {
            name: Host(name, f"10.77.0.{number}", f"02:00:00:00:77:{number:02x}", _hold_namespaces())
            for number, name in enumerate(names, 1)
        }

    def __enter__(self) -> Self:
        _ip(self._switch, "link", "add", "br0", "type", "bridge", "forward_delay", "0")
        _ip(self._switch, "link", "set", "br0", "up")
        for host in self.hosts.values():
            self._wire(host)
        return self

    def _wire(self, host: Host) -> None:
        _ip(
            self._switch,
            "link",
            "add",
            host.port,
            "type",
            "veth",
            "peer",
            "name",
            "eth0",
            "address",
            host.hardware,
            "netns",
            str(host.place.pid),
        )
        self.join(host)
        _ip(self._switch, "link", "set", host.port, "up")
        _ip(host.place, "address", "add", f"{host.address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            _ip(host.place, "link", "set", device, "up")
        for other in self.hosts.values():
            if other is not host:
                _ip(
                    host.place,
                    "neighbour",
                    "add",
                    other.address,
                    "lladdr",
                    other.hardware,
                    "dev",
                    "eth0",
                    "nud",
                    "permanent",
                )
        with inside(host):
            socket.sethostname(host.name)

    def cut(self, host: Host) -> None:
        """Cut a host off: what it sends and what is sent to it is dropped, and nobody is told."""
        _ip(self._switch, "link", "set", host.port, "nomaster")

    def join(self, host: Host) -> None:
        """Let a host's packets through again."""
        _ip(self._switch, "link", "set", host.port, "master", "br0")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for place in (self._switch, *(host.place for host in self.hosts.values())):
            place.kill()
            place.wait()

"""A Docker engine of the tests' own: its daemon, its network, its disk. The machine's own engine is not touched.

The daemon lives in a network namespace without a way out, in which the loopback device holds addresses that stand for
the host, the internet and a cloud's metadata service. What a box must not reach can so be listened on, and nothing that
a test sends can leave the machine.
"""

import ctypes
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from ipaddress import IPv4Network
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from producers.local.embedded import IMPORTED
from producers.local.supervisor import Forked, ForkServer, Program, python_module
from sandbox.config import BoxConfig
from sandbox.docker.engine import Engine
from sandbox.image.build import Built, build
from sandbox.image.rootfs import image_reference
from tests.services import wait_until

INTERNET = "203.0.113.7"
METADATA = "169.254.169.254"
HOST = "198.51.100.9"
ADDRESSES = (INTERNET, METADATA, HOST)
CACHE = Path.home() / ".cache" / "pointsman" / "box"
CLI = "producers.cli"
_LIBC = ctypes.CDLL(None, use_errno=True)
_PROGRAMS = ("dockerd", "debootstrap", "ip", "nsenter", "unshare")


def missing() -> str:
    """Why no engine can be had here; empty when one can."""
    if os.geteuid() != 0:
        return "an engine of the tests' own needs root"
    absent = [name for name in _PROGRAMS if shutil.which(name) is None]
    return f"no {', '.join(absent)}: `make test SYSTEM=1` as root installs them" if absent else ""


def nameservers() -> list[str]:
    """Where the daemon would pass on a query; the tests listen there."""
    lines = Path("/etc/resolv.conf").read_text().splitlines()
    found = [line.split()[1] for line in lines if line.startswith("nameserver ")]
    return [address for address in found if ":" not in address and not address.startswith("127.")]


class TestEngine:
    """One daemon."""

    __test__ = False

    def __init__(self, data: Path | None = None) -> None:
        """Make ready for a daemon.

        Args:
            data: the directory of its images and containers; one that goes with the engine, if left out.
        """
        self.home = Path(tempfile.mkdtemp(prefix="pm-engine-"))
        self._data = data or self.home / "data"
        self.url = f"unix://{self.home}/docker.sock"
        self._place = subprocess.Popen(["unshare", "--net", "--mount", "sleep", "infinity"])
        self._daemon: subprocess.Popen[bytes] | None = None
        self._listeners: list[Listener] = []
        self._forks: ForkServer | None = None

    @property
    def pid(self) -> int:
        """The process that holds the engine's namespaces; they outlive the daemon, as a machine's would."""
        return self._place.pid

    def __enter__(self) -> Self:
        own = os.readlink("/proc/self/ns/mnt")
        wait_until(lambda: os.readlink(f"/proc/{self.pid}/ns/mnt") != own, seconds=10, what="namespaces are made")
        self.inside("ip", "link", "set", "lo", "up")
        for address in (*ADDRESSES, *nameservers()):
            self.inside("ip", "address", "add", f"{address}/32", "dev", "lo")
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for listener in self._listeners:
            listener.stop()
        if self._forks is not None:
            self._forks.close()
        self.stop()
        self._end_what_stayed()
        self._place.kill()
        self._place.wait()
        shutil.rmtree(self.home, ignore_errors=True)

    def start(self) -> None:
        """Start the daemon, or start it again."""
        with (self.home / "dockerd.log").open("ab") as log:
            self._daemon = subprocess.Popen(
                [
                    "nsenter",
                    f"--net=/proc/{self.pid}/ns/net",
                    f"--mount=/proc/{self.pid}/ns/mnt",
                    "dockerd",
                    "--data-root",
                    str(self._data),
                    "--exec-root",
                    str(self.home / "exec"),
                    "--host",
                    self.url,
                    "--pidfile",
                    str(self.home / "pid"),
                    "--bridge=none",
                ],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        wait_until(self._answers, seconds=60, what="the engine answers")

    def _end_what_stayed(self) -> None:
        """End the helpers of a killed daemon: they are known by this engine's directory, which is nobody else's."""
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if any(str(self.home) in word for word in process.cmdline()):
                    process.kill()
                    process.wait(10)

    def _answers(self) -> bool:
        assert self._daemon is not None
        assert self._daemon.poll() is None, (self.home / "dockerd.log").read_text()[-2000:]
        with socket.socket(socket.AF_UNIX) as probe, suppress(OSError):  # it may close what it took in too early
            probe.settimeout(5)
            probe.connect(self.url.removeprefix("unix://"))
            probe.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
            return b" 200 " in probe.recv(64)
        return False

    def kill(self) -> None:
        """End the daemon as a power cut would."""
        assert self._daemon is not None
        self._daemon.kill()
        self._daemon.wait()
        # Its containerd dies with it; where nobody reaps that, its process id looks alive to the next daemon.
        (self.home / "exec" / "containerd" / "containerd.pid").unlink(missing_ok=True)

    def stop(self) -> None:
        assert self._daemon is not None
        if self._daemon.poll() is None:
            self._daemon.terminate()
            try:
                self._daemon.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(self._daemon.pid, signal.SIGKILL)
                self._daemon.wait()

    def inside(self, *argv: str) -> str:
        """Run a command in the engine's network."""
        return subprocess.run(
            ["nsenter", f"--net=/proc/{self.pid}/ns/net", *argv], check=True, capture_output=True, text=True
        ).stdout

    @contextmanager
    def network(self) -> Iterator[None]:
        """Be in the engine's network: what this thread opens meanwhile is there, whoever uses it later."""
        own, inner = (os.open(f"/proc/{pid}/ns/net", os.O_RDONLY) for pid in ("thread-self", self.pid))
        try:
            assert _LIBC.setns(inner, 0) == 0, os.strerror(ctypes.get_errno())
            try:
                yield
            finally:
                assert _LIBC.setns(own, 0) == 0, os.strerror(ctypes.get_errno())
        finally:
            os.close(own)
            os.close(inner)

    def listen(self, port: int, *, says: str) -> "Listener":
        """Answer HTTP on every address that the engine's host has; each request is put on record."""
        log = self.home / f"requests-{port}.jsonl"
        log.touch()
        server = subprocess.Popen(
            [
                "nsenter",
                f"--net=/proc/{self.pid}/ns/net",
                sys.executable,
                "-u",
                "-m",
                "tests.listener",
                str(port),
                says,
                str(log),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        listener = Listener(log, server)
        self._listeners.append(listener)
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        return listener

    def run(self, stack: ExitStack, *command: str, log: Path | None = None, **settings: str) -> Forked:
        """Run one of the product's commands on the engine's host, as long as `stack` is open.

        It is forked from a process that has imported the product: that takes more than most commands do.
        """
        if self._forks is None:
            with self.network():
                self._forks = ForkServer((*IMPORTED, CLI), database=self.home, environment=os.environ, logs=self.home)
        program = Program(command[0], python_module(CLI, *command))
        with (log or self.home / f"{command[0]}.log").open("ab") as out:
            process = self._forks.fork(program, {**os.environ, **settings}, log=out.fileno())
        stack.callback(process.wait, 30)
        stack.callback(process.terminate)
        return process

    def await_ports(self, *ports: int) -> None:
        """Wait until somebody listens on each of these ports of the engine's host."""
        for port in ports:
            wait_until(partial(self.listens, port), seconds=60, what=f"somebody listens on port {port}")

    def listens(self, port: int) -> bool:
        """Whether something listens on a port of the engine's host."""
        return f":{port:04X} " in self.inside("cat", "/proc/net/tcp")

    def serve_mirror(
        self, stack: ExitStack, port: int, *, ledger_url: str, cache: Path, python_files: Iterable[str] = ()
    ) -> None:
        """Serve packages on the engine's host, from the machine's own registries."""
        with self.network():  # a socket belongs to the network in which it was made, whoever serves it
            listening = socket.create_server(("0.0.0.0", port), backlog=256)
        with listening:
            mirror = subprocess.Popen(
                [sys.executable, "-m", "tests.outside_mirror", str(listening.fileno())],
                env={
                    **os.environ,
                    "MIRROR_LEDGER": ledger_url,
                    "MIRROR_CACHE": str(cache),
                    "MIRROR_PYTHON_FILES": " ".join(python_files),
                },
                pass_fds=[listening.fileno()],
            )
        stack.callback(mirror.wait, 30)
        stack.callback(mirror.terminate)

    def build_image(self) -> Built:
        """Build the image, unless the engine has it."""
        CACHE.mkdir(parents=True, exist_ok=True)
        return build(self.url, base_image=BoxConfig().base_image, cache=CACHE, say=lambda line: None)

    def take_image(self) -> None:
        """Get the image into a new engine: built once, and then copied with all data of the engine that built it.

        One engine after another, since the first fetches the image's parts into the cache.
        """
        CACHE.mkdir(parents=True, exist_ok=True)
        kept = CACHE / f"engine-{image_reference(BoxConfig().base_image).rpartition(':')[2]}"
        with (CACHE / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if is_built := kept.exists():
                self.stop()
                shutil.rmtree(self._data)
                _copy(kept, self._data)
            else:
                self.build_image()
                self.stop()
                for old in CACHE.glob("engine-*"):
                    shutil.rmtree(old)
                _copy(self._data, draft := CACHE / "engine-draft")
                draft.rename(kept)
            self.start()
        assert not is_built or not self.build_image().is_new

    def config(self, **fields: Any) -> BoxConfig:
        small = {"memory_mib": 512, "workspace_mib": 64, "workspace_files": 2000, "file_mib": 16, "processes": 64}
        ports = {"gateway_port": 8090, "mirror_port": 8091}
        return BoxConfig(**({"engine": self.url, "install": "test", "warm": 1} | small | ports | fields))

    def open(self, **fields: Any) -> Engine:
        config = self.config(**fields)
        return Engine(self.url, install=config.install, subnets=IPv4Network(config.subnets))


def _copy(source: Path, target: Path) -> None:
    """Copy an engine's data, with owners and what its file system notes beside the files.

    The layers' files, which no engine writes to, are linked where both places are on one file system.
    """
    is_near = source.stat().st_dev == target.parent.stat().st_dev
    target.mkdir(mode=0o711)
    for part in source.iterdir():
        way = "--link" if part.name == "overlay2" and is_near else "--reflink=auto"
        subprocess.run(["cp", "-a", way, str(part), str(target)], check=True)


class Listener:
    """What came to a port of the engine's host."""

    def __init__(self, log: Path, server: subprocess.Popen[str]) -> None:
        self._log = log
        self._server = server

    def requests(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._log.read_text().splitlines()]

    def stop(self) -> None:
        """Let go of the port. May be called again."""
        self._server.kill()
        self._server.wait()
        if self._server.stdout is not None:
            self._server.stdout.close()

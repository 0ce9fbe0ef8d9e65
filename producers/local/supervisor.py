"""Run the product's processes on one machine, in a directory of their own, and tell other commands about them.

What this imports stays in memory as long as an installation runs, so it is little.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from urllib.parse import urlsplit

from producers.errors import InstallationError
from producers.local.fork_server import END, FORK
from producers.servers import PREFIX, up_path, write_private
from sites.disk import try_lock

logger = logging.getLogger(__name__)

STOP_SECONDS = 8.0
"""How long a process may take after SIGTERM before it is killed."""
READY_SECONDS = 60.0
_TAIL_LINES = 15
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Program:
    """One process of the product."""

    name: str
    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables for this process only, such as a secret."""
    ready_url: str | None = None
    """Answers 200 once the process is ready; without one a running process counts as ready."""


def python_module(module: str, *arguments: str) -> tuple[str, ...]:
    """Return the command that runs a module with this interpreter."""
    return (sys.executable, "-m", module, *arguments)


def free_port(*wanted: int) -> int:
    """Return the first of these ports that is free on loopback, otherwise any free one."""
    return free_ports({"": wanted})[""]


def free_ports(wanted: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """Return by name the first of its ports that is free on loopback, otherwise any free one; none has two names."""
    with ExitStack() as held:
        return {name: held.enter_context(_listening(*ports)).getsockname()[1] for name, ports in wanted.items()}


def _listening(*wanted: int) -> socket.socket:
    for port in (*wanted, 0):
        with suppress(OSError):
            return socket.create_server(("127.0.0.1", port))
    raise InstallationError("no port is free on loopback")


_LIBC = ctypes.CDLL(None, use_errno=True)
"""Loaded before any fork: a child must not wait for a lock held by a thread of its parent."""
_AT_START = ("LD_", "PYTHON")
"""Variables that the loader and the interpreter read before a program begins."""


def _die_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _spawn(argv: Sequence[str], environment: Mapping[str, str], *, stdin: int, log: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # argv is our own
        argv,
        env=environment,
        stdin=stdin,
        stdout=log,
        stderr=log,
        start_new_session=True,
        preexec_fn=_die_with_parent if os.name == "posix" else None,
    )


class Forked:
    """A program that the fork server started."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self.returncode: int | None = None
        said, handles, _, _ = socket.recv_fds(channel, 64, 1)
        if not handles:
            channel.close()
            raise InstallationError("the fork server ended")
        [self._handle] = handles
        pid, _, self._said = said.partition(b"\n")
        self.pid = int(pid)

    def poll(self) -> int | None:
        """Return the exit code, or None."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end."""
        if self.returncode is None:
            if not select.select([self._channel], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired([str(self.pid)], timeout or 0.0)
            self.returncode = self._hear_code()
            self._channel.close()
            os.close(self._handle)
        return self.returncode

    def _hear_code(self) -> int:
        """Read the exit code. All programs end with the fork server."""
        while not self._said.endswith(b"\n"):
            try:
                said = self._channel.recv(64)
            except ConnectionError:
                said = b""
            if not said:
                return -signal.SIGKILL
            self._said += said
        return int(self._said)

    def terminate(self) -> None:
        """Send SIGTERM."""
        if self.poll() is None:
            signal.pidfd_send_signal(self._handle, signal.SIGTERM)


Process = subprocess.Popen[bytes] | Forked


class ForkServer:
    """The process from which programs are forked (`producers.local.fork_server`)."""

    def __init__(self, modules: Sequence[str], *, database: Path, environment: Mapping[str, str], logs: Path) -> None:
        self._orders, theirs = socket.socketpair()
        argv = python_module("producers.local.fork_server", str(database), *modules)
        with theirs, (logs / "fork-server.log").open("ab") as log:
            self.process = _spawn(argv, environment, stdin=theirs.fileno(), log=log.fileno())

    def fork(self, program: Program, environment: Mapping[str, str], *, log: int) -> Forked:
        """Run a program that is a module which has been imported there.

        Raises:
            InstallationError: the server has ended.
        """
        ours, theirs = socket.socketpair()
        order = {"name": program.name, "argv": program.argv[2:], "environment": environment}
        with theirs:
            try:
                socket.send_fds(self._orders, [FORK], [theirs.fileno(), log])
                theirs.close()  # so that only the server's copy keeps it open
                ours.sendall(f"{json.dumps(order)}\n".encode())
                return Forked(ours)
            except OSError:
                ours.close()
                raise InstallationError("the fork server ended") from None

    def has_ended(self) -> bool:
        """Whether it is gone, or just going."""
        if select.select([self._orders], [], [], 0)[0]:  # it says nothing but its end
            self.process.wait()
        return self.process.poll() is not None

    def close(self) -> None:
        """Tell the server to end with its last program, and wait for that."""
        with self._orders, suppress(OSError):
            self._orders.sendall(END)
        self.process.wait()


@dataclass
class _Running:
    program: Program
    process: Process
    restarts: int = field(default=0)


class Supervisor:
    """Starts, watches and stops a set of programs."""

    def __init__(
        self,
        *,
        environment: Mapping[str, str],
        logs: Path,
        database: Path | None = None,
        forked: Sequence[str] = (),
        imported: Sequence[str] = (),
    ) -> None:
        """Supervise programs.

        A program that is one of the `forked` modules is forked from a process that has imported those and `imported`.
        That process stops the PostgreSQL server in `database` if this one is killed.
        """
        self.environment = dict(environment)
        """Of every program that is started from now on."""
        self._logs = logs
        self._logs.mkdir(parents=True, exist_ok=True)
        self._running: dict[str, _Running] = {}
        self._database = database
        self._forked = forked
        self._imported = imported
        self._server: ForkServer | None = None

    def start(self, program: Program) -> None:
        """Start a program, with its output in its own log file."""
        self._running[program.name] = _Running(program, self._spawn(program))

    def run(self, program: Program) -> None:
        """Run a program to its end.

        Raises:
            InstallationError: it failed; the message is what it wrote.
        """
        log = self._logs / f"{program.name}.log"
        log.unlink(missing_ok=True)
        if self._spawn(program).wait():
            raise InstallationError(log.read_text(errors="replace").strip())

    def _spawn(self, program: Program) -> Process:
        environment = self.environment | dict(program.environment)
        with (self._logs / f"{program.name}.log").open("ab") as log:
            if self._is_forked(program):
                return self._fork_server().fork(program, environment, log=log.fileno())
            return _spawn(program.argv, environment, stdin=subprocess.DEVNULL, log=log.fileno())

    def _is_forked(self, program: Program) -> bool:
        """Whether a program is a module that the fork server has, and brings nothing that only a new process heeds."""
        is_python = program.argv[:2] == (sys.executable, "-m") and program.argv[2] in self._forked
        return is_python and not any(name.startswith(_AT_START) for name in program.environment)

    def _fork_server(self) -> ForkServer:
        """Return the fork server, started anew if it has died."""
        if self._server is not None and self._server.has_ended():
            self._server.close()
            self._server = None
        if self._server is None:
            assert self._database is not None
            self._server = ForkServer(
                (*self._imported, *self._forked), database=self._database, environment=self.environment, logs=self._logs
            )
        return self._server

    def wait_ready(self, names: Sequence[str] = (), *, seconds: float = READY_SECONDS) -> None:
        """Wait until programs are ready.

        Raises:
            InstallationError: a program ended or did not answer in time.
        """
        deadline = time.monotonic() + seconds
        for running in [self._running[name] for name in names or tuple(self._running)]:
            self._wait_one(running, deadline)

    def _wait_one(self, running: _Running, deadline: float) -> None:
        program = running.program
        while not (program.ready_url is None or _answers(program.ready_url)):
            if running.process.poll() is not None:
                raise InstallationError(
                    f"{program.name} ended with {running.process.returncode}:\n{self._tail(program.name)}"
                )
            if time.monotonic() > deadline:
                raise InstallationError(f"{program.name} was not ready in time:\n{self._tail(program.name)}")
            time.sleep(0.05)

    def _tail(self, name: str) -> str:
        path = self._logs / f"{name}.log"
        return "\n".join(path.read_text(errors="replace").splitlines()[-_TAIL_LINES:])

    def dead(self) -> dict[str, str]:
        """Return the programs that have ended, with the tails of their logs."""
        ended = [name for name, running in self._running.items() if running.process.poll() is not None]
        return {name: self._tail(name) for name in ended}

    def revive(self) -> list[str]:
        """Restart the programs that have ended; returns their names."""
        dead = [self._running[name] for name in self.dead()]
        for running in dead:
            running.restarts += 1
            logger.warning("process_died", extra={"program": running.program.name, "restarts": running.restarts})
            running.process = self._spawn(running.program)
        return [running.program.name for running in dead]

    def pids(self) -> dict[str, int]:
        """Return the process ids by program name."""
        return {name: running.process.pid for name, running in self._running.items()}

    def kill(self, name: str) -> None:
        """SIGKILL a program and its children, as a crash would."""
        process = self._running[name].process
        _signal_group(process, signal.SIGKILL)
        process.wait()

    def end(self, name: str, *, seconds: float) -> None:
        """Terminate a program, and wait for its end.

        Raises:
            InstallationError: it did not end in time.
        """
        process = self._running[name].process
        process.terminate()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise InstallationError(f"{name} did not end within {seconds:g} s:\n{self._tail(name)}") from None

    def restart(self, name: str) -> None:
        """Restart a program that has ended."""
        running = self._running[name]
        running.process = self._spawn(running.program)

    def stop(self) -> None:
        """Terminate everything, last started first; kill what does not end in time."""
        for running in reversed(self._running.values()):
            if running.process.poll() is None:
                running.process.terminate()
        deadline = time.monotonic() + STOP_SECONDS
        for running in reversed(self._running.values()):
            try:
                running.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                _signal_group(running.process, signal.SIGKILL)
                running.process.wait()
        self._running.clear()
        if self._server is not None:
            self._server.close()
            self._server = None


def _signal_group(process: Process, number: int) -> None:
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        return


def _answers(url: str) -> bool:
    place = urlsplit(url)
    connection = HTTPConnection(place.netloc, timeout=2)
    try:
        connection.request("GET", place.path)
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


_PORTS = "ports.json"
_SECRETS = {"preview": 24, "audit": 24, "webhook": 24, "gateway": 24, "broker": 24, "install": 6}
"""Random bytes of each. `install` is a name: it tells installations on one engine apart."""


class Home:
    """The private directory of an installation, locked by one process at a time, with its secrets."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock: int | None = None

    def lock(self) -> None:
        """Lock the directory; the kernel releases the lock with this process.

        Raises:
            InstallationError: the operator's fault: another installation is running in it.
        """
        self._lock = try_lock(self.path / "lock")
        if self._lock is None:
            raise InstallationError(f"{self.path} is used by another installation that runs; stop it, or take another")

    @property
    def is_locked(self) -> bool:
        """Whether this object holds the lock."""
        return self._lock is not None

    def unlock(self) -> None:
        """Release the lock; harmless without one."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def secrets(self) -> dict[str, str]:
        """Return the installation's secrets, creating those that are missing."""
        path = self.path / "secrets.json"
        stored: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
        missing = [name for name in _SECRETS if name not in stored]
        if not missing:
            return stored
        return self.keep({name: secrets.token_hex(_SECRETS[name]) for name in missing})

    def keep(self, more: Mapping[str, str]) -> dict[str, str]:
        """Add to the installation's secrets, and return all."""
        path = self.path / "secrets.json"
        stored = (json.loads(path.read_text()) if path.exists() else {}) | dict(more)
        write_private(path, json.dumps(stored))
        return stored

    def ports(self) -> dict[str, int]:
        """Return the ports of the last run by what they were for; empty before the first."""
        try:
            found: dict[str, int] = json.loads((self.path / _PORTS).read_text())
        except (OSError, ValueError):
            return {}
        return found

    def keep_ports(self, ports: Mapping[str, int]) -> None:
        """Keep the ports of this run for the next one."""
        write_private(self.path / _PORTS, json.dumps(dict(ports)))


def data_home(environment: Mapping[str, str]) -> Path:
    """Return the directory for an embedded installation's data (XDG base directories)."""
    base = environment.get("XDG_DATA_HOME") or Path(environment.get("HOME", "/root")) / ".local" / "share"
    return Path(base) / "pointsman"


def write_up_file(environment: Mapping[str, str], wiring: Mapping[str, str]) -> Path:
    """Write a running installation's settings for other commands of the same user, who alone can read them."""
    path = up_path(environment)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_private(path, json.dumps({name: value for name, value in wiring.items() if name.startswith(PREFIX)}))
    return path

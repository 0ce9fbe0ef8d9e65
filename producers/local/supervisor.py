"""Run the product's own processes on one machine: start, wait until ready, restart what dies, leave nothing behind."""

from __future__ import annotations

import ctypes
import fcntl
import json
import logging
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gateway.network import authorities
from producers.errors import InstallationError
from routing.config import PREFIX

logger = logging.getLogger(__name__)

STOP_SECONDS = 8.0
"""How long a process may take to end after SIGTERM before it is killed."""
READY_SECONDS = 60.0
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Program:
    """One process of the product."""

    name: str
    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that only this process gets: a secret of its own."""
    ready_url: str | None = None
    """Answers 200 once the process is ready; without one it counts as ready when it runs."""


@dataclass
class _Running:
    program: Program
    process: subprocess.Popen[bytes]
    restarts: int = field(default=0)


def python_module(module: str, *arguments: str) -> tuple[str, ...]:
    """Return the command that runs a module with this interpreter."""
    return (sys.executable, "-m", module, *arguments)


def free_port(wanted: int = 0) -> int:
    """Return `wanted` if it is free on loopback, otherwise some free port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted))
        except OSError:
            probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


_LIBC = ctypes.CDLL(None, use_errno=True)
"""Opened before any fork: a child must not wait for a lock that a thread of its parent held."""


def _die_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


class Supervisor:
    """Keeps a set of programs running."""

    def __init__(self, *, environment: Mapping[str, str], logs: Path) -> None:
        self._environment = dict(environment)
        self._logs = logs
        self._logs.mkdir(parents=True, exist_ok=True)
        self._running: dict[str, _Running] = {}

    def start(self, program: Program) -> None:
        """Start a program; its output goes to a log file of its own."""
        self._running[program.name] = _Running(program, self._spawn(program))

    def _spawn(self, program: Program) -> subprocess.Popen[bytes]:
        with (self._logs / f"{program.name}.log").open("ab") as log:
            return subprocess.Popen(  # argv is our own
                program.argv,
                env=self._environment | dict(program.environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_die_with_parent if os.name == "posix" else None,
            )

    def wait_ready(self, names: Sequence[str] = (), *, seconds: float = READY_SECONDS) -> None:
        """Wait until programs answer.

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

    def _tail(self, name: str, lines: int = 15) -> str:
        path = self._logs / f"{name}.log"
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])

    def dead(self) -> dict[str, str]:
        """Return the programs that have ended, with the end of their logs."""
        ended = [name for name, running in self._running.items() if running.process.poll() is not None]
        return {name: self._tail(name) for name in ended}

    def revive(self) -> list[str]:
        """Start again what has died; returns the names."""
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
        """Ask a program to end, and wait until it has.

        Raises:
            InstallationError: it did not end in time (our fault: each has a bound of its own).
        """
        process = self._running[name].process
        process.terminate()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise InstallationError(f"{name} did not end within {seconds:g} s:\n{self._tail(name)}") from None

    def restart(self, name: str) -> None:
        """Start a program that has ended again."""
        running = self._running[name]
        running.process = self._spawn(running.program)

    def stop(self) -> None:
        """End everything, last started first: politely, then not."""
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


def _signal_group(process: subprocess.Popen[bytes], number: int) -> None:
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        return


def _answers(url: str) -> bool:
    import httpx2  # every command imports this module, most need no HTTP client

    try:
        return httpx2.get(url, timeout=2, trust_env=False, verify=authorities()).status_code == httpx2.codes.OK
    except httpx2.HTTPError:
        return False


# The directory of an embedded installation: for one process at a time, and with the secrets that it keeps.

_SECRETS = {"preview": 24, "audit": 24, "webhook": 24, "gateway": 24, "install": 6}
"""Random bytes of each; the last is a name, by which an engine tells installations apart."""


class Home:
    """A directory that only its owner reads."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock: int | None = None

    def lock(self) -> None:
        """Keep a second installation out; the kernel ends the lock with this process.

        Raises:
            InstallationError: the operator's fault: another installation runs in it.
        """
        self._lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InstallationError(
                f"{self.path} is used by another installation that runs; stop it, or take another"
            ) from None

    def unlock(self) -> None:
        """Let others in. May be called again."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def secrets(self) -> dict[str, str]:
        """Return what this directory keeps to itself; each secret is made when it is first asked for."""
        path = self.path / "secrets.json"
        found: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
        lacking = [name for name in _SECRETS if name not in found]
        if not lacking:
            return found
        found |= {name: secrets.token_hex(_SECRETS[name]) for name in lacking}
        new = path.with_suffix(".new")
        new.unlink(missing_ok=True)
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(found, file)
        new.replace(path)
        return found


# Where `pointsman up` leaves word of itself, so that commands in another terminal find it without any setting.

_BOXES = f"{PREFIX}BOX__"


def data_home(environment: Mapping[str, str]) -> Path:
    """Return the directory for an embedded installation's data (XDG base directories)."""
    base = environment.get("XDG_DATA_HOME") or Path(environment.get("HOME", "/root")) / ".local" / "share"
    return Path(base) / "pointsman"


def _up_file(environment: Mapping[str, str]) -> Path:
    base = environment.get("XDG_STATE_HOME") or Path(environment.get("HOME", "/root")) / ".local" / "state"
    return Path(base) / "pointsman" / "up.json"


def write_up_file(environment: Mapping[str, str], wiring: Mapping[str, str]) -> Path:
    """Leave an installation's wiring for other commands of the same account; nobody else can read it."""
    path = _up_file(environment)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump({name: value for name, value in wiring.items() if name.startswith(PREFIX)}, file)
    return path


def remove_up_file(path: Path) -> None:
    """Take the word back."""
    path.unlink(missing_ok=True)


def with_up_file(environment: Mapping[str, str]) -> Mapping[str, str]:
    """Return the environment, completed from a running `pointsman up` when it says nothing of an installation.

    Which engine there is says nothing of one: a shell keeps that for `pointsman up` itself.
    """
    if any(name.startswith(PREFIX) and not name.startswith(_BOXES) for name in environment):
        return environment
    try:
        found: dict[str, str] = json.loads(_up_file(environment).read_text())
    except (OSError, ValueError):
        return environment
    return {**environment, **found}

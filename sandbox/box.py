"""The values of a box, in which untrusted code runs, and its errors with whose fault each is."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from routing.policy.services import Service
from sites.files import INSTALLED, check_tree, is_planted

MEBIBYTE = 1_048_576
WORKSPACE = "/workspace"
KILLED = 137
"""The exit code of what SIGKILL ended, whoever sent it, and of whoever says so."""
EGRESS_HOST = "egress"
"""The forwarder's host name inside a box, from the hosts file: there is no DNS."""
GATEWAY_PORT = 8080
MIRROR_PORT = 8081


class SandboxError(Exception):
    """Base of all errors of this package."""


class SandboxUnavailableError(SandboxError, ConnectionError):
    """The engine or the image is missing (the operator's fault); `pointsman doctor` says more."""

    def __init__(self, reason: str, hint: str) -> None:
        super().__init__(reason, hint)
        self.reason = reason
        self.hint = hint

    def __str__(self) -> str:
        return f"no box can be made: {self.reason}: {self.hint}"


class SandboxStartupError(SandboxError):
    """A box could not be started with its required posture, so it was not started (the engine's fault, or ours)."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail

    def __str__(self) -> str:
        return f"the box was not started: {self.reason}: {self.detail}"


class ServiceFailedError(SandboxError):
    """A service beside a box did not become ready, or ended (its settings' fault: the project's or the operator's)."""

    def __init__(self, title: str, why: str, said: str) -> None:
        """Name the service, say why it failed, and give the end of its log, without keys."""
        super().__init__(title, why, said)
        self.title = title
        self.why = why
        self.said = said

    def __str__(self) -> str:
        return f"{self.title} {self.why}; its last words:\n{self.said or '(none)'}"


class BoxLostError(SandboxError, ConnectionError):
    """A box, or the engine that runs it, is gone (the operator's fault, or transient)."""


class BoxFrozenError(SandboxError):
    """A frozen box was used (our fault)."""


class UncontainedSessionError(SandboxError):
    """A program without permission checks would have run outside a container (our fault, or the operator's)."""


class RegistryConfigError(SandboxError, ValueError):
    """The package manager's configuration is unreadable or names no usable registry (the operator's fault)."""


class MirrorRefusedError(SandboxError):
    """The mirror refused a request (below 500 the caller's fault, else the registry's)."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(status, message)
        self.status = status
        self.message = message

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True)
class BoxLimits:
    """Resource limits of one box."""

    memory_bytes: int = 2048 * MEBIBYTE
    """Includes the workspace's files, which are in memory."""
    cpus: float = 2.0
    processes: int = 256
    workspace_bytes: int = 512 * MEBIBYTE
    workspace_files: int = 60_000
    file_bytes: int = 64 * MEBIBYTE
    """Size of one file including its holes, since a sparse file is sent in full."""
    lifetime_seconds: int = 900
    """A box ends by itself after this, even if its worker is dead."""


def beside(limits: BoxLimits, services: Sequence[Service]) -> BoxLimits:
    """Return what its services leave of a box's limits.

    Raises:
        SandboxUnavailableError: they take more than half of it (the operator's fault).
    """
    left = replace(
        limits,
        memory_bytes=limits.memory_bytes - sum(service.memory_bytes for service in services),
        cpus=limits.cpus - sum(service.cpus for service in services),
        processes=limits.processes - sum(service.processes for service in services),
    )
    for name in ("memory_bytes", "cpus", "processes"):
        if getattr(left, name) * 2 < getattr(limits, name):
            what = name.removesuffix("_bytes")
            raise SandboxUnavailableError(
                "services_too_large",
                f"the services beside a box take more than half of its {what}: raise `POINTSMAN_BOX__` limits,"
                " or lower theirs (`runs.services` of the policy)",
            )
    return left


class Target(NamedTuple):
    """An address outside the box to which the forwarder leads."""

    host: str
    """An IP address; empty for the engine's host, as seen from the outer network."""
    port: int


@dataclass(frozen=True)
class BoxSpec:
    """What a box is made from. Boxes of equal specs are interchangeable until used."""

    image: str
    """Image id (`sha256:...`), never a tag."""
    gateway: Target
    mirror: Target | None = None
    limits: BoxLimits = field(default_factory=BoxLimits)
    runtime: str | None = None
    """An OCI runtime of the engine, such as `runsc`; None for its default."""
    project_image: str | None = None
    """Image id of the box itself, where its project has one of its own; forwarder and bridge are always of `image`."""

    @property
    def of_box(self) -> BoxSpec:
        """The spec of the box's own container."""
        return replace(self, image=self.project_image or self.image)

    @property
    def digest(self) -> str:
        """SHA-256 in hex, by which the pool compares specs."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Egress:
    """The only way out of a box."""

    address: str
    """The forwarder's address as the gateway sees it, to which an attempt's token is bound."""
    gateway_url: str
    """As seen from inside."""
    mirror_url: str | None
    """As seen from inside; None if the spec names no mirror."""


@dataclass(frozen=True)
class Clocks:
    """Time limits of a command, in seconds."""

    soft_seconds: float
    """After this a clock inside the box sends SIGINT; the command then has `grace_seconds` to end."""
    hard_seconds: float
    """After this the whole box is frozen."""
    start_seconds: float | None = None
    """Limit for the first byte on stdout."""
    idle_seconds: float | None = None
    """Limit of a silence on stdout."""
    grace_seconds: float = 10.0

    @classmethod
    def within(
        cls, soft: float, *, grace: float, start_seconds: float | None = None, idle_seconds: float | None = None
    ) -> Clocks:
        """Return the clocks of a command that is interrupted after `soft` seconds and has `grace` to end."""
        return cls(soft, soft + grace + 2, start_seconds, idle_seconds, grace)


@dataclass(frozen=True)
class OutputLimits:
    """Limits of a command's output."""

    total_bytes: int = 10 * MEBIBYTE
    """Stdout and stderr together."""
    line_bytes: int = MEBIBYTE
    """One line of stdout, including its line feed."""
    stderr_tail_bytes: int = 65_536
    """How much of the end of stderr to keep."""


class Ending(StrEnum):
    """Why a command ended. Everything but `exited` was cut off by us."""

    EXITED = "exited"
    START_TIMEOUT = "start_timeout"
    IDLE_TIMEOUT = "idle_timeout"
    SOFT_TIMEOUT = "soft_timeout"
    HARD_TIMEOUT = "hard_timeout"
    OUTPUT_LIMIT = "output_limit"
    LINE_LIMIT = "line_limit"
    STOPPED = "stopped"
    """The caller's `on_line` asked for it."""
    BOX_LOST = "box_lost"
    """The box or its engine went away under the command."""


@dataclass(frozen=True)
class ExecResult:
    """How a command ended. A nonzero status is a result, not an error."""

    ending: Ending
    exit_code: int | None
    """None when the command was cut off."""
    stdout: bytes
    """Empty if `on_line` took the lines."""
    stderr: bytes
    """The end of stderr."""
    output_bytes: int
    seconds: float
    oom_kills: int | None = None
    """Processes that the kernel killed since the last command for the box's memory limit; None if nobody counted."""

    @property
    def is_success(self) -> bool:
        """Whether the command exited with status 0."""
        return self.ending is Ending.EXITED and self.exit_code == 0

    @property
    def is_resource_limit(self) -> bool:
        """Whether the kernel killed the command for its memory use (threat A6)."""
        return self.ending is Ending.EXITED and self.exit_code == KILLED and self.oom_kills != 0

    def check_box(self) -> None:
        """Check that the box outlived the command, before its status is taken for anybody's fault.

        Raises:
            BoxLostError: it, or its engine, went away.
        """
        if self.ending is Ending.BOX_LOST:
            raise BoxLostError("the box went away under a command")

    @property
    def of_a_lost_box(self) -> ExecResult:
        """The same, where the box went away under the command: what killed it is no status of its own."""
        return replace(self, ending=Ending.BOX_LOST, exit_code=None)


OnLine = Callable[[bytes], bool | None]
"""Takes each line of stdout without its line feed; returning False stops the command."""


@dataclass(frozen=True)
class Injected:
    """What went into a workspace."""

    files: int
    bytes: int
    dropped: tuple[str, ...]
    """Paths left out because a tool would obey them (threat D1); sorted."""


@dataclass(frozen=True)
class CollectRules:
    """What may come out of a workspace."""

    max_bytes: int
    """Limit of all files together."""
    max_files: int = 5_000
    max_file_bytes: int = 20 * MEBIBYTE
    ignored: frozenset[str] = frozenset({INSTALLED})
    """Names of directories to skip unread, at any depth."""
    planted: Callable[[str], bool] = is_planted
    """Whether a path is configuration that a tool would obey (threat D2); one refuses the whole output."""


def select_files(
    files: Mapping[str, bytes], planted: Callable[[str], bool], *, limits: BoxLimits
) -> tuple[dict[str, bytes], Injected]:
    """Return the checked files that may go into a box, without those that a tool would obey (threat D1)."""
    dropped = {path for path in files if planted(path)}
    wanted = {path: data for path, data in files.items() if path not in dropped}
    checked = check_tree(wanted, max_bytes=limits.workspace_bytes, max_files=limits.workspace_files)
    return checked, Injected(len(checked), sum(map(len, checked.values())), tuple(sorted(dropped)))


# An owner label holds the machine's boot, the process namespace, the process id and its start time. From another
# machine or namespace nobody can tell whether the owner lives; there only the deadline counts.
_START_FIELD = 19
"""Index of the start time in /proc/PID/stat, after the command's closing bracket."""
_STATE_FIELD = 0


def current_owner() -> str:
    """Return the owner label of this process."""
    pid = os.getpid()
    return f"{_namespace()}.{pid}.{_start_of(pid)}"


def is_alive(owner: str) -> bool | None:
    """Return whether a label's process is alive; None if that cannot be told from here."""
    rest, _, started = owner.rpartition(".")
    namespace, _, pid = rest.rpartition(".")
    if namespace != _namespace() or not pid.isdigit():
        return None
    return _start_of(int(pid)) == started


def _namespace() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()[:8]
    namespace = os.readlink("/proc/self/ns/pid").strip("pid:[]")
    return f"{boot}-{namespace}"


def _start_of(pid: int) -> str:
    """Return when a process started, in clock ticks since boot; empty if it is gone or a zombie."""
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if fields[_STATE_FIELD] in "ZX" else fields[_START_FIELD]
    return ""

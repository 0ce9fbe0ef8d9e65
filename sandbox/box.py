"""A box: the place where code runs that nobody here wrote, and what every kind of box promises.

Two kinds are shipped: a container (`sandbox.docker`), and a plain directory without any wall for machines and tests
that have no engine (`sandbox.local_box`). One conformance suite runs against both.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple, Protocol

from sites.content_store import Den, Manifest
from sites.files import INSTALLED, is_planted

MEBIBYTE = 1_048_576
WORKSPACE = "/workspace"
DOOR_HOST = "door"
"""How the forwarder is called inside a box, by an entry in its hosts file: there is no DNS."""
GATEWAY_PORT = 8080
MIRROR_PORT = 8081


@dataclass(frozen=True)
class BoxLimits:
    """What one box may use."""

    memory_bytes: int = 2048 * MEBIBYTE
    """The workspace's files count too, as they lie in memory."""
    cpus: float = 2.0
    processes: int = 256
    workspace_bytes: int = 512 * MEBIBYTE
    workspace_files: int = 60_000
    file_bytes: int = 64 * MEBIBYTE
    """One file's size, holes included: a sparse file is sent as if it were full."""
    lifetime_seconds: int = 900
    """After so long a box ends by itself, whether anybody remembers it or not."""


class Target(NamedTuple):
    """Where the door leads: an address outside the box."""

    host: str
    """An IP address; empty for the engine's own host, as its outer network sees it."""
    port: int


@dataclass(frozen=True)
class BoxSpec:
    """What a box is made from. Boxes of equal specs are interchangeable until they are used."""

    image: str
    """The image's id (`sha256:...`), never a tag."""
    gateway: Target
    mirror: Target | None = None
    limits: BoxLimits = field(default_factory=BoxLimits)
    runtime: str | None = None
    """An OCI runtime that the engine knows, such as `runsc`; None for its default."""

    @property
    def digest(self) -> str:
        """SHA-256 in hex; the warm pool's key."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Door:
    """The only way out of a box."""

    address: str
    """The forwarder's address as the gateway sees it: an attempt's token is bound to it."""
    gateway_url: str
    """Seen from inside."""
    mirror_url: str | None
    """Seen from inside; None where the spec names no mirror."""


@dataclass(frozen=True)
class Clocks:
    """When a command has to give signs of life, and when it has to end. All in seconds from its start."""

    soft_seconds: float
    """It gets SIGINT, from a clock inside the box, and then `grace_seconds` to end well."""
    hard_seconds: float
    """The whole box is frozen."""
    start_seconds: float | None = None
    """The first byte on stdout has to come before this."""
    idle_seconds: float | None = None
    """No silence on stdout may be longer."""
    grace_seconds: float = 10.0


@dataclass(frozen=True)
class OutputLimits:
    """What a command may say."""

    total_bytes: int = 10 * MEBIBYTE
    """Stdout and stderr together."""
    line_bytes: int = MEBIBYTE
    """One line of stdout, its end included."""
    stderr_tail_bytes: int = 65_536
    """How much of stderr's end is kept."""


class Ending(StrEnum):
    """Why a command is over: one reason each. Whatever is not `exited` was cut off by us."""

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
    """How a command went. A status other than 0 is a result, not an error."""

    ending: Ending
    exit_code: int | None
    """None when it was cut off before it ended by itself."""
    stdout: bytes
    """Empty where `on_line` took the lines."""
    stderr: bytes
    """Its end."""
    output_bytes: int
    seconds: float
    first_output_seconds: float | None

    @property
    def is_success(self) -> bool:
        """Whether it ended by itself with status 0."""
        return self.ending is Ending.EXITED and self.exit_code == 0

    @property
    def is_resource_limit(self) -> bool:
        """Whether the kernel killed it: out of memory, as far as a status can tell (threat A6)."""
        return self.ending is Ending.EXITED and self.exit_code == 137


OnLine = Callable[[bytes], bool | None]
"""Takes each line of stdout without its end; returning False stops the command."""


@dataclass(frozen=True)
class Injected:
    """What went into a workspace."""

    files: int
    bytes: int
    dropped: tuple[str, ...]
    """Paths that were kept out because a tool would obey them (threat D1); sorted."""


@dataclass(frozen=True)
class CollectRules:
    """What may come out of a workspace."""

    max_bytes: int
    """All files together; exactly this many pass."""
    max_files: int = 5_000
    max_file_bytes: int = 20 * MEBIBYTE
    ignored: frozenset[str] = frozenset({INSTALLED})
    """Directories by name, at any depth, that are passed over unread."""
    below: str = ""
    """Only this directory is collected, and names are relative to it; empty for the whole workspace."""
    planted: Callable[[str], bool] = is_planted
    """Which paths are configuration that a tool would obey (threat D2): one of them refuses the whole output."""


class Box(Protocol):
    """One box. It serves one job and is then gone; every method but `close` fails on a closed one."""

    @property
    def id(self) -> str:
        """A name for logs and receipts."""

    @property
    def is_warm(self) -> bool:
        """Whether it waited in a pool."""

    @property
    def is_walled(self) -> bool:
        """Whether it keeps in what runs there, whatever that does."""

    @property
    def door(self) -> Door:
        """The only way out."""

    @property
    def token(self) -> str | None:
        """What the command that stands by was started with; None where none does. It opens nothing by itself."""

    def stand_by(self, argv: Sequence[str], *, env: Mapping[str, str], token: str | None = None) -> None:
        """Start a command that reads what it has to do from stdin, and let it wait for that.

        The next `run` of exactly this command goes on with it; any other ends it first. Nothing that came from outside
        has reached it by then, so files may still be put.

        Args:
            argv: the command.
            env: its environment.
            token: a secret in that environment which was made for it, to be bound to whoever uses the box.

        Raises:
            BoxLostError: the box is gone.
        """

    def put(self, files: Mapping[str, bytes], *, planted: Callable[[str], bool] = is_planted) -> Injected:
        """Lay files into the workspace. Only before the first `run`: nothing untrusted may be awake meanwhile.

        Raises:
            PathRefusedError: a name breaks a rule (the sender's fault).
            TreeRefusedError: the tree does (likewise).
            BoxLostError: the box or its engine is gone (the operator's fault, or a passing one).
        """

    def run(
        self,
        argv: Sequence[str],
        *,
        clocks: Clocks,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        cwd: str = WORKSPACE,
        output: OutputLimits | None = None,
        on_line: OnLine | None = None,
        watch: Callable[[], None] | None = None,
    ) -> ExecResult:
        """Run a command as the unprivileged user and wait for its end, or make it end.

        After an ending by the hard clock, an output limit or `on_line` the box is frozen: nothing in it moves any more,
        and its files can be collected. `on_line` runs in this thread, and so does `watch`, every half second at least,
        whether the command says anything or not; what they raise freezes the box and goes on.

        Raises:
            BoxFrozenError: the box is frozen (ours).
            BoxLostError: the box was gone before the command began.
        """

    def collect(self, den: Den, rules: CollectRules) -> Manifest:
        """Freeze the box for good and store its files by content.

        Raises:
            PathRefusedError: a name breaks a rule (the fault of the code in the box, as all of these).
            TreeRefusedError: one reason code: `symlink hardlink fifo device sparse planted name_collision
                file_as_directory file_too_large too_many_bytes too_many_files too_many_members stream_too_long
                bad_archive not_a_directory`.
            BoxLostError: the box is gone, and its files with it.
        """

    def freeze(self) -> None:
        """Stop everything in the box for good; its files stay readable. A frozen box is left as it is.

        Raises:
            BoxLostError: the box is gone.
        """

    def close(self) -> None:
        """Destroy the box with all that belongs to it. May be called again, at any time, and never fails."""


class BoxMaker(Protocol):
    """Makes boxes of one spec."""

    @property
    def spec(self) -> BoxSpec:
        """What they are made from."""

    def create(self) -> Box:
        """Make and start a box.

        Raises:
            SandboxUnavailableError: no engine, or no image: `pointsman doctor` says what is missing (the operator's
                fault).
            SandboxStartupError: the engine refused something, or the box has not the posture that was asked for.
        """


def without_planted(
    files: Mapping[str, bytes], planted: Callable[[str], bool]
) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """Return the files that may go into a box, and the names of those that may not (threat D1)."""
    dropped: Collection[str] = {path for path in files if planted(path)}
    return {path: data for path, data in files.items() if path not in dropped}, tuple(sorted(dropped))


# Which process owns an object that outlives processes, and whether it still lives.
#
# A label says the machine's boot, the process namespace, the process id and its start time. Who reads it from another
# machine or namespace cannot tell, and must go by the deadline.

_START_FIELD = 19
"""Place of the start time in /proc/PID/stat, counted after the command's closing bracket."""
_STATE_FIELD = 0


def this_owner() -> str:
    """Return the label of this process."""
    pid = os.getpid()
    return f"{_place()}.{pid}.{_start_of(pid)}"


def is_alive(owner: str) -> bool | None:
    """Return whether a label's process lives; None when that cannot be told from here."""
    place, _, rest = owner.rpartition(".")[0].rpartition(".")
    started = owner.rpartition(".")[2]
    if place != _place() or not rest.isdigit():
        return None
    return _start_of(int(rest)) == started


def _place() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()[:8]
    namespace = os.readlink("/proc/self/ns/pid").strip("pid:[]")
    return f"{boot}-{namespace}"


def _start_of(pid: int) -> str:
    """Return when a process started, in clock ticks since boot; empty when there is none, or only its zombie."""
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if fields[_STATE_FIELD] in "ZX" else fields[_START_FIELD]
    return ""

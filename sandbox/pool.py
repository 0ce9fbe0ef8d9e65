"""Creates boxes from the settings, keeps a few warm, removes leftovers, and checks what boxes need.

A warm box has its own network from the start, holds nobody's data, serves one job and is never reused. If none is
ready, or it has changed, a box is started cold: the pool can speed a job up but never fail it.

The reaper finds leftovers of dead workers by labels, and slots that its own process gave up on, so several may run at
once, anywhere that reaches the engine.
"""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from routing.policy.services import Service
from sandbox.box import Box
from sandbox.box_spec import MEBIBYTE, BoxLimits, BoxSpec, Target
from sandbox.config import BoxConfig
from sandbox.docker.box import DockerMaker
from sandbox.docker.engine import (
    Engine,
    Leftover,
    is_outer_network,
    maps_users,
    translating_start_errors,
    translating_use_errors,
)
from sandbox.docker.recipe import DEADLINE, OWNER, SLOT, Slot, outer_network
from sandbox.errors import SandboxError, SandboxStartupError, SandboxUnavailableError
from sandbox.image.rootfs import image_reference, parts_digest
from sandbox.owner import current_owner, is_alive

logger = logging.getLogger(__name__)


Prepare = Callable[[Box], None]
"""Does in a new box what every job starts with; a SandboxError makes the box unusable."""


class _Spare(NamedTuple):
    box: Box
    digest: str
    born: float


class Pool:
    """Warm boxes of one process; create it after forking, and close it."""

    def __init__(
        self,
        maker: DockerMaker,
        *,
        size: int = 1,
        spare_seconds: float = 1800,
        prepare: Prepare = lambda box: None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._maker = maker
        self._size = size
        self._spare_seconds = spare_seconds
        self._prepare = prepare
        self._now = now
        self._spares: deque[_Spare] = deque()
        self._lock = threading.Lock()
        self._filler: threading.Thread | None = None
        self._is_closed = False

    @property
    def waiting(self) -> int:
        """Number of boxes that are ready."""
        with self._lock:
            return len(self._spares)

    def acquire(
        self, asked: Sequence[Service] = (), *, image: str | None = None, watch: Callable[[], None] = lambda: None
    ) -> Box:
        """Return an unused box, warm if one is ready, and start making its successor.

        Warm ones have no services beside them, and the image of all boxes.

        Raises:
            SandboxUnavailableError: no engine, or no image.
            SandboxStartupError: the engine refused.
            ServiceFailedError: a service did not become ready.
        """
        while not asked and image is None and (spare := self._take()) is not None:
            is_good = False
            try:
                is_good = self._is_good(spare)
            finally:  # a time limit may strike meanwhile
                if not is_good:
                    spare.box.close()
            if is_good:
                return self._replaced(spare.box)
        return self._replaced(self._maker.create(asked, image=image, watch=watch))

    def _replaced(self, box: Box) -> Box:
        """Return a box whose successor is being made."""
        try:
            self.fill()
        except BaseException:  # a time limit may strike meanwhile
            box.close()
            raise
        return box

    def _take(self) -> _Spare | None:
        with self._lock:
            return self._spares.popleft() if self._spares else None

    def _is_good(self, spare: _Spare) -> bool:
        is_young = self._now() - spare.born < self._spare_seconds
        return is_young and spare.digest == self._maker.spec.digest and spare.box.is_usable()

    def renew(self) -> None:
        """Replace warm boxes that have changed, as after a crash of their engine."""
        with self._lock:
            waiting = tuple(self._spares)
        for spare in waiting:
            if not self._is_good(spare) and self._withdraw(spare):
                spare.box.close()
        self.fill()

    def _withdraw(self, spare: _Spare) -> bool:
        """Remove a box from the pool; False when another thread already has."""
        with self._lock:
            if spare not in self._spares:
                return False
            self._spares.remove(spare)
            return True

    def fill(self) -> None:
        """Start making missing boxes in the background."""
        with self._lock:
            is_busy = self._filler is not None and self._filler.is_alive()
            if self._is_closed or is_busy or len(self._spares) >= self._size:
                return
            filler = threading.Thread(target=self._fill, name="box-pool", daemon=True)
            try:
                filler.start()
            except RuntimeError:  # the host has no thread to spare: the next box is started cold, or fills the pool
                logger.warning("spare_box_failed", extra={"reason": "no_thread"})
                return
            self._filler = filler

    def _fill(self) -> None:
        while self._is_wanted():
            try:
                box = self._make()
            except SandboxError as error:  # the next cold start reports it to somebody who can act on it
                logger.warning("spare_box_failed", extra={"reason": getattr(error, "reason", "")})
                return
            spare = _Spare(box, self._maker.spec.digest, self._now())
            with self._lock:
                if not self._is_closed:
                    self._spares.append(spare)
                    continue
            box.close()

    def _make(self) -> Box:
        box = self._maker.create()
        try:
            self._prepare(box)
        except BaseException:
            box.close()
            raise
        box.is_warm = True
        return box

    def _is_wanted(self) -> bool:
        with self._lock:
            return not self._is_closed and len(self._spares) < self._size

    def wait_until_filled(self, *, seconds: float) -> bool:
        """Wait until the pool is full; False when that takes longer."""
        filler = self._filler
        if filler is not None:
            filler.join(seconds)
        return self.waiting >= self._size

    def close(self) -> None:
        """Destroy the warm boxes and make no more; idempotent."""
        with self._lock:
            self._is_closed = True
            spares, self._spares = list(self._spares), deque()
            filler = self._filler
        for spare in spares:
            spare.box.close()
        if filler is not None:
            filler.join()


def open_engine(config: BoxConfig) -> Engine:
    """Return the engine, not yet connected."""
    return Engine(config.engine, install=config.install, subnets=config.subnets, network=config.network)


def build_limits(config: BoxConfig) -> BoxLimits:
    """Return the limits of one box."""
    return BoxLimits(
        memory_bytes=config.memory_mib * MEBIBYTE,
        cpus=config.cpus,
        processes=config.processes,
        workspace_bytes=config.workspace_mib * MEBIBYTE,
        workspace_files=config.workspace_files,
        file_bytes=config.file_mib * MEBIBYTE,
        lifetime_seconds=config.lifetime_seconds,
    )


def _reference_of(config: BoxConfig) -> str:
    return config.image or image_reference(config.base_image)


def build_spec(config: BoxConfig, engine: Engine) -> BoxSpec:
    """Return the spec of boxes, with the image pinned to its current id.

    Raises:
        SandboxUnavailableError: no engine, or no image (the operator's fault).
    """
    return BoxSpec(
        image=engine.image_id(_reference_of(config)),
        gateway=Target(config.gateway_host, config.gateway_port),
        mirror=Target(config.mirror_host or config.gateway_host, config.mirror_port) if config.mirror_port else None,
        limits=build_limits(config),
        runtime=config.runtime or None,
    )


def build_maker(config: BoxConfig, engine: Engine) -> DockerMaker:
    """Return a maker of boxes.

    Raises:
        SandboxUnavailableError: no engine, or no image (the operator's fault).
    """
    waiting = config.spare_seconds if config.warm else 0
    return DockerMaker(engine, build_spec(config, engine), waiting_seconds=waiting, parts=parts_digest())


def build_pool(config: BoxConfig, engine: Engine, *, prepare: Prepare = lambda box: None) -> Pool:
    """Return an empty pool of warm boxes for this process.

    Raises:
        SandboxUnavailableError: no engine, or no image (the operator's fault).
    """
    return Pool(build_maker(config, engine), size=config.warm, spare_seconds=config.spare_seconds, prepare=prepare)


SWEEP_SECONDS = 30
"""Interval of sweeps: two within the minute that a leftover may last."""


class Swept(NamedTuple):
    """Numbers of removed objects."""

    containers: int = 0
    networks: int = 0
    volumes: int = 0

    @property
    def total(self) -> int:
        """All removed objects."""
        return sum(self)


def sweep_periodically(
    reaper: Reaper,
    stopping: threading.Event,
    *,
    before: Callable[[], None] = lambda: None,
    after: Callable[[Swept], None] = lambda swept: None,
) -> None:
    """Sweep now and periodically until `stopping` is set, even while the engine is away.

    `before` is called before each sweep, to release what need not be kept, and `after` with the result of each one
    that removed something.
    """
    while True:
        before()
        try:
            if (swept := reaper.sweep()).total:
                after(swept)
        except SandboxError as error:
            logger.warning("sweep_failed", extra={"reason": getattr(error, "reason", type(error).__name__)})
        if stopping.wait(SWEEP_SECONDS):
            return


Judge = Callable[[str], bool | None]
"""Returns whether the process of an owner label is alive; None when that is unknown."""


def is_due(found: Leftover, *, now: float, judge: Judge, given_up: Collection[str] = ()) -> bool:
    """Return whether to remove an object: its deadline has passed, or its owner is dead or gave it up.

    An object with a missing or broken label goes too. Age alone is no reason, since jobs may be long.
    """
    if is_outer_network(found):
        return False
    if found.labels.get(SLOT) in given_up:
        return True
    deadline = found.labels.get(DEADLINE, "")
    if not deadline.isdigit() or now >= int(deadline):
        return True
    return judge(found.labels.get(OWNER, "")) is False


class Reaper:
    """Removes one installation's leftovers from one engine."""

    def __init__(self, engine: Engine, *, judge: Judge = is_alive) -> None:
        self._engine = engine
        self._judge = judge

    def sweep(self) -> Swept:
        """Remove what is due; containers first, because they use the rest.

        Raises:
            SandboxUnavailableError: no engine.
            BoxLostError: the engine went away.
        """
        with translating_use_errors():
            standing, given_up, now = list(self._engine.leftovers()), frozenset(self._engine.given_up), time.time()
            due = [found for found in standing if is_due(found, now=now, judge=self._judge, given_up=given_up)]
            return self._remove(due)

    def clear(self) -> Swept:
        """Remove everything of this installation from the engine, including the outer network."""
        with translating_use_errors():
            return self._remove(list(self._engine.leftovers()))

    def _remove(self, due: list[Leftover]) -> Swept:
        counts = {"container": 0, "network": 0, "volume": 0}
        for found in due:
            if self._engine.remove(found):
                counts[found.sort] += 1
        swept = Swept(counts["container"], counts["network"], counts["volume"])
        if swept.total:
            logger.warning("reaped", extra=swept._asdict())
        return swept


_MIN_FREE_BYTES = 4_000_000_000
_MIN_API = (1, 41)


class Finding(NamedTuple):
    """One requirement of boxes."""

    name: str
    hint: str
    """What to do; empty when the requirement is met."""


def check_boxes(config: BoxConfig) -> Iterator[Finding]:
    """Yield the requirements of boxes for `pointsman doctor`, engine first; without one the rest is skipped."""
    engine = open_engine(config)
    try:
        with translating_start_errors():
            facts = engine.client.info()
            api = engine.client.version()["ApiVersion"]
        yield Finding("box engine", "" if _version(api) >= _MIN_API else f"API {api} is too old: Docker 20.10 or newer")
        yield from _facts(config, facts)
        yield _networks(config, engine)
        yield _image(config, engine)
        yield from _bridge(config, engine)
    except SandboxError as error:
        yield Finding("box engine", engine_hint(error, is_installed=shutil.which("dockerd") is not None))
    finally:
        engine.close()


def engine_hint(error: SandboxError, *, is_installed: bool) -> str:
    """Return what is wrong with an engine and what to do."""
    if getattr(error, "reason", "") == "engine_forbidden":
        way = "have root add it to the group that owns the socket (`usermod -aG docker NAME`), log in again"
    elif is_installed:
        way = "start it (`systemctl start docker`, or `dockerd` as root)"
    else:
        way = "install one (Debian, Ubuntu: `apt-get install docker.io` as root)"
    return f"{getattr(error, 'hint', error)}; {way}, or set POINTSMAN_BOX__ENGINE"


def _facts(config: BoxConfig, facts: dict[str, Any]) -> Iterator[Finding]:
    missing = [name for name in ("MemoryLimit", "PidsLimit", "CpuCfsQuota") if not facts.get(name)]
    hint = f"the engine cannot limit {', '.join(missing)}: mount these cgroup controllers"
    yield Finding("box cgroups", hint if missing else "")
    has_seccomp = any("seccomp" in option for option in facts.get("SecurityOptions") or [])
    yield Finding("box seccomp", "" if has_seccomp else "the engine runs without seccomp: enable it")
    shared = "the engine maps users, so its boxes share what its account may use (inotify, pipes): give it a machine"
    yield Finding("box users", shared if maps_users(facts) else "")
    if config.runtime:
        has_runtime = config.runtime in (facts.get("Runtimes") or {})
        yield Finding("box runtime", "" if has_runtime else f"the engine has no runtime {config.runtime}: install it")
    root = Path(facts.get("DockerRootDir") or "/")
    if root.is_dir():  # not so when the engine is on another machine
        free = shutil.disk_usage(root).free
        hint = f"only {free // 1_000_000} of {_MIN_FREE_BYTES // 1_000_000} MB are free below {root}: free some space"
        yield Finding("box disk", "" if free >= _MIN_FREE_BYTES else hint)
    memory, wanted = int(facts.get("MemTotal") or 0), config.memory_mib * 1_048_576 * (1 + config.warm)
    hint = (
        f"a box and {config.warm} warm ones may use {wanted >> 20} of {memory >> 20} MiB: "
        "lower POINTSMAN_BOX__MEMORY_MIB"
    )
    yield Finding("box memory", "" if memory >= wanted else hint)


def _networks(config: BoxConfig, engine: Engine) -> Finding:
    """Look for twins: an engine starts nothing on a network whose name another one has, too."""
    ours = (outer_network(config.install, has_masquerade=further)["name"] for further in (False, True))
    for name in [config.network] if config.network else ours:
        with translating_start_errors():
            ids = [network["Id"][:12] for network in engine.networks(name)]
        if len(ids) > 1:
            hint = f"{len(ids)} networks are named {name}; remove all but one: docker network rm {' '.join(ids[1:])}"
            return Finding("box networks", hint)
    return Finding("box networks", "")


def _image(config: BoxConfig, engine: Engine) -> Finding:
    reference = _reference_of(config)
    try:
        engine.image_id(reference)
    except SandboxError:
        return Finding("box image", f"there is no {reference}: run `pointsman image build`")
    return Finding("box image", "")


def _bridge(config: BoxConfig, engine: Engine) -> Iterator[Finding]:
    """Close the host to a network as each box's is; without the image nothing can."""
    slot = Slot.new(config.install, current_owner(), lifetime_seconds=0)
    try:
        image = engine.image_id(_reference_of(config))
        with translating_start_errors():
            engine.create_inner(slot)
            engine.close_bridge(slot, image)
        yield Finding("box bridge", "")
    except SandboxUnavailableError:
        return
    except SandboxStartupError as error:
        yield Finding("box bridge", f"{error}: what a box sends to everybody would reach the engine's host")
    finally:
        engine.remove_slot(slot.id)


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdigit())

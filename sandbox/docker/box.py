"""A box that is a container: its parts are created, checked against the required posture, and only then started."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Final, NamedTuple

from docker.api import APIClient

from monitoring import traces
from routing.policy.services import Service
from sandbox.box import Box
from sandbox.box_spec import EGRESS_HOST, GATEWAY_PORT, MIRROR_PORT, WORKSPACE, BoxSpec, Egress, beside
from sandbox.docker import recipe, services
from sandbox.docker.engine import Engine, translating_start_errors, translating_use_errors
from sandbox.docker.exec_channel import ExecChannel, run_quickly
from sandbox.docker.recipe import TOOLS, Kind, Slot, check_box, check_forwarder, check_inner, check_volume
from sandbox.docker.terminal import attend
from sandbox.errors import BoxLostError, SandboxStartupError
from sandbox.execution import KILLED, Clocks, ExecResult
from sandbox.owner import current_owner
from sandbox.tarball import pack

logger = logging.getLogger(__name__)


class _Parts(NamedTuple):
    """A slot's containers and addresses on the engine."""

    box: str
    forwarder: str
    listen: str
    """The forwarder's address on the inner network."""
    outer: str
    """The outer network's name."""
    services: Sequence[services.Part] = ()

    @property
    def hosts(self) -> dict[str, str]:
        """The addresses that the box knows by name."""
        return {EGRESS_HOST: self.listen, **services.addresses_of(self.services)}


_READINGS: Final = 3
"""Of the count of what the kernel killed: while a victim's memory is still held, it may kill the reader, too."""


class DockerBox(Box):
    """One container with its network, its volume and its forwarder."""

    is_walled = True  # its posture is checked before it starts

    def __init__(self, engine: Engine, slot: Slot, spec: BoxSpec, *, parts: _Parts, egress: Egress) -> None:
        super().__init__(slot.id, spec, egress)
        self._engine = engine
        self._slot = slot
        self._parts = parts
        self.container = parts.box
        self._oom_kills = 0

    def _lay(self, files: Mapping[str, bytes]) -> None:
        with translating_use_errors():
            if not self._engine.client.api.put_archive(self.container, WORKSPACE, pack(files, owner=self._slot.uid)):
                raise BoxLostError("the engine did not take the files")

    def _start(self, argv: Sequence[str], *, env: Mapping[str, str], cwd: str, clocks: Clocks | None) -> ExecChannel:
        with translating_use_errors():
            channel = ExecChannel(
                self._engine.client.api,
                self.container,
                argv,
                run_id=secrets.token_hex(4),
                env=env,
                cwd=cwd,
                soft_seconds=clocks.soft_seconds if clocks else 0,
                grace_seconds=clocks.grace_seconds if clocks else 0,
            )
            if clocks is None:
                channel.begin()
        return channel

    def _judged(self, result: ExecResult) -> ExecResult:
        """Ask the engine and the box's cgroup who killed a command: anything may end with that code."""
        if result.exit_code != KILLED or self._is_frozen:
            return result
        api = self._engine.client.api
        is_running = False
        with suppress(BoxLostError), translating_use_errors():
            is_running = api.inspect_container(self.container)["State"]["Running"]
        if not is_running:
            return result.of_a_lost_box
        for _ in range(_READINGS):
            with suppress(BoxLostError, ValueError), translating_use_errors():
                _, said = run_quickly(api, self.container, [f"{TOOLS}/oom-kills"])
                before, self._oom_kills = self._oom_kills, int(said)
                return replace(result, oom_kills=self._oom_kills - before)
        return result

    def attend(self, *, term: str, stdin: int, stdout: int, seconds: float) -> bytes:
        """Give a person a shell in the box, on these descriptors; return the end of what was shown.

        Raises:
            BoxLostError: the box was gone before it began.
        """
        self._check_usable()
        self._has_run = True
        with translating_use_errors():
            return attend(
                self._engine.client.api, self.container, term=term, stdin=stdin, stdout=stdout, seconds=seconds
            )

    @contextmanager
    def _packed(self) -> Iterator[Iterable[bytes]]:
        with translating_use_errors(), self._engine.archive(self.container, WORKSPACE) as chunks:
            yield chunks

    def check_services(self, *, watch: Callable[[], None]) -> None:
        """See `Box.check_services`."""
        with translating_use_errors():
            api, parts = self._engine.client.api, self._parts
            services.check_running(api, parts.services, forwarder=parts.forwarder, watch=watch)

    def is_usable(self) -> bool:
        """See `Box.is_usable`."""
        try:
            with translating_use_errors():
                api = self._engine.client.api
                if changed := _weaknesses(api, self._slot, self._spec, parts=self._parts, are_running=True):
                    logger.warning("spare_box_changed", extra={"box": self.id, "how": "; ".join(changed)[:500]})
                    return False
                if self._standby is not None:
                    return self._standby.channel.is_running()
                return run_quickly(api, self.container, ["true"])[0] == 0
        except BoxLostError:
            return False

    def _stop(self) -> None:
        with translating_use_errors():
            self._engine.client.api.pause(self.container)

    def _destroy(self) -> None:
        """Remove the slot; the reaper removes what cannot be removed now."""
        with traces.span("box close"):
            if not self._engine.remove_slot(self.id):
                logger.warning("box_left_to_reaper", extra={"box": self.id})


class DockerMaker:
    """Creates boxes of one spec on one engine."""

    def __init__(self, engine: Engine, spec: BoxSpec, *, waiting_seconds: int = 0, parts: str = "") -> None:
        """Set the engine and the spec.

        Args:
            engine: where.
            spec: of every box, but for its services and its image.
            waiting_seconds: in a pool, added to a box's lifetime.
            parts: what a project's own image must have of ours (`PARTS`).
        """
        self._engine = engine
        self.spec = spec
        self._image_parts = parts
        self._waiting_seconds = waiting_seconds

    def create(
        self, asked: Sequence[Service] = (), *, image: str | None = None, watch: Callable[[], None] = lambda: None
    ) -> DockerBox:
        """Create and start a box, after the services that are asked for beside it; `watch` may raise meanwhile.

        `image` is the id of its project's own image.

        Raises:
            SandboxUnavailableError: no engine, or no image (the operator's fault); `pointsman doctor` says which.
            SandboxStartupError: the engine refused something, or the box lacks the requested posture.
            ServiceFailedError: a service did not become ready.
        """
        if image is not None:
            self._engine.check_project_image(image, parts=self._image_parts)
        spec = replace(self.spec, limits=beside(self.spec.limits, asked), project_image=image)
        lifetime = self.spec.limits.lifetime_seconds + self._waiting_seconds
        uids = self._engine.uids
        slot = Slot.new(self._engine.install, current_owner(), lifetime_seconds=lifetime, uids=uids)
        is_made = False
        try:
            with translating_start_errors():
                box = self._create(slot, spec, lifetime, asked=asked, watch=watch)
            is_made = True
            return box
        finally:
            if not is_made:
                self._engine.remove_slot(slot.id)

    def _create(
        self, slot: Slot, spec: BoxSpec, lifetime: int, *, asked: Sequence[Service], watch: Callable[[], None]
    ) -> DockerBox:
        client = self._engine.client
        is_elsewhere = bool(spec.gateway.host or (spec.mirror and spec.mirror.host))
        outer = self._engine.outer(has_masquerade=is_elsewhere)
        inner = self._engine.create_inner(slot)
        client.volumes.create(**recipe.workspace_volume(slot, spec))
        forwarder = client.containers.create(
            **recipe.forwarder_container(
                slot, spec, outer=outer.name, listen=inner.forwarder, host=outer.host, lifetime_seconds=lifetime
            )
        )
        _assert(check_inner(client.api.inspect_network(slot.name(Kind.INNER)), slot, subnet=inner.subnet))
        _assert(check_volume(client.api.inspect_volume(slot.name(Kind.WORKSPACE)), slot, spec))
        self._engine.close_bridge(slot, spec.image)
        client.api.connect_container_to_network(forwarder.id, slot.name(Kind.INNER), ipv4_address=inner.forwarder)
        siblings = services.create_services(self._engine, slot, spec, services=asked, places=inner.services)
        parts = _Parts("", forwarder.id, inner.forwarder, outer.name, siblings)
        box = client.containers.create(**recipe.box_container(slot, spec, hosts=parts.hosts, lifetime_seconds=lifetime))
        parts = parts._replace(box=box.id)
        _assert(_weaknesses(client.api, slot, spec, parts=parts))
        client.api.start(forwarder.id)
        services.start_services(client.api, siblings, forwarder=forwarder.id, watch=watch)
        client.api.start(box.id)
        self._prove_egress(box.id)
        address = client.api.inspect_container(forwarder.id)["NetworkSettings"]["Networks"][outer.name]["IPAddress"]
        return DockerBox(self._engine, slot, spec, parts=parts, egress=_egress(spec, address))

    def _prove_egress(self, box: str) -> None:
        """Wait until the forwarder listens."""
        code, _ = run_quickly(self._engine.client.api, box, [f"{recipe.TOOLS}/probe", str(GATEWAY_PORT)])
        if code != 0:
            raise SandboxStartupError("egress_shut", "the box's forwarder does not listen")


def _weaknesses(api: APIClient, slot: Slot, spec: BoxSpec, *, parts: _Parts, are_running: bool = False) -> list[str]:
    """Return how a slot's containers differ from the required posture."""
    forwarder, box = api.inspect_container(parts.forwarder), api.inspect_container(parts.box)
    stopped = [kind for kind, state in (("forwarder", forwarder), ("box", box)) if not state["State"]["Running"]]
    return [
        *check_forwarder(forwarder, slot, spec, outer=parts.outer),
        *check_box(box, slot, spec, hosts=parts.hosts),
        *services.weaknesses(api, slot, spec, parts.services),
        *([f"the {kind} is not running" for kind in stopped] if are_running else []),
    ]


def _egress(spec: BoxSpec, address: str) -> Egress:
    mirror = f"http://{EGRESS_HOST}:{MIRROR_PORT}" if spec.mirror is not None else None
    return Egress(address, f"http://{EGRESS_HOST}:{GATEWAY_PORT}", mirror)


def _assert(differences: Sequence[str]) -> None:
    if differences:
        raise SandboxStartupError("posture", "; ".join(differences)[:500])

"""A box that is a container, and what makes it: everything is asked for, checked, and only then started."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from docker.api import APIClient

from monitoring import traces
from sandbox.box import (
    DOOR_HOST,
    GATEWAY_PORT,
    MIRROR_PORT,
    WORKSPACE,
    BoxSpec,
    Clocks,
    CollectRules,
    Door,
    ExecResult,
    Injected,
    OnLine,
    OutputLimits,
    without_planted,
)  # fmt: skip
from sandbox.den import Den, Manifest
from sandbox.docker import recipe
from sandbox.docker.channel import ExecChannel, quick
from sandbox.docker.engine import Engine
from sandbox.docker.failures import starting, using
from sandbox.docker.posture import check_box, check_forwarder, check_inner, check_volume
from sandbox.docker.recipe import Kind, Slot
from sandbox.errors import BoxFrozenError, BoxLostError, SandboxStartupError
from sandbox.execution import Standby, follow
from sandbox.owner import this_owner
from sandbox.paths import is_planted
from sandbox.tarball import pack, stream_limit, unpack
from sandbox.tree import check_tree

logger = logging.getLogger(__name__)

_NO_CLOCK = Clocks(soft_seconds=0, hard_seconds=0, grace_seconds=0)
"""Of a command whose time has not begun."""


class _Parts(NamedTuple):
    """What a slot's containers were given by the engine."""

    box: str
    forwarder: str
    listen: str
    """The forwarder's address on the inner network."""
    outer: str
    """The outer network's name."""


class DockerBox:
    """One container with its network, its volume and its forwarder."""

    def __init__(self, engine: Engine, slot: Slot, spec: BoxSpec, *, parts: _Parts, door: Door) -> None:
        self._engine = engine
        self._slot = slot
        self._spec = spec
        self._parts = parts
        self._container = parts.box
        self._door = door
        self._is_frozen = False
        self._is_closed = False
        self._has_run = False
        self._standby: Standby[ExecChannel] | None = None
        self.is_warm = False
        self.token: str | None = None

    @property
    def id(self) -> str:
        """The slot's id, which all its objects bear as a label."""
        return self._slot.id

    @property
    def is_walled(self) -> bool:
        """A container with its posture checked is a wall."""
        return True

    @property
    def container(self) -> str:
        """The engine's id of the container itself."""
        return self._container

    @property
    def door(self) -> Door:
        """The only way out."""
        return self._door

    def put(self, files: Mapping[str, bytes], *, planted: Callable[[str], bool] = is_planted) -> Injected:
        """Lay files into the workspace; see `Box.put`."""
        self._check_usable()
        if self._has_run:
            raise BoxFrozenError("files go in before the first command, not while something may be awake")
        limits = self._spec.limits
        wanted, dropped = without_planted(files, planted)
        checked = check_tree(wanted, max_bytes=limits.workspace_bytes, max_files=limits.workspace_files)
        with using():
            if not self._engine.client.api.put_archive(self._container, WORKSPACE, pack(checked)):
                raise BoxLostError("the engine did not take the files")
        return Injected(len(checked), sum(map(len, checked.values())), dropped)

    def run(
        self, argv: Sequence[str], *, clocks: Clocks, stdin: bytes = b"", env: Mapping[str, str] | None = None,
        cwd: str = WORKSPACE, output: OutputLimits | None = None, on_line: OnLine | None = None,
        watch: Callable[[], None] | None = None,
    ) -> ExecResult:  # fmt: skip
        """Run a command; see `Box.run`."""
        self._check_usable()
        self._has_run = True
        standby, self._standby = self._standby, None
        with traces.span("box exec", facts={"process.executable.name": argv[0].rpartition("/")[2]}) as span:
            with using():
                channel = standby.hand_over(argv, env or {}, cwd) if standby is not None else None
                channel = channel or self._exec(argv, env=env or {}, cwd=cwd, clocks=clocks)
            has_to_freeze = True
            try:
                followed = follow(
                    channel, stdin=stdin, clocks=clocks, limits=output or OutputLimits(), on_line=on_line, watch=watch
                )  # fmt: skip
                has_to_freeze = followed.has_to_freeze
            finally:
                if has_to_freeze:
                    self._freeze_quietly()
                channel.close()
            result = followed.result
            span.note({"process.exit.code": result.exit_code, "pointsman.ending": result.ending.value})
            return result

    def stand_by(self, argv: Sequence[str], *, env: Mapping[str, str], token: str | None = None) -> None:
        """Start a command that waits for its input; see `Box.stand_by`."""
        self._check_usable()
        with using():
            channel = self._exec(argv, env=env, cwd=WORKSPACE, clocks=_NO_CLOCK)
            channel.begin()
        self._standby, self.token = Standby(tuple(argv), env, channel), token

    def _exec(self, argv: Sequence[str], *, env: Mapping[str, str], cwd: str, clocks: Clocks) -> ExecChannel:
        return ExecChannel(
            self._engine.client.api, self._container, argv, run_id=secrets.token_hex(4), env=env, cwd=cwd,
            soft_seconds=clocks.soft_seconds, grace_seconds=clocks.grace_seconds,
        )  # fmt: skip

    def collect(self, den: Den, rules: CollectRules) -> Manifest:
        """Freeze the box and store its files; see `Box.collect`."""
        self.freeze()
        limits = self._spec.limits
        longest = stream_limit(workspace_bytes=limits.workspace_bytes, workspace_files=limits.workspace_files)
        with using(), self._engine.archive(self._container, WORKSPACE) as chunks:
            return unpack(chunks, den, rules, max_stream_bytes=longest)

    def freeze(self) -> None:
        """Stop everything in the box for good; see `Box.freeze`."""
        if self._is_closed:
            raise BoxLostError("the box is closed")
        if self._is_frozen:
            return
        with using():
            self._engine.client.api.pause(self._container)
        self._is_frozen = True

    def _freeze_quietly(self) -> None:
        try:
            self.freeze()
        except BoxLostError:
            logger.warning("box_lost", extra={"box": self.id})

    def _check_usable(self) -> None:
        if self._is_closed:
            raise BoxLostError("the box is closed")
        if self._is_frozen:
            raise BoxFrozenError("the box is frozen")

    def is_usable(self) -> bool:
        """Return whether a box that waited is still what it was: it runs, and nobody changed it."""
        try:
            with using():
                api = self._engine.client.api
                if changed := _weaknesses(api, self._slot, self._spec, parts=self._parts, are_running=True):
                    logger.warning("spare_box_changed", extra={"box": self.id, "how": "; ".join(changed)[:500]})
                    return False
                if self._standby is not None:
                    return self._standby.channel.is_running()
                return quick(api, self._container, ["true"])[0] == 0
        except BoxLostError:
            return False

    def close(self) -> None:
        """Destroy the box with all that belongs to it; what cannot be removed now is the reaper's."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._standby is not None:
            self._standby.dismiss()
        with traces.span("box close"):
            if not self._engine.remove_slot(self.id):
                logger.warning("box_left_to_reaper", extra={"box": self.id})


class DockerMaker:
    """Makes boxes of one spec on one engine."""

    def __init__(self, engine: Engine, spec: BoxSpec, *, waiting_seconds: int = 0) -> None:
        """Take an engine and a spec; a box may wait so long in a pool before its own lifetime is needed."""
        self._engine = engine
        self._spec = spec
        self._waiting_seconds = waiting_seconds

    @property
    def spec(self) -> BoxSpec:
        """What the boxes are made from."""
        return self._spec

    def create(self) -> DockerBox:
        """Make and start a box; see `BoxMaker.create`."""
        lifetime = self._spec.limits.lifetime_seconds + self._waiting_seconds
        slot = Slot.new(self._engine.install, this_owner(), lifetime_seconds=lifetime)
        is_made = False
        try:
            with starting():
                box = self._create(slot, lifetime)
            is_made = True
            return box
        finally:
            if not is_made:
                self._engine.forget_outer()
                self._engine.remove_slot(slot.id)

    def _create(self, slot: Slot, lifetime: int) -> DockerBox:
        client = self._engine.client
        spec = self._spec
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
        client.api.connect_container_to_network(forwarder.id, slot.name(Kind.INNER), ipv4_address=inner.forwarder)
        box = client.containers.create(
            **recipe.box_container(slot, spec, forwarder=inner.forwarder, lifetime_seconds=lifetime)
        )
        parts = _Parts(box.id, forwarder.id, inner.forwarder, outer.name)
        _assert(_weaknesses(client.api, slot, spec, parts=parts))
        client.api.start(forwarder.id)
        client.api.start(box.id)
        self._prove_door(box.id)
        address = client.api.inspect_container(forwarder.id)["NetworkSettings"]["Networks"][outer.name]["IPAddress"]
        return DockerBox(self._engine, slot, spec, parts=parts, door=_door(spec, address))

    def _prove_door(self, box: str) -> None:
        """Wait until the forwarder listens: a box whose door stays shut is not handed out."""
        code, _ = quick(self._engine.client.api, box, [f"{recipe.TOOLS}/probe", str(GATEWAY_PORT)])
        if code != 0:
            raise SandboxStartupError("door_shut", "the box's forwarder does not listen")


def _weaknesses(api: APIClient, slot: Slot, spec: BoxSpec, *, parts: _Parts, are_running: bool = False) -> list[str]:
    """Return everything by which a slot's containers differ from what they have to be."""
    forwarder, box = api.inspect_container(parts.forwarder), api.inspect_container(parts.box)
    stopped = [kind for kind, found in (("forwarder", forwarder), ("box", box)) if not found["State"]["Running"]]
    return [
        *check_forwarder(forwarder, slot, spec, outer=parts.outer),
        *check_box(box, slot, spec, forwarder=parts.listen),
        *([f"the {kind} does not run" for kind in stopped] if are_running else []),
    ]


def _door(spec: BoxSpec, address: str) -> Door:
    mirror = f"http://{DOOR_HOST}:{MIRROR_PORT}" if spec.mirror is not None else None
    return Door(address, f"http://{DOOR_HOST}:{GATEWAY_PORT}", mirror)


def _assert(differences: Sequence[str]) -> None:
    if differences:
        raise SandboxStartupError("posture", "; ".join(differences)[:500])

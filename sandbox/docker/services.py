"""Services beside a box: siblings on its inner network, walled as it is, ended and removed with it.

What runs in one is the operator's image, but the agent talks to it, so nothing that it does is trusted more than the
box. It has no clock inside, since its image is not ours: the reaper removes what a dead worker left.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import docker.errors
from docker.api import APIClient
from docker.types import Mount, Ulimit

from routing.policy.services import Service
from routing.redaction import redact
from sandbox.box_spec import MEBIBYTE, BoxSpec
from sandbox.docker import recipe
from sandbox.docker.engine import Engine
from sandbox.docker.recipe import Kind, Slot
from sandbox.errors import ServiceFailedError

_POLL_SECONDS = 0.1
_PROBE = 'exec 3<>"/dev/tcp/$0/$1"'
_ENDING_SECONDS = 5.0
"""Longest time that services whose ports are shut already may take to end."""
_SAID_LINES = 15
_SAID_CHARS = 2_000
_FILES = 4096


class Part(NamedTuple):
    """A service of a slot."""

    service: Service
    image: str
    """Its image's id."""
    address: str
    """On the inner network."""
    id: str = ""
    """Its container's, once that is created."""


def volume_of(slot: Slot, service: Service, index: int) -> dict[str, Any]:
    """Return the arguments of the volume, in memory, of one of a service's data directories."""
    size = f"size={service.memory_bytes},uid={slot.uid},gid={slot.uid},mode=0700,nosuid,nodev,noexec"
    return {
        "name": slot.name(f"{Kind.SERVICE}-{service.name}-{index}"),
        "driver": "local",
        "driver_opts": {"type": "tmpfs", "device": "tmpfs", "o": size},
        "labels": slot.labels(Kind.SERVICE),
    }


def container_of(slot: Slot, spec: BoxSpec, part: Part, *, hosts: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments of a service's container; `hosts` are the addresses of its siblings by name.

    Entrypoint, command and environment are its image's. It is kept when it ends, because its log says why.
    """
    service = part.service
    volumes = [volume_of(slot, service, index)["name"] for index in range(len(service.data))]
    mounts = zip(volumes, service.data, strict=True)
    wanted = recipe.confined(slot, replace(spec, image=part.image), Kind.SERVICE) | {
        "name": slot.name(f"{Kind.SERVICE}-{service.name}"),
        "hostname": service.name,
        "auto_remove": False,
        "environment": dict(service.env),
        "network": slot.name(Kind.INNER),
        "extra_hosts": dict(hosts),
        "mounts": [Mount(type="volume", source=name, target=path, no_copy=True) for name, path in mounts],
        "tmpfs": {"/tmp": f"rw,noexec,nosuid,nodev,size={64 * MEBIBYTE},mode=1777"},
        "mem_limit": service.memory_bytes,
        "memswap_limit": service.memory_bytes,
        "nano_cpus": int(service.cpus * 1_000_000_000),
        "pids_limit": service.processes,
        "shm_size": 64 * MEBIBYTE,
        "ulimits": [Ulimit(name="nofile", soft=_FILES, hard=_FILES), Ulimit(name="core", soft=0, hard=0)],
    }
    del wanted["entrypoint"]
    return wanted


def check_service(found: Mapping[str, Any], slot: Slot, spec: BoxSpec, part: Part) -> list[str]:
    """Return how an inspected service differs from its recipe; one volume more is a directory on disk."""
    service = part.service
    expected = {
        "NetworkMode": slot.name(Kind.INNER),
        "Memory": service.memory_bytes,
        "MemorySwap": service.memory_bytes,
        "NanoCpus": int(service.cpus * 1_000_000_000),
        "PidsLimit": service.processes,
        "Sysctls": None,
    }
    mounts = sorted((mount["Destination"], mount.get("Name") or mount["Type"]) for mount in found["Mounts"])
    wanted = sorted((path, volume_of(slot, service, index)["name"]) for index, path in enumerate(service.data))
    return [
        *recipe.common(found, slot, replace(spec, image=part.image), networks={slot.name(Kind.INNER)}),
        *recipe.differences("HostConfig", found["HostConfig"], expected),
        *([f"Mounts are {mounts!r}, not its `data`"] if mounts != wanted else []),
        *recipe.tmpfs_weaknesses(found),
        *recipe.core_weaknesses(found),
    ]


def create_services(
    engine: Engine, slot: Slot, spec: BoxSpec, *, services: Sequence[Service], places: Sequence[str]
) -> list[Part]:
    """Create a slot's services with their volumes; none is started.

    Raises:
        SandboxUnavailableError: an image is missing (the operator's fault).
        APIError: the engine refused.
    """
    client = engine.client
    wanted = [
        Part(service, engine.image_id(service.image, hint=f"`docker pull` it for {service.title}"), place)
        for service, place in zip(services, places, strict=False)
    ]
    hosts = addresses_of(wanted)
    made = []
    for part in wanted:
        for index in range(len(part.service.data)):
            client.volumes.create(**volume_of(slot, part.service, index))
        inner = {slot.name(Kind.INNER): client.api.create_endpoint_config(ipv4_address=part.address)}
        arguments = container_of(slot, spec, part, hosts=hosts)
        made.append(part._replace(id=client.containers.create(**arguments, networking_config=inner).id))
    return made


def addresses_of(parts: Sequence[Part]) -> dict[str, str]:
    """Return the addresses of services by their host names."""
    return {part.service.name: part.address for part in parts}


def weaknesses(api: APIClient, slot: Slot, spec: BoxSpec, parts: Sequence[Part]) -> Iterator[str]:
    """Yield how a slot's services differ from the required posture."""
    for part in parts:
        for found in check_service(api.inspect_container(part.id), slot, spec, part):
            yield f"{part.service.title}: {found}"
        for index in range(len(part.service.data)):
            wanted = volume_of(slot, part.service, index)
            yield from recipe.volume_differences(api.inspect_volume(wanted["name"]), wanted)


def start_services(api: APIClient, parts: Sequence[Part], *, forwarder: str, watch: Callable[[], None]) -> None:
    """Start services, and wait until each is ready, its port as seen by the forwarder included.

    Raises:
        ServiceFailedError: one ended, or was not ready in time (its settings' fault).
        APIError: the engine refused.
    """
    for part in parts:
        api.start(part.id)
    began = time.monotonic()
    for part in parts:
        _await_ready(api, part, forwarder=forwarder, until=began + part.service.ready_seconds, watch=watch)


def _await_ready(api: APIClient, part: Part, *, forwarder: str, until: float, watch: Callable[[], None]) -> None:
    service = part.service
    lines = [(forwarder, _probe(part), f"port {service.port} does not answer")]
    if service.ready is not None:
        lines.append((part.id, ["sh", "-c", service.ready], f"`{service.ready}` fails"))
    for container, argv, why in lines:
        while not _succeeds(api, container, argv, until=until, watch=watch):
            _check_running(api, part)
            if time.monotonic() >= until:
                raise _failed(api, part, f"was not ready within {service.ready_seconds:g} s ({why})")
            time.sleep(_POLL_SECONDS)


def _succeeds(api: APIClient, container: str, argv: Sequence[str], *, until: float, watch: Callable[[], None]) -> bool:
    """Run a short command; one that takes until the end of all patience has failed, and `watch` may end it before."""
    watch()
    try:
        made = api.exec_create(container, list(argv), stdout=False, stderr=False)["Id"]
        api.exec_start(made, detach=True)
    except docker.errors.APIError:  # it has just ended
        return False
    while (found := api.exec_inspect(made))["Running"]:
        if time.monotonic() >= until:
            return False
        watch()
        time.sleep(_POLL_SECONDS / 4)
    return bool(found["ExitCode"] == 0)


def _probe(part: Part) -> list[str]:
    return ["timeout", "2", "bash", "-c", _PROBE, part.address, str(part.service.port)]


def check_running(api: APIClient, parts: Sequence[Part], *, forwarder: str, watch: Callable[[], None]) -> None:
    """Check that services run. Those whose port does not answer may be about to end: all are given the same time to.

    Raises:
        ServiceFailedError: one has ended.
        APIError: the engine refused.
    """
    until = time.monotonic() + _ENDING_SECONDS
    for part in parts:
        _check_running(api, part)
        while time.monotonic() < until and not _succeeds(api, forwarder, _probe(part), until=until, watch=watch):
            _check_running(api, part)
            time.sleep(_POLL_SECONDS)
    for part in parts:
        _check_running(api, part)


def _check_running(api: APIClient, part: Part) -> None:
    state = api.inspect_container(part.id)["State"]
    if not state["Running"]:
        how = "beyond its memory" if state.get("OOMKilled") else f"with status {state.get('ExitCode')}"
        raise _failed(api, part, f"ended {how}")


def _failed(api: APIClient, part: Part, why: str) -> ServiceFailedError:
    said = api.logs(part.id, tail=_SAID_LINES).decode("utf-8", "replace")
    plain = "".join(letter for letter in said if letter.isprintable() or letter == "\n")
    return ServiceFailedError(part.service.title, why, redact(plain).strip()[-_SAID_CHARS:])

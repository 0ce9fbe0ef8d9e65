"""What a box is made from: its image, its limits, and the addresses that it reaches."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import NamedTuple

from routing.policy.services import Service
from sandbox.errors import SandboxUnavailableError

MEBIBYTE = 1_048_576
WORKSPACE = "/workspace"
EGRESS_HOST = "egress"
"""The forwarder's host name inside a box, from the hosts file: there is no DNS."""
GATEWAY_PORT = 8080
MIRROR_PORT = 8081


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

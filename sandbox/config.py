"""Wiring of boxes."""

from __future__ import annotations

from ipaddress import IPv4Network
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from routing.config import Section


def _has_room(network: IPv4Network) -> IPv4Network:
    if not network.is_private or network.prefixlen > 24:
        raise ValueError("must be a private network of at least 256 addresses, such as 10.213.0.0/16")
    return network


class BoxConfig(Section):
    """The containers of tier 3 and of builds; only workers that reach an engine read it."""

    engine: str = Field(default="", pattern=r"^$|^(unix|tcp|ssh|https?)://\S+$")
    """URL of the Docker engine, such as unix:///var/run/docker.sock, which is what an empty value means."""
    install: str = Field(default="local", pattern=r"^[a-z0-9][a-z0-9-]{0,31}$")
    """Marks this installation's containers, networks and volumes; installations that share an engine differ in it."""
    image: str = ""
    """Image of all boxes; empty for the one that `pointsman image build` makes of this version."""
    base_image: str = Field(default="debian:bookworm-slim", pattern=r"^[a-z0-9][a-z0-9._/:@-]{0,254}$")
    """What the image is built from where it can be pulled; otherwise a base is made with debootstrap."""
    cache: Path = Path(".pointsman/box")
    """Where `pointsman image build` keeps what it fetched."""
    runtime: str = Field(default="", pattern=r"^[A-Za-z0-9._-]{0,64}$")
    """An OCI runtime that the engine knows, such as runsc (gVisor); empty for the engine's own."""
    subnets: Annotated[IPv4Network, AfterValidator(_has_room)] = IPv4Network("10.213.0.0/16")
    """Each box gets a /29 of this network for itself and its forwarder. The host gets no address in it."""
    gateway_host: str = Field(default="", pattern=r"^([0-9.]{7,15})?$")
    """IPv4 address of the gateway, as containers reach it; empty for the engine's own host."""
    gateway_port: int = Field(default=8090, ge=1, le=65_535)
    """The gateway's port for model calls."""
    mirror_host: str = Field(default="", pattern=r"^([0-9.]{7,15})?$")
    """IPv4 address of the package mirror, as containers reach it; empty for the gateway's."""
    mirror_port: int = Field(default=0, ge=0, le=65_535)
    """The port of the package mirror; 0 for none."""
    network: str = Field(default="", pattern=r"^([A-Za-z0-9][A-Za-z0-9_.-]{0,127})?$")
    """Name of a network of the engine's that leads nowhere and that a gateway in a container is on, at `gateway_host`:
    forwarders then join it (compose/). Empty for one that the workers make, and that leads to the engine's host."""
    warm: int = Field(default=1, ge=0, le=16)
    """Boxes that each worker process keeps ready."""
    warm_sessions: bool = True
    """Whether the CLI is started in them as well, and waits there for its job: some 160 MiB for each."""
    spare_seconds: int = Field(default=1800, ge=10)
    """How long a box may wait to be used."""
    lifetime_seconds: int = Field(default=900, ge=60, le=7200)
    """How long a box lives at most once it is used."""
    memory_mib: int = Field(default=2048, ge=256)
    """Memory of one box, its workspace included."""
    cpus: float = Field(default=2.0, gt=0, le=64)
    """Processors that one box may use."""
    processes: int = Field(default=256, ge=64, le=4096)
    """Processes and threads in one box."""
    workspace_mib: int = Field(default=512, ge=32)
    """Size of one workspace; it lies in memory."""
    workspace_files: int = Field(default=60_000, ge=1000)
    """Files and directories in one workspace."""
    file_mib: int = Field(default=64, ge=1)
    """Size of one file in a box."""

    @model_validator(mode="after")
    def _check_network(self) -> Self:
        if self.network and not self.gateway_host:
            raise ValueError("gateway_host: is needed beside network: the gateway's address on it")
        return self


# What a mirror is started with. Which registries it leads to stands in the package managers' own configuration.

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_MEBIBYTE = 1 << 20


class MirrorConfig(Section):
    """Settings of the package mirror."""

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = 8091
    public_url: Annotated[str, Field(pattern=r"^https?://[^\s/]+$")] = "http://door:8081"
    """The mirror as a box sees it; stands in the metadata that it serves."""
    npm: str = "npm"
    """The program that is asked which registries the operator uses."""
    npmrc: Path | None = None
    """A file that names them where there is no npm to ask, as in a container: `registry`, `@scope:registry`, `cafile`,
    and credentials by `//host/path/`."""
    cache: Path = Path(".pointsman/mirror")
    """Where packages are kept, by what they contain."""
    cache_bytes: Annotated[int, Field(ge=_MEBIBYTE)] = 2048 * _MEBIBYTE
    package_bytes: Annotated[int, Field(ge=1)] = 128 * _MEBIBYTE
    """The largest package that is let through."""
    metadata_bytes: Annotated[int, Field(ge=1)] = 48 * _MEBIBYTE
    """The largest description of a package that is read."""
    metadata_kept_bytes: Annotated[int, Field(ge=1)] = 96 * _MEBIBYTE
    """Descriptions kept in memory."""
    fresh_seconds: Seconds = 300
    """How long a description is served before the registry is asked again."""
    connect_seconds: Seconds = 10
    silence_seconds: Seconds = 30
    """A registry that says nothing for so long is gone."""
    request_seconds: Seconds = 180
    """How long one request may take, whoever is slow."""
    unknown_per_door: Annotated[int, Field(ge=0)] = 60
    """Packages that do not exist which one door may ask for: their names are words that leave a box."""
    upstream_connections: Annotated[int, Field(ge=1)] = 48
    ledger_connections: Annotated[int, Field(ge=1, le=16)] = 2
    door_seconds: Seconds = 2
    """How long it is believed that a door leads to a live attempt."""
    tell_seconds: Seconds = 10
    """How often its counts go into the ledger."""

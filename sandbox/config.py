"""Settings of boxes and of the package mirror."""

from __future__ import annotations

from ipaddress import IPv4Network
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, model_validator

from routing.config import Section


def _has_room(network: IPv4Network) -> IPv4Network:
    if not network.is_private or network.prefixlen > 24:
        raise ValueError("must be a private network of at least 256 addresses, such as 10.213.0.0/16")
    return network


class BoxConfig(Section):
    """Containers of tier 3 and of builds; only workers that reach an engine read it."""

    engine: str = Field(default="", pattern=r"^$|^(unix|tcp|ssh|https?)://\S+$")
    """URL of the Docker engine; empty for unix:///var/run/docker.sock."""
    install: str = Field(default="local", pattern=r"^[a-z0-9][a-z0-9-]{0,31}$")
    """Label of this installation's containers, networks and volumes; unique among the installations on one engine."""
    image: str = ""
    """Image of all boxes; empty for the one that `pointsman image build` makes of this version."""
    base_image: str = Field(default="python:3.11-slim-bookworm", pattern=r"^[a-z0-9][a-z0-9._/:@-]{0,254}$")
    """Base of the image, with Python, if it can be pulled; otherwise debootstrap makes one."""
    cache: Path = Path(".pointsman/box")
    """Where `pointsman image build` keeps its downloads."""
    runtime: str = Field(default="", pattern=r"^[A-Za-z0-9._-]{0,64}$")
    """An OCI runtime of the engine, such as runsc (gVisor); empty for its default."""
    subnets: Annotated[IPv4Network, AfterValidator(_has_room)] = IPv4Network("10.213.0.0/16")
    """Each box and its forwarder share a /29 of this network, in which the host has no address."""
    gateway_host: str = Field(default="", pattern=r"^([0-9.]{7,15})?$")
    """IPv4 address of the gateway, as containers reach it; empty for the engine's own host."""
    gateway_port: int = Field(default=8090, ge=1, le=65_535)
    """The gateway's port for model calls."""
    mirror_host: str = Field(default="", pattern=r"^([0-9.]{7,15})?$")
    """IPv4 address of the package mirror, as containers reach it; empty for the gateway's."""
    mirror_port: int = Field(default=0, ge=0, le=65_535)
    """The port of the package mirror; 0 for none."""
    network: str = Field(default="", pattern=r"^([A-Za-z0-9][A-Za-z0-9_.-]{0,127})?$")
    """An isolated network of the engine on which a containerised gateway listens at `gateway_host`; forwarders join it
    (compose/). Empty for a network that the workers create and that leads to the engine's host."""
    warm: int = Field(default=1, ge=0, le=16)
    """Boxes that each worker process keeps ready."""
    at_once: int = Field(default=4, ge=1, le=64)
    """Boxes in use at once in each worker process; further jobs wait for one, within their time."""
    warm_sessions: bool = True
    """Whether the CLI waits for its job in them already: some 160 MiB each."""
    spare_seconds: int = Field(default=1800, ge=10)
    """How long a box may wait for a job."""
    lifetime_seconds: int = Field(default=900, ge=60, le=7200)
    """Maximum lifetime of a box once it is in use."""
    memory_mib: int = Field(default=2048, ge=256)
    """Memory of one box, including its workspace."""
    cpus: float = Field(default=2.0, gt=0, le=64)
    """CPUs of one box."""
    processes: int = Field(default=256, ge=64, le=4096)
    """Processes and threads in one box."""
    workspace_mib: int = Field(default=512, ge=32)
    """Size of one workspace, which is in memory."""
    workspace_files: int = Field(default=60_000, ge=1000)
    """Files and directories in one workspace."""
    file_mib: int = Field(default=64, ge=1)
    """Size of one file in a box."""

    @model_validator(mode="after")
    def _check_network(self) -> Self:
        if self.network and not self.gateway_host:
            raise ValueError("gateway_host: required with network: the gateway's address on it")
        return self


class BoxSettings(BaseModel):
    """The section of whoever only reaches an engine."""

    model_config = ConfigDict(frozen=True)

    box: BoxConfig = BoxConfig()


Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_MEBIBYTE = 1 << 20


class MirrorConfig(Section):
    """Settings of the package mirror; its registries come from the package manager's configuration."""

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = 8091
    public_url: Annotated[str, Field(pattern=r"^https?://[^\s/]+$")] = "http://egress:8081"
    """URL of the mirror inside a box; it appears in the metadata that the mirror serves."""
    npm: str = "npm"
    """The npm program, whose configuration names the operator's registries."""
    npmrc: Path | None = None
    """A file that names them where there is no npm, as in a container: `registry`, `@scope:registry`, `cafile`, and
    credentials by `//host/path/`."""
    python_index: SecretStr = SecretStr("")
    """URL of the simple index of Python packages, with its user and password if it needs them; empty for pip's own."""
    python_sdists: frozenset[Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]] = frozenset()
    """Python projects, as JSON, whose source distributions are served too: installing one runs its code in the box.
    Of all others only wheels are served, which install without running any."""
    python_files: frozenset[Annotated[str, Field(pattern=r"^[a-z0-9.-]{1,253}$")]] = frozenset()
    """Hosts, as JSON, that hold the index's files at an address that is not public, as a proxy's; others need none."""
    cache: Path = Path(".pointsman/mirror")
    """The package cache, addressed by content."""
    cache_bytes: Annotated[int, Field(ge=_MEBIBYTE)] = 2048 * _MEBIBYTE
    package_bytes: Annotated[int, Field(ge=1)] = 128 * _MEBIBYTE
    """Size limit of a package."""
    metadata_bytes: Annotated[int, Field(ge=1)] = 48 * _MEBIBYTE
    """Size limit of a package's metadata."""
    metadata_kept_bytes: Annotated[int, Field(ge=1)] = 96 * _MEBIBYTE
    """Metadata kept in memory."""
    fresh_seconds: Seconds = 300
    """How long metadata is served before it is revalidated."""
    connect_seconds: Seconds = 10
    silence_seconds: Seconds = 30
    """A registry that stays silent this long is gone."""
    request_seconds: Seconds = 180
    """Time limit of one request."""
    unknown_per_box: Annotated[int, Field(ge=0)] = 60
    """How many nonexistent packages one box may ask for: their names could carry data out of it."""
    upstream_connections: Annotated[int, Field(ge=1)] = 48
    ledger_connections: Annotated[int, Field(ge=1, le=16)] = 2
    caller_cache_seconds: Seconds = 2
    """How long the check that a box has a live attempt is cached."""
    record_seconds: Seconds = 10
    """How often usage counts are written to the ledger."""

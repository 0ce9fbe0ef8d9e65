"""What a mirror is started with. Which registries it leads to stands in the package managers' own configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from routing.config import Section
from sandbox.errors import SandboxError

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


# What the mirror says no with, and whose fault it is.


class RegistryConfigError(SandboxError, ValueError):
    """The package manager's own configuration cannot be read or names no usable registry (the operator's fault)."""


class MirrorRefusedError(SandboxError):
    """A request is not served: below 500 the caller's fault, else the registry's."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(status, message)
        self.status = status
        self.message = message

    def __str__(self) -> str:
        return self.message


class AddressRefusedError(SandboxError, OSError):
    """An address that a registry leads to is not the operator's registry and not public (the registry's fault)."""

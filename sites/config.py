"""Wiring of site files and previews."""

from __future__ import annotations

from ipaddress import IPv4Network
from pathlib import Path

from pydantic import Field, SecretStr

from routing.config import Section


def _has_room(network: IPv4Network) -> IPv4Network:
    if not network.is_private or network.prefixlen > 24:
        raise ValueError("must be a private network of at least 256 addresses, such as 10.213.0.0/16")
    return network


class DenConfig(Section):
    """Where site files are."""

    root: Path = Path(".pointsman/den")
    """A directory that workers, API and command line share."""


class PreviewConfig(Section):
    """How preview links are signed."""

    keys: tuple[SecretStr, ...] = Field(default=(), max_length=5)
    """Secrets, newest first: the first signs, all verify, so that keys can be rotated."""

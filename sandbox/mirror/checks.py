"""What boxes' packages lack, and how to get it: the part of `pointsman doctor` that looks at the mirror."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from sandbox.mirror.errors import RegistryConfigError
from sandbox.mirror.registries import read_registries


def check_mirror(npm: str, environment: Mapping[str, str], *, npmrc: Path | None = None) -> Iterator[tuple[str, str]]:
    """Yield what the mirror needs, with what to do about it; nothing is asked of a registry.

    Args:
        npm: the program that knows which registries the operator uses.
        environment: what it is run with.
        npmrc: what is read instead of asking it.
    """
    try:
        read_registries(npm, environment, npmrc=npmrc)
        yield "package registry", ""
    except RegistryConfigError as error:
        yield "package registry", f"{error}; without it boxes and builds get no packages"

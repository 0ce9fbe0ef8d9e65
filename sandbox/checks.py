"""What a machine lacks for boxes, and how to get it: the part of `pointsman doctor` that looks at the engine."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from sandbox.config import BoxConfig
from sandbox.docker.engine import Engine, starting
from sandbox.errors import SandboxError
from sandbox.image.rootfs import image_reference
from sandbox.pool import open_engine

_MIN_FREE_BYTES = 4_000_000_000
_MIN_API = (1, 41)


class Finding(NamedTuple):
    """One thing that boxes need."""

    name: str
    hint: str
    """What to do; empty when all is well."""


def check_boxes(config: BoxConfig) -> Iterator[Finding]:
    """Yield what boxes need, engine first; without one nothing else is looked at."""
    engine = open_engine(config)
    try:
        with starting():
            facts = engine.client.info()
            api = engine.client.version()["ApiVersion"]
        yield Finding("box engine", "" if _version(api) >= _MIN_API else f"API {api} is too old: Docker 20.10 or newer")
        yield from _facts(config, facts)
        yield _image(config, engine)
    except SandboxError as error:
        yield Finding("box engine", engine_hint(error, is_installed=shutil.which("dockerd") is not None))
    finally:
        engine.close()


def engine_hint(error: SandboxError, *, is_installed: bool) -> str:
    """Return what is wrong with an engine and what helps.

    Args:
        error: why it did not answer.
        is_installed: whether this machine has the engine's program.
    """
    if getattr(error, "reason", "") == "engine_forbidden":
        way = "have root add it to the group that owns the socket (`usermod -aG docker NAME`), log in again"
    elif is_installed:
        way = "start it (`systemctl start docker`, or `dockerd` as root)"
    else:
        way = "install one (Debian, Ubuntu: `apt-get install docker.io` as root)"
    return f"{getattr(error, 'hint', error)}; {way}, or set POINTSMAN_BOX__ENGINE"


def _facts(config: BoxConfig, facts: dict[str, Any]) -> Iterator[Finding]:
    lacking = [name for name in ("MemoryLimit", "PidsLimit", "CpuCfsQuota") if not facts.get(name)]
    hint = f"the engine cannot limit {', '.join(lacking)}: mount these cgroup controllers"
    yield Finding("box cgroups", hint if lacking else "")
    has_seccomp = any("seccomp" in option for option in facts.get("SecurityOptions") or [])
    yield Finding("box seccomp", "" if has_seccomp else "the engine runs without its seccomp profile: give it one back")
    if config.runtime:
        known = config.runtime in (facts.get("Runtimes") or {})
        yield Finding("box runtime", "" if known else f"the engine knows no runtime {config.runtime}: install it there")
    root = Path(facts.get("DockerRootDir") or "/")
    if root.is_dir():  # an engine on another machine keeps its disk to itself
        free = shutil.disk_usage(root).free
        hint = f"only {free // 1_000_000} of {_MIN_FREE_BYTES // 1_000_000} MB are free below {root}: free some there"
        yield Finding("box disk", "" if free >= _MIN_FREE_BYTES else hint)
    memory, wanted = int(facts.get("MemTotal") or 0), config.memory_mib * 1_048_576 * (1 + config.warm)
    hint = (
        f"a box and {config.warm} spare may use {wanted >> 20} MiB of {memory >> 20}: lower POINTSMAN_BOX__MEMORY_MIB"
    )
    yield Finding("box memory", "" if memory >= wanted else hint)


def _image(config: BoxConfig, engine: Engine) -> Finding:
    reference = config.image or image_reference(config.base_image)
    try:
        engine.image_id(reference)
    except SandboxError:
        return Finding("box image", f"there is no {reference}: run `pointsman image build`")
    return Finding("box image", "")


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdigit())

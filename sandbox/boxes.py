"""Makes what the configuration describes: an engine, a spec, a pool, a reaper. The only reader of `BoxConfig`."""

from __future__ import annotations

from sandbox.box import MEBIBYTE, BoxLimits, BoxSpec, Target
from sandbox.config import BoxConfig
from sandbox.docker.box import DockerMaker
from sandbox.docker.engine import Engine
from sandbox.image.parts import image_reference
from sandbox.pool import Pool, Prepare


def open_engine(config: BoxConfig) -> Engine:
    """Return the engine; nothing is asked of it yet."""
    return Engine(config.engine, install=config.install, subnets=config.subnets, network=config.network)


def limits_of(config: BoxConfig) -> BoxLimits:
    """Return what one box may use."""
    return BoxLimits(
        memory_bytes=config.memory_mib * MEBIBYTE,
        cpus=config.cpus,
        processes=config.processes,
        workspace_bytes=config.workspace_mib * MEBIBYTE,
        workspace_files=config.workspace_files,
        file_bytes=config.file_mib * MEBIBYTE,
        lifetime_seconds=config.lifetime_seconds,
    )


def build_spec(config: BoxConfig, engine: Engine) -> BoxSpec:
    """Return what boxes are made from; the image is pinned to what its name means now.

    Raises:
        SandboxUnavailableError: no engine, or no image (the operator's fault).
    """
    return BoxSpec(
        image=engine.image_id(config.image or image_reference(config.base_image)),
        gateway=Target(config.gateway_host, config.gateway_port),
        mirror=Target(config.mirror_host or config.gateway_host, config.mirror_port) if config.mirror_port else None,
        limits=limits_of(config),
        runtime=config.runtime or None,
    )


def build_maker(config: BoxConfig, engine: Engine) -> DockerMaker:
    """Return what makes boxes.

    Raises:
        SandboxUnavailableError: no engine, or no image (the operator's fault).
    """
    return DockerMaker(engine, build_spec(config, engine), waiting_seconds=config.spare_seconds if config.warm else 0)


def build_pool(config: BoxConfig, engine: Engine, *, prepare: Prepare = lambda box: None) -> Pool:
    """Return a pool of warm boxes for this process, not yet filled.

    Args:
        config: how many, among others.
        engine: where they are made.
        prepare: what is done with each of them beforehand.

    Raises:
        SandboxUnavailableError: no engine, or no image (the operator's fault).
    """
    return Pool(build_maker(config, engine), size=config.warm, spare_seconds=config.spare_seconds, prepare=prepare)

"""A box to try a project's commands in, without an installation: its package mirror runs here and serves it alone."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager

import uvicorn

from gateway.bearers import address_of
from sandbox.box import Box
from sandbox.config import BoxConfig, MirrorConfig
from sandbox.docker.engine import translating_start_errors
from sandbox.errors import MirrorRefusedError, SandboxStartupError
from sandbox.package_mirror.app import Mirror, server_config
from sandbox.package_mirror.registries import read_all
from sandbox.pool import Reaper, build_maker, open_engine

INSTALL = "trial"
"""Label of what trials leave on an engine. The next one removes what a killed one left, all but the network between
forwarders and the engine's host, `pointsman-trial-outer`, which stays as an installation's does.
"""
_STARTING_SECONDS = 30.0

Listen = Callable[[str], socket.socket]
"""Listens on a free port of an address of this machine."""


def listen_here(host: str) -> socket.socket:
    """Listen on a free port.

    Raises:
        OSError: this machine does not have the address.
    """
    return socket.create_server((host, 0), backlog=128)


class OneBox:
    """Admits the forwarder of one box."""

    def __init__(self) -> None:
        self.address = ""

    async def check(self, headers: Mapping[bytes, bytes], *, peer: str | None) -> str:
        """See `Admission.check`."""
        if not self.address or address_of(peer) != self.address:
            raise MirrorRefusedError(401, "this mirror serves packages to one box")
        return self.address


@contextmanager
def open_trial_box(
    config: BoxConfig, mirror: MirrorConfig, environment: Mapping[str, str], *, listen: Listen = listen_here
) -> Iterator[Box]:
    """Yield a box like those of runs, with packages from the registries that npm's and pip's environment names.

    Raises:
        SandboxUnavailableError: no engine, or no image (the operator's fault).
        SandboxStartupError: the engine refused, or its host is not this machine, where the mirror is.
        RegistryConfigError: the operator's fault: npm names no registry.
    """
    own = {"install": INSTALL, "warm": 0, "gateway_host": "", "mirror_host": "", "network": ""}
    with closing(open_engine(config.model_copy(update=own))) as engine:
        with translating_start_errors():
            Reaper(engine).sweep()
        host = engine.outer(has_masquerade=False).host
        try:
            place = listen(host)
        except OSError as error:
            raise SandboxStartupError("mirror", f"{host}, the engine's host, is not this machine: {error}") from None
        admitted = OneBox()
        with place, _served(mirror, environment, admitted, place):
            port = place.getsockname()[1]
            mirror_only = {**own, "gateway_port": port, "mirror_port": port}
            with closing(build_maker(config.model_copy(update=mirror_only), engine).create()) as box:
                admitted.address = box.egress.address
                yield box


@contextmanager
def _served(
    config: MirrorConfig, environment: Mapping[str, str], admitted: OneBox, place: socket.socket
) -> Iterator[None]:
    """Serve packages in a thread."""
    registries = read_all(config, environment)
    server = uvicorn.Server(server_config(config, Mirror(config, registries, admitted)))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [place]}, name="trial-mirror", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join(_STARTING_SECONDS)

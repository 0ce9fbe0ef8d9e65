"""Whether an embedded installation can run code agents: asks the engine once, and says in words that help why not.

The engine's client is loaded when it is asked. What is missing takes tier 3 away and nothing else.
"""

from __future__ import annotations

import errno
import logging
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from routing.config import without_settings
from sandbox.config import BoxConfig
from sandbox.errors import SandboxError, SandboxUnavailableError
from sandbox.mirror.checks import check_mirror

logger = logging.getLogger(__name__)

BOX_SETTINGS = "POINTSMAN_BOX__"
"""The only settings that `pointsman up` takes from outside: which engine there is, and what boxes may use of it."""


@dataclass(frozen=True)
class BoxWiring:
    """What boxes of an embedded installation are wired to."""

    host: str = ""
    """The engine's host as forwarders see it, where gateway and mirror have to listen; empty where tier 3 is off."""
    off: str = ""
    """Why tier 3 is off, and what helps."""
    no_packages: str = ""
    """Why boxes get no packages, and what helps."""


def wire_boxes(
    config: BoxConfig, *, gateway_port: int, mirror_port: int, npm: str, environment: Mapping[str, str]
) -> BoxWiring:
    """Look whether boxes can be made, and make the network on which they reach gateway and mirror.

    What an earlier run of this installation left on the engine goes first: its processes are dead, or about to be.

    Args:
        config: the boxes'; its `install` is this installation's own.
        gateway_port: has to be free on the engine's host.
        mirror_port: likewise.
        npm: the program that knows which registries packages come from.
        environment: what it is run with.
    """
    from sandbox.boxes import build_spec, open_engine
    from sandbox.reaper import Reaper

    engine = open_engine(config)
    try:
        Reaper(engine).clear()
        build_spec(config, engine)
        host = engine.outer(has_masquerade=False).host
    except SandboxUnavailableError as error:
        helps = "" if error.reason == "image_missing" else "; `pointsman doctor` says how to get it"
        return BoxWiring(off=f"{error.hint}{helps}")
    except SandboxError as error:
        return BoxWiring(off=f"{error}; `pointsman doctor` may say more")
    finally:
        engine.close()
    for port in (gateway_port, mirror_port):
        if taken := _why_not(host, port):
            return BoxWiring(off=taken)
    lacking = "; ".join(hint for _, hint in check_mirror(npm, without_settings(environment)) if hint)
    return BoxWiring(host=host, no_packages=lacking)


def _why_not(host: str, port: int) -> str:
    """Return why nothing can listen there; empty when it can."""
    try:
        socket.create_server((host, port)).close()
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            return (
                f"{host}, the engine's host, is not this machine: an engine elsewhere or in a virtual machine needs a "
                "gateway beside it (POINTSMAN_BOX__GATEWAY_HOST), which `pointsman up` does not start"
            )
        return f"nothing can listen on {host}:{port}: {error.strerror}"
    return ""


def clear_boxes(config: BoxConfig) -> None:
    """Leave nothing of an installation on the engine; one that is away is left as it is."""
    from sandbox.boxes import open_engine
    from sandbox.reaper import Reaper

    engine = open_engine(config)
    try:
        Reaper(engine).clear()
    except SandboxError as error:
        logger.warning("boxes_not_cleared", extra={"reason": getattr(error, "reason", type(error).__name__)})
    finally:
        engine.close()

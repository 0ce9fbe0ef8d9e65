"""Run one mirror until it is told to stop."""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping

import uvicorn

from routing.policy import Policy
from sandbox.mirror.app import Mirror
from sandbox.mirror.config import MirrorConfig
from sandbox.mirror.registries import Registries, read_registries

_GRACE_SECONDS = 5
_MAX_CONNECTIONS = 512


def server_config(config: MirrorConfig, ledger_url: str, policy: Policy, registries: Registries) -> uvicorn.Config:
    """Return the ASGI server's settings around a new mirror."""
    return uvicorn.Config(
        Mirror(config, ledger_url, policy, registries),
        host=config.host,
        port=config.port,
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=_MAX_CONNECTIONS,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )


def serve(config: MirrorConfig, ledger_url: str, policy: Policy, *, environment: Mapping[str, str]) -> None:
    """Serve until SIGTERM or SIGINT, then leave with exit code 0.

    Raises:
        RegistryConfigError: the operator's fault: neither npm nor an npmrc says which registry to use.
    """
    registries = read_registries(config.npm, environment, npmrc=config.npmrc)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)  # the server raises the signal again when it has shut down
    uvicorn.Server(server_config(config, ledger_url, policy, registries)).run()


def _leave(_number: int, _frame: object) -> None:
    sys.exit(0)

"""Run one gateway until it is told to stop; what is open then is given a while, cut and booked."""

from __future__ import annotations

import math
import signal
import sys

import uvicorn

from routing.policy import Policy
from sandbox.gateway.app import Gateway
from sandbox.gateway.config import GatewayConfig


def server_config(config: GatewayConfig, ledger_url: str, policy: Policy) -> uvicorn.Config:
    """Return the ASGI server's settings around a new gateway."""
    return uvicorn.Config(
        Gateway(config, ledger_url, policy),
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
        timeout_keep_alive=75,
        timeout_graceful_shutdown=math.ceil(config.grace_seconds),
    )


def serve(config: GatewayConfig, ledger_url: str, policy: Policy) -> None:
    """Serve until SIGTERM or SIGINT, then leave with exit code 0."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)  # the server raises the signal again when it has shut down
    uvicorn.Server(server_config(config, ledger_url, policy)).run()


def _leave(_number: int, _frame: object) -> None:
    sys.exit(0)

"""Run one gateway until it is told to stop; what is open then is given a while, cut and booked."""

from __future__ import annotations

import math
import signal
import socket
import sys

import uvicorn

from routing.policy import Policy
from sandbox.gateway.app import Gateway
from sandbox.gateway.config import GatewayConfig

_IP_FREEBIND = 15
"""Of Linux (ip(7)): bind to an address that is not there yet; Python has no name for it."""


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


def listeners(config: GatewayConfig, server: uvicorn.Config) -> list[socket.socket] | None:
    """Return what to listen on besides what the server opens itself; None when that is all.

    An engine that is away takes its bridge's address with it. The gateway serves everybody else meanwhile, and boxes
    again when it is back.

    Raises:
        OSError: somebody else listens there.
    """
    if not config.box_host:
        return None
    second = socket.socket()
    second.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    second.setsockopt(socket.IPPROTO_IP, _IP_FREEBIND, 1)
    second.bind((config.box_host, config.port))
    return [server.bind_socket(), second]


def serve(config: GatewayConfig, ledger_url: str, policy: Policy) -> None:
    """Serve until SIGTERM or SIGINT, then leave with exit code 0."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)  # the server raises the signal again when it has shut down
    server = server_config(config, ledger_url, policy)
    uvicorn.Server(server).run(listeners(config, server))


def _leave(_number: int, _frame: object) -> None:
    sys.exit(0)

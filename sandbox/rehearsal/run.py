"""Runs the rehearsal model as a process: binds, says where, and serves until it is told to end."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass

import uvloop
from aiohttp import web

from routing.policy import load_policy
from sandbox.rehearsal.config import RehearsalConfig
from sandbox.rehearsal.loading import load_rules
from sandbox.rehearsal.log import RequestLog
from sandbox.rehearsal.server import create_app

_SHUTDOWN_SECONDS = 0.2
"""How long calls in flight may go on when the server ends. Then they are cut and logged."""


@dataclass(frozen=True)
class Address:
    """Where a server listens."""

    host: str
    port: int
    url: str
    """What to give clients as `base_url`."""


def announce(address: Address) -> None:
    """Print the address as one JSON line."""
    sys.stdout.write(json.dumps(asdict(address)) + "\n")
    sys.stdout.flush()


def serve(config: RehearsalConfig, *, ready: Callable[[Address], None] = announce) -> None:
    """Serve until SIGTERM or SIGINT.

    Args:
        config: the settings.
        ready: called once with the address, when requests are taken.

    Raises:
        ScenarioError: the author's fault: a scenario file is wrong.
        PolicyError: the operator's fault.
        OSError: the port is taken, or the log cannot be written.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(config, ready))


async def _serve(config: RehearsalConfig, ready: Callable[[Address], None]) -> None:
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    async with listening(config) as address:
        ready(address)
        await ended.wait()


@asynccontextmanager
async def listening(config: RehearsalConfig) -> AsyncIterator[Address]:
    """Serve in the running event loop for as long as the context is open."""
    rules = load_rules(config.scenarios, faults=config.faults)
    speeds = load_policy(config.policy).speeds
    with RequestLog(config.log) as log:
        app = create_app(rules, speeds=speeds, log=log, speed=config.speed)
        runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS)
        await runner.setup()
        try:
            await web.TCPSite(runner, config.host, config.port).start()
            host, port = runner.addresses[0][:2]
            yield Address(host, port, f"http://{host}:{port}")
        finally:
            await runner.cleanup()

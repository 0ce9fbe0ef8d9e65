"""Servers in a thread of a test's own process."""

from __future__ import annotations

import asyncio
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import uvicorn
from aiohttp import web

from gateway.config import GatewayConfig
from gateway.server import ALONE, server_config
from monitoring.config import CellsConfig
from routing.policy.platform import Policy

_THREAD_SECONDS = 10.0


@contextmanager
def serve_gateway_in_thread(
    config: GatewayConfig, ledger_url: str, policy: Policy, cells: CellsConfig = ALONE
) -> Iterator[str]:
    """Serve a gateway and yield the base URL; its journal is its own.

    Who clears the ledger between tests loses calls that the journal still has, and the gateway would book them again.
    """
    with ExitStack() as stack:
        if "journal" not in config.model_fields_set:
            home = stack.enter_context(tempfile.TemporaryDirectory(prefix="pointsman-journal-"))
            config = config.model_copy(update={"journal": Path(home)})
        if "reconcile_seconds" not in config.model_fields_set:
            config = config.model_copy(update={"reconcile_seconds": 3_600.0})
        server = server_config(config, ledger_url, policy, cells)
        yield stack.enter_context(serve_in_thread(server, name="gateway", grace_seconds=config.grace_seconds))


@contextmanager
def serve_app_in_thread(app: web.Application) -> Iterator[str]:
    """Serve on a free port while the context is open, and yield the base URL."""
    loop = asyncio.new_event_loop()
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    loop.run_until_complete(runner.setup())
    loop.run_until_complete(web.TCPSite(runner, "127.0.0.1", 0).start())
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(_THREAD_SECONDS)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_THREAD_SECONDS)
        loop.close()


@contextmanager
def serve_in_thread(config: uvicorn.Config, *, name: str, grace_seconds: float = 0.0) -> Iterator[str]:
    """Serve on a free port while the context is open, and yield the base URL.

    Args:
        config: what to serve; its host and port are ignored.
        name: of the server, for errors and the thread.
        grace_seconds: extra time for open requests when it stops.

    Raises:
        TimeoutError: it did not start.
    """
    server = uvicorn.Server(config)
    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, args=([listener],), name=name, daemon=True)
    thread.start()
    try:
        deadline = time.monotonic() + _THREAD_SECONDS
        while not server.started and thread.is_alive() and time.monotonic() < deadline:
            time.sleep(0.005)
        if not server.started:
            raise TimeoutError(f"the {name} did not start")
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(grace_seconds + _THREAD_SECONDS)
        listener.close()

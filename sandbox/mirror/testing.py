"""A mirror inside a test's own process: the real server on a free port, in a thread."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from routing.policy import Policy
from sandbox.mirror.config import MirrorConfig
from sandbox.mirror.registries import Registries
from sandbox.mirror.serve import server_config

_SECONDS = 10.0


@contextmanager
def running_mirror(config: MirrorConfig, ledger_url: str, policy: Policy, registries: Registries) -> Iterator[str]:
    """Serve in a thread for as long as the context is open, and yield the base URL."""
    server = uvicorn.Server(server_config(config, ledger_url, policy, registries))
    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, args=([listener],), name="mirror", daemon=True)
    thread.start()
    try:
        deadline = time.monotonic() + _SECONDS
        while not server.started and thread.is_alive() and time.monotonic() < deadline:
            time.sleep(0.005)
        if not server.started:
            raise TimeoutError("the mirror did not start")
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(_SECONDS)
        listener.close()

"""An ASGI server inside a process of somebody else's, such as a test's: the real one on a free port, in a thread."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

_SECONDS = 10.0


@contextmanager
def running(config: uvicorn.Config, *, name: str, grace_seconds: float = 0.0) -> Iterator[str]:
    """Serve in a thread for as long as the context is open, and yield the base URL.

    Args:
        config: what to serve, and how; host and port are not those of this.
        name: of the server, for errors and the thread.
        grace_seconds: what open requests may take beyond the usual when it stops.

    Raises:
        TimeoutError: it did not start.
    """
    server = uvicorn.Server(config)
    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, args=([listener],), name=name, daemon=True)
    thread.start()
    try:
        deadline = time.monotonic() + _SECONDS
        while not server.started and thread.is_alive() and time.monotonic() < deadline:
            time.sleep(0.005)
        if not server.started:
            raise TimeoutError(f"the {name} did not start")
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(grace_seconds + _SECONDS)
        listener.close()

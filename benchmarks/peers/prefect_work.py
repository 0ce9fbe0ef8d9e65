"""Prefect: flows that do nothing, one after the other, against a server of their own on the shared PostgreSQL.

With heartbeats off: by default each flow ends by waiting up to a second for the thread that sends them. Since one flow
begins when another has ended, a fifth of a batch takes a fifth of its time, and stands for it.
"""

import os
import socket
import tempfile
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from itertools import count

from benchmarks.places import BATCH, PEER_DATABASE, beside, body, place, until

PARTS = 5
"""Of which one is run: a whole batch takes twenty seconds."""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _start_server() -> None:
    port = _free_port()
    url = f"http://127.0.0.1:{port}/api"
    os.environ.update(
        {
            "PREFECT_HOME": tempfile.mkdtemp(prefix="pointsman-bench-prefect-"),
            "PREFECT_API_URL": url,
            "PREFECT_API_DATABASE_CONNECTION_URL": place(PEER_DATABASE).replace(
                "postgresql:", "postgresql+asyncpg:", 1
            ),
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "PREFECT_LOGGING_LEVEL": "ERROR",
            "PREFECT_LOGGING_TO_API_ENABLED": "false",
        }
    )
    beside("prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port), "--no-services")

    def answers() -> bool:
        with suppress(OSError), urllib.request.urlopen(f"{url}/health", timeout=2) as answer:
            return bool(answer.status == 200)
        return False

    until(answers, every=0.2)


def turn() -> Callable[[int], float]:
    """Return what runs so many batches."""
    _start_server()
    from prefect import flow  # which reads where its server is
    from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

    @flow(name="noop")
    def noop(body: dict[str, str]) -> None:
        return None

    number = count()
    noop(body(next(number)))

    def take(times: int) -> float:
        with temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
            began = time.perf_counter()
            for _ in range(times * BATCH // PARTS):
                noop(body(next(number)))
            return PARTS * (time.perf_counter() - began)

    return take

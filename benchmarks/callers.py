"""HTTP clients for both sides of a race, the same for both: a few connections that stay open, each a thread."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from itertools import count

from benchmarks.places import body

CONNECTIONS = 4


def calling(port: int, path: str, headers: Mapping[str, str]) -> Callable[[int], float]:
    """Return what posts so many jobs and returns the seconds that took."""
    connections = [HTTPConnection("127.0.0.1", port) for _ in range(CONNECTIONS)]
    pool, number = ThreadPoolExecutor(CONNECTIONS), count()

    def post(connection: HTTPConnection, times: int) -> None:
        for _ in range(times):
            text = json.dumps(body(next(number)))
            connection.request("POST", path, text, {"Content-Type": "application/json", **headers})
            answer = connection.getresponse()
            told = answer.read()
            assert answer.status in (200, 202), told

    def turn(times: int) -> float:
        shares = [times // CONNECTIONS + (place < times % CONNECTIONS) for place in range(CONNECTIONS)]
        began = time.perf_counter()
        list(pool.map(post, connections, shares))
        return time.perf_counter() - began

    return turn

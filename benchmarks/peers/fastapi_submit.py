"""FastAPI on uvicorn, one process: an endpoint that checks nothing but JSON and calls Celery's `send_task`."""

import socket
import sys
from collections.abc import Callable
from contextlib import closing

from benchmarks.callers import calling
from benchmarks.places import beside, until


def turn() -> Callable[[int], float]:
    """Return what posts so many jobs."""
    with closing(socket.create_server(("127.0.0.1", 0))) as probe:
        port = probe.getsockname()[1]
    beside("benchmarks.peers.fastapi_submit", str(port))
    until(lambda: _answers(port))
    return calling(port, "/v1/jobs", {})


def _answers(port: int) -> bool:
    with closing(socket.socket()) as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def _serve(port: int) -> None:
    import uvicorn
    from fastapi import FastAPI

    from benchmarks.peers.celery_submit import application

    web, app = FastAPI(), application()

    @web.post("/v1/jobs")
    def submit(body: dict[str, str]) -> dict[str, str]:
        return {"id": app.send_task("noop", args=[body]).id}

    uvicorn.run(web, host="127.0.0.1", port=port, loop="uvloop", http="httptools", access_log=False, log_level="error")


if __name__ == "__main__":
    _serve(int(sys.argv[1]))

"""The rehearsal model inside a test's own process: a real server on a free port, in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager

from sandbox.rehearsal.config import RehearsalConfig
from sandbox.rehearsal.run import Address, listening

_START_SECONDS = 10.0


@contextmanager
def running_rehearsal(config: RehearsalConfig) -> Iterator[Address]:
    """Serve in a thread for as long as the context is open.

    Raises:
        ScenarioError: a scenario file is wrong.
    """
    loop = asyncio.new_event_loop()
    ended = asyncio.Event()
    ready: Future[Address] = Future()

    async def run() -> None:
        async with listening(config) as address:
            ready.set_result(address)
            await ended.wait()

    def main() -> None:
        try:
            loop.run_until_complete(run())
        except BaseException as error:
            if ready.done():
                raise
            ready.set_exception(error)
        finally:
            loop.close()

    thread = threading.Thread(target=main, name="rehearsal", daemon=True)
    thread.start()
    try:
        yield ready.result(_START_SECONDS)
    finally:
        if not loop.is_closed():
            loop.call_soon_threadsafe(ended.set)
        thread.join(_START_SECONDS)

"""A process's pool of boxes on an engine, and the sweeping that goes with it. Loading it loads the engine's client."""

from __future__ import annotations

import threading
from collections.abc import Callable

from sandbox.box import Box
from sandbox.boxes import build_pool, open_engine
from sandbox.config import BoxConfig
from sandbox.docker.engine import Engine
from sandbox.pool import Pool
from sandbox.reaper import Reaper, Swept, keep_swept


class EnginePool:
    """Spare boxes, and a thread that takes away what dead workers left behind."""

    def __init__(self, engine: Engine, pool: Pool, *, tell: Callable[[Swept], None]) -> None:
        self._engine = engine
        self._pool = pool
        self._stopping = threading.Event()
        self._sweeper = threading.Thread(
            target=keep_swept, args=(Reaper(engine), self._stopping), kwargs={"before": pool.renew, "after": tell},
            name="box-reaper", daemon=True,
        )  # fmt: skip

    def start(self) -> None:
        """Sweep, and make the first spares, both in the background."""
        self._sweeper.start()

    def acquire(self) -> Box:
        """See `Pool.acquire`."""
        return self._pool.acquire()

    def close(self) -> None:
        """Destroy the spares and let go of the engine."""
        self._stopping.set()
        self._pool.close()
        self._sweeper.join()
        self._engine.close()


def open_engine_pool(config: BoxConfig, *, tell: Callable[[Swept], None] = lambda swept: None) -> EnginePool:
    """Open this process's pool.

    Args:
        config: which engine and image.
        tell: is told, in a thread, what a sweep took away.

    Raises:
        SandboxUnavailableError: no engine, or no image (the operator's fault).
    """
    engine = open_engine(config)
    try:
        pool = EnginePool(engine, build_pool(config, engine), tell=tell)
    except BaseException:
        engine.close()
        raise
    pool.start()
    return pool

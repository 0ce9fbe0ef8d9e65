"""A process's pool of boxes on an engine, and the sweeping that goes with it. Loading it loads the engine's client."""

from __future__ import annotations

import threading
from collections.abc import Callable

from ledger.attempts import new_token
from sandbox.box import Box
from sandbox.claude_code.command import SessionPlan, arguments, environment
from sandbox.config import BoxConfig
from sandbox.docker.engine import Engine
from sandbox.pool import Pool, PooledBox, Prepare, Reaper, Swept, build_pool, keep_swept, open_engine


class EnginePool:
    """Spare boxes, and a thread that takes away what dead workers left behind."""

    def __init__(self, engine: Engine, pool: Pool, *, tell: Callable[[Swept], None]) -> None:
        self._engine = engine
        self._pool = pool
        self._stopping = threading.Event()
        self._sweeper = threading.Thread(
            target=keep_swept,
            args=(Reaper(engine), self._stopping),
            kwargs={"before": pool.renew, "after": tell},
            name="box-reaper",
            daemon=True,
        )

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


def standing_by(plan: SessionPlan) -> Prepare:
    """Return what starts the CLI in a spare, as for a session of this plan: it then waits for its order.

    Its token is known to nobody else until an attempt takes it (`bind_door`), and opens nothing before that.
    """

    def start(box: PooledBox) -> None:
        token = new_token()
        env = environment(plan, gateway_url=box.door.gateway_url, token=token)
        box.stand_by(arguments(plan, is_walled=box.is_walled), env=env, token=token)

    return start


def open_engine_pool(
    config: BoxConfig, *, tell: Callable[[Swept], None] = lambda swept: None, session: SessionPlan | None = None
) -> EnginePool:
    """Open this process's pool.

    Args:
        config: which engine and image.
        tell: is told, in a thread, what a sweep took away.
        session: what the spares get ready for, if the configuration wants that; None for no session at all.

    Raises:
        SandboxUnavailableError: no engine, or no image (the operator's fault).
    """
    engine = open_engine(config)
    prepare = standing_by(session) if session is not None and config.warm_sessions else lambda box: None
    try:
        pool = EnginePool(engine, build_pool(config, engine, prepare=prepare), tell=tell)
    except BaseException:
        engine.close()
        raise
    pool.start()
    return pool

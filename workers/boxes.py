"""A worker's boxes: a pool opened on demand, or a refusal that names the reason.

Every worker imports this module, so what loads the engine's client is imported when the first pool opens: workers of
queues without boxes never load it (H-088, H-119).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn

from ledger.attempts import new_token
from monitoring import traces
from routing.policy.services import Service
from sandbox.box import Box
from sandbox.claude_code import SessionPlan, arguments, environment
from sandbox.config import BoxConfig
from sandbox.errors import SandboxError, SandboxUnavailableError
from workers import dense

if TYPE_CHECKING:
    from sandbox.docker.engine import Engine
    from sandbox.pool import Pool, Prepare, Swept


logger = logging.getLogger(__name__)

_PATIENCE_SECONDS = 0.5
"""Between two looks at whether an attempt that waits for a place is interrupted."""


class PoolOnDemand:
    """This process's pool, opened once the engine is reachable: an engine that is away must not stop a worker.

    No more than `most` boxes are in use at once, however many jobs there are; who comes later waits.
    """

    def __init__(self, open_pool: Callable[[], EnginePool], *, most: int = 1) -> None:
        self._open_pool = open_pool
        self._places = threading.Semaphore(most)
        self._pool: EnginePool | None = None
        self._failed: tuple[float, SandboxError] = (0.0, SandboxError())
        """When it could not be opened, on the monotonic clock, and why."""
        self._lock = threading.Lock()

    def acquire(
        self, asked: Sequence[Service] = (), *, image: str | None = None, watch: Callable[[], None] = lambda: None
    ) -> Box:
        """Return an unused box, with the services beside it that are asked for; until then `watch` may raise.

        `image` is the id of its project's own image; None for the one of all boxes.

        Raises:
            SandboxUnavailableError: none can be had here (the operator's fault).
            SandboxStartupError: one could not be started as required.
            ServiceFailedError: a service did not become ready.
            SoftTimeLimit, HandBack: the attempt that waits is interrupted.
        """
        with traces.span("box open"):
            pool = self._opened()
            while not self._places.acquire(timeout=_PATIENCE_SECONDS):
                dense.check()
                watch()
            try:
                box = pool.acquire(asked, image=image, watch=watch)
                box.on_closed = self._places.release
            except BaseException:
                self._places.release()
                raise
            return box

    def prepare(self) -> None:
        """Open the pool in the background, so that the first job finds a box ready."""
        threading.Thread(target=self._try_to_open, name="box-pool-opener", daemon=True).start()

    def _try_to_open(self) -> None:
        try:
            self._opened()
        except SandboxError as error:  # the first job reports it to its owner
            logger.warning("boxes_unavailable", extra={"reason": getattr(error, "reason", type(error).__name__)})

    def _opened(self) -> EnginePool:
        asked = time.monotonic()
        with self._lock:
            at, error = self._failed
            if self._pool is None and at > asked:
                raise error  # one after the other, threads would wait for a silent engine beyond their hard limits
            try:
                self._pool = self._pool or self._open_pool()
            except SandboxError as failed:
                self._failed = (time.monotonic(), failed)
                raise
            return self._pool

    def close(self) -> None:
        """Destroy the spares. Idempotent."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()


def no_boxes() -> PoolOnDemand:
    """Return the boxes of a worker whose queues need none."""

    def refuse() -> NoReturn:
        raise SandboxUnavailableError("not_configured", "this worker serves no queue that works in boxes")

    return PoolOnDemand(refuse)


class EnginePool:
    """Spare boxes on an engine, which is closed with them, and a thread that removes what dead workers left there."""

    def __init__(self, engine: Engine, pool: Pool, *, on_swept: Callable[[Swept], None]) -> None:
        from sandbox.pool import Reaper
        from sandbox.pool import sweep_periodically as keep_swept

        self.acquire = pool.acquire
        self._engine = engine
        self._pool = pool
        self._stopping = threading.Event()
        self._sweeper = threading.Thread(  # also makes the first spares
            target=keep_swept,
            args=(Reaper(engine), self._stopping),
            kwargs={"before": pool.renew, "after": on_swept},
            name="box-reaper",
            daemon=True,
        )
        self._sweeper.start()

    def close(self) -> None:
        """Destroy the spares and disconnect from the engine."""
        self._stopping.set()
        self._pool.close()
        self._sweeper.join()
        self._engine.close()


def standby_session(plan: SessionPlan) -> Prepare:
    """Return the callback that starts the CLI in a spare box, where it waits for its prompt.

    Its token is worthless until an attempt binds it (`bind_egress`).
    """

    def start(box: Box) -> None:
        token = new_token()
        env = environment(plan, gateway_url=box.egress.gateway_url, token=token)
        box.stand_by(arguments(plan, is_walled=box.is_walled), env=env, token=token)

    return start


def open_engine_pool(
    config: BoxConfig, *, on_swept: Callable[[Swept], None] = lambda swept: None, session: SessionPlan | None = None
) -> EnginePool:
    """Open this process's pool.

    `on_swept` is called in a thread with what a sweep removed; `session` is what spares prepare for, if the
    configuration wants that.

    Raises:
        SandboxUnavailableError: no engine, or no image (the operator's fault).
    """
    from sandbox.pool import build_pool, open_engine

    engine = open_engine(config)
    prepare = standby_session(session) if session is not None and config.warm_sessions else lambda box: None
    try:
        return EnginePool(engine, build_pool(config, engine, prepare=prepare), on_swept=on_swept)
    except BaseException:
        engine.close()
        raise

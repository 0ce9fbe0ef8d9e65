"""What happens around the tasks in a prefork pool: process groups, signals, log context, dead children, stopping."""

from __future__ import annotations

import ctypes
import logging
import os
import resource
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any

import psutil
from billiard.exceptions import TimeLimitExceeded, WorkerLostError
from celery import signals
from pydantic import ValidationError
from sqlalchemy import select
from sqlmodel import Session, col

from ledger.attempts import expire_worker_leases, report_loss
from ledger.tables import Job
from monitoring import logs, traces
from routing.broker import message_dropped
from routing.jobs import JobMessage, Reason
from workers import dense
from workers.config import WorkerConfig
from workers.heartbeat import WorkerHeartbeat
from workers.lifecycle import HAND_BACK_SIGNAL, install_interrupts

logger = logging.getLogger(__name__)

LET_GO_SECONDS = 10.0
"""How long a job may take to release what it holds, above all a box, once its worker's grace is over."""
_POLL_SECONDS = 0.25
"""Between two signals: a child that is just claiming a job receives the next one."""


class GracefulStop:
    """The end of a worker's life, in its parent process.

    Celery's warm shutdown takes no new work and waits without limit; its soft and cold shutdowns ignore the ledger and
    time limits, and kill without a group (docs/pitfalls.md, 6). So SIGTERM stays warm; once the grace is over, the pool
    children are told to release their jobs, and those that do not are killed.
    """

    def __init__(self, *, grace_seconds: float, hand_back: Callable[[], None]) -> None:
        self._grace_seconds = grace_seconds
        self._hand_back = hand_back
        self._at_once = threading.Event()
        self._is_grace_over = False
        self._thread: threading.Thread | None = None
        self._pool: Any = None

    @property
    def is_grace_over(self) -> bool:
        """Whether pool children are being ended: one that dies earlier died of its job."""
        return self._is_grace_over

    def finish(self) -> None:
        """Wait until this worker's jobs are handed back. Called when the pool has ended, before the process does."""
        if self._thread is not None and self._is_grace_over:
            self._thread.join(timeout=LET_GO_SECONDS)

    def on_ready(self, sender: Any = None, **_: Any) -> None:
        """Let SIGQUIT stop without grace. Called when Celery has installed its own handlers."""
        self._pool = getattr(sender, "pool", None)
        signal.signal(signal.SIGQUIT, self._stop_at_once)

    def on_shutting_down(self, **_: Any) -> None:
        """Start the grace. Called in the main thread each time a signal tells the worker to stop."""
        for signum in (signal.SIGQUIT, signal.SIGINT):
            signal.signal(signum, self._stop_at_once)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="stopping", daemon=True)
            self._thread.start()

    def _stop_at_once(self, signum: int, frame: FrameType | None) -> None:
        self._at_once.set()
        os.kill(os.getpid(), signal.SIGTERM)

    def _run(self) -> None:
        """End the tasks that are left after the grace, and thereby the process with this thread."""
        self._at_once.wait(self._grace_seconds)
        self._is_grace_over = True
        logger.warning("grace_is_over")
        if isinstance(self._pool, dense.DensePool):
            self._pool.hand_back(LET_GO_SECONDS)
        else:
            self._end_children()
        self._hand_back()

    def _end_children(self) -> None:
        deadline = time.monotonic() + LET_GO_SECONDS
        while (children := psutil.Process().children()) and time.monotonic() < deadline:
            for child in children:
                with suppress(psutil.NoSuchProcess):
                    child.send_signal(HAND_BACK_SIGNAL)
            time.sleep(_POLL_SECONDS)
        for child in psutil.Process().children():
            logger.warning("pool_child_killed", extra={"pid": child.pid})
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)


_PR_SET_PDEATHSIG = 1


def lead_process_group() -> None:
    """Make a pool child the leader of its own group, so that the hard limit kills its children with it.

    It also dies with its parent, which alone enforces its time limits.
    """
    os.setpgrp()
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def limit_memory(kib: int) -> None:
    """Limit the memory that this process can allocate; beyond it an allocation fails (MemoryError)."""
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    limit = kib * 1024
    resource.setrlimit(resource.RLIMIT_DATA, (limit if most < 0 else min(limit, most), most))


def become_pool_child(most_memory_kib: int) -> None:
    """Call this in each process that works for a pool, right after its fork."""
    lead_process_group()
    limit_memory(most_memory_kib)


class PoolHooks:
    """The handlers of Celery's signals. Celery holds them weakly: keep this object alive."""

    def __init__(
        self,
        heartbeat: WorkerHeartbeat,
        config: WorkerConfig,
        *,
        log_level: str,
        prepare: Callable[[], None],
        close: Callable[[], None],
    ) -> None:
        self._log_level = log_level
        self._heartbeat = heartbeat
        self._worker = heartbeat.worker
        self._prepare = prepare
        self._close = close
        self._most_memory_kib = config.most_memory_kib_per_child
        self._stopping = GracefulStop(grace_seconds=config.stop_seconds, hand_back=self._hand_back)

    def connect(self) -> None:
        """Connect every handler."""
        signals.setup_logging.connect(self.on_setup_logging)
        signals.worker_process_init.connect(self.on_process_init)
        signals.worker_process_shutdown.connect(self.on_process_shutdown)
        signals.task_prerun.connect(self.on_prerun)
        signals.task_postrun.connect(self.on_postrun)
        signals.task_failure.connect(self.on_failure)
        message_dropped.connect(self._heartbeat.on_dropped)
        signals.worker_ready.connect(self._stopping.on_ready)
        signals.worker_ready.connect(self._heartbeat.on_ready)
        signals.worker_ready.connect(self.on_ready)
        signals.worker_shutting_down.connect(self._stopping.on_shutting_down)
        signals.worker_shutting_down.connect(self._heartbeat.on_shutting_down)

    def on_setup_logging(self, **_: Any) -> None:
        """Configure logging in the parent, before anything is logged."""
        logs.configure_logging(level=self._log_level)

    def on_process_init(self, **_: Any) -> None:
        """Prepare a pool child right after its fork."""
        become_pool_child(self._most_memory_kib)
        install_interrupts()
        self._prepare()

    def on_ready(self, sender: Any = None, **_: Any) -> None:
        """Limit the memory of a worker that works in threads: it has no pool child."""
        if isinstance(getattr(sender, "pool", None), dense.DensePool):
            limit_memory(self._most_memory_kib)

    def on_process_shutdown(self, **_: Any) -> None:
        """Release, at a child's end, what would outlive it."""
        self._close()
        traces.stop()  # no atexit handler runs in a pool child

    def on_prerun(self, task: Any = None, **_: Any) -> None:
        """Bind the log context before a task's body; billiard has set a pool child's signal handler by now."""
        if dense.current() is None:
            install_interrupts()
        logs.bind(worker=self._worker, task=task.name if task is not None else None)

    def on_postrun(self, **_: Any) -> None:
        """Clear the log context in the child after a task's body."""
        logs.clear()

    def on_failure(self, exception: BaseException | None = None, args: Any = (), **_: Any) -> None:
        """Report from the parent that the child which worked on a job was killed or died."""
        if not isinstance(exception, TimeLimitExceeded | WorkerLostError):
            return
        if isinstance(exception, TimeLimitExceeded):
            cause = Reason.TIME_LIMIT
        else:
            cause = Reason.WORKER_STOPPED if self._stopping.is_grace_over else Reason.WORKER_LOST
        try:
            message = JobMessage.model_validate(args[0])
        except (ValidationError, IndexError):
            return
        logger.warning("pool_child_lost", extra={"job_id": str(message.job_id), "cause": cause.value})
        self._heartbeat.tell(partial(_record_loss, message=message, worker=self._worker, cause=cause))

    def finish(self) -> None:
        """Wait for the ledger writes of a stop, and sign off."""
        self._stopping.finish()
        self._heartbeat.leave()

    def _hand_back(self) -> None:
        """Hand back every job that this worker still holds."""
        self._heartbeat.tell(lambda session: expire_worker_leases(session, self._worker))


def _record_loss(session: Session, *, message: JobMessage, worker: str, cause: Reason) -> None:
    """Record a loss, also on the job's trace: the attempt's own span died with the child."""
    report_loss(session, message, worker=worker, cause=cause)
    if traces.is_on():
        trace = session.scalar(select(col(Job.trace)).where(col(Job.id) == message.job_id))
        at = time.time()
        facts = {"pointsman.job.id": str(message.job_id), "error.type": cause.value}
        traces.past("lost", trace, began=at, ended=at, facts=facts)

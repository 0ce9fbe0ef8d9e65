"""What happens around the tasks in a prefork pool: process groups, the soft limit, log context, and dead children."""

from __future__ import annotations

import ctypes
import logging
import os
import resource
import signal
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from billiard.exceptions import TimeLimitExceeded, WorkerLostError
from celery import signals
from pydantic import ValidationError
from sqlalchemy import select
from sqlmodel import Session, col

from monitoring import logs, traces
from monitoring.ledger.attempts import hand_back_all, report_loss
from monitoring.ledger.tables import Job
from routing.jobs import JobMessage, Reason
from workers.interrupts import install_interrupts
from workers.presence import Presence
from workers.stopping import Stopping
from workers.unrouted import keep_unknown

logger = logging.getLogger(__name__)

_PR_SET_PDEATHSIG = 1


def lead_process_group() -> None:
    """Make a pool child the leader of its own group, so that the hard limit kills its children with it.

    Called in each child as it starts. The child also dies with its parent, which alone enforces its time limits.
    """
    os.setpgrp()
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def bound_memory(kib: int) -> None:
    """Bound the memory that this process may have of its own; beyond it an allocation fails (MemoryError)."""
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = kib * 1024
    resource.setrlimit(resource.RLIMIT_DATA, (wanted if most < 0 else min(wanted, most), most))


class PoolHooks:
    """Connects the fleet's rules to Celery's signals. Celery holds them weakly: keep this object alive."""

    def __init__(
        self, presence: Presence, *, log_level: str, prepare: Callable[[], None], close: Callable[[], None],
        stop_seconds: float = 0.0, most_memory_kib: int | None = None,
    ) -> None:  # fmt: skip
        self._log_level = log_level
        self._presence = presence
        self._worker = presence.worker
        self._prepare = prepare
        self._close = close
        self._most_memory_kib = most_memory_kib
        self._stopping = Stopping(grace_seconds=stop_seconds, hand_back=self._hand_back)

    def connect(self) -> None:
        """Connect every hook."""
        signals.setup_logging.connect(self.on_setup_logging)
        signals.worker_process_init.connect(self.on_process_init)
        signals.worker_process_shutdown.connect(self.on_process_shutdown)
        signals.task_prerun.connect(self.on_prerun)
        signals.task_postrun.connect(self.on_postrun)
        signals.task_failure.connect(self.on_failure)
        signals.task_unknown.connect(keep_unknown)
        signals.worker_ready.connect(self._stopping.on_ready)
        signals.worker_ready.connect(self._presence.on_ready)
        signals.worker_shutting_down.connect(self._stopping.on_shutting_down)
        signals.worker_shutting_down.connect(self._presence.on_shutting_down)

    def on_setup_logging(self, **_: Any) -> None:
        """Configure logging in the parent, before anything is logged."""
        logs.configure_logging(level=self._log_level)

    def on_process_init(self, **_: Any) -> None:
        """Prepare a pool child right after its fork."""
        lead_process_group()
        install_interrupts()
        if self._most_memory_kib is not None:
            bound_memory(self._most_memory_kib)
        self._prepare()

    def on_process_shutdown(self, **_: Any) -> None:
        """Let go, in the child and at its end, of what would outlive it."""
        self._close()
        traces.stop()  # nothing that runs at an interpreter's end runs in a pool child

    def on_prerun(self, task: Any = None, **_: Any) -> None:
        """Bind the log context in the child, before a task's body; billiard has set its own signal handler by now."""
        install_interrupts()
        logs.bind(worker=self._worker, task=task.name if task is not None else None)

    def on_postrun(self, **_: Any) -> None:
        """Drop the log context in the child, after a task's body, so that nothing leaks into the next task."""
        logs.clear()

    def on_failure(self, exception: BaseException | None = None, args: Any = (), **_: Any) -> None:
        """Tell the ledger, from the parent, that the child which worked on a job was killed or died."""
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
        self._presence.tell(partial(_tell_of_loss, message=message, cause=cause))

    def finish(self) -> None:
        """Wait for what a stop still has to tell the ledger, and sign off."""
        self._stopping.finish()
        self._presence.leave()

    def _hand_back(self) -> None:
        """Tell the ledger that nothing works any more on what this worker still holds."""
        self._presence.tell(lambda session: hand_back_all(session, self._worker))


def _tell_of_loss(session: Session, *, message: JobMessage, cause: Reason) -> None:
    """Put a loss on record, and on the job's trace: the attempt's own span died with the child."""
    report_loss(session, message, cause=cause)
    if traces.is_on():
        trace = session.scalar(select(col(Job.trace)).where(col(Job.id) == message.job_id))
        at = time.time()
        facts = {"pointsman.job.id": str(message.job_id), "error.type": cause.value}
        traces.past("lost", trace, began=at, ended=at, facts=facts)

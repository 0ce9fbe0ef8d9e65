"""The dispatcher owns waiting and recovery: it keeps the broker's runway full from the ledger, and nothing else does.

One leader by ledger lease. Woken by NOTIFY, it looks at least once a tick. Every step is idempotent and reads the
ledger, so a second dispatcher, a restart or an emptied broker needs no special handling.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Protocol

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.errors import QueryCanceled
from redis.exceptions import RedisError
from sqlalchemy.exc import InterfaceError, OperationalError, SQLAlchemyError

from monitoring.audit import seal
from monitoring.audit_heads import HeadFile, head_of
from monitoring.ledger.approvals import expire, overdue_jobs
from monitoring.ledger.attempts import effective_policy, lapsed_attempts, recover
from monitoring.ledger.events import WORK_CHANNEL
from monitoring.ledger.gates import expire_gate, overdue_gates
from monitoring.ledger.jobs import lock_job
from monitoring.ledger.money import presume_lost_calls
from monitoring.ledger.runs import unabsorbed_runs, wake_run
from monitoring.ledger.runway import Push, lead, resign, standing, top_up, unpush
from monitoring.ledger.store import SILENCE, Ledger
from producers.config import DispatcherConfig
from producers.errors import PublishError
from producers.publisher import Publisher, message_id
from producers.routing_log import RoutingLog
from producers.runway import BrokerLists
from routing.errors import PolicyError
from routing.policy import Policy
from routing.tiers import TASK_OF_QUEUE

logger = logging.getLogger(__name__)

ROLE = "dispatcher"
SEAL_SECONDS = 5.0
"""How often new rows of the audit trail are sealed at most."""


@contextmanager
def contained(what: str, **facts: Any) -> Iterator[None]:
    """Let one row or one step fail alone: it is logged and tried again next round, and all the others are done now.

    Only a ledger that is away ends the round, since then nothing else would come off either.
    """
    try:
        yield
    except (OperationalError, InterfaceError) as error:
        if not isinstance(error.orig, QueryCanceled):  # one statement waited too long, for a row that somebody holds
            raise
        logger.warning("left_for_next_round", exc_info=True, extra={"step": what, **facts})
    except Exception:
        logger.exception("left_for_next_round", extra={"step": what, **facts})


class Dispatcher:
    """One dispatcher process."""

    def __init__(
        self, ledger: Ledger, publisher: Publisher, lists: BrokerLists, *, policy: Policy, config: DispatcherConfig,
        holder: str, signing_key: bytes, routing_log: RoutingLog | None = None,
        show_lagging: Callable[[], None] | None = None, heads: HeadFile | None = None,
    ) -> None:  # fmt: skip
        self._ledger = ledger
        self._publisher = publisher
        self._lists = lists
        self._policy = policy
        self._config = config
        self._holder = holder
        self._signing_key = signing_key
        self._routing_log = routing_log
        self._show_lagging = show_lagging
        self._heads = heads

    def run_once(self) -> bool:
        """Do everything that is due now, as the leader; False while another leads."""
        with self._ledger.begin() as session:
            is_leader = lead(session, ROLE, self._holder, seconds=self._config.lease_seconds)
        if not is_leader:
            return False
        for step in (
            self._recover, self._presume, self._expire, self._wake_runs, self._look_for_missing, self._top_up,
            self._seal, self._log_routes, self._project,
        ):  # fmt: skip
            with contained(step.__name__):
                step()
        return True

    def resign(self) -> None:
        """Let another dispatcher take over at once."""
        with self._ledger.begin() as session:
            resign(session, ROLE, self._holder)

    def _recover(self) -> None:
        rules = self._policy.attempts
        silent_seconds = rules.lease_seconds - rules.lease_renew_seconds
        with self._ledger.begin() as session:
            lapsed = lapsed_attempts(session)
        for attempt in lapsed:
            with contained("recover", job_id=str(attempt.job_id)):
                with self._ledger.begin() as session:
                    recover(session, attempt, max_lost=rules.max_lost, silent_seconds=silent_seconds)
                logger.warning("attempt_recovered", extra={"job_id": str(attempt.job_id), "queue": attempt.queue})

    def _presume(self) -> None:
        with self._ledger.begin() as session:
            presume_lost_calls(session)

    def _expire(self) -> None:
        with self._ledger.begin() as session:
            overdue = overdue_jobs(session)
        for job_id in overdue:
            with contained("expire", job_id=str(job_id)), self._ledger.begin() as session:
                expire(session, job_id)
        with self._ledger.begin() as session:
            late_gates = overdue_gates(session)
        for gate_id in late_gates:
            with contained("expire_gate", gate_id=str(gate_id)), self._ledger.begin() as session:
                expire_gate(session, gate_id)

    def _wake_runs(self) -> None:
        """Let runs whose steps have settled wait for a worker again: no worker waits for another."""
        with self._ledger.begin() as session:
            settled = unabsorbed_runs(session)
        for run_id in settled:
            with contained("wake_run", run_id=str(run_id)), self._ledger.begin() as session:
                wake_run(session, lock_job(session, run_id))

    def _look_for_missing(self) -> None:
        for queue in TASK_OF_QUEUE:
            with self._ledger.begin() as session:
                expected = standing(session, queue, older_than_seconds=self._config.missing_after_seconds)
            if not expected:
                continue
            try:
                present = self._lists.message_ids(queue)
            except RedisError:
                logger.warning("broker_unreachable")
                return
            missing = [push for push in expected if message_id(push) not in present]
            if missing:
                logger.warning("messages_missing", extra={"queue": queue.value, "count": len(missing)})
                with self._ledger.begin() as session:
                    unpush(session, missing)

    def _top_up(self) -> None:
        for queue in TASK_OF_QUEUE:
            with self._ledger.begin() as session:
                pushes = top_up(session, queue, runway=self._policy.runway)
            for position, push in enumerate(pushes):
                if not self._push(push):
                    with self._ledger.begin() as session:
                        unpush(session, pushes[position:])
                    return

    def _push(self, push: Push) -> bool:
        try:
            with self._ledger.begin() as session:
                limits = effective_policy(session, push.tenant, self._policy).queues[push.queue]
        except PolicyError:
            limits = self._policy.queues[push.queue]  # the claim ends the job and says why
        try:
            self._publisher.push(push, limits=limits)
        except PublishError:
            logger.warning("broker_unreachable")
            return False
        return True

    def _seal(self) -> None:
        with self._ledger.begin() as session:
            made = seal(session, signing_key=self._signing_key, every_seconds=SEAL_SECONDS)
        if made is not None:
            logger.info("audit_sealed", extra={"head": head_of(made), "rows": made.rows})
            if self._heads is not None:
                self._heads.keep(head_of(made))

    def _log_routes(self) -> None:
        if self._routing_log is not None:
            self._routing_log.write_pending()

    def _project(self) -> None:
        if self._show_lagging is not None:
            self._show_lagging()


class DispatcherLoop:
    """Runs a dispatcher until it is told to stop; a failing ledger or broker is waited for."""

    def __init__(self, dispatcher: Dispatcher, *, ledger_url: str, config: DispatcherConfig) -> None:
        self._dispatcher = dispatcher
        self._ledger_url = ledger_url
        self._config = config
        self._stopping = threading.Event()

    def stop(self, signum: int = 0, frame: FrameType | None = None) -> None:
        """Stop after the current round."""
        self._stopping.set()

    def run(self) -> None:
        """Run until stopped by SIGTERM or SIGINT."""
        signal.signal(signal.SIGTERM, self.stop)
        signal.signal(signal.SIGINT, self.stop)
        while not self._stopping.is_set():
            try:
                self._listen()
            except (psycopg.Error, SQLAlchemyError):
                logger.warning("ledger_unreachable", exc_info=True)
                self._stopping.wait(self._config.tick_seconds)
        try:
            self._dispatcher.resign()
        except SQLAlchemyError:
            logger.warning("ledger_unreachable")

    def _listen(self) -> None:
        with psycopg.connect(
            make_conninfo(self._ledger_url, **SILENCE), autocommit=True, connect_timeout=5
        ) as connection:
            connection.execute(f"LISTEN {WORK_CHANNEL}".encode())
            while not self._stopping.is_set():
                self._dispatcher.run_once()
                for _ in connection.notifies(timeout=self._config.tick_seconds, stop_after=1):
                    pass


class Deliverer(Protocol):
    """Sends what the ledger owes somebody outside."""

    def deliver_due(self, *, limit: int = 20) -> int:
        """Send what is due; returns how much was tried."""


def deliver(sender: Deliverer, stopping: threading.Event, *, tick_seconds: float) -> None:
    """Deliver what is owed until told to stop: in a thread, since a slow receiver must hold up nothing.

    One at a time, so that a stop waits for one receiver at most.
    """
    while not stopping.wait(tick_seconds):
        try:
            with contained(type(sender).__name__):
                while not stopping.is_set() and sender.deliver_due(limit=1):
                    pass
        except SQLAlchemyError:
            logger.warning("ledger_unreachable")

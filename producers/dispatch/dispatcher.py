"""The dispatcher owns waiting and recovery: it alone fills the broker's dispatch window from the ledger.

One leader by ledger lease. Each tick it does everything that is due; between ticks NOTIFY wakes it for what cannot
wait. Every step is idempotent and reads the ledger, so a second dispatcher, a restart, a missed wake-up or an emptied
broker needs no special handling.
"""

from __future__ import annotations

import logging
import math
import signal
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from select import select
from types import FrameType
from typing import NamedTuple, TypeVar

import psycopg
from psycopg.conninfo import make_conninfo
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError
from sqlmodel import Session

from ledger.attempts import expire_waiting, find_lapsed_attempts, policy_under, recover, stale_jobs
from ledger.audit import HeadFile, head_of, seal
from ledger.dispatch_window import (
    RELEASED_AT_ONCE,
    Push,
    Work,
    look,
    pushed_jobs,
    release_due,
    release_sites,
    top_up,
    unmark_pushed,
)
from ledger.job_control import expire, overdue_jobs
from ledger.jobs import lock_job
from ledger.money import presume_lost_calls
from ledger.operations.audit_archive import Archive, archive_old
from ledger.operations.leaders import DISPATCHER, lead, resign
from ledger.operations.workers import sweep_workers
from ledger.runs.run import expire_gate, overdue_gates
from ledger.runs.steps import find_unmerged_runs, wake_run
from ledger.store import SILENCE, WORK_CHANNEL, Ledger
from ledger.submission import count_backlog
from ledger.tables import Attempt
from monitoring.heartbeat import beat
from producers.config import DispatcherConfig
from producers.dispatch.broker import BrokerLists, Publisher, message_id
from producers.dispatch.containment import contained
from producers.dispatch.sweeping import RowSweeper
from producers.errors import LeadLostError, PublishError
from producers.use_cases.routing_log import RoutingLog
from routing.errors import PolicyError
from routing.policy.platform import Policy
from routing.queues import Limits, QueueName
from routing.scheduling import is_low, seconds_to_low

logger = logging.getLogger(__name__)

SEAL_SECONDS = 5.0
"""The shortest time between two seals of the audit trail."""
COUNT_SECONDS = 5.0
"""The shortest time between two counts of waiting jobs."""
BATCH = 100
"""Rows that one step takes at a time; a full batch makes the next round begin at once."""
_WAIT_FOR_ROW = text("SET LOCAL lock_timeout = '500ms'")
"""A worker frozen in a transaction holds its job's row: it must not delay a round beyond the leader's lease."""
ItemT = TypeVar("ItemT")
REST_SECONDS = 0.01
"""The shortest pause between two woken rounds: what happens meanwhile is handled together."""
LONGEST_REST_SECONDS = 0.05
"""The longest pause, where jobs wait for a window that is far from low."""


class _Filled(NamedTuple):
    """The recent high-water mark of a dispatch window."""

    jobs: int
    at: float
    """Monotonic seconds."""


@dataclass(eq=False)
class Dispatcher:
    """One dispatcher process."""

    ledger: Ledger
    publisher: Publisher
    lists: BrokerLists
    policy: Policy
    config: DispatcherConfig
    holder: str
    signing_key: bytes
    routing_log: RoutingLog | None = None
    show_lagging: Callable[[], None] | None = None
    archive: Archive | None = None
    heads: HeadFile | None = None

    def __post_init__(self) -> None:
        self._sweeper = RowSweeper(self.ledger, self.policy.retention, rest_seconds=self.config.sweep_seconds)
        bounds = {queue: limits.wait_seconds for queue, limits in self.policy.queues.items()}
        self._wait_seconds = {queue: seconds for queue, seconds in bounds.items() if seconds is not None}
        self._next = dict.fromkeys((self._count, self._seal, self._archive_audit), -math.inf)
        self._renewed_at = 0.0
        self._answered_at = time.monotonic()
        self._back_at = -math.inf
        self._rounds = 0
        self._filled: dict[QueueName, _Filled] = {}
        self.has_more = False
        """Whether the last round left work that is already due."""
        self.rest_seconds = REST_SECONDS
        """How long to pause after a woken round, so that many ends in a row are handled together."""

    def run_once(self) -> bool:
        """Do everything that is due now; False if this process is not, or no longer, the leader."""
        periodic = (
            self._every(COUNT_SECONDS, self._count),
            self._every(SEAL_SECONDS, self._seal),
            self._log_routes,
            self._project,
            self._sweep_rows,
            self._every(self.config.sweep_seconds, self._archive_audit),
        )
        return self._run(self._follow_time, *filter(None, periodic), at_once=True)

    def run_woken(self) -> bool:
        """Do only what must not wait for the next tick; returns as `run_once`."""
        return self._run(self._follow_news)

    def _run(self, *steps: Callable[[], None], at_once: bool = False) -> bool:
        self.has_more = False
        try:
            self._stay_leader(at_once=at_once)
            self._take(steps)
        except LeadLostError:
            return False
        return True

    def _take(self, steps: Iterable[Callable[[], None]]) -> None:
        for step in steps:
            with contained(step.__name__):
                step()
            self._stay_leader()

    def _stay_leader(self, *, at_once: bool = False) -> None:
        """Renew the lease well before it lapses, however long a round takes.

        Raises:
            LeadLostError: nobody's fault: another process leads and does what this round leaves undone.
        """
        if not at_once and time.monotonic() - self._renewed_at < self.config.lease_seconds / 3:
            return
        asked_at = time.monotonic()
        with self.ledger.look() as connection:
            is_leader = lead(connection, DISPATCHER, self.holder, seconds=self.config.lease_seconds)
        self._note_answer()
        if not is_leader:
            raise LeadLostError
        self._renewed_at = asked_at

    def _note_answer(self) -> None:
        """Note that the ledger is back when it was away for so long that leases may have run out meanwhile."""
        rules, before = self.policy.attempts, self._answered_at
        self._answered_at = time.monotonic()
        if self._answered_at - before > rules.lease_seconds - 2 * rules.lease_renew_seconds:
            logger.warning("ledger_is_back", extra={"seconds": round(self._answered_at - before, 1)})
            self._back_at = self._answered_at

    def _every(self, seconds: float, step: Callable[[], None]) -> Callable[[], None] | None:
        """Return a step if it is due again; one that fails rests as long as one that succeeds."""
        if time.monotonic() < self._next[step]:
            return None
        self._next[step] = time.monotonic() + seconds
        return step

    def _each(self, what: str, items: Sequence[ItemT], do: Callable[[Session, ItemT], object]) -> None:
        """Handle each item in a transaction of its own; one that fails is left for the next round."""
        done = 0
        for item in items:
            self._stay_leader()
            with contained(what, item=str(getattr(item, "job_id", item))):
                with self.ledger.begin() as session:
                    session.execute(_WAIT_FOR_ROW)
                    do(session, item)
                done += 1
        self.has_more |= len(items) >= BATCH and done > 0

    def resign(self) -> None:
        """Give up the lease, so that another dispatcher takes over at once."""
        with self.ledger.begin() as session:
            resign(session, DISPATCHER, self.holder)

    def _recover(self) -> None:
        rules = self.policy.attempts
        silent_seconds = rules.lease_seconds - rules.lease_renew_seconds
        is_just_back = time.monotonic() - self._back_at < rules.lease_seconds
        with self.ledger.begin() as session:
            lapsed = find_lapsed_attempts(session, limit=BATCH, only_reported=is_just_back)

        def recover_attempt(session: Session, attempt: Attempt) -> None:
            recover(
                session,
                attempt,
                max_lost=rules.max_lost,
                silent_seconds=silent_seconds,
                pauses=self.policy.pauses.lost_worker,
                back_seconds=time.monotonic() - self._back_at,
                lease_seconds=rules.lease_seconds,
            )
            logger.warning("attempt_recovered", extra={"job_id": str(attempt.job_id), "queue": attempt.queue})

        self._each("recover", lapsed, recover_attempt)

    def _presume(self) -> None:
        with self.ledger.begin() as session:
            self.has_more |= presume_lost_calls(session, limit=BATCH) >= BATCH

    def _expire(self) -> None:
        with self.ledger.begin() as session:
            overdue = overdue_jobs(session, limit=BATCH)
        self._each("expire", overdue, expire)
        with self.ledger.begin() as session:
            late_gates = overdue_gates(session, limit=BATCH)
        self._each("expire_gate", late_gates, expire_gate)

    def _expire_waiting(self) -> None:
        """End jobs that no worker claimed within their queue's wait limit."""
        bounds = self._wait_seconds
        with self.ledger.begin() as session:
            stale = stale_jobs(session, bounds, limit=BATCH)
        self._each(
            "expire_waiting",
            stale,
            lambda session, job: expire_waiting(session, job.job_id, job.queue, wait_seconds=bounds[job.queue]),
        )

    def _wake_runs(self) -> None:
        """Queue runs whose steps have settled: no worker waits for another."""
        with self.ledger.begin() as session:
            settled = find_unmerged_runs(session, limit=BATCH)
        self._each("wake_run", settled, lambda session, run_id: wake_run(session, lock_job(session, run_id)))

    def _release_waiting(self) -> None:
        """Release jobs whose start time has come or whose site is free."""
        for release in (release_due, release_sites):
            with self.ledger.begin() as session:
                self.has_more |= len(release(session)) >= RELEASED_AT_ONCE

    def _follow_news(self) -> None:
        """Do what has become due since the last look; most of the time that is nothing."""
        work = self._do_due(self._look())
        self.rest_seconds = self._time_to_rest(work)
        ready = work.ready.items()
        self._top_up({queue: count for queue, count in ready if is_low(count, highest=self._filled[queue].jobs)})

    def _follow_time(self) -> None:
        """Do what news or time have made due, take back messages lost by the broker, and fill the windows."""
        work = self._do_due(self._look(wait_seconds=self._wait_seconds))
        regained = self._look_for_missing(work.pushed, seconds=self.config.missing_after_seconds)
        self._top_up(
            {queue: work.ready.get(queue, 0) for queue in QueueName if queue in work.ready or queue in regained}
        )

    def _do_due(self, work: Work) -> Work:
        """Do what a look found due, and return what is left to push."""
        due = [
            step
            for is_due, step in (
                (work.has_lapsed, self._recover),
                (work.has_lost_calls, self._presume),
                (work.has_expired, self._expire),
                (work.has_stale, self._expire_waiting),
                (work.has_settled, self._wake_runs),
                (work.has_held, self._release_waiting),
            )
            if is_due
        ]
        self._take(due)
        return self._look() if due else work

    def _look(self, wait_seconds: Mapping[QueueName, float] | None = None) -> Work:
        with self.ledger.look() as connection:
            work = look(connection, older_than_seconds=self.config.missing_after_seconds, wait_seconds=wait_seconds)
        for queue, count in work.ready.items():
            if count >= self._filled.get(queue, _Filled(0, 0.0)).jobs:
                self._filled[queue] = _Filled(count, time.monotonic())
        return work

    def _time_to_rest(self, work: Work) -> float:
        """Return how long no window can run low for which jobs wait."""
        now, filled = time.monotonic(), self._filled
        times = [
            seconds_to_low(count, highest=filled[queue].jobs, seconds=now - filled[queue].at)
            for queue, count in work.ready.items()
        ]
        return min(LONGEST_REST_SECONDS, max(REST_SECONDS, min(times, default=0.0)))

    def _look_for_missing(self, queues: Sequence[QueueName], *, seconds: float) -> set[QueueName]:
        """Return the queues that lost messages; their jobs wait again."""
        regained: set[QueueName] = set()
        for queue in queues:
            self._stay_leader()
            with contained("look_for_missing", queue=queue.value):
                missing = self._unpush_missing(queue, seconds=seconds)
                if missing is None:
                    break
                if missing:
                    regained.add(queue)
        return regained

    def _unpush_missing(self, queue: QueueName, *, seconds: float) -> int | None:
        """Take back the jobs whose messages a queue's list lacks; returns how many, or None if the broker is away."""
        with self.ledger.begin() as session:
            expected = pushed_jobs(session, queue, older_than_seconds=seconds)
        try:
            present = self.lists.message_ids(queue, window=self.policy.dispatch_window.per_queue)
        except (RedisConnectionError, RedisTimeoutError):
            logger.warning("broker_unreachable")
            return None
        missing = [push for push in expected if message_id(push) not in present]
        if missing:
            logger.warning("messages_missing", extra={"queue": queue.value, "count": len(missing)})
            with self.ledger.begin() as session:
                session.execute(_WAIT_FOR_ROW)
                unmark_pushed(session, missing, older_than_seconds=seconds)
        return len(missing)

    def _top_up(self, standing: Mapping[QueueName, int]) -> None:
        """Fill windows, starting with another queue each round: one that cannot be pushed to delays no other.

        If a second queue fails as well the broker is away, and each further try would only cost its timeout. `standing`
        are the jobs in each window.
        """
        self._rounds += 1
        queues, failed = list(standing), 0
        for place in range(len(queues)):
            with contained("top_up", queue=(queue := queues[(place + self._rounds) % len(queues)]).value):
                failed += not self._fill(queue, standing[queue])
            if failed > 1:
                return

    def _fill(self, queue: QueueName, standing_now: int) -> bool:
        """Push the next jobs of one queue; False when the broker did not take them."""
        with self.ledger.begin() as session:
            pushes = top_up(
                session, queue, dispatch_window=self.policy.dispatch_window, admission=self.policy.admission
            )
        self._filled[queue] = _Filled(standing_now + len(pushes), time.monotonic())
        if not pushes:
            return True
        try:
            self._stay_leader()
            limits = {tenant: self._limits(push) for tenant, push in {push.tenant: push for push in pushes}.items()}
            self.publisher.push_all([(push, limits[push.tenant]) for push in pushes])
        except (PublishError, LeadLostError) as error:
            with self.ledger.begin() as session:
                unmark_pushed(session, pushes)  # a copy of what got through is refused at the claim
            if isinstance(error, LeadLostError):
                raise
            logger.warning("push_failed", extra={"queue": queue.value})
            return False
        return True

    def _limits(self, push: Push) -> Limits:
        try:
            return policy_under(push.overrides, push.tenant, self.policy).queues[push.queue]
        except PolicyError:
            return self.policy.queues[push.queue]  # the claim ends the job and says why

    def _count(self) -> None:
        with self.ledger.begin() as session:
            count_backlog(session)
            sweep_workers(session)

    def _seal(self) -> None:
        with self.ledger.begin() as session:
            made = seal(session, signing_key=self.signing_key)
        if made is not None:
            logger.info("audit_sealed", extra={"head": head_of(made), "rows": made.rows})
            if self.heads is not None:
                self.heads.keep(head_of(made))

    def _log_routes(self) -> None:
        if self.routing_log is not None:
            self.routing_log.write_pending()

    def _sweep_rows(self) -> None:
        """Delete old rows for a fraction of a second, so that nothing else has to wait."""
        self._sweeper.run()

    def _archive_audit(self) -> None:
        """Move old rows of the audit trail into the archive; without one they stay in the ledger."""
        if self.archive is None:
            return
        with self.ledger.begin() as session:
            moved = archive_old(
                session, self.archive, signing_key=self.signing_key, days=self.policy.retention.audit_days
            )
        if moved:
            logger.info("audit_archived", extra={"rows": moved})
            self._next[self._archive_audit] = -math.inf

    def _project(self) -> None:
        if self.show_lagging is not None:
            self.show_lagging()


_BEAT_SECONDS = 5.0


@dataclass(eq=False)
class DispatcherLoop:
    """Runs a dispatcher until it is stopped; waits while ledger or broker is away."""

    dispatcher: Dispatcher
    ledger_url: str
    config: DispatcherConfig
    _stopping: threading.Event = field(default_factory=threading.Event, init=False)
    _beat_at: float = field(default=-math.inf, init=False)

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
                self._stopping.wait(self.config.tick_seconds)
        try:
            self.dispatcher.resign()
        except SQLAlchemyError:
            logger.warning("ledger_unreachable")

    def _listen(self) -> None:
        with psycopg.connect(
            make_conninfo(self.ledger_url, **SILENCE), autocommit=True, connect_timeout=5
        ) as connection:
            connection.execute(f"LISTEN {WORK_CHANNEL}".encode())
            is_leader, tick_at = False, -math.inf
            while not self._stopping.is_set():
                began = time.monotonic()
                if is_leader and began < tick_at:
                    is_leader = self.dispatcher.run_woken()
                    self._stopping.wait(self.dispatcher.rest_seconds)
                else:
                    is_leader, tick_at = self.dispatcher.run_once(), began + self.config.tick_seconds
                self._beat()
                if self.dispatcher.has_more:
                    tick_at = began
                self._rest(connection, max(0.0, tick_at - time.monotonic()), is_leader=is_leader)

    def _rest(self, connection: psycopg.Connection, seconds: float, *, is_leader: bool) -> None:
        """Wait, the leader only until it is woken, and read all notifications at once.

        psycopg's own wait looks up ten times a second.
        """
        if is_leader:
            select([connection], [], [], seconds)
        else:
            self._stopping.wait(seconds)
        for _ in connection.notifies(timeout=0):
            pass

    def _beat(self) -> None:
        """Write the heartbeat; a full disk must not stop the dispatcher."""
        if self.config.heartbeat is None or time.monotonic() - self._beat_at < _BEAT_SECONDS:
            return
        self._beat_at = time.monotonic()
        with suppress(OSError):
            beat(self.config.heartbeat)

"""Delete old rows of the ledger, a session or a run always as a whole.

A pass goes page by page through an index, for a fraction of a second at a time: what has to stay (the provenance of a
release that still has files, an open dead letter) costs one look per pass. Events go by the partition, after they are
in the metrics (`ledger.operations.partitions`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy.exc import DBAPIError
from sqlmodel import Session

from ledger.operations.partitions import tend
from ledger.store import Ledger, Statement
from monitoring.event_metrics import fold_step
from routing.jobs import Reason
from routing.policy.platform import Retention
from routing.queues import QueueName

_FOLDED = Statement("SELECT xid FROM rollup_mark WHERE id = 1")
_ENDED = Statement("""
    SELECT id, root_id, ended_at FROM job
     WHERE ended_at < (SELECT clock_timestamp() - make_interval(secs => %(seconds)s))
       AND ended_at >= %(at)s AND (ended_at, id) > (%(at)s, %(id)s)
     ORDER BY ended_at, id LIMIT %(limit)s
""")

_ON_BILLS = "(job.id = ANY(%(roots)s) OR job.root_id = ANY(%(roots)s) AND job.root_id <> job.id)"
"""As `tables.on_bill`."""

_LOCK = Statement(f"SELECT id, root_id FROM job WHERE {_ON_BILLS} ORDER BY id FOR UPDATE SKIP LOCKED")

_MEMBERS = Statement(f"SELECT root_id, count(*) FROM job WHERE {_ON_BILLS} GROUP BY root_id")

# A release that still has files is needed: to be shown, rolled back to, or continued. So is the newest of the refused
# uploads that are all that came to a site, by which that is known (`ledger.releases.came_to_nothing`).
_NEEDED = Statement(f"""
    SELECT DISTINCT job.root_id FROM job
     WHERE {_ON_BILLS} AND (
        job.ended_at IS NULL
        OR job.ended_at >= clock_timestamp() - make_interval(secs => %(seconds)s)
        OR (job.failure_signature IS NOT NULL AND job.dismissed_at IS NULL
            AND job.ended_at >= clock_timestamp() - make_interval(secs => %(dead_seconds)s))
        OR EXISTS (SELECT FROM site WHERE site.lock_job_id = job.id)
        OR (job.reason = %(refused)s
            AND EXISTS (SELECT FROM site WHERE site.id = job.site_id AND site.active_release_id IS NULL)
            AND NOT EXISTS (SELECT FROM job AS other WHERE other.site_id = job.site_id AND other.id <> job.id
                               AND (other.reason IS DISTINCT FROM %(refused)s
                                    OR (other.created_at, other.id) > (job.created_at, job.id))))
        OR EXISTS (SELECT FROM notification AS note
                    WHERE note.job_id = job.id AND note.delivered_at IS NULL AND note.next_at IS NOT NULL)
        OR EXISTS (SELECT FROM notice
                    WHERE notice.job_id = job.id AND notice.delivered_at IS NULL AND notice.next_at IS NOT NULL)
        OR EXISTS (SELECT FROM ticket_note AS note
                    WHERE note.run_id = job.id AND note.delivered_at IS NULL AND note.next_at IS NOT NULL)
        OR EXISTS (SELECT FROM call WHERE call.job_id = job.id AND call.state = 'reserved')
        OR EXISTS (SELECT FROM release JOIN site ON site.id = release.site_id
                     LEFT JOIN release AS active ON active.id = site.active_release_id
                    WHERE release.job_id = job.id AND (release.swept_at IS NULL
                          OR release.id IN (site.active_release_id, site.shown_release_id, active.base_release_id)
                          OR EXISTS (SELECT FROM job AS live WHERE live.site_id = site.id AND live.ended_at IS NULL
                                        AND release.id IN (live.release_id, live.base_release_id,
                                                           live.start_release_id))))
     )
""")

_CAPS = Statement("""
    DELETE FROM cap USING unnest(CAST(%(scopes)s AS text[]), CAST(%(keys)s AS text[])) AS gone (scope, key)
     WHERE cap.scope = gone.scope AND cap.key = gone.key
""")

# Rows that belong to no job. Each statement is bounded and runs once per pass. Scalar subqueries look up what a swept
# release needs: joins would read all jobs and releases to find the few.
_ODDMENTS = (
    Statement("""
        DELETE FROM cap WHERE (scope, key) IN (
            SELECT scope, key FROM cap WHERE scope IN ('tenant_day', 'key_day', 'fleet_day') AND reserved_nanousd = 0
               AND right(key, 10) < to_char(timezone('UTC', clock_timestamp() - make_interval(secs => %(seconds)s)),
                                            'YYYY-MM-DD') LIMIT %(limit)s)
    """),
    Statement("""
        DELETE FROM orphan_call WHERE id IN (
            SELECT id FROM orphan_call WHERE booked_at < clock_timestamp() - make_interval(secs => %(seconds)s)
             LIMIT %(limit)s)
    """),
    Statement("""
        DELETE FROM recorded_call WHERE id IN (
            SELECT id FROM recorded_call WHERE expires_at < clock_timestamp() LIMIT %(limit)s)
    """),
    Statement("""
        DELETE FROM task_failure WHERE key IN (
            SELECT key FROM task_failure WHERE updated_at < clock_timestamp() - make_interval(secs => %(seconds)s)
             LIMIT %(limit)s)
    """),
    Statement("""
        DELETE FROM provider_circuit
         WHERE greatest(changed_at, filled_at) < clock_timestamp() - make_interval(secs => %(seconds)s)
           AND coalesce(open_until, '-infinity') < clock_timestamp()
    """),
    Statement("""
        DELETE FROM backlog WHERE waiting = 0 AND counted_at < clock_timestamp() - make_interval(secs => %(seconds)s)
    """),
    Statement("""
        DELETE FROM release WHERE id IN (
            SELECT release.id FROM release JOIN site ON site.id = release.site_id
             WHERE release.swept_at < (SELECT clock_timestamp() - make_interval(secs => %(seconds)s))
               AND (SELECT job.id FROM job WHERE job.id = release.job_id) IS NULL
               AND release.id IS DISTINCT FROM site.active_release_id
               AND release.id IS DISTINCT FROM site.shown_release_id
               AND release.id IS DISTINCT FROM
                   (SELECT active.base_release_id FROM release AS active WHERE active.id = site.active_release_id)
               AND NOT EXISTS (SELECT FROM job WHERE job.site_id = site.id
                                  AND release.id IN (job.release_id, job.base_release_id, job.start_release_id))
             LIMIT %(limit)s)
    """),
)

logger = logging.getLogger(__name__)

ROUND_SECONDS = 0.25
"""After this time a round leaves the rest to the next."""
REST_SECONDS = 60.0
"""The pause after a whole pass."""
_PAGE_JOBS = 200
_PAGE_SHRINKS = (1, 20, 200, 2_000)
"""A failing page is tried again in ever smaller pages, and skipped when the smallest fails."""
_PAGES_OF_A_SIZE = 20
"""After this many successful pages the next ones are larger again."""
_FOLDS = 20
_ODD_ROWS = 5_000

CHAIN_TABLES = (
    ("ticket_note", "run_id"),
    ("review_comment", "root_id"),
    ("gate", "run_id"),
    ("agent_executions", "run_id"),
    ("run_step", "run_id"),
    ("run", "job_id"),
    ("recorded_call", "job_id"),
    ("call", "job_id"),
    ("attempt", "job_id"),
    ("approval", "job_id"),
    ("debate", "job_id"),
    ("notice_delivery", "job_id"),
    ("notice", "job_id"),
    ("delivery", "job_id"),
    ("notification", "job_id"),
    ("release", "job_id"),
    ("job", "id"),
)
"""Tables that belong to jobs, each with its column, in the order of deletion."""


class Swept(NamedTuple):
    """What one round deleted."""

    jobs: int
    partitions: int
    """Of events."""
    is_done: bool
    """Whether it completed a pass."""


class _JobMark(NamedTuple):
    at: datetime
    id: UUID


_BEGINNING = _JobMark(datetime.fromisoformat("0001-01-01T00:00:00+00:00"), UUID(int=0))


@dataclass(eq=False)
class RowSweeper:
    """Sweeps one ledger; keeps in memory only how far a pass has come."""

    ledger: Ledger
    rules: Retention
    clock: Callable[[], float] = time.monotonic
    """Monotonic seconds."""
    rest_seconds: float = REST_SECONDS
    """Between two passes."""
    _rests_until: float = field(default=-float("inf"), init=False)
    _job_mark: _JobMark = field(default=_BEGINNING, init=False)
    _jobs_done: bool = field(default=False, init=False)
    _shrunk: int = field(default=0, init=False)  # how often the page size was reduced
    _good: int = field(default=0, init=False)  # successful pages since then

    def run(self, *, seconds: float = ROUND_SECONDS) -> Swept:
        """Sweep for at most this long, give or take one page."""
        until = self.clock() + seconds
        jobs = partitions = 0
        if self.clock() < self._rests_until:
            return Swept(0, 0, is_done=True)
        self._rests_until = self.clock() + self.rest_seconds  # unless this round succeeds
        while not self._jobs_done and self.clock() < until:
            jobs += self._sweep_page()
        is_done = self._jobs_done
        if is_done:
            self._jobs_done = False
            self._sweep_oddments()
            partitions = tend(self.ledger, keep_seconds=_seconds(self.rules.days_of_events), mark=self._fold())
            self._rests_until = self.clock() + self.rest_seconds
        else:
            self._rests_until = -float("inf")
        if jobs or partitions:
            logger.info("rows_swept", extra={"jobs": jobs, "partitions": partitions})
        return Swept(jobs, partitions, is_done)

    def _fold(self) -> int:
        """Add pending events to the metrics; returns the transaction number below which all of them are."""
        for _ in range(_FOLDS):
            with self.ledger.begin() as session:
                if fold_step(session).is_done:
                    break
        with self.ledger.begin() as session:
            return int(_FOLDED.scalar(session) or 0)

    def _limit(self, page: int) -> int:
        return max(1, page // _PAGE_SHRINKS[min(self._shrunk, len(_PAGE_SHRINKS) - 1)])

    @contextmanager
    def _tried(self) -> Iterator[bool]:
        """Shrink the next pages if this one fails; yields False when the smallest has to be skipped."""
        shrunk, good = self._shrunk, self._good
        is_worth_it = shrunk < len(_PAGE_SHRINKS)
        self._shrunk, self._good = min(shrunk + 1, len(_PAGE_SHRINKS)), 0
        yield is_worth_it
        self._shrunk, self._good = shrunk, good + 1
        if not is_worth_it:
            logger.error("sweep_passed_over", extra={"jobs_from": self._job_mark})
        if not is_worth_it or (self._shrunk and self._good >= _PAGES_OF_A_SIZE):
            self._shrunk -= 1
            self._good = 0

    def _sweep_page(self) -> int:
        limit = self._limit(_PAGE_JOBS)
        with self._tried() as is_worth_it, self.ledger.begin() as session:
            bounds = {"seconds": _seconds(self.rules.job_days), **self._job_mark._asdict(), "limit": limit}
            page = _ENDED.all(session, bounds)
            roots = sorted({root for _, root, _ in page})
            gone = self._sweep_chains(session, roots) if roots and is_worth_it else 0
        self._jobs_done = len(page) < limit
        self._job_mark = _BEGINNING if self._jobs_done else _JobMark(page[-1][2], page[-1][0])
        return gone

    def _sweep_chains(self, session: Session, roots: Sequence[UUID]) -> int:
        """Delete those of some sessions and runs that nobody holds locked and nothing needs."""
        locked = _LOCK.all(session, {"roots": roots})
        held: dict[UUID, list[UUID]] = {}
        for job_id, root in locked:
            held.setdefault(root, []).append(job_id)
        members = {root: count for root, count in _MEMBERS.all(session, {"roots": roots})}
        whole = [root for root in held if len(held[root]) == members[root]]
        facts: dict[str, Any] = {
            "roots": whole,
            "seconds": _seconds(self.rules.job_days),
            "dead_seconds": _seconds(self.rules.dead_letter_days),
            "refused": Reason.UPLOAD_REFUSED.value,
        }
        needed = set(_NEEDED.scalars(session, facts))
        free = [root for root in whole if root not in needed]
        ids = [job_id for root in free for job_id in held[root]]
        if ids:
            _remove(session, ids, roots=free)
        return len(ids)

    def _sweep_oddments(self) -> None:
        for statement in _ODDMENTS:
            try:
                with self.ledger.begin() as session:
                    statement.all(session, {"seconds": _seconds(self.rules.job_days), "limit": _ODD_ROWS})
            except DBAPIError as error:
                if error.connection_invalidated:
                    raise
                logger.exception("sweep_passed_over")  # the others still run


def _remove(session: Session, ids: Sequence[UUID], *, roots: Sequence[UUID]) -> None:
    caps = [("job", str(root)) for root in roots]
    caps += [("tier", f"{job_id}/{queue.value}") for job_id in ids for queue in QueueName]
    _CAPS.all(session, {"scopes": [scope for scope, _ in caps], "keys": [key for _, key in caps]})
    for table, column in CHAIN_TABLES:
        Statement(f"DELETE FROM {table} WHERE {column} = ANY(%(ids)s)").all(session, {"ids": list(ids)})


def _seconds(days: float) -> float:
    return days * 86_400.0

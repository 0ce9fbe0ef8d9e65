"""Give up files that nothing on record needs any more, every few hours: of releases and drafts, and runs' workspaces.

It runs in a thread of the dispatcher, since a large disk is slow and nothing may wait for it; by a lease of the ledger
one process does it at a time. The ledger says what is needed, and only what is old enough goes.
"""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError
from sqlmodel import col

from monitoring.ledger.dispatch_window import lead
from monitoring.ledger.releases import all_sites
from monitoring.ledger.store import Ledger
from monitoring.ledger.tables import Job
from producers.dispatcher import contained
from producers.garbage import collect_garbage
from routing.policy import Policy
from sandbox.den import Den

logger = logging.getLogger(__name__)

ROLE = "housekeeper"
FIRST_SECONDS = 600.0
"""The first time comes so long after the start at the latest, the next one so long after a failure."""
_LEASE_SECONDS = 1800.0
_PAGE = 500
_DOOMED = ".swept-"
_ACTOR = "pointsman"


class Housekeeper:
    """Looks after one installation's files.

    Args:
        ledger: says what is needed.
        den: holds the files of releases.
        policy: says how long what is kept.
        runs_root: holds the workspaces of runs.
        holder: names this process.
        clock: seconds since the epoch, as the file systems count them.
    """

    def __init__(
        self, ledger: Ledger, den: Den, policy: Policy, *, runs_root: Path, holder: str,
        clock: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        self._ledger = ledger
        self._den = den
        self._policy = policy
        self._runs_root = runs_root
        self._holder = holder
        self._clock = clock

    def run(self, stopping: threading.Event, *, hours: float) -> None:
        """Tidy up every so many hours until told to stop.

        The first time comes soon, since processes are restarted often; so does the next one after a failure.
        """
        soon = min(FIRST_SECONDS, hours * 3600)
        pause = soon
        while not stopping.wait(pause):
            pause = soon
            try:
                with contained("tidy"):
                    self.tidy()
                    pause = hours * 3600
            except SQLAlchemyError:
                logger.warning("ledger_unreachable")

    def tidy(self) -> bool:
        """Give up what nothing needs; False while another process does."""
        with self._ledger.begin() as session:
            if not lead(session, ROLE, self._holder, seconds=_LEASE_SECONDS):
                return False
            has_sites = bool(all_sites(session))
            has_jobs = session.scalar(select(col(Job.id)).limit(1)) is not None
        if has_sites:  # a ledger that knows of no site is not the one that this store belongs to
            done = collect_garbage(self._ledger, self._den, self._policy, actor=_ACTOR, clock=self._clock)
            logger.info("files_collected", extra=done._asdict())
        if has_jobs and (workspaces := self.sweep_workspaces()):
            logger.info("workspaces_swept", extra={"count": workspaces})
        return True

    def sweep_workspaces(self) -> int:
        """Remove the workspaces of runs that are not on record any more; returns how many.

        What a run that failed has kept is in its workspace: it goes with the run's rows, and not before.
        """
        older_than = self._clock() - self._policy.retention.draft_hours * 3600
        count = 0
        for page in _pages(_workspaces(self._runs_root, older_than)):
            with self._ledger.begin() as session:
                known = set(session.scalars(select(col(Job.id)).where(col(Job.id).in_([run for run, _ in page]))))
            for run_id, path in page:
                if run_id not in known:
                    with contained("sweep_workspace", run_id=str(run_id)):
                        doomed = path.with_name(f"{_DOOMED}{path.name}")
                        path.replace(doomed)  # nobody finds half a workspace under its name
                        shutil.rmtree(doomed)
                        count += 1
        return count


def _workspaces(root: Path, older_than: float) -> Iterator[tuple[UUID, Path]]:
    """Yield the workspaces that were not touched lately, and finish what a death left half removed."""
    if not root.is_dir():
        return
    for path in sorted(root.iterdir()):
        if path.name.startswith(_DOOMED):
            with contained("sweep_workspace", path=path.name):
                shutil.rmtree(path)
        elif path.suffix == ".git" and (run_id := _id_of(path.stem)) and path.lstat().st_mtime < older_than:
            yield run_id, path


def _id_of(name: str) -> UUID | None:
    try:
        return UUID(name)
    except ValueError:
        return None


def _pages(items: Iterator[tuple[UUID, Path]]) -> Iterator[Sequence[tuple[UUID, Path]]]:
    page: list[tuple[UUID, Path]] = []
    for item in items:
        page.append(item)
        if len(page) == _PAGE:
            yield page
            page = []
    if page:
        yield page

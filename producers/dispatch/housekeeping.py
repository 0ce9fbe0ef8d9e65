"""Give up files that nothing on record needs any more, every few hours: of releases and drafts, and runs' workspaces.

It runs in a thread of the dispatcher, since a large disk is slow and nothing may wait for it; by a lease of the ledger
one process does it at a time. The ledger says what is needed, and only what is old enough goes.
"""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError
from sqlmodel import col

from ledger import audit
from ledger.dispatch_window import lead
from ledger.releases import (
    active_release,
    all_sites,
    forget_shown,
    kept_releases,
    lagging_sites,
    shown_sites,
    sweep_site,
)
from ledger.store import Ledger
from ledger.tables import Job, Release, Site
from producers.dispatch.dispatcher import contained
from routing.policy.platform import Policy
from sites.content_store import Den, Manifest
from sites.releases import Kept, Shown, Sweeper, manifest_of, manifest_of_dict, site_key, try_to_show_active

# Give back the space of releases that nobody sees any more: the ledger decides what is kept, the Den removes the
# rest.
#
# First the record says that a release's files are gone, then they go: so a rollback either finds all of a release or
# is
# told that it is swept. What is live, previous or pending is never touched, whatever the policy says (threat H7).

_HOUR_SECONDS = 3_600.0


class Collected(NamedTuple):
    """What was given up, or with a rehearsal would be."""

    sites: int
    """Looked at."""
    releases: int
    blobs: int
    blob_bytes: int
    trees: int
    leftovers: int
    """Files and directories that a crash left half-made."""


def collect_garbage(
    ledger: Ledger,
    den: Den,
    policy: Policy,
    *,
    is_rehearsal: bool = False,
    actor: str = "operator",
    clock: Callable[[], float] = time.time,
) -> Collected:
    """Sweep every site of the installation by the policy's retention.

    Args:
        ledger: says what is needed.
        den: holds the files.
        policy: holds the retention.
        is_rehearsal: change nothing, only count.
        actor: who asks.
        clock: seconds since the epoch, as the Den's file system counts them.
    """
    started = clock()
    with ledger.begin() as session:
        sites = {site.id: site for site in all_sites(session)}
    given_up: set[UUID] = set()
    for site in sites.values():
        with ledger.begin() as session:
            swept = sweep_site(session, site.id, policy.retention, is_rehearsal=is_rehearsal)
            if swept and not is_rehearsal:
                audit.append(
                    session,
                    "releases_swept",
                    actor=actor,
                    tenant=site.tenant,
                    site=site.name,
                    releases=sorted(map(str, swept)),
                )
        given_up |= swept
    kept = _kept(ledger, sites, given_up)
    older_than = started - policy.retention.draft_hours * _HOUR_SECONDS
    done = Sweeper(den.root).sweep(kept, older_than=older_than, is_rehearsal=is_rehearsal)
    return Collected(len(sites), len(given_up), done.blobs, done.blob_bytes, done.trees, done.leftovers)


def _kept(ledger: Ledger, sites: dict[UUID, Site], given_up: set[UUID]) -> Kept:
    blobs: set[str] = set()
    releases: defaultdict[str, set[str]] = defaultdict(set)
    trees: defaultdict[str, set[str]] = defaultdict(set)
    with ledger.begin() as session:
        for release in kept_releases(session):
            if release.id in given_up:
                continue
            manifest: Manifest = manifest_of_dict(release.manifest)
            blobs.update(entry.sha256 for entry in manifest.values())
            blobs.update(release.blobs)
            if release.site_id in sites:
                key = site_key(sites[release.site_id])
                releases[key].add(str(release.id))
                trees[key].add(manifest.served.digest)
    shown = {key: Shown(frozenset(releases[key]), frozenset(trees[key])) for key in releases}
    return Kept(frozenset(blobs), shown)


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
        self,
        ledger: Ledger,
        den: Den,
        policy: Policy,
        *,
        runs_root: Path,
        holder: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
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


# Bring the copies of sites on disk to what the ledger says, until each shows its active release.
#
# Whoever publishes does this at once; what a full disk or a death left behind is found here. The dispatcher owns it:
# it
# looks at every site when it starts, since a disk may have been lost or restored meanwhile, and then at those that
# lag.

LONGEST_PAUSE_SECONDS = 60.0
ROUND_SECONDS = 1.0
"""After so long a round leaves the rest to the next: whoever calls this has other things to do."""
_SITES_A_PAGE = 200
_FIRST_PAUSE_SECONDS = 1.0


class Projector:
    """Shows what lags. Holds in memory only how long it leaves a site alone that it failed to show."""

    def __init__(self, ledger: Ledger, den: Den, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._ledger = ledger
        self._den = den
        self._clock = clock
        self._is_looking = True
        self._looked_at: UUID | None = None
        self._pauses: dict[UUID, tuple[float, float]] = {}
        """When a site is tried again, and how long it then pauses if that fails too."""

    def run(self) -> None:
        """Show the sites that lag and are due; the first rounds also look whether the disk has what is believed."""
        if self._is_looking:
            self._look_at_a_page()
        started = self._clock()
        resting = [site_id for site_id, (due_at, _) in self._pauses.items() if started < due_at]
        with self._ledger.begin() as session:
            lagging = lagging_sites(session, besides=resting)
        for site_id in lagging:
            if self._clock() - started > ROUND_SECONDS:
                return
            self._show(site_id)

    def _show(self, site_id: UUID) -> None:
        _, pause = self._pauses.get(site_id, (0.0, _FIRST_PAUSE_SECONDS))
        if try_to_show_active(self._ledger, self._den, site_id) is None:
            self._pauses.pop(site_id, None)
            logger.info("projection_brought_up", extra={"site_id": str(site_id)})
        else:
            self._pauses[site_id] = (self._clock() + pause, min(2 * pause, LONGEST_PAUSE_SECONDS))

    def _look_at_a_page(self) -> None:
        with self._ledger.begin() as session:
            sites = shown_sites(session, after=self._looked_at, limit=_SITES_A_PAGE)
            for site in sites:
                release = active_release(session, site)
                if release is not None and not self._is_shown(site, release):
                    forget_shown(session, site)
        self._is_looking = len(sites) == _SITES_A_PAGE
        self._looked_at = sites[-1].id if sites else None

    def _is_shown(self, site: Site, release: Release) -> bool:
        return self._den.shows(site_key(site), manifest_of(release), release_id=str(release.id))

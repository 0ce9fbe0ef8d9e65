"""Look after the content store: delete what the ledger no longer needs, and bring sites' copies on disk up to date.

Runs in a thread of the dispatcher, since a large disk is slow, and by ledger lease in one process at a time.
"""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import select
from sqlmodel import col

from ledger import audit
from ledger.cells.tenant_rows import closed_tenants
from ledger.operations.leaders import lead
from ledger.operations.uploads import kept_uploads
from ledger.releases import (
    active_release,
    all_sites,
    clear_shown_release,
    kept_releases,
    lagging_sites,
    shown_sites,
    sweep_site,
)
from ledger.store import Ledger
from ledger.tables import Job, Release, Site
from producers.dispatch.containment import contained, surviving
from producers.dispatch.file_lease import BACKUP, SWEEPER, FileLease
from routing.policy.platform import Policy
from sites.content_store import ContentStore, Manifest
from sites.ownership import adopt, check_owner
from sites.releases import Kept, Shown, Sweeper, manifest_of, manifest_of_dict, site_key, try_show_active
from sites.repository.copies import DOOMED, remove_workspace

logger = logging.getLogger(__name__)

ROLE = "housekeeper"
FIRST_SECONDS = 600.0
"""The longest wait for the first round, and for the next one after a failure."""
_HOUR_SECONDS = 3_600.0
_LEASE_SECONDS = 1800.0
_PAGE = 500
_ACTOR = "pointsman"


class Collected(NamedTuple):
    """What was deleted, or in a rehearsal would be."""

    sites: int
    """Sites examined."""
    releases: int
    blobs: int
    blob_bytes: int
    trees: int
    leftovers: int
    """Files and directories left half-made by a crash."""


def collect_garbage(
    ledger: Ledger,
    content_store: ContentStore,
    policy: Policy,
    *,
    is_dry_run: bool = False,
    actor: str = "operator",
    clock: Callable[[], float] = time.time,
) -> Collected:
    """Sweep every site by the policy's retention; what is live, previous or pending is never touched (threat H7).

    The ledger marks a release as swept before its files go, so a rollback finds either all of it or that mark.

    Args:
        ledger: decides what is kept.
        content_store: the content store.
        policy: its retention counts.
        is_dry_run: change nothing, only count.
        actor: for the audit trail.
        clock: seconds since the epoch, by the store's file system.

    Raises:
        FileLeaseLostError: nobody's fault: another process may hold the lease by now.
        StoreTakenError: the operator's fault: the store is another ledger's; nothing was changed.
        OSError: the operator's fault: the store is away.
    """
    started = clock()
    if not is_dry_run:
        adopt(ledger, content_store)
    check_owner(ledger, content_store)
    with ledger.begin() as session:
        sites, closed = {site.id: site for site in all_sites(session)}, closed_tenants(session)
    swept_ids: set[UUID] = set()
    for site in sites.values():
        if site.tenant in closed:
            continue
        with contained("sweep_site", site_id=str(site.id)):  # its tenant may be closed by now
            with ledger.begin() as session:
                swept = sweep_site(session, site.id, policy.retention, is_dry_run=is_dry_run)
                if swept and not is_dry_run:
                    audit.append(
                        session,
                        "releases_swept",
                        actor=actor,
                        tenant=site.tenant,
                        site=site.name,
                        releases=sorted(map(str, swept)),
                    )
            swept_ids |= swept
    older_than = started - policy.retention.draft_hours * _HOUR_SECONDS
    if is_dry_run:
        done = Sweeper(content_store).sweep(_kept(ledger, sites, swept_ids), older_than=older_than, is_dry_run=True)
    else:
        with FileLease(ledger, SWEEPER) as lease:
            kept = _kept(ledger, sites, swept_ids)
            while lease.has_waited_for(BACKUP):
                kept = _kept(ledger, sites, swept_ids)
            done = Sweeper(content_store, check=lease.check).sweep(kept, older_than=older_than)
    return Collected(len(sites), len(swept_ids), done.blobs, done.blob_bytes, done.trees, done.leftovers)


def _kept(ledger: Ledger, sites: dict[UUID, Site], swept_ids: set[UUID]) -> Kept:
    blobs: set[str] = set()
    releases: defaultdict[str, set[str]] = defaultdict(set)
    trees: defaultdict[str, set[str]] = defaultdict(set)
    with ledger.begin() as session:
        blobs.update(kept_uploads(session))
        for release in kept_releases(session):
            if release.id in swept_ids:
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


@dataclass(eq=False)
class Housekeeper:
    """Deletes files that the ledger no longer needs."""

    ledger: Ledger
    content_store: ContentStore
    policy: Policy
    runs_root: Path
    """The directory of runs' workspaces."""
    holder: str
    """Names this process."""
    clock: Callable[[], float] = time.time
    """Seconds since the epoch, as the file systems count them."""

    def run(self, stopping: threading.Event, *, hours: float) -> None:
        """Tidy up every few hours until stopped; sooner after a start or a failure."""
        with surviving("adopt"):
            adopt(self.ledger, self.content_store)
        soon = min(FIRST_SECONDS, hours * 3600)
        pause = soon
        while not stopping.wait(pause):
            pause = soon
            with surviving("tidy"):
                self.tidy()
                pause = hours * 3600

    def tidy(self) -> bool:
        """Delete what is not needed; False while another process does so."""
        with self.ledger.begin() as session:
            if not lead(session, ROLE, self.holder, seconds=_LEASE_SECONDS):
                return False
            has_sites = bool(all_sites(session))
            has_jobs = session.scalar(select(col(Job.id)).limit(1)) is not None
        if has_sites:  # a ledger without any site is not the one that this store belongs to
            done = collect_garbage(self.ledger, self.content_store, self.policy, actor=_ACTOR, clock=self.clock)
            logger.info("files_collected", extra=done._asdict())
        if has_jobs and (workspaces := self.sweep_workspaces()):
            logger.info("workspaces_swept", extra={"count": workspaces})
        return True

    def sweep_workspaces(self) -> int:
        """Remove the workspaces of runs whose rows are gone; returns how many."""
        older_than = self.clock() - self.policy.retention.draft_hours * 3600
        count = 0
        found = _workspaces(self.runs_root, older_than)
        while page := list(islice(found, _PAGE)):
            with self.ledger.begin() as session:
                recorded = set(session.scalars(select(col(Job.id)).where(col(Job.id).in_([run for run, _ in page]))))
            for run_id, path in page:
                if run_id not in recorded:
                    with contained("sweep_workspace", run_id=str(run_id)):
                        remove_workspace(path)
                        count += 1
        return count


def _workspaces(root: Path, older_than: float) -> Iterator[tuple[UUID, Path]]:
    """Yield the workspaces older than a time, and finish removals that a crash interrupted."""
    if not root.is_dir():
        return
    for path in sorted(root.iterdir()):
        if path.name.startswith(DOOMED):
            with contained("sweep_workspace", path=path.name):
                shutil.rmtree(path)
        elif path.suffix == ".git" and (run_id := _id_of(path.stem)) and path.lstat().st_mtime < older_than:
            yield run_id, path


def _id_of(name: str) -> UUID | None:
    try:
        return UUID(name)
    except ValueError:
        return None


LONGEST_PAUSE_SECONDS = 60.0
ROUND_SECONDS = 1.0
"""After this time a round leaves the rest to the next."""
_SITES_A_PAGE = 200
_FIRST_PAUSE_SECONDS = 1.0


@dataclass(eq=False)
class Projector:
    """Brings sites on disk to their active release where a full disk or a crash kept the publisher from it.

    It examines every site once after a start, since a disk may have been lost or restored, and then those that lag.
    """

    ledger: Ledger
    content_store: ContentStore
    clock: Callable[[], float] = time.monotonic
    _is_checking: bool = field(default=True, init=False)
    _checked: UUID | None = field(default=None, init=False)
    _pauses: dict[UUID, tuple[float, float]] = field(default_factory=dict, init=False)
    """When a site that failed is tried again, and the pause after that."""

    def run(self) -> None:
        """Update the sites that lag and are due; the first rounds also compare the disk with the ledger."""
        if self._is_checking:
            self._check_page()
        started = self.clock()
        pausing = [site_id for site_id, (due_at, _) in self._pauses.items() if started < due_at]
        with self.ledger.look() as connection:
            lagging = lagging_sites(connection, besides=pausing)
        for site_id in lagging:
            if self.clock() - started > ROUND_SECONDS:
                return
            self._show(site_id)

    def _show(self, site_id: UUID) -> None:
        _, pause = self._pauses.get(site_id, (0.0, _FIRST_PAUSE_SECONDS))
        if try_show_active(self.ledger, self.content_store, site_id) is None:
            self._pauses.pop(site_id, None)
            logger.info("projection_brought_up", extra={"site_id": str(site_id)})
        else:
            self._pauses[site_id] = (self.clock() + pause, min(2 * pause, LONGEST_PAUSE_SECONDS))

    def _check_page(self) -> None:
        with self.ledger.begin() as session:
            sites = shown_sites(session, after=self._checked, limit=_SITES_A_PAGE)
            for site in sites:
                release = active_release(session, site)
                if release is not None and not self._is_shown(site, release):
                    clear_shown_release(session, site)
        self._is_checking = len(sites) == _SITES_A_PAGE
        self._checked = sites[-1].id if sites else None

    def _is_shown(self, site: Site, release: Release) -> bool:
        return self.content_store.shows(site_key(site), manifest_of(release), release_id=str(release.id))

"""Give back the space of releases that nobody sees any more: the ledger decides what is kept, the Den removes the rest.

First the record says that a release's files are gone, then they go: so a rollback either finds all of a release or is
told that it is swept. What is live, previous or pending is never touched, whatever the policy says (threat H7).
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

from monitoring.ledger import audit
from monitoring.ledger.releases import all_sites, kept_releases, sweep_site
from monitoring.ledger.store import Ledger
from monitoring.ledger.tables import Site
from routing.policy import Policy
from sandbox.den import Den, Manifest
from sandbox.release import manifest_of_dict, site_key
from sandbox.sweep import Kept, Shown, Sweeper

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
    ledger: Ledger, den: Den, policy: Policy, *, is_rehearsal: bool = False, actor: str = "operator",
    clock: Callable[[], float] = time.time,
) -> Collected:  # fmt: skip
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
                    session, "releases_swept", actor=actor, tenant=site.tenant, site=site.name,
                    releases=sorted(map(str, swept)),
                )  # fmt: skip
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

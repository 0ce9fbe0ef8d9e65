"""Release candidates, stored, scanned and bound to the scanned digest; their projection; and the sweep of old ones.

Every tier and every source builds its releases here, so none bypasses the scan (H-113, H-114).
"""

from __future__ import annotations

import json
import logging
import math
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from ledger.releases import NewRelease, active_release, lock_site
from ledger.store import Ledger
from ledger.tables import Release, Site
from routing.policy.platform import Policy, Profile
from sites.blobs import below, is_digest
from sites.content_store import ContentStore, Manifest
from sites.errors import ReleaseAlteredError, SiteError
from sites.files import public_of
from sites.scan.engine import scan
from sites.scan.rules import digest_of_report

logger = logging.getLogger(__name__)

VERDICTS = "verdicts"
"""The directory below the content store's root with what the scan remembers of clean files."""
_MOST_TOLD = 8
"""Findings that a model is told at once."""


def profile_of(policy: Policy, site: Site) -> Profile:
    """Return the publish profile of a site."""
    return policy.profiles.get(site.profile, policy.profiles["default"])


def build_release(
    content_store: ContentStore,
    files: Mapping[str, bytes],
    *,
    site: Site,
    policy: Policy,
    spec: bytes | None = None,
    diff: bytes | None = None,
    reverse: bytes | None = None,
    base_release_id: UUID | None = None,
    job_id: UUID | None = None,
    build_seconds: float | None = None,
    known_keys: tuple[str, ...] = (),
    new_keys: tuple[str, ...] = (),
    base: Manifest | None = None,
) -> NewRelease:
    """Store and scan a site's whole content.

    `reverse` is the patch that undoes `diff`. No file may hold a secret of `known_keys`, or of `new_keys`, which are
    younger than `base`.

    Returns:
        The candidate, not yet recorded; only with `scan_passed` can it ever be published.

    Raises:
        TreeRefusedError, PathRefusedError: a path or the tree breaks a rule (the content's fault).
    """
    manifest = content_store.put_tree(files, public=public_of(files) or "")
    report = scan(
        files,
        profile_of(policy, site),
        profile_name=site.profile,
        known_keys=known_keys,
        new_keys=new_keys,
        base=base,
        verdicts_in=content_store.root / VERDICTS,
    )
    return NewRelease(
        site_id=site.id,
        base_release_id=base_release_id,
        job_id=job_id,
        digest=manifest.digest,
        manifest=json.loads(manifest.to_json()),
        total_bytes=manifest.total_bytes,
        signals={**manifest.signals, "has_spec": spec is not None},
        scan=report.as_dict(),
        scan_passed=report.passed,
        scan_digest=report.report_digest,
        spec_sha256=content_store.put(spec) if spec is not None else None,
        diff_sha256=content_store.put(diff) if diff is not None else None,
        reverse_sha256=content_store.put(reverse) if reverse is not None else None,
        build_seconds=build_seconds,
    )


def refusal_of(
    content_store: ContentStore,
    files: Mapping[str, bytes],
    *,
    site: Site,
    policy: Policy,
    known_keys: tuple[str, ...] = (),
) -> str:
    """Return what the scan would refuse about a site's whole content, in words for who made it; empty if nothing.

    What it reads is not read again for the release.
    """
    findings = scan(
        files,
        profile_of(policy, site),
        profile_name=site.profile,
        known_keys=known_keys,
        verdicts_in=content_store.root / VERDICTS,
    ).findings
    shown = "\n".join(f"{finding} ({finding.fix})" for finding in findings[:_MOST_TOLD])
    return f"The publisher refuses it:\n{shown}" if findings else ""


def manifest_of(release: NewRelease | Release) -> Manifest:
    """Return a release's files by path."""
    return manifest_of_dict(release.manifest)


def manifest_of_dict(stored: Mapping[str, Any]) -> Manifest:
    """Return the manifest that the ledger stores in this form."""
    return Manifest.from_json(json.dumps(dict(stored)))


def site_key(site: Site) -> str:
    """Return the name of a site's projection in the content store; neither part can hold an underscore."""
    return f"{site.tenant}_{site.name}"


def check_release_integrity(release: Release) -> None:
    """Check that a release's files, digest and scan report belong together (H-114).

    Raises:
        ReleaseAlteredError: they do not (the fault of whoever changed the ledger), and it must not be published.
    """
    report = {name: value for name, value in release.scan.items() if name not in ("passed", "report_digest")}
    if manifest_of(release).digest != release.digest:
        raise ReleaseAlteredError("its files do not match its digest")
    if report.get("digest") != release.digest or not release.scan_passed:
        raise ReleaseAlteredError("its scan report is about other files, or did not pass")
    if digest_of_report(report) != release.scan_digest:
        raise ReleaseAlteredError("its scan report is not the one that was approved")


def lay_out(content_store: ContentStore, site: Site, release: NewRelease | Release, *, release_id: UUID) -> None:
    """Check a release's served files and lay them out, before it is activated.

    Raises:
        BlobMissingError, BlobCorruptError: it must not be published (our fault, or the disk's).
        StoreUnavailableError: nor must it be yet: its files cannot be read now (the disk's fault, or the operator's).
        OSError: it can be published, but its projection will lag (the disk's fault).
    """
    manifest = manifest_of(release)
    content_store.check_stored(manifest)
    content_store.lay_out(site_key(site), manifest, release_id=str(release_id))


def show_active(ledger: Ledger, content_store: ContentStore, site_id: UUID) -> None:
    """Point a site's projection at the release that the ledger says is active, under the row lock.

    It is laid out before, since that may take long; who activates another one meanwhile shows that.

    Raises:
        BlobMissingError, BlobCorruptError, OSError: the projection lags behind the ledger (the disk's fault, or ours).
    """
    with ledger.begin() as session:
        site = session.get_one(Site, site_id)
        release = active_release(session, site)
    if release is None:
        return
    content_store.lay_out(site_key(site), manifest_of(release), release_id=str(release.id))
    with ledger.begin() as session:
        site = lock_site(session, site_id)
        if site.active_release_id == release.id:
            content_store.show(site_key(site), release_id=str(release.id))
            site.shown_release_id = release.id


def try_show_active(ledger: Ledger, content_store: ContentStore, site_id: UUID) -> str | None:
    """Like `show_active`, but return why the projection lags, if it does; the dispatcher tries again."""
    try:
        show_active(ledger, content_store, site_id)
    except (OSError, SiteError) as error:
        logger.exception("projection_lags", extra={"site_id": str(site_id)})
        return os.strerror(error.errno) if isinstance(error, OSError) and error.errno else type(error).__name__
    return None


_SWEPT = ".swept-"


@dataclass(frozen=True)
class Shown:
    """The part of one site's projection that is kept."""

    releases: frozenset[str] = frozenset()
    """Ids."""
    trees: frozenset[str] = frozenset()
    """Digests of their manifests."""


@dataclass(frozen=True)
class Kept:
    """Everything that the ledger still refers to."""

    blobs: frozenset[str]
    sites: Mapping[str, Shown] = field(default_factory=dict)
    """By the name of the projection."""


@dataclass
class Swept:
    """Counts of what a sweep removed, or would remove."""

    blobs: int = 0
    blob_bytes: int = 0
    """Of the blobs; trees are hard links to them and take no more space."""
    trees: int = 0
    leftovers: int = 0
    """Files and directories left unfinished by a crash, and old verdicts of the scan."""


class Sweeper:
    """Frees the space of what no recorded release needs any more.

    Only old files are removed: a young one may belong to a release that is not recorded yet.

    `check` is called before each removal; what it raises ends the sweep.
    """

    def __init__(self, content_store: ContentStore, *, check: Callable[[], None] = lambda: None) -> None:
        self._check = check
        self._root = content_store.root
        self._disk = content_store.disk
        self._blobs = content_store.blobs

    def sweep(self, kept: Kept, *, older_than: float, is_dry_run: bool = False) -> Swept:
        """Remove what is not kept and was last touched before `older_than`, in seconds since the epoch.

        With `is_dry_run`, only count it.
        """
        swept = Swept()
        for site in below(self._root / "sites"):
            if not site.is_symlink():
                self._sweep_site(site, kept.sites.get(site.name, Shown()), older_than, is_dry_run, swept)
        self._sweep_blobs(kept.blobs, older_than, is_dry_run, swept)
        for shard in below(self._root / VERDICTS):
            for verdict in _doomed(shard, frozenset(), older_than):  # the next scan makes it anew
                swept.leftovers += 1
                if not is_dry_run:
                    self._remove(verdict)
        return swept

    def _sweep_site(self, site: Path, shown: Shown, older_than: float, is_dry_run: bool, swept: Swept) -> None:
        self._check()
        doomed: list[Path] = []
        with self._disk.excluding(self._root):
            in_use = _in_use(site)
            if not is_dry_run:
                for link in _doomed(site / "releases", shown.releases | {in_use.name}, older_than):
                    self._remove(link)
            for tree in _doomed(site / "trees", shown.trees | {in_use.resolve().name}, older_than):
                if tree.name.startswith("."):
                    swept.leftovers += 1
                else:
                    swept.trees += 1
                if not is_dry_run:
                    doomed.append(tree.with_name(f"{_SWEPT}{secrets.token_hex(8)}"))
                    self._disk.replace(tree, doomed[-1])  # so that no reader meets half a tree
        for tree in doomed:
            self._remove(tree)

    def _sweep_blobs(self, kept: frozenset[str], older_than: float, is_dry_run: bool, swept: Swept) -> None:
        found = self._blobs.list() if is_dry_run else self._blobs.list(older_than=older_than)
        for blob in found:
            if blob.name in kept or blob.touched_at >= older_than:
                continue
            self._check()
            if not is_dry_run and not self._blobs.delete(blob, older_than=older_than):
                continue
            if is_digest(blob.name):
                swept.blobs += 1
                swept.blob_bytes += blob.size
            else:
                swept.leftovers += 1

    def _remove(self, path: Path) -> None:
        """Remove a file, or a directory: a planted one is no reason to stop."""
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            self._disk.discard(path)


def _doomed(directory: Path, kept: frozenset[str], older_than: float) -> Iterator[Path]:
    return (path for path in below(directory) if path.name not in kept and _touched_at(path) < older_than)


def _in_use(site: Path) -> Path:
    """Return the release that the projection shows, which may lag behind the ledger."""
    try:
        return site / (site / "active").readlink()
    except FileNotFoundError:
        return site / "none"


def _touched_at(path: Path) -> float:
    """Return when a path was last touched; infinity if it has just been removed."""
    try:
        return path.lstat().st_mtime
    except FileNotFoundError:
        return math.inf

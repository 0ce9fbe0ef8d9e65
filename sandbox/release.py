"""Turn a tree of files into a candidate: stored by content, scanned, and bound to the digest that was scanned.

Every way into a site passes here, whatever the tier or the door, so none can bypass the scan (H-113, H-114).
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from monitoring.ledger.releases import NewRelease, active_release, lock_site
from monitoring.ledger.store import Ledger
from monitoring.ledger.tables import Release, Site
from routing.policy import Policy, Profile
from sandbox.den import Den, Manifest
from sandbox.errors import ReleaseAlteredError, SandboxError
from sandbox.public import public_of
from sandbox.scan.engine import scan
from sandbox.scan.report import digest_of_report

logger = logging.getLogger(__name__)


def profile_of(policy: Policy, site: Site) -> Profile:
    """Return the publish profile of a site."""
    return policy.profiles.get(site.profile, policy.profiles["default"])


def build_release(
    den: Den, files: Mapping[str, bytes], *, site: Site, policy: Policy, spec: bytes | None = None,
    diff: bytes | None = None, reverse: bytes | None = None, base_release_id: UUID | None = None,
    job_id: UUID | None = None, build_seconds: float | None = None, known_keys: tuple[str, ...] = (),
) -> NewRelease:  # fmt: skip
    """Store and scan a site's whole content.

    Args:
        den: where the content goes.
        files: every file of the site, by path.
        site: whose content it is.
        policy: holds the site's publish profile.
        spec: the site's spec, when pages are rendered from one.
        diff: the change for review, when a patch made it.
        reverse: the patch that undoes it.
        base_release_id: the release it was made from.
        job_id: the job that made it.
        build_seconds: how long its build took.
        known_keys: secrets of this installation that no artifact may hold.

    Returns:
        The candidate, not yet on record. `scan_passed` says whether it may ever be published.

    Raises:
        TreeRefusedError, PathRefusedError: the content's fault: a path or the tree breaks a rule.
    """
    manifest = den.put_tree(files, public=public_of(files) or "")
    report = scan(files, profile_of(policy, site), profile_name=site.profile, known_keys=known_keys)
    return NewRelease(
        site_id=site.id,
        base_release_id=base_release_id,
        job_id=job_id,
        digest=manifest.digest,
        manifest=json.loads(manifest.to_json()),
        total_bytes=manifest.total_bytes,
        signals=manifest.signals._asdict(),
        scan=report.as_dict(),
        scan_passed=report.passed,
        scan_digest=report.report_digest,
        spec_sha256=den.put(spec) if spec is not None else None,
        diff_sha256=den.put(diff) if diff is not None else None,
        reverse_sha256=den.put(reverse) if reverse is not None else None,
        build_seconds=build_seconds,
    )


def manifest_of(release: NewRelease | Release) -> Manifest:
    """Return a release's files by path."""
    return manifest_of_dict(release.manifest)


def manifest_of_dict(stored: Mapping[str, Any]) -> Manifest:
    """Return the manifest that stands on record in this form."""
    return Manifest.from_json(json.dumps(dict(stored)))


def site_key(site: Site) -> str:
    """Return the name of a site's projection in the Den; neither part can hold an underscore."""
    return f"{site.tenant}_{site.name}"


def check_whole(release: Release) -> None:
    """Check that a release is what its scan judged: files, digest and report belong together (H-114).

    Raises:
        ReleaseAlteredError: our fault, or of whoever wrote to the ledger past us: it must not be published.
    """
    report = {name: value for name, value in release.scan.items() if name not in ("passed", "report_digest")}
    if manifest_of(release).digest != release.digest:
        raise ReleaseAlteredError("its files are not those that its digest names")
    if report.get("digest") != release.digest or not release.scan_passed:
        raise ReleaseAlteredError("its scan report is about other files, or let it not pass")
    if digest_of_report(report) != release.scan_digest:
        raise ReleaseAlteredError("its scan report is not the one that was approved")


def lay_out(den: Den, site: Site, release: NewRelease | Release, *, release_id: UUID) -> None:
    """Make what a release serves ready to be shown, before anybody is led to it.

    Raises:
        BlobMissingError, BlobCorruptError: our fault, or the disk's: it must not be published.
        OSError: the disk's fault: it can be published, but its projection will lag.
    """
    den.lay_out(site_key(site), manifest_of(release), release_id=str(release_id))


def show_active(ledger: Ledger, den: Den, site_id: UUID) -> None:
    """Bring the Den's projection of a site to what the ledger says; under the row's lock, so that two cannot cross.

    Raises:
        BlobMissingError, BlobCorruptError, OSError: the disk's fault, or ours: the projection lags behind the ledger.
    """
    with ledger.begin() as session:
        site = lock_site(session, site_id)
        release = active_release(session, site)
        if release is not None:
            den.project(site_key(site), manifest_of(release), release_id=str(release.id))
            site.shown_release_id = release.id


def try_to_show_active(ledger: Ledger, den: Den, site_id: UUID) -> str | None:
    """Do `show_active`; return why the projection lags, None when it does not. The dispatcher tries again."""
    try:
        show_active(ledger, den, site_id)
    except (OSError, SandboxError) as error:
        logger.exception("projection_lags", extra={"site_id": str(site_id)})
        return os.strerror(error.errno) if isinstance(error, OSError) and error.errno else type(error).__name__
    return None

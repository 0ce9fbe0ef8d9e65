"""What a job would change, or changed: for whoever judges its preview."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

from sqlmodel import Session

from monitoring.errors import ReleaseNotFoundError, ReleaseSweptError
from monitoring.ledger.jobs import find_job
from monitoring.ledger.store import Ledger
from monitoring.ledger.tables import Job, Release
from producers.comparison import Comparison, compare
from sandbox.den import Den
from sandbox.release import manifest_of


def compare_releases(den: Den, before: Release | None, after: Release) -> Comparison:
    """Return what changed from one release to another, file by file: of a built site its sources too.

    Raises:
        ReleaseSweptError: the caller's fault: the files of one of them are gone.
    """
    for release in (before, after):
        if release is not None and release.swept_at is not None:
            raise ReleaseSweptError(release.id)
    old = manifest_of(before) if before is not None else {}
    new = manifest_of(after)
    changes = compare(old, new, read=den.get, public=new.public)
    counted = Counter(change.status for change in changes)
    return Comparison(
        before=before.id if before is not None else None, after=after.id, added=counted["added"],
        removed=counted["removed"], changed=counted["changed"], changes=tuple(changes),
    )  # fmt: skip


def changes_of_job(ledger: Ledger, den: Den, job_id: UUID, *, tenant: str) -> Comparison:
    """Return what a job's release changes of the one that it was made from.

    Raises:
        JobNotFoundError: the caller's fault.
        ReleaseNotFoundError: the caller's fault: the job has made no release, or not yet.
        ReleaseSweptError: the caller's fault: the files of one of them are gone.
    """
    with ledger.begin() as session:
        before, after = releases_of_job(session, find_job(session, job_id, tenant=tenant))
    if after is None:
        raise ReleaseNotFoundError
    return compare_releases(den, before, after)


def releases_of_job(session: Session, job: Job) -> tuple[Release | None, Release | None]:
    """Return the release that a job's was made from, and the job's; None for what there is none of."""
    after = session.get(Release, job.release_id) if job.release_id is not None else None
    base = after.base_release_id if after is not None else None
    return session.get(Release, base) if base is not None else None, after

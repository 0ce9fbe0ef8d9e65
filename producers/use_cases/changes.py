"""What is reviewed of a release before it is approved: what it changes, and what the scan found.

Comparisons are bounded: a text diff of hostile files must not take minutes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Literal
from uuid import UUID

from sqlmodel import Session

from ledger.errors import NothingMadeError, ReleaseSweptError
from ledger.jobs import find_job
from ledger.store import Ledger
from ledger.tables import Job, Release
from producers.use_cases.jobs import View
from sites.content_store import ContentStore, Entry
from sites.diff.canonical import unified
from sites.files import is_below, is_text_file
from sites.releases import manifest_of
from sites.spec.fonts.families import is_original

MAX_DIFF_BYTES = 256 * 1024
MAX_TOTAL_DIFF_CHARS = 1024 * 1024
"""Of all files together; further files are listed without a diff."""


class FileChange(View):
    """One file that differs."""

    path: str
    status: Literal["added", "removed", "changed"]
    before_bytes: int | None
    after_bytes: int | None
    diff: str | None
    """Unified diff; null for a file that is not text or too large, and once the whole is too long."""
    is_served: bool = True
    """False for a source of a built site, which visitors never see."""
    is_shipped: bool = False
    """Whether it is a font or licence that comes with Pointsman, byte for byte."""


class Comparison(View):
    """The changes from one release to another."""

    before: UUID | None
    """Null where there was no release before: every file is added."""
    after: UUID
    added: int
    removed: int
    changed: int
    changes: tuple[FileChange, ...]
    """By path."""


def compare(
    before: Mapping[str, Entry], after: Mapping[str, Entry], *, read: Callable[[str], bytes], public: str = ""
) -> list[FileChange]:
    """Return the files that differ, by path.

    `read` returns a blob by its digest; `public` is the directory of `after` that is served, empty for all.
    """
    changed = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    changes: list[FileChange] = []
    left = MAX_TOTAL_DIFF_CHARS
    for path in changed:
        is_served = not public or is_below(path, public)
        change = _change(path, before.get(path), after.get(path), read if left > 0 else None, is_served=is_served)
        left -= len(change.diff or "")
        changes.append(change)
    return changes


def _change(
    path: str, old: Entry | None, new: Entry | None, read: Callable[[str], bytes] | None, *, is_served: bool
) -> FileChange:
    return FileChange(
        path=path,
        is_served=is_served,
        is_shipped=all(is_original(path, entry.sha256) for entry in (old, new) if entry is not None),
        status="added" if old is None else "removed" if new is None else "changed",
        before_bytes=old.size if old else None,
        after_bytes=new.size if new else None,
        diff=_text_diff(path, old, new, read) if read is not None and is_text_file(path) else None,
    )


def _text_diff(path: str, old: Entry | None, new: Entry | None, read: Callable[[str], bytes]) -> str | None:
    """Return the change in the format that `pointsman apply` reads; None when a side is not text."""
    for entry in (old, new):
        if entry is not None and entry.size > MAX_DIFF_BYTES:
            return None
    before, after = (read(entry.sha256) if entry is not None else None for entry in (old, new))
    try:
        return unified({path: before}, {path: after}).decode()
    except UnicodeDecodeError:
        return None


def compare_releases(content_store: ContentStore, before: Release | None, after: Release) -> Comparison:
    """Return the changes from one release to another, including the sources of a built site.

    Raises:
        ReleaseSweptError: the caller's fault: the files of one are gone.
    """
    for release in (before, after):
        if release is not None and release.swept_at is not None:
            raise ReleaseSweptError(release.id)
    old = manifest_of(before) if before is not None else {}
    new = manifest_of(after)
    changes = compare(old, new, read=content_store.get, public=new.public)
    counted = Counter(change.status for change in changes)
    return Comparison(
        before=before.id if before is not None else None,
        after=after.id,
        added=counted["added"],
        removed=counted["removed"],
        changed=counted["changed"],
        changes=tuple(changes),
    )


def changes_of_job(ledger: Ledger, content_store: ContentStore, job_id: UUID, *, tenant: str) -> Comparison:
    """Return the changes from a job's base release to its own.

    Raises:
        JobNotFoundError: the caller's fault.
        NothingMadeError: the caller's fault: the job has made no release so far.
        ReleaseSweptError: the caller's fault: the files of one are gone.
    """
    with ledger.begin() as session:
        before, after = releases_of_job(session, find_job(session, job_id, tenant=tenant))
    if after is None:
        raise NothingMadeError
    return compare_releases(content_store, before, after)


class FindingView(View):
    """A rule of the scan that a release breaks, at one place."""

    gate: str
    rule: str
    file: str
    line: int
    message: str
    fix: str
    """What to do about it."""


class ScanView(View):
    """The scan report of a release, to which an approval is bound."""

    release_id: UUID
    report_digest: str
    passed: bool
    profile: str
    """The publish profile that it was scanned under."""
    gates: dict[str, bool]
    """Whether each gate passed."""
    findings: tuple[FindingView, ...]
    csp: str
    """The Content-Security-Policy that the pages are served with."""
    js_bytes: int
    js_gzip_bytes: int


def scan_view(release: Release) -> ScanView:
    """Return a release's scan report."""
    return ScanView.model_validate({**release.scan, "release_id": release.id})


def scan_of_job(session: Session, job: Job) -> ScanView:
    """Return the scan report of a job's release.

    Raises:
        NothingMadeError: the caller's fault: the job has made no release so far.
    """
    _, release = releases_of_job(session, job)
    if release is None:
        raise NothingMadeError
    return scan_view(release)


def releases_of_job(session: Session, job: Job) -> tuple[Release | None, Release | None]:
    """Return a job's base release and its own, each None if there is none."""
    after = session.get(Release, job.release_id) if job.release_id is not None else None
    base = after.base_release_id if after is not None else None
    return session.get(Release, base) if base is not None else None, after

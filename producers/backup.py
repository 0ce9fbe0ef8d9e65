"""Back up an installation while it runs, and restore it.

A backup holds the ledger at one moment and every file that this ledger names. No sweep begins while the files are
copied; publishing continues, as no row of the backup names what comes later. Secrets are not included: the manifest
lists those to keep elsewhere. A backup gets its name once it is complete.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple
from uuid import UUID

from pydantic import BaseModel, Field, ValidationError
from sqlalchemy import delete as sql_delete
from sqlalchemy import func, select
from sqlalchemy import update as sql_update
from sqlmodel import Session, col

from ledger import audit
from ledger.attempts import recover
from ledger.audit import newest_head, verify
from ledger.cells.directory import Directory
from ledger.cells.tenant_rows import AS_MOVER
from ledger.errors import SchemaMismatchError
from ledger.money import presume_lost_calls
from ledger.operations.migrate import (
    clear,
    is_empty,
    migrate,
    open_dump,
    open_snapshot,
    read_dump,
    users_of,
    write_dump,
)
from ledger.operations.partitions import mend
from ledger.record_tables import Epoch, Leader, Notice, Notification
from ledger.releases import KeptRelease, kept_releases, lagging_sites
from ledger.store import Fit, Ledger, Statement, after, fit_of, found_revision, wanted_revision
from ledger.tables import Attempt, Call, Job, Site
from monitoring.event_metrics import rebase
from producers.cells.restored import Placed, place_tenants
from producers.dispatch.file_lease import BACKUP, FileLease
from producers.errors import InstallationError
from routing.jobs import Reason
from sites.content_store import ContentStore
from sites.disk import Disk
from sites.errors import BlobCorruptError, BlobMissingError, StoreUnavailableError
from sites.ownership import begin_restoring, take_over
from sites.releases import manifest_of_dict, try_show_active

FENCE_JUMP = 1_000_000
"""More claims than any job can have had since the backup."""
_BATCH = 500


class Repaired(NamedTuple):
    """What was repaired in a restored ledger."""

    attempts: int
    """Attempts that were lost with their workers."""
    calls: int
    """Model calls with an unknown end, which are charged in full."""
    unpushed: int
    """Jobs whose message must be sent again."""
    withheld: int
    """Notifications that were due at the time of the backup, and may have been sent since."""
    folded: int
    """Events that the metrics had not counted."""


def repair(session: Session, *, resend: bool = False, **facts: Any) -> Repaired:
    """Repair a restored ledger so that it can continue, and record the restoration.

    A worker that still holds a job of the lost time is fenced off: the fence of every unfinished job jumps.

    `resend` sends the notifications that were due, although receivers may have them; `facts` are for the audit trail.
    """
    Statement(AS_MOVER).all(session)  # may also write the rows of a tenant that was moving
    mend(session)
    folded = rebase(session)
    session.execute(sql_delete(Leader))
    session.add(Epoch())
    calls = _presume_open_calls(session)
    attempts = _recover_attempts(session)
    unpushed = session.execute(sql_update(Job).where(col(Job.pushed_at).is_not(None)).values(pushed_at=None))
    session.execute(sql_update(Job).where(col(Job.ended_at).is_(None)).values(fence=col(Job.fence) + FENCE_JUMP))
    session.execute(sql_update(Site).values(shown_release_id=None))
    withheld = 0 if resend else _withhold(session)
    done = Repaired(attempts, calls, int(unpushed.rowcount), withheld, folded)  # type: ignore[attr-defined]
    audit.append(session, "restored", actor="operator", **facts, **done._asdict())
    return done


def _presume_open_calls(session: Session) -> int:
    session.execute(sql_update(Call).where(col(Call.state) == "reserved").values(lease_until=after(-1)))
    total = 0
    while done := presume_lost_calls(session, limit=_BATCH):
        total += done
    return total


def _recover_attempts(session: Session) -> int:
    """Requeue every job that was running, as if its worker had been stopped: no crash is counted."""
    live = col(Attempt.ended_at).is_(None)
    values = {"lease_until": after(-1), "lost_cause": Reason.WORKER_STOPPED.value}
    session.execute(sql_update(Attempt).where(live).values(**values))
    attempts = session.scalars(select(Attempt).where(live).order_by(col(Attempt.job_id))).all()
    for attempt in attempts:
        recover(session, attempt, max_lost=1)
    return len(attempts)


def _withhold(session: Session) -> int:
    withheld = 0
    for table in (Notification, Notice):
        due = col(table.delivered_at).is_(None) & col(table.next_at).is_not(None)
        withheld += session.execute(sql_update(table).where(due).values(next_at=None)).rowcount  # type: ignore[attr-defined]
    return withheld


def counts(session: Session) -> dict[str, int]:
    """Return how many sites, jobs, attempts and calls a ledger holds."""
    tables = {"sites": Site, "jobs": Job, "attempts": Attempt, "calls": Call}
    return {name: int(session.scalar(select(func.count()).select_from(table)) or 0) for name, table in tables.items()}


MANIFEST, DUMP, BLOBS = "manifest.json", "ledger.dump", "content-store"
FORMAT: Final = 1
KEYS_KEPT_ELSEWHERE = (
    "POINTSMAN_AUDIT__SIGNING_KEY",
    "POINTSMAN_PREVIEW__KEYS",
    "POINTSMAN_WEBHOOK__SECRET",
    "POINTSMAN_GATEWAY__PEPPER",
    "POINTSMAN_GATEWAY__PROVIDERS",
    "POINTSMAN_ACCOUNTS",
    "POINTSMAN_CONTENT_STORE__SECRETS",
)
"""Settings that a restored installation needs and no backup holds."""
_PROGRESS_INTERVAL = 200
"""Files between two progress messages."""

Progress = Callable[[str], None]


class BackupManifest(BaseModel, frozen=True):
    """What a backup holds, and when it was made."""

    format: Literal[1] = FORMAT
    made_at: datetime
    pointsman: str
    """The version that made it."""
    revision: str
    """Schema revision of the ledger."""
    server: int = Field(ge=1)
    """Major version of PostgreSQL."""
    dump_bytes: int = Field(ge=0)
    dump_sha256: str
    blobs: int = Field(ge=0)
    blob_bytes: int = Field(ge=0)
    blobs_sha256: str
    """Hash of the sorted digests of its files."""
    damaged: tuple[str, ...] = ()
    """Files that were missing or damaged in the content store."""
    counts: dict[str, int]
    audit_head: str
    keys: tuple[str, ...] = KEYS_KEPT_ELSEWHERE


def back_up(
    ledger: Ledger,
    ledger_url: str,
    content_store: ContentStore,
    target: Path,
    *,
    environment: Mapping[str, str],
    progress: Progress = lambda _: None,
) -> BackupManifest:
    """Write a backup into a new directory.

    The URL and the environment are for PostgreSQL's programs.

    Raises:
        InstallationError: the operator's fault: the target exists.
        DumpError: the operator's fault: no fitting `pg_dump`.
        FileLeaseLostError: nobody's fault: this host stood still, so a sweep may have removed files it names.
    """
    if target.exists():
        raise InstallationError(f"{target} exists: name a new directory")
    draft = target.with_name(f".{target.name}.unfinished")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True, mode=0o700)
    try:
        made = _write(ledger, ledger_url, content_store, draft, environment, progress)
        Disk().write_atomically(draft / MANIFEST, made.model_dump_json(indent=2).encode() + b"\n")
        draft.rename(target)
        Disk().sync_directory(target.parent)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return made


def _write(
    ledger: Ledger,
    ledger_url: str,
    content_store: ContentStore,
    draft: Path,
    environment: Mapping[str, str],
    progress: Progress,
) -> BackupManifest:
    revision = found_revision(ledger.engine)
    if revision is None:
        raise InstallationError("the ledger has no schema, so there is nothing to back up")
    lease = FileLease(ledger, BACKUP, on_wait=lambda: progress("another backup is under way; waiting for its end"))
    with lease, open_snapshot(ledger_url) as snapshot:  # no sweep removes a file
        made_at = datetime.now(UTC)
        progress("writing the ledger")
        write_dump(snapshot, ledger_url, draft / DUMP, environment=environment)
        blobs = _named_blobs(kept_releases(snapshot.session))
        rows, head = counts(snapshot.session), newest_head(snapshot.session)
        sizes, damaged = _copy(content_store, blobs, ContentStore(draft / BLOBS), progress)
        lease.check()
    digest, size = hash_file(draft / DUMP)
    return BackupManifest(
        made_at=made_at,
        pointsman=version("pointsman"),
        revision=revision,
        server=snapshot.server,
        dump_bytes=size,
        dump_sha256=digest,
        blobs=len(sizes),
        blob_bytes=sum(sizes.values()),
        blobs_sha256=hash_names(sizes),
        damaged=tuple(sorted(damaged)),
        counts=rows,
        audit_head=head,
    )


def _named_blobs(releases: Iterable[KeptRelease]) -> set[str]:
    named: set[str] = set()
    for release in releases:
        named.update(entry.sha256 for entry in manifest_of_dict(release.manifest).values())
        named.update(release.blobs)
    return named


def _copy(
    content_store: ContentStore, blobs: Iterable[str], target: ContentStore, progress: Progress
) -> tuple[dict[str, int], set[str]]:
    """Copy files, each verified against its digest; return their sizes, and the missing or damaged ones.

    Past the cache of an object store: damage in the bucket would stay hidden behind it.
    """
    sizes: dict[str, int] = {}
    damaged: set[str] = set()
    for number, sha256 in enumerate(sorted(blobs), 1):
        try:
            data = content_store.blobs.scrub(sha256)
        except (BlobMissingError, BlobCorruptError):
            damaged.add(sha256)
            continue
        except StoreUnavailableError:
            content_store.blobs.owner()  # raises where it is not this file alone that cannot be read
            damaged.add(sha256)
            continue
        target.put(data)
        sizes[sha256] = len(data)
        if number % _PROGRESS_INTERVAL == 0:
            progress(f"copied {number} files")
    return sizes, damaged


def read_backup(source: Path) -> BackupManifest:
    """Read a backup's manifest, and check that its parts match it.

    Raises:
        InstallationError: the operator's fault, or the disk's: it is not a backup, or incomplete.
    """
    try:
        made = BackupManifest.model_validate_json((source / MANIFEST).read_bytes())
    except FileNotFoundError:
        raise InstallationError(f"{source} holds no {MANIFEST}: it is not a backup, or an unfinished one") from None
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        raise InstallationError(f"{source / MANIFEST}: {where} is invalid for this version") from None
    if not (source / DUMP).is_file() or hash_file(source / DUMP) != (made.dump_sha256, made.dump_bytes):
        raise InstallationError(f"{source / DUMP} does not match the manifest")
    if hash_names(stored_blobs(source)) != made.blobs_sha256:
        raise InstallationError(f"{source / BLOBS} does not match the manifest")
    return made


def stored_blobs(source: Path) -> list[str]:
    """Return the digests of a backup's files."""
    return sorted(path.name for path in (source / BLOBS / "blobs").glob("*/*"))


def hash_file(path: Path) -> tuple[str, int]:
    """Return a file's SHA-256 in hex and its size in bytes."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return digest, path.stat().st_size


def hash_names(names: Iterable[str]) -> str:
    """Return a hash of a set of names."""
    return hashlib.sha256("".join(f"{name}\n" for name in sorted(names)).encode()).hexdigest()


class Restored(NamedTuple):
    """The result of a restoration."""

    backup: BackupManifest
    repaired: Repaired
    shown: int
    """Sites whose live copy was rewritten."""
    lagging: int
    """Sites whose live copy could not be written; the dispatcher retries."""
    placed: Placed
    audit_problems: tuple[str, ...] | None
    """Problems of the audit chain; None if there was no key to verify it."""


def restore(
    ledger: Ledger,
    ledger_url: str,
    content_store: ContentStore,
    source: Path,
    *,
    environment: Mapping[str, str],
    is_forced: bool = False,
    resend: bool = False,
    signing_key: bytes = b"",
    directory: Directory | None = None,
    cell: str = "",
    progress: Progress = lambda _: None,
) -> Restored:
    """Restore a backup into a ledger and a content store that no process uses.

    The whole backup is checked first. Files come before the ledger, so that no row names a missing one.

    The target's tables may be of any version, and its files stay. The URL and the environment are for PostgreSQL's
    programs; without a signing key the audit chain is not verified. The directory is that of the fleet of which it is
    this cell.

    Raises:
        InstallationError: the operator's fault, or the disk's: the backup is incomplete, or the target is in use or
            not empty.
        SchemaMismatchError: the operator's fault: a newer version made the backup.
        DumpError: the operator's fault: no fitting `pg_restore`, or it failed.
    """
    progress("checking the backup")
    made = read_backup(source)
    if fit_of(made.revision, wanted_revision()) not in (Fit.CURRENT, Fit.OLDER):
        raise SchemaMismatchError(made.revision, wanted_revision())
    _check_blobs(source)
    _check_target(ledger, content_store, is_forced=is_forced)
    if directory is not None:
        directory.prepare()  # or it cannot be reached, and nothing was touched
    dump = open_dump(source / DUMP, ledger_url, server=made.server, environment=environment)
    progress(f"copying {made.blobs} files")
    begin_restoring(content_store)
    _copy_blobs(source, content_store)
    progress("reading the ledger")
    others = clear(ledger.engine)
    read_dump(dump, ledger_url, environment=environment, besides=others)
    migrate(ledger.engine)
    progress("repairing the restored ledger")
    problems: tuple[str, ...] | None = None
    if signing_key:
        with ledger.begin() as session:
            problems = verify(session, signing_key=signing_key, expected_head=made.audit_head).problems
    with ledger.begin() as session:
        repaired = repair(session, resend=resend, made_at=made.made_at.isoformat(), audit_head=made.audit_head)
    placed = place_tenants(ledger, directory, cell) if directory is not None else Placed()
    take_over(ledger, content_store)
    shown, lagging = _show(ledger, content_store)
    return Restored(made, repaired, shown, lagging, placed, problems)


def _check_blobs(source: Path) -> None:
    stored = ContentStore(source / BLOBS)
    for sha256 in stored_blobs(source):
        try:
            stored.get(sha256)
        except BlobCorruptError as error:
            raise InstallationError(f"the backup is damaged: {error}") from None


def _check_target(ledger: Ledger, content_store: ContentStore, *, is_forced: bool) -> None:
    ledger.close()  # our own connections must not count
    if others := users_of(ledger.engine):
        raise InstallationError(f"the ledger has {others} other connections: stop every process of the installation")
    if is_forced:
        return
    if not is_empty(ledger.engine):
        raise InstallationError("the ledger is not empty; --force deletes what it holds")
    if any(content_store.blobs.list()):
        raise InstallationError(
            "the content store holds files; --force keeps them beside those of the backup, "
            "but the restored ledger sweeps what it does not name: never use the store of another installation"
        )


def _copy_blobs(source: Path, content_store: ContentStore) -> None:
    stored = ContentStore(source / BLOBS)
    for sha256 in stored_blobs(source):
        content_store.put(stored.get(sha256))


def _show(ledger: Ledger, content_store: ContentStore) -> tuple[int, int]:
    shown = lagging = 0
    tried: list[UUID] = []
    while True:
        with ledger.begin() as session:
            sites = lagging_sites(session, besides=tried)
        if not sites:
            return shown, lagging
        for site_id in sites:
            tried.append(site_id)
            is_shown = try_show_active(ledger, content_store, site_id) is None
            shown, lagging = shown + is_shown, lagging + (not is_shown)

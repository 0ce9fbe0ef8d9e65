"""Back up an installation while it works: its ledger as of one moment, and every file that this ledger names.

First the moment is chosen, then the files that it names are copied; sweeps are kept out meanwhile, by the lock they
take themselves. Publishing goes on: what is added later is named by no row of the backup. Secrets stay where they are,
and the manifest says which of them have to be kept elsewhere. A backup gets its name when it is whole.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from sqlalchemy import delete as sql_delete
from sqlalchemy import func, select
from sqlalchemy import update as sql_update
from sqlmodel import Session, col

from ledger import audit
from ledger.attempts import recover
from ledger.audit import newest_head, verify
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
from ledger.record_tables import Leader, Notification
from ledger.releases import KeptRelease, kept_releases, lagging_sites
from ledger.store import Fit, Ledger, after, fit_of, found_revision, wanted_revision
from ledger.tables import Attempt, Call, Job, Site
from monitoring.event_metrics import rebase
from producers.errors import InstallationError
from routing.jobs import Reason
from sites.content_store import Den, Disk
from sites.errors import BlobCorruptError, BlobMissingError
from sites.releases import manifest_of_dict, try_to_show_active

# Make a restored past go on: nobody works on it any more, and what came after it is not known to it.
#
# Run once, after a ledger was read back and before anything else works on it. Whoever still holds a job of the time
# that
# was lost (a worker that nobody stopped) is fenced off: the fence of every unfinished job jumps over all that it had.

FENCE_JUMP = 1_000_000
"""More claims than any job can have had since the backup was made."""
_BATCH = 500


class Repaired(NamedTuple):
    """What a restored ledger had to be told."""

    attempts: int
    """Lost with the workers that they ran on."""
    calls: int
    """Model calls whose end nobody knows: charged in full."""
    unpushed: int
    """Jobs whose message has to be sent again."""
    withheld: int
    """Notifications that were not sent when the backup was made, and may have been since: they are not sent again."""
    folded: int
    """Events that the metrics had not counted yet."""


def repair(session: Session, *, resend: bool = False, **facts: Any) -> Repaired:
    """Repair a restored ledger, in the caller's transaction, and put on record that it was restored.

    Args:
        session: the caller's transaction; nothing else may use the ledger.
        resend: send the notifications that were due, although their receivers may have them.
        facts: for the audit trail: which backup it was.
    """
    folded = rebase(session)
    session.execute(sql_delete(Leader))
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
    """Let every job that was worked on wait again: its worker was stopped with the ledger, and no crash is counted."""
    live = col(Attempt.ended_at).is_(None)
    values = {"lease_until": after(-1), "lost_cause": Reason.WORKER_STOPPED.value}
    session.execute(sql_update(Attempt).where(live).values(**values))
    attempts = session.scalars(select(Attempt).where(live).order_by(col(Attempt.job_id))).all()
    for attempt in attempts:
        recover(session, attempt, max_lost=1)
    return len(attempts)


def _withhold(session: Session) -> int:
    due = col(Notification.delivered_at).is_(None) & col(Notification.next_at).is_not(None)
    held = session.execute(sql_update(Notification).where(due).values(next_at=None))
    return int(held.rowcount)  # type: ignore[attr-defined]


def counts(session: Session) -> dict[str, int]:
    """Return how much a ledger holds of what people ask about."""
    tables = {"sites": Site, "jobs": Job, "attempts": Attempt, "calls": Call}
    return {name: int(session.scalar(select(func.count()).select_from(table)) or 0) for name, table in tables.items()}


MANIFEST, DUMP, BLOBS = "manifest.json", "ledger.operations.migrate", "den"
FORMAT: Final = 1
KEYS_KEPT_ELSEWHERE = (
    "POINTSMAN_AUDIT__SIGNING_KEY",
    "POINTSMAN_PREVIEW__KEYS",
    "POINTSMAN_WEBHOOK__SECRET",
    "POINTSMAN_GATEWAY__PEPPER",
    "POINTSMAN_GATEWAY__PROVIDERS",
    "POINTSMAN_ACCOUNTS",
)
"""What a restored installation needs besides, and no backup holds."""
_EVERY = 200
"""Files between two words of progress."""

Progress = Callable[[str], None]


class BackupManifest(BaseModel):
    """What a backup holds, and of which moment."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    format: Literal[1] = FORMAT
    made_at: datetime
    pointsman: str
    """The version that made it."""
    revision: str
    """The ledger's schema."""
    server: int = Field(ge=1)
    """Major version of PostgreSQL."""
    dump_bytes: int = Field(ge=0)
    dump_sha256: str
    blobs: int = Field(ge=0)
    blob_bytes: int = Field(ge=0)
    blobs_sha256: str
    """Hash of the sorted digests, a line each: which files belong to it."""
    damaged: tuple[str, ...] = ()
    """Files that the Den itself could not give any more."""
    counts: dict[str, int]
    audit_head: str
    keys: tuple[str, ...] = KEYS_KEPT_ELSEWHERE


def back_up(
    ledger: Ledger,
    ledger_url: str,
    den: Den,
    target: Path,
    *,
    environment: Mapping[str, str],
    progress: Progress = lambda _: None,
) -> BackupManifest:
    """Write a backup into a directory that is not there yet.

    Args:
        ledger: the ledger, for its schema.
        ledger_url: where it is.
        den: the files.
        target: where the backup goes.
        environment: what PostgreSQL's programs get besides.
        progress: told what is being done.

    Raises:
        InstallationError: the operator's fault: there is something at the target.
        DumpError: the operator's fault: no fitting `pg_dump`.
    """
    if target.exists():
        raise InstallationError(f"{target} is there already: name a directory that a backup can make")
    draft = target.with_name(f".{target.name}.unfinished")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True, mode=0o700)
    try:
        made = _write(ledger, ledger_url, den, draft, environment, progress)
        Disk().write_atomically(draft / MANIFEST, made.model_dump_json(indent=2).encode() + b"\n")
        draft.rename(target)
        Disk().sync_directory(target.parent)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return made


def _write(
    ledger: Ledger, ledger_url: str, den: Den, draft: Path, environment: Mapping[str, str], progress: Progress
) -> BackupManifest:
    revision = found_revision(ledger.engine)
    if revision is None:
        raise InstallationError("the ledger has no schema: there is nothing to back up")
    with _unswept(den), open_snapshot(ledger_url) as snapshot:
        made_at = datetime.now(UTC)
        progress("writing the ledger")
        write_dump(snapshot, ledger_url, draft / DUMP, environment=environment)
        wanted = _named_blobs(kept_releases(snapshot.session))
        held, head = counts(snapshot.session), newest_head(snapshot.session)
        sizes, damaged = _copy(den, wanted, Den(draft / BLOBS), progress)
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
        counts=held,
        audit_head=head,
    )


@contextmanager
def _unswept(den: Den) -> Iterator[None]:
    """Keep sweeps from removing files; whoever stores files takes the same lock as we do, and goes on."""
    with Disk().sharing(den.root):
        yield


def _named_blobs(releases: Iterable[KeptRelease]) -> set[str]:
    wanted: set[str] = set()
    for release in releases:
        wanted.update(entry.sha256 for entry in manifest_of_dict(release.manifest).values())
        wanted.update(release.blobs)
    return wanted


def _copy(den: Den, wanted: Iterable[str], target: Den, progress: Progress) -> tuple[dict[str, int], set[str]]:
    """Copy files, each checked against its digest; return their sizes, and those that cannot be read any more."""
    sizes: dict[str, int] = {}
    damaged: set[str] = set()
    for number, sha256 in enumerate(sorted(wanted), 1):
        try:
            data = den.get(sha256)
        except (BlobMissingError, BlobCorruptError):
            damaged.add(sha256)
            continue
        target.put(data)
        sizes[sha256] = len(data)
        if number % _EVERY == 0:
            progress(f"copied {number} files")
    return sizes, damaged


def read_backup(source: Path) -> BackupManifest:
    """Read a backup's manifest, and check that its parts are those that it names.

    Raises:
        InstallationError: the operator's fault, or the disk's: it is none, or not whole.
    """
    try:
        made = BackupManifest.model_validate_json((source / MANIFEST).read_bytes())
    except FileNotFoundError:
        raise InstallationError(f"{source} holds no {MANIFEST}: it is no backup, or an unfinished one") from None
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        raise InstallationError(f"{source / MANIFEST}: {where} is not what this version reads") from None
    if not (source / DUMP).is_file() or hash_file(source / DUMP) != (made.dump_sha256, made.dump_bytes):
        raise InstallationError(f"{source / DUMP} is not the file that the manifest names")
    if hash_names(stored_blobs(source)) != made.blobs_sha256:
        raise InstallationError(f"{source / BLOBS} does not hold the files that the manifest names")
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


# Bring a backup back to life: checked as a whole before anything is touched, then files, ledger, and repairs.
#
# Files come first, so that no row names one that is not there. What a restored past does not know of is told to it in
# `producers.backup`.


class Restored(NamedTuple):
    """What a restore did."""

    backup: BackupManifest
    repaired: Repaired
    shown: int
    """Sites whose copy for web servers was written anew."""
    lagging: int
    """Sites whose copy could not be written: the dispatcher tries again."""
    audit_problems: tuple[str, ...] | None
    """What is amiss with the audit chain; None where there was no key to check it with."""


def restore(
    ledger: Ledger,
    ledger_url: str,
    den: Den,
    source: Path,
    *,
    environment: Mapping[str, str],
    is_forced: bool = False,
    resend: bool = False,
    signing_key: bytes = b"",
    progress: Progress = lambda _: None,
) -> Restored:
    """Restore a backup into a ledger and a Den that nobody uses.

    Args:
        ledger: where the ledger goes; it may have tables of any version.
        ledger_url: where that is.
        den: where the files go; those that are there stay.
        source: the backup.
        environment: what PostgreSQL's programs get besides.
        is_forced: what the target holds is given up.
        resend: send notifications that were due when the backup was made.
        signing_key: what the audit chain is checked with; empty to leave that.
        progress: told what is being done.

    Raises:
        InstallationError: the operator's fault, or the disk's: the backup is not whole, or the target is in use or
            not empty.
        SchemaMismatchError: the operator's fault: a newer version made the backup.
        DumpError: the operator's fault: no fitting `pg_restore`, or it failed.
    """
    progress("checking the backup")
    made = read_backup(source)
    if fit_of(made.revision, wanted_revision()) not in (Fit.CURRENT, Fit.OLDER):
        raise SchemaMismatchError(made.revision, wanted_revision())
    _check_blobs(source)
    _check_target(ledger, den, is_forced=is_forced)
    dump = open_dump(source / DUMP, ledger_url, server=made.server, environment=environment)
    progress(f"copying {made.blobs} files")
    _copy_blobs(source, den)
    progress("reading the ledger")
    clear(ledger.engine)
    read_dump(dump, ledger_url, environment=environment)
    migrate(ledger.engine)
    return _bring_to_life(ledger, den, made, resend=resend, signing_key=signing_key, progress=progress)


def _check_blobs(source: Path) -> None:
    stored = Den(source / BLOBS)
    for sha256 in stored_blobs(source):
        try:
            stored.get(sha256)
        except BlobCorruptError as error:
            raise InstallationError(f"the backup is damaged: {error}") from None


def _check_target(ledger: Ledger, den: Den, *, is_forced: bool) -> None:
    ledger.close()  # our own connections must not count
    if others := users_of(ledger.engine):
        raise InstallationError(
            f"{others} other connections to the ledger are open: stop every process of the installation"
        )
    if is_forced:
        return
    if not is_empty(ledger.engine):
        raise InstallationError("the ledger is not empty; --force gives up what it holds")
    if any((den.root / "blobs").glob("*/*")):
        raise InstallationError(f"{den.root} holds files; --force keeps them beside those of the backup")


def _copy_blobs(source: Path, den: Den) -> None:
    stored = Den(source / BLOBS)
    for sha256 in stored_blobs(source):
        den.put(stored.get(sha256))


def _bring_to_life(
    ledger: Ledger, den: Den, made: BackupManifest, *, resend: bool, signing_key: bytes, progress: Progress
) -> Restored:
    progress("repairing what a restored past does not know of")
    problems: tuple[str, ...] | None = None
    if signing_key:
        with ledger.begin() as session:
            problems = verify(session, signing_key=signing_key, expected_head=made.audit_head).problems
    with ledger.begin() as session:
        repaired = repair(session, resend=resend, made_at=made.made_at.isoformat(), audit_head=made.audit_head)
    shown, lagging = _show(ledger, den)
    return Restored(made, repaired, shown, lagging, problems)


def _show(ledger: Ledger, den: Den) -> tuple[int, int]:
    shown = lagging = 0
    tried: list[UUID] = []
    while True:
        with ledger.begin() as session:
            sites = lagging_sites(session, besides=tried)
        if not sites:
            return shown, lagging
        for site_id in sites:
            tried.append(site_id)
            is_shown = try_to_show_active(ledger, den, site_id) is None
            shown, lagging = shown + is_shown, lagging + (not is_shown)

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
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from monitoring.audit_chain import newest_head
from monitoring.ledger.dump import open_snapshot, write_dump
from monitoring.ledger.releases import KeptRelease, kept_releases
from monitoring.ledger.store import Ledger, found_revision
from monitoring.restored import counts
from producers.errors import InstallationError
from sandbox.den import Den
from sandbox.disk import Disk
from sandbox.errors import BlobCorruptError, BlobMissingError
from sandbox.release import manifest_of_dict

MANIFEST, DUMP, BLOBS = "manifest.json", "ledger.dump", "den"
FORMAT: Final = 1
KEYS_KEPT_ELSEWHERE = (
    "POINTSMAN_AUDIT__SIGNING_KEY", "POINTSMAN_PREVIEW__KEYS", "POINTSMAN_WEBHOOK__SECRET", "POINTSMAN_GATEWAY__PEPPER",
    "POINTSMAN_GATEWAY__PROVIDERS", "POINTSMAN_ACCOUNTS",
)  # fmt: skip
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
    ledger: Ledger, ledger_url: str, den: Den, target: Path, *, environment: Mapping[str, str],
    progress: Progress = lambda _: None,
) -> BackupManifest:  # fmt: skip
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
        made_at=made_at, pointsman=version("pointsman"), revision=revision, server=snapshot.server,
        dump_bytes=size, dump_sha256=digest, blobs=len(sizes), blob_bytes=sum(sizes.values()),
        blobs_sha256=hash_names(sizes), damaged=tuple(sorted(damaged)), counts=held, audit_head=head,
    )  # fmt: skip


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

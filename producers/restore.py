"""Bring a backup back to life: checked as a whole before anything is touched, then files, ledger, and repairs.

Files come first, so that no row names one that is not there. What a restored past does not know of is told to it in
`monitoring.restored`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from monitoring.audit_chain import verify
from monitoring.errors import SchemaMismatchError
from monitoring.ledger.dump import clear, is_empty, open_dump, read_dump, users_of
from monitoring.ledger.migrate import migrate
from monitoring.ledger.releases import lagging_sites
from monitoring.ledger.store import Fit, Ledger, fit_of, wanted_revision
from monitoring.restored import Repaired, repair
from producers.backup import BLOBS, DUMP, BackupManifest, Progress, read_backup, stored_blobs
from producers.errors import InstallationError
from sandbox.den import Den
from sandbox.errors import BlobCorruptError
from sandbox.release import try_to_show_active


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
    ledger: Ledger, ledger_url: str, den: Den, source: Path, *, environment: Mapping[str, str], is_forced: bool = False,
    resend: bool = False, signing_key: bytes = b"", progress: Progress = lambda _: None,
) -> Restored:  # fmt: skip
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

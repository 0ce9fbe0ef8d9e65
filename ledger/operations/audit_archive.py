"""Move old rows of the audit trail into files, with the seals that chain them; the ledger keeps the newest such seal.

Files only grow, hold whole seals with their rows, and are written by one process at a time, under the sealer's lock.
Rows are deleted only after they are safe on disk. The seal that stays is signed as archived, so rows that were deleted
without being archived are still a gap that verification finds.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import delete, select
from sqlalchemy import update as sql_update
from sqlmodel import Session, col

from ledger import audit
from ledger.audit import AuditVerdict
from ledger.durable import sync_directory
from ledger.errors import ArchiveError
from ledger.record_tables import AuditRow, AuditSeal
from ledger.store import after

MAX_ROWS = 10_000
"""The most rows that one call archives, give or take the last seal's."""
MAX_FILE_BYTES = 64 * 1024 * 1024
"""Size at which a new file is started."""
_MAX_SEALS = 500
_DAY_SECONDS = 86_400.0


@dataclass(frozen=True)
class Group:
    """A seal in an archive, and the lines of its rows."""

    seal: AuditSeal
    rows: tuple[dict[str, Any], ...]


class Archive:
    """The files of one archive, in the order of the chain: each is named after its first seal."""

    def __init__(self, directory: Path, *, max_file_bytes: int = MAX_FILE_BYTES) -> None:
        self._directory = directory
        self._max_file_bytes = max_file_bytes

    def files(self) -> list[Path]:
        """Return the files, oldest first."""
        return sorted(self._directory.glob("audit-*.jsonl"))

    def groups(self) -> Iterator[Group]:
        """Yield every seal with its rows, in order.

        Raises:
            ArchiveError: a file holds something else.
        """
        for path in self.files():
            for group, _ in _groups_of(path):
                yield group

    def mend(self) -> AuditSeal | None:
        """Cut off what a crash left half-written, and return the newest seal; None for an empty archive."""
        newest: AuditSeal | None = None
        for path in reversed(self.files()):
            whole = 0
            for group, end in _groups_of(path, is_torn_allowed=True):
                newest, whole = group.seal, end
            if whole < path.stat().st_size:
                with path.open("r+b") as file:
                    file.truncate(whole)
                    os.fsync(file.fileno())
            if newest is not None:
                return newest
        return None

    def append(self, groups: Sequence[Group]) -> None:
        """Add seals with their rows; they are on disk when this returns."""
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o750)
        last = next(reversed(self.files()), None)
        if last is None or last.stat().st_size >= self._max_file_bytes:
            last = self._directory / f"audit-{groups[0].seal.number:012d}.jsonl"
        with last.open("ab") as file:
            for group in groups:
                file.write(b"".join(_lines(group)))
            file.flush()
            os.fsync(file.fileno())
        sync_directory(self._directory)


def archive_old(session: Session, archive: Archive, *, signing_key: bytes, days: float) -> int:
    """Move rows that were sealed this many days ago into the archive, and return how many left the ledger.

    Raises:
        ArchiveError: the archive does not fit the chain, or the chain does not verify; nothing was deleted.
    """
    if not audit.try_to_hold(session):
        return 0
    anchor = audit.anchor_of(session, signing_key=signing_key)
    old = _old_groups(session, anchor, signing_key=signing_key, days=days)
    if not old:
        return 0
    newest = archive.mend()
    _check_fits(session, newest, anchor)
    missing = [group for group in old if newest is None or group.seal.number > newest.number]
    if missing:
        archive.append(missing)
    last = old[-1].seal
    session.execute(delete(AuditRow).where(col(AuditRow.seq) <= last.last_seq))
    session.execute(delete(AuditSeal).where(col(AuditSeal.number) < last.number))
    mark = audit.sign_archived(last, signing_key)
    session.execute(sql_update(AuditSeal).where(col(AuditSeal.number) == last.number).values(archived=mark))
    return sum(len(group.rows) for group in old)


def _old_groups(session: Session, anchor: AuditSeal | None, *, signing_key: bytes, days: float) -> list[Group]:
    """Return the oldest seals with their rows, if they are old enough, after verifying them."""
    query = select(AuditSeal).where(col(AuditSeal.at) < after(-days * _DAY_SECONDS))
    if anchor is not None:
        query = query.where(col(AuditSeal.number) > anchor.number)
    groups: list[Group] = []
    previous, rows = anchor, 0
    for current in session.scalars(query.order_by(col(AuditSeal.number)).limit(_MAX_SEALS)):
        checked = audit.check_seal(session, previous, current, signing_key=signing_key)
        if checked.problems:
            raise ArchiveError(f"the trail does not verify, so nothing of it is archived: {checked.problems[0]}")
        groups.append(Group(current, checked.rows))
        previous, rows = current, rows + len(checked.rows)
        if rows >= MAX_ROWS:
            break
    return groups


def _check_fits(session: Session, newest: AuditSeal | None, anchor: AuditSeal | None) -> None:
    """Check that an archive ends with a seal that the ledger has: its first or a later one.

    It is a later one after a crash between archiving and deleting, and after the ledger was restored from a backup.
    """
    if newest is None:
        if anchor is not None:
            raise ArchiveError(f"the archive is empty, but everything up to seal {anchor.number} was archived before")
        return
    if session.scalar(select(col(AuditSeal.hash)).where(col(AuditSeal.number) == newest.number)) != newest.hash:
        raise ArchiveError(f"the archive ends with seal {newest.number}, which is not where the ledger's chain goes on")


def verify_with_archive(
    session: Session, archive: Archive, *, signing_key: bytes, expected_head: str | None = None
) -> AuditVerdict:
    """Check the whole chain: first the archive, then the ledger.

    `expected_head` is a `head` that an earlier verification returned; the chain must still hold that seal.
    """
    anchor = audit.anchor_of(session, signing_key=signing_key)
    reached = anchor.number if anchor is not None else 0
    problems: list[str] = []
    hashes: dict[int, str] = {}
    previous: AuditSeal | None = None
    seals = rows = 0
    try:
        for group in archive.groups():
            group_problems = audit.check_group(previous, group.seal, group.rows, signing_key)
            problems += [f"archive: {problem}" for problem in group_problems]
            previous = group.seal
            hashes[previous.number] = previous.hash
            if previous.number <= reached:  # later seals, after a crash, are in the ledger too and counted there
                seals, rows = seals + 1, rows + previous.rows
    except ArchiveError as error:
        problems.append(f"archive: {error}")
    problems += _problems_of_join(anchor, hashes)
    number, _, seal_hash = (expected_head or "").partition(":")
    is_archived = number.isdigit() and hashes.get(int(number)) == seal_hash
    rest = audit.verify(session, signing_key=signing_key, expected_head=None if is_archived else expected_head)
    problems += rest.problems
    return AuditVerdict(not problems, seals + rest.seals, rows + rest.rows, rest.unsealed, tuple(problems), rest.head)


def _problems_of_join(anchor: AuditSeal | None, hashes: dict[int, str]) -> list[str]:
    if anchor is None:
        return []
    if anchor.number not in hashes:
        return [f"the archive does not reach seal {anchor.number}, up to which rows have left the ledger"]
    return [] if hashes[anchor.number] == anchor.hash else [f"the archive holds another seal {anchor.number}"]


def _lines(group: Group) -> Iterator[bytes]:
    yield audit.line({"type": "seal", **audit.seal_facts(group.seal)})
    for row in group.rows:
        yield audit.line({"type": "row", **row})


def _groups_of(path: Path, *, is_torn_allowed: bool = False) -> Iterator[tuple[Group, int]]:
    """Yield the seals of a file with their rows, each with the offset of its end."""
    seal: AuditSeal | None = None
    rows: list[dict[str, Any]] = []
    for values, end in _read(path, is_torn_allowed=is_torn_allowed):
        kind = values.pop("type", None)
        if kind == "seal" and seal is None:
            seal, rows = _seal_of(path, values), []
        elif kind == "row" and seal is not None:
            rows.append(values)
        else:
            raise ArchiveError(f"{path.name} holds a line that is neither a seal nor a row of one")
        if len(rows) == seal.rows:
            yield Group(seal, tuple(rows)), end
            seal = None
    if seal is not None and not is_torn_allowed:
        raise ArchiveError(f"{path.name} ends within the rows of seal {seal.number}")


def _read(path: Path, *, is_torn_allowed: bool) -> Iterator[tuple[dict[str, Any], int]]:
    end = 0
    with path.open("rb") as file:
        for raw in file:
            end += len(raw)
            try:
                values = json.loads(raw) if raw.endswith(b"\n") else None
            except ValueError:
                values = None
            if not isinstance(values, dict):
                if is_torn_allowed:
                    return
                raise ArchiveError(f"{path.name} holds a line that is no JSON object")
            yield values, end


def _seal_of(path: Path, values: dict[str, Any]) -> AuditSeal:
    try:
        return AuditSeal(**{**values, "at": datetime.fromisoformat(values["at"])})
    except (KeyError, TypeError, ValueError):
        raise ArchiveError(f"{path.name} holds a seal that lacks a part") from None

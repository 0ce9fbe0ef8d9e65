"""The audit trail: who did what, with the six facts of H-117 about every edit, chained by signed seals.

A seal covers every row between the last row of the seal before it and its own last row, so that an edit, a gap or a
forged row shows. Rows are sealed only when no running transaction can still add one before them: whatever turns up in a
sealed range later was forged. A rollback leaves a gap in `seq`; the sealed content names every `seq`, so an honest gap
and a deleted row differ.

Seals are signed with HMAC-SHA256. An asymmetric signature (Ed25519) would let an auditor verify without a key that can
also forge; HMAC suffices while sealer and verifier are the same operator, who could read a private key too. The chain
alone cannot show that its newest seals are missing: keep the head that `verify` prints out of reach of the database's
owner.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TextIO
from uuid import UUID

from sqlalchemy import RowMapping, Table, func, select
from sqlalchemy import update as sql_update
from sqlmodel import Session, SQLModel, col

from ledger.durable import replace_file
from ledger.events import BARRIER_SECONDS, await_commit_barrier
from ledger.record_tables import Approval, AuditRow, AuditSeal
from ledger.store import AdvisoryLock, Statement, dump_json, now
from ledger.tables import Job, Release
from routing.redaction import redact, redact_all

_COLUMNS = """
    action, actor, tenant, job_id, tier, prompt, prompt_sha256, input_hash, output_hash, scan, approval, detail
"""
INSERT_AUDIT = f"""
    INSERT INTO audit ({_COLUMNS}) SELECT {_COLUMNS}
      FROM jsonb_populate_recordset(CAST(NULL AS audit), CAST(%(audit)s AS jsonb)) WITH ORDINALITY AS done
"""
"""For statements that write audit rows together with others, made by `audit_row`. It ends in a FROM clause."""
_APPEND = Statement(INSERT_AUDIT)
REFUSED = "job_refused"
"""The action of a refused request."""
MOVED_OUT, MOVED_IN = "tenant_moved_out", "tenant_moved_in"
NONE = "none"
"""Stands for a missing fact: that a failed edit has no output is on record, too."""


@dataclass(frozen=True)
class Facts:
    """Four of the six facts about an edit; tier and prompt are on the job."""

    input_hash: str = NONE
    output_hash: str = NONE
    scan: str = NONE
    approval: str = NONE


def facts_of(session: Session, job: Job) -> Facts:
    """Collect the facts about a job as they stand in this transaction."""
    base = session.get(Release, job.base_release_id) if job.base_release_id else None
    release = session.get(Release, job.release_id) if job.release_id else None
    approval = session.get(Approval, job.id) if release else None  # what is judged is a release
    return Facts(
        input_hash=base.digest if base else NONE,
        output_hash=release.digest if release else NONE,
        scan=NONE if release is None else "passed" if release.scan_passed else "refused",
        approval=approval.decision if approval else NONE,
    )


def append(
    session: Session, action: str, *, actor: str, job: Job | None = None, facts: Facts | None = None, **detail: Any
) -> None:
    """Append one row in the caller's transaction; the sealer chains it later.

    The four facts about the job are collected unless the caller has them; `detail` goes into the row's JSON.
    """
    if facts is None:
        facts = facts_of(session, job) if job is not None else Facts()
    _APPEND.all(session, {"audit": dump_json([audit_row(action, actor=actor, job=job, facts=facts, detail=detail)])})


def audit_row(action: str, *, actor: str, job: Job | None, facts: Facts, detail: dict[str, Any]) -> dict[str, Any]:
    """Return a row for `INSERT_AUDIT`; the arguments are those of `append`."""
    prompt = job.prompt if job else None
    return {
        "action": action,
        "actor": actor,
        "tenant": job.tenant if job else detail.pop("tenant", None),
        "job_id": job.id if job else detail.pop("job_id", None),
        "tier": job.tier if job else None,
        "prompt": redact(prompt) if prompt is not None else None,
        "prompt_sha256": hashlib.sha256(prompt.encode()).hexdigest() if prompt is not None else None,
        "detail": redact_all(detail),
        **vars(facts),
    }


def refused_message(session: Session, job_id: UUID) -> str:
    """Return why a message that belongs to no tenant was refused; empty if there was none under this id."""
    query = select(col(AuditRow.detail)).where(
        col(AuditRow.job_id) == job_id, col(AuditRow.action) == REFUSED, col(AuditRow.tenant).is_(None)
    )
    detail = session.scalars(query.limit(1)).first()
    return "; ".join(f"{error['field']}: {error['rule']}" for error in detail["errors"]) if detail else ""


GENESIS = "0" * 64
"""The hash that the first seal names as its predecessor's."""
MAX_ROWS = 10_000
"""The most rows that one seal covers."""
_AUDIT: Table = SQLModel.metadata.tables[str(AuditRow.__tablename__)]
_PAGE_ROWS = 2_000
_TRY_LOCK = Statement("SELECT pg_try_advisory_xact_lock(%(key)s)")
_LOCK = Statement("SELECT pg_advisory_xact_lock(%(key)s)")
_DRAWN = Statement("SELECT CASE WHEN is_called THEN last_value END FROM audit_seq_seq")


class Digest(NamedTuple):
    """A seal's summary of its rows."""

    first_seq: int
    last_seq: int
    rows: int
    rows_hash: str


class CheckedSeal(NamedTuple):
    """The rows under a seal, and what is wrong with them or with the seal."""

    problems: tuple[str, ...]
    rows: tuple[dict[str, Any], ...]
    """In the form that is sealed and written to files."""


class AuditVerdict(NamedTuple):
    """The result of a verification."""

    ok: bool
    seals: int
    rows: int
    """Sealed rows."""
    unsealed: int
    problems: tuple[str, ...]
    head: str
    """Number and hash of the newest seal, to be kept elsewhere and passed as `expected_head` later."""


def seal(session: Session, *, signing_key: bytes, patience_seconds: float = BARRIER_SECONDS) -> AuditSeal | None:
    """Chain the unsealed rows, at most `MAX_ROWS` of them, in the caller's transaction.

    Args:
        session: the caller's transaction, at the default isolation level.
        signing_key: the key of the signature.
        patience_seconds: how long to wait for transactions that may still add a row before the last one.

    Returns:
        None when there is nothing to seal yet, or another process is sealing.
    """
    if not try_to_hold(session):
        return None
    newest = session.scalars(select(AuditSeal).order_by(col(AuditSeal.number).desc()).limit(1)).one_or_none()
    at = session.scalar(select(now())) or datetime.now(UTC)
    until = _final_seq(session, patience_seconds=patience_seconds)
    after = newest.last_seq if newest else 0
    if (
        until is None
        or (digest := _digest(map(_row_json, islice(_rows(session, after=after, until=until), MAX_ROWS)))) is None
    ):
        return None
    made = _make_seal(newest, digest, at=at, signing_key=signing_key)
    session.add(made)
    session.execute(sql_update(AuditRow).where(col(AuditRow.seq) == digest.last_seq).values(sealed_in=made.number))
    session.flush()
    return made


def verify(session: Session, *, signing_key: bytes, expected_head: str | None = None) -> AuditVerdict:
    """Check every seal after the archive's end: its link, its signature and its rows.

    Args:
        session: the caller's transaction.
        signing_key: the key that the seals were signed with.
        expected_head: a `head` that an earlier verification returned; the chain must still hold that seal.
    """
    _stop_sealing(session)
    problems: list[str] = []
    previous = anchor_of(session, signing_key=signing_key)
    if previous is not None:
        problems += _check_archived(session, previous)
    heads = {head_of(None), head_of(previous)}
    seals = rows = 0
    for current in _seals(session, after=previous):
        problems += check_seal(session, previous, current, signing_key=signing_key).problems
        previous, seals, rows = current, seals + 1, rows + current.rows
        heads.add(head_of(current))
    after = previous.last_seq if previous else 0
    tail = select(func.count(), func.count(col(AuditRow.sealed_in))).where(col(AuditRow.seq) > after)
    unsealed, claimed = session.execute(tail).one()
    if claimed:
        problems.append(f"{claimed} rows after row {after} say they are sealed, but no seal covers them: seals removed")
    if forged := session.scalar(select(func.count()).where(col(AuditRow.seq) < 1)):
        problems.append(f"{forged} rows stand before row 1, where no row was ever written: rows were inserted")
    if expected_head is not None and expected_head not in heads:
        problems.append(f"the chain does not hold the expected head {expected_head}: seals removed or rewritten")
    return AuditVerdict(not problems, seals, rows, unsealed, tuple(problems), head_of(previous))


def newest_head(session: Session) -> str:
    """Return number and hash of the newest seal, as `verify` names it."""
    newest = select(AuditSeal).order_by(col(AuditSeal.number).desc()).limit(1)
    return head_of(session.scalars(newest).one_or_none())


def check_newest(session: Session, *, signing_key: bytes, kept_head: str | None) -> list[str]:
    """Return what is wrong with the end of the chain, without reading all of it as `verify` does."""
    newest = list(session.scalars(select(AuditSeal).order_by(col(AuditSeal.number).desc()).limit(2)))
    head = newest[0] if newest else None
    problems = []
    if kept_head is not None:  # which the sealer writes after the seal
        kept = session.scalar(select(AuditSeal).where(col(AuditSeal.hash) == kept_head.partition(":")[2]))
        if head_of(kept) != kept_head:
            problems.append(f"the chain does not hold the kept head {kept_head}: seals removed or rewritten")
    previous = newest[1] if len(newest) > 1 else None
    if head is not None and (previous is not None or head.number == 1):
        problems += _check_link(previous, head, signing_key=signing_key)
    return problems


def export(session: Session, out: TextIO) -> int:
    """Write seals and rows as JSON lines, each seal before its rows, unsealed rows last; return their number.

    The last archived seal comes first, without its rows: those are in the archive, in the same form.
    """
    _stop_sealing(session)
    lines, after = 0, 0
    for current in _seals(session):
        _write(out, {"type": "seal", **seal_facts(current)})
        for row in _rows(session, after=after, until=current.last_seq):
            _write(out, {"type": "row", **_row_json(row)})
            lines += 1
        lines, after = lines + 1, current.last_seq
    for row in _rows(session, after=after, until=None):
        _write(out, {"type": "row", **_row_json(row)})
        lines += 1
    return lines


def try_to_hold(session: Session) -> bool:
    """Take the lock of the sealer and the archiver until this transaction ends; False while another process has it."""
    return bool(_TRY_LOCK.scalar(session, {"key": AdvisoryLock.AUDIT}))


def anchor_of(session: Session, *, signing_key: bytes) -> AuditSeal | None:
    """Return the last archived seal, up to which rows have left the ledger; None when none have.

    Its signature proves it: without the key nobody can pass off a deletion as archived.
    """
    first = session.scalars(
        select(AuditSeal).order_by(col(AuditSeal.number)).limit(1), execution_options={"populate_existing": True}
    ).one_or_none()
    if first is None or first.archived is None or first.hash != _hash(first):
        return None
    is_ours = hmac.compare_digest(first.archived, sign_archived(first, signing_key))
    return first if is_ours and hmac.compare_digest(first.signature, _sign(first.hash, signing_key)) else None


def sign_archived(item: AuditSeal, signing_key: bytes) -> str:
    """Return the signature that a seal's rows, and all before them, are in the archive."""
    return _sign(f"archived|{item.number}|{item.hash}", signing_key)


def check_seal(session: Session, previous: AuditSeal | None, current: AuditSeal, *, signing_key: bytes) -> CheckedSeal:
    """Check a seal in the ledger, its link and its rows."""
    after = previous.last_seq if previous else 0
    records = list(_rows(session, after=after, until=current.last_seq))
    rows = tuple(_row_json(record) for record in records)
    named = [record["sealed_in"] for record in records]
    strays = sum(number not in (None, current.number) for number in named[:-1]) + (named[-1:] != [current.number])
    problems = _check_link(previous, current, signing_key=signing_key) + _check_rows(current, rows, strays=strays)
    return CheckedSeal(tuple(problems), rows)


def check_group(
    previous: AuditSeal | None, current: AuditSeal, rows: Iterable[dict[str, Any]], signing_key: bytes
) -> list[str]:
    """Return what is wrong with a seal and its rows as they were written to a file."""
    problems = _check_link(previous, current, signing_key=signing_key)
    digest = _digest(rows)
    if digest is None or (digest.rows, digest.rows_hash) != (current.rows, current.rows_hash):
        problems.append(f"seal {current.number}: rows were edited, deleted, inserted or reordered")
    return problems


def _stop_sealing(session: Session) -> None:
    """Keep the sealer away until this transaction ends, so that the chain does not change while it is read."""
    _LOCK.all(session, {"key": AdvisoryLock.AUDIT})


def _final_seq(session: Session, *, patience_seconds: float) -> int | None:
    """Return a `seq` up to which every row is committed or rolled back; None when writers take too long."""
    drawn: int | None = _DRAWN.scalar(session)
    return drawn if await_commit_barrier(session, "audit", patience_seconds=patience_seconds) else None


def _rows(session: Session, *, after: int, until: int | None) -> Iterator[RowMapping]:
    """Yield rows in order, a page at a time."""
    while True:
        query = select(_AUDIT).where(_AUDIT.c.seq > after).order_by(_AUDIT.c.seq).limit(_PAGE_ROWS)
        if until is not None:
            query = query.where(_AUDIT.c.seq <= until)
        page = session.execute(query).mappings().all()
        yield from page
        if len(page) < _PAGE_ROWS:
            return
        after = page[-1]["seq"]


def _row_json(row: RowMapping) -> dict[str, Any]:
    """Return the sealed form of a row, without empty columns, so that a new column changes no old seal."""
    values = {name: value for name, value in row.items() if value is not None and name != "sealed_in"}
    values["at"] = _iso(row["at"])
    if row["job_id"] is not None:
        values["job_id"] = str(row["job_id"])
    return values


def _iso(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="microseconds")


def _canonical(values: Mapping[str, Any]) -> str:
    return json.dumps(values, sort_keys=True, separators=(",", ":"))


def _digest(rows: Iterable[Mapping[str, Any]]) -> Digest | None:
    hashed, first, last, count = hashlib.sha256(), 0, 0, 0
    for row in rows:
        last = row.get("seq", 0)  # a forged line of a file may lack it
        first = first or last
        hashed.update(_canonical(row).encode() + b"\n")
        count += 1
    return Digest(first, last, count, hashed.hexdigest()) if count else None


def _make_seal(previous: AuditSeal | None, digest: Digest, *, at: datetime, signing_key: bytes) -> AuditSeal:
    made = AuditSeal(
        number=previous.number + 1 if previous else 1,
        first_seq=digest.first_seq,
        last_seq=digest.last_seq,
        rows=digest.rows,
        rows_hash=digest.rows_hash,
        previous_hash=previous.hash if previous else GENESIS,
        hash="",
        signature="",
        at=at,
    )
    made.hash = _hash(made)
    made.signature = _sign(made.hash, signing_key)
    return made


def _hash(item: AuditSeal) -> str:
    parts = (item.previous_hash, item.number, item.first_seq, item.last_seq, item.rows, item.rows_hash, _iso(item.at))
    return hashlib.sha256("|".join(str(part) for part in parts).encode()).hexdigest()


def _sign(seal_hash: str, signing_key: bytes) -> str:
    return hmac.new(signing_key, seal_hash.encode(), hashlib.sha256).hexdigest()


def head_of(item: AuditSeal | None) -> str:
    """Return the head of a chain that ends with this seal, to be kept elsewhere."""
    return f"{item.number}:{item.hash}" if item else f"0:{GENESIS}"


def _seals(session: Session, *, after: AuditSeal | None = None) -> Iterator[AuditSeal]:
    number = -1 if after is None else after.number
    while True:
        query = select(AuditSeal).where(col(AuditSeal.number) > number).order_by(col(AuditSeal.number)).limit(500)
        page = session.scalars(query, execution_options={"populate_existing": True}).all()
        yield from page
        if len(page) < 500:
            return
        number = page[-1].number


def _check_link(previous: AuditSeal | None, current: AuditSeal, *, signing_key: bytes) -> list[str]:
    problems = []
    number = previous.number + 1 if previous else 1
    if current.number != number:
        problems.append(f"seal {current.number} follows where seal {number} should be: seals removed")
    if current.previous_hash != (previous.hash if previous else GENESIS):
        problems.append(f"seal {current.number} does not name the hash of the seal before it")
    if current.hash != _hash(current):
        problems.append(f"seal {current.number} was edited: its hash does not fit its content")
    if not hmac.compare_digest(current.signature, _sign(current.hash, signing_key)):
        problems.append(f"seal {current.number} has a signature that was not made with this key")
    return problems


def _check_rows(current: AuditSeal, rows: Sequence[Mapping[str, Any]], *, strays: int) -> list[str]:
    where = f"seal {current.number} (rows {current.first_seq} to {current.last_seq})"
    digest = _digest(rows)
    problems = []
    if len(rows) < current.rows:
        problems.append(f"{where}: {current.rows - len(rows)} rows were deleted")
    elif len(rows) > current.rows:
        problems.append(f"{where}: {len(rows) - current.rows} rows were inserted")
    elif digest is not None and digest.rows_hash != current.rows_hash:
        problems.append(f"{where}: rows were edited or reordered")
    if strays:
        problems.append(f"{where}: {strays} rows do not say that they belong to it, or that they end it")
    return problems


def _check_archived(session: Session, anchor: AuditSeal) -> list[str]:
    left = session.scalar(select(func.count()).where(col(AuditRow.seq) <= anchor.last_seq)) or 0
    return [f"{left} rows stand before the end of the archive at row {anchor.last_seq}: inserted"] if left else []


def seal_facts(item: AuditSeal) -> dict[str, Any]:
    """Return a seal as it is written to files."""
    return item.model_dump(exclude={"archived"}) | {"at": _iso(item.at)}


def line(values: dict[str, Any]) -> bytes:
    """Return a line of an export or archive."""
    return _canonical(values).encode() + b"\n"


def _write(out: TextIO, values: dict[str, Any]) -> None:
    out.write(_canonical(values) + "\n")


HEAD_FILE_NAME = "audit-head"


class HeadFile:
    """A file with the newest head, replaced as a whole."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def keep(self, head: str) -> None:
        """Replace the head; it is on disk when this returns.

        Raises:
            OSError: the operator's fault: the file cannot be written.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(self.path, f"{head}\n".encode())

    def newest(self) -> str | None:
        """Return the head that was written last, if any."""
        try:
            return self.path.read_text().strip() or None
        except (FileNotFoundError, NotADirectoryError):
            return None

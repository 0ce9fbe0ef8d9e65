"""Seed 002's daily routing log: the ledger's decisions as `YYYY-MM-DD.md` files, one entry each, in UTC.

The log is a projection: the text due is a pure function of the ledger and a mark, so after a crash the next writer
appends the rest. Entries are in the order of their transactions, and one is written only when no running transaction
can still precede it. A lock on the directory keeps a second writer out, including one that has lost its lease
unnoticed.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ValidationError
from sqlalchemy import text
from sqlmodel import Session

from ledger.durable import replace_file
from ledger.store import Ledger
from routing.decision.router import Mode, Route
from routing.decision.triggers import Confidence, confidence_of
from routing.jobs import read_stored
from routing.redaction import redact

logger = logging.getLogger(__name__)

MESSAGE_LIMIT = 50
"""Characters of a message in an entry; a longer one is cut and ends in `...` (R-073)."""

_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff\"\\]")
_LIST_UNSAFE = re.compile(r"[\[\],]")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "\\": "\\\\"}


def file_name(moment: datetime) -> str:
    """Return the name of the log file for a moment (R-068)."""
    return f"{moment:%Y-%m-%d}.md"


def format_entry(
    message: str, route: Route, *, moment: datetime, redact: Callable[[str], str] = lambda text: text
) -> str:
    """Return one entry with its closing blank line, byte for byte as seed 002 has it (rulings A9, A31).

    Newlines, quotation marks and control characters are escaped, so a prompt cannot forge an entry.

    The moment is in the log's time zone, and the whole message is redacted before it is cut.
    """
    redacted = redact(message)
    cut = redacted[:MESSAGE_LIMIT] + "..." if len(redacted) > MESSAGE_LIMIT else redacted
    triggers = ", ".join(_LIST_UNSAFE.sub("_", _escape(redact(trigger.shown))) for trigger in route.triggers)
    lines = [
        f'{moment:%H:%M} ROUTE "{_escape(cut)}" → {route.mode.value}',
        f"  Triggers: [{triggers}]",
        f"  {_basis(route)}",
        f"  Routed to: {route.target.value}",
    ]
    return "\n".join(lines) + "\n\n"


def _basis(route: Route) -> str:
    if route.mode is Mode.ANSWER:
        return f"Pattern: {route.pattern}"
    count = len(route.triggers)
    confidence = confidence_of(count) if count else Confidence.NONE if route.trivial else route.confidence
    return f"Confidence: {confidence.value} ({count} trigger{'' if count == 1 else 's'})"


def _escape(text: str) -> str:
    return _UNSAFE.sub(lambda match: _SHORT.get(match.group()) or f"\\u{ord(match.group()):04x}", text)


BATCH_ENTRIES = 2000
"""Entries written at a time, so that a backlog does not delay the dispatcher's other work."""
MARK_NAME = ".mark.json"
_DAYS_KEPT = 7
"""Days whose file sizes the mark holds: no decision is written later than that."""

_DUE = text("""
    SELECT e.xid, e.id, e.at, e.job_id, j.prompt, j.route
      FROM event e JOIN job j ON j.id = e.job_id
     WHERE e.xid >= :xid AND (e.xid, e.id) > (:marked_xid, :marked_id) AND e.xid < :horizon
       AND e.at > :after AND (j.parent_id IS NULL OR j.result ->> 'verb' = 'revise')
       AND (e.kind = 'accepted' AND coalesce(e.data->>'state', '') NOT IN ('received', 'clarifying')
            OR e.kind = 'state' AND jsonb_exists(e.data, 'decision'))
     ORDER BY e.xid, e.id LIMIT :batch
""")
"""Decisions, each once: at a job's acceptance, or later if a model or its owner decided."""
_POSITION = text("""
    SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint,
           (SELECT system_identifier FROM pg_control_system())::text || '/' ||
           (SELECT oid FROM pg_database WHERE datname = current_database())::text
""")


class _Mark(BaseModel, frozen=True, extra="forbid"):
    """The log's position."""

    ledger: str = ""
    """Database cluster and database: transaction numbers mean nothing elsewhere."""
    xid: int = 0
    event_id: int = 0
    at: datetime = datetime.min.replace(tzinfo=UTC)
    """Time of the newest written decision."""
    sizes: dict[str, int] = {}
    """Bytes of each file up to this position."""


class _Entry(NamedTuple):
    xid: int
    event_id: int
    at: datetime
    file: str
    text: str
    """Empty if this version cannot read the decision."""


class RoutingLog:
    """Writes one ledger's log into one directory, with secrets redacted, the installation's own too (A31)."""

    def __init__(self, ledger: Ledger, directory: Path, *, known_keys: tuple[str, ...] = ()) -> None:
        self._ledger = ledger
        self._directory = directory
        self._redact = partial(redact, known=known_keys)
        self._seen = ("", 0)
        """The ledger, and the transaction before which all its decisions are written."""

    def write_pending(self) -> int:
        """Append at most one batch of entries, and return how many; a failed write is logged and tried again."""
        try:
            with _locked(self._directory) as is_ours:
                return self._write(self._read_mark()) if is_ours else 0
        except (OSError, ValidationError):
            logger.warning("routing_log_not_written", exc_info=True)
            return 0

    def _write(self, mark: _Mark) -> int:
        with self._ledger.begin() as session:
            horizon, ledger = session.execute(_POSITION).one()
            is_foreign = mark.ledger != ledger or horizon < mark.xid
            base = mark.model_copy(update={"ledger": ledger, "xid": 0, "event_id": 0}) if is_foreign else mark
            after = mark.at if is_foreign else datetime.min.replace(tzinfo=UTC)
            entries = list(self._due(session, base, horizon=horizon, after=after))
        if entries:
            self._append(base, entries)
        if len(entries) < BATCH_ENTRIES:
            self._seen = (ledger, horizon)
        return len(entries)

    def _due(self, session: Session, mark: _Mark, *, horizon: int, after: datetime) -> Iterator[_Entry]:
        seen = self._seen[1] if self._seen[0] == mark.ledger and self._seen[1] <= horizon else 0
        values = {
            "xid": max(mark.xid, seen),
            "marked_xid": mark.xid,
            "marked_id": mark.event_id,
            "horizon": horizon,
            "after": after,
            "batch": BATCH_ENTRIES,
        }
        for xid, event_id, at, job_id, prompt, stored in session.execute(_DUE, values):
            moment = at.astimezone(UTC)
            try:
                route = read_stored(Route, stored)
            except ValidationError:
                logger.warning("routing_log_decision_unreadable", extra={"job_id": str(job_id)})
                entry = ""
            else:
                entry = format_entry(prompt, route, moment=moment, redact=self._redact)
            yield _Entry(xid, event_id, at, file_name(moment), entry)

    def _append(self, mark: _Mark, entries: list[_Entry]) -> None:
        sizes = dict(mark.sizes)
        for name, due in _by_file(entries).items():
            sizes[name] = _complete(self._directory / name, due, written=sizes.get(name, 0))
        last = entries[-1]
        kept = {name: sizes[name] for name in sorted(sizes)[-_DAYS_KEPT:]}
        newest = max(entry.at for entry in entries)
        update = {"xid": last.xid, "event_id": last.event_id, "at": max(newest, mark.at), "sizes": kept}
        replace_file(self._directory / MARK_NAME, mark.model_copy(update=update).model_dump_json().encode())

    def _read_mark(self) -> _Mark:
        try:
            return _Mark.model_validate_json((self._directory / MARK_NAME).read_bytes())
        except FileNotFoundError:
            return _Mark()


@contextmanager
def _locked(directory: Path) -> Iterator[bool]:
    """Lock the directory, and make writes to it durable; yields False when another process holds the lock."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o750)
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _by_file(entries: Iterable[_Entry]) -> dict[str, bytes]:
    texts: defaultdict[str, list[bytes]] = defaultdict(list)
    for entry in entries:
        if entry.text:
            texts[entry.file].append(entry.text.encode())
    return {name: b"".join(parts) for name, parts in texts.items()}


def _complete(path: Path, due: bytes, *, written: int) -> int:
    """Append what a file lacks of the text due after its first `written` bytes; returns its new size."""
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o640)
    try:
        size = os.fstat(descriptor).st_size
        present = os.pread(descriptor, len(due) + 1, written)
        if size < written or not due.startswith(present):
            logger.warning("routing_log_changed_by_others", extra={"file": path.name})
            present = b""
        _write_all(descriptor, due[len(present) :])
        os.fsync(descriptor)
        return os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]

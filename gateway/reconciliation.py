"""Compares the gateways' journals with the ledger, and books what the ledger lacks.

The ledger is the bill, the journal the proof beside it. One process at a time reconciles a directory, also with the
files of processes that are gone. Marks are kept over restarts, so that the ledger's retention is not taken for a loss;
a ledger that was promoted, restored or set back is compared anew with everything kept.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from pathlib import Path

from pydantic import BaseModel, Field, ValidationError

from gateway.errors import LedgerUnreachableError
from gateway.journal import Entry, files_of, read_file
from gateway.ledger_client import Ledger
from ledger.durable import replace_file
from ledger.operations.served_calls import Served
from sites.disk import try_lock

logger = logging.getLogger(__name__)

_DAY_SECONDS = 86_400.0
_SETTLING_SECONDS = 5.0
"""Until then a call's own settlement is on its way."""
_PAGE = 500
_MARKS = "reconciled.json"
_LOCK = "lock"


class _Marks(BaseModel):
    """How far each file agrees with the ledger; a new epoch starts over."""

    epoch: str = ""
    written: int = 0
    """Of the ledger's log, at that time."""
    offsets: Mapping[str, int] = Field(default_factory=dict)


class Reconciliation:
    """The standing reconciliation of a directory of journals, each kept for `keep_days` after its last call.

    Calls that are older are not compared: retention may have deleted what was booked for them.
    """

    def __init__(self, directory: Path, ledger: Ledger, *, keep_days: float) -> None:
        self._directory = directory
        self._ledger = ledger
        self._keep_seconds = keep_days * _DAY_SECONDS
        self._lock: int | None = None
        self._marks: _Marks | None = None

    async def run(self, *, every_seconds: float) -> None:
        """Reconcile until cancelled."""
        while True:
            await asyncio.sleep(every_seconds)
            try:
                await self.reconcile()
            except LedgerUnreachableError:
                continue
            except OSError as error:
                logger.error("journal_not_read", extra={"error": str(error)})

    async def reconcile(self) -> int:
        """Book what the ledger lacks, and return how many calls that were.

        Raises:
            LedgerUnreachableError: the ledger does not answer; the rest is for the next round.
            OSError: the disk's fault.
        """
        if not self._directory.is_dir() or not self._is_ours():
            return 0
        history = await self._ledger.history()
        marks = self._marks
        if marks is None:
            marks = await asyncio.to_thread(self._read_marks)
        goes_on = marks.epoch == history.epoch and marks.written <= history.written
        offsets = dict(marks.offsets) if goes_on else {}
        until = datetime.now(UTC) - timedelta(seconds=_SETTLING_SECONDS)
        since = datetime.now(UTC) - timedelta(seconds=self._keep_seconds)
        booked = 0
        files = await asyncio.to_thread(self._current_files)
        for path in files:
            while page := await asyncio.to_thread(_read_page, path, offsets.get(path.name, 0), until):
                served = [entry.served for entry in page if entry.served and entry.served.served_at > since]
                booked += await self._book([call for call in served if call.ledger == history.ledger])
                offsets[path.name] = page[-1].ends_at
        kept = {path.name: offsets[path.name] for path in files if path.name in offsets}
        self._marks = _Marks(epoch=history.epoch, written=history.written, offsets=kept)
        if not goes_on or kept != marks.offsets:
            await asyncio.to_thread(replace_file, self._directory / _MARKS, self._marks.model_dump_json().encode())
        return booked

    async def _book(self, calls: Sequence[Served]) -> int:
        missing = await self._ledger.unbooked([served.id for served in calls]) if calls else set()
        for served in calls:
            if served.id in missing:
                await self._ledger.book(served)
        return len(missing)

    def _is_ours(self) -> bool:
        """Whether this process reconciles the directory; it does so until it ends."""
        if self._lock is None:
            self._lock = try_lock(self._directory / _LOCK)
        return self._lock is not None

    def _read_marks(self) -> _Marks:
        try:
            return _Marks.model_validate_json((self._directory / _MARKS).read_bytes())
        except (FileNotFoundError, ValidationError):
            return _Marks()

    def _current_files(self) -> Sequence[Path]:
        """Return the files, and delete those that are too old."""
        oldest = time.time() - self._keep_seconds
        kept = []
        for path in files_of(self._directory):
            if path.stat().st_mtime < oldest:
                path.unlink()
            else:
                kept.append(path)
        return kept

    def close(self) -> None:
        """Leave the directory to another process."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _read_page(path: Path, offset: int, until: datetime) -> Sequence[Entry]:
    entries = islice(read_file(path, offset=offset), _PAGE)
    return list(takewhile(lambda entry: entry.served is None or entry.served.served_at <= until, entries))

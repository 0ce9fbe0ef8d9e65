"""The gateway's own record of what it served, on its own disk: append-only, a file for each process and day.

A call's usage is here before its caller gets the last byte, so that `Reconciliation` can book again what the ledger
loses with a server, in a promotion or in a restore: the ledger is the bill, the journal the proof beside it.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from gateway.errors import LedgerUnreachableError
from ledger.durable import replace_file, sync_directory
from ledger.operations.served_calls import Served

if TYPE_CHECKING:
    from gateway.ledger_client import Ledger

logger = logging.getLogger(__name__)

_SERVED = TypeAdapter(Served)
_DAY_SECONDS = 86_400.0
_SETTLING_SECONDS = 5.0
"""Until then a call's own settlement is on its way."""
_PAGE = 500
_MARKS = "reconciled.json"
_LOCK = "lock"
Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


class GroupCommit(Generic[Item, Outcome]):
    """Commits one batch at a time; what comes while one is under way shares the next.

    Args:
        commit: returns what became of each item of a batch, in order; what it raises, everybody in the batch gets.
    """

    def __init__(self, commit: Callable[[Sequence[Item]], Awaitable[Sequence[Outcome]]]) -> None:
        self._commit = commit
        self._waiting: list[tuple[Item, asyncio.Future[Outcome]]] = []
        self._task: asyncio.Task[None] | None = None

    def join(self, item: Item) -> asyncio.Future[Outcome]:
        """Put an item into the next batch; the future is done when that is committed."""
        outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, outcome))
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        return outcome

    async def _run(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            try:
                outcomes = await self._commit([item for item, _ in batch])
            except Exception as error:  # noqa: BLE001 - it is theirs who wait
                for _, future in batch:
                    if not future.done():
                        future.set_exception(error)
                continue
            for (_, future), outcome in zip(batch, outcomes, strict=True):
                if not future.done():  # who stops waiting takes it from nobody
                    future.set_result(outcome)
        self._task = None


class Journal:
    """Appends served calls to a file of this process; one flush serves all that end together.

    Args:
        directory: made with the first call.
        instance: names this process.
    """

    def __init__(self, directory: Path, *, instance: str) -> None:
        self._directory = directory
        self._instance = instance
        self._lines = GroupCommit(self._append)
        self._file: int | None = None
        self._day = ""

    def append(self, served: Served) -> asyncio.Future[None]:
        """Begin to write a call; done when it is on disk, or cannot be written: the ledger still has it."""
        return self._lines.join(_SERVED.dump_json(served) + b"\n")

    async def _append(self, lines: Sequence[bytes]) -> Sequence[None]:
        try:
            await asyncio.to_thread(self._write, b"".join(lines))
        except OSError as error:
            self.close()  # what was begun is no whole line: the next goes into another file
            logger.error("journal_not_written", extra={"calls": len(lines), "error": str(error)})
        return [None] * len(lines)

    def _write(self, data: bytes) -> None:
        now = datetime.now(UTC)
        if self._file is None or f"{now:%Y%m%d}" != self._day:
            self.close()
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._day = f"{now:%Y%m%d}"
            path = self._directory / f"{now:%Y%m%dT%H%M%S%f}-{self._instance}.jsonl"
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            sync_directory(self._directory)
        while data:
            data = data[os.write(self._file, data) :]
        os.fdatasync(self._file)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


class Entry(NamedTuple):
    """A line of a journal."""

    served: Served | None
    """None for a line that is no call."""
    ends_at: int
    """The offset of the next line."""


def read_file(path: Path, *, offset: int = 0) -> Iterator[Entry]:
    """Yield the lines of a file; one that a crash cut short is none."""
    with path.open("rb") as file:
        file.seek(offset)
        for line in file:
            if not line.endswith(b"\n"):
                return
            offset += len(line)
            try:
                served = _SERVED.validate_json(line)
            except ValidationError:
                logger.error("journal_line_unreadable", extra={"path": path.name, "ends_at": offset})
                served = None
            yield Entry(served, offset)


def read_journal(directory: Path) -> Iterator[Served]:
    """Yield every call of a journal, oldest file first."""
    for path in files_of(directory):
        yield from (entry.served for entry in read_file(path) if entry.served is not None)


def files_of(directory: Path) -> Sequence[Path]:
    """Return the files of a journal, oldest first."""
    return sorted(directory.glob("*.jsonl"))


class _Marks(BaseModel):
    """How far each file agrees with the ledger; another epoch begins anew."""

    epoch: str = ""
    written: int = 0
    """Of the ledger's log, at that time."""
    offsets: Mapping[str, int] = Field(default_factory=dict)


class Reconciliation:
    """Compares the gateways' journals in a directory with the ledger, and books what the ledger lacks.

    One process at a time does, also with the files of processes that are gone. Marks are kept over restarts, so that
    the ledger's retention is not taken for a loss; a ledger that was promoted, restored or set back is compared anew
    with everything kept.

    Args:
        directory: of the journals.
        ledger: the ledger.
        keep_days: how long a file is kept after its last call.
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
        booked = 0
        files = await asyncio.to_thread(self._current_files)
        for path in files:
            while page := await asyncio.to_thread(_read_page, path, offsets.get(path.name, 0), until):
                own = [entry.served for entry in page if entry.served and entry.served.ledger == history.ledger]
                booked += await self._book(own)
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
            lock = os.open(self._directory / _LOCK, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(lock)
                return False
            self._lock = lock
        return True

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

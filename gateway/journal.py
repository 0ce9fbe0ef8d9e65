"""The gateway's own record of what it served, on its own disk: append-only, a file for each process and day.

A call's usage is here before its caller gets the last byte, so that `reconciliation` can book again what the ledger
loses with a server, in a promotion or in a restore: the ledger is the bill, the journal the proof beside it.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from pydantic import TypeAdapter, ValidationError

from ledger.durable import sync_directory
from ledger.operations.served_calls import Served

logger = logging.getLogger(__name__)

_SERVED = TypeAdapter(Served)
Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


class GroupCommit(Generic[Item, Outcome]):
    """Commits one batch at a time; what comes while one is under way shares the next.

    `commit` returns what became of each item of a batch, in order; what it raises, everybody in the batch gets.
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
            except Exception as error:  # noqa: BLE001 - raised in those who wait
                for _, future in batch:
                    if not future.done():
                        future.set_exception(error)
                continue
            for (_, future), outcome in zip(batch, outcomes, strict=True):
                if not future.done():  # it may have stopped waiting
                    future.set_result(outcome)
        self._task = None


class Journal:
    """Appends served calls to this process's own file, made with the first; one flush serves all that end together."""

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

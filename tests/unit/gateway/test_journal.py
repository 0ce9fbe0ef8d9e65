"""What a gateway notes of served calls is on disk when it says so, in one flush for all, and survives a torn line."""

import asyncio
import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from gateway.journal import GroupCommit, Journal, files_of, read_file, read_journal
from ledger.money import CapLimit
from ledger.operations.served_calls import Served
from routing.policy.prices import Usage

SERVED = Served(
    ledger="l",
    id=UUID(int=1),
    job_id=UUID(int=2),
    attempt_id=UUID(int=3),
    tenant="acme",
    queue="answer",
    tier=None,
    caps=(CapLimit("job", "2", 10**9), CapLimit("fleet_day", "2026-01-01", 10**12)),
    provider="own",
    model="m",
    key_hash="k",
    gateway="g",
    prices_as_of="p",
    max_tokens=100,
    usage=Usage(100, 5, 0, 0),
    cost_nanousd=125_000,
    finish="completed",
    status=200,
    state="settled",
    served_at=datetime(2026, 1, 1, 12, tzinfo=UTC),
)


def write(home: Path, calls: list[Served]) -> Journal:
    journal = Journal(home, instance="one")

    async def work() -> None:
        await asyncio.gather(*map(journal.append, calls))

    asyncio.run(work())
    return journal


def test_what_was_noted_is_read_as_it_was(tmp_path: Path) -> None:
    write(tmp_path / "journal", [SERVED]).close()
    assert list(read_journal(tmp_path / "journal")) == [SERVED]


def test_calls_that_end_together_share_a_flush(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[int] = []
    through = os.fdatasync
    monkeypatch.setattr(os, "fdatasync", lambda file: (flushed.append(file), through(file)))
    calls = [replace(SERVED, id=UUID(int=number)) for number in range(1, 41)]
    write(tmp_path, calls).close()
    assert list(read_journal(tmp_path)) == calls
    assert len(flushed) < 5


def test_a_line_that_a_crash_cut_short_or_that_is_no_call_hides_no_other(tmp_path: Path) -> None:
    journal = write(tmp_path, [SERVED])
    journal.close()
    [path] = files_of(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole + b"{}\n" + whole + whole[:50])
    entries = list(read_file(path))
    assert [entry.served for entry in entries] == [SERVED, None, SERVED]
    assert [entry.ends_at for entry in entries] == [len(whole), len(whole) + 3, 2 * len(whole) + 3]
    assert list(read_file(path, offset=entries[1].ends_at)) == entries[2:]


def test_a_disk_that_takes_nothing_stops_no_call_and_the_next_goes_into_another_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    journal = Journal(tmp_path, instance="one")

    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    async def work() -> None:
        await journal.append(SERVED)
        with monkeypatch.context() as patched:
            patched.setattr(os, "write", full)
            await journal.append(SERVED)
        await journal.append(replace(SERVED, id=UUID(int=9)))

    asyncio.run(work())
    journal.close()
    assert [record.message for record in caplog.records] == ["journal_not_written"]
    assert [served.id.int for served in read_journal(tmp_path)] == [1, 9]
    assert len(files_of(tmp_path)) == 2


def test_who_comes_while_a_batch_is_committed_is_in_the_next_one() -> None:
    batches: list[list[str]] = []

    async def work() -> list[int]:
        on = asyncio.Event()

        async def commit(items: Sequence[str]) -> list[int]:
            batches.append([*items])
            number = len(batches)
            await on.wait()
            return [number] * len(items)

        group = GroupCommit(commit)
        first = group.join("a")
        while not batches:
            await asyncio.sleep(0)
        late = [group.join(item) for item in "bc"]
        on.set()
        return list(await asyncio.gather(first, *late))

    assert asyncio.run(work()) == [1, 2, 2]
    assert batches == [["a"], ["b", "c"]]


def test_what_fails_a_batch_is_told_to_all_in_it_and_the_next_is_committed() -> None:
    async def work() -> list[object]:
        async def commit(items: Sequence[str]) -> Sequence[str]:
            if "bad" in items:
                raise ValueError(items)
            return items

        group = GroupCommit(commit)
        failed = await asyncio.gather(group.join("bad"), group.join("b"), return_exceptions=True)
        return [*map(type, failed), await group.join("c")]

    assert asyncio.run(work()) == [ValueError, ValueError, "c"]

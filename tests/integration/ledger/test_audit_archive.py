"""Old audit rows move to files: the chain goes on over the two, and nothing leaves the ledger that is not safe."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger import audit
from ledger.audit import AuditVerdict, seal, verify
from ledger.errors import ArchiveError
from ledger.operations import audit_archive
from ledger.operations.audit_archive import Archive, archive_old, verify_with_archive
from ledger.record_tables import AuditSeal
from producers.config import DispatcherConfig
from producers.dispatch.broker import BrokerLists, Publisher
from producers.dispatch.dispatcher import Dispatcher
from routing.broker import create_app
from tests.factories import Shop, rows_of
from tests.integration.api.http_world import DEAD_BROKER

KEY = b"a key of the operator"


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(tmp_path / "archive")


def seal_rows(shop: Shop, count: int = 3) -> None:
    for number in range(count):
        with shop.ledger.begin() as session:
            audit.append(session, f"action {number}", actor="tester", tenant="acme", note="päper", amount=1.5)
    with shop.ledger.begin() as session:
        assert seal(session, signing_key=KEY) is not None


@pytest.fixture
def sealed(shop: Shop) -> Shop:
    """Four seals of three rows each, the first three of which are old enough."""
    shop.execute("DELETE FROM audit")
    for _ in range(4):
        seal_rows(shop)
    return shop


def move(shop: Shop, archive: Archive, *, days: float = 0, key: bytes = KEY) -> int:
    with shop.ledger.begin() as session:
        return archive_old(session, archive, signing_key=key, days=days)


def check(shop: Shop, *, key: bytes = KEY, expected_head: str | None = None) -> AuditVerdict:
    with shop.ledger.begin() as session:
        return verify(session, signing_key=key, expected_head=expected_head)


def check_whole(shop: Shop, archive: Archive, *, expected_head: str | None = None) -> AuditVerdict:
    with shop.ledger.begin() as session:
        return verify_with_archive(session, archive, signing_key=KEY, expected_head=expected_head)


def test_old_rows_leave_the_ledger_and_the_chain_verifies_with_and_without_the_archive(
    sealed: Shop, archive: Archive
) -> None:
    head = check(sealed).head
    assert move(sealed, archive) == 12
    assert sealed.scalar("SELECT count(*) FROM audit") == 0
    assert sealed.scalar("SELECT count(*) FROM audit_seal") == 1
    assert check(sealed) == AuditVerdict(True, 0, 0, 0, (), head)
    assert check_whole(sealed, archive) == AuditVerdict(True, 4, 12, 0, (), head)
    seal_rows(sealed)
    assert check(sealed)[:3] == (True, 1, 3)
    assert check_whole(sealed, archive, expected_head=head)[:3] == (True, 5, 15)
    assert check(sealed, expected_head=head).ok
    assert move(sealed, archive) == 3
    assert check_whole(sealed, archive)[:3] == (True, 5, 15)


def test_young_rows_stay(sealed: Shop, archive: Archive) -> None:
    assert move(sealed, archive, days=1) == 0
    assert archive.files() == []
    assert check(sealed)[:3] == (True, 4, 12)


@pytest.mark.parametrize(
    "crime",
    [
        f"DELETE FROM audit WHERE seq IN {rows_of(5)}",
        f"DELETE FROM audit WHERE seq IN {rows_of(5)}; DELETE FROM audit_seal WHERE number = 5",
        f"UPDATE audit SET actor = 'nobody' WHERE seq IN {rows_of(5)}",
        "UPDATE audit_seal SET archived = NULL",
        "UPDATE audit_seal SET archived = repeat('0', 64)",
        "UPDATE audit_seal SET signature = repeat('0', 64) WHERE archived IS NOT NULL",
        f"UPDATE audit_seal SET last_seq = last_seq + 3 WHERE number = 4; DELETE FROM audit WHERE seq IN {rows_of(5)}",
        "DELETE FROM audit_seal WHERE number = 4",
        "UPDATE audit_seal SET archived = (SELECT archived FROM audit_seal WHERE number = 4) WHERE number = 5;"
        f" DELETE FROM audit_seal WHERE number = 4; DELETE FROM audit WHERE seq IN {rows_of(5)}",
        "INSERT INTO audit (seq, action, actor, detail) VALUES (1, 'forged', 'x', '{}')",
    ],
)
def test_rows_that_went_without_having_been_archived_are_still_missed(
    sealed: Shop, archive: Archive, crime: str
) -> None:
    first = sealed.scalar("SELECT min(seq) FROM audit")
    move(sealed, archive)
    for _ in range(2):
        seal_rows(sealed)
    assert check(sealed).ok
    sealed.execute(crime.replace("(1, 'forged'", f"({first}, 'forged'"))
    assert not check(sealed).ok
    assert not check_whole(sealed, archive).ok


FORGERIES: dict[str, Callable[[list[str]], list[str]]] = {
    "a row edited": lambda lines: [*lines[:2], lines[2].replace("tester", "nobody"), *lines[3:]],
    "a row deleted": lambda lines: lines[:2] + lines[3:],
    "rows swapped": lambda lines: [lines[0], lines[2], lines[1], *lines[3:]],
    "a seal with its rows deleted": lambda lines: lines[:4] + lines[8:],
    "the first seals deleted": lambda lines: lines[8:],
    "the end cut off": lambda lines: lines[:-4],
    "a line that is none": lambda lines: [*lines[:3], "nonsense\n", *lines[3:]],
    "emptied": lambda lines: [],
}


@pytest.mark.parametrize("name", FORGERIES)
def test_an_archive_that_was_tampered_with_is_found_out(sealed: Shop, archive: Archive, name: str) -> None:
    move(sealed, archive)
    (path,) = archive.files()
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(FORGERIES[name](lines)))
    assert check(sealed).ok, "the ledger itself is untouched"
    assert not check_whole(sealed, archive).ok


def test_a_death_between_the_file_and_the_ledger_costs_nothing_and_leaves_nothing_twice(
    sealed: Shop, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = check(sealed).head

    class DiedError(BaseException):
        pass

    def die(*_: object) -> str:
        raise DiedError

    with monkeypatch.context() as patched:
        patched.setattr(audit_archive.audit, "sign_archived", die)
        with pytest.raises(DiedError):
            move(sealed, archive)
    (path,) = archive.files()
    size = path.stat().st_size
    assert check_whole(sealed, archive) == AuditVerdict(True, 4, 12, 0, (), head)
    assert move(sealed, archive) == 12
    assert path.stat().st_size == size
    assert check_whole(sealed, archive) == AuditVerdict(True, 4, 12, 0, (), head)


@pytest.mark.parametrize("cut", [1, 40, 700])
def test_what_a_death_left_half_written_is_cut_off_and_written_again(sealed: Shop, archive: Archive, cut: int) -> None:
    move(sealed, archive)
    seal_rows(sealed)
    (path,) = archive.files()
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:cut])
    assert not check_whole(sealed, archive).ok
    assert move(sealed, archive) == 3
    assert check_whole(sealed, archive)[:3] == (True, 5, 15)


def test_files_are_begun_anew_when_one_is_large_and_are_read_in_order(shop: Shop, tmp_path: Path) -> None:
    shop.execute("DELETE FROM audit")
    archive = Archive(tmp_path / "archive", max_file_bytes=100)
    for _ in range(3):
        seal_rows(shop)
        move(shop, archive)
    names = [path.name for path in archive.files()]
    assert names == [f"audit-{number:012d}.jsonl" for number in (1, 2, 3)]
    assert check_whole(shop, archive)[:3] == (True, 3, 9)
    kinds = [json.loads(line)["type"] for line in archive.files()[0].read_text().splitlines()]
    assert kinds == ["seal", "row", "row", "row"]


def test_nothing_is_deleted_when_the_archive_is_not_the_one_of_before(
    sealed: Shop, archive: Archive, tmp_path: Path
) -> None:
    move(sealed, archive)
    seal_rows(sealed)
    with pytest.raises(ArchiveError, match="empty"):
        move(sealed, Archive(tmp_path / "other"))
    assert sealed.scalar("SELECT count(*) FROM audit") == 3


def test_a_ledger_that_was_restored_from_before_the_archive_s_end_goes_on_into_it(
    sealed: Shop, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    sealed.execute("CREATE TABLE old_rows AS SELECT * FROM audit")
    sealed.execute("CREATE TABLE old_seals AS SELECT * FROM audit_seal")
    assert move(sealed, archive) == 12
    sealed.execute("DELETE FROM audit_seal")
    sealed.execute("INSERT INTO audit_seal SELECT * FROM old_seals")
    sealed.execute("INSERT INTO audit OVERRIDING SYSTEM VALUE SELECT * FROM old_rows")
    sealed.execute("DROP TABLE old_rows, old_seals")
    monkeypatch.setattr(audit_archive, "MAX_ROWS", 3)
    assert [move(sealed, archive) for _ in range(5)] == [3, 3, 3, 3, 0]
    assert check_whole(sealed, archive)[:3] == (True, 4, 12)
    seal_rows(sealed)
    assert move(sealed, archive) == 3
    assert check_whole(sealed, archive)[:3] == (True, 5, 15)


def test_nothing_is_archived_of_a_trail_that_does_not_verify(sealed: Shop, archive: Archive) -> None:
    sealed.execute(f"UPDATE audit SET actor = 'nobody' WHERE seq IN {rows_of(2)}")
    with pytest.raises(ArchiveError, match="does not verify"):
        move(sealed, archive)
    assert archive.files() == []
    assert sealed.scalar("SELECT count(*) FROM audit") == 12


@pytest.mark.parametrize("has_archive", [True, False])
def test_the_leading_dispatcher_archives_and_without_a_directory_no_row_ever_goes(
    sealed: Shop, archive: Archive, has_archive: bool
) -> None:
    lead_rounds(sealed, archive if has_archive else None, rounds=1)
    assert sealed.scalar("SELECT count(*) FROM audit") == (0 if has_archive else 12)


def lead_rounds(shop: Shop, archive: Archive | None, *, rounds: int) -> None:
    app, lists = create_app(DEAD_BROKER), BrokerLists(DEAD_BROKER)
    retention = shop.policy.retention.model_copy(update={"audit_days": 0.0})
    one = Dispatcher(
        shop.ledger,
        Publisher(app),
        lists,
        policy=shop.policy.model_copy(update={"retention": retention}),
        config=DispatcherConfig(),
        holder="one",
        signing_key=KEY,
        archive=archive,
    )
    try:
        assert all(one.run_once() for _ in range(rounds))
    finally:
        lists.close()
        app.close()


class LostDisk(Archive):
    """An archive whose disk is gone."""

    tries = 0

    def mend(self) -> AuditSeal | None:
        self.tries += 1
        raise ArchiveError("the disk is gone")


def test_an_archive_that_fails_is_not_tried_again_every_round(sealed: Shop, tmp_path: Path) -> None:
    archive = LostDisk(tmp_path)
    lead_rounds(sealed, archive, rounds=3)
    assert archive.tries == 1

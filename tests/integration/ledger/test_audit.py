from __future__ import annotations

import io
import json
import threading

import pytest
from sqlmodel import Session

from ledger import audit
from ledger.audit import AuditVerdict, export, seal, verify
from ledger.record_tables import AuditSeal
from ledger.store import Ledger
from monitoring.gauges import read_gauges
from tests.integration.monitoring.driving import Fleet, create_fleet

KEY = b"a key of the operator"


@pytest.fixture
def fleet(ledger: Ledger, ledger_url: str) -> Fleet:
    return create_fleet(ledger, ledger_url)


def append(fleet: Fleet, *actions: str) -> None:
    for action in actions:
        with fleet.ledger.begin() as session:
            audit.append(session, action, actor="tester", tenant="acme", note=action, amount=1.5)


def seal_now(fleet: Fleet, **options: float) -> AuditSeal | None:
    with fleet.ledger.begin() as session:
        return seal(session, signing_key=KEY, **options)


def check(fleet: Fleet, *, key: bytes = KEY, expected_head: str | None = None) -> AuditVerdict:
    with fleet.ledger.begin() as session:
        return verify(session, signing_key=key, expected_head=expected_head)


@pytest.fixture
def sealed(fleet: Fleet) -> Fleet:
    """Three seals over rows 1 to 3, 4 to 6 and 7 to 9."""
    for batch in range(3):
        append(fleet, *(f"action {batch}.{row}" for row in range(3)))
        assert seal_now(fleet) is not None
    return fleet


def test_an_untouched_trail_verifies_and_names_its_head(sealed: Fleet) -> None:
    append(sealed, "not sealed yet")
    verdict = check(sealed)
    assert verdict._replace(head="") == AuditVerdict(True, 3, 9, 1, (), "")
    assert verdict.head.startswith("3:")
    assert check(sealed, expected_head=verdict.head).ok


def test_an_empty_trail_verifies(fleet: Fleet) -> None:
    verdict = check(fleet)
    assert verdict.ok
    assert verdict.seals == 0
    assert check(fleet, expected_head=verdict.head).ok
    assert seal_now(fleet) is None


def test_the_age_of_what_is_not_sealed_counts_from_the_last_seal(sealed: Fleet) -> None:
    def age() -> float:
        with sealed.ledger.begin() as session:
            readings = read_gauges(session, sealed.policy, recent={}, providers=())
        return next(reading.value for reading in readings if reading.name == "audit_unsealed_age_seconds")

    assert age() == 0
    append(sealed, "more")
    sealed.execute("UPDATE audit SET at = at - interval '1 minute'")
    append(sealed, "and more")
    assert age() == pytest.approx(60, abs=20)


def test_an_older_head_is_still_found_after_more_was_sealed(sealed: Fleet) -> None:
    head = check(sealed).head
    append(sealed, "more")
    seal_now(sealed)
    assert check(sealed, expected_head=head).ok


TAMPERING = {
    "a detail edited": ('UPDATE audit SET detail = \'{"note": "forged"}\' WHERE seq = 5', "edited or reordered"),
    "an actor edited": ("UPDATE audit SET actor = 'somebody' WHERE seq = 2", "edited or reordered"),
    "a time edited": ("UPDATE audit SET at = at + interval '1 microsecond' WHERE seq = 2", "edited or reordered"),
    "an empty column filled": ("UPDATE audit SET scan = 'passed' WHERE seq = 2", "edited or reordered"),
    "a row deleted": ("DELETE FROM audit WHERE seq = 5", "1 rows were deleted"),
    "the first row deleted": ("DELETE FROM audit WHERE seq = 1", "1 rows were deleted"),
    "all rows of a seal deleted": ("DELETE FROM audit WHERE seq BETWEEN 4 AND 6", "3 rows were deleted"),
    "two rows swapped": (
        "UPDATE audit SET seq = CASE seq WHEN -4 THEN 5 ELSE 4 END WHERE seq IN (-4, -5)",
        "edited or reordered",
    ),
    "a row renumbered into a later seal": ("UPDATE audit SET seq = 100 WHERE seq = 9", "deleted"),
    "a row unsealed": ("UPDATE audit SET sealed_in = NULL WHERE seq = 6", "do not say that they belong"),
    "a row of another seal": ("UPDATE audit SET sealed_in = 3 WHERE seq = 5", "do not say that they belong"),
    "the last seal removed": ("DELETE FROM audit_seal WHERE number = 3", "no seal covers them"),
    "a middle seal removed": ("DELETE FROM audit_seal WHERE number = 2", "seals removed"),
    "the first seal removed": ("DELETE FROM audit_seal WHERE number = 1", "seals removed"),
    "a seal's count edited": ("UPDATE audit_seal SET rows = 2 WHERE number = 2", "seal 2 was edited"),
    "a seal's time edited": ("UPDATE audit_seal SET at = at + interval '1 s' WHERE number = 2", "seal 2 was edited"),
    "a seal's link edited": ("UPDATE audit_seal SET previous_hash = repeat('0', 64) WHERE number = 2", "does not name"),
    "a signature edited": ("UPDATE audit_seal SET signature = repeat('0', 64) WHERE number = 2", "not made with"),
}


@pytest.mark.parametrize("name", TAMPERING)
def test_verification_finds(sealed: Fleet, name: str) -> None:
    statement, problem = TAMPERING[name]
    if "swapped" in name:
        sealed.execute("UPDATE audit SET seq = -seq WHERE seq IN (4, 5)")
    sealed.execute(statement)
    verdict = check(sealed)
    assert not verdict.ok
    assert problem in " / ".join(verdict.problems)


def test_a_row_forged_into_a_gap_of_a_sealed_range_is_found(fleet: Fleet) -> None:
    append(fleet, "first")
    with Session(fleet.ledger.engine) as session:
        audit.append(session, "rolled back", actor="tester")
        session.rollback()
    append(fleet, "third")
    seal_now(fleet)
    assert check(fleet).ok, "an honest gap is no problem"
    fleet.execute("INSERT INTO audit (seq, action, actor, detail) VALUES (2, 'forged', 'x', '{}')")
    assert "1 rows were inserted" in " / ".join(check(fleet).problems)


def test_only_a_known_head_shows_that_the_tail_was_cut_off_with_its_rows(sealed: Fleet) -> None:
    head = check(sealed).head
    sealed.execute("DELETE FROM audit WHERE seq > (SELECT last_seq FROM audit_seal WHERE number = 2)")
    sealed.execute("DELETE FROM audit_seal WHERE number = 3")
    assert check(sealed).ok
    assert "expected head" in " / ".join(check(sealed, expected_head=head).problems)


def test_a_trail_resealed_with_another_key_is_found(sealed: Fleet) -> None:
    assert len(check(sealed, key=b"another key").problems) == 3


def test_nothing_is_sealed_while_a_transaction_may_still_add_an_earlier_row(fleet: Fleet) -> None:
    append(fleet, "first")
    late = Session(fleet.ledger.engine)
    audit.append(late, "late", actor="tester")
    append(fleet, "third")
    assert seal_now(fleet, patience_seconds=0.05) is None
    late.commit()
    late.close()
    made = seal_now(fleet)
    assert made is not None
    assert (made.first_seq, made.last_seq, made.rows) == (1, 3, 3)
    assert check(fleet).ok


def test_sealing_waits_out_a_short_transaction(fleet: Fleet) -> None:
    late = Session(fleet.ledger.engine)
    audit.append(late, "late", actor="tester")
    append(fleet, "second")
    timer = threading.Timer(0.1, late.commit)
    timer.start()
    made = seal_now(fleet, patience_seconds=5)
    timer.join()
    late.close()
    assert made is not None
    assert made.rows == 2


def test_readers_and_writers_of_other_tables_do_not_hold_up_sealing(fleet: Fleet) -> None:
    append(fleet, "first")
    with Session(fleet.ledger.engine) as other:
        other.get(AuditSeal, 1)
        assert seal_now(fleet, patience_seconds=0) is not None


def test_concurrent_writers_and_sealers_leave_a_whole_chain(fleet: Fleet) -> None:
    writing = threading.Event()
    writing.set()

    def write() -> None:
        for number in range(40):
            append(fleet, f"action {number}")

    def keep_sealing() -> None:
        while writing.is_set():
            seal_now(fleet)

    writers = [threading.Thread(target=write) for _ in range(3)]
    sealers = [threading.Thread(target=keep_sealing) for _ in range(2)]
    for thread in (*writers, *sealers):
        thread.start()
    for thread in writers:
        thread.join()
    writing.clear()
    for thread in sealers:
        thread.join()
    seal_now(fleet)
    verdict = check(fleet)
    assert verdict.problems == ()
    assert (verdict.rows, verdict.unsealed) == (120, 0)


@pytest.mark.req("H-009")
def test_the_route_of_a_job_is_on_record_from_its_acceptance(fleet: Fleet) -> None:
    route = {"tier": 1, "rule": "text change", "signals": {"files": 2}, "policy": "p1", "confidence": "strong"}
    job_id = fleet.accept(route=route)
    assert fleet.job(job_id).route == route
    (row,) = fleet.rows("SELECT * FROM audit WHERE action = 'job_accepted' AND job_id = :id", id=job_id)
    assert row.detail["route"] == route


def test_the_export_holds_seals_and_rows_as_json_lines(sealed: Fleet) -> None:
    append(sealed, "not sealed yet")
    out = io.StringIO()
    with sealed.ledger.begin() as session:
        assert export(session, out) == 13
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [line["type"] for line in lines] == ["seal", "row", "row", "row"] * 3 + ["row"]
    assert [line["seq"] for line in lines if line["type"] == "row"] == list(range(1, 11))
    assert lines[0]["number"] == 1
    assert lines[1]["detail"] == {"note": "action 0.0", "amount": 1.5}

"""How the doctor judges what it saw."""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.notifications import Undelivered
from ledger.operations.activity import Blocker, Connections, Transaction
from producers.diagnosis import (
    Check,
    Finding,
    Verdict,
    examine,
    fail,
    judge_blockers,
    judge_clock,
    judge_connections,
    judge_disk,
    judge_eviction,
    judge_lag,
    judge_persistence,
    judge_prices,
    judge_refusal,
    judge_speed,
    judge_transaction,
    judge_webhooks,
    judge_workers,
    ok,
    warn,
    worst,
)
from producers.doctor import check_gateway, check_policy
from routing.policy.platform import platform_policy
from routing.queues import QueueName

SECRET = "sk-ant-never-shown-0123456789"


@pytest.mark.parametrize(
    ("finding", "verdict"),
    [
        (judge_clock(0.4), "OK"),
        (judge_clock(-3), "WARN"),
        (judge_clock(3_600), "FAIL"),
        (judge_disk(free_bytes=50_000_000_000, where="/den"), "OK"),
        (judge_disk(free_bytes=900_000_000, where="/den"), "WARN"),
        (judge_disk(free_bytes=1_000_000, where="/den"), "FAIL"),
        (judge_eviction("noeviction"), "OK"),
        (judge_eviction("allkeys-lru"), "FAIL"),
        (judge_eviction(""), "FAIL"),
        (judge_persistence({"appendonly": "yes", "save": ""}), "OK"),
        (judge_persistence({"appendonly": "no", "save": "3600 1"}), "OK"),
        (judge_persistence({"appendonly": "no", "save": ""}), "WARN"),
        (judge_workers({queue.value: 1 for queue in QueueName}), "OK"),
        (judge_workers({queue.value: 1 for queue in QueueName if queue is not QueueName.AGENT}), "WARN"),
        (judge_workers({queue.value: 1 for queue in QueueName if queue is not QueueName.CONTROL}), "FAIL"),
        (judge_workers({}), "FAIL"),
        (judge_lag(3), "OK"),
        (judge_lag(float("inf")), "WARN"),
        (judge_refusal('connection to server at "10.0.0.7", port 5432 failed: Connection refused'), "FAIL"),
        (judge_connections(Connections(79, 100)), "OK"),
        (judge_connections(Connections(80, 100)), "WARN"),
        (judge_transaction(None), "OK"),
        (judge_transaction(Transaction(7, "pointsman", "active", 59)), "OK"),
        (judge_transaction(Transaction(7, "psql", "idle in transaction", 61)), "WARN"),
        (judge_blockers([]), "OK"),
        (judge_blockers([Blocker(7, "psql", "idle in transaction", 2, 1)]), "OK"),
        (judge_blockers([Blocker(7, "psql", "idle in transaction", 2, 4)]), "FAIL"),
        (judge_webhooks(Undelivered(0, 0)), "OK"),
        (judge_webhooks(Undelivered(1, 0)), "WARN"),
        (judge_webhooks(Undelivered(0, 1)), "WARN"),
        (judge_speed("gateway", "here", seconds=0.1), "OK"),
        (judge_speed("gateway", "here", seconds=0.6), "WARN"),
        (judge_prices({"a", "b"}, {"a", "b", "c"}), "OK"),
        (judge_prices({"a", "b"}, {"a"}), "FAIL"),
    ],
)
def test_each_finding_is_judged_and_what_is_not_well_says_what_to_do(finding: Finding, verdict: str) -> None:
    assert (finding.verdict.value, bool(finding.hint)) == (verdict, verdict != "OK")
    assert finding.line.startswith(f"{verdict:<4}  {finding.name}")


def _gateway(tmp_path: Path, **provider: str) -> dict[str, str]:
    named = {f"POINTSMAN_GATEWAY__PROVIDERS__MINE__{name.upper()}": value for name, value in provider.items()}
    return {"POINTSMAN_GATEWAY__PEPPER": "p" * 32} | named


def test_a_provider_s_key_is_looked_for_and_never_shown(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text(SECRET)
    told = {"base_url": "https://models.example", "label": "mine"}
    given = [
        _gateway(tmp_path, **told, api_key=SECRET),
        _gateway(tmp_path, **told, api_key_file=str(key)),
        _gateway(tmp_path, **told, api_key_file=str(tmp_path / "gone")),
        _gateway(tmp_path, **told),
        _gateway(tmp_path),
        {},
    ]
    found = [list(check_gateway("http://127.0.0.1:1", environment)) for environment in given]
    assert [[one.verdict.value for one in each[1:]] for each in found] == [["OK"], ["OK"], *[["FAIL"]] * 3, []]
    assert {each[0].verdict for each in found} == {Verdict.WARN}
    assert "cannot be read" in found[2][1].seen
    assert SECRET not in json.dumps(found)


def test_the_shipped_policy_has_a_price_for_every_model_that_it_names() -> None:
    assert [finding.verdict for finding in check_policy(platform_policy())] == [Verdict.OK]


@pytest.mark.parametrize("words", ["sorry, too many clients already", "remaining connection slots are reserved for x"])
def test_exhausted_connections_are_not_taken_for_a_ledger_that_is_away(words: str) -> None:
    found = judge_refusal(f"connection failed: ... FATAL:  {words}\nMultiple attempts failed")
    assert words in found.seen
    assert "max_connections" in found.hint


def test_the_worst_finding_is_the_verdict() -> None:
    assert worst([]) is worst([ok("a")]) is Verdict.OK
    assert worst([ok("a"), warn("b", "", "c")]) is Verdict.WARN
    assert worst([fail("a", "", "b"), warn("c", "", "d")]) is Verdict.FAIL


def test_what_hangs_is_a_finding_after_its_time_and_hides_nothing_of_the_rest() -> None:
    over, began = threading.Event(), time.monotonic()

    def hang() -> Iterator[Finding]:
        yield ok("first half")
        over.wait(30)

    checks = [Check("disk", hang), Check("mirror", hang, late=Verdict.WARN), Check("last", lambda: [ok("last")])]
    found = list(examine(checks, limit_seconds=0.2))
    over.set()
    assert time.monotonic() - began < 5
    assert [(one.name, one.verdict.value) for one in found] == [
        *(("first half", "OK"), ("disk", "FAIL")),
        *(("first half", "OK"), ("mirror", "WARN")),
        ("last", "OK"),
    ]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_what_is_no_ordinary_error_ends_a_check_at_once() -> None:
    class PanicError(BaseException):
        pass

    def panic() -> Iterator[Finding]:
        yield ok("first")
        raise PanicError

    began = time.monotonic()
    assert list(examine([Check("panics", panic)], limit_seconds=5)) == [ok("first")]
    assert time.monotonic() - began < 4
    for thread in threading.enumerate():
        if thread.name == "panics":
            thread.join(5)


def test_a_defect_of_a_check_is_a_finding_and_hides_nothing_of_the_rest() -> None:
    found = list(examine([Check("wrong", lambda: [ok(str(1 // 0))]), Check("last", lambda: [ok("last")])]))
    assert [(one.name, one.verdict.value) for one in found] == [("wrong", "FAIL"), ("last", "OK")]
    assert "ZeroDivisionError" in found[0].seen

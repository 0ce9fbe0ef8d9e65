"""How the doctor's checks run together."""

import threading
import time
from collections.abc import Iterator

import pytest

from producers.findings import Check, Finding, Verdict, examine, fail, ok, warn, worst


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


def test_a_defect_of_a_check_is_raised_where_it_is_read() -> None:
    with pytest.raises(ZeroDivisionError):
        list(examine([Check("wrong", lambda: [ok(str(1 // 0))])]))

"""The fleet on three hosts, one of which is cut off once: the short form of `make chaos ONLY=hosts`."""

import pytest

from tests.chaos.hosts import CUT_SECONDS, LEASE_SECONDS, run
from tests.chaos.network import missing
from tests.chaos.options import Options


@pytest.mark.long
@pytest.mark.timeout(500)
@pytest.mark.req("H-087")
def test_a_host_that_is_cut_off_is_fenced_and_replaced_and_works_on_when_it_is_back() -> None:
    if why := missing():
        pytest.skip(why)
    report = run(Options(seed=5, is_short=True), print)
    assert report.is_good, report.text()
    figures = {name.removeprefix("cut of host2, "): value for name, value in report.figures.items()}
    assert figures["was leader"]
    held = figures["held"]
    assert isinstance(held, dict)
    assert "patch" in held, "an edit by a model was cut"
    assert float(str(figures["lock free after seconds"])) < LEASE_SECONDS < CUT_SECONDS
    assert float(str(figures["leader after seconds"])) < LEASE_SECONDS

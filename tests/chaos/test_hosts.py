"""The fleet on three hosts, one of which is cut off once: the short form of `make chaos ONLY=hosts`."""

import os

import pytest

from tests.chaos.hosts import CUT_SECONDS, LEASE_SECONDS, run
from tests.chaos.network import missing

SEED = int(os.environ.get("SEED", "5"))


@pytest.mark.timeout(400)
@pytest.mark.req("H-087")
def test_a_host_that_is_cut_off_is_fenced_replaced_and_works_on_when_it_is_back() -> None:
    if why := missing():
        pytest.skip(why)
    report = run(seed=SEED, jobs=80, cuts=1)
    [cut] = report.cuts
    assert cut.was_leader
    assert {"control", "patch"} <= set(cut.held), "a publish and an edit by a model were cut"
    assert cut.leader_after_seconds is not None
    assert cut.leader_after_seconds < LEASE_SECONDS
    assert cut.recovered_after_seconds is not None
    assert cut.recovered_after_seconds <= CUT_SECONDS

"""The short form of `make chaos ONLY=leaks`: what must not grow in any run, asserted where even a short one is sure."""

import pytest

from tests.chaos.leaks import watch

SURE = ("handles/", "threads/", "connections/", "keys/", "series/", "files/temporary")
PROGRAMS = ("api", "dispatcher", "gateway", "worker-agent", "worker-edits", "worker-quick")
OTHERS = {"connections/broker", "connections/ledger", "keys/broker", "series/exporter", "files/temporary"}


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_fleet_holds_no_more_handles_keys_or_series_after_hundreds_of_jobs_than_after_a_hundred() -> None:
    found = watch(jobs=600, seed=5, every_seconds=1.0, limit_seconds=40)
    assert found.jobs > 60
    sure = [one for one in found.fits if one.name.startswith(SURE)]
    watched = {one.name for one in sure}
    assert watched >= {f"{unit}/{program}" for unit in ("handles", "threads") for program in PROGRAMS} | OTHERS
    assert [(one.name, one.first, one.last) for one in sure if not one.is_flat] == []

"""The short form of `make chaos ONLY=leaks`: what must not grow in any run, asserted where even a short one is sure."""

import pytest

from tests.chaos.leaks import watch

SURE = ("handles/", "threads/", "connections/", "keys/", "series/", "files/temporary")


@pytest.mark.timeout(300)
def test_a_fleet_holds_no_more_handles_keys_or_series_after_hundreds_of_jobs_than_after_a_hundred() -> None:
    found = watch(jobs=600, seed=5, every_seconds=1.0, limit_seconds=40)
    assert found.jobs > 60
    sure = [one for one in found.fits if one.name.startswith(SURE)]
    assert len(sure) > 30
    assert [(one.name, one.first, one.last) for one in sure if not one.is_flat] == []

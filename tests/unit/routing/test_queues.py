"""Names and limits: nothing may miss, and seed 000's table stands as it is written."""

from typing import get_args

import pytest

from routing.policy.platform import platform_policy
from routing.queues import MEBIBYTE, QUEUE_OF_TIER, QUEUES, SUBMIT_TASK, Limits, QueueName, Tier, TierName, tier_named

TABLE = {
    "container": ("none", "build_only", "required"),
    "network": ("none", "registry_allowlist", "registry_allowlist"),
    "shell": ("none", "none", "restricted"),
    "hard_seconds": (30, 60, 300),
    "llm_usd": (0.05, 0.10, 0.50),
    "output_bytes": (2 * MEBIBYTE, 5 * MEBIBYTE, 20 * MEBIBYTE),
    "js_budget": ("publish_profile", "publish_profile", "publish_profile"),
}


@pytest.mark.req("H-107", "H-091", "H-094", "H-095", "H-097", "H-098", "H-099")
@pytest.mark.parametrize("row", TABLE)
def test_the_limits_of_the_three_tiers_are_the_seven_rows_of_seed_000(row: str) -> None:
    assert tuple(getattr(platform_policy().limits_of(tier), row) for tier in Tier) == TABLE[row]


@pytest.mark.req("H-107")
def test_limits_are_frozen_and_have_the_seven_rows_the_soft_limit_and_the_wait_in_the_queue() -> None:
    assert set(Limits.model_fields) == {*TABLE, "soft_seconds", "wait_seconds"}
    with pytest.raises(ValueError, match="frozen"):
        platform_policy().limits_of(Tier.SPEC).llm_usd = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("queue", "soft", "hard", "usd", "size", "container"),
    [
        ("intake", 50, 60, 0.05, 65_536, "none"),
        ("tools", 5, 10, 0, 65_536, "none"),
        ("answer", 50, 60, 0.05, 262_144, "none"),
        ("spec", 25, 30, 0.05, 2 * MEBIBYTE, "none"),
        ("patch", 50, 60, 0.10, 5 * MEBIBYTE, "build_only"),
        ("agent", 280, 300, 0.50, 20 * MEBIBYTE, "required"),
        ("steps", 870, 900, 25, 20 * MEBIBYTE, "per_role"),
        ("control", 25, 30, 0, MEBIBYTE, "none"),
    ],
)
def test_the_limits_of_every_queue_are_the_design_s(
    queue: str, soft: float, hard: float, usd: float, size: int, container: str
) -> None:
    limits = platform_policy().queues[QueueName(queue)]
    assert (limits.soft_seconds, limits.hard_seconds, limits.llm_usd) == (soft, hard, usd)
    assert (limits.output_bytes, limits.container) == (size, container)


def test_a_tier_has_a_queue_of_its_own_and_a_queue_at_most_one_tier() -> None:
    assert set(QUEUE_OF_TIER) == set(Tier)
    assert [QUEUES[queue].tier for queue in QUEUE_OF_TIER.values()] == list(QUEUE_OF_TIER)
    assert sum(queue.tier is not None for queue in QUEUES.values()) == len(Tier)
    assert [tier_named(name) for name in get_args(TierName)] == list(Tier)


def test_every_queue_but_the_unrouted_one_has_a_task_of_its_own() -> None:
    assert set(QUEUES) == set(QueueName) - {QueueName.UNROUTED}
    tasks = {queue.task for queue in QUEUES.values()}
    assert len(tasks | {SUBMIT_TASK}) == len(QUEUES) + 1
    assert all(task.startswith("pointsman.") for task in tasks)
    assert SUBMIT_TASK == "pointsman.submit"


def test_records_agree_with_the_limits_that_ship() -> None:
    for name, queue in QUEUES.items():
        limits = platform_policy().queues[name]
        assert queue.needs_box == (limits.container != "none")
        assert queue.waits_forever == (limits.wait_seconds is None)
        assert name in QUEUE_OF_TIER.values() or not queue.writes_site


def test_limits_in_nanodollars_are_exact() -> None:
    assert [platform_policy().limits_of(tier).llm_nanousd for tier in Tier] == [50_000_000, 100_000_000, 500_000_000]

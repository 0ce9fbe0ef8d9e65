"""Names and limits: nothing may miss, and seed 000's table stands as it is written."""

import pytest

from routing.policy import platform_policy
from routing.queues import (
    MEBIBYTE,
    QUEUE_OF_TIER,
    TASK_OF_QUEUE,
    TIER_OF_QUEUE,
    Limits,
    QueueName,
    TaskName,
    Tier,
)

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
    assert {queue: tier for tier, queue in QUEUE_OF_TIER.items()} == TIER_OF_QUEUE
    assert len(TIER_OF_QUEUE) == len(Tier)


def test_every_queue_but_the_unrouted_one_has_a_task_of_its_own() -> None:
    assert set(TASK_OF_QUEUE) == set(QueueName) - {QueueName.UNROUTED}
    assert len(set(TASK_OF_QUEUE.values())) == len(TASK_OF_QUEUE)
    assert set(TASK_OF_QUEUE.values()) | {TaskName.SUBMIT} == set(TaskName)


def test_task_names_are_the_public_ones() -> None:
    assert TaskName.SUBMIT == "pointsman.submit"
    assert all(name.value.startswith("pointsman.") for name in TaskName)


def test_limits_in_nanodollars_are_exact() -> None:
    assert [platform_policy().limits_of(tier).llm_nanousd for tier in Tier] == [50_000_000, 100_000_000, 500_000_000]

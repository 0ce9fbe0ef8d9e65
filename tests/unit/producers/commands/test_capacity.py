"""How people write rates, targets and pools, and what is refused."""

from types import SimpleNamespace
from typing import Any

import pytest

from ledger.errors import CapacityError
from producers.commands.capacity import CapacityOptions, answer, parse_amounts
from routing.policy.platform import platform_policy


def ask(**options: Any) -> Any:
    installation: Any = SimpleNamespace(policy=platform_policy())
    return answer(installation, CapacityOptions(source="defaults", **options))


def test_rates_are_read_in_every_unit() -> None:
    def rates(*words: str) -> Any:
        return parse_amounts("--rate", words, is_rate=True)

    assert rates("5/s").for_all == 5
    assert rates("3,000,000/day").for_all == pytest.approx(34.722, rel=1e-4)
    assert rates("3,000,000/day").is_by_day
    named = rates("spec=120/min", "agent=36/h")
    assert named == (None, {"spec": 2.0, "agent": 0.01}, False)
    assert rates().for_all is None


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        (["5"], "must end in /s"),
        (["5/week"], "must end in /s"),
        (["many/s"], "holds no number"),
        (["nan/s"], "holds no number"),
        (["0/s"], "must be above 0"),
        (["9e9/s"], "at most a million"),
        (["lunch=5/s"], "names no queue"),
        (["unrouted=5/s"], "names no queue"),
        (["5/s", "6/s"], "is the second one"),
        (["5/s", "spec=6/s"], "not both"),
        (["spec=5/s", "agent=6/day"], "by the day, or none"),
    ],
)
def test_a_rate_that_cannot_be_meant_is_refused_with_its_rule(words: list[str], rule: str) -> None:
    with pytest.raises(CapacityError, match=rule):
        ask(rates=words)


def test_amounts_hold_for_all_or_by_name() -> None:
    assert parse_amounts("--wait", ["10", "agent=60"]) == (10.0, {"agent": 60.0}, False)
    targets = ask(rates=["2/s"], waits=["10", "agent=60"]).question.p95_targets
    assert (targets["spec"], targets["agent"]) == (10.0, 60.0)
    with pytest.raises(CapacityError, match="--wait: '0' must be above 0"):
        ask(rates=["2/s"], waits=["0"])
    with pytest.raises(CapacityError, match="--slots: 'lunch' names no queue"):
        ask(rates=["2/s"], slots=["lunch=1"])


def test_a_rate_by_the_day_is_a_mean_below_its_peak() -> None:
    question = ask(rates=["86400/day"]).question
    assert sum(question.arriving.values()) == pytest.approx(2.5)
    assert sum(ask(rates=["86400/day"], peak=1.0).question.arriving.values()) == pytest.approx(1.0)
    assert sum(ask(rates=["1/s"], peak=3.0).question.arriving.values()) == pytest.approx(1.0)

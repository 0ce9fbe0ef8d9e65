import pytest

from monitoring.capacity.words import by_queue, read_amounts, read_rates
from monitoring.errors import CapacityError
from routing.queues import QueueName


def test_rates_are_read_in_every_unit() -> None:
    assert read_rates(["5/s"]).total == 5
    assert read_rates(["3,000,000/day"]).total == pytest.approx(34.722, rel=1e-4)
    assert read_rates(["3,000,000/day"]).is_by_day
    named = read_rates(["spec=120/min", "agent=36/h"])
    assert named.by_queue == {QueueName.SPEC: 2.0, QueueName.AGENT: 0.01}
    assert (named.total, named.is_by_day) == (None, False)
    assert read_rates([]).total is None


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
        (["5/s", "6/s"], "is the second rate"),
        (["5/s", "spec=6/s"], "not both"),
        (["spec=5/s", "agent=6/day"], "by the day, or none"),
    ],
)
def test_a_rate_that_cannot_be_meant_is_refused_with_its_rule(words: list[str], rule: str) -> None:
    with pytest.raises(CapacityError, match=rule):
        read_rates(words)


def test_amounts_hold_for_all_or_by_name() -> None:
    assert read_amounts("--wait", ["10", "agent=60"]) == (10.0, {"agent": 60.0})
    assert by_queue("--wait", {"agent": 60.0}) == {QueueName.AGENT: 60.0}
    with pytest.raises(CapacityError, match="--wait: '0' must be above 0"):
        read_amounts("--wait", ["0"])
    with pytest.raises(CapacityError, match="--slots: 'lunch' names no queue"):
        by_queue("--slots", {"lunch": 1.0})

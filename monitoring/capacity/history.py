"""What a list of attempts says about a fleet: durations, the way between two attempts, and what follows from them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from monitoring.capacity.arrivals import Arrival
from monitoring.capacity.samples import Samples
from monitoring.capacity.workload import ModelUse, QueueWork
from routing.queues import QueueName


class AttemptFact(NamedTuple):
    """One attempt that has ended. Times are seconds of one clock."""

    queue: QueueName
    arrived_at: float
    """When its job began to wait for it."""
    started_at: float
    ended_at: float
    next_queue: QueueName | None
    """Where its job had its next attempt, if it had one."""
    is_first: bool
    """Whether it is the job's first."""

    @property
    def wait_seconds(self) -> float:
        """How long its job waited for it."""
        return max(0.0, self.started_at - self.arrived_at)


class CallTotals(NamedTuple):
    """What all attempts on a queue asked of one model."""

    queue: QueueName
    model: str
    """`PROVIDER/MODEL`."""
    calls: int
    tokens: int
    usd: float


class Handover(NamedTuple):
    """How long the ways between attempts take, in seconds."""

    pickup_seconds: float
    turnaround_seconds: float


def describe(attempts: Sequence[AttemptFact], calls: Iterable[CallTotals]) -> QueueWork:
    """Return what attempts of one queue are like.

    Args:
        attempts: at least one.
        calls: of the same queue and of the same attempts.
    """
    count = len(attempts)
    called = list(calls)
    ways = handover(attempts)
    followed = Counter(attempt.next_queue for attempt in attempts if attempt.next_queue is not None)
    return QueueWork(
        source="measured",
        attempts=count,
        seconds=Samples.of(max(0.0, attempt.ended_at - attempt.started_at) for attempt in attempts).seconds,
        pickup_seconds=ways.pickup_seconds,
        turnaround_seconds=ways.turnaround_seconds,
        follows={queue: times / count for queue, times in followed.items()},
        usd=sum(total.usd for total in called) / count,
        models={
            total.model: ModelUse(calls=total.calls / count, tokens=total.tokens / count) for total in called
        },
    )  # fmt: skip


def handover(attempts: Sequence[AttemptFact]) -> Handover:
    """Tell a wait for a free slot from the way that every message takes.

    An attempt that began although no other one had ended while its job waited was taken up by a slot that was free:
    its wait is the pickup. One that waited for another's end began so long after it: the turnaround. Both are medians,
    so jobs that were held back for something else do not count much.
    """
    ordered = sorted(attempts, key=lambda attempt: attempt.started_at)
    ends = sorted(attempt.ended_at for attempt in ordered)
    pickups, turnarounds = [], []
    unmatched: deque[float] = deque()
    added = 0
    for attempt in ordered:
        until = bisect_right(ends, attempt.started_at)
        unmatched.extend(ends[added:until])
        added = max(added, until)
        while unmatched and unmatched[0] < attempt.arrived_at:
            unmatched.popleft()  # its slot was free when this job came
        if bisect_left(ends, attempt.arrived_at) == until:
            pickups.append(attempt.wait_seconds)
        elif unmatched:
            turnarounds.append(attempt.started_at - unmatched.popleft())
    pickup = median(pickups) if pickups else 0.0
    return Handover(pickup, median(turnarounds) if turnarounds else pickup)


def first_arrivals(of_queue: Mapping[QueueName, Sequence[AttemptFact]], *, most: int) -> list[Arrival]:
    """Return when new jobs came, in order.

    Args:
        of_queue: the newest attempts of each queue.
        most: so many were read of a queue at most: where there may be older ones, the other queues' are left out, too,
            since a queue would else seem to have begun late.
    """
    since = max(
        (min(each.started_at for each in facts) for facts in of_queue.values() if len(facts) >= most), default=0
    )
    seen = (each for facts in of_queue.values() for each in facts if each.is_first and each.started_at >= since)
    return sorted(Arrival(attempt.arrived_at, attempt.queue.value) for attempt in seen)


def mix_of(arrived: Mapping[QueueName, int]) -> Mapping[QueueName, float]:
    """Return at which queues new jobs arrive: shares of their number; empty where none did."""
    total = sum(arrived.values())
    return {queue: count / total for queue, count in arrived.items()}

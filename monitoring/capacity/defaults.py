"""What is taken of a queue where nothing was measured: from the policy's prices, speeds and limits, and said to be so.

A model call takes its time to the first token and its tokens at the model's stated speed; an attempt is taken to write
`TYPICAL_SHARE` of what it may, and its slowest twentieth all of it. Everything else is a share of the soft limit.
"""

from __future__ import annotations

from collections.abc import Mapping

from monitoring.capacity.samples import lognormal
from monitoring.capacity.workload import ModelUse, QueueWork, Workload
from routing.policy import Policy
from routing.prices import NANOUSD_PER_USD, Usage, cost_nanousd
from routing.queues import QUEUES, QueueName

TYPICAL_SHARE = 0.4
"""Of the tokens that a call may write: what it writes in the middle."""
PROVIDER = "anthropic"
_PICKUP_SECONDS = 0.02
_TURNAROUND_SECONDS = 0.02

WAIT_TARGETS: Mapping[QueueName, float] = {name: queue.target_seconds for name, queue in QUEUES.items()}
"""Seconds that 95 % of the attempts should not wait longer than, where no target is named."""


def default_workload(policy: Policy) -> Workload:
    """Return what is taken where nothing was measured at all."""
    queues = {queue: default_work(policy, queue) for queue in QUEUES}
    mix = {name: queue.arrivals for name, queue in QUEUES.items() if queue.arrivals}
    mix[QueueName.SPEC] += 1 - sum(mix.values())
    return Workload(source="defaults: nothing was measured", queues=queues, mix=mix)


def default_work(policy: Policy, queue: QueueName) -> QueueWork:
    """Return what is taken of one queue."""
    limits, record = policy.queues[queue], QUEUES[queue]
    call = policy.calls[record.call or "agent_session"]
    count = record.calls if record.call else 0
    written = call.max_tokens // record.calls
    if record.busy_share is None:
        speed = policy.speeds[call.model]
        p95 = speed.first_token_seconds + call.max_tokens / speed.tokens_per_second
        median = speed.first_token_seconds + TYPICAL_SHARE * call.max_tokens / speed.tokens_per_second
    else:
        median, p95 = (share * limits.soft_seconds for share in record.busy_share)
    usage = Usage(input_tokens=call.input_tokens, output_tokens=round(TYPICAL_SHARE * written))
    tokens = count * (usage.input_tokens + usage.output_tokens)
    return QueueWork(
        source="default",
        seconds=lognormal(median, p95=min(p95, limits.hard_seconds), most=limits.hard_seconds).seconds,
        pickup_seconds=_PICKUP_SECONDS,
        turnaround_seconds=_TURNAROUND_SECONDS,
        follows=dict(record.follows),
        usd=count * cost_nanousd(policy.prices[call.model], usage) / NANOUSD_PER_USD,
        models={f"{PROVIDER}/{call.model}": ModelUse(calls=count, tokens=tokens)} if count else {},
    )

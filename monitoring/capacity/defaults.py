"""What is taken of a queue where nothing was measured: from the policy's prices, speeds and limits, and said to be so.

A model call takes its time to the first token and its tokens at the model's stated speed; an attempt is taken to write
`TYPICAL_SHARE` of what it may, and its slowest twentieth all of it. Everything else is a share of the soft limit.
"""

from __future__ import annotations

from monitoring.capacity.samples import lognormal
from monitoring.capacity.workload import ModelUse, QueueWork, Workload
from routing.policy import CallPurpose, Policy
from routing.prices import NANOUSD_PER_USD, Usage, cost_nanousd
from routing.queues import QueueName

TYPICAL_SHARE = 0.4
"""Of the tokens that a call may write: what it writes in the middle."""
_CALL_OF: dict[QueueName, CallPurpose] = {
    QueueName.INTAKE: "assist", QueueName.ANSWER: "answer", QueueName.SPEC: "spec_edit", QueueName.PATCH: "patch_edit",
}  # fmt: skip
_WITHOUT_CALL: dict[QueueName, tuple[float, float]] = {
    QueueName.TOOLS: (0.02, 0.2), QueueName.CONTROL: (0.02, 0.2), QueueName.AGENT: (0.3, 0.8),
    QueueName.STEPS: (0.15, 0.6),
}  # fmt: skip
"""Of the soft limit: the median and the p95 of what takes no single call."""
_SESSION_CALLS = 8
"""Calls of a session of tier 3 or of a run's step."""
_FOLLOWS: dict[QueueName, dict[QueueName, float]] = {
    QueueName.INTAKE: {QueueName.SPEC: 0.6, QueueName.PATCH: 0.2, QueueName.ANSWER: 0.2},
    QueueName.SPEC: {QueueName.PATCH: 0.08, QueueName.CONTROL: 0.8},
    QueueName.PATCH: {QueueName.AGENT: 0.05, QueueName.CONTROL: 0.8},
    QueueName.AGENT: {QueueName.CONTROL: 0.8},
    QueueName.STEPS: {QueueName.CONTROL: 1.0},
}
_MIX: dict[QueueName, float] = {
    QueueName.TOOLS: 0.02, QueueName.ANSWER: 0.2, QueueName.INTAKE: 0.05, QueueName.SPEC: 0.55, QueueName.PATCH: 0.15,
    QueueName.AGENT: 0.03,
}  # fmt: skip
PROVIDER = "anthropic"
_PICKUP_SECONDS = 0.02
_TURNAROUND_SECONDS = 0.02

WAIT_TARGETS: dict[QueueName, float] = {
    QueueName.INTAKE: 5, QueueName.TOOLS: 1, QueueName.ANSWER: 5, QueueName.SPEC: 5, QueueName.PATCH: 10,
    QueueName.AGENT: 60, QueueName.STEPS: 60, QueueName.CONTROL: 5,
}  # fmt: skip
"""Seconds that 95 % of the attempts should not wait longer than, where no target is named."""


def default_workload(policy: Policy) -> Workload:
    """Return what is taken where nothing was measured at all."""
    queues = {queue: default_work(policy, queue) for queue in WAIT_TARGETS}
    mix = dict(_MIX)
    mix[QueueName.SPEC] += 1 - sum(mix.values())
    return Workload(source="defaults: nothing was measured", queues=queues, mix=mix)


def default_work(policy: Policy, queue: QueueName) -> QueueWork:
    """Return what is taken of one queue."""
    limits = policy.queues[queue]
    purpose = _CALL_OF.get(queue)
    if purpose is not None:
        call = policy.calls[purpose]
        speed = policy.speeds[call.model]
        p95 = speed.first_token_seconds + call.max_tokens / speed.tokens_per_second
        median = speed.first_token_seconds + TYPICAL_SHARE * call.max_tokens / speed.tokens_per_second
        model, count, read, written = call.model, 1, call.input_tokens, call.max_tokens
    else:
        median, p95 = (share * limits.soft_seconds for share in _WITHOUT_CALL[queue])
        session = policy.calls["agent_session"]
        model, read, written = session.model, session.input_tokens, session.max_tokens // _SESSION_CALLS
        count = _SESSION_CALLS if queue in (QueueName.AGENT, QueueName.STEPS) else 0
    usage = Usage(input_tokens=read, output_tokens=round(TYPICAL_SHARE * written))
    used = {f"{PROVIDER}/{model}": ModelUse(calls=count, tokens=count * (usage.input_tokens + usage.output_tokens))}
    return QueueWork(
        source="default",
        seconds=lognormal(median, p95=min(p95, limits.hard_seconds), most=limits.hard_seconds).seconds,
        pickup_seconds=_PICKUP_SECONDS,
        turnaround_seconds=_TURNAROUND_SECONDS,
        follows=_FOLLOWS.get(queue, {}),
        usd=count * cost_nanousd(policy.prices[model], usage) / NANOUSD_PER_USD,
        models=used if count else {},
    )

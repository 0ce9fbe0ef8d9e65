"""What an attempt adds to its job's trace: how long the job waited, its claim, and the work with all its parts.

An attempt learns its trace from the job's row, so waiting and claim are over by then. They, and each attempt, a publish
hours later as well, stand below the request that submitted the job: one job is one trace, whoever works on it and when.
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager

from monitoring import traces
from monitoring.ledger.start_attempt import Claim


def trace_claim(claimed: Claim, *, asked: float) -> None:
    """Put on the trace what went before the work.

    Args:
        claimed: the job and this attempt.
        asked: when the claim began, in seconds since the epoch.
    """
    if not traces.is_on():
        return
    trace, queue = claimed.job.trace, claimed.attempt.queue
    facts = _facts(claimed)
    traces.past(f"wait {queue}", trace, began=asked - claimed.waited_seconds, ended=asked, facts=facts)
    traces.past(f"claim {queue}", trace, began=asked, ended=time.time(), facts=facts)


def of_attempt(claimed: Claim) -> AbstractContextManager[traces.Span]:
    """Trace the work of an attempt."""
    if not traces.is_on():
        return traces.UNRECORDED
    queue = claimed.attempt.queue
    return traces.of_job(
        f"process {queue}", claimed.job.trace, kind=traces.Kind.CONSUMER,
        facts={
            "messaging.system": "celery", "messaging.operation.type": "process", "messaging.destination.name": queue,
            "pointsman.worker": claimed.attempt.worker, **_facts(claimed),
        },
    )  # fmt: skip


def _facts(claimed: Claim) -> traces.Facts:
    job, attempt = claimed.job, claimed.attempt
    return {
        "pointsman.job.id": str(job.id), "pointsman.tenant": job.tenant, "pointsman.tier": attempt.tier,
        "pointsman.attempt": attempt.number,
    }  # fmt: skip

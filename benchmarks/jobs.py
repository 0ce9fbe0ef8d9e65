"""Questions as a ledger has them: accepted as by a submit, claimed and answered as by a worker."""

from __future__ import annotations

from typing import Any

from ledger.start_attempt import Claim, claim, finish
from ledger.store import Ledger
from ledger.submission import accept
from ledger.tables import NewJob
from routing.ids import new_id
from routing.jobs import JobMessage, JobRequest, Reason, Source, State
from routing.policy.platform import platform_policy
from routing.queues import QueueName


def accepted(ledger: Ledger, tenant: str = "bench") -> JobMessage:
    """Accept a question that no other equals."""
    job_id = new_id()
    new = NewJob(
        id=job_id,
        tenant=tenant,
        source=Source.PYTHON,
        request=JobRequest(prompt=f"Explain how bread number {job_id} rises"),
        state=State.QUEUED,
        queue=QueueName.ANSWER,
        mode="ANSWER",
        cap_nanousd=650_000_000,
    )
    with ledger.begin() as session:
        accept(session, new)
    return JobMessage(job_id=job_id, fence=0)


def claimed(ledger: Ledger, message: JobMessage) -> Claim:
    """Claim a question."""
    made = claim(ledger, message, queue=QueueName.ANSWER, worker="bench", policy=platform_policy())
    assert made is not None
    return made


def ended(ledger: Ledger, held: Claim, **result: Any) -> None:
    """End a claimed question."""
    assert finish(ledger, held, State.ANSWERED, reason=Reason.DONE, result=result)

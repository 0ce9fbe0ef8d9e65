"""The body of queue `control`: what happens to a job there follows from the job, and no model is ever called.

A run of the ticket lane is advanced or published; the job of a site is published.
"""

from __future__ import annotations

import logging

from monitoring import traces
from monitoring.errors import FencedError
from monitoring.ledger.attempts import hold
from monitoring.ledger.jobs import end
from monitoring.ledger.start_attempt import Claim
from monitoring.ledger.step_ends import is_run
from routing.jobs import JobMessage, Reason, State
from routing.queues import QueueName
from workers.lease import Lease
from workers.lifecycle import LEDGER_AWAY, Resources, take
from workers.patience import try_later
from workers.publish import Observe, publish, unobserved
from workers.retries import away_of, is_passing
from workers.runs.coordinator import Advance
from workers.runs.publishing import publish_run
from workers.runs.workspace import Workspace
from workers.spans import of_attempt

logger = logging.getLogger(__name__)


def run_control(message: JobMessage, resources: Resources, *, observe: Observe = unobserved) -> None:
    """Work off one message of queue `control`.

    Args:
        message: what the broker delivered.
        resources: what every task needs.
        observe: told after each step of a site's publish.
    """
    claimed = take(message, QueueName.CONTROL, resources)
    if claimed is None:
        return
    try:
        with of_attempt(claimed), Lease(resources.ledger, claimed, resources.leases):
            _do_or_rest(claimed, resources, observe)
    except FencedError:
        logger.warning("attempt_fenced")
    except LEDGER_AWAY:
        logger.warning("attempt_given_up_without_ledger", exc_info=True)


def _do_or_rest(claimed: Claim, resources: Resources, observe: Observe) -> None:
    """Do what is due; when disk or Den are away, let it wait, and end it once it has waited long enough."""
    try:
        _do(claimed, resources, observe)
    except OSError as error:
        logger.warning("control_work_failed", exc_info=True)
        why = f"{type(error).__name__}: {error.strerror or error}"
        if not is_passing(error):
            raise
        if not try_later(claimed, resources, reason=away_of(error), why=why):
            _give_up(claimed, resources, f"{why}; it was tried again until the policy allowed no more")


def _give_up(claimed: Claim, resources: Resources, detail: str) -> None:
    with resources.ledger.begin() as session:
        job = hold(session, claimed.attempt)
        reason = Reason.PUBLISH_FAILED if job.state == State.PUBLISHING else Reason.INTERNAL_ERROR
        end(session, job, State.FAILED, reason=reason, detail=detail)


def _do(claimed: Claim, resources: Resources, observe: Observe) -> None:
    job = claimed.job
    if not is_run(job):
        with traces.span("publish"):
            publish(claimed, resources, observe)
        return
    workspace = Workspace.of_run(resources.runs.root, job.id)
    if job.state == State.PUBLISHING:
        with traces.span("publish"):
            publish_run(claimed, resources, workspace)
    else:
        with traces.span("advance"):
            Advance(claimed, resources, workspace).run()

"""Publish an approved release: checked, laid out, swapped by one commit of the ledger, then shown.

The ledger row is the truth, and one transaction both makes the release active and ends the job: there is no moment at
which a publish has half happened (H-084, H-087). What goes before that commit changes nothing that anybody sees; what
comes after it only brings the projection on disk to what the ledger says, and the dispatcher does that too.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import NamedTuple

from sqlmodel import Session

from monitoring import traces
from monitoring.errors import PublishConflictError, ReleaseSweptError, WrongStateError
from monitoring.ledger.approvals import approved_release
from monitoring.ledger.attempts import hold
from monitoring.ledger.events import EventKind, record
from monitoring.ledger.jobs import end
from monitoring.ledger.releases import activate, note_projection
from monitoring.ledger.start_attempt import Claim
from monitoring.ledger.tables import Approval, Job, Release, Site
from routing.jobs import Reason, State
from sandbox.errors import DenAwayError, SandboxError
from sandbox.release import check_whole, lay_out, try_to_show_active
from workers.lifecycle import Resources

logger = logging.getLogger(__name__)


class Step(StrEnum):
    """The steps of a publish, named when they are done."""

    CLAIMED = "claimed"
    CHECKED = "checked"
    LAID_OUT = "laid_out"
    SWAPPED = "swapped"
    SHOWN = "shown"


Observe = Callable[[Step], None]


def unobserved(_: Step) -> None:
    """Let nobody look on."""


class _Approved(NamedTuple):
    site: Site
    release: Release


def publish(claimed: Claim, resources: Resources, observe: Observe) -> None:
    """Publish the release that a claimed job was approved for.

    Args:
        claimed: the job and this attempt.
        resources: what every task needs.
        observe: told after each step.

    Raises:
        FencedError: nobody's fault: the job was taken away.
    """
    began = time.monotonic()
    observe(Step.CLAIMED)
    approved = _check(claimed, resources)
    if approved is None:
        return
    observe(Step.CHECKED)
    with traces.span("lay out"):
        is_laid_out = _lay_out(claimed, approved, resources)
    if not is_laid_out:
        return
    observe(Step.LAID_OUT)
    with traces.span("swap"):
        is_swapped = _swap(claimed, resources, began=began)
    if not is_swapped:
        return
    observe(Step.SWAPPED)
    with traces.span("show"):
        lag = try_to_show_active(resources.ledger, resources.den, approved.site.id)
    if lag is not None:
        _tell_of_lag(claimed, resources, lag)
    observe(Step.SHOWN)
    logger.info("published")


def _check(claimed: Claim, resources: Resources) -> _Approved | None:
    """Return what is to be published; a job whose release is not what was approved ends here."""
    with resources.ledger.begin() as session:
        job = hold(session, claimed.attempt)
        try:
            release = approved_release(session, job)
            check_whole(release)
        except (WrongStateError, SandboxError) as error:
            end(session, job, State.FAILED, reason=Reason.INTERNAL_ERROR, detail=str(error))
            return None
        return _Approved(session.get_one(Site, release.site_id), release)


def _lay_out(claimed: Claim, approved: _Approved, resources: Resources) -> bool:
    """Make the files ready. What cannot be read back is never published; a full disk only delays its showing.

    Raises:
        DenAwayError: the surroundings' fault: the publish has to wait.
    """
    try:
        lay_out(resources.den, approved.site, approved.release, release_id=approved.release.id)
    except DenAwayError:
        raise
    except OSError:
        logger.warning("projection_not_laid_out", exc_info=True)
    except SandboxError as error:
        with resources.ledger.begin() as session:
            job = hold(session, claimed.attempt)
            detail = f"its files cannot be read back ({type(error).__name__}); the live site is unchanged"
            end(session, job, State.FAILED, reason=Reason.INTERNAL_ERROR, detail=detail)
        return False
    return True


def _swap(claimed: Claim, resources: Resources, *, began: float) -> bool:
    """Make the release active and end its job, in one commit; False when it ended in another way."""
    with resources.ledger.begin() as session:
        job = hold(session, claimed.attempt)
        try:
            release = approved_release(session, job)
            activate(session, release.site_id, release, base_release_id=release.base_release_id)
        except (WrongStateError, ReleaseSweptError) as error:
            end(session, job, State.FAILED, reason=Reason.INTERNAL_ERROR, detail=str(error))
            return False
        except PublishConflictError as error:
            end(session, job, State.FAILED, reason=Reason.PUBLISH_CONFLICT, detail=str(error))
            return False
        published = time.monotonic()
        end(session, job, State.PUBLISHED, reason=Reason.DONE)
        seconds = {"publish": published - began, "unlock": time.monotonic() - published}
        _put_steps_on_record(session, job, {"approval": _waited_seconds(session, job, release), **seconds})
    return True


def _waited_seconds(session: Session, job: Job, release: Release) -> float:
    """Return how long the preview waited for its judgement."""
    return (session.get_one(Approval, job.id).at - release.created_at).total_seconds()


def _put_steps_on_record(session: Session, job: Job, seconds: Mapping[str, float]) -> None:
    for step, taken in seconds.items():
        record(session, EventKind.STEP, job=job, step=step, seconds=round(taken, 3))


def _tell_of_lag(claimed: Claim, resources: Resources, lag: str) -> None:
    text = (
        f"published in the ledger, as live pages show; its copy for web servers could not be written at once ({lag}); "
        "the dispatcher tries again until it can"
    )
    with resources.ledger.begin() as session:
        note_projection(session, claimed.job.id, text)

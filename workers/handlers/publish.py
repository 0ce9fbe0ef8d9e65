"""Publish an approved release: check it, lay it out, swap it in by one commit, then update the projection.

The ledger row is the truth, and one transaction both activates the release and ends the job: a publish never half
happens (H-084, H-087). What precedes that commit is invisible; what follows it only brings the projection on disk up to
date, and the dispatcher does that too.
"""

from __future__ import annotations

import errno
import logging
import time
from typing import NamedTuple

from ledger.attempts import lock_owned_job
from ledger.errors import FencedError, PublishConflictError, ReleaseSweptError, WrongStateError
from ledger.events import EventKind, record
from ledger.job_control import approved_release
from ledger.job_ends import is_run
from ledger.jobs import end
from ledger.record_tables import Approval
from ledger.releases import activate, note_projection
from ledger.runs.tables import Run
from ledger.start_attempt import Claim
from ledger.store import LEDGER_UNREACHABLE
from ledger.tables import Release, Site
from monitoring import traces
from routing.jobs import JobMessage, Reason, State
from routing.queues import QueueName
from sites.errors import SiteError, StoreTakenError, StoreUnavailableError
from sites.ownership import check_owner
from sites.releases import check_release_integrity, lay_out, try_show_active
from sites.repository.workspace import Workspace
from workers.lease import Lease
from workers.lifecycle import Resources, claim_job, hand_back, retry_later, trace_attempt
from workers.retries import is_passing, unavailable_reason, words_of
from workers.runs.coordinator import Advance
from workers.runs.publishing import publish_run

logger = logging.getLogger(__name__)


class _Approved(NamedTuple):
    site: Site
    release: Release


def publish(claimed: Claim, resources: Resources) -> None:
    """Publish the release that a claimed job was approved for.

    Raises:
        FencedError: nobody's fault: the job was taken away.
    """
    began = time.monotonic()
    approved = _check(claimed, resources)
    if approved is None:
        return
    with traces.span("lay out"):
        is_laid_out = _lay_out(claimed, approved, resources)
    if not is_laid_out:
        return
    with traces.span("swap"):
        is_swapped = _swap(claimed, resources, began=began)
    if not is_swapped:
        return
    with traces.span("show"):
        lag = try_show_active(resources.ledger, resources.content_store, approved.site.id)
    if lag is not None:
        _record_lag(claimed, resources, lag)
    logger.info("published")


def _check(claimed: Claim, resources: Resources) -> _Approved | None:
    """Return what is to be published; a job whose release is not what was approved ends here."""
    with resources.ledger.begin() as session:
        job = lock_owned_job(session, claimed.attempt)
        try:
            release = approved_release(session, job)
            check_release_integrity(release)
        except (WrongStateError, SiteError) as error:
            end(session, job, State.FAILED, reason=Reason.INTERNAL_ERROR, detail=str(error))
            return None
        return _Approved(session.get_one(Site, release.site_id), release)


def _lay_out(claimed: Claim, approved: _Approved, resources: Resources) -> bool:
    """Prepare the files. Unreadable content is never published; a full disk only delays the projection."""
    try:
        lay_out(resources.content_store, approved.site, approved.release, release_id=approved.release.id)
    except StoreUnavailableError:
        raise
    except OSError:
        logger.warning("projection_not_laid_out", exc_info=True)
    except SiteError as error:
        _check_owner(resources)
        with resources.ledger.begin() as session:
            job = lock_owned_job(session, claimed.attempt)
            detail = f"its files cannot be read back ({type(error).__name__}); the live site is unchanged"
            end(session, job, State.FAILED, reason=Reason.INTERNAL_ERROR, detail=detail)
        return False
    return True


def _check_owner(resources: Resources) -> None:
    """Check that files are missing from this ledger's own store.

    Raises:
        StoreUnavailableError: the operator's fault: it is another's, so nothing is known of them.
    """
    try:
        check_owner(resources.ledger, resources.content_store)
    except StoreTakenError as error:
        raise StoreUnavailableError(errno.EIO, str(error)) from None


def _swap(claimed: Claim, resources: Resources, *, began: float) -> bool:
    """Make the release active and end its job, in one commit; False when it ended in another way."""
    with resources.ledger.begin() as session:
        job = lock_owned_job(session, claimed.attempt)
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
        approved_at = session.get_one(Approval, job.id).at
        durations = {
            "approval": (approved_at - release.created_at).total_seconds(),
            "publish": published - began,
            "unlock": time.monotonic() - published,
        }
        for step, seconds in durations.items():
            record(session, EventKind.STEP, job=job, step=step, seconds=round(seconds, 3))
    return True


def _record_lag(claimed: Claim, resources: Resources, lag: str) -> None:
    text = (
        f"published in the ledger, as live pages show; its copy for web servers could not be written yet ({lag}); "
        "the dispatcher tries again until it can"
    )
    with resources.ledger.begin() as session:
        note_projection(session, claimed.job.id, text)


def run_control(message: JobMessage, resources: Resources) -> None:
    """Process one message of queue `control`, without any model: advance or publish a run, or publish a site.

    All of it is safe to repeat, so an error of ours loses the attempt, as a worker's death would, and not yet the job.
    """
    claimed = claim_job(message, QueueName.CONTROL, resources)
    if claimed is None:
        return
    try:
        with trace_attempt(claimed), Lease(resources.ledger, claimed, resources.leases):
            _run_or_defer(claimed, resources)
    except FencedError:
        logger.warning("attempt_fenced")
    except LEDGER_UNREACHABLE:
        logger.warning("attempt_given_up_without_ledger", exc_info=True)
        until = time.monotonic() + claimed.policy.attempts.lease_seconds
        hand_back(message, resources, cause=Reason.LEDGER_UNREACHABLE, until=until)
    except Exception:
        logger.exception("attempt_failed", extra={"reason": Reason.INTERNAL_ERROR.value})
        hand_back(message, resources, cause=Reason.INTERNAL_ERROR)


def _run_or_defer(claimed: Claim, resources: Resources) -> None:
    """Do what is due; while the disk or the content store is unavailable, retry later, as long as the policy allows."""
    try:
        _publish_or_advance(claimed, resources)
    except OSError as error:
        logger.warning("control_work_failed", exc_info=True)
        why = f"{type(error).__name__}: {words_of(error)}"
        if not is_passing(error):
            raise
        if not retry_later(claimed, resources, reason=unavailable_reason(error), why=why):
            _give_up(claimed, resources, f"{why}; it was retried for as long as the policy allows")


def _give_up(claimed: Claim, resources: Resources, detail: str) -> None:
    with resources.ledger.begin() as session:
        job = lock_owned_job(session, claimed.attempt)
        reason = Reason.PUBLISH_FAILED if job.state == State.PUBLISHING else Reason.INTERNAL_ERROR
        end(session, job, State.FAILED, reason=reason, detail=detail)


def _publish_or_advance(claimed: Claim, resources: Resources) -> None:
    job = claimed.job
    if not is_run(job):
        with traces.span("publish"):
            publish(claimed, resources)
        return
    with resources.ledger.begin() as session:
        run = session.get(Run, job.id)
        workspace = Workspace.of_run(resources.runs.root, run.workspace if run is not None else job.id)
    if job.state == State.PUBLISHING:
        with traces.span("publish"):
            publish_run(claimed, resources, workspace)
    else:
        with traces.span("advance"):
            Advance(claimed, resources, workspace).run()

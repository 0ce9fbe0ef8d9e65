"""Publish an approved release: compare-and-swap in the ledger, then its projection; after a crash both are repeated.

The ledger row is the truth. Until it is swapped nothing that anybody sees has changed; once it is, doing it all again
changes nothing (H-084, H-087).
"""

from __future__ import annotations

import logging
from uuid import UUID

from monitoring.errors import FencedError, PublishConflictError, WrongStateError
from monitoring.ledger.attempts import Claim, hold
from monitoring.ledger.jobs import end
from monitoring.ledger.releases import activate, approved_release
from monitoring.ledger.tables import Site
from routing.jobs import JobMessage, Reason, State
from routing.tiers import QueueName
from sandbox.release import show_active
from workers.lease import Lease
from workers.lifecycle import LEDGER_AWAY, Resources, take

logger = logging.getLogger(__name__)


def run_publish(message: JobMessage, resources: Resources) -> None:
    """Publish the release that one message's job was approved for."""
    claimed = take(message, QueueName.CONTROL, resources)
    if claimed is None:
        return
    try:
        with Lease(resources.ledger, claimed):
            site_id = _swap(claimed, resources)
            if site_id is not None:
                show_active(resources.ledger, resources.den, site_id)
                _finish(claimed, resources)
    except FencedError:
        logger.warning("attempt_fenced")
    except LEDGER_AWAY:
        logger.warning("attempt_given_up_without_ledger", exc_info=True)


def _swap(claimed: Claim, resources: Resources) -> UUID | None:
    with resources.ledger.begin() as session:
        job = hold(session, claimed.attempt)
        site = session.get_one(Site, job.site_id)
        try:
            release = approved_release(session, job)
            if release.published_at is None:  # otherwise an attempt before this one swapped it
                activate(session, site.id, release, base_release_id=release.base_release_id)
        except WrongStateError as error:
            end(session, job, State.FAILED, reason=Reason.INTERNAL_ERROR, detail=str(error))
            return None
        except PublishConflictError as error:
            end(session, job, State.FAILED, reason=Reason.PUBLISH_CONFLICT, detail=str(error))
            return None
    return site.id


def _finish(claimed: Claim, resources: Resources) -> None:
    with resources.ledger.begin() as session:
        end(session, hold(session, claimed.attempt), State.PUBLISHED, reason=Reason.DONE)
    logger.info("published")

"""Start the rounds that answer reviews and failed checks of pull requests."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from ledger.errors import NotContinuableError
from ledger.runs.reviews import CHECK, due_reviews, lock_review, settle_review
from ledger.runs.tables import Project, ReviewComment, Run
from producers.errors import AdmissionRefusedError
from producers.intake.review_webhooks import compose_request
from producers.intake.submit import Requester
from producers.use_cases.rounds import ReviseOrder, Rounds
from routing.errors import InvalidJobError
from routing.jobs import Source
from routing.policy.project import ProjectConfig

logger = logging.getLogger(__name__)

QUIET_SECONDS = 30.0
"""A review's comments arrive one by one: a round starts when nobody has added any for so long."""
REVIEW_TICK_SECONDS = 5.0
"""Between two looks for reviews."""
MAX_CHECK_ROUNDS = 3
"""Rounds of one session that failed checks may start; then a person has to ask."""


def refusal_of(comments: Sequence[ReviewComment], *, check_rounds: int) -> str:
    """Return why comments start no round; empty where they do."""
    is_asked = any(comment.is_order and not comment.source.startswith(CHECK) for comment in comments)
    if is_asked or check_rounds < MAX_CHECK_ROUNDS:
        return ""
    return f"{check_rounds} rounds have answered failed checks; mention me to ask for another"


@dataclass(frozen=True)
class ReviewRounds:
    """Turns what was said about pull requests into rounds of their runs, on the same bill."""

    rounds: Rounds
    quiet_seconds: float = QUIET_SECONDS

    def deliver_due(self, *, limit: int = 20) -> int:
        """Start or refuse the rounds that are due; returns how many were tried."""
        with self.rounds.ledger.look() as connection:
            due = due_reviews(connection, quiet_seconds=self.quiet_seconds, limit=limit)
        for root_id in due:
            self._answer(root_id)
        return len(due)

    def _answer(self, root_id: UUID) -> None:
        try:
            self._start(root_id)
        except AdmissionRefusedError as error:  # they stay open, and are tried again
            logger.info("review_waits", extra={"root_id": str(root_id), "why": str(error)})
        except (NotContinuableError, InvalidJobError) as error:
            logger.info("review_refused", extra={"root_id": str(root_id), "why": str(error)})
            with self.rounds.ledger.begin() as session:
                if (review := lock_review(session, root_id)) is not None:
                    settle_review(session, review, refused=str(error))

    def _start(self, root_id: UUID) -> None:
        with self.rounds.ledger.begin() as session:
            review = lock_review(session, root_id)
            if review is None:
                return
            if refused := refusal_of(review.comments, check_rounds=review.check_rounds):
                settle_review(session, review, refused=refused)
                return
            run = session.get_one(Run, review.last.id)
            project = session.get_one(Project, run.project_id)
            tenant = review.last.tenant
            requester = Requester(
                tenant=tenant, source=Source.HTTP, actor=f"{_forge_of(project)}:{tenant}/{project.name}"
            )
            order = ReviseOrder(text=compose_request(review.comments))
            accepted = self.rounds.revise_in(session, review.last, order, requester=requester)
            settle_review(session, review, run_id=accepted.job.id)


def _forge_of(project: Project) -> str:
    """Return the kind of a project's forge, whose people ask."""
    forge = ProjectConfig.model_validate(project.config).integrations.forge
    return forge.kind if forge is not None else "forge"

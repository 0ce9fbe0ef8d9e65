"""What is said about the pull request of a run: kept as it comes, and taken by the session's next round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Connection, func, select
from sqlalchemy import update as sql_update
from sqlalchemy.dialects.postgresql import insert
from sqlmodel import Session, col

from ledger.job_ends import REFUSED, owe_ticket_note
from ledger.jobs import lock_job
from ledger.releases import rounds_of, successor_of
from ledger.runs.tables import ReviewComment, Run
from ledger.store import Statement, now, storable
from ledger.tables import Job

MAX_OPEN = 200
"""Comments that one session keeps for its next round; further ones are not kept."""
CHECK = "check:"
"""How the sources of failed checks begin."""


class NewComment(NamedTuple):
    """A review, a comment or a failed check, as its forge reported it."""

    source: str
    """Names it among all of its pull request; the same one is kept once."""
    author: str
    body: str
    is_order: bool
    """Whether it starts a round; others only reach the agents of a round that starts for another reason."""
    path: str | None = None
    line: int | None = None


def run_of_pull_request(session: Session, project_id: UUID, *, number: int) -> Job | None:
    """Return the latest run of a project whose pull request has this number."""
    pull = (col(Job.result)["pull_request"]["number"].astext == str(number)) | (
        col(Run.pushed)["pull_request"]["number"].astext == str(number)
    )
    return session.scalars(_runs(project_id).where(pull).limit(1)).one_or_none()


def run_of_commit(session: Session, project_id: UUID, *, commit: str) -> Job | None:
    """Return the run of a project that pushed this commit; None where a later round has pushed another since."""
    found = session.scalars(_runs(project_id).where(col(Job.result)["commit"].astext == commit).limit(1)).one_or_none()
    if found is None:
        return None
    later = [one for one in rounds_of(session, found.root_id) if one.created_at > found.created_at]
    return None if any(one.result.get("commit") for one in later) else found


def _runs(project_id: UUID) -> Any:
    own = select(Job).join(Run, col(Run.job_id) == col(Job.id)).where(col(Run.project_id) == project_id)
    return own.order_by(col(Job.created_at).desc())


def keep_comment(session: Session, root_id: UUID, comment: NewComment, *, is_edit: bool = False) -> bool:
    """Keep a comment on a session's pull request; returns whether there is room for it.

    An edit replaces the words that no round has taken yet. One that makes an order of words that a round has taken
    already is an order of its own, once.
    """
    values = {name: storable(value) if isinstance(value, str) else value for name, value in comment._asdict().items()}
    if is_edit:
        own = (col(ReviewComment.root_id) == root_id) & (col(ReviewComment.source) == values["source"])
        known = session.scalars(select(ReviewComment).where(own).with_for_update()).one_or_none()
        if known is not None and known.settled_at is None:
            known.body, known.is_order = values["body"], known.is_order or comment.is_order
            return True
        if known is not None and (known.is_order or not comment.is_order):
            return True
        if known is not None:
            values["source"] = f"{values['source']}:edited"
    open_ones = select(func.count()).where(*_open(root_id))
    if (session.scalar(open_ones) or 0) >= MAX_OPEN:
        return False
    session.execute(insert(ReviewComment).values(root_id=root_id, refused="", **values).on_conflict_do_nothing())
    return True


_DUE = Statement("""
    SELECT root_id FROM review_comment WHERE settled_at IS NULL GROUP BY root_id
    HAVING bool_or(is_order) AND max(received_at) <= clock_timestamp() - make_interval(secs => %(quiet_seconds)s)
       AND NOT EXISTS (SELECT FROM job WHERE (job.id = review_comment.root_id OR job.root_id = review_comment.root_id)
                          AND job.queue <> 'steps' AND job.ended_at IS NULL)
     ORDER BY random() LIMIT %(limit)s
""")


def due_reviews(connection: Connection, *, quiet_seconds: float, limit: int) -> list[UUID]:
    """Return sessions whose pull request was commented on, where a round may start and nobody has added more.

    Whichever they are: those of a tenant without headroom stay due, and must not hold up the others.
    """
    return _DUE.scalars(connection, {"quiet_seconds": quiet_seconds, "limit": limit})


class Review(NamedTuple):
    """Everything that a session's next round is to answer."""

    last: Job
    """The session's last run, locked."""
    comments: Sequence[ReviewComment]
    check_rounds: int
    """Rounds of the session that failed checks began or joined."""


def lock_review(session: Session, root_id: UUID) -> Review | None:
    """Return what a session's next round is to answer; None where another process or a person was faster."""
    last = lock_job(session, rounds_of(session, root_id)[-1].id)
    kept = select(ReviewComment).where(*_open(root_id)).order_by(col(ReviewComment.id)).with_for_update()
    comments = session.scalars(kept).all()
    goes_on = last.ended_at is None or successor_of(session, last.id) is not None
    if goes_on or not any(comment.is_order for comment in comments):
        return None
    own = (col(ReviewComment.root_id) == root_id) & col(ReviewComment.source).startswith(CHECK)
    rounds = session.scalar(select(func.count(col(ReviewComment.run_id).distinct())).where(own)) or 0
    return Review(last, comments, rounds)


def settle_review(session: Session, review: Review, *, run_id: UUID | None = None, refused: str = "") -> None:
    """Record which round takes the comments, or why none does, which is told on the pull request."""
    ids = [comment.id for comment in review.comments]
    values: dict[str, Any] = {"settled_at": now(), "run_id": run_id, "refused": refused}
    session.execute(sql_update(ReviewComment).where(col(ReviewComment.id).in_(ids)).values(**values))
    if refused:
        owe_ticket_note(session, session.get_one(Run, review.last.id), f"{REFUSED}{ids[-1]}")


def _open(root_id: UUID) -> tuple[Any, Any]:
    return col(ReviewComment.root_id) == root_id, col(ReviewComment.settled_at).is_(None)

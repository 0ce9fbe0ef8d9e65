"""Check a ledger's whole history against the promises of DESIGN.md: what chaos tests and operators run at the end.

Each check is one query that returns only what breaks the rule, so that a long history costs reading and no memory.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from sqlalchemy import text
from sqlmodel import Session

from routing.jobs import ENDS, MOVES

_LEGAL = [f"{origin.value}>{target.value}" for origin, targets in MOVES.items() for target in targets]
_ENDS = [state.value for state in ENDS]


class Violation(NamedTuple):
    """A promise that the history breaks."""

    rule: str
    subject: str
    detail: str


# A request refused at the Celery door stands as a `rejected` row under the id that its caller knows; it was never
# accepted, so it owes neither an end nor a notification.
_JOBS = """
    WITH accepted AS (SELECT DISTINCT ON (job_id) job_id, data ->> 'state' AS state FROM event WHERE kind = 'accepted'),
    job_in AS (SELECT job.*, accepted.state AS first_state, job.state = ANY(CAST(:ends AS text[])) AS has_ended
                 FROM job JOIN accepted ON accepted.job_id = job.id),
    moves AS (SELECT job_id, id, data ->> 'origin' AS origin, data ->> 'target' AS target,
                     lag(data ->> 'target') OVER (PARTITION BY job_id ORDER BY id) AS before,
                     row_number() OVER (PARTITION BY job_id ORDER BY id DESC) = 1 AS is_last
                FROM event WHERE kind = 'state')
"""

_RULES: tuple[tuple[str, str], ...] = (
    ("every job was accepted or refused", """
        SELECT id, 'state ' || state || ' without an accepted event' FROM job
         WHERE NOT EXISTS (SELECT FROM event WHERE event.job_id = job.id AND kind = 'accepted')
           AND NOT (door = 'celery' AND state = 'rejected' AND reason = 'invalid_request')
    """),
    ("moves are legal", """
        SELECT job_id, 'moved from ' || origin || ' to ' || target FROM moves
         WHERE NOT (origin || '>' || target = ANY(CAST(:legal AS text[])))
    """),
    ("moves follow each other", """
        SELECT job_in.id, 'moved from ' || origin || ' while it was ' || coalesce(moves.before, first_state)
          FROM moves JOIN job_in ON job_in.id = moves.job_id
         WHERE moves.origin <> coalesce(moves.before, job_in.first_state)
    """),
    ("a job is where its last move led", """
        SELECT job_in.id, 'is ' || job_in.state || ', its last move led to ' || coalesce(moves.target, first_state)
          FROM job_in LEFT JOIN moves ON moves.job_id = job_in.id AND moves.is_last
         WHERE job_in.state <> coalesce(moves.target, first_state)
    """),
    ("a job that ended has one end", """
        SELECT job_in.id, count(event.id) || ' ended events in state ' || job_in.state
          FROM job_in LEFT JOIN event ON event.job_id = job_in.id AND event.kind = 'ended'
         GROUP BY job_in.id, job_in.state, has_ended HAVING count(event.id) <> CAST(has_ended AS int)
    """),
    ("a job that ended has one notification", """
        SELECT job_in.id, count(notification.job_id) || ' notifications in state ' || job_in.state
          FROM job_in LEFT JOIN notification ON notification.job_id = job_in.id
         GROUP BY job_in.id, job_in.state, has_ended HAVING count(notification.job_id) <> CAST(has_ended AS int)
    """),
    ("a job that ended has one audit row", """
        SELECT job_in.id, count(audit.seq) || ' job_ended rows in state ' || job_in.state
          FROM job_in LEFT JOIN audit ON audit.job_id = job_in.id AND audit.action = 'job_ended'
         GROUP BY job_in.id, job_in.state, has_ended HAVING count(audit.seq) <> CAST(has_ended AS int)
    """),
    ("a job that ended holds nothing", """
        SELECT job_in.id, 'still waits, works or locks a site' FROM job_in
         WHERE has_ended AND (waiting_since IS NOT NULL
               OR EXISTS (SELECT FROM attempt WHERE attempt.job_id = job_in.id AND attempt.ended_at IS NULL)
               OR EXISTS (SELECT FROM site WHERE site.lock_job_id = job_in.id))
    """),
    ("an attempt ends once", """
        SELECT attempt.job_id, 'attempt ' || attempt.number || ' has ' || count(event.id) || ' ended events'
          FROM attempt LEFT JOIN event ON event.job_id = attempt.job_id AND event.kind = 'attempt_ended'
                AND CAST(event.data ->> 'attempt' AS int) = attempt.number
         GROUP BY attempt.id HAVING count(event.id) <> CAST(attempt.ended_at IS NOT NULL AS int)
    """),
    ("a job is worked on by one attempt at a time", """
        SELECT job_id, count(*) || ' live attempts' FROM attempt WHERE ended_at IS NULL GROUP BY job_id
        HAVING count(*) > 1
    """),
    ("a published release was scanned and approved", """
        SELECT release.id, 'published without a passing scan and one approval of exactly this release' FROM release
         WHERE published_at IS NOT NULL AND job_id IS NOT NULL
           AND (NOT scan_passed OR 1 <> (
                SELECT count(*) FROM approval
                 WHERE approval.release_id = release.id AND approval.decision = 'approved'
                   AND approval.scan_digest = release.scan_digest
                   AND approval.base_release_id IS NOT DISTINCT FROM release.base_release_id))
    """),
    ("an active release was published", """
        SELECT site.id, 'shows release ' || active_release_id || ', which was never published' FROM site
         WHERE active_release_id IS NOT NULL AND NOT EXISTS (
                SELECT FROM release WHERE release.id = active_release_id AND release.site_id = site.id
                   AND published_at IS NOT NULL)
    """),
    ("money is conserved", """
        SELECT coalesce(cap.scope, booked.scope) || ' ' || coalesce(cap.key, booked.key),
               'spent ' || coalesce(spent_nanousd, 0) || ' and reserved ' || coalesce(reserved_nanousd, 0)
               || ', its calls say ' || coalesce(spent, 0) || ' and ' || coalesce(reserved, 0)
          FROM cap FULL JOIN (
                SELECT pair ->> 0 AS scope, pair ->> 1 AS key,
                       coalesce(sum(cost_nanousd) FILTER (WHERE state <> 'reserved'), 0) AS spent,
                       coalesce(sum(reserved_nanousd) FILTER (WHERE state = 'reserved'), 0) AS reserved
                  FROM call, jsonb_array_elements(caps) AS pairs (pair) GROUP BY 1, 2
               ) AS booked ON booked.scope = cap.scope AND booked.key = cap.key
         WHERE coalesce(spent_nanousd, 0) <> coalesce(spent, 0)
            OR coalesce(reserved_nanousd, 0) <> coalesce(reserved, 0)
    """),
)  # fmt: skip


def check_history(session: Session) -> list[Violation]:
    """Return every broken promise, best in a transaction during which nothing else writes."""
    values: dict[str, Any] = {"ends": _ENDS, "legal": _LEGAL}
    found = []
    for rule, query in _RULES:
        statement = text(_JOBS + query) if "job_in" in query or "moves" in query else text(query)
        bound = {name: value for name, value in values.items() if f":{name}" in statement.text}
        found += [Violation(rule, str(subject), detail) for subject, detail in session.execute(statement, bound)]
    return found

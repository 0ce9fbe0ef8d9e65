"""How an attempt begins: in one statement that says whether it may, right now, and writes all that it changes if so.

What the dispatcher pushed may be seconds old. So a pause takes effect here, at once, and here no tenant ever gets more
attempts than it may have, however many of its messages are claimed at the same moment.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from sqlmodel import Session

from monitoring.ledger.runway_sql import AT_WORK
from monitoring.ledger.statement import Statement
from monitoring.ledger.tables import Job
from routing.queues import QueueName

_STAND = """
    SELECT overrides, (SELECT coalesce(max(number), 0) + 1 FROM attempt WHERE job_id = %(job)s) AS number,
           coalesce(extract(epoch FROM clock_timestamp() - CAST(%(waiting_since)s AS timestamptz)), 0)::float
               AS waited,
           coalesce((SELECT spent_nanousd + reserved_nanousd FROM cap WHERE scope = 'job' AND key = %(bill)s), 0)
               AS booked
      FROM tenant WHERE name = %(tenant)s
"""
_STANDING = Statement(_STAND)
_STANDING_IN_TURN = Statement(f"{_STAND} FOR NO KEY UPDATE")
"""Claims of one tenant count one after the other: two that counted at once would both see the last free place."""

BEGIN = Statement(f"""
    WITH rule AS MATERIALIZED (
        SELECT tenant.paused_at IS NULL
               AND NOT EXISTS (SELECT FROM queue_control WHERE queue = %(queue)s AND paused_at IS NOT NULL)
               AND (NOT CAST(%(limited)s AS boolean)
                    OR (SELECT count(*) FROM attempt JOIN job ON job.id = attempt.job_id
                         WHERE {AT_WORK} AND job.tenant = tenant.name)
                       < coalesce(tenant.max_running, CAST(%(running)s AS integer), 1000000)) AS may_start
          FROM tenant WHERE tenant.name = %(tenant)s
    ), locked AS (
        UPDATE site SET lock_job_id = %(job)s FROM rule
         WHERE site.id = CAST(%(site)s AS uuid) AND rule.may_start
           AND (site.lock_job_id IS NULL OR site.lock_job_id = %(job)s)
        RETURNING site.id
    ), taken AS (
        UPDATE job SET fence = %(fence)s, state = %(state)s, waiting_since = NULL, pushed_at = NULL, held_for = NULL,
                       held_until = NULL, started_at = coalesce(started_at, clock_timestamp())
          FROM rule
         WHERE job.id = %(job)s AND rule.may_start AND (CAST(%(site)s AS uuid) IS NULL OR EXISTS (SELECT FROM locked))
        RETURNING job.id, job.tenant, job.tier, job.fence, job.started_at
    ), begun AS (
        INSERT INTO attempt (id, job_id, number, queue, tier, fence, worker, token_hash, lease_until, deadline)
        SELECT %(attempt)s, id, %(number)s, %(queue)s, tier, fence, %(worker)s, %(token_hash)s,
               clock_timestamp() + make_interval(secs => %(lease_seconds)s),
               clock_timestamp() + make_interval(secs => %(hard_seconds)s)
          FROM taken
        RETURNING lease_until, deadline, started_at
    ), told AS (
        INSERT INTO event (kind, job_id, tenant, data)
        SELECT happened.pair ->> 0, taken.id, taken.tenant, happened.pair -> 1
          FROM taken CROSS JOIN jsonb_array_elements(CAST(%(told)s AS jsonb)) WITH ORDINALITY AS happened (pair, place)
         ORDER BY happened.place
    )
    SELECT rule.may_start, taken.started_at,
           begun.lease_until, begun.deadline, begun.started_at AS attempt_started_at
      FROM rule LEFT JOIN taken ON true LEFT JOIN begun ON true
""")
"""The tenant's row is locked by then, and the clock of what this statement sees starts after that."""


class Standing(NamedTuple):
    """What is known of a locked job before its attempt begins."""

    overrides: dict[str, Any]
    """The tenant's layer of the policy."""
    number: int
    """The attempt's."""
    waited_seconds: float
    booked_nanousd: int
    """What is spent and held on its bill."""


class Begun(NamedTuple):
    """What became of a try to begin."""

    may_start: bool
    """False where queue or tenant is paused, or the tenant has as many attempts as it may have: nothing was done."""
    started_at: datetime | None
    """When the job was first begun with; None where no attempt began: if it may start, because its site is busy."""
    lease_until: datetime | None
    deadline: datetime | None
    attempt_started_at: datetime | None


def standing(session: Session, job: Job, queue: QueueName) -> Standing:
    """Return how a locked job stands; until the caller commits, no other attempt of its tenant begins meanwhile.

    `control` is not counted: it only finishes what has begun, and a publish must not wait for other work.
    """
    asked = _STANDING if queue is QueueName.CONTROL else _STANDING_IN_TURN
    values = {"job": job.id, "tenant": job.tenant, "bill": str(job.root_id), "waiting_since": job.waiting_since}
    (stands,) = asked.all(session, values)
    return Standing(*stands)

"""Owe a tenant the notices it wants when a job begins to wait for a person, in the transaction in which it does.

A notice is a message of its own, beside the one notification of a job's end: a job may wait more than once, and more
than one place may hear of it.
"""

from __future__ import annotations

from sqlmodel import Session

from ledger.job_ends import is_step
from ledger.store import Statement
from ledger.tables import Job
from routing.jobs import State

ASKING = (State.AWAITING_APPROVAL, State.CLARIFYING)
"""States in which a job waits for a person."""
CALLBACK, CHAT = "callback", "chat"

_OWE = Statement("""
    INSERT INTO notice (id, job_id, tenant, channel, callback_url, payload, next_at)
    SELECT gen_random_uuid(), %(job)s, tenant.name, place.channel, place.url,
           jsonb_strip_nulls(jsonb_build_object(
               'type', 'job.' || CAST(%(state)s AS text), 'job_id', CAST(%(job)s AS uuid),
               'state', CAST(%(state)s AS text), 'site', (SELECT name FROM site WHERE id = CAST(%(site)s AS uuid)))),
           clock_timestamp()
      FROM tenant CROSS JOIN LATERAL
           (VALUES ('callback', CAST(%(url)s AS text)), ('chat', NULL)) AS place (channel, url)
     WHERE tenant.name = %(tenant)s AND tenant.notices @> to_jsonb(CAST(%(state)s AS text))
       AND CASE place.channel WHEN 'chat' THEN tenant.chat_url IS NOT NULL ELSE place.url IS NOT NULL END
""")
"""What a notice says: ids, a state and a site's name, never a prompt, an answer or a secret."""


def owe_notices(session: Session, job: Job) -> None:
    """Owe the notices of a job that has just moved, if it waits for a person now; a step is its run's matter."""
    if job.state in ASKING and not is_step(job):
        url = job.request.get("callback_url")
        values = {"job": job.id, "tenant": job.tenant, "state": job.state, "site": job.site_id, "url": url}
        _OWE.all(session, values)

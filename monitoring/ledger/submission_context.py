"""What a request is decided on: its tenant, its site, its session's debates, and whether it was made before.

One statement answers that for as many requests as are taken in together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from sqlmodel import Session

from monitoring.errors import IdempotencyConflictError
from monitoring.ledger.sql import Statement
from monitoring.ledger.tables import digest_request
from routing.debate_record import DebateKind, Verdict
from routing.jobs import JobRequest


class KnownJob(NamedTuple):
    """A job as it is told to whoever asked for it."""

    id: UUID
    tenant: str
    state: str
    queue: str
    mode: str | None
    tier: int | None
    route: Mapping[str, Any]
    trace: str | None
    detail: str | None
    request_digest: str
    idempotency_key: str | None


_CONTEXT = Statement(f"""
    SELECT tenant.overrides, clock_timestamp() AS read_at,
           set_config('plan_cache_mode', 'force_generic_plan', true), (
               SELECT jsonb_agg(jsonb_build_array(
                          site.name, site.id, site.active_release_id IS NOT NULL, site.lock_job_id IS NOT NULL,
                          coalesce(release.signals, '{{}}')))
                 FROM site LEFT JOIN release ON release.id = site.active_release_id
                WHERE site.tenant = %(tenant)s AND site.name = ANY(CAST(%(sites)s AS text[]))
           ) AS sites, (
               SELECT jsonb_agg(jsonb_build_array(debate.session, debate.decision_key)) FROM debate
                WHERE debate.tenant = %(tenant)s AND debate.session = ANY(CAST(%(sessions)s AS text[]))
                  AND debate.kind = %(kind)s AND debate.verdict <> %(stop)s
           ) AS debated, (
               SELECT jsonb_agg(jsonb_build_array({", ".join(KnownJob._fields)})) FROM job
                WHERE id = ANY(CAST(%(ids)s AS uuid[]))
                   OR job.tenant = %(tenant)s AND idempotency_key = ANY(CAST(%(keys)s AS text[]))
           ) AS known
      FROM tenant WHERE tenant.name = %(tenant)s
""")
"""What follows in its transaction keeps its plan. Left to itself the server takes a list that it does not know for ten
long, finds a plan for just these values cheaper, and makes one each time: four times the work of carrying it out."""


class SeenSite(NamedTuple):
    """A site as it stands when something is asked about it."""

    id: UUID
    is_shown: bool
    """Whether it has an active release."""
    is_locked: bool
    signals: Mapping[str, Any]
    """What its active release tells the router; empty without one."""


@dataclass(frozen=True)
class SubmissionContext:
    """What is known before anything is decided."""

    overrides: Mapping[str, Any]
    """Layer 2 of the tenant's policy."""
    read_at: datetime
    """By the ledger's clock."""
    sites: Mapping[str, SeenSite]
    """By name; those of the tenant that were asked for and that there are."""
    debated: Mapping[str, frozenset[str]]
    """The decisions that sessions have debated and that may be carried out, as `decisions.debated_keys` has them."""
    tenant: str
    known: Mapping[UUID | str, KnownJob]
    """The jobs that stand under an id or a key of these requests, whatever was asked by them."""

    def made_before(self, request: JobRequest, job_id: UUID) -> KnownJob | None:
        """Return the job that was accepted before under this id or the request's idempotency key, or None.

        Raises:
            IdempotencyConflictError: the caller's fault: it was accepted with another body.
        """
        job = self.known.get(job_id)
        if job is None and request.idempotency_key is not None:
            job = self.known.get(request.idempotency_key)
        if job is not None and (job.tenant != self.tenant or job.request_digest != digest_request(request)):
            raise IdempotencyConflictError(job.id if job.tenant == self.tenant else job_id)
        return job


def load_submission_context(
    session: Session, tenant: str, requests: Sequence[JobRequest], *, ids: Sequence[UUID] = ()
) -> SubmissionContext | None:
    """Look up all that requests of a tenant are decided on.

    Args:
        session: the caller's transaction.
        tenant: whose they are.
        requests: what is asked.
        ids: the callers' own ids for them, where they chose them.

    Returns:
        None when there is no such tenant.
    """
    row = _CONTEXT.one(
        session,
        {
            "tenant": tenant,
            "ids": list(ids),
            "kind": DebateKind.PLANNING.value,
            "stop": Verdict.STOP.value,
            "sites": [name for request in requests if (name := request.site or request.new_site) is not None],
            "sessions": [request.session for request in requests if request.session is not None],
            "keys": [request.idempotency_key for request in requests if request.idempotency_key is not None],
        },
    )
    if row is None:
        return None
    known = [KnownJob(UUID(job_id), *facts) for job_id, *facts in row.known or ()]
    stand: dict[UUID | str, KnownJob] = {job.idempotency_key or "": job for job in known if job.tenant == tenant}
    stand |= {job.id: job for job in known}
    debated: dict[str, set[str]] = {}
    for name, key in row.debated or ():
        debated.setdefault(name, set()).add(key)
    return SubmissionContext(
        overrides=row.overrides,
        read_at=row.read_at,
        sites={name: SeenSite(UUID(site_id), *facts) for name, site_id, *facts in row.sites or ()},
        debated={name: frozenset(keys) for name, keys in debated.items()},
        tenant=tenant,
        known=stand,
    )

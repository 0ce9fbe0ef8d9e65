"""Archives of imports, as their jobs name them: which are kept, and how much of the store a tenant's take."""

from __future__ import annotations

from collections.abc import Set
from typing import NamedTuple

from sqlalchemy import Connection
from sqlmodel import Session

from ledger.store import Statement

_KEPT = Statement("""
    SELECT DISTINCT request->'upload'->>'sha256' FROM job WHERE ended_at IS NULL AND request ? 'upload'
       AND (CAST(%(tenant)s AS text) IS NULL OR tenant = %(tenant)s)
""")
_USE = Statement("""
    SELECT coalesce(sum((request->'upload'->>'total_bytes')::bigint), 0)::bigint AS total_bytes,
           coalesce(ceil(extract(epoch FROM min(created_at) - now()) + %(seconds)s), 0)::bigint AS seconds_left
      FROM job
     WHERE tenant = %(tenant)s AND request ? 'upload'
       AND (ended_at IS NULL OR created_at > now() - make_interval(secs => %(seconds)s))
""")


class UploadUse(NamedTuple):
    """What a tenant's kept archives take."""

    total_bytes: int
    seconds_left: int
    """Until the oldest is no longer kept for its age; 0 or less where only its job keeps it."""


def kept_uploads(session: Session, tenant: str | None = None) -> Set[str]:
    """Return the digests of archives whose imports have not ended, or those of one tenant.

    A sweep takes the others once they are old.
    """
    return frozenset(_KEPT.scalars(session, {"tenant": tenant}))


def upload_use(session: Session | Connection, tenant: str, *, hours: float) -> UploadUse:
    """Return what a tenant's archives take, of open imports and of those younger than so many hours."""
    return UploadUse(*_USE.one(session, {"tenant": tenant, "seconds": hours * 3600}))

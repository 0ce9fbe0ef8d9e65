"""Tenants, their settings and API keys, and the queues' pause switch. Each change is audited.

Settings are ledger rows, so they apply to every process and survive every restart. Of an API key only a hash is stored.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, ClassVar
from urllib.parse import urlsplit
from uuid import UUID

from sqlalchemy import Connection, func, select, true
from sqlalchemy import update as sql_update
from sqlmodel import Session, col

from ledger import audit
from ledger.dispatch_window import pause_queue as pause_in_ledger
from ledger.dispatch_window import paused_queues
from ledger.record_tables import ApiKey
from ledger.store import Statement, now
from ledger.tables import Attempt, Job, Tenant
from producers.errors import AuthenticationError, InvalidInputError, MissingScopeError, UnknownTenantError
from producers.use_cases.jobs import View
from routing.jobs import SITE_NAME_RULE, Source, check_site_name
from routing.queues import QueueName


class TenantView(View):
    """A tenant, for its operator."""

    name: str
    provider: str | None
    is_paused: bool
    paused_at: datetime | None
    weight: int
    """Its share of turns, relative to a tenant of weight 1."""
    max_running: int | None
    """How many of its jobs may run at once; None for the policy's limit."""
    auto_approve: bool
    recording_days: float | None
    """How long its model calls are kept for a replay; None or 0 to record none."""
    notices: list[str]
    """States that its jobs wait for a person in, of which it hears."""
    chat_host: str | None
    """Host of the chat's incoming webhook that hears of them; the rest of its URL is a secret."""
    waiting: int
    running: int
    overrides: dict[str, Any]
    created_at: datetime


def list_tenants(session: Session, *, name: str | None = None) -> list[TenantView]:
    """Return every tenant by name, or the one of this name if there is one."""
    is_meant = true() if name is None else col(Tenant.name) == name
    tenants = session.scalars(select(Tenant).where(is_meant).order_by(col(Tenant.name))).all()
    jobs = select(col(Job.tenant), func.count()).where(true() if name is None else col(Job.tenant) == name)
    running = jobs.join(Attempt, col(Attempt.job_id) == col(Job.id)).where(col(Attempt.ended_at).is_(None))
    counts = [
        dict(session.execute(counted.group_by(col(Job.tenant))).all())
        for counted in (jobs.where(col(Job.waiting_since).is_not(None)), running)
    ]
    return [
        TenantView.of(
            tenant,
            is_paused=tenant.paused_at is not None,
            chat_host=chat_host(tenant.chat_url),
            waiting=counts[0].get(tenant.name, 0),
            running=counts[1].get(tenant.name, 0),
        )
        for tenant in tenants
    ]


def show_tenant(session: Session, name: str) -> TenantView:
    """Return a tenant.

    Raises:
        UnknownTenantError: the operator's fault.
    """
    for tenant in list_tenants(session, name=name):
        return tenant
    raise UnknownTenantError(name)


def pause_tenant(session: Session, name: str, *, is_paused: bool, actor: str) -> None:
    """Pause or resume a tenant: while paused its running jobs continue and all others wait.

    Raises:
        UnknownTenantError: the operator's fault.
    """
    tenant = locked_tenant(session, name)
    if (tenant.paused_at is not None) == is_paused:
        return
    session.execute(sql_update(Tenant).where(col(Tenant.name) == name).values(paused_at=now() if is_paused else None))
    audit.append(session, "tenant_paused" if is_paused else "tenant_resumed", actor=actor, tenant=name)


def pause_queue(session: Session, queue: QueueName, *, is_paused: bool, actor: str) -> None:
    """Pause or resume a queue: while paused its running jobs continue and all others wait."""
    if (queue.value in paused_queues(session)) == is_paused:
        return
    pause_in_ledger(session, queue, is_paused=is_paused)
    audit.append(session, "queue_paused" if is_paused else "queue_resumed", actor=actor, queue=queue.value)


def change_tenant(session: Session, name: str, *, actor: str, **values: Any) -> None:
    """Set a tenant's `weight`, `max_running`, `auto_approve` or `recording_days`.

    Raises:
        UnknownTenantError: the operator's fault.
    """
    tenant = locked_tenant(session, name)
    changed = {field: value for field, value in values.items() if getattr(tenant, field) != value}
    if not changed:
        return
    session.execute(sql_update(Tenant).where(col(Tenant.name) == name).values(**changed))
    audit.append(session, "tenant_changed", actor=actor, tenant=name, **changed)


def chat_host(url: str | None) -> str | None:
    """Return the part of a chat's URL that is no secret."""
    return urlsplit(url).hostname if url else None


def locked_tenant(session: Session, name: str) -> Tenant:
    """Return a tenant that nobody else changes meanwhile.

    Raises:
        UnknownTenantError: the operator's fault.
    """
    query = select(Tenant).where(col(Tenant.name) == name).with_for_update()
    tenant = session.scalars(query, execution_options={"populate_existing": True}).one_or_none()
    if tenant is None:
        raise UnknownTenantError(name)
    return tenant


SECRET_PREFIX = "pmk_"
KEY_NAME_RULE = "1 to 64 of letters, digits, space and . _ @ -"
_KEY_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._@-]{0,63}")
_SECRET = re.compile(r"pmk_[A-Za-z0-9_-]{43}")
_SECRET_BYTES = 32
_NO_KEY = "this needs a valid API key"
_MOVED = "the tenant of this key has moved to another cell: use the address of the whole fleet"
USE_SECONDS = 300
"""How exactly a key's last use is known."""
_KEY = Statement(f"""
    WITH key AS (
        SELECT id, tenant, name, scopes FROM api_key WHERE key_hash = %(key_hash)s AND revoked_at IS NULL
    ), noted AS (
        UPDATE api_key SET last_used_at = clock_timestamp() FROM key
         WHERE api_key.id = key.id
           AND coalesce(last_used_at, '-infinity') < clock_timestamp() - interval '{USE_SECONDS} seconds'
    )
    SELECT id, tenant, name, scopes FROM key
""")


class Scope(StrEnum):
    """What a key allows."""

    SUBMIT = "submit"
    """Submit and cancel jobs."""
    READ = "read"
    """See jobs, events, sites and queues."""
    APPROVE = "approve"
    """Approve and reject previews, and roll back."""
    ADMIN = "admin"
    """All of the above for the key's tenant, and manage its sites."""
    OPERATE = "operate"
    """See and control the whole fleet: workers, queues, money and audit rows, but not what other tenants' jobs say. No
    other scope includes it; a key has it only if it was requested by name."""


TENANT_SCOPES = tuple(scope for scope in Scope if scope is not Scope.OPERATE)
"""Scopes within a key's own tenant."""
DEFAULT_SCOPES = (Scope.SUBMIT, Scope.READ)
"""Scopes of a key whose creator names none: if it leaks, it can neither publish nor delete."""


@dataclass(frozen=True)
class Caller:
    """The holder of an API key, or a person."""

    tenant: str
    key_name: str
    scopes: frozenset[Scope]
    key_id: UUID | None = field(default=None, compare=False)
    """Of the key, or of the person."""
    is_person: bool = False
    """Whether it is a person who signed in, by that name."""
    source: ClassVar[Source] = Source.HTTP
    """Where its jobs come from."""

    @property
    def actor(self) -> str:
        """The caller's name in the audit trail: one for all that a person does, so that four eyes are two people."""
        if self.is_person:
            return f"user:{self.tenant}/{self.key_name}"
        return f"key:{self.tenant}/{self.key_name}"

    def require(self, scope: Scope) -> None:
        """Check that the key allows this.

        Raises:
            MissingScopeError: the caller's fault.
        """
        if not self.may(scope):
            raise MissingScopeError(scope.value)

    def may(self, scope: Scope) -> bool:
        """Whether the key allows this."""
        return scope in self.scopes or (scope in TENANT_SCOPES and Scope.ADMIN in self.scopes)


def hash_secret(secret: str) -> str:
    """Return the stored hash of a key. A plain hash is enough: the secret has 256 random bits."""
    return hashlib.sha256(secret.encode()).hexdigest()


def create_tenant(session: Session, name: str, *, provider: str | None = None) -> Tenant:
    """Return the tenant of this name, creating it if there is none.

    Its name is part of URLs, so the rule for site names applies. Without a provider an existing tenant's stays.

    Raises:
        InvalidInputError: the operator's fault.
    """
    try:
        check_site_name(name)
    except ValueError:
        raise InvalidInputError("tenant", f"must be {SITE_NAME_RULE}") from None
    tenant = session.get(Tenant, name)
    if tenant is None:
        tenant = Tenant(name=name, provider=provider)
        audit.append(session, "tenant_created", actor="operator", tenant=name, provider=provider)
    elif provider is not None and provider != tenant.provider:
        tenant.provider = provider
        audit.append(session, "tenant_provider_set", actor="operator", tenant=name, provider=provider)
    session.add(tenant)
    session.flush()
    return tenant


def create_key(session: Session, tenant: str, *, name: str, scopes: Iterable[str]) -> str:
    """Create a key and return its secret, which cannot be shown again.

    Raises:
        UnknownTenantError: the operator's fault.
        InvalidInputError: the operator's fault: the name breaks the rule or is in use, or there is no scope.
    """
    if session.get(Tenant, tenant) is None:
        raise UnknownTenantError(tenant)
    if not _KEY_NAME.fullmatch(name):
        raise InvalidInputError("key name", f"must be {KEY_NAME_RULE}")
    if any(key.name == name for key in keys_of(session, tenant)):
        raise InvalidInputError("key name", "another key of this tenant has it; revoke that one first")
    granted = sorted({str(scope) for scope in scopes})
    if not granted or not set(granted) <= set(Scope):
        raise InvalidInputError("scopes", f"must be at least one of {', '.join(Scope)}")
    secret = SECRET_PREFIX + secrets.token_urlsafe(_SECRET_BYTES)
    key_hash = hash_secret(secret)
    session.add(ApiKey(tenant=tenant, name=name, key_hash=key_hash, scopes=granted, created_by="operator"))
    session.flush()
    audit.append(session, "key_created", actor="operator", tenant=tenant, key=name, scopes=granted)
    return secret


def keys_of(session: Session, tenant: str) -> Sequence[ApiKey]:
    """Return a tenant's valid keys, oldest first."""
    query = select(ApiKey).where(col(ApiKey.tenant) == tenant, col(ApiKey.revoked_at).is_(None))
    return session.scalars(query.order_by(col(ApiKey.created_at))).all()


def check_shape(secret: str) -> str:
    """Return a string that has the shape of a secret.

    Raises:
        AuthenticationError: the caller's fault.
    """
    if not _SECRET.fullmatch(secret):
        raise AuthenticationError(_NO_KEY)
    return secret


def authenticate(ledger: Session | Connection, secret: str) -> Caller:
    """Return the holder of a secret.

    Raises:
        AuthenticationError: the caller's fault: an unknown or revoked key; the message does not say which.
    """
    key = _KEY.one(ledger, {"key_hash": hash_secret(check_shape(secret))})
    if key is None:
        raise AuthenticationError(_NO_KEY)
    if not key.scopes:
        raise AuthenticationError(_MOVED)
    return _caller(key)


def _caller(key: Any) -> Caller:
    return Caller(key.tenant, key.name, frozenset(Scope(scope) for scope in key.scopes), key.id)


def revoke(session: Session, tenant: str, *, name: str, actor: str = "operator") -> bool:
    """Revoke a key from its next request on; False if there is none of this name."""
    revoked = session.execute(
        sql_update(ApiKey)
        .where(col(ApiKey.tenant) == tenant, col(ApiKey.name) == name, col(ApiKey.revoked_at).is_(None))
        .values(revoked_at=now())
    )
    if revoked.rowcount == 0:  # type: ignore[attr-defined]
        return False
    audit.append(session, "key_revoked", actor=actor, tenant=tenant, key=name)
    return True

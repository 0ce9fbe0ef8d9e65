"""Tenants and their API keys: who calls, for whom, and what a key allows. Only the hash of a secret is kept."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, select
from sqlalchemy import update as sql_update
from sqlmodel import Session, col

from monitoring.ledger import audit
from monitoring.ledger.sql import Statement, now
from monitoring.ledger.tables import ApiKey, Tenant
from producers.errors import (
    AuthenticationError,
    InvalidInputError,
    MissingScopeError,
    UnknownTenantError,
)
from routing.jobs import SITE_NAME_RULE, check_site_name

SECRET_PREFIX = "pmk_"
KEY_NAME_RULE = "1 to 64 of letters, digits, space and . _ @ -"
_KEY_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._@-]{0,63}")
_SECRET = re.compile(r"pmk_[A-Za-z0-9_-]{43}")
_SECRET_BYTES = 32
_NO_KEY = "this needs a valid API key"
_KEY = Statement("SELECT id, tenant, name, scopes FROM api_key WHERE key_hash = %(key_hash)s AND revoked_at IS NULL")


class Scope(StrEnum):
    """What a key allows."""

    SUBMIT = "submit"
    """Submit jobs, and cancel them."""
    READ = "read"
    """See jobs, events, sites and queues."""
    APPROVE = "approve"
    """Approve and reject previews, and roll back."""
    ADMIN = "admin"
    """All of these for the key's tenant, and its sites."""
    OPERATE = "operate"
    """See and steer the whole fleet: its workers, queues, money and audit rows, never what another tenant's jobs say.
    No other scope holds it, and a key has it only when it was asked for by name."""


TENANT_SCOPES = tuple(scope for scope in Scope if scope is not Scope.OPERATE)
"""What a key may do for its own tenant."""


@dataclass(frozen=True)
class Caller:
    """Who calls: everything that is known of a request's origin comes from its key."""

    tenant: str
    key_name: str
    scopes: frozenset[Scope]
    key_id: UUID | None = field(default=None, compare=False)

    @property
    def actor(self) -> str:
        """How the audit trail names this caller."""
        return f"key:{self.tenant}/{self.key_name}"

    def require(self, scope: Scope) -> None:
        """Raise unless the key allows this.

        Raises:
            MissingScopeError: the caller's fault.
        """
        if not self.may(scope):
            raise MissingScopeError(scope)

    def may(self, scope: Scope) -> bool:
        """Tell whether the key allows this."""
        return scope in self.scopes or (scope in TENANT_SCOPES and Scope.ADMIN in self.scopes)


def hash_secret(secret: str) -> str:
    """Return what is stored of a key. A plain hash is enough: the secret has 256 random bits."""
    return hashlib.sha256(secret.encode()).hexdigest()


def create_tenant(
    session: Session, name: str, *, provider: str | None = None, actor: str = "operator"
) -> Tenant:  # fmt: skip
    """Return the tenant of this name, made when there was none.

    Args:
        session: the caller's transaction.
        name: it stands in URLs, so the rule for site names holds.
        provider: the gateway's provider that its model calls go to; None leaves an existing tenant's as it is.
        actor: who asks.

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
        audit.append(session, "tenant_created", actor=actor, tenant=name, provider=provider)
    elif provider is not None and provider != tenant.provider:
        tenant.provider = provider
        audit.append(session, "tenant_provider_set", actor=actor, tenant=name, provider=provider)
    session.add(tenant)
    session.flush()
    return tenant


def create_key(
    session: Session, tenant: str, *, name: str, scopes: Iterable[str], actor: str = "operator"
) -> str:  # fmt: skip
    """Make a key and return its secret, which nobody can show again.

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
    session.add(ApiKey(tenant=tenant, name=name, key_hash=hash_secret(secret), scopes=granted))
    session.flush()
    audit.append(session, "key_created", actor=actor, tenant=tenant, key=name, scopes=granted)
    return secret


def keys_of(session: Session, tenant: str) -> Sequence[ApiKey]:
    """Return a tenant's keys that are in force, oldest first."""
    query = select(ApiKey).where(col(ApiKey.tenant) == tenant, col(ApiKey.revoked_at).is_(None))
    return session.scalars(query.order_by(col(ApiKey.created_at))).all()


def check_shape(secret: str) -> str:
    """Return what looks like the secret of a key.

    Raises:
        AuthenticationError: the caller's fault; see `authenticate`.
    """
    if not _SECRET.fullmatch(secret):
        raise AuthenticationError(_NO_KEY)
    return secret


def authenticate(ledger: Session | Connection, secret: str) -> Caller:
    """Return who holds a secret.

    Raises:
        AuthenticationError: the caller's fault: no key, a wrong one or a revoked one; the message does not tell which.
    """
    key = _KEY.one(ledger, {"key_hash": hash_secret(check_shape(secret))})
    if key is None:
        raise AuthenticationError(_NO_KEY)
    return _caller(key)


def holder_of(session: Session, key_id: UUID) -> Caller | None:
    """Return who a key that is in force belongs to; None for any other."""
    key = session.get(ApiKey, key_id)
    return None if key is None or key.revoked_at is not None else _caller(key)


def _caller(key: Any) -> Caller:
    return Caller(key.tenant, key.name, frozenset(Scope(scope) for scope in key.scopes), key.id)


def revoke(session: Session, tenant: str, *, name: str, actor: str = "operator") -> bool:
    """Take a key out of force, from its next request on; False when there is none of this name."""
    revoked = session.execute(
        sql_update(ApiKey)
        .where(col(ApiKey.tenant) == tenant, col(ApiKey.name) == name, col(ApiKey.revoked_at).is_(None))
        .values(revoked_at=now())
    )
    if revoked.rowcount == 0:  # type: ignore[attr-defined]
        return False
    audit.append(session, "key_revoked", actor=actor, tenant=tenant, key=name)
    return True

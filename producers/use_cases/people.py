"""People, their roles, and sessions of the console. Each change is audited.

Who a person is and what they may do is the identity provider's word, read anew at each sign-in; an operator can only
take it away. A session looks both up at each request, so that what is taken away is gone at once.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple, Self
from uuid import UUID

from pydantic import BaseModel, Field, model_validator
from sqlalchemy import Connection, delete, select
from sqlalchemy import update as sql_update
from sqlalchemy.dialects.postgresql import insert
from sqlmodel import Session, col

from ledger import audit
from ledger.record_tables import ApiKey, LoginSession, Person
from ledger.store import Statement, after, now
from ledger.tables import Tenant
from producers.errors import InvalidInputError, PageNotFoundError, SignInRefusedError, UnknownTenantError
from producers.use_cases.jobs import View
from producers.use_cases.tenants import Caller, Scope, keys_of, revoke
from routing.ids import new_id
from routing.jobs import check_site_name


class Role(StrEnum):
    """What a person may do in their tenant; each role may do what those before it may."""

    VIEWER = "viewer"
    """See everything of the tenant."""
    EDITOR = "editor"
    """Submit, revise and cancel jobs."""
    APPROVER = "approver"
    """Approve, reject, roll back."""
    ADMIN = "admin"
    """Manage sites, people, keys and sessions."""
    OPERATOR = "operator"
    """Control the whole fleet."""


SCOPES_OF: Mapping[Role, frozenset[Scope]] = {
    Role.VIEWER: frozenset({Scope.READ}),
    Role.EDITOR: frozenset({Scope.READ, Scope.SUBMIT}),
    Role.APPROVER: frozenset({Scope.READ, Scope.SUBMIT, Scope.APPROVE}),
    Role.ADMIN: frozenset({Scope.ADMIN}),
    Role.OPERATOR: frozenset({Scope.ADMIN, Scope.OPERATE}),
}
_RANK = {role: rank for rank, role in enumerate(Role)}


class Grant(NamedTuple):
    """A role in a tenant."""

    tenant: str
    role: Role


def parse_grant(text: str) -> Grant:
    """Return the grant that a setting writes as `TENANT:ROLE`.

    Raises:
        ValueError: the operator's fault.
    """
    tenant, _, role = text.rpartition(":")
    try:
        return Grant(check_site_name(tenant), Role(role))
    except ValueError:
        raise ValueError(f"must be TENANT:ROLE, with a role of {', '.join(Role)}") from None


def choose_grant(values: Iterable[str], grants: Mapping[str, Grant]) -> Grant:
    """Return the highest role that somebody's groups give them.

    Raises:
        SignInRefusedError: they give none, or in more than one tenant.
    """
    found = [grants[value] for value in values if value in grants]
    if not found:
        raise SignInRefusedError("none of your groups may use this installation; ask its operator")
    if len({grant.tenant for grant in found}) > 1:
        raise SignInRefusedError("your groups are of more than one tenant; ask the operator for one")
    return max(found, key=lambda grant: _RANK[grant.role])


@dataclass(frozen=True)
class Identity:
    """Who somebody is, as the identity provider has signed it."""

    issuer: str
    subject: str
    name: str
    """What to call them; it identifies nobody."""
    groups: tuple[str, ...]


_NOT_IN_NAMES = re.compile(r"[^\w.@+-]+")
_LONGEST_NAME = 64


def name_of(identity: Identity, *, is_taken: bool) -> str:
    """Return the unique name of a person in the audit trail, without spaces."""
    name = _NOT_IN_NAMES.sub("-", identity.name).strip("-")[:_LONGEST_NAME] or "unnamed"
    if not is_taken:
        return name
    return f"{name}-{hashlib.sha256(f'{identity.issuer} {identity.subject}'.encode()).hexdigest()[:12]}"


def sign_in(session: Session, identity: Identity, grant: Grant) -> Person:
    """Return the person, with the role that they have now; a person who is new gets a row.

    Raises:
        SignInRefusedError: an operator has disabled them, or the tenant is none.
    """
    if session.get(Tenant, grant.tenant) is None:
        raise SignInRefusedError("your groups name a tenant that does not exist here; ask the operator")
    own = (col(Person.issuer) == identity.issuer, col(Person.subject) == identity.subject)
    query = select(Person).where(*own).with_for_update()
    person = session.scalars(query).one_or_none()
    if person is None:
        plain = name_of(identity, is_taken=False)
        is_taken = session.scalar(select(col(Person.id)).where(col(Person.name) == plain)) is not None
        made = Person(
            issuer=identity.issuer,
            subject=identity.subject,
            tenant=grant.tenant,
            role=grant.role.value,
            name=name_of(identity, is_taken=is_taken),
        )
        row = made.model_dump(exclude={"created_at", "seen_at"})
        session.execute(insert(Person).values(row).on_conflict_do_nothing())
        person = session.scalars(query).one_or_none()
        if person is None:  # somebody of the same name signed in at the same moment
            raise SignInRefusedError("try again")
    if person.disabled_at is not None:
        raise SignInRefusedError("an operator has disabled your access")
    changed = (person.tenant, person.role) != (grant.tenant, grant.role.value)
    person.tenant, person.role, person.seen_at = grant.tenant, grant.role.value, now()  # type: ignore[assignment]
    session.flush()
    actor = f"user:{person.tenant}/{person.name}"
    facts: dict[str, Any] = {"subject": person.subject, "role": person.role, "is_changed": changed}
    audit.append(session, "signed_in", actor=actor, tenant=person.tenant, **facts)
    return person


_FIND = Statement("""
    SELECT login_session.id, login_session.seen_at < clock_timestamp() - interval '1 minute' AS is_stale,
           key.id AS key_id, key.tenant AS key_tenant, key.name AS key_name, key.scopes,
           person.id AS person_id, person.tenant, person.name, person.role
      FROM login_session
      LEFT JOIN api_key AS key ON key.id = login_session.key_id AND key.revoked_at IS NULL
      LEFT JOIN person ON person.id = login_session.person_id AND person.disabled_at IS NULL
     WHERE login_session.nonce = %(nonce)s AND %(holder)s IN (key.id, person.id)
       AND login_session.revoked_at IS NULL AND login_session.expires_at > clock_timestamp()
       AND login_session.seen_at > clock_timestamp() - make_interval(secs => %(idle_seconds)s)
""")
_SEEN = Statement("UPDATE login_session SET seen_at = clock_timestamp() WHERE id = %(id)s")
_KEPT_SECONDS = 24 * 3600
"""How long a session that is over can still be listed and audited beside."""


def open_session(
    session: Session, nonce: str, *, seconds: float, key_id: UUID | None = None, person_id: UUID | None = None
) -> None:
    """Open a session of a key's holder or a person, and forget those that are long over."""
    session.execute(delete(LoginSession).where(col(LoginSession.expires_at) < after(-_KEPT_SECONDS)))
    values = {"id": new_id(), "nonce": nonce, "key_id": key_id, "person_id": person_id}
    session.execute(insert(LoginSession).values(**values, expires_at=after(seconds)))


def holder_of(session: Session, nonce: str, holder: UUID, *, idle_seconds: float) -> Caller | None:
    """Return who acts in a session; None if it is over, by whatever means, or was never opened."""
    row = _FIND.one(session, {"nonce": nonce, "holder": holder, "idle_seconds": idle_seconds})
    if row is None:
        return None
    if row.is_stale:
        _SEEN.all(session, {"id": row.id})
    if row.person_id is not None:
        return Caller(row.tenant, row.name, SCOPES_OF[Role(row.role)], row.person_id, is_person=True)
    return Caller(row.key_tenant, row.key_name, frozenset(Scope(scope) for scope in row.scopes), row.key_id)


class Holder(NamedTuple):
    """The session or key that an open event stream depends on."""

    id: UUID
    """The API key or the person."""
    nonce: str = ""
    """Of the session of the console; empty for a key by itself."""


_VALID = Statement("""
    SELECT who.id, who.nonce
      FROM unnest(CAST(%(ids)s AS uuid[]), CAST(%(nonces)s AS text[])) AS who (id, nonce)
     WHERE CASE who.nonce WHEN '' THEN EXISTS (SELECT FROM api_key WHERE id = who.id AND revoked_at IS NULL)
           ELSE EXISTS (
               SELECT FROM login_session
                 LEFT JOIN api_key AS key ON key.id = login_session.key_id AND key.revoked_at IS NULL
                 LEFT JOIN person ON person.id = login_session.person_id AND person.disabled_at IS NULL
                WHERE login_session.nonce = who.nonce AND who.id IN (key.id, person.id)
                  AND login_session.revoked_at IS NULL AND login_session.expires_at > clock_timestamp())
           END
""")


def still_valid(connection: Session | Connection, holders: Collection[Holder]) -> set[Holder]:
    """Return those whose key or session has not been revoked, and has not run out."""
    values = {"ids": [one.id for one in holders], "nonces": [one.nonce for one in holders]}
    return {Holder(*row) for row in _VALID.all(connection, values)}


class PersonView(View):
    """A person of a tenant."""

    id: UUID
    name: str
    """As in the audit trail, where it stands behind `user:TENANT/`."""
    role: str
    """Decided by the identity provider's groups at the latest sign-in."""
    tenant: str
    issuer: str
    subject: str
    created_at: datetime
    seen_at: datetime
    """When they last signed in."""
    disabled_at: datetime | None


class SessionView(View):
    """An open session of the console."""

    id: UUID
    actor: str
    """Whose it is, as in the audit trail."""
    created_at: datetime
    seen_at: datetime
    """To a minute."""
    expires_at: datetime


class KeyView(View):
    """A valid API key, without its secret."""

    id: UUID
    name: str
    scopes: list[str]
    created_at: datetime
    created_by: str | None
    """The actor, as in the audit trail; null for those made before that was kept."""
    last_used_at: datetime | None
    """To five minutes; null if it has not been used since that is kept."""


class AccessOrder(BaseModel, extra="forbid"):
    """What to take away: one of these."""

    session_id: UUID | None = None
    """A session to end."""
    key: str | None = Field(default=None, max_length=64)
    """The name of a key to revoke; its sessions end, too."""
    person: str | None = Field(default=None, max_length=100)
    """The name of a person to shut out; their sessions end, and they cannot sign in again."""

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if sum(value is not None for value in (self.session_id, self.key, self.person)) != 1:
            raise ValueError("must hold one of session_id, key and person")
        return self


class Access(View):
    """Who may enter a tenant."""

    people: list[PersonView]
    sessions: list[SessionView]
    keys: list[KeyView]


def list_access(session: Session, tenant: str, *, idle_seconds: float) -> Access:
    """Return the people, open sessions and valid keys of a tenant."""
    people = session.scalars(select(Person).where(col(Person.tenant) == tenant).order_by(col(Person.name)).limit(1_000))
    return Access(
        people=[PersonView.of(person) for person in people],
        sessions=_open_sessions(session, tenant, idle_seconds=idle_seconds),
        keys=[KeyView.of(key) for key in keys_of(session, tenant)],
    )


def _open_sessions(session: Session, tenant: str, *, idle_seconds: float) -> list[SessionView]:
    query = (
        select(LoginSession, ApiKey, Person)
        .join(ApiKey, col(ApiKey.id) == col(LoginSession.key_id), isouter=True)
        .join(Person, col(Person.id) == col(LoginSession.person_id), isouter=True)
        .where((col(ApiKey.tenant) == tenant) | (col(Person.tenant) == tenant))
        .where(col(ApiKey.revoked_at).is_(None), col(Person.disabled_at).is_(None))
        .where(col(LoginSession.revoked_at).is_(None), col(LoginSession.expires_at) > now())
        .where(col(LoginSession.seen_at) > after(-idle_seconds))
        .order_by(col(LoginSession.created_at).desc())
        .limit(1_000)
    )
    return [
        SessionView.of(login, actor=f"user:{tenant}/{person.name}" if person else f"key:{tenant}/{key.name}")
        for login, key, person in session.execute(query)
    ]


def revoke_session(session: Session, tenant: str, session_id: UUID, *, actor: str) -> bool:
    """End a session of a tenant, whoever holds its cookie; False if it is none, or over already."""
    row = session.get(LoginSession, session_id, with_for_update=True)
    if row is None or row.revoked_at is not None:
        return False
    holder = session.get(ApiKey, row.key_id) if row.key_id else session.get(Person, row.person_id)
    if holder is None or holder.tenant != tenant:
        return False
    end_session(session, row.nonce)
    audit.append(session, "session_revoked", actor=actor, tenant=tenant, ended=str(row.id), holder=holder.name)
    return True


def take_away(session: Session, tenant: str, order: AccessOrder, *, actor: str) -> None:
    """End a session, revoke a key, or shut a person out.

    Raises:
        PageNotFoundError, InvalidInputError: the caller's fault: the tenant has no such one.
    """
    if order.session_id is not None and not revoke_session(session, tenant, order.session_id, actor=actor):
        raise PageNotFoundError
    if order.key is not None and not revoke(session, tenant, name=order.key, actor=actor):
        raise PageNotFoundError
    if order.person is not None:
        set_disabled(session, tenant, order.person, is_disabled=True, actor=actor)


def end_session(session: Session, nonce: str) -> None:
    """End the session of a cookie at once."""
    session.execute(sql_update(LoginSession).where(col(LoginSession.nonce) == nonce).values(revoked_at=now()))


def set_disabled(session: Session, tenant: str, name: str, *, is_disabled: bool, actor: str) -> PersonView:
    """Take a person's access away at once, or give it back; nobody does that to themselves.

    Raises:
        UnknownTenantError: the operator's fault.
        InvalidInputError: the caller's fault.
    """
    if session.get(Tenant, tenant) is None:
        raise UnknownTenantError(tenant)
    own = (col(Person.tenant) == tenant, col(Person.name) == name)
    person = session.scalars(select(Person).where(*own).with_for_update()).one_or_none()
    if person is None:
        raise InvalidInputError("name", "no person of this name has signed in to the tenant")
    if actor == f"user:{tenant}/{name}":
        raise InvalidInputError("name", "is yours; another person has to do that")
    if (person.disabled_at is not None) != is_disabled:
        person.disabled_at = now() if is_disabled else None  # type: ignore[assignment]
        session.flush()
        session.refresh(person)
        what = "person_disabled" if is_disabled else "person_enabled"
        audit.append(session, what, actor=actor, tenant=tenant, person=name)
    return PersonView.of(person)

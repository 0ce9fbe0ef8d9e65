"""Tenants and keys on a real ledger."""

from __future__ import annotations

import re

import pytest
from sqlalchemy import select

from ledger.record_tables import ApiKey, AuditRow
from ledger.store import Ledger
from producers.errors import AuthenticationError, InvalidInputError, MissingScopeError, UnknownTenantError
from producers.use_cases.tenants import Caller, Scope, authenticate, create_key, create_tenant, keys_of, revoke


def test_a_secret_opens_its_tenant_with_its_scopes_and_is_stored_nowhere(ledger: Ledger) -> None:
    with ledger.begin() as session:
        create_tenant(session, "acme")
        secret = create_key(session, "acme", name="ci", scopes=("submit", "read"))
        assert re.fullmatch(r"pmk_[A-Za-z0-9_-]{43}", secret)
        assert authenticate(session, secret) == Caller("acme", "ci", frozenset({Scope.SUBMIT, Scope.READ}))
        stored = [row.model_dump_json() for kept in (ApiKey, AuditRow) for row in session.scalars(select(kept)).all()]
    assert secret.removeprefix("pmk_") not in "".join(stored)


def test_a_revoked_key_opens_nothing_and_its_name_is_free_again(ledger: Ledger) -> None:
    with ledger.begin() as session:
        create_tenant(session, "acme")
        secret = create_key(session, "acme", name="ci", scopes=("read",))
        with pytest.raises(InvalidInputError, match="another key"):
            create_key(session, "acme", name="ci", scopes=("read",))
        assert revoke(session, "acme", name="ci")
        assert not revoke(session, "acme", name="ci")
        with pytest.raises(AuthenticationError):
            authenticate(session, secret)
        again = create_key(session, "acme", name="ci", scopes=("read",))
        assert authenticate(session, again).key_name == "ci"
        assert [key.name for key in keys_of(session, "acme")] == ["ci"]


def test_a_key_is_revoked_only_by_its_own_tenant(ledger: Ledger) -> None:
    with ledger.begin() as session:
        create_tenant(session, "acme")
        create_tenant(session, "other")
        secret = create_key(session, "acme", name="ci", scopes=("read",))
        assert not revoke(session, "other", name="ci")
        assert authenticate(session, secret).tenant == "acme"


@pytest.mark.parametrize("name", ["", " ci", "a" * 65, "a\nb", "ключ", "a/b"])
def test_a_key_needs_a_proper_name(ledger: Ledger, name: str) -> None:
    with ledger.begin() as session:
        create_tenant(session, "acme")
        with pytest.raises(InvalidInputError, match="key name"):
            create_key(session, "acme", name=name, scopes=("read",))


@pytest.mark.parametrize("scopes", [(), ("root",), ("read", "write")])
def test_a_key_needs_scopes_that_exist(ledger: Ledger, scopes: tuple[str, ...]) -> None:
    with ledger.begin() as session:
        create_tenant(session, "acme")
        with pytest.raises(InvalidInputError, match="submit, read, approve, admin"):
            create_key(session, "acme", name="ci", scopes=scopes)


def test_a_key_needs_a_tenant_and_a_tenant_a_name_that_can_stand_in_a_url(ledger: Ledger) -> None:
    with ledger.begin() as session:
        with pytest.raises(UnknownTenantError):
            create_key(session, "nobody", name="ci", scopes=("read",))
        for name in ("", "A", "../x", "a_b", "a" * 64):
            with pytest.raises(InvalidInputError, match="tenant: must be"):
                create_tenant(session, name)


def test_a_tenant_made_again_keeps_its_provider_unless_another_is_named(ledger: Ledger) -> None:
    with ledger.begin() as session:
        create_tenant(session, "acme", provider="fake")
        assert create_tenant(session, "acme").provider == "fake"
        assert create_tenant(session, "acme", provider="anthropic").provider == "anthropic"
        actions = [row.action for row in session.scalars(select(AuditRow).order_by("seq")).all()]
    assert actions == ["tenant_created", "tenant_provider_set"]


def test_admin_holds_every_scope_of_its_tenant_and_nothing_else_does() -> None:
    admin = Caller("acme", "root", frozenset({Scope.ADMIN}))
    reader = Caller("acme", "eye", frozenset({Scope.READ}))
    with pytest.raises(MissingScopeError, match="operate"):
        admin.require(Scope.OPERATE)  # the whole fleet is no tenant's
    for scope in set(Scope) - {Scope.OPERATE}:
        admin.require(scope)
        if scope != Scope.READ:
            with pytest.raises(MissingScopeError, match=scope.value):
                reader.require(scope)

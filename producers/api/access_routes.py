"""Who may enter a tenant, over HTTP: its people, open sessions and keys."""

from __future__ import annotations

from producers.api.http_rules import create_router
from producers.api.job_routes import Body
from producers.api.openapi import body_of
from producers.api.requests import Admin, ResourcesDep, parse_model
from producers.use_cases.people import Access, AccessOrder, list_access, take_away

router = create_router("/v1", tags=["people and keys"])


@router.get("/access")
def list_people_and_keys(resources: ResourcesDep, caller: Admin) -> Access:
    """List the tenant's people, open sessions of the console, and valid API keys."""
    with resources.ledger.begin() as session:
        return list_access(session, caller.tenant, idle_seconds=resources.idle_seconds)


@router.post("/access/revoke", openapi_extra=body_of(AccessOrder, {"key": "old-ci"}))
def revoke_access(resources: ResourcesDep, caller: Admin, raw: Body) -> Access:
    """End a session, revoke a key, or shut a person out; it counts from the next request on."""
    order = parse_model(AccessOrder, raw)
    with resources.ledger.begin() as session:
        take_away(session, caller.tenant, order, actor=caller.actor)
        return list_access(session, caller.tenant, idle_seconds=resources.idle_seconds)

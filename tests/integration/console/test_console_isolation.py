"""The console's walls, tried on every route that it has: who is not logged in, may not, or is somebody else."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute, iter_route_contexts
from fastapi.testclient import TestClient
from httpx2 import Response
from starlette.routing import Mount

from producers.use_cases.tenants import TENANT_SCOPES
from tests.integration.api.http_world import World, shared_ledger
from tests.integration.api.tenant_world import CLUSTER, Belongings, dump_of, fill, furnished

__all__ = ["furnished", "shared_ledger"]

OPEN = {("GET", "/login"), ("POST", "/login"), ("GET", "/login/oidc"), ("GET", "/login/oidc/callback")}
FORMS: Mapping[str, dict[str, str]] = {
    "/jobs": {"prompt": "What is a bakery?"},
    "/jobs/{job_id}/approve": {"release_id": str(uuid4()), "report_digest": ""},
    "/jobs/{job_id}/undo": {},
    "/jobs/{job_id}/reject": {"reason": "no"},
    "/jobs/{job_id}/cancel": {},
    "/jobs/{job_id}/reply": {"text": "the bakery"},
    "/jobs/{job_id}/revise": {"text": "Make it red"},
    "/jobs/{job_id}/override": {"tier": "agent"},
    "/jobs/{job_id}/resume": {"budget": "0.1"},
    "/jobs/{job_id}/retry": {},
    "/jobs/selected": {"action": "cancel", "ids": str(uuid4())},
    "/jobs/selected/confirmed": {"action": "cancel", "ids": str(uuid4())},
    "/jobs/selected/undo": {"ids": str(uuid4())},
    "/theme": {"theme": "dark"},
    "/gates/{gate_id}": {"run_id": str(uuid4()), "verdict": "passed"},
    "/sites/{name}/rollback": {"release_id": str(uuid4())},
    "/sites/import": {"name": "bakery"},
    "/dead/replay": {"signature": CLUSTER},
    "/dead/dismiss": {"signature": CLUSTER},
    "/queues/{queue}": {"paused": "true"},
    "/audit/verify": {},
    "/people/sessions/{session_id}/revoke": {},
    "/people/keys/revoke": {"name": "default"},
    "/people/access": {"name": "alice", "is_disabled": "true"},
    "/logout": {},
}
"""A form for every route that takes one: a new route needs one here."""
NEEDS: Mapping[str, str] = {
    "/jobs/{job_id}/approve": "approve",
    "/jobs/{job_id}/undo": "approve",
    "/jobs/selected/undo": "approve",
    "/jobs/{job_id}/reject": "approve",
    "/gates/{gate_id}": "approve",
    "/sites/{name}/rollback": "approve",
    "/queues/{queue}": "operate",
    "/audit/verify": "operate",
    "/people/sessions/{session_id}/revoke": "admin",
    "/people/keys/revoke": "admin",
    "/people/access": "admin",
    "/logout": "read",
    "/theme": "read",
}
"""The scope that a form needs; `submit` where none is named."""
TOKEN = re.compile(r'name="form_token" value="([0-9a-f]{64})"')


def console_of(world: World) -> FastAPI:
    app = next(route.app for route in world.app.routes if isinstance(route, Mount) and route.path == "/console")
    assert isinstance(app, FastAPI)
    return app


def routes(world: World) -> list[tuple[str, str]]:
    found = []
    for context in iter_route_contexts(console_of(world).routes):
        if isinstance(context.original_route, APIRoute):
            found += [(method, context.path) for method in sorted(context.methods or ()) if method != "HEAD"]
    assert len(found) > 25
    return [route for route in found if route not in OPEN]


def log_in(world: World, *scopes: str, tenant: str | None = None) -> TestClient:
    client = TestClient(world.app, follow_redirects=False)
    secret = world.headers(*scopes, tenant=tenant)["Authorization"].removeprefix("Bearer ")
    answer = client.post("/console/login", data={"key": secret})
    assert answer.status_code == 303, answer.text
    return client


def token_of(client: TestClient) -> str:
    found = TOKEN.search(client.get("/console/limits").text)
    assert found is not None
    return found.group(1)


def send(client: TestClient, method: str, path: str, form: Mapping[str, str]) -> Response:
    return client.request(method, f"/console{path}", data=dict(form) if method == "POST" else None)


def values_of(has: Belongings) -> dict[str, str]:
    return {
        "job_id": str(has.offered),
        "run_id": str(has.run),
        "gate_id": str(has.gate),
        "name": has.site,
        "release_id": str(has.release),
        "cluster": CLUSTER,
        "queue": "spec",
        "session_id": str(uuid4()),
    }


def test_every_form_has_a_case_here(furnished: tuple[World, Belongings]) -> None:
    world, has = furnished
    assert {path for method, path in routes(world) if method == "POST"} == set(FORMS)
    assert {name for _, path in routes(world) for name in re.findall(r"\{(\w+)\}", path)} <= set(values_of(has))


def test_who_is_not_logged_in_is_led_to_the_login_by_every_route(furnished: tuple[World, Belongings]) -> None:
    world, has = furnished
    client = TestClient(world.app, follow_redirects=False)
    before = list(dump_of(world))
    for method, path in routes(world):
        answer = send(client, method, fill(path, values_of(has)), FORMS.get(path, {}))
        assert (answer.status_code, answer.headers.get("location")) == (303, "/console/login"), (method, path)
    part = client.get("/console/", headers={"hx-request": "true"})
    assert (part.status_code, part.headers["hx-redirect"]) == (401, "/console/login")
    assert list(dump_of(world)) == before


def test_no_form_is_taken_without_the_token_of_its_session(furnished: tuple[World, Belongings]) -> None:
    world, has = furnished
    client, other = log_in(world), log_in(world)
    foreign = token_of(other)
    before = list(dump_of(world))
    for path, form in FORMS.items():
        for token in ({}, {"form_token": foreign}, {"form_token": "é" * 64}):
            answer = send(client, "POST", fill(path, values_of(has)), {**form, **token})
            assert answer.status_code == 403, path
    assert list(dump_of(world)) == before


@pytest.mark.parametrize("scope", ["read", "submit", "approve", "admin"])
def test_a_form_needs_its_scope_and_no_other_scope_stands_for_operate(
    furnished: tuple[World, Belongings], scope: str
) -> None:
    world, has = furnished
    client = log_in(world, "read", scope)
    token = token_of(client)
    before = list(dump_of(world))
    refused = 0
    for path, form in FORMS.items():
        need = NEEDS.get(path, "submit")
        if need in ("read", scope) or (scope == "admin" and need != "operate"):
            continue
        answer = send(client, "POST", fill(path, values_of(has)), {**form, "form_token": token})
        assert answer.status_code == 403, (path, answer.text)
        assert f"scope {need}" in answer.text, path
        refused += 1
    assert refused == {"read": 23, "submit": 11, "approve": 17, "admin": 2}[scope]
    assert list(dump_of(world)) == before


def test_what_is_another_tenants_looks_like_what_does_not_exist_and_nothing_is_written(
    furnished: tuple[World, Belongings],
) -> None:
    world, has = furnished
    client = log_in(world, *TENANT_SCOPES, tenant=f"{world.tenant}-b")
    token = {"form_token": token_of(client)}
    absent = {name: str(uuid4()) for name in values_of(has)} | {
        "name": "nowhere",
        "cluster": "0123456789",
        "queue": "spec",
    }
    secrets = {str(has.offered), str(has.run), str(has.gate), str(has.release), str(has.dead), "Fresh bread"}
    before = list(dump_of(world))
    for method, path in routes(world):
        if path in ("/jobs", "/queues/{queue}", "/logout", "/audit/verify") and method == "POST":
            continue  # a tenant's own, or an operator's
        client.cookies.delete("pointsman_notice")
        theirs = send(client, method, fill(path, values_of(has)), {**FORMS.get(path, {}), **token})
        client.cookies.delete("pointsman_notice")
        nothing = send(client, method, fill(path, absent), {**FORMS.get(path, {}), **token})
        assert theirs.status_code == nothing.status_code, (method, path)
        assert theirs.status_code == 404 or "{job_id}" not in path, (method, path)
        assert not [one for one in secrets if one in theirs.text], (method, path)
    assert list(dump_of(world)) == before


def test_a_clusters_dead_letters_are_replayed_together_and_each_tells_what_became_of_it(
    furnished: tuple[World, Belongings], tmp_path: Path
) -> None:
    world, has = furnished
    client = log_in(world, "read", "submit")
    token = {"form_token": token_of(client)}
    assert CLUSTER in client.get("/console/dead").text
    assert str(has.dead) in client.get(f"/console/dead/{CLUSTER}").text
    done = send(client, "POST", "/dead/replay", {"signature": CLUSTER, **token})
    assert "1 of 1 is replayed" in " ".join(done.text.split()), done.text
    again = send(client, "POST", "/dead/replay", {"ids": str(has.dead), **token})
    assert "before" in again.text
    assert CLUSTER not in client.get("/console/dead").text
    neither = send(client, "POST", "/dead/dismiss", token)
    assert neither.headers["location"] == "/console/dead"

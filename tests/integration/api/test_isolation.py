"""Tenants cannot see or touch each other: tried on every route that the applications have, whoever added it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

from fastapi.routing import iter_route_contexts
from fastapi.testclient import TestClient
from httpx2 import Response

from ledger.releases import find_site
from producers.api.app import create_app
from producers.api.key_limits import KeyLimits
from producers.use_cases.jobs import PREVIEW_AUDIENCE
from tests.integration.api.http_world import PAGES, World, shared_ledger
from tests.integration.api.tenant_world import CLUSTER, EDIT, TICKET, Belongings, dump_of, fill, furnished
from tests.integration.api.test_api import PUBLIC, private_routes

__all__ = ["furnished", "shared_ledger"]

BODIES: Mapping[tuple[str, str], dict[str, Any]] = {
    ("POST", "/v1/jobs"): EDIT,
    ("POST", "/v1/jobs/batch"): {"jobs": [EDIT]},
    ("POST", "/v1/jobs/{job_id}/cancel"): {},
    ("POST", "/v1/jobs/{job_id}/reply"): {"text": "the bakery"},
    ("POST", "/v1/jobs/{job_id}/resume"): {"budget_usd": 0.1},
    ("POST", "/v1/jobs/{job_id}/revise"): {"text": "Make it red"},
    ("POST", "/v1/jobs/{job_id}/approve"): {},
    ("POST", "/v1/jobs/{job_id}/undo"): {},
    ("POST", "/v1/jobs/{job_id}/reject"): {"reason": "no"},
    ("POST", "/v1/jobs/{job_id}/notification/replay"): {},
    ("POST", "/v1/notices/{notice_id}/replay"): {},
    ("POST", "/v1/access/revoke"): {"key": "no-such-key"},
    ("PUT", "/v1/notice-choice"): {"states": ["clarifying"]},
    ("POST", "/v1/sites"): {"name": "bakery"},
    ("POST", "/v1/imports"): {},
    ("POST", "/v1/sites/{name}/rollback"): {},
    ("POST", "/v1/sites/{name}/revoke-previews"): {},
    ("POST", "/v1/projects"): {"name": "shop", "file": "no file"},
    ("POST", "/v1/runs"): TICKET,
    ("POST", "/v1/dead-letters/replay"): {"signature": CLUSTER},
    ("POST", "/v1/dead-letters/dismiss"): {"signature": CLUSTER},
    ("POST", "/v1/gates/{gate_id}/pass"): {},
    ("POST", "/v1/gates/{gate_id}/rework"): {"reason": "no"},
    ("POST", "/v1/gates/{gate_id}/fail"): {"reason": "no"},
}
"""A body for every route that takes one, such as its owner's request could have: a new route needs one here."""
ABSENT = {"name": "nowhere", "cluster": "0123456789"}
"""What stands for something that nobody has, where no UUID does."""
REFERENCES: Mapping[tuple[str, str], tuple[str, str]] = {
    ("POST", "/v1/sites/{name}/rollback"): ("body", "release_id"),
    ("POST", "/v1/sites/{name}/revoke-previews"): ("body", "release_id"),
    ("GET", "/v1/sites/{name}/diff"): ("query", "after"),
    ("GET", "/v1/sites/{name}/export"): ("query", "release"),
}
"""Where an id stands elsewhere than in the path: the stranger names it beside a site of its own."""
PAGE_ROUTES = {
    "/preview/{token}",
    "/preview/{token}/{path:path}",
    "/live/{tenant}/{site}",
    "/live/{tenant}/{site}/{path:path}",
    "/favicon.ico",
    "/robots.txt",
    "/healthz",
}


def stranger(world: World) -> dict[str, str]:
    return world.headers(tenant=f"{world.tenant}-b")


def neighbour(world: World, suffix: str) -> World:
    """Another tenant of the same installation, who has keys of its own."""
    made = replace(world, tenant=f"{world.tenant}-{suffix}", keys={})
    made.headers()
    return made


def ids_of(has: Belongings) -> dict[str, list[str]]:
    return {
        "job_id": [str(job) for job in has.jobs],
        "gate_id": [str(has.gate)],
        "notice_id": [str(has.notice)],
        "name": [has.site],
        "cluster": [CLUSTER],
    }


def ask(world: World, method: str, url: str, *, body: dict[str, Any] | None = None) -> Response:
    return world.client.request(method, url, headers=stranger(world), json=body, follow_redirects=False)


def shown(answer: Response) -> tuple[int, str, list[tuple[str, str]]]:
    """All that a caller could tell two answers apart by."""
    return answer.status_code, answer.text, sorted(answer.headers.items())


def test_every_route_that_takes_a_body_has_a_case_here(furnished: tuple[World, Belongings]) -> None:
    routes = private_routes(furnished[0])
    without = {route for route in routes if route[0] in ("POST", "PUT", "PATCH", "DELETE")} - set(BODIES)
    assert not without, "give these routes a body in BODIES, so that strangers are tried on them"
    names = {name for _, path in routes for name in re.findall(r"\{(\w+)\}", path)}
    assert names <= set(ids_of(furnished[1])), "say in ids_of what stands there"


def test_what_is_another_tenants_answers_like_what_does_not_exist_and_nothing_is_written(
    furnished: tuple[World, Belongings],
) -> None:
    world, has = furnished
    known = ids_of(has)
    stranger(world)
    before = list(dump_of(world))
    tried = 0
    for method, path in private_routes(world):
        body = BODIES.get((method, path))
        for name in re.findall(r"\{(\w+)\}", path):
            nothing = ask(world, method, fill(path, {name: ABSENT.get(name) or str(uuid4())}), body=body)
            assert nothing.status_code == 404, (method, path)
            for real in known[name]:
                answer = ask(world, method, fill(path, {name: real}), body=body)
                assert shown(answer) == shown(nothing), (method, path)
                tried += 1
    assert tried > 50
    assert list(dump_of(world)) == before


def test_no_list_shows_and_no_request_reaches_what_is_another_tenants(furnished: tuple[World, Belongings]) -> None:
    world, has = furnished
    secrets = {
        *map(str, has.jobs),
        str(has.gate),
        str(has.notice),
        str(has.release),
        str(has.earlier_release),
        world.tenant + "/",
    }
    assert {queue["waiting"] for queue in ask(world, "GET", "/v1/queues").json()} == {0}
    for path in (path for method, path in private_routes(world) if method == "GET" and "{" not in path):
        listed = ask(world, "GET", path).text  # by somebody who has no site or project yet
        assert not [name for name in (has.site, has.project) if f'"{name}"' in listed], path
    named = ask(world, "POST", "/v1/jobs", body={**EDIT, "site": "nowhere"})
    assert (named.status_code, named.json()["errors"][0]["field"]) == (422, "site")
    for site in ("shop", has.site):
        assert shown(ask(world, "POST", "/v1/jobs", body={**EDIT, "site": site})) == shown(named)
    for method, path in private_routes(world):
        if "{" not in path:
            answer = ask(world, method, path, body=BODIES.get((method, path)))
            assert not [secret for secret in secrets if secret in answer.text], (method, path)
    for verb in ("replay", "dismiss"):
        order = {"ids": [str(has.dead), str(uuid4())]}
        jobs = ask(world, "POST", f"/v1/dead-letters/{verb}", body=order).json()["jobs"]
        answers = [(job["is_done"], job["why_not"].replace(job["id"], "ID")) for job in jobs]
        assert answers == [(False, "no job ID")] * 2
    assert (world.job(has.dead).dismissed_at, world.job(has.dead).state) == (None, "failed")
    for job_id in has.jobs:
        assert ask(world, "POST", "/v1/jobs", body={"prompt": "Why?", "session": str(job_id)}).status_code in (202, 422)
    assert world.job(has.offered).state == "awaiting_approval"


def test_an_id_beside_an_own_site_opens_no_release_of_another_tenants(
    furnished: tuple[World, Belongings], tmp_path: Path
) -> None:
    world, has = furnished
    other = neighbour(world, "c")
    other.site("bakery", PAGES, tmp_path)
    before = list(dump_of(world))
    for (method, path), (place, name) in REFERENCES.items():
        answers = []
        for value in (str(uuid4()), str(has.release), str(has.earlier_release)):
            given = {"json": {name: value}} if place == "body" else {"params": {name: value}}
            answers.append(shown(other.call(method, fill(path, {"name": "bakery"}), **given)))
        assert answers[0][0] == 404, (method, path)
        assert answers[1:] == [answers[0]] * 2, (method, path)
    assert list(dump_of(world)) == before


def test_a_wrong_key_is_told_nothing_about_what_exists(furnished: tuple[World, Belongings]) -> None:
    world, has = furnished
    patient = KeyLimits(clock=count(step=60).__next__)  # a minute goes by between two looks
    client = TestClient(create_app(replace(world.resources, key_limits=patient)))
    for method, path in private_routes(world):
        values = {name: known[0] for name, known in ids_of(has).items()}
        absent = {name: ABSENT.get(name) or str(uuid4()) for name in values}
        headers = {"X-API-Key": "pmk_" + "x" * 43}
        answers = [
            shown(client.request(method, fill(path, each), headers=headers, json=BODIES.get((method, path))))
            for each in (values, absent)
        ]
        assert answers[0] == answers[1], (method, path)
        assert answers[0][0] == 401


def test_a_trackers_delivery_that_is_not_signed_tells_nothing_about_projects(
    furnished: tuple[World, Belongings],
) -> None:
    world, has = furnished
    assert {path for path in PUBLIC if path.startswith("/v1/")} == {"/v1/tickets/{tracker}/{tenant}/{project}"}
    answers = [
        shown(world.client.post(f"/v1/tickets/{tracker}/{tenant}/{project}", json={"action": "labeled"}))
        for tracker in ("github",)
        for tenant, project in ((world.tenant, has.project), (world.tenant, "none"), ("nobody", "none"))
    ]
    assert len(set(map(str, answers))) == 1
    assert answers[0][0] == 401


def test_the_pages_show_a_release_only_under_its_own_site(furnished: tuple[World, Belongings], tmp_path: Path) -> None:
    world, has = furnished
    assert {context.path for context in iter_route_contexts(world.pages_app.routes)} == PAGE_ROUTES
    live = world.pages.get(f"/live/{world.tenant}/{has.site}/")
    assert live.status_code == 200
    other = neighbour(world, "d")
    other.site("shoes", PAGES, tmp_path)
    nothing = shown(world.pages.get("/live/nobody/nothing/"))
    assert shown(world.pages.get(f"/live/{other.tenant}/{has.site}/")) == nothing
    with world.ledger.begin() as session:
        own_site = find_site(session, other.tenant, "shoes").id
    for release in (has.release, uuid4()):
        token = world.resources.signer.sign(site=str(own_site), release_id=str(release), audience=PREVIEW_AUDIENCE)
        assert shown(world.pages.get(f"/preview/{token}/")) == nothing

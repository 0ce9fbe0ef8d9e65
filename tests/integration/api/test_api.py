"""The HTTP API's routes for jobs, on a real ledger."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import UUID

import pytest
from fastapi.routing import iter_route_contexts
from fastapi.testclient import TestClient
from sqlalchemy import event, func, select, update
from sqlmodel import col

from ledger.dispatch_window import pause_queue
from ledger.record_tables import ApiKey, Approval, AuditRow, Backlog, Event, Notification
from ledger.store import Ledger, create_ledger_engine, now
from ledger.tables import Job, Release
from producers.api.app import create_app
from producers.api.requests import Resources
from producers.intake.submit import Submitter
from producers.use_cases import job_search
from producers.use_cases.tenants import hash_secret, revoke
from routing.jobs import State
from routing.policy.platform import platform_policy
from routing.queues import QueueName
from tests.integration.api.http_world import HOME, PAGES, World, problem_of, shared_ledger, world

__all__ = ["shared_ledger", "world"]

SIGNED = "/v1/tickets/{tracker}/{tenant}/{project}"
"""Trackers sign what they send; they have no key (tests/integration/intake/test_tickets.py)."""
PUBLIC = {
    SIGNED,
    "/",
    "/healthz",
    "/readyz",
    "/metrics",
    "/docs",
    "/docs/files",
    "/openapi.json",
}
"""Routes that no key opens."""
EDIT = {"prompt": "Change the headline to 'Fresh bread'", "site": "bakery"}


def private_routes(world: World) -> list[tuple[str, str]]:
    """Every (method, path template) that is not public; a route that nobody classified is private."""
    found = []
    for context in iter_route_contexts(world.app.routes):
        if context.path is not None and context.path not in PUBLIC:
            found += [(method, context.path) for method in sorted(context.methods or ()) if method != "HEAD"]
    return found


# ---------------------------------------------------------------- accepting


@pytest.mark.req("R-094")
def test_a_job_is_accepted_while_the_broker_is_away_and_waits_in_the_ledger(world: World) -> None:
    with world.ledger.begin() as session:
        pause_queue(session, QueueName.ANSWER, is_paused=False)
    try:
        answer = world.call("POST", "/v1/jobs", json={"prompt": "What is a bakery?"})
    finally:
        with world.ledger.begin() as session:
            pause_queue(session, QueueName.ANSWER, is_paused=True)
    assert answer.status_code == 202
    body = answer.json()
    assert answer.headers["location"] == f"/v1/jobs/{body['id']}" == body["url"]
    job = world.job(UUID(body["id"]))
    assert (job.state, job.source, job.queue, job.tenant) == ("queued", "http", "answer", world.tenant)
    assert job.waiting_since is not None
    assert job.pushed_at is not None, "the dispatcher finds it missing on the list"
    assert (job.route["mode"], job.route["policy_version"]) == ("ANSWER", world.policy.version)
    assert (body["mode"], body["queue"], body["why"]) == ("ANSWER", "answer", job.route["reason"])


@pytest.mark.req("H-005", "H-009", "H-072")
@pytest.mark.parametrize("tier", ["spec", "patch", "agent"])
def test_the_callers_tier_is_taken_and_recorded_as_an_override(world: World, tmp_path: Path, tier: str) -> None:
    world.site("bakery", PAGES, tmp_path)
    view = world.call("GET", f"/v1/jobs/{world.submit(**EDIT, tier=tier)}").json()
    assert (view["tier"], view["queue"], view["route"]["cause"]) == (tier, tier, "override")


def test_a_job_shows_its_prompt_decision_bill_and_times(world: World) -> None:
    job_id = world.submit(prompt="What is a bakery?", budget_usd=0.0125, priority="P1")
    world.finish(job_id, State.ANSWERED, answer="A shop that sells bread.")
    view = world.call("GET", f"/v1/jobs/{job_id}").json()
    assert (view["state"], view["is_final"], view["reason"]) == ("answered", True, "done")
    assert (view["answer"], view["priority"], view["source"]) == ("A shop that sells bread.", "P1", "http")
    assert view["prompt"] == "What is a bakery?"
    assert view["bill"]["cap_usd"] == "0.0125"
    assert Decimal(view["bill"]["cap_usd"]) * 10**9 == view["bill"]["cap_nanousd"]
    assert (view["bill"]["spent_usd"], view["bill"]["calls"]) == ("0.00", 0)
    assert [(item["number"], item["queue"], item["outcome"]) for item in view["attempts"]] == [
        (1, "answer", "answered")
    ]
    assert view["created_at"] <= view["started_at"] <= view["ended_at"]


def test_jobs_are_listed_newest_first_and_filtered(world: World, tmp_path: Path) -> None:
    world.site("bakery", PAGES, tmp_path)
    first, second, third = (
        world.submit(prompt="What is bread?"),
        world.submit(**EDIT),
        world.submit(prompt="Who are you?"),
    )
    world.finish(first, State.ANSWERED, answer="Food.")

    def ids(query: str) -> list[str]:
        return [item["id"] for item in world.call("GET", f"/v1/jobs{query}").json()["jobs"]]

    assert ids("") == [str(third), str(second), str(first)]
    assert ids("?state=answered") == [str(first)]
    assert ids("?state=answered&state=queued&limit=2") == [str(third), str(second)]
    assert ids("?site=bakery") == ids("?tier=spec") == [str(second)]
    assert ids("?text=ARE you") == ids(f"?text={str(third)[:13]}") == [str(third)]
    moment = quote(world.call("GET", f"/v1/jobs/{second}").json()["created_at"])
    assert ids(f"?since={moment}") == [str(third), str(second)]
    assert ids(f"?until={moment}") == [str(first)]
    assert world.call("GET", "/v1/jobs?site=nowhere").status_code == 404
    assert problem_of(world.call("GET", "/v1/jobs?limit=0"))["errors"][0]["field"] == "limit"
    assert problem_of(world.call("GET", "/v1/jobs?state=lost"))["errors"][0]["field"] == "state.0"
    assert problem_of(world.call("GET", "/v1/jobs?since=2026-01-01T00:00:00"))["errors"][0]["field"] == "since"
    assert problem_of(world.call("GET", "/v1/jobs?cursor=none"))["errors"][0]["field"] == "cursor"


def test_pages_of_jobs_that_were_accepted_at_one_time_show_each_once(world: World) -> None:
    world.call("POST", "/v1/jobs/batch", json={"jobs": [{"prompt": f"What is bread {n}?"} for n in range(7)]})
    with world.ledger.begin() as session:
        session.execute(update(Job).where(col(Job.tenant) == world.tenant).values(created_at=now()))
    sizes, shown, cursor = [], [], ""
    while cursor is not None:
        page = world.call("GET", f"/v1/jobs?limit=3{cursor and f'&cursor={cursor}'}").json()
        sizes.append(len(page["jobs"]))
        shown += [job["prompt"] for job in page["jobs"]]
        cursor = page["next_cursor"]
    assert sizes == [3, 3, 1]
    assert sorted(shown) == [f"What is bread {n}?" for n in range(7)]


def test_a_search_for_words_goes_on_where_a_page_stopped(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_search, "MOST_SEARCHED", 2)
    rye = world.submit(prompt="What is rye?")
    for number in range(3):
        world.submit(prompt=f"What is 100% bread {number}?")
    first = world.call("GET", "/v1/jobs?text=rye").json()
    assert (first["jobs"], bool(first["next_cursor"])) == ([], True)
    second = world.call("GET", f"/v1/jobs?text=rye&cursor={first['next_cursor']}").json()
    assert [job["id"] for job in second["jobs"]] == [str(rye)]
    assert len(world.call("GET", "/v1/jobs?text=100%25").json()["jobs"]) == 2
    assert world.call("GET", "/v1/jobs?text=1_0").json()["jobs"] == []
    found = world.call("GET", f"/v1/jobs?text={str(rye)[:18].upper()}").json()
    assert [job["id"] for job in found["jobs"]] == [str(rye)], "an id is found however old its job is"


def test_the_scan_report_of_a_release_is_shown_to_whoever_decides_and_of_none_there_is_none(
    world: World, tmp_path: Path
) -> None:
    world.site("bakery", PAGES, tmp_path)
    job_id = world.submit(**EDIT)
    assert world.call("GET", f"/v1/jobs/{job_id}/scan").status_code == 404
    release = world.offer(job_id, {**PAGES, "index.html": HOME.replace(b"Bread", b"Rye")})
    report = world.call("GET", f"/v1/jobs/{job_id}/scan").json()
    assert (report["release_id"], report["passed"], report["findings"]) == (str(release.id), True, [])
    assert report["report_digest"] == world.call("GET", f"/v1/jobs/{job_id}").json()["report_digest"]
    assert all(report["gates"].values())
    finding = {"gate": "secrets", "rule": "x", "file": "a.html", "line": 3, "message": "a key", "fix": "Remove it."}
    with world.ledger.begin() as session:
        row = session.get_one(Release, release.id)
        row.scan = {**row.scan, "passed": False, "findings": [finding]}
    assert world.call("GET", f"/v1/jobs/{job_id}/scan").json()["findings"] == [finding]


# ---------------------------------------------------------------- idempotency


def test_the_same_key_and_body_return_the_same_job_whether_header_or_body_or_both_name_it(world: World) -> None:
    body, header, key = {"prompt": "Hi there?"}, {"headers": {"Idempotency-Key": "key-1"}}, {"idempotency_key": "key-1"}
    ways: list[dict[str, Any]] = [
        {"json": body, **header},
        {"json": body | key},
        {"json": body | key, **header},
        {"json": body | {"idempotency_key": None}, **header},
    ]
    first, *again = (world.call("POST", "/v1/jobs", **way).json() for way in ways)
    assert first["is_new"]
    assert [(one["id"], one["is_new"]) for one in again] == [(first["id"], False)] * 3


# ---------------------------------------------------------------- many at once


def test_of_many_jobs_each_is_answered_for_itself(world: World) -> None:
    question = {"prompt": "What is a bakery?", "idempotency_key": "many-1"}
    bodies = [question, {"prompt": ""}, question, {**question, "prompt": "What is bread?"}, 7]
    answer = world.call("POST", "/v1/jobs/batch", json={"jobs": bodies})
    told = answer.json()
    assert (answer.status_code, told["accepted"], told["refused"]) == (200, 2, 3)
    first, empty, again, other, number = told["jobs"]
    assert (first["job"]["id"], first["job"]["is_new"], first["problem"]) == (again["job"]["id"], True, None)
    assert world.job(UUID(first["job"]["id"])).requested_by.startswith(f"key:{world.tenant}/")
    assert not again["job"]["is_new"]
    assert (empty["job"], empty["problem"]["status"]) == (None, 422)
    assert empty["problem"]["errors"] == [{"field": "prompt", "rule": "must not be empty"}]
    assert (other["problem"]["type"], number["problem"]["status"]) == ("urn:pointsman:problem:conflict", 422)


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({}, 422, "jobs"),
        ({"jobs": []}, 422, "jobs"),
        ({"jobs": [{}] * 1001}, 422, "jobs"),
        ([], 422, "body"),
        ({"jobs": [], "more": 1}, 422, "jobs"),
        ({"jobs": ["x" * 9_000_000]}, 413, "body"),
    ],
    ids=["none", "empty", "too many", "a list", "more", "too large"],
)
def test_a_batch_that_is_none_is_refused_whole_and_on_record(world: World, body: Any, status: int, field: str) -> None:
    before = world.counts()
    answer = world.call("POST", "/v1/jobs/batch", json=body)
    assert (answer.status_code, problem_of(answer)["errors"][0]["field"]) == (status, field)
    assert world.counts()["job"] == before["job"]


def test_the_same_key_with_another_body_is_a_conflict_and_enqueues_nothing(world: World) -> None:
    headers = {"Idempotency-Key": "key-1"}
    first = world.call("POST", "/v1/jobs", json={"prompt": "What is a bakery?"}, headers=headers)
    before = world.counts()
    answer = world.call("POST", "/v1/jobs", json={"prompt": "What is a butcher?"}, headers=headers)
    assert answer.status_code == 409
    assert first.json()["id"] in problem_of(answer)["detail"]
    assert world.counts() == before


def test_the_same_key_of_two_tenants_names_two_jobs(world: World) -> None:
    ids = set()
    for tenant in (world.tenant, f"{world.tenant}-b"):
        headers = {"Idempotency-Key": "key-1", **world.headers(tenant=tenant)}
        ids.add(world.call("POST", "/v1/jobs", json={"prompt": "Hello?"}, headers=headers).json()["id"])
    assert len(ids) == 2


# ---------------------------------------------------------------- who may


def test_only_routes_that_are_known_to_be_public_open_without_a_key(world: World) -> None:
    for method, path in private_routes(world):
        answer = world.client.request(method, path)
        assert answer.status_code == 401, (method, path)
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert problem_of(answer)["type"] == "urn:pointsman:problem:unauthenticated"


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer pmk_" + "x" * 43},
        {"Authorization": "Basic cG1rOng="},
        {"X-API-Key": "pmk_\u00ff"},
        {"X-API-Key": "' OR 1=1 --"},
        {"Authorization": "Bearer " + "a" * 5000},
    ],
)
def test_a_wrong_key_is_401(world: World, headers: dict[str, str]) -> None:
    raw = {name.encode(): value.encode("latin-1") for name, value in headers.items()}
    assert world.client.get("/v1/jobs", headers=raw).status_code == 401


def test_a_key_opens_by_either_header_until_it_is_revoked(world: World) -> None:
    secret = world.key("read")
    for headers in (
        {"X-API-Key": secret},
        {"Authorization": f"Bearer {secret}"},
        {"Authorization": f"bearer {secret}"},
    ):
        assert world.client.get("/v1/jobs", headers=headers).status_code == 200
    with world.ledger.begin() as session:
        row = session.scalars(select(ApiKey).where(col(ApiKey.key_hash) == hash_secret(secret))).one()
        assert revoke(session, world.tenant, name=row.name)
    assert world.client.get("/v1/jobs", headers={"X-API-Key": secret}).status_code == 401


def test_a_key_that_submits_is_looked_up_once_and_refused_as_soon_as_it_is_revoked(world: World) -> None:
    secret, body, sent = world.key("submit"), {"prompt": "What is a proxy?"}, []
    headers = {"X-API-Key": secret}
    event.listen(world.ledger.engine, "before_cursor_execute", note := lambda *facts: sent.append(facts[2]))
    for most in (3, 1):
        sent.clear()
        assert world.client.post("/v1/jobs", json=body, headers=headers).status_code == 202
        assert len(sent) == most, "key, context and the write; then the write, which checks the key"
    event.remove(world.ledger.engine, "before_cursor_execute", note)
    with world.ledger.begin() as session:
        row = session.scalars(select(ApiKey).where(col(ApiKey.key_hash) == hash_secret(secret))).one()
        assert revoke(session, world.tenant, name=row.name)
    for broken in (body, {"prompt": ""}):
        assert world.client.post("/v1/jobs", json=broken, headers=headers).status_code == 401
    with world.ledger.begin() as session:
        own = col(Event.tenant) == world.tenant
        kinds = session.execute(select(col(Event.kind), func.count()).where(own).group_by(col(Event.kind))).all()
    assert sorted(map(tuple, kinds)) == [("accepted", 2), ("waiting", 2)]


SCOPES = {
    ("POST", "/v1/jobs"): "submit",
    ("POST", "/v1/jobs/batch"): "submit",
    ("GET", "/v1/jobs"): "read",
    ("GET", "/v1/jobs/{job_id}"): "read",
    ("GET", "/v1/jobs/{job_id}/diff"): "read",
    ("GET", "/v1/jobs/{job_id}/scan"): "read",
    ("GET", "/v1/jobs/{job_id}/events"): "read",
    ("POST", "/v1/jobs/{job_id}/cancel"): "submit",
    ("POST", "/v1/jobs/{job_id}/reply"): "submit",
    ("POST", "/v1/jobs/{job_id}/resume"): "submit",
    ("POST", "/v1/jobs/{job_id}/revise"): "submit",
    ("GET", "/v1/jobs/{job_id}/notification"): "read",
    ("POST", "/v1/jobs/{job_id}/notification/replay"): "submit",
    ("GET", "/v1/notifications"): "read",
    ("GET", "/v1/access"): "admin",
    ("POST", "/v1/access/revoke"): "admin",
    ("GET", "/v1/notices"): "read",
    ("POST", "/v1/notices/{notice_id}/replay"): "submit",
    ("GET", "/v1/notice-choice"): "read",
    ("PUT", "/v1/notice-choice"): "admin",
    ("POST", "/v1/jobs/{job_id}/approve"): "approve",
    ("POST", "/v1/jobs/{job_id}/undo"): "approve",
    ("POST", "/v1/jobs/{job_id}/reject"): "approve",
    ("GET", "/v1/dead-letters"): "read",
    ("GET", "/v1/dead-letters/{cluster}"): "read",
    ("POST", "/v1/dead-letters/replay"): "submit",
    ("POST", "/v1/dead-letters/dismiss"): "submit",
    ("GET", "/v1/sites"): "read",
    ("POST", "/v1/sites"): "admin",
    ("POST", "/v1/imports"): "submit",
    ("GET", "/v1/sites/{name}/releases"): "read",
    ("POST", "/v1/sites/{name}/rollback"): "approve",
    ("POST", "/v1/sites/{name}/revoke-previews"): "approve",
    ("GET", "/v1/sites/{name}/diff"): "read",
    ("GET", "/v1/sites/{name}/export"): "read",
    ("GET", "/v1/queues"): "read",
    ("GET", "/v1/projects"): "read",
    ("POST", "/v1/projects"): "admin",
    ("POST", "/v1/runs"): "submit",
    ("GET", "/v1/runs/{job_id}"): "read",
    ("GET", "/v1/runs/{job_id}/diff"): "read",
    ("GET", "/v1/runs/{job_id}/bundle"): "read",
    ("GET", "/v1/gates"): "read",
    ("GET", "/v1/gates/{gate_id}"): "read",
    ("POST", "/v1/gates/{gate_id}/pass"): "approve",
    ("POST", "/v1/gates/{gate_id}/rework"): "approve",
    ("POST", "/v1/gates/{gate_id}/fail"): "approve",
}


def test_every_route_asks_for_its_scope_and_no_other_scope_opens_it(world: World) -> None:
    assert set(private_routes(world)) == set(SCOPES)
    for (method, path), scope in SCOPES.items():
        others = [other for other in ("submit", "read", "approve") if other != scope]
        answer = world.client.request(method, path, headers=world.headers(*others), json={})
        assert answer.status_code == 403, (method, path)
        assert scope in problem_of(answer)["detail"]
        for enough in (scope, "admin"):
            answer = world.client.request(method, path, headers=world.headers(enough), json={})
            assert answer.status_code not in (401, 403), (method, path)


# ---------------------------------------------------------------- judging and cancelling


@pytest.mark.req("H-083")
def test_nothing_is_published_before_an_approval_and_exactly_the_approved_release_after(
    world: World, tmp_path: Path
) -> None:
    before = world.site("bakery", PAGES, tmp_path)
    job_id = world.submit(**EDIT)
    release = world.offer(job_id, {**PAGES, "index.html": HOME.replace(b"Bread", b"Fresh bread")})
    view = world.call("GET", f"/v1/jobs/{job_id}").json()
    assert (view["state"], view["release_id"]) == ("awaiting_approval", str(release.id))
    assert world.active("bakery") == before.id
    approved = world.call("POST", f"/v1/jobs/{job_id}/approve")
    assert (approved.status_code, approved.json()["state"], approved.json()["preview_url"]) == (200, "publishing", None)
    world.publish(job_id)
    assert world.call("GET", f"/v1/jobs/{job_id}").json()["state"] == "published"
    assert world.active("bakery") == release.id
    with world.ledger.begin() as session:
        approval = session.get_one(Approval, job_id)
        assert approval.actor.startswith(f"key:{world.tenant}/")
        assert (approval.release_id, approval.scan_digest) == (release.id, release.scan_digest)


def test_a_rejection_ends_the_job_with_its_reason_and_leaves_the_site(world: World, tmp_path: Path) -> None:
    before = world.site("bakery", PAGES, tmp_path)
    job_id = world.submit(**EDIT)
    world.offer(job_id, {**PAGES, "new.html": HOME})
    answer = world.call("POST", f"/v1/jobs/{job_id}/reject", json={"reason": "  The logo is too large. "})
    assert (answer.json()["state"], answer.json()["detail"]) == ("rejected", "The logo is too large.")
    assert world.active("bakery") == before.id
    for verb in ("approve", "reject", "cancel"):
        again = world.call("POST", f"/v1/jobs/{job_id}/{verb}", json={"reason": "again"} if verb == "reject" else {})
        assert again.status_code == 409, verb
        assert "rejected" in problem_of(again)["detail"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "reason"),
        ({"reason": " "}, "reason"),
        ({"reason": "x" * 2001}, "reason"),
        ({"reason": 1}, "reason"),
        ({"reason": "a\x00b"}, "reason"),
        ({"reason": "x", "secret-field": 1}, "secret-field"),
        ([1], "body"),
    ],
)
def test_a_rejection_without_a_proper_reason_is_refused_by_name(
    world: World, tmp_path: Path, body: Any, field: str
) -> None:
    world.site("bakery", PAGES, tmp_path)
    job_id = world.submit(**EDIT)
    world.offer(job_id, {**PAGES, "new.html": HOME})
    answer = world.call("POST", f"/v1/jobs/{job_id}/reject", json=body)
    assert answer.status_code == 422
    assert [error["field"] for error in problem_of(answer)["errors"]] == [field]
    assert world.job(job_id).state == "awaiting_approval"


@pytest.mark.parametrize("verb", ["approve", "reject"])
def test_only_a_job_that_waits_for_approval_can_be_judged(world: World, verb: str) -> None:
    job_id = world.submit(prompt="What is a bakery?")
    answer = world.call("POST", f"/v1/jobs/{job_id}/{verb}", json={"reason": "no"} if verb == "reject" else {})
    assert answer.status_code == 409
    assert world.job(job_id).state == "queued"


def test_a_waiting_job_is_cancelled_at_once_and_only_once(world: World) -> None:
    job_id = world.submit(prompt="What is a bakery?")
    assert world.call("POST", f"/v1/jobs/{job_id}/cancel").json()["state"] == "cancelled"
    assert world.call("POST", f"/v1/jobs/{job_id}/cancel").status_code == 409
    with world.ledger.begin() as session:
        assert session.get(Notification, job_id) is not None
        actors = session.scalars(
            select(col(AuditRow.actor)).where(col(AuditRow.job_id) == job_id, col(AuditRow.action) == "job_ended")
        ).all()
    assert [actor.split("/")[0] for actor in actors] == [f"key:{world.tenant}"]


def test_a_running_job_is_asked_to_stop(world: World) -> None:
    job_id = world.submit(prompt="What is a bakery?")
    world.claim(job_id)
    view = world.call("POST", f"/v1/jobs/{job_id}/cancel").json()
    assert (view["state"], view["is_cancel_requested"]) == ("running", True)


# ---------------------------------------------------------------- the process itself


def test_queues_show_the_tenants_own_waiting_jobs(world: World) -> None:
    world.submit(prompt="What is a bakery?")
    world.submit(prompt="pwd")
    queues = {queue["queue"]: queue for queue in world.call("GET", "/v1/queues").json()}
    assert (queues["answer"]["waiting"], queues["tools"]["waiting"], queues["spec"]["waiting"]) == (1, 1, 0)
    assert queues["answer"]["oldest_age_seconds"] >= 0
    assert queues["answer"]["is_paused"]


def test_health_is_ready_and_metrics_count_by_route_template(world: World) -> None:
    assert world.client.get("/healthz").json() == {"status": "ok"}
    assert world.client.get("/readyz").json() == {"status": "ready"}
    job_id = world.submit(prompt="What is a bakery?")
    world.call("GET", f"/v1/jobs/{job_id}")
    world.client.get("/no/such/thing")
    text = world.client.get("/metrics").text
    assert 'pointsman_api_requests_total{method="GET",route="/v1/jobs/{job_id}",status="200"} 1.0' in text
    assert 'pointsman_api_requests_total{method="POST",route="/v1/jobs",status="202"} 1.0' in text
    assert 'route="unmatched",status="404"' in text
    assert str(job_id) not in text


def test_without_the_ledger_the_process_is_healthy_not_ready_and_accepts_nothing(world: World) -> None:
    gone = Ledger(create_ledger_engine("postgresql://nobody@127.0.0.1:1/none", pool_size=1))
    submitter = Submitter(gone, None, platform_policy())  # type: ignore[arg-type]  # never gets as far as the broker
    resources = Resources(
        ledger=gone,
        submitter=submitter,
        content_store=world.content_store,
        signer=world.resources.signer,
        policy=world.policy,
        pages_url="http://pages.testserver",
    )
    client = TestClient(create_app(resources))
    assert client.get("/healthz").status_code == 200
    for method, path in (("GET", "/readyz"), ("POST", "/v1/jobs")):
        answer = client.request(method, path, json={"prompt": "hello"}, headers={"X-API-Key": "pmk_" + "x" * 43})
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "2"
        assert "postgres" not in answer.text
        assert problem_of(answer)["type"] == "urn:pointsman:problem:ledger_unreachable"


def test_the_openapi_document_shows_the_request_its_examples_and_the_keys(world: World) -> None:
    document = world.client.get("/openapi.json").json()
    schemes = document["components"]["securitySchemes"]
    assert {(item["type"], item.get("scheme"), item.get("name")) for item in schemes.values()} == {
        ("http", "bearer", None),
        ("apiKey", None, "X-API-Key"),
    }
    content = document["paths"]["/v1/jobs"]["post"]["requestBody"]["content"]["application/json"]
    assert content["schema"] == {"$ref": "#/components/schemas/JobRequest"}
    assert "prompt" in document["components"]["schemas"]["JobRequest"]["properties"]
    assert set(document["paths"]) == {path for _, path in SCOPES} | {"/healthz", "/readyz", SIGNED}
    for operations in (document["paths"][path] for _, path in SCOPES):
        assert all(operation["security"] for operation in operations.values())


def test_a_full_queue_answers_429_and_says_when_to_come_back(world: World) -> None:
    full = world.policy.admission.waiting_per_tenant
    with world.ledger.begin() as session:
        session.add(Backlog(queue="answer", tenant=world.tenant, waiting=full, drained_per_second=100.0))
    answer = world.call("POST", "/v1/jobs", json={"prompt": "What is bread?"})
    assert (answer.status_code, answer.headers["content-type"]) == (429, "application/problem+json")
    assert answer.headers["retry-after"] == "20"
    assert answer.json()["type"] == "urn:pointsman:problem:queue_full"
    assert str(full) in answer.json()["detail"]

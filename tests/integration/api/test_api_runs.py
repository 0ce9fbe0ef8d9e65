"""Runs over HTTP: tickets in, a run as a tree, gates for people, one stream of events, and nobody else's eyes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from fastapi.testclient import TestClient

from ledger.events import EventKind
from producers.api.app import create_app
from producers.api.requests import Resources
from producers.console.web import Console, Sessions
from producers.use_cases.tenants import Scope, create_key, create_tenant
from routing.jobs import Reason, State
from sites.content_store import ContentStore
from sites.preview import PreviewSigner
from sites.repository import handover
from sites.repository.handover import branch_in
from tests.factories import Shop
from tests.integration.runs.run_world import PROJECT, Yard
from workers.attempt import Attempt
from workers.outcomes import Outcome

TICKET = {
    "project": "shop",
    "title": "Fix the broken header",
    "body": "It is stretched.",
    "labels": ["bug"],
    "url": "https://tracker.example/SHOP-17",
    "source": "linear",
}

FLAW = {"severity": "minor", "title": "A border is missing", "file": "src/header.ts", "line": 7, "detail": "See above."}


class Source:
    """The HTTP API of a yard."""

    def __init__(self, yard: Yard, client: TestClient) -> None:
        self.yard = yard
        self.client = client

    def headers(self, *scopes: str, tenant: str = "acme") -> dict[str, str]:
        with self.yard.shop.ledger.begin() as session:
            create_tenant(session, tenant)
            name = f"k{len(self.yard.shop.rows('SELECT 1 FROM api_key'))}"
            secret = create_key(session, tenant, name=name, scopes=scopes or tuple(Scope))
        return {"Authorization": f"Bearer {secret}"}

    def submit(self, **body: Any) -> UUID:
        answer = self.client.post("/v1/runs", headers=self.headers(), json={**TICKET, **body})
        assert answer.status_code == 202, answer.text
        return UUID(answer.json()["id"])

    def get(self, path: str) -> Any:
        answer = self.client.get(path, headers=self.headers())
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.fixture
def source(shop: Shop, tmp_path: Path) -> Iterator[Source]:
    yard = Yard(shop, tmp_path)
    resources = Resources(
        ledger=shop.ledger,
        submitter=yard.submitter,
        content_store=ContentStore(tmp_path / "content-store"),
        signer=PreviewSigner(["preview-key-of-the-tests-0123456789"]),
        policy=yard.policy,
        pages_url="http://pages.testserver",
        poll_seconds=0.02,
        runs_root=yard.resources.runs.root,
    )
    console = Console(Sessions(["console-key-of-the-tests-0123456789"]), public_url="http://testserver", audit_key=b"k")
    with TestClient(create_app(resources, console=console)) as client:
        yield Source(yard, client)


@pytest.mark.req("P-064", "S-121")
def test_a_ticket_becomes_a_run_with_an_estimate_and_the_cap_of_a_run(source: Source) -> None:
    answer = source.client.post("/v1/runs", headers=source.headers(), json=TICKET)
    assert answer.status_code == 202
    accepted = answer.json()
    assert (accepted["estimate"]["low_usd"], accepted["estimate"]["high_usd"]) == (2.0, 4.0)
    assert answer.headers["Location"] == accepted["url"]
    view = source.get(accepted["url"])
    assert view["ticket"] == {
        "title": "Fix the broken header",
        "labels": ["bug"],
        "source": "linear",
        "url": "https://tracker.example/SHOP-17",
        "body": "Fix the broken header\n\nIt is stretched.",
    }
    assert view["cost"]["cap_usd"] == "25.00"
    planned = {**TICKET, "batches": [["frontend-dev"], ["qa"]]}
    assert source.client.post("/v1/runs", headers=source.headers(), json=planned).status_code == 422


def test_the_same_key_gives_the_same_run_and_another_ticket_under_it_is_refused(source: Source) -> None:
    headers = {**source.headers(), "Idempotency-Key": "SHOP-17"}
    first = source.client.post("/v1/runs", headers=headers, json=TICKET).json()
    again = source.client.post("/v1/runs", headers=headers, json=TICKET).json()
    assert (again["id"], again["is_new"]) == (first["id"], False)
    other = source.client.post("/v1/runs", headers=headers, json={**TICKET, "title": "Another"})
    assert other.status_code == 409


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"project": "unknown"}, "project"),
        ({"title": ""}, "title"),
        ({"priority": "P9"}, "priority"),
        ({"labels": ["x"] * 51}, "labels"),
        ({"url": "javascript:alert(1)"}, "url"),
        ({"steps": []}, "steps"),
        ({"budget_usd": 26}, "budget_usd"),
    ],
)
def test_a_ticket_that_breaks_a_rule_is_refused_with_field_and_rule(
    source: Source, change: dict[str, Any], field: str
) -> None:
    answer = source.client.post("/v1/runs", headers=source.headers(), json={**TICKET, **change})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == field
    assert source.yard.shop.scalar("SELECT count(*) FROM run") == 0


@pytest.mark.req("P-062", "S-022", "S-068", "S-099", "S-122")
def test_a_run_is_told_as_a_tree_whose_costs_add_up(source: Source) -> None:
    run_id = source.submit(priority="P0")
    source.yard.play(run_id)
    view = source.get(f"/v1/runs/{run_id}")
    assert view["state"] == State.PUBLISHED
    assert [step["key"] for step in view["steps"]][:2] == ["plan_1", "fix-frontend"]
    assert view["gates_by_state"] == {"passed": 1}
    cost = view["cost"]
    assert sum(float(step["cost_usd"]) for step in view["steps"]) == pytest.approx(float(cost["spent_usd"]))
    for totals in (cost["by_agent"], cost["by_model"]):
        assert sum(float(total["cost_usd"]) for total in totals.values()) == pytest.approx(float(cost["spent_usd"]))
    assert {"orchestrator", "qa"} <= set(cost["by_agent"])
    assert set(cost["by_model"]) == {"claude-haiku-4-5-20251001"}
    assert cost["against_estimate"] == "below"
    assert cost["estimate"]["planned"]["basis"] == "plan"
    assert 0 < cost["orchestrator_share"] < 1
    bill = source.get(f"/v1/jobs/{run_id}")["bill"]
    assert bill["spent_usd"] == cost["spent_usd"]


@pytest.mark.req("P-056")
def test_one_stream_tells_everything_of_a_run_and_its_steps(source: Source) -> None:
    run_id = source.submit(priority="P0")
    source.yard.team.answers = {"fix-frontend": Reason.AGENT_FAILED}
    source.yard.play(run_id)
    events = source.get(f"/v1/jobs/{run_id}/events?format=json")
    failed = [event for event in events if event["kind"] == "run_step" and event["data"]["status"] == "failed"]
    assert [(event["step"], event["attempt"], event["run_id"]) for event in failed] == [
        ("fix-frontend", attempt, str(run_id)) for attempt in (1, 2, 3, 4)
    ]
    assert {event["step"] for event in events if event["kind"] == "call"} == {"plan_1", "fix-frontend"}
    assert [event["data"]["state"] for event in events if event["kind"] == "ended"][-1] == "failed"
    streamed = source.client.get(f"/v1/jobs/{run_id}/events", headers=source.headers())
    ids = [json.loads(line[6:])["id"] for line in streamed.text.splitlines() if line.startswith("data: ")]
    assert ids == [event["id"] for event in events]


def test_the_steps_of_a_run_are_no_jobs_of_their_own_in_lists_and_notify_nobody(source: Source) -> None:
    run_id = source.submit()
    source.yard.play(run_id)
    (listed,) = source.get("/v1/jobs")["jobs"]
    assert (listed["id"], listed["project"]) == (str(run_id), "shop")
    assert listed["spent_usd"] == source.get(f"/v1/runs/{run_id}")["cost"]["spent_usd"] != "0.00"
    assert source.yard.shop.scalar("SELECT count(*) FROM notification") == 1


def test_a_step_of_a_run_is_shown_as_the_job_that_it_is(source: Source) -> None:
    run_id = source.submit()
    source.yard.play(run_id)
    for execution in source.yard.executions(run_id):
        view = source.get(f"/v1/jobs/{execution.job_id}")
        assert (view["parent_id"], view["session"], view["round"]) == (str(run_id), str(run_id), 1)
        assert [one["id"] for one in view["rounds"]] == [str(run_id)]
        assert view["continued_as"] is None


@pytest.mark.req("S-101", "S-105")
def test_a_person_passes_a_gate_over_http_and_only_once(source: Source) -> None:
    run_id = source.submit(priority="P0")
    source.yard.settle()
    (gate,) = source.get("/v1/gates")
    assert gate["run_id"] == str(run_id)
    assert gate["facts"]["summaries"]["qa"] == "done"
    path = f"/v1/gates/{gate['id']}/pass"
    other = source.client.post(path, headers=source.headers("approve"), json={"head": "0" * 40})
    assert (other.status_code, other.json()["type"]) == (409, "urn:pointsman:problem:gate_refused_changed")
    looked_at = {"reason": "I looked.", "head": gate["facts"]["head"]}
    answer = source.client.post(path, headers=source.headers("approve"), json=looked_at)
    assert (answer.status_code, answer.json()["state"], answer.json()["note"]) == (200, "passed", "I looked.")
    again = source.client.post(path, headers=source.headers("approve"), json={})
    assert (again.status_code, again.json()["type"]) == (409, "urn:pointsman:problem:gate_refused_decided")
    assert source.get("/v1/gates") == []
    source.yard.settle()
    assert source.yard.job(run_id).state == State.PUBLISHED


@pytest.mark.req("S-112")
def test_what_a_gate_is_about_is_seen_before_it_is_decided(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    source.yard.team.answers["qa"] = {"status": "complete", "summary": "done", "issues": [FLAW]}
    run_id = source.submit(priority="P0")
    source.yard.settle()
    (open_gate,) = source.get("/v1/gates")
    gate = source.get(f"/v1/gates/{open_gate['id']}")
    assert (gate["state"], gate["facts"]["issues"]) == ("open", [FLAW])
    changed = source.get(f"/v1/runs/{run_id}/diff")
    assert any("+// " in file["diff"] for file in changed)
    made = next(step for step in source.yard.steps(run_id).values() if step.agent == "frontend-dev")
    assert source.get(f"/v1/runs/{run_id}/diff?step={made.key}") == changed
    assert source.get(f"/v1/runs/{run_id}/diff?step=qa") == []
    unknown = source.client.get(f"/v1/runs/{run_id}/diff?step=none", headers=source.headers())
    assert (unknown.status_code, unknown.json()["errors"][0]["field"]) == (422, "step")
    bundle = source.client.get(f"/v1/runs/{run_id}/bundle", headers=source.headers("read"))
    assert branch_in(bundle.content)[0] == f"pointsman/fix-the-broken-header-{run_id.hex[-8:]}"

    key = source.headers("read", "approve")["Authorization"].removeprefix("Bearer ")
    source.client.post("/console/login", data={"key": key})
    page = source.client.get(f"/console/runs/{run_id}").text
    assert "src/header.ts:7" in page
    assert FLAW["title"] in page
    assert f"/console/runs/{run_id}/changes" in page
    shown = source.client.get(f"/console/runs/{run_id}/changes").text
    assert '<span class="add">+// ' in shown
    saved = source.client.get(f"/console/runs/{run_id}/bundle")
    assert saved.content == bundle.content
    assert "attachment" in saved.headers["Content-Disposition"]

    source.client.post(f"/v1/gates/{gate['id']}/pass", headers=source.headers(), json={})
    assert source.get(f"/v1/runs/{run_id}/diff?since_last=true") == []
    assert source.get(f"/v1/runs/{run_id}/diff") == changed
    assert "Nothing has changed yet" in source.client.get(f"/console/runs/{run_id}/changes?since_last=true").text
    monkeypatch.setattr(handover, "MAX_BUNDLE_BYTES", 10)
    refused = source.client.get(f"/v1/runs/{run_id}/bundle", headers=source.headers())
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:pointsman:problem:handover_refused")
    shutil.rmtree(source.yard.resources.runs.root)
    assert source.client.get(f"/v1/runs/{run_id}/diff", headers=source.headers()).status_code == 404
    assert "The work of this run is gone" in source.client.get(f"/console/runs/{run_id}/changes").text


def test_a_run_s_page_shows_what_its_agents_say_and_do_while_they_do_it(source: Source) -> None:
    key = source.headers().get("Authorization", "").removeprefix("Bearer ")
    source.client.post("/console/login", data={"key": key})
    run_id, yard = source.submit(), source.yard
    pages: list[str] = []
    secret = f"sk-ant-api03-{'x' * 90}"

    def talk(attempt: Attempt) -> Outcome:
        assert attempt.step_order is not None
        if attempt.step_order.agent == "frontend-dev" and not pages:
            for text in ("Read src/app.ts", "I keep the <b>border</b>.", f"it says {secret}"):
                attempt.report(EventKind.PROGRESS, {"text": text})
            pages.append(source.client.get(f"/console/runs/{run_id}").text)
        return yard.step_handler(attempt)

    while yard.turn(handler=talk):
        pass
    (page,) = pages
    news = page.partition("What the agents say and do")[2]
    assert news.index("I keep the &lt;b&gt;border") < news.index("Read src/app.ts"), "the newest stands first"
    assert secret not in page
    assert page.count("live-bar") == 1
    after = source.client.get(f"/console/runs/{run_id}").text
    timeline = after.partition('id="timeline"')[2].partition("</section>")[0]
    assert "live-bar" not in timeline
    for agent in ("frontend-dev", "qa"):
        assert f">{agent}<" in timeline or f">{agent}" in timeline
    assert timeline.count('class="track"') == len(yard.executions(run_id))


def test_a_person_revises_an_ended_run_on_its_page(source: Source) -> None:
    run_id = source.submit()
    key = source.headers()["Authorization"].removeprefix("Bearer ")
    source.client.post("/console/login", data={"key": key})
    path = f"/console/jobs/{run_id}/revise"
    assert path not in source.client.get(f"/console/runs/{run_id}").text
    source.yard.settle()
    page = source.client.get(f"/console/runs/{run_id}").text
    assert path in page
    token = page.partition('name="form_token" value="')[2].partition('"')[0]
    form = {"text": "Use the brand colour in the header", "form_token": token}
    made = source.client.post(path, data=form, follow_redirects=False)
    second = made.headers["Location"].rpartition("/console/runs/")[2]
    assert source.get(f"/v1/runs/{run_id}")["continued_as"] == second
    assert source.get(f"/v1/runs/{second}")["parent_id"] == str(run_id)
    first = source.client.get(f"/console/runs/{run_id}").text
    assert path not in first
    assert f"/console/runs/{second}" in first


@pytest.mark.req("S-088", "S-073")
def test_a_project_is_added_over_http_and_told_what_is_wrong_by_line(source: Source) -> None:
    admin = source.headers("admin")
    good = source.client.post("/v1/projects", headers=admin, json={"name": "web", "file": PROJECT})
    assert (good.status_code, good.json()["name"]) == (201, "web")
    assert [project["name"] for project in source.get("/v1/projects")] == ["shop", "web"]
    bad = source.client.post("/v1/projects", headers=admin, json={"name": "web", "file": f"{PROJECT}color: red\n"})
    assert bad.status_code == 422
    assert "line 4" in bad.json()["detail"]
    other = PROJECT.replace("typescript", "cobol")
    bad = source.client.post("/v1/projects", headers=admin, json={"name": "web", "file": other})
    assert (bad.status_code, "made for javascript" in bad.json()["detail"]) == (422, True), bad.json()


@pytest.mark.req("S-065", "S-068")
def test_a_tenant_without_a_key_is_told_so_before_anything_starts(source: Source) -> None:
    headers = source.headers(tenant="poor")
    source.client.post("/v1/projects", headers=headers, json={"name": "shop", "file": PROJECT})
    answer = source.client.post("/v1/runs", headers=headers, json=TICKET)
    assert answer.status_code == 422
    assert "no key for provider anthropic" in answer.json()["errors"][0]["rule"]
    assert source.yard.shop.scalar("SELECT count(*) FROM job WHERE tenant = 'poor'") == 0

"""`resume` and `revise` over HTTP and on the command line: who may, what is answered, what is refused and how."""

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from ledger.attempts import lock_owned_job
from ledger.jobs import end
from ledger.releases import active_release, add_release
from ledger.tables import Site, Tenant
from routing.jobs import Reason, State
from sites.releases import build_release
from tests.command_line import Run, command_line
from tests.integration.api.http_world import HOME, PAGES, World, shared_ledger, world

__all__ = ["shared_ledger", "world"]  # fixtures

EDIT = {"prompt": "Change the heading to 'Cake'", "site": "bakery"}
TEXT = "Change the heading to 'Pie'"
CHANGED = {**PAGES, "index.html": HOME.replace(b"Bread", b"Cake")}


@pytest.fixture
def offered(world: World, tmp_path: Path) -> UUID:
    """A job whose preview waits for approval."""
    world.site("bakery", PAGES, tmp_path)
    job_id = world.submit(**EDIT)
    world.offer(job_id, CHANGED)
    return job_id


@pytest.fixture
def cut(world: World, tmp_path: Path) -> UUID:
    """A job that the cost cap ended, with what it had done kept."""
    world.site("bakery", PAGES, tmp_path)
    job_id = world.submit(**EDIT)
    taken = world.claim(job_id)
    with world.ledger.begin() as session:
        job = lock_owned_job(session, taken.attempt)
        site = session.get_one(Site, job.site_id)
        base = active_release(session, site)
        assert base is not None
        new = build_release(
            world.content_store, CHANGED, site=site, policy=world.policy, base_release_id=base.id, job_id=job.id
        )
        job.release_id = add_release(session, new).id
        facts = {"is_salvaged": True}
        end(session, job, State.BUDGET_EXCEEDED, reason=Reason.COST_CAP, detail="the job cap had no room", result=facts)
    return job_id


def post(world: World, job_id: UUID, verb: str, body: dict[str, Any], **headers: str) -> Any:
    return world.call("POST", f"/v1/jobs/{job_id}/{verb}", json=body, headers=headers)


def test_a_revision_is_accepted_as_a_new_job_of_the_same_session(world: World, offered: UUID) -> None:
    answer = post(world, offered, "revise", {"text": TEXT})
    assert answer.status_code == 202, answer.text
    found = answer.json()
    assert (found["parent_id"], found["session"], found["is_new"]) == (str(offered), str(offered), True)
    assert answer.headers["Location"] == found["url"] == f"/v1/jobs/{found['id']}"
    parent = world.call("GET", f"/v1/jobs/{offered}").json()
    assert (parent["state"], parent["reason"], parent["detail"]) == ("rejected", "revised", TEXT)
    assert (parent["continued_as"], parent["round"], parent["preview_url"]) == (found["id"], 1, None)
    child = world.call("GET", f"/v1/jobs/{found['id']}").json()
    assert (child["session"], child["round"], child["start_release_id"]) == (
        str(offered),
        2,
        parent["release_id"],
    )
    assert [(one["id"], one["verb"]) for one in child["rounds"]] == [(str(offered), None), (found["id"], "revise")]
    assert child["requested_by"].startswith(f"key:{world.tenant}/")


def test_a_resumed_job_is_accepted_with_the_added_budget(world: World, cut: UUID) -> None:
    found = post(world, cut, "resume", {"budget_usd": 0.25}).json()
    assert (found["cap_usd"], found["start_release_id"]) == ("0.25", str(world.job(cut).release_id))
    child = world.job(UUID(found["id"]))
    assert (child.prompt, child.tier, child.parent_id) == (EDIT["prompt"], world.job(cut).tier, cut)


@pytest.mark.parametrize("verb", ["resume", "revise"])
def test_the_header_s_key_makes_one_job_of_one_order(world: World, cut: UUID, verb: str) -> None:
    body: dict[str, Any] = {"budget_usd": 0.25} if verb == "resume" else {"text": TEXT}
    first, again = (post(world, cut, verb, body, **{"Idempotency-Key": "k-1"}) for _ in range(2))
    assert (first.status_code, again.status_code) == (202, 202)
    assert (first.json()["id"], first.json()["is_new"]) == (again.json()["id"], not again.json()["is_new"])
    other = post(world, cut, verb, {**body, "budget_usd": 0.3}, **{"Idempotency-Key": "k-1"})
    assert (other.status_code, other.json()["type"]) == (409, "urn:pointsman:problem:conflict")
    unlike = post(world, cut, verb, {**body, "idempotency_key": "k-2"}, **{"Idempotency-Key": "k-1"})
    assert (unlike.status_code, unlike.json()["errors"][0]["field"]) == (422, "idempotency_key")
    unkeyed = post(world, cut, verb, body)
    assert (unkeyed.status_code, unkeyed.json()["type"]) == (409, "urn:pointsman:problem:not_continuable_continued")
    assert first.json()["id"] in unkeyed.json()["detail"]


REFUSED: tuple[tuple[str, Any, str], ...] = (
    ("resume", {}, "budget_usd"),
    ("resume", {"budget_usd": 0}, "budget_usd"),
    ("resume", {"budget_usd": -1}, "budget_usd"),
    ("resume", {"budget_usd": 0.66}, "budget_usd"),
    ("resume", {"budget_usd": 1e308}, "budget_usd"),
    ("resume", {"budget_usd": 0.1, "tier": "agent"}, "tier"),
    ("resume", [], "body"),
    ("revise", {}, "text"),
    ("revise", {"text": "  "}, "text"),
    ("revise", {"text": "a\u0000b"}, "text"),
    ("revise", {"text": "\ud800"}, "text"),
    ("revise", {"text": "x" * 32_769}, "text"),
    ("revise", {"text": "Is it responsive?"}, "text"),
    ("revise", {"text": "the second one"}, "text"),
    ("revise", {"text": TEXT, "tier": "best"}, "tier"),
    ("revise", {"text": TEXT, "site": "other"}, "site"),
    ("revise", {"text": TEXT, "idempotency_key": ""}, "idempotency_key"),
)
"""Verb, body and the field that breaks a rule."""


def test_what_breaks_a_rule_is_refused_with_its_field_and_changes_nothing(world: World, cut: UUID) -> None:
    headers = world.headers()
    before = world.counts()
    for verb, body, field in REFUSED:
        answer = world.client.post(f"/v1/jobs/{cut}/{verb}", content=json.dumps(body), headers=headers)
        assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, field), (verb, body, answer.text)
        assert world.counts() == before, (verb, body)


def test_a_tenant_s_own_limit_bounds_what_a_resumed_job_gets(world: World, cut: UUID) -> None:
    with world.ledger.begin() as session:
        session.get_one(Tenant, world.tenant).overrides = {"budgets": {"job_usd": 0.2}}
    answer = post(world, cut, "resume", {"budget_usd": 0.25})
    assert (answer.status_code, answer.json()["errors"][0]["rule"]) == (
        422,
        "must not be more than 0.2, what one job may cost here",
    )


@pytest.mark.parametrize("verb", ["resume", "revise"])
def test_what_is_not_over_or_is_published_is_not_gone_on_from(world: World, tmp_path: Path, verb: str) -> None:
    world.site("bakery", PAGES, tmp_path)
    job_id = world.submit(**EDIT)
    body: dict[str, Any] = {"budget_usd": 0.25} if verb == "resume" else {"text": TEXT}
    waiting = post(world, job_id, verb, body)
    assert (waiting.status_code, waiting.json()["type"]) == (409, "urn:pointsman:problem:not_continuable_state")
    world.offer(job_id, CHANGED)
    assert world.call("POST", f"/v1/jobs/{job_id}/approve", json={}).status_code == 200
    world.publish(job_id)
    answer = post(world, job_id, verb, body)
    assert answer.status_code == 409
    assert "it is published" in answer.json()["detail"]


def test_a_tier_that_cannot_hold_the_work_is_refused_and_the_rules_go_no_lower(world: World, tmp_path: Path) -> None:
    package = b'{"name": "x", "scripts": {"build": "vite build"}}'
    world.site("bakery", PAGES, tmp_path)
    job_id = world.submit(**EDIT, tier="agent")
    world.offer(job_id, {**CHANGED, "package.json": package, "dist/index.html": CHANGED["index.html"]})
    refused = post(world, job_id, "revise", {"text": TEXT, "tier": "spec"})
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "tier")
    assert world.job(job_id).state == "awaiting_approval"
    found = post(world, job_id, "revise", {"text": TEXT}).json()
    assert (found["tier"], found["queue"]) == ("agent", "agent")
    assert found["why"] == "A code agent made the work so far, which has a build."


# ---------------------------------------------------------------- the command line


@pytest.fixture
def run(world: World) -> Run:
    url = world.ledger.engine.url.render_as_string(hide_password=False)
    places = {"content_store__root": world.den_root, "pages__public_url": "https://pages.example"}
    return command_line(url, "--tenant", world.tenant, **places)


def test_revise_on_the_command_line_shows_the_new_round(world: World, offered: UUID, run: Run) -> None:
    done = run("revise", offered, TEXT, "--json")
    assert done.exit_code == 0, done.output
    child = json.loads(done.stdout)
    assert (child["parent_id"], child["round"], child["source"]) == (str(offered), 2, "cli")
    shown = run("job", child["id"]).stdout
    assert f"round 1  {offered}  rejected" in shown
    assert "revise: Change the heading to 'Pie'" in shown
    assert "round 2 of 2" in shown
    again = run("revise", offered, TEXT)
    assert (again.exit_code, child["id"] in again.stderr) == (1, True)


def test_resume_on_the_command_line_says_what_it_starts_from(world: World, cut: UUID, run: Run) -> None:
    assert f"pointsman resume {cut} --budget USD" in run("job", cut).stdout
    refused = run("resume", cut, "--budget", "3")
    assert (refused.exit_code, "budget_usd: must not be more than 0.65" in refused.stderr) == (2, True)
    done = run("resume", cut, "--budget", "0.25")
    assert done.exit_code == 0, done.output
    assert f"starts from  release {world.job(cut).release_id}" in done.stdout
    assert "of $0.25" in done.stdout

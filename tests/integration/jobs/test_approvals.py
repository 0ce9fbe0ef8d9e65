"""An approval is for what was looked at, in time, by somebody who may; anything else is refused and changes nothing."""

from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from ledger.errors import ApprovalRefusedError
from ledger.job_control import approve
from ledger.record_tables import Approval
from ledger.tables import Tenant
from routing.errors import PolicyError
from routing.policy.platform import ProjectOverrides, lower, platform_policy
from tests.integration.api.http_world import HOME, PAGES, World, shared_ledger, world

__all__ = ["shared_ledger", "world"]

EDIT = {"prompt": "Change the headline to 'Fresh bread'", "site": "bakery"}
FOUR_EYES = {"approval": {"requester_may_approve": False}}


@pytest.fixture
def job_id(world: World, tmp_path: Path) -> UUID:
    """A job that waits for approval, asked for with the world's own key."""
    world.site("bakery", PAGES, tmp_path)
    submitted = world.submit(**EDIT)
    world.offer(submitted, {**PAGES, "new.html": HOME})
    return submitted


def judge(world: World, job_id: UUID, **body: Any) -> Any:
    return world.call("POST", f"/v1/jobs/{job_id}/approve", json=body)


def check_refused(world: World, job_id: UUID, answer: Any, *, status: int, reason: str) -> None:
    assert (answer.status_code, answer.json()["type"]) == (status, f"urn:pointsman:problem:approval_refused_{reason}")
    assert world.job(job_id).state == "awaiting_approval"
    with world.ledger.begin() as session:
        assert session.get(Approval, job_id) is None


@pytest.mark.req("H-083")
@pytest.mark.threat("H3")
def test_an_approval_of_another_release_or_another_report_is_refused(world: World, job_id: UUID) -> None:
    view = world.call("GET", f"/v1/jobs/{job_id}").json()
    good = {"release_id": view["release_id"], "report_digest": view["report_digest"]}
    answer = judge(world, job_id, **{**good, "release_id": str(uuid4())})
    check_refused(world, job_id, answer, status=409, reason="other_release")
    answer = judge(world, job_id, **{**good, "report_digest": "0" * 64})
    check_refused(world, job_id, answer, status=409, reason="other_report")
    assert judge(world, job_id, release="x").status_code == 422
    assert judge(world, job_id, **good).json()["state"] == "publishing"


@pytest.mark.threat("H3")
def test_an_approval_of_what_was_made_from_a_release_that_is_no_longer_live_is_refused(
    world: World, job_id: UUID, tmp_path: Path
) -> None:
    with world.ledger.begin() as session:  # or an import could not come between
        session.execute(text("UPDATE site SET lock_job_id = NULL WHERE tenant = :tenant"), {"tenant": world.tenant})
    world.site("bakery", {**PAGES, "other.html": HOME}, tmp_path)
    check_refused(world, job_id, judge(world, job_id), status=409, reason="site_moved_on")
    rejected = world.call("POST", f"/v1/jobs/{job_id}/reject", json={"reason": "moved on"})
    assert rejected.json()["state"] == "rejected"


@pytest.mark.req("H-083")
def test_after_its_time_nothing_is_approved_although_nobody_has_ended_it_yet(world: World, job_id: UUID) -> None:
    with world.ledger.begin() as session:
        late = text("UPDATE job SET expires_at = now() - interval '1 second' WHERE id = :id")
        session.execute(late, {"id": job_id})
    check_refused(world, job_id, judge(world, job_id), status=409, reason="expired")


@pytest.mark.threat("H6")
def test_an_approval_counts_once(world: World, job_id: UUID) -> None:
    assert judge(world, job_id).status_code == 200
    assert judge(world, job_id).status_code == 409
    world.publish(job_id)
    assert judge(world, job_id).status_code == 409
    with world.ledger.begin() as session:
        assert session.get_one(Approval, job_id).decision == "approved"
    assert world.job(job_id).state == "published"


def test_an_approval_is_undone_by_who_may_approve_while_its_publish_waits(world: World, job_id: UUID) -> None:
    before = world.call("GET", f"/v1/jobs/{job_id}").json()
    assert before["undo_until"] is None
    approved = judge(world, job_id, undo_seconds=60).json()
    assert (approved["state"], approved["undo_until"]) == ("publishing", approved["held_until"])
    assert approved["expires_at"] is None
    path = f"/v1/jobs/{job_id}/undo"
    assert world.client.post(path, headers=world.headers("read", "submit")).status_code == 403
    undone = world.client.post(path, headers=world.headers("approve")).json()
    assert (undone["state"], undone["undo_until"], undone["held_for"]) == ("awaiting_approval", None, None)
    assert undone["release_id"] == before["release_id"]
    assert undone["preview_url"]
    assert datetime.fromisoformat(undone["expires_at"]) >= datetime.fromisoformat(before["expires_at"])
    again = world.call("POST", path)
    assert (again.status_code, again.json()["type"]) == (409, "urn:pointsman:problem:not_undoable_state")
    assert judge(world, job_id).json()["undo_until"] is None
    late = world.call("POST", path)
    assert (late.status_code, late.json()["type"]) == (409, "urn:pointsman:problem:not_undoable_over")
    assert "roll the site back" in late.json()["detail"]
    world.publish(job_id)
    assert world.job(job_id).state == "published"


@pytest.mark.parametrize(
    ("verb", "body"),
    [("approve", {}), ("reject", {"reason": "no"}), ("revise", {"text": "Make it red"}), ("cancel", None)],
)
def test_what_is_approved_is_first_undone_and_then_decided_in_another_way(
    world: World, job_id: UUID, verb: str, body: dict[str, str] | None
) -> None:
    judge(world, job_id, undo_seconds=60)
    path = f"/v1/jobs/{job_id}/{verb}"
    assert world.call("POST", path, json=body).status_code == 409
    assert world.job(job_id).state == "publishing"
    world.call("POST", f"/v1/jobs/{job_id}/undo")
    assert world.call("POST", path, json=body).is_success
    after = {"approve": "publishing", "cancel": "cancelled"}
    assert world.job(job_id).state == after.get(verb, "rejected")


def test_another_tenant_undoes_nothing(world: World, job_id: UUID) -> None:
    judge(world, job_id, undo_seconds=60)
    stranger = world.headers("approve", tenant=f"{world.tenant}-b")
    assert world.client.post(f"/v1/jobs/{job_id}/undo", headers=stranger).status_code == 404
    assert world.job(job_id).state == "publishing"


@pytest.mark.parametrize("seconds", [-1, 61, 1.5, "soon"])
def test_a_publish_waits_from_none_to_sixty_whole_seconds(world: World, job_id: UUID, seconds: object) -> None:
    answer = judge(world, job_id, undo_seconds=seconds)
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "undo_seconds")
    assert world.job(job_id).state == "awaiting_approval"


@pytest.mark.threat("H6")
def test_where_policy_wants_four_eyes_the_requester_cannot_approve_and_another_can(world: World, job_id: UUID) -> None:
    requested_by = world.call("GET", f"/v1/jobs/{job_id}").json()["requested_by"]
    assert requested_by.startswith(f"key:{world.tenant}/")
    with world.ledger.begin() as session:
        session.get_one(Tenant, world.tenant).overrides = FOUR_EYES
    check_refused(world, job_id, judge(world, job_id), status=403, reason="own_request")
    second = world.client.post(f"/v1/jobs/{job_id}/approve", json={}, headers=world.headers("approve", "read"))
    assert (second.status_code, second.json()["state"]) == (200, "publishing")
    with world.ledger.begin() as session:
        assert session.get_one(Approval, job_id).actor not in (requested_by, "")


def test_where_a_tenants_limits_do_not_fit_the_policy_an_approval_says_so_and_decides_nothing(
    world: World, job_id: UUID
) -> None:
    with world.ledger.begin() as session:
        session.get_one(Tenant, world.tenant).overrides = {"queues": {"answer": {"llm_usd": 9}}}
    answer = judge(world, job_id)
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:pointsman:problem:limits_do_not_fit")
    assert world.job(job_id).state == "awaiting_approval"


@pytest.mark.threat("H6")
def test_a_platform_that_wants_four_eyes_wants_them_of_every_tenant(world: World, job_id: UUID) -> None:
    policy = platform_policy()
    rules = policy.approval.model_copy(update={"requester_may_approve": False})
    strict = policy.model_copy(update={"approval": rules})
    requester = world.job(job_id).requested_by
    with pytest.raises(ApprovalRefusedError, match="second person"), world.ledger.begin() as session:
        approve(session, job_id, actor=requester, policy=strict)
    assert world.job(job_id).state == "awaiting_approval"


def test_a_project_may_tighten_approval_and_never_loosen_it() -> None:
    policy = platform_policy()
    wanted = {"approval": {"hours": 1, "requester_may_approve": False}}
    tightened = lower(policy, ProjectOverrides.model_validate(wanted))
    assert (tightened.approval.hours, tightened.approval.requester_may_approve) == (1, False)
    assert tightened.approval.preview_hours == policy.approval.preview_hours
    with pytest.raises(PolicyError, match=r"approval\.hours"):
        lower(policy, ProjectOverrides.model_validate({"approval": {"hours": policy.approval.hours + 1}}))
    with pytest.raises(ValueError, match="requester_may_approve"):
        ProjectOverrides.model_validate({"approval": {"requester_may_approve": True}})


@pytest.mark.req("H-034")
def test_a_reviewer_sees_what_the_job_would_change_before_judging(world: World, job_id: UUID) -> None:
    found = world.call("GET", f"/v1/jobs/{job_id}/diff").json()
    assert (found["added"], found["removed"], found["changed"]) == (1, 0, 0)
    (change,) = found["changes"]
    assert (change["path"], change["status"]) == ("new.html", "added")
    assert "+++ b/new.html" in change["diff"]
    assert found["after"] == world.call("GET", f"/v1/jobs/{job_id}").json()["release_id"]


def test_a_job_that_offers_nothing_has_no_changes_to_show(world: World) -> None:
    waiting = world.submit(prompt="What is HPOS?")
    for part in ("diff", "scan"):
        refused = world.call("GET", f"/v1/jobs/{waiting}/{part}")
        assert (refused.status_code, refused.json()["detail"]) == (404, "the job has made no release")
    assert world.call("GET", f"/v1/jobs/{uuid4()}/diff").status_code == 404

"""The main job through real processes: three sources in, a published page out."""

from uuid import UUID

import httpx2
import pytest

from tests.acceptance.installation import Installation
from tests.services import wait_until

pytestmark = pytest.mark.timeout(180)


def test_a_direct_edit_is_previewed_approved_published_and_rolled_back(installation: Installation) -> None:
    installation.embedded.import_site("bakery")
    live = f"{installation.embedded.pages_url}/live/demo/bakery/"
    before = httpx2.get(live, trust_env=False, verify=False).text
    assert installation.http.get("/live/demo/bakery/").status_code == httpx2.codes.NOT_FOUND

    job_id = installation.submit("Change the hero heading to 'Bread since 1932'", site="bakery")
    waiting = installation.wait_for(job_id, "awaiting_approval")
    preview = httpx2.get(waiting["preview_url"], trust_env=False, verify=False)
    assert "Bread since 1932" in preview.text
    assert httpx2.get(live, trust_env=False, verify=False).text == before
    assert waiting["bill"]["spent_nanousd"] == 0

    installation.http.post(f"/v1/jobs/{job_id}/approve")
    installation.wait_for(job_id, "published")
    assert httpx2.get(live, trust_env=False, verify=False).text == preview.text

    installation.http.post("/v1/sites/bakery/rollback")
    assert httpx2.get(live, trust_env=False, verify=False).text == before


def test_an_edit_that_needs_the_model_is_billed_as_the_provider_logged_it(installation: Installation) -> None:
    from gateway.fake_provider.config import billed_nanousd, read_log
    from routing.policy.platform import platform_policy

    installation.embedded.import_site("model-edit")
    seen = len(read_log(installation.embedded.request_log))
    job_id = installation.submit("Add a short FAQ about opening hours and how to order ahead", site="model-edit")
    job = installation.wait_for(job_id, "awaiting_approval")
    logged = read_log(installation.embedded.request_log)[seen:]
    assert job["bill"]["spent_nanousd"] == sum(billed_nanousd(call, platform_policy().prices) for call in logged) > 0


@pytest.mark.req("H-011", "H-015")
def test_a_new_site_is_made_from_a_description_and_proofread(installation: Installation) -> None:
    job_id = installation.submit("A site for Ada's Bikes, a repair shop in Ghent", new_site="adas-bikes")
    job = installation.wait_for(job_id, "awaiting_approval")
    assert job["bill"]["calls"] == 2
    page = httpx2.get(job["preview_url"], trust_env=False, verify=False)
    assert page.status_code == httpx2.codes.OK
    assert "<main" in page.text


def test_a_client_that_knows_only_broker_and_task_name_gets_a_job_done(installation: Installation) -> None:
    job_id = installation.submit_by_celery("What is a sourdough starter?")
    job = installation.wait_for(job_id, "answered")
    assert UUID(job["id"]) == job_id
    assert job["source"] == "celery"
    assert job["answer"]


def test_a_refused_celery_message_becomes_a_rejected_job_under_its_own_id(installation: Installation) -> None:
    job_id = installation.submit_by_celery("Change the heading to 'Hi'", site="no-such-site")
    job = installation.wait_for(job_id, "rejected")
    assert job["reason"] == "invalid_request"
    assert "site:" in job["detail"]


@pytest.mark.req("R-066", "R-067")
def test_a_trivial_command_is_answered_without_a_model(installation: Installation) -> None:
    job = installation.wait_for(installation.submit("echo hello"), "answered")
    assert (job["queue"], job["answer"], job["bill"]["calls"]) == ("tools", "hello", 0)


def test_a_patch_of_a_page_s_files_is_previewed_and_published(
    installation: Installation,
) -> None:
    installation.embedded.import_site("patched")
    job_id = installation.submit("Add a hover effect to the cards", site="patched")
    job = installation.wait_for(job_id, "awaiting_approval")
    assert (job["queue"], job["tier"]) == ("patch", "patch")
    assert job["bill"]["calls"] == 1
    installation.http.post(f"/v1/jobs/{job_id}/approve")
    installation.wait_for(job_id, "published")


def test_a_tier_that_is_not_installed_says_so(installation: Installation) -> None:
    installation.embedded.import_site("needs-agent")
    job_id = installation.submit("Change the hero heading to 'Hi'", site="needs-agent", tier="agent")
    job = installation.wait_for(job_id, "failed")
    assert (job["queue"], job["reason"]) == ("agent", "not_available")
    assert "not available in this installation" in job["detail"]


def test_a_job_that_reaches_its_cost_cap_ends_there_and_never_above(installation: Installation) -> None:
    installation.embedded.import_site("capped")
    job_id = installation.submit("What do our pages say about prices and classes?", site="capped", budget_usd=0.009)
    job = installation.wait_for(job_id, "budget_exceeded")
    assert job["reason"] == "cost_cap"
    assert 0 < job["bill"]["spent_nanousd"] <= 9_000_000
    assert job["bill"]["reserved_nanousd"] == 0


def test_a_running_job_is_cancelled_at_its_next_chunk(installation: Installation) -> None:
    job_id = installation.submit("Explain how bread rises [rehearse:slow]")
    installation.wait_for(job_id, "running")
    assert installation.http.post(f"/v1/jobs/{job_id}/cancel").is_success
    job = installation.wait_for(job_id, "cancelled", seconds=10)
    assert job["bill"]["reserved_nanousd"] == 0


def test_the_exporter_counts_what_the_ledger_holds(installation: Installation) -> None:
    jobs = installation.http.get("/v1/jobs", params={"limit": 200}).json()["jobs"]
    ended = sum(1 for job in jobs if job["reason"] != "invalid_request" and job["ended_at"])

    def counted() -> float:
        text = httpx2.get(f"{installation.embedded.exporter_url}/metrics", trust_env=False, verify=False).text
        lines = [line for line in text.splitlines() if line.startswith("pointsman_jobs_finished_total")]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)

    # An event counts at the first scrape after all transactions that were open when it was written.
    wait_until(lambda: counted() >= ended, seconds=10, what="the exporter has counted every end")
    assert counted() == ended


def test_a_job_without_a_site_asks_for_one_and_is_done_by_the_reply(installation: Installation) -> None:
    for name in ("asked-cafe", "asked-florist"):
        installation.embedded.import_site(name)
    job_id = installation.submit("Change the hero heading to 'Fresh today'")
    asked = installation.wait_for(job_id, "clarifying")
    assert {"asked-cafe", "asked-florist"} <= {option["id"] for option in asked["clarification"]["options"]}

    reply = installation.http.post(f"/v1/jobs/{job_id}/reply", json={"text": "gribble grabble"}).json()
    assert (reply["handled"], installation.job(job_id)["state"]) == (True, "clarifying")
    reply = installation.http.post(f"/v1/jobs/{job_id}/reply", json={"text": "the asked-florist one please"}).json()
    assert reply["handled"] is True
    done = installation.wait_for(job_id, "awaiting_approval")
    assert (done["site"], done["bill"]["spent_nanousd"]) == ("asked-florist", 0)
    installation.http.post(f"/v1/jobs/{job_id}/reject", json={"reason": "seen"})

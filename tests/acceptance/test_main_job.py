"""The main job through real processes: what the demo, which `test_wheel` runs, does not show of it."""

import httpx2
import pytest

from tests.acceptance.installation import Installation

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


@pytest.mark.req("H-011", "H-015")
def test_a_new_site_is_made_from_a_description_and_proofread(installation: Installation) -> None:
    job_id = installation.submit("A site for Ada's Bikes, a repair shop in Ghent", new_site="adas-bikes")
    job = installation.wait_for(job_id, "awaiting_approval")
    assert job["bill"]["calls"] == 2
    page = httpx2.get(job["preview_url"], trust_env=False, verify=False)
    assert page.status_code == httpx2.codes.OK
    assert "<main" in page.text


@pytest.mark.req("R-066", "R-067")
def test_a_trivial_command_is_answered_without_a_model(installation: Installation) -> None:
    job = installation.wait_for(installation.submit("echo hello"), "answered")
    assert (job["queue"], job["answer"], job["bill"]["calls"]) == ("tools", "hello", 0)


def test_a_tier_that_is_not_installed_says_so(installation: Installation) -> None:
    installation.embedded.import_site("needs-agent")
    job_id = installation.submit("Change the hero heading to 'Hi'", site="needs-agent", tier="agent")
    job = installation.wait_for(job_id, "failed")
    assert (job["queue"], job["reason"]) == ("agent", "not_available")
    assert "not available in this installation" in job["detail"]


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

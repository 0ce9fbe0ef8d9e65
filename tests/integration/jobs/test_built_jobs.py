"""Jobs on sites with a build: which tier does them, and what each tier's scan allows; `npm` is the test's own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ledger.tables import Release
from producers.use_cases.sites import Sites
from routing.queues import Tier
from sandbox.errors import SandboxStartupError
from sites.releases import manifest_of
from tests.integration.jobs.test_agent_jobs import edit, maker, steps
from tests.integration.jobs.test_patch_jobs import COPIES, HOURS, PAGE, built_site, patch, plain_site
from tests.integration.jobs.test_spec_jobs import Rig, rig, servers
from tests.played_cli import LosingMaker, PlayedBox, PlayedMaker
from workers.handlers.agent import edit_with_agent
from workers.handlers.patch import patch_files
from workers.handlers.spec import edit_spec
from workers.lifecycle import Handler

__all__ = ["maker", "rig", "servers"]  # fixtures

SCRIPT = b"a(1);" * 12_000
"""More than the default profile's budget, and less than the interactive one's."""
GIVES_A_BUILD = """
init()
os.makedirs("src")
for name in ("index.html", "site.css"):
    os.rename(name, "src/" + name)
write("package.json", json.dumps({"scripts": {"build": "make"}}))
write("dist/index.html", "from the agent's own build")
write("dist/stale.html", "likewise")
result()
"""

NEVER_DONE = "import time\nopen('at-work', 'x').close()\ntime.sleep(60)"


def test_tier_1_hands_a_built_site_on_for_it_has_no_box(rig: Rig, tmp_path: Path) -> None:
    site, before = built_site(rig, tmp_path)
    job = rig.run(rig.shop.accept(prompt=HOURS, site_id=site, tier=Tier.SPEC), edit_spec)
    assert (job.state, job.queue) == ("queued", "patch")
    assert rig.calls() == []
    assert rig.shown(site) == before


@pytest.mark.req("H-028", "H-089")
def test_a_patch_has_one_box_and_only_for_a_build(rig: Rig, maker: PlayedMaker, tmp_path: Path) -> None:
    maker.program("npm", COPIES)
    rig.resources = replace(rig.resources, boxes=maker)
    (tmp_path / "plain").mkdir()
    plain = plain_site(rig, tmp_path / "plain")
    assert patch(rig, HOURS, plain).state == "awaiting_approval"
    assert maker.boxes == []
    (tmp_path / "built").mkdir()
    site, _ = built_site(rig, tmp_path / "built")
    assert patch(rig, HOURS, site).state == "awaiting_approval"
    assert [box.commands for box in maker.boxes] == [[("npm", "run", "build")]]


def test_a_build_that_is_known_to_be_slow_goes_to_tier_3_before_anything_is_paid(
    rig: Rig, maker: PlayedMaker, tmp_path: Path
) -> None:
    site, _ = built_site(rig, tmp_path)
    rig.resources = replace(rig.resources, boxes=maker)
    room = rig.shop.policy.patch.build_seconds
    for seconds, queue in ((room, None), (room + 1, "agent")):
        maker.program("npm", COPIES)
        rig.shop.execute("UPDATE release SET build_seconds = :seconds", seconds=seconds)
        calls = len(rig.calls())
        job = patch(rig, HOURS, site)
        if queue is None:
            assert job.state == "awaiting_approval"
            rig.shop.execute("UPDATE job SET state = 'rejected', ended_at = now(); UPDATE site SET lock_job_id = NULL")
        else:
            assert (job.state, job.queue) == ("queued", queue)
            assert rig.shop.rows("SELECT data->>'reason' FROM event WHERE kind = 'escalated'") == [("build_slow",)]
            assert len(rig.calls()) == calls


def test_how_long_a_build_took_stands_with_its_release(rig: Rig, maker: PlayedMaker, tmp_path: Path) -> None:
    maker.program("npm", f"import time\ntime.sleep(0.2)\n{COPIES}")
    site, _ = built_site(rig, tmp_path)
    rig.resources = replace(rig.resources, boxes=maker)
    job = patch(rig, HOURS, site)
    release: Release = rig.shop.find(Release, job.release_id)
    assert 0.2 < job.result["build"]["npm run build"] <= (release.build_seconds or 0)


def test_a_build_that_does_not_end_is_ended_with_its_tier_s_time(rig: Rig, maker: PlayedMaker, tmp_path: Path) -> None:
    maker.program("npm", "import time\ntime.sleep(60)")
    site, before = built_site(rig, tmp_path)
    limits = rig.shop.policy.queues
    short = limits[next(queue for queue in limits if queue == "patch")].model_copy(update={"soft_seconds": 11.0})
    rig.shop.policy = rig.shop.policy.model_copy(update={"queues": {**limits, "patch": short}})
    rig.resources = replace(rig.resources, boxes=maker, policy=rig.shop.policy)
    job = patch(rig, HOURS, site)
    assert (job.state, job.reason) == ("timed_out", "time_limit")
    assert "tier 3 leaves a build more" in str(job.detail)
    assert all(box.is_closed for box in maker.boxes)
    assert rig.shown(site) == before


def test_a_site_that_an_agent_gave_a_build_serves_what_the_build_wrote(
    rig: Rig, maker: PlayedMaker, tmp_path: Path
) -> None:
    maker.program("claude", GIVES_A_BUILD)
    maker.program("npm", COPIES)
    site = plain_site(rig, tmp_path)
    job = edit(rig, site, maker)
    assert (job.state, job.detail) == ("awaiting_approval", None)
    release: Release = rig.shop.find(Release, job.release_id)
    assert set(manifest_of(release).served) == {"index.html", "site.css"}
    assert rig.files(job.release_id)["dist/index.html"] == PAGE
    assert release.signals["has_build"] is True
    assert steps(rig, job).count("build") == 1


@pytest.mark.req("H-106")
@pytest.mark.parametrize(
    ("tier", "handler"), [(Tier.SPEC, edit_spec), (Tier.PATCH, patch_files), (Tier.AGENT, edit_with_agent)]
)
@pytest.mark.parametrize(("profile", "state"), [("interactive", "awaiting_approval"), ("default", "failed")])
def test_every_tier_is_held_to_the_profile_s_budget_of_javascript(
    rig: Rig, maker: PlayedMaker, tmp_path: Path, tier: Tier, handler: Handler, profile: str, state: str
) -> None:
    sites = Sites(rig.shop.ledger, rig.resources.content_store, rig.shop.policy)
    sites.create("acme", "cafe", profile="interactive")
    (tmp_path / "a.js").write_bytes(SCRIPT)
    site = plain_site(rig, tmp_path)
    sites.set_profile("acme", "cafe", profile)
    maker.program("claude", 'init()\nwrite("new.html", pathlib.Path("index.html").read_text())\nresult()')
    rig.resources = replace(rig.resources, boxes=maker)
    job = rig.run(rig.shop.accept(prompt=HOURS, site_id=site, tier=tier), handler)
    assert job.state == state, job.detail
    if state == "failed":
        assert (job.reason, "JavaScript than the profile allows" in str(job.detail)) == ("scan_refused", True)


class Full(PlayedMaker):
    """An engine without a place for a second box."""

    def acquire(self, asked: Any = (), *, image: Any = None, watch: Any = None) -> PlayedBox:
        if self.boxes:
            raise SandboxStartupError("no_subnet_left", "16 tries")
        return super().acquire()


@pytest.mark.parametrize("kind", [LosingMaker, Full])
def test_a_build_whose_box_fails_is_no_fault_of_the_site_and_keeps_the_work_that_was_paid_for(
    rig: Rig, maker: PlayedMaker, tmp_path: Path, kind: type[PlayedMaker]
) -> None:
    boxes = kind(maker.home, gateway_port=maker.spec.gateway.port)
    boxes.program("claude", GIVES_A_BUILD)
    boxes.program("npm", NEVER_DONE)
    job = edit(rig, plain_site(rig, tmp_path), boxes)
    assert (job.state, job.reason) == ("failed", "box_failed")
    assert "the files before it are kept" in str(job.detail)
    assert "src/index.html" in rig.files(job.release_id)
    assert all(box.is_closed for box in boxes.boxes)


def test_a_patch_is_kept_whose_build_lost_its_box(rig: Rig, maker: PlayedMaker, tmp_path: Path) -> None:
    boxes = LosingMaker(maker.home)
    boxes.program("npm", NEVER_DONE)
    site, before = built_site(rig, tmp_path)
    rig.resources = replace(rig.resources, boxes=boxes)
    job = patch(rig, HOURS, site)
    assert (job.state, job.reason) == ("failed", "box_failed")
    assert rig.files(job.release_id)["src/index.html"] == PAGE.replace(b"8 to 17", b"7 to 18")
    assert rig.shown(site) == before

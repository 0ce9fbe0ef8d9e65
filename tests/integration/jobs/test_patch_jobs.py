"""Tier 2 from claim to preview, through the real gateway, with the fake provider at the other end."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from gateway.fake_provider.config import billed_nanousd
from ledger.tables import Job, Release
from producers.use_cases.sites import Sites
from routing.decision.router import Signals, SiteSignals, decide
from routing.jobs import State
from routing.queues import QueueName, Tier
from routing.rounds import Verb, can_go_on
from sites.diff.apply import apply_diff
from sites.releases import manifest_of
from tests.integration.jobs.test_spec_jobs import BY_MODEL, Rig, rig, servers, watching
from tests.played_cli import PlayedMaker
from workers.handlers.patch import patch_files

__all__ = ["rig", "servers"]  # fixtures

PAGE = b"""<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Cafe</title><link rel="stylesheet" href="site.css"></head>
<body>
<main>
  <h1>Welcome</h1>
  <p>Open from 8 to 17.</p>
</main>
</body>
</html>
"""
STYLE = b"body { color: #222222; }\nh1 { color: #aa0000; }\n"
HOVER = "Make the h1 darker when the mouse is over it"


def plain_site(rig: Rig, folder: Path, name: str = "cafe", **more: bytes) -> UUID:
    for path, data in {"index.html": PAGE, "site.css": STYLE, **more}.items():
        (folder / path).write_bytes(data)
    Sites(rig.shop.ledger, rig.resources.content_store, rig.shop.policy).import_site("acme", name, folder)
    site_id: UUID = rig.shop.scalar("SELECT id FROM site WHERE name = :name", name=name)
    return site_id


def patch(rig: Rig, prompt: str, site_id: UUID, **fields: object) -> Job:
    job_id = rig.shop.accept(prompt=prompt, site_id=site_id, tier=Tier.PATCH, **fields)
    return rig.run(job_id, patch_files)


@pytest.mark.req("H-026", "H-027", "H-033", "H-035", "H-095", "H-108")
def test_a_model_s_patch_is_applied_by_rules_and_everything_else_stays(rig: Rig, tmp_path: Path) -> None:
    site = plain_site(rig, tmp_path)
    with watching() as seen:
        job = patch(rig, 'Change "Open from 8 to 17." to "Open from 7 to 18."', site)
    assert seen == [], "no process is started, whatever the model wrote"
    assert (job.state, job.result["how"]) == ("awaiting_approval", "a model's patch")
    assert job.result["patch"]["fuzz_name"] == "exact"
    files = rig.files(job.release_id)
    assert files == {"index.html": PAGE.replace(b"8 to 17", b"7 to 18"), "site.css": STYLE}
    assert rig.shown(site) == {"index.html": PAGE, "site.css": STYLE}
    (call,) = rig.calls()
    assert call.tools == ("patch_files",)
    spent = rig.shop.scalar("SELECT sum(cost_nanousd) FROM call WHERE job_id = :id", id=job.id)
    assert spent == billed_nanousd(call, rig.shop.policy.prices) > 0


@pytest.mark.req("H-034")
def test_the_diff_for_review_and_the_way_back_are_kept(rig: Rig, tmp_path: Path) -> None:
    job = patch(rig, "Make headings #003366", plain_site(rig, tmp_path))
    release: Release = rig.shop.find(Release, job.release_id)
    assert release.diff_sha256 is not None
    assert release.reverse_sha256 is not None
    diff, reverse = (rig.resources.content_store.get(sha) for sha in (release.diff_sha256, release.reverse_sha256))
    after = rig.files(job.release_id)
    assert (
        apply_diff({"index.html": PAGE, "site.css": STYLE}, diff).onto({"index.html": PAGE, "site.css": STYLE}) == after
    )
    assert apply_diff(after, reverse).onto(after) == {"index.html": PAGE, "site.css": STYLE}


@pytest.mark.req("H-036")
def test_what_a_patch_makes_is_scanned_before_anybody_sees_it(rig: Rig, tmp_path: Path) -> None:
    site = plain_site(rig, tmp_path)
    job = patch(
        rig,
        'Change "Open from 8 to 17." to "<script src=https://evil.example/x.js></script>" [rehearse:raw-html]',
        site,
    )
    assert (job.state, job.reason) == ("failed", "scan_refused")


@pytest.mark.parametrize(("tag", "end"), [("embeds-once", "awaiting_approval"), ("embeds", "failed")])
def test_what_the_scan_refuses_goes_back_to_the_model_once(rig: Rig, tmp_path: Path, tag: str, end: str) -> None:
    job = patch(rig, f"{HOVER} [rehearse:{tag}]", plain_site(rig, tmp_path))
    assert job.state == end
    first, second = rig.calls()
    assert second.input_tokens + second.cache_read_tokens + second.cache_write_tokens > first.input_tokens
    assert not can_go_on(Verb.RESUME, State(job.state), job.reason), "it would end so again"


@pytest.mark.req("H-069")
def test_a_patch_that_does_not_apply_is_repaired_once(rig: Rig, tmp_path: Path) -> None:
    job = patch(rig, f"{HOVER} [rehearse:misplaced-once]", plain_site(rig, tmp_path))
    assert job.state == "awaiting_approval"
    first, second = rig.calls()
    assert (first.rule, second.rule) == ("misplaced-once", "site-patch")
    assert second.input_tokens + second.cache_read_tokens + second.cache_write_tokens > first.input_tokens


def test_a_page_that_is_not_shown_is_shown_once_it_is_asked_for(rig: Rig, tmp_path: Path) -> None:
    """A site's pages that nothing in the request points to are only listed (issue 20)."""
    other = PAGE + b"<!-- " + b"long " * 4000 + b"-->"
    site = plain_site(rig, tmp_path, **{"other.html": other})
    job = patch(rig, f"{HOVER}, on index.html [rehearse:asks-for-a-file-once]", site)
    assert job.state == "awaiting_approval"
    first, second = rig.calls()
    assert (first.rule, second.rule) == ("asks-for-a-file-once", "site-patch")
    read = [call.input_tokens + call.cache_read_tokens + call.cache_write_tokens for call in (first, second)]
    assert read[1] > read[0] + 4000


def test_a_model_that_always_asks_for_files_gets_them_once(rig: Rig, tmp_path: Path) -> None:
    site = plain_site(rig, tmp_path, **{"other.html": PAGE})
    job = patch(rig, f"{HOVER} [rehearse:asks-for-a-file]", site)
    assert (job.state, job.queue) == ("queued", "agent")
    assert len(rig.calls()) == 3


@pytest.mark.req("H-037", "H-069", "H-122")
def test_a_patch_that_does_not_apply_after_its_repair_goes_to_tier_3_on_the_same_bill(rig: Rig, tmp_path: Path) -> None:
    site = plain_site(rig, tmp_path)
    job = patch(rig, f"{HOVER} [rehearse:misplaced]", site)
    assert (job.state, job.queue, job.tier, job.release_id) == ("queued", "agent", Tier.AGENT, None)
    assert len(rig.calls()) == 2
    assert rig.shop.rows("SELECT data->>'reason' FROM event WHERE kind = 'escalated'") == [("patch_invalid",)]
    spent = rig.shop.scalar("SELECT spent_nanousd FROM cap WHERE scope = 'job'")
    assert spent == sum(billed_nanousd(call, rig.shop.policy.prices) for call in rig.calls())


@pytest.mark.parametrize("tag", ["reaches-out", "plants"])
def test_a_patch_that_reaches_where_none_may_ends_the_job(rig: Rig, tmp_path: Path, tag: str) -> None:
    site = plain_site(rig, tmp_path)
    job = patch(rig, f"{HOVER} [rehearse:{tag}]", site)
    assert (job.state, job.reason) == ("failed", "patch_refused")
    assert len(rig.calls()) == 1
    assert rig.shown(site) == {"index.html": PAGE, "site.css": STYLE}


def test_a_patch_that_was_cut_off_is_not_applied(rig: Rig, tmp_path: Path) -> None:
    job = patch(rig, f"{HOVER} [rehearse:wordy]", plain_site(rig, tmp_path))
    assert (job.state, job.queue) == ("queued", "agent")


def built_site(rig: Rig, folder: Path, **package: object) -> tuple[UUID, dict[str, bytes]]:
    """A site whose pages a build copies into dist/; its npm is the test's own."""
    content = {"scripts": {"build": "make"}, **package}
    files = {
        "package.json": json.dumps(content).encode(),
        "src/index.html": PAGE,
        "src/site.css": STYLE,
        "dist/index.html": PAGE,
        "dist/site.css": STYLE,
        "dist/old.3f2a.css": b"p { color: red; }",
    }
    for path, data in files.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_bytes(data)
    Sites(rig.shop.ledger, rig.resources.content_store, rig.shop.policy).import_site("acme", "built", folder)
    site_id: UUID = rig.shop.scalar("SELECT id FROM site WHERE name = 'built'")
    return site_id, files


COPIES = """
import pathlib, sys
if sys.argv[1] == "run":
    pathlib.Path("dist").mkdir()
    for path in pathlib.Path("src").iterdir():
        pathlib.Path("dist", path.name).write_bytes(path.read_bytes())
"""
HOURS = 'Change "Open from 8 to 17." to "Open from 7 to 18."'


@pytest.mark.req("H-028")
def test_a_site_with_a_build_is_told_so_before_anything_is_paid(rig: Rig, tmp_path: Path) -> None:
    site, _ = built_site(rig, tmp_path)
    job = patch(rig, HOVER, site)
    assert (job.state, job.reason) == ("failed", "not_available")
    assert "build" in str(job.detail)
    assert rig.calls() == []


@pytest.mark.req("H-124")
def test_what_was_sent_to_the_wrong_tier_is_done_by_the_next_or_by_the_one_its_owner_names(rig: Rig) -> None:
    site = rig.site()
    signals = Signals(prompt=BY_MODEL, site=SiteSignals(files=4))
    assert decide(signals, rig.shop.policy).tier is Tier.SPEC
    job = rig.edit(f"{BY_MODEL} [rehearse:nothing]", site)
    assert (job.state, job.tier, job.queue) == ("queued", Tier.PATCH, "patch")
    job = rig.run(job.id, patch_files)
    assert (job.state, job.tier) == ("awaiting_approval", Tier.PATCH)
    overridden = decide(signals.model_copy(update={"tier": Tier.PATCH}), rig.shop.policy)
    assert (overridden.tier, overridden.queue) == (Tier.PATCH, QueueName.PATCH)


def test_what_tier_1_hands_on_is_done_by_tier_2_and_keeps_the_spec(rig: Rig) -> None:
    site = rig.site()
    job = rig.edit(f"{BY_MODEL} [rehearse:nothing]", site)
    assert job.queue == "patch"
    job = rig.run(job.id, patch_files)
    assert job.state == "awaiting_approval"
    base: Release = rig.shop.find(Release, job.base_release_id)
    made: Release = rig.shop.find(Release, job.release_id)
    assert made.spec_sha256 == base.spec_sha256
    assert job.result["patch"]["files"]


@pytest.fixture
def maker(rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> PlayedMaker:
    """Boxes in which npm is a program of the test's."""
    made = PlayedMaker(tmp_path_factory.mktemp("programs"))
    rig.resources = replace(rig.resources, boxes=made)
    return made


@pytest.mark.req("H-033", "H-080")
def test_a_patch_of_a_built_site_changes_its_source_and_the_build_writes_what_is_served(
    rig: Rig, maker: PlayedMaker, tmp_path: Path
) -> None:
    maker.program("npm", COPIES)
    site, before = built_site(rig, tmp_path)
    job = patch(rig, HOURS, site)
    assert (job.state, job.detail) == ("awaiting_approval", None)
    after = rig.files(job.release_id)
    page = PAGE.replace(b"8 to 17", b"7 to 18")
    assert after["src/index.html"] == after["dist/index.html"] == page
    assert "dist/old.3f2a.css" not in after, "nothing of an older build stays"
    release: Release = rig.shop.find(Release, job.release_id)
    assert manifest_of(release).public == "dist"
    assert set(manifest_of(release).served) == {"index.html", "site.css"}
    assert release.reverse_sha256 is not None
    assert apply_diff(after, rig.resources.content_store.get(release.reverse_sha256)).onto(after) == before
    assert len(rig.calls()) == 1
    (box,) = maker.boxes
    assert box.is_closed
    assert rig.shown(site) == before


@pytest.mark.parametrize(
    ("npm", "why"),
    [
        ("import sys\nprint('Cannot find src/menu.js', file=sys.stderr)\nsys.exit(1)", "Cannot find src/menu.js"),
        ("", "the build wrote no index.html into dist"),
    ],
)
def test_a_build_that_fails_ends_the_job_and_says_why(
    rig: Rig, maker: PlayedMaker, tmp_path: Path, npm: str, why: str
) -> None:
    maker.program("npm", npm)
    site, before = built_site(rig, tmp_path)
    job = patch(rig, HOURS, site)
    assert (job.state, job.reason) == ("failed", "build_failed")
    assert why in str(job.detail)
    assert rig.shown(site) == before


def test_a_directory_that_package_json_names_keeps_its_owner_s_pages_through_a_build(
    rig: Rig, maker: PlayedMaker, tmp_path: Path
) -> None:
    maker.program("npm", "import pathlib\npathlib.Path('dist/main.css').write_text('p { color: red; }')")
    site, before = built_site(rig, tmp_path, pointsman={"public": "dist"})
    job = patch(rig, 'Change "Open from 8 to 17." to "Open from 7 to 18." in dist/index.html', site)
    assert (job.state, job.detail) == ("awaiting_approval", None)
    after = rig.files(job.release_id)
    assert {path for path in after if path not in before} == {"dist/main.css"}
    assert b"7 to 18" in after["dist/index.html"]

"""Garbage collection over a real ledger and content store: space comes back, and nothing that is needed goes."""

from __future__ import annotations

import os
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import text

from ledger.errors import ReleaseSweptError
from ledger.tables import Release
from producers.dispatch.housekeeping import Collected, collect_garbage
from tests.integration.api.http_world import HOME, PAGES, PAGES_URL, World, shared_ledger, world

__all__ = ["shared_ledger", "world"]

EDIT = {"prompt": "Change the headline to 'Fresh bread'", "site": "bakery"}


def version(number: int) -> dict[str, bytes]:
    return {**PAGES, "index.html": HOME.replace(b"Bread", b"Bread %d" % number)}


def grow_old(world: World) -> None:
    """Let everything on record and on disk be two years old."""
    with world.ledger.begin() as session:
        for column in ("created_at", "published_at"):
            session.execute(text(f"UPDATE release SET {column} = {column} - interval '2 years'"))
    for path in world.den_root.rglob("*"):
        os.utime(path, (1_000_000, 1_000_000), follow_symlinks=False)


def collect(world: World, *, releases: int = 1, is_dry_run: bool = False) -> Collected:
    retention = world.policy.retention.model_copy(update={"releases": releases})
    policy = world.policy.model_copy(update={"retention": retention})
    return collect_garbage(world.ledger, world.content_store, policy, is_dry_run=is_dry_run)


@pytest.fixture
def history(world: World, tmp_path: Path) -> list[UUID]:
    """Five published releases of the site, the last one live; other tests' sites are out of the way."""
    collect(world)
    return [world.site("bakery", version(number), tmp_path).id for number in range(5)]


@pytest.mark.threat("H7")
def test_old_releases_give_up_their_files_and_say_so_while_live_and_previous_stay(
    world: World, history: list[UUID], tmp_path: Path
) -> None:
    sites = world.resources.sites
    grow_old(world)
    rehearsed = collect(world, is_dry_run=True)
    assert sites.read(world.tenant, "bakery", release=history[0])[1] == version(0)
    done = collect(world)
    assert done == rehearsed
    assert (done.releases, done.blobs, done.trees) == (3, 3, 3)
    assert collect(world)[1:] == (0, 0, 0, 0, 0)
    assert sites.read(world.tenant, "bakery")[1] == version(4)
    for gone in history[:3]:
        with pytest.raises(ReleaseSweptError, match="older than retention keeps them"):
            sites.rollback(world.tenant, "bakery", to=gone)
        with pytest.raises(ReleaseSweptError):
            sites.read(world.tenant, "bakery", release=gone)
        with pytest.raises(ReleaseSweptError):
            sites.diff(world.tenant, "bakery", gone)
    answer = world.call("POST", "/v1/sites/bakery/rollback", json={"release_id": str(history[0])})
    assert answer.status_code == 404
    listed = world.call("GET", "/v1/sites/bakery/releases").json()
    assert [item["is_swept"] for item in listed] == [False] * 2 + [True] * 3
    assert sites.rollback(world.tenant, "bakery").id == history[3]
    assert world.pages.get(f"/live/{world.tenant}/bakery/").content == version(3)["index.html"]


@pytest.mark.threat("H7")
def test_what_waits_for_approval_and_what_it_was_made_from_stay_however_old(world: World, history: list[UUID]) -> None:
    job_id = world.submit(**EDIT)
    world.offer(job_id, version(9))
    preview = world.call("GET", f"/v1/jobs/{job_id}").json()["preview_url"].removeprefix(PAGES_URL)
    grow_old(world)
    collect(world)
    assert world.pages.get(preview).content == version(9)["index.html"]
    world.call("POST", f"/v1/jobs/{job_id}/approve")
    collect(world)
    world.publish(job_id)
    assert world.job(job_id).state == "published"
    assert world.resources.sites.rollback(world.tenant, "bakery").id == history[-1]


def test_a_draft_that_nobody_wanted_goes_after_its_time(world: World, history: list[UUID]) -> None:
    job_id = world.submit(**EDIT)
    release = world.offer(job_id, version(77))
    world.call("POST", f"/v1/jobs/{job_id}/reject", json={"reason": "no"})
    assert collect(world, releases=9).releases == 0, "it is young"
    grow_old(world)
    assert collect(world, releases=9)[1:4] == (1, 1, len(version(77)["index.html"]))
    assert not world.content_store.exists(release.manifest["files"]["index.html"][0])
    assert world.active("bakery") == history[-1]


def test_a_sweep_is_on_record(world: World, history: list[UUID]) -> None:
    grow_old(world)
    collect(world)
    with world.ledger.begin() as session:
        query = text("SELECT detail FROM audit WHERE action = 'releases_swept' AND tenant = :tenant")
        (row,) = session.execute(query, {"tenant": world.tenant}).all()
    assert row.detail["releases"] == sorted(map(str, history[:3]))


@pytest.mark.threat("H7")
def test_a_release_keeps_its_spec_its_diff_and_whatever_else_its_record_names(
    world: World, history: list[UUID]
) -> None:
    named = {name: world.content_store.put(name.encode()) for name in Release.model_fields if name.endswith("_sha256")}
    assert {"spec_sha256", "diff_sha256", "reverse_sha256"} <= set(named)
    with world.ledger.begin() as session:
        for release_id in (history[0], history[-1]):
            session.get_one(Release, release_id).sqlmodel_update(named)
    grow_old(world)
    collect(world)
    assert {world.content_store.get(sha256) for sha256 in named.values()} == {name.encode() for name in named}


@pytest.mark.threat("H7")
def test_a_built_site_keeps_what_it_serves_and_its_sources(world: World, tmp_path: Path) -> None:
    package = b'{"scripts": {"build": "make"}}'
    files = {"package.json": package, "a.ts": b"x", **{f"dist/{path}": data for path, data in PAGES.items()}}
    world.site("cafe", files, tmp_path)
    grow_old(world)
    assert collect(world).trees == 0
    shown = world.den_root / "sites" / f"{world.tenant}_cafe" / "active"
    assert {str(path.relative_to(shown)) for path in shown.rglob("*") if path.is_file()} == set(PAGES)
    assert world.resources.sites.read(world.tenant, "cafe", with_sources=True)[1] == files

"""`pointsman site ...` as an operator types it, on a real ledger and a real content store."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from producers.errors import ImportRefusedError
from producers.use_cases.sites import Sites
from producers.use_cases.tenants import create_tenant
from sites.content_store import ContentStore
from sites.directories import read_directory
from tests.command_line import Run, command_line
from tests.factories import Shop
from tests.integration.api.http_world import HOME, PAGES, write_files

CHANGED = {**PAGES, "index.html": HOME.replace(b"Bread", b"Cake"), "new.html": HOME}


@pytest.fixture
def run(shop: Shop, tmp_path: Path) -> Run:
    with shop.ledger.begin() as session:
        create_tenant(session, "demo")
    places = {"content_store__root": tmp_path / "content-store", "pages__public_url": "https://pages.example"}
    return partial(command_line(shop.url, **places), "site")


@pytest.fixture
def publish(shop: Shop, run: Run, tmp_path: Path) -> Callable[[str, Path], object]:
    """Publish a directory as a site."""
    sites = Sites(shop.ledger, ContentStore(tmp_path / "content-store"), shop.policy)
    return partial(sites.import_site, "demo")


@pytest.fixture
def bakery(run: Run, publish: Callable[[str, Path], object], tmp_path: Path) -> list[str]:
    """A site with two releases: their ids, first published first."""
    for number, files in enumerate((PAGES, CHANGED)):
        write_files(tmp_path / f"v{number}", files)
        publish("bakery", tmp_path / f"v{number}")
    return [item["id"] for item in reversed(json.loads(run("releases", "bakery", "--json").stdout))]


@pytest.mark.threat("E")
@pytest.mark.parametrize("kind", ["link_out", "linked_directory", "fifo", "planted", "sparse", "case", "device_name"])
def test_what_the_wall_refuses_in_a_directory_is_one_clear_line(run: Run, tmp_path: Path, kind: str) -> None:
    root = tmp_path / "in"
    write_files(root, PAGES)
    make: dict[str, Callable[[], Any]] = {
        "link_out": lambda: (root / "x.txt").symlink_to("/etc/passwd"),
        "linked_directory": lambda: (root / "d").symlink_to(tmp_path, target_is_directory=True),
        "fifo": lambda: os.mkfifo(root / "pipe"),
        "planted": lambda: write_files(root, {".npmrc": b"registry=x"}),
        "sparse": lambda: os.truncate(root / "style.css", 10**10),
        "case": lambda: write_files(root, {"INDEX.html": HOME}),
        "device_name": lambda: write_files(root, {"con.html": HOME}),
    }
    make[kind]()
    done = run("import", "bakery", root)
    assert done.exit_code == 1, done.output
    assert "refused" in done.stderr
    assert "Traceback" not in done.output
    assert "bakery" not in run("list").stdout


def test_a_comparison_tells_what_the_last_publish_changed_and_any_two_releases(run: Run, bakery: list[str]) -> None:
    done = run("diff", "bakery")
    assert done.exit_code == 0
    assert "1 added, 0 removed, 1 changed" in done.stdout
    assert "+++ b/index.html" in done.stdout
    found = json.loads(run("diff", "bakery", bakery[1], bakery[0], "--json").stdout)
    assert (found["before"], found["after"], found["removed"]) == (bakery[1], bakery[0], 1)
    assert [change["path"] for change in found["changes"]] == ["index.html", "new.html"]
    assert run("diff", "bakery", "no-uuid").exit_code == 2
    missing = run("diff", "bakery", "6b1b1f0e-0000-4000-8000-000000000000")
    assert (missing.exit_code, missing.stderr.splitlines()) == (
        1,
        ["pointsman: the site has no such published release; `pointsman site releases NAME` lists them"],
    )


def test_a_rollback_goes_to_the_release_before_or_to_the_one_that_is_named(
    run: Run, bakery: list[str], tmp_path: Path
) -> None:
    assert run("rollback", "bakery").stdout == f"bakery shows release {bakery[0]} again\n"
    assert run("rollback", "bakery").exit_code == 1
    assert json.loads(run("rollback", "bakery", bakery[1][-8:], "--json").stdout)["id"] == bakery[1]
    assert run("export", "bakery", tmp_path / "out").exit_code == 0
    assert read_directory(tmp_path / "out", max_bytes=10**7, max_files=99) == CHANGED
    assert run("export", "bakery", tmp_path / "out0", "--release", bakery[0][-8:]).exit_code == 0
    assert read_directory(tmp_path / "out0", max_bytes=10**7, max_files=99) == PAGES
    taken = run("export", "bakery", tmp_path / "out")
    assert taken.exit_code == 2
    assert "never overwrites" in taken.stderr


def test_an_export_names_its_release_and_a_site_without_one_says_so(
    run: Run, shop: Shop, bakery: list[str], tmp_path: Path
) -> None:
    assert run("export", "bakery", tmp_path / "out").stdout == f"wrote release {bakery[1]} to {tmp_path / 'out'}\n"
    assert run("create", "new").exit_code == 0
    taken = run("export", "new", tmp_path / "none")
    assert (taken.exit_code, taken.stderr) == (1, "pointsman: new has no release yet\n")
    assert not (tmp_path / "none").exists()


def test_sites_are_listed_with_their_live_page_and_whether_it_is_shown(run: Run, shop: Shop, bakery: list[str]) -> None:
    (site,) = json.loads(run("list", "--json").stdout)
    assert site["live_url"] == "https://pages.example/live/demo/bakery/"
    assert (site["active_release_id"], site["is_shown"]) == (bakery[1], True)
    assert "lags" not in run("list").stdout
    shop.execute("UPDATE site SET shown_release_id = NULL")
    assert "lags" in run("list").stdout


@pytest.mark.threat("H7")
def test_garbage_collection_first_tells_and_then_does(run: Run, shop: Shop, bakery: list[str], tmp_path: Path) -> None:
    shop.execute("UPDATE release SET created_at = created_at - interval '2 years'")
    shop.execute("UPDATE release SET published_at = published_at - interval '2 years'")
    (tmp_path / "content-store" / "blobs" / "aa").mkdir(exist_ok=True)
    (tmp_path / "content-store" / "blobs" / "aa" / ("a" * 64)).write_bytes(b"nobody's")
    for path in (tmp_path / "content-store").rglob("*"):
        os.utime(path, (1_000_000, 1_000_000), follow_symlinks=False)
    told = json.loads(run("gc", "--dry-run", "--json").stdout)
    assert (told["dry_run"], told["sites"], told["releases"], told["blobs"]) == (True, 1, 0, 1)
    assert run("gc").stdout.startswith("removed 0 releases of 1 sites: 1 files of 8 bytes, ")
    assert json.loads(run("gc", "--json").stdout)["blobs"] == 0
    assert run("rollback", "bakery").exit_code == 0


def test_links_are_revoked_for_a_whole_site_or_one_release(run: Run, bakery: list[str]) -> None:
    assert json.loads(run("revoke-previews", "bakery", "--json").stdout) == {"releases": 2}
    assert json.loads(run("revoke-previews", "bakery", "--release", bakery[0], "--json").stdout) == {"releases": 1}
    assert run("revoke-previews", "nowhere").exit_code == 1


BUILT = {
    "package.json": b'{"scripts": {"build": "make"}}',
    "src/main.ts": b"let a: number = 1",
    "dist/index.html": HOME,
    "dist/style.css": PAGES["style.css"],
    "node_modules/three/index.js": b"x",
}
SERVED = {path.removeprefix("dist/"): data for path, data in BUILT.items() if path.startswith("dist/")}


def test_of_a_built_site_what_is_served_is_exported_and_with_sources_what_an_import_takes(
    run: Run, publish: Callable[[str, Path], object], tmp_path: Path
) -> None:
    write_files(tmp_path / "in", BUILT)
    publish("cafe", tmp_path / "in")
    assert json.loads(run("releases", "cafe", "--json").stdout)[0]["public"] == "dist"
    assert run("export", "cafe", tmp_path / "served").exit_code == 0
    assert run("export", "cafe", tmp_path / "all", "--sources").exit_code == 0
    read = {out: read_directory(tmp_path / out, max_bytes=10**6, max_files=99) for out in ("served", "all")}
    assert read["served"] == SERVED
    assert read["all"] == {path: data for path, data in BUILT.items() if "node_modules" not in path}
    publish("again", tmp_path / "all")


@pytest.mark.req("H-106")
def test_a_site_is_judged_by_the_profile_that_it_was_given(
    run: Run, publish: Callable[[str, Path], object], tmp_path: Path
) -> None:
    write_files(tmp_path / "in", {"index.html": HOME, "style.css": PAGES["style.css"], "a.js": b"a(1);" * 12_000})
    assert run("create", "cafe").exit_code == 0
    with pytest.raises(ImportRefusedError, match="js-raw-bytes"):
        publish("cafe", tmp_path / "in")
    assert run("profile", "cafe", "interactive").exit_code == 0
    publish("cafe", tmp_path / "in")
    refused = run("profile", "cafe", "nothing")
    assert (refused.exit_code, "must be one of default, interactive, static" in refused.stderr) == (2, True)
    assert run("create", "other", "--profile", "interactive").exit_code == 0
    publish("other", tmp_path / "in")

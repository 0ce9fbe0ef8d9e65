"""Sites as their owner handles them, on a real ledger and a real content store."""

from __future__ import annotations

import io
import json
import os
import tarfile
import threading
from importlib import resources
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import select
from sqlmodel import col

from ledger.errors import PublishConflictError, ReleaseNotFoundError, SiteNotFoundError
from ledger.record_tables import AuditRow
from ledger.releases import activate, add_release, add_site, find_site, published_release
from ledger.tables import Release
from producers.errors import ImportRefusedError, InvalidInputError, SiteConflictError, UnknownTenantError
from producers.use_cases.sites import Sites
from sites.directories import read_directory, write_directory
from sites.errors import PathRefusedError, ReleaseAlteredError, SpecError, TreeRefusedError
from sites.releases import build_release, manifest_of
from sites.spec.fonts.families import font_files
from tests.integration.api.http_world import HOME, PAGES, World, shared_ledger, world, write_files

__all__ = ["shared_ledger", "world"]

NEW_PAGES = {**PAGES, "index.html": HOME.replace(b"Bread", b"Cake"), "about.html": HOME}
SPEC = json.dumps(
    {
        "root": "page",
        "elements": {
            "page": {"type": "Page", "props": {"title": "Bakery"}, "children": ["hero"]},
            "hero": {"type": "Hero", "props": {"heading": "Fresh bread"}, "children": []},
        },
    }
).encode()
EDIT = {"prompt": "Change the headline to 'Fresh bread'", "site": "bakery"}


@pytest.fixture
def sites(world: World) -> Sites:
    return world.resources.sites


def exported(sites: Sites, world: World, out: Path) -> dict[str, bytes]:
    write_directory(sites.read(world.tenant, "bakery")[1], out)
    return read_directory(out, max_bytes=10**7, max_files=1000)


def projected(world: World) -> dict[str, bytes]:
    """What a web server would show of the site."""
    root = (world.den_root / "sites" / f"{world.tenant}_bakery" / "active").resolve()
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def audited(world: World, action: str) -> list[AuditRow]:
    with world.ledger.begin() as session:
        rows = select(AuditRow).where(col(AuditRow.tenant) == world.tenant, col(AuditRow.action) == action)
        return list(session.scalars(rows.order_by(col(AuditRow.seq))).all())


# ---------------------------------------------------------------- import and export


def test_plain_files_come_out_as_they_went_in_and_are_active_and_projected(
    world: World, sites: Sites, tmp_path: Path
) -> None:
    release = world.site("bakery", PAGES, tmp_path)
    assert world.active("bakery") == release.id
    assert release.spec_sha256 is None
    assert exported(sites, world, tmp_path / "out") == PAGES == projected(world)
    (row,) = audited(world, "site_imported")
    assert (row.detail["release"], row.detail["digest"]) == (str(release.id), release.digest)


def test_the_site_that_ships_with_the_product_is_imported_as_a_spec_with_its_assets(
    world: World, sites: Sites, tmp_path: Path
) -> None:
    shipped = Path(str(resources.files("producers.local") / "demo_site"))
    copy = tmp_path / "demo"
    write_files(
        copy, {k: v for k, v in read_directory(shipped, max_bytes=10**7, max_files=1000).items() if k[-3:] != ".py"}
    )
    release = sites.import_site(world.tenant, "bakery", copy)
    assert release.spec_sha256 is not None
    names = set(manifest_of(release))
    assert {"index.html", "styles.css"} <= names
    assert "site.json" not in names
    assert all((copy / name).read_bytes() == data for name, data in projected(world).items() if (copy / name).exists())


def test_an_exported_spec_site_can_be_imported_again_without_a_change(
    world: World, sites: Sites, tmp_path: Path
) -> None:
    release = world.site(
        "bakery", {"site.json": SPEC, "logo.svg": b"<svg xmlns='http://www.w3.org/2000/svg'/>"}, tmp_path
    )
    out = tmp_path / "out"
    assert {"site.json", "index.html"} < exported(sites, world, out).keys()
    again = sites.import_site(world.tenant, "copy", out)
    assert (again.digest, again.spec_sha256) == (release.digest, release.spec_sha256)


def test_fonts_are_published_with_their_site_kept_by_browsers_for_a_year_and_exported_with_it(
    world: World, sites: Sites, tmp_path: Path
) -> None:
    spec = json.loads(SPEC)
    spec["elements"]["page"]["props"]["theme"] = {"headings": "fraunces-1", "text": "inter-1"}
    release = world.site("bakery", {"site.json": json.dumps(spec).encode()}, tmp_path)
    fonts = font_files(["fraunces-1", "inter-1"])
    assert fonts.items() <= projected(world).items()
    assert release.scan_passed
    for path, kind in (("fonts/inter-1.woff2", "font/woff2"), ("index.html", "text/html; charset=utf-8")):
        answer = world.pages.get(f"/live/{world.tenant}/bakery/{path}")
        kept = "public, max-age=31536000, immutable" if path in fonts else "no-cache"
        assert (answer.status_code, answer.headers["content-type"], answer.headers["cache-control"]) == (
            200,
            kind,
            kept,
        )
        assert "font-src 'self'" in answer.headers["content-security-policy"]
        assert answer.headers["access-control-allow-origin"] == "*", "a page in a sandbox is of no origin"
    out = tmp_path / "out"
    assert fonts.items() <= exported(sites, world, out).items()
    for path in fonts:
        (out / path).unlink()
    assert sites.import_site(world.tenant, "copy", out).digest == release.digest


@pytest.mark.req("H-114")
def test_what_the_scan_refuses_is_not_imported_and_nothing_changes(world: World, sites: Sites, tmp_path: Path) -> None:
    before = world.site("bakery", PAGES, tmp_path)
    rows = world.counts()["release"]
    bad = HOME + b"<script src=https://evil.example/x.js></script>"
    with pytest.raises(ImportRefusedError, match=r"findings: \d+\n  index\.html:\d+: ") as refusal:
        world.site("bakery", {**PAGES, "index.html": bad}, tmp_path)
    assert refusal.value.findings
    with pytest.raises(ImportRefusedError, match=r"package\.json:0: not-built"):
        world.site("bakery", {"package.json": b'{"scripts": {"build": "make"}}', "index.html": HOME}, tmp_path)
    assert world.active("bakery") == before.id
    assert world.counts()["release"] == rows
    assert projected(world) == PAGES


def test_a_spec_that_is_invalid_and_an_empty_directory_are_refused(world: World, sites: Sites, tmp_path: Path) -> None:
    with pytest.raises(SpecError):
        world.site("bakery", {"site.json": b'{"root": "nothing", "elements": {}}'}, tmp_path)
    (tmp_path / "nothing").mkdir()
    with pytest.raises(TreeRefusedError, match="at least one file"):
        sites.import_site(world.tenant, "bakery", tmp_path / "nothing")
    assert sites.all(world.tenant) == []


def test_links_and_planted_configuration_are_refused(world: World, sites: Sites, tmp_path: Path) -> None:
    directory = tmp_path / "linked"
    write_files(directory, PAGES)
    os.symlink("/etc/passwd", directory / "passwd.txt")
    with pytest.raises(TreeRefusedError, match="symlink"):
        sites.import_site(world.tenant, "bakery", directory)
    with pytest.raises((TreeRefusedError, PathRefusedError)):
        world.site("bakery", {**PAGES, ".env": b"KEY=1"}, tmp_path)
    with pytest.raises(TreeRefusedError):
        sites.import_site(world.tenant, "bakery", tmp_path / "missing")


def test_names_profiles_and_tenants_are_checked(world: World, sites: Sites, tmp_path: Path) -> None:
    for name in ("../x", "A", ""):
        with pytest.raises(InvalidInputError, match="name: must be"):
            sites.create(world.tenant, name)
    with pytest.raises(InvalidInputError, match="profile: must be one of default"):
        sites.create(world.tenant, "bakery", profile="lax")
    with pytest.raises(UnknownTenantError):
        sites.create("nobody", "bakery")
    sites.create(world.tenant, "bakery")
    with pytest.raises(SiteConflictError, match="exists already"):
        sites.create(world.tenant, "bakery")
    assert [row.detail["site"] for row in audited(world, "site_created")] == ["bakery"]


@pytest.mark.req("H-073")
def test_a_site_that_a_job_is_writing_is_not_imported_over(world: World, sites: Sites, tmp_path: Path) -> None:
    before = world.site("bakery", PAGES, tmp_path)
    job_id = world.submit(**EDIT)
    world.claim(job_id)
    with pytest.raises(SiteConflictError, match=str(job_id)):
        world.site("bakery", NEW_PAGES, tmp_path)
    assert world.active("bakery") == before.id
    world.call("POST", f"/v1/jobs/{job_id}/cancel")


# ---------------------------------------------------------------- releases, comparison, rollback


def test_a_comparison_shows_added_removed_and_changed_files(world: World, sites: Sites, tmp_path: Path) -> None:
    before = world.site("bakery", PAGES, tmp_path)
    after = world.site("bakery", {k: v for k, v in NEW_PAGES.items() if k != "style.css"}, tmp_path)
    found = sites.diff(world.tenant, "bakery", before.id, after.id)
    assert (found.added, found.removed, found.changed) == (1, 1, 1)
    changes = {change.path: change for change in found.changes}
    assert {path: change.status for path, change in changes.items()} == {
        "about.html": "added",
        "index.html": "changed",
        "style.css": "removed",
    }
    assert changes["index.html"].diff is not None
    assert "+++ b/index.html" in changes["index.html"].diff
    assert sites.diff(world.tenant, "bakery", after.id, after.id).changes == ()
    assert sites.diff(world.tenant, "bakery") == found, "by default, what the last publish changed"
    first = sites.diff(world.tenant, "bakery", after=before.id)
    assert (first.before, first.added) == (None, len(PAGES))
    with pytest.raises(ReleaseNotFoundError):
        sites.diff(world.tenant, "bakery", before.id, uuid4())


def test_rollback_steps_back_and_history_keeps_its_order(world: World, sites: Sites, tmp_path: Path) -> None:
    one = world.site("bakery", PAGES, tmp_path)
    two = world.site("bakery", NEW_PAGES, tmp_path)
    three = world.site("bakery", {**NEW_PAGES, "more.html": HOME}, tmp_path)
    order = [release.id for release in sites.releases(world.tenant, "bakery")[1]]
    assert order == [three.id, two.id, one.id]
    assert sites.rollback(world.tenant, "bakery").id == two.id == world.active("bakery")
    assert projected(world) == NEW_PAGES
    assert sites.rollback(world.tenant, "bakery").id == one.id
    assert projected(world) == PAGES
    with pytest.raises(SiteConflictError, match="no earlier release"):
        sites.rollback(world.tenant, "bakery")
    assert sites.rollback(world.tenant, "bakery", to=three.id).id == three.id
    assert [release.id for release in sites.releases(world.tenant, "bakery")[1]] == order
    assert [row.detail["release"] for row in audited(world, "rolled_back")] == [
        str(i) for i in (two.id, one.id, three.id)
    ]


def test_rollback_over_http_changes_what_is_served(world: World, tmp_path: Path) -> None:
    one = world.site("bakery", PAGES, tmp_path)
    world.site("bakery", NEW_PAGES, tmp_path)
    live = f"/live/{world.tenant}/bakery/"
    assert world.pages.get(live).content == NEW_PAGES["index.html"]
    answer = world.call("POST", "/v1/sites/bakery/rollback")
    assert (answer.status_code, answer.json()["id"], answer.json()["is_active"]) == (200, str(one.id), True)
    assert world.pages.get(live).content == PAGES["index.html"]
    assert world.pages.get(f"{live}about.html").status_code == 404
    assert world.call("POST", "/v1/sites/bakery/rollback").status_code == 409
    releases = world.call("GET", "/v1/sites/bakery/releases").json()
    assert [(item["id"] == str(one.id), item["is_active"]) for item in releases] == [(False, False), (True, True)]
    assert releases[0]["files"] == len(NEW_PAGES)
    (site,) = world.call("GET", "/v1/sites").json()
    assert (site["name"], site["active_release_id"]) == ("bakery", str(one.id))
    assert world.pages.get(site["live_url"]).content == PAGES["index.html"]


@pytest.mark.parametrize(
    ("body", "status"),
    [({"release_id": str(uuid4())}, 404), ({"release_id": "x"}, 422), ({"to": "x"}, 422), ([], 422)],
)
def test_a_rollback_to_what_is_no_release_of_the_site_changes_nothing(
    world: World, tmp_path: Path, body: object, status: int
) -> None:
    world.site("bakery", PAGES, tmp_path)
    active = world.site("bakery", NEW_PAGES, tmp_path)
    assert world.call("POST", "/v1/sites/bakery/rollback", json=body).status_code == status
    assert world.active("bakery") == active.id


@pytest.mark.req("H-114")
def test_rollback_leads_only_to_what_was_published_on_this_site(world: World, sites: Sites, tmp_path: Path) -> None:
    active = world.site("bakery", PAGES, tmp_path)
    other = world.site("butcher", PAGES, tmp_path)
    job_id = world.submit(**EDIT)
    candidate = world.offer(job_id, NEW_PAGES)
    for target in (other.id, candidate.id):
        with pytest.raises(ReleaseNotFoundError):
            sites.rollback(world.tenant, "bakery", to=target)
    with pytest.raises(SiteNotFoundError):
        sites.rollback(world.tenant, "nowhere")
    assert world.active("bakery") == active.id


@pytest.mark.threat("H3", "H4")
def test_a_job_that_waited_through_a_rollback_does_not_publish_over_it(
    world: World, sites: Sites, tmp_path: Path
) -> None:
    one = world.site("bakery", PAGES, tmp_path)
    world.site("bakery", NEW_PAGES, tmp_path)
    job_id = world.submit(**EDIT)
    world.offer(job_id, {**NEW_PAGES, "more.html": HOME})
    world.call("POST", f"/v1/jobs/{job_id}/approve")
    sites.rollback(world.tenant, "bakery")
    world.publish(job_id)
    view = world.call("GET", f"/v1/jobs/{job_id}").json()
    assert (view["state"], view["reason"]) == ("failed", "publish_conflict")
    assert world.active("bakery") == one.id
    assert projected(world) == PAGES


@pytest.mark.req("H-084")
@pytest.mark.threat("H4")
def test_of_two_activations_from_one_base_exactly_one_wins(world: World, tmp_path: Path) -> None:
    base = world.site("bakery", PAGES, tmp_path)
    with world.ledger.begin() as session:
        site = find_site(session, world.tenant, "bakery")
    candidates = []
    for number in range(6):
        files = {**PAGES, f"page-{number}.html": HOME}
        new = build_release(world.content_store, files, site=site, policy=world.policy, base_release_id=base.id)
        with world.ledger.begin() as session:
            candidates.append(add_release(session, new))
    won: list[Release] = []
    lost: list[Release] = []
    barrier = threading.Barrier(len(candidates))

    def publish(release: Release) -> None:
        barrier.wait(10)
        try:
            with world.ledger.begin() as session:
                activate(session, site.id, release, base_release_id=base.id)
        except PublishConflictError:
            lost.append(release)
        else:
            won.append(release)

    threads = [threading.Thread(target=publish, args=(release,)) for release in candidates]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert (len(won), len(lost)) == (1, len(candidates) - 1)
    assert world.active("bakery") == won[0].id
    with world.ledger.begin() as session:
        assert published_release(session, site, won[0].id).published_at is not None
        for release in lost:
            with pytest.raises(ReleaseNotFoundError):
                published_release(session, site, release.id)


def test_a_site_is_added_once_however_many_ask(world: World) -> None:
    results: list[bool] = []

    def add() -> None:
        with world.ledger.begin() as session:
            results.append(add_site(session, world.tenant, "bakery"))

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(results) == [False, False, False, True]


# ---------------------------------------------------------------- over HTTP


def test_a_comparison_and_an_export_over_http_are_those_of_the_command_line(
    world: World, sites: Sites, tmp_path: Path
) -> None:
    before = world.site("bakery", PAGES, tmp_path)
    world.site("bakery", NEW_PAGES, tmp_path)
    answer = world.call("GET", "/v1/sites/bakery/diff")
    assert answer.json() == json.loads(sites.diff(world.tenant, "bakery").model_dump_json())
    assert world.call("GET", "/v1/sites/bakery/diff", params={"before": str(uuid4())}).status_code == 404
    answer = world.call("GET", "/v1/sites/bakery/export", params={"release": str(before.id)})
    assert answer.headers["content-disposition"].startswith('attachment; filename="bakery-')
    with tarfile.open(fileobj=io.BytesIO(answer.content)) as tar:
        members = {member.name: tar.extractfile(member) for member in tar.getmembers()}
    assert {name: file.read() for name, file in members.items() if file} == {
        f"bakery/{path}": data for path, data in PAGES.items()
    }


@pytest.mark.threat("H8")
def test_a_rollback_is_checked_as_a_publish_is_and_moves_nothing_but_the_pointer(
    world: World, sites: Sites, tmp_path: Path
) -> None:
    one = world.site("bakery", PAGES, tmp_path)
    two = world.site("bakery", NEW_PAGES, tmp_path)
    rows = world.counts()["release"]
    with world.ledger.begin() as session:
        session.get_one(Release, one.id).manifest = dict(two.manifest)
    with pytest.raises(ReleaseAlteredError, match="its files do not match its digest"):
        sites.rollback(world.tenant, "bakery")
    assert (world.active("bakery"), projected(world)) == (two.id, NEW_PAGES)
    with world.ledger.begin() as session:
        session.get_one(Release, one.id).manifest = dict(one.manifest)
    assert sites.rollback(world.tenant, "bakery").id == one.id
    assert world.counts()["release"] == rows
    (row,) = audited(world, "rolled_back")
    assert (row.detail["origin"], row.detail["release"], row.detail["digest"]) == (str(two.id), str(one.id), one.digest)

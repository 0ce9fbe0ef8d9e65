"""A site that somebody uploads: a job unpacks and scans it, a person approves it, and only then it is live."""

from __future__ import annotations

import asyncio
import gzip
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from ledger.job_ends import event_of_end
from ledger.operations.uploads import kept_uploads
from ledger.tables import Job, Release
from producers.dispatch.housekeeping import collect_garbage
from producers.errors import UploadTooSlowError
from producers.use_cases.imports import Imports, Order
from producers.use_cases.tenants import Caller, Scope
from routing.jobs import State
from routing.policy.platform import Uploads
from routing.rounds import Verb, can_go_on
from sites.directories import read_directory, write_tar
from sites.releases import manifest_of
from tests.integration.api.http_world import HOME, PAGES, STYLE, World, shared_ledger, world
from tests.integration.api.test_api import problem_of
from tests.integration.console.test_console_isolation import log_in
from tests.integration.jobs.test_spec_jobs import DEMO_SITE
from tests.unit.sites.test_archives import special, tarred, zipped
from workers.handlers.patch import patch_files
from workers.handlers.spec import edit_spec

__all__ = ["shared_ledger", "world"]


def send(world: World, archive: bytes, name: str = "bakery", key: str = "", **headers: str) -> Any:
    given = headers | ({"Idempotency-Key": key} if key else {})
    return world.call("POST", f"/v1/imports?name={name}", content=archive, headers=given)


def imported(world: World, archive: bytes, name: str = "bakery") -> UUID:
    answer = send(world, archive, name)
    assert answer.status_code == 202, answer.text
    job_id = UUID(answer.json()["id"])
    world.work(job_id, patch_files)
    return job_id


def blobs(world: World) -> int:
    return sum(1 for _ in world.content_store.blobs.list())


def with_uploads(world: World, **limits: int) -> None:
    """Give the world other limits of uploads."""
    policy = world.policy.model_copy(update={"uploads": Uploads.model_validate(limits)})
    world.resources.__dict__["imports"] = Imports(world.ledger, world.content_store, policy, world.resources.submitter)
    world.resources.submitter.policy = policy


@pytest.mark.req("H-113", "H-114")
@pytest.mark.parametrize("pack", [zipped, tarred], ids=["zip", "tar.gz"])
def test_an_uploaded_site_is_scanned_previewed_and_live_once_somebody_approves(world: World, pack: Any) -> None:
    answer = send(world, pack(PAGES))
    accepted = answer.json()
    assert answer.headers["location"] == accepted["url"] == f"/v1/jobs/{accepted['id']}"
    assert (accepted["state"], accepted["queue"], accepted["rule"], accepted["is_new"]) == (
        "queued",
        "patch",
        "import",
        True,
    )
    job = world.work(UUID(accepted["id"]), patch_files)
    assert (job.state, job.result["summary"]) == (
        "awaiting_approval",
        f"Imported 3 files of {sum(map(len, PAGES.values()))} bytes.",
    )
    assert world.active("bakery") is None
    view = world.call("GET", accepted["url"]).json()
    assert (view["bill"]["spent_usd"], view["bill"]["calls"]) == ("0.00", 0)
    assert view["preview_url"]
    steps = [event["data"]["step"] for event in events(world, job.id) if event["kind"] == "step"]
    assert steps == ["lock", "unpack", "scan", "preview"]
    changes = world.call("GET", f"{accepted['url']}/diff").json()
    assert (changes["added"], changes["before"]) == (3, None)
    assert world.call("POST", f"{accepted['url']}/approve", json={}).status_code == 200
    world.publish(job.id)
    assert world.pages.get(f"/live/{world.tenant}/bakery/").content == HOME


def events(world: World, job_id: UUID) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = world.call("GET", f"/v1/jobs/{job_id}/events?format=json").json()
    return found


def test_an_upload_is_the_next_version_of_a_site_that_there_is(world: World, tmp_path: Path) -> None:
    before = world.site("bakery", PAGES, tmp_path)
    job_id = imported(world, zipped({"index.html": HOME.replace(b"Bread", b"Cake"), "style.css": STYLE}))
    changes = world.call("GET", f"/v1/jobs/{job_id}/diff").json()
    assert {change["path"]: change["status"] for change in changes["changes"]} == {
        "index.html": "changed",
        "menu/index.html": "removed",
    }
    assert world.active("bakery") == before.id


def test_a_spec_is_rendered_and_stays_a_spec(world: World) -> None:
    files = read_directory(DEMO_SITE, max_bytes=10**7, max_files=500)
    job = world.job(imported(world, gzip.compress(write_tar(files, "bakery"))))
    with world.ledger.begin() as session:
        release = session.get_one(Release, job.release_id)
        assert release.spec_sha256 is not None
        assert "index.html" in manifest_of(release)


@pytest.mark.threat("E")
@pytest.mark.parametrize(
    ("archive", "words"),
    [
        (lambda: tarred(PAGES, special("logo.png", b"2", "/etc/passwd")), "'logo.png' is refused: symlink"),
        (lambda: zipped({**PAGES, "../up.html": HOME}), "path '../up.html' is refused: parent"),
        (lambda: zipped({**PAGES, "INDEX.html": HOME}), "'INDEX.html' is refused: name_collision"),
        (lambda: zipped({"bomb.html": bytes(30_000_000)}), "'bomb.html' is refused: too_many_bytes"),
        (lambda: zipped({}).replace(b"PK\x05\x06", b"PK\x03\x04"), "refused: bad_archive"),
        (lambda: zipped({"site.json": b'{"root": "x", "elements": {}}'}), "x"),
    ],
)
def test_a_hostile_archive_ends_its_job_with_entry_and_rule_and_nothing_is_debated(
    world: World, archive: Callable[[], bytes], words: str
) -> None:
    for _ in range(2):
        job = world.job(imported(world, archive()))
        assert (job.state, job.reason) == ("failed", "upload_refused")
        assert words in str(job.detail)
        assert (job.release_id, world.active("bakery")) == (None, None)
    assert not can_go_on(Verb.RESUME, State(job.state), job.reason), "it would end so again"
    assert world.call("GET", f"/v1/jobs/{job.id}").json()["continued_as"] is None
    assert world.call("GET", "/v1/dead-letters").json()["clusters"] == [], "it is the sender's to mend"


def sites(world: World) -> list[str]:
    return [site["name"] for site in world.call("GET", "/v1/sites").json()]


def test_a_site_to_which_only_refused_uploads_came_is_not_listed_until_more_comes(world: World) -> None:
    world.resources.sites.create(world.tenant, "made")
    broken = zipped({**PAGES, "../up.html": HOME})
    for _ in range(2):
        imported(world, broken)
    assert sites(world) == ["made"]
    job_id = UUID(send(world, zipped(PAGES), "bakery").json()["id"])
    assert sites(world) == ["bakery", "made"]
    world.work(job_id, patch_files)
    assert world.call("POST", f"/v1/jobs/{job_id}/approve", json={}).status_code == 200
    world.publish(job_id)
    imported(world, broken)
    assert sites(world) == ["bakery", "made"], "what is live stays, whatever is refused later"


@pytest.mark.req("H-036")
@pytest.mark.parametrize(
    ("files", "place"),
    [({"bad.html": b"<!doctype html>\n<h1 onclick='x()'>x</h1>"}, "bad.html"), ({"run.exe": b"MZ"}, "run.exe")],
)
def test_what_the_scan_refuses_names_the_file_and_the_rule(
    world: World, files: Mapping[str, bytes], place: str
) -> None:
    job_id = imported(world, zipped({**PAGES, **files}))
    assert (world.job(job_id).state, world.job(job_id).reason) == ("failed", "scan_refused")
    report = world.call("GET", f"/v1/jobs/{job_id}/scan").json()
    assert place in {finding["file"] for finding in report["findings"]}
    assert all(finding["rule"] and finding["fix"] for finding in report["findings"])
    [first, *_] = report["findings"]
    assert f"{first['message']}; {first['fix']}" in str(world.job(job_id).detail)


def test_what_the_scan_refused_of_an_import_is_mended_by_asking_for_it_in_words(world: World) -> None:
    page = b"<!doctype html>\n<html lang=en><title>Boxes</title>\n<a href='javascript:order()'>Order a box</a>\n"
    job_id = imported(world, zipped({**PAGES, "boxes.html": page}))
    assert world.job(job_id).reason == "scan_refused"
    order = {"text": "Make the link 'Order a box' point to index.html"}
    again = world.call("POST", f"/v1/jobs/{job_id}/revise", json=order)
    assert again.status_code == 202, again.text
    mended = world.work(UUID(again.json()["id"]), edit_spec)
    assert (mended.state, mended.result["how"]) == ("awaiting_approval", "direct edit of plain HTML, no model")
    assert world.job(mended.id).base_release_id is None, "nothing of it was live"


def test_a_repeated_upload_under_one_key_is_one_job_and_another_under_it_stores_nothing(world: World) -> None:
    first = send(world, zipped(PAGES), key="k1").json()
    stored = blobs(world)
    again = send(world, zipped(PAGES), key="k1").json()
    assert (again["id"], first["is_new"], again["is_new"]) == (first["id"], True, False)
    other = send(world, zipped({"index.html": HOME}), key="k1")
    assert (other.status_code, problem_of(other)["type"]) == (409, "urn:pointsman:problem:conflict")
    assert blobs(world) == stored


@pytest.mark.parametrize(
    ("archive", "name", "status", "rule"),
    [
        (b"<html>", "bakery", 422, "must be a zip or tar.gz archive"),
        (b"", "bakery", 422, "must be a zip or tar.gz archive"),
        (b"PK", "bakery", 422, "must be a zip or tar.gz archive"),
        (zipped(PAGES), "Not a name", 422, "must be 1 to 63"),
        (zipped(PAGES) + bytes(2_000), "bakery", 413, "must not be longer"),
    ],
)
def test_what_is_no_upload_is_refused_before_anything_is_stored(
    world: World, archive: bytes, name: str, status: int, rule: str
) -> None:
    with_uploads(world, archive_bytes=2_000)
    before = world.counts()
    answer = send(world, archive, name)
    (error,) = problem_of(answer)["errors"]
    assert (answer.status_code, rule in error["rule"]) == (status, True), answer.text
    assert (blobs(world), world.counts()["job"]) == (0, before["job"])


def test_an_upload_of_unknown_length_is_cut_where_it_is_too_long(world: World) -> None:
    with_uploads(world, archive_bytes=2_000)

    def endless() -> Any:
        yield zipped(PAGES)
        for _ in range(10_000):
            yield bytes(1_000)

    answer = world.call("POST", "/v1/imports?name=bakery", content=endless())
    assert answer.status_code == 413
    assert blobs(world) == 0


def test_a_tenants_kept_archives_have_a_limit(world: World) -> None:
    archive = zipped(PAGES)
    with_uploads(world, archive_bytes=len(archive), tenant_bytes=2 * len(archive))
    for number in range(2):
        assert send(world, archive, f"site-{number}").status_code == 202
    refused = send(world, archive, "site-2")
    assert (refused.status_code, "uploads" in refused.text) == (429, True)
    assert 0 < int(refused.headers["retry-after"]) <= world.policy.retention.draft_hours * 3600
    other = world.client.post(
        "/v1/imports?name=site", content=archive, headers=world.headers(tenant=f"{world.tenant}-2")
    )
    assert other.status_code == 202, "the limit is each tenant's own"


def test_a_process_takes_no_more_uploads_at_a_time_than_it_may(world: World) -> None:
    with_uploads(world, per_process=2, per_tenant=2)
    imports = world.resources.imports
    with imports.one_more("some"), imports.one_more("others"):
        refused = send(world, zipped(PAGES))
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "10")
    assert send(world, zipped(PAGES)).status_code == 202
    assert not imports._open


def test_no_tenant_takes_the_places_of_the_others(world: World) -> None:
    imports = world.resources.imports
    with imports.one_more(world.tenant), imports.one_more(world.tenant):
        refused = send(world, zipped(PAGES))
        assert (refused.status_code, "2 uploads of tenant" in refused.text) == (503, True)
        other = world.headers(tenant=f"{world.tenant}-3")
        assert world.client.post("/v1/imports?name=x", content=zipped(PAGES), headers=other).status_code == 202


def test_a_form_with_an_archive_is_not_read_before_there_is_a_place_for_it(world: World) -> None:
    client = log_in(world)
    archive = {"archive": ("site.zip", zipped(PAGES))}
    with world.resources.imports.one_more(world.tenant), world.resources.imports.one_more(world.tenant):
        answer = client.post("/console/sites/import", files=archive)
    assert answer.status_code == 303
    assert "2 uploads of tenant" in client.get(answer.headers["location"]).text
    assert client.post("/console/sites/import", files=archive).status_code == 403, "read, and without a form's token"
    assert not world.resources.imports._open


def test_an_archive_that_does_not_arrive_in_time_holds_its_place_no_longer(world: World) -> None:
    with_uploads(world, seconds=1)

    async def trickle() -> AsyncIterator[bytes]:
        yield zipped(PAGES)
        await asyncio.Event().wait()

    order = Order(Caller(world.tenant, "key", frozenset({Scope.SUBMIT})), "bakery")
    with pytest.raises(UploadTooSlowError, match=r"within 1 s"):
        asyncio.run(world.resources.imports.take(order, trickle()))
    assert blobs(world) == 0


def test_nobody_names_an_upload_in_a_job_of_theirs(world: World) -> None:
    send(world, zipped(PAGES))
    mine = {"prompt": "Import it", "site": "bakery", "upload": {"sha256": "0" * 64, "total_bytes": 1}}
    (error,) = problem_of(world.call("POST", "/v1/jobs", json=mine))["errors"]
    assert error == {"field": "upload", "rule": "is not a field of this request"}
    (item,) = world.call("POST", "/v1/jobs/batch", json={"jobs": [mine]}).json()["jobs"]
    assert item["job"] is None


def test_a_failed_import_is_no_failure_of_a_task_that_models_could_debate() -> None:
    job = Job(queue="patch", state="running", request={"upload": {}}, priority="P2", parent_id=None)
    assert event_of_end(job, State.FAILED) is None
    job.request = {}
    assert event_of_end(job, State.FAILED) is not None


def test_an_upload_needs_the_scope_of_a_submission(world: World) -> None:
    for scope, status in (("read", 403), ("submit", 202)):
        answer = world.client.post("/v1/imports?name=bakery", content=zipped(PAGES), headers=world.headers(scope))
        assert answer.status_code == status


def test_archives_are_swept_once_their_jobs_have_ended_and_not_before(world: World) -> None:
    open_id = UUID(send(world, zipped(PAGES), "open").json()["id"])
    done_id = imported(world, tarred({**PAGES, "x": b"unknown"}), "done")
    assert world.job(done_id).state == "failed"
    later = time.time() + 100 * 3600
    with world.ledger.begin() as session:
        kept = kept_uploads(session)
    assert world.job(open_id).request["upload"]["sha256"] in kept
    collect_garbage(world.ledger, world.content_store, world.policy, clock=lambda: later)
    store = world.content_store
    assert store.exists(world.job(open_id).request["upload"]["sha256"])
    assert not store.exists(world.job(done_id).request["upload"]["sha256"])
    world.work(open_id, patch_files)
    assert world.job(open_id).state == "awaiting_approval"


def test_an_import_whose_archive_is_gone_says_so(world: World) -> None:
    job_id = UUID(send(world, zipped(PAGES)).json()["id"])
    sha256 = world.job(job_id).request["upload"]["sha256"]
    os.unlink(next(world.content_store.root.glob(f"blobs/*/{sha256}")))
    job = world.work(job_id, patch_files)
    assert (job.state, job.reason, "upload it again" in str(job.detail)) == ("failed", "upload_refused", True)


def test_an_import_can_be_revised_in_words_and_is_no_edit_of_another_tier(world: World) -> None:
    job_id = imported(world, zipped(PAGES))
    again = world.call("POST", f"/v1/jobs/{job_id}/revise", json={"text": "Change the headline to 'Fresh bread'"})
    assert again.status_code == 202, again.text
    assert "upload" not in world.job(UUID(again.json()["id"])).request
    why = world.call("GET", f"/v1/jobs/{job_id}").json()["route"]
    assert (why["rule"], why["reason"]) == ("import", "An upload replaces the site's files, and no model reads it.")

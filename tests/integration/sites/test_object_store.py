"""Real jobs whose site files are in an object store, with no file system shared between hosts (issue 23)."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import obstore
import pytest
from pydantic import SecretStr
from sqlalchemy import text

from ledger.dispatch_window import pause_queue, release_due
from ledger.record_tables import Epoch
from ledger.store import Ledger, create_ledger_engine
from monitoring.config import LedgerConfig
from producers.bootstrap import Installation, Settings
from producers.dispatch.file_lease import SWEEPER, FileLease
from producers.dispatch.housekeeping import Collected, Housekeeper, collect_garbage
from producers.doctor import check_files
from producers.errors import FileLeaseLostError
from routing.jobs import JobMessage
from routing.policy.platform import Policy
from routing.queues import QueueName
from sites import object_blobs
from sites.config import ContentStoreConfig
from sites.content_store import ContentStore, open_content_store
from sites.errors import StoreTakenError
from sites.object_blobs import PERIOD_SECONDS, ObjectBlobs, open_store
from sites.ownership import adopt, check_owner, take_over
from sites.releases import manifest_of, try_show_active
from tests.conformance.conftest import ObjectBench
from tests.integration.api.http_world import HOME, PAGES, PAGES_URL, World, open_world, shared_ledger
from tests.integration.jobs.test_spec_jobs import DEMO_SITE
from tests.object_server import SECRET_KEY, FaultyProxy, ObjectServer, place_at
from tests.services import Postgres
from workers.handlers.spec import edit_spec
from workers.lifecycle import Resources as WorkerResources
from workers.lifecycle import run_attempt

__all__ = ["shared_ledger"]

EDIT = {"prompt": "Change the headline to 'Fresh bread'", "site": "bakery"}
DIRECT = {"prompt": "Change the hero heading to 'Bread since 1932'", "site": "shop"}
NEW = b"Bread since 1932"


@pytest.fixture
def bench(
    tmp_path: Path, object_server: ObjectServer, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> ObjectBench:
    monkeypatch.setattr(object_blobs, "PAUSE_SECONDS", 0.0)
    return ObjectBench(tmp_path, object_server, proxy, timeout_seconds=1.0)


def host(bench: ObjectBench, name: str) -> ContentStore:
    """Return the content store of a host that shares nothing with others but the bucket."""
    return ContentStore(bench.root / name, blobs=bench.on_another_host(f"{name}/cache"), projects=False)


@pytest.fixture
def world(shared_ledger: Ledger, bench: ObjectBench) -> Iterator[World]:
    """The API's host; its bucket is new and its ledger not."""
    take_over(shared_ledger, host(bench, "api"))
    with open_world(shared_ledger, bench.root / "api", content_store=host(bench, "api")) as opened:
        yield opened


def work(world: World, store: ContentStore, job_id: UUID) -> str:
    """Let a worker on another host take a job, and return the job's state."""
    job = world.job(job_id)
    queue = QueueName(job.queue)
    resources = WorkerResources(
        ledger=world.ledger, content_store=store, policy=world.policy, gateway_url="http://127.0.0.1:1", worker="far"
    )
    with world.ledger.begin() as session:
        pause_queue(session, queue, is_paused=False)
    run_attempt(JobMessage(job_id=job_id, fence=job.fence), queue, edit_spec, resources)
    with world.ledger.begin() as session:
        pause_queue(session, queue, is_paused=True)
    return world.job(job_id).state


def attempts(world: World, job_id: UUID) -> list[tuple[str, str]]:
    with world.ledger.begin() as session:
        query = text("SELECT outcome, reason FROM attempt WHERE job_id = :id ORDER BY number")
        return [tuple(row) for row in session.execute(query, {"id": job_id}).all()]


def time_passes(world: World, job_id: UUID) -> None:
    with world.ledger.begin() as session:
        session.execute(text("UPDATE job SET held_until = clock_timestamp() WHERE id = :id"), {"id": job_id})
        release_due(session)


def live(world: World, path: str = "") -> bytes:
    answer = world.pages.get(f"/live/{world.tenant}/shop/{path}")
    assert answer.status_code == 200
    return bytes(answer.content)


def test_a_job_goes_from_submit_to_its_live_page_over_hosts_that_share_only_a_bucket(
    world: World, bench: ObjectBench
) -> None:
    world.resources.sites.import_site(world.tenant, "shop", DEMO_SITE)
    job_id = world.submit(**DIRECT)
    assert work(world, host(bench, "worker"), job_id) == "awaiting_approval", world.job(job_id).detail
    preview = world.call("GET", f"/v1/jobs/{job_id}").json()["preview_url"].removeprefix(PAGES_URL)
    previewed = world.pages.get(preview).content
    assert NEW in previewed
    assert NEW not in live(world)
    assert world.call("POST", f"/v1/jobs/{job_id}/approve").status_code == 200
    world.content_store = host(bench, "control")
    world.publish(job_id)
    assert world.job(job_id).state == "published"
    assert live(world) == previewed
    for name in ("api", "worker", "control"):
        assert not (bench.root / name / "sites").exists(), "no projection lies about what is live"
        assert not (bench.root / name / "blobs").exists()


def test_a_store_that_is_away_delays_a_job_at_each_step_and_loses_nothing(
    world: World, bench: ObjectBench, proxy: FaultyProxy
) -> None:
    world.resources.sites.import_site(world.tenant, "shop", DEMO_SITE)
    before = live(world)
    job_id = world.submit(**DIRECT)
    proxy.fault = lambda asked: "refuse"
    assert work(world, host(bench, "worker"), job_id) == "queued"
    assert attempts(world, job_id) == [("deferred", "storage_unavailable")]
    proxy.fault = lambda asked: None
    time_passes(world, job_id)
    assert work(world, host(bench, "worker"), job_id) == "awaiting_approval"
    preview = world.call("GET", f"/v1/jobs/{job_id}").json()["preview_url"].removeprefix(PAGES_URL)

    proxy.fault = lambda asked: "hang"
    answer = world.pages.get(preview)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
    assert answer.headers["content-security-policy"], "an error has the strictest policy"
    assert live(world) == before, "what the host has is served"

    world.call("POST", f"/v1/jobs/{job_id}/approve")
    world.content_store = host(bench, "control")
    proxy.fault = lambda asked: "refuse"
    world.publish(job_id)
    assert world.job(job_id).state == "publishing"
    why = "StoreUnavailableError: the content store cannot be reached or read"
    assert world.job(job_id).result["retrying"]["why"] == why, "whoever reads it is not told where files are"
    assert live(world) == before
    proxy.fault = lambda asked: None
    time_passes(world, job_id)
    world.publish(job_id)
    assert world.job(job_id).state == "published", world.job(job_id).detail
    assert NEW in live(world)


@pytest.mark.parametrize("kind", ["other bytes", "cut"])
def test_a_page_that_was_forged_on_its_way_is_never_served(
    world: World, bench: ObjectBench, tmp_path: Path, proxy: FaultyProxy, kind: str
) -> None:
    release = world.site("bakery", PAGES, tmp_path)
    fresh = host(bench, "fresh")
    world.pages_app.state.resources = replace(world.pages_app.state.resources, content_store=fresh)
    proxy.fault = lambda asked: kind if asked.method == "GET" else None  # type: ignore[return-value,assignment]
    world.pages._transport.raise_server_exceptions = False  # type: ignore[attr-defined]
    answer = world.pages.get(f"/live/{world.tenant}/bakery/")
    assert answer.status_code in (500, 503)
    assert b"Bread" not in answer.content
    assert world.active("bakery") == release.id
    proxy.fault = lambda asked: None
    assert world.pages.get(f"/live/{world.tenant}/bakery/").content == HOME


def version(number: int) -> dict[str, bytes]:
    return {**PAGES, "index.html": HOME.replace(b"Bread", b"Bread %d" % number)}


def collect(world: World, bench: ObjectBench, name: str, policy: Policy) -> Collected:
    return collect_garbage(world.ledger, host(bench, name), policy, clock=lambda: bench.now)


@pytest.mark.threat("H7")
def test_two_sweepers_at_once_remove_what_no_release_names_and_nothing_else(
    world: World, bench: ObjectBench, tmp_path: Path
) -> None:
    kept = world.policy.retention.model_copy(update={"releases": 1})
    policy = world.policy.model_copy(update={"retention": kept})
    history = [world.site("bakery", version(number), tmp_path) for number in range(5)]
    nobodys = world.content_store.put(b"a draft that nobody recorded")
    assert collect(world, bench, "one", policy).blobs == 0, "all is young"
    with world.ledger.begin() as session:
        for column in ("created_at", "published_at"):
            session.execute(text(f"UPDATE release SET {column} = {column} - interval '2 years'"))
    bench.later(8 * PERIOD_SECONDS)
    job_id = world.submit(**EDIT)
    world.offer(job_id, version(9))
    young = world.content_store.put(b"a draft that is about to be recorded")
    removed: list[int] = []
    for _ in range(2):  # both keys come to rest
        sweepers = [
            threading.Thread(target=lambda name=name: removed.append(collect(world, bench, name, policy).blobs))  # type: ignore[misc]
            for name in ("one", "two")
        ]
        for sweeper in sweepers:
            sweeper.start()
        for sweeper in sweepers:
            sweeper.join(60)
        bench.later(PERIOD_SECONDS)
    assert sum(removed) == 4, "three releases' pages, and what nobody recorded"
    fresh = host(bench, "fresh")
    assert not fresh.exists(nobodys)
    assert fresh.exists(young)
    for release in history[:3]:
        assert not fresh.exists(release.manifest["files"]["index.html"][0])
    world.pages_app.state.resources = replace(world.pages_app.state.resources, content_store=fresh)
    assert world.pages.get(f"/live/{world.tenant}/bakery/").content == version(4)["index.html"]
    assert world.resources.sites.rollback(world.tenant, "bakery").id == history[3].id
    preview = world.call("GET", f"/v1/jobs/{job_id}").json()["preview_url"].removeprefix(PAGES_URL)
    assert world.pages.get(preview).content == version(9)["index.html"]


def test_a_sweep_whose_lease_lapsed_removes_nothing_more(
    world: World, bench: ObjectBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.site("bakery", PAGES, tmp_path)
    old = [world.content_store.put(b"%d" % number) for number in range(3)]
    bench.later(9 * PERIOD_SECONDS)
    deleted = ObjectBlobs.delete

    def delete_and_stand_still(self: ObjectBlobs, *arguments: object, **named: object) -> bool:
        monkeypatch.setattr(FileLease, "_lead", lambda self: False)
        lease._held_until = 0.0
        return deleted(self, *arguments, **named)  # type: ignore[arg-type]

    lease = FileLease(world.ledger, SWEEPER)
    monkeypatch.setattr("producers.dispatch.housekeeping.FileLease", lambda ledger, role: lease)
    monkeypatch.setattr(ObjectBlobs, "delete", delete_and_stand_still)
    with pytest.raises(FileLeaseLostError):
        collect(world, bench, "one", world.policy)
    assert sum(world.content_store.exists(sha256) for sha256 in old) == 2


def url_of(world: World) -> str:
    return world.ledger.engine.url.render_as_string(hide_password=False)


def restored(ledger: Ledger) -> None:
    """Let the ledger be another: as one that was restored beside the first."""
    with ledger.begin() as session:
        session.add(Epoch())


def test_a_rehearsal_counts_what_is_under_both_keys(world: World, bench: ObjectBench, tmp_path: Path) -> None:
    world.site("bakery", PAGES, tmp_path)
    world.content_store.put(b"nobody's")
    bench.later(PERIOD_SECONDS)
    world.content_store.put(b"nobody's")
    bench.later(9 * PERIOD_SECONDS)
    store = host(bench, "one")
    assert collect_garbage(world.ledger, store, world.policy, is_dry_run=True, clock=lambda: bench.now).blobs == 2
    assert collect(world, bench, "one", world.policy).blobs == 1


@pytest.mark.threat("H7")
@pytest.mark.parametrize("place", ["local", "s3"])
def test_a_ledger_removes_nothing_from_the_store_of_another(
    shared_ledger: Ledger, bench: ObjectBench, tmp_path: Path, place: str
) -> None:
    far = host(bench, "api") if place == "s3" else ContentStore(tmp_path / "local")
    take_over(shared_ledger, far)
    with open_world(shared_ledger, bench.root / "api", content_store=far) as world:
        world.site("bakery", PAGES, tmp_path)
        old = far.put(b"named by the other ledger alone")
        for path in (tmp_path / "local").rglob("*"):
            os.utime(path, (1_000_000, 1_000_000), follow_symlinks=False)
        bench.later(9 * PERIOD_SECONDS)
        restored(world.ledger)
        with pytest.raises(StoreTakenError, match="another ledger"):
            collect_garbage(world.ledger, far, world.policy, clock=lambda: bench.now)
        assert far.exists(old)
        take_over(world.ledger, far)
        assert collect_garbage(world.ledger, far, world.policy, clock=lambda: bench.now).blobs == 1
        assert not far.exists(old)


def test_only_a_ledger_without_releases_marks_an_empty_bucket(
    world: World, bench: ObjectBench, tmp_path: Path, postgres: Postgres
) -> None:
    world.site("bakery", PAGES, tmp_path)
    empty = open_content_store(place_at(bench.proxy.endpoint, tmp_path / "host", prefix=f"{bench.prefix}-empty"))
    adopt(world.ledger, empty)
    assert empty.blobs.owner() is None, "it may be a wrong one"
    with postgres.database() as url, closing(Ledger(create_ledger_engine(url))) as new:
        restored(new)  # as all databases here are copies of one, with its name
        stopping = threading.Event()
        stopping.set()
        Housekeeper(new, empty, world.policy, runs_root=tmp_path, holder="a dispatcher").run(stopping, hours=1)
        assert empty.blobs.owner() is not None, "a dispatcher marks it as it starts"
        check_owner(new, empty)
    with pytest.raises(StoreTakenError):
        check_owner(world.ledger, empty)


def watch_locks(world: World, proxy: FaultyProxy) -> list[bool]:
    """Note at each request to the bucket whether somebody locks the tenant's site."""
    locked: list[bool] = []

    def look(asked: object) -> None:
        with world.ledger.begin() as session:
            query = text("SELECT id FROM site WHERE tenant = :tenant FOR SHARE SKIP LOCKED")
            locked.append(session.scalar(query, {"tenant": world.tenant}) is None)

    proxy.fault = look  # type: ignore[assignment]
    return locked


def test_a_rollback_asks_the_bucket_while_nothing_is_locked(world: World, tmp_path: Path, proxy: FaultyProxy) -> None:
    first = world.site("bakery", version(1), tmp_path)
    world.site("bakery", version(2), tmp_path)
    locked = watch_locks(world, proxy)
    assert world.resources.sites.rollback(world.tenant, "bakery").id == first.id
    assert locked
    assert not any(locked)


def test_a_projection_asks_the_bucket_while_nothing_is_locked(
    world: World, bench: ObjectBench, tmp_path: Path, proxy: FaultyProxy
) -> None:
    release = world.site("bakery", PAGES, tmp_path)
    store = ContentStore(bench.root / "shared", blobs=bench.on_another_host("shared/cache"), projects=True)
    locked = watch_locks(world, proxy)
    assert try_show_active(world.ledger, store, release.site_id) is None
    assert store.shows(f"{world.tenant}_bakery", manifest_of(release), release_id=str(release.id))
    assert locked
    assert not any(locked)


def test_a_publish_waits_while_the_bucket_is_another_installation_s(world: World, bench: ObjectBench) -> None:
    world.resources.sites.import_site(world.tenant, "shop", DEMO_SITE)
    job_id = world.submit(**DIRECT)
    assert work(world, host(bench, "worker"), job_id) == "awaiting_approval"
    world.call("POST", f"/v1/jobs/{job_id}/approve")
    config = place_at(bench.proxy.endpoint, bench.root / "control", prefix=f"{bench.prefix}-theirs")
    world.content_store = open_content_store(config)
    world.content_store.blobs.own("another ledger")
    world.publish(job_id)
    assert world.job(job_id).state == "publishing"
    world.content_store = host(bench, "control")
    time_passes(world, job_id)
    world.publish(job_id)
    assert world.job(job_id).state == "published"


@pytest.fixture
def own_world(postgres: Postgres, bench: ObjectBench) -> Iterator[World]:
    """The API's host of an installation whose ledger is as new as its bucket."""
    store = host(bench, "api")
    with (
        postgres.database() as url,
        closing(Ledger(create_ledger_engine(url))) as ledger,
        open_world(ledger, bench.root / "api", content_store=store) as opened,
    ):
        take_over(ledger, store)
        yield opened


def examined(world: World, config: ContentStoreConfig) -> list[tuple[str, str]]:
    settings = Settings(content_store=config, ledger=LedgerConfig(url=SecretStr(url_of(world))))
    with closing(Installation(settings)) as installation:
        return [(finding.verdict.value, finding.seen) for finding in check_files(installation)]


def test_the_doctor_says_that_a_bucket_is_wrong_and_leaves_it_so(
    own_world: World, bench: ObjectBench, tmp_path: Path, proxy: FaultyProxy
) -> None:
    own_world.site("bakery", PAGES, tmp_path)
    right = place_at(proxy.endpoint, tmp_path / "host", prefix=bench.prefix)
    wrong = place_at(proxy.endpoint, tmp_path / "host", prefix=f"{bench.prefix}-mistyped")
    assert examined(own_world, right)[0] == ("OK", f"{right.url} takes files")
    for _ in range(2):
        verdict, seen = examined(own_world, wrong)[0]
        assert (verdict, "is not a content store" in seen) == ("FAIL", True)
    restored(own_world.ledger)
    verdict, seen = examined(own_world, right)[0]
    assert (verdict, "another ledger" in seen) == ("FAIL", True)


def test_the_doctor_looks_for_the_files_of_live_sites(own_world: World, bench: ObjectBench, tmp_path: Path) -> None:
    release = own_world.site("bakery", PAGES, tmp_path)
    sha256 = next(iter(manifest_of(release).values())).sha256
    for key in ("even", "odd"):
        obstore.delete(open_store(bench.place), f"{key}/{sha256}")
    verdict, seen = examined(own_world, place_at(bench.proxy.endpoint, tmp_path / "host", prefix=bench.prefix))[0]
    assert (verdict, sha256 in seen) == ("FAIL", True)


def test_the_doctor_writes_to_the_object_store_and_says_what_it_answers(
    own_world: World, bench: ObjectBench, tmp_path: Path, proxy: FaultyProxy
) -> None:
    config = place_at(proxy.endpoint, tmp_path / "host", prefix=bench.prefix, timeout_seconds=0.5)
    findings = examined(own_world, config)
    assert findings == [("OK", f"{config.url} takes files"), ("OK", str(tmp_path / "host" / "cache"))]
    proxy.fault = lambda asked: "refuse"
    verdict, seen = examined(own_world, config)[0]
    assert (verdict, "500" in seen, SECRET_KEY in seen) == ("FAIL", True, False)

"""A publish cannot half-happen: whatever dies, races or fails, everybody sees the old release or the new one, whole."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from fastapi.testclient import TestClient

from ledger.attempts import find_lapsed_attempts, recover
from ledger.releases import activate, add_release
from ledger.tables import Job, Release, Site
from producers.dispatch.housekeeping import Projector
from producers.pages import PageResources, create_pages_app
from producers.use_cases.jobs import PreviewLinks, describe
from routing.jobs import State
from routing.queues import QueueName, Tier
from sites.config import ContentStoreConfig
from sites.content_store import ContentStore, open_content_store
from sites.disk import Disk
from sites.errors import StoreUnavailableError
from sites.ownership import adopt
from sites.preview import PreviewSigner
from sites.releases import build_release, site_key
from tests.factories import Shop
from tests.integration.jobs.publish_worker import AFTER
from workers.handlers.publish import run_control
from workers.lifecycle import Resources, run_attempt
from workers.outcomes import Candidate

ROOT = Path(__file__).parents[3]
PUBLISHES = int(os.environ.get("PUBLISHES", "16"))
"""`make chaos` sets 500."""


def pages(mark: str) -> dict[str, bytes]:
    """A site of which every file carries the same mark."""
    home = f"<!doctype html><html lang=en><head><title>{mark}</title><link rel=stylesheet href=a.css></head></html>"
    return {
        "index.html": home.encode(),
        "a.css": f"h1 {{ color: #{mark} }}\n".encode(),
        "b/c/d.txt": f"{mark}\n".encode(),
    }


OLD, NEW = pages("000000"), pages("ffffff")


class FullDisk(Disk):
    """Has no room for links as long as it is full, and perhaps for trees."""

    is_full = True
    has_room_for_trees = True

    def make_directory(self, path: Path) -> None:
        if not self.has_room_for_trees and path.name.startswith(".draft-"):
            raise OSError(28, "No space left on device")
        super().make_directory(path)

    def symlink(self, target: Path, link: Path) -> None:
        if self.is_full and link.name.startswith(".active"):
            raise OSError(28, "No space left on device")
        super().symlink(target, link)


class Yard:
    """A site with an approved release, and what reads it."""

    def __init__(self, shop: Shop, home: Path) -> None:
        self.shop = shop
        self.home = home
        self.disk = FullDisk()
        self.disk.is_full = False
        self.content_store = ContentStore(home, disk=self.disk)
        self.resources = Resources(
            ledger=shop.ledger,
            content_store=self.content_store,
            policy=shop.policy,
            gateway_url="http://127.0.0.1:1",
            worker="w1",
        )
        self.site_id = shop.site("yard")
        self.import_site(OLD)

    def import_site(self, files: dict[str, bytes]) -> None:
        with self.shop.ledger.begin() as session:
            site = session.get_one(Site, self.site_id)
        base = site.active_release_id
        new = build_release(self.content_store, files, site=site, policy=self.shop.policy, base_release_id=base)
        assert new.scan_passed, new.scan
        with self.shop.ledger.begin() as session:
            activate(session, self.site_id, add_release(session, new), base_release_id=base)
        Projector(self.shop.ledger, self.content_store).run()

    def offered(self, files: dict[str, bytes], *, tier: Tier = Tier.SPEC) -> UUID:
        job_id = self.shop.accept(site_id=self.site_id, tier=tier)
        queue = QueueName(self.shop.job(job_id).queue)
        outcome = Candidate(files=files, summary="s")
        run_attempt(self.shop.message(job_id), queue, lambda attempt: outcome, self.resources)
        return job_id

    def approved(self, files: dict[str, bytes]) -> UUID:
        job_id = self.offered(files)
        self.shop.approve(job_id)
        return job_id

    def publish(self, job_id: UUID) -> Job:
        run_control(self.shop.message(job_id), self.resources)
        return self.shop.job(job_id)

    @property
    def link(self) -> Path:
        return self.home / "sites" / site_key(self.shop.find(Site, self.site_id)) / "active"

    def shown(self) -> dict[str, bytes]:
        """What a web server would show."""
        return tree_below(self.link.resolve())

    def is_lagging(self) -> bool:
        site: Site = self.shop.find(Site, self.site_id)
        return site.active_release_id != site.shown_release_id


def tree_below(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.fixture
def yard(shop: Shop, tmp_path: Path) -> Yard:
    return Yard(shop, tmp_path / "content-store")


# ------------------------------------------------------------------------------------------------------------ crashes


@pytest.fixture(scope="module")
def doomed() -> Iterator[Callable[..., int]]:
    """Start a worker that dies where it is told; returns its exit status."""
    argv = [sys.executable, "-m", "tests.integration.jobs.publish_worker"]
    with subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as nursery:

        def start(*arguments: object) -> int:
            assert nursery.stdin is not None
            assert nursery.stdout is not None
            print(*arguments, file=nursery.stdin, flush=True)
            return int(nursery.stdout.readline())

        yield start
        assert nursery.stdin is not None
        nursery.stdin.close()


@pytest.mark.slow
@pytest.mark.req("H-084", "H-087")
@pytest.mark.threat("H5")
@pytest.mark.parametrize("where", [*AFTER, "0", "6", "14", "15", "16"])
def test_a_worker_killed_at_any_step_leaves_old_or_new_and_the_next_one_completes_it(
    yard: Yard, doomed: Callable[..., int], where: str
) -> None:
    job_id = yard.approved(NEW)
    message = yard.shop.message(job_id)
    status = doomed(yard.shop.url, yard.home, job_id, message.fence, where)
    assert status == -9, "the publish has fewer changes than this test believes"
    job = yard.shop.job(job_id)
    is_swapped = yard.shop.active(yard.site_id) == job.release_id
    assert job.state == ("published" if is_swapped else "publishing"), "the ledger says one thing in one commit"
    assert yard.shown() in (OLD, NEW)
    assert yard.shown() == OLD or is_swapped, "nobody sees what the ledger does not say"

    yard.shop.execute("UPDATE attempt SET lease_until = now() - interval '1 second' WHERE ended_at IS NULL")
    with yard.shop.ledger.begin() as session:
        for attempt in find_lapsed_attempts(session):
            recover(session, attempt, max_lost=2)
    if not is_swapped:
        yard.publish(job_id)
    Projector(yard.shop.ledger, yard.content_store).run()
    assert (yard.shop.job(job_id).state, yard.shown(), yard.is_lagging()) == ("published", NEW, False)
    assert yard.shop.scalar("SELECT count(*) FROM notification WHERE job_id = :id", id=job_id) == 1
    assert yard.shop.scalar("SELECT count(*) FROM event WHERE kind = 'ended' AND job_id = :id", id=job_id) == 1


# --------------------------------------------------------------------------------------------------------- projection


def test_a_disk_that_refuses_leaves_a_published_job_that_says_so_and_is_shown_once_it_can_be(yard: Yard) -> None:
    job_id = yard.approved(NEW)
    yard.disk.is_full = True
    job = yard.publish(job_id)
    assert (job.state, job.reason, yard.shop.active(yard.site_id)) == ("published", "done", job.release_id)
    assert "published in the ledger" in str(job.detail)
    assert "No space left on device" in str(job.detail)
    assert (yard.shown(), yard.is_lagging()) == (OLD, True)
    now = [0.0]
    projector = Projector(yard.shop.ledger, yard.content_store, clock=lambda: now[0])
    projector.run()
    assert yard.is_lagging()
    yard.disk.is_full = False
    projector.run()
    assert yard.is_lagging(), "it pauses between tries"
    now[0] = 5.0
    projector.run()
    assert (yard.shown(), yard.is_lagging()) == (NEW, False)


def test_what_a_release_left_that_could_not_be_laid_out_does_not_pile_up(yard: Yard) -> None:
    job_id = yard.approved(NEW)
    yard.disk.is_full = True
    yard.publish(job_id)
    blob_of(yard, job_id, "index.html").unlink()
    shutil.rmtree(yard.link.parent / "trees")
    for _ in range(5):
        Projector(yard.shop.ledger, yard.content_store).run()
    assert yard.is_lagging()
    assert list((yard.link.parent / "trees").iterdir()) == []


def test_a_start_finds_a_projection_that_was_lost_or_set_back_behind_the_ledgers_back(yard: Yard) -> None:
    yard.publish(yard.approved(NEW))
    first = min((yard.link.parent / "releases").iterdir(), key=lambda link: link.lstat().st_mtime_ns)
    yard.content_store.show(yard.link.parent.name, release_id=first.name)
    assert (yard.shown(), yard.is_lagging()) == (OLD, False)
    Projector(yard.shop.ledger, yard.content_store).run()
    assert yard.shown() == NEW
    yard.link.unlink()
    Projector(yard.shop.ledger, yard.content_store).run()
    assert yard.shown() == NEW
    shutil.rmtree(yard.link.parent / "trees")
    Projector(yard.shop.ledger, yard.content_store).run()
    assert (yard.shown(), yard.is_lagging()) == (NEW, False)


def blob_of(yard: Yard, job_id: UUID, path: str) -> Path:
    release: Release = yard.shop.find(Release, yard.shop.job(job_id).release_id)
    sha256 = release.manifest["files"][path][0]
    return yard.home / "blobs" / sha256[:2] / sha256


@pytest.mark.threat("H3")
@pytest.mark.parametrize("has_room", [True, False], ids=["room", "no room to lay them out"])
def test_files_that_cannot_be_read_back_are_never_published(yard: Yard, has_room: bool) -> None:
    job_id = yard.approved(NEW)
    blob = blob_of(yard, job_id, "index.html")
    blob.chmod(0o644)
    blob.write_bytes(b"<script>evil()</script>")
    yard.disk.has_room_for_trees = has_room
    job = yard.publish(job_id)
    assert (job.state, job.reason) == ("failed", "internal_error")
    assert "BlobCorruptError" in str(job.detail)
    assert (yard.shown(), yard.shop.active(yard.site_id) != job.release_id) == (OLD, True)


@pytest.mark.threat("H3")
def test_a_publish_waits_for_a_disk_that_fails_as_its_files_are_read(yard: Yard) -> None:
    job_id = yard.approved({**NEW, "e.txt": b"fourteen bytes"})
    blob = blob_of(yard, job_id, "e.txt")
    blob.rename(kept := yard.home / "kept")
    blob.symlink_to("/proc/self/mem")  # as long as the file, and the kernel says EIO to whoever reads its beginning
    job = yard.publish(job_id)
    assert (job.state, job.ended_at, yard.shown()) == ("publishing", None, OLD)
    assert yard.shop.scalar("SELECT reason FROM attempt WHERE outcome = 'retrying'") == "storage_unavailable"
    kept.rename(blob)
    yard.shop.execute("UPDATE job SET held_for = NULL, held_until = NULL WHERE id = :id", id=job_id)
    assert yard.publish(job_id).state == "published"


@pytest.mark.threat("H7")
def test_a_directory_from_which_the_disk_is_gone_takes_no_file_and_lets_publishes_wait(yard: Yard) -> None:
    job_id = yard.approved(NEW)
    adopt(yard.shop.ledger, yard.content_store)
    mounted = yard.home.rename(yard.home.with_name("disk"))
    yard.home.mkdir()
    store = open_content_store(ContentStoreConfig(root=yard.home))
    yard.resources = replace(yard.resources, content_store=store)
    with pytest.raises(StoreUnavailableError, match="mark"):
        store.check_room(1)
    with pytest.raises(StoreUnavailableError, match="mark"):
        store.put(b"a file")
    with pytest.raises(StoreUnavailableError, match="mark"), store.taking():
        pass
    assert list(yard.home.iterdir()) == []
    adopt(yard.shop.ledger, store)
    (yard.home / "blobs" / "00").mkdir(parents=True)  # as an older release left there
    assert yard.publish(job_id).state == "publishing"
    shutil.rmtree(yard.home)
    mounted.rename(yard.home)
    yard.shop.execute("UPDATE job SET held_for = NULL, held_until = NULL WHERE id = :id", id=job_id)
    assert yard.publish(job_id).state == "published"


@pytest.mark.req("H-114")
@pytest.mark.threat("H3")
@pytest.mark.parametrize(
    "tampering",
    [
        "manifest = jsonb_set(manifest, '{files,evil.html}', manifest->'files'->'index.html')",
        "digest = repeat('0', 64)",
        "scan = jsonb_set(scan, '{digest}', '\"0\"')",
        "scan = jsonb_set(scan, '{csp}', '\"default-src *\"')",
        "scan_passed = false",
    ],
)
def test_content_or_report_that_changed_after_the_approval_is_not_published(yard: Yard, tampering: str) -> None:
    job_id = yard.approved(NEW)
    before = yard.shop.active(yard.site_id)
    release_id = yard.shop.job(job_id).release_id
    yard.shop.execute(f"UPDATE release SET {tampering} WHERE id = :id", id=release_id)
    job = yard.publish(job_id)
    assert (job.state, job.reason) == ("failed", "internal_error")
    assert (yard.shown(), yard.shop.active(yard.site_id)) == (OLD, before)


@pytest.mark.req("H-036", "H-082")
@pytest.mark.parametrize("tier", list(Tier))
def test_what_the_scan_refuses_gets_no_preview_link_in_any_tier(yard: Yard, tier: Tier) -> None:
    signer = PreviewSigner(["a-key-of-at-least-thirty-two-characters"])
    links = PreviewLinks(signer, "http://pages.example")
    with yard.shop.ledger.begin() as session:
        good = describe(session, session.get_one(Job, yard.offered(NEW, tier=tier)), links=links)
    assert good.preview_url is not None
    yard.shop.execute("UPDATE site SET lock_job_id = NULL")
    bad_id = yard.offered({**NEW, "x.html": b"<h1 onclick='steal()'>x</h1>"}, tier=tier)
    with yard.shop.ledger.begin() as session:
        bad = describe(session, session.get_one(Job, bad_id), links=links)
    assert (bad.state, bad.reason, bad.preview_url) == (State.FAILED, "scan_refused", None)


# ------------------------------------------------------------------------------------------------------------ readers


class Readers:
    """Threads that read without pause and remember what was not whole."""

    def __init__(self, yard: Yard, known: list[dict[str, bytes]]) -> None:
        self.reads = {"tree": 0, "path": 0, "http": 0}
        self.torn: list[object] = []
        self._yard = yard
        self._known = known
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._loop, args=(name, look))
            for name, look in (("tree", self._tree), ("tree", self._tree), ("path", self._path), ("http", self._http))
        ]
        wiring = PageResources(yard.shop.ledger, yard.content_store, PreviewSigner(["k" * 32]), 60)
        self._client = TestClient(create_pages_app(wiring), base_url="http://pages.example")

    def __enter__(self) -> Readers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(30)

    def _loop(self, name: str, look: object) -> None:
        while not self._stop.is_set():
            try:
                what = look()  # type: ignore[operator]
            except OSError as error:
                what = error
            self.reads[name] += 1
            if what is not None:
                self.torn.append(what)

    def _tree(self) -> object:
        """A reader that wants one release for a while resolves the link once."""
        seen = self._yard.shown()
        return None if seen in self._known else seen

    def _path(self) -> object:
        """A web server opens each file by its path through the link: it is always there, and always whole."""
        seen = (self._yard.link / "a.css").read_bytes()
        return None if seen in [tree["a.css"] for tree in self._known] else seen

    def _http(self) -> object:
        answer = self._client.get("/live/acme/yard/index.html")
        whole = answer.content in [tree["index.html"] for tree in self._known]
        return None if answer.status_code == 200 and whole else (answer.status_code, answer.content)


@pytest.mark.req("H-084")
@pytest.mark.threat("H4")
@pytest.mark.timeout(900)
def test_readers_never_see_a_mix_while_releases_are_published(yard: Yard) -> None:
    known = [OLD, *(pages(f"{number:06x}") for number in range(1, 17))]
    started = time.monotonic()
    with Readers(yard, known) as readers:
        for number in range(PUBLISHES):
            job = yard.publish(yard.approved(known[1 + number % 16]))
            assert job.state == "published", job.detail
    seconds = time.monotonic() - started
    print(f"{PUBLISHES} publishes in {seconds:.1f} s; reads {readers.reads}; torn {len(readers.torn)}")
    assert readers.torn == []
    assert all(count > 0 for count in readers.reads.values())
    assert yard.shown() == known[1 + (PUBLISHES - 1) % 16]


@pytest.mark.threat("H4")
def test_of_two_approved_jobs_with_one_base_one_is_published_and_the_other_conflicts(yard: Yard) -> None:
    first = yard.approved(NEW)
    yard.shop.execute("UPDATE site SET lock_job_id = NULL")
    second = yard.approved(pages("abcdef"))
    threads = [threading.Thread(target=yard.publish, args=(job_id,)) for job_id in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    ends = sorted((yard.shop.job(job_id).state, yard.shop.job(job_id).reason) for job_id in (first, second))
    assert ends == [("failed", "publish_conflict"), ("published", "done")]
    assert yard.shown() in (NEW, pages("abcdef"))
    assert not yard.is_lagging()

"""A sweep removes what nothing needs, and nothing else, in any order of what can happen to a site."""

import os
import shutil
import tempfile
import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from ledger.releases import ReleaseFacts, choose_swept
from ledger.tables import Release, Site
from routing.policy.platform import Retention, platform_policy
from sites.content_store import ContentStore, Manifest
from sites.disk import Disk
from sites.errors import ReleaseAlteredError
from sites.releases import VERDICTS, Kept, Shown, Sweeper, build_release, check_release_integrity, refusal_of
from tests.unit.sites.test_content_store import project

OLD = {"index.html": b"old", "same.css": b"same"}
NEW = {"index.html": b"new", "same.css": b"same"}
LONG_AGO, SITE = 1_000_000.0, "acme_shop"


def age(root: Path) -> None:
    """Let everything be as old as can be."""
    for path in [root, *root.rglob("*")]:
        os.utime(path, (LONG_AGO, LONG_AGO), follow_symlinks=False)


def kept(*releases: tuple[str, Manifest]) -> Kept:
    blobs = frozenset(entry.sha256 for _, manifest in releases for entry in manifest.values())
    shown = Shown(frozenset(name for name, _ in releases), frozenset(manifest.digest for _, manifest in releases))
    return Kept(blobs, {SITE: shown})


@pytest.mark.req("H-114")
@pytest.mark.parametrize(
    ("altered", "why"),
    [
        ({}, ""),
        ({"digest": "0" * 64}, "do not match its digest"),
        ({"manifest": {"files": {}}}, "do not match its digest"),
        ({"scan_passed": False}, "did not pass"),
        ({"scan": {"digest": "0" * 64}}, "about other files"),
        ({"scan": {"csp": "default-src *"}}, "not the one that was approved"),
        ({"scan_digest": "0" * 64}, "not the one that was approved"),
    ],
)
def test_a_release_is_published_with_the_passing_report_of_its_own_files_alone(
    tmp_path: Path, altered: dict[str, Any], why: str
) -> None:
    site, page = Site(tenant="acme", name="shop"), b"<!doctype html><html lang=en><title>Shop</title><h1>Bread</h1>"
    made = build_release(
        ContentStore(tmp_path), {"index.html": page}, site=site, policy=platform_policy(), base_release_id=None
    )
    scan = {"scan": {**made.scan, **altered.get("scan", {})}}
    with pytest.raises(ReleaseAlteredError, match=why) if why else nullcontext():
        check_release_integrity(Release(**vars(made) | altered | scan))


@pytest.mark.threat("H7")
def test_what_is_not_kept_goes_and_what_is_stays_byte_for_byte(tmp_path: Path) -> None:
    content_store = ContentStore(tmp_path)
    old, new = content_store.put_tree(OLD), content_store.put_tree(NEW)
    project(content_store, SITE, old, release_id="r1")
    project(content_store, SITE, new, release_id="r2")
    age(tmp_path)
    rehearsed = Sweeper(ContentStore(tmp_path)).sweep(kept(("r2", new)), older_than=LONG_AGO + 1, is_dry_run=True)
    assert content_store.read_tree(old) == OLD
    swept = Sweeper(ContentStore(tmp_path)).sweep(kept(("r2", new)), older_than=LONG_AGO + 1)
    assert swept == rehearsed
    assert (swept.blobs, swept.blob_bytes, swept.trees, swept.leftovers) == (1, 3, 1, 0)
    assert content_store.read_tree(new) == NEW
    assert not content_store.exists(old["index.html"].sha256)
    assert [path.name for path in (tmp_path / "sites" / SITE / "trees").iterdir()] == [new.digest]
    assert [path.name for path in (tmp_path / "sites" / SITE / "releases").iterdir()] == ["r2"]


@pytest.mark.parametrize(
    "place", ["blobs/ab", f"{VERDICTS}/ab", "sites/shop/trees", "sites/shop/releases", "sites/shop"]
)
def test_a_link_does_not_lead_a_sweep_out_of_the_store(place: str, tmp_path: Path) -> None:
    other = tmp_path / "other" / "trees" / "file"
    other.mkdir(parents=True)
    link = tmp_path / "store" / place
    link.parent.mkdir(parents=True)
    link.symlink_to(other.parent if place != "sites/shop" else other.parent.parent)
    os.utime(other, (LONG_AGO, LONG_AGO))
    Sweeper(ContentStore(tmp_path / "store")).sweep(Kept(frozenset()), older_than=LONG_AGO + 1)
    assert other.exists()


def test_a_verdict_of_the_scan_goes_when_nobody_has_made_it_anew_for_long(tmp_path: Path) -> None:
    old, young = tmp_path / VERDICTS / "ab" / "ab1", tmp_path / VERDICTS / "ab" / "ab2"
    old.parent.mkdir(parents=True)
    old.write_bytes(b"")
    age(tmp_path)
    young.write_bytes(b"")
    assert (
        Sweeper(ContentStore(tmp_path)).sweep(Kept(frozenset()), older_than=LONG_AGO + 1, is_dry_run=True).leftovers
        == 1
    )
    assert Sweeper(ContentStore(tmp_path)).sweep(Kept(frozenset()), older_than=LONG_AGO + 1).leftovers == 1
    assert (old.exists(), young.exists()) == (False, True)


@pytest.mark.parametrize("shard", ["blobs/ab", f"{VERDICTS}/ab", f"sites/{SITE}/trees", f"sites/{SITE}/releases"])
def test_what_somebody_planted_goes_too_and_ends_no_sweep(shard: str, tmp_path: Path) -> None:
    planted = tmp_path / shard
    (planted / "directory" / "inner").mkdir(parents=True)
    (planted / "file").write_bytes(b"")
    (planted / "link").symlink_to("nowhere")
    age(tmp_path)
    Sweeper(ContentStore(tmp_path)).sweep(Kept(frozenset()), older_than=LONG_AGO + 1)
    assert list(planted.iterdir()) == []


@pytest.mark.threat("H7")
def test_what_the_projection_still_shows_stays_although_the_ledger_has_moved_on(tmp_path: Path) -> None:
    content_store = ContentStore(tmp_path)
    old, new = content_store.put_tree(OLD), content_store.put_tree(NEW)
    link = project(content_store, SITE, old, release_id="r1")
    age(tmp_path)
    Sweeper(ContentStore(tmp_path)).sweep(kept(("r2", new)), older_than=LONG_AGO + 1)
    assert {path.name for path in link.resolve().iterdir()} == set(OLD)
    assert (link / "index.html").read_bytes() == b"old"


def test_what_was_touched_lately_stays_since_it_may_be_a_release_in_the_making(tmp_path: Path) -> None:
    content_store = ContentStore(tmp_path)
    manifest = content_store.put_tree(OLD)
    content_store.lay_out(SITE, manifest, release_id="r1")
    age(tmp_path)
    content_store.put_tree(OLD)  # somebody makes a release of the same files
    content_store.lay_out(SITE, manifest, release_id="r1")
    Sweeper(ContentStore(tmp_path)).sweep(Kept(frozenset()), older_than=LONG_AGO + 1)
    assert content_store.read_tree(manifest) == OLD
    assert (tmp_path / "sites" / SITE / "trees" / manifest.digest / "index.html").read_bytes() == b"old"


def test_what_a_crash_left_half_made_goes_when_it_is_old(tmp_path: Path) -> None:
    content_store = ContentStore(tmp_path)
    project(content_store, SITE, content_store.put_tree(OLD), release_id="r1")
    shard = next((tmp_path / "blobs").iterdir())
    (shard / ".torn.0123").write_bytes(b"half")
    draft = tmp_path / "sites" / SITE / "trees" / ".draft-0123"
    (draft / "a").mkdir(parents=True)
    (draft / "a" / "b").write_bytes(b"half")
    assert Sweeper(ContentStore(tmp_path)).sweep(Kept(frozenset()), older_than=LONG_AGO).leftovers == 0
    age(tmp_path)
    assert Sweeper(ContentStore(tmp_path)).sweep(Kept(frozenset()), older_than=LONG_AGO + 1).leftovers == 2
    assert not draft.exists()
    assert not (shard / ".torn.0123").exists()


@pytest.mark.threat("H7")
def test_a_file_that_is_found_and_swept_at_once_is_never_both_relied_on_and_gone(tmp_path: Path) -> None:
    content_store = ContentStore(tmp_path)
    lost: list[int] = []
    stop = threading.Event()

    def sweep() -> None:
        while not stop.is_set():
            Sweeper(ContentStore(tmp_path)).sweep(Kept(frozenset()), older_than=LONG_AGO + 1)

    sha256 = content_store.put(b"the same bytes")
    path = tmp_path / "blobs" / sha256[:2] / sha256
    thread = threading.Thread(target=sweep)
    thread.start()
    for number in range(150):
        if path.exists():
            os.utime(path, (LONG_AGO, LONG_AGO))  # now the sweep is after it
        if not content_store.exists(content_store.put(b"the same bytes")):
            lost.append(number)
    stop.set()
    thread.join(30)
    assert lost == []


class ClockedDisk(Disk):
    """A disk whose files are as old as the machine below says."""

    now = 0.0

    def touch(self, path: Path) -> bool:
        if not super().touch(path):
            return False
        os.utime(path, (self.now, self.now))
        return True

    def replace(self, source: Path, target: Path) -> None:
        super().replace(source, target)
        os.utime(target, (self.now, self.now), follow_symlinks=False)


HOUR = 3600.0
RULES = Retention(releases=2, days=0.5, draft_hours=6)


class SiteMachine(RuleBasedStateMachine):
    """A site whose owner makes drafts, publishes, rolls back, abandons, waits, and sweeps in any order."""

    @initialize()
    def start(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="pointsman-sweep-"))
        self.disk = ClockedDisk()
        self.disk.now = LONG_AGO
        self.content_store = ContentStore(self.root, disk=self.disk)
        self.files: dict[UUID, dict[str, bytes]] = {}
        self.manifests: dict[UUID, Manifest] = {}
        self.bases: dict[UUID, UUID | None] = {}
        self.made: dict[UUID, float] = {}
        self.published: dict[UUID, float] = {}
        self.pending: list[UUID] = []
        self.swept: set[UUID] = set()
        self.active: UUID | None = None

    def teardown(self) -> None:
        if hasattr(self, "root"):
            shutil.rmtree(self.root)

    @rule(first=st.integers(0, 4), second=st.integers(0, 4))
    def draft(self, first: int, second: int) -> None:
        release = uuid4()
        self.files[release] = {"a.txt": b"a%d" % first, "d/b.txt": b"b%d" % second}
        self.manifests[release] = self.content_store.put_tree(self.files[release])
        self.bases[release], self.made[release] = self.active, self.disk.now
        self.pending.append(release)

    @rule(which=st.integers(0, 9))
    def publish(self, which: int) -> None:
        if self.pending:
            release = self.pending.pop(which % len(self.pending))
            self.published.setdefault(release, self.disk.now)
            self._activate(release)

    @rule(which=st.integers(0, 9))
    def abandon(self, which: int) -> None:
        if self.pending:
            self.pending.pop(which % len(self.pending))

    @rule(which=st.integers(0, 9))
    def roll_back(self, which: int) -> None:
        ready = [release for release in self.published if release not in self.swept]
        if ready:
            self._activate(ready[which % len(ready)])

    def _activate(self, release: UUID) -> None:
        self.content_store.lay_out(SITE, self.manifests[release], release_id=str(release))
        self.active = release
        self.content_store.show(SITE, release_id=str(release))

    @rule(hours=st.integers(1, 30))
    def wait(self, hours: int) -> None:
        self.disk.now += hours * HOUR

    @rule()
    def sweep(self) -> None:
        now = self.disk.now
        facts = [
            ReleaseFacts(
                release,
                self.bases[release],
                now - self.published[release] if release in self.published else None,
                now - self.made[release],
            )
            for release in self.files
            if release not in self.swept
        ]
        pending = [one for release in self.pending for one in (release, self.bases[release]) if one is not None]
        chosen = choose_swept(facts, RULES, active=self.active, pending=pending)
        assert self.active is None or self.bases[self.active] not in chosen
        self.swept |= chosen
        left = [(str(release), self.manifests[release]) for release in self.files if release not in self.swept]
        older_than = now - RULES.draft_hours * HOUR
        Sweeper(self.content_store).sweep(kept(*left), older_than=older_than)
        needed = {entry.sha256 for _, manifest in left for entry in manifest.values()}
        for path in (self.root / "blobs").glob("*/*"):
            assert path.name in needed or path.stat().st_mtime >= older_than, "what is given up is gone"

    @invariant()
    def every_release_that_is_not_given_up_is_whole(self) -> None:
        for release in getattr(self, "files", {}):
            if release not in self.swept:
                assert self.content_store.read_tree(self.manifests[release]) == self.files[release]

    @invariant()
    def live_and_pending_are_not_given_up(self) -> None:
        if hasattr(self, "root"):
            assert not self.swept & {self.active, *self.pending}

    @invariant()
    def the_projection_shows_the_live_release_whole(self) -> None:
        active = getattr(self, "active", None)
        if active is not None:
            tree = (self.root / "sites" / SITE / "active").resolve()
            shown = {str(path.relative_to(tree)): path.read_bytes() for path in tree.rglob("*") if path.is_file()}
            assert shown == self.files[active]


@pytest.mark.threat("H7")
def test_any_order_of_drafts_publishes_rollbacks_and_sweeps_keeps_what_is_needed() -> None:
    run_state_machine_as_test(SiteMachine, settings=settings(max_examples=25, stateful_step_count=25))


def test_what_was_scanned_for_its_author_is_not_scanned_again_for_its_release(tmp_path: Path) -> None:
    content_store, policy, site = ContentStore(tmp_path), platform_policy(), Site(tenant="acme", name="shop")
    keys = ("not-in-any-file-of-the-site",)
    files = {"index.html": b"<!DOCTYPE html><title>Shop</title><p>Open.", "same.css": b"p { color: red }"}
    base = content_store.put_tree(files)
    assert refusal_of(content_store, files, site=site, policy=policy, known_keys=keys) == ""
    verdicts = {path: path.stat().st_mtime_ns for path in (tmp_path / VERDICTS).rglob("*") if path.is_file()}
    assert len(verdicts) == len(files)
    new = build_release(
        content_store, files, site=site, policy=policy, known_keys=keys, new_keys=("the-token-of-a-session",), base=base
    )
    assert new.scan_passed
    assert verdicts == {path: path.stat().st_mtime_ns for path in (tmp_path / VERDICTS).rglob("*") if path.is_file()}


def test_the_author_of_a_file_with_a_key_of_the_installation_learns_of_it(tmp_path: Path) -> None:
    files = {"index.html": b"<!DOCTYPE html><title>Shop</title><p>hunter22-hunter22"}
    said = refusal_of(
        ContentStore(tmp_path),
        files,
        site=Site(tenant="acme", name="shop"),
        policy=platform_policy(),
        known_keys=("hunter22-hunter22",),
    )
    assert "index.html" in said
    assert "hunter22" not in said

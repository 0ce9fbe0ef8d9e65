import errno
import os
import pickle
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from routing.jobs import Reason
from sites.content_store import ContentStore, Entry, Manifest, change_set
from sites.disk import Disk
from sites.errors import BlobCorruptError, ManifestError, PathRefusedError, StoreUnavailableError, TreeRefusedError
from sites.files import DEFAULT_MAX_TREE_BYTES, DEFAULT_MAX_TREE_FILES
from workers.outcomes import Deferred
from workers.retries import decide_end, unavailable_reason


def project(store: ContentStore, site_key: str, manifest: Manifest, *, release_id: str) -> Path:
    """Lay out a release and make it the active one, as a publish and what follows it do."""
    store.lay_out(site_key, manifest, release_id=release_id)
    return store.show(site_key, release_id=release_id)


def test_what_changed_is_told_by_content_not_by_anybodys_word(tmp_path: Path) -> None:
    content_store = ContentStore(tmp_path)
    before = content_store.put_tree({"same": b"1", "changed": b"1", "b/gone": b"1", "a/gone": b"1"})
    after = content_store.put_tree({"same": b"1", "changed": b"2", "new": b"1"})

    found = change_set(before, after)
    assert (found.added, found.changed, found.removed) == (("new",), ("changed",), ("a/gone", "b/gone"))
    assert not found.is_empty
    assert change_set(before, before).is_empty


OLD = {"index.html": b"old", "css/site.css": b"old css"}
NEW = {"index.html": b"new", "css/site.css": b"new css", "img/a/b.svg": b"<svg/>"}


@pytest.fixture
def content_store(tmp_path: Path) -> ContentStore:
    return ContentStore(tmp_path)


def tree_below(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.threat("H3")
def test_a_disk_that_fails_while_a_release_is_checked_is_no_projection_that_lags(content_store: ContentStore) -> None:
    manifest = content_store.put_tree(NEW)
    shard = content_store.root / "blobs" / manifest["index.html"].sha256[:2]
    shard.rename(shard.with_suffix(".kept"))
    shard.write_bytes(b"what was a directory")
    with pytest.raises(StoreUnavailableError) as caught:
        content_store.check_stored(manifest)
    assert unavailable_reason(caught.value) is Reason.STORAGE_UNAVAILABLE
    assert isinstance(decide_end(caught.value), Deferred)


class PowerCutError(OSError):
    """The machine is off: nothing more reaches the disk."""


class FailingDisk(Disk):
    """A disk that loses power before its nth change."""

    def __init__(self, *, changes_left: int) -> None:
        self.changes_left = changes_left
        self.off = False

    def _change(self) -> None:
        if self.off or self.changes_left == 0:
            self.off = True
            raise PowerCutError
        self.changes_left -= 1

    def write(self, path: Path, data: bytes) -> None:
        try:
            self._change()
        except PowerCutError:
            path.write_bytes(data[: len(data) // 2])  # a torn write
            raise
        super().write(path, data)

    def replace(self, source: Path, target: Path) -> None:
        self._change()
        super().replace(source, target)

    def symlink(self, target: Path, link: Path) -> None:
        self._change()
        super().symlink(target, link)

    def link(self, source: Path, target: Path) -> None:
        self._change()
        super().link(source, target)

    def sync_directory(self, path: Path) -> None:
        self._change()
        super().sync_directory(path)

    def discard(self, path: Path) -> None:
        if not self.off:
            super().discard(path)


def test_a_blob_is_found_under_the_digest_of_its_bytes(content_store: ContentStore, tmp_path: Path) -> None:
    digest = content_store.put(b"hello")
    assert digest == "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
    assert content_store.get(digest) == b"hello"
    assert (tmp_path / "blobs" / "2c" / digest).stat().st_mode & 0o222 == 0


def test_equal_bytes_are_stored_once(content_store: ContentStore, tmp_path: Path) -> None:
    manifest = content_store.put_tree({"a": b"same", "b": b"same"})
    assert len(tree_below(tmp_path)) == 1
    assert manifest["a"] == manifest["b"]
    before = os.stat(tmp_path / "blobs" / manifest["a"].sha256[:2] / manifest["a"].sha256)
    content_store.put(b"same")
    assert os.stat(tmp_path / "blobs" / manifest["a"].sha256[:2] / manifest["a"].sha256) == before


def test_a_blob_is_on_disk_before_its_name_and_its_name_before_put_returns(
    content_store: ContentStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[tuple[str, int]] = []
    fsync, replace = os.fsync, os.replace

    def note_sync(descriptor: int) -> None:
        fsync(descriptor)
        done.append(("synced", os.fstat(descriptor).st_ino))

    def note_rename(source: Path, target: Path) -> None:
        done.append(("renamed", os.stat(source).st_ino))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(os, "replace", note_rename)
    digest = content_store.put(b"hello")
    directory = tmp_path / "blobs" / digest[:2]
    blob = (directory / digest).stat().st_ino
    assert done[-3:] == [("synced", blob), ("renamed", blob), ("synced", directory.stat().st_ino)]
    assert done[:-3] == [("synced", made.stat().st_ino) for made in (tmp_path, tmp_path / "blobs")]


def test_equal_trees_have_equal_digests_in_any_order(content_store: ContentStore) -> None:
    assert content_store.put_tree(NEW).digest == content_store.put_tree(dict(reversed(NEW.items()))).digest
    assert content_store.put_tree(NEW).digest != content_store.put_tree(OLD).digest


@pytest.mark.req("H-052")
def test_a_manifest_counts(content_store: ContentStore) -> None:
    manifest = content_store.put_tree({"index.html": b"12", "app/main.MJS": b"345", "package.json": b"{}"})
    assert manifest.signals == {"files": 3, "has_js": True, "has_build": True}
    assert manifest.total_bytes == 7
    assert content_store.put_tree(OLD).signals == {"files": 2, "has_js": False, "has_build": False}
    assert manifest["index.html"].media_type == "text/html"


def test_a_manifest_cannot_be_changed(content_store: ContentStore) -> None:
    manifest: Any = content_store.put_tree(NEW)
    with pytest.raises(TypeError):
        manifest["x"] = Entry("0" * 64, 1, "text/html")


ZEROS = "0" * 64


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"files":[]}',
        '{"files":{"a":["x",1,"t"]}}',
        f'{{"files":{{"a":["{ZEROS}",-1,"t"]}}}}',
        f'{{"files":{{"../a":["{ZEROS}",1,"t"]}}}}',
    ],
)
def test_a_broken_manifest_is_refused(text: str) -> None:
    with pytest.raises(ManifestError):
        Manifest.from_json(text)


@pytest.mark.threat("E")
@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"A.js": b"", "a.js": b""}, "name_collision"),
        ({"caf\u00e9": b"", "cafe\u0301": b""}, "name_collision"),
        ({"stra\u00dfe": b"", "STRASSE": b""}, "name_collision"),
        ({"Dir/a": b"", "dir/b": b""}, "name_collision"),
        ({"a": b"", "a/b": b""}, "file_as_directory"),
        ({"A": b"", "a/b": b""}, "name_collision"),
        ({str(number): b"" for number in range(DEFAULT_MAX_TREE_FILES + 1)}, "too_many_files"),
        ({"a": bytes(DEFAULT_MAX_TREE_BYTES), "b": b"x"}, "too_many_bytes"),
    ],
)
def test_a_bad_set_of_files_is_refused_and_nothing_is_written(
    content_store: ContentStore, tmp_path: Path, files: dict[str, bytes], reason: str
) -> None:
    with pytest.raises(TreeRefusedError) as caught:
        content_store.put_tree(files)
    assert caught.value.reason == reason
    assert not tree_below(tmp_path)


@pytest.mark.threat("E")
def test_a_hostile_name_leaves_the_den_empty(content_store: ContentStore, tmp_path: Path) -> None:
    with pytest.raises(PathRefusedError):
        content_store.put_tree({"good": b"1", "../bad": b"2"})
    assert not tree_below(tmp_path)


@pytest.mark.req("H-084")
def test_the_projection_is_the_release(content_store: ContentStore) -> None:
    for files, release_id in ((OLD, "r1"), (NEW, "r2"), (OLD, "r1")):
        active = project(content_store, "bakery", content_store.put_tree(files), release_id=release_id)
        assert tree_below(active.resolve()) == files
        assert content_store.active_release("bakery") == release_id


@pytest.mark.threat("H8")
def test_the_projection_of_a_built_site_is_what_it_serves(content_store: ContentStore) -> None:
    files = {"src/main.ts": b"x", **{f"dist/{path}": data for path, data in NEW.items()}}
    built, plain = content_store.put_tree(files, public="dist"), content_store.put_tree(NEW)
    assert built.served == plain
    assert built.served.digest == plain.digest != built.digest
    assert tree_below(project(content_store, "acme_site", built, release_id="r1").resolve()) == NEW
    assert content_store.shows("acme_site", built, release_id="r1")
    assert built != content_store.put_tree(files)
    assert not content_store.shows("acme_site", content_store.put_tree(files), release_id="r1")


def test_a_manifest_and_what_it_serves_survive_its_json_and_a_pickle(content_store: ContentStore) -> None:
    whole = content_store.put_tree(NEW)
    for again in (Manifest.from_json(whole.to_json()), pickle.loads(pickle.dumps(whole))):
        assert (again, again.digest) == (whole, whole.digest)
    manifest = content_store.put_tree({"dist/a.txt": b"x", "b.txt": b"y"}, public="dist")
    for again in (Manifest.from_json(manifest.to_json()), pickle.loads(pickle.dumps(manifest))):
        assert (again, again.public, again.digest, list(again.served)) == (manifest, "dist", manifest.digest, ["a.txt"])
    for public in ('"../x"', '""', "7", "null"):
        with pytest.raises(ManifestError):
            Manifest.from_json(manifest.to_json().replace('"public":"dist"', f'"public":{public}'))


@pytest.mark.parametrize("word", ["", "..", "a/b", ".x", "a" * 129, "é"])
def test_only_plain_words_name_sites_and_releases(content_store: ContentStore, word: str) -> None:
    with pytest.raises(ValueError, match="letters, digits"):
        project(content_store, word, content_store.put_tree(OLD), release_id="r1")
    with pytest.raises(ValueError, match="letters, digits"):
        project(content_store, "bakery", content_store.put_tree(OLD), release_id=word)
    assert content_store.active_release(word) is None


def test_a_corrupt_blob_never_becomes_a_page(content_store: ContentStore, tmp_path: Path) -> None:
    project(content_store, "bakery", content_store.put_tree(OLD), release_id="r1")
    manifest = content_store.put_tree(NEW)
    path = tmp_path / "blobs" / manifest["index.html"].sha256[:2] / manifest["index.html"].sha256
    path.chmod(0o644)
    path.write_bytes(b"NEW")
    with pytest.raises(BlobCorruptError):
        project(content_store, "bakery", manifest, release_id="r2")
    assert content_store.active_release("bakery") == "r1"


@pytest.mark.req("H-084", "H-087")
@pytest.mark.threat("H5")
def test_a_crash_before_any_step_leaves_the_old_or_the_new_release_whole(tmp_path: Path) -> None:
    seen: list[str | None] = []
    for step in range(1000):
        root = tmp_path / str(step)
        project(ContentStore(root), "bakery", ContentStore(root).put_tree(OLD), release_id="r1")
        disk = FailingDisk(changes_left=step)
        content_store = ContentStore(root, disk=disk)
        with suppress(PowerCutError):
            project(content_store, "bakery", content_store.put_tree(NEW), release_id="r2")
        shown = ContentStore(root).active_release("bakery")
        active = root / "sites" / "bakery" / "active"
        assert tree_below(active.resolve()) == (NEW if shown == "r2" else OLD)
        seen.append(shown)
        again = ContentStore(root)
        project(again, "bakery", again.put_tree(NEW), release_id="r2")  # what recovery does
        assert tree_below(active.resolve()) == NEW
        if not disk.off:
            break
    assert len(seen) > 15
    assert {"r1", "r2"} == set(seen)


@pytest.mark.req("H-084")
@pytest.mark.threat("H4")
def test_readers_see_one_whole_release_during_two_hundred_projections(content_store: ContentStore) -> None:
    trees = [({path: b"%d" % number + data for path, data in OLD.items()}) for number in range(2)]
    manifests = [content_store.put_tree(tree) for tree in trees]
    active = project(content_store, "bakery", manifests[0], release_id="r0")
    torn: list[object] = []
    reads = 0
    stop = threading.Event()

    def read() -> None:
        nonlocal reads
        while not stop.is_set():
            try:
                seen = tree_below(active.resolve())
            except OSError as error:
                torn.append(error)
                continue
            reads += 1
            if seen not in trees:
                torn.append(seen)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for number in range(1, 201):
        project(content_store, "bakery", manifests[number % 2], release_id=f"r{number}")
    stop.set()
    for reader in readers:
        reader.join()
    assert not torn
    assert reads > 0
    assert content_store.active_release("bakery") == "r200"


def test_two_processes_may_build_the_same_tree(content_store: ContentStore, tmp_path: Path) -> None:
    manifest = content_store.put_tree(NEW)
    errors: list[BaseException] = []

    def build(number: int) -> None:
        try:
            project(ContentStore(tmp_path), "bakery", manifest, release_id=f"r{number}")
        except OSError as error:
            errors.append(error)

    threads = [threading.Thread(target=build, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    trees = tmp_path / "sites" / "bakery" / "trees"
    assert [path.name for path in trees.iterdir()] == [manifest.digest]


def test_a_look_for_room_leaves_nothing_behind_and_finds_too_little(tmp_path: Path) -> None:
    content_store = ContentStore(tmp_path / "store")
    content_store.check_room(1)
    assert not [path for path in (tmp_path / "store").rglob("*") if path.is_file()]
    with pytest.raises(OSError, match="No space left"):
        content_store.check_room(2**62)


class CrowdedDisk(Disk):
    """Its file system has as many names of a file as there can be: 65,000 on ext4."""

    def link(self, source: Path, target: Path) -> None:
        raise OSError(errno.EMLINK, os.strerror(errno.EMLINK))


def test_a_file_that_more_releases_share_than_a_disk_has_names_for_is_laid_out_as_a_copy(tmp_path: Path) -> None:
    store = ContentStore(tmp_path, disk=CrowdedDisk())
    shown = project(store, "acme_cafe", store.put_tree(NEW), release_id="r1")
    assert tree_below(shown.resolve()) == NEW

"""What networks and object stores do: nothing wrong is served, nothing is lost, and every wait ends (issue 23)."""

from __future__ import annotations

import errno
import json
import os
import pickle
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from pydantic import SecretStr

from sites import object_blobs
from sites.blob_cache import BlobCache
from sites.config import ContentStoreConfig
from sites.content_store import ContentStore, open_content_store
from sites.errors import BlobCorruptError, BlobMissingError, StoreUnavailableError
from sites.object_blobs import PERIOD_SECONDS, ObjectBlobs, open_store
from sites.releases import Kept, Sweeper
from tests.conformance.conftest import ObjectBench
from tests.object_server import Asked, FaultyProxy, Kind, ObjectServer, place_at
from tests.services import wait_until

DAYS = 86_400


def on(method: str, kind: Kind, *, times: int = 1000) -> Callable[[Asked], Kind | None]:
    """Return a fault of the first requests of a method."""
    left = iter(range(times))
    return lambda asked: kind if asked.method == method and next(left, None) is not None else None


@pytest.fixture
def store(remote: ObjectBench) -> ContentStore:
    remote.blobs.check_room(0)
    return remote.store()


@pytest.mark.parametrize("method", ["PUT", "HEAD", "GET"])
@pytest.mark.parametrize("kind", ["refuse", "slow"])
def test_what_passes_is_waited_for(remote: ObjectBench, store: ContentStore, method: str, kind: Kind) -> None:
    remote.proxy.fault = on(method, kind, times=2)
    sha256 = store.put(b"hello")
    assert remote.on_another_host("other").get(sha256) == b"hello"


@pytest.mark.parametrize("kind", ["refuse", "hang"])
def test_a_store_that_is_away_is_an_error_of_storage_in_time(
    tmp_path: Path, object_server: ObjectServer, proxy: FaultyProxy, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_blobs, "PAUSE_SECONDS", 0.0)
    bench = ObjectBench(tmp_path, object_server, proxy, timeout_seconds=0.5)
    sha256 = bench.store().put(b"hello")
    proxy.fault = lambda asked: kind
    far = bench.on_another_host("other")
    began = time.monotonic()
    for call in (
        lambda: far.get(sha256),
        lambda: far.stat(sha256),
        lambda: far.put_if_absent(sha256, b"hello"),
        lambda: far.check_room(0),
        lambda: list(far.list()),
    ):
        with pytest.raises(StoreUnavailableError) as caught:
            call()
        assert caught.value.errno == errno.EIO
        assert "secret" not in str(caught.value)
    assert time.monotonic() - began < 15
    assert bench.store().get(sha256) == b"hello", "what the cache has is served meanwhile"


def test_a_store_that_hangs_takes_one_thread_and_is_asked_again_soon(
    tmp_path: Path, object_server: ObjectServer, proxy: FaultyProxy
) -> None:
    bench = ObjectBench(tmp_path, object_server, proxy, timeout_seconds=0.5)
    sha256 = bench.store().put(b"hello")
    far = bench.on_another_host("other")
    proxy.fault = lambda asked: "hang"
    with pytest.raises(StoreUnavailableError):
        far.get(sha256)
    proxy.asked.clear()
    began = time.monotonic()
    for _ in range(100):
        with pytest.raises(StoreUnavailableError):
            far.get(sha256)
    assert time.monotonic() - began < 1
    assert proxy.asked == []
    proxy.fault = lambda asked: None

    def answers() -> bool:
        with suppress(StoreUnavailableError):
            return far.get(sha256) == b"hello"
        return False

    wait_until(answers, seconds=10, what="the store is asked again")


@pytest.mark.parametrize("kind", ["cut", "other bytes"])
def test_a_body_that_is_cut_or_forged_is_neither_given_out_nor_cached(
    remote: ObjectBench, store: ContentStore, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_blobs, "PAUSE_SECONDS", 0.0)
    sha256 = store.put(b"hello, world")
    far = remote.on_another_host("other")
    remote.proxy.fault = lambda asked: kind if asked.method == "GET" else None
    with pytest.raises((BlobCorruptError, StoreUnavailableError)):
        far.get(sha256)
    assert not [path for path in (remote.root / "other").glob("*/*") if path.is_file()]
    remote.proxy.fault = lambda asked: None
    assert far.get(sha256) == b"hello, world"


def test_more_than_any_site_may_have_is_not_read(
    remote: ObjectBench, store: ContentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    sha256 = store.put(bytes(2000))
    monkeypatch.setattr(object_blobs, "LARGEST_BLOB_BYTES", 1999)
    with pytest.raises(BlobCorruptError):
        remote.on_another_host("other").get(sha256)


def test_a_blob_whose_one_copy_is_damaged_is_read_from_the_other(remote: ObjectBench, store: ContentStore) -> None:
    sha256 = store.put(b"hello")
    remote.later(PERIOD_SECONDS)
    store.put(b"hello")
    current = ("even", "odd")[object_blobs.period_of(remote.now) % 2]
    remote.proxy.fault = lambda asked: "other bytes" if f"/{current}/" in asked.path else None
    assert remote.on_another_host("other").get(sha256) == b"hello"


def test_a_second_put_in_the_same_period_costs_one_look_and_no_write(remote: ObjectBench, store: ContentStore) -> None:
    store.put(b"hello")
    remote.proxy.asked.clear()
    store.put(b"hello")
    assert [asked.method for asked in remote.proxy.asked] == ["HEAD"]


def test_what_the_cache_has_asks_nobody(remote: ObjectBench, store: ContentStore) -> None:
    sha256 = store.put(b"hello")
    remote.proxy.asked.clear()
    assert store.get(sha256) == b"hello"
    assert remote.proxy.asked == []


@pytest.mark.threat("H7")
def test_a_list_that_lags_makes_no_sweep_remove_what_was_put_anew(remote: ObjectBench, store: ContentStore) -> None:
    def sweep() -> int:
        return Sweeper(store).sweep(Kept(frozenset()), older_than=remote.now - 2 * DAYS).blobs

    sha256 = store.put(b"hello")
    remote.later(3 * PERIOD_SECONDS)
    assert sweep() == 0, "it is young; the proxy remembers this list"
    remote.later(PERIOD_SECONDS)
    store.put(b"hello")
    remote.later(PERIOD_SECONDS)
    remote.proxy.fault = lambda asked: "repeat" if asked.lists else None
    assert [blob.name for blob in remote.blobs.list(older_than=remote.now - 2 * DAYS)] == [sha256]
    assert sweep() == 0
    assert store.exists(sha256)


@pytest.mark.threat("H7")
@pytest.mark.parametrize("projects", [True, False])
def test_what_only_a_cache_still_has_is_not_published(remote: ObjectBench, projects: bool) -> None:
    store = ContentStore(remote.root, blobs=remote.blobs, projects=projects)
    manifest = store.put_tree({"index.html": b"<p>hello"})
    store.lay_out("acme_shop", manifest, release_id="r1")
    remote.later(9 * PERIOD_SECONDS)
    assert Sweeper(store).sweep(Kept(frozenset()), older_than=remote.now - 2 * DAYS).blobs == 1
    assert store.read_tree(manifest) == {"index.html": b"<p>hello"}
    with pytest.raises(BlobMissingError):
        store.check_stored(manifest)


@pytest.mark.threat("H7")
def test_a_removal_that_arrives_late_meets_no_blob_that_somebody_relies_on(
    remote: ObjectBench, store: ContentStore
) -> None:
    sha256 = store.put(b"hello")
    remote.later(9 * PERIOD_SECONDS)
    arrives, underway = threading.Event(), threading.Event()

    def delay(asked: Asked) -> None:
        if asked.method in ("DELETE", "POST"):
            underway.set()
            arrives.wait(20)

    remote.proxy.fault = delay  # type: ignore[assignment]
    sweeper = threading.Thread(target=lambda: Sweeper(store).sweep(Kept(frozenset()), older_than=remote.now - 2 * DAYS))
    sweeper.start()
    assert underway.wait(20)
    store.put(b"hello")
    arrives.set()
    sweeper.join(20)
    assert remote.on_another_host("other").get(sha256) == b"hello"


def test_no_sweep_removes_anything_while_the_period_changes(remote: ObjectBench, store: ContentStore) -> None:
    store.put(b"hello")
    remote.later(8 * PERIOD_SECONDS - remote.now % PERIOD_SECONDS)
    for hour in range(26):
        is_near = min(hour % 13, 13 - hour % 13) < 1.5
        listed = list(remote.blobs.list(older_than=remote.now - 2 * DAYS))
        assert not (is_near and listed)
        if is_near:
            for blob in remote.blobs.list():
                assert not remote.blobs.delete(blob, older_than=remote.now)
        remote.later(3600)


def test_a_wrong_or_emptied_bucket_is_not_taken_for_lost_files(
    tmp_path: Path, object_server: ObjectServer, remote: ObjectBench
) -> None:
    sha256 = remote.store().put(b"hello")
    for wrong in ({"prefix": "elsewhere"}, {"prefix": remote.prefix, "url": "s3://nowhere/x"}):
        config = place_at(object_server.endpoint, tmp_path / "wrong", prefix=wrong["prefix"])
        config = config.model_copy(update=wrong)
        with pytest.raises(StoreUnavailableError):
            open_content_store(config).get(sha256)


@pytest.mark.threat("H7")
def test_nothing_is_written_to_a_place_that_nobody_marked_and_no_file_of_it_is_taken_for_lost(
    remote: ObjectBench, proxy: FaultyProxy
) -> None:
    wrong = open_content_store(place_at(proxy.endpoint, remote.root / "wrong", prefix=f"{remote.prefix}-mistyped"))
    proxy.asked.clear()
    for _ in range(2):
        for call in (
            lambda: wrong.check_room(1),
            lambda: wrong.put(b"hello"),
            lambda: wrong.get("0" * 64),
        ):
            with pytest.raises(StoreUnavailableError, match="not a content store"):
                call()
    assert proxy.count("PUT") == 0


def test_a_bucket_that_is_emptied_under_a_process_is_not_taken_for_lost_files(
    remote: ObjectBench, store: ContentStore
) -> None:
    import obstore

    sha256 = store.put(b"hello")
    bucket = object_blobs.open_store(remote.place)
    for page in obstore.list(bucket):
        obstore.delete(bucket, [found["path"] for found in page])
    with pytest.raises(StoreUnavailableError):
        remote.on_another_host("other").get(sha256)
    with pytest.raises(StoreUnavailableError):  # which a publish asks first
        store.exists(sha256)


def test_copies_of_a_store_share_a_connection_and_what_it_has_learnt(remote: ObjectBench, store: ContentStore) -> None:
    store.put(b"hello")
    remote.proxy.asked.clear()
    for _ in range(3):
        pickle.loads(pickle.dumps(store)).check_room(1)
    assert [asked.method for asked in remote.proxy.asked] == ["PUT"] * 3, "the mark is known"
    assert {asked.path.rpartition("/")[2] for asked in remote.proxy.asked} == {socket.gethostname()}
    blobs = pickle.loads(pickle.dumps(store)).blobs
    assert blobs._client is remote.blobs._client  # type: ignore[attr-defined]


def test_a_put_writes_anew_what_was_read_damaged(remote: ObjectBench, store: ContentStore) -> None:
    sha256 = store.put(b"hello")
    remote.plant(sha256, b"hellO")
    with pytest.raises(BlobCorruptError):
        remote.blobs.get(sha256)
    remote.blobs.put_if_absent(sha256, b"hello")
    assert remote.on_another_host("other").get(sha256) == b"hello"


def test_what_others_put_below_a_key_is_not_ours(remote: ObjectBench, store: ContentStore) -> None:
    import obstore

    sha256 = store.put(b"hello")
    for key in ("even", "odd"):
        obstore.put(object_blobs.open_store(remote.place), f"{key}/backup/{sha256}", b"theirs")
    assert [blob.size for blob in remote.blobs.list()] == [5]


@pytest.mark.parametrize(
    ("options", "secrets"),
    [
        ({"region": "x"}, {"access_key_id": "a-real-secret\n", "secret_access_key": "b"}),
        ({"proxy_url": "::bad"}, {"access_key_id": "a-real-secret"}),
        ({"allow_http": "maybe"}, {"access_key_id": "a-real-secret"}),
        ({}, {"nonsense": "a-real-secret"}),
    ],
)
def test_a_panic_of_the_client_is_an_error_of_storage_without_a_secret(
    tmp_path: Path, options: dict[str, str], secrets: dict[str, str]
) -> None:
    hidden = {name: SecretStr(value) for name, value in secrets.items()}
    place = ContentStoreConfig.model_construct(url="s3://bucket", options=options, secrets=hidden)  # some are refused
    blobs = ObjectBlobs(place, BlobCache(tmp_path, most_bytes=0))
    with pytest.raises(StoreUnavailableError) as caught:
        blobs.owner()
    assert "a-real-secret" not in str(caught.value)


def test_a_draft_that_a_crash_left_goes_with_a_later_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    blobs = ObjectBlobs(ContentStoreConfig(url="s3://bucket"), BlobCache(tmp_path / "cache", most_bytes=0))
    left, open_one = blobs.draft(), blobs.draft()
    for draft in (left, open_one):
        draft.write_bytes(b"half")
    os.utime(left, (time.time() - 90_000,) * 2)
    blobs.draft()
    assert (left.exists(), open_one.exists()) == (False, True)


def test_a_secret_that_is_quoted_in_another_form_is_hidden_too() -> None:
    account = json.dumps({"type": "service_account", "private_key": "-----BEGIN-----\nMIIEvQ-a-real-secret"})
    with pytest.raises(StoreUnavailableError) as caught:
        open_store(
            ContentStoreConfig(url="gs://bucket", secrets={"service_account_key": SecretStr(f"{json.dumps(account)} ")})
        )
    assert "a-real-secret" not in str(caught.value)


def test_a_wrong_key_is_an_error_of_storage_that_shows_no_secret(tmp_path: Path, object_server: ObjectServer) -> None:
    config = place_at(object_server.endpoint, tmp_path, prefix="x")
    wrong = config.model_copy(
        update={"secrets": config.secrets | {"secret_access_key": SecretStr("not-the-right-one")}}
    )
    with pytest.raises(StoreUnavailableError) as caught:
        open_content_store(wrong).put(b"hello")
    assert "not-the-right-one" not in str(caught.value)
    assert "not-the-right-one" not in repr(wrong)
    assert "not-the-right-one" not in repr(open_content_store(wrong).blobs)


def test_a_process_that_was_forked_too_late_says_so_instead_of_hanging(
    remote: ObjectBench, store: ContentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_blobs, "_used_by", os.getppid())
    with pytest.raises(RuntimeError, match="before this process was forked"):
        store.put(b"hello")

"""The places for blobs that one suite holds to one contract."""

from __future__ import annotations

import os
import time
from pathlib import Path
from uuid import uuid4

import pytest

from sites.blob_cache import BlobCache
from sites.blobs import BlobStore, LocalBlobs
from sites.content_store import ContentStore
from sites.object_blobs import GUARD_SECONDS, PERIOD_SECONDS, ObjectBlobs, open_store
from tests.object_server import FaultyProxy, ObjectServer, place_at


class LocalBench:
    """Blobs on a local disk, whose files a test can age."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.blobs: BlobStore = LocalBlobs(root)

    @property
    def now(self) -> float:
        return time.time()

    def later(self, seconds: float) -> None:
        for path in (self.root / "blobs").rglob("*"):
            then = path.stat().st_mtime - seconds
            os.utime(path, (then, then))

    def plant(self, sha256: str, data: bytes) -> None:
        path = self.root / "blobs" / sha256[:2] / sha256
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_bytes(data)

    def lose(self, sha256: str) -> None:
        (self.root / "blobs" / sha256[:2] / sha256).unlink()

    def store(self) -> ContentStore:
        return ContentStore(self.root, blobs=self.blobs)


class ObjectBench:
    """Blobs in a real object store, behind a proxy, with a clock that a test moves."""

    def __init__(self, root: Path, server: ObjectServer, proxy: FaultyProxy, *, timeout_seconds: float = 10) -> None:
        self.root = root
        self.proxy = proxy
        self.prefix = uuid4().hex
        self.place = place_at(proxy.endpoint, root, prefix=self.prefix, timeout_seconds=timeout_seconds)
        proxy.offset = -backwards_into_the_middle(time.time())
        self.blobs: BlobStore = self.on_another_host("cache")
        self.blobs.own("the ledger of these tests")

    @property
    def now(self) -> float:
        return time.time() + self.proxy.offset

    def later(self, seconds: float) -> None:
        self.proxy.offset += seconds

    def on_another_host(self, cache: str) -> ObjectBlobs:
        """Return the store as a host with a cache of its own sees it."""
        return ObjectBlobs(self.place, BlobCache(self.root / cache, most_bytes=2**20), clock=lambda: self.now)

    def plant(self, sha256: str, data: bytes) -> None:
        import obstore

        for key in ("even", "odd"):
            obstore.put(open_store(self.place), f"{key}/{sha256}", data)
        self.blobs = self.on_another_host(uuid4().hex)

    def lose(self, sha256: str) -> None:
        import obstore

        obstore.delete(open_store(self.place), [f"{key}/{sha256}" for key in ("even", "odd")])
        self.blobs = self.on_another_host(uuid4().hex)

    def store(self) -> ContentStore:
        return ContentStore(self.root, blobs=self.blobs)


def backwards_into_the_middle(now: float) -> float:
    """Return how far back a time is at which a sweep may delete."""
    last = PERIOD_SECONDS - GUARD_SECONDS - 600
    position = now % PERIOD_SECONDS
    if GUARD_SECONDS + 600 <= position <= last:
        return 0
    return (position - last) % PERIOD_SECONDS


@pytest.fixture
def remote(tmp_path: Path, object_server: ObjectServer, proxy: FaultyProxy) -> ObjectBench:
    return ObjectBench(tmp_path, object_server, proxy)


@pytest.fixture(params=["local", "s3"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> LocalBench | ObjectBench:
    if request.param == "local":
        return LocalBench(tmp_path)
    found = request.getfixturevalue("remote")
    assert isinstance(found, ObjectBench)
    return found

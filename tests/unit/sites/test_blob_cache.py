"""The cache of a remote store: bounded, shared, and never believed unchecked."""

from __future__ import annotations

import hashlib
import os
import threading
from pathlib import Path

import pytest

from sites.blob_cache import BlobCache
from sites.disk import locked_file

KIB = 1024


def blob(number: int, size: int = KIB) -> tuple[str, bytes]:
    data = number.to_bytes(4, "big") * (size // 4)
    return hashlib.sha256(data).hexdigest(), data


def size_of(root: Path) -> int:
    return sum(path.stat().st_size for path in root.glob("*/*"))


def test_what_was_put_is_there_and_what_was_not_is_not(tmp_path: Path) -> None:
    cache = BlobCache(tmp_path / "cache", most_bytes=10 * KIB)
    cache.put(*blob(1))
    assert cache.get(blob(1)[0]) == blob(1)[1]
    assert cache.get(blob(2)[0]) is None
    assert BlobCache(tmp_path / "cache", most_bytes=10 * KIB).get(blob(1)[0]) == blob(1)[1]


def test_the_least_recently_used_go_and_the_bound_holds_at_every_step(tmp_path: Path) -> None:
    cache = BlobCache(tmp_path, most_bytes=20 * KIB)
    for number in range(100):
        cache.put(*blob(number))
        assert size_of(tmp_path) <= 20 * KIB
        assert cache.get(blob(0)[0]) is not None, "it was used just now"
    assert cache.get(blob(1)[0]) is None
    assert cache.get(blob(99)[0]) is not None


@pytest.mark.parametrize("most_bytes", [0, 4 * KIB - 4])
def test_what_is_too_large_or_a_cache_of_nothing_keeps_nothing(tmp_path: Path, most_bytes: int) -> None:
    cache = BlobCache(tmp_path, most_bytes=most_bytes)
    cache.put(*blob(1))
    assert cache.get(blob(1)[0]) is None
    assert size_of(tmp_path) == 0


@pytest.mark.parametrize("bad", [b"", b"other bytes"])
def test_other_bytes_are_not_believed_and_make_way(tmp_path: Path, bad: bytes) -> None:
    cache = BlobCache(tmp_path, most_bytes=10 * KIB)
    sha256, data = blob(1)
    cache.put(sha256, data)
    (tmp_path / sha256[:2] / sha256).write_bytes(bad)
    assert cache.get(sha256) is None
    cache.put(sha256, data)
    assert cache.get(sha256) == data


def test_what_a_crash_left_is_counted_again_and_cleared(tmp_path: Path) -> None:
    cache = BlobCache(tmp_path, most_bytes=10 * KIB)
    cache.put(*blob(1))
    (tmp_path / "ab").mkdir()
    (tmp_path / "ab" / ".half.0123").write_bytes(bytes(5 * KIB))
    (tmp_path / "bytes").write_bytes(b"99999")  # counted, and never written
    cache.put(*blob(2))
    assert not (tmp_path / "ab" / ".half.0123").exists()
    assert cache.get(blob(2)[0]) is not None
    (tmp_path / "bytes").write_bytes(b"half a wri")
    cache.put(*blob(3))
    assert cache.get(blob(3)[0]) is not None
    assert int((tmp_path / "bytes").read_bytes()) == size_of(tmp_path)


def test_many_processes_share_one_bound(tmp_path: Path) -> None:
    children = []
    for first in range(4):
        if (child := os.fork()) == 0:
            cache = BlobCache(tmp_path, most_bytes=20 * KIB)
            for number in range(100):
                cache.put(*blob(first * 50 + number))
                cache.get(blob(number)[0])
            os._exit(0)
        children.append(child)
    done, most = threading.Event(), 0

    def watch() -> None:
        nonlocal most
        while not done.is_set():
            with locked_file(tmp_path / "bytes"):  # else files of a moment ago are counted beside those of now
                most = max(most, sum(path.stat().st_size for path in tmp_path.glob("*/*")))

    watcher = threading.Thread(target=watch)
    watcher.start()
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    done.set()
    watcher.join()
    assert size_of(tmp_path) <= 20 * KIB
    assert 0 < most <= 20 * KIB
    for path in tmp_path.glob("*/*"):
        assert hashlib.sha256(path.read_bytes()).hexdigest() == path.name


def test_files_of_another_account_are_read_although_their_time_cannot_be_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = BlobCache(tmp_path, most_bytes=10 * KIB)
    cache.put(*blob(1))

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "utime", refuse)  # tests run as root, whom nothing is refused
    assert cache.get(blob(1)[0]) == blob(1)[1]


@pytest.mark.parametrize("place", ["file", "file/cache"])
def test_a_cache_that_cannot_be_written_costs_nothing_and_says_so_once(
    place: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_bytes(b"a file where the directory should be")
    cache = BlobCache(tmp_path / place, most_bytes=10 * KIB)
    for number in range(3):
        cache.put(*blob(number))
        assert cache.get(blob(number)[0]) is None
    assert [record.message for record in caplog.records] == ["cache_not_written"]

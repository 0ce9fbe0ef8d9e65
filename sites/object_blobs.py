"""Blobs in an object store that speaks S3, or in Google's or Azure's, for hosts that share no file system.

An object store has no lock that keeps a sweep from a blob which somebody is about to rely on. So a blob may stand under
two keys, for even and for odd periods of thirteen hours. A put relies on the key of its own period alone, and writes it
anew unless that was done since this period began. A sweep deletes under the other key alone, away from the change of
periods, and only what is older than two of them. So what a put has relied on stays for a day at least, in whichever
order requests arrive, and no key is both written and deleted in one period. The length is a constant, so that hosts
agree about it whatever their settings, and odd, so that rounds at the same time every day meet both keys. Clocks of
hosts and store may differ by an hour.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sites.blob_cache import BlobCache
from sites.blobs import StoredBlob, check_blob, check_digest, is_digest
from sites.disk import Disk
from sites.errors import BlobCorruptError, BlobMissingError, StoreUnavailableError

if TYPE_CHECKING:
    from obstore.store import ObjectStore

PERIOD_SECONDS = 46_800
"""As long as puts go to one key."""
GUARD_SECONDS = 5_400
"""No sweep deletes so close to the change of periods: clocks differ, and requests are under way."""
LARGEST_BLOB_BYTES = 256 * 2**20
"""More than a site may have; whoever answers with more is not believed."""
_KEYS = ("even", "odd")
_MARK = "store"
"""Stands beside the blobs, so that an empty or wrong bucket is not taken for lost files; a look for room writes it."""
_MARK_BYTES = 4096
PAUSE_SECONDS = 2.0
"""After a failure all calls fail at once for so long; then one tries, and the others wait a moment for its answer."""
_PATIENCE_SECONDS = 1.0
_SHOWN_CHARS = 300


@dataclass(frozen=True)
class ObjectPlace:
    """Where an object store is, and how to get in."""

    url: str
    """`s3://BUCKET/PREFIX`, `gs://...` or `az://...`."""
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Of obstore, secrets among them; what is not given comes from the provider's usual environment."""
    timeout_seconds: float = 10.0
    """Of one request; and after which a failed one is not repeated."""


def period_of(seconds: float) -> int:
    """Return the number of a period since the epoch."""
    return int(seconds // PERIOD_SECONDS)


def may_sweep(key: str, *, now: float) -> bool:
    """Whether a sweep may delete under a key at a time: no put writes there, or has just done so."""
    is_resting = not key.startswith(f"{_KEYS[period_of(now) % 2]}/")
    return is_resting and GUARD_SECONDS <= now % PERIOD_SECONDS < PERIOD_SECONDS - GUARD_SECONDS


_used_by: int | None = None
"""The process whose threads obstore uses; they do not survive a fork."""


class ObjectBlobs:
    """Blobs below one prefix of a bucket, with a cache on this host.

    It opens a connection at the first call, after whatever fork leads to it, and pickles without one.

    Args:
        place: where the objects are.
        cache: keeps copies.
        clock: seconds since the epoch.
    """

    at_once = 8

    def __init__(self, place: ObjectPlace, cache: BlobCache, *, clock: Callable[[], float] = time.time) -> None:
        self._place = place
        self._cache = cache
        self._clock = clock
        self._opening = threading.Lock()
        self._opened: ObjectStore | None = None
        self._is_marked = False
        self._state = threading.Condition()
        self._away_until = 0.0
        """By the monotonic clock; 0 while the store answers."""
        self._is_trying = False
        """Whether one call finds out if a store that was away answers again."""

    def __reduce__(self) -> tuple[Callable[..., ObjectBlobs], tuple[ObjectPlace, BlobCache]]:
        return ObjectBlobs, (self._place, self._cache)

    def put_if_absent(self, sha256: str, data: bytes) -> None:
        """Write an object, unless this period's is there."""
        period = period_of(self._clock())
        if not self._is_marked:
            self.check_room(0)
        key = _key(sha256, period)
        found = self._head(key)
        if found is None or found.size != len(data) or found.touched_at < period * PERIOD_SECONDS:
            with self._asking() as store:
                _obstore().put(store, key, data, use_multipart=False)
        self._cache.put(sha256, data)

    def get(self, sha256: str) -> bytes:
        """Return a blob from the cache, or from whichever key has it unharmed.

        Raises:
            StoreUnavailableError: the store cannot be reached, or holds nothing of ours (the operator's fault).
        """
        if (cached := self._cache.get(check_digest(sha256))) is not None:
            return cached
        is_corrupt = False
        for key in self._keys(sha256):
            data = self._fetch(key)
            if data is None:
                continue
            try:
                check_blob(sha256, data)
            except BlobCorruptError:
                is_corrupt = True
                continue
            self._cache.put(sha256, data)
            return data
        if is_corrupt:
            raise BlobCorruptError(f"blob {sha256} does not match its digest")
        if self._head(_MARK) is None:
            raise StoreUnavailableError(errno.EIO, f"{self._place.url} is not a content store")
        raise BlobMissingError(f"no blob {sha256}")

    def stat(self, sha256: str) -> StoredBlob | None:
        """Return the size and time of an object, of this period's if there is one."""
        for key in self._keys(sha256):
            if (found := self._head(key)) is not None:
                return found
        return None

    def list(self, *, older_than: float | None = None) -> Iterator[StoredBlob]:
        """Yield objects; with a time, those under the key that rests now. What others put there is not ours."""
        now = self._clock()
        for prefix in (f"{name}/" for name in _KEYS):
            if older_than is not None and not may_sweep(prefix, now=now):
                continue
            for blob in self._below(prefix):
                if is_digest(blob.name) and (older_than is None or _is_old(blob, older_than, now)):
                    yield blob

    def _below(self, prefix: str) -> Iterator[StoredBlob]:
        pages: Iterator[Any] | None = None
        while True:
            with self._asking() as store:  # for one page: between two of them the caller asks for other things
                pages = pages or iter(_obstore().list(store, prefix))
                page = next(pages, ())
            if not page:
                return
            yield from map(_blob_of, page)

    def delete(self, blob: StoredBlob, *, older_than: float) -> bool:
        """Remove an object that rests; a list may lag, so its time is looked at again."""
        now = self._clock()
        found = self._head(blob.key)
        if not may_sweep(blob.key, now=now) or found is None or not _is_old(found, older_than, now):
            return False
        with self._asking() as store:
            _obstore().delete(store, blob.key)
        return True

    def place(self, sha256: str, target: Path) -> None:
        """Write a blob as a file, durably."""
        Disk().write(target, self.get(sha256))

    def check_room(self, least_bytes: int) -> None:
        """Write a small object; how much more there is room for, nobody tells."""
        with self._asking() as store:
            _obstore().put(store, _MARK, bytes(_MARK_BYTES), use_multipart=False)
        self._is_marked = True

    @property
    def _store(self) -> ObjectStore:
        """The client, opened at the first call.

        Raises:
            RuntimeError: our fault: another process used it and then forked this one; a call would hang for good.
        """
        global _used_by
        with self._opening:
            if _used_by not in (None, os.getpid()):
                raise RuntimeError("an object store was used before this process was forked")
            if self._opened is None:
                self._opened = open_store(self._place)
                _used_by = os.getpid()
            return self._opened

    def _keys(self, sha256: str) -> tuple[str, str]:
        period = period_of(self._clock())
        return _key(sha256, period), _key(sha256, period + 1)

    def _head(self, key: str) -> StoredBlob | None:
        with suppress(FileNotFoundError), self._asking() as store:
            return _blob_of(_obstore().head(store, key))
        return None

    def _fetch(self, key: str) -> bytes | None:
        with suppress(FileNotFoundError), self._asking() as store:
            found = _obstore().get(store, key)
            return bytes(found.bytes()) if found.meta["size"] <= LARGEST_BLOB_BYTES else b""
        return None

    @contextmanager
    def _asking(self) -> Iterator[ObjectStore]:
        """Yield the client for one call, unless one has just failed: a store that hangs must not take every thread.

        Raises:
            FileNotFoundError: there is no such object.
            StoreUnavailableError: the operator's fault: what else the client raises.
        """
        from obstore.exceptions import BaseError

        store = self._store
        self._begin()
        has_failed = False
        try:
            yield store
        except FileNotFoundError:
            raise
        except (BaseError, OSError) as error:
            has_failed = True
            raise _unavailable(error) from None
        finally:
            self._end(has_failed=has_failed)

    def _begin(self) -> None:
        with self._state:
            self._state.wait_for(lambda: not self._is_trying, _PATIENCE_SECONDS)
            if self._is_trying or time.monotonic() < self._away_until:
                raise StoreUnavailableError(errno.EIO, "object store: a call has just failed")
            self._is_trying = self._away_until > 0

    def _end(self, *, has_failed: bool) -> None:
        with self._state:
            self._away_until = time.monotonic() + PAUSE_SECONDS if has_failed else 0.0
            self._is_trying = False
            self._state.notify_all()


def open_store(place: ObjectPlace) -> ObjectStore:
    """Return a client of an object store; nothing is sent yet.

    Raises:
        StoreUnavailableError: the operator's fault: a setting that it does not know.
    """
    from obstore.exceptions import BaseError
    from obstore.store import from_url

    limit = timedelta(seconds=place.timeout_seconds)
    options: Any = dict(place.options)  # it refuses what it does not know
    is_plain = place.options.get("endpoint", "").startswith("http://")
    try:
        opened: ObjectStore = from_url(
            place.url,
            config=options,
            client_options={"timeout": limit, "connect_timeout": limit, "allow_http": is_plain},
            retry_config={"max_retries": 3, "retry_timeout": limit},
        )
    except BaseError as error:
        raise _unavailable(error) from None
    return opened


def _unavailable(error: Exception) -> StoreUnavailableError:
    return StoreUnavailableError(errno.EIO, f"object store: {str(error).partition(chr(10))[0][:_SHOWN_CHARS]}")


def _obstore() -> Any:
    import obstore

    return obstore


def _key(sha256: str, period: int) -> str:
    return f"{_KEYS[period % 2]}/{check_digest(sha256)}"


def _blob_of(found: Mapping[str, Any]) -> StoredBlob:
    key = str(found["path"])
    return StoredBlob(key.rpartition("/")[2], key, int(found["size"]), found["last_modified"].timestamp())


def _is_old(blob: StoredBlob, older_than: float, now: float) -> bool:
    return blob.touched_at < min(older_than, now - 2 * PERIOD_SECONDS)

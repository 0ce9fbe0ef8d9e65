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
import re
import secrets
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sites.blob_cache import BlobCache
from sites.blobs import StoredBlob, check_blob, check_digest, is_digest
from sites.disk import Disk
from sites.errors import BlobCorruptError, BlobMissingError, StoreUnavailableError

if TYPE_CHECKING:
    from obstore.store import ObjectStore

    from sites.config import ContentStoreConfig

PERIOD_SECONDS = 46_800
"""As long as puts go to one key."""
GUARD_SECONDS = 5_400
"""No sweep deletes so close to the change of periods: clocks differ, and requests are under way."""
LARGEST_BLOB_BYTES = 256 * 2**20
"""More than a site may have; whoever answers with more is not believed."""
_KEYS = ("even", "odd")
_MARK = "ledger"
"""Names the ledger beside its blobs, so that an empty or wrong bucket is not taken for lost files."""
_PROBE_BYTES = 4096
_DRAFT = "pointsman-draft."
_DRAFT_SECONDS = 86_400
"""A draft unchanged for this long was left by a crash."""
PAUSE_SECONDS = 2.0
"""After a failure all calls fail at once for so long; then one tries, and the others wait a moment for its answer."""
_PATIENCE_SECONDS = 1.0
_SHOWN_CHARS = 300
_WORD = re.compile(r"[\w+/=.-]{6,}", re.ASCII)
_PANICS = "pyo3_runtime"
"""The module of the `BaseException` that obstore raises for its own bugs."""


def period_of(seconds: float) -> int:
    """Return the number of a period since the epoch."""
    return int(seconds // PERIOD_SECONDS)


def may_sweep(key: str, *, now: float) -> bool:
    """Whether a sweep may delete under a key at a time: no put writes there, or has just done so."""
    is_resting = not key.startswith(f"{_KEYS[period_of(now) % 2]}/")
    return is_resting and GUARD_SECONDS <= now % PERIOD_SECONDS < PERIOD_SECONDS - GUARD_SECONDS


_used_by: int | None = None
"""The process whose threads obstore uses; they do not survive a fork."""
_clients: dict[tuple[object, ...], Client] = {}
"""Of this process, by place: every copy of a store shares connections, and what is known of the bucket."""
_opening = threading.Lock()


class ObjectBlobs:
    """Blobs below one prefix of a bucket, with a cache on this host.

    It opens a connection at the first call, after whatever fork leads to it, and pickles without one.
    """

    at_once = 8

    def __init__(self, place: ContentStoreConfig, cache: BlobCache, *, clock: Callable[[], float] = time.time) -> None:
        self._place = place
        self._cache = cache
        self._clock = clock

    def __reduce__(self) -> tuple[Callable[..., ObjectBlobs], tuple[ContentStoreConfig, BlobCache]]:
        return ObjectBlobs, (self._place, self._cache)

    def put_if_absent(self, sha256: str, data: bytes) -> None:
        """Write an object, unless this period's is there and nobody has read anything else from it.

        Raises:
            StoreUnavailableError: as `get`.
        """
        self._put_if_absent(sha256, data, len(data))
        self._cache.put(sha256, data)

    def draft(self) -> Path:
        """Return a new name in this host's directory for temporary files; what a crash left there a day ago goes."""
        directory = Path(tempfile.gettempdir())
        for left in directory.glob(f"{_DRAFT}*"):
            with suppress(OSError):  # another user's, or another process is at it
                if left.lstat().st_mtime < time.time() - _DRAFT_SECONDS:
                    left.unlink()
        return directory / f"{_DRAFT}{secrets.token_hex(8)}"

    def put_file(self, sha256: str, draft: Path) -> None:
        """Write an object in parts; the cache keeps no copy.

        Raises:
            StoreUnavailableError: as `get`.
        """
        self._put_if_absent(sha256, draft, draft.stat().st_size)
        draft.unlink()

    def _put_if_absent(self, sha256: str, content: bytes | Path, size: int) -> None:
        period = period_of(self._clock())
        self._check_mark()
        key = _key(sha256, period)
        found = self._head(key)
        is_young = found is not None and found.touched_at >= period * PERIOD_SECONDS and found.size == size
        if not is_young or key in self._client.corrupt:
            self._put(key, content)
            self._client.corrupt.discard(key)

    def get(self, sha256: str) -> bytes:
        """Return a blob from the cache, or from whichever key has it unharmed.

        Raises:
            StoreUnavailableError: the store cannot be reached, or holds nothing of ours (the operator's fault).
        """
        if (cached := self._cache.get(check_digest(sha256))) is not None:
            return cached
        data = self._get(sha256)
        self._cache.put(sha256, data)
        return data

    def scrub(self, sha256: str) -> bytes:
        """Return a blob from whichever key has it unharmed; if none has, from the cache, and write it anew.

        Raises:
            StoreUnavailableError: as `get`.
        """
        try:
            return self._get(check_digest(sha256))
        except (BlobCorruptError, BlobMissingError):
            if (cached := self._cache.get(sha256)) is None:
                raise
            self._put_if_absent(sha256, cached, len(cached))
            return cached

    def _get(self, sha256: str) -> bytes:
        is_corrupt = False
        for key in self._keys(sha256):
            data = self._fetch(key)
            if data is None:
                continue
            try:
                check_blob(sha256, data)
            except BlobCorruptError:
                is_corrupt = True
                self._client.corrupt.add(key)
                continue
            return data
        if is_corrupt:
            raise BlobCorruptError(f"blob {sha256} does not match its digest")
        self._check_emptied()
        raise BlobMissingError(f"no blob {sha256}")

    def stat(self, sha256: str) -> StoredBlob | None:
        """Return the size and time of an object, of this period's if there is one."""
        for key in self._keys(sha256):
            if (found := self._head(key)) is not None:
                return found
        self._check_emptied()
        return None

    def list(self, *, older_than: float | None = None) -> Iterator[StoredBlob]:
        """Yield objects; with a time, those under the key that rests now. What others put there is not ours."""
        now = self._clock()
        for prefix in (f"{name}/" for name in _KEYS):
            if older_than is not None and not may_sweep(prefix, now=now):
                continue
            for blob in self._below(prefix):
                is_ours = is_digest(blob.name) and blob.key == f"{prefix}{blob.name}"
                if is_ours and (older_than is None or _is_old(blob, older_than, now)):
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
        """Write a small object of this host. The free space of an object store is unknown."""
        self._check_mark()
        self._put(f"probes/{socket.gethostname()}", bytes(_PROBE_BYTES))

    def owner(self) -> str | None:
        """Return what stands in the mark."""
        data = self._fetch(_MARK)
        return None if data is None else data.decode(errors="replace")

    def own(self, owner: str, *, takes_over: bool = False) -> None:
        """Write the mark, unless it stands there."""
        from obstore.exceptions import AlreadyExistsError

        if not takes_over and self.owner() is not None:
            return
        mode = "overwrite" if takes_over else "create"
        with suppress(AlreadyExistsError):
            self._put(_MARK, owner.encode(), mode=mode)

    def _check_mark(self) -> None:
        client = self._client
        if not client.is_marked:
            if self._head(_MARK) is None:
                raise StoreUnavailableError(
                    errno.EIO, f"{self._place.url} is not a content store: its object `{_MARK}` is missing"
                )
            client.is_marked = True

    def _check_emptied(self) -> None:
        """Look for the mark anew, before a blob is taken for lost."""
        self._client.is_marked = False
        self._check_mark()

    def _put(self, key: str, content: bytes | Path, *, mode: str = "overwrite") -> None:
        with self._asking() as store:
            _obstore().put(store, key, content, mode=mode, use_multipart=isinstance(content, Path))

    @property
    def _client(self) -> Client:
        """This process's client of the place, opened at the first call.

        Raises:
            RuntimeError: our fault: another process used it and then forked this one; a call would hang for good.
        """
        global _used_by
        with _opening:
            if _used_by not in (None, os.getpid()):
                raise RuntimeError("an object store was used before this process was forked")
            place = self._place
            settings = (frozenset(each.items()) for each in (place.options, place.secrets))
            key = (place.url, *settings, place.timeout_seconds)
            if key not in _clients:
                _clients[key] = Client(open_store(place))
                _used_by = os.getpid()
            return _clients[key]

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
            FileNotFoundError, AlreadyExistsError: there is no such object, or there is one.
            StoreUnavailableError: the operator's fault: what else the client raises.
        """
        from obstore.exceptions import AlreadyExistsError

        client = self._client
        client.begin()
        has_failed = False
        try:
            with _told(self._place):
                yield client.store
        except (FileNotFoundError, AlreadyExistsError):
            raise
        except StoreUnavailableError:
            has_failed = True
            raise
        finally:
            client.end(has_failed=has_failed)


class Client:
    """A connection to one place, and what this process knows of the place."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self.is_marked = False
        self.corrupt: set[str] = set()
        """Keys with other bytes than they should have: the next put writes them anew."""
        self._state = threading.Condition()
        self._away_until = 0.0
        """By the monotonic clock; 0 while the store answers."""
        self._is_trying = False
        """Whether one call finds out if a store that was away answers again."""

    def begin(self) -> None:
        """Wait for a turn.

        Raises:
            StoreUnavailableError: a call has just failed.
        """
        with self._state:
            self._state.wait_for(lambda: not self._is_trying, _PATIENCE_SECONDS)
            if self._is_trying or time.monotonic() < self._away_until:
                raise StoreUnavailableError(errno.EIO, "object store: a call has just failed")
            self._is_trying = self._away_until > 0

    def end(self, *, has_failed: bool) -> None:
        """Note how a call ended."""
        with self._state:
            self._away_until = time.monotonic() + PAUSE_SECONDS if has_failed else 0.0
            self._is_trying = False
            self._state.notify_all()


def open_store(place: ContentStoreConfig) -> ObjectStore:
    """Return a client of an object store; nothing is sent yet.

    Raises:
        StoreUnavailableError: the operator's fault: a setting that it does not know.
    """
    from obstore.store import from_url

    limit = timedelta(seconds=place.timeout_seconds)
    options: Any = {**place.options, **_secrets(place)}  # it refuses what it does not know
    is_plain = options.get("endpoint", "").startswith("http://")
    with _told(place):
        opened: ObjectStore = from_url(
            place.url,
            config=options,
            client_options={"timeout": limit, "connect_timeout": limit, "allow_http": is_plain},
            retry_config={"max_retries": 3, "retry_timeout": limit},
        )
    return opened


def _secrets(place: ContentStoreConfig) -> dict[str, str]:
    return {name: secret.get_secret_value() for name, secret in place.secrets.items()}


@contextmanager
def _told(place: ContentStoreConfig) -> Iterator[None]:
    """Turn what obstore raises into an error of storage, its panics too, which are no `Exception`."""
    from obstore.exceptions import AlreadyExistsError, BaseError

    try:
        yield
    except (FileNotFoundError, AlreadyExistsError):
        raise
    except (BaseError, OSError) as error:
        raise _unavailable(error, place) from None
    except BaseException as error:
        if type(error).__module__ != _PANICS:
            raise
        raise _unavailable(error, place) from None


def _unavailable(error: BaseException, place: ContentStoreConfig) -> StoreUnavailableError:
    """Return an error without any secret, whole or in part: a secret of several words may have been quoted."""
    text = str(error).partition("\n")[0]
    hidden = {word for value in _secrets(place).values() for word in (value, *_WORD.findall(value)) if word}
    for word in sorted(hidden, key=len, reverse=True):
        text = text.replace(word, "***")
    return StoreUnavailableError(errno.EIO, f"object store: {text[:_SHOWN_CHARS]}")


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

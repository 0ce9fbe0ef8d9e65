"""Where the bytes of site files are: a store of blobs under the digests of their bytes, by default on a local disk.

A blob that `put_if_absent` has returned for stays for a time without anybody naming it; after that, a sweep may remove
it unless a release names it.
"""

from __future__ import annotations

import errno
import filecmp
import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sites.disk import Disk
from sites.errors import BlobCorruptError, BlobMissingError, StoreUnavailableError

_PROBE_BYTES = 4096
_MARK = "ledger"
_DIGEST = re.compile(r"[0-9a-f]{64}")


def is_digest(text: str) -> bool:
    """Whether this is a SHA-256 in lower-case hex."""
    return _DIGEST.fullmatch(text) is not None


def check_digest(sha256: str) -> str:
    """Return a digest that may name a blob.

    Raises:
        BlobMissingError: it is none, so nothing is stored under it.
    """
    if not is_digest(sha256):
        raise BlobMissingError("a digest is 64 hex digits")
    return sha256


def check_blob(sha256: str, data: bytes) -> bytes:
    """Return bytes that have this digest.

    Raises:
        BlobCorruptError: they have another.
    """
    if hashlib.sha256(data).hexdigest() != sha256:
        raise BlobCorruptError(f"blob {sha256} does not match its digest")
    return data


@dataclass(frozen=True)
class StoredBlob:
    """What a store knows of one blob, or of a leftover that a crash left half-made."""

    name: str
    """The digest; of a leftover anything else."""
    key: str
    """Where it is, in the store's own words."""
    size: int
    """Bytes."""
    touched_at: float
    """When it was last put, in seconds since the epoch, by the store's clock."""


class BlobStore(Protocol):
    """A place for blobs, safe for several processes and hosts at once.

    Every method raises `OSError` while the store is full, read-only or away (the operator's fault).
    """

    @property
    def at_once(self) -> int:
        """How many puts and gets at once are faster than one after the other."""

    def put_if_absent(self, sha256: str, data: bytes) -> None:
        """Store bytes durably under their digest; what is stored is as good as new, also for a sweep."""

    def draft(self) -> Path:
        """Return where `put_file` finds a file of this host; what a crash left there goes with a sweep or later one."""

    def put_file(self, sha256: str, draft: Path) -> None:
        """Store a draft as `put_if_absent` stores bytes, without holding it in memory; the draft is gone then."""

    def get(self, sha256: str) -> bytes:
        """Return a blob's bytes, checked against the digest.

        Raises:
            BlobMissingError: there is no such blob.
            BlobCorruptError: its bytes have changed.
        """

    def scrub(self, sha256: str) -> bytes:
        """Return a blob as `get`, but from the store itself; one that only a copy has unharmed is stored again."""

    def stat(self, sha256: str) -> StoredBlob | None:
        """Return what is known of a blob; None if there is none."""

    def list(self, *, older_than: float | None = None) -> Iterator[StoredBlob]:
        """Yield all blobs, or those that a sweep may remove: last put before a time, in seconds since the epoch."""

    def delete(self, blob: StoredBlob, *, older_than: float) -> bool:
        """Remove what `list` yielded, unless it was put since; False if it stays or is gone."""

    def place(self, sha256: str, target: Path) -> None:
        """Write a blob, checked, as a new read-only file of a projection.

        Raises:
            BlobMissingError, BlobCorruptError: as `get`.
        """

    def check_room(self, least_bytes: int) -> None:
        """Check that so many bytes can be stored, by storing a few."""

    def owner(self) -> str | None:
        """Return the ledger that this place's blobs belong to, if that was ever recorded."""

    def own(self, owner: str, *, takes_over: bool = False) -> None:
        """Record the ledger that this place's blobs belong to, if none is, or in any case."""


class LocalBlobs:
    """Blobs in a directory of a file system that all processes share.

    A put looks for a blob and touches it under a lock that a sweep takes to compare its age and remove it, so what a
    put relies on is either young or gone.

    With `needs_mark`, nothing is written where no ledger's mark stands, nor is a file of it taken for lost: the shared
    disk may not be mounted there.
    """

    at_once = 1

    def __init__(self, root: Path, disk: Disk | None = None, *, needs_mark: bool = False) -> None:
        self._root = root
        self._disk = disk or Disk()
        self._needs_mark = needs_mark

    def put_if_absent(self, sha256: str, data: bytes) -> None:
        """Store bytes as a file, synced before its name and its name before the return."""
        path = self._path(sha256)
        is_whole = _holds(path, data)
        with self._disk.sharing(self._root):
            is_stored = is_whole and self._disk.touch(path)
        if not is_stored:
            self._check_mark()
            self._disk.make_directory(path.parent)
            self._disk.write_atomically(path, data)

    def put_file(self, sha256: str, draft: Path) -> None:
        """Rename the file, synced before."""
        path = self._path(sha256)
        is_whole = _is_same(path, draft)
        with self._disk.sharing(self._root):
            is_stored = is_whole and self._disk.touch(path)
        if is_stored:
            self._disk.discard(draft)
            return
        self._disk.make_directory(path.parent)
        self._disk.settle_file(draft, path)

    def get(self, sha256: str) -> bytes:
        """Return a file's bytes.

        Raises:
            StoreUnavailableError: the store itself is not there, or its disk fails.
        """
        try:
            data = self._path(sha256).read_bytes()
        except FileNotFoundError:
            self._check_mark()
            if not (self._root / "blobs").is_dir():
                raise StoreUnavailableError(errno.EIO, f"the store at {self._root.name!r} cannot be reached") from None
            raise BlobMissingError(f"no blob {sha256}") from None
        except OSError as error:
            raise StoreUnavailableError(errno.EIO, f"blob {sha256} cannot be read: {error.strerror}") from None
        return check_blob(sha256, data)

    def scrub(self, sha256: str) -> bytes:
        """Return a blob: there is no copy beside it."""
        return self.get(sha256)

    def stat(self, sha256: str) -> StoredBlob | None:
        """Return a file's size and time."""
        found = _look(self._path(sha256))
        if found is None:
            self._check_mark()
        return found

    def list(self, *, older_than: float | None = None) -> Iterator[StoredBlob]:
        """Yield files, and what crashes left beside them."""
        for shard in below(self._root / "blobs"):
            for path in below(shard):
                blob = _look(path)
                if blob is not None and (older_than is None or blob.touched_at < older_than):
                    yield blob

    def delete(self, blob: StoredBlob, *, older_than: float) -> bool:
        """Remove a file, or a directory: a planted one is no reason to stop."""
        path = Path(blob.key)
        with self._disk.excluding(self._root):
            found = _look(path)
            if found is None or found.touched_at >= older_than:
                return False
            if not path.is_dir() or path.is_symlink():
                self._disk.discard(path)
                return True
        shutil.rmtree(path)
        return True

    def place(self, sha256: str, target: Path) -> None:
        """Hard-link the file, or copy it where the disk has no further name for it."""
        data = self.get(sha256)  # a corrupt blob must not become a page
        try:
            self._disk.link(self._path(sha256), target)
        except OSError as error:
            if error.errno != errno.EMLINK:
                raise
            self._disk.write(target, data)

    def check_room(self, least_bytes: int) -> None:
        """Look at the free space, and write and remove a small file."""
        probe = self.draft()
        if self._disk.free_bytes(probe.parent) < least_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        try:
            self._disk.write(probe, bytes(_PROBE_BYTES))
        finally:
            self._disk.discard(probe)

    def owner(self) -> str | None:
        """Return what stands in the mark, a file beside the blobs."""
        with suppress(FileNotFoundError):
            return (self._root / _MARK).read_text(errors="replace")
        return None

    def own(self, owner: str, *, takes_over: bool = False) -> None:
        """Write the mark, unless it stands there."""
        self._disk.make_directory(self._root)
        with self._disk.excluding(self._root):
            if takes_over or not (self._root / _MARK).exists():
                self._disk.write_atomically(self._root / _MARK, owner.encode())

    def draft(self) -> Path:
        """Return a new name beside the blobs."""
        self._check_mark()
        shard = self._root / "blobs" / "00"
        self._disk.make_directory(shard)
        return shard / f".draft.{secrets.token_hex(8)}"

    def _check_mark(self) -> None:
        if self._needs_mark and not (self._root / _MARK).is_file():
            raise StoreUnavailableError(
                errno.EIO, f"{self._root} is no content store: its mark, the file `{_MARK}`, is missing"
            )

    def _path(self, sha256: str) -> Path:
        return self._root / "blobs" / check_digest(sha256)[:2] / sha256


def _holds(path: Path, data: bytes) -> bool:
    """Whether a file can be read and holds these bytes, not others of their length."""
    with suppress(OSError):
        return path.stat().st_size == len(data) and path.read_bytes() == data
    return False


def _is_same(path: Path, draft: Path) -> bool:
    """Whether a file can be read and holds what a draft does."""
    with suppress(OSError):
        return filecmp.cmp(path, draft, shallow=False)
    return False


def _look(path: Path) -> StoredBlob | None:
    with suppress(FileNotFoundError):
        status = path.lstat()
        return StoredBlob(path.name, str(path), status.st_size, status.st_mtime)
    return None


def below(directory: Path) -> Iterator[Path]:
    """Yield what is in a directory of the store; a link leads out of it."""
    if directory.is_dir() and not directory.is_symlink():
        yield from sorted(directory.iterdir())

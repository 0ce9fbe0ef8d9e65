"""Blobs of a remote store on a local disk: bounded in bytes, the least recently used go first.

A cache is only ever a copy. Its bytes are checked at each read, a crash leaves nothing that is believed, and where its
disk is full or read-only, blobs are read from afar.
"""

from __future__ import annotations

import logging
import os
import secrets
from contextlib import suppress
from pathlib import Path

from sites.blobs import check_blob
from sites.disk import locked_file
from sites.errors import BlobCorruptError

logger = logging.getLogger(__name__)

COUNT = "bytes"
"""The file with the total of all others."""
_LARGEST_SHARE = 4
"""A blob of more than this part of the bound is not cached."""


class BlobCache:
    """The cache below one directory, safe for all processes and threads of a host.

    Files appear by rename. Their total stands in a file that is also the lock, and is raised before a file is written:
    after a crash it is too high, never too low, until the next eviction counts anew.

    `most_bytes` is of all files together; with 0 there is no cache.
    """

    def __init__(self, root: Path, *, most_bytes: int) -> None:
        self._root = root
        self._most_bytes = most_bytes
        self._has_failed = False
        """So that a disk that is full for long is one warning."""

    def get(self, sha256: str) -> bytes | None:
        """Return a blob, checked against its digest; None if it is not here."""
        path = self._path(sha256)
        with suppress(OSError):
            data = path.read_bytes()
            try:
                check_blob(sha256, data)
            except BlobCorruptError:
                path.unlink(missing_ok=True)
                return None
            with suppress(OSError):  # another account's: it reads as well, but grows old
                os.utime(path)
            return data
        return None

    def put(self, sha256: str, data: bytes) -> None:
        """Keep a copy of a blob whose digest was checked, if there is room or something older can go."""
        if len(data) * _LARGEST_SHARE > self._most_bytes:
            return
        path = self._path(sha256)
        try:
            self._add(path, data)
        except OSError as error:
            if not self._has_failed:
                logger.warning(
                    "cache_not_written", extra={"path": str(self._root), "error": os.strerror(error.errno or 0)}
                )
            self._has_failed = True

    def _add(self, path: Path, data: bytes) -> None:
        self._root.mkdir(parents=True, exist_ok=True)
        with locked_file(self._root / COUNT) as count:
            if path.exists():
                return
            total = _read(count)
            if total is None or total + len(data) > self._most_bytes:
                total = self._evict(self._most_bytes * 7 // 8 - len(data))
            os.pwrite(count, f"{total + len(data):<31}\n".encode(), 0)
            path.parent.mkdir(exist_ok=True)
            draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
            try:
                draft.write_bytes(data)
                draft.replace(path)
            finally:
                draft.unlink(missing_ok=True)

    def _path(self, sha256: str) -> Path:
        return self._root / sha256[:2] / sha256

    def _evict(self, most_bytes: int) -> int:
        """Remove the least recently used files until the others have at most so many bytes; return how many."""
        files = []
        for path in self._root.glob("*/*"):
            if path.name.startswith("."):  # left by a crash, since writers hold the lock
                path.unlink(missing_ok=True)
                continue
            with suppress(FileNotFoundError):
                status = path.lstat()
                files.append((status.st_mtime_ns, status.st_size, path))
        total = sum(size for _, size, _ in files)
        for _, size, path in sorted(files):
            if total <= most_bytes:
                break
            path.unlink(missing_ok=True)
            total -= size
        return total


def _read(count: int) -> int | None:
    try:
        return int(os.pread(count, 32, 0))
    except ValueError:  # a new cache, or a crash within the write
        return None

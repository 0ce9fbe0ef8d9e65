"""Packages on disk, by what they contain: a bounded cache in which a name from outside is never a path.

Whoever reads gets an open file, so that an entry may be removed at any time, and hashes what it reads again.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Self

from sandbox.mirror.packument import Digest


class Incoming:
    """A file on its way into the store: visible to nobody before it is kept."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("xb")

    def write(self, chunk: bytes) -> None:
        """Append; a full disk is the store's trouble, not the download's."""
        self._file.write(chunk)

    def keep(self, target: Path) -> int:
        """Make the file an entry, and return its size."""
        self._file.close()
        size = self._path.stat().st_size
        target.parent.mkdir(exist_ok=True)
        self._path.replace(target)
        return size

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._path.unlink(missing_ok=True)


class Store:
    """The cache of one mirror. The directory belongs to it alone."""

    def __init__(self, root: Path, *, max_bytes: int) -> None:
        self._root = root
        self._max_bytes = max_bytes
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        for leftover in root.glob("*.part"):
            leftover.unlink(missing_ok=True)
        self._sizes = dict(sorted(_entries(root), key=lambda entry: entry[1][1]))
        self._bytes = sum(size for size, _ in self._sizes.values())

    @property
    def used_bytes(self) -> int:
        """What the entries take."""
        return self._bytes

    def open(self, digest: Digest) -> tuple[BinaryIO, int] | None:
        """Return an entry's open file and size, and remember its use; None when there is none."""
        path = self._path(digest)
        try:
            file = path.open("rb")
        except OSError:
            return None
        if (known := self._sizes.pop(path, None)) is not None:
            self._sizes[path] = known  # the last in the order was used last
        with suppress(OSError):
            os.utime(path)
        return file, os.fstat(file.fileno()).st_size

    def incoming(self) -> Incoming:
        """Return a new file to write to.

        Raises:
            OSError: the disk's fault.
        """
        return Incoming(self._root / f"{secrets.token_hex(8)}.part")

    def keep(self, incoming: Incoming, digest: Digest) -> None:
        """Make a written and checked file an entry, and remove those used longest ago that no longer have room.

        Raises:
            OSError: the disk's fault.
        """
        path = self._path(digest)
        self._forget(path)
        size = incoming.keep(path)
        self._sizes[path] = (size, 0.0)
        self._bytes += size
        while self._bytes > self._max_bytes and self._sizes:
            self.remove_path(next(iter(self._sizes)))

    def remove(self, digest: Digest) -> None:
        """Remove an entry that turned out not to be what it is called."""
        self.remove_path(self._path(digest))

    def remove_path(self, path: Path) -> None:
        """Remove an entry by its place."""
        self._forget(path)
        path.unlink(missing_ok=True)

    def _forget(self, path: Path) -> None:
        size, _ = self._sizes.pop(path, (0, 0.0))
        self._bytes -= size

    def _path(self, digest: Digest) -> Path:
        return self._root / f"{digest.algorithm}-{digest.hex[:2]}" / digest.hex


def _entries(root: Path) -> list[tuple[Path, tuple[int, float]]]:
    found = []
    for path in root.glob("sha*-??/*"):
        with suppress(OSError):
            status = path.stat()
            found.append((path, (status.st_size, status.st_mtime)))
    return found

"""The few operations by which the Den changes a disk, each durable when it returns.

They stand apart so that a test can cut the power before any one of them. What a reader may find afterwards is decided
here: files appear by rename, links move by rename, and a directory is synced after its names changed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from monitoring.durable import sync_directory

_READ_ONLY = 0o444


class Disk:
    """Changes to a local file system."""

    def size_of(self, path: Path) -> int | None:
        """Return a file's size in bytes, None when it is not there."""
        with suppress(FileNotFoundError):
            return path.stat().st_size
        return None

    def touch(self, path: Path) -> bool:
        """Let a file or directory be as old as now; False when it is not there."""
        with suppress(FileNotFoundError):
            os.utime(path)
            return True
        return False

    @contextmanager
    def sharing(self, root: Path) -> Iterator[None]:
        """Keep sweeps out of a store while one looks whether something is there, and touches it if it is."""
        with _locked(root, fcntl.LOCK_SH):
            yield

    @contextmanager
    def excluding(self, root: Path) -> Iterator[None]:
        """Keep everybody else from looking while a sweep decides about age and removes."""
        with _locked(root, fcntl.LOCK_EX):
            yield

    def make_directory(self, path: Path) -> None:
        """Make a directory and its parents; those that are there already stay as they are."""
        if path.is_dir():
            return
        self.make_directory(path.parent)
        with suppress(FileExistsError):
            path.mkdir()
            self.sync_directory(path.parent)

    def write_atomically(self, path: Path, data: bytes) -> None:
        """Put a read-only file in place: others see nothing or all of it."""
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        try:
            self.write(temporary, data)
            self.replace(temporary, path)
        finally:
            self.discard(temporary)
        self.sync_directory(path.parent)

    def point(self, link: Path, target: Path) -> None:
        """Make `link` lead to `target`, replacing where it led before in one step."""
        if link.is_symlink() and link.readlink() == target:
            return
        temporary = link.with_name(f".{link.name}.{secrets.token_hex(8)}")
        try:
            self.symlink(target, temporary)
            self.replace(temporary, link)
        finally:
            self.discard(temporary)
        self.sync_directory(link.parent)

    def settle(self, draft: Path, final: Path) -> None:
        """Give a finished directory its name; when another process was first, its equal one stays."""
        try:
            self.replace(draft, final)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
            shutil.rmtree(draft)  # nobody else knows its name
        self.sync_directory(final.parent)

    def write(self, path: Path, data: bytes) -> None:
        """Write a new file and wait until the disk has it."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, _READ_ONLY)
        with open(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())

    def replace(self, source: Path, target: Path) -> None:
        """Rename in one step."""
        os.replace(source, target)

    def symlink(self, target: Path, link: Path) -> None:
        """Make a new symbolic link."""
        os.symlink(target, link)

    def link(self, source: Path, target: Path) -> None:
        """Give a stored file a second name; its bytes are on the disk already."""
        os.link(source, target, follow_symlinks=False)

    def discard(self, path: Path) -> None:
        """Remove a temporary file if it is still there."""
        path.unlink(missing_ok=True)

    def sync_directory(self, path: Path) -> None:
        """Wait until the disk has the names in a directory."""
        sync_directory(path)


@contextmanager
def _locked(root: Path, how: int) -> Iterator[None]:
    """Hold the lock of a store, which is its own directory; the kernel ends it with the process."""
    root.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, how)
        yield
    finally:
        os.close(descriptor)

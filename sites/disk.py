"""Durable changes to a local file system: files appear and links move by rename, and directories are synced."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ledger.durable import sync_directory

_READ_ONLY = 0o444


class Disk:
    """Durable changes to a local file system; a class of its own so that tests can cut the power before each step.

    Files appear and links move by rename, and a directory is synced after its names changed.
    """

    def free_bytes(self, path: Path) -> int:
        """Return how many bytes this process may still write to a directory's file system."""
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize

    def touch(self, path: Path) -> bool:
        """Set a file's or directory's time to now; return False if it does not exist."""
        with suppress(FileNotFoundError):
            os.utime(path)
            return True
        return False

    @contextmanager
    def sharing(self, root: Path) -> Iterator[None]:
        """Keep sweeps out of the store between looking for an entry and touching it."""
        with _locked(root, fcntl.LOCK_SH):
            yield

    @contextmanager
    def excluding(self, root: Path) -> Iterator[None]:
        """Lock the store while a sweep compares ages and removes."""
        with _locked(root, fcntl.LOCK_EX):
            yield

    def make_directory(self, path: Path) -> None:
        """Create a directory and its missing parents."""
        if path.is_dir():
            return
        self.make_directory(path.parent)
        with suppress(FileExistsError):
            path.mkdir()
            self.sync_directory(path.parent)

    def write_atomically(self, path: Path, data: bytes) -> None:
        """Write a read-only file; readers see nothing or all of it."""
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        try:
            self.write(temporary, data)
            self.replace(temporary, path)
        finally:
            self.discard(temporary)
        self.sync_directory(path.parent)

    def settle_file(self, draft: Path, final: Path) -> None:
        """Make a file that was written elsewhere on this disk a read-only one of another name, durably."""
        descriptor = os.open(draft, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.fchmod(descriptor, _READ_ONLY)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        self.replace(draft, final)
        self.sync_directory(final.parent)

    def point(self, link: Path, target: Path) -> None:
        """Point `link` at `target`, atomically."""
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
        """Rename a finished directory into place, or leave it to its maker if another process was first."""
        try:
            self.replace(draft, final)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
        self.sync_directory(final.parent)

    def write(self, path: Path, data: bytes) -> None:
        """Write and sync a new file."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, _READ_ONLY)
        with open(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())

    def replace(self, source: Path, target: Path) -> None:
        """Rename, atomically."""
        os.replace(source, target)

    def symlink(self, target: Path, link: Path) -> None:
        """Create a symbolic link."""
        os.symlink(target, link)

    def link(self, source: Path, target: Path) -> None:
        """Hard-link a stored file under a second name."""
        os.link(source, target, follow_symlinks=False)

    def discard(self, path: Path) -> None:
        """Remove a file if it exists."""
        path.unlink(missing_ok=True)

    def sync_directory(self, path: Path) -> None:
        """Sync the names in a directory."""
        sync_directory(path)


@contextmanager
def locked_file(path: Path) -> Iterator[int]:
    """Lock a file for this process alone and yield its descriptor; the kernel releases the lock with the process."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def try_lock(path: Path) -> int | None:
    """Lock a file and return its descriptor, which holds the lock until it is closed; None if it is locked already."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


@contextmanager
def _locked(root: Path, operation: int) -> Iterator[None]:
    """Lock a store by its own directory; the kernel releases the lock with the process."""
    root.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, operation)
        yield
    finally:
        os.close(descriptor)

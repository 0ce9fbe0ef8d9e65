"""A worker's own directory for temporary files: what a killed worker leaves there goes when the next one starts.

Everything that Python puts into a temporary place in the worker and its pool children lies in it, that of libraries
too (billiard keeps a directory for each pool). A worker is known to live by the lock that it and its children hold.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PREFIX = "pointsman-worker-"
_LOCK = "lock"


def take_scratch() -> Path:
    """Make this process's directory, let temporary files go there, and remove what dead workers left.

    Called once, before anything asks for a temporary file. It is removed when the process ends by itself.

    Raises:
        OSError: there is no place for temporary files (the operator's fault).
    """
    base = Path(tempfile.gettempdir())
    with _alone(base):
        sweep_scratch(base)
        made = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
        descriptor = os.open(made / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    tempfile.tempdir = str(made)
    owner = os.getpid()
    atexit.register(_remove_own, made, owner)
    return made


def sweep_scratch(base: Path) -> list[Path]:
    """Remove the directories of workers that are dead; return them. What another user left is that user's."""
    return [left for left in sorted(base.glob(f"{_PREFIX}*")) if _is_abandoned(left) and _remove(left)]


@contextmanager
def _alone(base: Path) -> Iterator[None]:
    """Let nobody sweep between the making of a directory and its lock."""
    path = base / f"pointsman-workers-{os.getuid()}.lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _is_abandoned(directory: Path) -> bool:
    """Whether nobody holds its lock. One without a lock was left by a worker that was killed while it made it."""
    try:
        if directory.lstat().st_uid != os.getuid() or directory.is_symlink():
            return False
        descriptor = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def _remove(directory: Path) -> bool:
    shutil.rmtree(directory, ignore_errors=True)
    return not directory.exists()


def _remove_own(directory: Path, owner: int) -> None:
    """A pool child that ends is not the worker."""
    if os.getpid() == owner:
        _remove(directory)

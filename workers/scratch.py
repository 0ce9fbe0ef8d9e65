"""A worker's temporary files: a directory of its own, which goes with it, or with the next worker if it was killed."""

from __future__ import annotations

import os
import shutil
import tempfile
from multiprocessing.util import Finalize
from pathlib import Path

from sites.disk import locked_file, try_lock

_PREFIX = "pointsman-worker-"
_LOCK = "lock"
_LAST = -1000
"""After `multiprocessing` has removed what it put there, at -100."""


def create_scratch() -> Path:
    """Create this process's directory for temporary files, and remove those of dead workers.

    Everything that Python puts into a temporary place in the worker and its pool children goes there, libraries' files
    too. A worker lives as long as it or a child locks its directory. Called once, before anything asks for a temporary
    file.

    Raises:
        OSError: there is no place for temporary files (the operator's fault).
    """
    base = Path(tempfile.gettempdir())
    with locked_file(base / f"pointsman-workers-{os.getuid()}.lock"):  # nobody sweeps a directory without its lock yet
        sweep_scratch(base)
        directory = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
        try_lock(directory / _LOCK)  # its descriptor stays open, here and in each child
    tempfile.tempdir = str(directory)
    Finalize(None, _remove, (directory,), exitpriority=_LAST)  # in no pool child that ends
    return directory


def sweep_scratch(base: Path) -> list[Path]:
    """Remove the directories of dead workers and return them; other users' directories stay."""
    return [left for left in sorted(base.glob(f"{_PREFIX}*")) if _is_abandoned(left) and _remove(left)]


def _is_abandoned(directory: Path) -> bool:
    """Whether nobody holds its lock. One without a lock was left by a worker that was killed while creating it."""
    try:
        if directory.lstat().st_uid != os.getuid() or directory.is_symlink():
            return False
        lock = try_lock(directory / _LOCK)
    except OSError:
        return False
    if lock is not None:
        os.close(lock)
    return lock is not None


def _remove(directory: Path) -> bool:
    shutil.rmtree(directory, ignore_errors=True)
    return not directory.exists()

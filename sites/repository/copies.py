"""Copy a run's repository to another installation's disk, again and again until it is the same, and remove it.

Nobody reads the copy before its tenant is there, so it is made in place: what a killed copy left is gone on with. Files
appear whole and durably, each compared by its digest. Objects never change under their names, so those that are there
are not read again.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import stat
from contextlib import suppress
from pathlib import Path

from sites.disk import Disk
from sites.errors import WorkspaceError

DOOMED = ".swept-"
"""Begins the name of what is being removed."""
_MARK = "cell"
_OBJECTS = "objects/"


def claim_root(root: Path, cell: str) -> None:
    """Mark the directory of a cell's workspaces as its own.

    Raises:
        WorkspaceError: the operator's fault: it is another cell's, which would sweep what is not its own.
    """
    disk = Disk()
    if (owner := owner_of(root)) not in (None, cell):
        raise WorkspaceError(f"the workspaces of runs below {root} are those of cell {owner!a}")
    if owner is None:
        disk.make_directory(root)
        disk.write_atomically(root / _MARK, f"{cell}\n".encode())


def owner_of(root: Path) -> str | None:
    """Return the cell that has marked a directory of workspaces; None if none has."""
    with suppress(FileNotFoundError):
        return (root / _MARK).read_text("ascii").strip()
    return None


def copy_workspace(source: Path, target: Path) -> None:
    """Make a repository the same as another one, which is the same afterwards if nobody wrote it meanwhile.

    Raises:
        WorkspaceError: nobody's fault, or a disk's: a file of it differs from what was read.
        OSError: the operator's fault: a disk is full or away.
    """
    disk = Disk()
    wanted, there = _files(source), _files(target)
    for name in sorted(there.keys() - wanted.keys()):
        disk.discard(target / name)
    for name, size in sorted(wanted.items()):
        given, taken = source / name, target / name
        with suppress(FileNotFoundError):  # a draft, whose writer was faster
            is_there = there.get(name) == size
            if not is_there or (not name.startswith(_OBJECTS) and _digest(given) != _digest(taken)):
                _copy_file(given, taken, disk)
    disk.touch(target)  # no sweep takes it for an old one


def remove_workspace(path: Path) -> None:
    """Remove a repository; nobody finds half of one under its name."""
    doomed = path.with_name(f"{DOOMED}{path.name}")
    if doomed.exists():  # a removal was killed
        shutil.rmtree(doomed)
    with suppress(FileNotFoundError):
        path.replace(doomed)
        shutil.rmtree(doomed)


def _files(root: Path) -> dict[str, int]:
    """Return the sizes of a repository's files by path; it holds nothing but directories and plain files."""
    found = {}
    for directory, below, names in os.walk(root):
        for name in (*below, *names):
            path = Path(directory, name)
            with suppress(FileNotFoundError):
                if path.is_dir() and not path.is_symlink():
                    continue
                if not stat.S_ISREG(path.lstat().st_mode):
                    raise WorkspaceError(f"{path} is no plain file")
                found[path.relative_to(root).as_posix()] = path.stat().st_size
    return found


def _copy_file(source: Path, target: Path, disk: Disk) -> None:
    disk.make_directory(target.parent)
    draft = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    try:
        read = hashlib.sha256()
        with source.open("rb") as given, draft.open("xb") as taken:
            while data := given.read(2**20):
                read.update(data)
                taken.write(data)
        if _digest(draft) != read.hexdigest():
            raise WorkspaceError(f"the copy of {source} differs from it")
        disk.settle_file(draft, target)
    finally:
        disk.discard(draft)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

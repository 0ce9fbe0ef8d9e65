"""A directory to which a diff is applied, read file by file and without following a link; changed only as a whole.

Unlike an imported site it may be anything, such as a checkout with configuration and links in it: what no diff names is
not opened. New contents are written beside the old ones first and then put in their places, so that a full disk or a
refused write leaves the directory as it was.
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
import unicodedata
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from sandbox.errors import TreeRefusedError
from sandbox.tree import DEFAULT_MAX_TREE_BYTES

MAX_NAMES = 200_000
_NO_FOLLOW = os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | _NO_FOLLOW
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_FOLLOW
_GIT = ".git"


class Worktree(Mapping[str, bytes]):
    """The plain files of a directory by path in Unicode normal form C; git's own directory is left out.

    Args:
        root: the directory.

    Raises:
        TreeRefusedError: `not_a_directory`, `too_many_files` (the operator's fault).
    """

    def __init__(self, root: Path) -> None:
        if not root.is_dir():
            raise TreeRefusedError("not_a_directory", str(root), "name a directory")
        self.root = root
        self.obstacles: set[str] = set()
        """Paths that are neither plain files nor directories, such as symbolic links."""
        self._names: dict[str, str] = {}
        self._fill()

    def _fill(self) -> None:
        count = 0
        for directory, below, names, descriptor in os.fwalk(self.root, follow_symlinks=False):
            below[:] = sorted(name for name in below if name != _GIT)
            prefix = os.path.relpath(directory, self.root)
            count += len(names) + len(below)
            if count > MAX_NAMES:
                raise TreeRefusedError("too_many_files", str(self.root), f"more than {MAX_NAMES} names")
            for name in sorted([*names, *below]):
                mode = os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode
                path = name if prefix == "." else f"{prefix}/{name}"
                if stat.S_ISREG(mode) and name != _GIT:
                    self._names[unicodedata.normalize("NFC", path)] = path
                elif not stat.S_ISDIR(mode):
                    self.obstacles.add(unicodedata.normalize("NFC", path))

    def __getitem__(self, path: str) -> bytes:
        real = self._names[path]
        with _parent(self.root, real) as (directory, name):
            descriptor = os.open(name, os.O_RDONLY | os.O_NONBLOCK | _NO_FOLLOW, dir_fd=directory)
            with open(descriptor, "rb") as stream:
                data = stream.read(DEFAULT_MAX_TREE_BYTES + 1)
        if len(data) > DEFAULT_MAX_TREE_BYTES:
            raise TreeRefusedError("too_many_bytes", path, f"more than {DEFAULT_MAX_TREE_BYTES} bytes")
        return data

    def __contains__(self, path: object) -> bool:
        return path in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def copy_to(self, out: Path) -> Worktree:
        """Copy everything but git's own directory to a new or empty one; links stay links.

        Raises:
            TreeRefusedError: `not_empty`, `not_a_directory` for `out` (the operator's fault).
        """
        if out.is_symlink() or (out.exists() and not out.is_dir()):
            raise TreeRefusedError("not_a_directory", str(out), "name a new or empty directory")
        if out.exists() and any(out.iterdir()):
            raise TreeRefusedError("not_empty", str(out), "nothing is overwritten; name a new or empty directory")
        if out.resolve().is_relative_to(self.root.resolve()):
            raise TreeRefusedError("not_a_directory", str(out), "a copy cannot lie within what is copied")
        shutil.copytree(
            self.root, out, symlinks=True, dirs_exist_ok=True, ignore=shutil.ignore_patterns(_GIT)
        )  # fmt: skip
        return Worktree(out)

    def write(self, changed: Mapping[str, bytes | None], modes: Mapping[str, str]) -> None:
        """Put new contents in place and take files away.

        Args:
            changed: contents by path; None for a file that is to go.
            modes: new modes by path, in six octal digits; a file without one keeps its own.

        Raises:
            OSError: the disk's or the operator's fault; nothing has changed unless a rename itself failed.
        """
        staged: list[tuple[str, str]] = []
        try:
            for path, data in changed.items():
                if data is not None:
                    real = self._names.get(path, path)
                    staged.append((real, self._stage(real, data)))
        except OSError:
            for real, temporary in staged:
                with suppress(OSError), _parent(self.root, real) as (directory, _):
                    os.unlink(temporary, dir_fd=directory)
            raise
        for real, temporary in staged:
            with _parent(self.root, real) as (directory, name):
                os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
        for path in (path for path, data in changed.items() if data is None):
            self._remove(self._names[path])
        for path, mode in modes.items():
            with _parent(self.root, self._names.get(path, path)) as (directory, name):
                os.chmod(name, 0o755 if mode.endswith("755") else 0o644, dir_fd=directory)

    def _stage(self, real: str, data: bytes) -> str:
        with _parent(self.root, real, make=True) as (directory, name):
            temporary = f".{secrets.token_hex(8)}.new"
            descriptor = os.open(temporary, _NEW_FILE, 0o644, dir_fd=directory)
            with open(descriptor, "wb") as stream:
                stream.write(data)
                with suppress(FileNotFoundError):
                    os.fchmod(stream.fileno(), stat.S_IMODE(os.stat(name, dir_fd=directory).st_mode))
        return temporary

    def _remove(self, real: str) -> None:
        with _parent(self.root, real) as (directory, name):
            os.unlink(name, dir_fd=directory)
        for parent in list(Path(real).parents)[:-1]:  # as git does, directories that become empty go as well
            try:
                (self.root / parent).rmdir()
            except OSError:
                return


@contextmanager
def _parent(root: Path, real: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
    """Give the directory of a file as a descriptor, each step of the way without following a link."""
    *segments, name = real.split("/")
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for segment in segments:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(segment, dir_fd=descriptor)
            deeper = os.open(segment, _OPEN_DIRECTORY, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = deeper
        yield descriptor, name
    finally:
        os.close(descriptor)

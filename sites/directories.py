"""Import, export and patch an operator's directories without ever following a link.

A directory may hold anything and may change meanwhile, so every step opens relative to a held descriptor and never by a
path that could have come to mean something else.
"""

from __future__ import annotations

import errno
import io
import os
import secrets
import shutil
import stat
import tarfile
import unicodedata
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from sites.errors import PathRefusedError, TreeRefusedError
from sites.files import DEFAULT_MAX_TREE_BYTES, MAX_DEPTH, check_path, check_tree, is_planted

_NO_FOLLOW = os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | _NO_FOLLOW
_OPEN_FILE = os.O_RDONLY | os.O_NONBLOCK | _NO_FOLLOW  # a FIFO must not block
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_FOLLOW
MODE_KINDS = {
    stat.S_IFLNK: "symlink",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
    stat.S_IFBLK: "device",
    stat.S_IFCHR: "device",
}


def read_directory(
    root: Path, *, max_bytes: int, max_files: int, keep_planted: bool = False, without: Collection[str] = ()
) -> dict[str, bytes]:
    """Return a directory's files by checked name.

    Args:
        root: the directory itself, not a link to it.
        max_bytes: the most bytes of all files together, counted while reading.
        max_files: the most files.
        keep_planted: read configuration that a tool would obey like any other file, for a scan to judge.
        without: names that are skipped at any depth.

    Raises:
        PathRefusedError: a name breaks a rule (the directory's fault).
        TreeRefusedError: `not_a_directory`, `symlink`, `fifo`, `socket`, `device`, `planted` for configuration that a
            tool would obey, `unreadable`, and the reasons of `check_tree` (likewise).
    """
    files: dict[str, bytes] = {}
    left = max_bytes
    with _opened(root, _OPEN_DIRECTORY) as top:
        for path, data in _walk(top, "", max_bytes, keep_planted, frozenset(without)):
            left -= len(data)
            if left < 0:
                raise TreeRefusedError("too_many_bytes", path, f"more than {max_bytes} bytes")
            if len(files) >= max_files:
                raise TreeRefusedError("too_many_files", path, f"more than {max_files} files")
            files[path] = data
    return check_tree(files, max_bytes=max_bytes, max_files=max_files)


def write_directory(files: Mapping[str, bytes], out: Path) -> None:
    """Write a site to a directory that is new or empty.

    Raises:
        PathRefusedError: a name breaks a rule.
        TreeRefusedError: `not_empty`, `symlink` or `not_a_directory` for `out` (the operator's fault), and the reasons
            of `check_tree`; nothing is written.
    """
    total = sum(map(len, files.values()))
    checked = check_tree(files, max_bytes=total, max_files=len(files))
    with suppress(FileExistsError):  # the next line refuses a link or a file
        out.mkdir(parents=True)
    with _opened(out, _OPEN_DIRECTORY) as top:
        if os.listdir(top):
            raise TreeRefusedError("not_empty", str(out), "an export never overwrites; name a new or empty directory")
        for path, data in checked.items():
            _write_below(top, path.split("/"), data)


def write_tar(files: Mapping[str, bytes], prefix: str) -> bytes:
    """Return a site as a tar archive of plain files below one directory; equal sites give equal bytes.

    Raises:
        PathRefusedError, TreeRefusedError: as `write_directory`.
    """
    checked = check_tree(files, max_bytes=sum(map(len, files.values())), max_files=len(files))
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(checked):
            member = tarfile.TarInfo(f"{check_path(prefix)}/{path}")
            member.size = len(checked[path])
            member.mode = 0o644
            tar.addfile(member, io.BytesIO(checked[path]))
    return buffer.getvalue()


def read_tar(archive: bytes) -> dict[str, bytes]:
    """Return the files of an archive that `write_tar` made, without its one directory. What is no file is left out."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return {
            member.name.partition("/")[2]: content.read()
            for member in tar
            if member.isfile() and (content := tar.extractfile(member)) is not None
        }


def _walk(
    directory: int, prefix: str, max_bytes: int, keep_planted: bool, without: frozenset[str]
) -> Iterator[tuple[str, bytes]]:
    if prefix.count("/") > MAX_DEPTH:
        raise PathRefusedError("too_deep", prefix)
    with os.scandir(directory) as entries:
        names = sorted(entry.name for entry in entries if entry.name not in without)
    for name in names:
        path = check_path(prefix + name)
        if is_planted(name) and not keep_planted:
            raise TreeRefusedError("planted", path, "a tool would obey this file; remove it from the directory first")
        mode = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
        if stat.S_ISDIR(mode):
            with _opened(name, _OPEN_DIRECTORY, directory) as below:
                yield from _walk(below, f"{path}/", max_bytes, keep_planted, without)
        elif stat.S_ISREG(mode):
            yield path, _read_below(directory, name, max_bytes)
        else:
            kind = MODE_KINDS.get(stat.S_IFMT(mode), "device")
            raise TreeRefusedError(kind, path, "only plain files and directories can be imported")


def _read_below(directory: int, name: str, max_bytes: int) -> bytes:
    with _opened(name, _OPEN_FILE, directory) as descriptor:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise TreeRefusedError("device", name, "it changed while it was read")
        if status.st_size > max_bytes:  # before reading: sparse files are free to make
            raise TreeRefusedError("too_many_bytes", name, f"{status.st_size} bytes, at most {max_bytes}")
        with open(descriptor, "rb", closefd=False) as stream:
            return stream.read(max_bytes + 1)


def _write_below(top: int, segments: list[str], data: bytes) -> None:
    if len(segments) > 1:
        with suppress(FileExistsError):
            os.mkdir(segments[0], dir_fd=top)
        with _opened(segments[0], _OPEN_DIRECTORY, top) as below:
            _write_below(below, segments[1:], data)
        return
    descriptor = os.open(segments[0], _NEW_FILE, 0o644, dir_fd=top)
    with open(descriptor, "wb") as stream:
        stream.write(data)


@contextmanager
def _opened(name: str | Path, flags: int, directory: int | None = None) -> Iterator[int]:
    try:
        descriptor = os.open(name, flags, dir_fd=directory)
    except OSError as error:
        if error.errno == errno.ELOOP or (error.errno == errno.ENOTDIR and _is_link(name, directory)):
            raise TreeRefusedError("symlink", str(name), "links are not followed") from None
        if error.errno in (errno.ENOTDIR, errno.ENOENT):
            raise TreeRefusedError("not_a_directory", str(name), "there is no such directory") from None
        raise TreeRefusedError("unreadable", str(name), os.strerror(error.errno or 0)) from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _is_link(name: str | Path, directory: int | None) -> bool:
    return stat.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)


MAX_NAMES = 200_000
_GIT = ".git"


class Worktree(Mapping[str, bytes]):
    """The plain files of a directory to which a diff is applied, by path in normal form C, without `.git`.

    It may be any checkout, with configuration and links in it: only the files that a diff names are opened.

    Raises:
        TreeRefusedError: `not_a_directory`, `too_many_files` (the operator's fault).
    """

    def __init__(self, root: Path) -> None:
        if not root.is_dir():
            raise TreeRefusedError("not_a_directory", str(root), "name a directory")
        self.root = root
        self.obstacles: set[str] = set()
        """Paths of symbolic links and other special files."""
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
        """Copy everything but `.git` to a new or empty directory; links stay links.

        Raises:
            TreeRefusedError: `not_empty`, `not_a_directory` for `out` (the operator's fault).
        """
        if out.is_symlink() or (out.exists() and not out.is_dir()):
            raise TreeRefusedError("not_a_directory", str(out), "name a new or empty directory")
        if out.exists() and any(out.iterdir()):
            raise TreeRefusedError("not_empty", str(out), "nothing is overwritten; name a new or empty directory")
        if out.resolve().is_relative_to(self.root.resolve()):
            raise TreeRefusedError("not_a_directory", str(out), "a copy cannot lie within what is copied")
        shutil.copytree(self.root, out, symlinks=True, dirs_exist_ok=True, ignore=shutil.ignore_patterns(_GIT))
        return Worktree(out)

    def write(self, changed: Mapping[str, bytes | None], modes: Mapping[str, str]) -> None:
        """Write and remove files; new contents are staged beside the old ones, then renamed into place.

        `changed` are contents by path, None for a file to remove; `modes` are new modes in six octal digits, other
        files keep theirs.

        Raises:
            OSError: nothing has changed unless a rename itself failed (the disk's or the operator's fault).
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
        for parent in list(Path(real).parents)[:-1]:  # like git, remove directories that become empty
            try:
                (self.root / parent).rmdir()
            except OSError:
                return


@contextmanager
def _parent(root: Path, real: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
    """Yield a descriptor of a file's directory, opened step by step without following a link."""
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

"""Directories of an operator in and out of the Den, without following a link in either direction.

The directory may hold anything, and somebody may change it meanwhile: every step opens relative to a descriptor that is
already held, never by a path that could have come to mean something else.
"""

from __future__ import annotations

import errno
import io
import os
import stat
import tarfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from sandbox.errors import PathRefusedError, TreeRefusedError
from sandbox.paths import MAX_DEPTH, check_path, is_planted
from sandbox.tree import check_tree

_NO_FOLLOW = os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | _NO_FOLLOW
_OPEN_FILE = os.O_RDONLY | os.O_NONBLOCK | _NO_FOLLOW  # a FIFO must not hold us up
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_FOLLOW
_KINDS = {
    stat.S_IFLNK: "symlink",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
    stat.S_IFBLK: "device",
    stat.S_IFCHR: "device",
}


def read_directory(
    root: Path, *, max_bytes: int, max_files: int, keep_planted: bool = False, without: Collection[str] = ()
) -> dict[str, bytes]:
    """Read a directory as a site.

    Args:
        root: the directory itself, not a link to it.
        max_bytes: what all files together may have, counted while reading; exactly this many pass.
        max_files: how many files there may be.
        keep_planted: whether configuration that a tool would obey is read like any other file, for a scan to judge.
        without: names, at any depth, that are passed over unread.

    Returns:
        Contents by checked name.

    Raises:
        PathRefusedError: a name breaks a rule (the fault of whoever made the directory).
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
    with suppress(FileExistsError):  # a link or a file in its place is refused by the next line
        out.mkdir(parents=True)
    with _opened(out, _OPEN_DIRECTORY) as top:
        if os.listdir(top):
            raise TreeRefusedError("not_empty", str(out), "an export never overwrites; name a new or empty directory")
        for path, data in checked.items():
            _write_below(top, path.split("/"), data)


def write_tar(files: Mapping[str, bytes], prefix: str) -> bytes:
    """Return a site as a tar archive: plain files below one directory, and equal bytes for equal sites.

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
            kind = _KINDS.get(stat.S_IFMT(mode), "device")
            raise TreeRefusedError(kind, path, "only plain files and directories can be imported")


def _read_below(directory: int, name: str, max_bytes: int) -> bytes:
    with _opened(name, _OPEN_FILE, directory) as descriptor:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise TreeRefusedError("device", name, "it changed its kind while it was read")
        if status.st_size > max_bytes:  # before reading: a sparse file costs its maker nothing
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

"""Read a site from an archive that a stranger has packed: zip or tar.gz, member by member (threats A8 and E).

No name in it becomes a path of this host, nothing is read that was not counted first, and what is refused names the
entry and the rule. A link, a device or a sparse file never is a file.
"""

from __future__ import annotations

import gzip
import io
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import IO, NamedTuple, Self

from sites.directories import MODE_KINDS
from sites.errors import PathRefusedError, TreeRefusedError
from sites.files import INDEX, INSTALLED, PACKAGE, NameSet, is_planted

ZIP, GZIP = b"PK\x03\x04", b"\x1f\x8b"
MAGIC_BYTES = 4
"""How much of an archive tells its format."""
SPEC_FILE = "site.json"
"""A site with this file is a spec with its assets; one without it is a site of plain files."""
_MEMBER_KINDS = {tarfile.SYMTYPE: "symlink", tarfile.LNKTYPE: "hardlink", tarfile.FIFOTYPE: "fifo"}
_MEMBERS_PER_FILE = 4
"""Directories, and what desktops add, beside each file that a site may have."""
MEMBER_OVERHEAD = 4096
"""Upper bound of the headers and the padding of one member of a tar archive, in bytes."""
_ROOTS = (INDEX, SPEC_FILE, PACKAGE)
"""What stands at the root of a site; an archive without any of it there may hold the site as its one directory."""
_LEFT_OUT = frozenset({INSTALLED, "__MACOSX", ".DS_Store", "Thumbs.db"})
"""Installed packages, and what desktops put into archives beside the files: nobody's content."""
_BESIDE = "._"
"""Begins the name of what macOS puts into a tar archive beside a file: its attributes, as a file of their own."""
_ONLY_PLAIN = "only plain files and directories are taken"
_LARGEST_HEADER = 16_384
"""Bytes of what stands in a tar archive before a member and is read as a whole, such as a long name."""
_EXTRA_HEADERS = frozenset(
    {tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK}
)
_ZIP_ENTRY = b"PK\x01\x02"
_ENCRYPTED = 0x1
_OF_WINDOWS = frozenset({0, 10, 14})
"""Hosts whose file names hold no backslash; some programs there separate by it (.NET before 4.6.1, PowerShell 5)."""
_READ_BYTES = 262_144
_BROKEN = (zipfile.BadZipFile, tarfile.TarError, zlib.error, struct.error, EOFError, OverflowError, RecursionError)


def is_archive(head: bytes) -> bool:
    """Whether a file that begins with these bytes may be an archive that `read_archive` reads."""
    return head.startswith((ZIP, GZIP))


def read_archive(data: bytes, *, max_bytes: int, max_files: int) -> dict[str, bytes]:
    """Return the files of a zip or tar.gz archive by checked name; if all lie in one directory, that is the site.

    Installed packages and what desktops add are left out.

    `max_bytes` of all files together are counted before they are unpacked.

    Raises:
        PathRefusedError: a name breaks a rule (the sender's fault).
        TreeRefusedError: `bad_archive`, `encrypted`, `compression`, `duplicate`, `symlink`, `hardlink`, `fifo`,
            `socket`, `device`, `sparse`, `planted` for configuration that a tool would obey, `too_many_members`,
            `too_many_files`, `too_many_bytes`, and those of `NameSet` (likewise).
    """
    members = max_files * _MEMBERS_PER_FILE
    try:
        if data.startswith(ZIP):
            found = _take(_zip_members(data, members), max_bytes=max_bytes, max_files=max_files)
        elif data.startswith(GZIP):
            found = _take(_tar_members(data, members, max_bytes), max_bytes=max_bytes, max_files=max_files)
        else:
            raise TreeRefusedError("bad_archive", "", "it is neither a zip nor a tar.gz archive")
    except (PathRefusedError, TreeRefusedError):
        raise
    except (*_BROKEN, ValueError, NotImplementedError, RuntimeError, OSError) as error:
        detail = str(error) if isinstance(error, zipfile.BadZipFile) else type(error).__name__
        raise TreeRefusedError("bad_archive", "", f"it cannot be read: {detail[:200]}") from None
    return _without_root(found)


class _Member(NamedTuple):
    """An entry of an archive, before it is unpacked."""

    name: str
    size: int
    """Stated bytes."""
    open: Callable[[], IO[bytes] | None] | None
    """None for a directory."""


def _take(members: Iterable[_Member], *, max_bytes: int, max_files: int) -> dict[str, bytes]:
    names, files, left = NameSet(), dict[str, bytes](), max_bytes
    for member in members:
        name = member.name.removeprefix("./")
        if member.open is None:
            if name.rstrip("/") not in ("", "."):
                names.add(name.rstrip("/"), is_file=False)
            continue
        if name in files:
            raise TreeRefusedError("duplicate", name, "the archive holds this name twice")
        path = names.add(name)
        if is_planted(path):
            raise TreeRefusedError("planted", path, "a tool would obey this file; remove it first")
        left -= member.size
        if len(files) >= max_files:
            raise TreeRefusedError("too_many_files", path, f"more than {max_files} files")
        if member.size < 0 or left < 0:
            raise TreeRefusedError("too_many_bytes", path, f"more than {max_bytes} bytes when unpacked")
        files[path] = _read(member.open(), member.size, path)
    return files


def _read(stream: IO[bytes] | None, size: int, path: str) -> bytes:
    with stream or io.BytesIO() as opened:
        data = opened.read(size)
    if len(data) != size:
        raise TreeRefusedError("bad_archive", path, "it is shorter than the archive says")
    return data


def _is_left_out(name: str) -> bool:
    return any(part in _LEFT_OUT or part.startswith(_BESIDE) for part in name.split("/"))


def _zip_members(data: bytes, most: int) -> Iterator[_Member]:
    if data.count(_ZIP_ENTRY) > most:  # before the library makes an object of each
        raise TreeRefusedError("too_many_members", "", f"more than {most} entries")
    with zipfile.ZipFile(io.BytesIO(data), metadata_encoding="utf-8") as archive:
        for info in archive.infolist():
            name = info.orig_filename  # the other one ends at a NUL
            if info.create_system in _OF_WINDOWS:
                name = name.replace("\\", "/")
            if not _is_left_out(name):
                _check_zip(info, name)
                yield _Member(name, info.file_size, None if name.endswith("/") else partial(archive.open, info))


def _check_zip(info: zipfile.ZipInfo, name: str) -> None:
    mode = stat.S_IFMT(info.external_attr >> 16)
    if mode not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise TreeRefusedError(MODE_KINDS.get(mode, "device"), name, _ONLY_PLAIN)
    if info.flag_bits & _ENCRYPTED:
        raise TreeRefusedError("encrypted", name, "it is encrypted")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise TreeRefusedError("compression", name, "it is neither stored nor deflated")


def _tar_members(data: bytes, most: int, max_bytes: int) -> Iterator[_Member]:
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as unpacked:
        chunks = iter(lambda: unpacked.read(_READ_BYTES), b"")
        stream = CountedStream(chunks, max_bytes + (most + 2) * MEMBER_OVERHEAD)
        with open_tar(stream) as archive:
            for member in tar_members(archive, most):
                if not _is_left_out(member.name):
                    if kind := refused_kind(member):
                        raise TreeRefusedError(kind, member.name, _ONLY_PLAIN)
                    content = None if member.isdir() else partial(archive.extractfile, member)
                    yield _Member(member.name, member.size, content)


def refused_kind(member: tarfile.TarInfo) -> str:
    """Return what a member is; empty for a plain file or a directory, the only kinds that are taken."""
    if member.issparse():
        return "sparse"
    return "" if member.isdir() or member.isreg() else _MEMBER_KINDS.get(member.type, "device")


def open_tar(stream: CountedStream) -> tarfile.TarFile:
    """Open a stranger's tar archive, to be read once from its beginning to its end."""
    return tarfile.open(
        mode="r|",
        fileobj=stream,
        bufsize=_READ_BYTES,
        tarinfo=SmallHeader,
        encoding="utf-8",
        errors="surrogateescape",
    )


def tar_members(archive: tarfile.TarFile, most: int) -> Iterator[tarfile.TarInfo]:
    """Yield the members of a stream one after the other.

    Raises:
        TreeRefusedError: `too_many_members` (the sender's fault).
    """
    count = 0
    while (member := archive.next()) is not None:
        count += 1
        if count > most:
            raise TreeRefusedError("too_many_members", "", f"more than {most} entries")
        archive.members.clear()  # type: ignore[attr-defined]  # the library remembers every member
        yield member


class SmallHeader(tarfile.TarInfo):
    """A member whose extended headers are small: to read a large one takes the square of its length (CVE-2024-6232)."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        """Read a header.

        Raises:
            TreeRefusedError: `bad_archive` (the sender's fault).
        """
        member = super().frombuf(buf, encoding, errors)
        if member.type in _EXTRA_HEADERS and member.size > _LARGEST_HEADER:
            raise TreeRefusedError("bad_archive", "", f"a header has more than {_LARGEST_HEADER} bytes")
        return member


class CountedStream(io.RawIOBase):
    """A stream of chunks with a length limit, because headers may lie (threat A8)."""

    def __init__(self, chunks: Iterable[bytes], limit: int) -> None:
        self._chunks = iter(chunks)
        self._left = limit
        self._chunk = memoryview(b"")

    def read(self, size: int = -1) -> bytes:
        """Return up to `size` bytes; none at the end."""
        parts: list[memoryview] = []
        wanted = size
        while wanted > 0 and (self._chunk or self._next()):
            part = self._chunk[:wanted]
            self._chunk = self._chunk[len(part) :]
            wanted -= len(part)
            parts.append(part)
        return b"".join(parts)

    def _next(self) -> bool:
        chunk = next((chunk for chunk in self._chunks if chunk), b"")
        self._left -= len(chunk)
        if self._left < 0:
            raise TreeRefusedError("stream_too_long", "", "the archive is longer than its files can be")
        self._chunk = memoryview(chunk)
        return bool(chunk)


def _without_root(files: Mapping[str, bytes]) -> dict[str, bytes]:
    roots = {path.split("/", 1)[0] for path in files}
    if len(roots) != 1 or any(path in files for path in _ROOTS) or roots <= files.keys():
        return dict(files)
    (root,) = roots
    return {path[len(root) + 1 :]: data for path, data in files.items()}

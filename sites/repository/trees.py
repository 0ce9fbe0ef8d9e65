"""Git trees as files, and packs before they are unpacked: what agents see of a project's repository.

A repository is hostile. What cannot be shown safely stays in its trees untouched and is listed with a reason; what
would never end (a tree that names itself a billion times) is refused. Git is not asked, and nothing in a tree is run.
"""

from __future__ import annotations

import stat
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import BinaryIO, NamedTuple, TypeVar

from dulwich.object_store import BaseObjectStore
from dulwich.objects import Blob, Commit, ObjectID, ShaFile, Tree

from sites.errors import PathRefusedError, RepositoryRefusedError, TreeRefusedError, WorkspaceMissingError
from sites.files import MAX_DEPTH, NameSet, collision_key, is_planted, with_parents

MEBIBYTE = 1_048_576
DIRECTORY = 0o040000
KindT = TypeVar("KindT", bound=ShaFile)


@dataclass(frozen=True)
class TreeLimits:
    """How much of a repository is shown."""

    max_entries: int = 20_000
    """Files, directories and everything else in its trees."""
    max_bytes: int = 128 * MEBIBYTE
    """Of all shown files."""
    max_file_bytes: int = 4 * MEBIBYTE
    """A larger file stays in the repository and is not shown."""


class LeftOut(NamedTuple):
    """What of a repository agents do not see and cannot change."""

    path: str
    """A directory stands for everything in it."""
    reason: str
    """`symlink submodule planted file_too_large too_deep unicode_form`, or the naming rule that it breaks."""


@dataclass(frozen=True)
class Snapshot:
    """A commit's files as agents see them."""

    files: Mapping[str, bytes]
    left_out: tuple[LeftOut, ...] = ()

    def hides(self, path: str) -> bool:
        """Whether something hidden stands where `path` would stand, on any file system."""
        return any(collision_key(place) in self._hidden for place in with_parents(path))

    @cached_property
    def _hidden(self) -> frozenset[str]:
        return frozenset(collision_key(left.path) for left in self.left_out)


class Entry(NamedTuple):
    """One name in a tree."""

    name: str
    """Bytes that are not UTF-8 are surrogates, which every naming rule refuses."""
    mode: int
    target: ObjectID

    @property
    def is_directory(self) -> bool:
        """Whether it is another tree."""
        return self.mode == DIRECTORY

    @property
    def is_object(self) -> bool:
        """Whether its target is in this repository: a submodule's commit is not."""
        return stat.S_ISREG(self.mode) or stat.S_ISLNK(self.mode) or self.is_directory


def object_of(store: BaseObjectStore, name: ObjectID, kind: type[KindT]) -> KindT:
    """Return an object.

    Raises:
        WorkspaceMissingError: it is not there, or of another kind.
    """
    try:
        found = store[name]
    except KeyError:
        raise WorkspaceMissingError(f"object {name.decode('ascii', 'replace')} is missing") from None
    if not isinstance(found, kind):
        raise WorkspaceMissingError(f"object {name.decode('ascii', 'replace')} is no {kind.__name__.lower()}")
    return found


def blob_of(store: BaseObjectStore, entry: Entry | None) -> bytes | None:
    """Return a file's content; None for no file.

    Raises:
        WorkspaceMissingError: it is not there, or no file.
    """
    return object_of(store, entry.target, Blob).as_raw_string() if entry is not None else None


def tree_of(store: BaseObjectStore, commit: ObjectID) -> ObjectID:
    """Return a commit's tree.

    Raises:
        WorkspaceMissingError: there is no such commit.
    """
    tree: ObjectID = object_of(store, commit, Commit).tree
    return tree


def entries_of(store: BaseObjectStore, tree: ObjectID | None) -> dict[str, Entry]:
    """Return a tree's entries, in its order; nothing for no tree.

    Raises:
        WorkspaceMissingError: it is not there, or no tree.
    """
    items = object_of(store, tree, Tree).items() if tree is not None else []
    names = [Entry(item.path.decode("utf-8", "surrogateescape"), item.mode, item.sha) for item in items]
    return {entry.name: entry for entry in names}


def read_tree(store: BaseObjectStore, tree: ObjectID, limits: TreeLimits) -> Snapshot:
    """Read a tree as files.

    Raises:
        RepositoryRefusedError: `too_many_entries`, `too_many_bytes` (the repository's owner's fault).
        WorkspaceMissingError: an object is not there.
    """
    reader = _Reader(store, limits)
    reader.walk(tree, "", depth=1)
    return Snapshot(reader.files, tuple(sorted(reader.left_out)))


class _Reader:
    """Walks one tree once; every name counts, so that a small repository cannot unfold into an endless one."""

    def __init__(self, store: BaseObjectStore, limits: TreeLimits) -> None:
        self.files: dict[str, bytes] = {}
        self.left_out: list[LeftOut] = []
        self._store = store
        self._limits = limits
        self._names = NameSet()
        self._read: dict[ObjectID, dict[str, Entry]] = {}
        self._entries = 0
        self._bytes = 0

    def walk(self, tree: ObjectID, prefix: str, *, depth: int) -> None:
        found = self._read.get(tree)
        if found is None:
            found = self._read[tree] = entries_of(self._store, tree)
        for entry in found.values():
            self._entries += 1
            if self._entries > self._limits.max_entries:
                raise RepositoryRefusedError("too_many_entries", f"more than {self._limits.max_entries} names")
            path = prefix + entry.name
            if (reason := self._objection(path, entry.mode, depth)) is not None:
                self._leave_out(path, reason)
            elif entry.is_directory:
                self.walk(entry.target, f"{path}/", depth=depth + 1)
            else:
                self._take(path, entry.target)

    def _objection(self, path: str, mode: int, depth: int) -> str | None:
        if stat.S_ISLNK(mode):
            return "symlink"
        if mode != DIRECTORY and not stat.S_ISREG(mode):
            return "submodule"
        if is_planted(path):
            return "planted"
        if mode == DIRECTORY and depth >= MAX_DEPTH:
            return "too_deep"
        try:
            checked = self._names.add(path, is_file=mode != DIRECTORY)
        except (PathRefusedError, TreeRefusedError) as error:
            return error.reason
        return None if checked == path else "unicode_form"

    def _take(self, path: str, target: ObjectID) -> None:
        data = object_of(self._store, target, Blob).as_raw_string()
        if len(data) > self._limits.max_file_bytes:
            self._leave_out(path, "file_too_large")
            return
        self._bytes += len(data)
        if self._bytes > self._limits.max_bytes:
            raise RepositoryRefusedError("too_many_bytes", f"its files have more than {self._limits.max_bytes} bytes")
        self.files[path] = data

    def _leave_out(self, path: str, reason: str) -> None:
        self.left_out.append(LeftOut(path.encode("utf-8", "surrogateescape").decode("utf-8", "replace"), reason))


_HEADER = struct.Struct(">4sLL")
_TRAILER_BYTES = 20
_OFFSET_DELTA, _REFERENCE_DELTA = 6, 7
_PIECE_BYTES = 65_536
_MAX_NUMBER_BYTES = 10


@dataclass(frozen=True)
class PackLimits:
    """What a project's repository may contain."""

    objects: int = 100_000
    object_bytes: int = 64 * MEBIBYTE
    """One object, unpacked."""
    total_bytes: int = 512 * MEBIBYTE
    """All objects, unpacked."""


def check_pack(stream: BinaryIO, limits: PackLimits) -> None:
    """Check a whole pack and rewind the stream.

    A pack of a few kilobytes can unfold into gigabytes, and the library reads each object as a whole. So every object
    is inflated piece by piece here, and discarded.

    Raises:
        RepositoryRefusedError: `too_many_objects object_too_large too_many_bytes bad_pack` (the sender's fault).
    """
    stream.seek(0)
    try:
        _Pack(stream, limits).check()
    except (struct.error, zlib.error, EOFError) as error:
        raise RepositoryRefusedError("bad_pack", f"it cannot be read ({type(error).__name__})") from None
    stream.seek(0)


class _Pack:
    def __init__(self, stream: BinaryIO, limits: PackLimits) -> None:
        self._stream = stream
        self._limits = limits
        self._rest = b""
        self._total = 0

    def check(self) -> None:
        magic, version, count = _HEADER.unpack(self._take(_HEADER.size))
        if magic != b"PACK" or version != 2:
            raise RepositoryRefusedError("bad_pack", "it is no pack of version 2")
        if count > self._limits.objects:
            raise RepositoryRefusedError("too_many_objects", f"{count} objects, at most {self._limits.objects}")
        for _ in range(count):
            self._object()
        if len(self._rest) + len(self._stream.read(_TRAILER_BYTES + 1)) != _TRAILER_BYTES:
            raise RepositoryRefusedError("bad_pack", "it does not end where it says")

    def _object(self) -> None:
        first = self._take(1)[0]
        kind = first >> 4 & 7
        if first & 0x80:
            self._number()
        if kind == _OFFSET_DELTA:
            self._number()
        elif kind == _REFERENCE_DELTA:
            self._take(20)
        head, size = self._inflate()
        if kind in (_OFFSET_DELTA, _REFERENCE_DELTA):
            size = max(size, _result_bytes(head))
        self._count(size)

    def _inflate(self) -> tuple[bytes, int]:
        """Return how an object begins, and its size."""
        inflater = zlib.decompressobj()
        head, size = b"", 0
        while not inflater.eof:
            given = inflater.unconsumed_tail or self._rest or self._stream.read(_PIECE_BYTES)
            if not given:
                raise EOFError
            if not inflater.unconsumed_tail:
                self._rest = b""
            piece = inflater.decompress(given, _PIECE_BYTES)
            size += len(piece)
            head = head or piece[: 2 * _MAX_NUMBER_BYTES]
            if size > self._limits.object_bytes:
                self._count(size)
        self._rest = inflater.unused_data + self._rest
        return head, size

    def _count(self, size: int) -> None:
        if size > self._limits.object_bytes:
            raise RepositoryRefusedError("object_too_large", f"a file of more than {self._limits.object_bytes} bytes")
        self._total += size
        if self._total > self._limits.total_bytes:
            raise RepositoryRefusedError("too_many_bytes", f"more than {self._limits.total_bytes} bytes, unpacked")

    def _number(self) -> None:
        for _ in range(_MAX_NUMBER_BYTES):
            if not self._take(1)[0] & 0x80:
                return
        raise RepositoryRefusedError("bad_pack", "a number in it never ends")

    def _take(self, count: int) -> bytes:
        if len(self._rest) < count:
            self._rest += self._stream.read(max(count, _PIECE_BYTES))
        if len(self._rest) < count:
            raise EOFError
        taken, self._rest = self._rest[:count], self._rest[count:]
        return taken


def _result_bytes(delta: bytes) -> int:
    """Return the size of a delta's result: the second of the two numbers that it begins with."""
    numbers, place = [0, 0], 0
    for which in (0, 1):
        for step in range(_MAX_NUMBER_BYTES):
            if place >= len(delta):
                raise EOFError
            byte = delta[place]
            place += 1
            numbers[which] |= (byte & 0x7F) << (7 * step)
            if not byte & 0x80:
                break
    return numbers[1]

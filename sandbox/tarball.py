"""Files into a box and out of it, as tar streams under strict rules (notes 2.5, threats A8, D, E).

Into a box goes an archive of plain files and directories that we make. Out comes a stream that hostile code may have
shaped: it is read member by member into the content store, so no name in it ever becomes a host path.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO

from sandbox.box_spec import MEBIBYTE, WORKSPACE
from sites.archives import MEMBER_OVERHEAD, CountedStream, open_tar, refused_kind, tar_members
from sites.content_store import ContentStore, Entry, Manifest
from sites.errors import TreeRefusedError
from sites.files import INSTALLED, NameSet, is_planted, media_type_of

OWNER = 1000
"""The image's own user and group, where a box has no other."""
_FILE_MODE, _RUNNABLE_MODE = 0o644, 0o755
_SCRIPT = b"#!"
"""What names its interpreter may be run: a tree of files by content has no modes."""
_MAX_MEMBERS = 120_000


@dataclass(frozen=True)
class CollectRules:
    """What may come out of a workspace."""

    max_bytes: int
    """Limit of all files together."""
    max_files: int = 5_000
    max_file_bytes: int = 20 * MEBIBYTE
    ignored: frozenset[str] = frozenset({INSTALLED})
    """Names of directories to skip unread, at any depth."""
    planted: Callable[[str], bool] = is_planted
    """Whether a path is configuration that a tool would obey (threat D2); one refuses the whole output."""


def pack(files: Mapping[str, bytes], *, owner: int = OWNER) -> bytes:
    """Return files with checked names as an uncompressed archive of a user's; equal files give equal bytes.

    Every directory has an entry, since an engine would create a missing one as root. The first entry is `./`, since an
    engine guesses compression from the first bytes.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT, encoding="utf-8") as archive:
        archive.addfile(_member("./", owner, is_directory=True))
        for name in _directories(files):
            archive.addfile(_member(f"{name}/", owner, is_directory=True))
        for path, data in sorted(files.items()):
            member = _member(path, owner, size=len(data), is_runnable=data.startswith(_SCRIPT))
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def _directories(paths: Iterable[str]) -> list[str]:
    return sorted({path[:index] for path in paths for index, character in enumerate(path) if character == "/"})


def _member(
    name: str, owner: int, *, size: int = 0, is_directory: bool = False, is_runnable: bool = False
) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type = tarfile.DIRTYPE if is_directory else tarfile.REGTYPE
    member.mode = _RUNNABLE_MODE if is_directory or is_runnable else _FILE_MODE
    member.uid = member.gid = owner
    member.size = size
    return member


def unpack(
    chunks: Iterable[bytes], content_store: ContentStore, rules: CollectRules, *, max_stream_bytes: int
) -> Manifest:
    """Store the files of a workspace's archive.

    The stream is read no further than needed; `max_stream_bytes` is counted as it arrives, because headers may lie
    (threat A8).

    Raises:
        PathRefusedError: a name breaks a rule.
        TreeRefusedError: the tree breaks a rule, with the reason codes of `Box.collect`.
    """
    stream = CountedStream(chunks, max_stream_bytes)
    try:
        with open_tar(stream) as archive:
            return Manifest(dict(_Collector(archive, content_store, rules).entries()))
    except (tarfile.TarError, ValueError, OverflowError, EOFError, RecursionError) as error:
        if isinstance(error, TreeRefusedError) or hasattr(error, "reason"):
            raise
        raise TreeRefusedError("bad_archive", "", f"the archive cannot be read: {type(error).__name__}") from None


class _Collector:
    """Reads one archive once."""

    def __init__(self, archive: tarfile.TarFile, content_store: ContentStore, rules: CollectRules) -> None:
        self._archive = archive
        self._content_store = content_store
        self._rules = rules
        self._names = NameSet()
        self._left = rules.max_bytes
        self._files = 0

    def entries(self) -> Iterator[tuple[str, Entry]]:
        """Store and yield each wanted file."""
        for member in tar_members(self._archive, _MAX_MEMBERS):
            path = self._wanted(member)
            if path is not None and (found := self._take(member, path)) is not None:
                yield path, found

    def _wanted(self, member: tarfile.TarInfo) -> str | None:
        """Return a member's name relative to the workspace; None to skip it."""
        root, *segments = member.name.split("/")
        if root != WORKSPACE.strip("/"):
            raise TreeRefusedError("bad_archive", member.name, "an entry outside the workspace")
        if self._rules.ignored.intersection(segments[:-1]) or (
            member.isdir() and segments and segments[-1] in self._rules.ignored
        ):
            return None
        if not segments and not member.isdir():
            raise TreeRefusedError(refused_kind(member) or "not_a_directory", member.name, "must be a directory")
        return "/".join(segments) if segments else None

    def _take(self, member: tarfile.TarInfo, path: str) -> Entry | None:
        if kind := refused_kind(member):
            raise TreeRefusedError(kind, path, "only plain files and directories may come out of a box")
        path = self._names.add(path, is_file=not member.isdir())
        if self._rules.planted(path):
            raise TreeRefusedError("planted", path, "a tool would obey this file")
        return None if member.isdir() else self._store(member, path)

    def _store(self, member: tarfile.TarInfo, path: str) -> Entry:
        self._files += 1
        self._left -= member.size
        if self._files > self._rules.max_files:
            raise TreeRefusedError("too_many_files", path, f"more than {self._rules.max_files} files")
        if not 0 <= member.size <= self._rules.max_file_bytes:
            raise TreeRefusedError("file_too_large", path, f"more than {self._rules.max_file_bytes} bytes")
        if self._left < 0:
            raise TreeRefusedError("too_many_bytes", path, f"more than {self._rules.max_bytes} bytes")
        data = _read(self._archive.extractfile(member), member.size)
        return Entry(self._content_store.put(data), len(data), media_type_of(path))


def _read(stream: IO[bytes] | None, size: int) -> bytes:
    data = stream.read(size) if stream is not None else b""
    if len(data) != size:
        raise TreeRefusedError("bad_archive", "", "the archive breaks off")
    return data


def stream_limit(*, workspace_bytes: int, workspace_files: int) -> int:
    """Return the maximum size of a full workspace's archive, in bytes."""
    return workspace_bytes + (workspace_files + 2) * MEMBER_OVERHEAD

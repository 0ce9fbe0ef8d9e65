"""The content store: every file of every release, stored once under the digest of its bytes.

A blob's path is made of its digest alone. Only a release's projection writes file names to disk, after `check_path`,
into a directory of its own. Releases are append-only (H-084); the ledger decides which one is active, and the `active`
link follows it.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO

from ledger.durable import sync_directory
from sites.diff.canonical import unified
from sites.errors import BlobCorruptError, BlobMissingError, ManifestError, StoreUnavailableError
from sites.files import (
    DEFAULT_MAX_TREE_BYTES,
    DEFAULT_MAX_TREE_FILES,
    check_path,
    check_tree,
    media_type_of,
    served_part,
)

_READ_ONLY = 0o444
_PROBE_BYTES = 4096


class Disk:
    """Durable changes to a local file system; a class of its own so that tests can cut the power before each step.

    Files appear and links move by rename, and a directory is synced after its names changed.
    """

    def size_of(self, path: Path) -> int | None:
        """Return a file's size in bytes, None if it does not exist."""
        with suppress(FileNotFoundError):
            return path.stat().st_size
        return None

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
        """Rename a finished directory into place, or drop it if another process was first."""
        try:
            self.replace(draft, final)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
            shutil.rmtree(draft)  # nobody else knows its name
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
def _locked(root: Path, operation: int) -> Iterator[None]:
    """Lock a store by its own directory; the kernel releases the lock with the process."""
    root.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, operation)
        yield
    finally:
        os.close(descriptor)


_DIGEST = re.compile(r"[0-9a-f]{64}")
_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
_BUILD_FILES = re.compile(
    r"(package\.json|(vite|webpack|rollup|astro|next|nuxt|svelte|gatsby|eleventy|\.eleventy)(\.config)?\.[cm]?[jt]s"
    r"|gulpfile\.[cm]?js|gruntfile\.[cm]?js|angular\.json|hugo\.toml|_config\.ya?ml|makefile)"
)


@dataclass(frozen=True)
class Entry:
    """One file of a release."""

    sha256: str
    size: int
    """Bytes."""
    media_type: str


class Manifest(Mapping[str, Entry]):
    """The files of one release by path; immutable, and named by its digest."""

    def __init__(self, entries: Mapping[str, Entry], *, public: str = "") -> None:
        """Take the files, and the directory that is served (empty for all)."""
        self._entries = MappingProxyType(dict(sorted(entries.items())))
        self.public = public

    def __getitem__(self, path: str) -> Entry:
        return self._entries[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other) and (not isinstance(other, Manifest) or self.public == other.public)

    def __hash__(self) -> int:
        return hash(self.digest)

    def __reduce__(self) -> tuple[Callable[[str], Manifest], tuple[str]]:
        return Manifest.from_json, (self.to_json(),)

    @cached_property
    def served(self) -> Manifest:
        """The files that visitors get, by the paths they request; without a build's sources."""
        return Manifest(served_part(self._entries, self.public)) if self.public else self

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON, in hex."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    @cached_property
    def total_bytes(self) -> int:
        """The size of all files together."""
        return sum(entry.size for entry in self._entries.values())

    @property
    def has_build(self) -> bool:
        """Whether the site has a build configuration at its root."""
        return any(_BUILD_FILES.fullmatch(path.lower()) for path in self._entries)

    @property
    def signals(self) -> dict[str, int | bool]:
        """The properties that routing considers (`SiteSignals` of the router)."""
        has_js = any(entry.media_type == "text/javascript" for entry in self._entries.values())
        return {"files": len(self), "has_js": has_js, "has_build": self.has_build}

    def to_json(self) -> str:
        """Return the canonical JSON: equal manifests have equal text."""
        files = {path: [entry.sha256, entry.size, entry.media_type] for path, entry in self._entries.items()}
        content = {"v": 1, "files": files} | ({"public": self.public} if self.public else {})
        return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """Parse the output of `to_json`.

        Raises:
            ManifestError: the text is not a manifest (our fault: we stored it).
        """
        try:
            content = json.loads(text)
            entries = {check_path(path): _entry_of(row) for path, row in content["files"].items()}
            return cls(entries, public=check_path(content["public"]) if "public" in content else "")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ManifestError(f"not a manifest: {type(error).__name__}") from None


def _entry_of(row: Any) -> Entry:
    sha256, size, media_type = row
    if not (isinstance(sha256, str) and _DIGEST.fullmatch(sha256) and isinstance(media_type, str)):
        raise ValueError("digest and media type must be strings")
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise ValueError("size must be a count of bytes")
    return Entry(sha256, size, media_type)


class ContentStore:
    """The store below one directory, safe for several processes at once."""

    def __init__(self, root: Path, *, disk: Disk | None = None) -> None:
        self.root = root
        self._disk = disk or Disk()

    def put(self, data: bytes) -> str:
        """Store bytes durably and return their SHA-256 in hex; stored bytes are not written again."""
        sha256 = hashlib.sha256(data).hexdigest()
        path = self._blob_path(sha256)
        with self._disk.sharing(self.root):
            is_stored = self._disk.size_of(path) == len(data) and self._disk.touch(path)
        if not is_stored:
            self._disk.make_directory(path.parent)
            self._disk.write_atomically(path, data)
        return sha256

    def check_room(self, least_bytes: int) -> None:
        """Check that the store takes files: by the free space, and by a small one that is written and removed.

        Raises:
            OSError: the operator's fault: the store is full, read-only or away.
        """
        shard = self.root / "blobs" / "00"  # where a sweep finds what a crash leaves behind
        self._disk.make_directory(shard)
        if self._disk.free_bytes(shard) < least_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        probe = shard / f".probe.{secrets.token_hex(8)}"
        try:
            self._disk.write(probe, bytes(_PROBE_BYTES))
        finally:
            self._disk.discard(probe)

    def get(self, sha256: str) -> bytes:
        """Return a blob's bytes, checked against the digest.

        Raises:
            BlobMissingError: there is no such blob.
            BlobCorruptError: its bytes have changed.
        """
        with self.open_blob(sha256) as stream:
            data = stream.read()
        if hashlib.sha256(data).hexdigest() != sha256:
            raise BlobCorruptError(f"blob {sha256} does not match its digest")
        return data

    def open_blob(self, sha256: str) -> BinaryIO:
        """Open a blob for reading, unchecked.

        Raises:
            BlobMissingError: there is no such blob.
            StoreUnavailableError: the store itself is not there.
        """
        try:
            return self._blob_path(sha256).open("rb")
        except FileNotFoundError:
            if not (self.root / "blobs").is_dir():
                raise StoreUnavailableError(f"the store at {self.root.name!r} cannot be reached") from None
            raise BlobMissingError(f"no blob {sha256}") from None

    def exists(self, sha256: str) -> bool:
        """Whether a blob is stored."""
        return self._blob_path(sha256).is_file()

    def put_tree(
        self,
        files: Mapping[str, bytes],
        *,
        max_bytes: int = DEFAULT_MAX_TREE_BYTES,
        max_files: int = DEFAULT_MAX_TREE_FILES,
        public: str = "",
    ) -> Manifest:
        """Store a set of files and return its manifest; nothing is written unless all names and limits are in order.

        Args:
            files: contents by name.
            max_bytes: of all files together.
            max_files: the most files.
            public: the directory that is served; empty for all.

        Raises:
            PathRefusedError, TreeRefusedError: as `check_tree`.
        """
        checked = check_tree(files, max_bytes=max_bytes, max_files=max_files)
        entries = {path: Entry(self.put(data), len(data), media_type_of(path)) for path, data in checked.items()}
        return Manifest(entries, public=public)

    def read_tree(self, manifest: Manifest) -> dict[str, bytes]:
        """Return all files of a release, each checked against its digest.

        Raises:
            BlobMissingError, BlobCorruptError: as `get`.
        """
        return {path: self.get(entry.sha256) for path, entry in manifest.items()}

    def project(self, site_key: str, manifest: Manifest, *, release_id: str) -> Path:
        """Lay out a release as a directory for web servers and people, and make it the active one.

        Returns:
            The path of the `active` link.

        Raises:
            ValueError, BlobMissingError, BlobCorruptError: as `lay_out`.
        """
        self.lay_out(site_key, manifest, release_id=release_id)
        return self.show(site_key, release_id=release_id)

    def lay_out(self, site_key: str, manifest: Manifest, *, release_id: str) -> None:
        """Build a release's tree durably, before any link that readers follow leads to it.

        `releases/<release_id>` leads to `trees/<digest>` of the served files; a build's sources are not laid out.

        Raises:
            ValueError: `site_key` or `release_id` is no plain word (our fault; they do not come from outside).
            BlobMissingError, BlobCorruptError: as `get`.
        """
        site = self._site(site_key, release_id)
        for part in ("trees", "releases"):
            self._disk.make_directory(site / part)
        self._build_tree(site / "trees", manifest.served)
        self._disk.point(site / "releases" / release_id, Path("..") / "trees" / manifest.served.digest)

    def show(self, site_key: str, *, release_id: str) -> Path:
        """Point the site's `active` link at a release that was laid out, by one rename.

        A reader, or a crash at any step, sees the old release or the new one. To stay on one release, a reader
        resolves `active` once.

        Returns:
            The path of the link.

        Raises:
            ValueError: as `lay_out`.
        """
        site = self._site(site_key, release_id)
        self._disk.point(site / "active", Path("releases") / release_id)
        return site / "active"

    def active_release(self, site_key: str) -> str | None:
        """Return the release that the projection shows, if any."""
        if not _KEY.fullmatch(site_key):
            return None
        with suppress(FileNotFoundError):
            return (self.root / "sites" / site_key / "active").readlink().name
        return None

    def shows(self, site_key: str, manifest: Manifest, *, release_id: str) -> bool:
        """Whether the projection leads to this release, and to a tree that exists."""
        site = self._site(site_key, release_id)
        tree = (site / "trees" / manifest.served.digest).resolve()
        is_active = self.active_release(site_key) == release_id and (site / "active").resolve() == tree
        return is_active and tree.is_dir()

    def _site(self, site_key: str, release_id: str) -> Path:
        for word in (site_key, release_id):
            if not _KEY.fullmatch(word):
                raise ValueError("site_key and release_id must be letters, digits, _ and - only")
        return self.root / "sites" / site_key

    def _build_tree(self, trees: Path, manifest: Manifest) -> None:
        tree = trees / manifest.digest
        with self._disk.sharing(self.root):
            if self._disk.touch(tree):
                return
        draft = trees / f".draft-{secrets.token_hex(8)}"
        directories = {draft}
        self._disk.make_directory(draft)
        for path, entry in manifest.items():
            self.get(entry.sha256)  # a corrupt blob must not become a page
            target = draft / check_path(path)
            directories.update(parent for parent in target.parents if parent.is_relative_to(draft))
            self._disk.make_directory(target.parent)
            self._disk.link(self._blob_path(entry.sha256), target)
        for directory in sorted(directories, reverse=True):
            self._disk.sync_directory(directory)
        self._disk.settle(draft, tree)

    def _blob_path(self, sha256: str) -> Path:
        if not _DIGEST.fullmatch(sha256):
            raise BlobMissingError("a digest is 64 hex digits")
        return self.root / "blobs" / sha256[:2] / sha256


@dataclass(frozen=True)
class ChangeSet:
    """The sorted paths that differ between two sets of files; always computed, never taken from who made the change."""

    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]

    @property
    def is_empty(self) -> bool:
        """Whether nothing changed."""
        return not (self.added or self.changed or self.removed)


def change_set(before: Manifest, after: Manifest) -> ChangeSet:
    """Return the paths that were added, changed and removed."""
    both = before.keys() & after.keys()
    return ChangeSet(
        added=tuple(sorted(after.keys() - before.keys())),
        changed=tuple(sorted(path for path in both if before[path].sha256 != after[path].sha256)),
        removed=tuple(sorted(before.keys() - after.keys())),
    )


def review_diff(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> bytes:
    """Return the change between two sets of files as a patch for review."""
    touched = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    return unified({path: before.get(path) for path in touched}, {path: after.get(path) for path in touched})

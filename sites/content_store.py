"""The content store: every file of every release, stored once under the digest of its bytes.

Where the bytes are is the business of a `BlobStore`, which knows digests alone. Only a release's projection writes file
names to disk, after `check_path`, into a directory of its own. Releases are append-only (H-084); the ledger decides
which one is active, and the `active` link follows it.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from routing.errors import PolicyError
from sites.blobs import BlobStore, LocalBlobs, is_digest
from sites.diff.canonical import unified
from sites.disk import Disk
from sites.errors import BlobCorruptError, BlobMissingError, ManifestError
from sites.files import check_path, check_tree, media_type_of, served_part

if TYPE_CHECKING:
    from sites.config import ContentStoreConfig

ValueT = TypeVar("ValueT")
ResultT = TypeVar("ResultT")

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
    if not (isinstance(sha256, str) and is_digest(sha256) and isinstance(media_type, str)):
        raise ValueError("digest and media type must be strings")
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise ValueError("size must be a count of bytes")
    return Entry(sha256, size, media_type)


class ContentStore:
    """The files and releases of all sites, safe for several processes at once.

    Args:
        root: the directory of the projections, and of the blobs where no other place is given for them.
        disk: makes the changes below `root`.
        blobs: where the bytes are.
        projects: whether releases are laid out below `root`.
    """

    def __init__(
        self, root: Path, *, disk: Disk | None = None, blobs: BlobStore | None = None, projects: bool = True
    ) -> None:
        self.root = root
        self.disk = disk or Disk()
        self.blobs: BlobStore = blobs or LocalBlobs(root, self.disk)
        self._projects = projects

    def put(self, data: bytes) -> str:
        """Store bytes durably and return their SHA-256 in hex; stored bytes are not written again."""
        sha256 = hashlib.sha256(data).hexdigest()
        self.blobs.put_if_absent(sha256, data)
        return sha256

    @contextmanager
    def taking(self) -> Iterator[Path]:
        """Yield where a file may be written for `put_file`; what is left there afterwards is removed."""
        draft = self.blobs.draft()
        try:
            yield draft
        finally:
            draft.unlink(missing_ok=True)

    def put_file(self, sha256: str, draft: Path) -> None:
        """Store a file that lies where `taking` says, under the digest of its bytes, which its writer has computed."""
        self.blobs.put_file(sha256, draft)

    def check_room(self, least_bytes: int) -> None:
        """Check that the store takes files.

        Raises:
            OSError: the operator's fault: the store is full, read-only or away.
        """
        self.blobs.check_room(least_bytes)

    def get(self, sha256: str) -> bytes:
        """Return a blob's bytes, checked against the digest.

        Raises:
            BlobMissingError: there is no such blob.
            BlobCorruptError: its bytes have changed.
            OSError: the store is away (the operator's fault).
        """
        return self.blobs.get(sha256)

    def exists(self, sha256: str) -> bool:
        """Whether a blob is stored."""
        return self.blobs.stat(sha256) is not None

    def put_tree(self, files: Mapping[str, bytes], *, public: str = "") -> Manifest:
        """Store a set of files and return its manifest; nothing is written unless all names and limits are in order.

        `public` is the directory that is served; empty for all.

        Raises:
            PathRefusedError, TreeRefusedError: as `check_tree`.
        """
        checked = check_tree(files)
        digests = self._each(self.put, checked.values())
        entries = {
            path: Entry(sha256, len(data), media_type_of(path))
            for (path, data), sha256 in zip(checked.items(), digests, strict=True)
        }
        return Manifest(entries, public=public)

    def read_tree(self, manifest: Manifest) -> dict[str, bytes]:
        """Return all files of a release, each checked against its digest.

        Raises:
            BlobMissingError, BlobCorruptError: as `get`.
        """
        return dict(zip(manifest, self._each(self.get, [entry.sha256 for entry in manifest.values()]), strict=True))

    def _each(self, work: Callable[[ValueT], ResultT], values: Collection[ValueT]) -> Iterable[ResultT]:
        """Do the same with each value: one after the other, or as many at once as the store likes."""
        if self.blobs.at_once == 1 or len(values) < 2:
            return map(work, values)
        with ThreadPoolExecutor(self.blobs.at_once) as pool:
            return list(pool.map(work, values))

    def check_stored(self, manifest: Manifest) -> None:
        """Check before a release is activated that its served files can be read back, laid out or not.

        Each must be there and of its size; from a remote store its bytes may be read from the cache.

        Raises:
            BlobMissingError, BlobCorruptError, StoreUnavailableError: as `get`.
        """
        for _ in self._each(self._check, manifest.served.values()):
            pass

    def lay_out(self, site_key: str, manifest: Manifest, *, release_id: str) -> None:
        """Build a release's tree durably, before any link that readers follow leads to it.

        `releases/<release_id>` leads to `trees/<digest>` of the served files; a build's sources are not laid out.
        Without a projection it does nothing.

        Raises:
            ValueError: `site_key` or `release_id` is no plain word (our fault; they do not come from outside).
            BlobMissingError, BlobCorruptError: as `get`.
        """
        site = self._site(site_key, release_id)
        if not self._projects:
            return
        for part in ("trees", "releases"):
            self.disk.make_directory(site / part)
        self._build_tree(site / "trees", manifest.served)
        self.disk.point(site / "releases" / release_id, Path("..") / "trees" / manifest.served.digest)

    def show(self, site_key: str, *, release_id: str) -> Path:
        """Point the site's `active` link at a release that was laid out, by one rename, and return the link's path.

        A reader, or a crash at any step, sees the old release or the new one. To stay on one release, a reader
        resolves `active` once.

        Raises:
            ValueError: as `lay_out`.
        """
        site = self._site(site_key, release_id)
        if self._projects:
            self.disk.point(site / "active", Path("releases") / release_id)
        return site / "active"

    def active_release(self, site_key: str) -> str | None:
        """Return the release that the projection shows, if any."""
        if not _KEY.fullmatch(site_key):
            return None
        with suppress(FileNotFoundError):
            return (self.root / "sites" / site_key / "active").readlink().name
        return None

    def shows(self, site_key: str, manifest: Manifest, *, release_id: str) -> bool:
        """Whether the projection, if there is to be one, leads to this release and to a tree that exists."""
        if not self._projects:
            return True
        site = self._site(site_key, release_id)
        tree = (site / "trees" / manifest.served.digest).resolve()
        is_active = self.active_release(site_key) == release_id and (site / "active").resolve() == tree
        return is_active and tree.is_dir()

    def _check(self, entry: Entry) -> None:
        self.get(entry.sha256)
        found = self.blobs.stat(entry.sha256)
        if found is None:
            raise BlobMissingError(f"blob {entry.sha256} is in a cache alone")
        if found.size != entry.size:
            raise BlobCorruptError(f"blob {entry.sha256} is not whole")

    def _site(self, site_key: str, release_id: str) -> Path:
        for word in (site_key, release_id):
            if not _KEY.fullmatch(word):
                raise ValueError("site_key and release_id must be letters, digits, _ and - only")
        return self.root / "sites" / site_key

    def _build_tree(self, trees: Path, manifest: Manifest) -> None:
        tree = trees / manifest.digest
        with self.disk.sharing(self.root):
            if self.disk.touch(tree):
                return
        draft = trees / f".draft-{secrets.token_hex(8)}"
        try:
            self._fill(draft, manifest)
            self.disk.settle(draft, tree)
        finally:  # what fails is tried again for hours: its drafts would pile up until a sweep
            shutil.rmtree(draft, ignore_errors=True)

    def _fill(self, draft: Path, manifest: Manifest) -> None:
        directories = {draft}
        self.disk.make_directory(draft)
        for path, entry in manifest.items():
            target = draft / check_path(path)
            directories.update(parent for parent in target.parents if parent.is_relative_to(draft))
            self.disk.make_directory(target.parent)
            self.blobs.place(entry.sha256, target)
        for directory in sorted(directories, reverse=True):
            self.disk.sync_directory(directory)


def open_content_store(config: ContentStoreConfig) -> ContentStore:
    """Return the content store that the settings describe.

    Raises:
        PolicyError: the operator's fault: the extra for object stores is not installed.
    """
    if not config.url:
        return ContentStore(config.root, blobs=LocalBlobs(config.root, needs_mark=True), projects=config.projects)
    if find_spec("obstore") is None:
        raise PolicyError("POINTSMAN_CONTENT_STORE__URL: needs the extra `s3` (pip install 'pointsman[s3]')")
    from sites.blob_cache import BlobCache
    from sites.object_blobs import ObjectBlobs

    cache = BlobCache(config.root / "cache", most_bytes=config.cache_bytes)
    return ContentStore(config.root, blobs=ObjectBlobs(config, cache), projects=config.projects)


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

"""Give back the disk space of what no release on record needs any more.

What is kept is told by the ledger; this removes the rest, if it is old enough. Young files are left alone, since they
may belong to a release that is being made and is on no record yet. Whoever finds a stored file and relies on it touches
it first (`Den.put`), under the lock that a sweep takes to look at its age: a file is either young or gone, never both.
"""

from __future__ import annotations

import math
import secrets
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.disk import Disk

_SWEPT = ".swept-"


@dataclass(frozen=True)
class Shown:
    """What is kept of one site's projection."""

    releases: frozenset[str] = frozenset()
    """Ids."""
    trees: frozenset[str] = frozenset()
    """Digests of their manifests."""


@dataclass(frozen=True)
class Kept:
    """What the ledger says is needed."""

    blobs: frozenset[str]
    sites: Mapping[str, Shown] = field(default_factory=dict)
    """By the name of their projection."""


@dataclass
class Swept:
    """What a sweep removed, or would remove."""

    blobs: int = 0
    blob_bytes: int = 0
    """Of the removed blobs; trees hold the same files once more and add nothing."""
    trees: int = 0
    leftovers: int = 0
    """Files and directories that a crash left half-made."""


class Sweeper:
    """Sweeps one store."""

    def __init__(self, root: Path, *, disk: Disk | None = None) -> None:
        self._root = root
        self._disk = disk or Disk()

    def sweep(self, kept: Kept, *, older_than: float, is_rehearsal: bool = False) -> Swept:
        """Remove what is not kept.

        Args:
            kept: what is needed.
            older_than: seconds since the epoch; whatever was touched later stays.
            is_rehearsal: only count.

        Returns:
            What was removed, or with `is_rehearsal` would be.
        """
        swept = Swept()
        for site in _below(self._root / "sites"):
            self._sweep_site(site, kept.sites.get(site.name, Shown()), older_than, is_rehearsal, swept)
        for shard in _below(self._root / "blobs"):
            with self._disk.excluding(self._root):
                self._sweep_shard(shard, kept.blobs, older_than, is_rehearsal, swept)
        return swept

    def _sweep_site(self, site: Path, shown: Shown, older_than: float, is_rehearsal: bool, swept: Swept) -> None:
        doomed: list[Path] = []
        with self._disk.excluding(self._root):
            in_use = _in_use(site)
            if not is_rehearsal:
                for link in _doomed(site / "releases", shown.releases | {in_use.name}, older_than):
                    self._disk.discard(link)
            for tree in _doomed(site / "trees", shown.trees | {in_use.resolve().name}, older_than):
                if tree.name.startswith("."):
                    swept.leftovers += 1
                else:
                    swept.trees += 1
                if not is_rehearsal:
                    doomed.append(tree.with_name(f"{_SWEPT}{secrets.token_hex(8)}"))
                    self._disk.replace(tree, doomed[-1])  # nobody finds half a tree under its name
        for tree in doomed:
            shutil.rmtree(tree)

    def _sweep_shard(
        self, shard: Path, blobs: frozenset[str], older_than: float, is_rehearsal: bool, swept: Swept
    ) -> None:  # fmt: skip
        for blob in _doomed(shard, blobs, older_than):
            if blob.name.startswith("."):
                swept.leftovers += 1
            else:
                swept.blobs += 1
                swept.blob_bytes += blob.stat().st_size
            if not is_rehearsal:
                self._disk.discard(blob)


def _doomed(directory: Path, kept: frozenset[str], older_than: float) -> Iterator[Path]:
    return (path for path in _below(directory) if path.name not in kept and _touched_at(path) < older_than)


def _in_use(site: Path) -> Path:
    """Return the release that the projection shows, whatever the ledger says: it may lag behind."""
    try:
        return site / (site / "active").readlink()
    except FileNotFoundError:
        return site / "none"


def _below(directory: Path) -> Iterator[Path]:
    if directory.is_dir():
        yield from sorted(directory.iterdir())


def _touched_at(path: Path) -> float:
    """Return when a name was last touched; what its owner took away meanwhile is as young as can be."""
    try:
        return path.lstat().st_mtime
    except FileNotFoundError:
        return math.inf

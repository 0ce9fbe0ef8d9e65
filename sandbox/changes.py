"""What changed between two sets of files, worked out by us and never taken from who made the change (notes 2.5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sandbox.den import Manifest
from sandbox.diff.canonical import unified


@dataclass(frozen=True)
class ChangeSet:
    """Paths, each sorted."""

    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]

    @property
    def is_empty(self) -> bool:
        """Whether nothing changed."""
        return not (self.added or self.changed or self.removed)


def change_set(before: Manifest, after: Manifest) -> ChangeSet:
    """Return what became of `before`; equal bytes under the same name are no change."""
    both = before.keys() & after.keys()
    return ChangeSet(
        added=tuple(sorted(after.keys() - before.keys())),
        changed=tuple(sorted(path for path in both if before[path].sha256 != after[path].sha256)),
        removed=tuple(sorted(before.keys() - after.keys())),
    )


def review_diff(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> bytes:
    """Return the change from one set of files to another as the patch that a reviewer reads."""
    touched = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    return unified({path: before.get(path) for path in touched}, {path: after.get(path) for path in touched})

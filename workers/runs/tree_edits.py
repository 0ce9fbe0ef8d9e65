"""Trees made from trees: what a step changed goes into a project's repository, and everything else stays as it is.

Only new objects are made, whose names follow from their content, so the same change always gives the same tree.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from dulwich.object_store import BaseObjectStore
from dulwich.objects import Blob, ObjectID, ShaFile, Tree

from workers.errors import ObstructedError
from workers.runs.trees import DIRECTORY, Entry, entries_of, object_of

_PLAIN = 0o100644


@dataclass
class TreeEditor:
    """Makes trees from other trees, and collects the objects that are new. What is not touched stays as it is.

    Args:
        store: has the trees.
    """

    store: BaseObjectStore
    objects: list[ShaFile] = field(default_factory=list)

    def edit(self, tree: ObjectID | None, changes: Mapping[str, bytes | None]) -> ObjectID:
        """Return a tree with other contents; None takes a file away, and a directory that becomes empty goes with it.

        Raises:
            ObstructedError: something else than a file stands where one is to be (the agent's fault).
        """
        changed = self._edit(tree, {tuple(path.split("/")): data for path, data in changes.items()})
        return changed if changed is not None else self._keep(Tree())

    def replace(self, tree: ObjectID | None, tops: Mapping[str, Entry | None]) -> ObjectID:
        """Return a tree in which some top-level names are another tree's entries; None for one that is gone."""
        edited = self._copy(tree)
        for top, entry in tops.items():
            name = top.encode()
            if name in edited:
                del edited[name]
            if entry is not None:
                edited[name] = (entry.mode, entry.target)
        return self._keep(edited)

    def _edit(self, tree: ObjectID | None, changes: Mapping[tuple[str, ...], bytes | None]) -> ObjectID | None:
        edited = self._copy(tree)
        below: dict[str, dict[tuple[str, ...], bytes | None]] = {}
        for path, data in changes.items():
            if len(path) > 1:
                below.setdefault(path[0], {})[path[1:]] = data
        here = {path[0]: data for path, data in changes.items() if len(path) == 1}
        for name in (name for name, data in here.items() if data is None):
            self._remove(edited, name)
        for name, rest in below.items():
            self._descend(edited, name, rest)
        for name, data in here.items():
            if data is not None:
                self._write(edited, name, data)
        return self._keep(edited) if len(edited) else None

    def _remove(self, tree: Tree, name: str) -> None:
        key = name.encode()
        if key in tree and stat.S_ISREG(tree[key][0]):
            del tree[key]

    def _descend(self, tree: Tree, name: str, changes: Mapping[tuple[str, ...], bytes | None]) -> None:
        key = name.encode()
        present = tree[key] if key in tree else None  # noqa: SIM401  # a tree is no dict
        mode, target = present or (DIRECTORY, None)
        if mode != DIRECTORY:
            if all(data is None for data in changes.values()):
                return
            raise ObstructedError(name)
        edited = self._edit(target, changes)
        if edited is not None:
            tree[key] = (DIRECTORY, edited)
        elif target is not None:
            del tree[key]

    def _write(self, tree: Tree, name: str, data: bytes) -> None:
        key = name.encode()
        mode = tree[key][0] if key in tree else _PLAIN
        if not stat.S_ISREG(mode):
            raise ObstructedError(name)
        blob = Blob.from_string(data)
        self.objects.append(blob)
        tree[key] = (mode, blob.id)

    def _copy(self, tree: ObjectID | None) -> Tree:
        copied = Tree()
        if tree is not None:
            for item in object_of(self.store, tree, Tree).items():
                copied.add(item.path, item.mode, item.sha)
        return copied

    def _keep(self, tree: Tree) -> ObjectID:
        self.objects.append(tree)
        return tree.id


class Changed(NamedTuple):
    """A path at which two trees differ."""

    path: str
    before: Entry | None
    after: Entry | None


def compare(
    store: BaseObjectStore, before: ObjectID | None, after: ObjectID | None, *, prefix: str = ""
) -> Iterator[Changed]:
    """Yield where two trees differ: files, and directories that only one of them has, file by file.

    Equal subtrees are passed over unread, so a step's few changes cost little in a large repository.
    """
    old, new = entries_of(store, before), entries_of(store, after)
    for name in sorted(old.keys() | new.keys()):
        left, right = old.get(name), new.get(name)
        if left == right:
            continue
        directories = [entry.target if entry and entry.is_directory else None for entry in (left, right)]
        if any(directories):
            yield from compare(store, directories[0], directories[1], prefix=f"{prefix}{name}/")
        plain = [entry if entry and not entry.is_directory else None for entry in (left, right)]
        if plain[0] != plain[1]:
            yield Changed(prefix + name, plain[0], plain[1])


def entry_at(store: BaseObjectStore, tree: ObjectID | None, path: str) -> Entry | None:
    """Return what stands at a path; None where nothing does."""
    found: Entry | None = None
    for segment in path.split("/"):
        found = entries_of(store, tree).get(segment) if tree is not None else None
        if found is None:
            return None
        tree = found.target if found.is_directory else None
    return found

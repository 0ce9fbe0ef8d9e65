"""A run's workspace: one bare git repository that only the service writes (ADR-003, ruling A17).

Agents never see it. A step gets a commit's files and returns files; the accepted ones become a commit on
`refs/steps/KEY/ATTEMPT`, and the run's coordinator merges that into the run's head, whose id the ledger holds. There is
no working tree, no git program, no hook and no filter, so nothing in a project is ever executed here (threat D10).

Objects and refs appear by rename, under names that follow from their content: any number of workers may write at once,
a killed one leaves nothing half done, and repeating an operation gives the same ids.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from dulwich.errors import NotGitRepository
from dulwich.object_store import BaseObjectStore, MemoryObjectStore, OverlayObjectStore
from dulwich.objects import Blob, Commit, ObjectID, ShaFile, Tree
from dulwich.repo import Repo

from routing.policy.agents import ARTIFACTS, CONTEXT_DIRECTORY, RESULT_FILE
from sites.disk import Disk
from sites.errors import ObstructedError, WorkspaceMissingError, WriteConflictError
from sites.repository.trees import (
    DIRECTORY,
    Entry,
    Snapshot,
    TreeLimits,
    blob_of,
    entries_of,
    object_of,
    read_tree,
    tree_of,
)

_PLAIN = 0o100644


@dataclass
class TreeEditor:
    """Derives trees from other trees, and collects the new objects; the same change always gives the same tree."""

    store: BaseObjectStore
    objects: list[ShaFile] = field(default_factory=list)

    def edit(self, tree: ObjectID | None, changes: Mapping[str, bytes | None]) -> ObjectID:
        """Return a tree with changed contents; None deletes a file, and a directory that becomes empty.

        Raises:
            ObstructedError: something other than a file is in a file's place (the agent's fault).
        """
        changed = self._edit(tree, {tuple(path.split("/")): data for path, data in changes.items()})
        return changed if changed is not None else self._keep(Tree())

    def replace(self, tree: ObjectID | None, tops: Mapping[str, Entry | None]) -> ObjectID:
        """Return a tree with some top-level entries replaced by another tree's; None deletes one."""
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


class Difference(NamedTuple):
    """A file's contents in two commits; None where it is not there."""

    before: bytes | None
    after: bytes | None


def compare(
    store: BaseObjectStore, before: ObjectID | None, after: ObjectID | None, *, prefix: str = ""
) -> Iterator[Changed]:
    """Yield where two trees differ, file by file.

    Equal subtrees are skipped unread, so a step's few changes cost little in a large repository.
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
    """Return the entry at a path; None if there is none."""
    found: Entry | None = None
    for segment in path.split("/"):
        found = entries_of(store, tree).get(segment) if tree is not None else None
        if found is None:
            return None
        tree = found.target if found.is_directory else None
    return found


RESERVED = (ARTIFACTS.rstrip("/"), CONTEXT_DIRECTORY.rstrip("/"), RESULT_FILE)
"""Top-level names for the service and its agents, which no pull request contains."""

AUTHOR = b"Pointsman <pointsman@localhost>"
"""Of every commit made here but the one that is pushed, and a person's at a gate. Messages and the ledger name agents
and people."""
BASE = "refs/heads/base"
"""The commit of the project that a run began with."""
_COMMIT_ID = re.compile(r"[0-9a-f]{40}")
_STEP_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}(/[A-Za-z0-9][A-Za-z0-9_-]{0,63}){0,3}")


def new_objects(store: BaseObjectStore, name: ObjectID) -> Iterator[ShaFile]:
    """Yield a commit and what its parent does not have."""
    commit = object_of(store, name, Commit)
    yield commit
    parent: ObjectID | None = commit.parents[0] if commit.parents else None
    before = object_of(store, parent, Commit) if parent is not None else None
    if parent is not None and before is not None and not before.parents and before.author == AUTHOR:
        yield from new_objects(store, parent)  # the remote was empty: our first commit is new to it too
    yield from _new_in_tree(store, tree_of(store, parent) if parent is not None else None, commit.tree)


def _new_in_tree(store: BaseObjectStore, before: ObjectID | None, after: ObjectID) -> Iterator[ShaFile]:
    if before == after:
        return
    yield object_of(store, after, Tree)
    old_entries = entries_of(store, before)
    for entry in entries_of(store, after).values():
        old = old_entries.get(entry.name)
        if old is not None and old.target == entry.target:
            continue
        if entry.is_directory:
            yield from _new_in_tree(store, old.target if old and old.is_directory else None, entry.target)
        elif entry.is_object:
            yield object_of(store, entry.target, ShaFile)


class Step(NamedTuple):
    """The step and attempt that made a commit."""

    key: str
    attempt: int
    round: str = ""
    """The run in hexadecimal where it works in an earlier run's repository: rounds have steps of the same names."""

    @property
    def ref(self) -> str:
        """The ref of its commit."""
        return f"refs/{f'rounds/{self.round}' if self.round else 'steps'}/{self.key}/{self.attempt}"


@dataclass(frozen=True)
class Absorbed:
    """The run's head after a step's changes were merged."""

    head: str
    changed: tuple[str, ...]
    """Paths that the step changed, sorted."""


class Workspace:
    """One run's repository."""

    def __init__(self, path: Path, *, limits: TreeLimits | None = None) -> None:
        self.path = path
        self._limits = limits or TreeLimits()
        self._disk = Disk()

    @classmethod
    def of_run(cls, root: Path, run_id: UUID, *, limits: TreeLimits | None = None) -> Workspace:
        """Return a run's workspace, which need not exist yet."""
        return cls(root / f"{run_id}.git", limits=limits)

    def exists(self) -> bool:
        """Whether it was created."""
        return self.path.is_dir()

    def started_with(self) -> str:
        """Return the commit of the project that the run began with.

        Raises:
            WorkspaceMissingError: there is no workspace.
        """
        try:
            commit = self.path.joinpath(*BASE.split("/")).read_text("ascii").strip()
        except FileNotFoundError:
            raise WorkspaceMissingError(f"there is no workspace {self.path.name}") from None
        return _hex(_id(commit))

    def start_empty(self) -> str:
        """Write the first commit of a project without any: no files, and the same everywhere."""
        with self.store() as store:
            tree = Tree()
            commit = _commit(tree.id, parents=(), message="An empty project", when=0)
            self._write(store, (tree, commit))
        return _hex(commit.id)

    def read(self, commit: str) -> Snapshot:
        """Return a commit's files as agents see them.

        Raises:
            RepositoryRefusedError: there is too much in it (the project's owner's fault).
            WorkspaceMissingError: there is no such commit (our fault, or a lost disk).
        """
        with self.store() as store:
            return read_tree(store, tree_of(store, _id(commit)), self._limits)

    def commit_step(
        self,
        base: str,
        changes: Mapping[str, bytes | None],
        *,
        step: Step,
        message: str,
        when: int,
        author: bytes = AUTHOR,
    ) -> str:
        """Write a step's changes as a commit on its own ref, and return its id.

        `changes` has contents by checked path, None for a deleted file, and nothing of `.agent-context/`. `when` is in
        Unix seconds: the same when the same commit is repeated.

        Raises:
            ObstructedError: a file cannot replace something else (the agent's fault).
            WorkspaceMissingError: there is no such base.
            ValueError: ours: the step's key cannot name a ref.
        """
        if _STEP_KEY.fullmatch(step.key) is None:
            raise ValueError(f"a step's key cannot be {step.key!a}")
        with self.store() as store:
            editor = TreeEditor(store)
            tree = editor.edit(tree_of(store, _id(base)), changes)
            commit = _commit(tree, parents=(base,), message=message, when=when, author=author)
            self._write(store, (*editor.objects, commit))
        self.point(step.ref, _hex(commit.id))
        return _hex(commit.id)

    def absorb(self, head: str, commit: str, *, base: str, message: str, when: int) -> Absorbed:
        """Merge a step's commit into the run's head; only the caller moves the head, under the run's fence.

        What the step changed must be in `head` as it was in `base`, or already as the step wants it.

        `base` is what the step was given. `when` is in Unix seconds: the same when the same merge is repeated.

        Raises:
            WriteConflictError: somebody else changed the same files meanwhile (the plan's fault).
            WorkspaceMissingError: one of the commits is missing.
        """
        with self.store() as store:
            trees = {name: tree_of(store, _id(name)) for name in (head, commit, base)}
            wanted: dict[str, bytes | None] = {}
            changed, conflicts = [], []
            for change in compare(store, trees[base], trees[commit]):
                if change.path == RESULT_FILE or change.path.startswith(CONTEXT_DIRECTORY):
                    continue
                changed.append(change.path)
                present = entry_at(store, trees[head], change.path)
                if present == change.before:
                    wanted[change.path] = blob_of(store, change.after)
                elif present != change.after:
                    conflicts.append(change.path)
            if conflicts:
                raise WriteConflictError(tuple(conflicts))
            if not wanted:
                return Absorbed(head, tuple(changed))
            editor = TreeEditor(store)
            try:
                tree = editor.edit(trees[head], wanted)
            except ObstructedError as error:
                raise WriteConflictError((error.path,)) from None
            joined = _commit(tree, parents=(head, commit), message=message, when=when)
            self._write(store, (*editor.objects, joined))
            return Absorbed(_hex(joined.id), tuple(changed))

    def squash(self, base: str, head: str, *, message: str, when: int, author: bytes = AUTHOR) -> str:
        """Return one commit on `base` with all that the run changed, without what its agents used among themselves.

        Raises:
            WorkspaceMissingError: one of the commits is missing.
        """
        with self.store() as store:
            objects = _squashed(store, base, head, message=message, when=when, author=author)
            self._write(store, objects)
        return _hex(objects[-1].id)

    @contextmanager
    def squashed(self, base: str, head: str, *, message: str, when: int) -> Iterator[tuple[str, Iterator[ShaFile]]]:
        """Yield the commit of `squash`, and the objects that its base does not have; nothing is written.

        Raises:
            WorkspaceMissingError: one of the commits is missing.
        """
        with self.store() as store:
            memory = MemoryObjectStore()
            objects = _squashed(store, base, head, message=message, when=when)
            for item in objects:
                memory.add_object(item)
            yield _hex(objects[-1].id), new_objects(OverlayObjectStore([memory, store]), objects[-1].id)

    def read_file(self, commit: str, path: str) -> bytes | None:
        """Return one file of a commit; None where there is none.

        Raises:
            WorkspaceMissingError: there is no such commit.
        """
        with self.store() as store:
            return blob_of(store, entry_at(store, tree_of(store, _id(commit)), path))

    def changes(self, base: str, commit: str) -> dict[str, bytes | None]:
        """Return the files in which a commit differs from another: contents by path, None for deleted ones.

        Raises:
            WorkspaceMissingError: one of the commits is not there.
        """
        with self.store() as store:
            found = compare(store, tree_of(store, _id(base)), tree_of(store, _id(commit)))
            return {change.path: blob_of(store, change.after) for change in found}

    def differences(self, base: str, commit: str) -> dict[str, Difference]:
        """Return the files in which a commit differs from another, by path, with the contents of both.

        Raises:
            WorkspaceMissingError: one of the commits is not there.
        """
        with self.store() as store:
            found = compare(store, tree_of(store, _id(base)), tree_of(store, _id(commit)))
            return {
                change.path: Difference(blob_of(store, change.before), blob_of(store, change.after)) for change in found
            }

    def point(self, ref: str, commit: str) -> None:
        """Point a ref at a commit, atomically. Refs are for people who look; the ledger says what counts."""
        _id(commit)
        path = self.path.joinpath(*ref.split("/"))
        self._disk.make_directory(path.parent)
        self._disk.write_atomically(path, f"{commit}\n".encode())

    @contextmanager
    def store(self) -> Iterator[BaseObjectStore]:
        """Open the repository's objects for reading.

        Raises:
            WorkspaceMissingError: there is no repository.
        """
        try:
            repository = Repo(str(self.path))
        except NotGitRepository:
            raise WorkspaceMissingError(f"there is no workspace {self.path.name}") from None
        with closing(repository):
            yield repository.object_store

    def _write(self, store: BaseObjectStore, objects: Iterable[ShaFile]) -> None:
        """Store objects; the library's own way would leave a lock behind when a worker is killed."""
        for item in objects:
            if item.id in store:
                continue
            name = _hex(item.id)
            path = self.path / "objects" / name[:2] / name[2:]
            self._disk.make_directory(path.parent)
            self._disk.write_atomically(path, item.as_legacy_object())


def _squashed(
    store: BaseObjectStore, base: str, head: str, *, message: str, when: int, author: bytes = AUTHOR
) -> list[ShaFile]:
    """Return the objects of one commit on `base` with what the run changed; the commit comes last."""
    kept = entries_of(store, tree_of(store, _id(base)))
    editor = TreeEditor(store)
    tree = editor.replace(tree_of(store, _id(head)), {name: kept.get(name) for name in RESERVED})
    return [*editor.objects, _commit(tree, parents=(base,), message=message, when=when, author=author)]


def _commit(tree: ObjectID, *, parents: Sequence[str], message: str, when: int, author: bytes = AUTHOR) -> Commit:
    commit = Commit()
    commit.tree = tree
    commit.parents = [_id(parent) for parent in parents]
    commit.author = commit.committer = author
    commit.author_time = commit.commit_time = when
    commit.author_timezone = commit.commit_timezone = 0
    commit.encoding = b"UTF-8"
    commit.message = message.encode("utf-8", "replace")
    return commit


def _id(commit: str) -> ObjectID:
    if _COMMIT_ID.fullmatch(commit) is None:
        raise WorkspaceMissingError(f"{commit[:60]!a} is no commit")
    return ObjectID(commit.encode())


def _hex(name: ObjectID) -> str:
    return name.decode("ascii")

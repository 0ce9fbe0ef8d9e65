"""The set of files while a diff is applied to it: which file a name means, and which names may be made."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sandbox.diff.errors import DiffRefusedError, Reason
from sandbox.diff.model import FileOp, Kind
from sandbox.diff.names import is_prefix
from sandbox.errors import PathRefusedError
from sandbox.paths import check_path, collision_key

_GIT = frozenset({".git", "git~1"})


def safe_path(path: str) -> str:
    """Return the one form of a path that a diff names.

    Raises:
        DiffRefusedError: `unsafe_path` (the fault of whoever wrote the diff); the detail begins with the rule.
    """
    try:
        checked = check_path(path)
    except PathRefusedError as error:
        raise DiffRefusedError(
            Reason.UNSAFE_PATH, f"{error.reason}: a path must keep the rules of names", path
        ) from None
    if not _GIT.isdisjoint(map(collision_key, checked.split("/"))):
        raise DiffRefusedError(Reason.UNSAFE_PATH, "git: git's own directory is out of reach", path)
    return checked


class Tree:
    """Files and what has become of them so far.

    Args:
        base: contents by checked path.
        obstacles: names that are no plain files, such as symbolic links.
    """

    def __init__(self, base: Mapping[str, bytes], obstacles: Collection[str]) -> None:
        self._base = base
        self._obstacles = frozenset(obstacles)
        self.vacated: frozenset[str] = frozenset()
        """Paths that the diff as a whole removes or moves away: something may be made in their place."""
        self._made: set[str] = set()
        self._keys: dict[str, str] | None = None
        self.state: dict[str, bytes | None] = {}

    def has(self, path: str) -> bool:
        """Return whether there is such a file now."""
        return self.state[path] is not None if path in self.state else path in self._base

    def read(self, path: str) -> bytes | None:
        """Return a file's content as it is now; None when there is none."""
        return self.state[path] if path in self.state else self._base.get(path)

    def read_source(self, path: str) -> bytes | None:
        """Return what a rename or a copy begins from: the file as it was before the diff, as git takes it."""
        found = self._base.get(path)
        return self.read(path) if found is None else found

    def check_reachable(self, path: str) -> None:
        """Refuse a path that is, or leads through, something else than a plain file and directories.

        Raises:
            DiffRefusedError: `symlink`, `name_collision` (the fault of whoever wrote the diff).
        """
        for parent in _with_parents(path):
            if parent in self._obstacles:
                raise DiffRefusedError(Reason.SYMLINK, "the path is or leads through a symbolic link", path)
            if parent != path and self.has(parent) and parent not in self.vacated:
                raise DiffRefusedError(Reason.NAME_COLLISION, "the path lies below a file", path)

    def make(self, path: str, data: bytes) -> None:
        """Put a new file in place.

        Raises:
            DiffRefusedError: `file_exists`, `name_collision`, `symlink` (the fault of whoever wrote the diff).
        """
        self.check_reachable(path)
        if self.has(path) and (path in self._made or path not in self.vacated):
            raise DiffRefusedError(Reason.FILE_EXISTS, "the file exists already", path)
        for name in _with_parents(path):
            other = self._known(name)
            if other is not None and other != name:
                raise DiffRefusedError(Reason.NAME_COLLISION, "another name differs only in case or Unicode form", path)
        if self._is_directory(path):
            raise DiffRefusedError(Reason.NAME_COLLISION, "a directory has this name", path)
        self.state[path] = data
        self._made.add(path)
        for name in _with_parents(path):
            self._names()[collision_key(name)] = name

    def write(self, path: str, data: bytes) -> None:
        """Change a file."""
        self.state[path] = data

    def remove(self, path: str) -> None:
        """Take a file away, unless another was made in its place."""
        if path not in self._made:
            self.state[path] = None

    def changed(self) -> dict[str, bytes | None]:
        """Return what differs from the base, by path in order."""
        return {path: data for path, data in sorted(self.state.items()) if self._base.get(path) != data}

    def _known(self, name: str) -> str | None:
        return self._names().get(collision_key(name))

    def _names(self) -> dict[str, str]:
        if self._keys is None:
            stays = [path for path in (*self._base, *self._obstacles) if path not in self.vacated]
            self._keys = {}
            for path in stays:
                for name in _with_parents(path):
                    self._keys[collision_key(name)] = name
        return self._keys

    def _is_directory(self, path: str) -> bool:
        is_file = path in self._made or (path in self._base and path not in self.vacated)
        return self._known(path) == path and not is_file


def _with_parents(path: str) -> list[str]:
    segments = path.split("/")
    return ["/".join(segments[:depth]) for depth in range(1, len(segments) + 1)]


def check_names(op: FileOp) -> FileOp:
    """Return what a diff does to a file, with names in their one form.

    Raises:
        DiffRefusedError: `unsafe_path` (the fault of whoever wrote the diff).
    """
    path = safe_path(op.path)
    below = path.partition("/")[2]
    if below and op.strip != "never":
        safe_path(below)
    source = safe_path(op.source) if op.source is not None else None
    return op if (path, source) == (op.path, op.source) else op._replace(path=path, source=source)


def resolve(op: FileOp, tree: Tree) -> str:
    """Return a file's real path: without its first directory where that is only the diff's own.

    Args:
        op: what the diff does to the file, with checked names.
        tree: the files.

    Raises:
        DiffRefusedError: `ambiguous`, `symlink`, `name_collision` (the fault of whoever wrote the diff).
    """
    path = _resolved(op, tree)
    tree.check_reachable(path)
    if op.source is not None:
        tree.check_reachable(op.source)
    return path


def _resolved(op: FileOp, tree: Tree) -> str:
    first, slash, below = op.path.partition("/")
    if not slash or op.strip == "never":
        return op.path
    if op.strip == "always":
        return below
    has_whole, has_below = tree.has(op.path), tree.has(below)
    if op.kind is Kind.CREATE or not (has_whole or has_below):
        return below if is_prefix(first) else op.path
    if has_whole and has_below:
        detail = "the path may mean two files, with and without its first part"
        raise DiffRefusedError(Reason.AMBIGUOUS, detail, op.path)
    return op.path if has_whole else below

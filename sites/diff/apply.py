"""Apply a diff to a set of files: check it against a policy, match it, and change all of the files or none."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from sites.diff.canonical import Applied
from sites.diff.match import match_file, receipts_of
from sites.diff.model import (
    EXECUTABLE_MODE,
    PLAIN_MODE,
    Budget,
    DiffRefusedError,
    FileOp,
    FileReceipt,
    FileText,
    Fuzz,
    Hunk,
    HunkReceipt,
    Kind,
    Limits,
    Line,
    Reason,
)
from sites.diff.options import Option
from sites.diff.parse import parse_diff
from sites.diff.parse_unified import is_prefix
from sites.errors import PathRefusedError
from sites.files import (
    MEDIA_TYPES,
    SOURCE_EXTENSIONS,
    check_path,
    collision_key,
    extension_of,
    is_planted,
    with_parents,
)

_SYMLINK_MODE, _SUBMODULE_MODE = "120000", "160000"
_DOTS = rb"(?:\.\.\.|\xe2\x80\xa6)"
_KEPT = rb"(?:(?:the|all|your|any|of)\s+)*(?:rest|remain\w*|exist\w*|unchanged|same|other|previous|original|omitted)\b"
_COMMENT = rb"^(?://|\#|/\*|<!--|\{/\*|--|\(|\[|<)\W*?"
_LEFT_OUT = re.compile(
    rb"^%(dots)s\s*\(?%(kept)s"
    rb"|%(comment)s%(dots)s\W*%(kept)s"
    rb"|%(comment)s%(kept)s[\w\s,'-]{0,60}(?:%(dots)s|\b(?:unchanged|omitted|same|here|before|above|below))\W*$"
    % {b"dots": _DOTS, b"kept": _KEPT, b"comment": _COMMENT},
    re.IGNORECASE,
)
_MAX_PLACEHOLDER_BYTES = 200


@dataclass(frozen=True)
class DiffPolicy:
    """What is refused on top of what is never safe."""

    are_modes_allowed: bool = True
    are_renames_allowed: bool = True
    extensions: frozenset[str] | None = None
    """The kinds of file that may be created or changed; None for all."""
    is_planted_allowed: bool = True
    are_placeholders_allowed: bool = True
    max_deleted_percent: int = 100
    """The most lines of a file that an update may remove, in percent."""
    min_deleted_lines: int = 20
    """An update that removes fewer lines is never too much."""
    seen: Mapping[str, Sequence[tuple[int, int]]] = field(default_factory=dict)
    """First and last lines, from 1, of all that the diff's author saw of a file; a file without an entry whole."""


MATCHING = DiffPolicy()
"""Only matching and path safety."""

SITE = DiffPolicy(
    are_modes_allowed=False,
    are_renames_allowed=False,
    extensions=frozenset(MEDIA_TYPES),
    is_planted_allowed=False,
    are_placeholders_allowed=False,
    max_deleted_percent=60,
)
"""What a model may do to a site."""

SOURCES = replace(SITE, extensions=frozenset(MEDIA_TYPES) | SOURCE_EXTENSIONS)
"""What a model may do to the sources of a built site."""


def check_modes(op: FileOp) -> None:
    """Refuse anything but plain files, under any policy.

    Raises:
        DiffRefusedError: `symlink`, `submodule`, `malformed` (the diff's fault).
    """
    for mode in filter(None, (op.old_mode, op.new_mode)):
        if mode == _SYMLINK_MODE:
            raise DiffRefusedError(Reason.SYMLINK, "a diff may not make or change a symbolic link", op.path)
        if mode == _SUBMODULE_MODE:
            raise DiffRefusedError(Reason.SUBMODULE, "a diff may not make or change a submodule", op.path)
        if not mode.startswith("100"):
            raise DiffRefusedError(Reason.MALFORMED, f"{mode} is not the mode of a file", op.path)


def check_policy(op: FileOp, policy: DiffPolicy) -> None:
    """Refuse what the policy does not allow for one file.

    Raises:
        DiffRefusedError: `mode_change`, `rename`, `planted`, `extension`, `placeholder` (the diff's fault).
    """
    if not policy.are_renames_allowed and op.kind in (Kind.RENAME, Kind.COPY):
        raise DiffRefusedError(Reason.RENAME, f"a {op.kind} is not allowed; change the file in its place", op.path)
    if not policy.are_modes_allowed and _changes_mode(op):
        raise DiffRefusedError(Reason.MODE_CHANGE, "file modes are not allowed to be set or changed", op.path)
    for path in filter(None, (op.path, op.source)):
        if not policy.is_planted_allowed and is_planted(path):
            raise DiffRefusedError(Reason.PLANTED, "a tool would obey this file; a site has no use for it", op.path)
        if policy.extensions is not None and extension_of(path) not in policy.extensions:
            raise DiffRefusedError(Reason.EXTENSION, "a site does not hold this kind of file", op.path)
    if not policy.are_placeholders_allowed:
        _check_placeholders(op)


def check_deletion(op: FileOp, policy: DiffPolicy, *, before: int, after: int) -> None:
    """Refuse an update from `before` to `after` lines that removes most of a file.

    Raises:
        DiffRefusedError: `mass_deletion` (the diff's fault).
    """
    gone = before - after
    if gone >= policy.min_deleted_lines and gone * 100 > policy.max_deleted_percent * before:
        detail = f"{gone} of {before} lines would be gone, at most {policy.max_deleted_percent} % may"
        raise DiffRefusedError(Reason.MASS_DELETION, detail, op.path)


def _changes_mode(op: FileOp) -> bool:
    is_new = op.kind is Kind.CREATE
    return (op.new_mode is not None and op.new_mode != (PLAIN_MODE if is_new else op.old_mode or PLAIN_MODE)) or (
        op.new_mode == EXECUTABLE_MODE
    )


def _check_placeholders(op: FileOp) -> None:
    for number, hunk in enumerate(op.hunks, start=1):
        added = [text.strip() for text in hunk.added]
        placeholders = [line for line in added if len(line) <= _MAX_PLACEHOLDER_BYTES and _LEFT_OUT.match(line)]
        before = {text.strip() for text in hunk.before} if placeholders else set()
        for line in placeholders:
            if line not in before:
                shown = ascii(line.decode(errors="replace"))
                detail = f"the added line {shown} stands for text that is left out"
                raise DiffRefusedError(Reason.PLACEHOLDER, detail, op.path, number)


_GIT = frozenset({".git", "git~1"})


def safe_path(path: str) -> str:
    """Return a diff's path in normal form.

    Raises:
        DiffRefusedError: `unsafe_path` (the diff's fault); the detail begins with the rule.
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
    """Contents by checked path while a diff is applied to them; `obstacles` are links and other special files."""

    def __init__(self, base: Mapping[str, bytes], obstacles: Collection[str]) -> None:
        self._base = base
        self._obstacles = frozenset(obstacles)
        self.vacated: frozenset[str] = frozenset()
        """Paths that the diff removes or renames, so that they can be created anew."""
        self._made: set[str] = set()
        self._keys: dict[str, str] | None = None
        self.state: dict[str, bytes | None] = {}

    def has(self, path: str) -> bool:
        """Whether the file exists now."""
        return self.state[path] is not None if path in self.state else path in self._base

    def read(self, path: str) -> bytes | None:
        """Return a file's current content; None if it does not exist."""
        return self.state[path] if path in self.state else self._base.get(path)

    def read_source(self, path: str) -> bytes | None:
        """Return the source of a rename or copy: like git, the content before the diff."""
        data = self._base.get(path)
        return self.read(path) if data is None else data

    def check_reachable(self, path: str) -> None:
        """Refuse a path that is not, or does not lead through, plain files and directories.

        Raises:
            DiffRefusedError: `symlink`, `name_collision` (the diff's fault).
        """
        for parent in with_parents(path):
            if parent in self._obstacles:
                raise DiffRefusedError(Reason.SYMLINK, "the path is or leads through a symbolic link", path)
            if parent != path and self.has(parent) and parent not in self.vacated:
                raise DiffRefusedError(Reason.NAME_COLLISION, "the path lies below a file", path)

    def make(self, path: str, data: bytes) -> None:
        """Create a file.

        Raises:
            DiffRefusedError: `file_exists`, `name_collision`, `symlink` (the diff's fault).
        """
        self.check_reachable(path)
        if self.has(path) and (path in self._made or path not in self.vacated):
            raise DiffRefusedError(Reason.FILE_EXISTS, "the file exists already", path)
        for name in with_parents(path):
            other = self._claimed_name(name)
            if other is not None and other != name:
                raise DiffRefusedError(Reason.NAME_COLLISION, "another name differs only in case or Unicode form", path)
        if self._is_directory(path):
            raise DiffRefusedError(Reason.NAME_COLLISION, "a directory has this name", path)
        self.state[path] = data
        self._made.add(path)
        for name in with_parents(path):
            self._names()[collision_key(name)] = name

    def write(self, path: str, data: bytes) -> None:
        """Change a file."""
        self.state[path] = data

    def remove(self, path: str) -> None:
        """Remove a file, unless another was created in its place."""
        if path not in self._made:
            self.state[path] = None

    def changed(self) -> dict[str, bytes | None]:
        """Return what differs from the base, sorted by path."""
        return {path: data for path, data in sorted(self.state.items()) if self._base.get(path) != data}

    def _claimed_name(self, name: str) -> str | None:
        return self._names().get(collision_key(name))

    def _names(self) -> dict[str, str]:
        if self._keys is None:
            stays = [path for path in (*self._base, *self._obstacles) if path not in self.vacated]
            self._keys = {}
            for path in stays:
                for name in with_parents(path):
                    self._keys[collision_key(name)] = name
        return self._keys

    def _is_directory(self, path: str) -> bool:
        is_file = path in self._made or (path in self._base and path not in self.vacated)
        return self._claimed_name(path) == path and not is_file


def check_names(op: FileOp) -> FileOp:
    """Return an operation with its paths in normal form.

    Raises:
        DiffRefusedError: `unsafe_path` (the diff's fault).
    """
    path = safe_path(op.path)
    below = path.partition("/")[2]
    if below and op.strip != "never":
        safe_path(below)
    source = safe_path(op.source) if op.source is not None else None
    return op if (path, source) == (op.path, op.source) else op._replace(path=path, source=source)


def resolve(op: FileOp, tree: Tree) -> str:
    """Return a file's real path, without a first directory such as `a/` that only the diff has.

    Raises:
        DiffRefusedError: `ambiguous`, `symlink`, `name_collision` (the diff's fault).
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


_DEFAULT_LIMITS = Limits()
_NEW = frozenset("+?")
_DONE = (HunkReceipt(1, Fuzz.EXACT, is_already_applied=True),)


def apply_diff(
    files: Mapping[str, bytes],
    diff: str | bytes,
    *,
    policy: DiffPolicy = MATCHING,
    limits: Limits = _DEFAULT_LIMITS,
    obstacles: Collection[str] = (),
) -> Applied:
    """Apply a diff in any of the three formats, completely or not at all; return what changed, and how surely.

    The diff is a unified one, search/replace blocks or a `*** Begin Patch`, with or without prose and fences around it.
    `files` are contents by checked path (`sites.files.check_tree`), `obstacles` paths of symbolic links and other
    special files.

    Raises:
        DiffRefusedError: nothing of the diff is applied (the diff's fault).
    """
    ops = parse_diff(diff, limits)
    tree = Tree(files, obstacles)
    steps: list[_Step] = []
    for op in ops:
        check_modes(op)
        named = check_names(op)
        step = _Step(named, named._replace(path=resolve(named, tree)))
        check_policy(step.resolved, policy)
        steps.append(step)
    gone = [op for _, op in steps if op.kind in (Kind.DELETE, Kind.RENAME)]
    tree.vacated = frozenset(op.source or op.path for op in gone)
    receipts, missing = _apply_all(steps, tree, Budget(limits.max_steps), policy)
    is_done = all(receipt.is_already_applied for receipt in receipts)
    if missing is not None and not is_done:
        raise missing
    changed = tree.changed()
    if is_done:
        raise DiffRefusedError(Reason.ALREADY_APPLIED, "every change of the diff is in the files already")
    if not changed and all(receipt.mode is None for receipt in receipts):
        raise DiffRefusedError(Reason.NO_CHANGE, "the diff changes nothing")
    return Applied(changed, tuple(receipts), before={path: files.get(path) for path in changed})


class _Step(NamedTuple):
    """One file's operation."""

    named: FileOp
    """With the path that the diff gives."""
    resolved: FileOp
    """With its path among the files before the diff."""


def _apply_all(
    steps: Sequence[_Step], tree: Tree, budget: Budget, policy: DiffPolicy
) -> tuple[list[FileReceipt], DiffRefusedError | None]:
    """Return each file's receipt, and the refusal that counts unless the whole diff was applied before."""
    receipts: list[FileReceipt] = []
    missing: DiffRefusedError | None = None
    for named, resolved in steps:
        path = resolve(named, tree)
        op = resolved if path == resolved.path else resolved._replace(path=path)
        try:
            receipts.append(_HANDLERS[op.kind](op, tree, budget, policy))
        except _GoneError as gone:
            receipts.append(FileReceipt(op.path, op.kind, op.source, hunks=_DONE))
            missing = missing or gone.refusal
    return receipts, missing


class _GoneError(Exception):
    """A file to remove is missing: an error unless the whole diff was applied before."""

    def __init__(self, refusal: DiffRefusedError) -> None:
        super().__init__(refusal)
        self.refusal = refusal


def _not_found(path: str) -> DiffRefusedError:
    return DiffRefusedError(Reason.FILE_NOT_FOUND, "there is no such file", path)


def _create(op: FileOp, tree: Tree, budget: Budget, policy: DiffPolicy) -> FileReceipt:
    data = b"".join(line.text for number, hunk in enumerate(op.hunks, start=1) for line in _added(op, hunk, number))
    budget.spend(sum(len(hunk.ops) for hunk in op.hunks))
    if tree.read(op.path) == data:
        return FileReceipt(op.path, Kind.CREATE, hunks=_DONE)
    tree.make(op.path, data)
    hunks = tuple(HunkReceipt(1, Fuzz.EXACT) for _ in op.hunks)
    return FileReceipt(op.path, Kind.CREATE, mode=op.new_mode, hunks=hunks)


def _added(op: FileOp, hunk: Hunk, number: int) -> list[Line]:
    """Return the lines of a new file; empty lines may have lost their plus."""
    lines = list(hunk.lines)
    while lines and lines[-1].op == "?" and (not lines[-1].text.strip() or _is_text_behind(lines)):
        lines.pop()
    for line in lines:
        if line.op != "+" and (line.op == "-" or line.text.strip()):
            raise DiffRefusedError(Reason.MALFORMED, "every line of a new file must begin with `+`", op.path, number)
    return lines


def _is_text_behind(lines: Sequence[Line]) -> bool:
    """Whether the last lines are prose after the diff: unmarked and set off by an empty line."""
    for line in reversed(lines):
        if line.op != "?" or not line.text.strip():
            return line.op == "?"
    return False


def _update(op: FileOp, tree: Tree, budget: Budget, policy: DiffPolicy) -> FileReceipt:
    data = tree.read(op.path)
    if data is None:
        is_making = bool(op.hunks) and not any(set(hunk.ops) - _NEW for hunk in op.hunks)
        if not is_making:
            raise _not_found(op.path)
        return _create(op._replace(kind=Kind.CREATE), tree, budget, policy)
    if not op.hunks and op.new_mode is None:
        raise DiffRefusedError(Reason.MALFORMED, "the file has no hunk", op.path)
    file = FileText(data, budget, policy.seen.get(op.path))
    options, lines = _matched(op, file)
    check_deletion(op, policy, before=len(file.lines), after=len(lines))
    tree.write(op.path, b"".join(lines))
    mode = op.new_mode if op.new_mode != op.old_mode else None
    return FileReceipt(op.path, Kind.UPDATE, mode=mode, hunks=receipts_of(op, options))


def _delete(op: FileOp, tree: Tree, budget: Budget, policy: DiffPolicy) -> FileReceipt:
    data = tree.read(op.path)
    if data is None:
        raise _GoneError(_not_found(op.path))
    options, left = _matched(op, FileText(data, budget))
    if op.hunks and left:
        detail = f"{len(left)} lines of the file would be left"
        raise DiffRefusedError(Reason.LEFTOVER, detail, op.path, len(op.hunks))
    tree.remove(op.path)
    return FileReceipt(op.path, Kind.DELETE, hunks=receipts_of(op, options))


def _move(op: FileOp, tree: Tree, budget: Budget, policy: DiffPolicy) -> FileReceipt:
    assert op.source is not None
    data = tree.read_source(op.source)
    if data is None:
        refusal = _not_found(op.source)
        raise _GoneError(refusal) if op.kind is Kind.RENAME and tree.has(op.path) else refusal
    if op.path == op.source:
        raise DiffRefusedError(Reason.MALFORMED, f"a {op.kind} of a file to itself", op.path)
    options, lines = _matched(op, FileText(data, budget))
    if op.kind is Kind.RENAME:
        tree.remove(op.source)
    tree.make(op.path, b"".join(lines))
    mode = op.new_mode if op.new_mode != op.old_mode else None
    return FileReceipt(op.path, op.kind, op.source, mode=mode, hunks=receipts_of(op, options))


def _matched(op: FileOp, file: FileText) -> tuple[list[Option], list[bytes]]:
    return match_file(op, file) if op.hunks else ([], file.lines)


_HANDLERS = {
    Kind.CREATE: _create,
    Kind.UPDATE: _update,
    Kind.DELETE: _delete,
    Kind.RENAME: _move,
    Kind.COPY: _move,
}

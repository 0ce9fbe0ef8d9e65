"""Applies a diff to a set of files: all of it or nothing, in bounded time, with a refusal that says what to mend."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from sandbox.diff.applied import Applied
from sandbox.diff.errors import DiffRefusedError, Reason
from sandbox.diff.lines import Budget, FileText
from sandbox.diff.match import match_file, receipts_of
from sandbox.diff.model import FileOp, Hunk, Kind, Limits, Line
from sandbox.diff.options import Option
from sandbox.diff.parse import parse_diff
from sandbox.diff.policy import MATCHING, DiffPolicy, check_deletion, check_modes, check_policy
from sandbox.diff.result import FileReceipt, Fuzz, HunkReceipt
from sandbox.diff.tree import Tree, check_names, resolve

_DEFAULT_LIMITS = Limits()
_NEW = frozenset("+?")
_DONE = (HunkReceipt(1, Fuzz.EXACT, is_already_applied=True),)


def apply_diff(
    files: Mapping[str, bytes], diff: str | bytes, *, policy: DiffPolicy = MATCHING, limits: Limits = _DEFAULT_LIMITS,
    obstacles: Collection[str] = (),
) -> Applied:  # fmt: skip
    """Apply a diff, whatever format it is in.

    Args:
        files: contents by checked path (`sandbox.tree.check_tree`); never changed.
        diff: a unified diff, search/replace blocks or a `*** Begin Patch`, prose and fences around it or not.
        policy: what it may do beyond what is never safe.
        limits: what it may ask for.
        obstacles: names beside the files that are no plain files, such as symbolic links.

    Returns:
        What changed, and how sure each place was.

    Raises:
        DiffRefusedError: the diff is not applied, and nothing of it is (the fault of whoever wrote it).
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
    """What a diff does to one file."""

    named: FileOp
    """Under the name that the diff gives it."""
    resolved: FileOp
    """Under its path among the files as they are before the diff."""


def _apply_all(
    steps: Sequence[_Step], tree: Tree, budget: Budget, policy: DiffPolicy
) -> tuple[list[FileReceipt], DiffRefusedError | None]:  # fmt: skip
    """Return what happened to each file, and the refusal that stands unless the whole diff was applied before."""
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
    """A file that a diff takes away is not there: an error, unless the whole diff was applied before."""

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
    """Return the lines of a new file; an empty line between them has lost its plus."""
    lines = list(hunk.lines)
    while lines and lines[-1].op == "?" and (not lines[-1].text.strip() or _is_text_behind(lines)):
        lines.pop()
    for line in lines:
        if line.op != "+" and (line.op == "-" or line.text.strip()):
            raise DiffRefusedError(Reason.MALFORMED, "every line of a new file must begin with `+`", op.path, number)
    return lines


def _is_text_behind(lines: Sequence[Line]) -> bool:
    """Return whether the last lines are text behind the diff: without markers, and parted from it by an empty line."""
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
    file = FileText(data, budget)
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

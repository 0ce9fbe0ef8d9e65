"""What a diff may do to a site, decided before any file is looked at."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from sites.diff.model import EXECUTABLE_MODE, PLAIN_MODE, DiffRefusedError, FileOp, Kind, Reason
from sites.files import MEDIA_TYPES, SOURCE_EXTENSIONS, extension_of, is_planted

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
    """What is refused beyond what is never safe."""

    are_modes_allowed: bool = True
    are_renames_allowed: bool = True
    extensions: frozenset[str] | None = None
    """The kinds of file that may be made or changed; None for all."""
    is_planted_allowed: bool = True
    are_placeholders_allowed: bool = True
    max_deleted_percent: int = 100
    """How much of a file an update may take away, counted in lines."""
    min_deleted_lines: int = 20
    """An update that takes away fewer lines is never too much."""


MATCHING = DiffPolicy()
"""Matching and path safety alone."""

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
"""What a model may do to what a site is built from."""


def check_modes(op: FileOp) -> None:
    """Refuse what is no plain file, whatever the policy.

    Raises:
        DiffRefusedError: `symlink`, `submodule`, `malformed` (the fault of whoever wrote the diff).
    """
    for mode in filter(None, (op.old_mode, op.new_mode)):
        if mode == _SYMLINK_MODE:
            raise DiffRefusedError(Reason.SYMLINK, "a diff may not make or change a symbolic link", op.path)
        if mode == _SUBMODULE_MODE:
            raise DiffRefusedError(Reason.SUBMODULE, "a diff may not make or change a submodule", op.path)
        if not mode.startswith("100"):
            raise DiffRefusedError(Reason.MALFORMED, f"{mode} is not the mode of a file", op.path)


def check_policy(op: FileOp, policy: DiffPolicy) -> None:
    """Refuse what a policy does not allow one file of a diff to do.

    Raises:
        DiffRefusedError: `mode_change`, `rename`, `planted`, `extension`, `placeholder` (its writer's fault).
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
    """Refuse an update that takes away most of a file.

    Args:
        op: the update.
        policy: how much is too much.
        before: lines of the file before.
        after: lines of the file afterwards.

    Raises:
        DiffRefusedError: `mass_deletion` (the fault of whoever wrote the diff).
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
        found = [line for line in added if len(line) <= _MAX_PLACEHOLDER_BYTES and _LEFT_OUT.match(line)]
        known = {text.strip() for text in hunk.before} if found else set()
        for line in found:
            if line not in known:
                shown = ascii(line.decode(errors="replace"))
                detail = f"the added line {shown} stands for text that is left out"
                raise DiffRefusedError(Reason.PLACEHOLDER, detail, op.path, number)

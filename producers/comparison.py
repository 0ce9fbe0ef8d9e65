"""What changed between two releases, file by file. Bounded: a text diff of hostile files must not take minutes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict

from sandbox.den import Entry
from sandbox.diff.canonical import unified
from sandbox.media import is_text_file
from sandbox.public import is_below

MAX_DIFF_BYTES = 256 * 1024
MAX_TOTAL_DIFF_CHARS = 1024 * 1024
"""Of all files together; what comes after that many is named without its text."""


class FileChange(BaseModel):
    """One file that differs."""

    model_config = ConfigDict(frozen=True)

    path: str
    status: Literal["added", "removed", "changed"]
    before_bytes: int | None
    after_bytes: int | None
    diff: str | None
    """Unified diff; None for a file that is not text or too large to compare, and once the whole is too long."""
    is_served: bool = True
    """False for a source of a built site, which visitors never get."""


class Comparison(BaseModel):
    """What changed from one release to another."""

    model_config = ConfigDict(frozen=True)

    before: UUID | None
    """None where there was nothing before: every file is added."""
    after: UUID
    added: int
    removed: int
    changed: int
    changes: tuple[FileChange, ...]
    """By path."""


def compare(
    before: Mapping[str, Entry], after: Mapping[str, Entry], *, read: Callable[[str], bytes], public: str = ""
) -> list[FileChange]:  # fmt: skip
    """Return the files that differ, by path.

    Args:
        before: the files of one release.
        after: the files of another.
        read: returns a blob by its digest.
        public: the directory of `after` that is served; empty for all.
    """
    changed = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    found: list[FileChange] = []
    left = MAX_TOTAL_DIFF_CHARS
    for path in changed:
        is_served = not public or is_below(path, public)
        change = _change(path, before.get(path), after.get(path), read if left > 0 else None, is_served=is_served)
        left -= len(change.diff or "")
        found.append(change)
    return found


def _change(
    path: str, old: Entry | None, new: Entry | None, read: Callable[[str], bytes] | None, *, is_served: bool
) -> FileChange:
    return FileChange(
        path=path,
        is_served=is_served,
        status="added" if old is None else "removed" if new is None else "changed",
        before_bytes=old.size if old else None,
        after_bytes=new.size if new else None,
        diff=_text_diff(path, old, new, read) if read is not None and is_text_file(path) else None,
    )


def _text_diff(path: str, old: Entry | None, new: Entry | None, read: Callable[[str], bytes]) -> str | None:
    """Return the change as `pointsman apply` reads it; None when a side cannot be shown as text."""
    for entry in (old, new):
        if entry is not None and entry.size > MAX_DIFF_BYTES:
            return None
    before, after = (read(entry.sha256) if entry is not None else None for entry in (old, new))
    try:
        return unified({path: before}, {path: after}).decode()
    except UnicodeDecodeError:
        return None

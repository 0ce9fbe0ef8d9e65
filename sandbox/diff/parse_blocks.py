"""Search/replace blocks: a path, the lines as they are, the lines as they shall be."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from sandbox.diff.errors import DiffRefusedError, Reason
from sandbox.diff.model import FileOp, Hunk, Kind, Limits
from sandbox.diff.names import to_text
from sandbox.diff.sides import hunk_of_sides
from sandbox.diff.text import is_fence

_SEARCH = re.compile(rb"(?:<{5,9}|-{5,9}) ?SEARCH>?\s*$")
_DIVIDER = re.compile(rb"={5,9}\s*$")
_REPLACE = re.compile(rb"(?:>{5,9}|\+{5,9}) ?REPLACE>?\s*$")
_DECORATION = "`*:# \t"


def is_block_start(line: bytes) -> bool:
    """Return whether a search/replace block begins at this line."""
    return _SEARCH.match(line) is not None


@dataclass
class _File:
    path: str
    hunks: list[Hunk] = field(default_factory=list)


def parse_blocks(lines: list[bytes], limits: Limits) -> tuple[list[FileOp], list[bytes]]:
    """Read search/replace blocks. A block without a path of its own belongs to the file of the block before.

    Returns:
        The files, and the lines that belong to no block.

    Raises:
        DiffRefusedError: `malformed`, `truncated`, `too_large` (the fault of whoever wrote the diff).
    """
    files: dict[str, _File] = {}
    prose: list[bytes] = []
    path: str | None = None
    at = since = count = 0
    while at < len(lines):
        if not is_block_start(lines[at]):
            prose.append(lines[at])
            at += 1
            continue
        path = _path_above(lines[since:at]) or path
        if path is None:
            raise DiffRefusedError(Reason.MALFORMED, "no path stands above the first block")
        hunk, at = _read_block(lines, at + 1, path)
        files.setdefault(path, _File(path)).hunks.append(hunk)
        since, count = at, count + 1
        if count > limits.max_hunks or len(files) > limits.max_files:
            raise DiffRefusedError(Reason.TOO_LARGE, "the diff has too many blocks", path)
    return [FileOp(Kind.UPDATE, file.path, hunks=tuple(file.hunks), is_ordered=False) for file in files.values()], prose


def _path_above(lines: list[bytes]) -> str | None:
    """Return the path directly above a block, which a fence and an empty line may separate from it."""
    for line in reversed(lines[-3:]):
        text = to_text(line).strip()
        if text and not is_fence(line):
            found = text.strip(_DECORATION)
            return found if found and " " not in found else None
    return None


def _read_block(lines: list[bytes], at: int, path: str) -> tuple[Hunk, int]:
    dividers: list[int] = []
    start = at
    while at < len(lines) and not _REPLACE.match(lines[at]):
        if is_block_start(lines[at]):
            raise DiffRefusedError(Reason.MALFORMED, "a block begins within a block", path)
        if _DIVIDER.match(lines[at]):
            dividers.append(at)
        at += 1
    if at == len(lines):
        raise DiffRefusedError(Reason.TRUNCATED, "a block has no end (`>>>>>>> REPLACE`)", path)
    if len(dividers) != 1:
        detail = f"a block must have one divider (`=======`), not {len(dividers)}"
        raise DiffRefusedError(Reason.MALFORMED, detail, path)
    return hunk_of_sides(lines[start : dividers[0]], lines[dividers[0] + 1 : at]), at + 1

"""Parse a diff in any of the three formats: unified, search/replace blocks, or a Codex patch; never a mix of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from sites.diff.canonical import changes
from sites.diff.hunks import MARKERS, is_file_header, is_hunk_header, read_header
from sites.diff.model import (
    DiffRefusedError,
    FileOp,
    Hunk,
    Kind,
    Limits,
    Line,
    Reason,
    Span,
    hunk_of,
    is_converted,
    is_empty,
    is_fence,
    lines_of,
)
from sites.diff.parse_unified import parse_unified, to_text


def hunk_of_sides(before: Sequence[bytes], after: Sequence[bytes]) -> Hunk:
    """Return the hunk that turns one run of lines into another; kept lines are context and so keep the file's bytes."""
    ops = ""
    added: list[bytes] = []
    at = 0
    for change in changes(before, after):
        ops += " " * (change.start - at) + "-" * (change.end - change.start) + "+" * (change.new_end - change.new_start)
        added += after[change.new_start : change.new_end]
        at = change.end
    return Hunk(ops + " " * (len(before) - at), list(before), added)


_SEARCH = re.compile(rb"(?:<{5,9}|-{5,9}) ?SEARCH>?\s*$")
_DIVIDER = re.compile(rb"={5,9}\s*$")
_REPLACE = re.compile(rb"(?:>{5,9}|\+{5,9}) ?REPLACE>?\s*$")
_DELETE_FILE = b"*** Delete File: "
_DECORATION = "`*:# \t"


def is_block_start(line: bytes) -> bool:
    """Whether a search/replace block begins at this line."""
    return _SEARCH.match(line) is not None


@dataclass
class _File:
    path: str
    hunks: list[Hunk] = field(default_factory=list)


def parse_blocks(lines: list[bytes], limits: Limits) -> tuple[list[FileOp], list[bytes]]:
    """Read search/replace blocks; a block without a path belongs to the file of the block before.

    Blocks cannot delete a file: a line `*** Delete File: path` among them does.

    Returns:
        The files, and the lines that belong to no block.

    Raises:
        DiffRefusedError: `malformed`, `truncated`, `too_large` (the diff's fault).
    """
    files: dict[str, _File] = {}
    deleted: list[FileOp] = []
    prose: list[bytes] = []
    path: str | None = None
    at = since = count = 0
    while at < len(lines):
        if lines[at].startswith(_DELETE_FILE):
            deleted.append(FileOp(Kind.DELETE, to_text(lines[at][len(_DELETE_FILE) :]).strip()))
            at = since = at + 1
            path = None
            continue
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
        if count > limits.max_hunks or len(files) + len(deleted) > limits.max_files:
            raise DiffRefusedError(Reason.TOO_LARGE, "the diff has too many blocks", path)
    edited = [FileOp(Kind.UPDATE, file.path, hunks=tuple(file.hunks), is_ordered=False) for file in files.values()]
    return edited + deleted, prose


def _path_above(lines: list[bytes]) -> str | None:
    """Return the path directly above a block, but for a fence and an empty line."""
    for line in reversed(lines[-3:]):
        text = to_text(line).strip()
        if text and not is_fence(line):
            path = text.strip(_DECORATION)
            return path if path and " " not in path else None
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


_BEGIN, _END = b"*** Begin Patch", b"*** End Patch"
_END_OF_FILE = b"*** End of File"
_MOVE = b"*** Move to: "
_FILES = {b"*** Add File: ": Kind.CREATE, b"*** Update File: ": Kind.UPDATE, _DELETE_FILE: Kind.DELETE}


def is_patch_start(line: bytes) -> bool:
    """Whether a Codex patch, or a file of one, begins at this line."""
    return line.startswith((_BEGIN, *_FILES))


@dataclass
class _Chunk:
    lines: list[Line] = field(default_factory=list)
    anchors: list[bytes] = field(default_factory=list)
    span: Span | None = None
    is_at_end: bool = False

    def build(self) -> Hunk:
        while self.lines and self.lines[-1].op == "?" and is_empty(self.lines[-1].text):
            self.lines.pop()
        return hunk_of(self.lines, self.span, anchors=tuple(self.anchors), is_at_end=self.is_at_end)


def parse_patch(lines: list[bytes], limits: Limits) -> tuple[list[FileOp], list[bytes]]:
    """Read a Codex patch; one with a beginning must have an end, so that a reply cut off is not half applied.

    Returns:
        The files, and the lines outside the patch.

    Raises:
        DiffRefusedError: `malformed`, `truncated`, `too_large` (the diff's fault).
    """
    ops: list[FileOp] = []
    prose: list[bytes] = []
    is_open, at, hunks = False, 0, 0
    while at < len(lines):
        line = lines[at]
        key = next((key for key in _FILES if line.startswith(key)), None)
        if key is None:
            is_open = line.startswith(_BEGIN) or (is_open and not line.startswith(_END))
            if not line.startswith((_BEGIN, _END)) and line.strip():
                prose.append(line)
            at += 1
            continue
        op, at = _read_file(lines, at, key)
        ops.append(op)
        hunks += len(op.hunks)
        if len(ops) > limits.max_files or hunks > limits.max_hunks:
            raise DiffRefusedError(Reason.TOO_LARGE, "the patch has too many files or changes", op.path)
    if is_open:
        raise DiffRefusedError(Reason.TRUNCATED, "the patch has no `*** End Patch`")
    return ops, prose


def _read_file(lines: list[bytes], at: int, key: bytes) -> tuple[FileOp, int]:
    path = to_text(lines[at][len(key) :]).strip()
    kind, source = _FILES[key], None
    at += 1
    if kind is Kind.UPDATE and at < len(lines) and lines[at].startswith(_MOVE):
        kind, source, path = Kind.RENAME, path, to_text(lines[at][len(_MOVE) :]).strip()
        at += 1
    if kind is Kind.DELETE:
        return FileOp(kind, path), at
    end = at
    while end < len(lines) and not _ends_file(lines[end]):
        end += 1
    if kind is Kind.CREATE:
        return FileOp(kind, path, hunks=(_added(lines[at:end], path),)), end
    return FileOp(kind, path, source, hunks=tuple(_chunks(lines[at:end]))), end


def _ends_file(line: bytes) -> bool:
    return line.startswith((_BEGIN, _END, *_FILES)) or is_fence(line)


def _added(lines: list[bytes], path: str) -> Hunk:
    while lines and is_empty(lines[-1]):
        lines.pop()
    for line in lines:
        if not line.startswith(b"+") and not is_empty(line):
            raise DiffRefusedError(Reason.MALFORMED, "every line of an added file must begin with `+`", path, 1)
    return Hunk("+" * len(lines), [], [line if is_empty(line) else line[1:] for line in lines])


def _chunks(lines: list[bytes]) -> list[Hunk]:
    chunks: list[_Chunk] = [_Chunk()]
    for line in lines:
        chunk = chunks[-1]
        if header := read_header(line):
            if chunk.lines:
                chunk = _Chunk()
                chunks.append(chunk)
            chunk.span = header.span
            chunk.anchors += header.anchors
        elif line.startswith(_END_OF_FILE):
            chunk.is_at_end = True
        elif line[0] in MARKERS:
            chunk.lines.append(Line(MARKERS[line[0]], line[1:]))
        elif not line.startswith(b"\\ "):
            chunk.lines.append(Line("?", line))
    return [hunk for hunk in (chunk.build() for chunk in chunks) if hunk.ops]


def parse_diff(diff: str | bytes, limits: Limits) -> list[FileOp]:
    """Return what a diff does to each file, in its order, with paths as written; prose around it is ignored.

    Raises:
        DiffRefusedError: `no_diff`, `malformed`, `truncated`, `binary`, `path_mismatch`, `symlink`, `submodule`,
            `too_large` (the diff's fault).
    """
    lines = lines_of(diff, limits)
    for at, line in enumerate(lines):
        has_blocks = line.startswith(_DELETE_FILE) and any(map(is_block_start, lines))
        if is_patch_start(line) and not has_blocks:
            ops, prose = parse_patch(lines, limits)
        elif is_block_start(line) or has_blocks:
            ops, prose = parse_blocks(lines, limits)
        elif is_file_header(lines, at):
            ops, prose = parse_unified(lines, limits)
        else:
            continue
        _check_rest(prose)
        if not ops:
            break
        return [_unconverted(op) for op in ops] if is_converted(lines) else ops
    if any(is_hunk_header(line) for line in lines):
        raise DiffRefusedError(Reason.MALFORMED, "a hunk stands below no file's name (`--- a/path`, `+++ b/path`)")
    raise DiffRefusedError(Reason.NO_DIFF, "the text holds no diff")


def _unconverted(op: FileOp) -> FileOp:
    """Undo the conversion to CR LF in a new file; the lines of existing files show how theirs end."""
    if op.kind is not Kind.CREATE:
        return op
    hunks = [
        hunk._replace(before=[*map(_unended, hunk.before)], added=[*map(_unended, hunk.added)]) for hunk in op.hunks
    ]
    return op._replace(hunks=tuple(hunks))


def _unended(text: bytes) -> bytes:
    return text[:-2] + b"\n" if text.endswith(b"\r\n") else text.removesuffix(b"\r")


def _check_rest(prose: list[bytes]) -> None:
    """Refuse a text of which a part would be ignored silently."""
    for line in prose:
        if is_patch_start(line) or is_block_start(line):
            raise DiffRefusedError(Reason.MALFORMED, "the text mixes formats of diffs; use one")
        if is_hunk_header(line):
            raise DiffRefusedError(Reason.MALFORMED, "a hunk stands below no file's name, or behind text that ended it")

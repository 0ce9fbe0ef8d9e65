"""The patch format of Codex: `*** Begin Patch`, a file after another, places named by lines above them."""

from __future__ import annotations

from dataclasses import dataclass, field

from sandbox.diff.errors import DiffRefusedError, Reason
from sandbox.diff.hunks import MARKERS, read_header
from sandbox.diff.model import FileOp, Hunk, Kind, Limits, Line, Span, hunk_of
from sandbox.diff.names import to_text
from sandbox.diff.text import is_empty, is_fence

_BEGIN, _END = b"*** Begin Patch", b"*** End Patch"
_END_OF_FILE = b"*** End of File"
_MOVE = b"*** Move to: "
_FILES = {b"*** Add File: ": Kind.CREATE, b"*** Update File: ": Kind.UPDATE, b"*** Delete File: ": Kind.DELETE}


def is_patch_start(line: bytes) -> bool:
    """Return whether a patch, or a file of one, begins at this line."""
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
    """Read a patch. One that has a beginning must have an end: a reply that was cut must not be half applied.

    Returns:
        The files, and the lines outside the patch.

    Raises:
        DiffRefusedError: `malformed`, `truncated`, `too_large` (the fault of whoever wrote the diff).
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

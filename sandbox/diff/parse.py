"""Which of the three formats a text is in, and what it says. A text in two formats says nothing."""

from __future__ import annotations

from sandbox.diff.errors import DiffRefusedError, Reason
from sandbox.diff.hunks import is_file_header, is_hunk_header
from sandbox.diff.model import FileOp, Kind, Limits
from sandbox.diff.parse_blocks import is_block_start, parse_blocks
from sandbox.diff.parse_patch import is_patch_start, parse_patch
from sandbox.diff.parse_unified import parse_unified
from sandbox.diff.text import is_converted, lines_of


def parse_diff(diff: str | bytes, limits: Limits) -> list[FileOp]:
    """Read a diff, whatever stands around it.

    Args:
        diff: a reply of a model or the content of a file.
        limits: what it may ask for.

    Returns:
        What it does to each file, in its order; paths as they are written.

    Raises:
        DiffRefusedError: `no_diff`, `malformed`, `truncated`, `binary`, `path_mismatch`, `symlink`, `submodule`,
            `too_large` (the fault of whoever wrote the diff).
    """
    lines = lines_of(diff, limits)
    for at, line in enumerate(lines):
        if is_patch_start(line):
            ops, prose = parse_patch(lines, limits)
        elif is_block_start(line):
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
    """Return a new file of a diff of which every line, headers too, came to end in CR LF on its way."""
    if op.kind is not Kind.CREATE:
        return op  # the file itself says how its lines end
    hunks = [
        hunk._replace(before=[*map(_unended, hunk.before)], added=[*map(_unended, hunk.added)]) for hunk in op.hunks
    ]
    return op._replace(hunks=tuple(hunks))


def _unended(text: bytes) -> bytes:
    return text[:-2] + b"\n" if text.endswith(b"\r\n") else text.removesuffix(b"\r")


def _check_rest(prose: list[bytes]) -> None:
    """Refuse a text of which a part would be passed over in silence."""
    for line in prose:
        if is_patch_start(line) or is_block_start(line):
            raise DiffRefusedError(Reason.MALFORMED, "the text mixes formats of diffs; use one")
        if is_hunk_header(line):
            raise DiffRefusedError(Reason.MALFORMED, "a hunk stands below no file's name, or behind text that ended it")

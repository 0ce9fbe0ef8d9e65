"""The text of a diff as lines, and where in a model's reply it stands."""

from __future__ import annotations

from itertools import islice

from sandbox.diff.errors import DiffRefusedError, Reason
from sandbox.diff.lines import split_lines
from sandbox.diff.model import Limits

_BOM = b"\xef\xbb\xbf"
_FENCES = (b"```", b"~~~")


def lines_of(diff: str | bytes, limits: Limits) -> list[bytes]:
    """Return the lines of a diff, each with its line feed; a last line without one gets one.

    A diff of which every line ends in CR LF was converted on its way: the CR of its headers means nothing, and that of
    its body is for the match to judge.

    Raises:
        DiffRefusedError: `too_large` (the fault of whoever wrote the diff).
    """
    raw = diff.encode("utf-8", "surrogatepass") if isinstance(diff, str) else bytes(diff)
    if len(raw) > limits.max_bytes:
        raise DiffRefusedError(Reason.TOO_LARGE, f"the diff has {len(raw)} bytes, at most {limits.max_bytes}")
    if len(raw) > limits.max_lines and raw.count(b"\n") > limits.max_lines:
        raise DiffRefusedError(Reason.TOO_LARGE, f"the diff has more than {limits.max_lines} lines")
    raw = raw.removeprefix(_BOM)
    lines = split_lines(raw)
    if lines and not lines[-1].endswith(b"\n"):
        lines[-1] += b"\n"
    return lines


def is_converted(lines: list[bytes]) -> bool:
    """Return whether all lines end in CR LF."""
    return bool(lines) and all(line.endswith(b"\r\n") for line in lines)


def is_fence(line: bytes) -> bool:
    """Return whether a line opens or closes a fenced block of Markdown."""
    return line.startswith(_FENCES)


def is_closing_fence(lines: list[bytes], at: int) -> bool:
    """Return whether a line closes a fenced block, and is not itself a line of what stands in the block."""
    if not is_fence(lines[at]) or lines[at].strip()[3:]:
        return False
    following = next((line for line in islice(lines, at + 1, None) if is_fence(line)), None)
    return following is None or bool(following.strip()[3:])


def is_empty(line: bytes) -> bool:
    """Return whether a line has nothing but its end."""
    return line in (b"\n", b"\r\n")

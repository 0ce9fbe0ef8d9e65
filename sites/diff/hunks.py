"""Parser of unified hunks, which trusts a header's counts only if they fit the body.

git always trusts them: a new file of four lines under `+1,2` silently becomes one of two lines.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from sites.diff.model import Hunk, Line, Span, hunk_of, is_closing_fence, is_empty

_HEADER = re.compile(
    rb"@@(?=[ \t.-]|$)[ \t]*(?:-(\d{1,9})(?:,(\d{1,9}))?[ \t]+\+(\d{1,9})(?:,(\d{1,9}))?)?(.*?)[ \t]*(?:@@(.*))?$"
)
_NOTHING = re.compile(rb"^[\s.\xe2\x80\xa6]*$")
_VERSION = re.compile(rb"\d+\.\d+")
_PLAIN_STARTS = (b" ", b"+", b"-")
_PLUS = ord("+")
_HEADS = (b"--- ", b"+++ ")
_MARKED = re.compile("[ +-]*")
MARKERS = {ord(" "): " ", ord("-"): "-", ord("+"): "+"}


class Found(NamedTuple):
    """A hunk in a text."""

    hunk: Hunk
    end: int
    """The first line after the hunk."""


class Header(NamedTuple):
    """The header of a hunk."""

    span: Span | None
    anchors: tuple[bytes, ...]
    """A line above the hunk, if the header names one."""


NO_HEADER = Header(None, ())


def is_hunk_header(line: bytes) -> bool:
    """Whether a hunk begins at this line."""
    return line.startswith(b"@@") and _HEADER.match(line.rstrip()) is not None


def read_header(line: bytes) -> Header | None:
    """Return the header of a hunk; None for any other line.

    Models write `@@ ... @@`, and names of functions for numbers.
    """
    match = _HEADER.match(line.rstrip())
    if match is None:
        return None
    *numbers, inside, behind = match.groups()
    if numbers[0] is None:
        return Header(None, _anchors(behind) or _anchors(inside))
    span = Span(*[int(number or 1) for number in numbers])
    return Header(span, _anchors(inside if behind is None else behind))


def _anchors(text: bytes | None) -> tuple[bytes, ...]:
    return (text.strip(),) if text and not _NOTHING.match(text) else ()


def is_file_header(lines: list[bytes], at: int) -> bool:
    """Whether a file's headers begin at a line: `diff --git`, or `---` and `+++`, or one of the two."""
    line = lines[at]
    if line.startswith(b"diff --git "):
        return True
    following = lines[at + 1] if at + 1 < len(lines) else b""
    if line.startswith(b"--- "):
        return following.startswith(b"+++ ") or is_hunk_header(following)
    return line.startswith(b"+++ ") and is_hunk_header(following)


def marks_of(lines: list[bytes]) -> str:
    """Return the first byte of each line."""
    return bytes([line[0] for line in lines]).decode("latin-1")


def read_hunk(lines: list[bytes], at: int, header: Header, *, marks: str, is_git: bool, is_fenced: bool) -> Found:
    """Read the hunk below a header; `marks` are the first bytes of all lines.

    In a file with a `diff --git` header a line `--- x` within the counts is a removed line `-- x`; a fenced diff ends
    with its fence.
    """
    found = _plain(lines, at, header, marks=marks, is_git=is_git) or _counted(lines, at, header, is_git=is_git)
    if found is not None and not _goes_on(lines, found.end):
        return found
    return _free(lines, at, header, is_fenced=is_fenced)


def _plain(lines: list[bytes], at: int, header: Header, *, marks: str, is_git: bool) -> Found | None:
    """Read a hunk whose counts are exactly those of the marked lines that follow, as of nearly all; else None."""
    span, anchors = header
    if span is None:
        return None
    found = _MARKED.match(marks, at)
    assert found is not None
    end = found.end()
    if not is_git:
        heads = (place for place in range(at, end) if lines[place][:4] in _HEADS and is_file_header(lines, place))
        end = next(heads, end)
    ops = marks[at:end]
    is_fit = end - at - ops.count("+") == span.old_count and end - at - ops.count("-") == span.new_count
    if not is_fit or marks.startswith("\\", end):
        return None
    body = lines[at:end]
    before = [line[1:] for line in body if line[0] != _PLUS]
    added = [line[1:] for line in body if line[0] == _PLUS]
    return Found(Hunk(ops, before, added, span, anchors, is_counted=True), end)


def _counted(lines: list[bytes], at: int, header: Header, *, is_git: bool) -> Found | None:
    span, anchors = header
    if span is None:
        return None
    read: list[Line] = []
    old, new = span.old_count, span.new_count
    while old > 0 or new > 0:
        if at >= len(lines):
            return None
        line = lines[at]
        if line.startswith(b"\\") and read:
            read[-1] = _without_feed(read[-1], lines[at])
            at += 1
            continue
        op = MARKERS.get(line[0]) or (" " if is_empty(line) else "?")
        is_end = op == "?" and (is_hunk_header(line) or line.startswith(b"diff --git "))
        if is_end or (op in "-+" and not is_git and is_file_header(lines, at)):
            return None
        old -= op != "+"
        new -= op != "-"
        if old < 0 or new < 0:
            return None
        read.append(Line(op, line if op == "?" or is_empty(line) else line[1:]))
        at += 1
    if at < len(lines) and lines[at].startswith(b"\\") and read:
        read[-1] = _without_feed(read[-1], lines[at])
        at += 1
    return Found(hunk_of(read, span, anchors=anchors, is_counted=True), at)


def _goes_on(lines: list[bytes], at: int) -> bool:
    """Whether the text after a counted hunk looks like more of it, so that the counts are wrong."""
    while at < len(lines) and is_empty(lines[at]):
        at += 1
    if at >= len(lines) or lines[at][0] not in MARKERS:
        return False
    return not (is_file_header(lines, at) or _is_signature(lines, at) or lines[at].strip() == b"---")


def _free(lines: list[bytes], at: int, header: Header, *, is_fenced: bool) -> Found:
    """Read a hunk to its end without using its counts."""
    read: list[Line] = []
    while at < len(lines) and not _ends(lines, at, is_fenced=is_fenced):
        line = lines[at]
        if line.startswith(b"\\ "):
            if read:
                read[-1] = _without_feed(read[-1], lines[at])
        elif line[0] in MARKERS:
            read.append(Line(MARKERS[line[0]], line[1:]))
        else:
            read.append(Line("?", line))
        at += 1
    while read and read[-1].op == "?" and is_empty(read[-1].text):
        read.pop()
    return Found(hunk_of(read, header.span, anchors=header.anchors), at)


def _ends(lines: list[bytes], at: int, *, is_fenced: bool) -> bool:
    line = lines[at]
    if line.startswith(_PLAIN_STARTS) and not line.startswith((b"+++ ", b"-- ", b"--- ")):
        return False  # the fast path for nearly all lines
    return (
        is_hunk_header(line)
        or is_file_header(lines, at)
        or _is_signature(lines, at)
        or (is_fenced and is_closing_fence(lines, at))
        or line.startswith((b"*** ", b"diff -", b"Index: "))
    )


def _is_signature(lines: list[bytes], at: int) -> bool:
    """Whether a mail of `git format-patch` ends here."""
    following = lines[at + 1] if at + 1 < len(lines) else b""
    return lines[at].rstrip(b"\r\n") == b"-- " and (not following or _VERSION.match(following) is not None)


def _without_feed(line: Line, marker: bytes) -> Line:
    """Return a line without its end; if the marker ends in CR LF, the CR was added in transit."""
    text = line.text.removesuffix(b"\n")
    return Line(line.op, text.removesuffix(b"\r") if marker.endswith(b"\r\n") else text)

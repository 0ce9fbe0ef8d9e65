"""What all three formats of diffs are read into. Values only: nothing here knows a file's content."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, NamedTuple


class Line(NamedTuple):
    """One line of a hunk."""

    op: str
    """` ` for context, `-` for removed, `+` for added; and `?` for a line that has lost its marker."""
    text: bytes
    """With its line feed, unless the diff says that there is none."""


class Span(NamedTuple):
    """The numbers of a hunk's header. A hint: models write wrong ones."""

    old_start: int
    old_count: int
    new_start: int
    new_count: int


class Hunk(NamedTuple):
    """One change of one file."""

    ops: str
    """What each line is: a `Line.op` for each."""
    before: list[bytes]
    """The lines that must be in the file."""
    added: list[bytes]
    """The lines that are new."""
    span: Span | None = None
    anchors: tuple[bytes, ...] = ()
    """Lines that stand somewhere above the hunk, outermost first: what follows `@@`."""
    is_counted: bool = False
    """The numbers of lines in the header are those of the body."""
    is_at_end: bool = False
    """The diff says that the hunk ends with the file."""

    @property
    def lines(self) -> tuple[Line, ...]:
        """All lines, in the order in which the diff has them."""
        before, added = iter(self.before), iter(self.added)
        return tuple(Line(op, next(added if op == "+" else before)) for op in self.ops)


def hunk_of(lines: Sequence[Line], span: Span | None = None, **rest: Any) -> Hunk:
    """Return the hunk of some lines."""
    before = [line.text for line in lines if line.op != "+"]
    added = [line.text for line in lines if line.op == "+"]
    return Hunk("".join(line.op for line in lines), before, added, span, **rest)


Strip = Literal["never", "always", "maybe"]
"""Whether the first directory of a path is only the diff's own (`a/`, `b/`)."""


class Kind(StrEnum):
    """What happens to a file."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"
    RENAME = "rename"
    COPY = "copy"


PLAIN_MODE = "100644"
EXECUTABLE_MODE = "100755"


class FileOp(NamedTuple):
    """What a diff does to one file."""

    kind: Kind
    path: str
    """The file afterwards; of a removed one, the file before."""
    source: str | None = None
    """Where a renamed or copied file was before."""
    hunks: tuple[Hunk, ...] = ()
    old_mode: str | None = None
    new_mode: str | None = None
    """Of six octal digits, when the diff names one."""
    old_blob: str | None = None
    """Start of git's id of the content before, in hex."""
    new_blob: str | None = None
    """Likewise of the content afterwards."""
    strip: Strip = "never"
    is_ordered: bool = True
    """The format lists hunks in the order of the file."""


@dataclass(frozen=True)
class Limits:
    """What one diff may ask for. The defaults keep every diff below two seconds."""

    max_bytes: int = 10 * 1024 * 1024
    max_lines: int = 400_000
    max_files: int = 1_000
    max_hunks: int = 10_000
    max_steps: int = 1_000_000
    """Comparisons of lines."""

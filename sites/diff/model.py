"""What all three formats of diffs are read into. Values only: nothing here knows a file's content."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from functools import cached_property
from io import BytesIO
from itertools import islice
from typing import Any, Literal, NamedTuple

from sites.errors import SiteError, show_path


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


# How sure each place of an applied diff was.


class Fuzz(IntEnum):
    """How far a hunk was from the file, at its worst line. Each level still means exactly one place."""

    EXACT = 0
    """Byte for byte, where its numbers say."""
    OFFSET = 1
    """Byte for byte, elsewhere."""
    WHITESPACE = 2
    """But for line ends and white space at the end of lines."""
    MARKER = 3
    """But for lost markers: context lines without their leading space, empty lines without their plus."""
    PUNCTUATION = 4
    """But for typographic quotes, dashes and spaces."""
    INDENT = 5
    """But for indentation; added lines are indented as the file is."""
    SPLIT = 6
    """In parts: the hunk leaves out unchanged lines of the file."""
    TRIMMED = 7
    """Without outer context lines, which the file does not have."""

    @property
    def needs_approval(self) -> bool:
        """Whether a person must look at the change, whatever the site's policy says."""
        return self > Fuzz.PUNCTUATION


class HunkReceipt(NamedTuple):
    """Where a hunk went."""

    line: int
    """First line of the file before the change that the hunk covers, counted from 1."""
    fuzz: Fuzz
    is_already_applied: bool = False
    """The file had this change before: the hunk did nothing."""


class FileReceipt(NamedTuple):
    """What happened to one file."""

    path: str
    kind: Kind
    source: str | None = None
    mode: str | None = None
    """The new mode, when the diff changes it."""
    hunks: tuple[HunkReceipt, ...] = ()

    @property
    def fuzz(self) -> Fuzz:
        """The worst of its hunks."""
        return max((hunk.fuzz for hunk in self.hunks), default=Fuzz.EXACT)

    @property
    def is_already_applied(self) -> bool:
        """Whether the file had all of its changes before."""
        return bool(self.hunks) and all(hunk.is_already_applied for hunk in self.hunks)


# The one way a diff is refused: a reason code, the place, and what a model needs to write it again once.


class Reason(StrEnum):
    """Why a diff was refused."""

    NO_DIFF = "no_diff"
    """Nothing in the text is a diff in one of the three formats."""
    MALFORMED = "malformed"
    """The structure of the diff cannot be read in exactly one way."""
    TRUNCATED = "truncated"
    """A block or a patch has no end: the reply was cut."""
    TOO_LARGE = "too_large"
    """More bytes, files or hunks than the limits allow."""
    TOO_COMPLEX = "too_complex"
    """Finding the places would take more steps than the limits allow."""
    BINARY = "binary"
    """A binary patch, or a text patch of a file that a diff says is binary."""

    UNSAFE_PATH = "unsafe_path"
    """A path breaks a rule of names (`sites.files`), or is git's own directory; the detail names the rule."""
    PATH_MISMATCH = "path_mismatch"
    """The headers of one file name different files."""
    NAME_COLLISION = "name_collision"
    """A new name is one file with another name on some file system, or lies below a file."""
    SYMLINK = "symlink"
    """A symbolic link would be made or changed, or lies on the way to a file."""
    SUBMODULE = "submodule"
    """A submodule would be made or changed."""

    MODE_CHANGE = "mode_change"
    """Policy: file modes other than that of a plain file."""
    RENAME = "rename"
    """Policy: renames and copies."""
    EXTENSION = "extension"
    """Policy: a kind of file that a site does not hold."""
    PLANTED = "planted"
    """Policy: configuration that a tool would obey."""
    PLACEHOLDER = "placeholder"
    """Policy: an added line stands for text that was left out ("... rest unchanged")."""
    MASS_DELETION = "mass_deletion"
    """Policy: most of a file would be gone."""

    FILE_NOT_FOUND = "file_not_found"
    """The file to be changed, renamed or removed does not exist."""
    FILE_EXISTS = "file_exists"
    """The file to be made exists already, with other content."""
    NOT_FOUND = "not_found"
    """The lines that a hunk changes are not in the file."""
    AMBIGUOUS = "ambiguous"
    """The evidence allows more than one place, or more than one result."""
    NO_CONTEXT = "no_context"
    """A hunk only adds lines, and nothing says where."""
    OVERLAP = "overlap"
    """Two hunks change the same lines."""
    LEFTOVER = "leftover"
    """A file to be removed holds more than the diff removes."""
    ALREADY_APPLIED = "already_applied"
    """Every change of the diff is in the files already."""
    NO_CHANGE = "no_change"
    """The diff changes nothing."""


_REPAIRABLE = frozenset(
    {
        Reason.NO_DIFF,
        Reason.MALFORMED,
        Reason.TRUNCATED,
        Reason.PATH_MISMATCH,
        Reason.FILE_NOT_FOUND,
        Reason.FILE_EXISTS,
        Reason.NOT_FOUND,
        Reason.AMBIGUOUS,
        Reason.NO_CONTEXT,
        Reason.OVERLAP,
        Reason.LEFTOVER,
        Reason.NO_CHANGE,
        Reason.PLACEHOLDER,
    }
)


class DiffRefusedError(SiteError, ValueError):
    """A diff is not applied, and nothing of it is (the fault of whoever wrote it)."""

    def __init__(
        self,
        reason: Reason,
        detail: str,
        file: str | None = None,
        hunk: int | None = None,
        nearest: tuple[str, ...] = (),
    ) -> None:
        super().__init__(reason, detail, file, hunk, nearest)
        self.reason = reason
        self.detail = detail
        """What is wrong, in one sentence, safe to print."""
        self.file = file
        """The file's path as the diff names it; None when no single file is at fault."""
        self.hunk = hunk
        """Which hunk of this file, counted from 1."""
        self.nearest = nearest
        """Lines of the file, numbered, where the hunk fits best. For display; never used to apply."""

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}: {self.detail}" if self.place else f"{self.reason}: {self.detail}"

    @property
    def place(self) -> str:
        """File and hunk, safe to print; empty when neither is known."""
        hunk = f"hunk {self.hunk}" if self.hunk is not None else ""
        return ", ".join(filter(None, [show_path(self.file) if self.file is not None else "", hunk]))

    @property
    def is_repairable(self) -> bool:
        """Whether the model that wrote the diff may be asked once to write it again."""
        return self.reason in _REPAIRABLE

    @property
    def feedback(self) -> str:
        """What the model is told in its one repair round."""
        lines = [f"The diff was refused and nothing was applied. {self}"]
        if self.nearest:
            lines += ["The file has these lines at the nearest place (line numbers are not part of it):", *self.nearest]
        lines.append(f"{_ADVICE.get(self.reason, _ADVICE_OF_ALL)} Send the whole corrected diff again.")
        return "\n".join(lines)


_ADVICE_OF_ALL = "Write one hunk for each place, with three lines of unchanged context copied exactly from the file."
_ADVICE = {
    Reason.AMBIGUOUS: "Add unchanged lines above and below until the place occurs only once in the file.",
    Reason.NO_CONTEXT: "Add the unchanged lines directly above and below the new ones.",
    Reason.FILE_EXISTS: "Change the file with a hunk instead of making it anew.",
    Reason.FILE_NOT_FOUND: "Use the path of a file that exists, or make the file from /dev/null.",
    Reason.PLACEHOLDER: "Write every line in full; leave nothing out.",
    Reason.TRUNCATED: "Finish every block, and change less at once.",
}


# A file as lines, and how alike two lines are.

_PUNCTUATION = str.maketrans(
    dict.fromkeys("‐‑‒–—―−﹘﹣－", "-")
    | dict.fromkeys("‘’‚‛′", "'")
    | dict.fromkeys("“”„‟″«»", '"')
    | dict.fromkeys("\u00a0\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000", " ")
    | dict.fromkeys("\u200b\u200c\u200d\ufeff\u2060", "")
    | {"…": "..."}
)
"""What models and editors replace without being asked. (Codes for what cannot be seen.)"""

MIN_KEPT_LINES = 2
MIN_KEPT_CHARS = 10
"""Without outer context a hunk must still have so much: two lines, ten characters that are not white space."""


def split_lines(data: bytes) -> list[bytes]:
    """Return the lines of a file, each with its line feed; a last one may have none."""
    return BytesIO(data).readlines()


def plain(line: bytes) -> bytes:
    """Return a line with plain quotes, dashes and spaces."""
    if line.isascii():
        return line
    return line.decode("utf-8", "surrogateescape").translate(_PUNCTUATION).encode("utf-8", "surrogateescape")


def key_of(line: bytes) -> bytes:
    """Return what two lines share that say the same: white space counts once, and not at the ends."""
    return b" ".join(plain(line).split())


def indent_of(line: bytes) -> bytes:
    """Return the white space that a line begins with; of a blank line, nothing."""
    text = line.lstrip(b" \t")
    return line[: len(line) - len(text)] if text.strip() else b""


def likeness(wanted: bytes, found: bytes, *, is_context: bool) -> Fuzz:
    """Return how far a line of a diff is from a line of the file with the same key."""
    if wanted == found:
        return Fuzz.EXACT
    one, other = wanted.rstrip(), found.rstrip()
    if one == other:
        return Fuzz.WHITESPACE
    if is_context and (b" " + one == other or one == b" " + other):
        return Fuzz.MARKER
    if plain(one).rstrip() == plain(other).rstrip():
        return Fuzz.PUNCTUATION
    return Fuzz.INDENT


class Budget:
    """How many comparisons are left: what bounds the time of a hostile diff."""

    def __init__(self, steps: int) -> None:
        self._left = steps

    def spend(self, steps: int) -> None:
        """Count comparisons.

        Raises:
            DiffRefusedError: `too_complex` (the fault of whoever wrote the diff).
        """
        self._left -= steps
        if self._left < 0:
            raise DiffRefusedError(Reason.TOO_COMPLEX, "finding the places would take too long; change less at once")


class FileText:
    """The lines of a file, found by what they say."""

    def __init__(self, data: bytes, budget: Budget) -> None:
        self.data = data
        self.lines = split_lines(data)
        self.budget = budget
        self.is_shifted = False
        """Removed lines of the diff are indented otherwise than the file: whole hunks are, not only their context."""

    @cached_property
    def keys(self) -> list[bytes]:
        """The key of each line."""
        self.budget.spend(len(self.lines))
        return [key_of(line) for line in self.lines]

    @cached_property
    def places(self) -> dict[bytes, list[int]]:
        """Where each key stands, in order."""
        found: defaultdict[bytes, list[int]] = defaultdict(list)
        for place, key in enumerate(self.keys):
            found[key].append(place)
        return dict(found)

    def is_at(self, place: int, lines: list[bytes]) -> bool:
        """Return whether lines stand at a place byte for byte."""
        self.budget.spend(len(lines) + 1)
        return 0 <= place <= len(self.lines) - len(lines) and self.lines[place : place + len(lines)] == lines

    def starts_of(self, keys: Sequence[bytes]) -> list[int]:
        """Return all places where lines with these keys stand one below another."""
        if not keys or not any(keys):
            return []
        rarest = min(range(len(keys)), key=lambda index: (not keys[index], len(self.places.get(keys[index], ()))))
        found = []
        for place in self.places.get(keys[rarest], ()):
            start = place - rarest
            if start >= 0 and start + len(keys) <= len(self.lines) and self._has_keys(start, keys):
                found.append(start)
        return found

    def _has_keys(self, start: int, keys: Sequence[bytes]) -> bool:
        for index, key in enumerate(keys):
            if self.keys[start + index] != key:
                self.budget.spend(index + 1)
                return False
        self.budget.spend(len(keys))
        return True


# git's ids of contents: they prove which content a diff was made from, and which it was meant to give.


def blob_id(data: bytes) -> str:
    """Return git's id of a content, in hex."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


# The text of a diff as lines, and where in a model's reply it stands.

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

"""The common model of the three diff formats, of refusals and receipts, and of a file as lines to match."""

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
    """` ` for context, `-` for removed, `+` for added, `?` for a line without a marker."""
    text: bytes
    """With its line feed, if it has one."""


class Span(NamedTuple):
    """The line numbers of a hunk's header; only a hint, as models write wrong ones."""

    old_start: int
    old_count: int
    new_start: int
    new_count: int


class Hunk(NamedTuple):
    """One change of one file."""

    ops: str
    """The `Line.op` of each line."""
    before: list[bytes]
    """The lines that must be in the file."""
    added: list[bytes]
    """The lines that are new."""
    span: Span | None = None
    anchors: tuple[bytes, ...] = ()
    """Lines somewhere above the hunk, outermost first: what follows `@@`."""
    is_counted: bool = False
    """The header's line counts fit the body."""
    is_at_end: bool = False
    """The diff says that the hunk is at the end of the file."""

    @property
    def lines(self) -> tuple[Line, ...]:
        """All lines in the order of the diff."""
        before, added = iter(self.before), iter(self.added)
        return tuple(Line(op, next(added if op == "+" else before)) for op in self.ops)


def hunk_of(lines: Sequence[Line], span: Span | None = None, **rest: Any) -> Hunk:
    """Return the hunk of some lines."""
    before = [line.text for line in lines if line.op != "+"]
    added = [line.text for line in lines if line.op == "+"]
    return Hunk("".join(line.op for line in lines), before, added, span, **rest)


Strip = Literal["never", "always", "maybe"]
"""Whether the first directory of a path (`a/`, `b/`) is only in the diff."""


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
    """The path afterwards, or before for a deleted file."""
    source: str | None = None
    """The path before a rename or copy."""
    hunks: tuple[Hunk, ...] = ()
    old_mode: str | None = None
    new_mode: str | None = None
    """Of six octal digits, when the diff names one."""
    old_blob: str | None = None
    """Prefix of the blob id before, in hex."""
    new_blob: str | None = None
    """Prefix of the blob id afterwards."""
    strip: Strip = "never"
    is_ordered: bool = True
    """The format lists hunks in the order of the file."""


@dataclass(frozen=True)
class Limits:
    """The limits of one diff; with the defaults, any diff takes less than two seconds."""

    max_bytes: int = 10 * 1024 * 1024
    max_lines: int = 400_000
    max_files: int = 1_000
    max_hunks: int = 10_000
    max_steps: int = 1_000_000
    """Comparisons of lines."""


class Fuzz(IntEnum):
    """How inexactly a hunk matched, at its worst line; each level still means exactly one place."""

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
        """Whether a person must approve the change, whatever the site's policy says."""
        return self > Fuzz.PUNCTUATION


class HunkReceipt(NamedTuple):
    """Where a hunk was applied."""

    line: int
    """The first line that the hunk covers in the old file, counted from 1."""
    fuzz: Fuzz
    is_already_applied: bool = False
    """The file already had this change."""


class FileReceipt(NamedTuple):
    """What happened to one file."""

    path: str
    kind: Kind
    source: str | None = None
    mode: str | None = None
    """The new mode, if the diff changes it."""
    hunks: tuple[HunkReceipt, ...] = ()

    @property
    def fuzz(self) -> Fuzz:
        """The fuzz of the worst hunk."""
        return max((hunk.fuzz for hunk in self.hunks), default=Fuzz.EXACT)

    @property
    def is_already_applied(self) -> bool:
        """Whether the file already had all of its changes."""
        return bool(self.hunks) and all(hunk.is_already_applied for hunk in self.hunks)


class Reason(StrEnum):
    """Why a diff was refused."""

    NO_DIFF = "no_diff"
    """Nothing in the text is a diff in one of the three formats."""
    MALFORMED = "malformed"
    """The structure of the diff cannot be read in exactly one way."""
    TRUNCATED = "truncated"
    """A block or patch has no end: the reply was cut off."""
    TOO_LARGE = "too_large"
    """More bytes, files or hunks than the limits allow."""
    TOO_COMPLEX = "too_complex"
    """Finding the places would take more steps than the limits allow."""
    BINARY = "binary"
    """A binary patch, or a text patch of a file declared binary."""

    UNSAFE_PATH = "unsafe_path"
    """A path breaks a rule of `sites.files`, or is in `.git`; the detail names the rule."""
    PATH_MISMATCH = "path_mismatch"
    """The headers of one file name different files."""
    NAME_COLLISION = "name_collision"
    """A new name collides with another on some file system, or lies below a file."""
    SYMLINK = "symlink"
    """A symbolic link would be created, changed or followed."""
    SUBMODULE = "submodule"
    """A submodule would be created or changed."""

    MODE_CHANGE = "mode_change"
    """Policy: file modes other than a plain file's."""
    RENAME = "rename"
    """Policy: renames and copies."""
    EXTENSION = "extension"
    """Policy: a kind of file that a site does not hold."""
    PLANTED = "planted"
    """Policy: configuration that a tool obeys."""
    PLACEHOLDER = "placeholder"
    """Policy: an added line stands for text that was left out ("... rest unchanged")."""
    MASS_DELETION = "mass_deletion"
    """Policy: most of a file would be gone."""

    FILE_NOT_FOUND = "file_not_found"
    """The file to be changed, renamed or removed does not exist."""
    FILE_EXISTS = "file_exists"
    """The file to be created exists with other content."""
    NOT_FOUND = "not_found"
    """The lines that a hunk changes are not in the file."""
    AMBIGUOUS = "ambiguous"
    """The evidence allows more than one place, or more than one result."""
    NO_CONTEXT = "no_context"
    """A hunk only adds lines, and nothing says where."""
    OVERLAP = "overlap"
    """Two hunks change the same lines."""
    LEFTOVER = "leftover"
    """A file to be deleted holds more than the diff removes."""
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
    """A diff is refused as a whole (the diff's fault)."""

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
        """The path in the diff; None if no single file is at fault."""
        self.hunk = hunk
        """Which hunk of this file, counted from 1."""
        self.nearest = nearest
        """Numbered lines where the hunk fits best; for display, never to apply."""

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}: {self.detail}" if self.place else f"{self.reason}: {self.detail}"

    @property
    def place(self) -> str:
        """File and hunk, safe to print; empty if neither is known."""
        hunk = f"hunk {self.hunk}" if self.hunk is not None else ""
        return ", ".join(filter(None, [show_path(self.file) if self.file is not None else "", hunk]))

    @property
    def is_repairable(self) -> bool:
        """Whether the model may be asked once to write the diff again."""
        return self.reason in _REPAIRABLE

    @property
    def feedback(self) -> str:
        """The message to the model for its one repair round."""
        lines = [f"The diff was refused and nothing was applied. {self}"]
        if self.nearest:
            lines += ["The file has these lines at the nearest place (line numbers are not part of it):", *self.nearest]
        lines.append(f"{_ADVICE.get(self.reason, _ADVICE_OF_ALL)} Send the whole corrected diff again.")
        return "\n".join(lines)


_ADVICE_OF_ALL = "Write one hunk for each place, with three lines of unchanged context copied exactly from the file."
_ADVICE = {
    Reason.NO_DIFF: "Write for each place the path of its file and a SEARCH/REPLACE block.",
    Reason.AMBIGUOUS: "Add unchanged lines above and below until the place occurs only once in the file.",
    Reason.NO_CONTEXT: "Add the unchanged lines directly above and below the new ones.",
    Reason.FILE_EXISTS: "Change the file with a hunk instead of making it anew.",
    Reason.FILE_NOT_FOUND: "Use the path of a file that exists, or make the file from /dev/null.",
    Reason.PLACEHOLDER: "Write every line in full; leave nothing out.",
    Reason.TRUNCATED: "Finish every block, and change less at once.",
}


_PUNCTUATION = str.maketrans(
    dict.fromkeys("‐‑‒–—―−﹘﹣－", "-")
    | dict.fromkeys("‘’‚‛′", "'")
    | dict.fromkeys("“”„‟″«»", '"')
    | dict.fromkeys("\u00a0\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000", " ")
    | dict.fromkeys("\u200b\u200c\u200d\ufeff\u2060", "")
    | {"…": "..."}
)
"""Characters that models and editors substitute unasked; escaped if invisible."""

MIN_KEPT_LINES = 2
MIN_KEPT_CHARS = 10
"""What a hunk must keep without its outer context: lines, and characters other than white space."""


def split_lines(data: bytes) -> list[bytes]:
    """Return the lines of a file with their line feeds."""
    return BytesIO(data).readlines()


def plain(line: bytes) -> bytes:
    """Return a line with plain quotes, dashes and spaces."""
    if line.isascii():
        return line
    return line.decode("utf-8", "surrogateescape").translate(_PUNCTUATION).encode("utf-8", "surrogateescape")


def key_of(line: bytes) -> bytes:
    """Return a line's key for comparison, with plain punctuation and white space collapsed."""
    return b" ".join(plain(line).split())


def indent_of(line: bytes) -> bytes:
    """Return a line's indentation; nothing for a blank line."""
    text = line.lstrip(b" \t")
    return line[: len(line) - len(text)] if text.strip() else b""


def likeness(wanted: bytes, found: bytes, *, is_context: bool) -> Fuzz:
    """Return how inexactly a diff's line matches the file's line with the same key."""
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
    """The remaining comparisons, which bound the time of a hostile diff."""

    def __init__(self, steps: int) -> None:
        self._left = steps

    def spend(self, steps: int) -> None:
        """Count comparisons.

        Raises:
            DiffRefusedError: `too_complex` (the diff's fault).
        """
        self._left -= steps
        if self._left < 0:
            raise DiffRefusedError(Reason.TOO_COMPLEX, "finding the places would take too long; change less at once")


class FileText:
    """The lines of a file, indexed by key."""

    def __init__(self, data: bytes, budget: Budget, seen: Sequence[tuple[int, int]] | None = None) -> None:
        self.data = data
        self.seen = seen
        """First and last lines, from 1, that the diff's author saw; None for all."""
        self.lines = split_lines(data)
        self.budget = budget
        self.is_shifted = False
        """The diff's removed lines are indented differently from the file: whole hunks are, not only context."""

    @cached_property
    def keys(self) -> list[bytes]:
        """The key of each line."""
        self.budget.spend(len(self.lines))
        return [key_of(line) for line in self.lines]

    @cached_property
    def places(self) -> dict[bytes, list[int]]:
        """The places of each key, in order."""
        places: defaultdict[bytes, list[int]] = defaultdict(list)
        for place, key in enumerate(self.keys):
            places[key].append(place)
        return dict(places)

    def is_at(self, place: int, lines: list[bytes]) -> bool:
        """Whether lines are at a place byte for byte."""
        self.budget.spend(len(lines) + 1)
        return 0 <= place <= len(self.lines) - len(lines) and self.lines[place : place + len(lines)] == lines

    def starts_of(self, keys: Sequence[bytes]) -> list[int]:
        """Return all places where lines with these keys are consecutive."""
        if not keys or not any(keys):
            return []
        rarest = min(range(len(keys)), key=lambda index: (not keys[index], len(self.places.get(keys[index], ()))))
        candidates = (place - rarest for place in self.places.get(keys[rarest], ()))
        last = len(self.lines) - len(keys)
        return [start for start in candidates if 0 <= start <= last and self._has_keys(start, keys)]

    def _has_keys(self, start: int, keys: Sequence[bytes]) -> bool:
        for index, key in enumerate(keys):
            if self.keys[start + index] != key:
                self.budget.spend(index + 1)
                return False
        self.budget.spend(len(keys))
        return True


def blob_id(data: bytes) -> str:
    """Return git's blob id of a content, in hex; it proves a diff's base and its intended result."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


_BOM = b"\xef\xbb\xbf"
_FENCES = (b"```", b"~~~")


def lines_of(diff: str | bytes, limits: Limits) -> list[bytes]:
    """Return the lines of a diff, each with a line feed.

    If all end in CR LF, the diff was converted in transit: only the CR in the body means anything, to the match.

    Raises:
        DiffRefusedError: `too_large` (the diff's fault).
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
    """Whether all lines end in CR LF."""
    return bool(lines) and all(line.endswith(b"\r\n") for line in lines)


def is_fence(line: bytes) -> bool:
    """Whether a line opens or closes a fenced Markdown block."""
    return line.startswith(_FENCES)


def is_closing_fence(lines: list[bytes], at: int) -> bool:
    """Whether a line closes a fenced block and is not part of its content."""
    if not is_fence(lines[at]) or lines[at].strip()[3:]:
        return False
    following = next((line for line in islice(lines, at + 1, None) if is_fence(line)), None)
    return following is None or bool(following.strip()[3:])


def is_empty(line: bytes) -> bool:
    """Whether a line is empty."""
    return line in (b"\n", b"\r\n")

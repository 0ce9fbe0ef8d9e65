"""The one way a diff is refused: a reason code, the place, and what a model needs to write it again once."""

from __future__ import annotations

from enum import StrEnum

from sandbox.errors import SandboxError, show_path


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
    """A path breaks a rule of names (`sandbox.paths`), or is git's own directory; the detail names the rule."""
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
        Reason.NO_DIFF, Reason.MALFORMED, Reason.TRUNCATED, Reason.PATH_MISMATCH, Reason.FILE_NOT_FOUND,
        Reason.FILE_EXISTS, Reason.NOT_FOUND, Reason.AMBIGUOUS, Reason.NO_CONTEXT, Reason.OVERLAP, Reason.LEFTOVER,
        Reason.NO_CHANGE, Reason.PLACEHOLDER,
    }
)  # fmt: skip


class DiffRefusedError(SandboxError, ValueError):
    """A diff is not applied, and nothing of it is (the fault of whoever wrote it)."""

    def __init__(
        self, reason: Reason, detail: str, file: str | None = None, hunk: int | None = None,
        nearest: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
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

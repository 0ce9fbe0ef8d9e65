"""What site files, stores, diffs and previews can refuse, and whose fault it is."""

from __future__ import annotations

from typing import Literal

_SHOWN_PATH_CHARS = 120


class SiteError(Exception):
    """Base of all errors of this package."""


def show_path(path: str) -> str:
    """Return a path that is safe to print: escaped to ASCII and cut."""
    shown = ascii(path)
    return shown if len(shown) <= _SHOWN_PATH_CHARS else shown[: _SHOWN_PATH_CHARS - 1] + "…"


class PathRefusedError(SiteError, ValueError):
    """A file name from outside breaks a rule of names (the fault of whoever named the file)."""

    def __init__(self, reason: str, path: str) -> None:
        super().__init__(reason, path[:_SHOWN_PATH_CHARS])
        self.reason = reason
        self.shown = show_path(path)

    def __str__(self) -> str:
        return f"path {self.shown} is refused: {self.reason}"


class TreeRefusedError(SiteError, ValueError):
    """A set of files breaks a rule: a collision, a cap, a kind of file (the fault of whoever sent the files)."""

    def __init__(self, reason: str, path: str, detail: str) -> None:
        super().__init__(reason, path[:_SHOWN_PATH_CHARS], detail)
        self.reason = reason
        self.shown = show_path(path)
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.shown} is refused: {self.reason}: {self.detail}"


class BlobMissingError(SiteError, LookupError):
    """The store holds no blob of this digest (our fault, or a lost disk)."""


class DenAwayError(SiteError, OSError):
    """The whole store is not there: not mounted, or not made yet (the surroundings' fault): a later try may find it."""


class BlobCorruptError(SiteError):
    """A stored blob no longer has the digest it is stored under (the disk's fault)."""


class ReleaseAlteredError(SiteError, ValueError):
    """A release on record is not what its scan judged (the fault of whoever changed the record)."""


class ManifestError(SiteError, ValueError):
    """A stored manifest cannot be read (our fault)."""


class PreviewRefusedError(SiteError, ValueError):
    """A preview token is not accepted (the bearer's fault)."""

    def __init__(self, reason: Literal["expired", "tampered"]) -> None:
        super().__init__(reason)
        self.reason: Literal["expired", "tampered"] = reason

    def __str__(self) -> str:
        return f"the preview link is {self.reason}"

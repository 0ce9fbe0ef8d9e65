"""The rules that every file name from outside must keep (notes: threats E and F1).

A name is checked once, here, before anything else looks at it. The rules are those of the strictest file system that a
release may ever be copied to, so that one name can never mean two files, or a file in another place.
"""

from __future__ import annotations

import re
import unicodedata
from fnmatch import fnmatchcase
from functools import lru_cache

from sandbox.errors import PathRefusedError

MAX_PATH_BYTES = 4096
MAX_SEGMENT_BYTES = 255
MAX_DEPTH = 32

_DEVICE_NAMES = frozenset(
    ["con", "prn", "aux", "nul", "conin$", "conout$"]
    + [f"{port}{number}" for port in ("com", "lpt") for number in "123456789¹²³"]
)
_DRIVE = re.compile(r"[A-Za-z]:")

PLANTED: frozenset[str] = frozenset(
    {
        ".claude", "claude.md", "claude.*.md", ".claude.json", ".mcp.json",
        "agents.md", "agents.*.md", "gemini.md", ".cursor", ".cursorrules", ".windsurf*", ".clinerules*", ".aider*",
        ".gemini", ".codex", ".continue", ".kiro", ".roo*", ".goosehints",
        ".git", "git~[0-9]*", ".gitmodules", ".gitattributes", ".github", ".gitlab-ci.yml",
        ".husky", "lefthook.y*ml", ".lefthook.y*ml", ".pre-commit-config.y*ml",
        ".npmrc", ".yarnrc*", ".yarn", ".pnpmfile.*js", ".pnp.*js", "bunfig.toml",
        ".env", ".env.*", ".envrc", "*.pem", "*.key",
        ".ripgreprc", ".vscode", ".idea", ".devcontainer", ".devcontainer.json",
        ".gitleaks.toml", ".gitleaksignore", ".secrets.baseline",
    }
)  # fmt: skip
"""Configuration that makes some tool run code, or look away, when a tree is merely opened (threat D): patterns that are
matched against each segment of a path, case-folded."""


@lru_cache(maxsize=4096)  # a diff names a file several times, and its own paths differ little from the site's
def check_path(path: str) -> str:
    """Return the one form of a relative file name, or refuse it.

    Args:
        path: the name as it came from outside, `/` between its segments.

    Returns:
        The name in Unicode normal form C.

    Raises:
        PathRefusedError: the sender's fault; its reason is one of `empty encoding control direction backslash absolute
            drive dot_segment parent trailing_dot_space device_name too_deep segment_too_long too_long`.
    """
    reason = _whole_reason(path)
    if reason:
        raise PathRefusedError(reason, path)
    normal = unicodedata.normalize("NFC", path)
    segments = normal.split("/")
    reason = "too_deep" if len(segments) > MAX_DEPTH else next(filter(None, map(_segment_reason, segments)), None)
    if not reason and len(normal.encode()) > MAX_PATH_BYTES:
        reason = "too_long"
    if reason:
        raise PathRefusedError(reason, path)
    return normal


def collision_key(path: str) -> str:
    """Return what two names share when some file system would hold them as one file."""
    if path.isascii():  # in its normal forms as it stands
        return path.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFKC", path).casefold())


def is_planted(path: str) -> bool:
    """Return whether a file is configuration that a tool would obey without being asked."""
    return any(_is_planted_name(segment) for segment in path.casefold().split("/"))


@lru_cache(maxsize=16_384)  # a repository's many files share few names of directories
def _is_planted_name(segment: str) -> bool:
    return any(fnmatchcase(segment, pattern) for pattern in PLANTED)


def _whole_reason(path: str) -> str | None:
    if not path:
        return "empty"
    if len(path) > MAX_PATH_BYTES:  # before anything that takes time per character
        return "too_long"
    for character in path:
        category = unicodedata.category(character)
        if category == "Cs":
            return "encoding"
        if category in ("Cc", "Zl", "Zp"):
            return "control"
        if category == "Cf":  # bidirectional overrides, zero-width characters, soft hyphens
            return "direction"
    if "\\" in path:
        return "backslash"
    if path.startswith("/"):
        return "absolute"
    if _DRIVE.match(path):
        return "drive"
    return None


def _segment_reason(segment: str) -> str | None:
    if segment in ("", "."):
        return "dot_segment"
    if segment == "..":
        return "parent"
    if segment[-1] in ". " or segment[0] == " ":
        return "trailing_dot_space"
    if segment.split(".", 1)[0].rstrip(" ").casefold() in _DEVICE_NAMES:
        return "device_name"
    if len(segment.encode()) > MAX_SEGMENT_BYTES:
        return "segment_too_long"
    return None

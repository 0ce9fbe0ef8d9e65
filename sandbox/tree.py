"""What a set of files must keep, wherever it came from: names, collisions, caps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sandbox.errors import TreeRefusedError
from sandbox.paths import check_path, collision_key

DEFAULT_MAX_TREE_BYTES = 20 * 1024 * 1024
DEFAULT_MAX_TREE_FILES = 5_000


def check_tree(
    files: Mapping[str, bytes], *, max_bytes: int = DEFAULT_MAX_TREE_BYTES, max_files: int = DEFAULT_MAX_TREE_FILES
) -> dict[str, bytes]:
    """Return files under their checked names.

    Args:
        files: contents by name, as they came from outside.
        max_bytes: what all files together may have; exactly this many pass.
        max_files: how many files there may be.

    Raises:
        PathRefusedError: a name breaks a rule (the sender's fault).
        TreeRefusedError: `too_many_files`, `too_many_bytes`, `name_collision` for two names that some file system holds
            as one, `file_as_directory` for a file below another file (the sender's fault).
    """
    if len(files) > max_files:
        raise TreeRefusedError("too_many_files", "", f"{len(files)} files, at most {max_files}")
    total = sum(map(len, files.values()))
    if total > max_bytes:
        raise TreeRefusedError("too_many_bytes", "", f"{total} bytes, at most {max_bytes}")
    names = NameSet()
    return {names.add_file(raw): data for raw, data in files.items()}


class NameSet:
    """Names of files as they come in one by one, each checked by itself and against all the others."""

    def __init__(self) -> None:
        self._owners: dict[str, tuple[str, bool]] = {}

    def add_file(self, raw: str) -> str:
        """Return a file's checked name.

        Raises:
            PathRefusedError: the name breaks a rule (the sender's fault).
            TreeRefusedError: `name_collision` or `file_as_directory` (likewise).
        """
        path = check_path(raw)
        for parent in _parents(path):
            self._claim(parent, is_file=False)
        self._claim(path, is_file=True)
        return path

    def add_directory(self, raw: str) -> str:
        """Return a directory's checked name; it may be named again.

        Raises:
            PathRefusedError: the name breaks a rule (the sender's fault).
            TreeRefusedError: `name_collision` or `file_as_directory` (likewise).
        """
        path = check_path(raw)
        for parent in _parents(path):
            self._claim(parent, is_file=False)
        self._claim(path, is_file=False)
        return path

    def _claim(self, name: str, *, is_file: bool) -> None:
        """Record a file or a directory; only a directory may be named twice, and only in one spelling."""
        key = collision_key(name)
        owner = self._owners.get(key)
        if owner is None:
            self._owners[key] = (name, is_file)
        elif owner[0] != name or (is_file and owner[1]):
            raise TreeRefusedError("name_collision", name, "two names differ only in case or in Unicode form")
        elif is_file or owner[1]:
            raise TreeRefusedError("file_as_directory", name, "a file and a directory have the same name")


def _parents(path: str) -> Iterator[str]:
    segments = path.split("/")
    return ("/".join(segments[:depth]) for depth in range(1, len(segments)))

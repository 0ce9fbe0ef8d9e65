"""The real git, in a directory of its own, with nobody's configuration: what our engine is compared with."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

ENVIRONMENT = {
    "PATH": os.environ.get("PATH", ""),
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CEILING_DIRECTORIES": "/",
    "LC_ALL": "C",
}


def git(*arguments: str, cwd: Path, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", *arguments], cwd=cwd, env=ENVIRONMENT, input=stdin, capture_output=True, check=False)


def write_tree(root: Path, files: Mapping[str, bytes]) -> None:
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    for path, data in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)


def read_tree(root: Path) -> dict[str, bytes]:
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and ".git" not in path.relative_to(root).parts
    }


def diff_of(root: Path, old: Mapping[str, bytes], new: Mapping[str, bytes], options: Sequence[str] = ()) -> bytes:
    """Return git's own diff of two trees."""
    write_tree(root, old)
    for command in (
        ["init", "-q"],
        ["add", "-A", "-f"],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x", "--allow-empty"],
    ):
        done = git(*command, cwd=root)
        assert done.returncode == 0, done.stderr
    shutil.move(root / ".git", root.with_suffix(".repository"))
    write_tree(root, new)
    shutil.move(root.with_suffix(".repository"), root / ".git")
    assert git("add", "-A", "-f", cwd=root).returncode == 0
    done = git("diff", "--cached", "--no-color", "--no-ext-diff", *options, cwd=root)
    assert done.returncode == 0, done.stderr
    return done.stdout


def apply_with_git(root: Path, files: Mapping[str, bytes], diff: bytes, *options: str) -> dict[str, bytes] | None:
    """Return what `git apply` makes of some files; None when it refuses."""
    write_tree(root, files)
    done = git("apply", "--whitespace=nowarn", *options, "-", cwd=root, stdin=diff)
    return read_tree(root) if done.returncode == 0 else None

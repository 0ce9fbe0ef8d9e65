"""`git apply`, as a service would call it: a process that reads the diff and changes files. Every other run undoes."""

import atexit
import subprocess
import tempfile
from collections.abc import Callable
from itertools import cycle
from pathlib import Path

from benchmarks.inputs import edit


def operation() -> Callable[[], object]:
    """Return what applies the diff, or takes it back."""
    home = tempfile.TemporaryDirectory(prefix="pointsman-bench-")
    atexit.register(home.cleanup)
    before, after, diff = edit()
    for path, text in before.items():
        (Path(home.name) / path).write_text(text)
    directions = cycle([["git", "apply"], ["git", "apply", "--reverse"]])

    def apply() -> None:
        subprocess.run(next(directions), input=diff.encode(), cwd=home.name, check=True)

    apply()
    assert {path: (Path(home.name) / path).read_text() for path in after} == after
    return apply

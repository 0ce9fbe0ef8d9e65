"""JSON-lines files that commands are given: an object a line, and whatever is wrong is told with its place."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from producers.commands.context import USAGE, fail


def read_lines(path: Path, *, command: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the objects of a JSON-lines file, each with its place for messages; the command fails where there is none.

    Args:
        path: the file.
        command: which command was given it.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        fail(f"{command}: {path}: {error.strerror}", code=USAGE)
    except UnicodeDecodeError:
        fail(f"{command}: {path}: must be UTF-8", code=USAGE)
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        place = f"{path}, line {number}"
        try:
            given = json.loads(line)
        except (ValueError, RecursionError) as error:
            fail(f"{command}: {place}: {error}", code=USAGE)
        if not isinstance(given, dict):
            fail(f"{command}: {place}: must be an object", code=USAGE)
        yield place, given

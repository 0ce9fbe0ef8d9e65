"""A step's files in a box and out of it again, for everything of a run that executes commands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from routing.jobs import Reason, State
from sandbox.box import Box, CollectRules
from sandbox.errors import PathRefusedError, TreeRefusedError
from sandbox.paths import is_planted
from workers.agent_ends import TOO_LARGE
from workers.attempt import Attempt
from workers.runs.context import INSTRUCTIONS
from workers.runs.runners.protocol import Failed

_IGNORED = frozenset({"node_modules", ".next", ".turbo", ".cache"})
"""Directories that commands fill by themselves: nobody's work, and passed over unread."""
_SPARE_FILES = 5_000


class Collected(NamedTuple):
    """A workspace as a box gives it back."""

    files: Mapping[str, bytes] | None
    refused: Failed | None = None


def put(box: Box, files: Mapping[str, bytes]) -> None:
    """Lay a step's files into a box. The agent's own instructions are the one file there that a tool obeys.

    Raises:
        PathRefusedError, TreeRefusedError: they do not fit into a box (the project's fault).
        BoxLostError: the box is gone.
    """
    box.put(files, planted=_planted_but_ours)


def collect(box: Box, attempt: Attempt, given: Mapping[str, bytes]) -> Collected:
    """Take the whole workspace out; what is not looked at is as it was given.

    Raises:
        BoxLostError: the box is gone, and its files with it.
    """
    room = sum(map(len, given.values())) + attempt.limits.output_bytes
    rules = CollectRules(
        max_bytes=room, max_files=len(given) + _SPARE_FILES, ignored=_IGNORED, planted=_nothing
    )  # fmt: skip
    try:
        files = attempt.den.read_tree(box.collect(attempt.den, rules))
    except (PathRefusedError, TreeRefusedError) as error:
        is_large = error.reason in TOO_LARGE
        state, reason = (State.OUTPUT_EXCEEDED, Reason.OUTPUT_CAP) if is_large else (State.FAILED, Reason.AGENT_FAILED)
        return Collected(None, Failed(state, reason, f"its files are not taken: {error}"))
    passed_over = {path: data for path, data in given.items() if not _IGNORED.isdisjoint(path.split("/")[:-1])}
    return Collected({**files, **passed_over})


def _planted_but_ours(path: str) -> bool:
    return path != INSTRUCTIONS and is_planted(path)


def _nothing(path: str) -> bool:
    """Planted files may come out: they are dropped and reported one by one (workers/runs/takeover.py)."""
    return False

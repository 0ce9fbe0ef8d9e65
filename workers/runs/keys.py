"""The names of a run's steps and gates: unique in the run, the same whenever they are computed.

A plan's own ids hold no `_`. Every name that the service makes does, and so does every name of a rework plan's step, so
no plan can take the name of another step. The characters are safe in file names and git references.
"""

from __future__ import annotations

import re

SUMMARY = "summary_1"
CLASSIFY = "classify_1"
ANSWER = "answer"

_KEY = re.compile(r"[a-z][a-z0-9_-]*")


def work_key(round: int, step: str) -> str:
    """Return the key of a plan's step: its id, in rework with the cycle before it."""
    return f"r{round}_{step}" if round else step


def service_key(round: int, *parts: str | int) -> str:
    """Return the key of a step or gate of the service's own: at least two parts."""
    return work_key(round, "_".join(str(part).replace(":", "-") for part in parts))


def is_key(reference: str) -> bool:
    """Tell whether an entry of a plan's context can only mean a step: a path has a `/`, a `.` or a capital."""
    return _KEY.fullmatch(reference) is not None

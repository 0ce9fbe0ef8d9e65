"""The project's own build, as a step without an agent: its errors become the findings that a developer is given.

It runs in a box of its own, without a token for any model; packages come from the mirror, and their scripts never run.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

from routing.path_rules import RESULT_FILE
from sandbox.box import Box, Clocks, Ending, ExecResult
from workers.attempt import Attempt
from workers.build import build_commands
from workers.runs.results import MAX_ISSUES
from workers.runs.runners.boxes import put
from workers.runs.runners.protocol import AgentRun

_GRACE_SECONDS = 3.0
_CLOSING_SECONDS = 10.0
_SHOWN_CHARS = 6_000
_PLACE = re.compile(r"(?P<file>[\w./@()\[\]-]{1,200}\.[a-z]{1,5})[(:](?P<line>[0-9]{1,6})[,:]")
"""How compilers name a place: `src/a.ts(3,5): error` or `src/a.ts:3:5`."""
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def run_check(files: Mapping[str, bytes], attempt: Attempt) -> AgentRun:
    """Build a project, and say what came of it as a result.

    Raises:
        SandboxUnavailableError: there is no engine, or no image (the operator's fault).
        BoxLostError: the box went away.
        CancelledByOwnerError, LeaseLostError: nobody's fault.
    """
    commands = build_commands(files)
    if not commands:
        return _result(files, "The project has no build.", [])
    with attempt.step("provision"):
        box = attempt.boxes.acquire()
    try:
        attempt.enter(box)
        put(box, files)
        for command in commands:
            with attempt.step(" ".join(command[:3])):
                result = _run(box, command, attempt)
            if not result.is_success:
                return _result(files, f"`{' '.join(command)}` failed.", [_issue(command, result, files)])
    finally:
        box.close()
    return _result(files, f"`{' '.join(commands[-1])}` succeeded.", [])


def _run(box: Box, command: Sequence[str], attempt: Attempt) -> ExecResult:
    attempt.check()
    left = attempt.limits.soft_seconds - (time.monotonic() - attempt.began) - _CLOSING_SECONDS - _GRACE_SECONDS
    soft = max(1.0, left)
    clocks = Clocks(soft_seconds=soft, hard_seconds=soft + _GRACE_SECONDS + 2, grace_seconds=_GRACE_SECONDS)
    return box.run(command, clocks=clocks, watch=attempt.watcher())


def _issue(command: Sequence[str], result: ExecResult, files: Mapping[str, bytes]) -> dict[str, Any]:
    """Return the one finding of a build that failed, at the first place in the project that its output names."""
    said = _COLOURS.sub("", (result.stdout + b"\n" + result.stderr)[-_SHOWN_CHARS:].decode("utf-8", "replace"))
    how = f"status {result.exit_code}" if result.ending is Ending.EXITED else result.ending.value
    place = next((found for found in _PLACE.finditer(said) if found["file"].removeprefix("./") in files), None)
    where = {"file": place["file"].removeprefix("./"), "line": max(1, int(place["line"]))} if place else {}
    title = f"`{' '.join(command)}` fails ({how})"
    return {"severity": "blocking", "title": title, "detail": said.replace("\0", " ").strip(), **where}


def _result(files: Mapping[str, bytes], summary: str, issues: Sequence[Mapping[str, Any]]) -> AgentRun:
    result = {"status": "complete", "summary": summary, "issues": list(issues[:MAX_ISSUES])}
    return AgentRun({**files, RESULT_FILE: json.dumps(result).encode()}, facts={"how": "the project's build"})

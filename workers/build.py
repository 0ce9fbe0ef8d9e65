"""Builds a site that has a build, in a box of its own: after the agent's is gone, without a token, for tiers 2 and 3.

Packages come from the mirror, their scripts never run, and what the site's own build script writes is scanned like
everything else (H-080).
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from routing.jobs import Reason, State
from sandbox.box import Box, Clocks, CollectRules, Ending, ExecResult
from sandbox.changes import review_diff
from sandbox.errors import PathRefusedError, TreeRefusedError
from workers.attempt import Attempt
from workers.errors import WorkerError
from workers.outcomes import Candidate, Ended

_MANIFEST = "package.json"
_GRACE_SECONDS = 3.0
_CLOSING_SECONDS = 5.0
"""Kept of the soft limit for the scan that follows."""
_SHOWN = 600
"""Characters of a failed command's last output that its owner is shown."""
_TIMED_OUT = frozenset({Ending.SOFT_TIMEOUT, Ending.HARD_TIMEOUT, Ending.IDLE_TIMEOUT, Ending.START_TIMEOUT})


class BuildFailedError(WorkerError):
    """A site's build did not give a site (the site's fault, or that of whoever edited it)."""

    def __init__(self, state: State, reason: Reason, detail: str) -> None:
        super().__init__(state, reason, detail)
        self.state = state
        self.reason = reason

    def __str__(self) -> str:
        return str(self.args[2])


def build_commands(files: Mapping[str, bytes]) -> tuple[tuple[str, ...], ...]:
    """Return what has to be run to build a site; nothing for one without a build script."""
    try:
        package = json.loads(files.get(_MANIFEST, b"{}"))
    except (ValueError, RecursionError):
        return ()
    if not isinstance(package, dict) or not isinstance(_part(package, "scripts").get("build"), str):
        return ()
    has_packages = any(_part(package, name) for name in ("dependencies", "devDependencies"))
    install = (("npm", "install", "--ignore-scripts", "--no-audit", "--no-fund"),) if has_packages else ()
    return (*install, ("npm", "run", "build"))


def build_candidate(attempt: Attempt, candidate: Candidate, box: Box) -> Candidate | Ended:
    """Run a site's build in a box that nothing has run in; what it wrote becomes part of the candidate.

    Raises:
        BoxLostError: the box went away (the operator's fault, or a passing one).
    """
    attempt.leave()  # the files may hold the token, which an agent had; the door is the mirror's from now on
    attempt.enter(box)
    try:
        with attempt.step("build"):
            files = _build(attempt, box, candidate.files)
    except BuildFailedError as error:
        return Ended(error.state, error.reason, str(error), candidate.facts, kept=candidate)
    before = attempt.base_files
    return replace(
        candidate,
        files=files,
        diff=review_diff(before, files),
        reverse=review_diff(files, before) if candidate.reverse is not None else None,
        facts={**candidate.facts, "built": True},
    )


def _build(attempt: Attempt, box: Box, files: Mapping[str, bytes]) -> dict[str, bytes]:
    try:
        dropped = box.put(files).dropped
        for command in build_commands(files):
            _run(attempt, box, command)
        built = box.collect(attempt.den, CollectRules(max_bytes=attempt.limits.output_bytes))
    except (PathRefusedError, TreeRefusedError) as error:
        detail = f"what the build wrote is not taken: {error}; the files before it are kept"
        raise BuildFailedError(State.FAILED, Reason.OUTPUT_REFUSED, detail) from None
    return {**attempt.den.read_tree(built), **{path: files[path] for path in dropped}}


def _run(attempt: Attempt, box: Box, command: Sequence[str]) -> None:
    attempt.check()
    left = attempt.limits.soft_seconds - (time.monotonic() - attempt.began) - _CLOSING_SECONDS - _GRACE_SECONDS
    soft = max(1.0, min(attempt.policy.agent.build_seconds / 2, left))
    clocks = Clocks(soft_seconds=soft, hard_seconds=soft + _GRACE_SECONDS + 2, grace_seconds=_GRACE_SECONDS)
    result = box.run(command, clocks=clocks)
    if not result.is_success:
        raise _failure(" ".join(command), result)


def _failure(command: str, result: ExecResult) -> BuildFailedError:
    if result.ending in _TIMED_OUT:
        detail = f"`{command}` took longer than the {result.seconds:.0f} s that a build has"
        return BuildFailedError(State.TIMED_OUT, Reason.TIME_LIMIT, f"{detail}; the files before it are kept")
    said = (result.stderr or result.stdout)[-_SHOWN:].decode("utf-8", "replace").strip()
    how = f"status {result.exit_code}" if result.ending is Ending.EXITED else result.ending.value
    return BuildFailedError(State.FAILED, Reason.BUILD_FAILED, f"`{command}` failed ({how}): {said}")


def _part(package: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = package.get(name)
    return found if isinstance(found, dict) else {}

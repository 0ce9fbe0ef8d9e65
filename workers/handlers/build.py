"""Build a site in a box of its own: after the agent's is gone, without a token, for tiers 2 and 3.

Packages come from the mirror and their scripts never run. The build starts from the sources alone, so that nothing of
an older build remains; its output becomes what the release serves, scanned like everything else (H-080).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace

from routing.jobs import Reason, State
from routing.queues import QueueName
from sandbox.box import Box
from sandbox.errors import SandboxError, SandboxUnavailableError
from sandbox.execution import Clocks, Ending, ExecResult
from sandbox.tarball import CollectRules
from sites.errors import PathRefusedError, TreeRefusedError
from sites.files import CONVENTIONAL, INDEX, INSTALLED, is_built, package_of, part_of, public_of, sources_of
from sites.scan.file_types import foreign_sources, is_package_file
from sites.scan.rules import show
from workers.attempt import Attempt
from workers.errors import BuildFailedError, SoftTimeLimit
from workers.outcomes import Candidate, Ended, Outcome
from workers.retries import decide_end
from workers.settlement import from_base

GRACE_SECONDS = 3.0
CLOSING_SECONDS = 5.0
"""Reserved within the soft limit for the scan that follows."""
_SHOWN = 600
"""Characters of a failed command's last output that its owner sees."""
_INSTALL = ("npm", "install", "--ignore-scripts", "--no-audit", "--no-fund")
"""Not `npm ci`: both install what the lock file says, but only this one accepts a package that an edit just added."""
_BUILD = ("npm", "run", "build")
_TIDY = ("rm", "-rf", INSTALLED)
"""Packages never leave the box; without them its files are read in a fraction of the time."""
_NO_PAGES = (
    f"the build wrote no {INDEX} into {', '.join(CONVENTIONAL)}; where it writes elsewhere, or pages of your own lie "
    'there, package.json has to say so: "pointsman": {"public": "..."}; the files before it are kept'
)
_TIMED_OUT = frozenset({Ending.SOFT_TIMEOUT, Ending.HARD_TIMEOUT, Ending.IDLE_TIMEOUT, Ending.START_TIMEOUT})


def build_commands(files: Mapping[str, bytes]) -> tuple[tuple[str, ...], ...]:
    """Return the commands that build a site; none without a build script."""
    if not is_built(files):
        return ()
    package = package_of(files)
    has_packages = any(part_of(package, name) for name in ("dependencies", "devDependencies"))
    if not has_packages:
        return (_BUILD,)
    return (_INSTALL, _BUILD, _TIDY)


def build_in_box(attempt: Attempt, make: Callable[[], Outcome]) -> Outcome:
    """Make a candidate and build it; the box is taken before, because making it may cost money."""
    try:
        box = attempt.resources.boxes.acquire()
    except SandboxUnavailableError as error:
        detail = f"the site has a build, which runs in a box, and {error}"
        return Ended(State.FAILED, Reason.NOT_AVAILABLE, detail)
    with closing(box):
        outcome = make()
        return build_candidate(attempt, outcome, box) if isinstance(outcome, Candidate) else outcome


def build_candidate(attempt: Attempt, candidate: Candidate, box: Box) -> Candidate | Ended:
    """Run a site's build in a fresh box; its output becomes part of the candidate, which is kept whatever happens."""
    attempt.leave()  # an agent knew the token, and the files may hold it
    attempt.enter(box)
    began = time.monotonic()
    seconds: dict[str, float] = {}
    try:
        with attempt.step("build"):
            files = _build(attempt, box, candidate.files, seconds)
    except BuildFailedError as error:
        return Ended(error.state, error.reason, str(error), candidate.facts, kept=candidate)
    except SandboxError as error:
        return without_box(candidate, error)
    built = replace(
        candidate,
        files=files,
        facts={**candidate.facts, "build": seconds},
        build_seconds=round(time.monotonic() - began, 3),
    )
    return attempt.compute(from_base, built)


def without_box(candidate: Candidate, error: SandboxError | SoftTimeLimit) -> Ended:
    """End a job that got no box to build in, or lost it: its work is paid for, and kept."""
    ended = decide_end(error, kept="the files before it are kept")
    assert isinstance(ended, Ended)
    return replace(ended, facts=candidate.facts, kept=candidate)


def _build(attempt: Attempt, box: Box, files: Mapping[str, bytes], seconds: dict[str, float]) -> dict[str, bytes]:
    """Return the files of the built site; the duration of each command goes into `seconds`."""
    _check_sources(files)
    try:
        dropped = box.put(sources_of(files)).dropped
        until = time.monotonic() + attempt.policy.agent.build_seconds
        for command in build_commands(files):
            seconds[" ".join(command[:3])] = _run(attempt, box, command, until=until)
        built = box.collect(attempt.content_store, CollectRules(max_bytes=attempt.output_bytes))
    except (PathRefusedError, TreeRefusedError) as error:
        detail = f"the build's output is not accepted: {error}; the files before it are kept"
        raise BuildFailedError(State.FAILED, Reason.OUTPUT_REFUSED, detail) from None
    result = {**attempt.content_store.read_tree(built), **{path: files[path] for path in dropped}}
    if public_of(result) is None:
        raise BuildFailedError(State.FAILED, Reason.BUILD_FAILED, _NO_PAGES)
    return result


def _check_sources(files: Mapping[str, bytes]) -> None:
    """Refuse packages from elsewhere before npm sees them (threat D8); the scan comes only after it."""
    for path, data in sorted(files.items()):
        if is_package_file(path) and (fault := next(foreign_sources(path, data), None)) is not None:
            detail = f"{path} wants a package from outside the registry: {show(fault)}; nothing was installed"
            raise BuildFailedError(State.FAILED, Reason.OUTPUT_REFUSED, detail)


def _run(attempt: Attempt, box: Box, command: Sequence[str], *, until: float) -> float:
    """Run one command of a build in the time that is left; return its seconds."""
    attempt.check()
    ends = min(until, attempt.began + attempt.limits.soft_seconds - CLOSING_SECONDS - GRACE_SECONDS)
    soft = max(1.0, ends - time.monotonic())
    result = box.run(command, clocks=Clocks.within(soft, grace=GRACE_SECONDS), watch=attempt.watcher())
    result.check_box()
    if not result.is_success:
        raise _failure(" ".join(command), result, is_patch=attempt.claim.attempt.queue == QueueName.PATCH)
    return round(result.seconds, 3)


def _failure(command: str, result: ExecResult, *, is_patch: bool) -> BuildFailedError:
    if result.ending in _TIMED_OUT:
        detail = f"`{command}` had {result.seconds:.0f} s, which was all that was left for it"
        detail += "; tier 3 leaves a build more" if is_patch else ""
        return BuildFailedError(State.TIMED_OUT, Reason.TIME_LIMIT, f"{detail}; the files before it are kept")
    said = (result.stderr or result.stdout)[-_SHOWN:].decode("utf-8", "replace").strip()
    how = f"status {result.exit_code}" if result.ending is Ending.EXITED else result.ending.value
    return BuildFailedError(State.FAILED, Reason.BUILD_FAILED, f"`{command}` failed ({how}): {said}")

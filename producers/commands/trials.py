"""Runs a project's proposed commands on its last commit: in a box like those of its runs, or, if asked to, without one.

The checkout itself is never touched: what commands write goes with the copy that they run in.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel

from routing.config import read_settings, strip_settings
from sandbox.box import Box
from sandbox.box_spec import BoxSpec, Target
from sandbox.config import BoxConfig, MirrorConfig
from sandbox.execution import Clocks, Ending

_TAIL_BYTES = 4096
_TAIL_LINES = 15
_GRACE_SECONDS = 3.0


class Trial(NamedTuple):
    """How a proposed command ended."""

    name: str
    result: str
    tail: str


_TIMED_OUT = (Ending.SOFT_TIMEOUT, Ending.HARD_TIMEOUT)


class _TrialSettings(BaseModel, frozen=True):
    """What a trial needs to know."""

    box: BoxConfig = BoxConfig()
    mirror: MirrorConfig = MirrorConfig()


def try_commands(
    commands: Mapping[str, str], root: Path, environment: Mapping[str, str], *, seconds: int, is_here: bool
) -> list[Trial]:
    """Run commands on a copy of the checkout's last commit: in a box, or on this machine if that is asked for.

    Args:
        commands: lines for a shell by name, in order; those after a set-up that fails are not run.
        root: the checkout.
        environment: of this process.
        seconds: time limit of each command.
        is_here: whether to run them outside of any box, with this process's environment.

    Raises:
        SandboxError: no box can be made, or it went away; nothing runs outside of one for that.
        HandoverError, RepositoryRefusedError, PathRefusedError, TreeRefusedError: the checkout does not fit into a box.
    """
    tries = _tries_here if is_here else _tries_in_a_box
    return list(tries(commands, root, environment, seconds=seconds))


def _tries_here(
    commands: Mapping[str, str], root: Path, environment: Mapping[str, str], *, seconds: int
) -> Iterator[Trial]:
    from sandbox.local_box import LocalBox
    from sites.repository.checkout import read_head

    with closing(LocalBox(BoxSpec(image="none", gateway=Target("", 1)))) as box:
        box.put(read_head(root).files, planted=lambda path: False)
        yield from _tries(commands, partial(try_in, box, seconds=seconds, environment=environment))


def _tries_in_a_box(
    commands: Mapping[str, str], root: Path, environment: Mapping[str, str], *, seconds: int
) -> Iterator[Trial]:
    from sandbox.trial import open_trial_box
    from sites.repository.checkout import read_head

    settings = read_settings(_TrialSettings, environment)
    with tempfile.TemporaryDirectory(prefix="pointsman-packages-") as cache:
        mirror = settings.mirror.model_copy(update={"cache": Path(cache)})
        box_config = settings.box.model_copy(update={"lifetime_seconds": 60 + seconds * len(commands)})
        with open_trial_box(box_config, mirror, strip_settings(environment)) as box:
            box.put(read_head(root).files)
            yield from _tries(commands, partial(try_in, box, seconds=seconds))


def _tries(commands: Mapping[str, str], run: Callable[[str, str], Trial]) -> Iterator[Trial]:
    for name, command in commands.items():
        trial = run(name, command)
        yield trial
        if name == "setup" and trial.result != "passed":
            return


def try_in(box: Box, name: str, command: str, *, seconds: int, environment: Mapping[str, str] | None = None) -> Trial:
    """Run a command in a box; the last lines of each of its two outputs are kept.

    Raises:
        BoxLostError: the box went away.
    """
    clocks = Clocks.within(seconds, grace=_GRACE_SECONDS)
    done = box.run(("bash", "-c", command), clocks=clocks, env=environment)
    status = done.exit_code if done.ending is Ending.EXITED else None
    result = f"took longer than {seconds} s" if done.ending in _TIMED_OUT else _result(status, done.ending.value)
    return Trial(name, result, "\n".join(tail for tail in (_tail(done.stdout), _tail(done.stderr)) if tail))


def _result(status: int | None, ending: str) -> str:
    if status is None:
        return f"ended: {ending}"
    return "passed" if status == 0 else f"failed with status {status}"


def _tail(said: bytes) -> str:
    return "\n".join(said[-_TAIL_BYTES:].decode("utf-8", "replace").splitlines()[-_TAIL_LINES:])

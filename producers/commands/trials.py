"""Runs a project's proposed commands: in a box like those of its runs, or, if asked to, in the checkout here."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from routing.config import read_settings, strip_settings
from sandbox.box import Box, Clocks, Ending
from sandbox.config import BoxConfig, MirrorConfig

_TAIL_BYTES = 4096
_TAIL_LINES = 15
_GRACE_SECONDS = 3.0


class Trial(NamedTuple):
    """How a proposed command ended."""

    name: str
    result: str
    tail: str


_TIMED_OUT = (Ending.SOFT_TIMEOUT, Ending.HARD_TIMEOUT)
IN_A_BOX, HERE = "in a box", "on this machine"


class _TrialSettings(BaseModel):
    """What a trial needs to know."""

    model_config = ConfigDict(frozen=True)

    box: BoxConfig = BoxConfig()
    mirror: MirrorConfig = MirrorConfig()


def try_commands(
    commands: Mapping[str, str], root: Path, environment: Mapping[str, str], *, seconds: int, is_here: bool
) -> list[Trial]:
    """Run commands in a box with the checkout's last commit, or in the checkout itself if that is asked for.

    Args:
        commands: lines for a shell by name, in order; those after a set-up that fails are not run.
        root: the checkout.
        environment: of this process.
        seconds: time limit of each command.
        is_here: whether to run them in the checkout, outside of any box.

    Raises:
        SandboxError: no box can be made, or it went away; nothing runs outside of one for that.
        HandoverError, RepositoryRefusedError, PathRefusedError, TreeRefusedError: the checkout does not fit into a box.
    """
    if is_here:
        return list(_tries(commands, partial(_try_here, root=root, environment=environment, seconds=seconds)))
    return list(_tries_in_a_box(commands, root, environment, seconds=seconds))


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


def try_in(box: Box, name: str, command: str, *, seconds: int) -> Trial:
    """Run a command in a box; the last lines of each of its two outputs are kept.

    Raises:
        BoxLostError: the box went away.
    """
    clocks = Clocks(soft_seconds=seconds, hard_seconds=seconds + _GRACE_SECONDS + 2, grace_seconds=_GRACE_SECONDS)
    done = box.run(("bash", "-c", command), clocks=clocks)
    status = done.exit_code if done.ending is Ending.EXITED else None
    result = f"took longer than {seconds} s" if done.ending in _TIMED_OUT else _result(status, done.ending.value)
    return Trial(name, result, "\n".join(tail for tail in (_tail(done.stdout), _tail(done.stderr)) if tail))


def _try_here(name: str, command: str, *, root: Path, environment: Mapping[str, str], seconds: int) -> Trial:
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            ("bash", "-c", command),
            cwd=root,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            result = _result(process.wait(seconds), "")
        except subprocess.TimeoutExpired:
            result = f"took longer than {seconds} s"
        finally:
            _end(process)
        said.seek(max(0, said.seek(0, 2) - _TAIL_BYTES))
        return Trial(name, result, _tail(said.read(_TAIL_BYTES)))


def _result(status: int | None, ending: str) -> str:
    if status is None:
        return f"ended: {ending}"
    return "passed" if status == 0 else f"failed with status {status}"


def _tail(said: bytes) -> str:
    return "\n".join(said[-_TAIL_BYTES:].decode("utf-8", "replace").splitlines()[-_TAIL_LINES:])


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a command with all that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()

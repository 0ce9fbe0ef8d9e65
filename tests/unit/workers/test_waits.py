"""How long work rests before it is tried again."""

from __future__ import annotations

import errno
import os
import socket

import pytest

from gateway.forge import ForgeError
from routing.jobs import Reason
from routing.policy.platform import platform_policy
from routing.scheduling import pause_before
from workers.errors import RemoteError, RepositoryRefusedError, WorkspaceError, WorkspaceMissingError
from workers.outcomes import Ended, Parked
from workers.retries import decide_end, is_passing, step_pause, unavailable_reason


@pytest.mark.parametrize(("tries", "seconds"), [(0, 0), (1, 5), (2, 30), (3, 30), (99, 30)])
def test_pauses_grow_and_the_last_one_repeats(tries: int, seconds: float) -> None:
    assert pause_before((5, 30), tries=tries) == seconds
    assert pause_before((), tries=tries) == 0


def test_the_shipped_pauses_never_shrink() -> None:
    pauses = platform_policy().pauses
    for each in (pauses.lost_worker, pauses.step, pauses.control):
        assert list(each) == sorted(each)


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (ForgeError("502", is_passing=True), True),
        (ForgeError("422", is_passing=False), False),
        (RemoteError("no route"), True),
        (RepositoryRefusedError("credentials", "401"), False),
        (WorkspaceError("x"), False),
        (WorkspaceMissingError("x"), False),
        (OSError(28, "No space left on device"), True),
        (ValueError("x"), False),
    ],
)
def test_what_is_away_may_come_back_and_what_is_wrong_stays_wrong(error: Exception, passes: bool) -> None:
    assert is_passing(error) is passes


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ForgeError("502", is_passing=True), Reason.REMOTE_UNREACHABLE),
        (RemoteError("no route"), Reason.REMOTE_UNREACHABLE),
        (ConnectionResetError(104, "reset"), Reason.REMOTE_UNREACHABLE),
        (OSError(errno.EHOSTUNREACH, "No route to host"), Reason.REMOTE_UNREACHABLE),
        (socket.gaierror(socket.EAI_AGAIN, "try again"), Reason.REMOTE_UNREACHABLE),
        (OSError(28, "No space left on device"), Reason.STORAGE_UNAVAILABLE),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "/den/sha256"), Reason.STORAGE_UNAVAILABLE),
    ],
)
def test_it_is_told_apart_what_was_away(error: Exception, reason: Reason) -> None:
    assert unavailable_reason(error) is reason


def test_a_step_rests_only_where_its_surroundings_failed_it() -> None:
    assert step_pause((2, 15), tries=1, failure=Reason.PROVIDER_BUSY) == 2
    assert step_pause((2, 15), tries=2, failure=Reason.BOX_FAILED) == 15
    assert step_pause((2, 15), tries=1, failure=Reason.AGENT_FAILED) == 0
    assert step_pause((2, 15), tries=0, failure=None) == 0


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EIO])
def test_an_edit_that_finds_the_disk_full_or_away_gives_its_worker_back_and_waits(number: int) -> None:
    parked = decide_end(OSError(number, os.strerror(number)))
    assert isinstance(parked, Parked)
    assert parked.reason == Reason.STORAGE_UNAVAILABLE


def test_any_other_error_of_a_file_is_a_defect() -> None:
    ended = decide_end(OSError(errno.ENAMETOOLONG, "File name too long"))
    assert isinstance(ended, Ended)
    assert ended.reason == Reason.INTERNAL_ERROR

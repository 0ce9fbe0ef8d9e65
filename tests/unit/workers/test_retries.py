"""One table turns a failure into what happens next."""

from __future__ import annotations

import errno
import inspect
import os
import socket
from typing import Any

import pytest

import gateway.errors
import workers.errors
from gateway.errors import (
    BudgetExceededError,
    CallTimeoutError,
    CancelledCallError,
    FencedCallError,
    GatewayUnreachableError,
    NoProviderKeyError,
    ProviderBusyError,
    ProviderDownError,
    ProviderError,
)
from gateway.forges.forge import ForgeError
from routing.jobs import ENDS, MOVES, Reason, State
from routing.policy.platform import platform_policy
from routing.scheduling import retry_delay_seconds
from sandbox.errors import SandboxUnavailableError, UncontainedSessionError
from sites.errors import (
    BlobMissingError,
    ObstructedError,
    RepositoryRefusedError,
    StoreUnavailableError,
    WorkspaceError,
    WorkspaceMissingError,
)
from workers.errors import CancelledByOwnerError, LeaseLostError, RemoteError, SoftTimeLimit
from workers.outcomes import Deferred, Ended
from workers.retries import (
    BUSY_RETRIES,
    MAX_WAIT_SECONDS,
    Abandon,
    Retry,
    decide_call,
    decide_end,
    is_passing,
    step_pause,
    unavailable_reason,
    words_of,
)

TABLE: list[tuple[BaseException, State, Reason]] = [
    (SoftTimeLimit(), State.TIMED_OUT, Reason.TIME_LIMIT),
    (BudgetExceededError("cap"), State.BUDGET_EXCEEDED, Reason.COST_CAP),
    (CallTimeoutError(), State.TIMED_OUT, Reason.TIME_LIMIT),
    (UncontainedSessionError("u"), State.FAILED, Reason.OUTPUT_REFUSED),
    (RemoteError("r"), State.FAILED, Reason.REMOTE_UNREACHABLE),
    (RepositoryRefusedError("credentials", "r"), State.FAILED, Reason.INVALID_REQUEST),
    (RepositoryRefusedError("bad_pack", "p"), State.FAILED, Reason.INVALID_REQUEST),
    (ObstructedError("p"), State.FAILED, Reason.OUTPUT_REFUSED),
    (CancelledCallError("c"), State.CANCELLED, Reason.CANCELLED),
    (CancelledByOwnerError(), State.CANCELLED, Reason.CANCELLED),
    (NoProviderKeyError("k"), State.FAILED, Reason.NO_PROVIDER_KEY),
    (ProviderError(500, "p"), State.FAILED, Reason.PROVIDER_ERROR),
    (BlobMissingError("m"), State.FAILED, Reason.INTERNAL_ERROR),
    (RuntimeError("secretword"), State.FAILED, Reason.INTERNAL_ERROR),
]


@pytest.mark.req("H-070", "H-071")
@pytest.mark.parametrize(("error", "state", "reason"), TABLE)
def test_an_error_has_one_end_and_one_reason(error: BaseException, state: State, reason: Reason) -> None:
    decision = decide_end(error)
    assert isinstance(decision, Ended)
    assert (decision.state, decision.reason) == (state, reason)
    assert "secretword" not in decision.detail


@pytest.mark.parametrize("error", [NoProviderKeyError("no key"), ProviderError(500, "broke"), RemoteError("gone")])
def test_what_a_person_has_to_mend_is_told_in_its_own_words(error: Exception) -> None:
    decision = decide_end(error)
    assert isinstance(decision, Ended)
    assert decision.detail == str(error)


@pytest.mark.parametrize("error", [FencedCallError("f"), LeaseLostError()])
def test_a_job_that_was_taken_away_is_left_without_a_word(error: BaseException) -> None:
    assert decide_end(error) == Abandon()


WAITS: list[tuple[BaseException, Reason, float | None]] = [
    (ProviderBusyError("b"), Reason.PROVIDER_BUSY, None),
    (ProviderBusyError("b", 40.0), Reason.PROVIDER_BUSY, 40.0),
    (ProviderDownError("d"), Reason.PROVIDER_BUSY, None),
    (GatewayUnreachableError("g"), Reason.GATEWAY_UNREACHABLE, None),
]


@pytest.mark.parametrize(("error", "reason", "seconds"), WAITS)
def test_a_provider_that_is_busy_for_longer_costs_a_job_its_worker_and_nothing_else(
    error: BaseException, reason: Reason, seconds: float | None
) -> None:
    decision = decide_end(error)
    assert isinstance(decision, Deferred)
    assert (decision.reason, decision.seconds, decision.kept) == (reason, seconds, None)


@pytest.mark.parametrize(("left", "waits"), [(16.0, True), (15.9, False), (0.0, False), (-3.0, False)])
def test_an_attempt_waits_only_where_that_leaves_it_most_of_its_time(left: float, waits: bool) -> None:
    assert (decide_call(ProviderBusyError("b", 4.0), tries=1, left_seconds=left) is not None) is waits


def test_time_that_a_gateway_took_by_standing_still_is_not_the_job_s() -> None:
    deferred = decide_end(SoftTimeLimit(), was_gateway_away=True)
    assert isinstance(deferred, Deferred)
    assert deferred.reason is Reason.GATEWAY_UNREACHABLE
    assert isinstance(decide_end(BudgetExceededError("cap"), was_gateway_away=True), Ended)


def test_every_end_of_the_table_can_be_reached_from_running_and_scanning() -> None:
    ends = {state for _, state, _ in TABLE}
    assert ends <= ENDS & MOVES[State.RUNNING] & MOVES[State.SCANNING]


@pytest.mark.parametrize(
    "error", [SoftTimeLimit(), BudgetExceededError("it is spent"), SandboxUnavailableError("no_image", "gone")]
)
def test_an_end_says_what_was_kept(error: BaseException) -> None:
    for kept in ("two pages", "nothing was kept"):
        decision = decide_end(error, kept=kept)
        assert isinstance(decision, Ended)
        assert decision.detail.endswith(f"; {kept}")
    assert isinstance(decide_end(error), Ended)


@pytest.mark.parametrize(
    ("error", "waits"),
    [
        (ProviderBusyError("b"), [1.0, 2.0, None]),
        (ProviderBusyError("b", 0), [0.0, 0.0, None]),
        (ProviderBusyError("b", 5), [5.0, 5.0, None]),
        (ProviderBusyError("b", 5.1), [None, None, None]),
        (GatewayUnreachableError("g"), [1.0, 2.0, None]),
    ],
)
def test_only_a_busy_moment_is_waited_for_twice_and_never_long(error: Any, waits: list[float | None]) -> None:
    assert (BUSY_RETRIES, MAX_WAIT_SECONDS) == (2, 5.0)
    found = [decide_call(error, tries=tries) for tries in (1, 2, 3)]
    assert found == [None if wait is None else Retry(wait) for wait in waits]


@pytest.mark.req("H-070", "H-071")
@pytest.mark.parametrize(
    "error",
    [
        BudgetExceededError("c"),
        FencedCallError("f"),
        CancelledCallError("c"),
        NoProviderKeyError("k"),
        ProviderError(500, "p"),
        BlobMissingError("m"),
    ],
)
def test_nothing_else_is_tried_again(error: Any) -> None:
    assert decide_call(error, tries=1) is None


def test_the_table_knows_every_error_of_a_model_call() -> None:
    known = {type(error) for error, _, _ in (*TABLE, *WAITS)} | {FencedCallError, LeaseLostError}
    calls = {
        item
        for name, item in vars(gateway.errors).items()
        if inspect.isclass(item)
        and item is not gateway.errors.GatewayError
        and ("Call" in name or "Provider" in name or "Gateway" in name or "Cap" in name)
    }
    ours = {item for item in vars(workers.errors).values() if getattr(item, "__module__", "") == "workers.errors"}
    handled_where_they_are_raised = {
        workers.errors.WorkerError,
        workers.errors.ComputeChildLost,
        workers.errors.HandBack,
        workers.errors.BuildFailedError,
        workers.errors.ResultInvalidError,
        workers.errors.TooFewFilesError,
        workers.errors.ToolRefusedError,
    }
    assert calls | ours - handled_where_they_are_raised <= known


@pytest.mark.parametrize(("tries", "seconds"), [(0, 0), (1, 5), (2, 30), (3, 30), (99, 30)])
def test_pauses_grow_and_the_last_one_repeats(tries: int, seconds: float) -> None:
    assert retry_delay_seconds((5, 30), tries=tries) == seconds
    assert retry_delay_seconds((), tries=tries) == 0


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
    deferred = decide_end(OSError(number, os.strerror(number)))
    assert isinstance(deferred, Deferred)
    assert deferred.reason == Reason.STORAGE_UNAVAILABLE


def test_any_other_error_of_a_file_is_a_defect() -> None:
    ended = decide_end(OSError(errno.ENAMETOOLONG, "File name too long"))
    assert isinstance(ended, Ended)
    assert ended.reason == Reason.INTERNAL_ERROR


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "/srv/pointsman/runs/x"), "No space left on device"),
        (
            StoreUnavailableError(errno.EIO, "object store: http://10.0.0.7 says 503"),
            "the content store cannot be reached or read",
        ),
        (RemoteError("the remote has no repository there"), "the remote has no repository there"),
    ],
)
def test_a_tenant_is_told_what_failed_and_not_where_the_installation_has_it(error: Exception, told: str) -> None:
    assert words_of(error) == told

"""How a session's end becomes its job's end."""

import json
import time
from dataclasses import replace
from importlib import resources
from types import SimpleNamespace
from typing import Any

import pytest

from routing.jobs import Reason, State
from routing.policy.prices import BudgetExceeded
from routing.queues import QueueName
from sandbox.session_reader import End, Verdict
from sites.content_store import ChangeSet
from sites.errors import PathRefusedError, TreeRefusedError
from tests.factories import make_attempt
from workers.boxes import PoolOnDemand
from workers.handlers.agent import NOTHING_TO_CHANGE, Work, _built, answer_of, end_of
from workers.outcomes import Candidate, Ended

Refused = PathRefusedError | TreeRefusedError


def work_of(
    end: End,
    text: str = "why",
    *,
    exceeded: BudgetExceeded | None = None,
    refused: Refused | None = None,
    has_changes: bool = True,
) -> Work:
    changes = ChangeSet((), ("index.html",) if has_changes else (), ())
    return Work(Verdict(end, text), {}, changes, refused, {}, exceeded)


def end(work: Work) -> tuple[State, Reason]:
    ended = end_of(work)
    assert ended is not None
    return ended.state, ended.reason


def test_a_session_that_is_done_and_changed_something_goes_on() -> None:
    assert end_of(work_of(End.DONE)) is None


def test_a_session_that_is_done_goes_on_even_if_a_call_of_its_was_refused_on_the_way() -> None:
    assert end_of(work_of(End.DONE, exceeded=BudgetExceeded("job"))) is None


@pytest.mark.req("H-070", "H-071")
@pytest.mark.parametrize(
    ("verdict", "state", "reason"),
    [
        (End.TIME, State.TIMED_OUT, Reason.TIME_LIMIT),
        (End.BUDGET, State.BUDGET_EXCEEDED, Reason.COST_CAP),
        (End.OUTPUT, State.OUTPUT_EXCEEDED, Reason.OUTPUT_CAP),
        (End.RESOURCES, State.FAILED, Reason.RESOURCE_LIMIT),
        (End.BOX_LOST, State.FAILED, Reason.BOX_FAILED),
        (End.REFUSED, State.FAILED, Reason.BOX_FAILED),
        (End.FAILED, State.FAILED, Reason.AGENT_FAILED),
    ],
)
def test_every_other_end_of_a_session_ends_the_job_with_its_own_reason(
    verdict: End, state: State, reason: Reason
) -> None:
    assert end(work_of(verdict)) == (state, reason)


@pytest.mark.req("H-071")
def test_it_is_the_ledger_that_says_whether_money_ran_out() -> None:
    assert end(work_of(End.FAILED, exceeded=BudgetExceeded("job"))) == (State.BUDGET_EXCEEDED, Reason.COST_CAP)
    assert end(work_of(End.FAILED)) == (State.FAILED, Reason.AGENT_FAILED)
    assert end(work_of(End.TIME, exceeded=BudgetExceeded("job"))) == (State.TIMED_OUT, Reason.TIME_LIMIT)


@pytest.mark.parametrize(
    ("refused", "state", "reason"),
    [
        (TreeRefusedError("planted", ".mcp.json", "x"), State.FAILED, Reason.OUTPUT_REFUSED),
        (TreeRefusedError("symlink", "a", "x"), State.FAILED, Reason.OUTPUT_REFUSED),
        (PathRefusedError("parent", "../x"), State.FAILED, Reason.OUTPUT_REFUSED),
        (TreeRefusedError("too_many_bytes", "a", "x"), State.OUTPUT_EXCEEDED, Reason.OUTPUT_CAP),
        (TreeRefusedError("stream_too_long", "a", "x"), State.OUTPUT_EXCEEDED, Reason.OUTPUT_CAP),
    ],
)
def test_files_that_are_not_taken_end_a_job_that_is_done(refused: Refused, state: State, reason: Reason) -> None:
    assert end(work_of(End.DONE, refused=refused, has_changes=False)) == (state, reason)


def test_a_session_without_a_change_is_a_failure_in_the_agent_s_words() -> None:
    ended = end_of(work_of(End.DONE, "All done.", has_changes=False))
    assert ended is not None
    assert (ended.reason, "All done." in ended.detail) == (Reason.AGENT_FAILED, True)


@pytest.mark.parametrize(
    ("work", "answer"),
    [
        (work_of(End.DONE, "Nothing to change: Tuesday is right.", has_changes=False), "Tuesday is right."),
        (work_of(End.DONE, "Nothing to change: Tuesday is right."), ""),
        (work_of(End.TIME, "Nothing to change: Tuesday is right.", has_changes=False), ""),
        (work_of(End.DONE, "I changed nothing.", has_changes=False), ""),
    ],
    ids=["says so", "changed", "not done", "other words"],
)
def test_a_session_that_says_that_nothing_has_to_change_answers(work: Work, answer: str) -> None:
    assert answer_of(work) == answer


def test_the_rules_of_a_session_say_how_it_answers() -> None:
    assert f"`{NOTHING_TO_CHANGE}`" in (resources.files("sandbox.image") / "files" / "role-site.md").read_text()


def test_the_owner_is_told_whether_work_is_kept() -> None:
    kept, nothing = end_of(work_of(End.TIME)), end_of(work_of(End.TIME, has_changes=False))
    assert kept is not None
    assert nothing is not None
    assert "are kept" in kept.detail
    assert "nothing was changed" in nothing.detail


def test_a_session_whose_site_finds_no_place_to_build_is_kept_while_there_is_time_to_store_it() -> None:
    class Engine:
        def acquire(self, asked: Any = (), *, image: Any = None, watch: Any = None) -> Any:
            return SimpleNamespace(close=lambda: None)

        def close(self) -> None: ...

    boxes = PoolOnDemand(Engine, most=1)
    boxes.acquire()
    attempt = make_attempt(queue=QueueName.AGENT)
    closing = attempt.limits.soft_seconds - attempt.policy.agent.closing_seconds
    resources = replace(attempt.resources, boxes=boxes)
    attempt = replace(attempt, resources=resources, began=time.monotonic() - closing + 0.2)
    files = {"package.json": json.dumps({"scripts": {"build": "vite build"}}).encode()}
    candidate = Candidate(files=files, summary="Done.", diff="", facts={"how": "a code agent"})
    ended = _built(attempt, candidate)
    assert isinstance(ended, Ended)
    assert (ended.state, ended.reason, ended.kept) == (State.TIMED_OUT, Reason.TIME_LIMIT, candidate)
    assert ended.detail.endswith("the files before it are kept")

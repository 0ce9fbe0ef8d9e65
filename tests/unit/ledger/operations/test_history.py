"""The rules about a history, on facts that are made up: what a ledger would have to be broken for."""

from dataclasses import replace
from itertools import pairwise

import hypothesis.strategies as st
from hypothesis import given

from ledger.operations.history import (
    AttemptFact,
    EventFact,
    ExecutionFact,
    JobFacts,
    JobKind,
    ReleaseFacts,
    Rule,
    RunFacts,
    SiteFacts,
    StepFact,
    check_job,
    check_run,
    check_site,
)
from routing.jobs import ENDS, GATE_MOVES, MOVES, State

RUN = RunFacts(
    id="r",
    has_ended=True,
    steps=[StepFact("a", "completed", 2), StepFact("b", "skipped", 0)],
    executions=[
        ExecutionFact("a", 1, is_settled=True, job_has_ended=True, is_on_bill=True),
        ExecutionFact("a", 2, is_settled=True, job_has_ended=True, is_on_bill=True),
    ],
)


def of_run(run: RunFacts) -> list[str]:
    found = list(check_run(run))
    assert all(violation.rule == Rule.RUN_STEPS for violation in found)
    return [violation.detail for violation in found]


def test_a_run_whose_steps_are_all_over_breaks_nothing() -> None:
    assert of_run(RUN) == []


def test_an_execution_that_outlives_its_run_unasked_is_found() -> None:
    live = ExecutionFact("a", 2, is_settled=False, job_has_ended=False, is_on_bill=True)
    assert of_run(replace(RUN, executions=[RUN.executions[0], live])) == ["it has ended, and execution 2 of a has not"]
    assert of_run(replace(RUN, executions=[RUN.executions[0], live._replace(is_stopping=True)])) == []


def test_a_step_that_was_tried_and_has_no_execution_is_found() -> None:
    assert of_run(replace(RUN, executions=RUN.executions[:1])) == ["step a was tried 2 times and has 1 executions"]


def test_an_execution_that_is_settled_without_its_job_or_on_another_bill_is_found() -> None:
    odd = ExecutionFact("a", 2, is_settled=True, job_has_ended=False, is_on_bill=False)
    assert of_run(replace(RUN, executions=[RUN.executions[0], odd])) == [
        "execution 2 of a is settled, unlike its job",
        "execution 2 of a is on another bill",
    ]


def test_a_run_that_ended_with_a_gate_or_a_step_still_to_come_is_found() -> None:
    assert of_run(replace(RUN, open_gates=1)) == ["it has ended with 1 open gates"]
    waiting = [StepFact("a", "completed", 2), StepFact("b", "pending", 0)]
    assert of_run(replace(RUN, steps=waiting)) == ["it has ended, and step b is pending"]


def test_releases_follow_each_other_unless_somebody_went_back() -> None:
    first, second = (
        ReleaseFacts(id="1", base_id=None, scan_passed=True, scan_digest=""),
        ReleaseFacts(id="2", base_id="1", scan_passed=True, scan_digest=""),
    )
    third = replace(second, id="3")
    site = SiteFacts(id="s", active_id="3", releases=[first, second, third])
    assert [violation.detail for violation in check_site(site)] == ["2 releases were published over 1"]
    assert list(check_site(replace(site, rollbacks={"1": 1}))) == []


@st.composite
def walks(draw: st.DrawFn) -> tuple[JobKind, list[State]]:
    """A path that the table allows, as far as it goes."""
    kind = draw(st.sampled_from([JobKind.JOB, JobKind.RUN]))
    path = [draw(st.sampled_from([State.RECEIVED, State.CLARIFYING, State.DEBATING, State.QUEUED]))]
    for _ in range(draw(st.integers(0, 12))):
        legal = MOVES.get(path[-1], frozenset())
        if kind is JobKind.RUN:
            legal |= GATE_MOVES.get(path[-1], frozenset())
        if not legal:
            break
        path.append(draw(st.sampled_from(sorted(legal))))
    return kind, path


def story(kind: JobKind, path: list[State]) -> JobFacts:
    has_ended = path[-1] in ENDS
    events = [EventFact("accepted", state=path[0])]
    events += [EventFact("state", origin=origin, target=target) for origin, target in pairwise(path)]
    if has_ended:
        events.append(EventFact("ended", state=path[-1]))
    return JobFacts(
        id="j",
        kind=kind,
        state=path[-1],
        fence=0,
        has_ended=has_ended,
        marks=() if has_ended else ("waiting_since",),
        notifications=int(has_ended),
        audits=int(has_ended),
        events=events,
    )


@given(walks())
def test_every_path_that_the_table_allows_is_fine(walk: tuple[JobKind, list[State]]) -> None:
    assert list(check_job(story(*walk))) == []


@given(walks(), st.data())
def test_a_path_that_lost_or_doubled_a_move_is_found(walk: tuple[JobKind, list[State]], data: st.DataObject) -> None:
    job = story(*walk)
    place = data.draw(st.integers(0, len(job.events) - 1))
    lost = [event for number, event in enumerate(job.events) if number != place]
    doubled = [*job.events[: place + 1], *job.events[place:]]
    assert list(check_job(replace(job, events=lost)))
    assert list(check_job(replace(job, events=doubled)))


@given(st.lists(st.integers(1, 20), min_size=2, max_size=6, unique=True))
def test_fences_in_any_order_but_their_own_are_found(fences: list[int]) -> None:
    attempts = [AttemptFact(number, fence, "lost", False, 0.0) for number, fence in enumerate(fences, start=1)]
    job = replace(story(JobKind.JOB, [State.QUEUED]), fence=max(fences), attempts=attempts)
    found = {violation.rule for violation in check_job(job)}
    assert (Rule.FENCES_RISE in found) == (fences != sorted(fences))

"""The invariants of a ledger's history, as functions of facts that `history_reader` collects.

Chaos tests check them at the end, operators at any time (`pointsman audit history`). The facts come from one snapshot,
so concurrent work breaks no rule, and what retention deleted is not missed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

from routing.jobs import ENDS, GATE_MOVES, MOVES, USED_ENDS, WASTED_OUTCOMES, State


class EventFact(NamedTuple):
    """One event of a job; fields that its kind does not have are None."""

    kind: str
    origin: str | None = None
    target: str | None = None
    state: str | None = None
    attempt: int | None = None
    cost_nanousd: int = 0
    wasted_nanousd: int = 0


class AttemptFact(NamedTuple):
    """One attempt of a job."""

    number: int
    fence: int
    outcome: str | None
    is_live: bool
    lapsed_seconds: float
    """Since the lease of a live one ran out; negative while it holds."""


class CallFact(NamedTuple):
    """One model call of a job."""

    attempt: int
    is_open: bool
    cost_nanousd: int
    is_on_bill: bool
    """Whether it was reserved under the caps of its job and its root."""
    lapsed_seconds: float


class JobKind(StrEnum):
    """What a row of the job table is."""

    JOB = "job"
    RUN = "run"
    STEP = "step"
    REFUSED = "refused"
    """A request that the Celery intake refused: recorded under the caller's id, and exempt from the rules."""


@dataclass(frozen=True, kw_only=True)
class JobFacts:
    """A job with everything that happened to it."""

    id: str
    kind: JobKind
    state: str
    fence: int
    has_ended: bool
    """Whether `ended_at` is set."""
    marks: Collection[str] = ()
    """The columns of its wait that are set."""
    works: Collection[str] = ()
    """Of a run: what is under way and will lead to its next advance."""
    is_partial: bool = False
    """Whether retention may have deleted some of its events."""
    notifications: int = 0
    audits: int | None = None
    """Audit rows about its end; None when they may have been archived."""
    events: Sequence[EventFact] = ()
    attempts: Sequence[AttemptFact] = ()
    calls: Sequence[CallFact] = ()


@dataclass(frozen=True, kw_only=True)
class CapFacts:
    """A cap, and the sums of the calls that count against it."""

    name: str
    limit_nanousd: int
    spent_nanousd: int
    reserved_nanousd: int
    calls_spent_nanousd: int
    calls_reserved_nanousd: int
    overrun_nanousd: int = 0
    """What its calls cost beyond their reserves: cut streams, and replies that ignored their limits."""
    is_partial: bool = False
    """Whether retention may have deleted some of its calls, or the cap's row before them."""


class ApprovalFact(NamedTuple):
    """An approval, and what it is bound to."""

    release_id: str
    base_id: str | None
    scan_digest: str


@dataclass(frozen=True, kw_only=True)
class ReleaseFacts:
    """A published release."""

    id: str
    base_id: str | None
    scan_passed: bool
    scan_digest: str
    job_id: str | None = None
    """None for an imported release, and when retention deleted its job."""
    job_state: str | None = None
    job_release_id: str | None = None
    approval: ApprovalFact | None = None
    """The approval of its job."""
    approvals: int = 0
    """The number of approvals that name it."""


@dataclass(frozen=True, kw_only=True)
class SiteFacts:
    """A site, its published releases in order of publication, and its rollbacks."""

    id: str
    active_id: str | None
    lock_state: str | None = None
    """The state of the job that holds its lock; empty when that job does not exist."""
    releases: Sequence[ReleaseFacts] = ()
    rollbacks: Mapping[str, int] = field(default_factory=dict)
    """The number of rollbacks to each release."""
    is_partial: bool = False
    """Whether retention may have deleted some of its releases."""
    is_audited: bool = True
    """Whether every rollback is still in the ledger; otherwise some may have been archived."""


class ExecutionFact(NamedTuple):
    """One execution of a step of a run."""

    key: str
    attempt: int
    is_settled: bool
    job_has_ended: bool
    is_on_bill: bool
    """Whether its job names the run as its parent, and adds to the run's bill."""
    is_stopping: bool = False
    """Whether it was cancelled: it may outlive its run for a moment."""


class StepFact(NamedTuple):
    """One step of a run."""

    key: str
    state: str
    tries: int


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """A run and its steps."""

    id: str
    has_ended: bool
    steps: Sequence[StepFact] = ()
    executions: Sequence[ExecutionFact] = ()
    open_gates: int = 0


class ServedFact(NamedTuple):
    """A call of a gateway's journal."""

    id: str
    cost_nanousd: int
    booked_nanousd: int | None
    """None when the ledger has no closed call of it."""


LAPSE_SECONDS = 120.0
"""A lease that ran out longer ago was overlooked: the dispatcher checks every second."""


class Rule(StrEnum):
    """The invariants of every history."""

    ACCEPTED_ONCE = "a job was accepted once, or refused"
    LEGAL_MOVES = "moves are legal"
    MOVES_FOLLOW = "moves follow each other"
    STATE_FITS = "a job is where its last move led"
    UNDONE_IN_TIME = "an approval is undone before its publish has begun"
    ONE_END = "a job that ended has one end"
    NOTHING_AFTER_END = "nothing happens to a job after its end"
    ONE_NOTIFICATION = "a job that ended has one notification"
    ONE_AUDIT_ROW = "a job that ended has one audit row"
    FENCES_RISE = "fences only rise"
    ONE_AT_A_TIME = "a job is worked on by one attempt at a time"
    ATTEMPTS_RECORDED = "an attempt starts once and ends once"
    HOLDS_NOTHING = "a job that ended holds nothing"
    ATTENDED = "a job that has not ended is worked on or waits for something"
    LEASES_RENEWED = "no lapsed lease is overlooked"
    COST_RECORDED = "the recorded cost of a job is what its calls cost"
    WASTE_ONCE = "waste is counted once"
    ON_THE_BILL = "a call is on its job's bill"
    APPROVED = "a published release was scanned and approved"
    PUBLISHED_ONCE = "a job publishes one release, once"
    ACTIVE_PUBLISHED = "an active release was published"
    CHAIN = "a release is published over the one it was made from"
    MONEY = "money is conserved"
    CAPS_HOLD = "no cap is passed by an admitted call"
    RUN_STEPS = "the steps of a run are within their run"
    SERVED_BOOKED = "a call that a gateway served is booked at no less"


class Violation(NamedTuple):
    """A broken rule."""

    rule: Rule
    subject: str
    """The id of the job, site or release, or the name of the cap."""
    detail: str


PATH_KINDS = frozenset({"accepted", "waiting", "started", "attempt_ended", "state", "escalated", "ended"})
"""Kinds of events about the job itself."""
_END_STATES = frozenset(state.value for state in ENDS)


def check_job(job: JobFacts) -> Iterator[Violation]:
    """Check one job."""
    if job.kind is JobKind.REFUSED:
        return
    problems = [*_check_marks(job), *_check_attempts(job), *_check_calls(job)]
    if not job.is_partial:
        problems += [*_check_path(job), *_check_end(job), *_check_recorded(job)]
    yield from (Violation(rule, job.id, detail) for rule, detail in problems)


_Problems = Iterator[tuple[Rule, str]]


def _check_path(job: JobFacts) -> _Problems:
    accepted = [place for place, event in enumerate(job.events) if event.kind == "accepted"]
    if len(accepted) != 1 or any(event.kind in PATH_KINDS for event in job.events[: accepted[0]]):
        yield Rule.ACCEPTED_ONCE, f"in state {job.state}, with {len(accepted)} accepted events"
        return
    at, has_begun = job.events[accepted[0]].state, False
    for event in job.events:
        has_begun |= at == State.PUBLISHING and event.kind == "started"
        if event.kind != "state":
            continue
        if has_begun and event.target == State.AWAITING_APPROVAL:
            yield Rule.UNDONE_IN_TIME, "went back to awaiting_approval after an attempt at publishing it had started"
        if event.origin != at:
            yield Rule.MOVES_FOLLOW, f"moved from {event.origin} while it was {at}"
        if not _is_legal(event, is_run=job.kind is JobKind.RUN):
            yield Rule.LEGAL_MOVES, f"moved from {event.origin} to {event.target}"
        at = event.target
    if at != job.state:
        yield Rule.STATE_FITS, f"is {job.state}, its last move led to {at}"
    published = sum(event.kind == "state" and event.target == State.PUBLISHED for event in job.events)
    if published > 1:
        yield Rule.PUBLISHED_ONCE, f"moved to published {published} times"


def _is_legal(event: EventFact, *, is_run: bool) -> bool:
    legal = _LEGAL | _GATE_LEGAL if is_run else _LEGAL
    return (event.origin, event.target) in legal


def _pairs(moves: Mapping[State, Collection[State]]) -> frozenset[tuple[str | None, str | None]]:
    return frozenset((origin.value, target.value) for origin, targets in moves.items() for target in targets)


_LEGAL, _GATE_LEGAL = _pairs(MOVES), _pairs(GATE_MOVES)


def _check_end(job: JobFacts) -> _Problems:
    has_ended = job.state in _END_STATES
    ends = [place for place, event in enumerate(job.events) if event.kind == "ended"]
    if len(ends) != has_ended or job.has_ended != has_ended:
        moment = "with" if job.has_ended else "without"
        yield Rule.ONE_END, f"{len(ends)} ended events in state {job.state}, {moment} the moment of an end"
    later = [event.kind for event in job.events[ends[0] + 1 :] if event.kind in PATH_KINDS] if ends else []
    if later:
        yield Rule.NOTHING_AFTER_END, f"ended, and then: {', '.join(later)}"


def _check_marks(job: JobFacts) -> _Problems:
    has_ended = job.state in _END_STATES
    live = sum(attempt.is_live for attempt in job.attempts)
    owed = has_ended and job.kind is not JobKind.STEP  # its run notifies, once
    if job.notifications != owed:
        yield Rule.ONE_NOTIFICATION, f"{job.notifications} notifications in state {job.state}"
    if job.audits is not None and job.audits != has_ended:
        yield Rule.ONE_AUDIT_ROW, f"{job.audits} job_ended rows in state {job.state}"
    if has_ended and (job.marks or live):
        held = [*sorted(job.marks), *(["a live attempt"] if live else [])]
        yield Rule.HOLDS_NOTHING, f"is {job.state} and has {', '.join(held)}"
    if not has_ended and not (job.marks or job.works or live):
        yield Rule.ATTENDED, f"is {job.state}; nobody works on it, and it waits for nothing"


def _check_attempts(job: JobFacts) -> _Problems:
    fences = [attempt.fence for attempt in job.attempts]
    if any(later <= earlier for earlier, later in pairwise([*fences, job.fence + 1])):
        yield Rule.FENCES_RISE, f"attempts had the fences {fences}, the job has {job.fence}"
    live = [attempt for attempt in job.attempts if attempt.is_live]
    if len(live) > 1 or any(attempt.fence != job.fence for attempt in live):
        yield Rule.ONE_AT_A_TIME, f"{len(live)} live attempts, with fences {[one.fence for one in live]} of {job.fence}"
    for attempt in live:
        if attempt.lapsed_seconds > LAPSE_SECONDS:
            yield Rule.LEASES_RENEWED, f"attempt {attempt.number} lapsed {attempt.lapsed_seconds:.0f} s ago"


def _check_calls(job: JobFacts) -> _Problems:
    for call in job.calls:
        if not call.is_on_bill:
            yield Rule.ON_THE_BILL, f"a call of attempt {call.attempt} counts against other caps"
        if call.is_open and call.lapsed_seconds > LAPSE_SECONDS:
            yield Rule.LEASES_RENEWED, f"a call of attempt {call.attempt} lapsed {call.lapsed_seconds:.0f} s ago"


def _check_recorded(job: JobFacts) -> _Problems:
    yield from _check_attempts_recorded(job)
    closed = [call for call in job.calls if not call.is_open]
    recorded = [event.cost_nanousd for event in job.events if event.kind == "call"]
    cost = sum(call.cost_nanousd for call in closed)
    if (len(recorded), sum(recorded)) != (len(closed), cost):
        detail = f"events record {len(recorded)} calls for {sum(recorded)}, its bill has {len(closed)} for {cost}"
        yield Rule.COST_RECORDED, detail
    of_attempt = Counter[int | None]()
    for call in closed:
        of_attempt[call.attempt] += call.cost_nanousd
    for event in job.events:
        # A call that ends after its attempt adds to the bill, never the other way round.
        if event.kind == "attempt_ended" and event.cost_nanousd > of_attempt[event.attempt]:
            yield Rule.COST_RECORDED, f"attempt {event.attempt} records a cost of {event.cost_nanousd}"
        if event.kind == "ended" and event.cost_nanousd > cost:
            yield Rule.COST_RECORDED, f"its end records a cost of {event.cost_nanousd}, its bill {cost}"
    yield from _check_waste(job, closed)


def _check_attempts_recorded(job: JobFacts) -> _Problems:
    started = Counter(event.attempt for event in job.events if event.kind == "started")
    ended = Counter(event.attempt for event in job.events if event.kind == "attempt_ended")
    numbers = [attempt.number for attempt in job.attempts]
    if sorted(numbers) != list(range(1, len(numbers) + 1)) or set(started) | set(ended) > set(numbers):
        yield Rule.ATTEMPTS_RECORDED, f"attempts {numbers}; started are {sorted(map(str, started))}"
    for attempt in job.attempts:
        if (started[attempt.number], ended[attempt.number]) != (1, not attempt.is_live):
            times = f"{started[attempt.number]} times and ended {ended[attempt.number]} times"
            yield Rule.ATTEMPTS_RECORDED, f"attempt {attempt.number} started {times}"


def _check_waste(job: JobFacts, closed: Sequence[CallFact]) -> _Problems:
    """Check a plain job's waste; a run's end includes that of its steps, which is not split up here."""
    if job.kind is not JobKind.JOB or job.state not in _END_STATES:
        return
    outcome = {attempt.number: attempt.outcome for attempt in job.attempts}
    is_used = job.state in USED_ENDS
    wasted = sum(call.cost_nanousd for call in closed if not is_used or outcome.get(call.attempt) in WASTED_OUTCOMES)
    recorded = sum(event.wasted_nanousd for event in job.events)
    if recorded != wasted:
        yield Rule.WASTE_ONCE, f"events record {recorded} as wasted, its attempts wasted {wasted}"


def check_cap(cap: CapFacts) -> Iterator[Violation]:
    """Check one cap against its calls."""
    spent, reserved = cap.calls_spent_nanousd, cap.calls_reserved_nanousd
    if cap.is_partial and not (cap.limit_nanousd or reserved):
        return
    is_spent = cap.spent_nanousd >= spent if cap.is_partial else cap.spent_nanousd == spent
    if not is_spent or cap.reserved_nanousd != reserved:
        detail = f"spent {cap.spent_nanousd} and reserved {cap.reserved_nanousd}, its calls say {spent} and {reserved}"
        yield Violation(Rule.MONEY, cap.name, detail)
    beyond = cap.spent_nanousd + cap.reserved_nanousd - cap.limit_nanousd
    if not cap.is_partial and beyond > cap.overrun_nanousd:
        detail = f"passed by {beyond}, and streams that were cut explain {cap.overrun_nanousd}"
        yield Violation(Rule.CAPS_HOLD, cap.name, detail)


def check_site(site: SiteFacts) -> Iterator[Violation]:
    """Check a site, its lock and its published releases."""
    if site.lock_state is not None and (not site.lock_state or site.lock_state in _END_STATES):
        yield Violation(Rule.HOLDS_NOTHING, site.id, f"is locked by a job that is {site.lock_state or 'not there'}")
    published = {release.id for release in site.releases}
    if site.active_id is not None and site.active_id not in published:
        yield Violation(Rule.ACTIVE_PUBLISHED, site.id, f"shows {site.active_id}, which was never published")
    for release in site.releases:
        yield from _check_release(release)
    yield from (Violation(Rule.CHAIN, site.id, detail) for detail in _check_chain(site, published))


def _check_release(release: ReleaseFacts) -> Iterator[Violation]:
    if release.job_id is None:
        return
    bound = ApprovalFact(release.id, release.base_id, release.scan_digest)
    if not release.scan_passed or release.approval != bound or release.approvals != 1:
        detail = f"published without a passing scan and one approval of exactly this ({release.approvals} name it)"
        yield Violation(Rule.APPROVED, release.id, detail)
    if release.job_state != State.PUBLISHED or release.job_release_id != release.id:
        detail = f"published by job {release.job_id}, which is {release.job_state} with {release.job_release_id}"
        yield Violation(Rule.PUBLISHED_ONCE, release.id, detail)


def _check_chain(site: SiteFacts, published: Collection[str]) -> Iterator[str]:
    over = Counter(release.base_id for release in site.releases)
    for base, times in over.items():
        if base is not None and base not in published and not site.is_partial:
            yield f"a release was published over {base}, which was not"
        if site.is_audited and times > 1 + (site.rollbacks.get(base, 0) if base else 0):
            yield f"{times} releases were published over {base or 'nothing'}"
    newest = site.releases[-1].id if site.releases else None
    if site.active_id != newest and site.is_audited and not site.rollbacks:
        yield f"shows {site.active_id}; the newest is {newest}, and there was no rollback"


def check_served(call: ServedFact) -> Iterator[Violation]:
    """Check one call of a gateway's journal."""
    if call.booked_nanousd is None or call.booked_nanousd < call.cost_nanousd:
        at = "not booked" if call.booked_nanousd is None else f"booked at {call.booked_nanousd}"
        yield Violation(Rule.SERVED_BOOKED, call.id, f"was served for {call.cost_nanousd} and is {at}")


def check_run(run: RunFacts) -> Iterator[Violation]:
    """Check a run against its steps."""
    yield from (Violation(Rule.RUN_STEPS, run.id, detail) for detail in _check_run(run))


def _check_run(run: RunFacts) -> Iterator[str]:
    tries = Counter(execution.key for execution in run.executions)
    for step in run.steps:
        if tries[step.key] != step.tries:
            yield f"step {step.key} was tried {step.tries} times and has {tries[step.key]} executions"
        if run.has_ended and step.state == "pending":
            yield f"it has ended, and step {step.key} is {step.state}"
    for execution in run.executions:
        name = f"execution {execution.attempt} of {execution.key}"
        if execution.is_settled != execution.job_has_ended:
            yield f"{name} is {'settled' if execution.is_settled else 'not settled'}, unlike its job"
        if not execution.is_on_bill:
            yield f"{name} is on another bill"
        if run.has_ended and not (execution.is_settled or execution.is_stopping):
            yield f"it has ended, and {name} has not"
    if run.has_ended and run.open_gates:
        yield f"it has ended with {run.open_gates} open gates"

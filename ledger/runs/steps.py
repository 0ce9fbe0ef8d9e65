"""The steps of a run: add them, execute them as jobs of their own, settle their reports and merge them into the run.

A step that the gateway cannot meter (Codex on the worker's machine, ADR-013) is charged in full before it starts,
because what it uses is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID, uuid5

from sqlalchemy import func, select, text
from sqlalchemy import update as sql_update
from sqlalchemy.dialects.postgresql import insert
from sqlmodel import Session, col

from ledger import money
from ledger.attempts import hash_token
from ledger.dispatch_window import hold_back
from ledger.errors import FencedError
from ledger.events import EventKind, record
from ledger.jobs import end, wait_on
from ledger.money import CapLimit
from ledger.runs.specs import NewStep
from ledger.runs.tables import AgentExecution, Project, Run, RunStep
from ledger.start_attempt import Claim
from ledger.store import OF_OPEN_TENANTS, Ledger, now, storable
from ledger.submission import accept
from ledger.tables import Attempt, Cap, Job, NewJob
from routing.ids import new_id
from routing.jobs import MAX_PROMPT_BYTES, JobRequest, Reason, Source, State
from routing.policy.prices import BudgetExceeded, Usage
from routing.queues import QueueName
from routing.redaction import redact_all
from routing.scheduling import WaitReason


@dataclass(frozen=True, kw_only=True)
class StepStart:
    """An execution to be started."""

    key: str
    attempt: int
    context: Sequence[str] | None = None
    """Replaces the step's recorded context."""
    model: str | None = None
    provider: str | None = None
    cap_nanousd: int | None = None
    pause_seconds: float = 0.0
    """How long it waits before a worker may claim it."""


@dataclass(frozen=True, kw_only=True)
class StepOrder:
    """A step's work order: everything its worker needs except the workspace."""

    run_id: UUID
    workspace_id: UUID | None = None
    """The run whose repository it works in; None for its own run."""
    key: str
    attempt: int
    agent: str | None
    """None for the project's own build."""
    phase: str
    task: str
    context: tuple[str, ...]
    writes: tuple[str, ...]
    base_commit: str | None
    """The commit whose files it gets; None for a run's first step, which fetches the project (`StepReport.base`)."""
    run_base: str | None
    """The commit that its run started from; None before that is known."""
    model: str | None
    cap_nanousd: int | None
    ticket: Mapping[str, Any]
    project_config: Mapping[str, Any]
    project_image: str | None = None
    """Id of the image of its boxes; None for that of all boxes."""
    results: Mapping[str, Mapping[str, Any]]
    """Results of the completed steps that it depends on or has in its context, by step key."""


@dataclass(frozen=True, kw_only=True)
class StepReport:
    """The result of a completed execution: settled at once, part of the run once it is merged."""

    result: Mapping[str, Any]
    """The agent's `.agent-result.json`, validated."""
    base: str | None
    """The commit that it started from: the order's `base_commit`, or the project's head that it fetched."""
    commit: str | None
    """On a ref of its own until the coordinator merges it into the head; None when it changed nothing."""
    changed: Sequence[str] = ()
    """Paths that the commit changes, sorted."""
    dropped: Sequence[str] = ()
    """Files that the agent was not allowed to write, each with the reason (S-008)."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Added to its job's result."""


class StepOutcome(NamedTuple):
    """The outcome of an execution for its run."""

    job_id: UUID
    state: str
    """`completed` or `failed`: the new state of its step."""
    reason: str | None = None
    detail: str | None = None


_ADVANCES = frozenset({State.RUNNING, State.QUEUED, State.AWAITING_APPROVAL})


def add_steps(session: Session, job: Job, steps: Sequence[NewStep]) -> None:
    """Add steps to a run, to be shown and started in this order. Existing keys stay as they are."""
    if not steps:
        return
    last = session.scalar(select(func.max(col(RunStep.position))).where(col(RunStep.run_id) == job.id))
    first = 0 if last is None else last + 1
    rows = [
        {
            **vars(step),
            "run_id": job.id,
            "position": first + place,
            "task": storable(step.task),
            "state": "pending",
            "tries": 0,
            "changed": [],
        }
        for place, step in enumerate(steps)
    ]
    session.execute(insert(RunStep).values(rows).on_conflict_do_nothing())
    record(session, EventKind.PLAN, job=job, steps=[{"step": step.key, "agent": step.agent} for step in steps])


def execution_id(run_id: UUID, key: str, attempt: int) -> UUID:
    """Return the job id of one try of one step: deterministic, so that none can be started twice."""
    return uuid5(run_id, f"{key}/{attempt}")


def start_step(session: Session, job: Job, start: StepStart) -> UUID | None:
    """Queue an execution of a step as a job of its own on the run's bill, and return that job's id.

    The caller holds the run's job. None for an attempt that was started before.
    """
    step = session.get_one(RunStep, (job.id, start.key), populate_existing=True)
    if step.tries >= start.attempt or step.state in ("running", "completed", "skipped"):
        return None
    step.tries, step.state = start.attempt, "running"
    step.context = list(start.context) if start.context is not None else step.context
    session.flush()
    before = session.get(Job, execution_id(job.id, step.key, step.tries - 1))
    begun = before.result.get("begun") if before is not None else None
    step_job = accept(session, _step_job(job, step, begun), actor="pointsman").job
    session.add(
        AgentExecution(
            job_id=step_job.id,
            run_id=job.id,
            step_key=step.key,
            attempt=step.tries,
            agent=step.agent,
            model=start.model,
            provider=start.provider,
            cap_nanousd=start.cap_nanousd,
            base_commit=session.get_one(Run, job.id).head_commit,
        )
    )
    session.flush()
    if start.pause_seconds > 0:
        hold_back(session, step_job, WaitReason.TIME, seconds=start.pause_seconds)
    return step_job.id


def _step_job(job: Job, step: RunStep, begun: Mapping[str, Any] | None) -> NewJob:
    """Return the job of a step's next try, with what its last one began and kept."""
    task = storable(step.task).encode()[:MAX_PROMPT_BYTES].decode(errors="ignore").strip() or step.key
    return NewJob(
        id=execution_id(job.id, step.key, step.tries),
        tenant=job.tenant,
        source=Source(job.source),
        requested_by=job.requested_by,
        request=JobRequest(prompt=task, project=job.request.get("project"), priority=job.priority),
        state=State.QUEUED,
        queue=QueueName.STEPS,
        mode=job.mode,
        trace=job.trace,
        cap_nanousd=job.cap_nanousd,
        parent_id=job.id,
        root_id=job.root_id,
        result={"begun": begun} if begun else {},
    )


def skip_steps(session: Session, job: Job, keys: Iterable[str], *, reason: str) -> None:
    """Mark pending steps of a held run as skipped, and record why."""
    skipped = session.scalars(
        sql_update(RunStep)
        .where(col(RunStep.run_id) == job.id, col(RunStep.key).in_(list(keys)), col(RunStep.state) == "pending")
        .values(state="skipped", detail=storable(reason), ended_at=now())
        .returning(col(RunStep.key))
    ).all()
    for key in skipped:
        record(session, EventKind.RUN_STEP, job=job, step=key, status="skipped", detail=reason)


def absorb(session: Session, job: Job, outcomes: Sequence[StepOutcome]) -> None:
    """Merge the outcomes of ended executions into their steps, in a held run."""
    for outcome in outcomes:
        execution = session.get_one(AgentExecution, outcome.job_id, populate_existing=True)
        if execution.absorbed_at is not None or execution.settled_at is None:
            continue
        step = session.get_one(RunStep, (job.id, execution.step_key))
        step.state = outcome.state
        is_done = outcome.state == "completed"
        step.result = execution.result if is_done else None
        step.changed = execution.changed if is_done else []
        step.failure = None if is_done else outcome.reason or execution.reason
        step.detail = None if is_done else outcome.detail or execution.detail
        step.ended_at = now()  # type: ignore[assignment]
        execution.status = execution.status if is_done or execution.status == "cancelled" else "failed"
        execution.reason = execution.reason if is_done else step.failure
        execution.absorbed_at = now()  # type: ignore[assignment]
        session.flush()


def find_unmerged_runs(session: Session, *, limit: int = 100) -> Sequence[UUID]:
    """Return runs with ended executions that are not merged yet, and that `wake_run` would do something about.

    Those that wait already, as of a paused tenant, would be the first again and again.
    """
    waiting = (col(AgentExecution.settled_at).is_not(None)) & (col(AgentExecution.absorbed_at).is_(None))
    live = select(col(Attempt.id)).where(col(Attempt.job_id) == col(Job.id), col(Attempt.ended_at).is_(None))
    rests = col(Job.waiting_since).is_(None) & col(Job.state).in_(_ADVANCES) & ~live.exists()
    runs = select(col(AgentExecution.run_id)).join(Job, col(Job.id) == col(AgentExecution.run_id)).where(waiting)
    runs = runs.where(text(OF_OPEN_TENANTS))
    return session.scalars(runs.where(col(Job.ended_at).is_not(None) | rests).distinct().limit(limit)).all()


def wake_run(session: Session, job: Job) -> bool:
    """Queue the advance of a locked run; False when it has ended, is queued or held, or does not advance by itself."""
    if job.ended_at is not None:
        close = sql_update(AgentExecution).where(col(AgentExecution.run_id) == job.id)
        settled = (col(AgentExecution.settled_at).is_not(None)) & (col(AgentExecution.absorbed_at).is_(None))
        session.execute(close.where(settled).values(absorbed_at=now()))
        return False
    if job.waiting_since is not None or has_live_attempt(session, job) or job.state not in _ADVANCES:
        return False
    wait_on(session, job, QueueName.CONTROL)
    return True


def has_live_attempt(session: Session, job: Job) -> bool:
    """Whether a worker holds a job."""
    live = select(col(Attempt.id)).where(col(Attempt.job_id) == job.id, col(Attempt.ended_at).is_(None))
    return session.scalar(live.limit(1)) is not None


def step_order(session: Session, job: Job) -> StepOrder:
    """Return the work order of the execution that this job is."""
    execution = session.get_one(AgentExecution, job.id)
    step = session.get_one(RunStep, (execution.run_id, execution.step_key))
    run = session.get_one(Run, execution.run_id)
    project = session.get_one(Project, run.project_id)
    return StepOrder(
        run_id=run.job_id,
        workspace_id=run.workspace_id,
        key=step.key,
        attempt=execution.attempt,
        agent=step.agent,
        phase=step.phase,
        task=step.task,
        context=tuple(step.context),
        writes=tuple(step.writes),
        base_commit=execution.base_commit,
        run_base=run.base_commit,
        model=execution.model,
        cap_nanousd=execution.cap_nanousd,
        ticket=run.ticket,
        project_config=project.config,
        project_image=project.image["id"] if project.image else None,
        results=_results(session, step, [*step.depends_on, *step.context]),
    )


def _results(session: Session, step: RunStep, keys: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    completed = session.scalars(
        select(RunStep)
        .where(col(RunStep.run_id) == step.run_id, col(RunStep.key).in_(keys), col(RunStep.state) == "completed")
        .order_by(col(RunStep.position))
    )
    return {row.key: row.result or {} for row in completed}


def settle_step(session: Session, job: Job, report: StepReport, *, known_keys: tuple[str, ...] = ()) -> None:
    """End a held execution that completed. Failures end through the lifecycle, like any job's.

    It belongs into the transaction that also closes the attempt. Secrets are redacted before the report is stored
    (S-084).
    """
    job.result = {**job.result, **report.facts}
    session.execute(
        sql_update(AgentExecution)
        .where(col(AgentExecution.job_id) == job.id)
        .values(
            result=redact_all(report.result, known=known_keys),
            base_commit=report.base,
            commit=report.commit,
            changed=redact_all(report.changed, known=known_keys),
            dropped=redact_all(report.dropped, known=known_keys),
        )
    )
    end(session, job, State.ANSWERED, reason=Reason.DONE)


UNMETERED_PROVIDER = "codex_local"


Within = Callable[[CapLimit, int], CapLimit]
"""Returns the fleet's budget of the day as this ledger may book it, given what it would have booked in total."""


def charge_unmetered_step(
    ledger: Ledger,
    claimed: Claim,
    *,
    nanousd: int,
    model: str,
    worker: str,
    within: Within = lambda fleet, total_nanousd: fleet,
) -> BudgetExceeded | None:
    """Book a step's full cost under every cap that its calls would count against.

    Args:
        ledger: the ledger.
        claimed: the attempt at the step.
        nanousd: its cost.
        model: what it is charged for.
        worker: recorded in place of a gateway.
        within: asked while no transaction is open: the directory that it asks may be slow.

    Returns:
        The budget that has no room for it, in which case nothing is booked; otherwise None.

    Raises:
        FencedError: nobody's fault: the attempt lost its job.
    """
    policy = claimed.policy
    with ledger.begin() as session:
        bearer = money.read_bearer(money.bearer_of(hash_token(claimed.token)).one(session))
        *others, fleet = money.caps_of(bearer, policy=policy)
        booked = session.get(Cap, (fleet.scope, fleet.key))
        total = nanousd + (booked.spent_nanousd + booked.reserved_nanousd if booked is not None else 0)
    caps = (*others, within(fleet, total))
    call = money.CallStart(
        id=new_id(),
        provider=UNMETERED_PROVIDER,
        model=model,
        key_hash="-",
        gateway=worker,
        prices_as_of=policy.prices_as_of,
        input_nanousd=max(nanousd - 1, 0),
        token_nanousd=1,
        max_tokens=1,
        least_tokens=1,
        call_limit_nanousd=nanousd,
    )
    with ledger.begin() as session:
        money.open_caps(caps).all(session)
        outcome = money.read_reserve(money.reserve(bearer, call, caps).one(session), call)
        if isinstance(outcome, BudgetExceeded):
            money.limit_hit(bearer, scope=outcome.scope, phase="admit").all(session)
            return outcome._replace(needed_nanousd=nanousd)
        if not isinstance(outcome, money.Reserved):
            raise FencedError(claimed.job.id, claimed.attempt.fence)
        facts: dict[str, Any] = {"cost_nanousd": nanousd, "finish": "completed", "status": 0, "state": "presumed"}
        money.settle(call.id, usage=Usage(), **facts).all(session)
    return None

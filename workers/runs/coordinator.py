"""Advance a run: record what its steps left, decide, carry the decision out, and let go until something settles.

Nothing of a run is in memory between two advances. Each decision is one transaction of the worker that holds the run's
job and reads all that it depends on; so wherever a coordinator is killed, the next one finds either all of a move or
none, and a completed step is never started again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from sqlmodel import Session

from ledger.attempts import lock_owned_job
from ledger.jobs import close_attempt, end, move
from ledger.runs.run import RunRows, ensure_run, load_run
from ledger.runs.specs import GateKind, GateState, Phase, StepState
from ledger.runs.steps import StepOutcome, absorb, wake_run
from ledger.runs.tables import AgentExecution, Gate, Run, RunStep
from ledger.start_attempt import Claim
from ledger.tables import Job, Tenant
from routing.decision.router import Intent, Mode
from routing.errors import MissingKeyError, PolicyError
from routing.jobs import Reason, State
from routing.policy.platform import Policy
from routing.policy.project import ProjectConfig, accounts_for, for_project
from routing.redaction import REDACTED, redact
from sites.errors import WorkspaceMissingError, WriteConflictError
from sites.repository.workspace import Workspace
from sites.scan.rules import Notes, TooManyFindingsError
from sites.scan.secrets import SecretBudget, find_secrets
from workers.handlers.build import build_commands
from workers.lifecycle import Resources, clear_retries
from workers.runs.apply_actions import Scene, apply_action, fits, record_explanation, spent_by_agent
from workers.runs.scheduling.ending import Decision, ScanChanges, StartStep
from workers.runs.scheduling.schedule import next_actions
from workers.runs.scheduling.view import AgentResult, GateView, Rulebook, RunView, StepView

_PACKAGE = "package.json"


class MergedResults(NamedTuple):
    """What an advance records first."""

    absorbed: Sequence[StepOutcome]
    base_commit: str | None
    head_commit: str | None


def merge_results(rows: RunRows, workspace: Workspace) -> MergedResults:
    """Merge the commits of completed executions into the run's branch, oldest first; a conflict fails its step alone.

    The branch's head is a column of the ledger, so nothing counts until a transaction stores it. Repeated after a
    crash, this makes the same objects: times and messages come from the rows.
    """
    base, head = rows.run.base_commit, rows.run.head_commit
    absorbed: list[StepOutcome] = []
    for row in rows.settled():
        if row.status != "completed":
            absorbed.append(StepOutcome(row.job_id, "failed", row.reason, row.detail))
            continue
        if head is None:
            base = head = row.base_commit
        try:
            head = _merge(row, head, workspace)
            absorbed.append(StepOutcome(row.job_id, "completed"))
        except WriteConflictError as error:
            absorbed.append(StepOutcome(row.job_id, "failed", Reason.OUTPUT_REFUSED.value, str(error)))
        except WorkspaceMissingError as error:
            absorbed.append(StepOutcome(row.job_id, "failed", Reason.INTERNAL_ERROR.value, str(error)))
    return MergedResults(absorbed, base, head)


def has_build(workspace: Workspace, head: str | None, project: ProjectConfig) -> bool:
    """Whether there is something to check a project by: its own commands, or a build as the run's branch stands."""
    if project.commands.named():
        return True
    if head is None:
        return False
    package = workspace.read_file(head, _PACKAGE)
    return package is not None and bool(build_commands({_PACKAGE: package}))


def _merge(row: AgentExecution, head: str | None, workspace: Workspace) -> str | None:
    if row.commit is None or head is None or row.base_commit is None:
        return head
    assert row.settled_at is not None
    message = f"{row.step_key} ({row.agent or 'build'}, try {row.attempt})"
    when = int(row.settled_at.timestamp())
    return workspace.absorb(head, row.commit, base=row.base_commit, message=message, when=when).head


MAX_LISTED = 5


class ScanResult(NamedTuple):
    """What the scan came to."""

    verdict: Literal["passed", "refused"]
    detail: str
    """The first findings, which never contain the secret."""


def scan_changes(changes: Mapping[str, bytes | None], *, known_keys: tuple[str, ...]) -> ScanResult:
    """Scan the files that a run changed for secrets, plain or encoded, before any leave (S-080)."""
    notes, budget = Notes(), SecretBudget()
    try:
        for path, data in sorted(changes.items()):
            if data is not None:
                find_secrets(path, data, notes=notes, budget=budget, known_keys=known_keys)
    except TooManyFindingsError:
        notes.give_up()
    findings = notes.sorted_findings()
    if not findings:
        return ScanResult("passed", "")
    shown = "; ".join(f"{one.file or 'the whole'}, line {one.line}: {one.message}" for one in findings[:MAX_LISTED])
    return ScanResult("refused", f"{len(findings)} findings: {shown}")


def view_of(rows: RunRows, *, has_build: bool, budget_spent: bool) -> RunView:
    """Convert a run's rows to the view that its schedule decides from."""
    job, run = rows.job, rows.run
    return RunView(
        state=State(job.state),
        intent=intent_of_route(job.route),
        read_only=job.route.get("mode") == Mode.ACTION and bool(job.route.get("read_only")),
        priority=job.priority,  # type: ignore[arg-type]
        labels=tuple(run.ticket.get("labels", ())),
        high_stakes=job.route.get("stakes") == "high",
        has_build=has_build,
        budget_spent=budget_spent,
        cancel_requested=job.cancel_requested_at is not None,
        scan=run.scan,  # type: ignore[arg-type]
        scan_detail=run.scan_detail,
        steps=tuple(_step(step, rows) for step in rows.steps),
        gates=tuple(_gate(gate) for gate in rows.gates),
        by_hand=tuple(path for gate in rows.gates for path in _by_hand(gate)),
    )


def intent_of_route(route: Mapping[str, Any]) -> Intent | None:
    """Return the intent that the rules found: talk is a question, words of repair a fix (ruling A5).

    Anything else goes to the classifier, which chooses between build and fix only.
    """
    intent = Intent(str(route.get("intent", Intent.BUILD)))
    return None if intent is Intent.BUILD else intent


def _step(step: RunStep, rows: RunRows) -> StepView:
    state = StepState(step.state)
    return StepView(
        key=step.key,
        agent=step.agent,
        task=step.task,
        phase=Phase(step.phase),
        round=step.round,
        cycle=step.cycle,
        depends_on=tuple(step.depends_on),
        context=tuple(step.context),
        writes=tuple(step.writes),
        state=state,
        tries=step.tries,
        result=AgentResult.model_validate(step.result) if step.result is not None else None,
        failure=Reason(step.failure) if step.failure else None,
        detail=step.detail or "",
        changed=tuple(step.changed),
        cancelling=step.key in rows.cancelling,
    )


def _by_hand(gate: Gate) -> Iterator[str]:
    """Yield what people changed at a gate."""
    for shell in gate.facts.get("shells", ()):
        if shell["is_changed"]:
            yield from shell["changed"]


def _gate(gate: Gate) -> GateView:
    return GateView(
        key=gate.key,
        kind=GateKind(gate.kind),
        reason=gate.reason,
        after=tuple(gate.after),
        state=GateState(gate.state),
        note=gate.note,
    )


logger = logging.getLogger(__name__)

MAX_MOVES = 60
"""A schedule that has not settled after this many moves has a bug: the run ends, and the fleet goes on."""


_Next = Literal["again", "scan", "over"]


class Advance:
    """One advance of one run by the worker that holds its job."""

    def __init__(self, claimed: Claim, resources: Resources, workspace: Workspace) -> None:
        self._claimed = claimed
        self._resources = resources
        self._workspace = workspace
        self._known_keys = resources.known_keys
        self._has_build = False

    def run(self) -> None:
        """Advance the run until it waits for something, or ends.

        Raises:
            FencedError: nobody's fault: the run was taken away; what was committed until then counts.
        """
        rows = self._begin()
        if rows is None:
            return
        try:
            self._go(rows)
        except WorkspaceMissingError as error:
            self._give_up(f"{error}: the runs' disk lost it")

    def _go(self, rows: RunRows) -> None:
        taken = merge_results(rows, self._workspace)
        config = ProjectConfig.model_validate(rows.project.config)
        self._has_build = has_build(self._workspace, taken.head_commit, config)
        following: _Next = "again"
        for _ in range(MAX_MOVES):
            following = self._move(taken)
            taken = MergedResults((), None, None)
            if following == "over":
                return
            if following == "scan":
                self._scan()
        self._give_up(f"internal error: its schedule did not settle in {MAX_MOVES} moves")

    def _begin(self) -> RunRows | None:
        with self._resources.ledger.begin() as session:
            job = lock_owned_job(session, self._claimed.attempt)
            if ensure_run(session, job) is None:
                detail = "its project no longer exists"
                end(session, job, State.FAILED, reason=Reason.INVALID_REQUEST, detail=detail)
                return None
            if job.state == State.AWAITING_APPROVAL:
                move(session, job, State.RUNNING)
            return load_run(session, job)

    def _move(self, taken: MergedResults) -> _Next:
        """Decide and carry out one move, in one transaction."""
        with self._resources.ledger.begin() as session:
            job = lock_owned_job(session, self._claimed.attempt)
            if taken.absorbed:
                self._note(session, job, taken)
            rows = load_run(session, job)
            scene = self._scene(session, job, rows)
            if scene is None:
                return "over"
            decision = self._decision(scene)
            if any(isinstance(action, ScanChanges) for action in decision.actions):
                return "scan"
            record_explanation(scene, decision.explanation)
            for action in decision.actions:
                apply_action(scene, action)
            if decision.actions and job.state == State.RUNNING:
                return "again"
            self._rest(session, job, None if decision.actions else rows)
            return "over"

    def _note(self, session: Session, job: Job, taken: MergedResults) -> None:
        run = session.get_one(Run, job.id, populate_existing=True)
        run.base_commit = taken.base_commit or run.base_commit
        run.head_commit = taken.head_commit or run.head_commit
        session.flush()
        absorb(session, job, taken.absorbed)

    def _scene(self, session: Session, job: Job, rows: RunRows) -> Scene | None:
        """Return the run with its layers of configuration, or end it where they are invalid."""
        config = ProjectConfig.model_validate(rows.project.config)
        tenant = session.get_one(Tenant, job.tenant)
        try:
            policy = for_project(self._claimed.policy, config)
            accounts = accounts_for(config, policy, tenant_account=tenant.provider)
        except PolicyError as error:
            end(session, job, State.FAILED, reason=Reason.INTERNAL_ERROR, detail=str(error))
            return None
        except MissingKeyError as error:
            end(session, job, State.FAILED, reason=Reason.NO_PROVIDER_KEY, detail=str(error))
            return None
        return Scene(session, job, rows, policy, accounts)

    def _decision(self, scene: Scene) -> Decision:
        """Decide; if the batch exceeds the rest of the budget, decide again for a spent one."""
        rows, policy = scene.rows, scene.policy
        book = Rulebook(policy.runs, policy.agents, self._without_keys)
        left = rows.cap_nanousd - rows.spent_nanousd
        decision = next_actions(view_of(rows, has_build=self._has_build, budget_spent=left <= 0), book)
        batch = [action.key for action in decision.actions if isinstance(action, StartStep)]
        if not batch or self._fits(batch, rows, policy, left=left):
            return decision
        return next_actions(view_of(rows, has_build=self._has_build, budget_spent=True), book)

    def _without_keys(self, text: str) -> str:
        """Replace keys in a text, also those removed when a result was stored: neither may be in a plan."""
        return redact(text, known=self._known_keys).replace(REDACTED, "[a key]")

    def _fits(self, batch: list[str], rows: RunRows, policy: Policy, *, left: int) -> bool:
        agents = {step.key: step.agent for step in rows.steps}
        running = [step.agent for step in rows.steps if step.state == "running"]
        spent = spent_by_agent(
            (row.agent, rows.costs.get(row.job_id, 0))
            for row in rows.executions
            if row.agent is not None and row.status == "completed"
        )
        wanted = [agents.get(key) for key in batch]
        return fits(wanted, running, left_nanousd=left, policy=policy, spent=spent)

    def _rest(self, session: Session, job: Job, rows: RunRows | None) -> None:
        """Let go of the run: it waits for a step, a person or publishing, or is over."""
        if job.ended_at is not None:
            return
        rows = rows or load_run(session, job)
        if job.state == State.RUNNING and not any(step.state == "running" for step in rows.steps):
            if not any(gate.state == "open" for gate in rows.gates):
                detail = "internal error: its schedule waits for nothing"
                end(session, job, State.FAILED, reason=Reason.INTERNAL_ERROR, detail=detail)
                return
            move(session, job, State.AWAITING_APPROVAL)
        job.lost_attempts = 0  # the steps that cost workers are behind it
        clear_retries(job)
        close_attempt(session, job, outcome=job.state, reason=Reason.DONE)
        job.fence += 1  # fences late effects of this attempt
        if rows.settled():
            wake_run(session, job)

    def _scan(self) -> None:
        """Scan what the run changed, outside any transaction, and record the verdict."""
        with self._resources.ledger.begin() as session:
            run = session.get_one(Run, self._claimed.job.id)
            base, head = run.base_commit, run.head_commit
        changes = self._workspace.changes(base, head) if base is not None and head is not None else {}
        result = scan_changes(changes, known_keys=self._known_keys)
        with self._resources.ledger.begin() as session:
            job = lock_owned_job(session, self._claimed.attempt)
            run = session.get_one(Run, job.id, populate_existing=True)
            run.scan, run.scan_detail = result.verdict, result.detail

    def _give_up(self, detail: str) -> None:
        logger.error("run_given_up", extra={"run_id": str(self._claimed.job.id), "detail": detail})
        with self._resources.ledger.begin() as session:
            job = lock_owned_job(session, self._claimed.attempt)
            end(session, job, State.FAILED, reason=Reason.INTERNAL_ERROR, detail=detail)

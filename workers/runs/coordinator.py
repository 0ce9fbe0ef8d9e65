"""Take a run forward: note what its steps left, decide, carry the decision out, and let go until something settles.

Nothing of a run is in memory between two advances. Each decision is one transaction of the worker that holds the run's
job, and what it depends on is read in it; so wherever a coordinator is killed, the next one finds either all of a move
or none, and a step that completed is never begun again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import StrEnum
from typing import Literal

from sqlmodel import Session

from monitoring.ledger.attempts import hold
from monitoring.ledger.jobs import close_attempt, end, move
from monitoring.ledger.run_tables import Run
from monitoring.ledger.runs import RunChange, RunRows, change_run, ensure_run, load_run
from monitoring.ledger.start_attempt import Claim
from monitoring.ledger.steps import absorb, wake_run
from monitoring.ledger.tables import Job, Tenant
from routing.errors import MissingKeyError, PolicyError
from routing.jobs import Reason, State
from routing.layers import accounts_for, for_project
from routing.policy import Policy
from routing.project import ProjectConfig
from routing.redaction import REDACTED, redact
from workers.errors import WorkspaceMissingError
from workers.lifecycle import Resources
from workers.patience import came_through
from workers.runs.absorbing import RunWorkspace, Taken, has_build, take_in
from workers.runs.actions import Decision, ScanChanges, StartStep
from workers.runs.limiter import fits, spent_by_agent
from workers.runs.moves import Scene, carry_out, tell_move
from workers.runs.scanning import scan_changes
from workers.runs.schedule import next_actions
from workers.runs.snapshot import view_of
from workers.runs.view import Rulebook, RunView

logger = logging.getLogger(__name__)

MAX_MOVES = 60
"""A schedule that has not come to rest after so many moves has a defect: the run ends, and the fleet goes on."""

Decide = Callable[[RunView, Rulebook], Decision]


class Point(StrEnum):
    """Moments of an advance, named when they are over; `deciding` lies within a transaction."""

    CLAIMED = "claimed"
    TAKEN_IN = "taken_in"
    DECIDING = "deciding"
    MOVED = "moved"
    SCANNED = "scanned"


Observe = Callable[[Point], None]
_Next = Literal["again", "scan", "over"]


def _unobserved(_: Point) -> None:
    return


class Advance:
    """One advance of one run, by the worker that holds its job.

    Args:
        claimed: the run's job and this attempt.
        resources: what every task needs.
        workspace: the run's repository.
        decide: the schedule.
        observe: told after each point.
    """

    def __init__(
        self, claimed: Claim, resources: Resources, workspace: RunWorkspace, *, decide: Decide = next_actions,
        observe: Observe = _unobserved,
    ) -> None:  # fmt: skip
        self._claimed = claimed
        self._resources = resources
        self._workspace = workspace
        self._decide = decide
        self._observe = observe
        self._known_keys = resources.known_keys
        self._has_build = False

    def run(self) -> None:
        """Advance the run until it waits for something else, or ends.

        Raises:
            FencedError: nobody's fault: the run was taken away; what was committed until then counts.
        """
        self._observe(Point.CLAIMED)
        rows = self._begin()
        if rows is None:
            return
        try:
            self._go(rows)
        except WorkspaceMissingError as error:
            self._give_up(f"{error}: the disk of the runs lost it")

    def _go(self, rows: RunRows) -> None:
        taken = take_in(rows, self._workspace)
        self._has_build = has_build(self._workspace, taken.head_commit)
        self._observe(Point.TAKEN_IN)
        following: _Next = "again"
        for _ in range(MAX_MOVES):
            following = self._move(taken)
            self._observe(Point.MOVED)
            taken = Taken((), None, None)
            if following == "over":
                return
            if following == "scan":
                self._scan()
                self._observe(Point.SCANNED)
        self._give_up(f"a defect ended it: its schedule did not come to rest in {MAX_MOVES} moves")

    def _begin(self) -> RunRows | None:
        with self._resources.ledger.begin() as session:
            job = hold(session, self._claimed.attempt)
            if ensure_run(session, job) is None:
                detail = "its project is not there any more"
                end(session, job, State.FAILED, reason=Reason.INVALID_REQUEST, detail=detail)
                return None
            if job.state == State.AWAITING_APPROVAL:
                move(session, job, State.RUNNING)
            return load_run(session, job)

    def _move(self, taken: Taken) -> _Next:
        """Make one move: what to do next, and doing it, in one transaction."""
        with self._resources.ledger.begin() as session:
            job = hold(session, self._claimed.attempt)
            self._note(session, job, taken)
            rows = load_run(session, job)
            scene = self._scene(session, job, rows)
            if scene is None:
                return "over"
            decision = self._decision(scene)
            if any(isinstance(action, ScanChanges) for action in decision.actions):
                return "scan"
            tell_move(scene, decision.explanation)
            for action in decision.actions:
                carry_out(scene, action)
            self._observe(Point.DECIDING)
            if decision.actions and job.state == State.RUNNING:
                return "again"
            self._rest(session, job)
            return "over"

    def _note(self, session: Session, job: Job, taken: Taken) -> None:
        run = session.get_one(Run, job.id, populate_existing=True)
        change_run(session, run, RunChange(base_commit=taken.base_commit, head_commit=taken.head_commit))
        absorb(session, job, taken.absorbed)

    def _scene(self, session: Session, job: Job, rows: RunRows) -> Scene | None:
        """Return the run with the layers of its configuration, or end it where they do not hold."""
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
        """Decide; and where the batch would not fit what is left, decide again for a budget that is spent."""
        rows, policy = scene.rows, scene.policy
        book = Rulebook(policy.runs, policy.agents, self._without_keys)
        left = rows.cap_nanousd - rows.spent_nanousd
        decision = self._decide(view_of(rows, has_build=self._has_build, budget_spent=left <= 0), book)
        batch = [action.key for action in decision.actions if isinstance(action, StartStep)]
        if not batch or self._fits(batch, rows, policy, left=left):
            return decision
        return self._decide(view_of(rows, has_build=self._has_build, budget_spent=True), book)

    def _without_keys(self, text: str) -> str:
        """Change every text that holds a key, or held one until its result was stored: neither may stand in a plan."""
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

    def _rest(self, session: Session, job: Job) -> None:
        """Let go of the run: it waits for a step, a person, publishing, or nothing any more."""
        if job.ended_at is not None:
            return
        rows = load_run(session, job)
        if job.state == State.RUNNING and not any(step.state == "running" for step in rows.steps):
            if not any(gate.state == "open" for gate in rows.gates):
                detail = "a defect ended it: its schedule waits for nothing"
                end(session, job, State.FAILED, reason=Reason.INTERNAL_ERROR, detail=detail)
                return
            move(session, job, State.AWAITING_APPROVAL)
        job.lost_attempts = 0  # what cost workers before is behind it
        came_through(job)
        close_attempt(session, job, outcome=job.state, reason=Reason.DONE)
        job.fence += 1  # as at every end of an attempt: a late effect of it must be refused
        if rows.settled():
            wake_run(session, job)

    def _scan(self) -> None:
        """Scan what the run changed, outside of any transaction, and put on record what came of it."""
        with self._resources.ledger.begin() as session:
            run = session.get_one(Run, self._claimed.job.id)
            base, head = run.base_commit, run.head_commit
        changes = self._workspace.changes(base, head) if base is not None and head is not None else {}
        result = scan_changes(changes, known_keys=self._known_keys)
        with self._resources.ledger.begin() as session:
            job = hold(session, self._claimed.attempt)
            run = session.get_one(Run, job.id, populate_existing=True)
            change_run(session, run, RunChange(scan=result.verdict, scan_detail=result.detail))

    def _give_up(self, detail: str) -> None:
        logger.error("run_given_up", extra={"run_id": str(self._claimed.job.id), "detail": detail})
        with self._resources.ledger.begin() as session:
            job = hold(session, self._claimed.attempt)
            end(session, job, State.FAILED, reason=Reason.INTERNAL_ERROR, detail=detail)

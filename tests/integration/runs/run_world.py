"""A project and its runs on a real ledger with a real workspace; agents, people and worker deaths come from a script.

Steps go through the lifecycle of every attempt and runs through the body of queue `control`. What the broker and the
dispatcher's loop do is done by `Yard.turn`, one look at a time, so that a test says where it stops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import UUID, uuid4

from sqlalchemy import select
from sqlmodel import col

from ledger import money
from ledger.attempts import find_lapsed_attempts, hash_token, recover
from ledger.dispatch_window import pause_queue
from ledger.jobs import lock_job
from ledger.runs.run import Verdict, decide_gate
from ledger.runs.steps import StepOrder, StepReport, find_unmerged_runs, wake_run
from ledger.runs.tables import AgentExecution, Gate, Run, RunStep
from ledger.start_attempt import Claim
from ledger.tables import Job
from producers.dispatch.broker import Publisher
from producers.intake.submit import Submitter
from producers.use_cases.runs import Projects
from routing.broker import create_app
from routing.jobs import Reason, Source, State
from routing.policy.platform import Policy, platform_policy
from routing.policy.prices import Usage, cost_nanousd, nanousd_per_token
from routing.queues import QueueName
from sites.content_store import ContentStore
from sites.repository.workspace import Workspace
from tests.factories import Shop
from tests.unit.workers.runs.repositories import make_project
from workers.attempt import Attempt
from workers.config import RunsConfig
from workers.handlers.publish import run_control
from workers.lifecycle import Resources, claim_job, run_attempt
from workers.outcomes import Ended, Outcome
from workers.runs import coordinator
from workers.runs.coordinator import Advance
from workers.runs.git.sync import Remote, RemoteRules, create_workspace
from workers.runs.step import step_of

FILES = {"README.md": b"# Shop\n", "src/app.ts": b"export {};\n", "package.json": b"{}\n"}
PROJECT = """
repo: {url: "file://HOME/remotes/shop.git"}
stack: {language: typescript, frontend: react}
"""
"""HOME stands for the directory of a test's own."""
HAIKU = "claude-haiku-4-5-20251001"
MAKERS = ("frontend-dev", "backend-dev", "styling")
MAX_TURNS = 400

Answer = Mapping[str, Any] | Reason | Ended
"""What an agent says, or why its execution fails."""


class Killed(BaseException):
    """The worker process is gone: nothing of it runs on, and nothing is told to anybody."""


def done(**values: Any) -> dict[str, Any]:
    return {"status": "complete", "summary": "done", **values}


def issues(count: int) -> dict[str, Any]:
    return done(issues=[{"severity": "blocking", "title": f"finding {number}"} for number in range(count)])


MEND = {"id": "fix-frontend", "agent": "frontend-dev", "task": "mend it"}
SMALL = {
    "classification": "fix",
    "steps": [MEND, {"id": "qa", "agent": "qa", "task": "test it", "depends_on": [MEND["id"]]}],
}
"""The least that a plan may be: two steps instead of five, for tests of what comes before and after them."""
FIX = {"template": "fix", "scopes": ["frontend"]}
BUILD = {"template": "build", "parts": [{"task": f"part {n}", "writes": [f"src/part{n}/"]} for n in (1, 2, 3)]}


@dataclass
class Team:
    """Agents that answer from a script: by the key of a step, else by agent, else by phase; lists one by one."""

    answers: dict[str, Any] = field(default_factory=dict)
    plan: Mapping[str, Any] = field(default_factory=lambda: dict(SMALL))
    cost_tokens: Mapping[str, int] = field(default_factory=dict)
    """Output tokens of the one model call that an agent makes, by agent; 100 where none are given."""
    asked: dict[str, int] = field(default_factory=dict)

    def answer(self, order: StepOrder) -> Answer:
        for name in (order.key, order.agent or "build", order.phase):
            if name in self.answers:
                said = self.answers[name]
                if not isinstance(said, list):
                    return said  # type: ignore[no-any-return]
                at = self.asked.get(name, 0)
                self.asked[name] = at + 1
                return said[min(at, len(said) - 1)]  # type: ignore[no-any-return]
        if order.phase == "plan":
            return done(plan=dict(self.plan))
        return done(intent="build") if order.phase == "classify" else done()


Observe = Callable[[str], None]
MOMENTS = {
    "merged": (coordinator, "has_build"),
    "deciding": (coordinator, "apply_action"),
    "moved": (Advance, "_move"),
    "scanned": (Advance, "_scan"),
}
"""Of an advance, each by what is over then; `deciding` is within a transaction."""


@contextmanager
def watched(observe: Observe) -> Iterator[None]:
    """Tell of each moment of the advances in this block."""

    def telling(moment: str, do: Callable[..., Any]) -> Callable[..., Any]:
        def tell(*values: Any, **named: Any) -> Any:
            result = do(*values, **named)
            observe(moment)
            return result

        return tell

    with ExitStack() as stack:
        for moment, (owner, name) in MOMENTS.items():
            stack.enter_context(patch.object(owner, name, telling(moment, getattr(owner, name))))
        yield


class Yard:
    """A tenant with a project, its workers and its people."""

    def __init__(
        self,
        shop: Shop,
        home: Path,
        *,
        policy: Policy | None = None,
        project: str = PROJECT,
        files: Mapping[str, bytes] | None = None,
    ) -> None:
        self.shop = shop
        self.home = home
        base = policy or platform_policy()
        runs = base.runs.model_copy(update={"remotes": base.runs.remotes | {"file"}})
        self.policy = base.model_copy(update={"runs": runs})
        self.team = Team()
        self.executed: list[tuple[str, int]] = []
        """Every execution that a worker began: step and try."""
        self.completed: list[str] = []
        """Steps whose worker came to the end of its work."""
        shop.tenant("acme", provider="fake")
        shop.policy = self.policy
        self.resources = Resources(
            ledger=shop.ledger,
            content_store=ContentStore(home / "content-store"),
            policy=self.policy,
            gateway_url="http://127.0.0.1:1",
            worker="w1",
            runs=RunsConfig(root=home / "runs", files_below=home / "remotes"),
        )
        (home / "remotes").mkdir(exist_ok=True)
        if not (home / "remotes" / "shop.git").exists():
            make_project(home / "remotes" / "shop.git", files or FILES)
        self.projects = Projects(shop.ledger, self.policy)
        self.projects.put("acme", "shop", project.replace("HOME", str(home)), source="project.yaml", actor="operator")
        app = create_app("redis://127.0.0.1:1/0")
        self.submitter = Submitter(shop.ledger, Publisher(app), self.policy)

    # Submitting and looking

    def submit(self, prompt: str = "Fix the broken header", **body: Any) -> UUID:
        asked = {"prompt": prompt, "project": "shop", **body}
        self._pause(is_paused=True)  # nothing is pushed: the yard does the broker's part
        try:
            return self.submitter.submit(asked, tenant="acme", source=Source.PYTHON, actor="ann").job.id
        finally:
            self._pause(is_paused=False)

    def _pause(self, *, is_paused: bool) -> None:
        with self.shop.ledger.begin() as session:
            pause_queue(session, QueueName.CONTROL, is_paused=is_paused)

    def job(self, run_id: UUID) -> Job:
        return self.shop.job(run_id)

    def run(self, run_id: UUID) -> Run:
        found: Run = self.shop.find(Run, run_id)
        return found

    def steps(self, run_id: UUID) -> dict[str, RunStep]:
        with self.shop.ledger.begin() as session:
            own = select(RunStep).where(col(RunStep.run_id) == run_id).order_by(col(RunStep.position))
            return {step.key: step for step in session.scalars(own)}

    def executions(self, run_id: UUID) -> list[AgentExecution]:
        with self.shop.ledger.begin() as session:
            own = select(AgentExecution).where(col(AgentExecution.run_id) == run_id)
            return list(session.scalars(own.order_by(col(AgentExecution.created_at), col(AgentExecution.step_key))))

    def gates(self, run_id: UUID) -> list[Gate]:
        with self.shop.ledger.begin() as session:
            return list(session.scalars(select(Gate).where(col(Gate.run_id) == run_id).order_by(col(Gate.position))))

    def open_gate(self, run_id: UUID) -> Gate:
        return next(gate for gate in self.gates(run_id) if gate.state == "open")

    def decide(
        self, gate: Gate, verdict: Verdict = "passed", *, actor: str = "bob", note: str = "", seen: str | None = None
    ) -> None:
        with self.shop.ledger.begin() as session:
            decide_gate(session, gate.id, verdict, actor=actor, policy=self.policy, note=note, seen=seen)

    def workspace(self, run_id: UUID) -> Workspace:
        with self.shop.ledger.begin() as session:
            run = session.get(Run, run_id)
            return Workspace.of_run(self.resources.runs.root, run.workspace if run is not None else run_id)

    # Workers

    def step_handler(self, attempt: Attempt) -> Outcome:
        """An agent: it makes one model call, writes a file where it may, and answers from the script."""
        order = attempt.step_order
        assert order is not None
        self.executed.append((order.key, order.attempt))
        base = order.base_commit or self._fetch(order.run_id)
        self.spend(attempt.claim, tokens=self.team.cost_tokens.get(order.agent or "", 100))
        said = self.team.answer(order)
        if isinstance(said, Reason):
            return Ended(State.FAILED, said, "it failed")
        if isinstance(said, Ended):
            return said
        changes: dict[str, bytes | None] = {}
        if order.agent in MAKERS and order.writes:
            place = next((rule for rule in order.writes if rule.endswith("/")), "src/")
            changes[f"{place}{order.key}.ts"] = f"// {order.key} {order.attempt}\n".encode()
        if order.agent is not None:
            changes[f"artifacts/{order.agent.replace(':', '-')}/{order.key}.md"] = b"done\n"
        commit = self.workspace(order.run_id).commit_step(base, changes, step=step_of(order), message=order.key, when=5)
        self.completed.append(order.key)
        return StepReport(result=said, base=base, commit=commit, changed=tuple(sorted(changes)))

    def _fetch(self, run_id: UUID) -> str:
        remote = Remote(url=f"file://{self.home}/remotes/shop.git", branch="main")
        rules = RemoteRules(schemes={"file"}, files_below=self.home / "remotes")
        return create_workspace(self.workspace(run_id), remote, rules)

    def work_step(self, job: Job, handler: Callable[[Attempt], Outcome] | None = None) -> None:
        run_attempt(self.shop.message(job.id), QueueName.STEPS, handler or self.step_handler, self.resources)

    def work_control(self, job: Job, observe: Observe | None = None) -> None:
        if observe is None or job.state == State.PUBLISHING:
            run_control(self.shop.message(job.id), self.resources)
            return
        claimed = claim_job(self.shop.message(job.id), QueueName.CONTROL, self.resources)
        assert claimed is not None
        observe("claimed")
        with watched(observe):
            Advance(claimed, self.resources, self.workspace(job.id)).run()

    def spend(self, claimed: Claim, *, tokens: int) -> int:
        """Make a model call as the gateway books it, and return what it cost."""
        price = self.policy.prices[HAIKU]
        usage = Usage(input_tokens=0, output_tokens=tokens)
        cost = cost_nanousd(price, usage)
        with self.shop.ledger.begin() as session:
            bearer = money.read_bearer(money.bearer_of(hash_token(claimed.token)).all(session)[0])
            caps = money.caps_of(bearer, policy=self.policy)
        call = money.CallStart(
            id=uuid4(),
            provider=bearer.provider or "?",
            model=HAIKU,
            key_hash="hash-of-key",
            gateway="g1",
            prices_as_of=self.policy.prices_as_of,
            input_nanousd=0,
            token_nanousd=nanousd_per_token(price.output),
            max_tokens=tokens,
            least_tokens=1,
            call_limit_nanousd=10**12,
        )
        with self.shop.ledger.begin() as session:
            reserved = money.read_reserve(money.reserve(bearer, call, caps).all(session)[0], call)
            assert isinstance(reserved, money.Reserved), reserved
        with self.shop.ledger.begin() as session:
            facts: dict[str, Any] = {"finish": "completed", "status": 200, "state": "settled"}
            money.settle(call.id, usage=usage, cost_nanousd=cost, **facts).all(session)
        return cost

    # The fleet

    def waiting(self, *queues: QueueName) -> list[Job]:
        with self.shop.ledger.begin() as session:
            own = select(Job).where(col(Job.queue).in_([*map(str, queues)]), col(Job.waiting_since).is_not(None))
            return list(session.scalars(own.order_by(col(Job.queue), col(Job.waiting_since), col(Job.id))))

    def wake(self) -> None:
        """What the dispatcher does for runs, after whatever time it takes until nothing rests any more."""
        self.shop.let_time_pass()
        with self.shop.ledger.begin() as session:
            settled = find_unmerged_runs(session)
        for run_id in settled:
            with self.shop.ledger.begin() as session:
                wake_run(session, lock_job(session, run_id))

    def recover(self) -> None:
        """Let every lease lapse that nobody renews, and recover as the dispatcher does."""
        self.shop.execute(
            "UPDATE attempt SET lease_until = now() - interval '1 second', deadline = now() + interval '1 hour'"
            " WHERE ended_at IS NULL"
        )
        with self.shop.ledger.begin() as session:
            lapsed = find_lapsed_attempts(session)
        for attempt in lapsed:
            with self.shop.ledger.begin() as session:
                recover(session, attempt, max_lost=self.policy.attempts.max_lost)

    def endure(self) -> None:
        """Let no number of deaths end a job: the test itself says when it is enough."""
        attempts = self.policy.attempts.model_copy(update={"max_lost": 10_000})
        self.policy = self.policy.model_copy(update={"attempts": attempts})
        self.resources = replace(self.resources, policy=self.policy)

    def turn(self, *, observe: Observe | None = None, handler: Callable[[Attempt], Outcome] | None = None) -> bool:
        """Work off everything that waits now, one after the other; False when nothing waits."""
        self.wake()
        waiting = self.waiting(QueueName.CONTROL, QueueName.STEPS)
        for job in waiting:
            if job.queue == QueueName.CONTROL:
                self.work_control(job, observe)
            else:
                self.work_step(job, handler)
        return bool(waiting)

    def settle(self) -> None:
        """Work until nothing waits."""
        for _ in range(MAX_TURNS):
            if not self.turn():
                return
        raise AssertionError("the fleet does not come to rest")

    def play(self, run_id: UUID) -> Job:
        """Work until the run has ended; people pass every gate."""
        for _ in range(MAX_TURNS):
            self.settle()
            job = self.job(run_id)
            if job.ended_at is not None:
                return job
            self.decide(self.open_gate(run_id))
        raise AssertionError("the run does not end")

    def bill(self, run_id: UUID) -> tuple[int, int]:
        """What the run's calls cost, and what its cap has booked."""
        calls = self.shop.scalar(
            "SELECT coalesce(sum(cost_nanousd), 0) FROM call JOIN job ON job.id = call.job_id WHERE root_id = :id",
            id=run_id,
        )
        booked = self.shop.scalar(
            "SELECT coalesce(sum(spent_nanousd), 0) FROM cap WHERE scope = 'job' AND key = :id", id=str(run_id)
        )
        return int(calls), int(booked)

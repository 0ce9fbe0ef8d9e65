"""One step of a run, done for real: a project, a run's rows, an execution, and the lifecycle of any attempt."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from ledger.jobs import lock_job
from ledger.runs.specs import NewStep
from ledger.runs.steps import StepStart, add_steps, start_step
from ledger.runs.tables import AgentExecution, Run, RunStep
from ledger.tables import Job
from producers.dispatch.broker import Publisher
from producers.intake.submit import Submitter
from producers.use_cases.runs import Projects
from routing.broker import create_app
from routing.jobs import Source
from routing.policy.platform import Policy, platform_policy
from routing.queues import QueueName
from sites.repository.workspace import Workspace
from tests.factories import Shop
from tests.unit.workers.runs.repositories import Files, make_project
from workers.config import RunsConfig
from workers.lifecycle import Handler, Resources, run_attempt
from workers.runs.step import run_step

FILES: Files = {
    "README.md": b"# Shop\n",
    "package.json": b'{"name": "shop", "private": true}\n',
    "src/app.js": b"export const total = (a, b) => a + b;\n",
    "src/cart.js": b"// cart\n",
}


def policy_with_file_remotes() -> Policy:
    """The platform's policy, but projects may be directories."""
    policy = platform_policy()
    return policy.model_copy(update={"runs": policy.runs.model_copy(update={"remotes": frozenset({"file"})})})


@dataclass(frozen=True)
class Done:
    """An execution that is over."""

    job: Job
    execution: AgentExecution
    workspace: Workspace
    events: Sequence[Mapping[str, Any]]

    @property
    def result(self) -> Mapping[str, Any]:
        assert self.execution.result is not None, (self.job.state, self.job.reason, self.job.detail)
        return self.execution.result

    def changes(self) -> dict[str, bytes | None]:
        """What its commit changed, its result file aside."""
        base, commit = self.execution.base_commit, self.execution.commit
        assert base is not None
        assert commit is not None, (self.job.state, self.job.reason, self.job.detail)
        changed = self.workspace.changes(base, commit)
        changed.pop(".agent-result.json", None)
        return changed


class StepYard:
    """A tenant with a project whose repository is a directory; `settings` is the rest of its file."""

    def __init__(
        self,
        shop: Shop,
        resources: Resources,
        home: Path,
        *,
        files: Files = FILES,
        settings: str = "stack: {language: typescript}\n",
    ) -> None:
        self.shop = shop
        self.resources = resources
        (home / "remotes").mkdir(exist_ok=True)
        self.bare = home / "remotes" / "shop.git"
        self.base = make_project(self.bare, files)
        project = f'repo: {{url: "file://{self.bare}"}}\n{settings}'
        Projects(shop.ledger, resources.policy).put("acme", "shop", project, source="project.yaml", actor="operator")
        submitter = Submitter(shop.ledger, Publisher(create_app("redis://127.0.0.1:1/0")), resources.policy)
        asked = {"prompt": "Fix the broken header\n\nIt overlaps the menu.", "project": "shop"}
        self.run_id: UUID = submitter.submit(asked, tenant="acme", source=Source.PYTHON, actor="ann").job.id

    @staticmethod
    def runs_config(home: Path) -> RunsConfig:
        return RunsConfig(root=home / "runs", files_below=home / "remotes")

    def workspace(self) -> Workspace:
        return Workspace.of_run(self.resources.runs.root, self.run_id)

    def complete(self, key: str, result: Mapping[str, Any], *, head: str | None = None) -> None:
        """Let a step have been done before, with the run's head where it left it."""
        with self.shop.ledger.begin() as session:
            job = lock_job(session, self.run_id)
            add_steps(session, job, [NewStep(key=key, agent="research", phase="work", task="t")])
            step = session.get_one(RunStep, (self.run_id, key))
            step.state, step.result = "completed", dict(result)
            if head is not None:
                session.get_one(Run, self.run_id).head_commit = head

    def order(self, agent: str | None, task: str, *, key: str = "step", **fields: Any) -> UUID:
        """Let an execution wait for a worker; `start` is what the run decided about it."""
        phase, start = fields.pop("phase", "work" if agent else "check"), fields.pop("start", {})
        with self.shop.ledger.begin() as session:
            job = lock_job(session, self.run_id)
            add_steps(session, job, [NewStep(key=key, agent=agent, phase=phase, task=task, **fields)])
            tries = session.get_one(RunStep, (self.run_id, key)).tries
            job_id = start_step(session, job, StepStart(key=key, attempt=tries + 1, **start))
            assert job_id is not None
        return job_id

    def do(self, agent: str | None, task: str, *, handler: Handler | None = None, **fields: Any) -> Done:
        """Let a worker do a step."""
        job_id = self.order(agent, task, **fields)
        run_attempt(self.shop.message(job_id), QueueName.STEPS, handler or run_step, self.resources)
        rows = self.shop.rows("SELECT data FROM event WHERE job_id = :id ORDER BY id", id=job_id)
        execution = self.shop.find(AgentExecution, job_id)
        return Done(self.shop.job(job_id), execution, self.workspace(), [row.data for row in rows])

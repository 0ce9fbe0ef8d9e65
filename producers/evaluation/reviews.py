"""`pointsman eval --set reviews`: reviewers as steps of real runs, on fixes that are known to be right or wrong.

Each verdict is a run of its own in an installation of its own: the developer's step has been done, its commit is the
fix, and the reviewer's step is queued for the worker. Money, boxes and limits are those of any step. The queue
`control` is paused, so no run goes on after that.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import yaml
from dulwich.repo import Repo
from sqlmodel import col, select

from gateway.fake_provider.config import FakeProviderConfig
from ledger.dispatch_window import pause_queue
from ledger.jobs import lock_job
from ledger.runs.specs import NewStep, Phase
from ledger.runs.steps import StepStart, add_steps, start_step
from ledger.runs.tables import AgentExecution, Run, RunStep
from ledger.store import Ledger
from ledger.tables import Call
from producers.evaluation.report import KeptRun, Report, render_page, rows_of, settings_of
from producers.evaluation.review_cases import (
    SIDES,
    ReviewCase,
    Reviewer,
    Side,
    Verdict,
    judge_verdict,
    read_review_cases,
    summarise_verdicts,
)
from producers.evaluation.run import CUT_OFF, SPENT, Plan, Purse, Share, policy_with_model
from producers.local.embedded import Embedded, Options
from producers.local.preparation import TENANT
from producers.servers import state_home
from producers.use_cases.runs import Projects
from routing.policy.agents import FINISH_TOOL, RESULT_FILE
from routing.policy.platform import Policy, load_policy
from routing.policy.prices import NANOUSD_PER_USD
from routing.queues import QueueName
from sandbox.box_spec import WORKSPACE
from sites.repository.workspace import BASE, Step, Workspace

_TASKS: Mapping[Reviewer, str] = {
    "code-review": "Review the changes for correctness and for how they fit the code around them.",
    "qa": "Test the change against the ticket, and report what does not work.",
    "security": "Review the changes for security problems.",
}
_README = "# Shop\n"
_LOOK_SECONDS = 0.1
_UNLIMITED_USD = 5.0
_NO_REPLY = "no reply is recorded"


class Asked(NamedTuple):
    """One fix and the agent that reviews it."""

    case: ReviewCase
    side: Side
    agent: Reviewer

    @property
    def id(self) -> str:
        """Its verdict's id."""
        return f"{self.case.id}/{self.side}/{self.agent}"


def evaluate_reviews(
    plan: Plan,
    *,
    only: str,
    kept: Path | None,
    resume: bool,
    environment: Mapping[str, str],
    tell: Callable[[str], None],
) -> Report:
    """Have fixes reviewed, keep each verdict, and tell of them; arguments are those of `evaluate_cases`.

    Raises:
        CaseError, PolicyError, InstallationError: the caller's fault.
    """
    cases = [case for case in read_review_cases(plan.cases) if fnmatchcase(case.id, only)]
    every = [Asked(case, side, agent) for case in cases for side in SIDES for agent in case.finding.agents]
    settings = {"set": "reviews", **settings_of(plan)}
    run = KeptRun(Verdict, kept or state_home(environment) / "eval-reviews", settings, resume=resume, tell=tell)
    playable = []
    for asked in every:
        if asked.id in run.results:
            continue
        if plan.account or asked.agent in asked.case.replies.get(asked.side, {}):
            playable.append(asked)
        else:
            run.keep(_verdict(asked, skipped=_NO_REPLY), "")

    def review(asked: Asked) -> None:
        verdict = runner.ask(asked)
        run.keep(verdict, _line(verdict))

    if playable:
        with (
            tempfile.TemporaryDirectory(prefix="pointsman-eval-") as home,
            _runner(plan, Path(home), cases, environment) as runner,
            ThreadPoolExecutor(plan.jobs) as pool,
        ):
            list(pool.map(review, playable))
    summary = summarise_verdicts((run.results[asked.id] for asked in every), settings=settings)
    return run.end(summary, _page(cases, run.results, summary, run.before), _table(summary, run.before))


def _verdict(asked: Asked, **fields: Any) -> Verdict:
    return Verdict(id=asked.id, case=asked.case.id, side=asked.side, agent=asked.agent, **fields)


def _mark(verdict: Verdict) -> str:
    return "-" if verdict.skipped else "WRONG" if verdict.failed or verdict.finding else "ok"


def _line(verdict: Verdict) -> str:
    said = verdict.skipped or verdict.failed or verdict.finding
    return f"{_mark(verdict):<6} {verdict.id:<50} {said}".rstrip()


_COLUMNS = ("wrong_fixes", "found", "recall", "right_fixes", "false_alarms", "calls", "cost_usd", "median_seconds")


def _page(
    cases: list[ReviewCase], done: Mapping[str, Verdict], summary: Mapping[str, Any], before: Mapping[str, Any]
) -> str:
    """Return the report as a page without scripts; what models wrote is escaped."""
    rows = rows_of(summary, before, groups=("by_agent",), columns=_COLUMNS)
    shown = [(case, [(each, _mark(each)) for each in done.values() if each.case == case.id]) for case in cases]
    return render_page("reviews.html", verdict=_found(summary), rows=rows, cases=shown)


def _found(summary: Mapping[str, Any]) -> str:
    return f"{summary['wrong_fixes_found']} of {summary['wrong_fixes']} wrong fixes were found by somebody"


def _table(summary: Mapping[str, Any], before: Mapping[str, Any]) -> Iterator[str]:
    """Yield recall, false alarms and cost by agent, with those of the last run where they differ."""
    yield ""
    for agent, figures in summary["by_agent"].items():
        last = before.get("by_agent", {}).get(agent, {})
        found = f"found {figures['found']} of {figures['wrong_fixes']} wrong fixes"
        alarms = f"{figures['false_alarms']} false alarms on {figures['right_fixes']} right ones"
        was = f" (last run: {last['found']} of {last['wrong_fixes']}, {last['false_alarms']} alarms)" if last else ""
        yield f"{agent:<12} {found}, {alarms}, ${figures['cost_usd']} in {figures['calls']} calls{was}"
    if unplayed := sum(why == _NO_REPLY for why in summary["skipped"].values()):
        yield f"{unplayed} reviews have no recorded reply: --provider asks a model"
    yield _found(summary)


class _Runner:
    """Asks reviewers on one installation."""

    def __init__(self, embedded: Embedded, plan: Plan, ledger: Ledger, policy: Policy, repositories: Path) -> None:
        self._plan = plan
        self._ledger = ledger
        self._policy = policy
        self._repositories = repositories
        self._runs_root = Path(embedded.environment["POINTSMAN_RUNS__ROOT"])
        self._has_boxes = not embedded.boxes.off
        self._purse = Purse(plan.budget_usd)
        self._http = embedded.open_api()

    def close(self) -> None:
        self._http.close()

    def ask(self, asked: Asked) -> Verdict:
        """Have one agent review one fix, within the budget."""
        definition = self._policy.agents[asked.agent]
        if definition.needs_box and not self._has_boxes:
            return _verdict(asked, skipped=f"{asked.agent} needs boxes")
        limit = round((definition.step_usd or _UNLIMITED_USD) * NANOUSD_PER_USD)
        with self._purse.take(limit) as share:
            if share is None:
                return _verdict(asked, skipped=SPENT)
            job_id = self._start(asked, cap_nanousd=share.nanousd)
            verdict = self._wait(asked, job_id, share, seconds=definition.hard_seconds + 120)
            share.spent = verdict.cost_nanousd
            return verdict

    def _start(self, asked: Asked, *, cap_nanousd: int) -> UUID:
        """Queue a reviewer's step on a run whose developer's step has been done; return its job."""
        case, mark = asked.case, asked.case.mark(asked.side)
        name = f"{mark}-{asked.agent}".lower()
        changed = case.changed(asked.side)
        place = (self._repositories / name).as_uri()  # nobody fetches it
        project = yaml.safe_dump({"repo": {"url": place}, "stack": {"language": case.language}})
        Projects(self._ledger, self._policy).put(TENANT, name, project, source="project.yaml", actor="pointsman eval")
        ticket = {"title": case.ticket.title, "key": mark, "source": "file"}
        order = {
            "prompt": f"{case.ticket.title}\n\n{case.ticket.body}\n\nTicket {mark}",
            "project": name,
            "ticket": ticket,
        }
        answer = self._http.post("/v1/jobs", json=order)
        answer.raise_for_status()
        run_id = UUID(answer.json()["id"])
        workspace = Workspace.of_run(self._runs_root, run_id)
        commits = _make_workspace(workspace, {"README.md": _README, **case.files}, changed)
        with self._ledger.begin() as session:
            job = lock_job(session, run_id)
            run = session.get_one(Run, run_id)
            run.base_commit, run.head_commit = commits
            review = NewStep(
                key="review", agent=asked.agent, phase=Phase.WORK, task=_TASKS[asked.agent], depends_on=("develop",)
            )
            work = NewStep(key="develop", agent="backend-dev", phase=Phase.WORK, task=case.ticket.title)
            add_steps(session, job, [work, review])
            done = session.get_one(RunStep, (run_id, "develop"))
            done.state, done.result = "completed", {"status": "complete", "summary": case.summary}
            session.flush()
            job_id = start_step(session, job, StepStart(key="review", attempt=1, cap_nanousd=cap_nanousd))
            assert job_id is not None
        return job_id

    def _wait(self, asked: Asked, job_id: UUID, share: Share, *, seconds: float) -> Verdict:
        until = time.monotonic() + seconds
        while True:
            with self._ledger.begin() as session:
                row = session.get_one(AgentExecution, job_id)
                if row.settled_at is not None or time.monotonic() > until:
                    calls = session.scalars(select(Call).where(col(Call.job_id) == job_id)).all()
                    return _verdict_of(asked, row, calls, was_cut=share.was_cut(row.reason))
            time.sleep(_LOOK_SECONDS)


def _verdict_of(asked: Asked, row: AgentExecution, calls: Any, *, was_cut: bool) -> Verdict:
    result = row.result or {}
    took = (row.settled_at - row.started_at).total_seconds() if row.settled_at and row.started_at else 0.0
    return _verdict(
        asked,
        skipped=CUT_OFF if was_cut else "",
        finding=judge_verdict(asked.case, asked.side, result) if result else "",
        failed="" if result else (row.detail or row.reason or "it did not end in time"),
        status=str(result.get("status", "")),
        blocking=sum(issue.get("severity") == "blocking" for issue in result.get("issues") or ()),
        model=",".join(sorted({call.model for call in calls})),
        calls=len(calls),
        cost_nanousd=sum(call.cost_nanousd for call in calls),
        seconds=round(took, 2),
    )


def _make_workspace(workspace: Workspace, before: Mapping[str, str], change: Mapping[str, str]) -> tuple[str, str]:
    """Make a run's workspace, in which a developer has made a change; return the commits before and after it."""
    workspace.path.parent.mkdir(parents=True, exist_ok=True)
    Repo.init_bare(str(workspace.path), mkdir=True).close()
    empty = workspace.start_empty()
    commits = [empty]
    for key, files in (("project", before), ("develop", change)):
        changes = {path: text.encode() for path, text in files.items()}
        commits.append(workspace.commit_step(commits[-1], changes, step=Step(key, 1), message=key, when=0))
    workspace.point(BASE, commits[1])
    return commits[1], commits[2]


def scenario_of(cases: list[ReviewCase], policy: Policy) -> dict[str, Any]:
    """Return the recorded replies as a scenario of the fake provider."""
    rules = [
        rule
        for case in cases
        for side, replies in case.replies.items()
        for agent, result in replies.items()
        for rule in _rules(agent, case.mark(side), result, in_box=policy.agents[agent].needs_box)
    ]
    return {"rules": rules}


def _rules(agent: Reviewer, mark: str, result: Mapping[str, Any], *, in_box: bool) -> Iterator[dict[str, Any]]:
    """Yield the rules that play one result: by the tool that ends a step, or as the file that a CLI leaves."""
    name, when = f"recorded-{mark}-{agent}", {"system": f"You are the agent `{agent}` of a run", "prompt": mark}
    if not in_box:
        say: dict[str, Any] = {"tool": FINISH_TOOL, "input": dict(result)}
        yield {"name": name, "when": {**when, "tools": [FINISH_TOOL]}, "say": [say]}
        return
    written = {"file_path": f"{WORKSPACE}/{RESULT_FILE}", "content": json.dumps(result)}
    first = {**when, "tools": ["Write"], "tool_result": False}
    yield {"name": name, "when": first, "say": [{"tool": "Write", "input": written}]}
    yield {"name": f"{name}-end", "when": {**when, "tool_result": True}, "say": [{"text": "My step is done."}]}


@contextmanager
def _runner(plan: Plan, home: Path, cases: list[ReviewCase], environment: Mapping[str, str]) -> Iterator[_Runner]:
    """Start an installation for a plan, with its control queue paused, and stop it in the end."""
    scenario, repositories = home / "recorded.yaml", home / "repositories"
    repositories.mkdir()
    rules = scenario_of(cases, load_policy(plan.policy))
    scenario.write_text(yaml.safe_dump(rules, width=100), encoding="utf-8")
    played = (scenario,) if rules["rules"] else ()
    options = Options(
        home=home / "installation",
        account=plan.account,
        fake_provider=FakeProviderConfig(speed="max", scenarios=played),
        policy=policy_with_model(plan.policy, plan.model, home=home),
        repositories=repositories,
        api_port=0,
        concurrency=max(2, min(plan.jobs, os.cpu_count() or 2)),
    )
    with Embedded(options, base_environment=environment) as embedded:
        policy = load_policy(Path(embedded.environment["POINTSMAN_POLICY__PATH"]))
        with closing(embedded.open_ledger(pool_size=plan.jobs + 1)) as ledger:
            with ledger.begin() as session:
                pause_queue(session, QueueName.CONTROL, is_paused=True)
            with closing(_Runner(embedded, plan, ledger, policy, repositories)) as runner:
                yield runner

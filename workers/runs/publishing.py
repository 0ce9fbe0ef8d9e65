"""Publish a run: one commit of its changes, pushed under a branch of its own, and a pull request (ruling A25).

Only the service does this, after scan and gates (S-029). Every part is idempotent: the same commit, the same branch,
the pull request that is already open. So a worker that dies in between costs nothing, and while a forge is unavailable
the run waits in the ledger.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from gateway.errors import ForgeError
from gateway.forge import PullRequest, neutralise, open_pull_request
from ledger.attempts import lock_owned_job
from ledger.jobs import end
from ledger.runs.run import RunRows, load_run
from ledger.start_attempt import Claim
from routing.jobs import Reason, State, Ticket
from routing.policy.agents import Account
from routing.policy.prices import NANOUSD_PER_USD, format_usd, nanousd_of
from routing.policy.project import GitHub, ProjectConfig
from workers.errors import WorkspaceError
from workers.lifecycle import Resources, retry_later
from workers.retries import is_passing, unavailable_reason
from workers.runs.apply_actions import end_facts
from workers.runs.git.sync import push, remote_of, remote_rules
from workers.runs.git.workspace import Workspace

MAX_TITLE = 200
MAX_SUMMARY = 8_000
MAX_LISTED = 60
_SLUG = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True)
class StepLine:
    """One step, as a line of the table."""

    key: str
    agent: str
    state: str
    tries: int
    cost_usd: float


@dataclass(frozen=True)
class GateLine:
    """One decided gate."""

    reason: str
    state: str
    actor: str


@dataclass(frozen=True, kw_only=True)
class PullRequestFacts:
    """What a pull request is described from."""

    run_id: UUID
    ticket: Ticket
    summary: str
    """The summary agent's words."""
    steps: Sequence[StepLine]
    gates: Sequence[GateLine] = ()
    open_issues: Sequence[str] = ()
    """Titles of the reviewers' findings that nobody fixed."""
    changed: Sequence[str] = ()
    cost_usd: float
    estimate_usd: tuple[float, float] | None = None
    """From and to."""


@dataclass(frozen=True)
class PullRequestText:
    """Title and text for the forge."""

    title: str
    body: str


def branch_of(ticket: Ticket, run_id: UUID) -> str:
    """Return the name of a run's branch: the same for each try, another for each run."""
    slug = _SLUG.sub("-", (ticket.key or ticket.title).lower()).strip("-")[-40:].strip("-") or "ticket"
    return f"pointsman/{slug}-{run_id.hex[:8]}"


def describe(facts: PullRequestFacts) -> PullRequestText:
    """Return title and text of a run's pull request.

    Agents' sentences are quoted, and what the forge would act on (mentions, pictures, closing keywords) is neutralized,
    since the ticket's author may have planted it.
    """
    ticket = facts.ticket
    name = _cell(ticket.key or "without a tracker")
    about = f"[{name}]({ticket.url})" if ticket.url else name
    parts = [
        f"Made by Pointsman for the ticket {about}: {_cell(ticket.title)}",
        _quoted(facts.summary),
        _steps(facts.steps),
        _bullets("Left open by the reviewers", facts.open_issues),
        _bullets("Looked at by people", [f"{gate.reason}: {gate.state} by {gate.actor}" for gate in facts.gates]),
        _bullets("Changed files", facts.changed),
        _money(facts),
        "Nothing was merged: that is up to you.",
    ]
    title = neutralise(" ".join(ticket.title.split()))[:MAX_TITLE]
    return PullRequestText(title, "\n\n".join(part for part in parts if part))


def _quoted(text: str) -> str:
    lines = neutralise(text[:MAX_SUMMARY]).splitlines()
    return "\n".join(f"> {line}".rstrip() for line in lines)


def _steps(steps: Sequence[StepLine]) -> str:
    head = "| step | agent | state | tries | cost |\n|---|---|---|---:|---:|"
    rows = [
        f"| {_cell(step.key)} | {_cell(step.agent)} | {step.state} | {step.tries} | {_usd(step.cost_usd)} |"
        for step in steps
    ]
    return "\n".join([head, *rows]) if rows else ""


def _bullets(title: str, items: Sequence[str]) -> str:
    if not items:
        return ""
    shown = [f"- {_cell(item)}" for item in items[:MAX_LISTED]]
    more = [f"- and {len(items) - MAX_LISTED} more"] if len(items) > MAX_LISTED else []
    return "\n".join([f"**{title}**", "", *shown, *more])


def _money(facts: PullRequestFacts) -> str:
    text = f"It cost {_usd(facts.cost_usd)}"
    if facts.estimate_usd is not None:
        low, high = (format_usd(nanousd_of(usd), digits=2) for usd in facts.estimate_usd)
        text += f" (the estimate was {low} to {high})"
    return f"{text}. Run `{facts.run_id}`."


def _usd(amount: float) -> str:
    return format_usd(nanousd_of(amount), digits=4)


def _cell(text: str) -> str:
    """Return a text as one line that fits a table."""
    return neutralise(" ".join(text.split()))[:300].replace("|", "\\|")


logger = logging.getLogger(__name__)

PUSH_SECONDS = 8.0
"""Time limit of one push."""


def publish_run(claimed: Claim, resources: Resources, workspace: Workspace) -> None:
    """Push the run's branch, open its pull request, and end the run.

    Raises:
        FencedError: nobody's fault: the run was taken away; done again it comes to the same.
    """

    def check() -> None:
        with resources.ledger.begin() as session:
            lock_owned_job(session, claimed.attempt)

    with resources.ledger.begin() as session:
        rows = load_run(session, lock_owned_job(session, claimed.attempt))
    try:
        facts = _hand_over(rows, resources, workspace, check=check)
    except (WorkspaceError, ForgeError, OSError) as error:
        if is_passing(error) and retry_later(claimed, resources, reason=unavailable_reason(error), why=str(error)):
            return
        detail = f"{error}; what was done is kept at {rows.run.head_commit}, and nothing was merged"
        _end(
            claimed, resources, State.FAILED, Reason.PUBLISH_FAILED, detail=detail, facts=end_facts(rows, State.FAILED)
        )
        return
    _end(claimed, resources, State.PUBLISHED, Reason.DONE, facts={**end_facts(rows, State.PUBLISHED), **facts})


def _end(
    claimed: Claim, resources: Resources, state: State, reason: Reason, *, facts: Mapping[str, Any], detail: str = ""
) -> None:
    with resources.ledger.begin() as session:
        end(session, lock_owned_job(session, claimed.attempt), state, reason=reason, detail=detail, result=facts)


def _hand_over(
    rows: RunRows, resources: Resources, workspace: Workspace, *, check: Callable[[], None]
) -> dict[str, Any]:
    """Push a run's changes to its forge and return the facts for its owner.

    `check` precedes each request: it refuses a run that was taken away.
    """
    commit = _squash(rows, workspace)
    if commit is None:
        return {"branch": None, "commit": None}
    ticket = ticket_of(rows)
    branch = branch_of(ticket, rows.job.id)
    workspace.point(f"refs/heads/{branch}", commit)
    config = ProjectConfig.model_validate(rows.project.config)
    remote = remote_of(config, resources.accounts, tenant=rows.job.tenant)
    rules = remote_rules(resources.runs, resources.policy.runs, seconds=PUSH_SECONDS)
    check()
    push(workspace, commit, branch=branch, remote=remote, rules=rules)
    facts: dict[str, Any] = {"branch": branch, "commit": commit}
    github = config.integrations.github
    if github is None:
        return facts
    account = account_for(github, resources, tenant=rows.job.tenant)
    check()
    pull = _open(rows, ticket, branch, config=config, github=github, account=account)
    return {**facts, "pull_request": {"number": pull.number, "url": pull.url}}


def account_for(github: GitHub, resources: Resources, *, tenant: str) -> Account:
    """Return the account that opens a project's pull requests.

    Raises:
        ForgeError: the operator's fault: the installation gives this tenant no such account.
    """
    account = resources.accounts.find(github.token, tenant=tenant)
    if account is None:
        raise ForgeError(f"this installation has no account {github.token!r} for the project", is_passing=False)
    return account


def _open(
    rows: RunRows, ticket: Ticket, branch: str, *, config: ProjectConfig, github: GitHub, account: Account
) -> PullRequest:
    text = describe(facts_of(rows, ticket))
    return open_pull_request(
        account, repository=github.repository, branch=branch, base=config.repo.branch, title=text.title, body=text.body
    )


def _squash(rows: RunRows, workspace: Workspace) -> str | None:
    run = rows.run
    if run.base_commit is None or run.head_commit is None:
        return None
    if not workspace.changes(run.base_commit, run.head_commit):
        return None
    when = int(rows.job.created_at.timestamp())
    message = f"{run.ticket.get('title', '')}\n\nRun {rows.job.id}"
    return workspace.squash(run.base_commit, run.head_commit, message=message, when=when)


def ticket_of(rows: RunRows) -> Ticket:
    """Return the ticket of a run."""
    fields = {name: value for name, value in rows.run.ticket.items() if name in Ticket.model_fields}
    return Ticket.model_validate(fields)


def facts_of(rows: RunRows, ticket: Ticket) -> PullRequestFacts:
    """Return what a run's pull request is described from."""
    costs: dict[str, int] = {}
    for execution in rows.executions:
        cost = rows.costs.get(execution.job_id, 0)
        costs[execution.step_key] = costs.get(execution.step_key, 0) + cost
    low, high = (rows.run.estimate.get(name) for name in ("low_usd", "high_usd"))
    return PullRequestFacts(
        run_id=rows.job.id,
        ticket=ticket,
        summary=str(end_facts(rows, State.PUBLISHED).get("summary", "")),
        steps=[
            StepLine(step.key, step.agent or "build", step.state, step.tries, costs.get(step.key, 0) / NANOUSD_PER_USD)
            for step in rows.steps
        ],
        gates=[GateLine(gate.reason, gate.state, gate.actor or "nobody") for gate in rows.gates],
        open_issues=_open_issues(rows),
        changed=_changed(rows),
        cost_usd=rows.spent_nanousd / NANOUSD_PER_USD,
        estimate_usd=(float(low), float(high)) if low is not None and high is not None else None,
    )


def _open_issues(rows: RunRows) -> list[str]:
    """Return the titles of each agent's latest findings."""
    last = {step.agent: step.result for step in rows.steps if step.result is not None and step.agent is not None}
    return [str(issue.get("title", "")) for result in last.values() for issue in result.get("issues", [])]


def _changed(rows: RunRows) -> list[str]:
    reserved = ("artifacts/", ".agent-context/", ".agent-result.json")
    return sorted({path for step in rows.steps for path in step.changed if not path.startswith(reserved)})

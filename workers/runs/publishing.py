"""Publish a run: one commit of what it changed, pushed under a branch of its own, and a pull request (ruling A25).

Only the service does this, after scan and gates (S-029). What agents used among themselves is no part of it. Every part
can be done twice and is then done once: the same commit, the same branch, the pull request that is open already. So a
worker that dies in between costs nothing, and for a forge that is away the run waits in the ledger.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from monitoring.ledger.attempts import hold
from monitoring.ledger.jobs import end
from monitoring.ledger.runs import RunRows, load_run
from monitoring.ledger.start_attempt import Claim
from routing.accounts import Account
from routing.jobs import Reason, State
from routing.prices import NANOUSD_PER_USD
from routing.project import GitHub, ProjectConfig
from routing.ticket import Ticket
from sandbox.forge import ForgeError, PullRequest, open_pull_request
from workers.errors import WorkspaceError
from workers.lifecycle import Resources
from workers.patience import try_later
from workers.retries import away_of, is_passing
from workers.runs.exchange import push
from workers.runs.pull_request import GateLine, PullRequestFacts, StepLine, branch_of, describe
from workers.runs.remotes import remote_of, remote_rules
from workers.runs.story import end_facts
from workers.runs.workspace import Workspace

logger = logging.getLogger(__name__)

PUSH_SECONDS = 8.0
"""For one push."""


def publish_run(claimed: Claim, resources: Resources, workspace: Workspace) -> None:
    """Push the run's branch, open its pull request, and end the run.

    Raises:
        FencedError: nobody's fault: the run was taken away; done again it comes to the same.
    """
    with resources.ledger.begin() as session:
        rows = load_run(session, hold(session, claimed.attempt))
    try:
        facts = _hand_over(rows, resources, workspace, check=lambda: _check(claimed, resources))
    except (WorkspaceError, ForgeError, OSError) as error:
        if is_passing(error) and try_later(claimed, resources, reason=away_of(error), why=str(error)):
            return
        detail = f"{error}; what was done is kept at {rows.run.head_commit}, and nothing was merged"
        _end(
            claimed, resources, State.FAILED, Reason.PUBLISH_FAILED, detail=detail, facts=end_facts(rows, State.FAILED)
        )
        return
    _end(claimed, resources, State.PUBLISHED, Reason.DONE, facts={**end_facts(rows, State.PUBLISHED), **facts})


def _check(claimed: Claim, resources: Resources) -> None:
    """Let nothing more leave the house for a run that somebody else publishes by now, or that has ended."""
    with resources.ledger.begin() as session:
        hold(session, claimed.attempt)


def _end(
    claimed: Claim, resources: Resources, state: State, reason: Reason, *, facts: Mapping[str, Any], detail: str = ""
) -> None:
    with resources.ledger.begin() as session:
        end(session, hold(session, claimed.attempt), state, reason=reason, detail=detail, result=facts)


def _hand_over(
    rows: RunRows, resources: Resources, workspace: Workspace, *, check: Callable[[], None]
) -> dict[str, Any]:
    """Bring a run's changes to its forge; returns what its owner is told of it. `check` goes before each word to it."""
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
    told: dict[str, Any] = {"branch": branch, "commit": commit}
    github = config.integrations.github
    if github is None:
        return told
    account = account_for(github, resources, tenant=rows.job.tenant)
    check()
    pull = _open(rows, ticket, branch, config=config, github=github, account=account)
    return {**told, "pull_request": {"number": pull.number, "url": pull.url}}


def account_for(github: GitHub, resources: Resources, *, tenant: str) -> Account:
    """Return the account that a project's pull requests are opened with.

    Raises:
        ForgeError: the operator's fault: the installation gives this tenant no such account.
    """
    account = resources.accounts.find(github.token, tenant=tenant)
    if account is None:
        raise ForgeError(f"this installation has no account {github.token!r} for the project", is_passing=False)
    return account


def _open(
    rows: RunRows, ticket: Ticket, branch: str, *, config: ProjectConfig, github: GitHub, account: Account
) -> PullRequest:  # fmt: skip
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
    told = end_facts(rows, State.PUBLISHED)
    low, high = (rows.run.estimate.get(name) for name in ("low_usd", "high_usd"))
    return PullRequestFacts(
        run_id=rows.job.id,
        ticket=ticket,
        summary=str(told.get("summary", "")),
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
    """Return what each agent that looks for issues still found when it looked last."""
    last = {step.agent: step.result for step in rows.steps if step.result is not None and step.agent is not None}
    return [str(issue.get("title", "")) for result in last.values() for issue in result.get("issues", [])]


def _changed(rows: RunRows) -> list[str]:
    reserved = ("artifacts/", ".agent-context/", ".agent-result.json")
    return sorted({path for step in rows.steps for path in step.changed if not path.startswith(reserved)})

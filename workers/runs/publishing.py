"""Publish a run: one commit of its changes, pushed under a branch of its own, and a pull request (ruling A25).

Only the service does this, after scan and gates (S-029). Every part is idempotent: the same commit, the same branch,
the pull request that is already open. So a worker that dies in between costs nothing, and while a forge is unavailable
the run waits in the ledger.
"""

from __future__ import annotations

import logging
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote
from uuid import UUID

from gateway.errors import ForgeError
from gateway.forges.forge import forge_of, neutralise, quoted
from ledger.attempts import lock_owned_job
from ledger.jobs import end
from ledger.runs.run import RunRows, load_run
from ledger.start_attempt import Claim
from routing.jobs import Reason, State, Ticket
from routing.policy.agents import Account
from routing.policy.integrations import GitHub, GitLab
from routing.policy.prices import format_usd, nanousd_of
from routing.policy.project import ProjectConfig
from sites.errors import WorkspaceError
from sites.repository.workspace import AUTHOR, RESERVED, Workspace
from workers.lifecycle import Resources, retry_later
from workers.retries import is_passing, unavailable_reason, words_of
from workers.runs.apply_actions import end_facts
from workers.runs.git.sync import push, remote_of, remote_rules

MAX_TITLE = 200
MAX_SUMMARY = 8_000
MAX_LISTED = 60
MAX_SUBJECT = 72
_OF_ADDRESSES = "!#$%&'*+,/:;=?@[]"
"""What stays as it is in an address; anything else may end its link, and begin what whoever wrote it likes."""
_CONVENTIONAL = re.compile(r"(feat|fix|docs|style|refactor|perf|test|build|ci|chore|revert)(\([\w./-]+\))?!?: \S")


class PullRequestText(NamedTuple):
    """Title and text for the forge."""

    title: str
    body: str


def describe(rows: RunRows, ticket: Ticket) -> PullRequestText:
    """Return title and text of a run's pull request.

    Agents' sentences are quoted, and what the forge would act on (mentions, pictures, closing keywords) is neutralized,
    since the ticket's author may have planted it.
    """
    name = _cell(ticket.key or "without a tracker")
    about = f"[{name}]({quote(ticket.url, safe=_OF_ADDRESSES)})" if ticket.url else name
    gates = [f"{gate.reason}: {gate.state} by {gate.actor or 'nobody'}" for gate in rows.gates]
    parts = [
        f"Made by Pointsman for the ticket {about}: {_cell(ticket.title)}",
        quoted(str(end_facts(rows, State.PUBLISHED).get("summary", ""))[:MAX_SUMMARY]),
        _steps(rows),
        _bullets("Left open by the reviewers", _open_issues(rows)),
        _bullets("Looked at by people", gates),
        _bullets("Changed files", _changed(rows)),
        _money(rows),
        "Nothing was merged: that is up to you.",
    ]
    title = neutralise(" ".join(ticket.title.split()))[:MAX_TITLE]
    return PullRequestText(title, "\n\n".join(part for part in parts if part))


def commit_message(text: str, *, intent: str | None, changed: Sequence[str], run_id: UUID) -> str:
    """Return the message of a pushed commit, in the form of Conventional Commits 1.0.0.

    `text` is a ticket's title, or what a later round was asked: untrusted.
    """
    line = neutralise(" ".join(text.split("\n", 1)[0].split()))
    kind = "docs" if changed and all(map(_is_document, changed)) else "fix" if intent == "fix" else "feat"
    subject = line if _CONVENTIONAL.match(line) else f"{kind}: {line}"
    if len(subject) > MAX_SUBJECT:
        subject = f"{textwrap.wrap(subject, MAX_SUBJECT - 1)[0]}\u2026"
        return f"{subject}\n\n{line}\n\nRun: {run_id}"
    return f"{subject}\n\nRun: {run_id}"


def _is_document(path: str) -> bool:
    return path.startswith("docs/") or path.endswith((".md", ".rst"))


def _steps(rows: RunRows) -> str:
    costs = Counter[str]()
    for execution in rows.executions:
        costs[execution.step_key] += rows.costs.get(execution.job_id, 0)
    head = "| step | agent | state | tries | cost |\n|---|---|---|---:|---:|"
    lines = [
        f"| {_cell(one.key)} | {_cell(one.agent or 'build')} | {one.state} | {one.tries} | {_usd(costs[one.key])} |"
        for one in rows.steps
    ]
    return "\n".join([head, *lines]) if lines else ""


def _bullets(title: str, items: Sequence[str]) -> str:
    if not items:
        return ""
    shown = [f"- {_cell(item)}" for item in items[:MAX_LISTED]]
    more = [f"- and {len(items) - MAX_LISTED} more"] if len(items) > MAX_LISTED else []
    return "\n".join([f"**{title}**", "", *shown, *more])


def _money(rows: RunRows) -> str:
    text = f"It cost {_usd(rows.spent_nanousd)}"
    low, high = (rows.run.estimate.get(name) for name in ("low_usd", "high_usd"))
    if low is not None and high is not None:
        least, most = (format_usd(nanousd_of(float(usd)), digits=2) for usd in (low, high))
        text += f" (the estimate was {least} to {most})"
    return f"{text}. Run `{rows.job.id}`."


def _usd(nanousd: int) -> str:
    return format_usd(nanousd, digits=4)


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
        why = words_of(error)
        if is_passing(error) and retry_later(claimed, resources, reason=unavailable_reason(error), why=why):
            return
        detail = f"{why}; what was done is kept at {rows.run.head_commit}, and nothing was merged"
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
    config, pushed = ProjectConfig.model_validate(rows.project.config), rows.run.pushed or {}
    settings = config.integrations.forge
    account = account_for(settings, resources, tenant=rows.job.tenant) if settings is not None else None
    commit = _squash(rows, workspace, author=account.author.encode() if account is not None else AUTHOR)
    if commit is None:
        return {"branch": None, "commit": None}
    ticket = ticket_of(rows)
    branch = rows.branch
    pull = pushed.get("pull_request")
    if settings is not None and account is not None and pull is not None:
        check()
        forge_of(account).check_open(repository=settings.repository, number=int(pull["number"]))
    workspace.point(f"refs/heads/{branch}", commit)
    remote = remote_of(config, resources.accounts, tenant=rows.job.tenant)
    rules = remote_rules(resources.runs, resources.policy.runs, seconds=PUSH_SECONDS)
    check()
    push(workspace, commit, branch=branch, remote=remote, rules=rules, expected=pushed.get("commit"))
    facts: dict[str, Any] = {"branch": branch, "commit": commit}
    if pull is not None:
        return {**facts, "pull_request": pull}
    if settings is None or account is None:
        return facts
    check()
    text, base = describe(rows, ticket), config.repo.branch
    made = forge_of(account).open_pull_request(
        repository=settings.repository,
        branch=branch,
        base=base,
        title=text.title,
        body=text.body,
        is_draft=settings.draft,
    )
    return {**facts, "pull_request": {"number": made.number, "url": made.url}}


def account_for(settings: GitHub | GitLab, resources: Resources, *, tenant: str) -> Account:
    """Return the account that opens a project's pull requests.

    Raises:
        ForgeError: the operator's fault: the installation gives this tenant no such account.
    """
    account = resources.accounts.find(settings.token, tenant=tenant)
    if account is None or account.kind != settings.kind:
        why = f"this installation has no account {settings.token!r} of kind {settings.kind} for the project"
        raise ForgeError(why, is_passing=False)
    return account


def _squash(rows: RunRows, workspace: Workspace, *, author: bytes) -> str | None:
    run = rows.run
    if run.base_commit is None or run.head_commit is None:
        return None
    if not workspace.changes(run.base_commit, run.head_commit):
        return None
    when = int(rows.job.created_at.timestamp())
    about = rows.job.prompt if run.pushed else str(run.ticket.get("title", ""))
    message = commit_message(about, intent=run.intent, changed=_changed(rows), run_id=rows.job.id)
    return workspace.squash(run.base_commit, run.head_commit, message=message, when=when, author=author)


def ticket_of(rows: RunRows) -> Ticket:
    """Return the ticket of a run."""
    fields = {name: value for name, value in rows.run.ticket.items() if name in Ticket.model_fields}
    return Ticket.model_validate(fields)


def _open_issues(rows: RunRows) -> list[str]:
    """Return the titles of each agent's latest findings."""
    last = {step.agent: step.result for step in rows.steps if step.result is not None and step.agent is not None}
    return [str(issue.get("title", "")) for result in last.values() for issue in result.get("issues", [])]


def _changed(rows: RunRows) -> list[str]:
    return sorted({path for step in rows.steps for path in step.changed if path.split("/")[0] not in RESERVED})

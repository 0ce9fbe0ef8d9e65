"""Publish a run: one commit of what it changed, on the commit it began with, under a branch of its own (ruling A25).

Only the service does this, after scan and gates. What agents used among themselves is no part of it.
"""

from __future__ import annotations

from monitoring.ledger.attempts import Claim, hold
from monitoring.ledger.jobs import end
from monitoring.ledger.run_values import RunRows
from monitoring.ledger.runs import load_run
from routing.jobs import Reason, State
from workers.lifecycle import Resources
from workers.runs.absorbing import RunWorkspace
from workers.runs.errors import WorkspaceError
from workers.runs.story import end_facts

BRANCH_PREFIX = "refs/heads/pointsman/"


def publish_run(claimed: Claim, resources: Resources, workspace: RunWorkspace) -> None:
    """Make the run's branch and end the run.

    Raises:
        FencedError: nobody's fault: the run was taken away; done again it gives the same commit.
    """
    with resources.ledger.begin() as session:
        rows = load_run(session, hold(session, claimed.attempt))
    try:
        commit = _squash(rows, workspace)
    except WorkspaceError as error:
        with resources.ledger.begin() as session:
            job = hold(session, claimed.attempt)
            end(session, job, State.FAILED, reason=Reason.INTERNAL_ERROR, detail=str(error))
        return
    with resources.ledger.begin() as session:
        job = hold(session, claimed.attempt)
        branch = None if commit is None else branch_of(rows).removeprefix("refs/heads/")
        facts = {**end_facts(rows, State.PUBLISHED), "branch": branch, "commit": commit}
        end(session, job, State.PUBLISHED, reason=Reason.DONE, result=facts)


def branch_of(rows: RunRows) -> str:
    """Return the ref of a run's branch."""
    return f"{BRANCH_PREFIX}{rows.job.id}"


def _squash(rows: RunRows, workspace: RunWorkspace) -> str | None:
    run = rows.run
    if run.base_commit is None or run.head_commit is None:
        return None
    when = int(rows.job.created_at.timestamp())
    message = f"{run.ticket.get('title', '')}\n\nRun {rows.job.id}"
    commit = workspace.squash(run.base_commit, run.head_commit, message=message, when=when)
    workspace.point(branch_of(rows), commit)
    return commit

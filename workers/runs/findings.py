"""What has to be mended, and by whom: findings of reviewers and errors of builds, as tasks for those who own them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from routing.path_rules import is_covered
from workers.runs.facts import Facts
from workers.runs.roles import judges, makes
from workers.runs.view import Phase, StepView
from workers.runs.writes import find_overlap

_MAX_LISTED = 40
"""Findings that a task spells out; all of them are in the results that are staged for the step."""
_MAX_DETAIL = 400


class Finding(NamedTuple):
    """One thing to mend."""

    source: StepView
    """The step that found it."""
    title: str
    detail: str = ""
    file: str | None = None


def find_blocking(steps: Iterable[StepView], facts: Facts) -> tuple[Finding, ...]:
    """Return the blocking issues of the steps that nobody has taken up."""
    return tuple(
        Finding(step, issue.title, issue.detail, issue.file) for step in steps for issue in facts.blocking(step)
    )


def find_demands(steps: Iterable[StepView]) -> tuple[Finding, ...]:
    """Return what each step wants changed: its blocking issues, else what it says in its summary."""
    found: list[Finding] = []
    for step in steps:
        if step.result is not None:
            issues = [Finding(step, issue.title, issue.detail, issue.file) for issue in step.result.blocking]
            found += issues or [Finding(step, step.result.summary)]
    return tuple(found)


def group_by_owner(findings: Iterable[Finding], facts: Facts) -> dict[str, list[Finding]]:
    """Return the findings of each agent that has to mend some, in the order of the first finding."""
    groups: dict[str, list[Finding]] = {}
    for finding in findings:
        groups.setdefault(find_owner(finding, facts), []).append(finding)
    return groups


def find_owner(finding: Finding, facts: Facts) -> str:
    """Return the agent that a finding goes to.

    What an agent says of its own work it does again itself. Any other finding goes to whoever changed the file last,
    else to an agent that may write it, else to whoever made something last.
    """
    agents = facts.book.agents
    source = finding.source.agent
    if source is not None and not judges(source, agents):
        return source
    made = [step.agent for step in reversed(facts.makers) if step.agent is not None]
    if finding.file is not None:
        file = finding.file
        touched = [step.agent for step in reversed(facts.makers) if step.agent is not None and file in step.changed]
        able = [agent for agent in (*made, *agents) if makes(agent, agents) and is_covered(file, agents[agent].writes)]
        made = [*touched, *able, *made]
    return next(iter((*made, *(agent for agent in agents if makes(agent, agents)))), source or "frontend-dev")


def chain_after(writes: Sequence[tuple[str, ...]]) -> list[tuple[int, ...]]:
    """Return for each entry the earlier ones that it has to wait for, because both may write the same file."""
    return [
        tuple(earlier for earlier in range(index) if find_overlap(writes[earlier], writes[index]))
        for index in range(len(writes))
    ]


def task_of(findings: Sequence[Finding], *, opening: str) -> str:
    """Return a task that lists findings."""
    lines = [f"{number}. {_line(finding)}" for number, finding in enumerate(findings[:_MAX_LISTED], start=1)]
    if len(findings) > _MAX_LISTED:
        lines.append(f"... and {len(findings) - _MAX_LISTED} more, in the results that you are given.")
    return "\n".join((opening, *lines))[:7900]


def _line(finding: Finding) -> str:
    source = "build" if finding.source.phase is Phase.CHECK else finding.source.agent
    place = f" ({finding.file})" if finding.file else ""
    detail = f": {finding.detail[:_MAX_DETAIL]}" if finding.detail else ""
    return f"[{source}] {finding.title[:_MAX_DETAIL]}{place}{detail}"

"""Tickets with a seeded wrong fix and its right twin: what a review has to say of each, and the figures of many.

Files are YAML lists; the shipped ones are `producers/evaluation/reviews/*.yaml`. Everything here is pure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from statistics import median
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, StringConstraints, model_validator

from producers.evaluation.cases import Named, Section, read_as
from routing.policy.prices import decimal_usd

Side = Literal["wrong", "right"]
SIDES: tuple[Side, ...] = ("wrong", "right")
Reviewer = Literal["code-review", "qa", "security"]
Text = Annotated[str, StringConstraints(min_length=1)]
_NEAR_LINES = 3
"""How far beside the seeded lines a finding may point: at the function's head, or its end."""


class ReviewTicket(Section):
    """What was asked for."""

    title: Text
    body: Text


class WantedFinding(Section):
    """The finding that a wrong fix must get."""

    agents: Annotated[tuple[Reviewer, ...], Field(min_length=1)]
    """Who must find it, and is asked; the same are asked about the right fix."""
    file: str
    at: str
    """A part of the first line that is wrong."""
    span: int = Field(default=1, ge=1, le=50)
    """How many lines are."""
    severity: Literal["blocking", "minor"] = "blocking"
    """At least."""


class ReviewCase(Named):
    """One ticket with two fixes; files are texts by path."""

    fault: Text
    """What is wrong with the wrong fix; no agent is told."""
    language: Literal["python", "typescript", "javascript"] = "python"
    ticket: ReviewTicket
    summary: Text
    """What the developer says of either fix."""
    files: Mapping[str, str] = Field(default_factory=dict)
    """In both."""
    wrong: Annotated[Mapping[str, str], Field(min_length=1)]
    right: Annotated[Mapping[str, str], Field(min_length=1)]
    finding: WantedFinding
    replies: Mapping[Side, Mapping[Reviewer, Mapping[str, Any]]] = Field(default_factory=dict)
    """Results that play in place of a model: by fix and agent."""

    @model_validator(mode="after")
    def _check_place(self) -> ReviewCase:
        if self.finding.at not in self.wrong.get(self.finding.file, ""):
            raise ValueError(f"finding: the wrong fix has no {self.finding.at!r} in {self.finding.file}")
        return self

    def changed(self, side: Side) -> Mapping[str, str]:
        """Return a fix's files."""
        return self.wrong if side == "wrong" else self.right

    def mark(self, side: Side) -> str:
        """Return the key of a fix's ticket, by which its recorded replies are found and nobody can tell its side."""
        text = repr((self.id, sorted(self.changed(side).items())))
        return f"T-{hashlib.sha256(text.encode()).hexdigest()[:10]}"

    @property
    def lines(self) -> range:
        """The lines at which a finding counts."""
        text = self.wrong[self.finding.file]
        first = text[: text.index(self.finding.at)].count("\n") + 1
        return range(max(1, first - _NEAR_LINES), first + self.finding.span + _NEAR_LINES)


def shipped_reviews() -> Path:
    """Return the directory of the shipped cases."""
    return Path(str(resources.files("producers.evaluation") / "reviews"))


def read_review_cases(paths: Sequence[Path] = ()) -> list[ReviewCase]:
    """Return the cases of files or directories, by default the shipped ones.

    Raises:
        CaseError: their author's fault.
    """
    return read_as(ReviewCase, paths or (shipped_reviews(),))


class Verdict(BaseModel, frozen=True):
    """What one agent said of one fix, and whether that is right."""

    id: str
    """CASE/SIDE/AGENT."""
    case: str
    side: Side
    agent: Reviewer
    finding: str = ""
    """What is wrong with what it said; empty for a right verdict."""
    status: str = ""
    blocking: int = 0
    model: str = ""
    calls: int = 0
    cost_nanousd: int = 0
    seconds: float = 0.0
    skipped: str = ""
    """Why it was not asked, or not heard to its end."""
    failed: str = ""
    """Why it gave no result."""


def judge_verdict(case: ReviewCase, side: Side, result: Mapping[str, Any]) -> str:
    """Return what is wrong with an agent's result; empty if nothing is.

    Of a wrong fix it must have the seeded finding: the file, a line of the seeded ones or close to them, and at least
    the severity. Of a right fix nothing may block, by a finding or by its status.
    """
    issues: Sequence[Mapping[str, Any]] = result.get("issues") or ()
    if side == "right":
        blocking = [str(issue.get("title", "")) for issue in issues if issue.get("severity") == "blocking"]
        if blocking:
            return f"false alarm: {blocking[0]}"
        status = result.get("status")
        return "" if status == "complete" else f"false alarm: it says {status}"
    wanted = case.finding
    there = [issue for issue in issues if issue.get("file") == wanted.file and issue.get("line") in case.lines]
    if any(issue.get("severity") in ("blocking", wanted.severity) for issue in there):
        return ""
    if there:
        return f"found, but only as {there[0].get('severity')}: {case.fault}"
    return f"missed: {case.fault}"


def summarise_verdicts(verdicts: Iterable[Verdict], *, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return recall, false alarms and costs, by agent and in all; shares from 0 to 1, money in USD."""
    every = list(verdicts)
    asked = [verdict for verdict in every if not verdict.skipped]
    agents = sorted({verdict.agent for verdict in asked})
    by_case = {verdict.case for verdict in asked if verdict.side == "wrong"}
    found = {verdict.case for verdict in asked if verdict.side == "wrong" and not (verdict.finding or verdict.failed)}
    return {
        **settings,
        "asked": len(asked),
        "failed": sum(bool(verdict.finding or verdict.failed) for verdict in asked),
        "skipped": {verdict.id: verdict.skipped for verdict in every if verdict.skipped},
        "by_agent": {agent: _figures([each for each in asked if each.agent == agent]) for agent in agents},
        "all": _figures(asked) | {"cost_usd": decimal_usd(sum(verdict.cost_nanousd for verdict in every))},
        "wrong_fixes": len(by_case),
        "wrong_fixes_found": len(found),
        "wrong": {each.id: each.failed or each.finding for each in asked if each.failed or each.finding},
    }


def _figures(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    wrong = [verdict for verdict in verdicts if verdict.side == "wrong"]
    right = [verdict for verdict in verdicts if verdict.side == "right"]
    found = sum(not (verdict.finding or verdict.failed) for verdict in wrong)
    return {
        "wrong_fixes": len(wrong),
        "found": found,
        "recall": round(found / len(wrong), 3) if wrong else None,
        "right_fixes": len(right),
        "false_alarms": sum(bool(verdict.finding) for verdict in right),
        "without_result": sum(bool(verdict.failed) for verdict in verdicts),
        "calls": sum(verdict.calls for verdict in verdicts),
        "cost_usd": decimal_usd(sum(verdict.cost_nanousd for verdict in verdicts)),
        "median_seconds": round(median([verdict.seconds for verdict in verdicts]), 1) if verdicts else 0.0,
    }

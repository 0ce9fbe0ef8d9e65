"""Follows one session of the CLI: what it may do is checked first, and how it ended is judged last.

A session is taken at its word about nothing that counts. That it succeeded has to be said by its result line, its exit
status and its not having been cut off, all three.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from sandbox.box import Ending, ExecResult
from sandbox.claude.command import CLI_VERSION, SessionPlan
from sandbox.claude.stream import Finished, Happening, Retried, Said, Started, ToolUsed, read_line

MAX_NEWS = 200
"""Pieces of news that one session may bring its owner."""


class End(StrEnum):
    """How a session ended: one code each."""

    DONE = "done"
    REFUSED = "refused"
    """It did not start as the role demands, and was stopped before it did anything."""
    FAILED = "failed"
    TIME = "time"
    BUDGET = "budget"
    """It stopped by its own count of what it costs."""
    OUTPUT = "output"
    RESOURCES = "resources"
    """The kernel killed it for what it used."""
    BOX_LOST = "box_lost"


@dataclass(frozen=True)
class Verdict:
    """How a session ended, and in whose words."""

    end: End
    text: str
    """What the agent said at the end, or why it did not."""

    @property
    def is_done(self) -> bool:
        """Whether it did what was asked, as it says."""
        return self.end is End.DONE


_CUT: dict[Ending, tuple[End, str]] = {
    Ending.START_TIMEOUT: (End.TIME, "it said nothing when it should have started"),
    Ending.IDLE_TIMEOUT: (End.TIME, "it fell silent"),
    Ending.SOFT_TIMEOUT: (End.TIME, "its time was over"),
    Ending.HARD_TIMEOUT: (End.TIME, "its time was over and it did not stop by itself"),
    Ending.OUTPUT_LIMIT: (End.OUTPUT, "it printed more than a session may"),
    Ending.LINE_LIMIT: (End.OUTPUT, "it printed a longer line than a session may"),
    Ending.BOX_LOST: (End.BOX_LOST, "its box went away"),
}


def objections(started: Started, plan: SessionPlan) -> str:
    """Return why a session must not go on; empty when it is exactly what its role demands."""
    if len(started.tools) != len(plan.role.tools) or frozenset(started.tools) != plan.role.tools:
        wanted = " ".join(sorted(plan.role.tools))
        return f"it has the tools {' '.join(started.tools) or 'none'}, and has to have {wanted}"
    if started.extras:
        return f"it brings what nobody asked for: {', '.join(started.extras[:5])}"
    if started.model != plan.model:
        return f"it uses the model {started.model}, and has to use {plan.model}"
    if started.version != CLI_VERSION:
        return f"it is version {started.version} of the CLI, and has to be {CLI_VERSION}"
    if started.permission_mode != plan.role.permission_mode:
        return f"its permission mode is {started.permission_mode}, and has to be {plan.role.permission_mode}"
    return ""


@dataclass
class SessionReader:
    """Reads a session's lines as they come.

    Args:
        plan: what was asked for.
        tell: takes news for the job's owner, one line each.
    """

    plan: SessionPlan
    tell: Callable[[str], None]
    started: Started | None = None
    finished: Finished | None = None
    refusal: str = ""
    tools_used: int = 0
    retries: int = 0
    last_said: str = ""
    went_on: bool = False
    """Whether something came after a result: one of the two is not the CLI's word."""
    _news: int = field(default=0, repr=False)

    def take(self, line: bytes) -> bool:
        """Read one line; False when the session has to be stopped."""
        for happening in read_line(line):
            self._see(happening)
            if self.refusal:
                return False
        return True

    def _see(self, happening: Happening) -> None:
        match happening:
            case _ if self.finished is not None:
                self.went_on = True  # the CLI says nothing after its result: somebody else did
            case Started():
                self.started = self.started or happening
                self.refusal = objections(happening, self.plan)
            case _ if self.started is None and not isinstance(happening, Retried):
                self.refusal = "it worked before it said what it may do"
            case ToolUsed(tool, about):
                self.tools_used += 1
                self._tell(f"{tool} {about}".strip())
            case Said(text):
                self.last_said = text
                self._tell(text)
            case Retried():
                self.retries += 1
            case Finished():
                self.finished = happening

    def _tell(self, news: str) -> None:
        self._news += 1
        if self._news <= MAX_NEWS:
            self.tell(news)

    def judge(self, result: ExecResult) -> Verdict:
        """Return how the session ended, all in all."""
        if self.refusal:
            return Verdict(End.REFUSED, self.refusal)
        if (cut := _CUT.get(result.ending)) is not None:
            return Verdict(*cut)
        if result.is_resource_limit:
            return Verdict(End.RESOURCES, "it used more memory than its box has")
        if self.started is None or self.finished is None:
            return Verdict(End.FAILED, f"it ended without a result (status {result.exit_code})")
        if self.went_on:
            return Verdict(End.FAILED, "it went on after its result, so its word is worth nothing")
        if self.finished.subtype == "error_max_budget_usd":
            return Verdict(End.BUDGET, "it had spent its budget")
        if not self.finished.is_success:
            return Verdict(End.FAILED, self.finished.text or f"it ended with {self.finished.subtype}")
        if not result.is_success:
            return Verdict(End.FAILED, f"it ended with status {result.exit_code}")
        return Verdict(End.DONE, self.finished.text)

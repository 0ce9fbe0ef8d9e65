"""The form of `.agent-result.json`: the only thing of a step that decisions are made from.

An agent writes the file, so every value is hostile: sizes are bounded, unknown fields are refused (a misspelt `issues`
would lose what QA found), and an invalid file fails the step (S-051).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from sandbox.errors import PathRefusedError
from sandbox.paths import check_path
from workers.errors import ResultInvalidError

MAX_ISSUES = 100
MAX_ARTIFACTS = 200
MAX_NAMED_ERRORS = 20


class Status(StrEnum):
    """How an agent leaves its task."""

    COMPLETE = "complete"
    NEEDS_REWORK = "needs_rework"
    """Something that was made earlier has to change, beyond what listed issues say: the orchestrator plans it."""
    BLOCKED = "blocked"
    """Nothing in the workspace lets it go on. The orchestrator tries to plan around it; said by the orchestrator
    itself, only a person can help."""


def _check_text(text: str) -> str:
    if any(character == "\x00" or "\ud800" <= character <= "\udfff" for character in text):  # no ledger can store it
        raise ValueError("must be valid Unicode text without NUL")
    return text


def _check_file(path: str) -> str:
    try:
        return check_path(path)
    except PathRefusedError as error:
        raise ValueError(f"must be a path relative to the project's root ({error.reason})") from None


Text = Annotated[str, AfterValidator(_check_text)]
FilePath = Annotated[str, Field(max_length=500), AfterValidator(_check_file)]


class Issue(BaseModel):
    """One finding of a reviewer, or one error of a build."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    severity: Literal["blocking", "minor"]
    title: Annotated[Text, Field(min_length=1, max_length=300)]
    detail: Annotated[Text, Field(max_length=8000)] = ""
    file: FilePath | None = None
    line: Annotated[int, Field(ge=1, le=10_000_000)] | None = None


class AgentResult(BaseModel):
    """What an agent reports at the end of its step."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    status: Status
    summary: Annotated[Text, Field(min_length=1, max_length=16_000)]
    artifacts: Annotated[tuple[FilePath, ...], Field(max_length=MAX_ARTIFACTS)] = ()
    """Files it wrote for others to read."""
    issues: Annotated[tuple[Issue, ...], Field(max_length=MAX_ISSUES)] = ()
    plan: dict[str, Any] | None = None
    """Agent orchestrator only: a plan or the choice of a template (plan.py), judged by validation.py."""
    intent: Literal["build", "fix"] | None = None
    """Agent orchestrator:classify only."""
    answer: Annotated[Text, Field(max_length=64_000)] | None = None
    """Agent orchestrator:question, or Research asked to look something up: what the caller gets."""

    @property
    def blocking(self) -> tuple[Issue, ...]:
        """The issues that have to be mended; the others are only told (ruling A36: issue count = these)."""
        return tuple(issue for issue in self.issues if issue.severity == "blocking")


def parse_result(raw: bytes) -> AgentResult:
    """Read the bytes of a `.agent-result.json`.

    Raises:
        ResultInvalidError: the agent's fault; names each field and the rule it breaks, and repeats no value.
    """
    try:
        return AgentResult.model_validate_json(raw)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False, include_context=False)[:MAX_NAMED_ERRORS]
        raise ResultInvalidError("; ".join(_rule(item) for item in found)) from None


def _rule(item: Any) -> str:
    place = ".".join(str(part) for part in item["loc"])[:100] or "the file"
    rule = "is not a field of a result" if item["type"] == "extra_forbidden" else item["msg"]
    return f"{place}: {rule.removeprefix('Value error, ')}"

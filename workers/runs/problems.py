"""What can be wrong with a plan: each problem has a code, the step that it is about, and words for its author.

The words go back to the orchestrator, into events and onto screens. Names in them come from a model, so they are cut
and made printable; values other than names are never repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from pydantic import BaseModel, TypeAdapter, ValidationError

from workers.runs.plan import Plan, TemplateChoice

MAX_PROBLEMS = 30


class ProblemCode(StrEnum):
    """The rules of a plan, each by what breaks it."""

    PLAN_MISSING = "plan_missing"
    MALFORMED = "malformed"
    FORBIDDEN_FIELD = "forbidden_field"
    SECRET = "secret"
    QUESTION_REFUSED = "question_refused"
    TOO_MANY_STEPS = "too_many_steps"
    TOO_MANY_PARTS = "too_many_parts"
    DUPLICATE_ID = "duplicate_id"
    EMPTY_TASK = "empty_task"
    UNKNOWN_AGENT = "unknown_agent"
    NOT_PLANNABLE = "not_plannable"
    UNKNOWN_DEPENDENCY = "unknown_dependency"
    CYCLE = "cycle"
    UNKNOWN_CONTEXT = "unknown_context"
    LATE_CONTEXT = "late_context"
    WRITE_RULE = "write_rule"
    WRITE_OUTSIDE = "write_outside"
    WRITE_OVERLAP = "write_overlap"
    MANDATORY_STEP_MISSING = "mandatory_step_missing"
    UNKNOWN_GATE_STEP = "unknown_gate_step"


class Problem(NamedTuple):
    """One rule that a plan breaks."""

    code: ProblemCode
    step: str | None
    """Id of the step, or None where the problem is the whole plan's."""
    message: str

    def __str__(self) -> str:
        place = f" (step {self.step})" if self.step else ""
        return f"{self.code.value}{place}: {self.message}"


_CHOICE: TypeAdapter[Any] = TypeAdapter(TemplateChoice)


def shown(name: object) -> str:
    """Return a model's word as it may be repeated: short and printable."""
    return _printable(str(name)[:80]) or "(empty)"


def read_plan(raw: dict[str, Any]) -> BaseModel | tuple[Problem, ...]:
    """Read what the orchestrator wrote: a `Plan`, the choice of a template, or what is wrong with its form."""
    try:
        return _CHOICE.validate_python(raw) if "template" in raw else Plan.model_validate(raw)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False, include_context=False)[:MAX_PROBLEMS]
        return tuple(_form_problem(item["type"], item["loc"], item["msg"], raw=raw) for item in found)


def _form_problem(kind: str, place: Sequence[int | str], rule: str, *, raw: dict[str, Any]) -> Problem:
    step, field = _step_at(place, raw), shown(".".join(str(part) for part in place)) if place else "plan"
    if kind == "extra_forbidden":
        message = (
            f"{field} is no part of a plan: agents, order, context and gates are; the service decides everything else"
        )
        return Problem(ProblemCode.FORBIDDEN_FIELD, step, message)
    if place and place[-1] == "task" and kind in ("string_too_short", "missing"):
        return Problem(ProblemCode.EMPTY_TASK, step, "a step needs a task in words")
    return Problem(ProblemCode.MALFORMED, step, f"{field}: {_printable(rule[:200])}")


def _step_at(place: Sequence[int | str], raw: dict[str, Any]) -> str | None:
    """The id that the step at a place claims, if there is one: the whole step may be malformed."""
    match place:
        case ["steps", int(index), *_]:
            step = raw["steps"][index]
            return shown(step["id"]) if isinstance(step, dict) and isinstance(step.get("id"), str) else f"#{index + 1}"
    return None


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else "\ufffd" for character in text)

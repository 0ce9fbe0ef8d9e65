"""What tier 1 asks of a model, and what becomes of its reply: used, asked for again, declined, or left to tier 2."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from gateway.client import Text
from gateway.errors import BudgetExceededError, CallTimeoutError, ProviderError
from routing.jobs import OPEN_QUESTION, Reason
from routing.model_call import way_out
from routing.queues import Tier
from sites.errors import shown
from sites.files import is_built
from sites.links import dead_links, missing_images
from sites.releases import profile_of, refusal_of
from sites.scan.rules import describe_limits
from workers.attempt import Attempt, Prompt
from workers.compute import timed
from workers.handlers.cut_replies import Begun
from workers.inputs import Inputs
from workers.outcomes import Answered, Asked, Candidate, Escalate, Outcome

OutcomeT = TypeVar("OutcomeT")

MAX_QUOTED_CHARACTERS = 6_000
"""Of a refused reply that its author sees again."""


@dataclass(frozen=True)
class Poor:
    """Why a model's reply is unusable."""

    reason: Reason
    detail: str
    replies: Sequence[Mapping[str, Any]] = ()

    def quoted(self) -> str:
        """Return the replies and what is wrong with them, for their author."""
        sent = "\n".join(json.dumps(reply, ensure_ascii=False) for reply in self.replies)[:MAX_QUOTED_CHARACTERS]
        return f"Your last reply was refused:\n{sent}\n\nWhy:\n{self.detail}\nSend it whole again, mended."


_CUT = Poor(Reason.SPEC_INVALID, "the model's reply was cut off at its token limit: write less")


@dataclass(frozen=True)
class Task:
    """What a model is asked for, and what becomes of its reply; functions of modules, for it comes from a child."""

    prompts: Sequence[Prompt]
    """Of calls that are made side by side; mostly one."""
    use: Callable[[Inputs, Sequence[Mapping[str, Any]]], Outcome | Poor | Task]
    """What becomes of its replies; another task is asked instead, or next."""
    otherwise: Callable[[Inputs], Outcome | Poor | Task] | None = None
    """What is handed over where no usable reply came; by default the next tier takes over."""
    doubt: Callable[[Inputs, Candidate], str | None] | None = None
    """What a model may mend of work that is else taken as it is."""


def by_model(attempt: Attempt, task: Task) -> Outcome:
    """Ask a model until a reply can be used or its tries are over, and return what becomes of it."""
    problem, tries, begun = Poor(Reason.SPEC_INVALID, ""), attempt.policy.attempts.spec, None
    for number in range(1, tries + 1):
        again = [Text(begun.request())] if begun else [Text(problem.quoted())] if problem.replies else []
        prompts = [replace(prompt, parts=[*prompt.parts, *again]) for prompt in task.prompts]
        try:
            until = None if task.otherwise is None else attempt.began + attempt.limits.soft_seconds - _CLOSING_SECONDS
            calls = attempt.tool_calls(prompts, until=until)
        except (BudgetExceededError, CallTimeoutError, ProviderError):
            if task.otherwise is None:
                raise
            break
        replies = [begun.joined(call.input) if begun else call.input for call in calls]
        if task.otherwise is not None and not all(call.is_cut for call in calls):  # what came whole is used
            replies = [{} if call.is_cut else reply for call, reply in zip(calls, replies, strict=True)]
        is_cut = any(call.is_cut and reply for call, reply in zip(calls, replies, strict=True))
        begun = Begun.of(replies[0], prompts[0].tool) if is_cut and len(replies) == 1 and number < tries else None
        if begun:
            continue
        may_mend, keys = number < tries, attempt.resources.known_keys
        result = _CUT if is_cut else attempt.compute(_use, task, replies, may_mend=may_mend, known_keys=keys)
        if isinstance(result, Task):
            return by_model(attempt, result)
        if not isinstance(result, Poor):
            return result
        problem = replace(result, replies=replies)
        attempt.kept[:] = [f"{prompts[0].purpose} was tried; nothing usable was kept"]
    return _otherwise(attempt, task, problem)


def _otherwise(attempt: Attempt, task: Task, problem: Poor) -> Outcome:
    if task.otherwise is not None:
        instead = attempt.compute(task.otherwise)
        if isinstance(instead, Task):
            return by_model(attempt, instead)
        if not isinstance(instead, Poor):
            return instead
        problem = instead
    return Escalate(Tier.PATCH, problem.reason, problem.detail)


def _use(
    inputs: Inputs, task: Task, replies: Sequence[Mapping[str, Any]], *, may_mend: bool, known_keys: tuple[str, ...]
) -> Outcome | Poor | Task:
    """Return what becomes of a model's replies; while the model may mend it, what the scan will refuse is poor.

    That holds for what a next call only adds to, as a drawing: whoever makes that could not mend it.
    """
    result = made = task.use(inputs, replies)
    while may_mend and isinstance(made, Task) and made.otherwise is not None:
        made = made.otherwise(inputs)
    if not (may_mend and isinstance(made, Candidate)):
        return result
    if refusal := refused_by_scan(inputs, made, known_keys=known_keys):
        return Poor(Reason.SCAN_REFUSED, refusal)
    doubted = task.doubt(inputs, made) if task.doubt else None
    return Poor(Reason.SPEC_POOR, doubted) if doubted else result


_MOST_LINKS_TOLD = 10
_CLOSING_SECONDS = 3.0
"""What is kept of the soft limit for a site to be built, scanned and shown, where a task can be done without.

On a busy machine 26 new sites took 1.7 seconds at most.
"""


def refused_by_scan(inputs: Inputs, candidate: Candidate, *, known_keys: tuple[str, ...]) -> str:
    """Return what the model that wrote a candidate should mend: what the scan will refuse, and new dead links."""
    assert inputs.site is not None
    with timed("check"):
        refusal = refusal_of(
            inputs.content_store, candidate.files, site=inputs.site, policy=inputs.policy, known_keys=known_keys
        )
        dead = sorted(dead_links(candidate.files) - dead_links(inputs.files))[:_MOST_LINKS_TOLD]
    return "\n".join(part for part in (refusal, *map(str, dead)) if part)


def limits_of(inputs: Inputs) -> str:
    """Return what the site's profile allows, and which pictures are missing, in words for a model."""
    assert inputs.site is not None
    limits = describe_limits(profile_of(inputs.policy, inputs.site))
    missing = (
        [] if is_built(inputs.files) else [shown(name) for name in missing_images(inputs.files)[:_MOST_LINKS_TOLD]]
    )
    return f"{limits} Shown by pages, but no files of the site: {', '.join(missing)}." if missing else limits


_NO_MORE_QUESTIONS = "The owner was asked often enough. Do what is clear, or say in `cannot` why nothing can be done."


def unchanged(inputs: Inputs, answer: str, facts: Mapping[str, Any]) -> Answered | Candidate:
    """Return the outcome of a request that changes nothing; an earlier round's result still awaits approval."""
    if inputs.begun is None:
        return Answered(answer, facts)
    spec = inputs.spec.canonical().encode() if inputs.spec is not None else None
    return Candidate(inputs.files, answer, spec=spec, facts=facts)


def asking(outcome: OutcomeT, reply: Mapping[str, Any]) -> OutcomeT:
    """Return an edit with what its owner is asked beside it: the next round knows it, and policy approves none.

    However often they were asked before: a preview is there, and nothing waits for the answer.
    """
    question = way_out(reply, "ask")
    if not question or not isinstance(outcome, Candidate):
        return outcome
    return replace(outcome, facts={**outcome.facts, OPEN_QUESTION: question, "needs_person": True})


def decline(inputs: Inputs, reply: Mapping[str, Any], *, to: Tier) -> Answered | Asked | Candidate | Escalate | str:
    """Return what follows an edit that the model left empty: an answer, a question, a higher tier, or its feedback.

    Empty if the model said nothing of it.
    """
    if answer := way_out(reply, "answer"):
        return unchanged(inputs, answer, {"how": "a model found nothing to change"})
    if question := way_out(reply, "ask"):
        return Asked(question) if inputs.may_ask else _NO_MORE_QUESTIONS
    if reason := way_out(reply, "cannot"):
        return Escalate(to, Reason.BEYOND_TIER, reason)
    return ""

"""Rounds: a job that continues from one that has ended, with its tier, its budget and its worker's briefing.

Ends are final, so an edit of several rounds is a chain of jobs, each starting from the work of the one before, with one
common budget (H-041).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from routing.decision.router import Mode, Route
from routing.decision.triggers import Debate, Stakes
from routing.errors import FieldError, InvalidJobError
from routing.failures import is_dead_end
from routing.jobs import RESUMABLE, REVISABLE, REVISABLE_RUNS, Reason, State
from routing.policy.platform import Policy
from routing.policy.prices import NANOUSD_PER_USD
from routing.queues import QUEUE_OF_TIER, QueueName, Tier

WORK_SO_FAR = "work-so-far"
"""Rule of a route that was raised to the tier that the existing work needs."""
REPORT_CHARACTERS = 1_500
"""Limit of the last report in a briefing."""
EARLIER_REQUESTS = 4
"""Earlier requests in a briefing: the first and the latest."""
REQUEST_CHARACTERS = 1_000


TRANSCRIPT = "transcript_sha256"
"""Field of what is recorded of a code agent's session, and of what was begun: what it said, in the content store."""


_NEVER_BEGAN = (Reason.INVALID_REQUEST, Reason.UPLOAD_REFUSED)
"""Refusals after which there is nothing to continue."""


class Verb(StrEnum):
    """How a job continues from another."""

    RESUME = "resume"
    REVISE = "revise"
    REPLAY = "replay"
    """The same request, routed again, on the site as it is now; for dead letters."""
    OVERRIDE = "override"
    """The same request on a tier that a person chose, replacing a live or ended job (H-072)."""


class Work(NamedTuple):
    """The work that a round starts from."""

    tier: Tier | None
    """The tier that made it."""
    total_bytes: int
    has_build: bool


class Floor(NamedTuple):
    """The lowest tier that can continue a piece of work."""

    tier: Tier
    because: str


def can_go_on(verb: Verb, state: State, reason: str | None, *, is_run: bool = False) -> bool:
    """Return whether a job in this state can be continued.

    A run is also revised once it is published, as long as its pull request is open; at a gate it is decided instead.
    """
    if verb is Verb.REPLAY:
        return is_dead_end(state, reason)
    if reason in _NEVER_BEGAN:
        return False
    if verb is Verb.RESUME:
        return state in RESUMABLE and reason != Reason.SCAN_REFUSED  # the same request would meet it again
    return state in (REVISABLE_RUNS if is_run else REVISABLE)


def hard_floor(work: Work, policy: Policy) -> Floor:
    """Return the lowest tier that can hold the work at all."""
    fitting = [tier for tier in Tier if work.total_bytes <= policy.queues[QUEUE_OF_TIER[tier]].output_bytes]
    least = min(fitting, default=Tier.AGENT)
    if work.has_build and least < Tier.PATCH:
        return Floor(Tier.PATCH, "the work so far has a build, which the page spec does not run")
    return Floor(least, "the work so far is larger than what a lower tier may put out")


def floor_of(work: Work, policy: Policy) -> Floor:
    """Return the lowest tier to which the rules may route a revision.

    A build by a code agent stays with the agent, because only the build would check a patch of it. Callers may still
    name a lower tier.
    """
    if work.tier is Tier.AGENT and work.has_build:
        return Floor(Tier.AGENT, "a code agent made the work so far, which has a build")
    return hard_floor(work, policy)


def raise_route(route: Route, floor: Floor) -> Route:
    """Return the route raised to the floor, if it is lower."""
    if route.tier is None or route.tier >= floor.tier:
        return route
    return route.model_copy(
        update={
            "tier": floor.tier,
            "queue": QUEUE_OF_TIER[floor.tier],
            "rule": WORK_SO_FAR,
            "cause": "override",
            "reason": f"{floor.because[:1].upper()}{floor.because[1:]}.",
        }
    )


def check_changes_something(route: Route) -> None:
    """Refuse a revision that changes nothing: the work would be lost for a question.

    Raises:
        InvalidJobError: the caller's fault.
    """
    if route.mode is Mode.ANSWER or route.trivial or route.read_only or route.tier is None:
        raise InvalidJobError((FieldError("text", "has to say what to change; a question is a job of its own"),))


def check_tier(route: Route, floor: Floor) -> None:
    """Refuse a tier that cannot hold the work.

    Raises:
        InvalidJobError: the caller's fault.
    """
    if route.tier is not None and route.tier < floor.tier:
        name = floor.tier.name.lower()
        raise InvalidJobError((FieldError("tier", f"has to be {name} or above: {floor.because}"),))


def fit_route(route: Route, work: Work, policy: Policy, *, is_chosen: bool) -> Route:
    """Return the route on a tier that can continue the work.

    Args:
        route: the route of the request alone.
        work: what it starts from.
        policy: holds each tier's output limit.
        is_chosen: whether a person named the tier, who may go below `floor_of`.

    Raises:
        InvalidJobError: the caller's fault: the named tier cannot hold the work.
    """
    if is_chosen:
        check_tier(route, hard_floor(work, policy))
        return route
    return raise_route(route, floor_of(work, policy))


def higher_stakes(first: str | None, second: Stakes | None) -> Stakes | None:
    """Return the higher of two stakes: a small revision of risky work is still risky."""
    order = [None, Stakes.MEDIUM, Stakes.HIGH]
    previous = Stakes(first) if first in {stakes.value for stakes in Stakes} else None
    return max(previous, second, key=order.index)


def choose_resume_queue(
    *, tier: int | None, queue: str, route: Mapping[str, Any], is_debated: bool
) -> QueueName | None:
    """Return the queue of a resumed job: its tier's, or intake if its debate is still due; None if it was unbound."""
    if queue == QueueName.INTAKE and not is_debated and route.get("debate") == Debate.PLANNING.value:
        return QueueName.INTAKE
    if tier is not None:
        return QUEUE_OF_TIER[Tier(tier)]
    place = QueueName(str(route.get("queue", queue)))
    return None if place is QueueName.INTAKE else place


def added_nanousd(budget_usd: float, policy: Policy, *, is_run: bool = False) -> int:
    """Return a round's additional budget in nanodollars.

    Raises:
        InvalidJobError: the caller's fault: the policy allows less for one job or run.
    """
    most = policy.budgets.run_usd if is_run else policy.budgets.job_usd
    if budget_usd > most:
        rule = f"must not be more than {most:g}, what one job may cost here"
        raise InvalidJobError((FieldError("budget_usd", rule),))
    return round(budget_usd * NANOUSD_PER_USD)


def quote_answers(answers: Sequence[Mapping[str, str]]) -> str:
    """Return what the owner was asked at work and said; the questions are a model's, and so data."""
    return "\n\n".join(
        f"The owner was asked, as data: <question>{_one_line(each['question'])}</question>\n"
        f"The owner answered:\n{each['answer']}"
        for each in answers
    )


def work_begun(result: Mapping[str, Any], *, report: str, keeps: bool) -> dict[str, Any]:
    """Return the `begun` of whoever continues the same request.

    Args:
        result: of the job that ended, or has to wait.
        report: why.
        keeps: whether its own work was kept; what it had itself been given otherwise stays what was begun.
    """
    begun = {**(result.get("begun") or {}), "report": report}
    if not keeps:
        return {**begun, "is_kept": bool(begun.get("is_kept"))}
    begun.pop(TRANSCRIPT, None)
    said = (result.get("agent") or {}).get(TRANSCRIPT)
    return {**begun, "is_kept": True} | ({TRANSCRIPT: said} if said else {})


_KEPT = (
    "This work was begun and stopped before it was done. The files are as they were left then: look at what is there, "
    "do not begin anew, and finish it."
)
_NOT_KEPT = "This was tried before and nothing of it was kept: the files are as they were before."


def brief_worker(begun: Mapping[str, Any]) -> str:
    """Return what a round's worker needs to know besides its request; empty without earlier rounds.

    Earlier reports are quoted as data, because a model wrote part of them.
    """
    if not begun:
        return ""
    parts = []
    if earlier := [str(text) for text in begun.get("earlier", ())]:
        parts.append(
            "The files already hold unpublished work that was done for these earlier requests:\n"
            f"{_listed(earlier)}\nKeep that work but for what is taken back, and change only what is asked now."
        )
    if asked := str(begun.get("asked", "")):
        parts.append(f"With its preview the owner was asked, as data: <question>{_one_line(asked)}</question>")
    if not_done := [str(text) for text in begun.get("not_done", ())]:
        parts.append(
            f"This was asked for too, but was stopped, and the files hold nothing of it:\n{_listed(not_done)}\n"
            "Do only what of it is asked for now."
        )
    if cut_short := str(begun.get("cut_short", "")):
        parts.append(f"The last of them ended early, so its work may be incomplete. {_quoted(cut_short)}")
    if report := str(begun.get("report", "")):
        how = _KEPT if begun.get("is_kept") else _NOT_KEPT
        parts.append(f"{how} {_quoted(report)}")
    return "\n\n".join(parts)


def _listed(requests: Sequence[str]) -> str:
    return "\n".join(f"- {' '.join(text.split())[:REQUEST_CHARACTERS]}" for text in requests)


def _quoted(report: str) -> str:
    """Return a report as data that cannot contain its own end tag."""
    return f"What was reported, as data: <report>{_one_line(report)}</report>"


def _one_line(text: str) -> str:
    return " ".join(text.split())[:REPORT_CHARACTERS].replace("</", "< /")


def earlier_requests(prompts: Sequence[str]) -> list[str]:
    """Return the session's requests for a briefing: the first and the latest."""
    distinct = [prompt for place, prompt in enumerate(prompts) if prompt not in prompts[:place]]
    if len(distinct) <= EARLIER_REQUESTS:
        return distinct
    return [distinct[0], *distinct[1 - EARLIER_REQUESTS :]]

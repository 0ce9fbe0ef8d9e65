"""A job that goes on from one that is over: which may, on which tier, at what cap, and what its worker is told.

An end is final, so an edit that takes several rounds is a chain of jobs: each starts from what the one before it kept,
and all of them are on one bill (H-041).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from routing.decision.router import Mode, Route
from routing.decision.triggers import Debate, Stakes
from routing.errors import FieldError, InvalidJobError
from routing.failures import is_dead_end
from routing.jobs import RESUMABLE, REVISABLE, Reason, State
from routing.policy.platform import Policy
from routing.policy.prices import NANOUSD_PER_USD
from routing.queues import QUEUE_OF_TIER, QueueName, Tier

WORK_SO_FAR = "work-so-far"
"""The rule of a route that the rules had put on a lower tier than the work so far needs."""
REPORT_CHARACTERS = 1_500
"""So much of the last report a new round is shown."""
EARLIER_REQUESTS = 4
"""So many of a session's requests a new round is shown: the first one and the latest."""
REQUEST_CHARACTERS = 1_000


class Verb(StrEnum):
    """How a job goes on from another one."""

    RESUME = "resume"
    REVISE = "revise"
    REPLAY = "replay"
    """The same request once more, decided anew, on the site as it is now: for what a defect or a fault ended."""
    OVERRIDE = "override"
    """The same request once more on the tier that a person chose, in place of a job that is live or over (H-072)."""


class Work(NamedTuple):
    """What a new round starts from."""

    tier: Tier | None
    """The tier of the round that made it."""
    total_bytes: int
    has_build: bool


class Floor(NamedTuple):
    """The lowest tier that can go on with a piece of work."""

    tier: Tier
    because: str


def can_go_on(verb: Verb, state: State, reason: str | None) -> bool:
    """Tell whether a job in this state can be gone on from."""
    if verb is Verb.REPLAY:
        return is_dead_end(state, reason)
    if reason == Reason.INVALID_REQUEST:  # it never was a job
        return False
    return state in (RESUMABLE if verb is Verb.RESUME else REVISABLE)


def hard_floor(work: Work, policy: Policy) -> Floor:
    """Return the lowest tier that can hold a piece of work at all, whoever asks for it."""
    fitting = [tier for tier in Tier if work.total_bytes <= policy.queues[QUEUE_OF_TIER[tier]].output_bytes]
    least = min(fitting, default=Tier.AGENT)
    if work.has_build and least < Tier.PATCH:
        return Floor(Tier.PATCH, "the work so far has a build, which the page spec does not run")
    return Floor(least, "the work so far is larger than what a lower tier may put out")


def floor_of(work: Work, policy: Policy) -> Floor:
    """Return the lowest tier on which the rules may put a revision.

    What a code agent made with a build stays with it: its sources are its own, and a patch written without seeing them
    run would be judged by the build alone. A caller who knows better names the tier.
    """
    if work.tier is Tier.AGENT and work.has_build:
        return Floor(Tier.AGENT, "a code agent made the work so far, which has a build")
    return hard_floor(work, policy)


def raise_to(route: Route, floor: Floor) -> Route:
    """Return a route that is on no lower tier than the floor; what nobody decides any more is no default either."""
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
    """Refuse a revision that orders no change of the site: what it would send back would be lost for a question.

    Raises:
        InvalidJobError: the caller's fault.
    """
    if route.mode is Mode.ANSWER or route.trivial or route.read_only or route.tier is None:
        raise InvalidJobError((FieldError("text", "has to say what to change; a question is a job of its own"),))


def check_tier(route: Route, floor: Floor) -> None:
    """Refuse a tier that cannot hold the work so far.

    Raises:
        InvalidJobError: the caller's fault.
    """
    if route.tier is not None and route.tier < floor.tier:
        name = floor.tier.name.lower()
        raise InvalidJobError((FieldError("tier", f"has to be {name} or above: {floor.because}"),))


def fit_to(route: Route, work: Work, policy: Policy, *, is_chosen: bool) -> Route:
    """Return a route on a tier that can go on with the work so far.

    Args:
        route: as the rules decide on the request alone.
        work: what it starts from.
        policy: says what each tier may put out.
        is_chosen: whether a person named the tier, and thereby may go below `floor_of`.

    Raises:
        InvalidJobError: the caller's fault: the tier that was named cannot hold the work.
    """
    if is_chosen:
        check_tier(route, hard_floor(work, policy))
        return route
    return raise_to(route, floor_of(work, policy))


def higher_stakes(first: str | None, second: Stakes | None) -> Stakes | None:
    """Return the higher of two stakes: a small revision of risky work still is risky."""
    order = [None, Stakes.MEDIUM, Stakes.HIGH]
    known = Stakes(first) if first in {stakes.value for stakes in Stakes} else None
    return max(known, second, key=order.index)


def place_of_resumed(*, tier: int | None, queue: str, route: Mapping[str, Any], is_debated: bool) -> QueueName | None:
    """Return the queue on which a resumed job waits: that of its tier, or intake for a debate that it still owes.

    None for a job that was bound to nothing when it ended: nobody knows yet where it belongs.
    """
    if queue == QueueName.INTAKE and not is_debated and route.get("debate") == Debate.PLANNING.value:
        return QueueName.INTAKE
    if tier is not None:
        return QUEUE_OF_TIER[Tier(tier)]
    place = QueueName(str(route.get("queue", queue)))
    return None if place is QueueName.INTAKE else place


def added_nanousd(budget_usd: float, policy: Policy, *, is_run: bool = False) -> int:
    """Return the money that a job which goes on gets on top of what its bill has spent, in nanodollars.

    Raises:
        InvalidJobError: the caller's fault: more than one job, or one run, may cost here.
    """
    most = policy.budgets.run_usd if is_run else policy.budgets.job_usd
    if budget_usd > most:
        rule = f"must not be more than {most:g}, what one job may cost here"
        raise InvalidJobError((FieldError("budget_usd", rule),))
    return round(budget_usd * NANOUSD_PER_USD)


_KEPT = (
    "This work was begun and stopped before it was done. The files are as they were left then: look at what is there, "
    "do not begin anew, and finish it."
)
_NOT_KEPT = "This was tried before and nothing of it was kept: the files are as they were before."


def brief(begun: Mapping[str, Any]) -> str:
    """Return what a round's worker has to know beside its request; empty for a job that begins something.

    What earlier rounds reported is quoted as data: a model wrote part of it.
    """
    if not begun:
        return ""
    parts = []
    if earlier := [str(text) for text in begun.get("earlier", ())]:
        listed = "\n".join(f"- {' '.join(text.split())[:REQUEST_CHARACTERS]}" for text in earlier)
        parts.append(
            "The files already hold unpublished work that was done for these earlier requests:\n"
            f"{listed}\nKeep that work, and change only what is asked now."
        )
    if cut_short := str(begun.get("cut_short", "")):
        parts.append(f"The last of them ended early, so its work may be incomplete. {_quoted(cut_short)}")
    if report := str(begun.get("report", "")):
        how = _KEPT if begun.get("is_kept") else _NOT_KEPT
        parts.append(f"{how} {_quoted(report)}")
    return "\n\n".join(parts)


def _quoted(report: str) -> str:
    """Return a report as data; the mark that ends it cannot stand within it."""
    said = " ".join(report.split())[:REPORT_CHARACTERS].replace("</", "< /")
    return f"What was reported, as data: <report>{said}</report>"


def earlier_requests(prompts: Sequence[str]) -> list[str]:
    """Return the requests of a session that its next round is told of: the first, and the latest after it."""
    distinct = [prompt for place, prompt in enumerate(prompts) if prompt not in prompts[:place]]
    if len(distinct) <= EARLIER_REQUESTS:
        return distinct
    return [distinct[0], *distinct[1 - EARLIER_REQUESTS :]]

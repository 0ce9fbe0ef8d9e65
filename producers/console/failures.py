"""Why a job did not succeed, in a sentence, and what a person can do about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from producers.use_cases.jobs import JobView
from routing.jobs import FAILURES, Reason, State
from routing.rounds import Verb, can_go_on

_SMALLER = "Ask for less at once, or choose a higher tier."
_AGAIN = "It was not the request's fault: try again."
_OPERATOR = "An operator has to look at it; then try again."
ADVICE: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        Reason.INVALID_REQUEST: ("The request breaks a rule", "Submit it again as the rule asks."),
        Reason.NOT_AVAILABLE: ("This installation cannot do it", _OPERATOR),
        Reason.SPEC_INVALID: ("The model's page was not valid, twice", "Repeat it on the tier patch."),
        Reason.SPEC_POOR: ("The new page lost what it had to keep", "Repeat it on the tier patch."),
        Reason.BEYOND_TIER: ("The request needs a higher tier", "Repeat it on a higher tier."),
        Reason.NOT_SPEC_MANAGED: ("The page is not made from a spec", "Repeat it on the tier patch."),
        Reason.PATCH_INVALID: (
            "The change fits no place of the files",
            "Name the place more exactly, or repeat it as agent.",
        ),
        Reason.PATCH_REFUSED: ("The change touches what it may not", "Ask for it without those files."),
        Reason.COMMAND_REFUSED: ("The command is not allowed", "Ask in plain words instead."),
        Reason.AGENT_FAILED: ("The agent gave up", _SMALLER),
        Reason.AGENT_BLOCKED: ("The agent cannot go on alone", "Say what it asks for in a revision."),
        Reason.REWORK_EXHAUSTED: ("It was reworked as often as allowed", _SMALLER),
        Reason.OUTPUT_REFUSED: ("What it put out was refused", "Read the cause above, and ask for it differently."),
        Reason.UPLOAD_REFUSED: ("The upload cannot become a site", "Mend what is named above, and import it again."),
        Reason.BUILD_FAILED: (
            "The site's build fails with the change",
            "Read the build's last lines above, then revise.",
        ),
        Reason.BUILD_SLOW: ("The site's build took too long", "Make the build faster, or raise the queue's time."),
        Reason.BOX_FAILED: ("The box it worked in failed", _AGAIN),
        Reason.SERVICE_FAILED: (
            "A service that the project's tests need failed",
            "Read its last lines above; its settings stand in the project's file and in the operator's policy.",
        ),
        Reason.RESOURCE_LIMIT: ("It needed more memory or processes than a box has", _SMALLER),
        Reason.TIME_LIMIT: ("Its time was over", "What it had is kept: resume it, or ask for less at once."),
        Reason.COST_CAP: ("Its budget is used up", "What it had is kept: resume it with more money."),
        Reason.OUTPUT_CAP: ("It put out more than its queue allows", _SMALLER),
        Reason.SCAN_REFUSED: ("The scan refused what it made", "Revise it: the findings say what has to go."),
        Reason.PUBLISH_CONFLICT: (
            "The site changed in the meantime",
            "Repeat it: it starts from the site as it is now.",
        ),
        Reason.PUBLISH_FAILED: ("Publishing failed; the live site is unchanged", _AGAIN),
        Reason.DEBATE_STOPPED: ("The debate about it advised against it", "Change the request as the debate says."),
        Reason.DEBATE_ESCALATED: ("The debate wants a person to decide", "Decide, and submit it with a chosen tier."),
        Reason.QUEUE_EXPIRED: ("It waited too long in its queue", "Try again when the queue is shorter."),
        Reason.QUEUE_FULL: ("Its queue is full", "Try again when the queue is shorter."),
        Reason.WORKER_LOST: ("Workers died over it, more than once", _OPERATOR),
        Reason.WORKER_STOPPED: ("Its worker was stopped", _AGAIN),
        Reason.NO_PROVIDER_KEY: ("No provider's key is set for this tenant", "Set a key, then try again."),
        Reason.PROVIDER_BUSY: ("The model's provider is overloaded", "Try again in some minutes."),
        Reason.PROVIDER_ERROR: ("The model's provider failed", "Try again once the provider works."),
        Reason.GATEWAY_UNREACHABLE: ("The gateway could not be reached", _OPERATOR),
        Reason.LEDGER_UNREACHABLE: ("The ledger could not be reached", _OPERATOR),
        Reason.REMOTE_UNREACHABLE: ("The code's remote could not be reached", "Check the remote, then try again."),
        Reason.STORAGE_UNAVAILABLE: ("The content store took no files", _OPERATOR),
        Reason.INTERNAL_ERROR: ("Pointsman itself failed", _OPERATOR),
    }
)
"""Cause and advice by reason. Reasons that are decisions of people need neither."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A job that ended without what was asked for."""

    cause: str
    advice: str
    can_retry: bool
    """Whether its request may be repeated on the same bill."""
    can_resume: bool
    """Whether it may go on from what was kept, with more money."""
    left_nanousd: int
    """What the bill has left: the most that a retry costs."""
    prefers_resume: bool
    """Whether going on is the better way: nothing but money or time was missing."""


def failure_of(view: JobView) -> Failure | None:
    """Return why a job failed and what to do; None if it did not."""
    if view.state not in FAILURES:
        return None
    cause, advice = ADVICE.get(view.reason or "", ("It did not succeed", _OPERATOR))
    is_free = view.continued_as is None
    is_spent = view.state == State.BUDGET_EXCEEDED
    left = max(0, view.bill.cap_nanousd - view.bill.session_spent_nanousd)
    return Failure(
        cause=cause,
        advice=advice,
        can_retry=is_free and left > 0 and not is_spent and can_go_on(Verb.REPLAY, view.state, view.reason),
        can_resume=is_free and view.project is None and can_go_on(Verb.RESUME, view.state, view.reason),
        left_nanousd=left,
        prefers_resume=view.reason in (Reason.COST_CAP, Reason.TIME_LIMIT),
    )

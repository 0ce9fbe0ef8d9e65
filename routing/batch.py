"""Routes for a file of prompts: one JSON object in, one out (`pointsman route --batch`)."""

from __future__ import annotations

from typing import Any

from routing.policy import Policy, platform_policy
from routing.router import Route, Signals, SiteSignals, decide
from routing.vocabulary import Vocabulary


def signals_of(line: dict[str, Any]) -> Signals:
    """Read the signals of one line; fields that are no signals are ignored."""
    site = line.get("site")
    return Signals(
        prompt=line["prompt"],
        site=SiteSignals.model_validate(site) if site is not None else None,
        new_site=bool(line.get("new_site")),
        project=bool(line.get("project")),
        preference=line.get("preference"),
        advanced_edit=bool(line.get("advanced_edit")),
        tier=line.get("tier"),
    )


def route_fields(route: Route) -> dict[str, Any]:
    """Return a route as the fields that `pointsman route` prints."""
    return {
        "mode": route.mode.value,
        "confidence": route.confidence.value,
        "intent": route.intent.value,
        "tier": route.tier.value if route.tier is not None else None,
        "queue": route.queue.value,
        "debate": route.debate.value,
        "stakes": route.stakes.value if route.stakes is not None else None,
        "trivial": route.trivial,
        "triggers": [trigger.shown for trigger in route.triggers],
        "reason": route.reason,
        "classifier": route.classifier,
    }


def batch_line(
    line: dict[str, Any], policy: Policy | None = None, *, vocabulary: Vocabulary | None = None
) -> dict[str, Any]:  # fmt: skip
    """Decide one line of a batch.

    Args:
        line: the prompt and its signals.
        policy: the policy in force; the shipped one by default.
        vocabulary: the words to look for; the shipped ones by default.

    Raises:
        KeyError: the caller's fault; the line has no prompt.
        pydantic.ValidationError: the caller's fault; a signal has the wrong type.
    """
    return {"id": line.get("id"), **route_fields(decide(signals_of(line), policy or platform_policy(), vocabulary))}

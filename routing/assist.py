"""A small model's word where the rules could not tell: seed 000's classifier V2 and seed 003's intent (ruling A5).

The rules decide first, always. A model is asked only when they ended in their default with no word of tier 1's
vocabulary, and it may only choose among candidates. Whatever is wrong with its reply, the rules' route stands.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from routing.calls import (
    ConstrainedCall,
    Line,
    Redact,
    Reply,
    excerpt,
    forced_tool,
    load_prompt,
    parse_reply,
    shorten,
    to_json,
)
from routing.queues import QUEUE_OF_TIER, Tier
from routing.router import Intent, Lane, Mode, Route, Signals, SiteSignals

ASSISTED = "v2"
RULE = "V2"
REASON_LIMIT = 200
"""Characters of a model's reason that are kept."""
PROMPT_LIMIT_BYTES = 1400
"""How much of a prompt the call shows: with it the call stays below 5 % of the cheapest tier's cap (H-066)."""

_UNDECIDED_RULE = "V1-4"


class Classification(Reply):
    """What V2 says about a prompt (H-064)."""

    tier: Annotated[int, Field(ge=Tier.SPEC, le=Tier.AGENT)]
    reason: Line
    estimated_complexity: Literal["low", "medium", "high"]


class IntentReply(Reply):
    """What the intent call says: an ACTION is never a question."""

    intent: Literal["build", "fix"]


def wants_tier(route: Route, *, enabled: bool) -> bool:
    """Tell whether V2 is asked for the tier: only where V1's rule 4 found no word of tier 1's vocabulary.

    Args:
        route: the rules' decision.
        enabled: whether V2 is switched on.
    """
    return enabled and _is_open(route) and route.rule == _UNDECIDED_RULE and route.cause == "default"


def wants_intent(route: Route, *, enabled: bool, always: bool) -> bool:
    """Tell whether the intent call is made (P-011).

    Args:
        route: the rules' decision.
        enabled: whether it is asked where the rules found no word of repair and a pipeline depends on it.
        always: seed 003's literal reading: it is asked for every open ACTION.
    """
    if not _is_open(route):
        return False
    return always or (enabled and route.lane is Lane.TICKET and route.intent is Intent.BUILD)


def wants_assist(route: Route, *, enabled: bool, intent_always: bool) -> bool:
    """Tell whether any call of this module is made for a route.

    Args:
        route: the rules' decision.
        enabled: whether V2 is switched on.
        intent_always: whether every ACTION's intent is asked for (INTENT_CLASSIFIER=always).
    """
    return wants_tier(route, enabled=enabled) or wants_intent(route, enabled=enabled, always=intent_always)


def _is_open(route: Route) -> bool:
    """Tell whether a model may have a say: the work changes something, and nobody chose its tier."""
    is_work = route.mode is Mode.ACTION and not route.trivial and not route.read_only and route.lane is not Lane.NONE
    return is_work and route.cause not in ("explicit", "override")


def is_new_site(signals: Signals) -> bool:
    """Tell whether there is no page yet."""
    return signals.new_site or (signals.site is not None and signals.site.files == 0)


def candidates(signals: Signals) -> tuple[Tier, ...]:
    """Return the tiers that V2 may choose: where there is no page yet, there is nothing to patch."""
    return (Tier.SPEC, Tier.AGENT) if is_new_site(signals) else tuple(Tier)


def assist_call(signals: Signals) -> ConstrainedCall:
    """Return the call that classifies a site edit (H-062, H-063)."""
    tool = forced_tool("classify", "Record the least tier that can do the whole edit.", Classification)
    choice = {"type": "integer", "enum": [tier.value for tier in candidates(signals)]}
    tool["input_schema"]["properties"]["tier"] = choice
    return _call("assist", signals, tool=tool)


def intent_call(signals: Signals) -> ConstrainedCall:
    """Return the call that tells building from fixing."""
    return _call("intent", signals, tool=forced_tool("classify_intent", "Record what is wanted.", IntentReply))


def _call(prompt: str, signals: Signals, *, tool: dict[str, Any]) -> ConstrainedCall:
    site = signals.site or SiteSignals()
    payload = {
        "prompt": excerpt(signals.prompt, limit_bytes=PROMPT_LIMIT_BYTES),
        "current_site": {"files": site.files, "has_js": site.has_js, "has_build": site.has_build},
    }
    return ConstrainedCall(system=load_prompt(prompt), question=to_json(payload), tool=tool)


def merge_assist(route: Route, reply: object, *, signals: Signals, redact: Redact) -> Route:
    """Return the route with V2's tier, or the rules' route as it is: its `classifier` says which.

    Args:
        route: the rules' decision; one that is not open to V2 comes back unchanged.
        reply: the tool's input as the model wrote it, or None when the call failed.
        signals: what the rules decided on.
        redact: takes secrets out of the model's reason.
    """
    said = parse_reply(reply, Classification)
    if said is None or not wants_tier(route, enabled=True):
        return route
    tier = Tier(said.tier)
    if tier not in candidates(signals) or route.tier is None or tier < route.tier:
        return route
    return route.model_copy(
        update={
            "tier": tier,
            "queue": QUEUE_OF_TIER[tier],
            "rule": RULE,
            "reason": shorten(said.reason, REASON_LIMIT, redact=redact),
            "classifier": ASSISTED,
        }
    )


def merge_intent(route: Route, reply: object) -> Route:
    """Return the route with the intent that a model named, or as it is: nothing but the intent can change.

    Args:
        route: the rules' decision, or V2's.
        reply: the tool's input as the model wrote it, or None when the call failed.
    """
    said = parse_reply(reply, IntentReply)
    if said is None or not _is_open(route):
        return route
    return route.model_copy(update={"intent": Intent(said.intent)})

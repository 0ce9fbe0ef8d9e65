"""The soft router: a model that follows written rules decides the mode, while hard routing is off (R-006, ruling A33).

Only the mode is the model's. Trivial commands and a tier that the caller chose never reach it, everything that follows
from the mode comes from the rules, and a reply that is missing or invalid means ACTION that changes nothing unasked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from routing.assist import is_new_site
from routing.calls import ConstrainedCall, Reply, excerpt, forced_tool, load_prompt, parse_reply, to_json
from routing.planning import Debate
from routing.policy import Policy
from routing.queues import QueueName
from routing.reading import read
from routing.router import Intent, Mode, Route, RouteTarget, Signals, decide
from routing.tiering import choose_tier
from routing.triggers import Confidence
from routing.vocabulary import Vocabulary, shipped_vocabulary

SOFT = "soft"
"""The classifier of a mode that the model decided."""
SOFT_DEFAULT = "soft-default"
"""The classifier of a mode that became ACTION because the model said nothing usable."""
PATTERN_SOFT = "Soft router (prompt-based)"
PROMPT_LIMIT_BYTES = 2000

SYSTEM_PROMPTS: Mapping[Mode, str] = {Mode.ACTION: "swarm_orchestrator", Mode.ANSWER: "direct_answer"}
"""Names of the prompt files that the two modes work with (R-093)."""


class ModeReply(Reply):
    """What the soft router says."""

    mode: Literal["ANSWER", "ACTION"]


def is_hard_routing(value: str | None) -> bool:
    """Read ENABLE_HARD_ROUTING: on unless it is exactly `false`. Callers read it for every decision.

    Args:
        value: the variable's text, None when it is not set.
    """
    return value != "false"


def system_prompt(mode: Mode) -> str:
    """Return the system prompt that work of a mode begins with (R-093, R-095)."""
    return load_prompt(SYSTEM_PROMPTS[mode])


def wants_soft(route: Route) -> bool:
    """Tell whether the soft router is asked: not for a trivial command, nor where the caller chose a tier (A14)."""
    return not route.trivial and route.cause != "override"


def soft_call(signals: Signals) -> ConstrainedCall:
    """Return the call that decides the mode by the shipped rules."""
    return ConstrainedCall(
        system=load_prompt("router"),
        question=to_json({"message": excerpt(signals.prompt, limit_bytes=PROMPT_LIMIT_BYTES)}),
        tool=forced_tool("route", "Record the mode of the message.", ModeReply),
    )


def parse_soft(reply: object) -> Mode:
    """Return the mode that the model named; ACTION when it named none."""
    said = parse_reply(reply, ModeReply)
    return Mode(said.mode) if said is not None else Mode.ACTION


def soft_route(
    route_by_rules: Route, reply: object, *, signals: Signals, policy: Policy, vocabulary: Vocabulary | None = None
) -> Route:
    """Return the route of a request whose mode the model decides.

    Args:
        route_by_rules: what the hard router would have decided.
        reply: the tool's input as the model wrote it, or None when the call failed.
        signals: what the rules decided on.
        policy: the policy in force.
        vocabulary: the words that the rules looked for; the shipped ones by default.
    """
    if not wants_soft(route_by_rules):
        return route_by_rules
    is_valid = parse_reply(reply, ModeReply) is not None
    mode = parse_soft(reply)
    if mode is route_by_rules.mode:
        return route_by_rules.model_copy(update={"classifier": SOFT if is_valid else SOFT_DEFAULT})
    if mode is Mode.ANSWER:
        return _as_answer(route_by_rules)
    if is_valid:
        return _as_action(signals, policy, vocabulary or shipped_vocabulary())
    return _as_looking(route_by_rules)


def _as_answer(route: Route) -> Route:
    """Return an ANSWER in the place of an ACTION; it shows no triggers (A9)."""
    return route.model_copy(
        update={
            "mode": Mode.ANSWER,
            "confidence": Confidence.NONE,
            "intent": Intent.QUESTION,
            "tier": None,
            "queue": QueueName.ANSWER,
            "debate": Debate.NONE,
            "stakes": None,
            "triggers": (),
            "rule": SOFT,
            "reason": "The soft router took it for a question.",
            "cause": "default",
            "scope": "single_section",
            "pattern": PATTERN_SOFT,
            "target": RouteTarget.DIRECT_RESPONSE,
            "read_only": True,
            "classifier": SOFT,
        }
    )


def _as_action(signals: Signals, policy: Policy, vocabulary: Vocabulary) -> Route:
    """Return what the rules make of the request once it is ACTION: its tier, its triggers and its debate."""
    explicit = signals.advanced_edit or signals.preference == "agent"
    choice = choose_tier(read(signals.prompt, vocabulary), explicit=explicit, is_new=is_new_site(signals))
    forced = decide(signals.model_copy(update={"tier": choice.tier}), policy, vocabulary)
    has_tier = forced.tier is not None
    return forced.model_copy(
        update={
            "rule": choice.rule if has_tier else SOFT,
            "cause": choice.cause if has_tier else "default",
            "scope": choice.scope,
            "reason": "The soft router took it for an order.",
            "classifier": SOFT,
        }
    )


def _as_looking(route: Route) -> Route:
    """Return an ACTION that changes nothing: the rules saw no order in the request, and the model named none."""
    return route.model_copy(
        update={
            "mode": Mode.ACTION,
            "confidence": Confidence.WEAK,
            "queue": QueueName.ANSWER,
            "debate": Debate.BYPASS,
            "rule": SOFT_DEFAULT,
            "reason": "Nobody could tell whether it is a question, so it is looked into and nothing is changed.",
            "cause": "default",
            "pattern": "",
            "target": RouteTarget.SWARM_ORCHESTRATOR,
            "read_only": True,
            "classifier": SOFT_DEFAULT,
        }
    )

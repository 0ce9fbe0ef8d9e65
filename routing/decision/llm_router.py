"""The soft router: a model that follows written rules decides the mode, while hard routing is off (R-006, ruling A33).

Only the mode is the model's. Trivial commands and a tier that the caller chose never reach it, everything that follows
from the mode comes from the rules, and a reply that is missing or invalid means ACTION that changes nothing unasked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from routing.decision.router import Intent, Lane, Mode, Route, RouteTarget, Signals, SiteSignals, decide
from routing.decision.tier_rules import choose_tier
from routing.decision.triggers import Confidence, Debate
from routing.jobs import State
from routing.model_call import (
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
from routing.policy.platform import Policy
from routing.prompt.parsed_prompt import read
from routing.prompt.vocabulary import Vocabulary, shipped_vocabulary
from routing.queues import QUEUE_OF_TIER, QueueName, Tier

# A small model's word where the rules could not tell: seed 000's classifier V2 and seed 003's intent (ruling A5).
#
# The rules decide first, always. A model is asked only when they ended in their default with no word of tier 1's
# vocabulary, and it may only choose among candidates. Whatever is wrong with its reply, the rules' route stands.

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


SOFT = "soft"
"""The classifier of a mode that the model decided."""
SOFT_DEFAULT = "soft-default"
"""The classifier of a mode that became ACTION because the model said nothing usable."""
PATTERN_SOFT = "Soft router (prompt-based)"
ROUTED_PROMPT_LIMIT_BYTES = 2000

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
        question=to_json({"message": excerpt(signals.prompt, limit_bytes=ROUTED_PROMPT_LIMIT_BYTES)}),
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


# Where a decided job goes first: straight to its queue, or to intake because a model has a say or a debate is due.

HARD_ROUTING = "ENABLE_HARD_ROUTING"
INTENT_CLASSIFIER = "INTENT_CLASSIFIER"
"""Names that seeds 002 and 003 give these switches; they are read for every decision, so a change holds at once."""


def switches_of(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the switches alone, as they are now: nothing else of an environment travels with a decision."""
    return {name: environment[name] for name in (HARD_ROUTING, INTENT_CLASSIFIER) if name in environment}


class RouteRules(NamedTuple):
    """What an installation decides a route by, beside its policy."""

    switches: Mapping[str, str]
    vocabulary: Vocabulary
    """The words to look for."""


class Stage(NamedTuple):
    """A state to wait in, and the queue to wait on."""

    state: State
    queue: QueueName


def is_soft(route: Route, environment: Mapping[str, str]) -> bool:
    """Tell whether the soft router decides this request's mode (R-098, A33)."""
    return not is_hard_routing(environment.get(HARD_ROUTING)) and wants_soft(route)


def asks_intent_always(environment: Mapping[str, str]) -> bool:
    """Tell whether seed 003's literal reading is switched on: a model is asked for every intent."""
    return environment.get(INTENT_CLASSIFIER) == "always"


def work_queue(route: Route) -> QueueName:
    """Return the queue on which a routed job waits for its work: a run is taken forward on `control`, step by step."""
    return QueueName.CONTROL if route.lane is Lane.TICKET and not route.trivial else route.queue


def first_stage(route: Route, policy: Policy, *, environment: Mapping[str, str]) -> Stage:
    """Return where a job waits first. What needs no model never waits on intake.

    Args:
        route: the rules' decision, stored before any model is called.
        policy: says whether V2 is switched on.
        environment: holds the switches of seeds 002 and 003.
    """
    always = asks_intent_always(environment)
    if is_soft(route, environment) or wants_assist(route, enabled=policy.assist.enabled, intent_always=always):
        return Stage(State.RECEIVED, QueueName.INTAKE)
    if route.debate is Debate.PLANNING:
        return Stage(State.DEBATING, QueueName.INTAKE)
    return Stage(State.QUEUED, work_queue(route))

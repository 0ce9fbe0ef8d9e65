"""Model calls that assist routing: tier and intent where rules cannot tell, and the mode if hard routing is off.

The rules always decide first. V2 (seed 000) and the intent call (seed 003, ruling A5) may choose only among candidates
where the rules fell back to their default; with an invalid reply the rules' route stands. With hard routing off (R-006,
ruling A33) a model decides only the mode; an invalid reply means an ACTION that changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from routing.decision.router import (
    Intent,
    Mode,
    Route,
    RouteTarget,
    Signals,
    SiteSignals,
    Workflow,
    decide,
    is_new_site,
    opinion_on,
    site_rules,
)
from routing.decision.triggers import OPINION, Confidence, Debate
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
from routing.prompt.parsed_prompt import parse_prompt
from routing.prompt.vocabulary import Vocabulary, shipped_vocabulary
from routing.queues import QUEUE_OF_TIER, QueueName, Tier

ASSISTED = "v2"
RULE = "V2"
REASON_LIMIT = 200
"""Recorded characters of a model's reason."""
PROMPT_LIMIT_BYTES = 1400
"""Limit of the prompt, which keeps the call below 5 % of the cheapest tier's budget (H-066)."""

_UNDECIDED_RULES = ("V1-4", OPINION)


class Classification(Reply):
    """V2's reply (H-064)."""

    tier: Annotated[int, Field(ge=Tier.SPEC, le=Tier.AGENT)]
    reason: Line
    estimated_complexity: Literal["low", "medium", "high"]


class IntentReply(Reply):
    """Reply of the intent call; an ACTION is never a question."""

    intent: Literal["build", "fix"]


def wants_tier(route: Route, *, enabled: bool) -> bool:
    """Return whether V2 chooses the tier: only if V1's rule 4 matched by default, or by the second opinion."""
    return enabled and _is_open(route) and route.rule in _UNDECIDED_RULES and route.cause == "default"


def wants_intent(route: Route, *, enabled: bool, always: bool) -> bool:
    """Return whether the intent call is made (P-011).

    Args:
        route: the rules' decision.
        enabled: whether to ask about tickets without a word of repair.
        always: whether to ask about every open ACTION, as seed 003 literally says.
    """
    if not _is_open(route):
        return False
    return always or (enabled and route.workflow is Workflow.TICKET and route.intent is Intent.BUILD)


def wants_assist(route: Route, *, enabled: bool, intent_always: bool) -> bool:
    """Return whether the tier or the intent call is made."""
    return wants_tier(route, enabled=enabled) or wants_intent(route, enabled=enabled, always=intent_always)


def _is_open(route: Route) -> bool:
    """Return whether a model may assist: the work changes something, and nobody chose its tier."""
    is_work = (
        route.mode is Mode.ACTION and not route.trivial and not route.read_only and route.workflow is not Workflow.NONE
    )
    return is_work and route.cause not in ("explicit", "override")


def candidates(signals: Signals) -> tuple[Tier, ...]:
    """Return the tiers that V2 may choose; a new site has nothing to patch."""
    return (Tier.SPEC, Tier.AGENT) if is_new_site(signals) else tuple(Tier)


def assist_call(signals: Signals) -> ConstrainedCall:
    """Return the call that classifies a site edit (H-062, H-063)."""
    tool = forced_tool("classify", "Record the least tier that can do the whole edit.", Classification)
    choice = {"type": "integer", "enum": [tier.value for tier in candidates(signals)]}
    tool["input_schema"]["properties"]["tier"] = choice
    return _call("assist", signals, tool=tool)


def intent_call(signals: Signals) -> ConstrainedCall:
    """Return the call that distinguishes building from fixing."""
    return _call("intent", signals, tool=forced_tool("classify_intent", "Record what is wanted.", IntentReply))


def _call(prompt: str, signals: Signals, *, tool: dict[str, Any]) -> ConstrainedCall:
    site = signals.site or SiteSignals()
    payload = {
        "prompt": excerpt(signals.prompt, limit_bytes=PROMPT_LIMIT_BYTES),
        "current_site": {"files": site.files, "has_js": site.has_js, "has_build": site.has_build},
    }
    return ConstrainedCall(system=load_prompt(prompt), question=to_json(payload), tool=tool)


def merge_assist(route: Route, reply: object, *, signals: Signals, redact: Redact) -> Route:
    """Return the route with V2's tier, or unchanged; its `classifier` says which.

    Args:
        route: the rules' decision.
        reply: the untrusted tool input, or None if the call failed.
        signals: the signals of the decision.
        redact: removes secrets from the model's reason.
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
    """Return the route with the model's intent, or unchanged; `reply` is untrusted, None after a failed call."""
    said = parse_reply(reply, IntentReply)
    if said is None or not _is_open(route):
        return route
    return route.model_copy(update={"intent": Intent(said.intent)})


SOFT = "soft"
"""Classifier of a mode that the model decided."""
SOFT_DEFAULT = "soft-default"
"""Classifier of a mode that became ACTION because the reply was invalid."""
PATTERN_SOFT = "Soft router (prompt-based)"
ROUTED_PROMPT_LIMIT_BYTES = 2000

SYSTEM_PROMPTS: Mapping[Mode, str] = {Mode.ACTION: "swarm_orchestrator", Mode.ANSWER: "direct_answer"}
"""Prompt file of each mode (R-093)."""


class ModeReply(Reply):
    """Reply of the LLM router."""

    mode: Literal["ANSWER", "ACTION"]


def is_hard_routing(value: str | None) -> bool:
    """Return whether ENABLE_HARD_ROUTING is anything but `false`; it is read for every decision."""
    return value != "false"


def system_prompt(mode: Mode) -> str:
    """Return the system prompt of a mode (R-093, R-095)."""
    return load_prompt(SYSTEM_PROMPTS[mode])


def wants_llm_router(route: Route) -> bool:
    """Return whether the LLM router applies: not to trivial commands or a tier that the caller chose (A14)."""
    return not route.trivial and route.cause != "override"


def mode_call(signals: Signals) -> ConstrainedCall:
    """Return the call that decides the mode."""
    return ConstrainedCall(
        system=load_prompt("router"),
        question=to_json({"message": excerpt(signals.prompt, limit_bytes=ROUTED_PROMPT_LIMIT_BYTES)}),
        tool=forced_tool("route", "Record the mode of the message.", ModeReply),
    )


def parse_mode(reply: object) -> Mode:
    """Return the model's mode; ACTION if the reply is invalid."""
    said = parse_reply(reply, ModeReply)
    return Mode(said.mode) if said is not None else Mode.ACTION


def route_by_llm(
    route_by_rules: Route, reply: object, *, signals: Signals, policy: Policy, vocabulary: Vocabulary | None = None
) -> Route:
    """Return the route of a request whose mode the model decides.

    Args:
        route_by_rules: the rules' decision.
        reply: the untrusted tool input, or None if the call failed.
        signals: the signals of the decision.
        policy: the policy in force.
        vocabulary: the words of the decision; the shipped ones by default.
    """
    if not wants_llm_router(route_by_rules):
        return route_by_rules
    is_valid = parse_reply(reply, ModeReply) is not None
    mode = parse_mode(reply)
    if mode is route_by_rules.mode:
        return route_by_rules.model_copy(update={"classifier": SOFT if is_valid else SOFT_DEFAULT})
    if mode is Mode.ANSWER:
        return _as_answer(route_by_rules)
    if is_valid:
        return _as_action(signals, policy, vocabulary or shipped_vocabulary())
    return _as_looking(route_by_rules)


def _as_answer(route: Route) -> Route:
    """Return an ANSWER instead of an ACTION, without triggers (A9)."""
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
    """Return the rules' route of the request as an ACTION, with tier, triggers and debate."""
    parsed = parse_prompt(signals.prompt, vocabulary)
    choice = next(site_rules(signals, parsed, opinion_on(signals, parsed, policy)))
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
    """Return an ACTION that changes nothing, as neither rules nor model found an order."""
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


HARD_ROUTING = "ENABLE_HARD_ROUTING"
INTENT_CLASSIFIER = "INTENT_CLASSIFIER"
"""The switches of seeds 002 and 003, read for every decision so that a change applies at once."""


def switches_of(environment: Mapping[str, str]) -> dict[str, str]:
    """Return only the switches, since nothing else of an environment belongs to a decision."""
    return {name: environment[name] for name in (HARD_ROUTING, INTENT_CLASSIFIER) if name in environment}


class RouteRules(NamedTuple):
    """Inputs of routing besides the policy."""

    switches: Mapping[str, str]
    vocabulary: Vocabulary


class Stage(NamedTuple):
    """A state and the queue to wait on."""

    state: State
    queue: QueueName


def uses_llm_router(route: Route, environment: Mapping[str, str]) -> bool:
    """Return whether the LLM router decides the mode (R-098, A33)."""
    return not is_hard_routing(environment.get(HARD_ROUTING)) and wants_llm_router(route)


def asks_intent_always(environment: Mapping[str, str]) -> bool:
    """Return whether a model is asked for every intent."""
    return environment.get(INTENT_CLASSIFIER) == "always"


def work_queue(route: Route) -> QueueName:
    """Return the queue of a routed job; runs advance on `control`."""
    return QueueName.CONTROL if route.workflow is Workflow.TICKET and not route.trivial else route.queue


def first_stage(route: Route, policy: Policy, *, environment: Mapping[str, str]) -> Stage:
    """Return where a job waits first: on intake only if it needs a model call or a debate."""
    always = asks_intent_always(environment)
    if uses_llm_router(route, environment) or wants_assist(route, enabled=policy.assist.enabled, intent_always=always):
        return Stage(State.RECEIVED, QueueName.INTAKE)
    if route.debate is Debate.PLANNING:
        return Stage(State.DEBATING, QueueName.INTAKE)
    return Stage(State.QUEUED, work_queue(route))

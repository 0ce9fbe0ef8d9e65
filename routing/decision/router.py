"""Route a prompt without a model call: mode, workflow, tier, queue, debate, and why.

The decision is a pure function of prompt, signals, policy and vocabulary, and accepts every prompt.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from routing.decision.answers import classify_answer
from routing.decision.second_opinion import Opinion, Site, shipped_model
from routing.decision.tier_rules import Choice, Scope, matching_rules, repairs
from routing.decision.triggers import (
    OPINION,
    Confidence,
    Debate,
    Plan,
    Stakes,
    Trigger,
    changes_much,
    confidence_of,
    find_triggers,
    parse_trivial,
    plan_debate,
)
from routing.jobs import JobRequest
from routing.policy.platform import Policy
from routing.prompt.intents import SentenceIntent
from routing.prompt.parsed_prompt import ParsedPrompt, Talk, parse_prompt
from routing.prompt.vocabulary import Vocabulary, shipped_vocabulary
from routing.queues import QUEUE_OF_TIER, QueueName, Tier, parse_tier

CLASSIFIER = "v1"
MENDING = 0.6
"""The least probability of a repair."""
ORDERED = 0.2
"""The same of one that a verb orders: `fix the cards and deploy`."""
IMPORT = "import"
"""The rule of an uploaded site, on the queue that builds and checks files of any kind; it calls no model."""
IMPORT_BECAUSE = "an upload replaces the site's files, and no model reads it"
PATTERN_QUESTION = "Question + no external refs"
PATTERN_DEFAULT = "Default (no triggers)"


class Mode(StrEnum):
    """Answer directly, or delegate to a worker that acts."""

    ANSWER = "ANSWER"
    ACTION = "ACTION"


class Intent(StrEnum):
    """What a message wants (seed 003)."""

    BUILD = "build"
    FIX = "fix"
    QUESTION = "question"


class Workflow(StrEnum):
    """What a request is bound to."""

    SITE = "site"
    TICKET = "ticket"
    NONE = "none"


class RouteTarget(StrEnum):
    """Where a message goes, in seed 002's terms."""

    SWARM_ORCHESTRATOR = "Swarm Orchestrator"
    DIRECT_RESPONSE = "Direct Response"
    TOOL_SPECIALIST = "Tool Specialist"


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SiteSignals(_Value):
    """How complex the site is now (H-052)."""

    files: int = Field(default=0, ge=0)
    has_js: bool = False
    has_build: bool = False
    has_spec: bool = False
    """Whether its pages are rendered from a spec, as far as they were not edited by hand."""


class Signals(_Value):
    """Inputs of a decision."""

    prompt: str
    site: SiteSignals | None = None
    """None without an existing site."""
    new_site: bool = False
    project: bool = False
    preference: Literal["spec", "agent"] | None = None
    advanced_edit: bool = False
    tier: Tier | None = None
    """The caller's choice (H-072)."""
    upload: bool = False
    """The content is an archive of the caller's; the prompt only names it."""
    session_debated: frozenset[str] = frozenset()
    """Keys of requests already debated in this session (`debate_key`)."""


class Route(_Value):
    """A decision, stored with the job before any model call."""

    mode: Mode
    confidence: Confidence
    intent: Intent
    workflow: Workflow
    tier: Tier | None
    queue: QueueName
    debate: Debate
    stakes: Stakes | None
    trivial: bool
    triggers: tuple[Trigger, ...]
    rule: str
    reason: str
    """One sentence for the site owner."""
    cause: Literal["explicit", "rule", "default", "override"]
    scope: Scope
    pattern: str
    """Seed 002's `Pattern` of an ANSWER; otherwise empty."""
    target: RouteTarget
    read_only: bool
    classifier: str
    policy_version: str
    vocabulary_version: str = ""
    opinion_version: str = ""
    """Of the weights of the second opinion; empty unless it decided."""
    site: SiteSignals | None = None
    """The site signals used (H-009); the other signals are in the request."""
    argv: tuple[str, ...] = ()
    """Argument vector of a trivial command, run without a shell."""

    def stored(self) -> dict[str, Any]:
        """Return it as JSON without defaults: job and audit trail hold it, and each move of the job writes it anew."""
        return self.model_dump(mode="json", exclude_defaults=True)


def decide(signals: Signals, policy: Policy, vocabulary: Vocabulary | None = None) -> Route:
    """Return the route of a request; the shipped vocabulary is the default."""
    words = vocabulary or shipped_vocabulary()
    workflow = workflow_of(signals)
    stamp = {
        "workflow": workflow,
        "classifier": CLASSIFIER,
        "policy_version": policy.version,
        "vocabulary_version": words.version,
        "site": signals.site,
    }
    if signals.upload:
        return _import_route(stamp)
    argv = parse_trivial(signals.prompt) if signals.tier is None else None
    if argv is not None:
        return _trivial_route(argv, stamp)
    parsed = parse_prompt(signals.prompt, words)
    triggers = find_triggers(parsed)
    opinion = opinion_on(signals, parsed, policy)
    talk = talk_in(signals, parsed, triggers, opinion) if signals.tier is None else None
    if talk is not None:
        return _answer_route(talk, stamp, asks=any(sentence.asks for sentence in parsed.sentences))
    weighed = opinion if workflow is Workflow.SITE else None
    return _action_route(signals, parsed, triggers, stamp=stamp, opinion=weighed)


def talk_in(
    signals: Signals, parsed: ParsedPrompt, triggers: tuple[Trigger, ...], opinion: Opinion | None
) -> Talk | None:
    """Return why a request is an ANSWER, or None for an ACTION."""
    is_bound = workflow_of(signals) is not Workflow.NONE
    return classify_answer(parsed, triggers, is_bound=is_bound, opinion=opinion)


def opinion_on(signals: Signals, parsed: ParsedPrompt, policy: Policy) -> Opinion | None:
    """Return the second opinion on a request for a site, and on one for a project that reports no defect.

    It is None for any other, or if it is switched off. It was trained on sites, and weighs only the mode of others.
    """
    workflow = workflow_of(signals)
    if not policy.assist.second_opinion or workflow is Workflow.NONE:
        return None
    if workflow is Workflow.TICKET and SentenceIntent.DEFECT in parsed.intents:
        return None
    return shipped_model().read(parsed, site_of(signals))


def site_of(signals: Signals) -> Site | None:
    """Return what the second opinion sees of the site."""
    return Site(signals.site.files, signals.site.has_build) if signals.site is not None else None


def workflow_of(signals: Signals) -> Workflow:
    """Return the workflow that a request is bound to."""
    if signals.site is not None or signals.new_site:
        return Workflow.SITE
    return Workflow.TICKET if signals.project else Workflow.NONE


def _import_route(stamp: dict[str, Any]) -> Route:
    return Route(
        mode=Mode.ACTION,
        confidence=Confidence.NONE,
        intent=Intent.BUILD,
        tier=Tier.PATCH,
        queue=QueueName.PATCH,
        debate=Debate.NONE,
        stakes=None,
        trivial=False,
        triggers=(),
        rule=IMPORT,
        reason=f"{IMPORT_BECAUSE[:1].upper()}{IMPORT_BECAUSE[1:]}.",
        cause="explicit",
        scope="structural",
        pattern="",
        target=RouteTarget.TOOL_SPECIALIST,
        read_only=False,
        **stamp,
    )


def _trivial_route(argv: tuple[str, ...], stamp: dict[str, Any]) -> Route:
    return Route(
        mode=Mode.ACTION,
        confidence=Confidence.NONE,
        intent=Intent.QUESTION,
        tier=None,
        queue=QueueName.TOOLS,
        debate=Debate.BYPASS,
        stakes=None,
        trivial=True,
        triggers=(),
        rule="trivial",
        reason=f"The whole request is the command {argv[0]}.",
        cause="rule",
        scope="single_section",
        pattern="",
        target=RouteTarget.TOOL_SPECIALIST,
        read_only=True,
        argv=argv,
        **stamp,
    )


def _answer_route(talk: Talk, stamp: dict[str, Any], *, asks: bool) -> Route:
    is_opinion = talk is Talk.OPINION
    is_question = talk is Talk.QUESTION or (is_opinion and asks)
    return Route(
        mode=Mode.ANSWER,
        confidence=Confidence.NONE,
        intent=Intent.QUESTION,
        tier=None,
        queue=QueueName.ANSWER,
        debate=Debate.NONE,
        stakes=None,
        trivial=False,
        triggers=(),
        rule=ANSWER_RULES[talk],
        reason="It asks a question and orders nothing." if is_question else "It orders nothing.",
        cause="rule" if talk is Talk.QUESTION else "default",
        scope="single_section",
        pattern=PATTERN_QUESTION if is_question else PATTERN_DEFAULT,
        target=RouteTarget.DIRECT_RESPONSE,
        read_only=True,
        opinion_version=shipped_model().version if is_opinion else "",
        **stamp,
    )


ANSWER_RULES = {Talk.QUESTION: "precedence", Talk.OPINION: OPINION, Talk.CHAT: "default"}
"""The rule of an ANSWER."""


def _action_route(
    signals: Signals,
    parsed: ParsedPrompt,
    triggers: tuple[Trigger, ...],
    *,
    stamp: dict[str, Any],
    opinion: Opinion | None,
) -> Route:
    workflow, is_new = workflow_of(signals), is_new_site(signals)
    read_only = signals.tier is None and is_read_only(signals, parsed)
    confidence = confidence_of(max(len(triggers), 1))
    debated = bool(signals.session_debated) and debate_key(signals.prompt) in signals.session_debated
    plan = plan_debate(
        parsed, confidence=confidence, read_only=read_only, debated=debated, is_new=is_new, opinion=opinion
    )
    rules = action_rules(signals, parsed, workflow=workflow, read_only=read_only, opinion=opinion)
    choice = next(rules)
    tier = choice.tier if workflow is Workflow.SITE and not read_only else None
    by_rules, intent = (_intent(parsed, is_new=is_new, read_only=read_only, opinion=each) for each in (None, opinion))
    is_opinion = OPINION in (choice.rule, *plan.causes) or intent is not by_rules
    return Route(
        mode=Mode.ACTION,
        confidence=confidence,
        intent=intent,
        tier=tier,
        queue=_queue(workflow, tier, read_only=read_only),
        debate=plan.debate,
        stakes=plan.stakes,
        trivial=False,
        triggers=triggers,
        rule=choice.rule,
        reason=_reason(choice, _means(signals, tier), plan, parsed),
        cause=choice.cause,
        scope=choice.scope,
        pattern="",
        target=RouteTarget.SWARM_ORCHESTRATOR,
        read_only=read_only,
        opinion_version=shipped_model().version if is_opinion else "",
        **stamp,
    )


_GUARDING = frozenset({"check", "verify"})
"""Verbs of what a form does: `check the postcode before it is sent`, not `check if it is right before it is sent`."""


def is_read_only(signals: Signals, parsed: ParsedPrompt) -> bool:
    """Return whether an ACTION changes nothing: it searches, lists or shows what there is, or asks about a file."""
    if is_new_site(signals):
        return False
    verbs = {parsed.tokens[at].word for at in parsed.orders}
    if not verbs <= parsed.vocabulary.words["read"] or SentenceIntent.DEFECT in parsed.intents:
        return False
    if parsed.found("write_back") or changes_much(parsed) or _wishes(parsed):
        return False
    guards = [at for at in parsed.orders if parsed.tokens[at].word in _GUARDING]
    asked = {token.word for at in guards for token in parsed.tokens[at + 1 : at + 2]}
    if guards and parsed.found("inline_script") and not asked & {"if", "whether"}:
        return False
    if parsed.orders and {hit.first for hit in parsed.hits.get("read_only", ())}.issuperset(parsed.orders):
        return True
    return (
        (parsed.has_reference or parsed.found("question_002"))
        and SentenceIntent.QUESTION in parsed.intents
        and not parsed.orders
        and SentenceIntent.STATEMENT not in parsed.intents
    )


def _wishes(parsed: ParsedPrompt) -> bool:
    """Return whether a statement beside the order wishes: `I'd like the hours, too`."""
    wishes = parsed.hits.get("wish", ())
    return any(parsed.intents[parsed.sentence_of(hit.first)] is SentenceIntent.STATEMENT for hit in wishes)


def action_rules(
    signals: Signals, parsed: ParsedPrompt, *, workflow: Workflow, read_only: bool, opinion: Opinion | None
) -> Iterator[Choice]:
    """Yield the matching ACTION rules in binding order; the first decides."""
    if signals.tier is not None:
        yield Choice(signals.tier, "override", "you chose the tier yourself", "override")
    if read_only:
        evidence = tuple(parsed.hits.get("read_only", ()))
        yield Choice(Tier.SPEC, "read-only", "it only looks and changes nothing", "rule", evidence=evidence)
    if workflow is Workflow.TICKET:
        yield Choice(Tier.AGENT, "ticket", "work on a project is planned and done in steps", "rule")
    elif workflow is Workflow.NONE:
        yield Choice(Tier.SPEC, "unbound", "it names no site or project to work on", "rule")
    else:
        yield from site_rules(signals, parsed, opinion)


def site_rules(signals: Signals, parsed: ParsedPrompt, opinion: Opinion | None) -> Iterator[Choice]:
    """Yield the matching rules of a site edit in binding order."""
    return matching_rules(
        parsed,
        explicit=signals.advanced_edit or signals.preference == "agent",
        is_new=is_new_site(signals),
        is_spec=is_rendered(signals),
        opinion=opinion,
        site=site_of(signals) or Site(0, has_build=False),
    )


def is_new_site(signals: Signals) -> bool:
    """Return whether there is no page yet."""
    return signals.new_site or (signals.site is not None and signals.site.files == 0)


def is_rendered(signals: Signals) -> bool:
    """Return whether the site's pages are rendered from its spec, and by no build."""
    return signals.site is not None and signals.site.has_spec and not signals.site.has_build


def _queue(workflow: Workflow, tier: Tier | None, *, read_only: bool) -> QueueName:
    if workflow is Workflow.TICKET:
        return QueueName.STEPS
    if read_only:
        return QueueName.ANSWER
    return QUEUE_OF_TIER[tier] if tier is not None else QueueName.INTAKE


def _intent(parsed: ParsedPrompt, *, is_new: bool, read_only: bool, opinion: Opinion | None) -> Intent:
    if read_only:
        return Intent.QUESTION
    ordered = not {hit.first for hit in parsed.hits.get("repair", ())}.isdisjoint(parsed.orders)
    mends = repairs(parsed) if opinion is None else opinion.mends >= (ORDERED if ordered else MENDING)
    return Intent.FIX if mends and not is_new else Intent.BUILD


OFTEN_DEBATED = "requests in such words mostly are"
_TIER_WORDS = {Tier.SPEC: "Page spec", Tier.PATCH: "Patch", Tier.AGENT: "Code agent"}


def _means(signals: Signals, tier: Tier | None) -> str:
    """Return what the edit will be made with, in words; empty if nothing is edited."""
    if tier is Tier.SPEC and not (is_rendered(signals) or is_new_site(signals)):
        return "Direct edit or patch"
    return _TIER_WORDS[tier] if tier is not None else ""


def _reason(choice: Choice, means: str, plan: Plan, parsed: ParsedPrompt) -> str:
    what = f"{means}: {choice.because}" if means else choice.because[:1].upper() + choice.because[1:]
    if plan.debate is not Debate.PLANNING:
        return what + "."
    because = {**parsed.vocabulary.because, OPINION: OFTEN_DEBATED}
    why = " and ".join(because[cause] for cause in plan.causes)
    return f"{what}; it is debated first because {why}."


def debate_key(prompt: str) -> str:
    """Return the key by which two requests of a session are the same decision (A11)."""
    return " ".join(prompt.casefold().split())


def classify_task(message: str) -> Mode:
    """Return the mode of an unbound message (seed 002's `classifyTask`)."""
    parsed = parse_prompt(message, shipped_vocabulary())
    talk = classify_answer(parsed, find_triggers(parsed), is_bound=False)
    return Mode.ACTION if talk is None else Mode.ANSWER


def needs_swarm(task: str) -> bool:
    """Return whether a task is delegated and not a trivial command (seed 002's `needsSwarm`)."""
    return parse_trivial(task) is None and classify_task(task) is Mode.ACTION


def get_confidence(message: str) -> Confidence:
    """Return the confidence of the distinct triggers; an ANSWER has none (A9, seed 002's `getConfidence`)."""
    parsed = parse_prompt(message, shipped_vocabulary())
    triggers = find_triggers(parsed)
    if classify_answer(parsed, triggers, is_bound=False) is not None:
        return Confidence.NONE
    return confidence_of(len(triggers))


def signals_of(request: JobRequest, *, site: SiteSignals | None, debated: frozenset[str]) -> Signals:
    """Return the signals of a submission; `debated` holds the session's debate keys."""
    return Signals(
        prompt=request.prompt,
        site=site,
        new_site=request.new_site is not None,
        project=request.project is not None,
        preference=request.preference,
        advanced_edit=request.advanced_edit,
        tier=parse_tier(request.tier) if request.tier else None,
        upload=request.upload is not None,
        session_debated=debated,
    )

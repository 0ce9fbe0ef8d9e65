"""Intake: the part of routing that needs a model, done once and on the job's own budget, before its work is queued.

The rules' route stands in the ledger before this begins. A model only chooses among what the rules left open, and a
failed call never stops a job: the rules' route stands, or a person is asked (rulings A5, A11, A33).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gateway.client import Text
from gateway.errors import GatewayError
from ledger.decisions import pending_question
from ledger.releases import continued_work
from routing.clarify.ladder import ArbiterReply, ArbiterRequest, LadderFlags, read_ladder_flags
from routing.clarify.ladder import Failure as ArbiterFailure
from routing.clarify.questions import Clarification, arbiter_call, climb, parse_arbiter_reply
from routing.decision.debate import SITE_LIMIT_BYTES, Failure, Subject, Verdict, hold_debate, hold_failure_debate
from routing.decision.llm_router import (
    RouteRules,
    asks_intent_always,
    assist_call,
    intent_call,
    merge_assist,
    merge_intent,
    mode_call,
    route_by_llm,
    switches_of,
    uses_llm_router,
    wants_intent,
    wants_tier,
)
from routing.decision.router import Route, Signals, SiteSignals
from routing.decision.triggers import Debate
from routing.errors import CallFailedError, CallFailure
from routing.failures import FailureOutcome
from routing.jobs import Reason, State, read_stored
from routing.model_call import Caller, ConstrainedCall, today_line
from routing.prompt.vocabulary import Vocabularies, shipped_vocabularies
from routing.queues import QUEUE_OF_TIER, CallPurpose, Tier
from routing.redaction import redact
from routing.rounds import hard_floor, raise_route
from sites.excerpts import choose_sections, show_text
from workers.attempt import Attempt, Prompt
from workers.errors import SoftTimeLimit
from workers.inputs import Inputs
from workers.outcomes import Asked, Ended, Outcome, Replied, Routed
from workers.retries import decide_call_failure

Environment = Callable[[], Mapping[str, str]]

_FAILURES: Mapping[CallFailure, ArbiterFailure] = {
    "timeout": ArbiterFailure.TIMEOUT,
    "rate_limited": ArbiterFailure.RATE_LIMITED,
    "transport_error": ArbiterFailure.TRANSPORT_ERROR,
    "cost_cap": ArbiterFailure.UNAVAILABLE,
    "invalid": ArbiterFailure.UNAVAILABLE,
}


def intake(environment: Environment, vocabularies: Vocabularies | None = None) -> Callable[[Attempt], Outcome]:
    """Return the handler of queue `intake`; the environment is read for every decision: a switch works at once."""

    def take_in(attempt: Attempt) -> Outcome:
        words = vocabularies or shipped_vocabularies()
        rules = RouteRules(switches_of(environment()), words.of(attempt.claim.job.tenant))
        question = pending_question(attempt.claim.job)
        if question is not None and question.pending is not None:
            return _replied(attempt, question, question.pending, flags=read_ladder_flags(environment()), rules=rules)
        route = read_stored(Route, attempt.claim.job.route)
        try:
            if attempt.claim.job.state == State.RECEIVED:
                route = _assisted(attempt, route, rules)
            return _debated(attempt, route, lambda call: ask(attempt, call, "debate"))
        except SoftTimeLimit:  # a silent provider: the job continues without advice
            return _debated(attempt, route, _no_time)

    return take_in


def _no_time(call: ConstrainedCall) -> Mapping[str, Any]:
    raise CallFailedError("timeout")


def _replied(
    attempt: Attempt, question: Clarification, reply: str, *, flags: LadderFlags, rules: RouteRules
) -> Outcome:
    """Climb the clarification ladder with a model. If its call fails, the same options are shown again."""

    def arbiter(request: ArbiterRequest) -> ArbiterReply:
        try:
            return parse_arbiter_reply(ask(attempt, arbiter_call(request), "assist"))
        except CallFailedError as error:
            return _FAILURES[error.reason]
        except SoftTimeLimit:  # the job must not end over this (rule D)
            return ArbiterFailure.TIMEOUT

    result = climb(reply, question, arbiter=arbiter, flags=flags)
    return Replied(result, rules)


def _assisted(attempt: Attempt, route: Route, rules: RouteRules) -> Route:
    signals = _signals(attempt)
    if uses_llm_router(route, rules.switches) and attempt.begun is None:  # a revision is no question
        reply = _reply(attempt, mode_call(signals))
        route = route_by_llm(route, reply, signals=signals, policy=attempt.policy, vocabulary=rules.vocabulary)
    if wants_tier(route, enabled=attempt.policy.assist.enabled):
        route = merge_assist(route, _reply(attempt, assist_call(signals)), signals=signals, redact=redact)
    if attempt.begun is not None:
        route = raise_route(route, hard_floor(continued_work(attempt.begun), attempt.policy))
    if wants_intent(route, enabled=attempt.policy.assist.enabled, always=asks_intent_always(rules.switches)):
        route = merge_intent(route, _reply(attempt, intent_call(signals)))
    return route


def _debated(attempt: Attempt, route: Route, caller: Caller) -> Outcome:
    if attempt.claim.job.result.get("failure_debate"):
        return _failure_debated(attempt, route, caller)
    earlier = attempt.claim.job.result.get("debate") or {}
    if route.debate is not Debate.PLANNING or earlier.get("verdict") == Verdict.ASK:  # never debated twice
        return Routed(route)
    record = hold_debate(_subject(attempt, route), caller, redact=redact)
    if record.verdict is Verdict.STOP:
        return Ended(State.REJECTED, Reason.DEBATE_STOPPED, record.note, {"debate": record.fields()}, record)
    if record.verdict is Verdict.ASK:
        return Asked(record.question, route, record)
    return Routed(route, debate=record)


def _failure_debated(attempt: Attempt, route: Route, caller: Caller) -> Outcome:
    """Debate a failed task: the same way again, the next tier, or a person (R-063)."""
    here = attempt.claim.job.tier
    is_top = here is None or here == max(Tier) or attempt.is_pinned
    record = hold_failure_debate(
        _subject(attempt, route),
        caller,
        failures=[Failure(item["reason"], item["detail"]) for item in attempt.claim.job.result["failures"]],
        can_pivot=not is_top,
        redact=redact,
    )
    if record.verdict is FailureOutcome.ESCALATE:
        return Ended(State.ESCALATED, Reason.DEBATE_ESCALATED, record.note, debate=record)
    if here is None:
        return Routed(route, debate=record)
    tier = Tier(here + 1 if record.verdict is FailureOutcome.PIVOT else here)
    return Routed(route.model_copy(update={"tier": tier, "queue": QUEUE_OF_TIER[tier]}), debate=record)


def _subject(attempt: Attempt, route: Route) -> Subject:
    job = attempt.claim.job
    return Subject(
        session=str(job.request.get("session") or job.root_id),
        prompt=attempt.prompt,
        route=route,
        stakes=route.stakes,
        site_summary=attempt.compute(_site_summary),
        today=today_line(attempt.claim.attempt.started_at),
        earlier=tuple((job.result.get("begun") or {}).get("earlier", ())),
        may_ask=attempt.may_ask,
    )


def _site_summary(inputs: Inputs) -> str:
    """Return how large the site is and what visitors read, as far as a debate takes it."""
    if inputs.start is None:
        return "a site without a release"
    signals = inputs.start.signals
    size = f"{signals.get('files', 0)} files, JavaScript: {'yes' if signals.get('has_js') else 'no'}"
    text = show_text(inputs.files, inputs.prompt)
    return f"{size}\n{choose_sections(text, inputs.prompt, max_bytes=SITE_LIMIT_BYTES - len(size) - 2)}".rstrip()


def _signals(attempt: Attempt) -> Signals:
    request = attempt.claim.job.request
    site = read_stored(SiteSignals, attempt.start.signals) if attempt.start else SiteSignals()
    return Signals(
        prompt=attempt.prompt,
        site=site if attempt.site is not None else None,
        new_site="new_site" in request,
        project="project" in request,
        preference=request.get("preference"),
        advanced_edit=bool(request.get("advanced_edit")),
    )


def _reply(attempt: Attempt, call: ConstrainedCall) -> Mapping[str, Any] | None:
    """Return the model's reply, or None where the rules' route has to stand."""
    try:
        return ask(attempt, call, "assist")
    except CallFailedError:
        return None


def ask(attempt: Attempt, call: ConstrainedCall, purpose: CallPurpose) -> Mapping[str, Any]:
    """Make a structured call through the gateway.

    Raises:
        CallFailedError: nobody's fault, or the provider's: the decision goes on without it.
        GatewayError: what ends the attempt whatever is decided: the job was cancelled or taken away.
    """
    try:
        return attempt.tool_call(Prompt(purpose, call.system, call.tool, [Text(call.question)])).input
    except GatewayError as error:
        failure = decide_call_failure(error)
        if failure is None:
            raise
        raise CallFailedError(failure) from error

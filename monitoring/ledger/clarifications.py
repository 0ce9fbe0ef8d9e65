"""A job's open question in the ledger: stored, handed to intake for a model's word, and acted on when it is answered.

Both sides act through here: the door, where rules decide what a reply means, and intake, where a model had a word.
"""

from __future__ import annotations

from sqlmodel import Session

from monitoring.errors import SiteNotFoundError, WrongStateError
from monitoring.ledger import audit
from monitoring.ledger.cancelling import newer_rival, supersede
from monitoring.ledger.decisions import debated_keys
from monitoring.ledger.events import EventKind, record
from monitoring.ledger.jobs import end, move, wait_on
from monitoring.ledger.releases import active_release, find_site
from monitoring.ledger.sql import after
from monitoring.ledger.tables import Job, Site
from monitoring.ledger.wait_reasons import seconds_to_start
from routing.clarification import Clarification
from routing.jobs import JobRequest, Option, Reason, State
from routing.ladder import LadderResult, Outcome
from routing.messages import read_stored
from routing.policy import Policy
from routing.queues import QueueName
from routing.router import SiteSignals, decide
from routing.signals import signals_of
from routing.stages import RouteRules, first_stage
from routing.waits import Hold

_EXECUTES = frozenset({Outcome.DETERMINISTIC_EXECUTE, Outcome.AUTO_EXECUTE})


def open_question(job: Job) -> Clarification:
    """Return what a job asks its owner.

    Raises:
        WrongStateError: the caller's fault: the job asks nothing, or its answer is being thought about.
    """
    if job.state != State.CLARIFYING or job.clarification is None:
        raise WrongStateError(job.id, job.state, "a job that waits for an answer to its question")
    return read_stored(Clarification, job.clarification)


def pending_question(job: Job) -> Clarification | None:
    """Return the question to which a reply waits for a model's word, if there is one."""
    if job.state != State.RECEIVED or job.clarification is None:
        return None
    return read_stored(Clarification, job.clarification)


def hand_to_intake(session: Session, job: Job, asked: Clarification, *, reply: str, actor: str) -> None:
    """Let a reply of a locked job wait for the one queue on which models may be asked."""
    _store(job, asked.model_copy(update={"pending": reply}))
    job.expires_at = None
    move(session, job, State.RECEIVED)
    wait_on(session, job, QueueName.INTAKE)
    audit.append(session, "reply_waits_for_model", actor=actor, job=job)


def act_on_reply(
    session: Session, job: Job, result: LadderResult, *, policy: Policy, rules: RouteRules, actor: str
) -> None:
    """Do what a reply to a locked job's question means, or keep the question open.

    Args:
        session: the caller's transaction.
        job: the job, clarifying or held by intake.
        result: what the ladder decided.
        policy: as the tenant's overrides leave it.
        rules: what a new decision is made by, as it is now.
        actor: who replied.
    """
    for event in result.events:
        record(session, EventKind.LADDER, job=job, event=event.name.value, reason=event.reason)
    if result.outcome in _EXECUTES:
        assert result.option is not None
        _choose(session, job, result.option, policy=policy, rules=rules, actor=actor)
    elif result.outcome is Outcome.EXIT:
        _store(job, None)
        end(session, job, State.CANCELLED, reason=Reason.CANCELLED, detail="its question was dismissed", actor=actor)
    else:
        _keep_open(session, job, result, policy=policy)


def _store(job: Job, asked: Clarification | None) -> None:
    job.clarification = asked.model_dump(mode="json") if asked is not None else None


def _keep_open(session: Session, job: Job, result: LadderResult, *, policy: Policy) -> None:
    """Ask again, in the order that the ladder says. A job that comes back from intake has its full time again."""
    asked = read_stored(Clarification, job.clarification)
    _store(job, asked.model_copy(update={"state": result.state, "pending": None}))
    if job.state != State.CLARIFYING:
        job.fence += 1  # intake's attempt is over
        job.expires_at = after(policy.approval.hours * 3600)  # type: ignore[assignment]
        move(session, job, State.CLARIFYING)
    session.flush()


def _choose(session: Session, job: Job, option: Option, *, policy: Policy, rules: RouteRules, actor: str) -> None:
    asked = read_stored(Clarification, job.clarification)
    audit.append(session, "question_answered", actor=actor, job=job, question=asked.question, option=option.id)
    _store(job, None)
    site = _site_of(session, job, option) if asked.binds else None
    if site is None:
        end(session, job, State.ANSWERED, reason=Reason.DONE, result={"option": option.id}, actor=actor)
    else:
        _bind(session, job, site, policy=policy, rules=rules)


def _site_of(session: Session, job: Job, option: Option) -> Site | None:
    try:
        return find_site(session, job.tenant, option.id)
    except SiteNotFoundError:
        return None


def _bind(session: Session, job: Job, site: Site, *, policy: Policy, rules: RouteRules) -> None:
    """Bind a job to its site, decide its route again and store it, and let it wait where it goes first.

    Only now it is known whose place it takes, or which newer job has taken its own.
    """
    release = active_release(session, site)
    request = read_stored(JobRequest, {**job.request, "prompt": job.prompt})
    debated = debated_keys(session, job.tenant, request.session) if request.session else frozenset()
    signals = read_stored(SiteSignals, release.signals if release else {})
    route = decide(signals_of(request, site=signals, debated=debated), policy, rules.vocabulary)
    stage = first_stage(route, policy, environment=rules.switches)
    job.site_id = site.id
    session.flush()
    if (newer := newer_rival(session, job)) is not None:
        job.superseded_by = newer
        end(session, job, State.CANCELLED, reason=Reason.SUPERSEDED, actor=f"job:{newer}")
        return
    job.expires_at = None
    job.fence += 1  # intake's attempt is over, if this was one
    job.route = route.model_dump(mode="json")
    job.mode = route.mode.value
    job.tier = route.tier.value if route.tier else None
    if job.state != stage.state:
        move(session, job, stage.state)
    seconds = seconds_to_start(session, job)
    wait_on(session, job, stage.queue, hold=None if seconds is None else Hold.TIME, seconds=seconds)
    audit.append(session, "job_bound", actor="pointsman", job=job, site=site.name, route=job.route)
    supersede(session, job)

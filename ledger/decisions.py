"""Record and read decisions: debates (R-050), open questions, and the routes and costs that a policy preview replays.

Both the submitting side, where rules interpret a reply, and intake, where a model does, act on a question through here.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from sqlalchemy import func, insert, select
from sqlalchemy.orm import aliased
from sqlmodel import Session, col

from ledger import audit
from ledger.attempts import give_up_site
from ledger.dispatch_window import seconds_to_start
from ledger.errors import SiteNotFoundError, WrongStateError
from ledger.events import EventKind, record
from ledger.job_control import newer_rival, supersede
from ledger.jobs import close_attempt, end, move, wait_on
from ledger.record_tables import Debate
from ledger.releases import active_release, find_site
from ledger.store import after
from ledger.tables import Attempt, Call, ClaimedJob, Job, Release, Site
from routing.clarify import questions
from routing.clarify.ladder import LadderResult, Outcome
from routing.clarify.questions import Clarification
from routing.decision.debate import DebateKind, HeldDebate, Verdict
from routing.decision.evaluation import Recorded, Work, read_recorded
from routing.decision.llm_router import RouteRules, first_stage
from routing.decision.router import SiteSignals, debate_key, decide, signals_of
from routing.jobs import ANSWERS, ASKED, JobRequest, Option, Reason, State, read_stored
from routing.policy.platform import Policy
from routing.queues import QueueName
from routing.scheduling import WaitReason

_BATCH = 500
"""Rows to fetch at a time: a ledger may hold more decisions than fit in memory."""


def recorded_decisions(session: Session, *, since: datetime | None = None) -> Iterator[Recorded | None]:
    """Yield the decisions about accepted jobs, oldest first; None for one that this version cannot read.

    Refused requests were never decided, and a job that continues another one has that one's decision, its debate's, or
    one about unpublished work: all of these are left out.
    """
    claimed, active = aliased(Release), aliased(Release)
    query = (
        select(
            col(Job.id),
            col(Job.tenant),
            col(Job.prompt),
            col(Job.request),
            col(Job.route),
            col(claimed.signals),
            col(active.signals),
        )
        .outerjoin(claimed, col(claimed.id) == col(Job.base_release_id))
        .outerjoin(Site, col(Site.id) == col(Job.site_id))
        .outerjoin(active, col(active.id) == col(Site.active_release_id))
        .where(col(Job.mode).is_not(None), col(Job.parent_id).is_(None))
        .order_by(col(Job.created_at), col(Job.id))
    )
    if since is not None:
        query = query.where(col(Job.created_at) >= since)
    for row in session.execute(query.execution_options(yield_per=_BATCH)):
        job_id, tenant, prompt, request, route, at_claim, now = row
        yield read_recorded(
            str(job_id), tenant=tenant, prompt=prompt, request=request, route=route, claimed=at_claim, now=now
        )


def measured_work(session: Session, *, since: datetime | None = None) -> Iterator[Work]:
    """Yield the time and cost of each finished job on each of its queues.

    Failures are included: they cost, too. Attempts that failed because something is not installed did no work.
    """
    costs = (
        select(col(Call.attempt_id), func.sum(col(Call.cost_nanousd)).label("nanousd"))
        .where(col(Call.state) != "reserved")
        .group_by(col(Call.attempt_id))
        .subquery()
    )
    seconds = func.extract("epoch", col(Attempt.ended_at) - col(Attempt.started_at))
    query = (
        select(col(Attempt.queue), func.sum(seconds), func.max(seconds), func.coalesce(func.sum(costs.c.nanousd), 0))
        .outerjoin(costs, costs.c.attempt_id == col(Attempt.id))
        .where(col(Attempt.ended_at).is_not(None), col(Attempt.reason).is_distinct_from(Reason.NOT_AVAILABLE.value))
        .group_by(col(Attempt.job_id), col(Attempt.queue))
    )
    if since is not None:
        query = query.where(col(Attempt.started_at) >= since)
    for queue, total, longest, nanousd in session.execute(query.execution_options(yield_per=_BATCH)):
        yield Work(queue, float(total), float(longest), int(nanousd))


def add_debate(session: Session, job: Job, debate: HeldDebate) -> None:
    """Record a debate, and put its outcome on its job, adding to that of earlier debates."""
    session.execute(
        insert(Debate).values(
            job_id=job.id,
            tenant=job.tenant,
            session=job.request.get("session"),
            key=debate.key,
            decision_key=debate_key(job.prompt),
            kind=debate.kind.value,
            stakes=debate.stakes.value if debate.stakes else None,
            verdict=debate.verdict.value,
            record=debate.fields(),
        )
    )
    earlier = str((job.result.get("debate") or {}).get("instruction", ""))
    instruction = " ".join(filter(None, dict.fromkeys((earlier, debate.instruction))))
    summary = {"verdict": debate.verdict.value, "note": debate.note, "instruction": instruction}
    needs_person = debate.needs_person or bool(job.result.get("needs_person"))
    job.result = {**job.result, "debate": summary, "needs_person": needs_person}
    session.flush()
    record(session, EventKind.DEBATED, job=job, debate=debate.kind.value, verdict=debate.verdict.value)


def debated_keys(session: Session, tenant: str, session_id: str) -> frozenset[str]:
    """Return the keys of the decisions that a session has debated and may carry out (R-059).

    A debate about a failure was about another decision (A11), and one that said stop allows nothing.
    """
    query = select(col(Debate.decision_key)).where(
        col(Debate.tenant) == tenant,
        col(Debate.session) == session_id,
        col(Debate.kind) == DebateKind.PLANNING.value,
        col(Debate.verdict) != Verdict.STOP.value,
    )
    return frozenset(session.scalars(query))


_EXECUTES = frozenset({Outcome.DETERMINISTIC_EXECUTE, Outcome.AUTO_EXECUTE})


def open_question(job: Job) -> Clarification:
    """Return the question that a job asks its owner.

    Raises:
        WrongStateError: the caller's fault: the job asks nothing, or a reply is being interpreted.
    """
    if job.state != State.CLARIFYING or job.clarification is None:
        raise WrongStateError(job.id, job.state, "a job that waits for an answer to its question")
    return read_stored(Clarification, job.clarification)


def pending_question(job: ClaimedJob) -> Clarification | None:
    """Return the question whose reply waits to be interpreted by a model, if any."""
    if job.state != State.RECEIVED or job.clarification is None:
        return None
    return read_stored(Clarification, job.clarification)


def hand_to_intake(session: Session, job: Job, question: Clarification, *, reply: str, actor: str) -> None:
    """Queue a locked job for intake, where a model interprets the reply."""
    _store(job, question.model_copy(update={"pending": reply}))
    job.expires_at = None
    move(session, job, State.RECEIVED)
    wait_on(session, job, QueueName.INTAKE)
    audit.append(session, "reply_waits_for_model", actor=actor, job=job)


def act_on_reply(
    session: Session, job: Job, result: LadderResult, *, policy: Policy, rules: RouteRules, actor: str
) -> None:
    """Act on a reply to a locked job's question, or keep the question open."""
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


def ask_owner(session: Session, job: Job, question: str, *, policy: Policy) -> None:
    """Let a job that its attempt holds wait for its owner's answer.

    Without work of an earlier round it gives up its site meanwhile, and starts again from what that shows then.
    """
    close_attempt(session, job, outcome=ASKED, reason=Reason.QUESTION)
    job.fence += 1
    if job.start_release_id is None:
        give_up_site(session, job)
    _store(job, questions.ask_owner(question))
    job.expires_at = after(policy.approval.hours * 3600)  # type: ignore[assignment]
    move(session, job, State.CLARIFYING, reason=Reason.QUESTION)
    audit.append(session, "question_asked", actor="pointsman", job=job, question=question)


def answer_in_words(session: Session, job: Job, question: Clarification, *, reply: str, actor: str) -> None:
    """Let a locked job go on where its question came up, with its owner's answer."""
    audit.append(session, "question_answered", actor=actor, job=job, question=question.question, answer=reply)
    told = {"question": question.question, "answer": reply, "by": actor}
    job.result = {**job.result, ANSWERS: [*job.result.get(ANSWERS, ()), told]}
    _store(job, None)
    job.expires_at = None
    move(session, job, State.DEBATING if job.queue == QueueName.INTAKE else State.QUEUED)
    wait_on(session, job, QueueName(job.queue))


def _store(job: Job, question: Clarification | None) -> None:
    job.clarification = question.model_dump(mode="json") if question is not None else None


def _keep_open(session: Session, job: Job, result: LadderResult, *, policy: Policy) -> None:
    """Keep the question open in the ladder's new state. A job that returns from intake gets its full time again."""
    question = read_stored(Clarification, job.clarification)
    _store(job, question.model_copy(update={"state": result.state, "pending": None}))
    if job.state != State.CLARIFYING:
        job.fence += 1  # intake's attempt is over
        job.expires_at = after(policy.approval.hours * 3600)  # type: ignore[assignment]
        move(session, job, State.CLARIFYING)
    session.flush()


def _choose(session: Session, job: Job, option: Option, *, policy: Policy, rules: RouteRules, actor: str) -> None:
    question = read_stored(Clarification, job.clarification)
    audit.append(session, "question_answered", actor=actor, job=job, question=question.question, option=option.id)
    _store(job, None)
    site = _site_of(session, job, option) if question.binds else None
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
    """Bind a job to its site, route it again, and queue it.

    Only now is it known which jobs it supersedes, or which newer job supersedes it.
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
    job.route = route.stored()
    job.mode = route.mode.value
    job.tier = route.tier.value if route.tier else None
    if job.state != stage.state:
        move(session, job, stage.state)
    seconds = seconds_to_start(session, job)
    wait_on(session, job, stage.queue, hold=None if seconds is None else WaitReason.TIME, seconds=seconds)
    audit.append(session, "job_bound", actor="pointsman", job=job, site=site.name, route=job.route)
    supersede(session, job)

"""Answer a job's question. No model is called here: a reply that needs one goes to intake."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from sqlmodel import Session, select

from ledger.attempts import effective_policy
from ledger.decisions import act_on_reply, answer_in_words, hand_to_intake, open_question
from ledger.job_control import lock_supersede_key
from ledger.jobs import find_job, lock_job
from ledger.store import Ledger
from ledger.tables import Job, Site
from producers.intake.decisions import check_headroom
from producers.intake.submit import Environment
from routing.clarify.ladder import LadderResult, read_ladder_flags
from routing.clarify.questions import COMMANDS, Clarification, choose, climb_by_rules
from routing.clarify.replies import dispatch
from routing.config import UNSTORABLE
from routing.decision.llm_router import RouteRules, switches_of
from routing.errors import FieldError, InvalidJobError
from routing.policy.platform import Policy
from routing.prompt.vocabulary import Vocabularies, shipped_vocabularies
from routing.queues import QueueName

MAX_REPLY_CHARACTERS = 2000
ASKS_MODEL = "asks_model"
"""Outcome of a reply that goes to a model, since the rules do not resolve it."""


ANSWERED = "answered"
"""Outcome of a reply to a question without options: the job goes on with it."""


class Reply(NamedTuple):
    """The result of a reply."""

    handled: bool
    handled_by_tier: str | None
    """The part of the ladder that handled it, or whom an unhandled one is for: `command` or `router`."""
    outcome: str
    """One of routing.clarify.ladder.Outcome, `asks_model` or `answered`."""


@dataclass(frozen=True)
class Clarifier:
    """Takes replies to open questions."""

    ledger: Ledger
    policy: Policy
    environment: Environment
    vocabularies: Vocabularies = field(default_factory=shipped_vocabularies)

    def reply(self, job_id: UUID, text: str, *, tenant: str, actor: str) -> Reply:
        """Answer in words.

        Raises:
            InvalidJobError: the caller's fault.
            JobNotFoundError: the caller's fault.
            WrongStateError: the caller's fault: the job has no open question.
            AdmissionRefusedError: nobody's fault: no headroom now for the job; the question stays open.
        """
        _check_text(text)
        with self.ledger.begin() as session:
            job = _lock_in_turn(session, job_id, tenant=tenant)
            question = _question(session, job, site_name=text.strip())
            if question.is_open:
                answer_in_words(session, job, question, reply=text, actor=actor)
                self._check_room(session, job)
                return Reply(handled=True, handled_by_tier=None, outcome=ANSWERED)
            result = climb_by_rules(text, question, flags=read_ladder_flags(self.environment()))
            if result is None:
                hand_to_intake(session, job, question, reply=text, actor=actor)
                self._check_room(session, job)
                return Reply(handled=True, handled_by_tier=None, outcome=ASKS_MODEL)
            self._act(session, job, result, actor=actor)
        if not result.handled:
            return Reply(False, dispatch(text, COMMANDS).handled_by_tier.value, result.outcome.value)
        return _handled(result)

    def choose(self, job_id: UUID, option_id: str, *, tenant: str, actor: str) -> Reply:
        """Answer with an option's id.

        Raises:
            InvalidJobError: the caller's fault: the question has no such option.
            JobNotFoundError: the caller's fault.
            WrongStateError: the caller's fault: the job has no open question.
            AdmissionRefusedError: nobody's fault: no headroom now for the job; the question stays open.
        """
        with self.ledger.begin() as session:
            job = _lock_in_turn(session, job_id, tenant=tenant)
            result = choose(option_id, _question(session, job, site_name=option_id))
            self._act(session, job, result, actor=actor)
        return _handled(result)

    def _act(self, session: Session, job: Job, result: LadderResult, *, actor: str) -> None:
        policy = effective_policy(session, job.tenant, self.policy)
        rules = RouteRules(switches_of(self.environment()), self.vocabularies.of(job.tenant))
        act_on_reply(session, job, result, policy=policy, rules=rules, actor=actor)
        self._check_room(session, job)

    def _check_room(self, session: Session, job: Job) -> None:
        """Refuse an answer that queues the job where there is no headroom; its question then stays open."""
        if job.waiting_since is not None:
            policy = effective_policy(session, job.tenant, self.policy)
            check_headroom(session, QueueName(job.queue), job.tenant, policy=policy)


def _lock_in_turn(session: Session, job_id: UUID, *, tenant: str) -> Job:
    """Lock a job whose reply may bind it to a site, and so supersede another job or be superseded."""
    lock_supersede_key(session, find_job(session, job_id, tenant=tenant))
    return lock_job(session, job_id, tenant=tenant)


def _question(session: Session, job: Job, *, site_name: str) -> Clarification:
    """Return the open question, adding the site that the reply names if it exists: only the first ones were offered."""
    question = open_question(job)
    if not question.is_about_sites:
        return question
    site_id = session.exec(select(Site.id).where(Site.tenant == job.tenant, Site.name == site_name)).first()
    return question if site_id is None else question.offering(site_name)


def _handled(result: LadderResult) -> Reply:
    tier = result.handled_by_tier.value if result.handled_by_tier is not None else None
    return Reply(handled=True, handled_by_tier=tier, outcome=result.outcome.value)


def _check_text(text: str) -> None:
    if not text.strip():
        raise InvalidJobError((FieldError("text", "must not be empty"),))
    if len(text) > MAX_REPLY_CHARACTERS:
        raise InvalidJobError((FieldError("text", f"must not be longer than {MAX_REPLY_CHARACTERS} characters"),))
    if UNSTORABLE.search(text):
        raise InvalidJobError((FieldError("text", "must be valid Unicode text without NUL"),))

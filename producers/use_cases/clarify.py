"""Answer a job's question. No model is ever called here: where one has a word, the reply goes to intake."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from sqlmodel import Session, select

from ledger.attempts import effective_policy
from ledger.decisions import act_on_reply, hand_to_intake, open_question
from ledger.job_control import take_turn
from ledger.jobs import find_job, lock_job
from ledger.store import Ledger
from ledger.tables import Job, Site
from producers.intake.decisions import check_room
from producers.intake.submit import Environment
from routing.clarify.ladder import LadderResult, read_ladder_flags
from routing.clarify.questions import COMMANDS, Clarification, choose, climb_by_rules
from routing.clarify.replies import dispatch
from routing.decision.llm_router import RouteRules, switches_of
from routing.errors import FieldError, InvalidJobError
from routing.policy.platform import Policy
from routing.prompt.vocabulary import Vocabularies, shipped_vocabularies
from routing.queues import QueueName

MAX_REPLY_CHARACTERS = 2000
ASKS_MODEL = "asks_model"
"""What becomes of a reply that the rules do not resolve, where a model may be asked."""


class Reply(NamedTuple):
    """What became of a reply."""

    handled: bool
    handled_by_tier: str | None
    """Which part of the ladder handled it; of one that it let go, who it is for: `command` or `router`."""
    outcome: str
    """One of routing.clarify.ladder.Outcome, or `asks_model`."""


class Clarifier:
    """Takes replies to open questions for one installation."""

    def __init__(
        self, ledger: Ledger, policy: Policy, *, environment: Environment, vocabularies: Vocabularies | None = None
    ) -> None:
        self._ledger = ledger
        self._policy = policy
        self._environment = environment
        self._vocabularies = vocabularies or shipped_vocabularies()

    def reply(self, job_id: UUID, text: str, *, tenant: str, actor: str) -> Reply:
        """Answer in words.

        Raises:
            InvalidJobError: the caller's fault.
            JobNotFoundError: the caller's fault.
            WrongStateError: the caller's fault: the job asks nothing now.
            AdmissionRefusedError: nobody's fault: there is no room now for what it would begin; the question stays.
        """
        _check_text(text)
        with self._ledger.begin() as session:
            job = _lock_in_turn(session, job_id, tenant=tenant)
            asked = _asked(session, job, names=text.strip())
            result = climb_by_rules(text, asked, flags=read_ladder_flags(self._environment()))
            if result is None:
                hand_to_intake(session, job, asked, reply=text, actor=actor)
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
            WrongStateError: the caller's fault: the job asks nothing now.
            AdmissionRefusedError: nobody's fault: there is no room now for what it would begin; the question stays.
        """
        with self._ledger.begin() as session:
            job = _lock_in_turn(session, job_id, tenant=tenant)
            result = choose(option_id, _asked(session, job, names=option_id))
            self._act(session, job, result, actor=actor)
        return _handled(result)

    def _act(self, session: Session, job: Job, result: LadderResult, *, actor: str) -> None:
        policy = effective_policy(session, job.tenant, self._policy)
        rules = RouteRules(switches_of(self._environment()), self._vocabularies.of(job.tenant))
        act_on_reply(session, job, result, policy=policy, rules=rules, actor=actor)
        self._check_room(session, job)

    def _check_room(self, session: Session, job: Job) -> None:
        """Refuse an answer by which a job would begin to wait where there is no room; its question then stays open."""
        if job.waiting_since is not None:
            policy = effective_policy(session, job.tenant, self._policy)
            check_room(session, QueueName(job.queue), job.tenant, policy=policy)


def _lock_in_turn(session: Session, job_id: UUID, *, tenant: str) -> Job:
    """Lock a job whose reply may bind it to a site, and with that let it take another's place, or lose its own."""
    take_turn(session, find_job(session, job_id, tenant=tenant))
    return lock_job(session, job_id, tenant=tenant)


def _asked(session: Session, job: Job, *, names: str) -> Clarification:
    """Return the open question, with the site that a reply names where only the first ones were offered."""
    asked = open_question(job)
    if not asked.is_about_sites:
        return asked
    is_there = session.exec(select(Site.id).where(Site.tenant == job.tenant, Site.name == names)).first()
    return asked if is_there is None else asked.offering(names)


def _handled(result: LadderResult) -> Reply:
    tier = result.handled_by_tier.value if result.handled_by_tier is not None else None
    return Reply(handled=True, handled_by_tier=tier, outcome=result.outcome.value)


def _check_text(text: str) -> None:
    if not text.strip():
        raise InvalidJobError((FieldError("text", "must not be empty"),))
    if len(text) > MAX_REPLY_CHARACTERS:
        raise InvalidJobError((FieldError("text", f"must not be longer than {MAX_REPLY_CHARACTERS} characters"),))
    if any(character == "\x00" or "\ud800" <= character <= "\udfff" for character in text):
        raise InvalidJobError((FieldError("text", "must be valid Unicode text without NUL"),))

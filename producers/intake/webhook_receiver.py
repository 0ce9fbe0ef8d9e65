"""Receive webhooks: a signed delivery that hands us a ticket becomes a run, once; one about its pull request is kept.

What cannot be taken in now is kept, too, and tried again each minute: forges and trackers send nothing again.
Only the signature authenticates a caller. Without it nothing is revealed: a wrong signature, an unknown project and a
project without webhooks get the same answer.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

from sqlmodel import Session

from ledger.errors import IdempotencyConflictError, ProjectNotFoundError
from ledger.runs.kept_deliveries import (
    ClaimedDelivery,
    SentDelivery,
    claim_delivery,
    forget_delivery,
    has_due_delivery,
    keep_delivery,
    kept_deliveries,
    postpone_deliveries,
)
from ledger.runs.reviews import NewComment, keep_comment, run_of_commit, run_of_pull_request
from ledger.runs.run import TicketRuns, find_project, runs_of_ticket
from ledger.store import Ledger
from producers.errors import AdmissionRefusedError, AuthenticationError, ForgeAwayError
from producers.intake.gitlab_webhooks import is_about_pull_request, read_gitlab_delivery, read_merge_request_delivery
from producers.intake.review_webhooks import REVIEW_EVENTS, read_review_delivery
from producers.intake.submit import Submitter
from producers.intake.ticket_webhooks import Ignored, TicketRequest, part, read_github_delivery, read_linear_delivery
from producers.intake.withdrawals import taken_back
from routing.errors import InvalidJobError
from routing.jobs import Source, State
from routing.policy.agents import Account, AccountsConfig
from routing.policy.integrations import GitHub, GitLab, Linear
from routing.policy.project import ProjectConfig

logger = logging.getLogger(__name__)

_PREFIX = "sha256="
MAX_AGE_SECONDS = 60.0
"""The most that a delivery's time may differ from our clock."""


def is_from_github(secret: str, body: bytes, *, signature: str) -> bool:
    """Whether `X-Hub-Signature-256` is valid (GitHub, "Validating webhook deliveries")."""
    return signature.startswith(_PREFIX) and _is_equal(secret, body, signature.removeprefix(_PREFIX))


def is_from_gitlab(secret: str, *, token: str) -> bool:
    """Whether `X-Gitlab-Token` is the secret: GitLab repeats it, and signs nothing (GitLab, "Webhooks")."""
    return bool(secret) and hmac.compare_digest(secret.encode(), token.encode("utf-8", "replace"))


def is_from_linear(secret: str, body: bytes, *, signature: str) -> bool:
    """Whether `Linear-Signature` is valid; freshness is checked by `is_fresh`."""
    return _is_equal(secret, body, signature)


def is_fresh(sent_milliseconds: object, *, now_seconds: float) -> bool:
    """Whether a delivery was sent just now, by the time in its signed body."""
    if not isinstance(sent_milliseconds, int) or isinstance(sent_milliseconds, bool):
        return False
    return abs(now_seconds - sent_milliseconds / 1000) <= MAX_AGE_SECONDS


def _is_equal(secret: str, body: bytes, signature: str) -> bool:
    if not secret:  # an empty key would make everybody a sender
        return False
    wanted = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(wanted.encode(), signature.encode("utf-8", "replace"))


Tracker = Literal["github", "gitlab", "linear"]
Settings = GitHub | GitLab | Linear
MayWrite = Callable[[Account, str, int], bool]
"""Asks a forge whether a user may push to a repository; this module itself calls nobody."""
TRIGGER = "pointsman"
"""The default label that hands a ticket to Pointsman."""
MAX_DELIVERY_BYTES = 1_048_576
_STRANGER = "its author may not push to the repository"


@dataclass(frozen=True)
class TicketRun:
    """The run of a ticket, started by a delivery or before it."""

    run_id: UUID
    is_new: bool


@dataclass(frozen=True)
class Waiting:
    """A delivery that is kept until it can be taken in."""

    why: str


Taken = TicketRun | Ignored


@dataclass(frozen=True)
class WebhookReceiver:
    """Handles deliveries."""

    ledger: Ledger
    submitter: Submitter
    accounts: AccountsConfig
    may_write: MayWrite = lambda account, repository, user_id: False

    def take(
        self, body: bytes, headers: Mapping[str, str], *, tenant: str, project: str, tracker: Tracker
    ) -> Taken | Waiting:
        """Handle one delivery.

        Args:
            body: the raw bytes that were signed.
            headers: with names in lower case.
            tenant: from the path, authenticated by the signature; so are the next two.
            project: the project's name.
            tracker: the tracker.

        Raises:
            AuthenticationError: the caller's fault: no such project accepts webhooks signed like this.
            InvalidJobError: the ticket's author's or the tenant's fault.
            AdmissionRefusedError, ForgeAwayError: nobody's fault: it cannot be taken in now, and too many wait already.
        """
        settings = self._settings(tenant, project, tracker)
        secret = self._secret(settings, tracker, tenant=tenant)
        payload = _verified(body, headers, secret, tracker=tracker, now=time.time())
        sent = SentDelivery(tenant, project, tracker, headers.get(f"x-{tracker}-event", ""), payload)
        try:
            self._forget_taken_back(sent, settings)
            return self._take(sent, settings)
        except (AdmissionRefusedError, ForgeAwayError) as error:
            with self.ledger.begin() as session:
                if not keep_delivery(session, sent):
                    raise
            logger.info("delivery_kept", extra={"tenant": tenant, "project": project, "why": str(error)})
            return Waiting(str(error))

    def deliver_due(self, *, limit: int = 20) -> int:
        """Take in what was kept and is due; returns how many deliveries were tried."""
        with self.ledger.look() as connection:
            if not has_due_delivery(connection):
                return 0
        for tried in range(limit):
            with self.ledger.begin() as session:
                kept = claim_delivery(session)
            if kept is None:
                return tried
            self._take_kept(kept)
        return limit

    def _forget_taken_back(self, sent: SentDelivery, settings: Settings) -> None:
        """Forget what is kept about a ticket that a delivery takes back."""
        trigger = settings.label or TRIGGER
        if (key := taken_back(sent.event, sent.body, tracker=sent.tracker, trigger=trigger)) is None:
            return
        with self.ledger.begin() as session:
            for kept in kept_deliveries(session, sent.tenant, sent.project, sent.tracker):
                body = json.loads(kept.body)
                news = _read(kept.event, body, settings) if isinstance(body, dict) else None
                if isinstance(news, TicketRequest) and news.ticket.key == key:
                    forget_delivery(session, kept, dropped="its ticket was taken back")

    def _take_kept(self, kept: ClaimedDelivery) -> None:
        """Take in a kept delivery, or drop it where that will never be, or after its last try."""
        dropped = ""
        try:
            settings = self._settings(kept.tenant, kept.project, kept.tracker)
            self._take(SentDelivery(*kept[1:5], json.loads(kept.body)), settings)
        except (InvalidJobError, AuthenticationError) as error:
            dropped = str(error)
        except Exception as error:
            if not kept.is_old:
                if isinstance(error, AdmissionRefusedError):
                    with self.ledger.begin() as session:
                        postpone_deliveries(session, kept.tenant)
                if isinstance(error, AdmissionRefusedError | ForgeAwayError):
                    return
                raise
            is_ours = not isinstance(error, AdmissionRefusedError | ForgeAwayError)
            dropped = type(error).__name__ if is_ours else str(error)
        with self.ledger.begin() as session:
            forget_delivery(session, kept, dropped=dropped)
        logger.info("kept_delivery_done", extra={"tenant": kept.tenant, "project": kept.project, "dropped": dropped})

    def _take(self, sent: SentDelivery, settings: Settings) -> Taken:
        tenant, project, tracker, event, payload = sent
        if not isinstance(settings, Linear) and _is_about_pull_request(event, payload, tracker=tracker):
            return self._keep(event, payload, settings, tenant=tenant, project=project)
        news = _read(event, payload, settings)
        if isinstance(news, Ignored):
            return news
        if not self._is_heard(news.user_id, settings, tenant=tenant):
            return Ignored(_STRANGER)
        with self.ledger.begin() as session:
            runs = runs_of_ticket(session, find_project(session, tenant, project), str(news.ticket.key))
            request = _request(news, project, known=runs.by_key)
            if (known := runs.by_key.get(request["idempotency_key"])) is not None:
                return TicketRun(known, is_new=False)
            if news.comment is not None and runs.root_id is not None:
                return _add(session, runs.root_id, news.comment)
        if (known := runs.open or _run_before(news, runs)) is not None:
            return TicketRun(known, is_new=False)
        try:
            accepted = self.submitter.submit(
                request, tenant=tenant, source=Source.HTTP, actor=f"{tracker}:{tenant}/{project}"
            )
        except IdempotencyConflictError as error:  # a concurrent delivery about the same ticket
            return TicketRun(error.job_id, is_new=False)
        if State(accepted.job.state) is State.REJECTED:
            return Ignored(f"it was refused: {accepted.job.detail}")
        return TicketRun(accepted.job.id, is_new=accepted.is_new)

    def _keep(
        self, event: str, payload: Mapping[str, Any], settings: GitHub | GitLab, *, tenant: str, project: str
    ) -> Taken:
        """Keep what is said about a run's pull request for its next round."""
        read = read_review_delivery if isinstance(settings, GitHub) else read_merge_request_delivery
        news = read(event, payload, trigger=settings.label or TRIGGER)
        if isinstance(news, Ignored):
            return news
        if not settings.reviews or news.repository != settings.repository:
            return Ignored("the project does not follow reviews, or it is of another repository")
        with self.ledger.begin() as session:
            project_id = find_project(session, tenant, project).id
            if news.number is not None:
                run = run_of_pull_request(session, project_id, number=news.number)
            else:
                run = run_of_commit(session, project_id, commit=str(news.commit))
        if run is None:
            return Ignored("it is about no pull request or commit of a run's")
        if not self._is_heard(news.user_id, settings, tenant=tenant):  # a call to the forge: only of what is ours
            return Ignored(_STRANGER)
        with self.ledger.begin() as session:
            return _add(session, run.root_id, news.comment, is_edit=news.is_edit)

    def _is_heard(self, user_id: int | None, settings: Settings, *, tenant: str) -> bool:
        """Whether a user of GitLab may push to the project's repository; None for whom the delivery vouches for.

        Raises:
            ForgeAwayError: the forge could not be asked.
        """
        if user_id is None or not isinstance(settings, GitLab):
            return user_id is None
        account = self.accounts.find(settings.token, tenant=tenant)
        if account is None or account.kind != settings.kind:
            raise ForgeAwayError("there is no account here that could ask the forge")
        return self.may_write(account, settings.repository, user_id)

    def _settings(self, tenant: str, project: str, tracker: str) -> Settings:
        with self.ledger.begin() as session:
            try:
                found = find_project(session, tenant, project)
            except ProjectNotFoundError:
                raise _unknown() from None
            config = ProjectConfig.model_validate(found.config)
        settings: Settings | None = getattr(config.integrations, tracker)
        if settings is None or not settings.webhook:
            raise _unknown()
        return settings

    def _secret(self, settings: Settings, tracker: str, *, tenant: str) -> str:
        account = self.accounts.find(settings.webhook or "", tenant=tenant)
        secret = account.webhook_secret.get_secret_value() if account is not None and account.kind == tracker else ""
        if not secret:
            raise _unknown()
        return secret


def _add(session: Session, root_id: UUID, comment: NewComment, *, is_edit: bool = False) -> Taken:
    """Keep a comment for the next round of a run's session, once."""
    if not keep_comment(session, root_id, comment, is_edit=is_edit):
        return Ignored("so many comments wait already that no more are kept")
    return TicketRun(root_id, is_new=False)


def _unknown() -> AuthenticationError:
    return AuthenticationError("no project here takes webhooks that are signed like this")


def _verified(body: bytes, headers: Mapping[str, str], secret: str, *, tracker: Tracker, now: float) -> dict[str, Any]:
    if tracker == "github":
        is_genuine = is_from_github(secret, body, signature=headers.get("x-hub-signature-256", ""))
    elif tracker == "gitlab":
        is_genuine = is_from_gitlab(secret, token=headers.get("x-gitlab-token", ""))
    else:
        is_genuine = is_from_linear(secret, body, signature=headers.get("linear-signature", ""))
    if not is_genuine:
        raise _unknown()
    try:
        payload = json.loads(body)
    except (ValueError, RecursionError):
        payload = None
    if not isinstance(payload, dict) or (
        tracker == "linear" and not is_fresh(payload.get("webhookTimestamp"), now_seconds=now)
    ):
        raise _unknown()
    return payload


def _is_about_pull_request(event: str, payload: Mapping[str, Any], *, tracker: str) -> bool:
    if tracker == "gitlab":
        return is_about_pull_request(event, payload)
    is_on_issue = event == "issue_comment" and "pull_request" not in part(payload, "issue")
    return event in REVIEW_EVENTS and not is_on_issue


def _read(event: str, payload: Mapping[str, Any], settings: Settings) -> TicketRequest | Ignored:
    trigger = settings.label or TRIGGER
    if isinstance(settings, Linear):
        news = read_linear_delivery(payload, trigger=trigger)
        place = f"{settings.team}-"
    else:
        read = read_github_delivery if isinstance(settings, GitHub) else read_gitlab_delivery
        news = read(event, payload, trigger=trigger)
        place = f"{settings.repository}#"
        if isinstance(news, TicketRequest) and news.comment is not None and not settings.mentions:
            return Ignored("the project does not follow mentions")
    if isinstance(news, TicketRequest) and not str(news.ticket.key).startswith(place):
        return Ignored("the ticket is of another repository or team than the project's")
    return news


def _run_before(news: TicketRequest, runs: TicketRuns) -> UUID | None:
    """Return the run that a late or repeated delivery is about: one that ended after what the delivery tells of.

    Our own note of a run's end changes its ticket, so what anybody does with that later is told apart.
    """
    is_old = news.changed_at is not None and runs.ended_at is not None and news.changed_at < runs.ended_at
    return runs.last if is_old else None


def _request(news: TicketRequest, project: str, *, known: Collection[str]) -> dict[str, Any]:
    """Return the job request for a ticket, with a key that names the ticket and the comment or the number of its run.

    Trackers report one action in several deliveries (an issue opened with a label is both `opened` and `labeled`), so
    the delivery's own key will not do. The number is beyond those of the `known` keys: retention takes the oldest.
    """
    ticket = f"{news.ticket.source}:{project}:{hashlib.sha256(str(news.ticket.key).encode()).hexdigest()[:32]}:"
    numbers = (key.removeprefix(ticket) for key in known if key.startswith(ticket))
    number = 1 + max((int(number) for number in numbers if number.isdecimal()), default=0)
    return {
        "idempotency_key": f"{ticket}{number if news.comment is None else news.comment.source}",
        "prompt": news.prompt,
        "project": project,
        "priority": news.priority,
        "ticket": news.ticket.model_dump(exclude_none=True, mode="json"),
    }

"""The door for trackers' webhooks: a signed delivery about a labelled ticket becomes a run, once.

A caller is whoever holds the secret that signs the project's webhooks. Somebody who does not learns nothing: a wrong
signature, an unknown project and a project without webhooks are one and the same answer.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

from monitoring.errors import IdempotencyConflictError, ProjectNotFoundError
from monitoring.ledger.runs import find_project, runs_of_ticket
from monitoring.ledger.store import Ledger
from producers.errors import AuthenticationError
from producers.submit import Submitter
from producers.tickets import github, linear
from producers.tickets.news import Ignored, Wanted
from producers.tickets.signatures import is_fresh, is_from_github, is_from_linear
from routing.accounts import AccountsConfig
from routing.jobs import Door, State
from routing.project import GitHub, Linear, ProjectConfig

Tracker = Literal["github", "linear"]
TRIGGER = "pointsman"
"""The label that hands a ticket over where a project names no other."""
MAX_DELIVERY_BYTES = 1_048_576


@dataclass(frozen=True)
class Taken:
    """A delivery became a run, or was about one that is there."""

    run_id: UUID
    is_new: bool


@dataclass(frozen=True)
class _Connection:
    """How a project is connected with a tracker."""

    settings: GitHub | Linear
    secret: str

    @property
    def trigger(self) -> str:
        return self.settings.label or TRIGGER


class TicketDoor:
    """Takes deliveries for one installation."""

    def __init__(
        self, ledger: Ledger, submitter: Submitter, accounts: AccountsConfig, *, now: Callable[[], float] = time.time
    ) -> None:
        self._ledger = ledger
        self._submitter = submitter
        self._accounts = accounts
        self._now = now

    def take(
        self, body: bytes, headers: Mapping[str, str], *, tenant: str, project: str, tracker: Tracker
    ) -> Taken | Ignored:
        """Take one delivery.

        Args:
            body: as it came, since its signature is over these bytes.
            headers: of the request; their names in lower case.
            tenant: from the path; that it is meant is proven by the signature.
            project: likewise.
            tracker: likewise.

        Raises:
            AuthenticationError: the caller's fault: no such project takes webhooks signed like this.
            InvalidJobError: the ticket's author's or the tenant's fault.
        """
        connection = self._connection(tenant, project, tracker)
        payload = _verified(body, headers, connection, tracker=tracker, now=self._now())
        news = _read(payload, headers, connection)
        if isinstance(news, Ignored):
            return news
        with self._ledger.begin() as session:
            runs = runs_of_ticket(session, find_project(session, tenant, project), str(news.ticket.key))
        if runs.open is not None:
            return Taken(runs.open, is_new=False)
        try:
            accepted = self._submitter.submit(
                _request(news, project, number=runs.ended + 1),
                tenant=tenant, door=Door.HTTP, actor=f"{tracker}:{tenant}/{project}",
            )  # fmt: skip
        except IdempotencyConflictError as error:  # another delivery about the ticket came at the same moment
            return Taken(error.job_id, is_new=False)
        if State(accepted.job.state) is State.REJECTED:
            return Ignored(f"it was refused: {accepted.job.detail}")
        return Taken(accepted.job.id, is_new=accepted.is_new)

    def _connection(self, tenant: str, project: str, tracker: Tracker) -> _Connection:
        with self._ledger.begin() as session:
            try:
                found = find_project(session, tenant, project)
            except ProjectNotFoundError:
                raise _unknown() from None
            config = ProjectConfig.model_validate(found.config)
        settings = config.integrations.github if tracker == "github" else config.integrations.linear
        if settings is None or settings.webhook is None:
            raise _unknown()
        account = self._accounts.find(settings.webhook, tenant=tenant)
        secret = account.webhook_secret.get_secret_value() if account is not None and account.kind == tracker else ""
        if not secret:
            raise _unknown()
        return _Connection(settings, secret)


def _unknown() -> AuthenticationError:
    return AuthenticationError("no project here takes webhooks that are signed like this")


def _verified(
    body: bytes, headers: Mapping[str, str], connection: _Connection, *, tracker: Tracker, now: float
) -> Mapping[str, Any]:
    if tracker == "github":
        is_genuine = is_from_github(connection.secret, body, signature=headers.get("x-hub-signature-256", ""))
    else:
        is_genuine = is_from_linear(connection.secret, body, signature=headers.get("linear-signature", ""))
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


def _read(payload: Mapping[str, Any], headers: Mapping[str, str], connection: _Connection) -> Wanted | Ignored:
    settings, trigger = connection.settings, connection.trigger
    if isinstance(settings, GitHub):
        news = github.read_delivery(headers.get("x-github-event", ""), payload, trigger=trigger)
        belongs = isinstance(news, Wanted) and str(news.ticket.key).startswith(f"{settings.repository}#")
    else:
        news = linear.read_delivery(payload, trigger=trigger)
        belongs = isinstance(news, Wanted) and str(news.ticket.key).startswith(f"{settings.team}-")
    if isinstance(news, Wanted) and not belongs:
        return Ignored("the ticket is of another repository or team than the project's")
    return news


def _request(news: Wanted, project: str, *, number: int) -> dict[str, Any]:
    """Return the job that a ticket asks for. Its key names the ticket and which of its runs it is.

    Trackers tell of one deed in several deliveries at once (an issue opened with a label is `opened` and `labeled`), so
    the key is not the delivery's.
    """
    key = hashlib.sha256(str(news.ticket.key).encode()).hexdigest()[:32]
    return {
        "idempotency_key": f"{news.ticket.source}:{project}:{key}:{number}",
        "prompt": news.prompt,
        "project": project,
        "priority": news.priority,
        "ticket": news.ticket.model_dump(exclude_none=True, mode="json"),
    }

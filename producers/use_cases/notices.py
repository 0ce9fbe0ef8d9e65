"""What a tenant hears while its jobs wait for a person: its choice, the messages sent, and sending them again."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, Field

from ledger import audit, notifications
from ledger.notifications import NoticeState, NotificationMark, Wanted, message_id
from ledger.store import Ledger
from ledger.tables import Tenant
from producers.config import MAIL_PATTERN
from producers.errors import InvalidInputError
from producers.use_cases.dead_letters import TryView
from producers.use_cases.jobs import Page, View, cursor_of, mark_of
from producers.use_cases.tenants import chat_host, locked_tenant
from routing.addresses import refusal_of

MOST_ADDRESSES = 10
"""The most people of a tenant that get e-mail."""
_LONGEST_URL = 2_000
WaitState = Literal["awaiting_approval", "clarifying"]


class NoticeChoice(BaseModel, extra="forbid"):
    """Of which waits a tenant wants to hear, and where besides the jobs' `callback_url`."""

    states: list[WaitState] = Field(default=[], max_length=2)
    """States of which a message is sent when a job gets there; none by default."""
    chat_url: str | None = None
    """Incoming webhook of Slack, Mattermost or Teams, which gets `{"text": ...}` with a link. It is a secret."""
    mail_to: list[Annotated[str, Field(max_length=254)]] = Field(default=[], max_length=MOST_ADDRESSES)
    """Addresses that get the same as plain text, where the installation has an SMTP server."""


class NoticeChoiceView(View):
    """A tenant's choice."""

    states: list[str]
    chat_host: str | None
    """Host of the chat's incoming webhook; the rest of its URL is never shown."""
    mail_to: list[str]


class NoticeView(View):
    """A message that a job waits for a person."""

    id: UUID
    job_id: UUID
    message_id: str
    """The header `webhook-id`: the same on every try and replay."""
    channel: Literal["callback", "chat", "mail"]
    state: Literal["pending", "delivered", "undelivered"]
    """`undelivered` once all tries have failed."""
    payload: dict[str, Any]
    callback_url: str | None
    """None for a chat and for e-mail."""
    created_at: datetime
    next_at: datetime | None
    """When it is tried next."""
    delivered_at: datetime | None
    replays: int
    """How often it was requested again."""
    deliveries: tuple[TryView, ...]
    """The last fifty tries, in order."""


class NoticesPage(Page):
    """A page of notices, newest first."""

    notices: list[NoticeView]


@dataclass(frozen=True)
class Notices:
    """The notices of an installation's tenants."""

    ledger: Ledger

    def choice(self, tenant: str) -> NoticeChoiceView:
        """Return a tenant's choice."""
        with self.ledger.begin() as session:
            row = session.get_one(Tenant, tenant)
            return NoticeChoiceView(states=row.notices, chat_host=chat_host(row.chat_url), mail_to=row.mail_to)

    def choose(self, choice: NoticeChoice, *, tenant: str, allow_private: bool, actor: str) -> NoticeChoiceView:
        """Set a tenant's choice. It counts for waits that begin from now on.

        Raises:
            UnknownTenantError, InvalidInputError: the caller's fault.
        """
        if (url := choice.chat_url) is not None:
            rule = refusal_of(url, allow_private=allow_private)
            if len(url) > _LONGEST_URL:
                rule = f"must not be longer than {_LONGEST_URL} characters"
            if rule is not None:
                raise InvalidInputError("chat_url", rule)
        if not all(re.fullmatch(MAIL_PATTERN, one) for one in choice.mail_to):
            raise InvalidInputError("mail_to", "must be e-mail addresses like name@example.org")
        states, addresses = sorted(set(choice.states)), sorted(set(choice.mail_to))
        told: dict[str, Any] = {"states": states, "chat_host": chat_host(url), "mail_to": addresses}
        with self.ledger.begin() as session:
            row = locked_tenant(session, tenant)
            row.notices, row.chat_url, row.mail_to = [*states], url, addresses
            audit.append(session, "notices_chosen", actor=actor, tenant=tenant, **told)
        return self.choice(tenant)

    def find(
        self, tenant: str, *, wanted: Wanted | None = None, cursor: str | None = None, limit: int = 50
    ) -> NoticesPage:
        """Return a tenant's notices with their tries, newest first.

        Raises:
            InvalidJobError: the caller's fault: no such cursor.
        """
        with self.ledger.begin() as session:
            after = mark_of(NotificationMark, cursor)
            found = notifications.find_notices(session, tenant, wanted=wanted, after=after, limit=limit)
            views = [_view_of(one) for one in found]
        more = cursor_of(NotificationMark(views[-1].created_at, views[-1].id)) if len(views) == limit else None
        return NoticesPage(notices=views, next_cursor=more)

    def replay(self, notice_id: UUID, *, tenant: str, actor: str) -> NoticeView:
        """Send a notice again, whether it arrived or not.

        Raises:
            NoticeNotFoundError: the caller's fault.
            NotReplayableError: the caller's fault; nothing changed.
        """
        with self.ledger.begin() as session:
            return _view_of(notifications.replay_notice(session, notice_id, tenant=tenant, actor=actor))


def _view_of(found: NoticeState) -> NoticeView:
    notice = found.notice
    unsent = "undelivered" if notice.next_at is None else "pending"
    state = unsent if notice.delivered_at is None else "delivered"
    tries = tuple(map(TryView.of, found.deliveries))
    return NoticeView.of(notice, message_id=message_id(notice.id), state=state, deliveries=tries)

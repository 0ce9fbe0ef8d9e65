"""Deliver what tenants are owed, the end of a job and its waits for a person: signed, retried, never into our network.

Hundreds of tries are in flight at once, each within its time. Tenants take turns, none may have more than its part of
the tries, and a destination that gives no answer is left alone for a while: slow receivers delay their owner alone.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar, TypeVarTuple

import aiohttp
import aiosmtplib
from sqlalchemy.exc import SQLAlchemyError
from sqlmodel import Session
from standardwebhooks.webhooks import Webhook

from gateway.errors import AddressRefusedError
from gateway.network import authorities, public_socket
from ledger.job_ends import CHAT, MAIL
from ledger.notifications import Due, Try, book, claim_due_notifications, has_due_notification, postpone
from ledger.store import Ledger
from producers.config import MailConfig, WebhookConfig
from producers.dispatch.containment import contained
from producers.dispatch.mail import is_silence, mail_of, send
from routing.addresses import NOT_PUBLIC, refusal_of
from routing.jobs import State
from routing.policy.platform import Webhooks

logger = logging.getLogger(__name__)

PREFIX = "whsec_"
RETRY_SECONDS = (5, 30, 120, 600, 3600)
"""Waits before the second and later tries; after the last the notification stays undelivered, on record."""
_MOST_DOUBLINGS = 16
T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")
_MOST_CIRCUITS = 10_000


def tenant_secrets(config: WebhookConfig, tenant: str) -> tuple[str, ...]:
    """Return the secrets that sign a tenant's callbacks, newest first; none where the installation has none.

    Each tenant's own, derived and never stored, so that no receiver can forge another's callbacks.
    """
    roots = [root.get_secret_value() for root in (config.secret, *config.old_secrets)]
    return tuple(_derive(root, tenant) for root in roots if root)


def _derive(root: str, tenant: str) -> str:
    made = hmac.digest(root.encode(), f"pointsman webhook {tenant}".encode(), hashlib.sha256)
    return PREFIX + base64.b64encode(made).decode()


_CHAT_TEXT = {State.AWAITING_APPROVAL: "waits for your approval", State.CLARIFYING: "has a question for you"}


def chat_message(payload: Mapping[str, object], console_url: str) -> dict[str, str]:
    """Return a notice as Slack, Mattermost and Teams take it at an incoming webhook.

    It holds no text of a person or a model: what a chat makes of markup and mentions is then no matter.
    """
    about = f"a job on site {payload['site']}" if "site" in payload else "a job"
    said = _CHAT_TEXT[State(str(payload["state"]))]
    return {"text": f"Pointsman: {about} {said}. {console_url}/jobs/{payload['job_id']}"}


class Circuit(NamedTuple):
    """What a process remembers of a destination that gave no answer. Times are monotonic seconds."""

    failures: int = 0
    """Tries in a row without an answer."""
    open_until: float = 0.0
    is_testing: bool = False
    """Whether one try is on its way to see if the destination answers again."""


def before_try(circuit: Circuit, now: float, rules: Webhooks) -> tuple[float, Circuit]:
    """Return how long a try has to wait, 0 for not at all, and the circuit after that decision."""
    if circuit.failures < rules.failures:
        return 0.0, circuit
    if circuit.open_until > now:
        return circuit.open_until - now, circuit
    return 0.0, circuit._replace(open_until=now + rules.seconds, is_testing=True)


def after_silence(circuit: Circuit, now: float, rules: Webhooks) -> Circuit:
    """Return the circuit after a try without an answer; those that were under way when it opened count no more."""
    if circuit.open_until > now and not circuit.is_testing:
        return circuit
    failures = circuit.failures + 1
    if failures < rules.failures:
        return Circuit(failures)
    pause = rules.pause_seconds * 2 ** min(failures - rules.failures, _MOST_DOUBLINGS)
    return Circuit(failures, now + min(pause, rules.longest_pause_seconds))


class _Tried(NamedTuple):
    due: Due
    answer: Try
    is_silence: bool = False
    """Whether the destination did not answer at all."""


_Running = dict[asyncio.Task[_Tried], Due]


class _Turn(NamedTuple):
    """The tries to begin now."""

    due: list[Due]
    is_behind: bool = False
    """Whether some that were claimed have to wait for their circuit, so that others may still be due."""
    unrecorded: Sequence[_Tried] = ()
    """Tries that could not be recorded, because the ledger is away."""


@dataclass(eq=False)
class WebhookSender:
    """Delivers what is due, from one event loop."""

    ledger: Ledger
    config: WebhookConfig
    rules: Webhooks
    console_url: str
    """Where people find the console, for links in a chat or an e-mail."""
    mail: MailConfig = field(default_factory=MailConfig)
    _circuits: dict[tuple[str, str], Circuit] = field(default_factory=dict, init=False)
    _thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1), init=False)

    def deliver_due(self) -> int:
        """Deliver until nothing is due any more; returns how many tries that took."""
        return asyncio.run(self._run(threading.Event(), tick_seconds=1.0, until_idle=True))

    def serve(self, stopping: threading.Event, *, tick_seconds: float) -> None:
        """Deliver until stopped. A stop waits for the tries in flight."""
        asyncio.run(self._run(stopping, tick_seconds=tick_seconds))

    async def _run(self, stopping: threading.Event, *, tick_seconds: float, until_idle: bool = False) -> int:
        if not self.config.secret.get_secret_value():
            return 0
        # A look-up holds a thread, and may hang for longer than its try.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(4 * self.rules.in_flight))
        running: _Running = {}
        ended: Sequence[_Tried] = ()
        count = 0
        async with self._client() as client:
            while running or not stopping.is_set():
                turn = await self._next_turn(ended, running, is_stopping=stopping.is_set())
                ended = turn.unrecorded
                count += len(turn.due)
                running |= {asyncio.create_task(self._try(client, due)): due for due in turn.due}
                if running:
                    timeout = 0.0 if turn.is_behind else tick_seconds
                    done, _ = await asyncio.wait(running, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
                    ended = [*ended, *self._ended(done, running)]
                elif until_idle and not turn.is_behind:
                    break
                elif not turn.is_behind:
                    await self._aside(stopping.wait, tick_seconds)
            await self._next_turn(ended, running, is_stopping=True)
        return count

    async def _aside(self, do: Callable[[*Arguments], T], *arguments: *Arguments) -> T:
        """Run what blocks in a separate thread, so that no DNS look-up holds up the sender."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, do, *arguments)

    async def _next_turn(self, ended: Sequence[_Tried], running: _Running, *, is_stopping: bool) -> _Turn:
        room = 0 if is_stopping else self.rules.in_flight - len(running)
        in_flight = Counter(due.tenant for due in running.values())
        try:
            with contained(type(self).__name__):
                return await self._aside(self._take_turn, ended, room, in_flight)
            await self._aside(self._record_each, ended)
        except SQLAlchemyError:
            logger.warning("ledger_unreachable")
            return _Turn([], unrecorded=ended)
        return _Turn([])

    def _ended(self, done: Iterable[asyncio.Task[_Tried]], running: _Running) -> Iterator[_Tried]:
        """Take the tries that have ended out of the running ones, and note which destinations are silent."""
        for task in done:
            due = running.pop(task)
            if (error := task.exception()) is not None:  # our fault; the claim lapses, and it is tried again
                logger.error("webhook_broken", exc_info=error, extra={"job_id": str(due.job_id)})
                continue
            tried, place = task.result(), (due.tenant, due.destination)
            if tried.is_silence:
                before = self._circuits.get(place, Circuit())
                self._circuits[place] = after_silence(before, time.monotonic(), self.rules)
            else:
                self._circuits.pop(place, None)
            yield tried

    def _client(self) -> aiohttp.ClientSession:
        """Return a client that decides at connect time; it uses no proxy, keeps no cookie and no connection."""
        connector = aiohttp.TCPConnector(
            limit=0,
            ssl=authorities(),
            force_close=True,
            socket_factory=None if self.config.allow_private else public_socket,
        )
        return aiohttp.ClientSession(
            connector=connector,
            timeout=aiohttp.ClientTimeout(total=None),  # `_try` has one for all of it
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            headers={"user-agent": "pointsman"},
        )

    def _take_turn(self, ended: Sequence[_Tried], room: int, in_flight: Mapping[str, int]) -> _Turn:
        """Record the tries that have ended, and claim the next ones, in one transaction."""
        now, due = time.monotonic(), []
        if not ended:
            with self.ledger.look() as connection:
                if not has_due_notification(connection):
                    return _Turn([])
        with self.ledger.begin() as session:
            for tried in ended:
                _record(session, tried)
            if room <= 0:
                return _Turn([])
            claimed = claim_due_notifications(session, room, per_tenant=self.rules.per_tenant, in_flight=in_flight)
            for each in claimed:
                place = (each.tenant, each.destination)
                seconds, circuit = before_try(self._circuits.get(place, Circuit()), now, self.rules)
                if seconds:
                    postpone(session, each, seconds=seconds)
                else:
                    due.append(each)
                if circuit.failures:
                    self._circuits[place] = circuit
        if len(self._circuits) > _MOST_CIRCUITS:
            self._circuits = {place: one for place, one in self._circuits.items() if one.open_until > now}
        return _Turn(due, is_behind=len(due) < len(claimed))

    def _record_each(self, ended: Sequence[_Tried]) -> None:
        """Record tries that could not be recorded together; one that cannot be at all keeps no other from it."""
        for tried in ended:
            with contained("record_try", job_id=str(tried.due.job_id)), self.ledger.begin() as session:
                _record(session, tried)

    async def _try(self, client: aiohttp.ClientSession, due: Due) -> _Tried:
        started = time.monotonic()
        if due.channel == MAIL:
            tried = await self._send_mail(due)
            return tried._replace(answer=tried.answer._replace(seconds=round(time.monotonic() - started, 3)))
        refusal = refusal_of(due.callback_url, allow_private=self.config.allow_private)
        tried = await self._post(client, due) if refusal is None else _Tried(due, Try("refused", detail=refusal))
        if tried.answer.outcome == "refused":
            logger.warning("webhook_refused", extra={"job_id": str(due.job_id), "rule": tried.answer.detail})
        return tried._replace(answer=tried.answer._replace(seconds=round(time.monotonic() - started, 3)))

    async def _send_mail(self, due: Due) -> _Tried:
        said = chat_message(due.payload, self.console_url)["text"]
        recipients = due.callback_url.removeprefix("mailto:").split(",")
        if not self.mail.host or not recipients[0]:
            return _Tried(due, Try("refused", detail="there is no SMTP server" if recipients[0] else "nobody gets it"))
        mail = mail_of(said, recipients, sender=self.mail.sender, message_id=due.message_id, at=due.claimed_at)
        try:
            refused = await send(self.mail, mail, seconds=self.rules.seconds)
        except (OSError, aiosmtplib.SMTPException) as error:
            logger.info("mail_failed", extra={"job_id": str(due.job_id), "error": type(error).__name__})
            status = error.code if isinstance(error, aiosmtplib.SMTPResponseException) else None
            return _Tried(due, Try("failed", status=status, detail=type(error).__name__), is_silence(error))
        return _Tried(due, Try("delivered", detail=f"not to {refused} of the addresses" if refused else ""))

    async def _post(self, client: aiohttp.ClientSession, due: Due) -> _Tried:
        is_chat = due.channel == CHAT
        body = json.dumps(chat_message(due.payload, self.console_url) if is_chat else due.payload, sort_keys=True)
        headers = {"content-type": "application/json", **({} if is_chat else self._signed(due, body))}
        try:
            async with (
                asyncio.timeout(self.rules.seconds),
                client.post(due.callback_url, data=body, headers=headers, allow_redirects=False) as answer,
            ):
                # The body is the receiver's: it is never read.
                outcome = "delivered" if answer.status // 100 == 2 else "failed"
                return _Tried(due, Try(outcome, status=answer.status))
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            if isinstance(error, aiohttp.ClientConnectorError) and isinstance(error.os_error, AddressRefusedError):
                return _Tried(due, Try("refused", detail=NOT_PUBLIC))
            logger.info("webhook_failed", extra={"job_id": str(due.job_id), "error": type(error).__name__})
            is_silence = not isinstance(error, aiohttp.ClientResponseError | ValueError)
            return _Tried(due, Try("failed", detail=type(error).__name__), is_silence)

    def _signed(self, due: Due, body: str) -> dict[str, str]:
        """Return the headers of Standard Webhooks, with a signature by each valid secret."""
        sent_at, message_id = due.claimed_at, due.message_id
        signers = [Webhook(secret) for secret in tenant_secrets(self.config, due.tenant)]
        return {
            "webhook-id": message_id,
            "webhook-timestamp": str(int(sent_at.timestamp())),
            "webhook-signature": " ".join(signer.sign(message_id, sent_at, body) for signer in signers),
        }


def _record(session: Session, tried: _Tried) -> None:
    """Record a try, and when the next one is due."""
    due = tried.due
    again_in = RETRY_SECONDS[due.number - 1] if due.number <= len(RETRY_SECONDS) else None
    book(session, due, tried.answer, again_in=again_in)

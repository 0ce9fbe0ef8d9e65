"""The Celery intake: any client sends `pointsman.submit` to queue `intake` with JSON kwargs.

The task id is the job's id and its idempotency key: a client finds its job by the id that it has, and a message
submitted twice is one job. Messages are hostile: sizes are bounded before anything is unpacked, and only the JSON
parser sees the content.

No Celery worker reads this list: one that is killed between its pop and its record of it would lose the message
(docs/pitfalls.md, 7). A message is read in place, submitted as often as it takes, and then removed: by one reader under
a ledger lease, although a second one would do no harm.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, TypeGuard
from uuid import UUID

from redis.exceptions import RedisError
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from ledger.cells.tenant_rows import is_closed_error
from ledger.errors import IdempotencyConflictError
from ledger.operations.leaders import CELERY_INTAKE, lead, resign
from ledger.store import Ledger, Statement
from monitoring import traces
from producers.dispatch.redis_client import open_broker
from producers.errors import AdmissionRefusedError, ElsewhereError, UnknownTenantError, UnreadableMessageError
from producers.intake.celery_messages import CeleryMessage, read_message
from producers.intake.submit import Submitter
from routing.broker import INTAKE_LISTS, intake_list, lists_at
from routing.errors import FieldError, InvalidJobError
from routing.jobs import Source, check_site_name
from routing.queues import QUEUES, SUBMIT_TASK, QueueName

logger = logging.getLogger(__name__)


_FACTS: traces.Facts = {
    "messaging.system": "celery",
    "messaging.operation.type": "receive",
    "messaging.destination.name": "intake",
}


Forward = Callable[[str, str, bytes], bool]
"""Puts a message of a tenant, which was on a list, onto that list of the cell that has the tenant.

Returns False where that is this cell, or none. Raises ElsewhereError where it cannot be done now.
"""


def take_in(
    message: CeleryMessage,
    submitter: Submitter,
    *,
    tenant: str | None = None,
    forward: Callable[[str], bool] = lambda _: False,
) -> None:
    """Submit a message; a refusal becomes a `rejected` row under the task id.

    Args:
        message: the client's message.
        submitter: accepts the job.
        tenant: the owner of the queue that it was on; None for the shared one, where a message names its tenant.
        forward: hands it to another cell that has this tenant; False if none has.

    Raises:
        ElsewhereError: nobody's fault: its tenant is moving, or its cell is away.
    """
    fields = message.job_fields()
    named = fields.pop("tenant", tenant or "")
    if tenant is None:
        tenant = named if _is_tenant_name(named) else ""  # nothing else may reach the ledger
    job_id = _uuid_of(message)
    try:
        with traces.begin("receive intake", message.traceparent, kind=traces.Kind.CONSUMER, facts=_FACTS):
            try:
                _submit(message, fields, job_id, named=named, tenant=tenant, submitter=submitter)
            except (UnknownTenantError, OperationalError) as error:
                _hand_on(error, tenant, forward)
    except UnknownTenantError:
        logger.warning("intake_refused", extra={"job_id": str(job_id), "rule": "unknown tenant"})
        refusal = _refusal("tenant", _UNKNOWN)
        submitter.record_refusal(refusal, tenant=tenant, source=Source.CELERY, job_id=job_id)
    except InvalidJobError as error:
        tell = logger.info if job_id is not None else logger.warning  # without an id the refusal cannot be looked up
        tell("intake_refused", extra={"job_id": str(job_id), "fields": [item.field for item in error.errors]})
    except AdmissionRefusedError as error:
        logger.info("intake_full", extra={"job_id": str(job_id), "retry_after_seconds": error.retry_after_seconds})
    except IdempotencyConflictError:
        logger.warning("intake_refused", extra={"job_id": str(job_id), "rule": "task id used with another body"})


_UNKNOWN = "is not known here"


def _is_tenant_name(name: object) -> TypeGuard[str]:
    try:
        return isinstance(name, str) and bool(check_site_name(name))
    except ValueError:
        return False


def _refusal(field: str, rule: str) -> InvalidJobError:
    return InvalidJobError((FieldError(field, rule),))


def _submit(
    message: CeleryMessage,
    fields: dict[str, object],
    job_id: UUID | None,
    *,
    named: object,
    tenant: str,
    submitter: Submitter,
) -> None:
    try:
        _check(message, job_id, named=named, tenant=tenant)
    except InvalidJobError as error:
        submitter.record_refusal(error, tenant=tenant, source=Source.CELERY, job_id=job_id)
        raise
    submitter.submit(fields, tenant=tenant, source=Source.CELERY, job_id=job_id)


def _check(message: CeleryMessage, job_id: UUID | None, *, named: object, tenant: str) -> None:
    if job_id is None:
        raise _refusal("id", "the task id must be a UUID")
    if not tenant:
        raise _refusal("tenant", _UNKNOWN if named else "is missing")
    if named != tenant:
        raise _refusal("tenant", "is not the tenant of this queue; leave it out")
    message.check_expiry(datetime.now(UTC))


def _hand_on(error: UnknownTenantError | OperationalError, tenant: str, forward: Callable[[str], bool]) -> None:
    """Forward the message of a tenant that is not here, or not any more; else raise."""
    is_closed = isinstance(error, OperationalError) and is_closed_error(error.orig)
    if isinstance(error, OperationalError) and not is_closed:
        raise error
    if not forward(tenant):
        raise ElsewhereError if is_closed else error


_OWN_TASKS = frozenset(queue.task for queue in QUEUES.values())

LEASE_SECONDS = 5.0
MAX_MESSAGE_BYTES = 1_048_576
"""A larger message is not read at all."""
MAX_TRIES = 5
"""After this many failures or crashes a message is refused and set aside; the refusal has as many tries."""
BATCH = 20
LONGEST_WAIT_SECONDS = 2.0
TRIES_KEY = "pointsman:intake:tries"
_KEEP_TRIES_SECONDS = 86_400

_LOOK = """
local found, busy = {}, {}
for position = 1, #KEYS - 1 do
  if #busy == tonumber(ARGV[1]) then break end
  if redis.call('LLEN', KEYS[position]) > 0 then table.insert(busy, position) end
end
if #busy == 0 then return found end
local share = math.max(1, math.floor(tonumber(ARGV[1]) / #busy))
for _, position in ipairs(busy) do
  local list = KEYS[position]
  local bodies = redis.call('LRANGE', list, -share, -1)
  for index = #bodies, 1, -1 do
    local body = bodies[index]
    if #body > tonumber(ARGV[2]) then
      redis.call('LREM', list, -1, body)
      if position <= tonumber(ARGV[3]) then redis.call('LPUSH', KEYS[#KEYS], body) end
      table.insert(found, {position, 1, ''})
    else
      table.insert(found, {position, 0, body})
    end
  end
end
return found
"""
"""Returns the oldest messages, an equal share of each non-empty list, and no more than fit into one answer: further
lists have their turn next time. An oversized message is set aside unread; one on a tenant's own list is dropped, since
no tenant may fill the list that people examine."""


_PUT_LAST = "if redis.call('LREM', KEYS[1], -1, ARGV[1]) > 0 then redis.call('LPUSH', KEYS[1], ARGV[1]) end"
_TENANTS = Statement("SELECT name FROM tenant ORDER BY name")


@dataclass(frozen=True)
class WaitingMessage:
    """A message on its list."""

    list_name: str
    is_oversized: bool
    """Whether it was too large, and has been set aside."""
    body: bytes
    tenant: str | None = None
    """Owner of the list. Only the list is trusted for it, not the message."""

    @property
    def digest(self) -> str:
        """The key under which its tries are counted."""
        return hashlib.sha1(self.body, usedforsecurity=False).hexdigest()


class IntakeLists:
    """The lists to which Celery clients send messages."""

    def __init__(self, url: str, *, tls: Mapping[str, Any] = MappingProxyType({})) -> None:
        self._redis = open_broker(url, tls=tls)
        self._look = self._redis.register_script(_LOOK)
        self._put_last = self._redis.register_script(_PUT_LAST)
        self._last = ""
        """The tenant whose list was read last: the next read begins after it."""

    def look(self, tenants: Sequence[str] = ()) -> Sequence[WaitingMessage]:
        """Return the oldest messages of the shared list and of tenants' own, in turn."""
        lists: list[tuple[str, str | None]] = [(name, None) for name in INTAKE_LISTS]
        in_turn = sorted(tenants, key=lambda tenant: (tenant <= self._last, tenant))
        lists += [(name, tenant) for tenant in in_turn for name in lists_at(intake_list(tenant))]
        found = self._look(
            keys=[*(name for name, _ in lists), QueueName.UNROUTED.value],
            args=[BATCH, MAX_MESSAGE_BYTES, len(INTAKE_LISTS)],
        )
        assert isinstance(found, list)
        standing = [
            WaitingMessage(lists[position - 1][0], bool(unread), body, lists[position - 1][1])
            for position, unread, body in found
        ]
        self._last = (standing[-1].tenant or "") if standing else ""
        return standing

    def count_try(self, standing: WaitingMessage) -> int:
        """Count a try to submit a message; returns the number of tries including this one."""
        with self._redis.pipeline() as pipe:
            pipe.hincrby(TRIES_KEY, standing.digest, 1)
            pipe.expire(TRIES_KEY, _KEEP_TRIES_SECONDS)
            tries, _ = pipe.execute()
        return int(tries)

    def remove(self, standing: WaitingMessage) -> None:
        """Remove a message that is done with."""
        with self._redis.pipeline() as pipe:
            pipe.lrem(standing.list_name, -1, standing.body)  # type: ignore[arg-type]
            pipe.hdel(TRIES_KEY, standing.digest)
            pipe.execute()

    def put_aside(self, standing: WaitingMessage) -> None:
        """Move a message of the shared list to `unrouted` for people to examine; drop one of a tenant's own."""
        if standing.tenant is not None:
            self.remove(standing)
            return
        with self._redis.pipeline() as pipe:
            pipe.lrem(standing.list_name, -1, standing.body)  # type: ignore[arg-type]
            pipe.lpush(QueueName.UNROUTED.value, standing.body)
            pipe.hdel(TRIES_KEY, standing.digest)
            pipe.execute()

    def put_last(self, standing: WaitingMessage) -> None:
        """Let a message wait; on a shared list it goes behind all others, which need not wait as long."""
        self.forget_tries(standing)
        if standing.tenant is None:
            self._put_last(keys=[standing.list_name], args=[standing.body])

    def forget_tries(self, standing: WaitingMessage) -> None:
        """Reset a message's tries after a failure that was not its fault."""
        self._redis.hdel(TRIES_KEY, standing.digest)

    def wait(self, seconds: float) -> None:
        """Block until the first list holds a message, by moving one onto itself."""
        bound = min(seconds, LONGEST_WAIT_SECONDS)  # the client gives up on a silent broker after a few seconds
        self._redis.blmove(INTAKE_LISTS[0], INTAKE_LISTS[0], bound, src="RIGHT", dest="RIGHT")  # type: ignore[arg-type]

    def close(self) -> None:
        """Close the connection."""
        self._redis.close()


def _uuid_of(message: CeleryMessage | None) -> UUID | None:
    try:
        return UUID(message.id) if message is not None else None
    except ValueError:
        return None


@dataclass(eq=False)
class CeleryIntake:
    """Submits the messages of Celery clients."""

    lists: IntakeLists
    ledger: Ledger
    submitter: Submitter
    holder: str
    is_shared: bool = True
    forward: Forward | None = None
    _failed: int = field(default=0, init=False)

    def submit_waiting(self) -> int:
        """Submit the oldest messages; returns how many were read.

        Raises:
            SQLAlchemyError: the ledger is away; all messages stay.
            RedisError: the broker is away.
        """
        with self.ledger.look() as connection:
            tenants = _TENANTS.scalars(connection)
        standing = self.lists.look(tenants)
        self._failed = sum(not self._try_submit(each) for each in standing)
        return len(standing)

    def serve(self, stopping: threading.Event, *, tick_seconds: float) -> None:
        """Submit messages until stopped, while this is the leader; waits while ledger or broker is away."""
        while not stopping.is_set():
            try:
                if not self._leads():
                    stopping.wait(tick_seconds)
                elif not self.submit_waiting():
                    self.lists.wait(tick_seconds)
                elif self._failed:  # spread the few tries of a failing message over time
                    stopping.wait(tick_seconds)
            except (SQLAlchemyError, RedisError) as error:
                logger.warning("intake_waits", extra={"error": type(error).__name__})
                stopping.wait(tick_seconds)
        self._resign()

    def _try_submit(self, standing: WaitingMessage) -> bool:
        """Submit one message; False if it failed and stays for another try."""
        try:
            self._submit_waiting(standing)
        except SQLAlchemyError:
            if self._is_ledger_away():
                self.lists.forget_tries(standing)
                raise
            logger.exception("intake_failed")
        except RedisError:
            raise
        except ElsewhereError:
            self.lists.put_last(standing)
        except Exception:  # one message's fault or ours
            logger.exception("intake_failed")
        else:
            return True
        return False

    def _is_ledger_away(self) -> bool:
        """Whether nothing can be written at all: then no message is at fault."""
        try:
            self._leads()
        except SQLAlchemyError:
            return True
        return False

    def _leads(self) -> bool:
        with self.ledger.look() as connection:
            return lead(connection, CELERY_INTAKE, self.holder, seconds=LEASE_SECONDS)

    def _resign(self) -> None:
        try:
            with self.ledger.begin() as session:
                resign(session, CELERY_INTAKE, self.holder)
        except SQLAlchemyError:
            logger.warning("ledger_unreachable")

    def _submit_waiting(self, standing: WaitingMessage) -> None:
        if standing.is_oversized:
            self._refuse(standing, f"a message has at most {MAX_MESSAGE_BYTES} bytes")
            return
        if (tries := self.lists.count_try(standing)) > MAX_TRIES:
            self._give_up(standing, tries=tries)
            return
        try:
            message = read_message(standing.body)
        except UnreadableMessageError as error:
            self._refuse(standing, str(error))
            self.lists.put_aside(standing)
            return
        self._answer(message, standing)

    def _answer(self, message: CeleryMessage, standing: WaitingMessage) -> None:
        if standing.tenant is None and not self.is_shared:
            self._refuse(standing, "the shared intake queue is closed: use the tenant's own queue")
            self.lists.remove(standing)
        elif message.task == SUBMIT_TASK:
            forward = self.forward or (lambda *_: False)
            take_in(
                message,
                self.submitter,
                tenant=standing.tenant,
                forward=lambda tenant: forward(tenant, standing.list_name, standing.body),
            )
            self.lists.remove(standing)
        elif message.task in _OWN_TASKS:  # a fleet pushed its own work here; the ledger has all of it
            logger.warning("own_message_at_intake", extra={"task": message.task})
            self.lists.remove(standing)
        else:
            self._refuse(standing, f"{_UNKNOWN}; {SUBMIT_TASK} is", field="task", message=message)
            self.lists.put_aside(standing)

    def _refuse(
        self, standing: WaitingMessage, rule: str, *, field: str = "message", message: CeleryMessage | None = None
    ) -> None:
        """Log a refusal, and record it where its sender can find it: with the list's owner, or by its task id."""
        logger.warning("intake_refused", extra={"rule": rule, "tenant": standing.tenant})
        named = message.kwargs.get("tenant") if message is not None else None
        tenant = standing.tenant or (named if _is_tenant_name(named) else "")
        job_id = _uuid_of(message)
        if tenant or job_id is not None:
            self.submitter.record_refusal(_refusal(field, rule), tenant=tenant, source=Source.CELERY, job_id=job_id)

    def _give_up(self, standing: WaitingMessage, *, tries: int) -> None:
        """Refuse a message that keeps failing and set it aside, without a row if recording it keeps failing too."""
        if tries <= 2 * MAX_TRIES:
            message = read_message(standing.body)
            refusal = _refusal("body", f"taking it in failed {MAX_TRIES} times")
            tenant = standing.tenant or str(message.kwargs.get("tenant", ""))
            self.submitter.record_refusal(refusal, tenant=tenant, source=Source.CELERY, job_id=UUID(message.id))
        self.lists.put_aside(standing)
        logger.error("intake_given_up", extra={"tries": tries - 1, "tenant": standing.tenant})

"""Reads what a Celery client of any language put on a list: kombu's envelope, protocol 1 or 2, JSON and nothing else.

Everything in it is hostile: sizes are bounded before anything is unpacked, and only the JSON parser sees it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import logging
import threading
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, NoReturn
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json
from redis.exceptions import RedisError
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError
from sqlmodel import col

from ledger.dispatch_window import lead, resign
from ledger.errors import IdempotencyConflictError
from ledger.store import Ledger
from ledger.tables import Tenant
from monitoring import traces
from producers.dispatch.broker import open_broker
from producers.errors import AdmissionRefusedError, UnknownTenantError, UnreadableMessageError
from producers.intake.submit import Submitter
from routing.broker import DOOR_LISTS, door_of, lists_at
from routing.errors import FieldError, InvalidJobError
from routing.jobs import Door, check_site_name
from routing.queues import QUEUES, SUBMIT_TASK, QueueName

MAX_BODY_BYTES = 4_194_304
"""What a compressed body may unpack to."""
_JSON = "application/json"
_ZLIB = "application/x-gzip"  # the name that kombu gives to zlib


class _Headers(BaseModel):
    model_config = ConfigDict(extra="ignore")

    task: str | None = None
    id: str | None = None
    compression: str | None = None
    eta: str | None = None
    expires: str | None = None
    traceparent: Any = None
    """What it is does not decide whether the message can be read."""


class _Properties(BaseModel):
    model_config = ConfigDict(extra="ignore")

    body_encoding: str | None = None


class _Envelope(BaseModel):
    model_config = ConfigDict(extra="ignore")

    body: str
    content_type: str = Field(alias="content-type")
    headers: _Headers = _Headers()
    properties: _Properties = _Properties()


@dataclass(frozen=True)
class CeleryMessage:
    """What a client asks for."""

    task: str
    id: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    eta: str | None = None
    expires: str | None = None
    traceparent: str | None = None
    """In which trace its client sent it, as that says; None where it says nothing."""

    def job_fields(self) -> dict[str, Any]:
        """Return the fields of the job that is asked for.

        A message that was to be delivered later makes a job that starts later: no process keeps it until then. What
        cannot be kept to stands among the fields, where it is refused by name.
        """
        fields = dict(self.kwargs)
        if self.args:
            fields["args"] = "positional"
        if self.eta is not None:
            fields.setdefault("start_at", self.eta)
        return fields

    def check_expiry(self, now: datetime) -> None:
        """Refuse a message that its client wants no more.

        Raises:
            InvalidJobError: the caller's wish.
        """
        try:
            until = datetime.fromisoformat(self.expires) if self.expires is not None else None
        except ValueError:
            raise InvalidJobError((FieldError("expires", "must be a date and time of ISO 8601"),)) from None
        if until is not None and now > (until if until.tzinfo else until.replace(tzinfo=UTC)):
            raise InvalidJobError((FieldError("expires", "has passed before the message was taken in"),))


def read_message(raw: bytes) -> CeleryMessage:
    """Read a message as it stands on a list.

    Raises:
        UnreadableMessageError: the sender's fault; the text names the rule and repeats nothing.
    """
    try:
        envelope = _Envelope.model_validate_json(raw)
    except ValidationError:
        raise UnreadableMessageError("it is no message of Celery") from None
    if envelope.content_type != _JSON:
        raise UnreadableMessageError("its content type is not application/json")
    try:
        body = from_json(_unpack(envelope))
    except ValueError:
        raise UnreadableMessageError("its body cannot be read as JSON") from None
    headers = envelope.headers
    if headers.task is not None:
        return _second_protocol(headers, body)
    return _first_protocol(body)


def _unpack(envelope: _Envelope) -> bytes:
    data = envelope.body.encode()
    if envelope.properties.body_encoding == "base64":
        try:
            data = base64.b64decode(data, validate=True)
        except binascii.Error:
            raise UnreadableMessageError("its body is no base64") from None
    if envelope.headers.compression is None:
        return data
    if envelope.headers.compression != _ZLIB:
        raise UnreadableMessageError("its compression is not known here; gzip is")
    unpacker = zlib.decompressobj()
    try:
        unpacked = unpacker.decompress(data, MAX_BODY_BYTES)
    except zlib.error:
        raise UnreadableMessageError("its body cannot be unpacked") from None
    if unpacker.unconsumed_tail:
        raise UnreadableMessageError(f"its body unpacks to more than {MAX_BODY_BYTES} bytes")
    return unpacked


def _second_protocol(headers: _Headers, body: Any) -> CeleryMessage:
    match body:
        case [list(args), dict(kwargs), *_]:
            return CeleryMessage(
                headers.task or "",
                headers.id or "",
                tuple(args),
                kwargs,
                headers.eta,
                headers.expires,
                headers.traceparent if isinstance(headers.traceparent, str) else None,
            )
    raise UnreadableMessageError("its body is not [args, kwargs, ...]")


def _first_protocol(body: Any) -> CeleryMessage:
    match body:
        case {"task": str(task), "id": str(task_id), "args": list(args), "kwargs": dict(kwargs), **rest}:
            eta, expires = (rest.get(name) for name in ("eta", "expires"))
            return CeleryMessage(
                task,
                task_id,
                tuple(args),
                kwargs,
                eta if isinstance(eta, str) else None,
                expires if isinstance(expires, str) else None,
            )
    raise UnreadableMessageError("it names no task")


# The Celery door: takes `pointsman.submit` off the list `intake`, and never before the job's row is committed.
#
# No Celery worker reads this list. A worker pops a message and notes it down in two commands, so one that is killed
# in
# between loses it whatever its acknowledgements are set to (docs/pitfalls.md, 7). Here a message is looked at where
# it
# stands, taken in under its own id as often as it takes, and then removed: one reader by ledger lease, and a second
# one
# would do no harm.

# What a message at the Celery door means: any client sends `pointsman.submit` to queue `intake` with JSON kwargs.
#
# The message's task id is the job's id and its idempotency key, so a client finds its job by the id it already has,
# and
# a message that is taken in twice is one job.

logger = logging.getLogger(__name__)

_FACTS: traces.Facts = {
    "messaging.system": "celery",
    "messaging.operation.type": "receive",
    "messaging.destination.name": "intake",
}


def take_in(message: CeleryMessage, submitter: Submitter, *, tenant: str | None = None) -> None:
    """Submit what a Celery message carries; a refusal becomes a `rejected` row under the task's id.

    Args:
        message: as its client made it.
        submitter: takes it in.
        tenant: whose own door it stood at; None for the shared one, where a message names its tenant.
    """
    fields = message.job_fields()
    named = str(fields.pop("tenant", tenant or ""))
    if tenant is None:
        tenant = named
    if not _can_be_tenant(tenant):  # the rule for tenants, too; and nothing else may reach the ledger
        logger.warning("intake_refused", extra={"rule": "unknown tenant"})
        return
    try:
        job_id = UUID(message.id)
    except ValueError:
        logger.warning("intake_refused", extra={"rule": "the task id must be a UUID"})
        refusal = InvalidJobError((FieldError("id", "the task id must be a UUID"),))
        submitter.record_refusal(refusal, tenant=tenant, door=Door.CELERY)
        return
    try:
        if named != tenant:
            _refuse_stranger(tenant, job_id=job_id, submitter=submitter)
        with traces.begin("receive intake", message.traceparent, kind=traces.Kind.CONSUMER, facts=_FACTS):
            _submit(message, fields, tenant=tenant, job_id=job_id, submitter=submitter)
    except InvalidJobError as error:
        logger.info("intake_refused", extra={"job_id": str(job_id), "fields": [item.field for item in error.errors]})
    except AdmissionRefusedError as error:
        logger.info("intake_full", extra={"job_id": str(job_id), "retry_after_seconds": error.retry_after_seconds})
    except UnknownTenantError:
        logger.warning("intake_refused", extra={"job_id": str(job_id), "rule": "unknown tenant"})
    except IdempotencyConflictError:
        logger.warning("intake_refused", extra={"job_id": str(job_id), "rule": "task id used with another body"})


def _can_be_tenant(name: str) -> bool:
    try:
        check_site_name(name)
    except ValueError:
        return False
    return True


def _refuse_stranger(tenant: str, *, job_id: UUID, submitter: Submitter) -> NoReturn:
    error = InvalidJobError((FieldError("tenant", "is not the tenant of this queue; leave it out"),))
    submitter.record_refusal(error, tenant=tenant, door=Door.CELERY, job_id=job_id)
    raise error


def _submit(
    message: CeleryMessage, fields: dict[str, object], *, tenant: str, job_id: UUID, submitter: Submitter
) -> None:
    try:
        message.check_expiry(datetime.now(UTC))
    except InvalidJobError as error:
        submitter.record_refusal(error, tenant=tenant, door=Door.CELERY, job_id=job_id)
        raise
    submitter.submit(fields, tenant=tenant, door=Door.CELERY, job_id=job_id)


_OWN_TASKS = frozenset(queue.task for queue in QUEUES.values())

ROLE = "celery_door"
LEASE_SECONDS = 5.0
MAX_MESSAGE_BYTES = 1_048_576
"""A message that is larger is not even read."""
MAX_TRIES = 5
"""A message whose reading failed so often, or ended the process, is refused and put aside. The refusal has as many."""
BATCH = 20
LONGEST_WAIT_SECONDS = 2.0
TRIES_KEY = "pointsman:door:tries"
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
"""Looks at the oldest messages, as many of each list that holds any, and never at more than fit into one answer: of
more lists than that, the rest have their turn at the next looks. What is too large is put aside unread; a tenant's
own is dropped, for what stands aside is for people to look at, and nobody may fill that."""


@dataclass(frozen=True)
class Standing:
    """A message where it stands."""

    list_name: str
    is_unread: bool
    """Whether it was too large, and was put aside."""
    body: bytes
    tenant: str | None = None
    """Whose own door it stands at. Only the list tells: all that a message says, its sender wrote."""

    @property
    def digest(self) -> str:
        """What its tries are counted under."""
        return hashlib.sha1(self.body, usedforsecurity=False).hexdigest()


class DoorLists:
    """The lists on which Celery clients put their messages."""

    def __init__(self, url: str, *, tls: Mapping[str, Any] = MappingProxyType({})) -> None:
        self._redis = open_broker(url, tls=tls)
        self._look = self._redis.register_script(_LOOK)
        self._last = ""
        """The tenant whose door was looked at last: the next look begins behind it."""

    def look(self, tenants: Sequence[str] = ()) -> Sequence[Standing]:
        """Return the messages that have stood longest at the shared door and at those of tenants, in turn."""
        doors: list[tuple[str, str | None]] = [(name, None) for name in DOOR_LISTS]
        in_turn = sorted(tenants, key=lambda tenant: (tenant <= self._last, tenant))
        doors += [(name, tenant) for tenant in in_turn for name in lists_at(door_of(tenant))]
        found = self._look(
            keys=[*(name for name, _ in doors), QueueName.UNROUTED.value],
            args=[BATCH, MAX_MESSAGE_BYTES, len(DOOR_LISTS)],
        )
        assert isinstance(found, list)
        standing = [
            Standing(doors[position - 1][0], bool(unread), body, doors[position - 1][1])
            for position, unread, body in found
        ]
        self._last = (standing[-1].tenant or "") if standing else ""
        return standing

    def count_try(self, standing: Standing) -> int:
        """Note that a message is about to be taken in; returns how often that was so, this time included."""
        with self._redis.pipeline() as pipe:
            pipe.hincrby(TRIES_KEY, standing.digest, 1)
            pipe.expire(TRIES_KEY, _KEEP_TRIES_SECONDS)
            tries, _ = pipe.execute()
        return int(tries)

    def remove(self, standing: Standing) -> None:
        """Take a message away that is done with."""
        with self._redis.pipeline() as pipe:
            pipe.lrem(standing.list_name, -1, standing.body)  # type: ignore[arg-type]
            pipe.hdel(TRIES_KEY, standing.digest)
            pipe.execute()

    def put_aside(self, standing: Standing) -> None:
        """Move a message of the shared door to `unrouted`, where people look at it; a tenant's own is dropped."""
        if standing.tenant is not None:
            self.remove(standing)
            return
        with self._redis.pipeline() as pipe:
            pipe.lrem(standing.list_name, -1, standing.body)  # type: ignore[arg-type]
            pipe.lpush(QueueName.UNROUTED.value, standing.body)
            pipe.hdel(TRIES_KEY, standing.digest)
            pipe.execute()

    def forget_tries(self, standing: Standing) -> None:
        """Count nothing against a message: what failed was not its fault."""
        self._redis.hdel(TRIES_KEY, standing.digest)

    def wait(self, seconds: float) -> None:
        """Wait until a message stands on the first list: one that is moved to where it was."""
        bound = min(seconds, LONGEST_WAIT_SECONDS)  # the client itself gives a silent broker up after a few seconds
        self._redis.blmove(DOOR_LISTS[0], DOOR_LISTS[0], bound, src="RIGHT", dest="RIGHT")  # type: ignore[arg-type]

    def close(self) -> None:
        """Close the connection."""
        self._redis.close()


class CeleryDoor:
    """Takes in what stands at the door."""

    def __init__(
        self, lists: DoorLists, ledger: Ledger, submitter: Submitter, *, holder: str, is_shared: bool = True
    ) -> None:
        self._lists = lists
        self._ledger = ledger
        self._submitter = submitter
        self._holder = holder
        self._is_shared = is_shared
        self._failed = 0

    def take_in_standing(self) -> int:
        """Take in the messages that have stood longest; returns how many were looked at.

        Raises:
            SQLAlchemyError: the ledger is away; everything stays where it stands.
            RedisError: the broker is.
        """
        with self._ledger.begin() as session:
            tenants = session.scalars(select(col(Tenant.name)).order_by(col(Tenant.name))).all()
        standing = self._lists.look(tenants)
        self._failed = sum(not self._try_to_take(each) for each in standing)
        return len(standing)

    def serve(self, stopping: threading.Event, *, tick_seconds: float) -> None:
        """Take in until told to stop, while this is the one reader; a ledger or broker that is away is waited for."""
        while not stopping.is_set():
            try:
                if not self._leads():
                    stopping.wait(tick_seconds)
                elif not self.take_in_standing():
                    self._lists.wait(tick_seconds)
                elif self._failed:  # what failed has few tries: they must not be over within a moment
                    stopping.wait(tick_seconds)
            except (SQLAlchemyError, RedisError) as error:
                logger.warning("door_waits", extra={"error": type(error).__name__})
                stopping.wait(tick_seconds)
        self._resign()

    def _try_to_take(self, standing: Standing) -> bool:
        """Take one message in; returns whether it is done with. One that failed stands until its tries are over."""
        try:
            self._take(standing)
        except SQLAlchemyError:
            if self._is_ledger_away():
                self._lists.forget_tries(standing)
                raise
            logger.exception("intake_failed")
        except RedisError:
            raise
        except Exception:  # one message's fault or ours
            logger.exception("intake_failed")
        else:
            return True
        return False

    def _is_ledger_away(self) -> bool:
        """Tell whether nothing can be written at all: then no message is at fault."""
        try:
            self._leads()
        except SQLAlchemyError:
            return True
        return False

    def _leads(self) -> bool:
        with self._ledger.begin() as session:
            return lead(session, ROLE, self._holder, seconds=LEASE_SECONDS)

    def _resign(self) -> None:
        try:
            with self._ledger.begin() as session:
                resign(session, ROLE, self._holder)
        except SQLAlchemyError:
            logger.warning("ledger_unreachable")

    def _take(self, standing: Standing) -> None:
        if standing.is_unread:
            self._refuse(standing, f"a message has at most {MAX_MESSAGE_BYTES} bytes")
            return
        if (tries := self._lists.count_try(standing)) > MAX_TRIES:
            self._give_up(standing, tries=tries)
            return
        try:
            message = read_message(standing.body)
        except UnreadableMessageError as error:
            self._refuse(standing, str(error))
            self._lists.put_aside(standing)
            return
        self._answer(message, standing)

    def _answer(self, message: CeleryMessage, standing: Standing) -> None:
        if standing.tenant is None and not self._is_shared:
            self._refuse(standing, "the shared door is closed: use the tenant's own queue")
            self._lists.remove(standing)
        elif message.task == SUBMIT_TASK:
            take_in(message, self._submitter, tenant=standing.tenant)
            self._lists.remove(standing)
        elif message.task in _OWN_TASKS:  # of a fleet that pushed its own work here: the ledger has all of it
            logger.warning("own_message_at_the_door", extra={"task": message.task})
            self._lists.remove(standing)
        else:
            self._refuse(standing, "no task of this name is known here")
            self._lists.put_aside(standing)

    def _refuse(self, standing: Standing, rule: str) -> None:
        """Log a refusal, and put it on record where the door tells whose message it was."""
        logger.warning("intake_refused", extra={"rule": rule, "tenant": standing.tenant})
        if standing.tenant is not None:
            error = InvalidJobError((FieldError("message", rule),))
            self._submitter.record_refusal(error, tenant=standing.tenant, door=Door.CELERY)

    def _give_up(self, standing: Standing, *, tries: int) -> None:
        """Refuse a message that cannot be taken in and put it aside, without a row where that fails each time too."""
        if tries <= 2 * MAX_TRIES:
            message = read_message(standing.body)
            refusal = InvalidJobError((FieldError("body", f"taking it in failed {MAX_TRIES} times"),))
            tenant = standing.tenant or str(message.kwargs.get("tenant", ""))
            self._submitter.record_refusal(refusal, tenant=tenant, door=Door.CELERY, job_id=UUID(message.id))
        self._lists.put_aside(standing)
        logger.error("intake_given_up", extra={"tries": tries - 1, "tenant": standing.tenant})

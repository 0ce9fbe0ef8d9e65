"""The Celery door: takes `pointsman.submit` off the list `intake`, and never before the job's row is committed.

No Celery worker reads this list. A worker pops a message and notes it down in two commands, so one that is killed in
between loses it whatever its acknowledgements are set to (docs/pitfalls.md, 7). Here a message is looked at where it
stands, taken in under its own id as often as it takes, and then removed: one reader by ledger lease, and a second one
would do no harm.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from redis import Redis
from redis.exceptions import RedisError
from sqlalchemy.exc import InterfaceError, OperationalError, SQLAlchemyError

from monitoring.ledger.runway import lead, resign
from monitoring.ledger.store import Ledger
from producers.celery_message import CeleryMessage, UnreadableMessageError, read_message
from producers.intake import take_in
from producers.submit import Submitter
from routing.errors import FieldError, InvalidJobError
from routing.jobs import Door
from routing.tiers import QueueName, TaskName
from routing.topology import DOOR_LISTS

logger = logging.getLogger(__name__)

ROLE = "celery_door"
LEASE_SECONDS = 5.0
MAX_MESSAGE_BYTES = 1_048_576
"""A message that is larger is not even read."""
MAX_TRIES = 5
"""A message whose reading failed so often, or ended the process, is put aside."""
BATCH = 20
TRIES_KEY = "pointsman:door:tries"
_KEEP_TRIES_SECONDS = 86_400

_LOOK = """
local found = {}
for position = 1, #KEYS - 1 do
  local list = KEYS[position]
  local bodies = redis.call('LRANGE', list, -tonumber(ARGV[1]), -1)
  for index = #bodies, 1, -1 do
    local body = bodies[index]
    if #body > tonumber(ARGV[2]) then
      redis.call('LREM', list, -1, body)
      redis.call('LPUSH', KEYS[#KEYS], body)
      table.insert(found, {position, 1, ''})
    elseif #found < tonumber(ARGV[1]) then
      table.insert(found, {position, 0, body})
    end
  end
end
return found
"""
"""Looks at the oldest messages. What is too large is put aside unread."""


@dataclass(frozen=True)
class Standing:
    """A message where it stands."""

    list_name: str
    is_unread: bool
    """Whether it was too large, and was put aside."""
    body: bytes

    @property
    def digest(self) -> str:
        """What its tries are counted under."""
        return hashlib.sha1(self.body, usedforsecurity=False).hexdigest()


class DoorLists:
    """The lists on which Celery clients put their messages."""

    def __init__(self, url: str) -> None:
        self._redis: Redis = Redis.from_url(url, socket_timeout=5, socket_connect_timeout=5)
        self._look = self._redis.register_script(_LOOK)

    def look(self) -> Sequence[Standing]:
        """Return the messages that have stood longest, the more urgent list first."""
        found = self._look(
            keys=[*DOOR_LISTS, QueueName.UNROUTED.value], args=[BATCH, MAX_MESSAGE_BYTES]
        )  # fmt: skip
        assert isinstance(found, list)
        return [Standing(DOOR_LISTS[position - 1], bool(unread), body) for position, unread, body in found]

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
        """Move a message to `unrouted`, where people look at it."""
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
        self._redis.blmove(DOOR_LISTS[0], DOOR_LISTS[0], seconds, src="RIGHT", dest="RIGHT")  # type: ignore[arg-type]

    def close(self) -> None:
        """Close the connection."""
        self._redis.close()


class CeleryDoor:
    """Takes in what stands at the door."""

    def __init__(self, lists: DoorLists, ledger: Ledger, submitter: Submitter, *, holder: str) -> None:
        self._lists = lists
        self._ledger = ledger
        self._submitter = submitter
        self._holder = holder

    def take_in_standing(self) -> int:
        """Take in the messages that have stood longest; returns how many were looked at.

        Raises:
            OperationalError, InterfaceError: the ledger is away; everything stays where it stands.
            RedisError: the broker is.
        """
        standing = self._lists.look()
        for each in standing:
            try:
                self._take(each)
            except (OperationalError, InterfaceError):
                self._lists.forget_tries(each)
                raise
            except RedisError:
                raise
            except Exception:  # one message's fault or ours: it stands, and is tried again until its tries are over
                logger.exception("intake_failed")
        return len(standing)

    def serve(self, stopping: threading.Event, *, tick_seconds: float) -> None:
        """Take in until told to stop, while this is the one reader; a ledger or broker that is away is waited for."""
        while not stopping.is_set():
            try:
                if not self._leads():
                    stopping.wait(tick_seconds)
                elif not self.take_in_standing():
                    self._lists.wait(tick_seconds)
            except (SQLAlchemyError, RedisError) as error:
                logger.warning("door_waits", extra={"error": type(error).__name__})
                stopping.wait(tick_seconds)
        self._resign()

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
            logger.warning("intake_refused", extra={"rule": f"a message has at most {MAX_MESSAGE_BYTES} bytes"})
            return
        if self._lists.count_try(standing) > MAX_TRIES:
            self._give_up(standing)
            return
        try:
            message = read_message(standing.body)
        except UnreadableMessageError as error:
            logger.warning("intake_refused", extra={"rule": str(error)})
            self._lists.put_aside(standing)
            return
        self._answer(message, standing)

    def _answer(self, message: CeleryMessage, standing: Standing) -> None:
        if message.task == TaskName.SUBMIT:
            take_in(message, self._submitter)
            self._lists.remove(standing)
        elif message.task in set(TaskName):  # of a fleet that pushed its own work here: the ledger has all of it
            logger.warning("own_message_at_the_door", extra={"task": message.task})
            self._lists.remove(standing)
        else:
            logger.warning("intake_refused", extra={"rule": "no task of this name is known here"})
            self._lists.put_aside(standing)

    def _give_up(self, standing: Standing) -> None:
        """Put a message aside that cannot be taken in, first of all: what follows may fail as it did before."""
        self._lists.put_aside(standing)
        logger.error("intake_given_up", extra={"tries": MAX_TRIES})
        message = read_message(standing.body)
        refusal = InvalidJobError((FieldError("body", f"taking it in failed {MAX_TRIES} times; see `unrouted`"),))
        tenant = str(message.kwargs.get("tenant", ""))
        self._submitter.record_refusal(refusal, tenant=tenant, door=Door.CELERY, job_id=UUID(message.id))

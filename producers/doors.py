"""Tenants' own queues at the Celery door: `intake.TENANT` is served for exactly that tenant, whatever a message says.

Nothing in a Celery message can be trusted to tell on which list it stood: the sender writes its routing, too, and
with it callbacks, chains and the name of any task. So these lists are read by name and not by a Celery consumer; of a
message only the task's id and its keyword arguments go on, to the intake workers, in a message of our own. The broker's
users decide who may write to which list (`pointsman broker acl`).

A message leaves its list when the intake queue has it: a doorkeeper that dies between the two hands it on twice, and
the task's id makes that one job. A new tenant needs nothing but its row in the ledger.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from uuid import UUID

from redis import Redis
from redis.exceptions import RedisError
from sqlalchemy import select
from sqlmodel import col

from monitoring.ledger.store import Ledger
from monitoring.ledger.tables import Tenant
from producers.envelopes import BrokenMessageError, read_envelope
from producers.errors import PublishError
from producers.publisher import Publisher
from producers.submit import Submitter
from routing.errors import FieldError, InvalidJobError
from routing.jobs import Door
from routing.tiers import QueueName, TaskName
from routing.topology import door_of

logger = logging.getLogger(__name__)

MAX_MESSAGE_BYTES = 512 * 1024
"""Far above any request in its envelope; what is longer is dropped where it stands and never read."""
LONGEST_INTAKE = 100
"""Messages on the intake queue from which on the doors are left closed: what waits there waits in its tenant's turn."""

_PEEK = """
local raw = redis.call('LINDEX', KEYS[1], -1)
if raw and #raw > tonumber(ARGV[1]) then
    redis.call('RPOP', KEYS[1])
    return #raw
end
return raw
"""
"""The oldest message of a list, or the length of one that was too long and is gone."""


class Doorkeeper:
    """Hands on what stands on the tenants' own queues, one message of each tenant in turn."""

    def __init__(self, ledger: Ledger, broker: Redis, publisher: Publisher, submitter: Submitter) -> None:
        self._ledger = ledger
        self._broker = broker
        self._publisher = publisher
        self._submitter = submitter
        self._is_away = False

    def deliver_due(self, *, limit: int = 20) -> int:
        """Hand on at most `limit` messages, and as many as the intake queue has room for; returns how many."""
        try:
            handled = self._turn(limit)
        except (RedisError, PublishError):
            if not self._is_away:
                logger.warning("broker_unreachable")
            self._is_away = True
            return 0
        self._is_away = False
        return handled

    def close(self) -> None:
        """Close the connection."""
        self._broker.close()

    def _turn(self, limit: int) -> int:
        room = min(limit, LONGEST_INTAKE - self._lengths([QueueName.INTAKE.value])[0])
        handled = 0
        for tenant in self._waiting():
            if handled >= room:
                break
            handled += self._take_one(tenant)
        return handled

    def _waiting(self) -> list[str]:
        """Return the tenants at whose door something stands, those with the shortest list first."""
        with self._ledger.begin() as session:
            tenants = session.scalars(select(col(Tenant.name)).order_by(col(Tenant.name))).all()
        lengths = self._lengths([door_of(tenant) for tenant in tenants])
        return [tenant for length, tenant in sorted(zip(lengths, tenants, strict=True)) if length]

    def _lengths(self, keys: Sequence[str]) -> list[int]:
        with self._broker.pipeline(transaction=False) as pipeline:
            for key in keys:
                pipeline.llen(key)
            return [int(length) for length in pipeline.execute()]

    def _take_one(self, tenant: str) -> int:
        raw = self._broker.eval(_PEEK, 1, door_of(tenant), str(MAX_MESSAGE_BYTES))
        if raw is None:
            return 0
        if isinstance(raw, int):
            self._refuse(tenant, "message", f"must not be longer than {MAX_MESSAGE_BYTES} bytes")
            return 1
        assert isinstance(raw, bytes)
        self._hand_on(tenant, raw)
        self._broker.lrem(door_of(tenant), -1, raw)  # type: ignore[arg-type]  # its stubs take text alone
        return 1

    def _hand_on(self, tenant: str, raw: bytes) -> None:
        try:
            envelope = read_envelope(raw)
        except BrokenMessageError as error:
            self._refuse(tenant, error.field, error.rule)
            return
        if envelope.task != TaskName.SUBMIT:
            self._refuse(tenant, "task", f"must be {TaskName.SUBMIT.value}", job_id=envelope.task_id)
            return
        self._publisher.admit(tenant, dict(envelope.kwargs), task_id=str(envelope.task_id))

    def _refuse(self, tenant: str, field: str, rule: str, *, job_id: UUID | None = None) -> None:
        logger.warning("intake_refused", extra={"tenant": tenant, "field": field, "rule": rule})
        error = InvalidJobError((FieldError(field, rule),))
        self._submitter.record_refusal(error, tenant=tenant, door=Door.CELERY, job_id=job_id)

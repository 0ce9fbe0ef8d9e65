"""The broker: its queues, the Celery application, the transport, and its users' access rules.

A message carries an id as JSON and leaves the broker when a worker receives it. The ledger recovers lost work, so there
are no acknowledgements and no visibility timeout (docs/why.md).
"""

from __future__ import annotations

import base64
import logging
import ssl
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from celery import Celery
from celery.utils.dispatch import Signal
from kombu.entity import Exchange, Queue
from kombu.transport import redis
from kombu.utils.json import loads
from pydantic import BaseModel, ConfigDict, Field

from routing.errors import UnknownMessageError
from routing.jobs import read_message
from routing.queues import QUEUES, QueueName

logger = logging.getLogger(__name__)

TRANSPORT_OPTIONS: dict[str, Any] = {
    "socket_timeout": 2,
    "socket_connect_timeout": 3,
    "socket_keepalive": True,
    "health_check_interval": 10,
    "deadletter_queue": QueueName.UNROUTED.value,
    # Own keys, so that no other user of this database restores our messages by its clock.
    "unacked_key": "pointsman:unacked",
    "unacked_index_key": "pointsman:unacked_index",
    "unacked_mutex_key": "pointsman:unacked_mutex",
}
"""`retry_on_timeout` stays off: it would push a message twice after an ambiguous timeout."""

PUBLISH_RETRY: dict[str, Any] = {"max_retries": 1, "interval_start": 0.1, "interval_step": 0.2, "interval_max": 0.5}

_INTAKE = "intake"


def intake_list(tenant: str) -> str:
    """Return the queue of a tenant's Celery clients; none of our names looks like it."""
    return f"{_INTAKE}.{tenant}"


def lists_at(queue: str) -> tuple[str, ...]:
    """Return the lists of an intake queue: its own, and those that kombu makes for priorities."""
    return (queue, *(f"{queue}\x06\x16{step}" for step in (3, 6, 9)))


INTAKE_LISTS = lists_at(_INTAKE)
"""The lists of the shared intake queue, for `pointsman.submit`."""


def list_of(queue: QueueName) -> str:
    """Return the broker's list for a queue: its name, except for `intake`, a name that Celery clients use."""
    return "jobs.intake" if queue == QueueName.INTAKE else queue.value


def build_queues() -> list[Queue]:
    """Return every queue of the fleet, `unrouted` included.

    None needs acknowledgement: the dispatcher resends a message that was lost with its worker.
    """
    return [
        Queue(name, Exchange(name, type="direct"), routing_key=name, durable=True, no_ack=True)
        for name in map(list_of, QueueName)
    ]


SETTINGS: dict[str, Any] = {
    # Only JSON travels: pickle would let anyone who can write to the broker run code.
    "accept_content": ["json"],
    "task_serializer": "json",
    "result_serializer": "json",
    # A typo must not create a queue that nobody drains; a message without a queue raises an alert.
    "task_create_missing_queues": False,
    "task_default_queue": QueueName.UNROUTED.value,
    "task_ignore_result": True,
    "task_store_errors_even_if_ignored": False,
    # The ledger's lease, not an ack, recovers a crash (DESIGN.md section 4).
    "task_acks_late": False,
    "task_reject_on_worker_lost": False,
    "worker_prefetch_multiplier": 1,
    "worker_disable_prefetch": True,
    "worker_hijack_root_logger": False,
    "worker_redirect_stdouts": False,
    "worker_send_task_events": False,
    "worker_cancel_long_running_tasks_on_connection_loss": False,
    "broker_transport": "routing.broker:Transport",
    "broker_transport_options": TRANSPORT_OPTIONS,
    "broker_connection_retry_on_startup": True,
    "broker_connection_max_retries": None,
    "broker_channel_error_retry": True,
    "broker_pool_limit": 4,
    "broker_pool_acquire_timeout": 5,
    # Unused, and its reply queues leak when the caller dies (docs/pitfalls.md, 15).
    "worker_enable_remote_control": False,
    "task_publish_retry_policy": PUBLISH_RETRY,
    "enable_utc": True,
    "timezone": "UTC",
}


def create_app(broker_url: str, **overrides: Any) -> Celery:
    """Return a Celery application for the fleet's queues, with one program's setting overrides."""
    if broker_url.startswith("rediss:") and not overrides.get("broker_use_ssl"):
        # By default kombu accepts any certificate.
        overrides["broker_use_ssl"] = {"ssl_cert_reqs": ssl.CERT_REQUIRED, "ssl_check_hostname": True}
    app = Celery("pointsman", broker=broker_url, set_as_current=False, autofinalize=False)
    app.conf.update(SETTINGS | {"task_queues": build_queues()} | overrides)
    app.finalize()
    return app


# What kombu or Celery cannot read (content that is no JSON, a body that is no triple, a header of another type) raises
# in the consumer's loop and ends the whole pool. Only our publisher writes to the lists, always in one form; whatever
# has another one is dropped before either sees it.

message_dropped = Signal(name="message_dropped", providing_args={"queue"})
"""Sent in the worker's parent for each message that is none of the fleet's."""
MOST_SAMPLES = 100
"""Dropped messages that are kept on `unrouted`."""
SAMPLE_BYTES = 16_384
"""The part of each that is kept."""
_TASKS = frozenset(queue.task for queue in QUEUES.values())
_QUEUES_BY_LIST = {list_of(queue): queue for queue in QUEUES}
_Seconds = Annotated[float, Field(gt=0)]


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")


class _Headers(_Part):
    task: str
    id: str
    timelimit: Annotated[list[_Seconds | None], Field(min_length=2, max_length=2)] = [None, None]
    retries: int = 0
    eta: None = None
    expires: None = None
    shadow: None = None
    compression: None = None


class _Properties(_Part):
    body_encoding: Literal["base64"]
    delivery_tag: str
    delivery_info: dict[str, Any]


class _Delivery(_Part):
    body: str
    content_encoding: Literal["utf-8"] = Field(alias="content-encoding")
    content_type: Literal["application/json"] = Field(alias="content-type")
    headers: _Headers
    properties: _Properties


def why_unreadable(raw: bytes) -> str:
    """Return why a message on one of the fleet's lists is none of the fleet's; empty for one that is."""
    try:
        delivery = _Delivery.model_validate(loads(raw.decode()))
        match loads(base64.b64decode(delivery.body, validate=True).decode()):
            case [[body], {**kwargs}, {**embedded}] if not kwargs and not any(embedded.values()):
                read_message(body)
            case _:
                return "NoTriple"
    except UnknownMessageError:
        pass  # a newer version's, which the task gives back
    except Exception as error:  # noqa: BLE001 - kombu's parser makes objects of what it reads, and raises anything
        return type(error).__name__
    return "" if delivery.headers.task in _TASKS else "UnknownTask"


# kombu creates a client, with a table of 170 response callbacks, for every message that it pushes or acknowledges: more
# work than the message itself. A client takes a connection from its pool for each command, so threads can share it for
# the life of the pool. kombu also spends a transaction per message on acknowledging where a queue wants none.


class Channel(redis.Channel):
    """A channel that reuses one client for each pool, and delivers only the fleet's own messages."""

    _shared_client: Any = None

    def _create_client(self, asynchronous: bool = False) -> Any:
        if asynchronous:  # used for polling; kombu keeps this one itself
            client = redis.Channel._create_client(self, asynchronous=True)
            client.set_response_callback("BRPOP", self._drop_unreadable)
            return client
        if self._shared_client is None or self._shared_client.connection_pool is not self.pool:
            self._shared_client = redis.Channel._create_client(self)
        return self._shared_client

    def _drop_unreadable(self, response: Any, **_: Any) -> Any:
        """Return what was popped from a list, or nothing, as after a timeout, if it is no message of the fleet."""
        if not response or not (reason := why_unreadable(response[1])):
            return response or None
        name, raw = response[0].decode(errors="replace").partition(self.sep)[0], response[1]
        queue = _QUEUES_BY_LIST.get(name, QueueName.UNROUTED)
        logger.warning("message_dropped", extra={"queue": queue.value, "reason": reason, "bytes": len(raw)})
        message_dropped.send(sender=self, queue=queue)
        with suppress(*self.connection_errors, self.ResponseError), self.conn_or_acquire() as client:
            if client.llen(QueueName.UNROUTED.value) < MOST_SAMPLES:
                client.lpush(QueueName.UNROUTED.value, raw[:SAMPLE_BYTES])
        return None

    def basic_ack(self, delivery_tag: str, multiple: bool = False) -> None:
        """Acknowledge a message if its queue needs that."""
        if self._needs_ack(delivery_tag):
            redis.Channel.basic_ack(self, delivery_tag, multiple=multiple)

    def basic_reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Reject a message if its queue needs that."""
        if self._needs_ack(delivery_tag):
            redis.Channel.basic_reject(self, delivery_tag, requeue=requeue)

    def _needs_ack(self, delivery_tag: str) -> bool:
        try:
            self.qos.get(delivery_tag)
        except KeyError:
            return False
        return True


class Transport(redis.Transport):
    """kombu's Redis transport with shared clients."""

    Channel = Channel


# One broker user for each kind of program, and one for each tenant's Celery clients, with the least rights they work
# with; a test runs the fleet under them. Valkey and Redis 7 read these rules from an ACL file, with SHA-256 passwords.

PREFIX = "pointsman"
_CONNECT = ("+auth", "+hello", "+ping", "+select", "+client|setinfo", "+client|setname")
_TOGETHER = ("+multi", "+exec", "+discard")
_BINDINGS = ("_kombu.binding.", "_kombu.binding_permanent.")
"""kombu's sets of the lists that an exchange leads to."""
_UNACKED = "~pointsman:unacked*"


_PRIORITIES = "[^a-z0-9-][^a-z0-9-][369]"
"""Suffix of kombu's lists for priorities: two bytes that no tenant's name can hold, and a digit. With any two bytes
tenant `a` could write to the queue of tenant `a-x3`."""


@dataclass(frozen=True)
class BrokerUser:
    """A broker user and its access rules."""

    name: str
    rules: tuple[str, ...]

    def line(self, password_hash: str) -> str:
        """Return the user's line of an ACL file."""
        head = f"user {self.name} reset on #{password_hash} -@all resetkeys resetchannels"
        return " ".join((head, *self.rules))


def fleet_users() -> tuple[BrokerUser, ...]:
    """Return the users of the product's programs. The gateway needs none."""
    publish = ("+lpush", "+llen", "+sadd", "+smembers", *_TOGETHER)
    queues = _keys_of(tuple(QueueName))
    bindings = tuple(f"~{prefix}*" for prefix in _BINDINGS)
    intake = (
        f"~{INTAKE_LISTS[0]}",
        f"~{INTAKE_LISTS[0]}{_PRIORITIES}",
        f"~{intake_list('*')}",
        "~pointsman:intake:*",
    )
    consume = (
        *("+brpop", "+rpop", "+rpush", "+hset", "+hget", "+hdel", "+zadd", "+zrem", "+zrevrangebyscore", "+zrange"),
        *("+zrangebyscore", "+watch", "+set", "+get", "+del", "+unwatch", "+evalsha", "+eval", "+script|load"),
        *("+exists", "+expire"),
    )
    relay = ("+lrange", "+lrem", "+blmove", "+hincrby", "+hdel", "+expire", "+eval", "+evalsha", "+script|load")
    forward = ("+lpos", "+set", "+del")
    events = ("+subscribe", "+unsubscribe", "+psubscribe", "+punsubscribe", "+publish")
    return (
        BrokerUser(f"{PREFIX}-api", (*_CONNECT, "+lpush", *queues)),
        BrokerUser(f"{PREFIX}-dispatcher", (*_CONNECT, *publish, *relay, *forward, *queues, *intake, *bindings)),
        BrokerUser(
            f"{PREFIX}-worker", (*_CONNECT, *publish, *consume, *events, *queues, _UNACKED, *bindings, "&/*.celeryev/*")
        ),
        BrokerUser(f"{PREFIX}-exporter", (*_CONNECT, "+info", "+llen", *queues, *intake[:2])),
        BrokerUser(f"{PREFIX}-doctor", (*_CONNECT, "+config|get", "+set", f"~{PREFIX}:doctor")),
    )


def tenant_user(tenant: str) -> BrokerUser:
    """Return the user of a tenant's Celery clients, which can push to one list and read nothing."""
    own = intake_list(tenant)
    commands = (*_CONNECT, "+lpush", "+llen", "+sadd", *_TOGETHER)
    bindings = (f"%W~{prefix}{own}" for prefix in _BINDINGS)
    lists = (f"%W~{own}", f"%W~{own}{_PRIORITIES}")
    return BrokerUser(f"{PREFIX}-tenant-{tenant}", (*commands, *lists, *bindings))


def _keys_of(queues: Sequence[QueueName]) -> tuple[str, ...]:
    """Return key patterns of the queues' lists, those for priorities included."""
    return tuple(f"~{list_of(queue)}{more}" for queue in queues for more in ("", _PRIORITIES))

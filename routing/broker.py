"""The broker's shape: one direct queue for each kind of work, and what its connections are told.

Messages carry ids, are JSON and are a worker's for good once it has them: recovery is the ledger's business, so no
acknowledgement, no visibility timeout and no private kombu field takes part in it (docs/why.md).
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any
from urllib.parse import parse_qs, urlsplit

from celery import Celery
from kombu.entity import Exchange, Queue
from kombu.transport import redis

from routing.queues import QueueName

TRANSPORT_OPTIONS: dict[str, Any] = {
    "socket_timeout": 2,
    "socket_connect_timeout": 3,
    "socket_keepalive": True,
    "health_check_interval": 10,
    "deadletter_queue": QueueName.UNROUTED.value,
    # Whatever else uses this database sweeps its own unacknowledged messages by its own clock, and not these.
    "unacked_key": "pointsman:unacked",
    "unacked_index_key": "pointsman:unacked_index",
    "unacked_mutex_key": "pointsman:unacked_mutex",
}
"""`retry_on_timeout` stays off: after an ambiguous timeout it would push a message twice."""

PUBLISH_RETRY: dict[str, Any] = {"max_retries": 1, "interval_start": 0.1, "interval_step": 0.2, "interval_max": 0.5}

_DOOR = "intake"


def door_of(tenant: str) -> str:
    """Return the name of the queue at which a tenant's own Celery clients submit: no name of ours looks like one."""
    return f"{_DOOR}.{tenant}"


def lists_at(door: str) -> tuple[str, ...]:
    """Return where Celery clients put messages for a door: on its list, or one that kombu makes for priorities."""
    return (door, *(f"{door}\x06\x16{step}" for step in (3, 6, 9)))


DOOR_LISTS = lists_at(_DOOR)
"""Where Celery clients put `pointsman.submit` that share one door."""


def list_of(queue: QueueName) -> str:
    """Return the broker's list behind a queue: its name, but for `intake`, whose name is the Celery door's."""
    return "jobs.intake" if queue == QueueName.INTAKE else queue.value


def build_queues() -> list[Queue]:
    """Return every queue of the fleet, `unrouted` included.

    None waits for an acknowledgement: a message that is lost with its worker is missed on the runway and sent again.
    """
    return [
        Queue(name, Exchange(name, type="direct"), routing_key=name, durable=True, no_ack=True)
        for name in map(list_of, QueueName)
    ]


# The Celery application: explicit settings, made by whoever needs it, never global.

SETTINGS: dict[str, Any] = {
    # Only JSON travels: pickle would let anyone who can write to the broker run code.
    "accept_content": ["json"],
    "task_serializer": "json",
    "result_serializer": "json",
    # A typo must not make a queue that nobody drains; what names no queue lands where an alert sees it.
    "task_create_missing_queues": False,
    "task_default_queue": QueueName.UNROUTED.value,
    "task_ignore_result": True,
    "task_store_errors_even_if_ignored": False,
    # Queues of ours wait for no ack at all: the ledger's lease recovers a crash (DESIGN.md section 4).
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
    # Nothing of ours asks workers over the broker: its reply queues leak when the asker dies (docs/pitfalls.md, 15).
    "worker_enable_remote_control": False,
    "task_publish_retry_policy": PUBLISH_RETRY,
    "enable_utc": True,
    "timezone": "UTC",
}


def create_app(broker_url: str, **overrides: Any) -> Celery:
    """Return a Celery application for the fleet's queues.

    Args:
        broker_url: a `redis://` or `rediss://` URL.
        overrides: settings that one program needs otherwise.
    """
    if broker_url.startswith("rediss:") and not overrides.get("broker_use_ssl"):
        # Without a word kombu would take any certificate.
        overrides["broker_use_ssl"] = {"ssl_cert_reqs": ssl.CERT_REQUIRED, "ssl_check_hostname": True}
    app = Celery("pointsman", broker=broker_url, set_as_current=False, autofinalize=False)
    app.conf.update(SETTINGS | {"task_queues": build_queues()} | overrides)
    app.finalize()
    return app


# kombu's Redis transport with one client for each channel, and queues that give their messages away for good.
#
# kombu makes a client for every message that it pushes, acknowledges or restores, and each begins with a table of how
# to
# read 170 answers: more work than the message itself. A client has no connection of its own, it takes one from its
# pool
# for each command; so threads may share it, and it serves for as long as the pool does.
#
# Nor does it leave out acknowledging where a queue wants none: what was never noted as delivered is dropped from that
# note all the same, in a transaction of its own for each message.


class Channel(redis.Channel):
    """A channel whose commands go through the client that it made first for its pool."""

    _kept: Any = None

    def _create_client(self, asynchronous: bool = False) -> Any:
        if asynchronous:  # for waiting: its pool tells the poller, and kombu keeps this one itself
            return redis.Channel._create_client(self, asynchronous=True)
        if self._kept is None or self._kept.connection_pool is not self.pool:
            self._kept = redis.Channel._create_client(self)
        return self._kept

    def basic_ack(self, delivery_tag: str, multiple: bool = False) -> None:
        """Acknowledge a message, if its queue waits for that."""
        if self._is_awaited(delivery_tag):
            redis.Channel.basic_ack(self, delivery_tag, multiple=multiple)

    def basic_reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Reject a message, if its queue waits for that."""
        if self._is_awaited(delivery_tag):
            redis.Channel.basic_reject(self, delivery_tag, requeue=requeue)

    def _is_awaited(self, delivery_tag: str) -> bool:
        try:
            self.qos.get(delivery_tag)
        except KeyError:
            return False
        return True


class Transport(redis.Transport):
    """Takes the URLs that kombu's own does."""

    Channel = Channel


# Who may do what at the broker: one user for each kind of program, and one for each tenant's own door.
#
# Valkey and Redis (7 and later) read these rules from an ACL file. They are the least that each program works with; a
# test runs the fleet under them. Passwords are given as SHA-256 hashes, as `ACL SETUSER` takes them.

PREFIX = "pointsman"
_CONNECT = ("+auth", "+hello", "+ping", "+select", "+client|setinfo", "+client|setname")
_TOGETHER = ("+multi", "+exec", "+discard")
_BINDINGS = ("_kombu.binding.", "_kombu.binding_permanent.")
"""Sets in which kombu notes which lists an exchange leads to."""
_UNACKED = "~pointsman:unacked*"


_PRIORITIES = "[^a-z0-9-][^a-z0-9-][369]"
"""Ends the names of lists that kombu keeps for priorities: two bytes that no tenant's name can hold, and a digit. Any
two bytes would let tenant `a` write to the queue of tenant `a-x3`."""


@dataclass(frozen=True)
class BrokerUser:
    """One user and its rules."""

    name: str
    rules: tuple[str, ...]

    def line(self, password_hash: str) -> str:
        """Return the user's line of an ACL file."""
        head = f"user {self.name} reset on #{password_hash} -@all resetkeys resetchannels"
        return " ".join((head, *self.rules))


def fleet_users() -> tuple[BrokerUser, ...]:
    """Return the users of an installation's own programs. The gateway needs none."""
    publish = ("+lpush", "+llen", "+sadd", "+smembers", *_TOGETHER)
    queues = _keys_of(tuple(QueueName))
    bindings = tuple(f"~{prefix}*" for prefix in _BINDINGS)
    doors = (f"~{DOOR_LISTS[0]}", f"~{DOOR_LISTS[0]}{_PRIORITIES}", f"~{door_of('*')}", "~pointsman:door:tries")
    consume = (
        "+brpop",
        "+rpop",
        "+rpush",
        "+hset",
        "+hget",
        "+hdel",
        "+zadd",
        "+zrem",
        "+zrevrangebyscore",
        "+zrange",
        "+zrangebyscore",
        "+watch",
        "+set",
        "+get",
        "+del",
        "+unwatch",
        "+evalsha",
        "+eval",
        "+script|load",
        "+exists",
        "+expire",
    )
    return (
        BrokerUser(f"{PREFIX}-api", (*_CONNECT, *publish, *queues, *bindings)),
        BrokerUser(
            f"{PREFIX}-dispatcher",
            (
                *_CONNECT,
                *publish,
                "+lrange",
                "+lrem",
                "+blmove",
                "+hincrby",
                "+hdel",
                "+expire",
                "+eval",
                "+evalsha",
                "+script|load",
                *queues,
                *doors,
                *bindings,
            ),
        ),
        BrokerUser(
            f"{PREFIX}-worker",
            (
                *_CONNECT,
                *publish,
                *consume,
                "+subscribe",
                "+unsubscribe",
                "+psubscribe",
                "+punsubscribe",
                "+publish",
                *queues,
                _UNACKED,
                *bindings,
                "&/*.celeryev/*",
            ),
        ),
        BrokerUser(f"{PREFIX}-exporter", (*_CONNECT, "+info", "+llen", *queues, *doors[:2])),
        BrokerUser(f"{PREFIX}-doctor", (*_CONNECT, "+config|get")),
    )


def tenant_user(tenant: str) -> BrokerUser:
    """Return the user of a tenant's own Celery clients: it puts messages on one list, and can read nothing."""
    door = door_of(tenant)
    commands = (*_CONNECT, "+lpush", "+llen", "+sadd", *_TOGETHER)
    bindings = (f"%W~{prefix}{door}" for prefix in _BINDINGS)
    lists = (f"%W~{door}", f"%W~{door}{_PRIORITIES}")
    return BrokerUser(f"{PREFIX}-tenant-{tenant}", (*commands, *lists, *bindings))


def _keys_of(queues: Sequence[QueueName]) -> tuple[str, ...]:
    """Return patterns for the queues' lists, those for priorities included."""
    return tuple(f"~{list_of(queue)}{more}" for queue in queues for more in ("", _PRIORITIES))


# Which connections of an installation cross a network in the clear: told from their URLs alone.

_CHECKED = frozenset({"verify-ca", "verify-full"})


def is_exposed_broker(url: str) -> bool:
    """Tell whether a broker's URL leads over a network without TLS."""
    return url.startswith("redis:") and not _is_here(url)


def is_exposed_ledger(url: str) -> bool:
    """Tell whether a ledger's URL leads over a network to a server whose certificate nobody checks."""
    return not _is_here(url) and _CHECKED.isdisjoint(parse_qs(urlsplit(url).query).get("sslmode", []))


def _is_here(url: str) -> bool:
    """Tell whether a URL names this machine only; a ledger's without a host is a socket's.

    The clients of both services take a host from the query, too, in the place of the one before the path.
    """
    parts = urlsplit(url)
    query = parse_qs(parts.query)
    named = [host for name in ("host", "hostaddr") for value in query.get(name, []) for host in value.split(",")]
    return all(_is_this_machine(host) for host in named or [parts.hostname or ""])


def _is_this_machine(host: str) -> bool:
    """Tell whether a name, an address or a socket's directory, with a port or without, is on this machine."""
    host = host.partition(":")[0].lower() if host.count(":") == 1 else host.lower()
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host in ("", "localhost") or host.startswith(("/", "%2f"))

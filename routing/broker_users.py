"""Who may do what at the broker: one user for each kind of program, and one for each tenant's own door.

Valkey and Redis (7 and later) read these rules from an ACL file. They are the least that each program works with; a
test runs the fleet under them. Passwords are given as SHA-256 hashes, as `ACL SETUSER` takes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from routing.queues import QueueName
from routing.topology import DOOR_LISTS, door_of, list_of

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
        "+brpop", "+rpop", "+rpush", "+hset", "+hget", "+hdel", "+zadd", "+zrem", "+zrevrangebyscore", "+zrange",
        "+zrangebyscore", "+watch", "+set", "+get", "+del", "+unwatch", "+evalsha", "+eval", "+script|load",
        "+exists", "+expire",
    )  # fmt: skip
    return (
        BrokerUser(f"{PREFIX}-api", (*_CONNECT, *publish, *queues, *bindings)),
        BrokerUser(
            f"{PREFIX}-dispatcher",
            (*_CONNECT, *publish, "+lrange", "+lrem", "+blmove", "+hincrby", "+hdel", "+expire", "+eval", "+evalsha",
             "+script|load", *queues, *doors, *bindings),
        ),
        BrokerUser(
            f"{PREFIX}-worker",
            (*_CONNECT, *publish, *consume, "+subscribe", "+unsubscribe", "+psubscribe", "+punsubscribe", "+publish",
             *queues, _UNACKED, *bindings, "&/*.celeryev/*"),
        ),
        BrokerUser(f"{PREFIX}-exporter", (*_CONNECT, "+info", "+llen", *queues, *doors[:2])),
        BrokerUser(f"{PREFIX}-doctor", (*_CONNECT, "+config|get")),
    )  # fmt: skip


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

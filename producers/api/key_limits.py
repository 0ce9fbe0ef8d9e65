"""Limits on logins and on wrong keys, per key and per address, counted before the ledger is asked.

A process counts in its own memory: what a restart forgets is some dozens of tries. Behind a proxy all callers have the
proxy's address; a key that was right in this process is held up by its own logins alone, and by no stranger's tries.
"""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import IPv6Address, ip_address
from typing import NamedTuple

from producers.errors import AuthenticationError, TooManyTriesError
from producers.use_cases.tenants import hash_secret

_MOST_NAMES = 10_000
"""Keys, and addresses, that are remembered; the one tried longest ago is forgotten first."""
_SUBNET_BITS = 64
"""Of an IPv6 address: whoever has one has all of these."""


class Presented(NamedTuple):
    """A key as it came, and from where."""

    key: str
    address: str


class Allowance(NamedTuple):
    """So many tries at once, and one more after each so many seconds."""

    tries: int
    seconds: float


PER_KEY = Allowance(10, 6.0)
PER_ADDRESS = Allowance(60, 1.0)


class _Tries:
    """The tries that each name has left."""

    def __init__(self, allowance: Allowance, clock: Callable[[], float]) -> None:
        self._allowance = allowance
        self._clock = clock
        self._spent: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """Tries spent, and when that was true."""

    def spent(self, name: str) -> float:
        spent, at = self._spent.get(name, (0.0, 0.0))
        return max(0.0, spent - (self._clock() - at) / self._allowance.seconds)

    def wait_seconds(self, name: str) -> float:
        return (self.spent(name) + 1 - self._allowance.tries) * self._allowance.seconds

    def spend(self, name: str) -> None:
        self._spent[name] = (self.spent(name) + 1, self._clock())
        self._spent.move_to_end(name)
        if len(self._spent) > _MOST_NAMES:
            self._spent.popitem(last=False)


class KeyLimits:
    """The tries of one process."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._lock = threading.Lock()
        self._keys = _Tries(PER_KEY, clock)
        self._addresses = _Tries(PER_ADDRESS, clock)
        self._good: OrderedDict[str, None] = OrderedDict()

    @contextmanager
    def counted(self, presented: Presented, *, is_login: bool = False) -> Iterator[None]:
        """Count the authentication that runs inside: a wrong key for key and address, a login for its key anyway.

        Raises:
            TooManyTriesError: the caller's fault; the key is not looked at.
        """
        key, address = hash_secret(presented.key), _subnet_of(presented.address)
        with self._lock:
            if key in self._good:
                wait = self._keys.wait_seconds(key) if is_login else 0.0
            else:
                wait = max(self._keys.wait_seconds(key), self._addresses.wait_seconds(address))
            if wait > 0:
                raise TooManyTriesError(math.ceil(wait))
            if is_login:
                self._keys.spend(key)
        try:
            yield
        except AuthenticationError:
            with self._lock:
                self._good.pop(key, None)
                self._addresses.spend(address)
                if not is_login:
                    self._keys.spend(key)
            raise
        with self._lock:
            self._good[key] = None
            self._good.move_to_end(key)
            if len(self._good) > _MOST_NAMES:
                self._good.popitem(last=False)


def _subnet_of(address: str) -> str:
    try:
        found = ip_address(address)
    except ValueError:
        return address
    if not isinstance(found, IPv6Address) or found.ipv4_mapped is not None:
        return str(found)
    return str(IPv6Address(int(found) >> _SUBNET_BITS << _SUBNET_BITS))

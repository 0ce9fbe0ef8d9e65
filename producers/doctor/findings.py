"""What `pointsman doctor` finds, and how it judges what it saw. Pure: the looking is its neighbours' work."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

from routing.queues import QUEUES, QueueName

MIN_FREE_BYTES = 1_000_000_000
"""Below it a disk may be full within a day of ordinary work."""
LEAST_FREE_BYTES = 200_000_000
"""Below it a single job may fail to store what it made."""
_SKEW_WARN_SECONDS = 2.0
_SKEW_FAIL_SECONDS = 60.0
"""Links are signed, and webhooks dated, by the host's clock; receivers refuse what is minutes off."""
_LAG_WARN_SECONDS = 60.0


class Verdict(StrEnum):
    """How something stands."""

    OK = "OK"
    WARN = "WARN"
    """It works, or is not needed by everybody; somebody should look at it."""
    FAIL = "FAIL"
    """Jobs are refused, lost or stuck because of it."""


class Finding(NamedTuple):
    """One thing that was looked at."""

    name: str
    verdict: Verdict
    seen: str = ""
    """What was found."""
    hint: str = ""
    """What to do; empty when all is well."""

    @property
    def line(self) -> str:
        """The finding as people read it."""
        told = ": ".join(part for part in (self.name, self.seen) if part)
        return f"{self.verdict.value:<4}  {told}" + (f"; {self.hint}" if self.hint else "")


def ok(name: str, seen: str = "") -> Finding:
    """Return a finding that nobody needs to read."""
    return Finding(name, Verdict.OK, seen)


def warn(name: str, seen: str, hint: str) -> Finding:
    """Return a finding that somebody should look at."""
    return Finding(name, Verdict.WARN, seen, hint)


def fail(name: str, seen: str, hint: str) -> Finding:
    """Return a finding that something does not work because of."""
    return Finding(name, Verdict.FAIL, seen, hint)


def worst(findings: Iterable[Finding]) -> Verdict:
    """Return how an installation stands as a whole."""
    found = {finding.verdict for finding in findings}
    return next((verdict for verdict in (Verdict.FAIL, Verdict.WARN) if verdict in found), Verdict.OK)


def judge_clock(ahead_seconds: float) -> Finding:
    """Judge how far the ledger's clock is ahead of this machine's."""
    name, seen = "clock", f"the ledger's is {ahead_seconds:+.1f} s from this machine's"
    hint = "let NTP set both; leases go by the ledger's clock, links and webhooks by this machine's"
    if abs(ahead_seconds) >= _SKEW_FAIL_SECONDS:
        return fail(name, seen, hint)
    return warn(name, seen, hint) if abs(ahead_seconds) >= _SKEW_WARN_SECONDS else ok(name, seen)


def judge_disk(name: str, *, free_bytes: int, where: str) -> Finding:
    """Judge how much room is left on a disk."""
    seen = f"{free_bytes // 1_000_000} MB are free at {where}"
    hint = "make room there, or lower `retention` in the policy"
    if free_bytes < LEAST_FREE_BYTES:
        return fail(name, seen, hint)
    return warn(name, seen, hint) if free_bytes < MIN_FREE_BYTES else ok(name, seen)


def judge_eviction(policy: str) -> Finding:
    """Judge what a broker does when its memory is full."""
    seen = f"maxmemory-policy is {policy}"
    if policy == "noeviction":
        return ok("broker keeps messages", seen)
    return fail("broker keeps messages", seen, "set it to noeviction: any other drops messages without a word")


def judge_persistence(settings: Mapping[str, str]) -> Finding:
    """Judge what of a broker outlives its restart. Jobs do without it: the ledger has them."""
    name = "broker persistence"
    if settings.get("appendonly") == "yes" or settings.get("save"):
        return ok(name, "on")
    return warn(
        name, "off", "jobs come back from the ledger in seconds, but what Celery clients have just put on `intake` and "
        "is no job yet is lost with a restart: set appendonly to yes",
    )  # fmt: skip


def judge_workers(slots: Mapping[str, int]) -> Finding:
    """Judge whether somebody serves each queue.

    Args:
        slots: of the workers that serve now, by the name of their queue.
    """
    bare = [queue.value for queue in QUEUES if not slots.get(queue.value)]
    seen = ", ".join(f"{queue.value} {slots[queue.value]}" for queue in QUEUES if slots.get(queue.value))
    if not bare:
        return ok("workers", f"slots: {seen}")
    hint = f"jobs wait there: start `pointsman worker {' '.join(bare)}`"
    told = f"nobody serves {', '.join(bare)}"
    if QueueName.CONTROL.value in bare or not seen:
        return fail("workers", told, hint)
    return warn("workers", told, f"{hint}, if you want such work done")


def judge_lag(seconds: float) -> Finding:
    """Judge how old the oldest event is that is in no metric yet."""
    seen = f"metrics are {seconds:.0f} s behind the ledger"
    if seconds >= _LAG_WARN_SECONDS:
        return warn("exporter", seen, "look at its log; alerts and dashboards show the past until it catches up")
    return ok("exporter", seen)


def judge_prices(models: Iterable[str], priced: Iterable[str]) -> Finding:
    """Judge whether every model that the policy names has a price."""
    if missing := sorted(set(models) - set(priced)):
        hint = "add them to `prices` in the policy: until then they are charged as the dearest model there"
        return fail("prices", f"none for {', '.join(missing)}", hint)
    return ok("prices", f"for all {len(set(models))} models that the policy names")

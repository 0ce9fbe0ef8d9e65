"""How `pointsman doctor` runs checks, at once and each within a time limit, and judges what they saw.

What hangs is a finding, and hides nothing of the rest.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from ledger.notifications import Undelivered
from ledger.operations.activity import Blocker, Connections, Transaction
from ledger.store import SESSION
from routing.queues import QUEUES, QueueName

logger = logging.getLogger(__name__)


class Verdict(StrEnum):
    """The result of a check."""

    OK = "OK"
    WARN = "WARN"
    """It works or is optional, but needs attention."""
    FAIL = "FAIL"
    """Jobs are refused, lost or stuck because of it."""


class Finding(NamedTuple):
    """One thing that was checked."""

    name: str
    verdict: Verdict
    seen: str = ""
    """What was found."""
    hint: str = ""
    """What to do; empty if all is well."""

    @property
    def line(self) -> str:
        """The finding as a line of text."""
        text = ": ".join(part for part in (self.name, self.seen) if part)
        return f"{self.verdict.value:<4}  {text}" + (f"; {self.hint}" if self.hint else "")


def ok(name: str, seen: str = "") -> Finding:
    """Return a finding without a problem."""
    return Finding(name, Verdict.OK, seen)


def warn(name: str, seen: str, hint: str) -> Finding:
    """Return a finding that needs attention."""
    return Finding(name, Verdict.WARN, seen, hint)


def fail(name: str, seen: str, hint: str) -> Finding:
    """Return a finding that breaks something."""
    return Finding(name, Verdict.FAIL, seen, hint)


def worst(findings: Iterable[Finding]) -> Verdict:
    """Return the worst verdict."""
    verdicts = {finding.verdict for finding in findings}
    return next((verdict for verdict in (Verdict.FAIL, Verdict.WARN) if verdict in verdicts), Verdict.OK)


LIMIT_SECONDS = 4.0
"""The time limit of all checks: on a busy machine many that start at once are late together."""


class Check(NamedTuple):
    """One part of an installation, looked at by itself."""

    name: str
    run: Callable[[], Iterable[Finding]]
    late: Verdict = Verdict.FAIL
    """The verdict if it does not end in time."""


def examine(checks: Iterable[Check], *, limit_seconds: float = LIMIT_SECONDS) -> Iterator[Finding]:
    """Run all checks at once, and yield their findings in order, as they end; one that is late is a finding itself."""
    running = [_Asked(check) for check in checks]
    deadline = time.monotonic() + limit_seconds
    for asked in running:
        in_time = asked.ends(deadline)
        yield from tuple(asked.found)
        if not in_time:
            hint = "it hangs or is too slow (see its log), or this machine is too busy to ask"
            yield Finding(asked.check.name, asked.check.late, f"gave no answer within {limit_seconds:g} s", hint)


class _Asked:
    """A check in a thread of its own, which ends with the process if it hangs."""

    def __init__(self, check: Check) -> None:
        self.check = check
        self.found: list[Finding] = []
        self._thread = threading.Thread(target=self._run, name=check.name, daemon=True)
        self._thread.start()

    def ends(self, deadline: float) -> bool:
        """Return whether all is found by then."""
        self._thread.join(max(0.0, deadline - time.monotonic()))
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            for finding in self.check.run():
                self.found.append(finding)
        except Exception as error:
            logger.exception("check_failed", extra={"check": self.check.name})
            seen = f"{type(error).__name__}: {str(error)[:MOST_CHARACTERS]}"
            hint = "a setting that this check reads is wrong, or the check is: report it"
            self.found.append(fail(self.check.name, seen, hint))


MIN_FREE_BYTES = 1_000_000_000
"""Below this a disk may fill up within a day of normal work."""
LEAST_FREE_BYTES = 200_000_000
"""Below this a single job may fail to store its result."""
_SKEW_WARN_SECONDS = 2.0
_SKEW_FAIL_SECONDS = 60.0
"""Links and webhooks carry the host's time; receivers refuse what is minutes off."""
_LAG_WARN_SECONDS = 60.0
_BUSY_SHARE = 0.8
_LONG_SECONDS = 60.0
_BLOCKED_SECONDS = 3.0
_SLOW_SECONDS = 0.5
MOST_CHARACTERS = 200
_EXHAUSTED = ("too many clients", "too many connections", "connection slots are reserved")


def judge_clock(ahead_seconds: float) -> Finding:
    """Judge how far the ledger's clock is ahead of this machine's."""
    name, seen = "clock", f"the ledger's is {ahead_seconds:+.1f} s from this machine's"
    hint = "let NTP set both; leases go by the ledger's clock, links and webhooks by this machine's"
    if abs(ahead_seconds) >= _SKEW_FAIL_SECONDS:
        return fail(name, seen, hint)
    return warn(name, seen, hint) if abs(ahead_seconds) >= _SKEW_WARN_SECONDS else ok(name, seen)


def judge_disk(*, free_bytes: int, where: str) -> Finding:
    """Judge the free space of the content store's disk."""
    name = "content store disk"
    seen = f"{free_bytes // 1_000_000} MB are free at {where}"
    hint = "free some space, or lower `retention` in the policy"
    if free_bytes < LEAST_FREE_BYTES:
        return fail(name, seen, hint)
    return warn(name, seen, hint) if free_bytes < MIN_FREE_BYTES else ok(name, seen)


def judge_eviction(policy: str) -> Finding:
    """Judge what the broker does when its memory is full."""
    seen = f"maxmemory-policy is {policy}"
    if policy == "noeviction":
        return ok("broker keeps messages", seen)
    return fail("broker keeps messages", seen, "set it to noeviction: any other drops messages silently")


def judge_persistence(settings: Mapping[str, str]) -> Finding:
    """Judge what of the broker outlives its restart. Jobs survive anyway: they are in the ledger."""
    name = "broker persistence"
    if settings.get("appendonly") == "yes" or settings.get("save"):
        return ok(name, "on")
    return warn(
        name,
        "off",
        "jobs return from the ledger in seconds, but messages that Celery clients have just put on `intake` "
        "are lost in a restart: set appendonly to yes",
    )


def judge_workers(slots: Mapping[str, int]) -> Finding:
    """Judge whether every queue has workers."""
    unserved = [queue.value for queue in QUEUES if not slots.get(queue.value)]
    seen = ", ".join(f"{queue.value} {slots[queue.value]}" for queue in QUEUES if slots.get(queue.value))
    if not unserved:
        return ok("workers", f"slots: {seen}")
    hint = f"jobs wait there: start `pointsman worker {' '.join(unserved)}`"
    problem = f"nobody serves {', '.join(unserved)}"
    if QueueName.CONTROL.value in unserved or not seen:
        return fail("workers", problem, hint)
    return warn("workers", problem, f"{hint}, if you need them")


def judge_lag(seconds: float) -> Finding:
    """Judge the age of the oldest event that no metric counts yet."""
    seen = f"metrics are {seconds:.0f} s behind the ledger"
    if seconds >= _LAG_WARN_SECONDS:
        return warn("exporter", seen, "see its log; alerts and dashboards are stale until it catches up")
    return ok("exporter", seen)


def judge_refusal(error: str) -> Finding:
    """Judge why the ledger gave no connection, or refused a statement.

    The driver's words name host, port and user but no password.
    """
    reason = error.partition("FATAL:")[2] or error
    seen = f"POINTSMAN_LEDGER__URL: {' '.join(reason.split())[:MOST_CHARACTERS]}"
    if any(words in error for words in _EXHAUSTED):
        return fail("ledger", seen, "all its connections are taken: stop who holds them, or raise max_connections")
    return fail("ledger", seen, "start it or `pointsman up`, or fix the URL")


def judge_session(session: Mapping[str, str]) -> Finding:
    """Judge whether sessions have their limits, which a pooler may not have set."""
    name, missing = "session limits", [f"{name}={value}" for name, value in SESSION.items() if session[name] != value]
    if not missing:
        return ok(name, f"statements end after {session['statement_timeout']}")
    return fail(name, f"a session lacks {', '.join(missing)}", "set them in the pooler's connect_query")


def judge_owner(is_owner: bool) -> Finding:
    """Judge whether a dispatcher with this URL could make and drop partitions of events."""
    name = "ledger owner"
    if is_owner:
        return ok(name)
    return fail(name, "the role does not own the tables", "old events stay: give dispatchers the role that migrates")


def judge_connections(connections: Connections) -> Finding:
    """Judge how many connections to the ledger are left."""
    seen = f"{connections.used} of {connections.most} are taken"
    if connections.used < _BUSY_SHARE * connections.most:
        return ok("ledger connections", seen)
    return warn("ledger connections", seen, "stop who holds them (pg_stat_activity), or raise max_connections")


def judge_transaction(oldest: Transaction | None) -> Finding:
    """Judge the oldest open transaction: metrics, event streams and audit seals wait for its end."""
    name = "ledger transactions"
    if oldest is None or oldest.seconds < _LONG_SECONDS:
        return ok(name)
    seen = f"pid {oldest.pid} ({oldest.program}, {oldest.state}) has one open for {oldest.seconds:.0f} s"
    return warn(
        name, seen, f"metrics and event streams wait for it; `SELECT pg_terminate_backend({oldest.pid})` ends it"
    )


def judge_blockers(blockers: Sequence[Blocker]) -> Finding:
    """Judge who waits for whose locks."""
    name = "ledger locks"
    if not blockers or blockers[0].seconds < _BLOCKED_SECONDS:
        return ok(name)
    worst = blockers[0]
    seen = (
        f"{worst.waiting} wait for pid {worst.pid} ({worst.program}, {worst.state}), the longest {worst.seconds:.0f} s"
    )
    return fail(name, seen, f"`SELECT pg_terminate_backend({worst.pid})` ends it")


def judge_webhooks(undelivered: Undelivered) -> Finding:
    """Judge the callbacks that have not arrived."""
    name, seen = "webhooks", f"{undelivered.waiting} are late, {undelivered.given_up} were given up within a day"
    if not any(undelivered):
        return ok(name)
    hint = (
        "is POINTSMAN_WEBHOOK__SECRET set where `pointsman dispatcher` runs? `pointsman webhook list` names receivers"
    )
    return warn(name, seen, hint)


def judge_speed(name: str, seen: str, *, seconds: float) -> Finding:
    """Judge how long something took that every job waits for."""
    if seconds < _SLOW_SECONDS:
        return ok(name, seen)
    return warn(name, f"{seen}, in {seconds:.1f} s", f"jobs wait for it: it should take less than {_SLOW_SECONDS:g} s")


def judge_prices(models: Iterable[str], priced: Iterable[str]) -> Finding:
    """Judge whether every model in the policy has a price."""
    if missing := sorted(set(models) - set(priced)):
        hint = "add them to `prices` in the policy; until then they cost as much as its most expensive model"
        return fail("prices", f"none for {', '.join(missing)}", hint)
    return ok("prices", f"for all {len(set(models))} models that the policy names")

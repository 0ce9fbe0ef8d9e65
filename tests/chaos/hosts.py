"""`make chaos ONLY=hosts`: one host of three is cut off in the middle of its work, for longer than its leases.

Cut off means that its packets vanish both ways, with no refusal (see `network.py`). It happens while the host leads the
dispatchers, holds a publish and an edit by a model, and jobs keep coming in. Then the link comes back, and whatever the
host's processes still hold counts no more; they work on without a restart.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import Any
from uuid import UUID

from sqlalchemy import text

from tests.chaos.hosts_checks import judge
from tests.chaos.hosts_load import Load
from tests.chaos.network import Host, inside, missing
from tests.chaos.options import Options
from tests.chaos.report import Report
from tests.chaos.three_hosts import ThreeHosts, three_hosts
from tests.services import wait_until

Say = Callable[[str], None]
LEASE_SECONDS = 20
CUT_SECONDS = 27.0
"""Longer than a lease, with its recovery."""
RESUMED_SECONDS = 90.0
"""How long a host may take until each of its pools has claimed a job again."""
MOST_JOBS = 400
_END_SECONDS = 240.0
_LOCK = 7707
_HELD = "SELECT queue, worker, job_id, id FROM attempt WHERE ended_at IS NULL AND worker LIKE :host"


@dataclass
class Cut:
    """What one partition was, and what was measured of it, in seconds since the cut or since the link was back."""

    host: str
    held: dict[str, int] = field(default_factory=dict)
    """Attempts that the host held when it was cut off, by queue."""
    was_leader: bool = False
    leader_after_seconds: float | None = None
    """Until another dispatcher led."""
    lock_free_after_seconds: float | None = None
    """Until a lock was free that an open transaction of the host held."""
    recovered_after_seconds: float | None = None
    """Until the last of those attempts was taken away."""
    resumed_after_seconds: dict[str, float] = field(default_factory=dict)
    """By pool of the host: until it claimed a job again, without a restart."""
    problems: list[str] = field(default_factory=list)


@contextmanager
def hold_a_lock(hosts: ThreeHosts, victim: Host) -> Iterator[None]:
    """Leave a transaction open on a host, with a lock, as whoever works there may at the moment of a cut."""
    with inside(victim):
        ledger = hosts.open_ledger()
        stuck = ledger.engine.connect()
        stuck.execute(text(f"SELECT pg_advisory_xact_lock({_LOCK})"))
    try:
        yield
    finally:
        stuck.invalidate()
        stuck.close()
        ledger.close()


class Scene:
    """The run: jobs flow, a host is cut off at a chosen moment, and all is brought to its end."""

    def __init__(self, hosts: ThreeHosts, say: Say, *, seed: int, jobs: int) -> None:
        self._hosts = hosts
        self._say = say
        self._rng = random.Random(seed)
        self._load = Load(hosts, self._rng)
        self._jobs = jobs

    def run(self, cuts: int) -> Report:
        """Cut off the leading host first, then one by lot."""
        report = Report(f"three hosts, {cuts} of them cut off in turn, each for {CUT_SECONDS:.0f} s")
        self._load.prepare(12)
        self._load.keep_up(3, per_second=8)
        for number in range(cuts):
            victim = self._hosts.second if number == 0 else self._rng.choice([self._hosts.second, self._hosts.third])
            self._put_on_record(self._cut(victim, number), report)
        while len(self._load.accepted) < self._jobs:
            self._load.submit_one()
            self._load.approve_waiting()
        self._finish()
        self._count(report)
        judge(self._hosts, self._load.accepted, report)
        report.notes.append(
            "the content store is one directory here, as a file server would give it: a cut leaves it reachable"
        )
        report.notes.append("no engine is here: queues agent and steps are served, and nothing is asked of them")
        return report

    def _put_on_record(self, cut: Cut, report: Report) -> None:
        report.figures |= {
            f"cut of {cut.host}, {name.replace('_', ' ')}": value
            for name, value in asdict(cut).items()
            if name not in ("host", "problems")
        }
        report.promise(f"{cut.host} is replaced while it is away, and works on when it is back", cut.problems)

    def _cut(self, victim: Host, number: int) -> Cut:
        if victim is self._hosts.second:
            self._make_lead(victim)
        big = self._prepare_publishes(number)
        pools = {
            worker
            for (worker,) in self._hosts.rows(
                "SELECT DISTINCT worker FROM attempt WHERE worker LIKE :host", host=f"%@{victim.name}.%"
            )
        }
        cut = Cut(victim.name)
        with hold_a_lock(self._hosts, victim):
            self._wait_for_moment(victim, big)
            time.sleep(self._rng.uniform(0, 0.05))
            cut.was_leader = self._hosts.leader() == victim.name
            if victim is self._hosts.second and not cut.was_leader:
                cut.problems.append("it did not lead when it was cut off")
            self._hosts.network.cut(victim)
            at = time.monotonic()
            held = self._held_by(victim)
            cut.held = dict(Counter(queue for queue, *_ in held))
            self._say(f"{victim.name} is cut off with {cut.held}")
            self._while_cut(cut, at, [row[3] for row in held])
            self._hosts.network.join(victim)
        self._say(f"{victim.name} is back")
        self._resume(cut, victim, pools)
        return cut

    def _make_lead(self, host: Host) -> None:
        if self._hosts.leader() != host.name:
            self._hosts.restart_dispatcher(self._hosts.first)
        wait_until(lambda: self._hosts.leader() == host.name, seconds=30, what=f"{host.name} leads")

    def _prepare_publishes(self, number: int) -> list[UUID]:
        """Edits of big sites that wait for their approval."""
        big = []
        for copy in range(4):
            self._load.import_big(f"big-{number}-{copy}")
            big.append(self._load.submit("Change the heading 'Welcome' to 'Closed'", site=f"big-{number}-{copy}"))
        self._load.kept_back.update(big)
        state = "SELECT count(*) FROM job WHERE id = ANY(:big) AND state = 'awaiting_approval'"
        wait_until(lambda: self._hosts.rows(state, big=big) == [(len(big),)], seconds=60, what="big edits wait")
        return big

    def _held_by(self, host: Host) -> list[tuple[Any, ...]]:
        return self._hosts.rows(_HELD, host=f"%@{host.name}.%")

    def _wait_for_moment(self, victim: Host, big: list[UUID]) -> None:
        """Wait until the host works on an edit by a model, give it publishes, and wait until it is in one."""
        for _ in range(8):
            self._load.submit_model_edit()
        for _ in range(4):
            self._load.submit_one()

        def holds(queue: str) -> bool:
            return any(row[0] == queue for row in self._held_by(victim))

        wait_until(lambda: holds("patch"), seconds=30, what="it edits")
        for job_id in big:
            self._load.approve(job_id)
        with suppress(AssertionError):  # the other host may have been quicker with all of them: then none is cut
            wait_until(lambda: holds("control"), seconds=10, what="it publishes")

    def _while_cut(self, cut: Cut, at: float, attempts: list[UUID]) -> None:
        still_open = "SELECT 1 FROM attempt WHERE id = ANY(:ids) AND ended_at IS NULL LIMIT 1"
        locked = f"SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objid = {_LOCK}"
        while time.monotonic() < at + CUT_SECONDS:
            since = round(time.monotonic() - at, 1)
            if cut.leader_after_seconds is None and self._hosts.leader() not in ("", cut.host):
                cut.leader_after_seconds = since
            if cut.lock_free_after_seconds is None and not self._hosts.rows(locked):
                cut.lock_free_after_seconds = since
            if cut.recovered_after_seconds is None and not self._hosts.rows(still_open, ids=attempts):
                cut.recovered_after_seconds = since
            self._load.keep_up(0.5, per_second=4)
        if not attempts:
            cut.problems.append("it held nothing when it was cut off: nothing was shown")
        outcomes = self._hosts.rows("SELECT outcome, queue FROM attempt WHERE id = ANY(:ids)", ids=attempts)
        cut.problems += [f"an attempt on {queue} was not taken away: {how}" for how, queue in outcomes if how != "lost"]
        free_after = cut.lock_free_after_seconds
        if free_after is None or free_after >= LEASE_SECONDS:
            cut.problems.append(f"a lock of its open transaction was free after {free_after} s: a lease is shorter")
        if cut.was_leader and cut.leader_after_seconds is None:
            cut.problems.append("no other dispatcher led")

    def _resume(self, cut: Cut, victim: Host, pools: set[str]) -> None:
        """Jobs keep coming until each pool of the host has claimed one again."""
        back = time.monotonic()
        [(since,)] = self._hosts.rows("SELECT now()")
        claimed = "SELECT DISTINCT worker FROM attempt WHERE started_at > :since AND worker LIKE :host"
        while not pools <= set(cut.resumed_after_seconds) and time.monotonic() < back + RESUMED_SECONDS:
            self._load.keep_up(0.5, per_second=8)
            for (worker,) in self._hosts.rows(claimed, since=since, host=f"%@{victim.name}.%"):
                cut.resumed_after_seconds.setdefault(worker, round(time.monotonic() - back, 1))
        cut.problems += [f"{pool} claimed nothing any more" for pool in sorted(pools - set(cut.resumed_after_seconds))]
        cut.problems += [f"{name} had ended" for name in self._hosts.supervisors[victim.name].dead()]

    def _finish(self) -> None:
        def is_over() -> bool:
            self._load.approve_waiting()
            return self._load.open_jobs() == 0

        with suppress(AssertionError):  # which jobs have no end is said by the promise
            wait_until(is_over, seconds=_END_SECONDS, what="every job has ended")

    def _count(self, report: Report) -> None:
        rows = self._hosts.rows
        ends = rows("SELECT state, reason, count(*) FROM job GROUP BY state, reason")
        refused = rows("SELECT count(*) FROM event WHERE kind = 'fenced'")[0][0]
        report.figures |= {
            "jobs": len(self._load.accepted),
            "ends": {f"{state} ({reason})": count for state, reason, count in ends},
            "attempts that were lost": rows("SELECT count(*) FROM attempt WHERE outcome = 'lost'")[0][0],
            "stale copies and attempts that were refused": refused + self._hosts.said("attempt_fenced"),
            "attempts given up without a ledger": self._hosts.said("attempt_given_up_without_ledger"),
        }


def run(options: Options, say: Say) -> Report:
    """Run the scene once: one cut and few jobs when it has to be short, otherwise three cuts and some hundred."""
    if why := missing():
        return Report("three hosts", notes=[f"skipped: {why}"])
    jobs, cuts = (min(options.jobs, 80), 1) if options.is_short else (min(options.jobs, MOST_JOBS), 3)
    with three_hosts() as hosts:
        return Scene(hosts, say, seed=options.seed, jobs=jobs).run(cuts)

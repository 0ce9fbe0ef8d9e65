"""`make chaos ONLY=hosts`: one host of three is cut off in the middle of its work, for longer than its leases.

Cut off means that its packets vanish both ways, with no refusal (see `network.py`). It happens while the host leads the
dispatchers, holds a publish and an edit by a model, and jobs keep coming in. What must hold is checked on the ledger,
the rehearsal model's own request log and the Den.
"""

from __future__ import annotations

import json
import random
import sys
import time
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any
from uuid import UUID

import httpx
from sqlalchemy import text

from routing.jobs import ENDS
from tests.chaos.hosts_checks import check_all
from tests.chaos.network import Host, inside, missing
from tests.chaos.three_hosts import ThreeHosts, three_hosts
from tests.services import wait_until

LEASE_SECONDS = 20
CUT_SECONDS = 27.0
"""Longer than a lease (20 s), with its recovery."""
PAGE = (
    b'<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8"><title>Cafe</title></head>\n<body>\n<main>\n'
    b'<section id="menu"><h1>Welcome</h1><p>Coffee and cake.</p><div class="card">Cake</div></section>\n'
    b"</main>\n</body>\n</html>\n"
)
BIG_FILES = 490
"""A publish of so many files takes long enough to be cut in its middle."""
_HELD = "SELECT queue, worker, job_id, id FROM attempt WHERE ended_at IS NULL AND worker LIKE :host"


_LOCKED = """
    SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objid = 7707
"""


@contextmanager
def hold_a_lock(hosts: ThreeHosts, victim: Host) -> Iterator[None]:
    """Leave a transaction open on a host, with a lock, as whoever works there may at the moment of a cut."""
    with inside(victim):
        ledger = hosts.open_ledger()
        stuck = ledger.engine.connect()
        stuck.execute(text("SELECT pg_advisory_xact_lock(7707)"))
    try:
        yield
    finally:
        stuck.invalidate()
        stuck.close()
        ledger.close()


@dataclass
class Cut:
    """What one partition was, and what was measured of it, in seconds since the cut or since the link was back."""

    host: str
    held: dict[str, int] = field(default_factory=dict)
    """Attempts that the host held when it was cut off, by queue."""
    was_leader: bool = False
    leader_after_seconds: float | None = None
    lock_free_after_seconds: float | None = None
    """Until a row that a transaction of the host had locked was free again."""
    recovered_after_seconds: float | None = None
    """Until the last of those attempts was taken away."""
    resumed_after_seconds: dict[str, float] = field(default_factory=dict)
    """By pool of the host: until it claimed a job again, without a restart."""


@dataclass
class Report:
    """What the run was."""

    seed: int
    jobs: int = 0
    ends: dict[str, int] = field(default_factory=dict)
    """By state and reason."""
    published: int = 0
    fenced: int = 0
    """Copies of messages, and effects of lost attempts, that were refused."""
    lost_attempts: int = 0
    cuts: list[Cut] = field(default_factory=list)
    seconds: float = 0.0


class Load:
    """Submits jobs and approves what waits for it, as callers and reviewers would."""

    def __init__(self, hosts: ThreeHosts, rng: random.Random) -> None:
        self._hosts = hosts
        self._rng = rng
        self._sites: list[str] = []
        self.accepted: list[UUID] = []
        self.kept_back: set[UUID] = set()
        """Edits of big sites: their publishes are for the moment of a cut."""

    def prepare(self, small: int) -> None:
        for number in range(small):
            self._sites.append(f"cafe-{number}")
            self._hosts.import_site(self._sites[-1], {"index.html": PAGE})

    def import_big(self, name: str) -> None:
        leaves = {f"docs/{number % 50}/page-{number}.txt": b"page %d" % number for number in range(BIG_FILES)}
        self._hosts.import_site(name, {"index.html": PAGE, **leaves})

    def submit(self, prompt: str, **body: Any) -> UUID:
        answer = self._hosts.http.post("/v1/jobs", json={"prompt": prompt, **body})
        assert answer.status_code == httpx.codes.ACCEPTED, answer.text
        self.accepted.append(UUID(answer.json()["id"]))
        return self.accepted[-1]

    def submit_one(self) -> UUID:
        """One job of a mixed load; most sites have an edit already that waits for its turn."""
        site, number = self._rng.choice(self._sites), len(self.accepted)
        kinds = {
            "tools": 5, "answer": 3, "slow_answer": 1, "direct": 4, "patch": 2, "model_spec": 1,
        }  # fmt: skip
        match self._rng.choices(list(kinds), list(kinds.values()))[0]:
            case "tools":
                return self.submit(f"echo {number}")
            case "answer":
                return self.submit(f"What is a sourdough starter, in {number} words?")
            case "slow_answer":
                return self.submit(f"Explain how bread rises, part {number} [rehearse:linger]")
            case "direct":
                return self.submit(f"Change the heading 'Welcome' to 'Welcome {number}'", site=site)
            case "patch":
                return self.submit("Add a hover effect to the cards", site=site)
            case _:
                return self.submit_model_edit(site)

    def submit_model_edit(self, site: str = "") -> UUID:
        """An edit of some seconds, by a model and without an agent."""
        site = site or self._rng.choice(self._sites)
        return self.submit("Add a hover effect to the cards, and a shadow [rehearse:linger]", site=site)

    def approve_waiting(self) -> None:
        """Approve what waits, but for what is kept back."""
        found = self._hosts.rows("SELECT id FROM job WHERE state = 'awaiting_approval' LIMIT 50")
        for (job_id,) in found:
            if job_id not in self.kept_back:
                self.approve(job_id)

    def approve(self, job_id: UUID) -> None:
        """Approve one; what has ended or was outrun by another publish meanwhile is refused, which is right."""
        self.kept_back.discard(job_id)
        answer = self._hosts.http.post(f"/v1/jobs/{job_id}/approve")
        assert answer.is_success or answer.status_code == httpx.codes.CONFLICT, answer.text
        if answer.status_code == httpx.codes.CONFLICT:
            self._hosts.http.post(f"/v1/jobs/{job_id}/reject", json={"reason": "outrun"})

    def open_jobs(self) -> int:
        [(count,)] = self._hosts.rows("SELECT count(*) FROM job WHERE NOT state = ANY(:ends)", ends=sorted(ENDS))
        return int(count)

    def keep_up(self, seconds: float, *, per_second: float) -> None:
        """Let jobs flow for a while."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.submit_one()
            self.approve_waiting()
            time.sleep(min(1 / per_second, max(0.0, until - time.monotonic())))


class Scene:
    """The run: jobs flow, a host is cut off at a chosen moment, and all is brought to its end."""

    def __init__(self, hosts: ThreeHosts, *, seed: int, jobs: int) -> None:
        self._hosts = hosts
        self._rng = random.Random(seed)
        self._load = Load(hosts, self._rng)
        self._jobs = jobs
        self.report = Report(seed)

    def run(self, cuts: int) -> Report:
        """Cut off the leading host first, then one by lot."""
        began = time.monotonic()
        self._load.prepare(12)
        self._load.keep_up(3, per_second=8)
        for number in range(cuts):
            victim = self._hosts.second if number == 0 else self._rng.choice([self._hosts.second, self._hosts.third])
            self.report.cuts.append(self._cut(victim, number))
        while len(self._load.accepted) < self._jobs:
            self._load.submit_one()
            self._load.approve_waiting()
        self._finish()
        check_all(self._hosts, self._load.accepted)
        self._summarise()
        self.report.seconds = round(time.monotonic() - began, 1)
        return self.report

    def _cut(self, victim: Host, number: int) -> Cut:
        if victim is self._hosts.second:
            self._make_lead(victim)
        big = self._prepare_publishes(number)
        workers = {worker for (worker,) in self._hosts.rows(
            "SELECT DISTINCT worker FROM attempt WHERE worker LIKE :host", host=f"%@{victim.name}.%")}  # fmt: skip
        cut = Cut(victim.name)
        with hold_a_lock(self._hosts, victim):
            self._wait_for_moment(victim, big)
            time.sleep(self._rng.uniform(0, 0.05))
            cut.was_leader = self._hosts.leader() == victim.name
            self._hosts.network.cut(victim)
            at = time.monotonic()
            held = self._held_by(victim)
            cut.held = dict(Counter(queue for queue, *_ in held))
            self._while_cut(cut, at, held)
            self._hosts.network.join(victim)
        self._resume(cut, victim, workers)
        return cut

    def _make_lead(self, host: Host) -> None:
        if self._hosts.leader() != host.name:
            self._hosts.restart_dispatcher(self._hosts.first)
        wait_until(lambda: self._hosts.leader() == host.name, seconds=20, what=f"{host.name} leads")

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
        wait_until(lambda: any(row[0] == "patch" for row in self._held_by(victim)), seconds=20, what="it edits")
        for job_id in big:
            self._load.approve(job_id)

        def is_publishing() -> bool:
            return any(row[0] == "control" for row in self._held_by(victim))

        wait_until(is_publishing, seconds=20, what="it publishes")

    def _while_cut(self, cut: Cut, at: float, held: list[tuple[Any, ...]]) -> None:
        attempts = [row[3] for row in held]
        ended = "SELECT count(*) FROM attempt WHERE id = ANY(:ids) AND ended_at IS NULL"
        while time.monotonic() < at + CUT_SECONDS:
            since = round(time.monotonic() - at, 1)
            if cut.leader_after_seconds is None and self._hosts.leader() not in ("", cut.host):
                cut.leader_after_seconds = since
            if cut.lock_free_after_seconds is None and not self._hosts.rows(_LOCKED):
                cut.lock_free_after_seconds = since
            if cut.recovered_after_seconds is None and self._hosts.rows(ended, ids=attempts) == [(0,)]:
                cut.recovered_after_seconds = since
            self._load.keep_up(0.5, per_second=4)
        outcomes = self._hosts.rows("SELECT outcome, queue FROM attempt WHERE id = ANY(:ids)", ids=attempts)
        assert cut.lock_free_after_seconds is not None, "the ledger forgets a client that vanished"
        assert held, "the host held work when it was cut off"
        assert {outcome for outcome, _ in outcomes} == {"lost"}, outcomes
        if cut.was_leader:
            assert cut.leader_after_seconds is not None, "another dispatcher leads"

    def _resume(self, cut: Cut, victim: Host, workers: set[str]) -> None:
        """Jobs keep coming until each pool of the host has claimed one again."""
        back = time.monotonic()
        [(since,)] = self._hosts.rows("SELECT now()")
        claimed = "SELECT DISTINCT worker FROM attempt WHERE started_at > :since AND worker LIKE :host"

        def look() -> bool:
            self._load.keep_up(0.5, per_second=8)
            for (worker,) in self._hosts.rows(claimed, since=since, host=f"%@{victim.name}.%"):
                cut.resumed_after_seconds.setdefault(worker, round(time.monotonic() - back, 1))
            return workers <= set(cut.resumed_after_seconds)

        wait_until(look, seconds=90, what=f"{workers} work again; {cut.resumed_after_seconds}")
        assert not self._hosts.supervisors[victim.name].dead(), "nothing had to be restarted"

    def _finish(self) -> None:
        def is_over() -> bool:
            self._load.approve_waiting()
            return self._load.open_jobs() == 0

        wait_until(is_over, seconds=180, what="every job has ended")

    def _summarise(self) -> None:
        report, rows = self.report, self._hosts.rows
        report.jobs = len(self._load.accepted)
        report.ends = {
            f"{state} {reason}": count
            for state, reason, count in rows("SELECT state, reason, count(*) FROM job GROUP BY state, reason")
        }
        report.published = rows("SELECT count(*) FROM job WHERE state = 'published'")[0][0]
        refused = rows("SELECT count(*) FROM event WHERE kind = 'fenced'")[0][0]
        report.fenced = refused + sum(self._hosts.said(event) for event in ("attempt_fenced", "attempt_given_up"))
        report.lost_attempts = rows("SELECT count(*) FROM attempt WHERE outcome = 'lost'")[0][0]


def run(*, seed: int, jobs: int, cuts: int) -> Report:
    """Run the scene once."""
    with three_hosts() as hosts:
        return Scene(hosts, seed=seed, jobs=jobs).run(cuts)


def main(seed: int = 5, *, jobs: int = 300, cuts: int = 3) -> int:
    """Run and print the report; 0 when all that must hold held."""
    if why := missing():
        sys.stdout.write(f"hosts: skipped: {why}\n")
        return 0
    sys.stdout.write(json.dumps(asdict(run(seed=seed, jobs=jobs, cuts=cuts)), indent=2) + "\n")
    return 0


if __name__ == "__main__":
    parser = ArgumentParser()
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--cuts", type=int, default=3)
    given = parser.parse_args()
    sys.exit(main(given.seed, jobs=given.jobs, cuts=given.cuts))

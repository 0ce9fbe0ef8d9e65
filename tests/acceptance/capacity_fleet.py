"""A real fleet under a load of known arrivals: what `pointsman capacity` predicts is held against what it does."""

from __future__ import annotations

import heapq
import random
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import httpx2
from sqlalchemy import text

from ledger.store import Ledger
from monitoring.capacity.workload import Measured, measure
from producers.local.embedded import Embedded
from producers.local.supervisor import Program, python_module
from routing.policy.platform import load_policy
from tests.services import wait_until

SLOTS = 4
KINDS = {"brisk": 0.75, "broad": 0.25}
"""What is asked for, as shares: three short answers, then a long one, all of stated speed."""
SCENARIO = """
rules:
  - name: brisk
    when: {tag: brisk}
    say: [{text: "A short answer that always takes as long."}]
    pace: {first_token_seconds: 0.85, tokens_per_second: 200}
  - name: broad
    when: {tag: broad}
    say: [{text: "A long answer that always takes as long."}]
    pace: {first_token_seconds: 2.30, tokens_per_second: 200}
"""
SKIPPED = 0.1
"""Share of a load that is not counted: its queue begins empty."""


class OnePool(Embedded):
    """An installation whose only workers are one pool, for questions."""

    def _programs(self) -> list[Program]:
        others = [program for program in super()._programs() if not program.name.startswith("worker-")]
        argv = python_module("workers.main", "answer", "--concurrency", str(self.options.concurrency))
        return [*others, Program("worker-answer", argv)]


class Planned(NamedTuple):
    """One job of a load."""

    at: float
    kind: str


def poisson(rate: float, seconds: float, seed: int) -> list[Planned]:
    """Jobs that come at random."""
    draw = random.Random(seed)
    at, jobs = 0.0, []
    while (at := at + draw.expovariate(rate)) < seconds:
        jobs.append(Planned(at, draw.choices(list(KINDS), weights=list(KINDS.values()))[0]))
    return jobs


def expected_p95(jobs: Sequence[Planned], occupied: Mapping[str, float], pickup: float) -> float:
    """Return the p95 wait of exactly these jobs before `SLOTS` slots."""
    ready = [0.0] * SLOTS
    waits = []
    for job in jobs:
        begin = max(job.at + pickup, ready[0])
        heapq.heapreplace(ready, begin + occupied[job.kind])
        waits.append(begin - job.at)
    return statistics.quantiles(waits[int(len(waits) * SKIPPED) :], n=20, method="inclusive")[-1]


def expected_service(jobs: Sequence[Planned], seconds: Mapping[str, float]) -> float:
    """Return the mean attempt of exactly these jobs, as long as those of a kind take what they took so far."""
    return statistics.fmean(seconds[job.kind] for job in jobs[int(len(jobs) * SKIPPED) :])


def typical(rate: float, seconds: float, *, p95: float, occupied: Mapping[str, float], pickup: float) -> list[Planned]:
    """Return a load of so many seconds that shows what an endless one would.

    Two minutes of Poisson arrivals at a high load are too few to meet their own distribution: of a pool that does
    exactly what the model says, the p95 of such a part is off by up to a half. So parts are drawn, by ascending seed,
    until one is typical of the endless stream by the model's own reckoning. What is tested is whether the fleet then
    does the same.
    """
    for seed in range(1, 2_000):
        jobs = poisson(rate, seconds, seed)
        is_rate = abs(len(jobs) / seconds / rate - 1) < 0.03
        if is_rate and abs(expected_p95(jobs, occupied, pickup) / p95 - 1) < 0.04:
            return jobs
    raise AssertionError("no part of the stream is typical of it")


@dataclass(frozen=True)
class Observed:
    """What a load showed, as the ledger has it."""

    jobs: int
    seconds: float
    waits: tuple[float, ...]
    """In order."""
    service: tuple[float, ...]

    @property
    def rate(self) -> float:
        return self.jobs / self.seconds

    @property
    def p95(self) -> float:
        return statistics.quantiles(self.waits, n=20, method="inclusive")[-1]

    @property
    def mean_service(self) -> float:
        return statistics.fmean(self.service)


class Fleet:
    """The running fleet."""

    def __init__(self, embedded: OnePool) -> None:
        self.embedded = embedded
        self.ledger: Ledger = embedded.open_ledger()
        self._http = embedded.open_api()

    def close(self) -> None:
        self._http.close()
        self.ledger.close()

    def play(self, jobs: Sequence[Planned]) -> Observed:
        """Submit every job at its time over HTTP, wait until all have ended, and read their waits from the ledger."""
        before = self._newest()
        began = time.monotonic()
        submitted: list[Future[None]] = []
        with ThreadPoolExecutor(8) as pool:
            for job in jobs:
                time.sleep(max(0.0, began + job.at - time.monotonic()))
                submitted.append(pool.submit(self._submit, job.kind))
            for future in submitted:
                future.result(60)
        took = time.monotonic() - began
        wait_until(lambda: self._open() == 0, seconds=120, what="every job has ended")
        return self._read(before, took)

    def measured(self) -> Measured:
        """Return what `pointsman capacity --from ledger` reads."""
        return measure(self.ledger, load_policy(None), hours=1)

    def forget(self) -> None:
        """Let everything so far lie before what is read: connections and caches were still being made."""
        with self.ledger.begin() as session:
            session.execute(text("UPDATE attempt SET started_at = started_at - interval '2 hours'"))

    def kinds(self) -> dict[str, float]:
        """Return the mean seconds of each kind so far."""
        query = """
            SELECT kind, avg(extract(epoch FROM attempt.ended_at - attempt.started_at))::float FROM attempt
              JOIN job ON job.id = attempt.job_id
              JOIN unnest(CAST(:kinds AS text[])) AS kinds (kind) ON job.prompt LIKE '%' || kind || '%'
             WHERE attempt.started_at > now() - interval '1 hour' GROUP BY kind
        """
        with self.ledger.begin() as session:
            return {kind: mean for kind, mean in session.execute(text(query), {"kinds": list(KINDS)})}

    def _submit(self, kind: str) -> None:
        body = {"prompt": f"Explain how bread rises [rehearse:{kind}]"}
        answer = self._http.post("/v1/jobs", json=body)
        assert answer.status_code == httpx2.codes.ACCEPTED, answer.text

    def _newest(self) -> float:
        with self.ledger.begin() as session:
            return float(session.scalar(text("SELECT extract(epoch FROM clock_timestamp())")))

    def _open(self) -> int:
        with self.ledger.begin() as session:
            return int(session.scalar(text("SELECT count(*) FROM job WHERE ended_at IS NULL")))

    def _read(self, since: float, took: float) -> Observed:
        query = """
            SELECT (event.data ->> 'wait_seconds')::float AS waited,
                   extract(epoch FROM attempt.ended_at - attempt.started_at)::float AS seconds
              FROM attempt JOIN job ON job.id = attempt.job_id
              JOIN event ON event.job_id = job.id AND event.kind = 'started'
             WHERE job.created_at > to_timestamp(:since) AND attempt.ended_at IS NOT NULL
             ORDER BY job.created_at
        """
        with self.ledger.begin() as session:
            rows = session.execute(text(query), {"since": since}).all()
            odd = session.scalar(
                text("SELECT count(*) FROM job WHERE created_at > to_timestamp(:since) AND state <> 'answered'"),
                {"since": since},
            )
        assert odd == 0, f"{odd} jobs did not end well"
        counted = rows[int(len(rows) * SKIPPED) :]
        waits = tuple(sorted(row.waited for row in counted))
        return Observed(len(rows), took, waits, tuple(row.seconds for row in counted))


@contextmanager
def running_fleet(home: Path) -> Iterator[Fleet]:
    """Run one."""
    import os

    from gateway.fake_provider.config import FakeProviderConfig
    from producers.local.embedded import Options

    scenario = home / "capacity.yaml"
    scenario.write_text(SCENARIO)
    fake_provider = FakeProviderConfig(speed="max", scenarios=(scenario,))
    options = Options(home=home / "home", fake_provider=fake_provider, api_port=0, concurrency=SLOTS)
    with OnePool(options, base_environment=os.environ) as embedded:
        fleet = Fleet(embedded)
        try:
            yield fleet
        finally:
            fleet.close()

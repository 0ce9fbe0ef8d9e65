"""`make chaos ONLY=leaks JOBS=100000`: what does a fleet hold more of, the more jobs it has done?

Cheap jobs of every short kind go through a whole embedded installation as fast as it takes them: commands, answers by a
model that does not pause, direct edits that are approved and published at once. What is kept by retention is given up
after seconds, not months. Everything that could leak is sampled; the verdict is a slope (`slopes.py`).
"""

from __future__ import annotations

import json
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib import resources
from pathlib import Path

import httpx2
import yaml
from redis import Redis
from sqlalchemy import text

from gateway.fake_provider.config import FakeProviderConfig
from ledger.store import Ledger
from producers.dispatch.housekeeping import collect_garbage
from producers.local.embedded import Embedded
from producers.local.embedded import Options as Setup
from producers.local.preparation import TENANT
from routing.policy.platform import load_policy
from sites.content_store import ContentStore
from tests.chaos.callers import SITES, Callers
from tests.chaos.options import Options
from tests.chaos.report import Report
from tests.chaos.samples import Sample, take
from tests.chaos.slopes import Fit, Tolerance, at_one_pace, at_one_peak, fit

KEPT_SECONDS = 45.0
"""Retention: a thousandth of half a day."""
UNITS = {
    "handles": Tolerance(3),
    "threads": Tolerance(3),
    "connections": Tolerance(4),
    "keys": Tolerance(3),
    "memory MiB": Tolerance(8, 0.08),
    "rows": Tolerance(150, 0.10),
    "size MiB": Tolerance(2, 0.10),
    "files": Tolerance(60, 0.10),
    "series": Tolerance(6, 0.02),
}
"""What may be gained over the fitted part of a run."""
BY_DESIGN = {"audit": "stays in the ledger until it is archived", "audit_seal": "stays with the rows that it seals"}
"""Tables that retention leaves alone here, and why."""
Say = Callable[[str], None]
_SAY_SECONDS = 15.0
_LIMIT_SECONDS = 540.0
_SECONDS_PER_JOB = 0.15
"""So long a run of many jobs may take for each."""


@dataclass
class Leaks:
    """What was found."""

    jobs: int
    seed: int
    seconds: float = 0.0
    jobs_per_second: float = 0.0
    ends: dict[str, int] = field(default_factory=dict)
    fits: list[Fit] = field(default_factory=list)
    samples: list[tuple[float, Sample]] = field(default_factory=list)
    """Jobs so far, and what was held."""
    sampled_at: list[float] = field(default_factory=list)
    """Seconds of one clock."""

    @property
    def leaking(self) -> list[Fit]:
        """What grows and must not."""
        return [found for found in self.fits if not found.is_flat and not found.why_grows]


def _policy(home: Path) -> Path:
    """The shipped policy with retention in seconds and budgets that the run cannot use up."""
    shipped = yaml.safe_load((resources.files("routing.policy") / "platform.yaml").read_text())
    for name in shipped["retention"]:
        if name.endswith("days"):
            shipped["retention"][name] = KEPT_SECONDS / 86_400
    shipped["retention"] |= {"releases": 2, "draft_hours": 1}
    shipped["budgets"] |= {"tenant_day_usd": 5000, "fleet_day_usd": 5000}
    path = home / "policy.yaml"
    path.write_text(yaml.safe_dump(shipped))
    return path


class Watcher:
    """Samples while the callers submit."""

    def __init__(self, embedded: Embedded, ledger: Ledger, *, every_seconds: float, say: Say) -> None:
        self._say = say
        self._embedded = embedded
        self._ledger = ledger
        self._every = every_seconds
        self._broker: Redis = Redis.from_url(embedded.broker_url)
        self._places = {"content_store": embedded.home / "content-store", "temporary": embedded.home / "tmp"}
        self.ended_jobs = 0
        self._due_word = 0.0
        self.samples: list[tuple[float, Sample]] = []
        self.sampled_at: list[float] = []

    def count_ended(self) -> int:
        """Jobs that ended, retention's among them: what the exporter counts is never given up."""
        said = httpx2.get(f"{self._embedded.exporter_url}/metrics", timeout=20, trust_env=False, verify=False).text
        ended = [line for line in said.splitlines() if line.startswith("pointsman_jobs_finished_total")]
        self.ended_jobs = round(sum(float(line.rsplit(" ", 1)[1]) for line in ended))
        return self.ended_jobs

    def run(self, jobs: int, *, limit_seconds: float) -> None:
        """Sample until so many jobs ended, or the time is up."""
        deadline, due_sample, due_sweep = time.monotonic() + limit_seconds, 0.0, time.monotonic() + KEPT_SECONDS
        while self.count_ended() < jobs and time.monotonic() < deadline:
            if time.monotonic() > due_sample:
                due_sample = time.monotonic() + self._every
                sample = take(self._embedded, ledger=self._ledger, broker=self._broker, places=self._places)
                self.samples.append((float(self.ended_jobs), sample))
                self.sampled_at.append(time.monotonic())
                self._tell()
            if time.monotonic() > due_sweep:
                due_sweep = time.monotonic() + KEPT_SECONDS / 3
                self._sweep()
            time.sleep(0.2)
        self._broker.close()

    def _tell(self) -> None:
        if time.monotonic() > self._due_word:
            self._due_word = time.monotonic() + _SAY_SECONDS
            self._say(f"{self.ended_jobs} jobs")

    def _sweep(self) -> None:
        """Give up files: those of drafts, too, which the policy lets nobody keep for less than an hour."""
        policy = load_policy(self._embedded.options.policy)
        retention = policy.retention.model_copy(update={"draft_hours": KEPT_SECONDS / 3600})
        content_store = ContentStore(self._embedded.home / "content-store")
        collect_garbage(self._ledger, content_store, policy.model_copy(update={"retention": retention}))


@contextmanager
def _fleet() -> Iterator[Embedded]:
    with tempfile.TemporaryDirectory(prefix="pm-leaks-", ignore_cleanup_errors=True) as directory:
        home = Path(directory)
        home.chmod(0o755)
        (home / "home" / "tmp").mkdir(parents=True)
        options = Setup(
            home=home / "home",
            fake_provider=FakeProviderConfig(speed="max"),
            api_port=0,
            policy=_policy(home),
            environment={
                "TMPDIR": str(home / "home" / "tmp"),
                "POINTSMAN_DISPATCHER__SWEEP_SECONDS": str(KEPT_SECONDS / 9),  # or rows stay for twice as long as kept
            },
        )
        with Embedded(options, base_environment=os.environ) as embedded:
            for number in range(SITES):
                embedded.import_site(f"site-{number}")
            yield embedded


def _fits(samples: Sequence[tuple[float, Sample]], sampled_at: Sequence[float]) -> list[Fit]:
    names = sorted({name for _, sample in samples for name in sample})
    fits = []
    for name in names:
        unit, _, what = name.partition("/")
        seen = [index for index, (_, sample) in enumerate(samples) if name in sample]
        points = [(samples[index][0], samples[index][1][name]) for index in seen]
        if len(points) < 6:
            continue
        why = BY_DESIGN.get(what, "") if unit in ("rows", "size MiB") else ""
        found = fit(name, points, unit=unit, tolerance=UNITS[unit], why_grows=why)
        paced: Sequence[tuple[float, float]] = ()
        if unit == "rows" and not found.is_flat:
            paced = at_one_pace(points, [sampled_at[index] for index in seen], kept_seconds=KEPT_SECONDS)
        elif unit == "size MiB" and not found.is_flat:
            paced = at_one_peak(points, [samples[index][1][f"rows/{what}"] for index in seen])
        if len(paced) >= 6:
            found = fit(name, paced, unit=unit, tolerance=UNITS[unit], why_grows=why)
        fits.append(found)
    return fits


def watch(
    *, jobs: int, seed: int, limit_seconds: float, every_seconds: float = 3.0, say: Say = lambda line: None
) -> Leaks:
    """Run so many jobs through a fleet and fit what was sampled."""
    found = Leaks(jobs, seed)
    with _fleet() as embedded:
        ledger = embedded.open_ledger()
        with ledger.begin() as session:
            session.connection().execute(
                text("UPDATE tenant SET auto_approve = true WHERE name = :name"), {"name": TENANT}
            )
        with ledger.look() as connection:  # a minute, as it is, is longer than rows are kept here
            connection.execute(text(f"ALTER SYSTEM SET autovacuum_naptime = {KEPT_SECONDS / 9:.0f}"))
            connection.execute(text("SELECT pg_reload_conf()"))
        watcher = Watcher(embedded, ledger, every_seconds=every_seconds, say=say)
        callers = Callers(embedded, jobs=jobs, seed=seed, ended=lambda: watcher.ended_jobs)
        threads = [threading.Thread(target=callers.run, daemon=True) for _ in range(2)]
        began = time.monotonic()
        for thread in threads:
            thread.start()
        watcher.run(jobs, limit_seconds=limit_seconds)
        callers.is_stopped = True
        for thread in threads:
            thread.join()
        found.seconds = round(time.monotonic() - began, 1)
        found.jobs = watcher.ended_jobs
        assert not callers.errors, callers.errors[:3]
        found.ends = _ends(ledger)
        found.samples, found.sampled_at = watcher.samples, watcher.sampled_at
        found.fits = _fits(found.samples, found.sampled_at)
        found.jobs_per_second = round(found.jobs / found.seconds, 1)
        ledger.close()
    return found


def _ends(ledger: Ledger) -> dict[str, int]:
    with ledger.begin() as session:
        rows = session.connection().execute(text("SELECT state, count(*) FROM job GROUP BY state")).all()
    return {str(state): int(count) for state, count in rows}


def table(fits: Sequence[Fit]) -> list[tuple[str, ...]]:
    """Return a row for each thing that was watched, below a heading; what grows comes first."""
    rows: list[tuple[str, ...]] = [("watched", "first", "last", "per 1000 jobs", "gained", "tolerated", "verdict")]
    for found in sorted(fits, key=lambda one: (one.is_flat, bool(one.why_grows), one.name)):
        numbers = (found.first, found.last, found.slope, found.gained, found.tolerated)
        rows.append((found.name, *(f"{number:,.2f}" for number in numbers), found.verdict))
    return rows


def run(options: Options, say: Say) -> Report:
    """Run as many jobs as are wanted; every sample goes beside the report."""
    limit_seconds = max(_LIMIT_SECONDS, options.jobs * _SECONDS_PER_JOB)
    found = watch(jobs=options.jobs, seed=options.seed, limit_seconds=limit_seconds, say=say)
    report = Report(f"what grows with {found.jobs} jobs, {found.jobs_per_second} a second")
    report.figures |= {"jobs": found.jobs, "seconds": found.seconds, "ends": found.ends}
    report.table = table(found.fits)
    report.promise(
        "the slope of everything that is held is about zero, but for what is kept by design",
        [
            f"{one.name}: from {one.first:.1f} to {one.last:.1f}, {one.slope:+.2f} for 1000 jobs"
            for one in found.leaking
        ],
    )
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "leaks-samples.json").write_text(json.dumps(asdict(found)))
    return report

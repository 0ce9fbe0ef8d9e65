"""Does an operation cost more the more jobs the ledger has seen? Each is raced against itself on a small ledger.

The ledgers lie side by side in one server that does not wait for its disk, so that nothing covers up what grows. What
an operation makes is ended again outside the time that is taken: the open jobs stay the same few.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import text

from benchmarks.answer import Answer, Comparison, Curve, Spread, spread_of
from benchmarks.jobs import accepted, claimed, ended
from benchmarks.past import fill
from benchmarks.question import say
from benchmarks.race import Turn, interleave
from ledger import audit
from ledger.start_attempt import Claim
from ledger.store import Ledger, create_ledger_engine
from ledger.tables import Job
from monitoring.exporter import render_metrics
from producers.dispatch.broker import Publisher
from producers.dispatch.sweeping import RowSweeper
from producers.intake.submit import Submitter
from producers.use_cases.job_search import JobFilter
from producers.use_cases.jobs import page_of_jobs
from routing.broker import create_app
from routing.jobs import Source, State
from routing.policy.platform import platform_policy
from tests.services import Postgres, Valkey

MOST = 1.3
"""So many times as much may an operation cost on the largest ledger as on the smallest."""
_TURN_SECONDS = 0.1
_TENANT = "t1"
_SITE = "SELECT id FROM site WHERE tenant = 't6' AND name = 's6'"
_OLD_JOBS = 5
_AGE = text("UPDATE job SET ended_at = ended_at - interval '200 days' WHERE id = ANY(:ids)")
"""Not their events: the newest one tells whether all of a partition are old."""
_TIDY = (
    text("""
        UPDATE job SET state = 'cancelled', waiting_since = NULL, pushed_at = NULL, ended_at = now()
         WHERE tenant = 't1' AND created_at > now() - interval '1 minute' AND source = 'python' AND ended_at IS NULL
    """),
    text("UPDATE attempt SET ended_at = now() WHERE ended_at IS NULL"),
)
Step = Callable[[], Callable[[], object]]
"""Makes ready for an operation, and returns it."""


class Bench:
    """One ledger with its past, and what is done on it."""

    def __init__(self, url: str, broker_url: str) -> None:
        self._ledger = Ledger(create_ledger_engine(url, pool_size=1))
        self._policy = platform_policy()
        self._app = create_app(broker_url)
        self._submitter = Submitter(self._ledger, Publisher(self._app), self._policy)

    def close(self) -> None:
        self._app.close()
        self._ledger.close()

    def scalar(self, query: str) -> int:
        """Return a number that a query gives."""
        with self._ledger.begin() as session:
            return int(session.scalar(text(query)))

    @property
    def steps(self) -> Mapping[str, Step]:
        """What is measured, by name."""
        return {
            "submit": self._submit,
            "claim": self._claim,
            "finish": self._finish,
            "sweep": self._sweep,
            "scrape": self._scrape,
            "list jobs": self._list,
            "list jobs in a state": self._list_in_state,
            "list a site's jobs": self._list_of_site,
            "append to the audit trail": self._append,
        }

    def turn(self, name: str) -> Turn:
        """Return what does a step so often, and tells what that took without making ready and tidying up."""

        def run(times: int) -> float:
            seconds = 0.0
            for _ in range(times):
                act = self.steps[name]()
                began = time.perf_counter()
                act()
                seconds += time.perf_counter() - began
                self._tidy()
            return seconds

        return run

    def _submit(self) -> Callable[[], object]:
        body = {"prompt": f"Explain how bread number {uuid4()} rises"}
        return lambda: self._submitter.submit(body, tenant=_TENANT, source=Source.PYTHON)

    def _claim(self) -> Callable[[], object]:
        message = accepted(self._ledger, _TENANT)
        return lambda: claimed(self._ledger, message)

    def _finish(self) -> Callable[[], object]:
        held = self._held()
        return lambda: ended(self._ledger, held)

    def _sweep(self) -> Callable[[], object]:
        ids = []
        for _ in range(_OLD_JOBS):
            held = self._held()
            ended(self._ledger, held)
            ids.append(held.job.id)
        with self._ledger.begin() as session:
            session.execute(_AGE, {"ids": ids})
        sweeper = RowSweeper(self._ledger, self._policy.retention)

        def sweep() -> None:
            assert sweeper.run(seconds=60).is_done

        return sweep

    def _scrape(self) -> Callable[[], object]:
        return lambda: render_metrics(self._ledger, policy=self._policy)

    def _list(self) -> Callable[[], object]:
        return lambda: self._listed(tenant=_TENANT)

    def _list_in_state(self) -> Callable[[], object]:
        return lambda: self._listed(tenant=_TENANT, states=[State.AWAITING_APPROVAL])

    def _list_of_site(self) -> Callable[[], object]:
        with self._ledger.begin() as session:
            site_id: UUID = session.execute(text(_SITE)).scalar_one()
        return lambda: self._listed(tenant="t6", site_id=site_id, limit=2)

    def _append(self) -> Callable[[], object]:
        message = accepted(self._ledger, _TENANT)
        with self._ledger.begin() as session:
            job = session.get_one(Job, message.job_id)

        def append() -> None:
            with self._ledger.begin() as session:
                audit.append(session, "job_seen", actor="bench", job=job)

        return append

    # -- what steps are made of --------------------------------------------------------------------------------------

    def _held(self) -> Claim:
        return claimed(self._ledger, accepted(self._ledger, _TENANT))

    def _listed(self, *, limit: int = 50, **wanted: Any) -> None:
        with self._ledger.begin() as session:
            assert page_of_jobs(session, JobFilter(**wanted), limit=limit).jobs

    def _tidy(self) -> None:
        """End what a step left open, so that the next one finds what this one found."""
        with self._ledger.begin() as session:
            for statement in _TIDY:
                session.execute(statement)


def race(benches: Sequence[Bench], pairs: int) -> dict[str, list[list[tuple[float, float]]]]:
    """Race every step on every ledger beside the smallest, which is the first."""
    smallest, *larger = benches
    raced = {}
    for name in smallest.steps:
        say(f"growth: {name}")
        raced[name] = [
            interleave(bench.turn(name), smallest.turn(name), pairs=pairs, turn_seconds=_TURN_SECONDS)
            for bench in larger
        ]
    return raced


def answer(raced: Mapping[str, Sequence[Sequence[tuple[float, float]]]], sizes: Sequence[int]) -> Answer:
    """Return what a step cost on each larger ledger, pair by pair with what it cost on the smallest."""
    largest = {name: tuple(zip(*costs[-1], strict=True)) for name, costs in raced.items()}
    return Answer(
        question=f"Growth: with {sizes[-1]:,} jobs in the ledger, beside the same with {sizes[0]:,}",
        comparisons=tuple(Comparison(name, *sides, target=1 / MOST) for name, sides in largest.items()),
        curves=tuple(
            Curve(name, tuple(zip(sizes, [_EVEN, *map(_grown, costs)], strict=True)), most=MOST)
            for name, costs in raced.items()
        ),
    )


_EVEN = Spread(1.0, 1.0, 1.0)


def _grown(costs: Sequence[tuple[float, float]]) -> Spread:
    return spread_of([large / small for large, small in costs])


@contextmanager
def ledgers(sizes: Sequence[int]) -> Iterator[list[Bench]]:
    """Make a ledger of each size."""
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pointsman-growth-")))
        postgres = stack.enter_context(Postgres())
        broker = stack.enter_context(Valkey(home))
        benches = []
        for size in sizes:
            url = stack.enter_context(postgres.database())
            say(f"growth: making {size:,} jobs")
            fill(url, size)
            benches.append(Bench(url, broker.url))
            stack.callback(benches[-1].close)
        yield benches


@dataclass(frozen=True)
class Growth:
    """The question, of ledgers that have seen so many jobs, the fewest first."""

    name: str
    sizes: tuple[int, ...]
    pairs: int

    def ask(self, repetitions: int | None = None) -> Answer:
        """Measure."""
        with ledgers(self.sizes) as benches:
            return answer(race(benches, repetitions or self.pairs), self.sizes)


QUESTION = Growth("growth", sizes=(1_000, 100_000, 1_000_000), pairs=25)
SHORT = Growth("growth-short", sizes=(1_000, 100_000), pairs=9)
"""So much of it as fits into a run of all questions: making a million jobs takes minutes."""

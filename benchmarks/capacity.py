"""What the parts beside the workers bear: what `pointsman capacity` names its next bottleneck by.

Everything is the product's own, on one machine: its servers, its processes and what loads them share the processors, so
each figure is a floor for a part that has a machine to itself. The answer's `limits` are what
`pointsman capacity --limits` reads; `--repetitions` says how many hundreds of jobs each figure is made of.
"""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
from sqlalchemy import text

from benchmarks.answer import Answer
from benchmarks.jobs import accepted, claimed, ended
from benchmarks.question import Survey
from gateway.fake_provider.config import FakeProviderConfig
from ledger.start_attempt import Claim
from monitoring.capacity.plan import Limits
from monitoring.event_metrics import fold_pending
from producers.config import DispatcherConfig
from producers.dispatch.broker import BrokerLists, Publisher
from producers.dispatch.dispatcher import Dispatcher
from producers.local.embedded import Embedded, Options
from producers.local.preparation import TENANT
from routing.broker import create_app
from routing.policy.platform import Policy, load_policy
from tests.bulk import fill
from tests.factories import Shop
from tests.services import wait_until

_CALLERS = 4
_CALLS_OF_A_JOB = 10
"""So many calls of a job that is held are far below its caps."""
_DONE = "SELECT count(*) FROM job WHERE ended_at IS NULL"
_WRITES = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
"""The next transaction number: only transactions that write take one."""
_TAKEN = "UPDATE job SET waiting_since = NULL, pushed_at = NULL WHERE pushed_at IS NOT NULL"


class Rate(NamedTuple):
    """Something was done so often in so many seconds."""

    times: int
    seconds: float

    @property
    def per_second(self) -> float:
        return self.times / self.seconds


class Kept(NamedTuple):
    """What something left in the ledger, each time."""

    writes: float
    events: float


def measure(repetitions: int) -> Answer:
    """Measure every part in turn, while the others rest."""
    jobs = 100 * repetitions
    with tempfile.TemporaryDirectory(prefix="pointsman-bench-", ignore_cleanup_errors=True) as home:
        fake_provider = FakeProviderConfig(speed="max")
        options = Options(home=Path(home), fake_provider=fake_provider, api_port=0, concurrency=2)
        with Embedded(options, base_environment=os.environ) as embedded:
            fleet = Fleet(embedded)
            try:
                return answer(fleet, jobs)
            finally:
                fleet.close()


def answer(fleet: Fleet, jobs: int) -> Answer:
    """Return the table and the limits."""
    fleet.warm_up()
    fleet.rest("dispatcher")
    _, tool = fleet.kept(lambda: fleet.run_jobs("echo warm", 30))
    _, question = fleet.kept(lambda: fleet.run_jobs("Explain how bread rises", 30))
    fleet.rest("worker-quick", "worker-edits", "worker-agent")
    submits, submit = fleet.kept(lambda: fleet.submit("echo busy", jobs))
    lives = fleet.live(jobs)
    calls = fleet.call(jobs)
    folds = fleet.fold()  # before the dispatcher, whose sweeps fold, too
    rounds, pushes = fleet.dispatch(jobs * 4)
    limits = Limits(
        machine="",
        at="",
        api_submits_per_second=submits.per_second,
        gateway_calls_per_second=calls.per_second,
        dispatcher_rounds_per_second=rounds.per_second,
        dispatcher_pushes_per_second=pushes.per_second,
        ledger_transactions_per_second=lives.per_second,
        fold_events_per_second=folds.per_second,
        submit_transactions=submit.writes,
        attempt_transactions=max(0.0, tool.writes - submit.writes),
        call_transactions=max(0.0, question.writes - tool.writes),
        job_events=submit.events,
        attempt_events=max(0.0, tool.events - submit.events),
        call_events=max(0.0, question.events - tool.events),
    )
    rows = [(name, value) for name, value in limits.model_dump().items() if isinstance(value, float)]
    made = Answer(
        question="What do the parts beside the workers bear? Each alone; its callers share the machine",
        heads=("", "figure"),
        rows=tuple(rows),
        notes=(
            f"from {jobs} submits, lives and calls, {pushes.times} pushes in {rounds.times} rounds and "
            f"{folds.times} events; {_CALLERS} callers at a time",
        ),
    )
    return replace(made, limits=limits.model_dump() | {"machine": made.machine, "at": made.at})


class Fleet:
    """A running installation, of which parts are put to rest so that one is measured."""

    def __init__(self, embedded: Embedded) -> None:
        self._embedded = embedded
        self._policy: Policy = load_policy(None)
        self._ledger = embedded.open_ledger(pool_size=_CALLERS)
        self._http = embedded.open_api()

    def close(self) -> None:
        self._http.close()
        self._ledger.close()

    def rest(self, *names: str) -> None:
        """End processes for good, the supervisor does not bring them back by itself."""
        assert self._embedded.supervisor is not None
        for name in names:
            self._embedded.supervisor.kill(name)

    def warm_up(self) -> None:
        """Open every connection once."""
        self.run_jobs("echo warm", 20)
        self.run_jobs("Explain how bread rises", 10)

    def submit(self, prompt: str, count: int) -> Rate:
        """Submit over HTTP, several callers at a time."""

        def one(_: int) -> None:
            found = self._http.post("/v1/jobs", json={"prompt": prompt})
            assert found.status_code == httpx2.codes.ACCEPTED, found.text

        return self._together(one, range(count))

    def run_jobs(self, prompt: str, count: int) -> Rate:
        """Submit jobs and wait until all have ended; each reaches a worker at once: the dispatch window has room."""
        began = time.monotonic()
        for _ in range(count):
            self.submit(prompt, 1)
            wait_until(lambda: self._scalar(_DONE) == 0, seconds=60, what="the job has ended")
        return Rate(count, time.monotonic() - began)

    def kept(self, do: Callable[[], Rate]) -> tuple[Rate, Kept]:
        """Do something a number of times, and tell what each time left in the ledger."""
        writes, events = self._scalar(_WRITES), self._scalar("SELECT count(*) FROM event")
        done = do()
        wrote, happened = self._scalar(_WRITES) - writes, self._scalar("SELECT count(*) FROM event") - events
        return done, Kept(wrote / done.times, happened / done.times)

    def live(self, count: int) -> Rate:
        """Take jobs from accept over claim to their end, straight on the ledger; returns its writes."""
        before = self._scalar(_WRITES)
        done = self._together(self._live_once, range(count))
        return Rate(self._scalar(_WRITES) - before, done.seconds)

    def call(self, count: int) -> Rate:
        """Call models through the gateway, for jobs that are held."""
        held = [self._claim() for _ in range(max(_CALLERS, math.ceil(count / _CALLS_OF_A_JOB)))]
        body = {
            "model": self._policy.calls["answer"].model,
            "max_tokens": 1500,
            "messages": [{"role": "user", "content": "Explain how bread rises"}],
        }
        with httpx2.Client(base_url=self._embedded.gateway_url, timeout=30, trust_env=False) as http:

            def one(number: int) -> None:
                headers = {"authorization": f"Bearer {held[number % len(held)].token}"}
                found = http.post("/v1/messages", json=body, headers=headers)
                assert found.status_code == httpx2.codes.OK, found.text

            done = self._together(one, range(count))
        for one in held:
            ended(self._ledger, one)
        return done

    def dispatch(self, count: int) -> tuple[Rate, Rate]:
        """Let a dispatcher push a backlog; workers are played by taking everything off its hands between rounds."""
        shop = Shop(self._ledger, url="")
        fill(shop, queue="answer", count=count, tenants=20)
        app, lists = create_app(self._embedded.broker_url), BrokerLists(self._embedded.broker_url)
        config = DispatcherConfig(sweep_seconds=3600)
        dispatcher = Dispatcher(
            self._ledger,
            Publisher(app),
            lists,
            policy=self._policy,
            config=config,
            holder="bench",
            signing_key=b"k" * 32,
        )
        try:
            wait_until(dispatcher.run_once, seconds=30, what="the lead is free")
            return self._drain(dispatcher)
        finally:
            dispatcher.resign()
            lists.close()
            app.close()

    def fold(self) -> Rate:
        """Make metrics of everything that has happened since the exporter rests."""
        pending = self._scalar("SELECT count(*) FROM event WHERE xid >= (SELECT xid FROM rollup_mark)")
        began = time.monotonic()
        count = fold_pending(self._ledger)
        assert count > 0, f"{pending} events are pending, and another process folds or an older transaction runs"
        return Rate(count, time.monotonic() - began)

    def _drain(self, dispatcher: Dispatcher) -> tuple[Rate, Rate]:
        rounds, pushed, seconds = 0, 0, 0.0
        while True:
            with self._ledger.begin() as session:
                taken: Any = session.execute(text(_TAKEN))
            if rounds and not taken.rowcount:
                return Rate(rounds, seconds), Rate(pushed, seconds)
            pushed += taken.rowcount if rounds else 0
            began = time.monotonic()
            dispatcher.run_once()
            seconds += time.monotonic() - began
            rounds += 1

    def _live_once(self, _: int) -> None:
        ended(self._ledger, self._claim())

    def _claim(self) -> Claim:
        return claimed(self._ledger, accepted(self._ledger, TENANT))

    def _together(self, one: Callable[[int], None], numbers: Sequence[int]) -> Rate:
        began = time.monotonic()
        with ThreadPoolExecutor(_CALLERS) as pool:
            for _ in pool.map(one, numbers):
                pass
        return Rate(len(numbers), time.monotonic() - began)

    def _scalar(self, query: str) -> int:
        with self._ledger.begin() as session:
            return int(session.scalar(text(query)))


QUESTION = Survey("capacity", measure)

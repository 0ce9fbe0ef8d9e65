"""Every process is restarted under load, one after the other, and nobody who waits for a job sees it.

`ROLLING_JOBS=300` for more load. What a single API process costs its clients meanwhile is measured and printed.
"""

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any
from uuid import UUID, uuid4

import httpx2
import pytest
from sqlalchemy import text

from ledger.store import Ledger
from tests.acceptance.installation import Installation
from tests.services import wait_until

JOBS = int(os.environ.get("ROLLING_JOBS", "60"))
SITES = 3
PACE_SECONDS = 0.4
PROCESSES = ("gateway", "worker-edits", "worker-quick", "worker-agent", "api", "dispatcher")
END_SECONDS = 90.0
PATIENCE_SECONDS = 60.0
"""How long a client goes on asking when it gets no answer."""


class Client:
    """An HTTP client as a careful user writes it: no answer means asking again, with the same idempotency key."""

    def __init__(self, installation: Installation) -> None:
        self._http = installation.http
        self.retries: Counter[str] = Counter()

    def submit(self, prompt: str, **body: Any) -> UUID:
        key = f"rolling-{uuid4()}"
        answer = self._until_answered(
            lambda: self._http.post("/v1/jobs", json={"prompt": prompt, **body}, headers={"idempotency-key": key})
        )
        assert answer.status_code == httpx2.codes.ACCEPTED, answer.text
        return UUID(answer.json()["id"])

    def _until_answered(self, ask: Callable[[], httpx2.Response]) -> httpx2.Response:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return ask()
            except httpx2.TransportError as error:
                assert time.monotonic() < deadline, "no answer for too long"
                self.retries[type(error).__name__] += 1
                time.sleep(0.1)


def prompts() -> Iterator[tuple[str, dict[str, Any]]]:
    """Work for every pool: quick answers, model calls of two seconds, edits that are published without a person."""
    for number in count():
        if number % 4 == 1:
            yield f"Explain how bread rises, part {number} [rehearse:linger]", {}
        elif number % 10 == 0:
            yield f"Change the hero heading to 'Bread number {number}'", {"site": f"rolling-{number % SITES}"}
        else:
            yield f"echo {number}", {}


@contextmanager
def load(installation: Installation, client: Client) -> Iterator[list[UUID]]:
    """Submit all the while by both sources, and so many jobs at least."""
    accepted: list[UUID] = []
    failures: list[BaseException] = []
    stopping = threading.Event()

    def submit() -> None:
        try:
            for number, (prompt, body) in enumerate(prompts()):
                by_celery = number % 7 == 3
                accepted.append((installation.submit_by_celery if by_celery else client.submit)(prompt, **body))
                has_stopped = stopping.wait(PACE_SECONDS)
                if number >= JOBS and (has_stopped or number >= 2 * JOBS):
                    return
        except BaseException as error:  # noqa: BLE001 - handed to the test
            failures.append(error)

    thread = threading.Thread(target=submit)
    thread.start()
    try:
        yield accepted
    finally:
        stopping.set()  # what is left of them comes at once
        thread.join(2 * PATIENCE_SECONDS)
    assert failures == []


@contextmanager
def watched(url: str) -> Iterator[list[float]]:
    """Look all the while whether the API answers; the longest time without an answer comes last."""
    gaps, stopping = [0.0], threading.Event()

    def look() -> None:
        answered = time.monotonic()
        while not stopping.wait(0.02):
            try:
                httpx2.get(f"{url}/healthz", timeout=5, trust_env=False, verify=False)
            except httpx2.TransportError:
                continue
            gaps.append(time.monotonic() - answered)
            answered = time.monotonic()

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield gaps
    finally:
        stopping.set()
        thread.join(20)
        gaps.append(max(gaps))


def rows(ledger: Ledger, sql: str, ids: list[UUID]) -> list[Any]:
    with ledger.begin() as session:
        return list(session.connection().execute(text(sql), {"ids": ids}))


def open_calls(ledger: Ledger) -> set[UUID]:
    with ledger.begin() as session:
        return set(session.connection().execute(text("SELECT id FROM call WHERE state = 'reserved'")).scalars())


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_rolling_restart_under_load_fails_no_job_and_loses_no_attempt(installation: Installation) -> None:
    supervisor = installation.embedded.supervisor
    assert supervisor is not None
    for number in range(SITES):
        installation.embedded.import_site(f"rolling-{number}")
    ledger, client = installation.embedded.open_ledger(), Client(installation)
    began = time.monotonic()
    try:
        with ledger.begin() as session:
            session.connection().execute(text("UPDATE tenant SET auto_approve = true"))
        with load(installation, client) as accepted, watched(installation.embedded.api_url) as gaps:
            for name in PROCESSES:
                if name == "gateway":
                    drained = list(wait_until(lambda: open_calls(ledger), seconds=60, what="a model is being called"))
                supervisor.end(name, seconds=END_SECONDS)
                supervisor.restart(name)
                supervisor.wait_ready([name])
        wait_for_ends(ledger, accepted)
        check(ledger, accepted, drained)
    finally:
        with ledger.begin() as session:
            session.connection().execute(text("UPDATE tenant SET auto_approve = false"))
        ledger.close()
    hidden, seconds = dict(client.retries), time.monotonic() - began
    print(f"rolling restart: {len(accepted)} jobs, {len(PROCESSES)} processes, {seconds:.0f} s;", end=" ")
    print(f"one API process was away for {gaps[-1]:.1f} s, hidden by retries: {hidden}")


def wait_for_ends(ledger: Ledger, accepted: list[UUID]) -> None:
    under_way = "SELECT prompt, state, queue, held_for FROM job WHERE id = ANY(:ids) AND ended_at IS NULL"
    try:
        wait_until(lambda: not rows(ledger, under_way, accepted), seconds=180, what="every job has ended")
    except AssertionError:
        assert rows(ledger, under_way, accepted) == []
    assert len(rows(ledger, "SELECT 1 FROM job WHERE id = ANY(:ids)", accepted)) == len(accepted)


def check(ledger: Ledger, accepted: list[UUID], drained: list[UUID]) -> None:
    """Everything ended as it should, with every worker's and every call's work used."""
    states = Counter(state for (state,) in rows(ledger, "SELECT state FROM job WHERE id = ANY(:ids)", accepted))
    unhappy = rows(
        ledger,
        "SELECT prompt, state, reason, detail FROM job WHERE id = ANY(:ids) AND state NOT IN ('answered', 'published')",
        accepted,
    )
    assert unhappy == [], states
    outcomes = Counter(
        outcome for (outcome,) in rows(ledger, "SELECT outcome FROM attempt WHERE job_id = ANY(:ids)", accepted)
    )
    assert outcomes["lost"] == 0, outcomes
    assert rows(ledger, "SELECT lost_attempts FROM job WHERE id = ANY(:ids) AND lost_attempts > 0", accepted) == []
    finished = rows(ledger, "SELECT finish FROM call WHERE id = ANY(:ids)", drained)
    assert {finish for (finish,) in finished} == {"completed"}, "what was open in the gateway was let finish"
    cut = "SELECT 1 FROM call WHERE job_id = ANY(:ids) AND (state = 'reserved' OR finish = 'cut')"
    assert rows(ledger, cut, accepted) == []

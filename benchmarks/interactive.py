"""What does a person wait for? An edit that costs nothing, its publish, and pages of the console, on an idle fleet.

The installation is that of `pointsman up`, asked over HTTP; each is held to the time that issue 21 allows it.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import httpx2
import psycopg

from benchmarks.answer import Answer, Comparison
from benchmarks.past import fill
from benchmarks.question import Survey, say
from ledger.store import Ledger, create_ledger_engine
from producers.local.embedded import Embedded, Options
from producers.use_cases.tenants import Scope, create_key

_PREVIEW_SECONDS, _PUBLISH_SECONDS, _PAGE_SECONDS = 0.25, 0.2, 0.1
_JOBS = 100_000
_TENANT = "t1"
_PAGES = (
    "jobs",
    "jobs?state=awaiting_approval",
    "jobs?text=page%2099990",
    "jobs?cost=cent",
    "",
    "charts",
    "sites",
    "audit",
)
_POLL_SECONDS = 0.004
_WARM = 3
"""Turns before the clock counts: processes import what a first job or page needs."""


class Person:
    """Somebody who edits the shipped site, and reads the console."""

    def __init__(self, fleet: Embedded) -> None:
        self._api = fleet.open_api()
        self._edits = 0
        self._awaited = ""

    def edit(self) -> float:
        """Return the seconds from a submit to the preview."""
        self._edits += 1
        body = {"prompt": f"Change the hero heading to 'Bread since {1900 + self._edits}'", "site": "bakery"}
        began = time.perf_counter()
        self._awaited = str(self._api.post("/v1/jobs", json=body).raise_for_status().json()["id"])
        self._until("awaiting_approval")
        return time.perf_counter() - began

    def approve(self) -> float:
        """Return the seconds from the approval of the last edit to its publish."""
        began = time.perf_counter()
        self._api.post(f"/v1/jobs/{self._awaited}/approve", json={}).raise_for_status()
        self._until("published")
        return time.perf_counter() - began

    def _until(self, state: str) -> None:
        while (found := self._api.get(f"/v1/jobs/{self._awaited}").json()["state"]) != state:
            if found in {"failed", "rejected"}:
                raise RuntimeError(f"the edit {found}")
            time.sleep(_POLL_SECONDS)


def _console(fleet: Embedded) -> Callable[[str], float]:
    """Give a tenant a past and a key; return what reads a page of its console and tells how long that took."""
    url = fleet.environment["POINTSMAN_LEDGER__URL"]
    fill(url.replace("+psycopg", ""), _JOBS)
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        for table in ("job", "event", "audit"):
            connection.execute(f"UPDATE {table} SET tenant = '{_TENANT}' WHERE tenant <> 'demo'".encode())
            connection.execute(f"VACUUM (ANALYZE) {table}".encode())
    ledger = Ledger(create_ledger_engine(url, pool_size=1))
    with ledger.begin() as session:
        key = create_key(session, _TENANT, name="bench", scopes=tuple(Scope))
    ledger.close()
    browser = httpx2.Client(base_url=f"{fleet.api_url}/console/", trust_env=False, timeout=30, follow_redirects=True)
    browser.post("login", data={"key": key}, headers={"origin": fleet.api_url}).raise_for_status()

    def read(page: str) -> float:
        began = time.perf_counter()
        browser.get(page).raise_for_status()
        return time.perf_counter() - began

    return read


def measure(repetitions: int) -> Answer:
    """Edit, approve, then read every page of a console with a long past."""
    with ExitStack() as stack:
        home = stack.enter_context(tempfile.TemporaryDirectory(prefix="pointsman-bench-", ignore_cleanup_errors=True))
        options = Options(home=Path(home), api_port=0, site="bakery", idle_children=0)
        fleet = stack.enter_context(Embedded(options, base_environment=os.environ))
        person = Person(fleet)
        say(f"interactive: {repetitions} edits, each published")
        edits = [(person.edit(), person.approve()) for _ in range(_WARM + repetitions)][_WARM:]
        previews, publishes = zip(*edits, strict=True)
        say(f"interactive: {len(_PAGES)} pages of a console with {_JOBS:,} jobs")
        read = _console(fleet)
        pages = {page: tuple(read(page) for _ in range(_WARM + repetitions))[_WARM:] for page in _PAGES}

    def held(what: str, seconds: tuple[float, ...], limit: float) -> Comparison:
        return Comparison(f"{limit * 1000:.0f} ms, {what}", seconds, (limit,) * len(seconds), target=1)

    return Answer(
        question="What a person waits for, on an idle fleet of `pointsman up`",
        comparisons=(
            held("a $0 edit, from submit to preview", previews, _PREVIEW_SECONDS),
            held("from approval to published", publishes, _PUBLISH_SECONDS),
            *(
                held(f"console page `/{page}`, {_JOBS:,} jobs", seconds, _PAGE_SECONDS)
                for page, seconds in pages.items()
            ),
        ),
    )


QUESTION = Survey("interactive", measure, repetitions=30)

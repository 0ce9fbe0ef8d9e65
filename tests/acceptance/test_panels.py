"""A real Prometheus on a real fleet: every query of every panel is run, and shows what the ledger says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import text

from ledger.dispatch_window import pause_queue
from ledger.store import Ledger
from producers.commands.installation import read_alert_rules
from routing.queues import QueueName
from tests.acceptance.installation import Installation
from tests.panel_numbers import BESIDE_THE_LEDGER, PANELS
from tests.panel_proof import Proof, places
from tests.prometheus import Prometheus, needs_prometheus
from tests.services import wait_until

pytestmark = [pytest.mark.timeout(240), needs_prometheus]

SHOWN = (
    {
        ("pointsman-fleet", title)
        for title in (
            "Waiting",
            "Oldest wait",
            "Workers",
            "Ended well",
            "Spent today",
            "Dispatcher leads",
            "Ends by state",
            "Accepted and ended",
            "Waiting by queue",
            "Reasons of failures",
            "Limits hit",
            "Duration of jobs",
        )
    }
    | {
        ("pointsman-queue", title)
        for title in (
            "Waiting",
            "Time in queue",
            "Backlog in seconds of work",
            "Arrivals and starts",
            "Paused",
            "Slots",
            "Attempts take",
            "Outcomes",
        )
    }
    | {
        ("pointsman-cost", title)
        for title in (
            "The fleet's day",
            "USD per hour by tier and model",
            "Cost of a job",
            "Tokens by kind",
            "Calls by answer",
            "USD for each job that ended well",
            "Bytes that jobs made",
        )
    }
    | {
        ("pointsman-routing", title)
        for title in ("ANSWER rate", "ACTION rate", "Routes", "Tiers of actions", "Sources", "Requests refused")
    }
    | {
        ("pointsman-sandbox", title)
        for title in ("Edits without a container", "Jobs by container", "Steps of a session take")
    }
)
"""Where the load below has to show."""


def is_quiet(ledger: Ledger) -> bool:
    """Whether nothing waits, runs or is still to be counted, so that two looks one after the other see the same."""
    with ledger.begin() as session:
        busy = session.scalar(
            text("""
            SELECT EXISTS (SELECT FROM job WHERE waiting_since IS NOT NULL AND held_for IS NULL AND queue NOT IN (
                               SELECT queue FROM queue_control WHERE paused_at IS NOT NULL))
                OR EXISTS (SELECT FROM attempt WHERE ended_at IS NULL)
                OR EXISTS (SELECT FROM call WHERE state = 'reserved')
        """)
        )
    return not busy


def work(installation: Installation) -> None:
    """Let every source, tier and kind of end happen that needs no container, and pay for some of it."""
    for name in ("panel-a", "panel-b", "panel-c"):
        installation.embedded.import_site(name)
    answered = [installation.submit(f"What is a sourdough starter, part {n}?") for n in range(3)]
    answered += [installation.submit("echo hello"), installation.submit_by_celery("What is rye?")]
    direct = installation.submit("Change the hero heading to 'Bread since 1932'", site="panel-a")
    modelled = installation.submit("Add a short FAQ about opening hours and how to order ahead", site="panel-b")
    patched = installation.submit("Add a hover effect to the cards", site="panel-c")
    failed = installation.submit_by_celery("Change the heading to 'Hi'", site="no-such-site")
    spent = installation.submit("What is a poolish, in great detail?", budget_usd=0.00001)
    refused = installation.http.post("/v1/jobs", json={"prompt": "x", "site": "no-such-site"})
    assert refused.is_client_error
    for job_id in answered:
        installation.wait_for(job_id, "answered", seconds=60)
    for job_id in (direct, modelled, patched):
        installation.wait_for(job_id, "awaiting_approval", seconds=60)
    installation.wait_for(failed, "rejected")
    installation.wait_for(spent, "budget_exceeded")
    assert installation.http.post(f"/v1/jobs/{direct}/approve").is_success
    assert installation.http.post(f"/v1/jobs/{modelled}/reject", json={"reason": "no"}).is_success
    installation.wait_for(direct, "published")


@contextmanager
def paused(ledger: Ledger, queue: QueueName) -> Iterator[None]:
    with ledger.begin() as session:
        pause_queue(session, queue, is_paused=True)
    try:
        yield
    finally:
        with ledger.begin() as session:
            pause_queue(session, queue, is_paused=False)


def test_every_query_is_proven_by_the_ledger_or_by_a_test_of_its_own() -> None:
    known = {place for place, _ in places()}
    assert known == {*PANELS, *BESIDE_THE_LEDGER}


@pytest.mark.req("H-118", "S-022", "S-099", "R-097")
def test_every_panel_of_every_board_shows_what_the_ledger_says(installation: Installation, tmp_path: Path) -> None:
    ledger = installation.embedded.open_ledger()
    try:
        wait_until(lambda: is_quiet(ledger), seconds=60, what="nothing is under way")
        with Prometheus(tmp_path, installation.embedded.exporter_url, rules=read_alert_rules()) as prometheus:
            proof = Proof.begin(prometheus, ledger, begun=prometheus.caught_up())
            work(installation)
            with paused(ledger, QueueName.ANSWER):
                for number in range(3):
                    installation.submit(f"What is spelt, part {number}?")
                wait_until(lambda: is_quiet(ledger), seconds=60, what="nothing is under way")
                at = prometheus.caught_up()
                assert proof.differences(at=at) == {}
                shown = {place[:2] for place, query in places() if any(proof.ask(query, at=at).values())}
                assert SHOWN - shown == set()
            with installation.broker() as broker:
                broker.lpush("unrouted", "a message of nobody's")
                wait_until(lambda: "PointsmanUnrouted" in prometheus.alerts(), seconds=20, what="the alert's series")
                broker.delete("unrouted")
            assert "PointsmanExporterDown" not in prometheus.alerts()
    finally:
        ledger.close()

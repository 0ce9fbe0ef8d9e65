"""Every panel over a ledger in which nearly everything has happened: escalations, losses, runs, gates, boxes, waste.

What a fleet without an engine cannot do in seconds is done on the ledger here, by its own functions; exporter and
Prometheus are real. The same comparison over a real fleet's own work is in tests/acceptance/test_panels.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger import provider_circuits
from ledger.dispatch_window import pause_queue
from ledger.events import EventKind, record
from ledger.operations.leaders import lead
from ledger.operations.workers import WorkerStatus, record_heartbeat
from producers.local.supervisor import free_port
from routing.clarify.ladder import BYPASS_REASONS, LadderEventName
from routing.jobs import Reason, State
from routing.provider_circuit import Trouble
from routing.queues import QueueName, Tier
from tests.directories import new_directory
from tests.factories import Shop
from tests.integration.monitoring.driving import MODEL, Fleet
from tests.integration.monitoring.test_alerts import SERVE
from tests.integration.monitoring.test_exporter import drive_everything
from tests.integration.runs.run_world import Yard
from tests.panel_proof import Proof, places
from tests.prometheus import Prometheus, needs_prometheus
from tests.services import Postgres, Valkey

pytestmark = [pytest.mark.long, pytest.mark.timeout(300), needs_prometheus]

DARK = {
    ("pointsman-fleet", "Keys that the broker threw away"),
    ("pointsman-fleet", "Messages that nobody serves"),
    ("pointsman-fleet", "On the broker's lists"),
    ("pointsman-fleet", "Tenants that are moving"),
    ("pointsman-fleet", "Age of what is not counted yet"),
    ("pointsman-routing", "override rate"),
    ("pointsman-runs", "Steps waiting and running"),
}
"""What this history is not about, or what is over in it: all of its steps have ended, all events are counted."""


@pytest.fixture
def prometheus(shop: Shop, postgres: Postgres, valkey: Valkey, tmp_path: Path) -> Iterator[Prometheus]:
    port = free_port()
    with new_directory(postgres) as (directory_url, _):
        arguments = (shop.url, str(port), valkey.url, directory_url)
        exporter = subprocess.Popen([sys.executable, "-W", "ignore", "-c", SERVE, *arguments])
        try:
            with Prometheus(tmp_path, f"http://127.0.0.1:{port}") as running:
                yield running
        finally:
            exporter.kill()
            exporter.wait(20)


def stand_by(shop: Shop) -> None:
    """Let a dispatcher lead, a worker serve, a queue be paused, a circuit be open and a job be held."""
    with shop.ledger.begin() as session:
        lead(session, "dispatcher", "d1", seconds=3600)
        record_heartbeat(session, WorkerStatus(id="w1", host="h", pid=1, queues=("answer", "spec", "steps"), slots=4))
        pause_queue(session, QueueName.AGENT, is_paused=True)
        refused = provider_circuits.fail(
            "fake", MODEL, trouble=Trouble.OVERLOADED, pauses=[600], asked=None, is_test=False
        )
        refused.all(session)
    for held_for, hours in (("site", None), ("time", 1)):
        shop.execute(
            "UPDATE job SET held_for = :held_for, held_until = now() + make_interval(hours => :hours) WHERE id = :id",
            held_for=held_for,
            hours=hours,
            id=shop.accept(tier=None),
        )


def use_boxes(fleet: Fleet) -> None:
    """Let boxes be opened, worked in, left behind and fed with packages, and people answer in their own words."""
    claimed = fleet.claim(fleet.accept(tier=Tier.AGENT))
    with fleet.ledger.begin() as session:
        for is_warm in (True, False, True):
            record(session, EventKind.BOX, queue="agent", warm=is_warm)
        for step, seconds in (("provision", 0.7), ("execute", 42.0), ("model:x", 3.0), ("strange", 0.2)):
            record(session, EventKind.STEP, step=step, seconds=seconds)
        record(session, EventKind.REAPED, container=2, network=1, volume=1)
        record(session, EventKind.MIRROR, result="hit", requests=7, bytes=70_000)
        record(session, EventKind.UNREAD, queue="spec", version=9)
        record(session, EventKind.LADDER, event=LadderEventName.BYPASSED.value, reason=BYPASS_REASONS[0])
        record(session, EventKind.DEBATED, debate="planning", verdict="PROCEED")
        record(session, EventKind.LIMIT_HIT, queue="spec", tier=1, limit="cost", phase="admit")
    fleet.execute("UPDATE attempt SET egress_address = '10.0.0.2' WHERE id = :id", id=claimed.attempt.id)


def test_every_panel_shows_what_the_ledger_says_of_a_history_in_which_everything_happened(
    prometheus: Prometheus, shop: Shop, tmp_path: Path
) -> None:
    yard = Yard(shop, tmp_path)
    fleet, other = (Fleet(shop.ledger, shop.url, site_id=shop.site(name)) for name in ("one", "other"))
    proof = Proof.begin(prometheus, shop.ledger, begun=prometheus.caught_up())
    yard.play(yard.submit("Fix the broken header", priority="P0"))
    drive_everything(fleet)
    other.end(other.claim(other.accept()), State.BUDGET_EXCEEDED, Reason.COST_CAP)
    use_boxes(other)
    stand_by(shop)
    at = prometheus.caught_up()
    assert proof.differences(at=at) == {}
    shown = {place[:2] for place, query in places() if any(proof.ask(query, at=at).values())}
    assert {place[:2] for place, _ in places()} - shown <= DARK

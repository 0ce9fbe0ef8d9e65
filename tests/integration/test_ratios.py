"""The router's four ratios, computed from what the exporter renders after known decisions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from monitoring.exporter import render_metrics
from monitoring.ledger.jobs import lock_job, move, route_job
from monitoring.metrics import PREFIX
from monitoring.ratios import RATIOS, Selection
from routing.jobs import JobRequest, State
from routing.policy import platform_policy
from routing.queues import QueueName
from routing.router import Signals, SiteSignals, decide
from routing.soft import soft_route
from tests.integration.driving import Fleet, create_fleet

ROOT = Path(__file__).parents[2]
RATIO = {ratio.name: ratio for ratio in RATIOS}


@pytest.fixture
def fleet(ledger: Any, ledger_url: str) -> Fleet:
    return create_fleet(ledger, ledger_url)


def decided(fleet: Fleet, prompt: str, **fields: Any) -> Any:
    site = None if prompt == "pwd" else SiteSignals(files=3)
    route = decide(Signals(prompt=prompt, site=site), platform_policy())
    return fleet.accept(
        tier=route.tier, request=JobRequest(prompt=prompt), route=route.model_dump(mode="json"),
        mode=route.mode.value, **({"queue": route.queue} | fields),
    )  # fmt: skip


def rendered(fleet: Fleet, selection: Selection) -> float:
    page = render_metrics(fleet.ledger, policy=fleet.policy).decode()
    return sum(
        sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == PREFIX + selection.metric.name and selection.holds(sample.labels)
    )


def ratio(fleet: Fleet, name: str) -> float:
    return rendered(fleet, RATIO[name].part) / rendered(fleet, RATIO[name].whole)


def decide_ten(fleet: Fleet) -> None:
    """Four answers, one of them a model's; one trivial command; two STRONG and three WEAK actions, one asked back."""
    for prompt in ("what is HPOS?", "Explain how grep works", "why is it blue?", "pwd"):
        decided(fleet, prompt)
    soft = decided(fleet, "fix the tests", state=State.RECEIVED, queue=QueueName.INTAKE)
    signals = Signals(prompt="fix the tests", site=SiteSignals(files=3))
    with fleet.ledger.begin() as session:
        route = decide(signals, platform_policy())
        route = soft_route(route, {"mode": "ANSWER"}, signals=signals, policy=platform_policy())
        route_job(session, lock_job(session, soft), route)
    for _ in range(2):
        decided(fleet, "fix the broken tests in src/a.py")
        decided(fleet, "make the header blue")
    unclear = decided(fleet, "make it nicer", state=State.RECEIVED, queue=QueueName.INTAKE)
    with fleet.ledger.begin() as session:
        move(session, lock_job(session, unclear), State.CLARIFYING)
        move(session, lock_job(session, unclear), State.QUEUED)


@pytest.mark.req("R-097", "R-106", "R-107", "R-108", "R-109")
def test_the_four_ratios_follow_from_what_is_rendered(fleet: Fleet) -> None:
    decide_ten(fleet)
    assert rendered(fleet, RATIO["ANSWER rate"].whole) == 10
    assert ratio(fleet, "ANSWER rate") == pytest.approx(4 / 10)
    assert ratio(fleet, "ACTION rate") == pytest.approx(5 / 10)
    assert ratio(fleet, "confidence distribution") == pytest.approx(2 / 5)
    assert ratio(fleet, "override rate") == pytest.approx(1 / 3)


def test_a_decision_counts_once_however_often_its_job_passes_intake(fleet: Fleet) -> None:
    unclear = decided(fleet, "make it nicer", state=State.RECEIVED, queue=QueueName.INTAKE)
    for target in (State.CLARIFYING, State.RECEIVED, State.CLARIFYING, State.QUEUED):
        with fleet.ledger.begin() as session:
            move(session, lock_job(session, unclear), target)
    assert rendered(fleet, RATIO["ANSWER rate"].whole) == 1
    assert rendered(fleet, RATIO["override rate"].part) == 2


def test_each_ratio_is_a_query_that_prometheus_reads() -> None:
    assert RATIO["override rate"].promql() == (
        'sum(increase(pointsman_clarifications_total{mode="action",confidence="weak"}[1d]))'
        ' / sum(increase(pointsman_routes_total{mode="action",confidence="weak"}[1d]))'
    )
    assert RATIO["ACTION rate"].promql("7d") == (
        'sum(increase(pointsman_routes_total{mode="action",confidence=~"strong|weak"}[7d]))'
        " / sum(increase(pointsman_routes_total[7d]))"
    )


def test_the_page_is_what_the_metrics_say() -> None:
    made = subprocess.run(
        [sys.executable, "docs/generate_metrics.py"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert made == (ROOT / "docs" / "metrics.md").read_text(), "run `make docs`"
    assert all(ratio.promql() in made for ratio in RATIOS)

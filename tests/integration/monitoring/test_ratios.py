"""The router's four ratios, computed from what the exporter renders after known decisions."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from docs.generate_metrics import metrics_page
from ledger.jobs import lock_job, move, route_job
from monitoring.exporter import render_metrics
from routing.decision.llm_router import route_by_llm
from routing.decision.router import Signals, SiteSignals, decide
from routing.jobs import JobRequest, State
from routing.policy.platform import platform_policy
from routing.queues import QueueName
from tests.integration.monitoring.driving import Fleet, create_fleet
from tests.panel_proof import places

ROOT = Path(__file__).parents[3]
RATIO = {title: expression for (board, title, _), expression in places() if board == "pointsman-routing"}
"""The queries of the router's dashboard by their panels."""


@pytest.fixture
def fleet(ledger: Any, ledger_url: str) -> Fleet:
    return create_fleet(ledger, ledger_url)


def decided(fleet: Fleet, prompt: str, **fields: Any) -> Any:
    site = None if prompt == "pwd" else SiteSignals(files=3)
    route = decide(Signals(prompt=prompt, site=site), platform_policy())
    return fleet.accept(
        tier=route.tier,
        request=JobRequest(prompt=prompt),
        route=route.model_dump(mode="json"),
        mode=route.mode.value,
        **({"queue": route.queue} | fields),
    )


def sums(fleet: Fleet, name: str) -> list[float]:
    """What a ratio divides by what, by what the exporter renders: sums over all time, as the fleet is new."""
    page = render_metrics(fleet.ledger, policy=fleet.policy).decode()
    samples = [sample for family in text_string_to_metric_families(page) for sample in family.samples]
    selections = re.findall(r"sum\(max without \(instance, pod\) \(increase\((\w+)\{(.*?)\}\[1d\]\)\)\)", RATIO[name])
    assert len(selections) == 2, RATIO[name]
    return [
        sum(
            sample.value
            for sample in samples
            if sample.name == series
            and all(
                re.fullmatch(wanted, sample.labels[label])
                for label, wanted in re.findall(r'(\w+)=~?"(.*?)"', matchers)
                if label != "job"
            )
        )
        for series, matchers in selections
    ]


def ratio(fleet: Fleet, name: str) -> float:
    part, whole = sums(fleet, name)
    return part / whole


def decide_ten(fleet: Fleet) -> None:
    """Four answers, one of them a model's; one trivial command; two STRONG and three WEAK actions, one asked back."""
    for prompt in ("what is HPOS?", "Explain how grep works", "why is it blue?", "pwd"):
        decided(fleet, prompt)
    soft = decided(fleet, "fix the tests", state=State.RECEIVED, queue=QueueName.INTAKE)
    signals = Signals(prompt="fix the tests", site=SiteSignals(files=3))
    with fleet.ledger.begin() as session:
        route = decide(signals, platform_policy())
        route = route_by_llm(route, {"mode": "ANSWER"}, signals=signals, policy=platform_policy())
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
    assert sums(fleet, "ANSWER rate")[1] == 10
    assert ratio(fleet, "ANSWER rate") == pytest.approx(4 / 10)
    assert ratio(fleet, "ACTION rate") == pytest.approx(5 / 10)
    assert ratio(fleet, "confidence distribution") == pytest.approx(2 / 5)
    assert ratio(fleet, "override rate") == pytest.approx(1 / 3)


def test_a_decision_counts_once_however_often_its_job_passes_intake(fleet: Fleet) -> None:
    unclear = decided(fleet, "make it nicer", state=State.RECEIVED, queue=QueueName.INTAKE)
    for target in (State.CLARIFYING, State.RECEIVED, State.CLARIFYING, State.QUEUED):
        with fleet.ledger.begin() as session:
            move(session, lock_job(session, unclear), target)
    assert sums(fleet, "ANSWER rate")[1] == 1
    assert sums(fleet, "override rate")[0] == 2


def test_the_page_is_what_the_metrics_say() -> None:
    made = metrics_page()
    assert made == (ROOT / "docs" / "metrics.md").read_text(), "run `make docs`"
    ratios = ("ANSWER rate", "ACTION rate", "confidence distribution", "override rate")
    assert re.findall(r"^\*\*(.+?)\.\*\*", made, re.MULTILINE) == list(ratios)

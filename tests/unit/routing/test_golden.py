"""Accuracy on labelled prompts: our own, written from the rules before tuning, and the shared ones where they exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from routing.decision.evaluation import Evaluation
from tests.unit.routing.evaluation import evaluate, samples

ROOT = Path(__file__).resolve().parents[3]
GOLDEN = ROOT / "tests" / "data" / "routing_golden.jsonl"
SHARED = ROOT.parent / "shared" / "data" / "routing_dev.jsonl"


@pytest.fixture(scope="module")
def golden() -> Evaluation:
    return evaluate(samples(GOLDEN))


@pytest.mark.req("R-101", "R-102", "R-110")
def test_more_than_nine_in_ten_sample_tasks_are_routed_right(golden: Evaluation) -> None:
    assert golden.total >= 150
    assert golden.accuracy("mode") >= 0.98, golden.misses
    assert golden.accuracy("tier") >= 0.96, golden.misses
    assert golden.accuracy("intent") >= 0.96, golden.misses
    assert golden.accuracy("trivial") == 1, golden.misses


@pytest.mark.req("R-103", "R-111")
def test_few_questions_become_actions_and_each_is_named(golden: Evaluation) -> None:
    assert len(golden.false_actions) / golden.answers_wanted < 0.05, golden.false_actions


@pytest.mark.req("R-103", "R-112")
def test_no_order_is_taken_for_a_question(golden: Evaluation) -> None:
    assert golden.false_answers == []


def test_debates_are_found_and_few_are_needless(golden: Evaluation) -> None:
    assert golden.debate_precision >= 0.92, golden.misses
    assert golden.debate_recall >= 0.92, golden.misses


@pytest.mark.skipif(not SHARED.exists(), reason="the shared data does not lie beside this checkout")
def test_the_shared_prompts_are_routed_right() -> None:
    report = evaluate(samples(SHARED))
    assert report.accuracy("mode") == 1, report.misses
    assert report.false_answers == []
    assert report.accuracy("tier") >= 0.97, report.misses
    assert report.accuracy("intent") >= 0.97, report.misses
    assert report.accuracy("debate") >= 0.95, report.misses

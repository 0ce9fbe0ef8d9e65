"""Accuracy on labelled prompts: our own, written from the rules before tuning, and the shared ones where they exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.routing.evaluation import Report, evaluate

ROOT = Path(__file__).resolve().parents[3]
GOLDEN = ROOT / "tests" / "data" / "routing_golden.jsonl"
SHARED = ROOT.parent / "shared" / "data" / "routing_dev.jsonl"


@pytest.fixture(scope="module")
def golden() -> Report:
    return evaluate(GOLDEN)


@pytest.mark.req("R-101", "R-102", "R-110")
def test_more_than_nine_in_ten_sample_tasks_are_routed_right(golden: Report) -> None:
    assert golden.total >= 150
    assert golden.accuracy("mode") >= 0.98, golden
    assert golden.accuracy("tier") >= 0.96, golden
    assert golden.accuracy("intent") >= 0.96, golden
    assert golden.accuracy("trivial") == 1, golden


@pytest.mark.req("R-103", "R-111")
def test_few_questions_become_actions_and_each_is_named(golden: Report) -> None:
    assert len(golden.false_actions) / golden.answers_wanted < 0.05, golden.false_actions


@pytest.mark.req("R-103", "R-112")
def test_no_order_is_taken_for_a_question(golden: Report) -> None:
    assert golden.false_answers == []


def test_debates_are_found_and_few_are_needless(golden: Report) -> None:
    assert golden.debate_precision >= 0.92, golden
    assert golden.debate_recall >= 0.92, golden


@pytest.mark.skipif(not SHARED.exists(), reason="the shared data does not lie beside this checkout")
def test_the_shared_prompts_are_routed_right() -> None:
    report = evaluate(SHARED)
    assert report.accuracy("mode") == 1, report
    assert report.false_answers == []
    assert report.accuracy("tier") >= 0.97, report
    assert report.accuracy("intent") >= 0.97, report
    assert report.accuracy("debate") >= 0.95, report

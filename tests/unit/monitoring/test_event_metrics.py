from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.events import EventKind
from monitoring import metrics
from monitoring.event_metrics import fold, tier_label
from monitoring.metrics import SeriesKey
from routing.decision.router import Mode
from routing.decision.triggers import Confidence


class Happened(NamedTuple):
    kind: str
    data: dict[str, Any]


def of(increments: dict[SeriesKey, float], name: str) -> dict[tuple[str, ...], float]:
    return {tuple(json.loads(key.labels).values()): value for key, value in increments.items() if key.name == name}


def test_a_call_counts_dollars_and_tokens_exactly() -> None:
    data = {
        "tier": 1,
        "model": "m",
        "provider": "p",
        "cost_nanousd": 1_234_567,
        "input_tokens": 10,
        "output_tokens": 2,
        "cache_write_tokens": 0,
        "cache_read_tokens": 5,
        "wasted_nanousd": 7,
    }
    folded = fold([Happened("call", data)] * 3)
    assert of(folded, "cost_usd_total") == {("m", "p", "spec"): 3_703_701}
    assert of(folded, "cost_wasted_usd_total") == {("spec",): 21}
    assert of(folded, "tokens_total") == {
        ("input", "m", "spec"): 30,
        ("output", "m", "spec"): 6,
        ("cache_read", "m", "spec"): 15,
    }


@pytest.mark.parametrize(
    ("status", "code"),
    [(200, "2xx"), (429, "429"), (529, "529"), (503, "5xx"), (400, "4xx"), (0, "none"), (None, "none"), ("x", "none")],
)
def test_a_call_counts_for_its_lane_by_how_the_provider_took_it(status: object, code: str) -> None:
    folded = fold([Happened("call", {"model": "m", "provider": "p", "status": status})])
    assert of(folded, "provider_requests_total") == {(code, "m", "p"): 1}


def test_only_a_circuit_that_opens_counts_as_open() -> None:
    circuit = {"provider": "p", "model": "m", "reason": "overloaded"}
    changes = [Happened("circuit", {**circuit, "change": change}) for change in ("opened", "closed", "opened")]
    assert of(fold(changes), "circuit_opens_total") == {("m", "p", "overloaded"): 2}


@pytest.mark.req("H-121")
@pytest.mark.parametrize(
    ("seconds", "bucket"),
    [
        (0.0, "0.1"),
        (25, "25.0"),
        (29.999, "30.0"),
        (30, "30.0"),
        (30.001, "45.0"),
        (60, "60.0"),
        (60.5, "90.0"),
        (299, "300.0"),
        (300, "300.0"),
        (301, "330.0"),
        (9999, "+Inf"),
    ],
)
def test_a_duration_falls_into_one_bucket(seconds: float, bucket: str) -> None:
    data = {"tier": 3, "queue": "agent", "outcome": "failed", "reason": "spec_poor", "seconds": seconds}
    folded = fold([Happened("attempt_ended", data)])
    assert of(folded, "attempt_duration_seconds_bucket") == {(bucket, "agent", "agent"): 1}
    assert of(folded, "attempt_duration_seconds_sum") == {("agent", "agent"): round(seconds * 1000)}


def test_a_job_waits_once_until_it_is_claimed_or_leaves() -> None:
    waiting = Happened("waiting", {"queue": "spec", "tier": 1, "left": None})
    started = Happened("started", {"queue": "spec", "tier": 1, "wait_seconds": 1.5, "attempt": 1})
    moved = Happened("waiting", {"queue": "patch", "tier": 2, "left": "spec"})
    ended = Happened("ended", {"queue": "spec", "tier": 1, "state": "cancelled", "reason": "cancelled", "left": "spec"})
    assert of(fold([waiting, waiting]), "queue_depth") == {("spec",): 2}
    assert of(fold([waiting, started]), "queue_depth") == {("spec",): 0}
    assert of(fold([waiting, moved]), "queue_depth") == {("spec",): 0, ("patch",): 1}
    assert of(fold([waiting, ended]), "queue_depth") == {("spec",): 0}


@pytest.mark.req("R-109")
def test_only_a_move_to_clarifying_is_a_clarification() -> None:
    moves = [Happened("state", {"origin": "received", "target": target}) for target in ("clarifying", "queued")]
    assert of(fold(moves), "clarifications_total") == {("none", "none"): 1}


@pytest.mark.req("R-109")
def test_a_clarification_is_counted_by_the_decision_that_was_in_doubt() -> None:
    asked = {"origin": "queued", "target": "clarifying", "mode": "ACTION", "confidence": "WEAK", "tier": 1}
    assert of(fold([Happened("state", asked)]), "clarifications_total") == {("weak", "action"): 1}
    at_once = {"source": "http", "state": "clarifying", "mode": "ACTION", "confidence": "STRONG", "tier": None}
    assert of(fold([Happened("accepted", at_once)]), "clarifications_total") == {("strong", "action"): 1}


@pytest.mark.req("R-106", "R-107", "R-108")
def test_a_decision_that_is_made_in_intake_is_counted_when_it_leaves_it_and_not_before() -> None:
    decision = {"mode": "ANSWER", "confidence": "NONE", "tier": None}
    accepted = Happened("accepted", {"source": "http", "mode": "ACTION", "confidence": "WEAK", "state": "received"})
    left = Happened("state", {"origin": "received", "target": "queued", "decision": decision})
    assert of(fold([accepted]), "routes_total") == {}
    assert of(fold([accepted, left]), "routes_total") == {("none", "answer", "none"): 1}


@pytest.mark.req("R-097", "R-106", "R-107", "R-108")
@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("confidence", Confidence)
def test_a_route_is_counted_by_mode_confidence_and_tier(mode: Mode, confidence: Confidence) -> None:
    data = {"source": "http", "mode": mode.value, "tier": 2, "confidence": confidence.value}
    labels = (confidence.name.lower(), mode.name.lower(), "patch")
    assert of(fold([Happened("accepted", data)]), "routes_total") == {labels: 1}


def test_a_job_that_is_not_routed_yet_counts_no_route() -> None:
    unrouted = Happened("accepted", {"source": "http", "mode": None, "tier": None})
    assert of(fold([unrouted]), "routes_total") == {}


@pytest.mark.req("H-118")
@pytest.mark.parametrize(("boxes", "label"), [(0, "none"), (1, "used"), (3, "used")])
def test_a_job_used_a_container_or_none(boxes: int, label: str) -> None:
    data = {"queue": "agent", "tier": 3, "state": "failed", "reason": "cost_cap", "boxes": boxes}
    assert of(fold([Happened("ended", data)]), "jobs_by_box_total") == {(label, "agent"): 1}


def test_a_box_counts_by_its_queue_and_by_whether_it_stood_ready() -> None:
    opened = [Happened("box", {"queue": "agent", "warm": warm}) for warm in (True, False, True)]
    assert of(fold(opened), "boxes_opened_total") == {("agent", "warm"): 2, ("agent", "cold"): 1}


def test_a_call_that_was_booked_again_counts_by_what_the_ledger_had_lost() -> None:
    restored = [Happened("call_restored", {"lost": lost}) for lost in ("row", "attempt", "row")]
    assert of(fold(restored), "calls_restored_total") == {("row",): 2, ("attempt",): 1}


def test_what_a_sweep_took_away_counts_by_sort() -> None:
    swept = Happened("reaped", {"container": 2, "network": 1, "volume": 0})
    assert of(fold([swept, swept]), "orphans_reaped_total") == {("container",): 4, ("network",): 2}


@pytest.mark.parametrize(("step", "label"), [("scan", "scan"), ("model:claude", "model"), ("rm -rf", "other")])
def test_a_step_counts_by_its_name_alone(step: str, label: str) -> None:
    folded = fold([Happened("step", {"step": step, "seconds": 0.3})])
    assert of(folded, "step_seconds_sum") == {(label,): 300}


@pytest.mark.req("S-099")
@pytest.mark.parametrize(("gates", "bucket"), [(0, "0.0"), (1, "1.0"), (4, "5.0"), (40, "+Inf")])
def test_a_run_that_ends_counts_how_often_it_waited_for_a_person(gates: int, bucket: str) -> None:
    data = {"queue": "control", "tier": None, "state": "published", "reason": "done", "gates": gates}
    folded = fold([Happened("ended", data)])
    assert of(folded, "gates_per_run_bucket") == {(bucket, "published"): 1}
    assert of(folded, "gates_per_run_sum") == {("published",): gates}


def test_a_job_that_made_nothing_counts_no_bytes() -> None:
    ends = [Happened("ended", {"tier": 1, "state": "published", "output_bytes": size}) for size in (5000, None)]
    assert of(fold(ends), "output_bytes_bucket") == {("16384.0", "spec"): 1}


@pytest.mark.parametrize(("tier", "label"), [(1, "spec"), (2, "patch"), (3, "agent"), (None, "none"), (9, "none")])
def test_a_tier_is_labelled_by_its_name(tier: object, label: str) -> None:
    assert tier_label(tier) == label


def test_unknown_kinds_and_people_s_events_add_nothing() -> None:
    assert fold([Happened("step", {"text": "scan"}), Happened("progress", {}), Happened("from the future", {})]) == {}


_METRICS = {metric.name: metric for metric in metrics.FOLDED}
_hostile = st.one_of(st.none(), st.text(), st.integers(), st.booleans(), st.sampled_from(["spec", "http", "cost"]))
_hostile_data = st.fixed_dictionaries(
    {},
    optional={
        name: _hostile
        for name in (
            "queue",
            "tier",
            "state",
            "reason",
            "outcome",
            "source",
            "field",
            "mode",
            "confidence",
            "limit",
            "phase",
            "origin",
            "target",
            "left",
            "debate",
            "verdict",
        )
    },
)


@given(st.sampled_from(EventKind), _hostile_data)
def test_no_event_can_invent_a_label(kind: EventKind, data: dict[str, Any]) -> None:
    for key in fold([Happened(kind, data)]):
        metric = _METRICS[key.name.removesuffix("_bucket").removesuffix("_sum")]
        for label, value in json.loads(key.labels).items():
            known = metric.labels.get(label)
            if label == "le" or (not known and label in ("model", "provider")):
                continue
            held = {part for pair in metrics.DEBATES_HELD for part in pair}
            assert value in {*(known or held), "other"}, (key, label)


@given(st.lists(st.sampled_from(["waiting", "started", "ended", "fenced"])), st.integers(0, 10))
def test_folding_in_parts_equals_folding_at_once(kinds: list[str], cut: int) -> None:
    happened = [Happened(kind, {"queue": "spec", "tier": 1, "wait_seconds": 0.3, "seconds": 1.1}) for kind in kinds]
    whole, first, second = fold(happened), fold(happened[:cut]), fold(happened[cut:])
    assert whole == {key: first.get(key, 0) + second.get(key, 0) for key in first | second}

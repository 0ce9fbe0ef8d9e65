"""Labelled replies: our own, written from the rules before they were run, and the shared ones where they exist."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from producers.cli import app
from routing.clarify.ladder import ArbiterReply, ArbiterRequest, Choice, Failure
from routing.clarify.ladder_batch import decide_line, ladder_line, read_reply, read_state
from routing.clarify.replies import Source

ROOT = Path(__file__).resolve().parents[3]
OWN = ROOT / "tests" / "data" / "ladder_cases.jsonl"
BLIND = ROOT / "tests" / "data" / "ladder_blind.jsonl"
SHARED = ROOT.parent / "shared" / "data" / "ladder_dev.jsonl"
FIELDS = ["id", "outcome", "llm_called", "option", "order", "handled", "reason"]


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def decided(line: dict[str, Any]) -> dict[str, Any]:
    pool: list[str] = []

    def arbiter(request: ArbiterRequest) -> ArbiterReply:
        pool.extend(option.id for option in request.candidates)
        return read_reply(line["llm"])

    result = ladder_line(line)
    assert decide_line(line, arbiter).outcome.value == result["outcome"]
    return {**result, "id": result["option"], "llm_pool": sorted(pool)}


def accepted(expect: dict[str, Any]) -> list[dict[str, Any]]:
    plain = {name: value for name, value in expect.items() if name != "also"}
    plain |= {"llm_pool": sorted(plain["llm_pool"])} if "llm_pool" in plain else {}
    return [plain, *(also if "outcome" in also else plain | also for also in expect.get("also", ()))]


def holds(line: dict[str, Any]) -> bool:
    got = decided(line)
    return any(all(got[name] == value for name, value in way.items()) for way in accepted(line["expect"]))


@pytest.mark.req("L-120", "L-013")
def test_our_own_labelled_replies_are_all_decided_right() -> None:
    wrong = [(line["input"], line["why"], decided(line), line["expect"]) for line in lines_of(OWN) if not holds(line)]
    assert wrong == []


@pytest.mark.req("L-120", "L-013")
@pytest.mark.parametrize("half", ["tune", "held"])
def test_replies_that_were_labelled_apart_from_the_code_are_decided_right(half: str) -> None:
    """The misses of `held` are not for reading: a red test shows a share only."""
    mine = [line for line in lines_of(BLIND) if line["split"] == half]
    right = sum(holds(line) for line in mine) / len(mine)
    assert right >= 0.95


def test_there_are_enough_of_them_and_their_ids_differ() -> None:
    lines = lines_of(OWN)
    assert len({line["id"] for line in lines}) == len(lines) >= 100


@pytest.mark.skipif(not SHARED.exists(), reason="the shared data does not lie beside this checkout")
def test_the_shared_replies_are_all_decided_right() -> None:
    assert [line["id"] for line in lines_of(SHARED) if not holds(line)] == []


def test_the_command_prints_one_decision_a_line_and_the_same_bytes_again() -> None:
    runs = [CliRunner().invoke(app, ["ladder", "--batch", str(OWN)]) for _ in range(2)]
    assert [run.exit_code for run in runs] == [0, 0]
    assert runs[0].output == runs[1].output
    printed = [json.loads(line) for line in runs[0].output.splitlines()]
    assert [line["id"] for line in printed] == [line["id"] for line in lines_of(OWN)]
    assert all(list(line) == FIELDS for line in printed)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ('{"id": "x"}', "line 1: the field 'input' is missing"),
        ("[]", "line 1: must be an object"),
        ("nonsense", "line 1"),
        ('\n{"option_set_id": "s", "source": "mail", "options": [], "input": "x"}', "line 2"),
    ],
)
def test_a_bad_line_is_named_and_ends_with_the_code_for_usage(tmp_path: Path, content: str, told: str) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text(content, encoding="utf-8")
    run = CliRunner().invoke(app, ["ladder", "--batch", str(path)])
    assert run.exit_code == 2
    assert told in run.stderr
    assert CliRunner().invoke(app, ["ladder", "--batch", str(tmp_path / "none")]).exit_code == 2


@pytest.mark.parametrize(
    ("recorded", "reply"),
    [
        (None, Failure.UNAVAILABLE),
        ({"result": "timeout"}, Failure.TIMEOUT),
        ({"result": "?"}, Failure.ABSTAIN),
        ({"result": "choice", "choice": "a", "confidence": 1}, Choice("a", 1.0)),
        ({"result": "choice", "choice": 3, "confidence": 1}, Failure.ABSTAIN),
        ({"result": "choice"}, Failure.ABSTAIN),
    ],
)
def test_a_recorded_answer_is_read_like_a_live_one(recorded: dict[str, Any] | None, reply: ArbiterReply) -> None:
    assert read_reply(recorded) == reply


def test_the_state_of_a_line_has_the_displayed_order_and_the_other_source() -> None:
    line = lines_of(OWN)[0] | {"displayed_order": ["a3"], "other_source": {"source": "widget", "options": []}}
    state = read_state(line)
    assert state.active is not None
    assert state.other is not None
    assert (state.active.ids, state.other.source) == (("a3", "a1", "a2"), Source.WIDGET)

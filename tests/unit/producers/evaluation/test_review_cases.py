"""Wrong and right fixes of `pointsman eval --set reviews`: shipped ones are what they say; how verdicts are judged."""

import json
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, time
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.fake_provider.library import CaseError
from producers.evaluation.report import last_summary
from producers.evaluation.review_cases import (
    SIDES,
    ReviewCase,
    Verdict,
    judge_verdict,
    read_review_cases,
    summarise_verdicts,
)
from workers.runs.scheduling.view import AgentResult

CASES = {case.id: case for case in read_review_cases()}


def module_of(text: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(compile(text, "fix", "exec"), names)
    return names


class Payments:
    """A provider whose first answer is lost: the charge was made."""

    def __init__(self) -> None:
        self.charged: dict[str, int] = {}

    def post(self, _path: str, *, json: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> int:
        key = (headers or {}).get("Idempotency-Key", f"call {len(self.charged)}")
        is_first = not self.charged
        self.charged[key] = json["cents"]
        if is_first:
            raise TimeoutError
        return 201


def charges(names: dict[str, Any]) -> int:
    provider = Payments()
    names["charge"](provider, 7, 500)
    return len(provider.charged)


def refused(call: Callable[[], object]) -> bool:
    try:
        call()
    except (PermissionError, RuntimeError, ValueError):
        return True
    return False


def settings_of_two_tenants(names: dict[str, Any]) -> tuple[str, str]:
    database = SimpleNamespace(read_setting=lambda tenant, name: f"{tenant} {name}")
    return names["setting"](database, "a", "colour"), names["setting"](database, "b", "colour")


def deleted_by_another(names: dict[str, Any]) -> bool:
    orders = {1: SimpleNamespace(owner_id="ann")}
    return not refused(lambda: names["delete_order"](orders, SimpleNamespace(id="bob"), 1))


def repeated_cursor_ends(names: dict[str, Any]) -> bool:
    client = SimpleNamespace(get=lambda path, params: {"orders": [1], "next": "same"})
    orders = names["orders_of"](client)
    return refused(lambda: [next(orders) for _ in range(5000)])


NOON_UTC = datetime(2026, 7, 1, 16, 30, tzinfo=UTC)
FAULTS: dict[str, tuple[Callable[[dict[str, Any]], object], object]] = {
    "rounding-changed": (lambda names: names["tax_of"](250, Decimal("0.05")), 13),
    "page-border": (lambda names: names["page_of"]([1, 2, 3, 4], 2, 2), ([3, 4], False)),
    "timezone-lost": (lambda names: names["is_open"](time(9), time(18), NOON_UTC), False),
    "float-for-money": (lambda names: names["parse_price"]("19.99"), 1999),
    "silent-default": (lambda names: refused(lambda: names["read_currency"]({"SHOP_CURRENCY": "EURO"})), True),
    "cache-key-without-tenant": (settings_of_two_tenants, ("a colour", "b colour")),
    "permission-dropped": (deleted_by_another, False),
    "retry-without-idempotency": (charges, 1),
    "unbounded-loop": (repeated_cursor_ends, True),
    "swallowed-error": (lambda names: "x" in str(names["read_products"](["name,price", "rye,x"])), True),
}
"""What the right fix does, and the wrong one does not."""


def test_twenty_faults_are_shipped_and_three_of_them_with_replies() -> None:
    assert len(CASES) == 20
    assert sum(bool(case.replies) for case in CASES.values()) == 3
    assert {agent for case in CASES.values() for agent in case.finding.agents} == {"code-review", "qa", "security"}


@pytest.mark.parametrize("name", FAULTS)
def test_the_wrong_fix_has_its_fault_and_the_right_one_has_not(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case, (look, wanted) = CASES[name], FAULTS[name]
    errors = SimpleNamespace(NotFoundError=type("NotFoundError", (Exception,), {}), ForbiddenError=PermissionError)
    monkeypatch.setitem(sys.modules, "shop.errors", errors)
    monkeypatch.setitem(sys.modules, "shop", SimpleNamespace(errors=errors))
    found = {side: look(module_of(case.changed(side)[case.finding.file])) for side in SIDES}
    assert found["right"] == wanted
    assert found["wrong"] != wanted


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_no_agent_can_tell_the_side_of_a_fix_from_what_it_is_told(case: ReviewCase) -> None:
    assert case.wrong.keys() == case.right.keys()
    assert case.wrong != case.right
    assert case.mark("wrong") != case.mark("right")
    assert case.fault not in f"{case.ticket} {case.summary} {case.files}"


@pytest.mark.parametrize("case", [case for case in CASES.values() if case.replies], ids=lambda case: case.id)
def test_the_recorded_replies_are_results_and_right(case: ReviewCase) -> None:
    for side in SIDES:
        for result in case.replies[side].values():
            AgentResult.model_validate(result)
            assert judge_verdict(case, side, result) == ""


def issue(**fields: Any) -> dict[str, Any]:
    return {"severity": "blocking", "title": "It is wrong", "file": "shop/pages.py", "line": 5} | fields


@pytest.mark.parametrize(
    ("side", "result", "said"),
    [
        ("wrong", {"issues": [issue()]}, ""),
        ("wrong", {"issues": [issue(line=8)]}, ""),
        ("wrong", {"issues": [issue(line=40)]}, "missed: "),
        ("wrong", {"issues": [issue(line=None)]}, "missed: "),
        ("wrong", {"issues": [issue(file="shop/cart.py")]}, "missed: "),
        ("wrong", {"issues": [issue(severity="minor")]}, "found, but only as minor: "),
        ("wrong", {"issues": []}, "missed: "),
        ("right", {"status": "complete", "issues": [issue(severity="minor")]}, ""),
        ("right", {"status": "complete", "issues": [issue()]}, "false alarm: It is wrong"),
        ("right", {"status": "needs_rework"}, "false alarm: it says needs_rework"),
    ],
)
def test_a_wrong_fix_needs_its_finding_and_a_right_one_none_that_blocks(
    side: Any, result: dict[str, Any], said: str
) -> None:
    found = judge_verdict(CASES["page-border"], side, result)
    assert found.startswith(said)
    assert bool(found) == bool(said)


def test_figures_are_recall_false_alarms_and_cost_by_agent() -> None:
    def verdict(case: str, side: Any, agent: Any, **fields: Any) -> Verdict:
        return Verdict(id=f"{case}/{side}/{agent}", case=case, side=side, agent=agent, cost_nanousd=10**7, **fields)

    summary = summarise_verdicts(
        [
            verdict("a", "wrong", "qa"),
            verdict("a", "wrong", "security", finding="missed: x"),
            verdict("b", "wrong", "security", failed="it ran out of time"),
            verdict("b", "right", "security", finding="false alarm: y"),
            verdict("b", "right", "qa", skipped="qa needs boxes"),
        ],
        settings={"set": "reviews"},
    )
    security = summary["by_agent"]["security"]
    assert (security["recall"], security["false_alarms"], security["without_result"]) == (0.0, 1, 1)
    assert security["cost_usd"] == "0.03"
    assert summary["by_agent"]["qa"]["recall"] == 1.0
    assert (summary["wrong_fixes_found"], summary["wrong_fixes"], summary["failed"]) == (1, 2, 3)
    assert summary["skipped"] == {"b/right/qa": "qa needs boxes"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- {id: aa}", "case aa: fault: Field required"),
        ("[]]", "did not find expected"),
    ],
)
def test_a_broken_file_is_named_with_its_field(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(CaseError, match=said):
        read_review_cases([tmp_path])


def test_a_finding_at_a_line_that_is_not_there_is_refused(tmp_path: Path) -> None:
    case = CASES["page-border"].model_dump(mode="json")
    case["finding"]["at"] = "nowhere"
    (tmp_path / "mine.yaml").write_text(f"[{json.dumps(case)}]")
    with pytest.raises(CaseError, match=r"the wrong fix has no 'nowhere' in shop/pages\.py"):
        read_review_cases([tmp_path])


def test_a_run_is_compared_with_the_last_one_of_its_own_set(tmp_path: Path) -> None:
    for name, summary in (("1", {"passed": 3}), ("2", {"set": "reviews", "asked": 8}), ("3", {})):
        (tmp_path / name).mkdir()
        (tmp_path / name / "summary.json").write_text(json.dumps(summary))
    assert last_summary(tmp_path, but=tmp_path / "3") == {"passed": 3}
    assert last_summary(tmp_path, but=tmp_path / "3", chosen="reviews") == {"set": "reviews", "asked": 8}
    assert last_summary(tmp_path, but=tmp_path / "2", chosen="reviews") == {}

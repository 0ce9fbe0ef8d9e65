"""`pointsman eval` over the shipped cases and their recorded replies, and jobs replayed from recorded calls."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml

from gateway.fake_provider.library import library_path
from producers.evaluation.cases import read_cases
from tests.acceptance.conftest import NO_ENGINE
from tests.acceptance.installation import Installation

ROOT = Path(__file__).parents[2]
BAKERY = ROOT / "producers" / "local" / "demo_site"
LEAST_CASES = 60
"""Issue 20."""


def pointsman(*arguments: str, environment: Mapping[str, str] = NO_ENGINE) -> tuple[int, dict[str, Any], str]:
    """Run a command of its own process; return its exit code, its JSON and what it said of errors."""
    argv = [sys.executable, "-m", "producers.cli", *arguments, "--json"]
    done = subprocess.run(
        argv, env={**os.environ, **environment}, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.stdout or done.returncode, done.stderr
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


@pytest.mark.slow
def test_every_shipped_case_comes_out_right_at_the_first_try_by_its_recorded_reply(tmp_path: Path) -> None:
    code, summary, said = pointsman("eval", "--out", str(tmp_path), "--jobs", "3")
    assert summary["wrong"] == {}, said
    assert (code, summary["skipped"], summary["repaired"]) == (0, {}, [])
    assert summary["first_try"] == summary["ran"] == len(read_cases()) >= LEAST_CASES
    kinds = {"question", "edit", "patch", "new_site", "vague", "revision", "outside_service", "translation"}
    assert summary["by_kind"].keys() == kinds
    assert {case.lang for case in read_cases() if case.new_site} >= {"de", "en", "fr"}
    (page,) = tmp_path.glob("*/report.html")
    assert all(case.id in page.read_text() for case in read_cases())


@pytest.mark.slow
def test_what_is_wrong_is_named_an_interrupted_run_is_resumed_and_a_spent_budget_ends_it(tmp_path: Path) -> None:
    shipped = yaml.safe_load((library_path() / "bakery.yaml").read_text())
    right = next(case for case in shipped if case["id"] == "bakery-prices")
    wrong = {**right, "id": "wrong", "request": f"{right['request']} Thank you.", "then": {"gone": {"*": ["€6.10"]}, "loses": [".*"]}}
    unknown = {**right, "id": "unknown", "request": "Change the price of the dark rye to €9.99.", "replies": []}
    cases = tmp_path / "cases.yaml"
    cases.write_text(yaml.safe_dump([right, wrong, unknown], allow_unicode=True))
    code, summary, _ = pointsman("eval", str(cases), "--out", str(tmp_path / "runs"))
    assert (code, summary["passed"], summary["failed"]) == (1, 1, 2)
    assert summary["wrong"]["wrong"] == ["index.html still shows '€6.10'"]
    assert "no reply is recorded for a call with cannot, ask, edit_site" in "; ".join(summary["wrong"]["unknown"])

    (run,) = (tmp_path / "runs").iterdir()
    (run / "summary.json").unlink()
    kept = [line for line in (run / "results.jsonl").read_text().splitlines() if '"id":"wrong"' not in line]
    (run / "results.jsonl").write_text("\n".join([*kept, '{"id": "torn']))
    code, again, _ = pointsman("eval", str(cases), "--out", str(tmp_path / "runs"), "--resume")
    assert [*(tmp_path / "runs").iterdir()] == [run]
    assert again["wrong"] == summary["wrong"]

    code, poor, _ = pointsman("eval", str(cases), "--out", str(tmp_path / "runs"), "--budget", "0.01", "--jobs", "1")
    assert code == 1
    assert set(poor["skipped"].values()) == {"the budget is spent"}
    assert float(poor["cost_usd"]) <= 0.01


def test_a_file_of_cases_with_a_mistake_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "cases.yaml").write_text("- {id: one, kind: edit, request: Hello, route: nowhere}\n")
    code, _, said = pointsman("eval", str(tmp_path))
    assert code != 0
    assert "case one: route: Input should be 'tools'" in said


def test_a_recorded_job_is_replayed_bit_for_bit_and_a_changed_reply_shows(installation: Installation) -> None:
    environment = {**installation.embedded.environment, **NO_ENGINE}
    asked = installation.wait_for(installation.submit("What is a sourdough starter?"), "answered")
    code, _, said = pointsman("replay", "--recorded", asked["id"], environment=environment)
    assert (code, "no model call of it was recorded" in said) == (1, True)

    assert pointsman("tenant", "record", "demo", "7", environment=environment)[0] == 0
    assert pointsman("site", "import", "replayed", str(BAKERY), environment=environment)[0] == 0
    request = "Change the price of the dark rye to €6.10 and of the walnut wreath to €7.90."
    first = installation.submit(request, site="replayed")
    installation.wait_for(first, "awaiting_approval")
    answer = installation.http.post(f"/v1/jobs/{first}/revise", json={"text": "Make the headline shorter."})
    second = answer.json()["id"]
    installation.wait_for(second, "awaiting_approval")
    assert pointsman("tenant", "record", "demo", "0", environment=environment)[0] == 0

    code, replayed, said = pointsman("replay", "--recorded", second, environment=environment)
    assert (code, replayed["is_same"], [step["job"] for step in replayed["steps"]]) == (0, True, [str(first), second])
    assert replayed["calls"] >= 2, said

    with psycopg.connect(installation.embedded.environment["POINTSMAN_LEDGER__URL"].replace("+psycopg", "")) as ledger:
        ledger.execute("UPDATE recorded_call SET reply = replace(reply, '6.10', '6.20') WHERE job_id = %s", (first,))
    code, replayed, _ = pointsman("replay", "--recorded", second, environment=environment)
    assert code == 1
    assert replayed["steps"][0]["differences"] == ["its files differ"]

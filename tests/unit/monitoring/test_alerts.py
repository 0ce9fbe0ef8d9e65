"""Alert rules: each one leads to a section that says what to do, and its time window is tested by promtool."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from monitoring.gauges import PROBED
from monitoring.metrics import FOLDED, PREFIX
from producers.commands.installation import read_alert_rules
from routing.yaml_data import load_yaml
from tests.panel_proof import BOARDS
from tests.promql import reads_each_series_once

ROOT = Path(__file__).parents[3]
HERE = ROOT / "monitoring" / "alerts"
GROUPS = load_yaml(read_alert_rules())["groups"]
ALERTS: dict[str, dict[str, Any]] = {
    rule["alert"]: rule for group in GROUPS for rule in group["rules"] if "alert" in rule
}
RECORDED = {rule["record"] for group in GROUPS for rule in group["rules"] if "record" in rule}
TESTS = [
    test
    for name in ("rules_test.yaml", "rules_week_test.yaml")
    for one in load_yaml((HERE / name).read_text())["tests"]
    for test in one.get("alert_rule_test", ())
]
needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="no promtool here; `make test SYSTEM=1` installs it"
)


def anchors() -> set[str]:
    headings = re.findall(r"^## (.+)$", (ROOT / "docs" / "runbooks.md").read_text(), re.MULTILINE)
    return {heading.strip().lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_leads_to_its_runbook_and_its_dashboard(name: str) -> None:
    notes = ALERTS[name]["annotations"]
    page, _, section = notes["runbook_url"].partition("#")
    assert (ROOT / page).is_file()
    assert section in anchors()
    assert notes["dashboard_url"].removeprefix("/d/") in {board["uid"] for board in BOARDS}
    assert notes["summary"]
    assert notes["description"]
    assert ALERTS[name]["labels"]["severity"] in ("page", "ticket")


def test_every_runbook_is_an_alert_s() -> None:
    used = {rule["annotations"]["runbook_url"].partition("#")[2] for rule in ALERTS.values()}
    assert anchors() == used


def test_rules_name_only_series_that_there_are() -> None:
    known = {f"{PREFIX}{metric.name}{suffix}" for metric in (*FOLDED, *PROBED) for suffix in ("", "_bucket", "_count")}
    for group in GROUPS:
        for rule in group["rules"]:
            assert set(re.findall(r"\bpointsman_\w+", rule["expr"])) <= known, rule
            assert set(re.findall(r"\bpointsman:[\w:]+", rule["expr"])) <= RECORDED, rule


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_is_tested_while_it_is_silent_and_when_it_fires(name: str) -> None:
    fires = [bool(test.get("exp_alerts")) for test in TESTS if test["alertname"] == name]
    assert set(fires) == {True, False}


def test_links_become_absolute_where_somebody_says_where_they_lead() -> None:
    told = load_yaml(read_alert_rules(docs="https://docs.example/p/", grafana="https://grafana.example"))
    notes = next(rule for rule in told["groups"][1]["rules"] if rule["alert"] == "PointsmanNoDispatcher")["annotations"]
    assert notes["runbook_url"] == "https://docs.example/p/docs/runbooks.md#pointsmannodispatcher"
    assert notes["dashboard_url"] == "https://grafana.example/d/pointsman-fleet"
    assert [rule["expr"] for group in told["groups"] for rule in group["rules"]] == [
        rule["expr"] for group in GROUPS for rule in group["rules"]
    ]


def test_rules_count_each_series_once_however_many_exporters_are_scraped() -> None:
    for group in GROUPS:
        assert all(reads_each_series_once(rule["expr"]) for rule in group["rules"]), group["name"]


def test_no_rule_takes_two_installations_for_one() -> None:
    for rule in (rule for group in GROUPS for rule in group["rules"]):
        sums = re.findall(r"\bsum\b(?: by \(([^)]*)\))?", rule["expr"])
        assert all("job" in labels.split(", ") for labels in (*sums, *re.findall(r"\bon \(([^)]*)\)", rule["expr"]))), (
            rule
        )


@pytest.mark.slow
@needs_promtool
@pytest.mark.req("S-022")
@pytest.mark.parametrize(
    "arguments", [("check", "rules", "rules.yaml"), ("test", "rules", "rules_test.yaml", "rules_week_test.yaml")]
)
def test_promtool_accepts_the_rules_and_their_time_windows(arguments: tuple[str, ...], tmp_path: Path) -> None:
    for test in HERE.glob("rules_*test.yaml"):
        shutil.copy(test, tmp_path)
    (tmp_path / "rules.yaml").write_text(read_alert_rules())
    done = subprocess.run(["promtool", *arguments], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

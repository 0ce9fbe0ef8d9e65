"""What commands on an installation do without one: files for Grafana and Prometheus, and what `up` finds."""

from __future__ import annotations

import json
from pathlib import Path

import yaml
from typer.testing import CliRunner

from producers.cli import app
from producers.commands.installation import chromium_of


def test_dashboards_and_rules_are_written_where_they_are_read(tmp_path: Path) -> None:
    rules = tmp_path / "prometheus" / "rules.yaml"
    done = CliRunner().invoke(
        app,
        [
            "dashboards",
            "--out",
            str(tmp_path / "boards"),
            "--rules",
            str(rules),
            "--grafana",
            "https://g.example",
            "--json",
        ],
    )
    assert done.exit_code == 0, done.output
    written = [Path(path) for path in json.loads(done.stdout)["written"]]
    assert len(written) == 7
    assert {json.loads(path.read_text())["uid"] for path in written[:6]} == {path.stem for path in written[:6]}
    (alert,) = [
        rule
        for group in yaml.safe_load(rules.read_text())["groups"]
        for rule in group["rules"]
        if rule.get("alert") == "PointsmanWaste"
    ]
    assert alert["annotations"]["dashboard_url"] == "https://g.example/d/pointsman-cost"


def test_a_place_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = CliRunner().invoke(app, ["dashboards", "--out", str(tmp_path / "file")])
    assert done.exit_code == 1
    assert str(tmp_path / "file") in done.stderr.replace("\n", "")


def test_up_takes_pictures_with_the_chromium_of_the_machine_unless_another_or_none_is_set(tmp_path: Path) -> None:
    assert chromium_of({"PATH": str(tmp_path)}) == ""
    program = tmp_path / "chromium"
    program.touch(0o755)
    assert chromium_of({"PATH": str(tmp_path)}) == str(program)
    for named in ("", "/opt/other"):
        assert chromium_of({"PATH": str(tmp_path), "POINTSMAN_DISPATCHER__CHROMIUM": named}) == named

from pathlib import Path
from typing import Any

import pytest

from tests.audit_dependencies import UNCHECKED, audit, judge


def item(**more: Any) -> dict[str, object]:
    return {"name": "left-pad", "version": "1.0", **more}


def test_an_advisory_fails_and_names_the_fix() -> None:
    status, text = judge([item(vulns=[]), item(vulns=[{"id": "PYSEC-1", "fix_versions": ["1.1"]}])])
    assert (status, text) == (1, "audit: left-pad 1.0: PYSEC-1 (fixed in 1.1)")


def test_a_service_that_cannot_be_asked_is_no_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "constraints.txt").write_text("left-pad==1.0\n")
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    status, text = audit(tmp_path / "constraints.txt")
    assert (status, text.endswith("no dependency was checked")) == (UNCHECKED, True)


def test_packages_without_advisories_pass() -> None:
    assert judge([item(vulns=[]), item(skip_reason="unknown")])[0] == 0


def test_a_service_that_knows_nothing_is_no_success() -> None:
    status, text = judge([item(skip_reason="not found"), item(skip_reason="not found")])
    assert status == UNCHECKED
    assert text == "audit: the advisory service knows none of the 2 packages; no dependency was checked"

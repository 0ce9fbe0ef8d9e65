"""A minute of fire, small enough for CI: what `make chaos` shows of 2,000 jobs is shown here of a few dozen."""

from pathlib import Path

import pytest

from tests.chaos.burn import run
from tests.chaos.options import Options


@pytest.mark.timeout(300)
def test_what_is_accepted_ends_once_with_one_bill_whatever_dies(tmp_path: Path) -> None:
    report = run(
        Options(jobs=60, minutes=3.0, fire_seconds=18, kill_seconds=2.2, concurrency=1, is_short=True, out=tmp_path),
        print,
    )
    assert report.is_good, report.text()
    names = {promise.name for promise in report.promises}
    assert {"what was to go wrong went wrong", "each owner that wanted it was told the end"} <= names
    assert str(report.figures["owners told"])[0] != "0"

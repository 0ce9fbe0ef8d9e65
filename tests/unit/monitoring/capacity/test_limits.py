"""What the parts beside the workers bear: read from a file, and changed one by one."""

import json
from pathlib import Path

import pytest

from ledger.errors import CapacityError
from monitoring.capacity.limits import read_limits

BOUNDLESS = read_limits(None).override({"api_submits_per_second": 1e9})


def test_limits_are_read_from_a_file_and_changed_one_by_one(tmp_path: Path) -> None:
    path = tmp_path / "limits.json"
    path.write_text(json.dumps(BOUNDLESS.model_dump()))
    assert read_limits(path) == BOUNDLESS
    path.write_text(json.dumps(BOUNDLESS.model_dump() | {"api_submits_per_second": 0}))
    with pytest.raises(CapacityError, match="api_submits_per_second: Input should be greater than 0"):
        read_limits(path)
    with pytest.raises(CapacityError, match="there is no lunch; there are api_submits"):
        BOUNDLESS.override({"lunch": 1})

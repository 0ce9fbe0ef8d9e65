"""The shipped policy with waits that suit tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from routing.policy.platform import platform_policy


def impatient_policy() -> dict[str, Any]:
    """Return the shipped policy, but that a dead worker's job goes on elsewhere in seconds instead of half a minute."""
    values = platform_policy().model_dump(mode="json")
    values["attempts"] |= {"lease_seconds": 5, "lease_renew_seconds": 1}
    values["pauses"] |= {"lost_worker": [1, 3]}
    return values


def write_policy(path: Path, values: dict[str, Any]) -> Path:
    """Write a policy to a file that programs read."""
    path.write_text(yaml.safe_dump(values, sort_keys=False))
    return path

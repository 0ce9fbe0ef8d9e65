"""Where `pointsman up` leaves word of itself, so that commands in another terminal find it without any setting."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from routing.config import PREFIX

_BOXES = f"{PREFIX}BOX__"


def data_home(environment: Mapping[str, str]) -> Path:
    """Return the directory for an embedded installation's data (XDG base directories)."""
    base = environment.get("XDG_DATA_HOME") or Path(environment.get("HOME", "/root")) / ".local" / "share"
    return Path(base) / "pointsman"


def _up_file(environment: Mapping[str, str]) -> Path:
    base = environment.get("XDG_STATE_HOME") or Path(environment.get("HOME", "/root")) / ".local" / "state"
    return Path(base) / "pointsman" / "up.json"


def write_up_file(environment: Mapping[str, str], wiring: Mapping[str, str]) -> Path:
    """Leave an installation's wiring for other commands of the same account; nobody else can read it."""
    path = _up_file(environment)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump({name: value for name, value in wiring.items() if name.startswith(PREFIX)}, file)
    return path


def remove_up_file(path: Path) -> None:
    """Take the word back."""
    path.unlink(missing_ok=True)


def with_up_file(environment: Mapping[str, str]) -> Mapping[str, str]:
    """Return the environment, completed from a running `pointsman up` when it says nothing of an installation.

    Which engine there is says nothing of one: a shell keeps that for `pointsman up` itself.
    """
    if any(name.startswith(PREFIX) and not name.startswith(_BOXES) for name in environment):
        return environment
    try:
        found: dict[str, str] = json.loads(_up_file(environment).read_text())
    except (OSError, ValueError):
        return environment
    return {**environment, **found}

"""The directory of an embedded installation: for one process at a time, and with the secrets that it keeps."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from pathlib import Path

from producers.errors import InstallationError

_SECRETS = {"preview": 24, "audit": 24, "webhook": 24, "gateway": 24, "install": 6}
"""Random bytes of each; the last is a name, by which an engine tells installations apart."""


class Home:
    """A directory that only its owner reads."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock: int | None = None

    def lock(self) -> None:
        """Keep a second installation out; the kernel ends the lock with this process.

        Raises:
            InstallationError: the operator's fault: another installation runs in it.
        """
        self._lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InstallationError(
                f"{self.path} is used by another installation that runs; stop it, or take another"
            ) from None

    def unlock(self) -> None:
        """Let others in. May be called again."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def secrets(self) -> dict[str, str]:
        """Return what this directory keeps to itself; each secret is made when it is first asked for."""
        path = self.path / "secrets.json"
        found: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
        lacking = [name for name in _SECRETS if name not in found]
        if not lacking:
            return found
        found |= {name: secrets.token_hex(_SECRETS[name]) for name in lacking}
        new = path.with_suffix(".new")
        new.unlink(missing_ok=True)
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(found, file)
        new.replace(path)
        return found

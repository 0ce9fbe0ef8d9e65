"""An embedded installation that does not run: its database alone, for whoever has to work on it undisturbed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from producers.embedded import start_postgres
from producers.home import Home


class Resting(NamedTuple):
    """What of an installation is there while none of its processes run."""

    ledger_url: str
    den: Path
    signing_key: bytes
    """Of its audit trail."""


@contextmanager
def resting(directory: Path) -> Iterator[Resting]:
    """Start the database of the installation in a directory, and keep everybody else out of it.

    Raises:
        InstallationError: the operator's fault: the installation runs.
    """
    home = Home(directory)
    home.lock()
    try:
        server = start_postgres(home.path / "postgres")
        try:
            yield Resting(server.get_uri(), home.path / "den", home.secrets()["audit"].encode())
        finally:
            server.cleanup()
    finally:
        home.unlock()

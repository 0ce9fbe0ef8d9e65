"""A directory of cells on a real server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from types import MappingProxyType

from ledger.cells.directory import Directory
from routing.config import CellSecrets
from tests.services import Postgres


@contextmanager
def new_directory(
    postgres: Postgres, secrets: Mapping[str, CellSecrets] = MappingProxyType({})
) -> Iterator[tuple[str, Directory]]:
    """Give out the URL of an empty directory, and the directory."""
    with postgres.database(template="template1") as url, closing(Directory(url, secrets)) as directory:
        directory.prepare()
        yield url, directory

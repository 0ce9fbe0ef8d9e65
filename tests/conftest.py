"""Fixtures that every level of tests shares. The real servers come from wheels, so nothing has to be installed."""

import gc
import logging
import os
import shutil
from collections.abc import Generator, Iterator
from typing import Any

import pytest
from _pytest.config import Config
from hypothesis import HealthCheck, find, settings
from hypothesis.strategies import integers

from ledger.store import Ledger, create_ledger_engine
from tests.object_server import FaultyProxy, ObjectServer
from tests.order import ByFileAndServers, in_order
from tests.services import Postgres, Valkey, memory

# Seeded and without a clock: what passed once passes always, however busy the machine is.
settings.register_profile(
    "pointsman", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)
settings.load_profile("pointsman")


_PROGRAMS = {"browser": ("chromium",), "node": ("node", "npm")}
"""What tests of a mark run."""


def pytest_configure(config: Config) -> None:
    """Scrub the environment: no test may depend on an installation that the developer has running."""
    for name in list(os.environ):
        if name.startswith("POINTSMAN_") or name == "ANTHROPIC_API_KEY":
            del os.environ[name]
    if directory := memory():
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", directory)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Import without collecting garbage, which stays small, and keep what was imported out of later collections.

    These are rarer than Python's, which take one in twenty-five seconds of the processor.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest; leave what takes minutes to `make chaos ONLY=long`, and what cannot run here."""
    place = {file: number for number, file in enumerate(in_order(dict.fromkeys(map(_file_of, items))))}
    items.sort(key=lambda item: place[_file_of(item)])
    skipped = {
        mark: f"no {' or '.join(programs)}: `make test SYSTEM=1` as root installs what is missing"
        for mark, programs in _PROGRAMS.items()
        if any(shutil.which(program) is None for program in programs)
    }
    if os.environ.get("LONG") != "1":
        skipped["long"] = "takes minutes: `make chaos ONLY=long` runs it"
    for mark, reason in skipped.items():
        for item in items:
            if item.get_closest_marker(mark) is not None:
                item.add_marker(pytest.mark.skip(reason=reason))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Let `make collect` find the constants in our code that Hypothesis tries, or each process does it anew."""
    if session.config.option.collectonly:
        find(integers(), lambda _: True)


def _file_of(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: Config, log: Any) -> ByFileAndServers | None:
    """Share out files, but those that share an engine or an installation to one process."""
    return ByFileAndServers(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """A command that is run in a test configures logging for its process, which is every later test's too."""
    root = logging.getLogger()
    handlers, level, disabled = root.handlers[:], root.level, root.manager.disable
    yield
    root.handlers[:] = [handler for handler in root.handlers if handler in handlers] or handlers
    if (root.level, root.manager.disable) != (level, disabled):  # to set them empties every logger's cache
        root.setLevel(level)
        logging.disable(disabled)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with Postgres() as server:
        yield server


@pytest.fixture
def ledger_url(postgres: Postgres) -> Iterator[str]:
    """A migrated ledger of this test's own."""
    with postgres.database() as url:
        yield url


@pytest.fixture
def ledger(ledger_url: str) -> Iterator[Ledger]:
    opened = Ledger(create_ledger_engine(ledger_url, pool_size=4))
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Valkey]:
    with Valkey(tmp_path_factory.mktemp("valkey")) as server:
        yield server


@pytest.fixture
def broker_url(valkey: Valkey) -> str:
    """An empty broker."""
    valkey.flush()
    return valkey.url


@pytest.fixture(scope="session")
def object_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectServer]:
    with ObjectServer(tmp_path_factory.mktemp("objects")) as server:
        yield server


@pytest.fixture
def proxy(object_server: ObjectServer) -> Iterator[FaultyProxy]:
    with FaultyProxy(object_server.port) as proxy:
        yield proxy

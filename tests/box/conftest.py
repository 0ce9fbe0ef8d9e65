"""One engine and one image for all tests of boxes; a few minutes the first time, as the image's parts are fetched."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.docker.box import DockerBox, DockerMaker
from sandbox.docker.engine import Engine
from sandbox.pool import Reaper, build_maker
from sites.content_store import ContentStore
from tests.engine import Listener, TestEngine, missing


def require_engine() -> None:
    """Skip where no engine can be had, but fail in CI."""
    if why := missing():
        if os.environ.get("CI"):
            pytest.fail(why)
        pytest.skip(why)


@pytest.fixture(scope="package")
def daemon() -> Iterator[TestEngine]:
    """A Docker engine of the tests' own, with the image; it ends with the tests of this package."""
    require_engine()
    with TestEngine() as engine:
        engine.take_image()
        yield engine


@pytest.fixture(scope="package")
def gateway(daemon: TestEngine) -> Listener:
    """Stands for the gateway on the engine's host."""
    return daemon.listen(8090, says="gateway")


@pytest.fixture(scope="package")
def mirror(daemon: TestEngine) -> Listener:
    """Stands for the package mirror on the engine's host."""
    return daemon.listen(8091, says="mirror")


@pytest.fixture(scope="package")
def outside(daemon: TestEngine) -> Listener:
    """Stands for everything that a box must not reach: a service of the host's, the internet, a cloud's metadata."""
    return daemon.listen(8000, says="outside")


@pytest.fixture
def engine(daemon: TestEngine) -> Iterator[Engine]:
    """An engine's installation of this test's own, with nothing left behind."""
    opened = daemon.open()
    yield opened
    Reaper(opened).clear()
    opened.close()


@pytest.fixture
def maker(daemon: TestEngine, engine: Engine, gateway: Listener, mirror: Listener) -> DockerMaker:
    return build_maker(daemon.config(), engine)


@pytest.fixture
def box(maker: DockerMaker) -> Iterator[DockerBox]:
    made = maker.create()
    yield made
    made.close()


@pytest.fixture(scope="module")
def open_box(daemon: TestEngine, gateway: Listener, mirror: Listener) -> Iterator[DockerBox]:
    """One for all tests of a file that leave it as it was: neither frozen nor with anything that runs on."""
    config = daemon.config(install="open")
    opened = daemon.open(install="open")
    made = build_maker(config, opened).create()
    yield made
    made.close()
    Reaper(opened).clear()
    opened.close()


@pytest.fixture
def content_store(tmp_path: Path) -> ContentStore:
    return ContentStore(tmp_path / "content-store")

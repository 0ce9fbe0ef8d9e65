"""What `pointsman up` makes of an engine: boxes where it can, else one line that says what helps."""

import os
import sys
from collections.abc import Iterator

import pytest

from producers.local.preparation import BoxWiring, clear_boxes, wire_boxes
from sandbox.config import BoxConfig
from sandbox.docker.engine import Engine
from tests.engine import TestEngine

pytestmark = [pytest.mark.docker, pytest.mark.timeout(300)]

GATEWAY, MIRROR = 8094, 8093
_WIRE = f"""
import sys
from producers.local.preparation import BoxWiring
from producers.local.preparation import wire_boxes
from sandbox.config import BoxConfig

config = BoxConfig(engine=sys.argv[1], install="wired")
print(repr(wire_boxes(config, gateway_port={GATEWAY}, mirror_port={MIRROR}, npm=sys.argv[2], environment={{}})))
"""


def wired(config: BoxConfig) -> BoxWiring:
    return wire_boxes(config, gateway_port=GATEWAY, mirror_port=MIRROR, npm="npm", environment=os.environ)


@pytest.fixture
def engine(daemon: TestEngine) -> Iterator[Engine]:
    opened = daemon.open(install="wired")
    yield opened
    clear_boxes(daemon.config(install="wired"))
    assert list(opened.leftovers()) == []
    opened.close()


def test_a_missing_image_is_named_with_the_command_that_makes_it(daemon: TestEngine, engine: Engine) -> None:
    found = wired(daemon.config(install="wired", image="pointsman-box:none"))
    assert found == BoxWiring(off="there is no pointsman-box:none; run `pointsman image build`")
    assert list(engine.leftovers()) == []


def test_an_engine_that_is_not_of_this_machine_has_no_address_to_listen_on(daemon: TestEngine, engine: Engine) -> None:
    found = wired(daemon.config(install="wired"))  # seen from outside the engine's own network
    assert found.host == ""
    assert "is not this machine" in found.off


def test_without_npm_there_are_boxes_without_packages(daemon: TestEngine, engine: Engine) -> None:
    found = eval(daemon.inside(sys.executable, "-c", _WIRE, daemon.url, "no-such-npm"))  # the repr of a dataclass
    assert found.host == engine.outer(has_masquerade=False).host
    assert found.off == ""
    assert "no-such-npm" in found.no_packages


def test_a_port_that_is_taken_is_named(daemon: TestEngine, engine: Engine) -> None:
    taken = daemon.listen(GATEWAY, says="somebody else")
    found = eval(daemon.inside(sys.executable, "-c", _WIRE, daemon.url, "npm"))
    assert found.off.startswith("nothing can listen on ")
    assert f":{GATEWAY}: Address already in use" in found.off
    assert taken.requests() == []
    taken.stop()

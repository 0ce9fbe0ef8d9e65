"""What the doctor says of an engine that does not answer: what is wrong, and what helps here."""

import pytest

from sandbox.checks import check_boxes, engine_hint
from sandbox.config import BoxConfig
from sandbox.errors import SandboxUnavailableError


@pytest.mark.parametrize(
    ("reason", "is_installed", "way"),
    [
        ("engine_missing", False, "apt-get install docker.io"),
        ("engine_missing", True, "systemctl start docker"),
        ("engine_unreachable", True, "systemctl start docker"),
        ("engine_forbidden", True, "usermod -aG docker"),
        ("engine_forbidden", False, "usermod -aG docker"),
    ],
)
def test_the_way_to_an_engine_depends_on_what_is_missing(reason: str, is_installed: bool, way: str) -> None:
    hint = engine_hint(SandboxUnavailableError(reason, "what is wrong"), is_installed=is_installed)
    assert hint.startswith("what is wrong; ")
    assert way in hint
    assert hint.endswith("or set POINTSMAN_BOX__ENGINE")


def test_without_an_engine_nothing_else_is_looked_at() -> None:
    [found] = check_boxes(BoxConfig(engine="unix:///nonexistent/docker.sock"))
    assert found.name == "box engine"
    assert found.hint.startswith("there is no socket /nonexistent/docker.sock; ")

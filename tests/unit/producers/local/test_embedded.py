"""Where there is no engine, tier 3 is off, and the reason helps."""

import socket
from pathlib import Path

import pytest

from producers.local.preparation import BoxWiring, clear_boxes, wire_boxes
from producers.local.supervisor import with_up_file, write_up_file
from sandbox.config import BoxConfig


def wired(engine: str) -> BoxWiring:
    config = BoxConfig(engine=engine, install="test")
    return wire_boxes(config, gateway_port=1, mirror_port=1, npm="npm", environment={})


def test_without_an_engine_the_doctor_is_named() -> None:
    found = wired("unix:///nonexistent/docker.sock")
    assert found == BoxWiring(off="there is no socket /nonexistent/docker.sock; `pointsman doctor` says how to get it")


def test_an_engine_that_hangs_up_is_none(tmp_path: Path) -> None:
    path = tmp_path / "docker.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
    assert wired(f"unix://{path}").off.startswith(f"{path}: Connection refused; `pointsman doctor`")


def test_an_engine_that_is_gone_at_the_end_is_left_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    clear_boxes(BoxConfig(engine="unix:///nonexistent/docker.sock", install="test"))
    assert [record.message for record in caplog.records] == ["boxes_not_cleared"]


def test_a_shell_that_names_an_engine_still_finds_the_installation_that_runs(tmp_path: Path) -> None:
    shell = {"XDG_STATE_HOME": str(tmp_path), "POINTSMAN_BOX__ENGINE": "unix:///a"}
    write_up_file(shell, {"POINTSMAN_LEDGER__URL": "postgresql://x", "POINTSMAN_BOX__ENGINE": "unix:///b"})
    found = with_up_file(shell)
    assert (found["POINTSMAN_LEDGER__URL"], found["POINTSMAN_BOX__ENGINE"]) == ("postgresql://x", "unix:///b")
    own = {**shell, "POINTSMAN_LEDGER__URL": "postgresql://mine"}
    assert with_up_file(own) == own

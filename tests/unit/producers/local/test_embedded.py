"""Where there is no engine, tier 3 is off, and the reason helps."""

import socket
from pathlib import Path

import pytest

from producers.local.embedded import Embedded, Options
from producers.local.preparation import BoxWiring, clear_boxes, wire_boxes
from producers.local.supervisor import Home, InstallationError, write_up_file
from producers.servers import with_up_file
from routing.policy.platform import load_policy, platform_policy
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
    shell = {
        "XDG_STATE_HOME": str(tmp_path),
        "POINTSMAN_BOX__ENGINE": "unix:///a",
        "POINTSMAN_RUNS__PRIVATE_REMOTES": "true",
    }
    write_up_file(shell, {"POINTSMAN_LEDGER__URL": "postgresql://x", "POINTSMAN_BOX__ENGINE": "unix:///b"})
    found = with_up_file(shell)
    assert (found["POINTSMAN_LEDGER__URL"], found["POINTSMAN_BOX__ENGINE"]) == ("postgresql://x", "unix:///b")
    own = {**shell, "POINTSMAN_LEDGER__URL": "postgresql://mine"}
    assert with_up_file(own) == own


def test_tickets_may_work_in_repositories_of_a_directory_that_the_operator_names(tmp_path: Path) -> None:
    repositories, given = tmp_path / "code", {"POINTSMAN_RUNS__PRIVATE_REMOTES": "true", "POINTSMAN_GATEWAY__PORT": "1"}
    repositories.mkdir()
    accounts = {"POINTSMAN_ACCOUNTS__BY_NAME__ACME__TOKEN": "secret"}
    closed = Embedded(Options(home=tmp_path / "closed"), base_environment=given)._build_environment("ledger")
    opened = Embedded(
        Options(home=tmp_path / "open", repositories=repositories), base_environment=given | accounts
    )._build_environment("ledger")
    assert "POINTSMAN_POLICY__PATH" not in closed
    assert "POINTSMAN_RUNS__FILES_BELOW" not in closed
    assert closed["POINTSMAN_RUNS__PRIVATE_REMOTES"] == "true"
    assert "POINTSMAN_GATEWAY__PORT" not in closed, "it has a port of its own"
    assert opened.items() >= accounts.items()
    assert opened["POINTSMAN_RUNS__FILES_BELOW"] == str(repositories)
    policy = load_policy(Path(opened["POINTSMAN_POLICY__PATH"]))
    assert policy.runs.remotes == {"https", "ssh", "file"}
    runs = policy.runs.model_copy(update={"remotes": platform_policy().runs.remotes})
    assert policy.model_copy(update={"runs": runs}).model_dump() == platform_policy().model_dump()


def test_a_run_that_could_not_start_leaves_no_ports_for_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Something took one of them where nobody looks, and each later run of that home failed (issue 20)."""

    def fail(*_: object) -> None:
        raise InstallationError("Address already in use")

    monkeypatch.setattr(Embedded, "_prepare", fail)
    Home(tmp_path).keep_ports({"gateway": 1})
    with pytest.raises(InstallationError), Embedded(Options(home=tmp_path, api_port=0), base_environment={}):
        pass
    assert Home(tmp_path).ports() == {}

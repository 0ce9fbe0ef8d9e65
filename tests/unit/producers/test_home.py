import json
from pathlib import Path

import pytest

from producers.errors import InstallationError
from producers.home import Home


def test_secrets_are_made_once_and_are_nobody_elses(tmp_path: Path) -> None:
    made = Home(tmp_path / "home").secrets()
    path = tmp_path / "home" / "secrets.json"
    assert Home(tmp_path / "home").secrets() == made == json.loads(path.read_text())
    assert set(made) == {"preview", "audit", "webhook", "gateway", "install"}
    assert len(set(made.values())) == len(made)
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_a_home_of_before_keeps_its_secrets_and_gets_what_it_lacks(tmp_path: Path) -> None:
    (tmp_path / "secrets.json").write_text(json.dumps({"audit": "kept"}))
    assert Home(tmp_path).secrets()["audit"] == "kept"
    assert Home(tmp_path).secrets()["install"] == Home(tmp_path).secrets()["install"]


def test_two_installations_do_not_share_a_home(tmp_path: Path) -> None:
    first, second = Home(tmp_path), Home(tmp_path)
    first.lock()
    with pytest.raises(InstallationError, match="is used by another installation"):
        second.lock()
    second.unlock()
    first.unlock()
    first.unlock()
    third = Home(tmp_path)
    third.lock()
    third.unlock()

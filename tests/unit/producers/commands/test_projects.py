"""`pointsman project init`: what it writes, runs on request, and refuses; without a server."""

import json
import subprocess
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from producers.cli import app
from sites.repository.checkout import https_url


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    root = tmp_path / "shop"
    root.mkdir()
    subprocess.run(["git", "init", "-q", "-b", "trunk", str(root)], check=True)
    (root / "shop.py").write_text("def cents(price):\n    return int(price * 100)\n")
    (root / "test_shop.py").write_text(TEST.format(cents=300))
    (root / "tox.ini").write_text("[testenv]\n")
    commit(root)
    return root


def commit(root: Path) -> None:
    git = ("git", "-C", str(root), "-c", "user.name=Ann", "-c", "user.email=ann@example.com")
    subprocess.run([*git, "add", "-A"], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "Work"], check=True)


TEST = """import unittest
from shop import cents


class Test(unittest.TestCase):
    def test_cents(self):
        self.assertEqual(cents(3), {cents})
"""


def run(*arguments: str, code: int = 0, engine: str = "") -> str:
    environment = {"POINTSMAN_BOX__ENGINE": engine} if engine else {}
    found = CliRunner().invoke(app, ["project", "init", *arguments], env=environment)
    assert found.exit_code == code, found.output
    return found.output


def written(root: Path) -> str:
    return (root / "pointsman.yaml").read_text()


def test_nothing_is_run_without_a_word_and_the_file_says_so(checkout: Path) -> None:
    said = run(str(checkout))
    assert not (checkout / ".venv").exists()
    assert "unittest discover  # untried" in written(checkout)
    config = yaml.safe_load(written(checkout))
    assert config["repo"] == {"url": checkout.as_uri(), "branch": "trunk"}
    for step in ("project init --try --force", f"up --repositories {checkout.parent}", "project add", "run submit"):
        assert f"pointsman {step}" in said


@pytest.mark.slow
def test_commands_are_tried_on_request_and_a_failing_test_is_shown(checkout: Path) -> None:
    (checkout / "tox.ini").unlink()  # a virtual environment would take seconds
    (checkout / "Makefile").write_text("setup:\n\ttouch set_up\ntest:\n\ttest -f set_up && python3 -m unittest\n")
    (checkout / "test_shop.py").write_text(TEST.format(cents=301))
    commit(checkout)
    before = sorted(path.name for path in checkout.iterdir())
    tried = json.loads(run(str(checkout), "--try", "--here", "--json", code=1))["trials"]
    assert [(trial["name"], trial["result"]) for trial in tried] == [
        ("setup", "passed"),
        ("test", "failed with status 2"),
    ]
    assert "300 != 301" in tried[1]["tail"]
    assert written(checkout).count("# passed on this machine") == 1
    assert "# failed with status 2 on this machine" in written(checkout)
    assert sorted(path.name for path in checkout.iterdir()) == sorted([*before, "pointsman.yaml"]), "only a copy ran"


@pytest.mark.slow
def test_a_command_that_does_not_end_is_ended(checkout: Path) -> None:
    (checkout / "tox.ini").unlink()
    (checkout / "Makefile").write_text("test:\n\tsleep 600\n")
    commit(checkout)
    said = json.loads(run(str(checkout), "--try", "--here", "--seconds", "1", "--json", code=1))
    assert [trial["result"] for trial in said["trials"]] == ["took longer than 1 s"]
    assert said["tried"] == "on this machine"


def test_without_an_engine_nothing_is_run_and_here_is_named(checkout: Path) -> None:
    (checkout / "tox.ini").unlink()
    (checkout / "Makefile").write_text("test:\n\ttouch was_run\n")
    said = run(str(checkout), "--try", code=1, engine="unix:///no/engine")
    assert "no box can be made" in said
    assert "--here" in said
    assert not (checkout / "was_run").exists()
    assert not (checkout / "pointsman.yaml").exists()


def test_a_file_that_is_there_is_kept(checkout: Path) -> None:
    (checkout / "pointsman.yaml").write_text("mine")
    assert "exists; --force replaces it" in run(str(checkout), code=2)
    assert written(checkout) == "mine"
    run(str(checkout), "--force")
    assert "language: python" in written(checkout)


def test_what_is_wrong_is_named(checkout: Path, tmp_path: Path) -> None:
    assert "is in no git repository" in run(str(tmp_path), code=1)
    (checkout / "package.json").write_text("{")
    assert "package.json, line 1: is no JSON" in run(str(checkout), code=2)
    (checkout / "package.json").write_text(" " * 600_000)
    assert "package.json: exceeds 524288 bytes" in run(str(checkout), code=2)
    assert not (checkout / "pointsman.yaml").exists()


@pytest.mark.parametrize(
    ("origin", "url"),
    [
        ("https://forge.example/a/b.git", "https://forge.example/a/b.git"),
        ("https://me:secret@forge.example:8443/a/b", "https://forge.example:8443/a/b"),
        ("git@forge.example:a/b.git", "https://forge.example/a/b.git"),
        ("ssh://git@forge.example:22/a/b", "https://forge.example/a/b"),
        ("/srv/git/b", ""),
        ("https://forge.example:port/a", ""),
        ("ext::sh -c id", ""),
    ],
)
def test_a_remote_is_named_by_https_without_credentials(origin: str, url: str) -> None:
    assert https_url(origin) == url


def test_the_origin_is_taken_from_the_checkout(checkout: Path) -> None:
    subprocess.run(["git", "-C", str(checkout), "remote", "add", "origin", "git@forge.example:a/b.git"], check=True)
    run(str(checkout))
    assert yaml.safe_load(written(checkout))["repo"]["url"] == "https://forge.example/a/b.git"

"""`pointsman apply`: what it prints, what it writes, and how it ends."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from producers.cli import app

DIFF = "--- a/index.html\n+++ b/index.html\n@@ -1,3 +1,3 @@\n <h1>\n-Old\n+New\n </h1>\n"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    directory = tmp_path / "site"
    (directory / "css").mkdir(parents=True)
    (directory / ".git").mkdir()
    (directory / ".git" / "config").write_text("[core]\n")
    (directory / "index.html").write_text("<h1>\nOld\n</h1>\n")
    (directory / "css" / "a.css").write_text("a {}\n")
    (directory / "link").symlink_to("/etc")
    return directory


def apply(*arguments: str | Path, stdin: str | bytes | None = None) -> Result:
    return CliRunner().invoke(app, ["apply", *map(str, arguments)], input=stdin, env={"TERM": "dumb", "COLUMNS": "200"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CONTENT_STORE__URL", "s3://bucket"),
        ("OIDC__CLIENT_SECRET", "wJalrXUtnFEMI-K7MDENG-bPxRfiCYz"),
    ],
)
def test_a_scan_knows_every_secret_of_the_installation(site: Path, name: str, value: str) -> None:
    secret = "wJalrXUtnFEMI-K7MDENG-bPxRfiCYz"
    (site / "link").unlink()
    (site / "index.html").write_text(f"<p>{secret}</p>")
    place = {"POINTSMAN_CONTENT_STORE__SECRETS": json.dumps({"secret_access_key": secret})} if "STORE" in name else {}
    done = CliRunner().invoke(app, ["scan", str(site), "--json"], env={f"POINTSMAN_{name}": value, **place})
    assert done.exit_code == 1, done.output
    assert "own" in done.stdout
    assert secret not in done.stdout


def test_a_diff_from_standard_input_changes_the_directory(site: Path) -> None:
    done = apply(site, "-", "--json", stdin=DIFF)
    assert done.exit_code == 0, done.output
    shown = json.loads(done.stdout)
    assert (shown["ok"], shown["reason"], shown["files"], shown["fuzz"]) == (True, None, ["index.html"], 0)
    assert (site / "index.html").read_text() == "<h1>\nNew\n</h1>\n"
    assert sorted(path.name for path in site.iterdir()) == [".git", "css", "index.html", "link"]


def test_with_out_the_directory_stays_and_a_whole_copy_is_changed(site: Path, tmp_path: Path) -> None:
    diff = tmp_path / "x.diff"
    diff.write_text(DIFF)
    out = tmp_path / "out"
    assert apply(site, diff, "--out", out).exit_code == 0
    assert (site / "index.html").read_text() == "<h1>\nOld\n</h1>\n"
    assert (out / "index.html").read_text() == "<h1>\nNew\n</h1>\n"
    assert (out / "css" / "a.css").read_text() == "a {}\n"
    assert not (out / ".git").exists()
    assert os.readlink(out / "link") == "/etc"


def test_a_refusal_names_reason_file_hunk_and_nearest_lines_and_writes_nothing(site: Path, tmp_path: Path) -> None:
    done = apply(site, "-", "--json", "--out", tmp_path / "out", stdin=DIFF.replace("Old", "Older"))
    assert done.exit_code == 1
    shown = json.loads(done.stdout)
    assert (shown["ok"], shown["reason"], shown["files"]) == (False, "not_found", [])
    assert (shown["file"], shown["hunk"]) == ("index.html", 1)
    assert any("Old" in line for line in shown["nearest"])
    assert not (tmp_path / "out").exists()


def test_a_person_reads_the_refusal_on_stderr(site: Path) -> None:
    done = apply(site, "-", stdin=DIFF.replace("Old", "Older"))
    assert done.exit_code == 1
    assert "not_found" in done.stderr
    assert done.stdout == ""


@pytest.mark.threat("F1")
def test_a_diff_cannot_reach_through_a_link_or_into_git(site: Path) -> None:
    for path, reason in (("link/passwd", "symlink"), ("link", "symlink"), (".git/config", "unsafe_path")):
        done = apply(site, "-", "--json", stdin=f"--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+x\n")
        assert done.exit_code == 1
        assert json.loads(done.stdout)["reason"] == reason


def test_policy_site_adds_what_a_site_refuses(site: Path) -> None:
    diff = "diff --git a/run.html b/run.html\nnew file mode 100755\n--- /dev/null\n+++ b/run.html\n@@ -0,0 +1 @@\n+x\n"
    done = apply(site, "-", "--policy", "site", "--json", stdin=diff)
    assert (done.exit_code, json.loads(done.stdout)["reason"]) == (1, "mode_change")
    assert apply(site, "-", stdin=diff).exit_code == 0
    assert os.access(site / "run.html", os.X_OK)


def test_files_and_directories_are_made_and_removed_as_git_does(site: Path) -> None:
    diff = (
        "*** Begin Patch\n*** Add File: new/deep/x.html\n+x\n*** Delete File: css/a.css\n"
        "*** Update File: index.html\n*** Move to: home.html\n@@\n-Old\n+New\n*** End Patch\n"
    )
    done = apply(site, "-", "--json", stdin=diff)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["files"] == ["css/a.css", "home.html", "index.html", "new/deep/x.html"]
    assert (site / "new/deep/x.html").read_text() == "x\n"
    assert (site / "home.html").read_text() == "<h1>\nNew\n</h1>\n"
    assert not (site / "css").exists()


def test_a_file_keeps_its_mode(site: Path) -> None:
    (site / "index.html").chmod(0o755)
    assert apply(site, "-", stdin=DIFF).exit_code == 0
    assert (site / "index.html").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize(
    "arguments",
    [
        ("nowhere", "-"),
        ("site", "nowhere.diff"),
        ("site", "-", "--policy", "none"),
        ("site",),
        ("site", "-", "--out", "full"),
    ],
)
def test_what_cannot_be_meant_is_an_error_of_usage(
    site: Path, tmp_path: Path, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    assert apply(*arguments, stdin=DIFF).exit_code == 2
    assert (site / "index.html").read_text() == "<h1>\nOld\n</h1>\n"
